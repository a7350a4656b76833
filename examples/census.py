"""A wide-and-deep model of the census income data: who earns more than 50,000 dollars a year.

Reads the files adult.data and adult.test, plain or as .gz, of the UCI data set "Adult"
(https://archive.ics.uci.edu/dataset/2/adult, CC BY 4.0):

    python examples/census.py --data_dir adult

The wide part is a table of dimension 1, trained by FTRL. It has a row for each value of each column
and for each cross of values, and a single feature with many ids looks them up. The deep part has a
small table for each column, trained by Adagrad. Numbers go in as buckets and also as numbers.
Tables with different optimizers are described by config dicts instead of feature columns.

With --model_dir, a later run continues from the last checkpoint. For comparison it prints the error
rates that adult.names lists. They were measured without the rows that have missing values, but this
program keeps these rows.
"""

import csv
import gzip
import logging
import os
import pathlib
import sys
import tempfile
import warnings
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from absl import app, flags  # noqa: E402
from absl import logging as absl_logging  # noqa: E402

import estimator_emb as ee  # noqa: E402
from estimator_emb.reporting.progress import ProgressHook  # noqa: E402

_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Directory of adult.data and adult.test, plain or .gz.", required=True
)
_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "Where to save, and to resume from. Left out: a new temporary directory."
)
_TRAIN_STEPS = flags.DEFINE_integer(
    "train_steps", 2500, "Steps to train, counting those of earlier runs.", lower_bound=1
)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 256, "Rows per step.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 1, "Seed of the order of the rows and of the first weights.")
_USE_TPU = flags.DEFINE_bool(
    "use_tpu", False, "Run on a TPU, or as if on one where ESTIMATOR_EMB_DEVICE=emulate is set."
)

COLUMNS = (
    "age workclass fnlwgt education education_num marital_status occupation relationship race sex "
    "capital_gain capital_loss hours_per_week native_country income"
).split()
CATEGORIES = [
    "workclass", "education", "marital_status", "occupation", "relationship", "race", "sex",
    "native_country",
]  # fmt: skip
NUMBERS = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
CROSSES = [
    ("education", "occupation"),
    ("marital_status", "occupation"),
    ("relationship", "education"),
    ("age", "hours_per_week"),
    ("age", "marital_status", "education"),
    ("sex", "occupation", "workclass"),
]
BUCKETS = 24
WIDE_ROWS = 1 << 14
UNKNOWN = 0
DIMENSION = 8
DROPOUT = 0.3
EVAL_BATCH_SIZE = 512
PUBLISHED = "NBTree 14.10%, C4.5 15.54%"


def read(data_dir, name):
    """Returns a file's columns as {name: array of strings}, and the labels: 1 above 50K."""
    plain, packed = pathlib.Path(data_dir, name), pathlib.Path(data_dir, name + ".gz")
    if not plain.exists() and not packed.exists():
        sys.exit(f"Neither {plain} nor {packed} exists; see the top of this program.")
    with open(plain, newline="") if plain.exists() else gzip.open(packed, "rt", newline="") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if len(row) == len(COLUMNS)]
    if not rows:
        sys.exit(f"{file.name} has no rows of {len(COLUMNS)} columns.")
    columns = dict(zip(COLUMNS, np.array(rows, str).T, strict=True))
    # The test file's labels end in a full stop.
    labels = np.char.startswith(columns.pop("income"), ">50K").astype(np.float32)
    return columns, labels


class Preparation:
    """Converts columns of strings to features, by values learned from the training rows.

    Attributes:
      rows: {column: its number of ids} of each column with its own table.
    """

    def __init__(self, columns):
        self._vocabularies = {name: np.unique(columns[name]) for name in CATEGORIES}
        self._boundaries, self._scales = {}, {}
        for name in NUMBERS:
            values = columns[name].astype(np.float32)
            # Most people have no capital gain or loss, so the quantiles leave zeros out.
            some = values[values != 0] if values.any() else values
            quantiles = np.quantile(some, np.linspace(0, 1, BUCKETS), method="nearest")
            self._boundaries[name] = np.unique(quantiles)
            logs = np.log1p(values)
            self._scales[name] = logs.mean(), logs.std()
        self.rows = {name: len(values) + 1 for name, values in self._vocabularies.items()}
        self.rows |= {name: len(values) + 1 for name, values in self._boundaries.items()}

    def features(self, columns):
        ids, dense = {}, []
        for name, vocabulary in self._vocabularies.items():
            place = np.searchsorted(vocabulary, columns[name]).clip(max=len(vocabulary) - 1)
            known = vocabulary[place] == columns[name]
            ids[name] = np.where(known, place + 1, UNKNOWN)
        for name, boundaries in self._boundaries.items():
            values = columns[name].astype(np.float32)
            ids[name] = np.searchsorted(boundaries, values, side="right")
            mean, deviation = self._scales[name]
            dense.append((np.log1p(values) - mean) / max(deviation, 1e-6))
        wide = [_hashed(cross, ids) for cross in [*((name,) for name in ids), *CROSSES]]
        return {
            **{name: values.astype(np.int64) for name, values in ids.items()},
            "wide": np.stack(wide, axis=1).astype(np.int64),
            "numbers": np.stack(dense, axis=1).astype(np.float32),
        }


def _hashed(cross, ids):
    """Returns an id in [0, WIDE_ROWS) for each row, from its values in the columns of `cross`."""
    state = np.full(len(ids[cross[0]]), zlib.crc32(" ".join(cross).encode()), np.uint64)
    for name in cross:
        state = (state ^ ids[name].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(32)
    return state % np.uint64(WIDE_ROWS)


def embedding_config_spec(rows):
    """Returns the tables, the features that look them up, and the optimizers."""
    tables = {
        name: ee.TableConfig(
            vocabulary_size=count,
            dimension=DIMENSION,
            initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.1),
        )
        for name, count in rows.items()
    }
    tables["wide"] = ee.TableConfig(
        vocabulary_size=WIDE_ROWS,
        dimension=1,
        initializer=tf.compat.v1.zeros_initializer(),
        combiner="sum",
        optimization_parameters=ee.FtrlParameters(0.05, l1_regularization_strength=0.02),
    )
    return ee.EmbeddingConfigSpec(
        feature_to_config_dict={name: ee.FeatureConfig(table_id=name) for name in tables},
        table_to_config_dict=tables,
        optimization_parameters=ee.AdagradParameters(0.05),
    )


def model_fn(features, labels, mode, params):
    training = mode == ee.ModeKeys.TRAIN
    net = tf.concat([*(features[name] for name in params["deep"]), features["numbers"]], axis=1)
    for units in (64, 32):
        net = tf.compat.v1.layers.dropout(net, DROPOUT, training=training)
        net = tf.compat.v1.layers.dense(net, units, tf.nn.relu)
    net = tf.compat.v1.layers.dropout(net, DROPOUT, training=training)
    logits = tf.squeeze(tf.compat.v1.layers.dense(net, 1) + features["wide"], axis=1)
    probabilities = tf.nn.sigmoid(logits)

    if mode == ee.ModeKeys.PREDICT:
        outputs = {"probability": probabilities}
        exported = {"serving_default": ee.export.PredictOutput(outputs)}
        return ee.TPUEstimatorSpec(mode, predictions=outputs, export_outputs=exported)

    counts = features["counts"]
    loss = tf.compat.v1.losses.sigmoid_cross_entropy(labels, logits, weights=counts)
    train_op = None
    if training:
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(tf.compat.v1.train.AdamOptimizer(0.001))
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())

    def metrics(labels, probabilities, counts):
        wrong = tf.not_equal(labels > 0.5, probabilities > 0.5)
        return {
            "error": tf.compat.v1.metrics.mean(tf.cast(wrong, tf.float32), counts),
            "auc": tf.compat.v1.metrics.auc(labels > 0.5, probabilities, counts),
        }

    return ee.TPUEstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metrics=(metrics, [labels, probabilities, counts])
    )


def input_fn_of(features, labels, training=False):
    """Returns an input_fn of equal batches: a pass through the rows, or endless for training.

    A TPU takes no smaller last batch, so rows with the feature 'counts' at 0 fill it up.
    """

    def input_fn(params):
        size = params["batch_size"]

        def batches():
            random = np.random.default_rng(_SEED.value)
            while True:
                order = np.arange(len(labels))
                if training:
                    random.shuffle(order)
                for start in range(0, len(order), size):
                    places = np.arange(start, start + size)
                    chosen = order[places % len(order)]
                    batch = {key: values[chosen] for key, values in features.items()}
                    batch["counts"] = (places < len(order)).astype(np.float32)
                    yield batch, labels[chosen]
                if not training:
                    return

        def spec(array):
            return tf.TensorSpec([size, *array.shape[1:]], array.dtype)

        signature = {key: spec(values) for key, values in features.items()}
        signature["counts"] = tf.TensorSpec([size], tf.float32)
        dataset = tf.data.Dataset.from_generator(
            batches, output_signature=(signature, spec(labels))
        )
        return dataset.prefetch(4)

    return input_fn


def make_estimator(model_dir, rows):
    return ee.TPUEstimator(
        model_fn,
        model_dir=model_dir,
        config=ee.RunConfig(tf_random_seed=_SEED.value, keep_checkpoint_max=1),
        params={"deep": sorted(rows)},
        use_tpu=_USE_TPU.value,
        train_batch_size=_BATCH_SIZE.value,
        eval_batch_size=EVAL_BATCH_SIZE,
        predict_batch_size=EVAL_BATCH_SIZE,
        export_to_tpu=False,
        embedding_config_spec=embedding_config_spec(rows),
    )


def train(estimator, features, labels):
    checkpoint = tf.train.latest_checkpoint(estimator.model_dir)
    done = int(tf.train.load_variable(checkpoint, "global_step")) if checkpoint else 0
    total = _TRAIN_STEPS.value
    if done >= total:
        print(f"Nothing left to train: {done:,} steps done, --train_steps is {total:,}.")
        return
    print(f"Training from step {done:,} to {total:,}." if done else f"Training {total:,} steps.")
    progress = ProgressHook(total, _BATCH_SIZE.value, "loss")
    estimator.train(input_fn_of(features, labels, training=True), hooks=[progress], max_steps=total)


def evaluate(estimator, features, labels):
    batches = -(-len(labels) // EVAL_BATCH_SIZE)
    result = estimator.evaluate(input_fn_of(features, labels), steps=batches)
    share = labels.mean()
    print(
        f"Test error on {len(labels):,} rows: {result['error']:.2%}, AUC {result['auc']:.4f} "
        f"(published: {PUBLISHED}; always the more frequent answer: {min(share, 1 - share):.2%})"
    )


def export(estimator, features):
    """Writes a SavedModel that takes prepared features, and returns its path."""
    examples = {key: tf.constant(values[:1]) for key, values in features.items()}
    receiver_fn = ee.export.build_raw_serving_input_receiver_fn(examples)
    path = estimator.export_saved_model(os.path.join(estimator.model_dir, "export"), receiver_fn)
    return path.decode()


def main(argv):
    del argv
    absl_logging.set_verbosity(absl_logging.WARNING)
    log = logging.getLogger("estimator_emb")  # Logs a line about what trains where.
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler(sys.stdout))
    log.propagate = False
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    warnings.filterwarnings("ignore", message="`tf.layers", category=UserWarning)
    tf.keras.utils.set_random_seed(_SEED.value)  # For initial weights and dropout.

    columns, labels = read(_DATA_DIR.value, "adult.data")
    test_columns, test_labels = read(_DATA_DIR.value, "adult.test")
    preparation = Preparation(columns)
    features = preparation.features(columns)
    model_dir = _MODEL_DIR.value or tempfile.mkdtemp(prefix="census_")
    estimator = make_estimator(model_dir, preparation.rows)
    print(f"{len(labels):,} rows to train on, {len(test_labels):,} to test on.")
    print(f"Model directory: {model_dir}")
    train(estimator, features, labels)
    evaluate(estimator, preparation.features(test_columns), test_labels)
    print(f"SavedModel: {export(estimator, features)}")


if __name__ == "__main__":
    app.run(main)
