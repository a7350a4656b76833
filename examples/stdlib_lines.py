"""Learns which package of Python's standard library a line of source comes from.

Nothing is downloaded. The data is the library of the Python that runs this: its 13 largest packages
without their tests, up to 12,000 lines each. From the root of a checkout:

    python examples/stdlib_lines.py
    python examples/stdlib_lines.py --predict "        self._loop.call_soon(self._wakeup)"

About a quarter of each package is held out, in whole files that training never reads. Every 500
steps, the line "evaluation at step ..." has the loss and the accuracy on these files. The lines
"step ..." have the loss on training batches. It falls below the held-out loss, because the model
learns the training files by heart: it overfits. The held-out loss is lowest near step 1,200, so the
default of 2,000 steps ends soon after. More steps raise that loss, while the accuracy hardly grows.

The tokens of a line and of the line before it are hashed, and looked up in one table with weights.
The first tokens of the line are also looked up in order, in a second table. Feature columns
describe both tables, and the estimator trains them by Adagrad. The exported SavedModel takes lines
of text.

With --model_dir, a later run continues where the last one stopped. If nothing is left to train, it
answers --predict at once.
"""

import collections
import logging
import os
import pathlib
import sys
import sysconfig
import tempfile
import warnings
import zlib

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from absl import app, flags  # noqa: E402
from absl import logging as absl_logging  # noqa: E402

import estimator_emb as ee  # noqa: E402
import feature_columns as fc  # noqa: E402
from estimator_emb.reporting.progress import ProgressHook  # noqa: E402

_MODEL_DIR = flags.DEFINE_string(
    "model_dir", None, "Where to save, and to resume from. Left out: a new temporary directory."
)
_TRAIN_STEPS = flags.DEFINE_integer(
    "train_steps", 2000, "Steps to train, counting those of earlier runs.", lower_bound=1
)
_BATCH_SIZE = flags.DEFINE_integer(
    "batch_size", 256, "Lines per step.", lower_bound=1, upper_bound=4096
)
_EVAL_STEPS = flags.DEFINE_integer(
    "eval_steps", None, "Batches of 512 held-out lines to evaluate. Left out: all.", lower_bound=1
)
_PREDICT = flags.DEFINE_string("predict", None, "A line of source to name the package of.")
_PREVIOUS = flags.DEFINE_string("previous", "", "The line before the one given by --predict.")
_USE_TPU = flags.DEFINE_bool(
    "use_tpu", False, "Run on a TPU, or as if on one where ESTIMATOR_EMB_DEVICE=emulate is set."
)

PACKAGES = 13
LINES_PER_PACKAGE = 12_000
HELD_OUT_SHARE = 0.25
LEFT_OUT = {"test", "tests", "idle_test", "pydoc_data", "site-packages", "dist-packages"}
EVAL_BATCH_SIZE = 512
STEPS_BETWEEN_EVALUATIONS = 500

TOKEN_ROWS, TOKEN_DIMENSION = 1 << 17, 32
FIRST_ROWS, FIRST_DIMENSION = 1 << 14, 16
FIRST_TOKENS = 8
PUNCTUATION_WEIGHT = 0.5
DROPOUT = 0.5

Lines = collections.namedtuple("Lines", ["line", "previous", "package"])
"""Lines of source, the lines before them, and the numbers of their packages: three arrays."""


def read_library():
    """Returns names of packages, lines for training, and lines of held-out files."""
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    texts = {
        package.name: _texts(package)
        for package in library.iterdir()
        if package.name not in LEFT_OUT and package.name[0] != "_"
        if (package / "__init__.py").exists()
    }
    # Smaller packages have no file to hold out.
    names = [name for name in texts if len(texts[name]) >= 3]
    names = sorted(names, key=lambda name: (-sum(map(len, texts[name])), name))[:PACKAGES]
    if len(names) < 2:
        sys.exit(f"The library of this Python, {library}, has no source files to learn from.")
    names.sort()
    train, held_out = [], []
    for number, name in enumerate(names):
        taken = list(_up_to(LINES_PER_PACKAGE, texts[name]))
        share = HELD_OUT_SHARE * sum(map(len, taken))
        set_aside = {id(lines) for lines in _up_to(share, taken)}
        for lines in taken:
            rows = held_out if id(lines) in set_aside else train
            rows += zip(lines, ["", *lines[:-1]], [number] * len(lines), strict=True)
    return names, _shuffled(train), _shuffled(held_out)


def _texts(package):
    """Returns the non-blank lines of each source file, with the files in pseudorandom order."""
    names = {
        file.relative_to(package.parent).as_posix(): file
        for file in package.rglob("*.py")
        if not LEFT_OUT.intersection(file.relative_to(package).parts)
    }
    texts = [
        [
            line
            for line in names[name].read_text(encoding="utf-8", errors="replace").splitlines()
            if line.strip()
        ]
        for name in sorted(names, key=lambda name: zlib.crc32(name.encode()))
    ]
    return [lines for lines in texts if lines]


def _up_to(limit, texts):
    """Yields the texts that together fit into `limit` lines, in order."""
    for lines in texts:
        if len(lines) <= limit:
            limit -= len(lines)
            yield lines


def _shuffled(rows):
    order = np.random.default_rng(0).permutation(len(rows))
    dtypes = (object, object, np.int32)
    columns = zip(*rows, strict=True)
    return Lines(*(np.array(column, t)[order] for column, t in zip(columns, dtypes, strict=True)))


def features_of(line, previous):
    """Returns the features of lines of text, for both training and the SavedModel.

    Args:
      line: string [batch], the lines.
      previous: string [batch], the line before each.
    """
    tokens = _tokens(line)
    ids, weights = _weighted_ids(line, tokens)
    previous_ids, previous_weights = _weighted_ids(previous, _tokens(previous))
    first = tf.ragged.map_flat_values(
        tf.strings.to_hash_bucket_fast, tokens[:, :FIRST_TOKENS], FIRST_ROWS
    )
    length = tf.strings.length(line)
    indentation = length - tf.strings.length(tf.strings.regex_replace(line, r"^\s+", ""))
    return {
        "tokens": ids.to_sparse(),
        "tokens_weight": weights.to_sparse(),
        "previous": previous_ids.to_sparse(),
        "previous_weight": previous_weights.to_sparse(),
        "first": first.to_sparse(),
        "layout": tf.math.log1p(tf.cast(tf.stack([indentation, length], axis=1), tf.float32)),
    }


def _tokens(line):
    """Returns words and single punctuation marks, as ragged strings [batch, n]."""
    return tf.strings.split(tf.strings.regex_replace(line, r"(\w+|[^\w\s])", r" \1 "))


def _weighted_ids(line, tokens):
    """Returns ids and weights of tokens and of word parts, such as call and soon in `callSoon`."""
    spread = tf.strings.regex_replace(line, r"([a-z0-9])([A-Z])", r"\1 \2")
    parts = tf.strings.split(tf.strings.lower(tf.strings.regex_replace(spread, r"[\W_]+", " ")))
    strings = tf.concat([tokens, parts], axis=1)
    ids = tf.ragged.map_flat_values(tf.strings.to_hash_bucket_fast, strings, TOKEN_ROWS)
    is_punctuation = tf.strings.regex_full_match(strings.flat_values, r"\W")
    weights = tf.where(is_punctuation, PUNCTUATION_WEIGHT, 1.0)
    return ids, strings.with_flat_values(weights)


def embedding_columns():
    """Returns columns for the line's tokens, the previous line's tokens, and the first tokens."""
    initializer = tf.compat.v1.truncated_normal_initializer(stddev=0.1)
    tokens, previous = (
        fc.weighted_categorical_column(
            fc.categorical_column_with_identity(key, TOKEN_ROWS), key + "_weight"
        )
        for key in ("tokens", "previous")
    )
    first = fc.sequence_categorical_column_with_identity("first", FIRST_ROWS)
    return [
        *fc.shared_embedding_columns(
            [tokens, previous], TOKEN_DIMENSION, combiner="sqrtn", initializer=initializer
        ),
        fc.embedding_column(
            first, FIRST_DIMENSION, max_sequence_length=FIRST_TOKENS, initializer=initializer
        ),
    ]


def model_fn(features, labels, mode, params):
    tokens, previous, first = params["columns"]
    training = mode == ee.ModeKeys.TRAIN
    in_order, _ = fc.SequenceFeatures([first])(features)
    net = tf.concat(
        [
            fc.DenseFeatures([tokens, previous])(features),
            tf.reshape(in_order, [-1, FIRST_TOKENS * FIRST_DIMENSION]),
            features["layout"],
        ],
        axis=1,
    )
    net = tf.compat.v1.layers.dropout(net, DROPOUT, training=training)
    net = tf.compat.v1.layers.dense(net, 128, tf.nn.relu)
    net = tf.compat.v1.layers.dropout(net, DROPOUT, training=training)
    logits = tf.compat.v1.layers.dense(net, len(params["packages"]))

    if mode == ee.ModeKeys.PREDICT:
        outputs = {"probabilities": tf.nn.softmax(logits)}
        if params["use_tpu"]:  # A TPU has no strings.
            return ee.TPUEstimatorSpec(mode, predictions=outputs)
        named = {**outputs, "package": tf.gather(params["packages"], tf.argmax(logits, axis=1))}
        exported = {"serving_default": ee.export.PredictOutput(named)}
        return ee.TPUEstimatorSpec(mode, predictions=outputs, export_outputs=exported)

    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=logits)
    loss = tf.reduce_mean(losses)
    train_op = None
    if training:
        optimizer = tf.compat.v1.tpu.CrossShardOptimizer(tf.compat.v1.train.AdamOptimizer(0.001))
        train_op = optimizer.minimize(loss, tf.compat.v1.train.get_global_step())

    def metrics(labels, logits):
        return {"accuracy": tf.compat.v1.metrics.accuracy(labels, tf.argmax(logits, axis=1))}

    return ee.TPUEstimatorSpec(
        mode, loss=loss, train_op=train_op, eval_metrics=(metrics, [labels, logits])
    )


def input_fn_of(lines, training=False, seed=0):
    """Returns an input_fn of whole batches: a single pass through `lines`, or endless for training.

    `seed` chooses the order of the lines in training.
    """

    def input_fn(params):
        size = params["batch_size"]

        def batches():
            random = np.random.default_rng(seed)
            while True:
                order = np.arange(len(lines.line))
                if training:
                    random.shuffle(order)
                for start in range(0, len(order) - size + 1, size):
                    chosen = order[start : start + size]
                    yield tuple(column[chosen] for column in lines)
                if not training:
                    return

        signature = tuple(tf.TensorSpec([size], t) for t in (tf.string, tf.string, tf.int32))
        dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
        return dataset.map(
            lambda line, previous, package: (features_of(line, previous), package),
            num_parallel_calls=2,
        ).prefetch(4)

    return input_fn


def serving_input_receiver_fn():
    texts = {
        name: tf.compat.v1.placeholder(tf.string, [None], name) for name in ("line", "previous")
    }
    return ee.export.ServingInputReceiver(features_of(**texts), texts)


def steps_trained(model_dir):
    checkpoint = tf.train.latest_checkpoint(model_dir)
    return int(tf.train.load_variable(checkpoint, "global_step")) if checkpoint else 0


def check_packages(model_dir, names):
    """Exits if the model was trained on other packages. Otherwise saves the names of packages."""
    path = pathlib.Path(model_dir, "packages.txt")
    if path.exists() and path.read_text().split() != names:
        sys.exit(f"{path} lists other packages than this Python's; use another --model_dir.")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(names) + "\n")


def train(estimator, lines, held_out):
    """Trains, with an evaluation on held-out lines every 500 steps and at the end."""
    done, total = steps_trained(estimator.model_dir), _TRAIN_STEPS.value
    if done >= total:
        print(f"Nothing left to train: {done:,} steps done, --train_steps is {total:,}.")
        report(evaluate(estimator, held_out), held_out)
        return
    print(f"Training from step {done:,} to {total:,}." if done else f"Training {total:,} steps.")
    while done < total:
        end = min(done + STEPS_BETWEEN_EVALUATIONS, total)
        progress = ProgressHook(end, _BATCH_SIZE.value, "loss")
        batches = input_fn_of(lines, training=True, seed=done)
        estimator.train(batches, hooks=[progress], max_steps=end)
        accuracy, done = evaluate(estimator, held_out), end
    report(accuracy, held_out)


def batches_to_evaluate(lines):
    batches = len(lines.package) // EVAL_BATCH_SIZE
    return min(batches, _EVAL_STEPS.value or batches)


def evaluate(estimator, lines):
    return estimator.evaluate(input_fn_of(lines), steps=batches_to_evaluate(lines))["accuracy"]


def report(accuracy, lines):
    packages = lines.package[: batches_to_evaluate(lines) * EVAL_BATCH_SIZE]
    majority = np.bincount(packages).max() / len(packages)
    print(
        f"Accuracy on {len(packages):,} lines of held-out files: {accuracy:.1%} "
        f"(always the most frequent package: {majority:.1%})"
    )


def predict(estimator, names, line, previous):
    lines = Lines(np.array([line], object), np.array([previous], object), np.zeros(1, np.int32))
    probabilities = next(estimator.predict(input_fn_of(lines)))["probabilities"]
    best = np.argsort(-probabilities)[:3]
    print(", ".join(f"{names[i]} {probabilities[i]:.1%}" for i in best))


def main(argv):
    del argv
    absl_logging.set_verbosity(absl_logging.WARNING)
    log = logging.getLogger("estimator_emb")  # Logs a line about what trains where.
    log.setLevel(logging.INFO)
    log.addHandler(logging.StreamHandler(sys.stdout))
    log.propagate = False
    tf.compat.v1.logging.set_verbosity(tf.compat.v1.logging.ERROR)
    warnings.filterwarnings("ignore", message="`tf.layers", category=UserWarning)
    tf.keras.utils.set_random_seed(1)  # For initial weights and dropout.

    names, train_lines, held_out = read_library()
    model_dir = _MODEL_DIR.value or tempfile.mkdtemp(prefix="stdlib_lines_")
    check_packages(model_dir, names)
    columns = embedding_columns()
    estimator = ee.TPUEstimator(
        model_fn,
        model_dir=model_dir,
        config=ee.RunConfig(tf_random_seed=1, keep_checkpoint_max=1),
        params={"columns": columns, "packages": names},
        use_tpu=_USE_TPU.value,
        train_batch_size=_BATCH_SIZE.value,
        eval_batch_size=EVAL_BATCH_SIZE,
        predict_batch_size=1,
        export_to_tpu=False,
        embedding_config_spec=ee.EmbeddingConfigSpec(
            feature_columns=columns,
            optimization_parameters=ee.AdagradParameters(0.1, initial_accumulator=0.01),
        ),
    )

    if _PREDICT.value is None or steps_trained(model_dir) < _TRAIN_STEPS.value:
        print(f"{len(train_lines.line):,} lines of {len(names)} packages: {', '.join(names)}")
        print(f"Model directory: {model_dir}")
        train(estimator, train_lines, held_out)
        target = os.path.join(model_dir, "export")
        exported = estimator.export_saved_model(target, serving_input_receiver_fn)
        print(f"SavedModel: {exported.decode()}")
    if _PREDICT.value is not None:
        predict(estimator, names, _PREDICT.value, _PREVIOUS.value)


if __name__ == "__main__":
    app.run(main)
