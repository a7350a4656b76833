"""A program that trains from a file, for `from_files.py`.

    python benchmarks/files_program.py PEER MODEL FORMAT FILE BATCH
    python benchmarks/files_program.py convert CSV_FILE TFRECORD_FILE

MODEL is 'dlrm' or 'wdl', FORMAT is 'csv' or 'tfrecord', and PEER is in this list:

  ours      `TPUEstimator`, with columns of strings in hash buckets in an EmbeddingConfigSpec
  memory    'ours' with batches in memory, and with ids instead of strings
  stock     tensorflow-estimator's Estimator, with TensorFlow's own columns and v1 Adagrad
  dense     that Estimator with given activations, and a trained vector instead of each table
  parsing   that Estimator with a model that only takes the parsed batch
  reading   'parsing' with unparsed lines or records
  hooks     'parsing' without input: session calls and hooks
  trace     'ours' on one thread. It prints milliseconds by part of the step, and ends

The rest is as in `dlrm.py`.
"""

import functools
import json
import os
import sys
import tempfile

import dlrm
import numpy as np
import tensorflow as tf
from dlrm import ClockHook, on_estimator, train_op_of
from dlrm_workload import (
    DIMENSION,
    INITIAL_ACCUMULATOR,
    LEARNING_RATE,
    NUMBERS,
    WARM_UP,
)
from files_workload import BUCKETS, COLUMNS
from profile_step import Trace

DEFAULTS = [0.0] * (1 + NUMBERS) + [""] * len(COLUMNS)
"""What stands for a missing value: a label, numbers and strings."""
DEEP = (1024, 512, 256)
IN_MEMORY = 1 << 16
"""The number of samples in memory, through which programs go again and again."""
TRACED = 20
"""The number of steps of which 'trace' adds up the time."""
TO_IDS = ("StringToHashBucketFast", "HostTablesToIds")
"""Types of the ops that turn strings into ids."""


class Files:
    """Datasets of a file, in batches."""

    def __init__(self, form: str, path: str, batch: int):
        self._form, self._path, self._batch = form, path, batch

    def raw(self):
        """Returns an endless dataset of batches of lines or records."""
        kind = tf.data.TextLineDataset if self._form == "csv" else tf.data.TFRecordDataset
        return kind(self._path).repeat().batch(self._batch, drop_remainder=True)

    def parsed(self):
        """Returns a dataset of (features, labels)."""
        return self.raw().map(self._parse)

    def with_ids(self, samples: int):
        """Returns parsed batches as arrays, with ids for strings and -1 for empty strings."""

        def hashed(features, labels):
            for key in COLUMNS:
                found = tf.strings.to_hash_bucket_fast(features[key], BUCKETS)
                found = tf.where(tf.equal(features[key], ""), tf.constant(-1, tf.int64), found)
                features[key] = found[:, tf.newaxis]
            return features, labels

        batches = self.parsed().map(hashed).take(max(samples // self._batch, 1))
        stacked = [np.stack(of_all) for of_all in zip(*map(tf.nest.flatten, batches), strict=True)]
        return tf.nest.pack_sequence_as(batches.element_spec, stacked)

    def _parse(self, batch):
        if self._form == "csv":
            labels, *cells = tf.io.decode_csv(batch, DEFAULTS)
            labels, numbers = labels[:, tf.newaxis], tf.stack(cells[:NUMBERS], axis=1)
            features = dict(zip(COLUMNS, cells[NUMBERS:], strict=True))
        else:
            kinds = {key: tf.io.FixedLenFeature([], tf.string, "") for key in COLUMNS}
            kinds["numbers"] = tf.io.FixedLenFeature([NUMBERS], tf.float32)
            kinds["label"] = tf.io.FixedLenFeature([1], tf.float32)
            features = tf.io.parse_example(batch, kinds)
            labels, numbers = features.pop("label"), features["numbers"]
        features["numbers"] = tf.math.log1p(tf.maximum(numbers, 0.0))
        return features, labels


def write_records(source: str, path: str) -> None:
    """Writes the rows of a CSV file as TFRecords, without the missing values."""
    with tf.io.TFRecordWriter(path) as writer:
        for batch in tf.data.TextLineDataset(source).batch(1024):
            cells = [cell.numpy() for cell in tf.io.decode_csv(batch, DEFAULTS)]
            for label, *row in zip(*cells, strict=True):
                example = tf.train.Example()
                feature = example.features.feature
                feature["label"].float_list.value.append(label)
                feature["numbers"].float_list.value.extend(row[:NUMBERS])
                for key, string in zip(COLUMNS, row[NUMBERS:], strict=True):
                    if string:
                        feature[key].bytes_list.value.append(string)
                writer.write(example.SerializeToString())


def wdl_loss(activations, wide, numbers, labels):
    """Returns the loss of a deep model added to a linear model."""
    with tf.name_scope("dense"):
        x = tf.concat([*activations, numbers], axis=1)
        for layer, size in enumerate((*DEEP, 1)):
            w = tf.compat.v1.get_variable(f"deep{layer}/w", [int(x.shape[1]), size])
            b = tf.compat.v1.get_variable(
                f"deep{layer}/b", [size], initializer=tf.compat.v1.zeros_initializer()
            )
            x = tf.matmul(x, w) + b
            x = tf.nn.relu(x) if size > 1 else x
        logits = x + wide
        return tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))


def _of_strings(key):
    return tf.feature_column.categorical_column_with_hash_bucket(key, BUCKETS)


def _of_ids(key):
    return tf.feature_column.categorical_column_with_identity(key, BUCKETS)


def _read(features, columns):
    return [tf.compat.v1.feature_column.input_layer(features, [column]) for column in columns]


def ours(folder, model, batch, session_config=None, categorical=_of_strings):
    import estimator_emb as ee
    import feature_columns as fc

    deep = [fc.embedding_column(categorical(key), DIMENSION) for key in COLUMNS]
    wide = []
    if model == "wdl":
        zeros = tf.compat.v1.zeros_initializer()
        wide = [
            fc.embedding_column(categorical(key), 1, combiner="sum", initializer=zeros)
            for key in COLUMNS
        ]

    def model_fn(features, labels, mode, params):
        activations = _read(features, deep)
        loss = _loss(model, activations, lambda: tf.add_n(_read(features, wide)), features, labels)
        return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op_of(loss))

    return ee.TPUEstimator(
        model_fn,
        config=ee.RunConfig(
            model_dir=folder,
            session_config=session_config,
            save_summary_steps=None,
            log_step_count_steps=None,
            tpu_config=ee.TPUConfig(1),
        ),
        use_tpu=False,
        train_batch_size=batch,
        embedding_config_spec=ee.EmbeddingConfigSpec(
            feature_columns=[*deep, *wide],
            optimization_parameters=ee.AdagradParameters(LEARNING_RATE, INITIAL_ACCUMULATOR),
        ),
    )


def _loss(model, activations, wide, features, labels):
    numbers = features["numbers"]
    if model == "dlrm":
        return dlrm.loss_of(activations, numbers, labels)
    return wdl_loss(activations, wide(), numbers, labels)


def stock(folder, model, batch):
    columns = [_of_strings(key) for key in COLUMNS]
    deep = [tf.feature_column.embedding_column(column, DIMENSION) for column in columns]

    def trained(features, labels):
        def wide():
            return tf.compat.v1.feature_column.linear_model(features, columns)

        loss = _loss(model, _read(features, deep), wide, features, labels)
        return loss, train_op_of(loss)

    return on_estimator(folder, batch, trained)


def dense(folder, model, batch):
    def trained(features, labels):
        given = features["numbers"][:, :1]
        activations = [given + tf.compat.v1.get_variable(key, [DIMENSION]) for key in COLUMNS]
        loss = _loss(model, activations, lambda: given, features, labels)
        return loss, train_op_of(loss)

    return on_estimator(folder, batch, trained)


def taking(folder, model, batch):
    """Returns an Estimator with a model that takes its input and computes nothing."""

    def taken(features, labels):
        parts = [part.op for part in tf.nest.flatten((features, labels)) if part is not None]
        with tf.control_dependencies(parts):
            step = tf.compat.v1.train.get_global_step().assign_add(1, read_value=False)
        return tf.zeros([]), step

    return on_estimator(folder, batch, taken)


def part_of(name: str, op: str) -> str | None:
    """Returns the part of the step that a node belongs to, or None for dense layers and tf.data."""
    if op in TO_IDS:
        return "strings to ids"
    if "embedding_input" in name or "check_ids" in name:
        return "conversion"
    return "embedding" if "embedding_" in name else None


def trace(folder, model, batch, input_fn):
    one_thread = tf.compat.v1.ConfigProto(
        intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
    )
    found = Trace(part_of)
    ours(folder, model, batch, one_thread).train(input_fn, [found], steps=TRACED + WARM_UP)
    spent = dict.fromkeys(("strings to ids", "conversion", "embedding"), 0.0)
    for (part, _), micros in found.spent.items():
        if part is not None:
            spent[part] += micros / TRACED / 1e3
    print(json.dumps(spent), flush=True)


PEERS = {
    "ours": ours,
    "memory": functools.partial(ours, categorical=_of_ids),
    "stock": stock,
    "dense": dense,
    "parsing": taking,
    "reading": taking,
    "hooks": taking,
}


def main() -> None:
    tf.compat.v1.logging.set_verbosity("ERROR")
    if sys.argv[1] == "convert":
        write_records(*sys.argv[2:])
        return
    peer, model, form, path, batch = *sys.argv[1:5], int(sys.argv[5])
    files = Files(form, path, batch)
    arrays = files.with_ids(IN_MEMORY) if peer in ("memory", "dense") else None

    def input_fn(params):
        if arrays is not None:
            dataset = tf.data.Dataset.from_tensor_slices(arrays).cache().repeat()
        elif peer == "hooks":
            dataset = tf.data.Dataset.from_tensors(0).repeat()
        else:
            dataset = files.raw() if peer == "reading" else files.parsed()
        return dataset.prefetch(2)

    with tempfile.TemporaryDirectory(prefix="files") as folder:
        if peer == "trace":
            trace(folder, model, batch, input_fn)
            return
        estimator = PEERS[peer](folder, model, batch)
        estimator.train(input_fn, hooks=[ClockHook(batch)], max_steps=10**9)


if __name__ == "__main__":
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    main()
