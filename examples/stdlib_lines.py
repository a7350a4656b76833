# SPDX-License-Identifier: Apache-2.0
"""Learns which package of Python's standard library a line of source comes from.

Nothing to download: the data is the library of the Python that runs this, 13 packages of it, up to
12,000 lines each. A quarter of each package's files is held out, so that the accuracy printed at
the end is on files that training has not seen.

    python examples/stdlib_lines.py
    python examples/stdlib_lines.py --predict="    self._loop.call_soon(self._wakeup)"

The tokens of a line, and those of the line before it, are hashed and looked up in one shared table
with a weight each; the first tokens are also looked up in order, in a table of their own. Both
tables are described by feature columns, trained by Adagrad inside the estimator, and end up in the
SavedModel, which takes lines of text.

With --model_dir, a second run continues the first one, or answers --predict at once.
"""

import collections
import os
import pathlib
import sysconfig
import tempfile
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import estimator_emb as ee  # noqa: E402
import feature_columns as fc  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from absl import app, flags  # noqa: E402
from estimator_emb.progress import ProgressHook  # noqa: E402

MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "Where checkpoints go, and where a run resumes; a temporary directory if "
    "left out."
)
TRAIN_STEPS = flags.DEFINE_integer("train_steps", 1500, "Steps to train in total.", 1)
BATCH_SIZE = flags.DEFINE_integer("batch_size", 256, "Lines per step.", 1)
EVAL_STEPS = flags.DEFINE_integer("eval_steps", None, "Batches to evaluate; all if left out.", 1)
PREDICT = flags.DEFINE_string("predict", None, "A line of source to classify.")
PREVIOUS = flags.DEFINE_string("previous", "", "The line before the one of --predict.")
USE_TPU = flags.DEFINE_bool(
    "use_tpu", False, "Run on a TPU, or with ESTIMATOR_EMB_DEVICE=host as if on one."
)

PACKAGES = 13
LINES_PER_PACKAGE = 12_000
HELD_OUT = 0.25
NOT_FOR_TRAINING = {"test", "tests", "idle_test", "pydoc_data", "site-packages", "dist-packages"}

TOKEN_ROWS = 1 << 17
FIRST_ROWS = 1 << 14
FIRST_TOKENS = 8
E=dict(os.environ)
DIM=int(E.get('DIM',32)); LR=float(E.get('LR',.1)); DROP=float(E.get('DROP',.3)); W=E.get('W','none'); PARTS=int(E.get('PARTS',1)); BI=int(E.get('BI',1)); HID=int(E.get('HID',128)); CH=int(E.get('CH',0)); STD=float(E.get('STD',0.1)); DLR=float(E.get('DLR',0.001)); ACC=float(E.get('ACC',0.1))

Lines = collections.namedtuple("Lines", ["line", "previous", "package"])


def source_files(package):
    """The package's source files without its tests, in an order that says nothing about them."""
    files = [
        file
        for file in package.rglob("*.py")
        if not NOT_FOR_TRAINING.intersection(file.relative_to(package.parent).parts)
    ]
    return sorted(files, key=lambda f: zlib.crc32(f.relative_to(package.parent).as_posix().encode()))


def read_library():
    """Names of the packages, training lines and held-out lines."""
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    sizes = {}
    for package in sorted(library.iterdir()):
        if (package / "__init__.py").exists() and package.name[0] != "_" and package.name not in NOT_FOR_TRAINING:
            texts = []
            for file in source_files(package):
                lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
                lines = [line for line in lines if line.strip()]
                if lines:
                    texts.append(lines)
            if len(texts) >= 3:
                sizes[package.name] = texts
    names = sorted(sizes, key=lambda name: -sum(map(len, sizes[name])))[:PACKAGES]
    train, held_out = [], []
    for number, name in enumerate(sorted(names)):
        kept = []
        room = LINES_PER_PACKAGE
        for lines in sizes[name]:
            if len(lines) <= room:
                kept.append(lines)
                room -= len(lines)
        room = HELD_OUT * (LINES_PER_PACKAGE - room)
        for lines in kept:
            rows = list(zip(lines, ["", *lines], [number] * len(lines)))
            if len(lines) <= room:
                held_out += rows
                room -= len(lines)
            else:
                train += rows
    return sorted(names), *(
        Lines(np.array([r[0] for r in rows], object), np.array([r[1] for r in rows], object), np.array([r[2] for r in rows], np.int32))
        for rows in (train, held_out)
    )


def ids_of(lines, parts=True):
    lines=tf.strings.substr(lines,0,200)
    tokens = tf.strings.split(tf.strings.regex_replace(lines, r"(\w+|[^\w\s])", r" \1 "))
    more=[tokens]
    if PARTS:
        split = tf.strings.regex_replace(lines, r"([a-z0-9])([A-Z])", r"\1 \2")
        split = tf.strings.lower(tf.strings.regex_replace(split, r"[\W_]+", " "))
        more.append(tf.strings.split(split))
    if BI:
        more.append(tf.strings.ngrams(tokens, 2))
    many = tf.concat(more, axis=1)
    ids = tf.ragged.map_flat_values(tf.strings.to_hash_bucket_fast, many, TOKEN_ROWS)
    first = tf.ragged.map_flat_values(tf.strings.to_hash_bucket_fast, tokens[:, :FIRST_TOKENS], FIRST_ROWS)
    return ids, first


def weights_of(ids):
    n = tf.cast(tf.maximum(ids.row_lengths(), 1), tf.float32)
    if W=='idf':
        w=tf.gather(tf.constant(IDF),ids.flat_values)
        out=ids.with_flat_values(w)
        s=tf.sqrt(tf.reduce_sum(out**2,axis=1)+1e-6)
        return ids.with_flat_values(w/tf.gather(s,ids.value_rowids()))
    return ids.with_flat_values(tf.gather(tf.math.rsqrt(n), ids.value_rowids()))


def featurize(line, previous):
    ids, first = ids_of(line)
    before, _ = ids_of(previous)
    stripped = tf.strings.regex_replace(line, r"^\s+", "")
    length = tf.strings.length(line)
    indent = length - tf.strings.length(stripped)
    shape = tf.cast(tf.stack([indent, length], 1), tf.float32)
    return {
        "tokens": ids.to_sparse(), "tokens_weight": weights_of(ids).to_sparse(),
        "previous": before.to_sparse(), "previous_weight": weights_of(before).to_sparse(),
        "first": first.to_sparse(),
        "shape": shape,
    }


def columns():
    t = fc.weighted_categorical_column(fc.categorical_column_with_identity("tokens", TOKEN_ROWS), "tokens_weight")
    p = fc.weighted_categorical_column(fc.categorical_column_with_identity("previous", TOKEN_ROWS), "previous_weight")
    f = fc.sequence_categorical_column_with_identity("first", FIRST_ROWS)
    init=tf.compat.v1.truncated_normal_initializer(stddev=STD)
    return [*fc.shared_embedding_columns([t, p], DIM, combiner="sum",initializer=init), fc.embedding_column(f, 16, max_sequence_length=FIRST_TOKENS,initializer=init)]


def model_fn(features, labels, mode, params):
    t, p, f = params["columns"]
    training = mode == ee.ModeKeys.TRAIN
    seq, _ = fc.SequenceFeatures([f])(features)
    x = fc.DenseFeatures([t, p])(features)
    x = tf.concat([x, tf.reshape(seq, [-1, FIRST_TOKENS * 16]), tf.math.log1p(features["shape"])], 1)
    x = tf.compat.v1.layers.dropout(x, DROP, training=training)
    x = tf.compat.v1.layers.dense(x, HID, tf.nn.relu)
    x = tf.compat.v1.layers.dropout(x, DROP, training=training)
    logits = tf.compat.v1.layers.dense(x, len(params["packages"]))
    if mode == ee.ModeKeys.PREDICT:
        pred = {"probabilities": tf.nn.softmax(logits)}
        return ee.TPUEstimatorSpec(mode, predictions=pred)
    loss = tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits))
    loss = tf.identity(loss, "loss")
    train_op = None
    if training:
        opt = tf.compat.v1.tpu.CrossShardOptimizer(tf.compat.v1.train.AdamOptimizer(DLR))
        train_op = opt.minimize(loss, tf.compat.v1.train.get_global_step())
    return ee.TPUEstimatorSpec(mode, loss=loss, train_op=train_op, eval_metrics=(
        lambda labels, logits: {"accuracy": tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, 1))}, [labels, logits]))


def input_fn_of(lines, repeat):
    def input_fn(params):
        n = params["batch_size"]
        def batches():
            rng = np.random.default_rng(0)
            while True:
                order = rng.permutation(len(lines.line)) if repeat else np.arange(len(lines.line))
                for s in range(0, len(order) - n + 1, n):
                    c = order[s : s + n]
                    yield lines.line[c], lines.previous[c], lines.package[c]
                if not repeat:
                    return
        sig = (tf.TensorSpec([n], tf.string), tf.TensorSpec([n], tf.string), tf.TensorSpec([n], tf.int32))
        ds = tf.data.Dataset.from_generator(batches, output_signature=sig)
        return ds.map(lambda l, p, k: (featurize(l, p), k), num_parallel_calls=2).prefetch(4)
    return input_fn


def main(argv):
    global IDF
    import time
    tf.compat.v1.logging.set_verbosity("ERROR")
    t0 = time.time()
    names, train, held = read_library()
    print(names, len(train.line), len(held.line), np.bincount(held.package).max() / len(held.line), time.time() - t0)
    if W=='idf':
        with tf.Graph().as_default(), tf.compat.v1.Session() as s:
            i,_=ids_of(tf.constant(train.line)); r=s.run(i)
        u=np.unique(np.repeat(np.arange(len(train.line)),np.diff(r.row_splits))*TOKEN_ROWS+r.values)
        df=np.bincount(u%TOKEN_ROWS,minlength=TOKEN_ROWS)
        IDF=np.log(len(train.line)/(1+df)).astype('float32')
    t0 = time.time()
    n=0
    cols = columns()
    d = tempfile.mkdtemp()
    est = ee.TPUEstimator(model_fn, model_dir=d, config=ee.RunConfig(tf_random_seed=1), params={"columns": cols, "packages": names}, use_tpu=False, train_batch_size=BATCH_SIZE.value, eval_batch_size=512,
        embedding_config_spec=ee.EmbeddingConfigSpec(feature_columns=cols, optimization_parameters=ee.AdagradParameters(LR,ACC)))
    k=TRAIN_STEPS.value
    for part in (k//2,k):
        est.train(input_fn_of(train, True), hooks=[ProgressHook(part, BATCH_SIZE.value, "loss")], max_steps=part)
        print('train time', time.time() - t0)
        print(est.evaluate(input_fn_of(held, False), steps=len(held.line) // 512),time.time() - t0)
if __name__ == "__main__":
    app.run(main)
