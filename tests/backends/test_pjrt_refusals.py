"""Features that PJRT devices do not support are refused by name, with a workaround."""

import types

import emulated_program
import harness
import processes
import pytest
import tensorflow as tf
from absl import flags
from emulated_program import batches
from tensorflow.python.tpu.ops import tpu_ops

import estimator_emb as ee
from estimator_emb import preflight
from estimator_emb.backends.pjrt import backend, tables_on_devices
from estimator_emb.backends.xla import core_step
from estimator_emb.engine.alone import ALONE

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("eight_devices")


def test_pjrt_uses_all_devices_by_default(monkeypatch):
    assert len(backend.chosen(ee.TPUConfig(device="pjrt", num_shards=3))[0]) == 3
    monkeypatch.setenv("ESTIMATOR_EMB_PJRT_PLATFORM", "cpu")
    assert len(backend.chosen(ee.TPUConfig())[0]) == 8  # All of the fixture `eight_devices`.


def on_pjrt(tmp_path, cores=None, tpu=None, model_fn=emulated_program.model_fn, pipelined=False):
    spec = emulated_program.SPEC._replace(pipeline_execution_with_tensor_core=pipelined)
    tpu = {"device": "pjrt", **(tpu or {})}
    return emulated_program.make(model_fn, tmp_path, cores, spec=spec, tpu=tpu)


EMULATED = {"device": "emulate", "tables": "device"}
SUMMARIES = {"table_summaries": True}


@pytest.mark.parametrize(
    # variables: of the environment, without ESTIMATOR_EMB_. arguments: of `on_pjrt`. words: of the
    # error, which name the bad option, or what to do.
    ("variables", "arguments", "words"),
    [
        ({"PJRT_PLATFORM": "gpu"}, {}, "If its plugin is missing: pip install 'jax[cuda12]=="),
        ({"PJRT_PLATFORM": "npu"}, {}, "ESTIMATOR_EMB_PJRT_PLATFORM must be 'cpu' or 'gpu' or"),
        ({"TOPOLOGY": "v3-8"}, {}, "ESTIMATOR_EMB_TOPOLOGY names an emulated TPU, and device="),
        ({}, {"tpu": {"num_cores_per_replica": 2}}, "num_cores_per_replica must be None; got 2."),
        ({}, {"cores": 9}, "set XLA_FLAGS=--xla_force_host_platform_device_count=9."),
        ({"TABLES": "hbm"}, {}, "ESTIMATOR_EMB_TABLES must be 'host' or 'device'; got 'hbm'."),
        ({}, {"tpu": {"tables": "hbm"}}, "TPUConfig: tables must be 'host' or 'device'; got 'hbm'"),
        ({}, {"tpu": EMULATED}, "tables='device' needs device='pjrt'; the device is 'emulate'."),
        ({"TABLES": "device"}, {"tpu": SUMMARIES}, "table_summaries=True needs them on the host: "),
        ({}, {"tpu": {"tables": "device"}, "pipelined": True}, "where no lookup runs ahead: leave"),
    ],
)
def test_refused_when_the_estimator_is_made(variables, arguments, words, tmp_path, monkeypatch):
    for name, value in variables.items():
        monkeypatch.setenv(f"ESTIMATOR_EMB_{name}", value)
    assert words in harness.refusal(ValueError, on_pjrt, tmp_path, **arguments)


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        ("importlib.util.find_spec", lambda *names: None, "needs jax, which is not installed: pip"),
        ("tensorflow.__version__", "2.17.1", "needs TensorFlow 2.18 or newer, as jax does not go"),
    ],
)
def test_refused_without_jax_or_with_an_old_tensorflow(where, value, words, tmp_path, monkeypatch):
    monkeypatch.setattr(where, value)
    assert words in harness.refusal(ValueError, on_pjrt, tmp_path)


@pytest.mark.parametrize(
    # tpu: of TPUConfig. variables: as above. words: of the line that is logged; [] for no line.
    ("tpu", "variables", "words"),
    [
        ({"device": "pjrt", "tables": "device"}, {}, ["TPUConfig(device='pjrt')", "(tables="]),
        ({"device": "emulate"}, {}, ["TPUConfig(device='emulate')"]),
        ({}, {"DEVICE": "pjrt", "TABLES": "device"}, ["ESTIMATOR_EMB_DEVICE=pjrt", "TABLES="]),
        # Nobody chose these defaults of TPUConfig, of `estimator-emb run`, and of a program's flag.
        ({"device": "tpu", "tables": "host"}, {}, []),
        ({}, {"DEVICE": "emulate", "TABLES": "host"}, []),
        ({"device": "of a flag"}, {}, []),
    ],
)
def test_log_says_that_devices_have_no_effect_without_use_tpu(
    tpu, variables, words, tmp_path, monkeypatch, said
):
    for name, value in variables.items():
        monkeypatch.setenv(f"ESTIMATOR_EMB_{name}", value)
    if tpu.get("device") == "of a flag":
        monkeypatch.setattr(flags, "FLAGS", flags.FlagValues())
        flags.DEFINE_string("hardware", "pjrt", "", flag_values=flags.FLAGS)
        tpu = {"device": flags.FLAGS["hardware"].value}
    for _ in range(2):  # The second estimator logs nothing.
        harness.estimator(lambda features: None, None, tmp_path, run={}, tpu=tpu, use_tpu=False)
    lines = [line for line in said() if "no effect, as use_tpu=False" in line]
    assert len(lines) == bool(words)
    assert all(word in lines[0] for word in words)


HOST_ONLY = "What only the host can do belongs into input_fn, or into host_call and eval_metrics."
ADDED = {  # What is added to the loss, and no PJRT device can compute.
    "Python": lambda loss: v1.tpu.outside_compilation(
        lambda given: tf.numpy_function(lambda value: value, [given], tf.float32), loss
    ),
    "TPU op": lambda loss: tpu_ops.collective_permute(loss[None], [[0, 1], [1, 0]]),
    "unbounded loop": lambda loss: tf.while_loop(
        lambda one: one < 100.0, lambda one: one * 2.0 + 1.0, [loss]
    )[0],
    "values set the size": lambda loss: tf.stop_gradient(tf.unique(loss[None])[0]),
    # TensorFlow's own lowering would end in SIGSEGV.
    "queue": lambda loss: tf.queue.FIFOQueue(1, [tf.float32], shapes=[[]]).dequeue(),
}


@pytest.mark.parametrize(
    # added: of ADDED. first, line, last: of the message, its first line, the line about the op with
    # its place in the program, and the last line with advice. None: there is no such line.
    ("added", "first", "line", "last"),
    [
        ("Python", "No registered 'PyFunc' OpKernel for XLA_CPU_JIT", "The op 'PyFunc'", HOST_ONLY),
        ("TPU op", "model_fn calls collective_permute, and PJRT devices", "It is called", None),
        (
            "unbounded loop",
            "XLA compilation requires a fixed tensor list size. Set the max number of elements.",
            "The op 'gradients/while_grad/Placeholder_0/accumulator'",
            "Give each loop a constant maximum_iterations, a recurrent layer a static length.",
        ),
        ("queue", "FIFOQueueV2 'fifo_queue' is on the host", "The op 'fifo_queue'", HOST_ONLY),
        ("values set the size", "DynamicReshape requires at least two operands.", None, HOST_ONLY),
    ],
)
def test_a_step_is_refused_when_it_is_lowered(added, first, line, last, tmp_path):
    def model_fn(features, labels, mode, params):
        loss = tf.reduce_sum(features["words"]) * v1.get_variable("scale", [])
        return harness.minimized(mode, loss + tf.reshape(ADDED[added](loss), []))

    train = on_pjrt(tmp_path, cores=2, model_fn=model_fn).train
    words = harness.refusal(core_step.CannotLower, train, batches, steps=1)
    got_first, *of_op = words.splitlines()
    assert first in got_first
    assert not last or of_op.pop() == last
    assert len(of_op) == bool(line)
    assert not line or (of_op[0].startswith(line) and f" by {processes.ROOT}/tests/" in of_op[0])


def test_check_reports_the_place_of_the_tables(tmp_path):
    """No TPUEstimator can drive the SparseCores of a v6e, but device='pjrt' needs none of them."""
    pjrt = on_pjrt(tmp_path, cores=4)
    report = preflight.check_program(pjrt, batches, generations=["v6e"], compile=False)
    assert report.status == 0, str(report)  # No finding.
    assert "\n  v6e, tables: accepted; on the host, where they need " in str(report)


def test_a_hook_that_writes_a_table_on_the_devices_is_refused(tmp_path, assert_recorded):
    """The hook would write the table's variable on the host, which the devices do not read."""

    def clear():
        table = next(one for one in v1.global_variables() if "embedding" in one.op.name)
        return table.assign(tf.zeros(table.shape), name="clear")

    runs_clear = harness.Reads(clear)  # Runs the op after each step.
    given = emulated_program.trained, tmp_path, "pjrt+tables"
    first, *where = harness.refusal(ValueError, *given, hooks=[runs_clear]).splitlines()
    assert_recorded(first)  # The message in messages.json names the table and the op 'clear'.
    assert "test_pjrt_refusals.py" in where[0]


def test_tables_larger_than_a_device_are_refused_before_compilation():
    from estimator_emb.backends.xla import device_tables

    def table(name, rows):
        return device_tables.DeviceTable(name, rows, 16, None, "adagrad", (0.1,))

    def check(limit):
        stats = {} if limit is None else {"bytes_limit": limit}
        own = [types.SimpleNamespace(memory_stats=lambda: stats)]
        stacks = device_tables.stacks_of([table("words", 1000), table("days", 7)], 2, packs=False)
        tables_on_devices.check_memory(stacks, own, 2)

    needed = (500 + 4) * 16 * 4 * 2  # Half of the rows, float32, with a slot: 64,512 bytes.
    for enough in (None, needed):  # CPU devices tell no limit.
        check(enough)
    words = harness.refusal(MemoryError, check, needed - 1)
    assert "tables='device' needs 0.1 MB of each of 2 devices for tables and slots" in words
    assert "'words': 1,000 rows of 16. Take more devices or hosts" in words
    assert "parameter servers" not in words  # They hold no tables of PJRT devices.


@pytest.mark.parametrize("platform", ["gpu", "tpu"])
@pytest.mark.parametrize("own", [None, {"CPU": 1}, {"GPU": 1}])  # own: the program's device_count.
def test_sessions_use_no_gpu_of_jax(platform, own, tmp_path, monkeypatch, said):
    """TensorFlow's sessions would take the memory that jax needs. The GPUs here are pretended."""
    devices = [types.SimpleNamespace(platform=platform)]
    monkeypatch.setattr(backend, "chosen", lambda tpu_config: (devices, ALONE))
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: ["/GPU:0"])
    given = own and v1.ConfigProto(device_count=own)
    run = {"session_config": given}
    made = harness.estimator(lambda features: None, None, tmp_path, 8, "pjrt", run=run)
    hidden = platform == "gpu" and own != {"GPU": 1}  # A program that asks for GPUs gets them.
    expected = {**(own or {}), **({"GPU": 0} if hidden else {})}
    assert dict(made.config.session_config.device_count) == expected
    assert given is None or dict(given.device_count) == own  # The program's object is unchanged.
    # RunConfig allows soft placement unless the program gives a ConfigProto, which does not.
    assert made.config.session_config.allow_soft_placement == (own is None)
    assert len([line for line in said() if "TensorFlow's sessions use none" in line]) == hidden
