"""Functions that generated programs import, under the same names for stock and for ours.

`run_programs.py` sets the side before it loads a program. The stock side does not import
estimator_emb.
"""

import functools
import itertools
import tempfile

import numpy as np
import tensorflow as tf

TABLE_MARK = "embedding"
"""In the name of every table's variable, and of no other variable of a program."""

estimator = EmbeddingConfigSpec = None
"""The package of estimators, with `estimator.tpu`, and a class. `run_programs.py` sets both."""

is_stock = True
model_dir = ""
recorded = {}


def record(name, value):
    """Records a number, an array or a dict of them, to compare with the other side."""
    if isinstance(value, dict):
        for key, inner in value.items():
            record(f"{name}/{key}", inner)
    else:
        recorded[name] = np.asarray(value)


def record_checkpoint(name):
    reader = tf.train.load_checkpoint(tf.train.latest_checkpoint(model_dir))
    record(name, {v: reader.get_tensor(v) for v in reader.get_variable_to_shape_map()})


def rows(factor):
    """Returns an initializer with different rows, equal on both sides."""

    def initial(shape, dtype=tf.float32, partition_info=None):
        shape = [int(dimension) for dimension in shape]
        values = np.sin(factor * (1 + np.arange(np.prod(shape, dtype=int)))).reshape(shape)
        return tf.constant(values, dtype)

    return initial


def sparse(rows_of_values, dtype):
    """Converts lists of values per sample to a SparseTensor."""
    indices = [[i, j] for i, row in enumerate(rows_of_values) for j in range(len(row))]
    values = [value for row in rows_of_values for value in row]
    width = max([1, *map(len, rows_of_values)])
    return tf.SparseTensor(
        np.array(indices, np.int64).reshape(-1, 2),
        tf.constant(values, dtype, [len(values)]),
        [len(rows_of_values), width],
    )


def leave_out(data, key):
    """Removes ids with weights of 0 or less from a feature's data. Stock does so itself."""
    if is_stock:
        return
    ids, weights = data[key], data[f"{key}_weights"]
    kept = [[weight > 0 for weight in row] for row in weights]
    for name, values in ((key, ids), (f"{key}_weights", weights)):
        data[name] = [
            list(itertools.compress(row, keep)) for row, keep in zip(values, kept, strict=True)
        ]


def ragged(rows_of_values, dtype):
    """Converts lists of values per sample to a RaggedTensor in ours, to a SparseTensor in stock."""
    if is_stock:
        return sparse(rows_of_values, dtype)
    return tf.ragged.constant(rows_of_values, dtype, ragged_rank=1)


def ragged_feature(dtype):
    return tf.io.VarLenFeature(dtype) if is_stock else tf.io.RaggedFeature(dtype)


def cut(sequences, max_sequence_length):
    """Truncates sequences for stock. In ours, max_sequence_length does so."""
    return [row[:max_sequence_length] for row in sequences] if is_stock else sequences


def sum_over_time(sequence):
    """Sums with a weight for each position. The sides' tensors may have different lengths."""
    length = tf.shape(sequence)[1]
    return tf.reduce_sum(sequence * tf.cast(tf.range(1, length + 1), tf.float32)[:, None], axis=1)


def parameters(name, *args, **kwargs):
    """Returns the spec's optimizer. Stock does not have all of them, and ignores them off a TPU."""
    if is_stock:
        return tf.compat.v1.tpu.experimental.StochasticGradientDescentParameters(123.0)
    import estimator_emb

    return getattr(estimator_emb, name)(*args, **kwargs)


def vocabulary_file(words):
    handle, path = tempfile.mkstemp(dir=model_dir, suffix=".txt")
    with open(handle, "w") as file:
        file.write("\n".join(words) + "\n")
    return path


def config(grappler, **tpu):
    """Returns a RunConfig for a short program: only checkpoint files, Grappler optional."""
    session = tf.compat.v1.ConfigProto(
        inter_op_parallelism_threads=1, intra_op_parallelism_threads=1
    )
    session.graph_options.rewrite_options.disable_meta_optimizer = not grappler
    return estimator.tpu.RunConfig(
        model_dir=model_dir,
        session_config=session,
        save_summary_steps=None,
        log_step_count_steps=None,
        save_checkpoints_steps=1000,
        tpu_config=estimator.tpu.TPUConfig(iterations_per_loop=1, **tpu),
    )


def new_estimator(model_fn, batch_size, columns, optimizer, where, **fields):
    """Returns a TPUEstimator of columns. `where` is the result of `off_tpu` or `emulated`."""
    sizes = ("train_batch_size", "eval_batch_size", "predict_batch_size")
    spec = EmbeddingConfigSpec(feature_columns=columns, optimization_parameters=optimizer, **fields)
    return estimator.tpu.TPUEstimator(
        model_fn=model_fn,
        export_to_tpu=False,
        embedding_config_spec=spec,
        **dict.fromkeys(sizes, batch_size),
        **where,
    )


def spec_of(mode, labels, loss, train, **predictions):
    """Returns a TPUEstimatorSpec. `loss` returns the model's loss, and `train` the train_op."""
    spec = functools.partial(estimator.tpu.TPUEstimatorSpec, mode)
    if mode == "infer":
        return spec(predictions=predictions)
    loss = loss()
    if mode == "train":
        return spec(loss=loss, train_op=train(loss))

    def metrics(labels, logits):
        return {
            "logit": tf.compat.v1.metrics.mean(logits),
            "error": tf.compat.v1.metrics.mean_squared_error(labels, logits),
        }

    return spec(loss=loss, eval_metrics=(metrics, [labels, predictions["logits"]]))


def mod():
    """Returns spec arguments for 'mod' partitions in ours. Stock does not support them."""
    return {} if is_stock else {"partition_strategy": "mod"}


def emulated(grappler=False):
    """Returns TPUEstimator arguments: one emulated core in ours, off a TPU in stock."""
    if is_stock:
        return off_tpu(grappler)
    return {"use_tpu": True, "config": config(grappler, device="host")}


def off_tpu(grappler=False):
    return {"use_tpu": False, "config": config(grappler)}


def minimize(loss, for_dense, for_tables, multiplier=1.0, limit=None):
    """Trains dense variables and tables. In stock, `for_tables` stands for our spec's optimizer."""
    step = tf.compat.v1.train.get_global_step()
    if not is_stock:
        return for_dense.minimize(loss, step)
    pairs = for_dense.compute_gradients(loss)
    tables = [pair for pair in pairs if TABLE_MARK in pair[1].op.name]
    dense = [pair for pair in pairs if TABLE_MARK not in pair[1].op.name]
    updates = [for_dense.apply_gradients(dense)] if dense else []
    with tf.control_dependencies([gradient for gradient, _ in pairs]):
        tables = [
            (_scaled_and_clipped(gradient, multiplier, limit), variable)
            for gradient, variable in tables
        ]
        updates.append(for_tables.apply_gradients(tables))
    with tf.control_dependencies(updates):
        return tf.compat.v1.assign_add(step, 1).op


def _scaled_and_clipped(gradient, multiplier, limit):
    rows_, places = tf.unique(gradient.indices)
    summed = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows_)) * multiplier
    if limit is not None:
        summed = tf.clip_by_value(summed, -limit, limit)
    return tf.IndexedSlices(summed, rows_, gradient.dense_shape)


def examples(features):
    """Returns serialized tf.train.Examples of {feature: lists of values per sample}."""
    count = len(next(iter(features.values())))
    serialized = []
    for i in range(count):
        example = tf.train.Example()
        for key, values in features.items():
            row = values[i] if isinstance(values[i], list) else [values[i]]
            kind = example.features.feature[key]
            if row and isinstance(row[0], str):
                kind.bytes_list.value.extend(value.encode() for value in row)
            elif row and isinstance(row[0], float):
                kind.float_list.value.extend(row)
            elif row:
                kind.int64_list.value.extend(row)
        serialized.append(example.SerializeToString())
    return serialized


def receiver_fn(parsing, narrow):
    """Returns a serving_input_receiver_fn for serialized Examples. `narrow` ids become int32."""

    def receive():
        serialized = tf.compat.v1.placeholder(tf.string, [None])
        parsed = tf.io.parse_example(serialized, parsing)
        parsed.update({key: tf.cast(parsed[key], tf.int32) for key in narrow})
        return estimator.export.ServingInputReceiver(parsed, serialized)

    return receive


def serve(directory, serialized):
    """Returns the output of a SavedModel's default signature for serialized Examples."""
    if isinstance(directory, bytes):
        directory = directory.decode()
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        loaded = tf.compat.v1.saved_model.load(session, ["serve"], directory)
        signature = loaded.signature_def["serving_default"]
        (fed,) = signature.inputs.values()
        fetched = {key: tensor.name for key, tensor in signature.outputs.items()}
        return session.run(fetched, {fed.name: serialized})
