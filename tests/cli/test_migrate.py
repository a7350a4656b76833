"""estimator-emb migrate: its input, output and files, and that its results train the same."""

import codecs
import cProfile
import os
import re
import shutil
import stat
import subprocess
from unittest import mock

import harness
import numpy as np
import processes
import pytest

from estimator_emb.cli import main as main_lib

OLD = "from tensorflow.contrib import tpu\n\nx = tpu.TPUConfig(1)\n"
NEW = "import estimator_emb\n\nx = estimator_emb.TPUConfig(1)\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Returns the current folder, with the file a.py."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.py").write_bytes(OLD.encode())
    return tmp_path


def migrate(capfdbinary, *args):
    """Runs the command. Returns its exit status and output."""
    status = main_lib.main(["migrate", *map(str, args)])
    out, err = capfdbinary.readouterr()
    return status, out.decode(), err.decode()


def test_a_diff_is_printed_and_nothing_is_written(folder, capfdbinary):
    assert migrate(capfdbinary, "a.py") == (
        0,
        "--- a.py\n+++ a.py\n@@ -1,3 +1,3 @@\n-from tensorflow.contrib import tpu\n"
        "+import estimator_emb\n \n-x = tpu.TPUConfig(1)\n+x = estimator_emb.TPUConfig(1)\n",
        "",
    )
    assert (folder / "a.py").read_text() == OLD


def test_files_and_folders_are_written_once_with_their_modes(folder, capfdbinary):
    (folder / "inside" / "deep").mkdir(parents=True)
    (folder / ".venv").mkdir()
    (folder / "env").mkdir()
    (folder / "env" / "pyvenv.cfg").touch()
    changed, kept = ["a.py", "inside/b.py", "inside/deep/c.py", "d.txt"], ["inside/e.pyw"]
    kept += [".venv/f.py", "env/g.py"]  # Of a virtual environment.
    for name in (*changed, *kept):
        (folder / name).write_bytes(OLD.encode())
    (folder / "inside" / "other.py").write_text("x = 1\n")
    os.chmod("inside/b.py", 0o750)
    other = os.stat("inside/other.py")
    # Of a folder, *.py files are migrated. A file that is named itself may end in anything.
    status, out, err = migrate(capfdbinary, "--write", "a.py", "inside", ".", "a.py", "d.txt")
    assert (status, err) == (0, "")
    assert out == "".join(f"changed {name}\n" for name in changed)
    for name in changed:
        assert (folder / name).read_text() == NEW
    for name in kept:
        assert (folder / name).read_text() == OLD
    assert stat.S_IMODE(os.stat("inside/b.py").st_mode) == 0o750
    after = os.stat("inside/other.py")  # Needs no change, so it is not written.
    assert (after.st_ino, after.st_mtime_ns) == (other.st_ino, other.st_mtime_ns)
    # No temporary file is left.
    assert not [name for name in os.listdir(".") if name.startswith(".estimator-emb")]
    status, out, err = migrate(capfdbinary, "--write", "a.py", "inside/b.py")
    assert (status, out) == (2, "")
    assert err == "a.py: nothing to change.\ninside/b.py: nothing to change.\n"


def test_links_stay_links(folder, capfdbinary):
    (folder / "src").mkdir()
    (folder / "elsewhere").mkdir()
    (folder / "elsewhere" / "real.py").write_bytes(OLD.encode())
    (folder / "src" / "own.py").write_bytes(OLD.encode())
    os.symlink("own.py", "src/same.py")
    os.symlink("../elsewhere/real.py", "src/outside.py")
    os.symlink("../src", "src/round")
    os.symlink("nowhere.py", "src/broken.py")
    # Links in a folder are skipped. A link that is named itself is followed.
    status, out, _ = migrate(capfdbinary, "--write", "src")
    assert (status, out) == (0, "changed src/own.py\n")
    assert (folder / "elsewhere" / "real.py").read_text() == OLD
    status, out, _ = migrate(capfdbinary, "--write", "src/outside.py")
    assert (status, out) == (0, "changed src/outside.py\n")
    assert (folder / "elsewhere" / "real.py").read_text() == NEW
    assert os.readlink("src/outside.py") == "../elsewhere/real.py"
    assert os.readlink("src/same.py") == "own.py"


BYTES = {
    "crlf": OLD.replace("\n", "\r\n").encode(),
    "cr": OLD.replace("\n", "\r").encode(),
    "mixed ends": OLD.encode() + b"y = 1\r\nz = 2\n",
    "tabs": b"def f():\n\tfrom tensorflow.contrib import tpu\n\tif 1:\n\t\treturn tpu.TPUConfig\n",
    "bom": codecs.BOM_UTF8 + OLD.encode() + "# \u00e9\n".encode(),
    "bom and coding": codecs.BOM_UTF8 + b"# -*- coding: utf-8 -*-\n" + OLD.encode(),
    "latin-1": b"# -*- coding: latin-1 -*-\n# \xe9\n" + OLD.encode() + b"y = '\xe9'\n",
    "wide": "# \U0001f600\n".encode() + OLD.encode() + "y = '\u4e2d\u6587'; x = 1\n".encode(),
    "no end": OLD.encode().rstrip(b"\n"),
    "form feed": b"\x0c\n" + OLD.encode() + b"\x0c\ndef f():\n    pass\n\x0cy = 1\n",
    "shebang": b"#!/usr/bin/env python\n# Copyright.\n\n" + OLD.encode(),
    "spaces": OLD.encode() + b"y = {  'a' :1 ,\n\n\n}   \n   \n",
    "separators": OLD.encode() + "y = '\u2028\x85\x1c'\n".encode(),
    "continued": b"from tensorflow.contrib \\\n    import tpu\n\nx = tpu.TPUConfig(1)\n",
}


@pytest.mark.parametrize("name", BYTES)
def test_everything_else_stays_byte_for_byte(name, folder, capfdbinary):
    """The printed diff, given to `patch`, makes the same file as --write."""
    data = BYTES[name]
    (folder / "a.py").write_bytes(data)
    # The helper `migrate` decodes the output as UTF-8, which a diff of latin-1 is not.
    _, diff, _ = migrate(capfdbinary, "a.py") if name != "latin-1" else (0, "", "")
    status, _, err = migrate(capfdbinary, "--write", "a.py")
    assert (status, err) == (0, "")
    result = (folder / "a.py").read_bytes()
    expected = re.sub(rb"from tensorflow.contrib[ \\\n]+import tpu", b"import estimator_emb", data)
    expected = expected.replace(b"tpu.TPUConfig", b"estimator_emb.TPUConfig")
    if name == "tabs":  # An import within a function moves to the top.
        expected = b"import estimator_emb\n" + expected.replace(b"\timport estimator_emb\n", b"")
    assert result == expected
    if diff and shutil.which("patch"):
        (folder / "a.py").write_bytes(data)
        subprocess.run(
            ["patch", "--binary", "-p0"], input=diff.encode(), check=True, capture_output=True
        )
        assert (folder / "a.py").read_bytes() == result


NAME = "bad\x1b.py"
BAD = {
    # Python 3.14 accepts "except ValueError, e:".
    b"import tensorflow\nraise ValueError, 'x'\n": r"bad\x1b.py:2: this is not Python 3: invalid "
    "syntax: raise ValueError, 'x'. If it is Python 2, 2to3 and futurize convert it.",
    b"x = 1\ndef f(:\n": r"bad\x1b.py:2: this is not Python 3: invalid syntax: def f(:. If it is ",
    b"\0": r"bad\x1b.py: this is not Python: it has null bytes.",
    b"# coding: nonsense\n": r"bad\x1b.py: this is not Python: unknown encoding",
    b"x = '\xff'\n": r"bad\x1b.py: this is not Python: ",
}


@pytest.mark.parametrize("contents", BAD)
def test_writes_no_file_if_one_is_not_python(contents, folder, capfdbinary):
    (folder / NAME).write_bytes(contents)
    status, out, err = migrate(capfdbinary, "--write", "a.py", NAME, "gone.py")
    assert (status, out) == (2, "")
    assert f"\n{BAD[contents]}" in f"\n{err}" and "gone.py: there is no such file.\n" in err
    assert (folder / "a.py").read_text() == OLD
    assert (folder / NAME).read_bytes() == contents


def test_refuses_folders_pipes_and_read_only_files(folder, capfdbinary, monkeypatch):
    (folder / "empty").mkdir()
    os.mkfifo("pipe.py")
    status, out, err = migrate(capfdbinary, "empty", "a.py", "pipe.py")
    assert (status, out) == (2, "")
    assert "empty: there is no Python file in this folder.\n" in err
    assert "pipe.py: this is no regular file.\n" in err
    monkeypatch.setattr(os, "access", lambda path, mode: False)  # Root may write everything.
    refused = (2, "", "a.py: this file, or its folder, may not be written.\n")
    assert migrate(capfdbinary, "--write", "a.py") == refused
    assert migrate(capfdbinary, "a.py")[0] == 0


def test_migrate_needs_either_a_file_or_a_name_to_explain(folder):
    for arguments in ([], ["--explain", "slim", "a.py"], ["--explain", "slim", "--write"]):
        with pytest.raises(SystemExit):
            main_lib.main(["migrate", *arguments])


def test_a_failed_write_changes_no_file(folder, capfdbinary, monkeypatch):
    (folder / "b.py").write_text(OLD)
    full = OSError(28, "No space left on device", "b.py")
    monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=[None, full]))  # For a.py, then b.py.
    status, out, err = migrate(capfdbinary, "--write", "a.py", "b.py")
    assert (status, out) == (2, "")
    assert err == "b.py: cannot be written: No space left on device; no file was changed.\n"
    assert {(folder / name).read_text() for name in ("a.py", "b.py")} == {OLD}
    assert sorted(os.listdir(".")) == ["a.py", "b.py"]


def test_report_lists_findings_with_their_lines(folder, capfdbinary, assert_recorded):
    (folder / "a.py").write_text(
        "import os\n"
        "import tensorflow as tf\n"
        "from tensorflow.contrib import slim\n"
        "tf.placeholder, tf.Session\n"
        "column = tf.feature_column.categorical_column_with_vocabulary_list('a', ['b'])\n"
        "columns = [tf.tpu.experimental.embedding_column(column, 3)]\n"
        "spec = tf.estimator.tpu.experimental.EmbeddingConfigSpec(\n"
        "    columns, tf.tpu.experimental.AdamParameters(0.1), clipping_limit=0.1,\n"
        "    partition_strategy='mod', pipeline_execution_with_tensor_core=True)\n"
        "config = tf.estimator.tpu.RunConfig(master='grpc://10.0.0.2:8470')\n"
        "estimator = tf.estimator.tpu.TPUEstimator(f, config=config, use_tpu=FLAGS.use_tpu)\n"
        "other = tf.estimator.tpu.TPUEstimator(f, config=config, use_tpu=False)\n"
        "optimizer = tf.keras.optimizers.Adam()\n"
        "build(tf.estimator)\n"
    )
    status, _, err = migrate(capfdbinary, "a.py")
    needs_tpu = "TPUEstimator(use_tpu=FLAGS.use_tpu) needs a TPU wherever use_tpu is True"
    assert status == 0 and f"a.py:11: {needs_tpu}" in err
    assert_recorded(err)  # tests/messages.json has a line for each finding, with its reason.
    # With --write, line numbers refer to the new file.
    _, _, written = migrate(capfdbinary, "--write", "a.py")
    assert re.sub(r":\d+:", ":", written) == re.sub(r":\d+:", ":", err)
    line = int(re.search(r"a\.py:(\d+): EmbeddingConfigSpec", written)[1])
    assert "EmbeddingConfigSpec(" in (folder / "a.py").read_text().splitlines()[line - 1]


def test_migrate_needs_libcst_and_no_tensorflow(folder):
    def run(without, *args):
        """Returns the status, stdout and stderr of the command without packages."""
        code = (
            "import runpy, sys\n"
            f"sys.argv = ['estimator-emb', 'migrate', *{list(args)!r}]\n"
            f"sys.modules.update(dict.fromkeys({without!r}))\n"
            f"runpy.run_path({str(processes.SCRIPT)!r}, run_name='__main__')\n"
        )
        done = processes.run_python("-c", code)
        return done.returncode, done.stdout, done.stderr

    assert run(["tensorflow"], "--write", "a.py") == (0, "changed a.py\n", "")
    assert (folder / "a.py").read_text() == NEW
    said = "estimator-emb migrate needs LibCST: pip install libcst\n"
    assert run(["libcst"], "a.py") == (2, "", said)
    said = "tf.app.run: now tf.compat.v1.app.run. --tf-v1 has it.\n"
    assert run(["libcst", "tensorflow"], "--explain", "tf.app.run") == (0, said, "")


@pytest.mark.fast(1)
@pytest.mark.parametrize("name", ["census.py", "stdlib_lines.py"])
def test_a_migrated_example_is_not_changed_again(name, capfdbinary):
    status, out, err = migrate(capfdbinary, processes.ROOT / "examples" / name)
    assert (status, out) == (2, "") and "Legacy names" not in err  # Nothing to change.


def run_program(command, folder, **environment):
    fixed = {"PYTHONHASHSEED": "0", "ESTIMATOR_EMB_NATIVE": "0"}
    return processes.run_python(*command, cwd=folder, status=0, **fixed, **environment).stdout


NEVER_HAD_A_TPU = """\
import sys

import tensorflow as tf
from tensorflow.estimator import ModeKeys

tf.keras.utils.set_random_seed(1)


def input_fn(mode=ModeKeys.EVAL):
    hours = {"hour": [[hour / 24.0] for hour in range(24)]}
    data = tf.data.Dataset.from_tensor_slices((hours, [[h // 2 % 2] for h in range(24)])).batch(6)
    return data.repeat() if mode == ModeKeys.TRAIN else data


columns = [tf.feature_column.numeric_column("hour")]
config = tf.estimator.RunConfig(sys.argv[1], tf_random_seed=1)
classifier = tf.estimator.DNNClassifier([8], columns, config=config)
classifier.train(lambda: input_fn(ModeKeys.TRAIN), max_steps=50)
print(sorted((key, float(value)) for key, value in classifier.evaluate(input_fn).items()))
print([one["logits"].tolist() for one in classifier.predict(input_fn)])
"""


@pytest.mark.any_version
@pytest.mark.slow
def test_a_program_that_never_had_a_tpu_gets_two_lines(tmp_path, capfdbinary):
    program = tmp_path / "program.py"
    program.write_text(NEVER_HAD_A_TPU)
    printed = [run_program(["-m", "estimator_emb", "run", program, "unchanged"], tmp_path)]
    stock = os.environ.get("ESTIMATOR_EMB_STOCK_PYTHON")
    if stock:
        of_stock = {"python": stock, "PYTHONPATH": "", "cwd": tmp_path, "status": 0}
        printed.append(processes.run_python(program, "stock", **of_stock).stdout)
    assert migrate(capfdbinary, "--write", program) == (0, f"changed {program}\n", "")
    lines = "import estimator_emb\nestimator_emb.install()  # It brings tf.estimator back.\n"
    start, found, end = NEVER_HAD_A_TPU.partition("import tensorflow")
    assert program.read_text() == start + lines + found + end
    printed.append(run_program([program, "migrated"], tmp_path))
    expected, *others = (re.findall(r"-?\d+\.\d+(?:e-\d+)?", text) for text in printed)
    assert len(expected) > 10 and "('global_step', 50.0)" in printed[0]
    for other in others:
        np.testing.assert_allclose(np.float64(other), np.float64(expected), rtol=1e-5)
    assert migrate(capfdbinary, program)[0] == 2  # There is nothing more to change.


@pytest.mark.any_version
@pytest.mark.slow
@pytest.mark.parametrize(
    "program, folder, flags",
    [
        ("tests/cli/legacy_programs/run_classifier.py", "--output_dir", []),
        ("examples/legacy_tpu_binary.py", "--model_dir", ["--train_steps=4"]),
    ],
    ids=["of 2018", "of 2020"],
)
def test_a_migrated_program_trains_as_before(program, folder, flags, tmp_path, capfdbinary):
    """Runs a program with legacy names, and migrated without them."""
    for name in ("before", "after"):
        shutil.copy(processes.ROOT / program, tmp_path / f"{name}.py")
    status, _, err = migrate(capfdbinary, "--write", tmp_path / "after.py")
    assert status == 0
    assert ("The program uses names of TensorFlow 1" in err) == ("classifier" in program)
    run = ["-m", "estimator_emb", "run", "--tf-v1", "before.py", f"{folder}=before", *flags]
    before = run_program(run, tmp_path)
    run = ["after.py", f"{folder}=after", *flags]
    after = run_program(run, tmp_path, ESTIMATOR_EMB_DEVICE="host")
    assert before and before.splitlines()[0] == after.splitlines()[0]
    expected, actual = (harness.saved(tmp_path / name, 4) for name in ("before", "after"))
    assert len(expected) > 2
    np.testing.assert_equal(actual, expected)


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    "lines",
    [
        "x{0} = tpu.TPUConfig({0})",
        "import a.b{0}\na.b{0}.c()",
        "c{0} = tpu.TPUConfig\nd{0} = c{0}(1)",
        "from tensorflow.contrib import tpu\nx = tpu.TPUConfig({0})\ny[x] = x",
        "if tf:\n    x = tf.layers.dense(x, {0})\n    y = y.a{0}",
        "def f{0}():\n    return tf.log(tpu.RunConfig(tf.contrib.layers.dense(1)))",
    ],
)
def test_work_grows_with_the_number_of_lines(lines, folder, capfdbinary):
    """The work grows linearly. Counts calls of functions, in Python and C, instead of seconds."""

    def calls(count):
        imports = "import tensorflow as tf\nfrom tensorflow.contrib import tpu\n"
        text = imports + "".join(f"{lines.format(number)}\n" for number in range(count))
        (folder / "a.py").write_text(text)
        with cProfile.Profile() as seen:
            main_lib.main(["migrate", "a.py"])
        return sum(one.callcount for one in seen.getstats())

    calls(1)
    start, some, more = calls(2), calls(8), calls(20)
    # Three times the calls for 20 - 2 lines more instead of 8 - 2, with a margin.
    assert more - start < 3.05 * (some - start)
