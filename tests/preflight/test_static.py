"""The check's findings without a compiler: whole messages, with the lines of this file."""

import importlib.resources
import json
import re
from unittest import mock

import harness
import programs
import pytest
import tensorflow as tf
from programs import line, to_number
from tensorflow.compiler.tf2xla.python import xla
from tensorflow.python.eager import context
from tensorflow.python.framework import function

import estimator_emb as ee
from estimator_emb import preflight
from estimator_emb.preflight import program_lines, static

NO_KERNEL = "no TPU kernel has this op. Instead:"
STRINGS = "keep strings on the host: turn them into numbers in input_fn."


def check(model_fn, input_fn=programs.input_fn, mode="train", **kwargs):
    estimator = programs.estimator(model_fn, **kwargs)
    return preflight.check_program(estimator, input_fn, mode, ["v4"], compile=False)


def findings_of(model_fn, *args, **kwargs):
    """Checks a program, and returns the texts of its findings."""
    report = check(model_fn, *args, **kwargs)
    assert report.status == (1 if report.findings else 0)
    return [str(one) for one in report.findings]


def found(change, **kwargs):
    """Returns the findings about a small model whose loss has the term change(logits, features)."""
    return findings_of(programs.model_fn_with(change), **kwargs)


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_a_dlrm_passes_in_training_on_a_tpu_and_in_evaluation_on_the_host(mode, assert_recorded):
    """The check treats a program for an emulated TPU (device 'host') like one for a TPU."""
    metrics = {}
    if mode == "eval":
        metrics["eval_metrics"] = lambda logits, labels: (
            lambda labels, logits: {"error": tf.compat.v1.metrics.mean(labels - logits)},
            {"labels": labels, "logits": logits},
        )
    report = check(  # By default, 128 samples on 8 cores.
        programs.model_fn_with(logits_of=programs.dlrm, **metrics),
        mode=mode,
        embedding_config_spec=programs.spec(),
        device={"train": None, "eval": "host"}[mode],
        per_host_input_for_training=True,
    )
    assert report.findings == () and report.status == 0
    assert report.mode == mode and report.replicas == 8 and report.batch_per_core == 16
    assert report.op_count > 25
    # (125 + 625) rows * 16 floats are 48,000 bytes, 0.0458 MiB. In training, slots double them.
    size = {"train": "0.0916 MiB, 0.00056", "eval": "0.0458 MiB, 0.00028"}[mode]
    assert f"per core of 8: tables and slots {size} % of 16 GiB" in str(report)
    assert_recorded(str(report).replace(f"{report.op_count} ops", "N ops"))  # The whole report.


def test_programs_off_a_tpu_are_checked_as_on_a_tpu():
    report = check(programs.model_fn_with(), use_tpu=False)
    assert report.findings == ()
    assert report.notes == (
        "The program said use_tpu=False; the step was built as with use_tpu=True.",
    )


def without_kernels(logits, features):
    total = tf.reduce_sum(logits)
    text = tf.strings.as_string(total)  # AsString
    size = tf.cast(tf.strings.length(text), tf.float32)  # StringLength
    given = tf.ensure_shape(tf.py_function(lambda x: x, [total], tf.float32), [])  # EagerPyFunc
    wide = tf.cast(tf.stop_gradient(total), tf.complex128)  # Cast
    real = tf.cast(tf.math.real(tf.sin(wide)), tf.float32)  # Sin, Real
    # ScalarSummary: no result needs it, but it is fetched. Then SparseSegmentMean.
    tf.compat.v1.summary.scalar("of_logits", tf.reduce_mean(logits))
    mean = tf.reduce_sum(tf.sparse.segment_mean(tf.stop_gradient(logits), [0, 1], [0, 0]))
    dataset = tf.data.Dataset.from_tensors(1.0).map(lambda x: x + 1).repeat()
    number = tf.compat.v1.data.make_one_shot_iterator(dataset).get_next()  # 2 ops
    w = tf.compat.v1.get_variable("w", [], trainable=False, use_resource=False)  # VariableV2
    with tf.control_dependencies([tf.print("logits", logits)]):  # PrintV2, StringFormat
        return size + given + real + mean + number + w * total


def test_ops_without_a_kernel_are_findings(assert_recorded):
    """messages.json has a finding for each op that is named in a comment of `without_kernels`."""
    code, said = without_kernels.__code__, "\n".join(found(without_kernels))
    assert f"AsString (op 'AsString', dtype float32): {NO_KERNEL} {STRINGS}" in said
    place = re.compile(rf"{re.escape(code.co_filename)}:(\d+)")  # Lines count from the `def`.
    said = place.sub(lambda of: f"line {int(of[1]) - code.co_firstlineno}", said)
    assert_recorded("\n".join(sorted(said.splitlines())))


def test_supported_and_unneeded_ops_are_no_findings():
    def change(logits, features):
        tf.strings.as_string(logits)  # No TPU runs this op, but nothing needs its result.
        x = tf.cast(tf.reduce_sum(logits), tf.complex64)
        y = tf.cast(tf.reduce_sum(logits), tf.float64) * 2
        total = tf.math.real(tf.sin(x)) + tf.cast(y, tf.float32)
        # The compiler judges shapes that depend on values.
        return total + programs.shaped_by_values(logits, features)

    assert found(change) == []


@pytest.mark.parametrize("labels", ["absent", "None"])
def test_a_prediction_gets_dense_features_and_no_labels(labels):
    """Predictions on a TPU have no tables, so a sparse feature cannot reach the model."""
    seen = []

    def input_fn(params):
        dataset = programs.input_fn({**params, "has_tables": True})
        return dataset.map(lambda features, _: features if labels == "absent" else (features, None))

    def model_fn(features, labels, mode, params):
        seen.append((sorted(features), labels))
        return ee.TPUEstimatorSpec(mode, predictions={"dense": features["dense"] * 2.0})

    (said,) = findings_of(model_fn, input_fn, mode="infer")
    assert said.startswith(
        "features['history']: Can not convert a SparseTensor into a Tensor: only"
    )
    assert seen == [(["dense", "user"], None)]


def test_errors_of_the_checker_itself_are_reported(monkeypatch):
    monkeypatch.setattr(static, "findings", mock.Mock(side_effect=KeyError("of the checker")))
    message = harness.refusal(preflight.CannotCheck, check, programs.model_fn_with())
    assert message == "The checker itself cannot follow this program: KeyError: 'of the checker'"


def loop(x, body=to_number):
    return tf.while_loop(lambda x: x < 3, lambda x: [body(x)], [x])[0]


def insisting_on_v1(x):
    tf.compat.v1.disable_control_flow_v2()
    return loop(tf.cond(x > 0, lambda: x * 2, lambda: x))


def of_v1_program(x):
    assert tf.compat.v1.control_flow_v2_enabled()  # The check turns v2 on.
    return loop(x)


INSIDE = {
    "a branch": (lambda x: tf.cond(x > 0, lambda: to_number(x), lambda: 0.0), "cond_true"),
    "a function in a loop": (lambda x: loop(x, tf.function(to_number)), "to_number"),
    "a function of TensorFlow 1": (lambda x: function.Defun(tf.float32)(to_number)(x), "to_number"),
    "a program of v1": (of_v1_program, "while_body"),
    "a model_fn that insists on v1": (insisting_on_v1, "while"),
}
"""Place of ops -> the function that makes them, and the scope of their names."""


@pytest.mark.fast(1)  # All cases but one are slow.
@pytest.mark.parametrize("where", INSIDE)
def test_ops_inside_functions_and_branches_are_findings(where):
    make, scope = INSIDE[where]
    if "v1" in where:  # Programs of v1 control flow call this before all else.
        tf.compat.v1.disable_control_flow_v2()
    try:
        findings = found(lambda logits, _: make(tf.stop_gradient(tf.reduce_sum(logits))))
    finally:
        tf.compat.v1.enable_control_flow_v2()
    # For a function of TensorFlow 1, the graph has only the line of the call.
    place = line(make, 0) if "TensorFlow 1" in where else line(to_number)
    assert [re.sub(r"to_number_\w+/", "to_number/", one) for one in findings] == [
        f"{place}: {op}: {NO_KERNEL} {STRINGS}"
        for op in (
            f"AsString (op '{scope}/AsString', dtype float32)",
            f"StringToNumber (op '{scope}/StringToNumber')",
        )
    ]


@pytest.fixture
def soft_placement(monkeypatch):
    """Acts as `tf.config.set_soft_device_placement(True)`, but can be undone."""
    monkeypatch.setattr(context.context(), "_soft_device_placement", True)


def test_soft_placement_sets_host_ops_aside(soft_placement):
    """TensorFlow's automatic outside compilation does so too, and SimCLR trained with it."""

    def change(logits, features):
        total = to_number(tf.reduce_sum(logits))
        total = tf.function(to_number)(total)
        return tf.cond(total > 0, lambda: to_number(total), lambda: total)

    report = check(programs.model_fn_with(change))
    assert report.findings == () and report.status == 0
    (note,) = report.notes
    assert note.startswith(
        "Set aside: 6 ops that no TPU runs, and that TensorFlow puts on the host"
    )  # Three calls of to_number have two ops each.
    assert all(f"{op} ({line(to_number)})" in note for op in ("StringToNumber", "AsString"))


def test_soft_placement_keeps_other_findings(soft_placement):
    # TensorFlow moves the determinant in float64 to the host, but no summaries and placeholders.
    def change(logits, features):
        tf.compat.v1.summary.scalar("mean", tf.reduce_mean(logits))
        wide = tf.cast(tf.reduce_sum(logits), tf.float64)
        fed = tf.compat.v1.placeholder(tf.float32, [])
        return tf.cast(tf.linalg.det(wide * tf.eye(2, dtype=tf.float64)), tf.float32) + fed

    kinds = sorted(one.partition(": ")[2].partition(" ")[0] for one in found(change))
    assert kinds == ["Placeholder", "ScalarSummary"]


def number_of_host(loss):
    return loss + tf.cast(xla.replica_id(), tf.float32)


def test_a_step_can_read_the_replica_id_and_its_host_call_cannot():
    """A host call runs on the host, once for all cores, so it has no replica id."""

    def change(logits, features):
        return tf.reduce_sum(logits) * tf.cast(xla.replica_id(), tf.float32)

    host_call = {"host_call": lambda logits, labels: (number_of_host, [logits])}
    (said,) = findings_of(programs.model_fn_with(change, **host_call))
    assert said == (
        f"{line(number_of_host)}: XlaReplicaId (op 'host_call/XlaReplicaId'): host_call asks for "
        "the number of a core, and its host has none. Instead: xla.replica_id() in model_fn, "
        "which gives it to host_call as a tensor."
    )


def test_outside_compilation_is_set_aside():
    def on_host(x):  # Four ops: StringFormat, PrintV2, AsString and StringToNumber.
        with tf.control_dependencies([tf.print(x)]):
            return tf.strings.to_number(tf.strings.as_string(x))

    def change(logits, features):
        total = tf.stop_gradient(tf.reduce_sum(logits))
        inside_branch = tf.cond(
            total > 0, lambda: tf.compat.v1.tpu.outside_compilation(on_host, total), lambda: 0.0
        )
        return inside_branch + tf.compat.v1.tpu.outside_compilation(on_host, total)

    report = check(programs.model_fn_with(change))
    assert report.findings == ()
    assert report.notes == ("Set aside: 8 ops in outside_compilation, which the host runs.",)


def test_only_a_single_core_needs_no_cross_shard_optimizer():
    optimizer = tf.compat.v1.train.GradientDescentOptimizer(0.1)
    model_fn = programs.model_fn_with(optimizer=optimizer)

    def of_one_core(features, labels, mode, params):
        assert params["batch_size"] == 128  # But model_fn expects the 16 of one of 8 cores.
        return model_fn(features, labels, mode, {**params, "batch_size": 16})

    (said,) = findings_of(model_fn)
    assert said == (
        "the step updates variables without summing gradients over the cores (no "
        "CrossReplicaSum), so every core would train a model of its own. Instead: "
        "tf.compat.v1.tpu.CrossShardOptimizer(optimizer)."
    )
    given = programs.estimator(of_one_core, num_shards=None), programs.input_fn
    one = preflight.check_program(*given, compile=False, replicas=1)
    assert one.findings == () and one.batch_per_core == 128


def test_inputs_of_unknown_size_stop_the_check():
    def input_fn(params):
        unknown = tf.TensorSpec([params["batch_size"], None], tf.float32)
        rates = tf.data.Dataset.from_generator(lambda: iter(()), output_signature=unknown)
        dataset = tf.data.Dataset.zip((programs.input_fn(params), rates))
        return dataset.map(lambda given, rates: ({**given[0], "rates": rates}, given[1]))

    report = check(programs.model_fn_with(), input_fn)
    (said,) = map(str, report.findings)
    assert said.startswith(
        "features['rates'] (float32) has the dynamic shape (16, None). Instead: "
    )
    assert report.notes == ("The step could not be built, so its ops were not looked at.",)
    assert report.op_count == 0


def test_functions_of_the_host_are_not_part_of_the_step():
    """A TPU has no kernel for tf.print. Here each core gets its share of the host's input."""

    def host_call(logits, labels):
        assert logits.shape == [16, 1]  # 128 samples on 8 cores.
        return lambda logits: tf.print(logits), [logits]

    model_fn = programs.model_fn_with(host_call=host_call)
    assert check(model_fn, per_host_input_for_training=True).findings == ()


def test_failures_of_the_program_are_no_findings():
    def change(logits, features):
        return features["misspelt"]

    message = harness.refusal(program_lines.ProgramError, check, programs.model_fn_with(change))
    assert message == f"model_fn failed at {line(change)}: KeyError: 'misspelt'"


def test_an_indivisible_batch_is_a_finding(assert_recorded):
    report = check(programs.model_fn_with(), num_shards=3)
    (said,) = map(str, report.findings)
    assert said.startswith("use_tpu=True raises ValueError: train batch size 128 must be divisible")
    assert report.status == 1 and report.batch_per_core is None
    assert_recorded(report)  # Says that the step was not built, and names the finding.


@pytest.mark.parametrize(
    "name, wrong, message",
    [
        ("mode", "test", "one of ('train', 'eval', 'infer'); got 'test'."),
        ("generations", ["v4", "v7"], "among ('v2', 'v3', 'v4', 'v5e', 'v5p', 'v6e'); got 'v7'."),
        ("replicas", 0, "at least 1; got 0."),
        ("timeout", 0, "positive; got 0."),
    ],
)
def test_check_program_refuses_wrong_arguments(name, wrong, message):
    given = programs.estimator(programs.model_fn_with()), programs.input_fn
    said = harness.refusal(ValueError, preflight.check_program, *given, **{name: wrong})
    assert said == f"{name} must be {message}"


def test_the_table_of_kernels_is_complete():
    """Checks the table's size against the registry that it was read from, and known entries."""
    file = importlib.resources.files("estimator_emb.preflight") / "tpu_kernels.json"
    table = json.loads(file.read_text())
    assert "tensorflow-tpu 2.19.1" in table["source"]
    assert len(table["kernels"]) == 528  # The ops with TPU kernels in that release.

    def types(op, attribute):
        return [table["type_sets"][kernel[attribute]] for kernel in table["kernels"][op]]

    assert types("CrossReplicaSum", "T") == ["bfloat16 double float half int32 uint32"]
    assert types("Angle", "T") == ["complex64"]
    assert types("ResourceApplyAdam", "T") == ["bfloat16 complex64 double float half"]
    assert types("DenseBincount", "Tidx") == ["int32 int64"]
