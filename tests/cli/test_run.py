"""estimator-emb run: programs find the same modules as with Python, and an emulated TPU."""

import ctypes
import os
import platform
import runpy
import signal
import sys
import textwrap
from importlib import metadata
from unittest import mock

import numpy as np
import processes
import pytest
import tensorflow as tf
from packaging import version

import estimator_emb as ee
from estimator_emb.cli import main as main_lib
from estimator_emb.legacy import launch


def said(done):
    """Returns the lines of stderr, without TensorFlow's start-up messages."""
    starts = ("I0000", "WARNING: All log messages")
    return [line for line in done.stderr.splitlines() if not line.startswith(starts)]


@pytest.mark.slow
def test_a_script_runs_as_with_python(tmp_path):
    program = """
        'What it does.'
        import sys, beside
        print(sys.argv, __name__, __file__, __doc__, __spec__, sys.path[0], beside.NAME)
        print(vars(sys.modules["__main__"]) is globals(), __annotations__ if 0 else "")
        def check(x: undefined if False else int): return x
        print(check.__annotations__)
        def fail():
            raise KeyError("the program's own error")
        fail()
        print("not reached")
    """
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "beside.py").write_text("NAME = 'beside'")
    (tmp_path / "programs" / "script.py").write_text(textwrap.dedent(program))
    arguments = ["programs/script.py", "--device=x", "-m", "--", "--help"]
    expected = processes.run_python(*arguments, cwd=tmp_path)
    actual = processes.run_command("run", *arguments, cwd=tmp_path)
    assert expected.returncode == 1 and "script.py" in expected.stdout
    assert (actual.returncode, actual.stdout) == (1, expected.stdout)
    assert said(actual) == expected.stderr.splitlines()  # Without our own stack frames.


@pytest.mark.slow
def test_a_module_trains_on_an_emulated_tpu_without_a_network(tmp_path):
    program = """
        import os, socket, sys
        def connect(*args):
            raise AssertionError("the program went to the network")
        socket.socket.connect = connect
        print(sys.argv[1:], sys.argv[0] == __file__, __spec__.name, sys.path[0])
        print(os.environ["ESTIMATOR_EMB_DEVICE"], os.environ["ESTIMATOR_EMB_SHARDS"])

        import tensorflow as tf
        import tensorflow.compat.v1 as tf1
        resolver = tf1.distribute.cluster_resolver.TPUClusterResolver("name", "zone", "project")
        assert resolver.master() == resolver.get_master() == ""
        assert resolver.num_accelerators() == {"TPU": 2} and not resolver.cluster_spec()
        assert resolver.get_tpu_system_metadata().num_cores == 2
        tf.config.experimental_connect_to_cluster(resolver)
        system = tf.tpu.experimental.initialize_tpu_system(resolver)
        assert system.num_tasks == 1 and system.num_tpus_per_task == 2
        tf.tpu.experimental.shutdown_tpu_system(resolver)
        assert tf.distribute.cluster_resolver.TPUClusterResolver.connect("name").master() == ""

        from tensorflow.compat.v1 import estimator as tf_estimator

        def model_fn(features, labels, mode, params):
            weight = tf1.get_variable("weight", [], initializer=tf1.zeros_initializer())
            loss = tf.reduce_mean(tf.square(weight - features))
            optimizer = tf1.tpu.CrossShardOptimizer(tf1.train.GradientDescentOptimizer(0.1))
            return tf_estimator.tpu.TPUEstimatorSpec(
                mode, loss=loss, train_op=optimizer.minimize(loss, tf1.train.get_global_step())
            )

        def input_fn(params):
            return tf.data.Dataset.from_tensors(tf.ones([params["batch_size"], 1])).repeat()

        config = tf_estimator.tpu.RunConfig(cluster=resolver, model_dir="model")
        assert config.master == config.evaluation_master == ""
        estimator = tf_estimator.tpu.TPUEstimator(
            model_fn, config=config, train_batch_size=4, eval_batch_size=4
        )
        for start in (0, 3):  # Each train() takes at most 3 steps more: --steps-limit=3.
            estimator.train(input_fn, max_steps=1000)
            assert estimator.get_variable_value("global_step") == start + 3
        estimator.train(input_fn, steps=2)
        estimator.train(input_fn, steps=5)
        assert estimator.get_variable_value("global_step") == 3 + 3 + 2 + 3
        print(int(estimator.evaluate(input_fn, steps=100)["global_step"]))
        sys.exit(7)
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    options = ["--shards", "2", "--steps-limit=3", "-m", "program", "--steps-limit=9"]
    done = processes.run_command("run", *options, cwd=tmp_path, status=7)
    assert done.stdout.splitlines() == [
        f"['--steps-limit=9'] True program {tmp_path}",
        "emulate 2",
        "11",
    ]
    ours = [line for line in said(done) if line.startswith("estimator_emb: ")]
    for line in (
        "A TPU is emulated on the host, with 2 cores.",
        "TPUClusterResolver: 'name' is the emulated TPU; no name is looked up.",
        "An emulated TPU needs no initialisation.",
        "An emulated TPU needs no shutdown.",
        "train: max_steps is 3, not 1000 (--steps-limit).",
        "train: max_steps is 6, not 1000 (--steps-limit).",
        "train: steps is 3, not 5 (--steps-limit).",
        "evaluate: steps is 3, not 100 (--steps-limit).",
    ):
        assert ours.count(f"estimator_emb: {line}") == 1, line
    assert not [line for line in ours if "steps is 2" in line]


def test_version_lists_packages_and_machine(capsys, monkeypatch, tmp_path):
    monkeypatch.delenv("ESTIMATOR_EMB_NATIVE")
    monkeypatch.setenv("PATH", "")
    assert main_lib.main(["--version"]) == 0
    own, packages, machine, kernels = capsys.readouterr().out.splitlines()
    assert own == f"estimator-emb {ee.__version__}"
    versions = dict(one.split(" ", 1) for one in packages.split(", "))
    name = metadata.packages_distributions()["tensorflow"][0]  # Or tf_nightly.
    assert list(versions) == [name, "tf-keras", "tensorflow-estimator", "numpy", "protobuf"]
    assert version.Version(versions[name]) == version.Version(tf.__version__)
    assert versions["numpy"] == np.__version__
    assert machine.startswith(f"Python {platform.python_version()}, Linux-")
    assert machine.endswith(f", {os.cpu_count()} cores")
    assert kernels == "native kernels: none, there is no C++ compiler"
    (tmp_path / "c++").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    main_lib.main(["--version"])
    assert f"native kernels: built by {tmp_path}/c++\n" in capsys.readouterr().out
    monkeypatch.setenv("ESTIMATOR_EMB_NATIVE", "0")
    monkeypatch.setattr(sys, "argv", ["estimator_emb", "--version"])
    with pytest.raises(SystemExit, match="^0$"):  # As with `python -m estimator_emb --version`.
        runpy.run_module("estimator_emb", run_name="__main__")
    assert "native kernels: off, ESTIMATOR_EMB_NATIVE is 0\n" in capsys.readouterr().out


def test_run_imports_the_package_and_passes_its_options_and_the_program_on(monkeypatch):
    """`run` looks for GPUs if there is no driver: a filter can then hide TensorFlow's error."""
    monkeypatch.delattr(ee, "__all__")  # As if the package was not imported yet.
    monkeypatch.setattr(tf.test, "is_built_with_cuda", lambda: True)
    monkeypatch.setattr(ctypes, "CDLL", mock.Mock(side_effect=OSError))  # There is no driver.
    monkeypatch.setattr(tf.config, "list_physical_devices", looks := mock.Mock())
    launching = mock.patch.object(launch, "launch", return_value=5)
    no_filter = mock.patch.dict(os.environ, TF_CPP_MIN_LOG_LEVEL="0")  # It would take our stderr.
    with no_filter, launching as called:
        assert main_lib.main(["run", "--hosts", "--device=pjrt", "--seed=3", __file__, "x"]) == 5
        found = [os.environ[f"ESTIMATOR_EMB_{name}"] for name in ("DEVICE", "HOSTS")]
    assert "TPUEstimator" in ee.__all__
    looks.assert_called_once_with()
    assert found == ["pjrt", "auto"] and called.call_args.kwargs["seed"] == 3
    assert called.call_args.args == ([__file__, "x"],)


@pytest.mark.slow
@pytest.mark.parametrize(
    "command, asked",  # asked: the user's TF_CPP_MIN_LOG_LEVEL.
    [([processes.SCRIPT], None), (["-m", "estimator_emb"], "0")],
)
def test_tensorflow_starts_quietly_by_default(command, asked, tmp_path):
    (tmp_path / "program.py").write_text(
        "import os, sys, tensorflow as tf\n"
        "tf.config.list_physical_devices()\n"
        "print(os.environ['TF_CPP_MIN_LOG_LEVEL'])\n"
        "print('its own line', file=sys.stderr)\n"
        "os.abort()"
    )
    run = [*command, "run", "program.py"]
    aborted = {"cwd": tmp_path, "status": -signal.SIGABRT}
    done = processes.run_python(*run, TF_CPP_MIN_LOG_LEVEL=asked, **aborted)
    assert done.stdout == f"{asked or '2'}\n"
    *lines_of_tensorflow, last = done.stderr.splitlines()
    assert last == "its own line" and bool(lines_of_tensorflow) == bool(asked)


SEEDED = """
import random
import numpy as np
import tensorflow as tf

def model_fn(features, labels, mode, params):
    net = tf.compat.v1.layers.dense(tf.keras.layers.Dense(2)(features), 1)
    loss = tf.reduce_mean(tf.square(net * random.random() - np.random.random()))
    step = tf.compat.v1.train.get_global_step()
    train_op = tf.compat.v1.train.GradientDescentOptimizer(0.1).minimize(loss, step)
    return tf.estimator.EstimatorSpec(mode, loss=loss, train_op=train_op)

def input_fn():
    rows = tf.data.Dataset.range(64).shuffle(64).repeat().batch(4)
    return rows.map(lambda row: (tf.cast(row, tf.float32)[:, None], row))

estimator = tf.estimator.Estimator(model_fn{config})
estimator.train(input_fn, steps=3)
values = [estimator.get_variable_value(name) for name in estimator.get_variable_names()]
print(estimator.config.tf_random_seed, [value.tolist() for value in values], random.random())
"""


@pytest.mark.slow
def test_run_with_a_seed_repeats_a_program(tmp_path):
    """The seed of the program's own RunConfig stays."""

    def printed(*options, config=""):
        (tmp_path / "program.py").write_text(SEEDED.format(config=config))
        return processes.run_command("run", *options, "program.py", cwd=tmp_path).stdout

    first, second, other = [printed(f"--seed={seed}") for seed in (7, 7, 8)]
    assert first == second != other
    assert first.startswith("7 ") and other.startswith("8 ")
    assert printed() != printed()
    config = ", config=tf.estimator.RunConfig(tf_random_seed=3)"
    assert printed("--seed=7", config=config).startswith("3 ")
