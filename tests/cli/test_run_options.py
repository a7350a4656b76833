"""Every option of `run` has an effect, reaches the programs, and is on the docs page."""

import importlib
import inspect
import re
import shutil
import zipfile

import originals
import processes
import pytest

from estimator_emb.catalog import environment, wheel
from estimator_emb.cli import main as main_lib
from estimator_emb.cli import parsing, run_options
from estimator_emb.legacy import launch

VALUES = {
    "device": ["--device=tpu"],
    "tables": ["--tables=host"],
    "shards": ["--shards=8"],
    "topology": ["--topology=v3-32"],
    "steps_limit": ["--steps-limit=3"],
    "seed": ["--seed=4294967295"],
    "table_summaries": ["--no-table-summaries"],
    "tf_v1": ["--tf-v1"],
}
"""Option -> words that set it. The wheel of --contrib is made by the tests."""


def parsed(name, *words):
    return main_lib.parser_of(name).parse([*words, "program.py"])


@pytest.mark.parametrize("option", run_options.RUN_OPTIONS, ids=lambda option: option.name)
def test_option_reaches_parser_and_program(option, tmp_path):
    """Parses an option, makes its words again for other processes, and looks for its effect."""
    given = VALUES.get(option.name) or [f"--contrib={originals.small(tmp_path)}"]
    assert option.words(parsed("run", *given)) == given
    assert option.words(parsed("run")) == []
    for name in ("run", "cluster", *(["check"] if option.of_any_program else [])):
        assert run_options.words(parsed(name, *given), (option,)) == given
        assert f"  {option.flag}" in main_lib.parser_of(name).format_help()
    # The option changes either an argument of `launch` or an environment variable.
    assert (option.variable is None) != (option.launch is None)
    if option.launch:
        assert option.launch in inspect.signature(launch.launch).parameters
        arguments = run_options.launch_arguments(parsed("run", *given))
        assert arguments[option.launch] != run_options.launch_arguments(parsed("run"))
    else:
        assert option.variable in environment.VARIABLES
        tf_v1 = ["--tf-v1"] if option.name == "contrib" else []  # --contrib needs it.
        value = run_options.variables(parsed("run", *given, *tf_v1), {})[str(option.variable)]
        # The variable gets the text behind "=", and 0 from --no-table-summaries.
        assert value == {"table_summaries": "0"}.get(option.name, given[0].partition("=")[2])


BAD_WHEELS = {
    "absent": "there is no such file or folder",
    "empty": "it lacks tensorflow_core/contrib",
    "text": "the file is damaged, or is not a wheel",
    "other": "its version is 2.15.1",
    "bare": "it lacks TensorFlow's metadata",
}
"""File or folder, which the test makes -> the end of the message."""


@pytest.mark.parametrize("name", BAD_WHEELS)
def test_contrib_refuses_other_files_in_a_sentence(name, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no zip")
    for folder, version in (("other", "2.15.1"), ("bare", "1.15.5")):
        (tmp_path / folder).mkdir()
        # Makes an unpacked wheel of TensorFlow with an empty tf.contrib.
        originals.small(tmp_path / folder, version=version)
    shutil.rmtree(tmp_path / "bare" / "tensorflow-1.15.5.dist-info")
    with pytest.raises(SystemExit):
        parsed("run", "--tf-v1", f"--contrib={tmp_path / name}")
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.partition("contrib: ")[2] == (
        "contrib must be the wheel of TensorFlow 1.15, or a folder with its files; got "
        f"'{tmp_path / name}': {BAD_WHEELS[name]}."
    )


@pytest.mark.parametrize("name", ["run", "cluster", "check"])
def test_contrib_needs_tf_v1(name, tmp_path, monkeypatch):
    """Refuses --contrib alone: only --tf-v1 gives a program the tf.contrib that it completes."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").touch()
    given = parsed(name, f"--contrib={originals.small(tmp_path)}")
    with pytest.raises(parsing.WrongArguments, match="^--contrib needs --tf-v1$"):
        importlib.import_module(f"estimator_emb.cli.{name}").main(given)


def test_contrib_finds_the_wheel_of_tensorflow_estimator(tmp_path):
    """Finds it beside TensorFlow's wheel by its file name alone, with any version 1.15."""
    beside = tmp_path / "tensorflow_estimator-1.15.1-py2.py3-none-any.whl"
    for path, name in ((tmp_path / "tensorflow-1.15.5.whl", "tensorflow"), (beside, "other")):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("tensorflow_core/contrib/__init__.py", "")
            metadata = f"Name: {name}\nVersion: 1.15.5\n"
            archive.writestr(f"{name}-1.15.5.dist-info/METADATA", metadata)
    opened = wheel.opened(str(tmp_path / "tensorflow-1.15.5.whl"))
    assert opened.version == "1.15.5"
    assert opened.packages["tensorflow_estimator.contrib"] == [f"{beside}/tensorflow_estimator"]


def test_docs_page_lists_all_options():
    page = (processes.ROOT / "docs" / "migration.md").read_text()
    rows = re.findall(r"^\| `(--[a-z0-9-]+)` \|", page, re.M)
    assert rows == [option.flag for option in run_options.RUN_OPTIONS]


def test_shards_option_overrides_the_topology_variable():
    """Empties the variable, as both say how many cores there are. The device is always set."""
    given = {"ESTIMATOR_EMB_TOPOLOGY": "v3-32"}
    found = run_options.variables(parsed("run", "--shards=8"), given)
    assert found["ESTIMATOR_EMB_SHARDS"] == "8" and found["ESTIMATOR_EMB_TOPOLOGY"] == ""
    assert run_options.variables(parsed("run"), given) == {"ESTIMATOR_EMB_DEVICE": "emulate"}
    said = "ESTIMATOR_EMB_DEVICE must be one of emulate, pjrt, tpu; it is 'gpu'$"
    with pytest.raises(parsing.WrongArguments, match=said):
        run_options.variables(parsed("run"), {"ESTIMATOR_EMB_DEVICE": "gpu"})
