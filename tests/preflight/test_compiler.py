"""Lowering a step with TensorFlow alone, and compiling it if libtpu is installed."""

import json
import os
import resource
import sys

import harness
import processes
import programs
import pytest
import tensorflow as tf
from programs import line
from tpu_described import NO_ESTIMATOR

from estimator_emb import preflight
from estimator_emb.backends.xla import core_step, lower
from estimator_emb.catalog import installing
from estimator_emb.preflight import compiler
from estimator_emb.preflight import described_step as step_lib

_, MISSING = compiler.interpreter(None)
needs_compiler = pytest.mark.skipif(bool(MISSING), reason=MISSING or "installed")


def built(model_fn, mode="train", **kwargs):
    return step_lib.build(programs.estimator(model_fn, **kwargs), programs.input_fn, mode)


@pytest.fixture
def lowered(tmp_path, monkeypatch):
    """Returns a function that builds and lowers a step in this process, as `_lower` does."""

    def run(python, process, work, result, timeout):
        assert process == lower.__file__
        lower.main(work)
        return json.loads((work / f"{result}.json").read_text()), ""

    monkeypatch.setattr(compiler, "run_process", run)

    def of(change, **kwargs):
        return compiler._lower(built(programs.model_fn_with(change), **kwargs), tmp_path, timeout=1)

    return of


def compiled(model_fn, *generations, spec=None, **kwargs):
    estimator = programs.estimator(model_fn, embedding_config_spec=spec)
    return preflight.check_program(estimator, programs.input_fn, generations=generations, **kwargs)


@pytest.mark.slow
def test_a_step_with_everything_is_lowered(tmp_path):
    """Lowers variables, control flow, functions, outside compilation and sums."""

    def change(logits, features):
        total = tf.reduce_sum(logits)
        total = tf.cond(total > 0, lambda: total * 2, lambda: tf.sin(total))
        total = tf.while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, x * x), [0, total], maximum_iterations=3
        )[1]
        outside = tf.compat.v1.tpu.outside_compilation(
            lambda x: tf.ensure_shape(tf.py_function(lambda y: y, [x], tf.float32), []),
            tf.stop_gradient(total),
        )
        return total + outside + tf.function(tf.compat.v1.tpu.cross_replica_sum)(total)

    step = built(programs.model_fn_with(change), embedding_config_spec=programs.spec())
    loops, outcome, words = compiler._lower(step, tmp_path, timeout=processes.HANGS)
    assert (loops, outcome, words) == (True, "accepted", "")  # The step has loops.
    # One sum each: the kernel, the bias, the activations' helper, the function and its gradient.
    module = (tmp_path / "step.hlo").read_bytes()
    assert module.count(core_step.CROSS_REPLICA_SUM.encode()) == 3 + 2
    interface = json.loads((tmp_path / "step.json").read_text())
    shapes = sorted(one["shape"] for one in interface["arguments"])
    # The result of outside compilation, labels, users, dense features, histories. No replica id.
    assert shapes == [[], [16, 1], [16, 4, 16], [16, 13], [16, 16]]
    # Kernel, bias, helper, the global step.
    assert len(interface["variables"]) == 3 + 1


@pytest.mark.slow
def test_a_rate_or_multiplier_that_cannot_be_lowered_names_its_line(lowered):
    """A TPU needs static shapes. The functions of tables run there too."""

    def dynamic(step):
        return tf.reduce_sum(tf.zeros([tf.cast(step, tf.int32)]))

    tables = programs.spec().table_to_config_dict
    tables = {name: one._replace(learning_rate_fn=dynamic) for name, one in tables.items()}
    for changed in (
        {"table_to_config_dict": tables},
        {"experimental_gradient_multiplier_fn": dynamic},
    ):
        _, outcome, words = lowered(None, embedding_config_spec=programs.spec()._replace(**changed))
        assert outcome == "refused" and "must be a compile-time constant" in words
        assert words.splitlines()[-1].startswith(f"{line(dynamic)}: op 'zeros")


def branches_of_unequal_shape(logits, features):
    mul = tf.reduce_sum(logits) * 1.0  # An op "mul" that does not fail.
    kept = tf.cond(
        mul > 0,
        lambda: logits[:2] * 3.0,
        lambda: tf.sin(logits[:3]),
    )
    return tf.reduce_sum(kept)


def loop_of_growing_shape(logits, features):
    total = tf.stop_gradient(logits)
    return tf.reduce_sum(
        tf.while_loop(
            lambda i, x: i < 3,
            lambda i, x: (i + 1, tf.concat([x, tf.sin(x)], 0)),
            [0, total],
            shape_invariants=[tf.TensorShape([]), tf.TensorShape([None, 1])],
        )[1]
    )


def shape_of_a_value(logits, features):
    size = tf.cast(tf.reduce_sum(logits), tf.int32)
    return tf.reduce_sum(tf.zeros([size]))


@pytest.mark.parametrize(
    ("change", "words", "offset"),  # offset: the line to blame, counted from the `def`.
    [
        (shape_of_a_value, "must be a compile-time constant", 2),
        (branches_of_unequal_shape, "Incompatible shapes", 5),
        harness.slow(loop_of_growing_shape, "a fixed tensor list size", 3),
    ],
)
def test_impossible_shapes_name_their_line(change, words, offset, lowered):
    _, outcome, text = lowered(change)
    assert outcome == "refused"
    assert text.startswith(f"TensorFlow {tf.__version__} could not lower it: ") and words in text
    assert any(one.startswith(f"{line(change, offset)}: op '") for one in text.splitlines()), text
    assert "programs.py" not in text  # Its model_fn only calls `change`.


def test_lowering_needs_no_memory_for_variables(lowered):
    """The weights of this program, 2^16 x 2^15 float32, would take 8 GiB."""

    def change(logits, features):
        w = tf.compat.v1.get_variable("w", [1 << 16, 1 << 15], tf.float32)
        bits = tf.compat.v1.get_variable("bits", [3], tf.bool, trainable=False)
        x = tf.tile(features["dense"], [1, 1 << 13])[:, : 1 << 16]
        return tf.reduce_sum(x @ w) + tf.reduce_sum(tf.cast(bits, tf.float32))

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert lowered(change)[1:] == ("accepted", "")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 1 << 20  # 1 GiB in KiB.


def collective(logits, features):
    pairs = [[0, 1], [1, 0]]
    return tf.reduce_sum(tf.raw_ops.CollectivePermute(input=logits, source_target_pairs=pairs))


def outside_in_a_branch(logits, features):
    total = tf.stop_gradient(tf.reduce_sum(logits))
    outside = tf.compat.v1.tpu.outside_compilation
    return tf.cond(total > 0, lambda: outside(tf.abs, total), lambda: 0.0)


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (collective, "CollectivePermute"),
        (outside_in_a_branch, "the step needs what outside_compilation gives within "),
    ],
)
def test_ops_that_only_a_tpu_lowers_are_no_finding(change, part, lowered):
    _, outcome, words = lowered(change)
    assert outcome == "not compiled"
    assert " lowered without a TPU: " in words or " cannot lower it without a TPU: " in words
    assert part in words


def test_a_timeout_is_no_finding(tmp_path):
    lowered = compiler._lower(built(programs.model_fn_with()), tmp_path, timeout=0.01)
    late = f"Lowering by TensorFlow {tf.__version__} failed: it took longer than 0.01 s"
    assert lowered == (False, "not compiled", late)


def test_a_refused_lowering_is_reported_once(lowered, monkeypatch):
    """A step is lowered once for all generations, but each has its own answer for the tables."""
    monkeypatch.setattr(compiler, "interpreter", lambda asked: (sys.executable, ""))
    report = compiled(programs.model_fn_with(shape_of_a_value), "v3", "v4", spec=programs.spec())
    assert report.status == 1 and report.versions is None
    _, _, of_compiler = str(report).partition("\nCompiler: the step did not get that far.\n")
    refused, words, *_ = of_compiler.splitlines()
    assert refused == "  v3, v4, dense step, 8 replicas: refused"
    assert words.startswith(f"      TensorFlow {tf.__version__} could not lower it: ")
    assert f"\n      {line(shape_of_a_value, 2)}: op 'zeros'\nTables of the Emb" in of_compiler
    assert "\n  v4, tables: accepted" in of_compiler


def test_compilation_without_the_extra_is_skipped_or_refused(monkeypatch):
    monkeypatch.delenv("ESTIMATOR_EMB_COMPILER_PYTHON", raising=False)
    monkeypatch.setattr(compiler, "REQUIRED", ("no_such_jax", "no_such_libtpu"))
    how = (
        f"no_such_jax and no_such_libtpu not installed in {sys.executable}: "
        f"{installing.extra('preflight')}, or name an interpreter that has them in "
        "ESTIMATOR_EMB_COMPILER_PYTHON."
    )
    report = compiled(programs.model_fn_with(), "v4")  # Compiles if it can.
    assert report.skipped == how and report.status == 0
    assert f"\nCompiler: skipped. {how}\n" in str(report)
    asked = programs.model_fn_with(), "v4"
    assert harness.refusal(preflight.CannotCheck, compiled, *asked, compile=True) == how


def test_a_wrong_interpreter_is_refused():
    asked = {"compile": True, "compiler_python": "/no/python"}
    model_fn = programs.model_fn_with()
    assert harness.refusal(preflight.CannotCheck, compiled, model_fn, "v4", **asked) == (
        "/no/python is no Python interpreter that runs: [Errno 2] No such file or directory: "
        "'/no/python'."
    )


def test_another_interpreter_is_searched_for_the_packages(monkeypatch):
    """`json` is found there, although this process is made to look like a third interpreter."""
    monkeypatch.setattr(compiler, "REQUIRED", ("json", "no_such_jax"))
    outside = os.path.realpath(sys.executable)
    monkeypatch.setattr(compiler.sys, "executable", "/another/python")
    _, missing = compiler.interpreter(outside)
    assert missing.startswith(f"no_such_jax not installed in {outside}: pip ")


TARGETS = {
    "v2": [("v2:2x2", 1), ("v2:2x2", 8)],
    "v3": [("v3:2x2", 1), ("v3:2x2", 8)],
    "v4": [("v4:2x2x1", 1), ("v4:2x2x1", 8)],
    "v5e": [("v5e:2x2", 1), ("v5e:2x4", 8)],
    "v5p": [("v5p:2x2x1", 1), ("v5p:2x2x2", 8)],
    "v6e": [("v6e:2x2", 1), ("v6e:2x4", 8)],
}
"""Generation -> (chips, replicas) of both compilations. A chip of v2, v3 or v4 has two cores."""


def test_every_generation_has_a_topology_for_eight_replicas():
    assert list(compiler.GENERATIONS) == ["v2", "v3", "v4", "v5e", "v5p", "v6e"]
    assert {name: compiler._targets(name, 8) for name in compiler.GENERATIONS} == TARGETS


def test_a_step_with_findings_is_not_compiled(monkeypatch):
    # A compiler is found, but no TPU runs the string ops of to_number.
    monkeypatch.setattr(compiler, "interpreter", lambda asked: (sys.executable, ""))
    model_fn = programs.model_fn_with(lambda x, _: programs.to_number(tf.reduce_sum(x)))
    report = compiled(model_fn, "v4")
    assert report.status == 1 and report.compilations == ()
    assert report.skipped == "Correct the findings above first."


@needs_compiler
@pytest.mark.slow
def test_a_dlrm_compiles_for_every_generation():
    adam = tf.compat.v1.tpu.CrossShardOptimizer(tf.compat.v1.train.AdamOptimizer())
    model_fn = programs.model_fn_with(logits_of=programs.dlrm, optimizer=adam)
    report = compiled(model_fn, *compiler.GENERATIONS, spec=programs.spec(), compile=True)
    text = str(report)
    assert report.status == 1  # Tables need a TPUEstimator.
    assert [one.outcome for one in report.tables] == ["accepted"] * 3 + ["refused"] * 3
    # The dense step of v2 is the larger of its compilations, on 1 and on 8 replicas.
    assert report.tables[0].step_bytes == max(
        one.argument_bytes + one.temporary_bytes for one in report.compilations[:2]
    )
    assert [(one.topology, one.replicas, one.outcome) for one in report.compilations] == [
        (topology, replicas, "accepted" if index < 3 else "compiles")  # v2 to v4 come first.
        for index, name in enumerate(compiler.GENERATIONS)
        for topology, replicas in TARGETS[name]
    ]
    assert (
        "  What compiles for v5e, v5p, v6e is for TPUConfig(device='pjrt'), which nobody has tried "
        f"on a TPU: {NO_ESTIMATOR}"
    ) in text.splitlines()
    for one in report.compilations:
        # Forward: 13*64 + 64*16 + 25*64 + 64*1 + 3*16*3 (pairs) multiplications and additions per
        # sample. Backward: twice as many, except for the gradient of the 13 inputs.
        layers = 13 * 64 + 64 * 16 + 25 * 64 + 64 + 3 * 16 * 3
        multiplications = 16 * (3 * layers - 13 * 64)  # 16 samples per core.
        assert 2 * multiplications < one.flops < 2.6 * multiplications  # The rest is small.
        # At least float32 weights with two slots, and the tensors of the batch.
        assert one.argument_bytes > 4 * 3 * (13 * 64 + 64 * 16 + 25 * 64 + 64)
        assert one.temporary_bytes >= 0
        assert (one.all_reduces > 0) == (one.replicas == 8)
    first, libtpu = report.compilations[4], report.versions[1]  # v4 on one replica.
    assert f"accepted; per core: floating-point operations {first.flops:,.0f}, " in str(first)
    assert f"all-reduce substituted), given to libtpu {libtpu}:\n  v2, dense step, 1 " in text


@needs_compiler
@pytest.mark.slow
def test_too_much_memory_is_refused_in_the_compilers_words():
    def change(logits, features):
        x = tf.tile(features["dense"], [4096, 1])  # 4096 times 16 samples.
        matrix = tf.nn.softmax(tf.matmul(x, x, transpose_b=True))  # 65,536 squared float32: 16 GiB.
        return tf.reduce_sum(tf.sin(tf.matmul(matrix, matrix)))

    report = compiled(programs.model_fn_with(change), "v3", compile=True)
    assert report.status == 1
    assert "What compiles for" not in str(report)  # This note is about newer generations.
    assert [one.outcome for one in report.compilations] == ["refused", "refused"]
    for one in report.compilations:
        lines = one.words.splitlines()
        assert lines[0].startswith("RESOURCE_EXHAUSTED")
        where = line(change, 2)
        # Versions of libtpu name different products.
        products = [f"{where}: op 'MatMul_{n}': makes f32[65536,65536], 16 GiB" for n in (1, 2)]
        assert lines[-3] in products  # The last lines name the largest tensors.
        assert lines[-2] == f"{where}: op 'Softmax': makes f32[65536,65536], 16 GiB"


@needs_compiler
@pytest.mark.slow
def test_shapes_that_depend_on_values_compile():
    report = compiled(programs.model_fn_with(programs.shaped_by_values), "v4", compile=True)
    assert [one.outcome for one in report.compilations] == ["accepted", "accepted"]
