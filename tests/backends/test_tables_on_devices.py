"""Tables in the memory of PJRT devices: their rates, and when the host has a copy."""

import time

import harness
import numpy as np
import processes
import pytest
import tensorflow as tf
from emulated_program import every_checkpoint

import estimator_emb as ee
from estimator_emb import embedding
from estimator_emb.compat.async_checkpoint import AsyncCheckpointSaverHook

v1 = tf.compat.v1
pytestmark = pytest.mark.usefixtures("eight_devices")
PLACES = ("host", "pjrt+tables")
SAMPLES, ROWS, STEPS, LOOP = 4, 6, 8, 4
ADAM, ADAGRAD = ee.AdamParameters(0.1), ee.AdagradParameters(0.1)
IDS = {"a": np.array([0, 1, 1, 3]), "b": np.array([0, 1, 1, 4])}
LABELS = np.random.default_rng(1).random([SAMPLES, 3]).astype(np.float32)
EACH_LOOP = {"save_checkpoints_steps": 1, "keep_checkpoint_max": None}
NO_SAVES = {"save_checkpoints_steps": None, "save_checkpoints_secs": None}


def decaying(step):
    return v1.train.exponential_decay(0.5, step, 2, 0.7)


def of_branches(step):
    return v1.train.piecewise_constant(step, [1, 4], [0.5, 0.2, 0.1])


def of_a_variable(step):
    """Computes the rate from a variable that model_fn updates in each step."""
    variables = {one.op.name: one for one in v1.global_variables()}
    return variables["seen"] / 10 + 0 * tf.cast(step, tf.float32)


def of_python(step):
    rate = tf.numpy_function(lambda one: np.float32(0.5 / (1 + one)), [step], tf.float32)
    return tf.ensure_shape(rate, [])


def of_an_asserted_variable(step):
    rate = of_a_variable(step)
    with tf.control_dependencies([tf.debugging.assert_greater(rate, 0.05)]):
        return tf.identity(rate)


def multiplier(step):
    return 1 - tf.cast(step, tf.float32) / 5


def model_fn(features, labels, mode, params):
    bias = v1.get_variable("bias", [3], initializer=v1.zeros_initializer())
    seen = v1.get_variable("seen", [], initializer=v1.ones_initializer(), trainable=False)
    loss = tf.reduce_sum(tf.square(features["a"] - bias - features["b"]) * labels)
    v1.add_to_collection("loss", loss)
    spec = harness.minimized(mode, loss, optimizer=v1.train.AdamOptimizer(0.1))
    with tf.control_dependencies([spec.train_op]):
        return spec._replace(train_op=seen.assign_add(1.0).op)


def trained(
    model_dir,
    place,
    rate=None,
    multiplier=None,
    hooks=(),
    adam=ADAM,
    adagrad=ADAGRAD,
    run=EACH_LOOP,
    model_fn=model_fn,
    **of_estimator,
):
    """Returns every variable of every checkpoint. `rate` is table b's, which `adagrad` trains."""
    ones = v1.ones_initializer()
    a = ee.TableConfig(ROWS, 3, ones, optimization_parameters=adam)
    b = ee.TableConfig(ROWS, 3, ones, learning_rate_fn=rate)
    factor = {"experimental_gradient_multiplier_fn": multiplier}
    spec = harness.tables_spec({"a": a, "b": b}, adagrad, **factor)
    tpu = {"iterations_per_loop": LOOP}
    estimator = harness.estimator(
        model_fn, spec, model_dir, SAMPLES, place, 2, run, tpu, **of_estimator
    )
    estimator.train(harness.endless((IDS, LABELS)), steps=STEPS, hooks=list(hooks))
    return every_checkpoint(model_dir)


@pytest.mark.fast(1)
@pytest.mark.parametrize(
    ("rate", "steps_that_wait"),
    [
        (of_branches, 0),
        (decaying, 0),
        (of_a_variable, 0),
        (of_python, STEPS),
        (of_an_asserted_variable, STEPS),
    ],
)
def test_a_loop_waits_only_for_rates_computed_on_the_host(
    rate, steps_that_wait, tmp_path, monkeypatch
):
    """For such a rate, each step reads some variables on the devices. A loop's end reads all."""
    from estimator_emb.backends.xla import devices

    reads, variables = [], devices.DeviceStep.variables

    def noted(self, indices):
        reads.append(list(indices))
        return variables(self, indices)

    monkeypatch.setattr(devices.DeviceStep, "variables", noted)
    on_devices = trained(tmp_path / "devices", "pjrt+tables", rate, multiplier)
    all_of_them = max(map(len, reads))
    assert sum(0 < len(one) < all_of_them for one in reads) == steps_that_wait
    assert sum(len(one) == all_of_them for one in reads) == STEPS // LOOP
    harness.assert_same(trained(tmp_path / "host", "host", rate, multiplier), on_devices)


MULTIPLIER = "EmbeddingConfigSpec: experimental_gradient_multiplier_fn"


@pytest.mark.parametrize(
    ("owner", "value", "allowed"),
    [
        ("Table 'b': learning_rate_fn", -0.5, "finite and not negative"),
        (MULTIPLIER, float("nan"), "finite"),
    ],
)
def test_a_loop_with_a_bad_rate_stops_at_its_end_and_saves_nothing(owner, value, allowed, tmp_path):
    def changing(step):
        # A step of the second loop is bad.
        return tf.gather([0.5] * (LOOP + 1) + [value] + [0.5] * STEPS, step)

    factors = (decaying, changing) if owner == MULTIPLIER else (changing, None)
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        trained(tmp_path, "pjrt+tables", *factors)
    place = f"test_tables_on_devices.py, line {changing.__code__.co_firstlineno}"
    must = f"its value in this step must be {allowed}; got {value}."
    assert f"{owner} changing ({place}): {must}" in str(caught.value)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith(f"-{LOOP}")


def in_control(step):
    with tf.control_dependencies([tf.debugging.assert_less(step, v1.to_int64(LOOP + 1), "late")]):
        return 0.5 / (1 + tf.cast(step, tf.float32))


def in_a_branch(step):
    return tf.cond(step > 1, lambda: in_control(step), lambda: 0.5)


@tf.function
def in_a_function(step):
    return in_control(step)


def of_numbers(step):
    late = tf.cast(step > LOOP, tf.float32)
    return tf.minimum(tf.debugging.check_numerics(0.5 / (1 - late), "late"), 0.5)


@pytest.mark.fast(1)
@pytest.mark.parametrize("function", [in_control, in_a_branch, in_a_function, of_numbers])
@pytest.mark.parametrize("turns", ["rate", "multiplier"])
def test_an_assert_in_a_rate_stops_the_step_as_on_the_host(turns, function, tmp_path):
    factors = (function, None) if turns == "rate" else (decaying, function)
    found = []
    for place in PLACES:
        with pytest.raises(tf.errors.InvalidArgumentError) as caught:
            trained(tmp_path / place, place, *factors)
        assert tf.train.latest_checkpoint(str(tmp_path / place)).endswith(f"-{LOOP}")
        found.append(caught.value.message.partition("\n\t [[{{node")[0])  # Without the op's name.
    of_host, of_devices = found
    assert "late" in of_host
    assert of_devices == of_host


def test_an_assert_in_a_rate_of_the_loss_is_refused(tmp_path):
    """The host does not know the loss while a loop runs, and XLA would not check it."""

    def rate(step):
        return in_control(step) + 0 * v1.get_collection("loss")[0]

    message = harness.refusal(ValueError, trained, tmp_path, "pjrt+tables", rate)
    assert "is computed from a feature, with an assert or another op that only the host" in message


@pytest.mark.slow
def test_rate_functions_of_tf2_optimizers_act_as_on_the_host(tmp_path):
    def rate_of(function):
        return lambda: function(v1.train.get_global_step())

    adam = embedding.Adam(rate_of(of_branches), clipvalue=0.5)
    adagrad = tf.tpu.experimental.embedding.Adagrad(rate_of(decaying), weight_decay_factor=0.01)
    given = {"multiplier": multiplier, "adam": adam, "adagrad": adagrad}
    harness.assert_same(*(trained(tmp_path / place, place, **given) for place in PLACES))


@pytest.mark.fast(1)
@pytest.mark.parametrize("run", [EACH_LOOP, NO_SAVES])
def test_the_next_loop_waits_for_a_hook_that_saves_in_its_own_thread(run, tmp_path, monkeypatch):
    """Otherwise the slow save of this test would save the tables of the next loop."""
    save = v1.train.Saver.save

    def slow(*args, **kwargs):
        time.sleep(0.3)
        return save(*args, **kwargs)

    monkeypatch.setattr(v1.train.Saver, "save", slow)
    kinds = {"host": v1.train.CheckpointSaverHook, "pjrt+tables": AsyncCheckpointSaverHook}
    saved = {}
    for place, kind in kinds.items():
        hook = kind(str(tmp_path / place / "own"), save_steps=LOOP)
        saved[place] = trained(tmp_path / place, place, decaying, hooks=[hook], run=run)
    steps = {name for name in saved["host"] if "global_step" in name}
    assert steps == {f"global_step after step {step}" for step in (0, LOOP, STEPS)}
    harness.assert_same(saved["host"], saved["pjrt+tables"])


def test_the_host_holds_tables_only_while_it_saves(tmp_path):
    """Hooks look after each loop, before the host saves. Reading a table then is an error."""

    def are_held():
        tables = [one for one in v1.global_variables() if one.name.startswith(("a/", "b/"))]
        assert len(tables) == 5  # Two tables, two slots of Adam, one of Adagrad.
        return [tf.raw_ops.VarIsInitializedOp(resource=one.handle) for one in tables]

    held = harness.Reads(are_held)
    trained(tmp_path, "pjrt+tables", decaying, hooks=[held])
    assert held.seen == [[False] * 5] * (STEPS // LOOP)
    read = harness.Reads(lambda: next(one for one in v1.global_variables() if "a/" in one.name))
    with pytest.raises(tf.errors.FailedPreconditionError, match="Could not find variable a/"):
        trained(tmp_path / "read", "pjrt+tables", decaying, hooks=[read])


def test_a_changed_vocabulary_moves_the_rows_of_devices(tmp_path):
    """The new training takes the old table `a`, in whose vocabulary the words are in reverse."""
    trained(tmp_path / "old", "pjrt+tables")
    words = [f"w{row}\n" for row in range(ROWS)]
    (tmp_path / "words").write_text("".join(words))
    (tmp_path / "turned").write_text("".join(reversed(words)))
    moved = ee.VocabInfo(f"{tmp_path}/turned", ROWS, 0, f"{tmp_path}/words")
    start = ee.WarmStartSettings(f"{tmp_path}/old", ["a"], {"a": moved})
    trained(tmp_path / "new", "pjrt+tables", warm_start_from=start)
    old, new = harness.saved(tmp_path / "old", STEPS), harness.saved(tmp_path / "new", 0)
    np.testing.assert_array_equal(new["a"], old["a"][::-1])


def test_a_saver_of_scaffold_fn_saves_the_tables(tmp_path):
    """The program's own Saver, too, must get the tables' values from the devices."""
    made = []

    def scaffold_fn():
        made.append(v1.train.Saver(max_to_keep=9))
        return v1.train.Scaffold(saver=made[-1])

    def with_a_saver(features, labels, mode, params):
        return model_fn(features, labels, mode, params)._replace(scaffold_fn=scaffold_fn)

    harness.assert_same(*(trained(tmp_path / one, one, model_fn=with_a_saver) for one in PLACES))
    assert len(made[-1].last_checkpoints) == 1 + STEPS // LOOP  # At the start, and after each loop.


def after_a_loop(late):
    """Returns `late` after the first loop, else 1."""
    return tf.where(v1.train.get_global_step() < LOOP, 1.0, late)


def test_infinite_slots_are_not_saved(tmp_path):
    def explodes(features, labels, mode, params):
        loss = tf.reduce_sum(features["a"] + features["b"]) * after_a_loop(1e25)
        return harness.minimized(mode, loss)  # The slot adds 1e25 squared: too large for float32.

    slot = "slot b/Adagrad of table 'b': infinity in 3 of 6 rows, ids 0, 1, 4"  # Those looked up.
    with pytest.raises(ee.errors.NanLossError, match=slot):
        trained(tmp_path, "pjrt+tables", model_fn=explodes)
    assert tf.train.latest_checkpoint(str(tmp_path)).endswith(f"-{LOOP}")


def test_a_nan_loss_names_the_op_of_the_model(tmp_path):
    def makes_nan(features, labels, mode, params):
        of_a = tf.reduce_sum(tf.math.log(after_a_loop(-1.0)) + features["a"] * 0.0)
        of_b = tf.reduce_sum(features["b"] ** 2) / 9.0  # Such constants make no NaN.
        return harness.minimized(mode, of_a + of_b)

    with pytest.raises(ee.errors.NanLossError) as caught:
        trained(tmp_path, "pjrt+tables", model_fn=makes_nan, run=NO_SAVES)
    assert "finite numbers: The op 'Log' was made by" in str(caught.value)
    assert "tf.math.log(after_a_loop(-1.0))" in str(caught.value)


MEASURED = """
    import sys

    import estimator_emb as ee
    import harness
    import numpy as np
    import tensorflow as tf

    rows, model_dir, peaks = int(sys.argv[1]), sys.argv[2], []

    def measure():
        lines = dict(one.split(":") for one in open("/proc/self/status") if one.startswith("Vm"))
        peaks.append(int(lines["VmHWM"].split()[0]) * 1024)
        open("/proc/self/clear_refs", "w").write("5")  # The peak begins anew.

    def model_fn(features, labels, mode, params):
        return harness.minimized(mode, tf.reduce_mean((features["a"] + features["b"]) ** 2))

    tables = dict.fromkeys("ab", ee.TableConfig(rows, 16))
    spec = harness.tables_spec(tables, ee.AdagradParameters(0.1))
    batch, run = dict.fromkeys("ab", np.arange(64)), {"save_checkpoints_steps": 5}
    made = harness.estimator(model_fn, spec, model_dir, 64, "pjrt+tables", 1, run)
    batches = harness.input_fn_of([(batch, batch)] * 6)
    made.train(batches, steps=6, hooks=[harness.AfterStep(measure)])
    print(*peaks)
"""
"""Prints the peak of memory until the end of each step. The fifth ends with a save."""


@pytest.mark.slow
def test_the_host_frees_the_memory_of_tables(tmp_path):
    """They are once on the CPU device, and once more while training begins and while it saves."""

    def peaks(rows):
        done = processes.run(MEASURED, rows, tmp_path / str(rows))
        start, _, _, training, save, _ = map(float, done.stdout.split())
        return np.array([start, training, save])

    rows, more = 1_000_000, 3_000_000  # What does not grow, about 100 MB, drops out.
    of_tables = 2 * (more - rows) * 16 * 4 * 2  # Bytes of two tables, each with a slot.
    start, training, save = (peaks(more) - peaks(rows)) / of_tables
    # The tables once or twice, and up to 0.3 for what a step and a save hold besides.
    assert 1 < start < 2.3 and training < 1.2 and 1 < save < 2.3
