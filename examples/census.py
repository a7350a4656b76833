# SPDX-License-Identifier: Apache-2.0
"""A wide-and-deep model of the census income data: who earns more than 50,000 dollars a year.

Reads the files adult.data and adult.test, plain or as .gz, of the UCI data set "Adult"
(https://archive.ics.uci.edu/dataset/2/adult, CC BY 4.0):

    python examples/census.py --data_dir adult

The wide part is a table of dimension 1 with a row for each value of each column and for each cross
of values, all in one feature of many ids; FTRL trains it. The deep part has a small table for each
column, numbers included, which go in as buckets and as they are; Adagrad trains those. Tables with
optimizers of their own are described by config dicts in place of feature columns.

With --model_dir, a later run continues where the last one stopped. The error rates printed for
comparison are those that adult.names lists; they were measured without the rows that have missing
values, whereas this program keeps them.
"""

import csv
import gzip
import os
import pathlib
import sys
import tempfile
import warnings
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import estimator_emb as ee  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from absl import app, flags, logging  # noqa: E402
from estimator_emb import export  # noqa: E402
from estimator_emb.progress import ProgressHook  # noqa: E402

_DATA_DIR = flags.DEFINE_string(
    "data_dir", None, "Directory of adult.data and adult.test, plain or .gz.", required=True
)
_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "Where to save, and to resume from. Left out: a new temporary directory."
)
_TRAIN_STEPS = flags.DEFINE_integer(
    "train_steps", 2000, "Steps to train, counting those of earlier runs.", lower_bound=1
)
_BATCH_SIZE = flags.DEFINE_integer("batch_size", 256, "Rows per step.", lower_bound=1)
_SEED = flags.DEFINE_integer("seed", 1, "Seed of the order of the rows and of the first weights.")
_USE_TPU = flags.DEFINE_bool(
    "use_tpu", False, "Run on a TPU, or as if on one where ESTIMATOR_EMB_DEVICE=host is set."
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
E_=os.environ
DIM=int(E_.get('DIM',8)); WLR=float(E_.get('WLR',.05)); DLR=float(E_.get('DLR',.05)); L1=float(E_.get('L1',0)); L2=float(E_.get('L2',0)); DROP=float(E_.get('DROP',.3)); H=int(E_.get('H',64)); ALR=float(E_.get('ALR',.001)); WIDE=int(E_.get('WIDE',1));DEEP=int(E_.get('DEEP',1))


def read(data_dir, name):
    """The columns of one of the files, each an array of strings."""
    plain, packed = pathlib.Path(data_dir, name), pathlib.Path(data_dir, name + ".gz")
    if not plain.exists() and not packed.exists():
        sys.exit(f"Neither {plain} nor {packed} exists; see the top of this program.")
    with open(plain, newline="") if plain.exists() else gzip.open(packed, "rt", newline="") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if len(row) == len(COLUMNS)]
    return dict(zip(COLUMNS, np.array(rows, str).T, strict=True))


class Preparation:
    """Turns columns of strings into features; learns vocabularies and buckets from training rows.

    Attributes:
      rows: of each column with a table of its own, how many ids it has.
    """

    def __init__(self, columns):
        self._vocabularies = {name: np.unique(columns[name]) for name in CATEGORIES}
        self._boundaries, self._scales = {}, {}
        for name in NUMBERS:
            values = columns[name].astype(np.float32)
            # Most people gain and lose no capital: quantiles of those who do.
            some = values[values != 0]
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
    """For each row, an id in [0, WIDE_ROWS) of its values in the columns of `cross`."""
    state = np.full(len(ids[cross[0]]), zlib.crc32(" ".join(cross).encode()), np.uint64)
    for name in cross:
        state = (state ^ ids[name].astype(np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        state ^= state >> np.uint64(32)
    return state % np.uint64(WIDE_ROWS)


def embedding_config_spec(rows):
    """The tables and the features that look them up."""
    tables = {
        name: ee.TableConfig(
            vocabulary_size=count,
            dimension=DIM,
            initializer=tf.compat.v1.truncated_normal_initializer(stddev=0.1),
        )
        for name, count in rows.items()
    }
    from estimator_emb.optimizers.ftrl import FtrlParameters
    features = {name: ee.FeatureConfig(name) for name in rows}
    tables["wide"] = ee.TableConfig(
        vocabulary_size=WIDE_ROWS,
        dimension=1,
        initializer=tf.compat.v1.zeros_initializer(),
        combiner="sum",
        optimization_parameters=FtrlParameters(learning_rate=WLR, l1_regularization_strength=L1, l2_regularization_strength=L2),
    )
    features["wide"] = ee.FeatureConfig("wide")
    if not WIDE: tables.pop('wide'),features.pop('wide')
    return ee.EmbeddingConfigSpec(
        feature_to_config_dict=features,
        table_to_config_dict=tables,
        optimization_parameters=ee.AdagradParameters(DLR),
    )


def model_fn(features, labels, mode, params):
    training = mode == ee.ModeKeys.TRAIN
    net = tf.concat([features[name] for name in params["deep"]] + [features["numbers"]], axis=1)
    net = tf.compat.v1.layers.dropout(net, DROP, training=training)
    for units in (H, H//2):
        net = tf.compat.v1.layers.dense(net, units, tf.nn.relu)
        net = tf.compat.v1.layers.dropout(net, DROP, training=training)
    logits = tf.compat.v1.layers.dense(net, 1)[:, 0] 
    if WIDE: logits+= features["wide"][:, 0]
    probabilities = tf.nn.sigmoid(logits)

    if mode == ee.ModeKeys.PREDICT:
        outputs = {"probability": probabilities}
        exported = {"serving_default": export.PredictOutput(outputs)}
        return ee.TPUEstimatorSpec(mode, predictions=outputs, export_outputs=exported)

    losses = tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses, name="loss")
    train_op = None
    if training:
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(tf.compat.v1.train.AdamOptimizer(ALR))
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())

    def metrics(labels, probabilities):
        wrong = tf.not_equal(labels > 0.5, probabilities > 0.5)
        return {
            "error": tf.compat.v1.metrics.mean(tf.cast(wrong, tf.float32)),
            "auc": tf.compat.v1.metrics.auc(labels > 0.5, probabilities),
        }

    return ee.TPUEstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metrics=(metrics, [labels, probabilities])
    )


def input_fn_of(features, labels, training=False):
    """An input_fn of whole batches: once through the rows, or in training without end."""

    def input_fn(params):
        size = params["batch_size"]

        def batches():
            random = np.random.default_rng(_SEED.value)
            while True:
                order = np.arange(len(labels))
                if training:
                    random.shuffle(order)
                for start in range(0, len(order) - size + 1, size):
                    chosen = order[start : start + size]
                    yield {key: v[chosen] for key, v in features.items()}, labels[chosen]
                if not training:
                    return

        def spec(array):
            return tf.TensorSpec([size, *array.shape[1:]], array.dtype)

        signature = {key: spec(values) for key, values in features.items()}, spec(labels)
        return tf.data.Dataset.from_generator(batches, output_signature=signature).prefetch(4)

    return input_fn


def main(argv):
    del argv
    logging.set_verbosity(logging.WARNING)
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    warnings.filterwarnings("ignore", message="`tf.layers", category=UserWarning)
    columns, test_columns = read(_DATA_DIR.value, "adult.data"), read(_DATA_DIR.value, "adult.test")
    preparation = Preparation(columns)
    lab = lambda c: np.char.startswith(c["income"], ">").astype(np.float32)
    import time
    f, l = preparation.features(columns), lab(columns)
    if E_.get('CV'):
        p = np.random.default_rng(5).permutation(len(l)); a, b = p[:-8000], p[-8000:]
        ft, lt = {k: v[b] for k, v in f.items()}, l[b]; f, l = {k: v[a] for k, v in f.items()}, l[a]
    else:
        ft, lt = preparation.features(test_columns), lab(test_columns)
    print(len(l), len(lt), 1-lt.mean(), preparation.rows)
    d = tempfile.mkdtemp()
    est = ee.TPUEstimator(model_fn, model_dir=d, config=ee.RunConfig(tf_random_seed=_SEED.value), params={"deep": sorted(preparation.rows)}, use_tpu=False, train_batch_size=256, eval_batch_size=500 if E_.get('CV') else 81*3, embedding_config_spec=embedding_config_spec(preparation.rows))
    if not WIDE:
        f.pop('wide'); ft.pop('wide')
    t=time.time()
    for k in range(1, 5):
        est.train(input_fn_of(f, l, True), max_steps=k * _TRAIN_STEPS.value // 4)
        r=est.evaluate(input_fn_of(ft, lt), steps=len(lt) // est._ctx._eval_batch_size)
        print(k * _TRAIN_STEPS.value // 4,time.time()-t, r)


if __name__ == "__main__":
    app.run(main)
