"""Draws programs that use columns, and runs them with stock tensorflow-estimator or with ours.

This module uses nothing of estimator_emb. Run by stock Python with tests/lib on its path,

    drawn_programs.py SEED...

prints {seed: {name: values}} as JSON. Tables are trained by optimizers that a gradient of 0 leaves
alone: stock looks row 0 up where a sample has no id. `laws` trains by all optimizers.
"""

import contextlib
import dataclasses
import functools
import json
import math
import os
import sys
import tempfile
from typing import Any

import features
import inputs
import numpy as np
import spellings
import tensorflow as tf
from features import Feature
from tensorflow_estimator.python.estimator.export import export
from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_estimator

v1 = tf.compat.v1
fc = tf.feature_column
tpu_columns = v1.tpu.experimental
BATCH, BATCHES = 4, 2
KNOWN = slice(4, None, -1)
"""The part of the ids or words that is in a vocabulary, in another order."""
KINDS = {
    "identity": ("identity", {"num_buckets": features.VOCABULARY}),
    "default": ("identity", {"num_buckets": 5, "default_value": 2}),
    "hash": ("hash_bucket", {"hash_bucket_size": 5}),
    "list": ("vocabulary_list", {}),
    "list with buckets": ("vocabulary_list", {"num_oov_buckets": 2}),
    "list with a default": ("vocabulary_list", {"default_value": 3}),
    "file": ("vocabulary_file", {"vocabulary_size": 5}),
    "file with buckets": ("vocabulary_file", {"vocabulary_size": 4, "num_oov_buckets": 1}),
}
"""Kind of a column -> (end of the name of its function, arguments)."""
OF_TABLES = {
    "StochasticGradientDescentParameters": (v1.train.GradientDescentOptimizer, {}),
    "AdagradParameters": (v1.train.AdagradOptimizer, {"initial_accumulator_value": 0.1}),
}
"""Optimizer of the spec -> stock's optimizer that computes the same, and its arguments."""
OF_MODEL = {
    "Adagrad": v1.train.AdagradOptimizer,
    "Adam": v1.train.AdamOptimizer,
    "Ftrl": v1.train.FtrlOptimizer,
    "GradientDescent": v1.train.GradientDescentOptimizer,
    "Momentum": functools.partial(v1.train.MomentumOptimizer, momentum=0.9),
    "RMSProp": v1.train.RMSPropOptimizer,
}
OF_SHARED = (
    *("one_layer", "one_for_each", "called_twice", "in_name_scope", "named", "in_variable_scope"),
    *("made_outside_of_the_scope", "sequential", "functional", "subclassed", "module", "template"),
    *("each_in_one_variable_scope", "in_default_variable_scope", "each_in_name_scope"),
    "column_without_list",
)
"""Ways of `spellings` to make layers of any columns. `input_layer` takes no shared columns."""
OF_OWN = ("one_input_layer", "one_input_layer_for_each", "input_layer_in_scopes")
LOSSES = {
    "mean": lambda error: tf.reduce_mean(tf.sqrt(1.0 + tf.square(error))),
    "sum": lambda error: tf.reduce_sum(tf.sqrt(1.0 + tf.square(error))),
}
"""Losses with bounded gradients, so that no program diverges."""
CALLS = ("train", "evaluate", "predict", "export")


def rows(factor):
    """Returns an initializer with different rows."""

    def initial(shape, dtype=tf.float32, partition_info=None):
        shape = [int(size) for size in shape]
        return tf.constant(np.sin(factor * (1 + np.arange(math.prod(shape)))).reshape(shape), dtype)

    return initial


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a column, or of two columns that share it."""

    kind: str
    features: list[Feature]
    dimension: int
    combiner: str | None
    safe: bool  # Whether a sample may be without ids.
    factor: float  # Of its initial values.
    name: str | None  # Given by the program, if it is shared.

    def columns(self, limit, folder):
        made = [self._categorical(feature, folder) for feature in self.features]
        arguments = {"combiner": self.combiner, "initializer": rows(self.factor)}
        arguments["use_safe_embedding_lookup"] = self.safe
        length = limit if self.features[0].sequence else 0
        if len(made) == 1:
            arguments["max_sequence_length"] = length
            return [tpu_columns.embedding_column(made[0], self.dimension, **arguments)]
        arguments["max_sequence_lengths"] = [length] * len(made)
        arguments["shared_embedding_collection_name"] = self.name
        return tpu_columns.shared_embedding_columns(made, self.dimension, **arguments)

    def _categorical(self, feature, folder):
        end, arguments = KINDS[self.kind]
        words = feature.dtype is object
        known = (features.WORDS if words else [*range(features.VOCABULARY)])[KNOWN]
        if end != "identity":
            arguments = {**arguments, "dtype": tf.string if words else tf.int64}
        if end == "vocabulary_list":
            arguments["vocabulary_list"] = known
        if end == "vocabulary_file":
            arguments["vocabulary_file"] = f"{folder}/{feature.key}.words"
            with open(arguments["vocabulary_file"], "w") as file:
                file.write("".join(f"{one}\n" for one in known))
        begin = "sequence_" if feature.sequence else ""
        make = getattr(fc, f"{begin}categorical_column_with_{end}")
        column = make(feature.key, **arguments)
        if feature.weighted:
            column = fc.weighted_categorical_column(column, f"{feature.key}_w")
        return column


def _one_of(rng, *options):
    return options[rng.integers(len(options))]


def _table(rng, prefix, sequence, emulated):
    # On an emulated TPU, as on a TPU, integers are ids for every kind of column.
    kind = "identity" if emulated else _one_of(rng, *KINDS)
    of_words = kind not in ("identity", "default") and rng.random() < 0.6
    dtype = object if of_words else _one_of(rng, np.int32, np.int64)
    combiner = _one_of(rng, "mean", "sum", "sqrtn")
    shared = rng.random() < 0.25
    made, of_all = [], {"dtype": dtype, "sequence": sequence, "combiner": combiner}
    for letter in "ab"[: 1 + shared]:
        form = "sparse" if sequence else _one_of(rng, "one", "matrix", "sparse", "sparse", "ragged")
        weighted = form in ("sparse", "ragged") and not sequence and rng.random() < 0.3
        made.append(Feature(key=prefix + letter, form=form, weighted=weighted, **of_all))
    if all(one.form == "one" for one in made):
        combiner = _one_of(rng, None, combiner)
    dimension, factor = _one_of(rng, 2, 2, 3), round(rng.uniform(0.5, 3), 3)
    name = _one_of(rng, None, f"both_{prefix}_embedding")
    safe = sequence or kind not in ("identity", "hash") or rng.random() < 0.7
    return Table(kind, made, dimension, combiner, safe, factor, name)


class Program:
    """A program drawn by a seed. Its attributes are the choices."""

    def __init__(self, seed):
        rng = np.random.default_rng(seed)
        self.seed = seed
        self.emulated = rng.random() < 0.3
        number, sequences = _one_of(rng, 1, 2, 2, 3), _one_of(rng, 0, 0, 0, 1, 1, 2)
        draw = functools.partial(_table, rng, emulated=self.emulated)
        self.tables = [draw(f"x{i}", False) for i in range(number - bool(sequences))]
        self.sequences = [draw(f"s{i}", True) for i in range(sequences)]
        self.limit = _one_of(rng, 2, 3, 5)
        self.way = self._way(rng)
        self.one_sequence_layer, self.sequences_of_v1 = rng.random(2) < 0.5
        self.scope = _one_of(rng, None, None, "tower", "tower/deep")
        self.logits = _one_of(rng, "get_variable", "Keras", "layers")
        self.loss = _one_of(rng, *LOSSES)
        self.of_tables, self.of_model = _one_of(rng, *OF_TABLES), _one_of(rng, *OF_MODEL)
        self.rate = _one_of(rng, 0.05, 0.1, 0.3)
        self.call = _one_of(rng, *CALLS)

    def __repr__(self):
        return "\n".join(f"{name}: {value}" for name, value in vars(self).items())

    def _way(self, rng):
        count = sum(len(table.features) for table in self.tables)
        if count == 0:
            return None
        version = _one_of(rng, "v1", "v2")
        ways = [f"{version}/{way}" for way in (*OF_SHARED, *["nested"] * (count > 1))]
        if all(len(table.features) == 1 for table in self.tables):
            ways += [f"other/{way}" for way in (*OF_OWN, *["mixture"] * (count > 2))]
        return _one_of(rng, *ways)

    def batches(self, is_stock):
        """Returns (features, labels) of each batch. Stock gets no ragged ids, and cut sequences."""
        rng, made = np.random.default_rng(self.seed), []
        for _ in range(BATCHES):
            given, of_sequences = {}, int(rng.integers(1000))
            for table in (*self.tables, *self.sequences):
                for feature in table.features:
                    # Sequences in a layer have equal lengths.
                    of = np.random.default_rng(of_sequences) if feature.sequence else rng
                    given |= self._given(feature, table.safe, of, is_stock)
            made.append((given, rng.random([BATCH, 1]).astype(np.float32)))
        return made

    def _given(self, feature, safe, rng, is_stock):
        ids, weights = features.lists(feature, features.VOCABULARY, BATCH, rng)
        if not safe:
            ids, weights = [row or [0] for row in ids], [row or [1.0] for row in weights]
        if feature.combiner != "sum":  # Stock would leave out ids with weights of 0 or less.
            weights = [[abs(weight) or 1.0 for weight in row] for row in weights]
        if is_stock and feature.form == "ragged":
            feature = dataclasses.replace(feature, form="sparse")
        if is_stock and feature.sequence:
            ids = [row[: self.limit] for row in ids]
        parts = features.batch_of(feature, ids, weights)
        given = {feature.key: features.value_of(parts)}
        if feature.weighted:
            given[f"{feature.key}_w"] = features.value_of(parts, "w_")
        return given

    def estimator(self, folder, ours):
        """Returns an estimator by the package `ours`, or by stock if it is None."""
        os.makedirs(folder, exist_ok=True)
        flat, sequences = (
            [column for table in of for column in table.columns(self.limit, folder)]
            for of in (self.tables, self.sequences)
        )
        config = {"save_summary_steps": None, "log_step_count_steps": None}
        sizes = ("train_batch_size", "eval_batch_size", "predict_batch_size")
        given: dict[str, Any] = {"export_to_tpu": False, **dict.fromkeys(sizes, BATCH)}
        model_fn = self.model_fn(flat, sequences, ours is None)
        if ours is None:
            config["tpu_config"] = tpu_config.TPUConfig(1)
            run = tpu_config.RunConfig(model_dir=folder, **config)
            return tpu_estimator.TPUEstimator(model_fn, config=run, use_tpu=False, **given)
        parameters = getattr(ours, self.of_tables)(self.rate)
        given["embedding_config_spec"] = ours.EmbeddingConfigSpec([*flat, *sequences], parameters)
        config["tpu_config"] = ours.TPUConfig(1, device="host" if self.emulated else None)
        run = ours.RunConfig(model_dir=folder, **config)
        return ours.TPUEstimator(model_fn, config=run, use_tpu=self.emulated, **given)

    def model_fn(self, flat, sequences, is_stock):
        ways = spellings.every()

        def hidden(features):
            parts = []
            if flat:
                by_key = {f"column {i}": column for i, column in enumerate(flat)}
                parts += tf.nest.flatten(ways[self.way].program(features, by_key))
            module = v1.keras.experimental if self.sequences_of_v1 else tf.keras.experimental
            groups = [sequences] if self.one_sequence_layer else [[one] for one in sequences]
            for group in filter(None, groups):
                sequence, lengths = module.SequenceFeatures(group)(features)
                # In stock a sequence is as long as the batch's longest, in ours as the limit.
                positions = tf.cast(tf.range(1, tf.shape(sequence)[1] + 1), tf.float32)
                parts.append(tf.reduce_sum(sequence * positions[:, None], 1))
                parts.append(tf.cast(lengths, tf.float32)[:, None])
            return tf.concat(parts, axis=1)

        def logits_of(x):
            if self.logits == "get_variable":
                kernel = v1.get_variable("kernel", [int(x.shape[1]), 1], initializer=rows(0.7))
                return tf.matmul(x, kernel)
            layers = tf.keras.layers if self.logits == "Keras" else v1.layers
            return layers.Dense(1, kernel_initializer=rows(0.7))(x)

        def metrics(labels, logits):
            error = v1.metrics.mean_squared_error(labels, logits)
            return {"logit": v1.metrics.mean(logits), "error": error}

        def model_fn(features, labels, mode, params):
            with v1.variable_scope(self.scope) if self.scope else contextlib.nullcontext():
                x = hidden(features)
            logits = logits_of(x)
            if mode == "infer":
                return tpu_estimator.TPUEstimatorSpec(mode, predictions={"x": x, "logits": logits})
            loss = LOSSES[self.loss](logits - labels)
            train_op = self._minimized(loss, is_stock) if mode == "train" else None
            return tpu_estimator.TPUEstimatorSpec(
                mode, loss=loss, train_op=train_op, eval_metrics=(metrics, [labels, logits])
            )

        return model_fn

    def _minimized(self, loss, is_stock):
        """Trains the model's variables. In stock, trains the tables as the spec does in ours."""
        optimizer, step = OF_MODEL[self.of_model](0.05), v1.train.get_global_step()
        if not is_stock:
            return optimizer.minimize(loss, step)
        pairs = optimizer.compute_gradients(loss)
        of_model, of_tables = (
            [pair for pair in pairs if ("embedding" in pair[1].op.name) == of_tables]
            for of_tables in (False, True)
        )
        make, arguments = OF_TABLES[self.of_tables]
        with tf.control_dependencies([gradient for gradient, _ in pairs]):
            return tf.group(
                optimizer.apply_gradients(of_model, step),
                make(self.rate, **arguments).apply_gradients(of_tables),
            )

    def run(self, folder, ours=None):
        """Trains, makes one more call, and returns {name: values} of both."""
        batches, folder = self.batches(ours is None), str(folder)

        def input_fn(params):
            return inputs.dataset(batches)

        def endless(params):
            return input_fn(params).repeat()

        estimator = self.estimator(folder, ours)
        estimator.train(endless, steps=BATCHES)
        if self.call == "train":
            estimator = self.estimator(folder, ours)
            estimator.train(endless, max_steps=BATCHES + 2)
        reader = tf.train.load_checkpoint(folder)
        found = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        if self.call == "evaluate":
            metrics = estimator.evaluate(input_fn, steps=BATCHES)
            found |= {f"metric {name}": value for name, value in metrics.items()}
        if self.call == "predict":
            predicted = list(estimator.predict(input_fn))
            for name in predicted[0]:
                found[f"predicted {name}"] = [one[name] for one in predicted]
        if self.call == "export":
            served = self._served(estimator, f"{folder}/export", batches[0][0])
            found |= {f"served {name}": value for name, value in served.items()}
        return {name: np.asarray(value).tolist() for name, value in found.items()}

    def _served(self, estimator, folder, batch):
        """Exports a model that parses tf.train.Examples, and serves the samples of a batch."""
        parsing, examples = {}, [tf.train.Example() for _ in range(BATCH)]
        for key, value in batch.items():
            rows_of_values, dtype = _lists_of(value)
            is_ragged = isinstance(value, v1.ragged.RaggedTensorValue)
            parsing[key] = (tf.io.RaggedFeature if is_ragged else tf.io.VarLenFeature)(dtype)
            for example, row in zip(examples, rows_of_values, strict=True):
                feature = example.features.feature[key]
                if dtype == tf.string:
                    feature.bytes_list.value.extend(word.encode() for word in row)
                elif dtype == tf.float32:
                    feature.float_list.value.extend(row)
                else:
                    feature.int64_list.value.extend(row)

        def receiver():
            serialized = v1.placeholder(tf.string, [None])
            parsed = tf.io.parse_example(serialized, parsing)
            return export.ServingInputReceiver(parsed, serialized)

        path = estimator.export_saved_model(folder, receiver).decode()
        served = tf.saved_model.load(path).signatures["serving_default"]
        (argument,) = served.structured_input_signature[1]
        given = tf.constant([example.SerializeToString() for example in examples])
        return {name: value.numpy() for name, value in served(**{argument: given}).items()}


def _lists_of(value):
    """Returns the values of each sample, and their dtype in a tf.train.Example."""
    if isinstance(value, v1.ragged.RaggedTensorValue):
        found, dtype = value.to_list(), value.dtype
    elif isinstance(value, v1.SparseTensorValue):
        found, dtype = inputs.lists(value), value.values.dtype
    else:
        padding, dtype = ("" if value.dtype == object else -1), value.dtype
        found = [row[row != padding] for row in value.reshape(BATCH, -1)]
    return found, {"O": tf.string, "f": tf.float32}.get(dtype.kind, tf.int64)


if __name__ == "__main__":
    v1.logging.set_verbosity("ERROR")
    found = {seed: Program(int(seed)).run(tempfile.mkdtemp()) for seed in sys.argv[1:]}
    print(json.dumps(found))
