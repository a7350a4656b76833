"""This package's versions of tf.contrib names equal NumPy and TensorFlow's own ops."""

import itertools

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow_estimator.python.estimator import run_config as tf_estimator_run_config

import estimator_emb as ee
from estimator_emb.legacy.contrib import (
    arguments,
    crf,
    heads,
    image,
    learn,
    monitors,
    opt,
    rnn,
)

v1 = tf.compat.v1
RNG = np.random.default_rng(3)


def run(build, seed=1):
    """Returns the value of `build()` in a graph, and the values of its variables."""
    with tf.Graph().as_default(), v1.Session() as session:
        v1.set_random_seed(seed)
        made = build()
        session.run(v1.global_variables_initializer())
        variables = {one.op.name: one for one in v1.global_variables()}
        return session.run((made, variables))


# Images


def sampled(images, rows, bilinear=False):
    """Computes projective transforms of NHWC images by the formula."""
    out = np.zeros_like(images)
    count, height, width, _ = images.shape
    rows = np.broadcast_to(rows, (count, 8))

    def at(n, y, x):
        inside = 0 <= y < height and 0 <= x < width
        return images[n, y, x] if inside else np.zeros_like(images[n, 0, 0])

    for n, y, x in itertools.product(range(count), range(height), range(width)):
        a0, a1, a2, b0, b1, b2, c0, c1 = rows[n].astype(np.float64)
        k = c0 * x + c1 * y + 1
        sx, sy = (a0 * x + a1 * y + a2) / k, (b0 * x + b1 * y + b2) / k
        if not bilinear:
            out[n, y, x] = at(n, int(np.rint(sy)), int(np.rint(sx)))
            continue
        fx, fy = int(np.floor(sx)), int(np.floor(sy))
        dx, dy = sx - fx, sy - fy
        upper = (1 - dx) * at(n, fy, fx) + dx * at(n, fy, fx + 1)
        lower = (1 - dx) * at(n, fy + 1, fx) + dx * at(n, fy + 1, fx + 1)
        out[n, y, x] = (1 - dy) * upper + dy * lower
    return out


IMAGES = RNG.random((2, 5, 4, 3)).astype(np.float32)
TRANSFORMS = np.float32(
    [[1, 0.2, -0.6, 0.1, 0.9, 0.3, 0.02, -0.01], [0.8, 0, 0.3, 0, 1.1, 0, 0, 0]]
)


@pytest.mark.parametrize("interpolation", ["NEAREST", "bilinear"])
@pytest.mark.parametrize("rows", [TRANSFORMS, TRANSFORMS[0]], ids=["each", "one"])
def test_image_transform_equals_numpy(rows, interpolation):
    got, _ = run(lambda: image.transform(IMAGES, rows, interpolation))
    want = sampled(IMAGES, rows, interpolation != "NEAREST")
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_image_transform_takes_other_ranks_types_and_sizes():
    whole, _ = run(lambda: image.transform(IMAGES[:1], TRANSFORMS[0]))
    np.testing.assert_array_equal(
        run(lambda: image.transform(IMAGES[0], TRANSFORMS[0]))[0], whole[0]
    )
    plane = run(lambda: image.transform(IMAGES[0, :, :, 0], TRANSFORMS[0]))[0]
    np.testing.assert_array_equal(plane, whole[0, :, :, 0])
    bytes_ = (IMAGES * 255).astype(np.uint8)
    got, _ = run(lambda: image.transform(bytes_, TRANSFORMS))
    np.testing.assert_array_equal(got, sampled(bytes_, TRANSFORMS))
    got, _ = run(
        lambda: image.transform(IMAGES, np.float32([1, 0, 0, 0, 1, 0, 0, 0]), output_shape=[3, 6])
    )
    np.testing.assert_array_equal(got[:, :, :4], IMAGES[:, :3])
    assert got.shape == (2, 3, 6, 3) and not got[:, :, 4:].any()


def test_image_rotate_and_translate_equal_numpy():
    square = IMAGES[:, :4]
    for turns in range(4):
        got, _ = run(lambda turns=turns: image.rotate(square, turns * np.pi / 2))
        np.testing.assert_allclose(got, np.rot90(square, turns, (1, 2)), rtol=1e-5)
    got, _ = run(lambda: image.rotate(square, [0.0, np.pi]))
    np.testing.assert_allclose(got[1], np.rot90(square[1], 2), rtol=1e-5)
    got, _ = run(lambda: image.translate(IMAGES, [1, -2]))
    want = np.zeros_like(IMAGES)
    want[:, :3, 1:] = IMAGES[:, 2:, :3]
    np.testing.assert_array_equal(got, want)
    got, _ = run(lambda: image.translate(IMAGES, [[0, 0], [0, 1]]))
    np.testing.assert_array_equal(got[0], IMAGES[0])
    np.testing.assert_array_equal(got[1, 1:], IMAGES[1, :-1])


def test_composed_transforms_equal_one_translation():
    moves = [image.translations_to_projective_transforms(one) for one in ([1.0, 0.0], [0.0, 2.0])]
    got, _ = run(
        lambda: image.transform(IMAGES, image.compose_transforms(*[m.numpy() for m in moves]))
    )
    want, _ = run(lambda: image.translate(IMAGES, [1, 2]))
    np.testing.assert_array_equal(got, want)


def test_image_transform_gradient_uses_the_inverse():
    def gradient():
        x = tf.constant(IMAGES)
        moved = image.translate(x, [1, 0])
        return tf.gradients(moved, x, tf.ones_like(moved) * [1.0, 2.0, 3.0])[0]

    got, _ = run(gradient)
    want = np.broadcast_to(np.float32([1, 2, 3]), IMAGES.shape).copy()
    want[:, :, -1] = 0
    np.testing.assert_array_equal(got, want)


def test_wrong_images_are_refused():
    with tf.Graph().as_default():
        assert harness.refusal(TypeError, image.rotate, ["a"], 1.0) == (
            "Invalid dtype string of images. It must be one of uint8, int32, int64, float16, "
            "float32, float64."
        )
        message = harness.refusal(TypeError, image.translate, [1.0], [0, 0])
        assert message.startswith("Images should have rank between 2 and 4; got Tensor(")
        message = harness.refusal(TypeError, image.rotate, IMAGES, [[1.0]])
        assert message.startswith("Angles should have rank 0 or 1; got Tensor(")


# Cells


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def normalized(x, gain, shift):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True)) * gain + shift


@pytest.mark.parametrize("layer_norm", [True, False])
def test_layer_norm_basic_lstm_cell_equals_numpy(layer_norm):
    x, c, h = (RNG.normal(size=(3, size)).astype(np.float32) for size in (4, 5, 5))

    def build():
        cell = rnn.LayerNormBasicLSTMCell(
            5, forget_bias=0.5, layer_norm=layer_norm, norm_gain=1.5, norm_shift=0.25
        )
        assert cell.state_size == (5, 5) and cell.output_size == 5
        return cell(tf.constant(x), v1.nn.rnn_cell.LSTMStateTuple(tf.constant(c), tf.constant(h)))

    (out, (new_c, new_h)), variables = run(build)
    scope = "layer_norm_basic_lstm_cell/"
    names = [f"{gate}/{name}" for gate in ("input", "transform", "forget", "output", "state")
             for name in ("gamma", "beta")] if layer_norm else ["bias"]  # fmt: skip
    assert set(variables) == {scope + name for name in ("kernel", *names)}
    gates = np.concatenate([x, h], 1) @ variables[scope + "kernel"]
    gates = gates + variables.get(f"{scope}bias", 0)  # Random at first, as in TensorFlow 1.15.
    norm = (lambda gate: normalized(gate, 1.5, 0.25)) if layer_norm else lambda gate: gate
    i, j, f, o = map(norm, np.split(gates, 4, axis=1))
    want_c = norm(c * sigmoid(f + 0.5) + sigmoid(i) * np.tanh(j))
    want_h = np.tanh(want_c) * sigmoid(o)
    np.testing.assert_allclose(new_c, want_c, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(new_h, want_h, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(out, new_h)


def test_layer_norm_lstm_cell_drops_out_the_candidate_only():
    x = np.ones((1, 400), np.float32)

    def build():
        cell = rnn.LayerNormBasicLSTMCell(400, layer_norm=False, dropout_keep_prob=0.5)
        return cell(tf.constant(x), cell.zero_state(1, tf.float32))

    (_, (c, _)), _ = run(build)
    assert 120 < (c == 0).sum() < 280


@pytest.mark.parametrize("num_proj, use_bias", [(None, False), (3, True)])
def test_nas_cell_equals_numpy(num_proj, use_bias):
    size = num_proj or 5
    x, c, m = (RNG.normal(size=(3, n)).astype(np.float32) for n in (4, 5, size))

    def build():
        cell = rnn.NASCell(5, num_proj, use_bias)
        assert cell.state_size == (5, size) and cell.output_size == size
        return cell(tf.constant(x), v1.nn.rnn_cell.LSTMStateTuple(tf.constant(c), tf.constant(m)))

    (out, (new_c, new_m)), variables = run(build)
    named = {name.removeprefix("nas_cell/"): value for name, value in variables.items()}
    assert set(named) == {
        "recurrent_kernel", "kernel", *(["bias", "projection_weights"] if num_proj else []),
    }  # fmt: skip
    s = np.split(m @ named["recurrent_kernel"] + named.get("bias", 0), 8, axis=1)
    a = np.split(x @ named["kernel"], 8, axis=1)
    relu = lambda value: np.maximum(value, 0)  # noqa: E731
    first = np.tanh(sigmoid(a[0] + s[0]) * relu(a[1] + s[1]))
    second = np.tanh(sigmoid(a[2] + s[2]) + relu(a[3] * s[3]))
    third = np.tanh(np.tanh(a[4] + s[4]) * sigmoid(a[5] + s[5]))
    fourth = sigmoid(np.tanh(a[6] + s[6]) + sigmoid(a[7] + s[7]))
    want_c = np.tanh(first + c) * second
    want_m = np.tanh(want_c * np.tanh(third + fourth))
    want_m = want_m @ named["projection_weights"] if num_proj else want_m
    np.testing.assert_allclose(new_c, want_c, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(new_m, want_m, rtol=1e-4, atol=1e-6)
    np.testing.assert_array_equal(out, new_m)


@pytest.mark.fast(1)
@pytest.mark.parametrize("make", [rnn.LayerNormBasicLSTMCell, rnn.NASCell])
def test_cells_run_over_time_and_are_reused(make):
    def build():
        x = tf.ones([2, 3, 4])
        with v1.variable_scope("net", reuse=v1.AUTO_REUSE):
            outputs = [v1.nn.dynamic_rnn(make(5), x, dtype=tf.float32)[0] for _ in range(2)]
        return [*outputs, tf.gradients(outputs[0], v1.trainable_variables())]

    (first, second, gradients), _ = run(build)
    np.testing.assert_array_equal(first, second)
    assert first.shape == (2, 3, 5) and all(np.abs(one).sum() > 0 for one in gradients)


# Conditional random fields


def log_sum_exp(values):
    return np.log(np.sum(np.exp(np.float64(values))))


def paths(length, tags):
    return itertools.product(range(tags), repeat=length)


def score_of(path, unary, binary):
    single = sum(unary[time, tag] for time, tag in enumerate(path))
    return single + sum(binary[a, b] for a, b in itertools.pairwise(path))


@pytest.mark.slow
@pytest.mark.parametrize("time", [1, 4])
def test_crf_equals_enumeration(time):
    """Compares with all sequences of tags."""
    unary = RNG.normal(size=(4, time, 3)).astype(np.float32)
    binary = RNG.normal(size=(3, 3)).astype(np.float32)
    tags = RNG.integers(0, 3, (4, time)).astype(np.int32)
    lengths = np.minimum([time, 2, 1, 0], time)
    got, _ = run(
        lambda: {
            "score": crf.crf_sequence_score(unary, tags, lengths, binary),
            "norm": crf.crf_log_norm(unary, lengths, binary),
            "likelihood": crf.crf_log_likelihood(unary, tags, lengths, binary)[0],
            "decoded": crf.crf_decode(unary, binary, lengths),
            "gradient": tf.gradients(
                crf.crf_log_likelihood(x := tf.constant(unary), tags, lengths, binary)[0], x
            )[0],
        }
    )
    found, best = got["decoded"]
    for number, length in enumerate(lengths):
        of_paths = {p: score_of(p, unary[number], binary) for p in paths(length, 3)}
        mine = tuple(tags[number, :length])
        norm = log_sum_exp(list(of_paths.values())) if length else 0.0
        np.testing.assert_allclose(got["score"][number], of_paths[mine], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(got["norm"][number], norm, rtol=1e-4, atol=1e-5)
        likelihood = of_paths[mine] - norm
        np.testing.assert_allclose(got["likelihood"][number], likelihood, rtol=1e-3, atol=1e-5)
        # As in TensorFlow 1.15, a sequence of length 0 is decoded as if its length were 1.
        read = max(length, 1)
        of_paths = {p: score_of(p, unary[number], binary) for p in paths(read, 3)}
        want = max(of_paths, key=of_paths.get)
        assert found[number].tolist() == [*want, *[0] * (time - read)]
        np.testing.assert_allclose(best[number], of_paths[want], rtol=1e-4)
        alone = crf.viterbi_decode(unary[number, :read], binary)
        assert tuple(alone[0]) == want
        np.testing.assert_allclose(alone[1], of_paths[want], rtol=1e-4)
        if length:
            # The gradient is the tag minus its probability.
            first = np.array([p[0] for p in paths(length, 3)])
            scores = np.array([score_of(p, unary[number], binary) for p in paths(length, 3)])
            chance = np.exp(scores - norm)
            want = np.eye(3)[mine[0]] - [chance[first == tag].sum() for tag in range(3)]
            np.testing.assert_allclose(got["gradient"][number, 0], want, rtol=1e-3, atol=1e-5)


def test_crf_multitag_score_equals_enumeration():
    unary = RNG.normal(size=(1, 3, 3)).astype(np.float32)
    binary = RNG.normal(size=(3, 3)).astype(np.float32)
    bitmap = np.array([[[True, True, False], [False, True, True], [True, False, True]]])
    got, _ = run(lambda: crf.crf_multitag_sequence_score(unary, bitmap, [3], binary))
    allowed = itertools.product(*(np.flatnonzero(row) for row in bitmap[0]))
    want = log_sum_exp([score_of(path, unary[0], binary) for path in allowed])
    np.testing.assert_allclose(got, [want], rtol=1e-4)


def test_crf_transitions_are_a_variable():
    unary = RNG.normal(size=(1, 3, 3)).astype(np.float32)

    def build():
        return crf.crf_log_likelihood(unary, [[0, 1, 2]], [3])

    (likelihood, transitions), variables = run(build)
    assert set(variables) == {"transitions"} and likelihood.shape == (1,)
    np.testing.assert_array_equal(transitions, variables["transitions"])


# Optimizers, learn, estimator, framework


def test_moving_average_optimizer_saves_averages(tmp_path):
    inner = v1.train.GradientDescentOptimizer(0.5)
    averaging = opt.MovingAverageOptimizer(inner, 0.5)
    assert harness.refusal(RuntimeError, averaging.swapping_saver) == (
        "Must call apply_gradients or minimize before creating the swapping_saver"
    )
    with tf.Graph().as_default(), v1.Session() as session:
        w = v1.get_variable("w", initializer=[1.0, 2.0])
        unused = v1.get_variable("unused", initializer=3.0)
        step = v1.train.create_global_step()
        train_op = averaging.minimize(tf.reduce_sum(w * [2.0, 4.0]), step, [w, unused])
        saver = averaging.swapping_saver()
        message = harness.refusal(ValueError, averaging.swapping_saver, [w])
        assert message == (
            "Variable to swap w/ExponentialMovingAverage is not part of variables to save. This "
            "breaks MovingAverageOptimizer."
        )
        session.run(v1.global_variables_initializer())
        for _ in range(2):
            session.run(train_op)
        path = saver.save(session, str(tmp_path / "model"), step)
    reader = tf.train.load_checkpoint(path)
    values, average = np.array([1.0, 2.0]), np.array([1.0, 2.0])
    for _ in range(2):
        values = values - [1.0, 2.0]
        average = average * 0.5 + values * 0.5
    np.testing.assert_allclose(reader.get_tensor("w"), average)
    np.testing.assert_allclose(reader.get_tensor("w/ExponentialMovingAverage"), values)
    assert reader.get_tensor("unused") == 3.0 and reader.get_tensor("global_step") == 2


def test_learn_run_config_sets_its_fields():
    config = learn.LearnRunConfig(
        num_cores=3, gpu_memory_fraction=0.5, save_checkpoints_steps=7, model_dir="/tmp/m"
    )
    assert config.session_config.intra_op_parallelism_threads == 3
    assert config.session_config.gpu_options.per_process_gpu_memory_fraction == 0.5
    assert config.save_checkpoints_steps == 7 and config.save_checkpoints_secs is None
    assert learn.LearnRunConfig().save_checkpoints_secs == 600
    assert learn.LearnRunConfig().keep_checkpoint_every_n_hours == 10000
    assert isinstance(config, tf_estimator_run_config.RunConfig)
    assert learn.ModeKeys.INFER == ee.ModeKeys.PREDICT
    assert harness.refusal(ValueError, learn.LearnRunConfig, "grpc://tpu") == (
        "learn.RunConfig: TF_CONFIG names the cluster; leave master and evaluation_master out; "
        "got 'grpc://tpu' and ''."
    )


def test_learn_monitors_must_be_hooks():
    hook = v1.train.StopAtStepHook(2)
    assert monitors.replace_monitors_with_hooks([hook], None) == [hook]
    assert monitors.replace_monitors_with_hooks(None, None) == []
    assert harness.refusal(TypeError, monitors.replace_monitors_with_hooks, [3], None) == (
        "replace_monitors_with_hooks: monitors left TensorFlow with version 2; make it a "
        "SessionRunHook of tf.train; got 3."
    )


LOGITS = np.float32([[0.5, -1.0, 2.0], [1.0, 0.0, -0.5]])


def loss_of(head, logits, labels):
    return run(
        lambda: (
            head.create_estimator_spec(
                {"x": tf.ones([2, 1])}, ee.ModeKeys.EVAL, tf.constant(logits), tf.constant(labels)
            ).loss
        )
    )[0]


def test_contrib_heads_return_mean_losses():
    shifted = LOGITS - np.log(np.exp(LOGITS).sum(1, keepdims=True))
    np.testing.assert_allclose(
        loss_of(heads.multi_class_head(3), LOGITS, [[2], [0]]),
        -(shifted[0, 2] + shifted[1, 0]) / 2, rtol=1e-5,
    )  # fmt: skip
    one, y = LOGITS[:, :1], np.float32([[1], [0]])
    cross = np.log1p(np.exp(one)) - y * one
    np.testing.assert_allclose(
        loss_of(heads.binary_classification_head(), one, y), cross.mean(), rtol=1e-5
    )
    np.testing.assert_allclose(
        loss_of(heads.logistic_regression_head(), one, y), cross.mean(), rtol=1e-5
    )
    np.testing.assert_allclose(
        loss_of(heads.regression_head(), one, y), ((one - y) ** 2).mean(), rtol=1e-5
    )


def test_forward_features_adds_features_to_predictions(tmp_path):
    def model_fn(features, labels, mode):
        y = features["x"] * 2.0
        loss = tf.reduce_mean(y) * v1.get_variable("w", initializer=1.0)
        train_op = v1.train.get_global_step().assign_add(1).op
        outputs = {"predict": ee.export.PredictOutput({"y": y})}
        return ee.EstimatorSpec(mode, {"y": y}, loss, train_op, export_outputs=outputs)

    def input_fn():
        words = tf.sparse.from_dense([[0, 5], [7, 0]])
        features = {"x": [[1.0], [2.0]], "key": [8, 9], "words": words}
        return tf.data.Dataset.from_tensors(features)

    estimator = ee.Estimator(model_fn, str(tmp_path))
    estimator.train(input_fn, steps=1)
    for keys, names in ((None, {"x", "key", "words"}), ("key", {"key"}), (["x"], {"x"})):
        made = heads.forward_features(estimator, keys, {"words": -1})
        got = list(made.predict(input_fn))
        assert set(got[0]) == {"y", *names}
        if keys is None:
            assert [one["words"].tolist() for one in got] == [[-1, 5], [7, -1]]
            assert [one["key"] for one in got] == [8, 9]
    with pytest.raises(ValueError, match="^keys should be exist in features. Key 'no' is not in"):
        list(heads.forward_features(estimator, "no").predict(input_fn))
    with pytest.raises(ValueError, match=r"^Feature \(words\) should be a Tensor. Please use keys"):
        list(heads.forward_features(estimator).predict(input_fn))


def test_get_name_scope_and_list_devices_work():
    with tf.Graph().as_default(), tf.name_scope("a"), tf.name_scope("b"):
        assert arguments.get_name_scope() == "a/b"
    devices = arguments.list_devices()
    assert "/job:localhost/replica:0/task:0/device:CPU:0" in devices
