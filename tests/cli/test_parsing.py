"""A subcommand's options may stand anywhere. Words after a program belong to the program.

Invalid calls are reported before anything is imported, read or run.
"""

import itertools
import json
import shlex

import processes
import pytest
import saved_values
import text_tables

import estimator_emb as ee
from estimator_emb.cli import main as main_lib

CALLS = {
    "inspect": (["A"], [["--values"]]),
    "compare": (["A", "B"], [["--rtol=0"], ["--ignore", "a*"]]),
    "convert": (["A", "B"], [["--table", "a*"], ["--table=b"], ["--reverse"], ["--hosts=2"]]),
    "export": (["A", "B"], [["--to", "npz"], ["--table=a"], ["--slots"]]),
    "migrate": (["a.py", "b.py"], [["--write"]]),
}
"""Subcommand -> its names, in order, and its options."""
OF_PROGRAMS = {
    "run": ["--shards=2"],
    "cluster": ["--ps", "2"],
    "check": ["--replicas=2"],
}
"""Subcommand that takes a program -> one of its own options."""


def parse(name, args):
    return main_lib.parser_of(name).parse(args)


def test_tests_cover_every_subcommand():
    assert set(CALLS) | set(OF_PROGRAMS) == set(main_lib.SUBCOMMANDS)


@pytest.mark.parametrize("name", CALLS)
def test_options_stand_before_between_and_behind_names(name):
    names, options = CALLS[name]
    expected = parse(name, [*itertools.chain(*options), *names])
    words = [*([one] for one in names), *options]
    for order in itertools.permutations(words):
        if [word[0] for word in order if word in words[: len(names)]] != names:
            continue
        tables = [word for word in order if "--table" in word[0]]
        if tables != [word for word in options if "--table" in word[0]]:
            continue
        assert parse(name, [*itertools.chain(*order)]) == expected, order


def test_names_that_begin_with_a_dash():
    options = parse("export", ["--to=npz", "--", "-a", "-b"])
    assert (options.checkpoint, options.out) == ("-a", "-b")


WRONG = r"""
run
    name one program: SCRIPT.py or -m MODULE
run --map=gs://bucket=/data x.py
    unrecognized arguments: --map=gs://bucket=/data. Those of the program come after its name
run --map gs://bucket=/data x.py
    unrecognized arguments: --map. Those of the program come after its name
run --shards=12 x.py
    argument --shards: must be at most 8, which one host has, or a multiple of 8, for several
    hosts; got 12 cores.
run --topology=v9-8 x.py
    argument --topology: must be one of v2-8, v2-32, v2-128, v2-256, v2-512, v3-8, v3-32,
    v3-128, v3-256, v3-512, v3-1024, v3-2048, v4-8, v4-16, v4-32, v4-64, v4-128; got 'v9-8'.
run --device=tpu --topology=v3-32 @script
    --topology, of an emulated TPU, needs --device=emulate; the device is 'tpu'
run --shards=32 --topology=v3-32 @script
    --shards and --topology both say how many cores there are
run --device=tpu --shards=2 @script
    --shards needs --device=emulate or --device=pjrt; the device is 'tpu'
run --hosts @script
    --hosts needs --device=pjrt
cluster --hosts=2 @script
    --hosts needs --device=pjrt; the device is 'emulate'
cluster --device=pjrt --hosts=2 --ps=1 @script
    --ps does not go with --hosts
cluster --device=pjrt --hosts=2 --evaluator @script
    --evaluator does not go with --hosts
cluster --devices=2 @script
    --devices needs --hosts
cluster --restarts=-1 @script
    argument --restarts: must be an integer >= 0; got '-1'
check --generations=v4,v9 x.py
    argument --generations: 'v9' is none of v2, v3, v4, v5e, v5p, v6e
check --timeout=-1 x.py
    argument --timeout: must be a number > 0; got '-1'
compare A
    the following arguments are required: MODEL_DIR_B
compare @mod @mod --rtol=-1
    argument --rtol: must be a number >= 0; got '-1'
compare @mod @mod --atol=nan
    argument --atol: must be a number >= 0; got 'nan'
compare @mod nowhere
    there is no folder 'nowhere'
compare @mod @mod --plot=x.pdf
    argument --plot: 'x.pdf' must end in .png
compare @mod @mod --plot=nowhere/x.png
    argument --plot: there is no folder 'nowhere'
check --compiler_python=/nowhere/python @script
    --compiler_python: there is no interpreter '/nowhere/python'
convert @mod @folder/new
    the following arguments are required: --table
convert @mod @folder/new --table=words --to-hosts=2 --reverse --hosts=2
    argument --reverse: not allowed with argument --to-hosts
export @mod --to=npz
    the following arguments are required: OUT
migrate @folder/no.py
    @folder/no.py: there is no such file.
export A --to=npz --tables=x B
    unrecognized arguments: --tables=x
export A B
    the following arguments are required: --to
export --to=npz --slots
    the following arguments are required: CHECKPOINT, OUT
"""
"""Calls, with the message below each, without the name of the subcommand."""

UNFIT = r"""
compare @folder @mod
    Folder '@folder' holds no checkpoint.
inspect @folder/no
    There is no checkpoint '@folder/no'.
inspect @folder
    Folder '@folder' holds no checkpoint.
inspect @mod/model.ckpt-7.index
    There is no checkpoint '@mod/model.ckpt-7.index': give '@mod/model.ckpt-7', without the end of
    the file's name.
convert @folder/no @folder/new --table=words
    There is no checkpoint '@folder/no'.
convert @mod @mod/model.ckpt-7 --table=words
    Checkpoint '@mod/model.ckpt-7' exists already.
convert @mod @script/new/model.ckpt-7 --table=words
    '@script' is a file; it must be a folder for '@script/new/model.ckpt-7'.
convert @mod @folder/new --table=words --reverse
    --reverse needs --hosts, the number of TPU hosts.
export @folder/no @folder/new --to=npz
    There is no checkpoint '@folder/no'.
export @mod @folder --to=npz
    '@folder' exists already.
export @mod @folder/new --to=keras --slots
    keras has no slots.
export @mod @folder/new --to=keras --vocabulary=words=@script
    keras has no labels; leave vocabularies out.
export @mod @folder/new --to=npz --allow-unlabelled
    allow_unlabelled needs vocabularies: it is for rows beyond their ends.
export @mod @folder/new --to=npz --vocabulary=words
    --vocabulary must be TABLE=FILE, once for a table; got 'words'.
export @mod @folder/new --to=npz --table=few --vocabulary=words=@script
    there are vocabularies of ['words'], which are not among the tables ['few'].
export @mod @folder/new --to=npz --vocabulary=words=@folder/no
    vocabulary '@folder/no' of table 'words': there is no such file.
"""
"""The same for calls that TensorFlow must refuse, because it reads the checkpoint."""


COUNTS = {
    "run": ["--shards", "--steps-limit"],
    "cluster": ["--workers", "--ps", "--hosts", "--devices", "--wait-limit"],
    "check": ["--replicas"],
    "convert": ["--hosts", "--to-hosts"],
}


@pytest.mark.parametrize("name, flag", [(name, flag) for name in COUNTS for flag in COUNTS[name]])
def test_a_count_is_at_least_one(name, flag, capsys):
    for wrong in ("0", "-1", "two"):
        with pytest.raises(SystemExit):
            parse(name, [f"{flag}={wrong}"])
        said = capsys.readouterr().err
        assert f"argument {flag}" in said
        assert said.endswith(f": must be an integer >= 1; got {wrong!r}\n")


WITHOUT_TENSORFLOW = """
import contextlib, io, json, runpy, sys
script, calls = sys.argv[1:]
sys.modules["tensorflow"] = sys.modules["numpy"] = None  # An import is an error.
for call in json.loads(calls):
    sys.argv = [script, *call]
    status, output, error = None, io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(error):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as ended:
            status = ended.code
    print(json.dumps([status, output.getvalue(), error.getvalue()]))
"""


def called(calls):
    """Returns [status, stdout, stderr] of calls of the command without TensorFlow."""
    code = ["-c", WITHOUT_TENSORFLOW, processes.SCRIPT, json.dumps(calls)]
    return processes.run_python(*code, status=0, ESTIMATOR_EMB_DEVICE="host").stdout


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """{call: status and output, with paths replaced by their placeholders}."""
    folder = tmp_path_factory.mktemp("empty")
    script = tmp_path_factory.mktemp("programs") / "a.py"
    script.write_text("")
    places = {"@folder": folder, "@script": script, "@mod": saved_values.MOD}
    calls = list(text_tables.read(WRONG))
    texts = []
    for call in calls:
        for place, path in places.items():
            call = call.replace(place, str(path))
        texts.append(shlex.split(call))
    printed = called(texts)
    for place, path in places.items():
        printed = printed.replace(str(path), place)
    assert not list(folder.iterdir())
    return dict(zip(calls, map(json.loads, printed.splitlines()), strict=True))


@pytest.mark.parametrize("call, message", text_tables.read(WRONG).items())
def test_invalid_calls_end_with_a_line_and_status_2(call, message, said):
    status, output, printed = said[call]
    name = call.split()[0]
    of_parser = f"estimator-emb {name}: error: {message}"
    assert (status, output) == (2, "")
    assert printed.splitlines()[-1] in (of_parser, f"estimator-emb {name}: {message}", message)
    assert printed.startswith("usage: ") == printed.endswith(f"{of_parser}\n")


@pytest.mark.parametrize("call, message", text_tables.read(UNFIT).items())
def test_calls_that_do_not_fit_a_checkpoint_end_with_a_line_and_status_2(
    call, message, tmp_path, capsys
):
    folder, script = tmp_path / "folder", tmp_path / "a.py"
    folder.mkdir()
    script.write_text("")
    for place, path in {"@folder": folder, "@script": script, "@mod": saved_values.MOD}.items():
        call, message = (text.replace(place, str(path)) for text in (call, message))
    assert main_lib.main(shlex.split(call)) == 2
    assert capsys.readouterr() == ("", f"estimator-emb {call.split()[0]}: {message}\n")
    assert not list(folder.iterdir())


def test_help_needs_no_tensorflow():
    names = list(main_lib.SUBCOMMANDS)
    calls = [[], ["--help"], ["--version"], ["train"], *([name, "--help"] for name in names)]
    nothing, listed, version, wrong, *helps = map(json.loads, called(calls).splitlines())
    usage = "usage: estimator-emb SUBCOMMAND ARGUMENTS...\n\n  run      Runs a training "
    assert listed[0] == 0 and listed[1].startswith(usage) and nothing == [2, "", listed[1]]
    assert version[1].startswith(f"estimator-emb {ee.__version__}\n")
    assert wrong[2].startswith("estimator-emb: there is no subcommand 'train'; there are run")
    assert wrong[2].endswith(". See estimator-emb --help.\n") and wrong[0] == 2
    for name, (status, output, _) in zip(names, helps, strict=True):
        assert status == 0 and output.startswith(f"usage: estimator-emb {name} ")
        assert main_lib.SUBCOMMANDS[name] in output


@pytest.mark.parametrize(
    "own", [[], ["a"], ["--shards=3", "--steps", "-m", "x"], ["--", "a", "--"]]
)
@pytest.mark.parametrize("before", [[], ["--tf-v1"]])
@pytest.mark.parametrize("name", OF_PROGRAMS)
def test_words_after_a_program_belong_to_it(name, before, own):
    options = parse(name, [*OF_PROGRAMS[name], *before, __file__, *own])
    assert options.program == [__file__, *own]
    assert options.tf_v1 == bool(before)
    for spelling in (["-m", "json.tool"], ["-mjson.tool"]):
        options = parse(name, [*OF_PROGRAMS[name], *before, *spelling, *own])
        assert options.program == ["-m", "json.tool", *own]
        assert options.tf_v1 == bool(before)
    options = parse(name, [*before, "--", __file__, "--", *own])
    assert options.program == [__file__, "--", *own] and options.tf_v1 == bool(before)


@pytest.mark.parametrize(
    "call",
    [
        "run {0}.py",
        "check {0}.py",
        "cluster {0}.py",
        "compare {0} {0}",
        "inspect {0}",
        "convert {0} {0}new --table=x",
        "export {0} {0}new --to=npz",
        "migrate {0}.py",
        "migrate {0}old.py",
        "migrate --explain {0}",
        "{0}",
    ],
)
def test_no_command_prints_control_characters_of_a_name(call, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    name = "\x1b[2J\x9b"
    (tmp_path / f"{name}old.py").write_text("print 'x'")
    try:
        status = main_lib.main([word.format(name) for word in call.split()])
    except SystemExit as ended:
        status = ended.code
    said = capsys.readouterr()
    assert status == 2 and said.err
    assert not {"\x1b", "\x9b"} & {*said.out, *said.err}


def test_an_underscore_stands_for_a_hyphen():
    options = parse("run", ["--steps_limit=3", "train.py", "--steps_limit=4"])
    assert options.steps_limit == 3
    assert options.program == ["train.py", "--steps_limit=4"]
    assert "steps_limit" not in main_lib.parser_of("run").format_help()
