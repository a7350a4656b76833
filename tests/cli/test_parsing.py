"""A subcommand's options may stand anywhere. Words after a program belong to the program.

Invalid calls are reported before anything is imported, read or run.
"""

import contextlib
import itertools
import json
import shlex
from unittest import mock

import processes
import pytest
import saved_values

import estimator_emb as ee
from estimator_emb.catalog.extras import MissingExtra
from estimator_emb.cli import main as main_lib
from estimator_emb.cli import parsing

CALLS = {
    "inspect": (["A"], [["--values"]]),
    "compare": (["A", "B"], [["--rtol=0"], ["--ignore", "a*"]]),
    "convert": (["A", "B"], [["--table", "a*"], ["--table=b"], ["--reverse"], ["--hosts=2"]]),
    "export": (["A", "B"], [["--to", "npz"], ["--table=a"], ["--slots"]]),
    "migrate": (["a.py", "b.py"], [["--write"]]),
}
"""Subcommand -> its names, in order, and its options."""
OF_PROGRAMS = {"run": ["--shards=2"], "cluster": ["--ps", "2"], "check": ["--replicas=2"]}
"""Subcommand that takes a program -> one of its own options."""


def parse(name, args):
    return main_lib.parser_of(name).parse(args)


def test_tests_cover_every_subcommand():
    assert set(CALLS) | set(OF_PROGRAMS) == set(main_lib.SUBCOMMANDS)


@pytest.mark.parametrize("name", CALLS)
def test_options_stand_before_between_and_behind_names(name):
    names, options = CALLS[name]
    expected = parse(name, [*itertools.chain(*options), *names])
    as_words = [[one] for one in names]
    tables = [option for option in options if option[0].startswith("--table")]

    def keeps(order, part):
        return [one for one in order if one in part] == part

    for order in itertools.permutations([*as_words, *options]):
        if keeps(order, as_words) and keeps(order, tables):  # Their own order has a meaning.
            assert parse(name, [*itertools.chain(*order)]) == expected, order


def test_names_that_begin_with_a_dash():
    options = parse("export", ["--to=npz", "--", "-a", "-b"])
    assert (options.checkpoint, options.out) == ("-a", "-b")


INVALID = json.loads((processes.ROOT / "tests/data/invalid_calls.json").read_text())
"""Kind -> invalid calls, such as "run nowhere.py". Those "of a checkpoint" need TensorFlow to read.

@folder, @script and @mod stand for an empty folder, a program and a checkpoint. @wild stands for a
name with control characters, which no command prints.
"""
WILD = "\x1b[2J\x9b"
COUNTS = {
    "run": ["--shards", "--steps-limit"],
    "cluster": ["--workers", "--ps", "--hosts", "--devices", "--wait-limit"],
    "check": ["--replicas"],
    "convert": ["--hosts", "--to-hosts"],
}


@pytest.mark.parametrize("name, flag", [(name, flag) for name in COUNTS for flag in COUNTS[name]])
def test_a_count_is_at_least_one(name, flag, capsys):
    assert parsing.at_least_one("1") == 1
    for wrong in ("0", "-1", "two"):
        with pytest.raises(SystemExit):
            parse(name, [f"{flag}={wrong}"])
        said = capsys.readouterr().err
        assert f"argument {flag}" in said
        assert said.endswith(f": must be an integer >= 1; got {wrong!r}\n")


WITHOUT_TENSORFLOW = """
import contextlib, io, json, runpy, sys
script, calls = sys.argv[1:]
sys.modules.update(dict.fromkeys(["tensorflow", "numpy", "matplotlib"]))  # Not to be imported.
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


def words_of(call, places):
    for place, path in places.items():
        call = call.replace(place, str(path))
    return shlex.split(call)


def called(calls):
    """Returns a line of JSON for each call without TensorFlow: [status, stdout, stderr]."""
    code = ["-c", WITHOUT_TENSORFLOW, processes.SCRIPT, json.dumps(calls)]
    return processes.run_python(*code, status=0, ESTIMATOR_EMB_DEVICE="host").stdout


@pytest.fixture
def places(tmp_path):
    """Returns {placeholder in a call: what it stands for}. No call may write into @folder."""
    folder, script = tmp_path / "folder", tmp_path / "a.py"
    folder.mkdir()
    script.write_text("")
    yield {"@folder": folder, "@script": script, "@mod": saved_values.MOD, "@wild": WILD}
    assert not list(folder.iterdir())


def test_invalid_calls_end_with_a_line_and_status_2(places, assert_recorded):
    results = called([words_of(call, places) for call in INVALID["any"]])
    for place, path in places.items():
        results = results.replace(str(path), place)
    for call, result in zip(INVALID["any"], results.splitlines(), strict=True):
        status, output, printed = json.loads(result)
        assert (status, output) == (2, ""), call
        *usage, line = printed.splitlines()
        assert bool(usage) == (": error: " in line), call  # The parser prints the usage before.
        assert printed.replace("\n", "").isprintable(), call
        assert_recorded(f"{call}\n  {line}")  # tests/messages.json has the line of each call.


def test_calls_that_do_not_fit_a_checkpoint_end_with_a_line_and_status_2(
    places, capsys, assert_recorded
):
    for call in INVALID["of a checkpoint"]:
        assert main_lib.main(words_of(call, places)) == 2, call
        output, error = capsys.readouterr()
        assert output == "" and error.startswith(f"estimator-emb {call.split()[0]}: ")
        assert error.removesuffix("\n").isprintable(), call
        # tests/messages.json has the line of each call.
        assert_recorded(f"{call}\n  {error.replace(saved_values.MOD, '@mod')}")


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
        of_program = f"\n       estimator-emb {name} [options] -m MODULE [its arguments]\n"
        assert (of_program in output) == (name in OF_PROGRAMS)
        assert main_lib.SUBCOMMANDS[name] in output


def test_an_import_error_with_a_pip_command_is_a_line(monkeypatch, capsys):
    pip = ImportError("no TensorFlow: pip install x")
    # Other import errors are raised, with their traceback.
    for error, is_line in ((pip, True), (MissingExtra("no x"), True), (ImportError("a"), False)):
        monkeypatch.setattr(main_lib, "parser_of", mock.Mock(side_effect=error))
        with contextlib.nullcontext() if is_line else pytest.raises(ImportError):
            assert main_lib.main(["run"]) == 2
        assert capsys.readouterr().err == (f"estimator-emb: {error}\n" if is_line else "")
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")  # The import is not quiet.
    monkeypatch.delattr(ee, "__all__")  # As if the package was not imported yet.
    with pytest.raises(BrokenPipeError):  # `main` ends without a line, as its reader is gone.
        parsing.prints_errors(mock.Mock(side_effect=BrokenPipeError))(None)
    assert "TPUEstimator" in ee.__all__


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


def test_an_underscore_stands_for_a_hyphen():
    options = parse("run", ["--steps_limit=3", "--seed=0", "train.py", "--steps_limit=4"])
    assert (options.steps_limit, options.seed) == (3, 0)
    assert options.program == ["train.py", "--steps_limit=4"]
    assert "steps_limit" not in main_lib.parser_of("run").format_help()
