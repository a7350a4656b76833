"""Generates random programs with embedding tables, as Python source, one for each seed.

A program builds columns, a batch, a model_fn and a TPUEstimator, trains, and records its results.
`side.py` makes it run on both sides.
"""

import collections
import dataclasses
import math
import random
import sys

NUMBERS = [30, 7, 2, 0, 41, 5, 11, 3, 60]
WORDS = ["ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis"]

NEUTRAL = ("SGD", "Adagrad", "Adam")
"""Optimizers that treat a row with gradient 0 like a row that is not in the batch."""

BATCH_SIZE = 4

_RATE = "{rate}"
_NESTEROV = "{rate}, 0.8, use_nesterov={nesterov}"
_STARTING = "{rate}, initial_accumulator_value={start}"
_L1_AND_L2 = "l1_regularization_strength={l1}, l2_regularization_strength={l2}"
_STRENGTHS = {"l1": (0.0, 0.01), "l2": (0.0, 0.02)}
_FTRL = f"{{rate}}, learning_rate_power={{power}}, {_L1_AND_L2}, beta={{beta}}"
_FTRL += ", initial_accumulator_value={start}"
_ADAM = "{rate}, beta1=0.8, beta2=0.9, epsilon=1e-3"
_TENFOLD = "{tenfold}, rho=0.8, epsilon=1e-2"
OPTIMIZERS = {
    "SGD": (_RATE, _RATE, {}),
    "Adagrad": ("{rate}, initial_accumulator={start}", _STARTING, {"start": (0.1, 0.5)}),
    "Momentum": (_NESTEROV, _NESTEROV, {"nesterov": (True, False)}),
    "Adam": (f"{_ADAM}, lazy_adam=False, sum_inside_sqrt=False", _ADAM, {}),
    "Ftrl": (
        _FTRL,
        _FTRL,
        {"power": (-0.5, -0.4), **_STRENGTHS, "beta": (0.0, 0.3), "start": (0.1, 0.3)},
    ),
    "RMSProp": (
        "{rate}, rho=0.8, momentum={momentum}, epsilon=1e-3, initial_ms=1.0",
        "{rate}, decay=0.8, momentum={momentum}, epsilon=1e-3",
        {"momentum": (0.0, 0.5)},
    ),
    "ProximalAdagrad": (
        f"{{rate}}, initial_accumulator=0.2, {_L1_AND_L2}",
        f"{{rate}}, initial_accumulator_value=0.2, {_L1_AND_L2}",
        _STRENGTHS,
    ),
    "Adadelta": (_TENFOLD, _TENFOLD, {}),
}
"""Optimizer -> (its arguments, arguments of tf.compat.v1.train's optimizer, values to draw)."""

FORMS = {
    "vector": ("tf.constant", "tf.io.FixedLenFeature([], {})"),
    "matrix": ("tf.constant", "tf.io.FixedLenFeature([3], {})"),
    "sparse": ("side.sparse", "tf.io.VarLenFeature({})"),
    "ragged": ("side.ragged", "side.ragged_feature({})"),
    "sequence": ("side.sparse", "tf.io.VarLenFeature({})"),
}
"""Form of a feature -> (function that makes its tensor, function that parses it)."""

Optimizer = collections.namedtuple("Optimizer", "name parameters twin learning_rate")
"""Source of the spec's optimizer, of its tf.compat.v1.train twin, and of the columns' rate."""

DENSE_WAYS = (
    *("one_layer", "one_for_each", "called_twice", "in_name_scope", "named", "in_variable_scope"),
    *("made_outside_of_the_scope", "sequential", "subclassed", "module", "template"),
    *("each_in_one_variable_scope", "in_default_variable_scope", "each_in_name_scope"),
)
"""Ways of `spellings` to make layers of any columns."""
INPUT_LAYERS = ("one_input_layer", "one_input_layer_for_each", "input_layer_in_scopes")
"""Ways of `spellings` to make layers of columns without shared tables."""
OWN_WAYS = {
    "a column without a list": [
        "for column in columns.values():",
        "    parts.append({layer}(column)(features))",
    ],
    "functional": [
        "inputs = {{",
        "    key: tf.keras.Input(value.shape[1:], dtype=value.dtype, name=key,",
        "        sparse=isinstance(value, tf.SparseTensor),",
        "        ragged=isinstance(value, tf.RaggedTensor))",
        "    for key, value in features.items()",
        "}}",
        "inner = {layer}(list(columns.values()))(inputs)",
        "outputs = tf.keras.layers.Dense(2, kernel_initializer=side.rows(1.3))(inner)",
        "parts.append(tf.keras.Model(inputs, outputs)(features))",
    ],
}
"""Other way -> lines of source."""


@dataclasses.dataclass(frozen=True)
class Feature:
    """A categorical feature of a program."""

    key: str
    kind: str
    dtype: str
    form: str
    values: list  # For each sample, a list of ids or words. For a vector, a single id or word.
    weights: list | None
    column: str  # Source.

    @property
    def sequence(self):
        return self.form == "sequence"

    @property
    def name(self):
        return f"{self.key}_weighted_by_{self.key}_weights" if self.weights else self.key


@dataclasses.dataclass(frozen=True)
class Table:
    """A table of a program."""

    features: list
    shared: bool
    columns: list  # Lines of source that make its columns, `<key>_column`.

    @property
    def sequence(self):
        return self.features[0].sequence


class Program:
    """A program as Python source, with the facts that the comparison needs.

    Attributes:
      source: of the program.
      optimizer: of its tables.
      empty_tables: {name: row 0} of the tables that a sample without ids looks up. No id names
        their row 0.
      rules: differences from stock that the program shows, see `comparison.py`.
      native: whether it runs with native kernels.
      options: possible draws, each with the line of this file that draws it.
      drawn: actual draws, in the same form.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rules = set()
        self.options = set()
        self.drawn = set()
        self.empty_tables = {}
        self.without = []
        self.samples = BATCH_SIZE * self.choice(1, 2, 2, 3)
        self.optimizer = self._optimizer()
        self.neutral = self.optimizer.name in NEUTRAL
        self.where = self.choice("off_tpu", "off_tpu", "emulated")
        self.tables = self._tables()
        if any(one.dtype == "string" for table in self.tables for one in table.features):
            self.where = "off_tpu"  # Neither a TPU nor an emulated TPU accepts strings.
        if self.optimizer.name in ("Adam", "RMSProp", "Adadelta"):
            self.rules.add("slot names")
        if self.optimizer.name == "Adam":
            self.rules.add("no beta powers")
        lines = [
            f"# Program {seed}",
            "import tensorflow as tf",
            "",
            "import side",
            "import spellings",
            "",
            "fc = tf.feature_column",
            "tpu = tf.compat.v1.tpu.experimental",
            "",
            *self._columns(),
            "",
            *self._input(),
            "",
            *self._model_fn(),
            "",
            *self._estimator(),
            "",
            *self._calls(),
        ]
        self.source = "\n".join(lines) + "\n"
        self.native = self.chance(0.5)

    def choice(self, *options):
        return self._drawn(options, self.random.choice(options))

    def chance(self, probability):
        return self._drawn((True, False), self.random.random() < probability)

    def _drawn(self, options, one):
        line = sys._getframe(2).f_lineno
        self.options |= {(line, option) for option in options}
        self.drawn.add((line, one))
        return one

    def number(self, low, high):
        return round(self.random.uniform(low, high), 3)

    def _optimizer(self):
        rate = self.choice(0.05, 0.1, 0.3)
        # Adagrad is drawn twice as often, because it is the most common.
        name = self.choice(*[*OPTIMIZERS][:2], *[*OPTIMIZERS][1:])
        given, given_twin, drawn = OPTIMIZERS[name]
        names = {"SGD": ("StochasticGradientDescent", "GradientDescent")}
        ours, theirs = names.get(name, (name, name))
        values = {one: self.choice(*options) for one, options in drawn.items()}
        values |= {"rate": rate, "tenfold": rate * 10}
        # TensorFlow's Adam corrects the bias. A TPU leaves this to the learning rate.
        corrected = f"{rate} * tf.sqrt(1 - 0.9 ** step) / (1 - 0.8 ** step)"
        return Optimizer(
            name,
            f'"{ours}Parameters", {given.format(**values)}',
            f"tf.compat.v1.train.{theirs}Optimizer({given_twin.format(**values)})",
            corrected if name == "Adam" else "",
        )

    def _dense_optimizer(self):
        return "tf.compat.v1.train." + self.choice(
            "GradientDescentOptimizer(0.1)",
            "AdagradOptimizer(0.2)",
            "AdamOptimizer(0.05)",
            "MomentumOptimizer(0.1, 0.9)",
            "RMSPropOptimizer(0.02)",
            "FtrlOptimizer(0.1)",
        )

    def _tables(self):
        # Tables with equal shapes could be confused with each other.
        size, dimension = self.choice(5, 6, 7), self.choice(2, 3)
        keys = iter("abcdefgh")
        rules = set(self.rules)
        sequences = self.choice(0, 0, 0, 1, 1, 2)
        tables = [
            self._table(keys, size, dimension, False)
            for _ in range(self.choice(1, 2, 2, 3) - (1 if sequences else 0))
        ]
        if sequences and self.chance(0.3):
            tables, self.without, self.empty_tables = [], [], {}
            self.rules = rules
        # Sequences in the same layer have equal lengths.
        self.lengths = [self.random.randint(0, 4) for _ in range(self.samples - 1)]
        self.lengths.append(self.random.randint(2, 4))
        longest = max(self.lengths)
        self.max_sequence_length = longest + self.choice(0, 1, -1)
        if sequences and self.max_sequence_length < longest:
            self.rules.add("sequences are cut")
        if sequences and self.max_sequence_length > longest:
            self.rules.add("the time axis")
        tables += [self._table(keys, size, dimension, True) for _ in range(sequences)]
        return tables

    def _table(self, keys, size, dimension, sequence):
        kinds = ["identity", "identity", "identity", "list", "file", "hash"]
        if self.where == "off_tpu":
            # On an emulated TPU, as on a TPU, integers are ids for every kind of column.
            kinds += ["integer list", "integer hash", "default"]
        kind = self.choice(*kinds)
        if kind.endswith("hash") and sequence and not self.neutral:
            # A word could hash to row 0, and in stock, padding changes row 0.
            kind = "identity"
        size += self.choice(0, 0, 2)
        dimension += self.choice(0, 0, 0, 1)
        shared = self.chance(0.25)
        # In a full table, each sample has a known id.
        full = not sequence and (kind.endswith("hash") or self.chance(0.3))
        zero = full or self.neutral
        combiner = self.choice("mean", "sum", "sqrtn")
        features = [
            self._feature(next(keys), kind, size, sequence, full, zero, combiner)
            for _ in range(2 if shared else 1)
        ]
        factor = self.number(0.5, 3)
        arguments = f'combiner="{combiner}", initializer=side.rows({factor})'
        if self.optimizer.learning_rate:
            arguments += ", learning_rate_fn=learning_rate"
        if full and combiner and self.chance(0.2) and not any(f.form == "vector" for f in features):
            arguments += ", use_safe_embedding_lookup=False"
        if shared:
            keys = "_".join(feature.name for feature in features)
            name = f"{keys}_shared_embedding"
            if self.choice("unnamed", "named") == "named":
                name = f"both_{keys}_embedding"
                arguments += f', shared_embedding_collection_name="{name}"'
            if sequence:
                arguments += f", max_sequence_lengths=[{self.max_sequence_length}] * 2"
            columns = [
                ", ".join(f"{feature.key}_column" for feature in features)
                + " = tpu.shared_embedding_columns(",
                "    [",
                *(f"        {feature.column}," for feature in features),
                "    ],",
                f"    {dimension}, {arguments},",
                ")",
            ]
        else:
            name = f"{features[0].name}_embedding"
            if sequence:
                arguments += f", max_sequence_length={self.max_sequence_length}"
            columns = [
                f"{features[0].key}_column = tpu.embedding_column(",
                f"    {features[0].column},",
                f"    {dimension}, {arguments},",
                ")",
            ]
        if not zero:
            self.rules.add("row 0 of the empty")
            self.empty_tables[name] = [math.sin(factor * (1 + i)) for i in range(dimension)]
        return Table(features, shared, columns)

    def _feature(self, key, kind, size, sequence, full, zero, combiner):
        dtype = "string" if kind in ("list", "file", "hash") else self.choice("int32", "int64")
        form = self.choice("vector", "matrix", "sparse", "sparse", "ragged")
        if sequence:
            form = "sequence"
        if form == "ragged":
            self.rules.add("ragged ids")
        words = NUMBERS[:size] if kind == "integer list" else WORDS[:size]
        options = ""
        if kind.endswith(("list", "file")) and self.chance(0.4):
            words = words[:-1]
            options = ", num_oov_buckets=1"
        elif kind.endswith(("list", "file")) and self.chance(0.2):
            options = ", default_value=2"
        known = list(words)
        if kind in ("identity", "default"):
            known = list(range(size))
        if not zero:
            del known[0]
        if kind == "default":
            known.append(size + 3)
        if kind == "hash":
            known = list(WORDS)
        if kind == "integer hash":
            known = list(NUMBERS)
        # An unknown word without its own row gives no id.
        if kind.endswith(("list", "file")) and (options or not full):
            known.append(99 if kind == "integer list" else "unknown")
        if sequence:
            counts = self.lengths
        else:
            low, high = (1, 1) if form == "vector" else (1 if full else 0, 3)
            counts = [self.random.randint(low, high) for _ in range(self.samples)]
        values = [[self.random.choice(known) for _ in range(count)] for count in counts]
        weights = None
        if not sequence and self.chance(0.3):
            low = 0.1 if form in ("vector", "matrix") or full else -1.0
            if low < 0 and combiner != "sum":
                self.rules.add("weights of 0 or less")
                self.without.append(key)
            weights = [[self.number(low, 2) for _ in row] for row in values]
        if form == "matrix":
            padding = "" if dtype == "string" else -1
            values = [row + [padding] * (3 - len(row)) for row in values]
            weights = weights and [row + [0.0] * (3 - len(row)) for row in weights]
        if form == "vector":
            values = [row[0] for row in values]
            weights = weights and [row[0] for row in weights]
        column = {
            "identity": f'categorical_column_with_identity("{key}", {size})',
            "list": f'categorical_column_with_vocabulary_list("{key}", {words}{options})',
            "file": f'categorical_column_with_vocabulary_file("{key}", '
            f"side.vocabulary_file({words}), vocabulary_size={len(words)}{options})",
            "hash": f'categorical_column_with_hash_bucket("{key}", {size})',
            "default": f'categorical_column_with_identity("{key}", {size}, default_value=2)',
            "integer list": f'categorical_column_with_vocabulary_list("{key}", {words}, '
            f"dtype=tf.int64{options})",
            "integer hash": f'categorical_column_with_hash_bucket("{key}", {size}, dtype=tf.int64)',
        }[kind]
        column = ("fc.sequence_" if sequence else "fc.") + column
        if weights:
            column = f'fc.weighted_categorical_column({column}, "{key}_weights")'
        return Feature(key, kind, dtype, form, values, weights, column)

    @property
    def features(self):
        return [feature for table in self.tables for feature in table.features]

    def _columns(self):
        lines = []
        if self.optimizer.learning_rate:
            self.rules.add("bias correction")
            lines += [
                "def learning_rate(step):",
                "    step = tf.cast(step, tf.float32) + 1.0",
                f"    return {self.optimizer.learning_rate}",
                "",
            ]
        for table in self.tables:
            lines += table.columns
        return lines

    def _input(self):
        lines = ["DATA = {"]
        for feature in self.features:
            lines.append(f'    "{feature.key}": {feature.values},')
            if feature.weights:
                lines.append(f'    "{feature.key}_weights": {feature.weights},')
        labels = [[self.number(0, 1)] for _ in range(self.samples)]
        lines += ["}", *(f'side.leave_out(DATA, "{key}")' for key in self.without)]
        lines += [f"LABELS = {labels}", "", "def features():", "    return {"]
        for feature in self.features:
            lines.append(self._tensor(feature.key, feature.form, f"tf.{feature.dtype}"))
            if feature.weights:
                lines.append(self._tensor(f"{feature.key}_weights", feature.form, "tf.float32"))
        lines += [
            "    }",
            "",
            "def input_fn(params, mode):",
            "    dataset = tf.data.Dataset.from_tensor_slices((features(), tf.constant(LABELS)))",
            '    if mode == "train":',
            "        dataset = dataset.repeat()",
            '    return dataset.batch(params["batch_size"], drop_remainder=True)',
        ]
        return lines

    def _tensor(self, key, form, dtype):
        data = f'DATA["{key}"]'
        if form == "sequence":
            data = f"side.cut({data}, {self.max_sequence_length})"
        return f'        "{key}": {FORMS[form][0]}({data}, {dtype}),'

    def _model_fn(self):
        flat = [table for table in self.tables if not table.sequence]
        sequences = [table for table in self.tables if table.sequence]
        body = ["parts = []"]
        if flat:
            body += self._flat(flat)
        if sequences:
            body += self._sequences(sequences)
        body += ["x = tf.concat(parts, axis=1)"]
        scope = self.choice(
            *[""] * 5,
            'tf.compat.v1.variable_scope("tower")',
            'tf.compat.v1.variable_scope("tower/deep")',
            'tf.compat.v1.variable_scope("tower", reuse=tf.compat.v1.AUTO_REUSE)',
            'tf.name_scope("tower")',
            'tf.compat.v1.name_scope("tower")',
        )
        if scope:
            body = [f"with {scope}:", *("    " + line for line in body)]
        body += self._logits()
        # Losses with bounded gradients, so that no program diverges.
        loss = self.choice(
            "tf.reduce_mean(tf.sqrt(1.0 + tf.square(logits - labels)))",
            "tf.reduce_sum(tf.sqrt(1.0 + tf.square(logits - labels)))",
            "tf.reduce_mean(tf.nn.sigmoid_cross_entropy_with_logits(labels=labels, logits=logits))",
        )
        return [
            "def model_fn(features, labels, mode, params):",
            *("    " + line for line in body),
            "    return side.spec_of(",
            "        mode, labels,",
            f"        lambda: {loss},",
            f"        lambda loss: {self._train_op()},",
            "        x=x, logits=logits,",
            "    )",
        ]

    def _flat(self, tables):
        version = self.choice("v1", "v2")
        columns = [f"{f.key}_column" for table in tables for f in table.features]
        self.random.shuffle(columns)
        ways = [*DENSE_WAYS, *OWN_WAYS, *["nested"] * (len(columns) > 1)]
        if not any(table.shared for table in tables):
            ways += [*INPUT_LAYERS, *["mixture"] * 2 * (len(columns) > 2)]
        way = self.choice(*ways)
        lines = [f"columns = {{{', '.join(f'{one!r}: {one}' for one in columns)}}}"]
        if way in OWN_WAYS:
            layer = {"v1": "tf.compat.v1.keras.layers", "v2": "tf.keras.layers"}[version]
            return lines + [line.format(layer=f"{layer}.DenseFeatures") for line in OWN_WAYS[way]]
        kind = "other" if way in (*INPUT_LAYERS, "mixture") else version
        program = f'spellings.every()["{kind}/{way}"].program'
        return [*lines, f"parts += tf.nest.flatten({program}(features, columns))"]

    def _sequences(self, tables):
        columns = [f"{f.key}_column" for table in tables for f in table.features]
        layer = "tf.keras.experimental.SequenceFeatures"
        if self.chance(0.5):
            layer = "tf.compat.v1.keras.experimental.SequenceFeatures"
        spelling = self.choice("one SequenceFeatures", "a SequenceFeatures for each column")
        groups = [columns] if spelling == "one SequenceFeatures" else [[c] for c in columns]
        lines = []
        for group in groups:
            lines += [
                f"sequence, length = {layer}([{', '.join(group)}])(features)",
                "parts.append(side.sum_over_time(sequence))",
                "parts.append(tf.cast(length, tf.float32)[:, None])",
            ]
        return lines

    def _logits(self):
        factor = self.number(0.5, 3)
        kind = self.dense = self.choice("get_variable", "keras", "layers", "none")
        if kind == "none":
            return ["logits = tf.reduce_sum(x, axis=1, keepdims=True)"]
        if kind == "get_variable":
            return [
                'kernel = tf.compat.v1.get_variable("kernel", [int(x.shape[1]), 1],',
                f"    initializer=side.rows({factor}))",
                "logits = tf.matmul(x, kernel)",
            ]
        layer = "tf.keras.layers.Dense" if kind == "keras" else "tf.compat.v1.layers.Dense"
        return [f"logits = {layer}(1, kernel_initializer=side.rows({factor}))(x)"]

    def _train_op(self):
        self.multiplier, self.limit = None, None
        if self.chance(0.5):
            return f"{self.optimizer.twin}.minimize(loss, tf.compat.v1.train.get_global_step())"
        self.rules.add("the spec trains the tables")
        self.multiplier = self.choice(None, None, 0.5)
        self.limit = self.choice(None, None, 0.02)
        arguments = f", multiplier={self.multiplier}" if self.multiplier else ""
        arguments += f", limit={self.limit}" if self.limit else ""
        for_dense = self._dense_optimizer()
        if "Adam" in for_dense and self.dense == "none":
            self.rules.add("no beta powers")
        return f"side.minimize(loss, {for_dense}, {self.optimizer.twin}{arguments})"

    def _estimator(self):
        grappler = self.choice("", "", "grappler=True")
        columns = ", ".join(f"{feature.key}_column" for feature in self.features)
        more = []
        if self.limit:
            more.append(f"        clipping_limit={self.limit},")
        if self.multiplier:
            multiplier = f"lambda step: {self.multiplier}"
            more.append(f"        experimental_gradient_multiplier_fn={multiplier},")
        if self.chance(0.2):
            # Off a TPU, stock supports only 'div'.
            more.append("        **side.mod(),")
            self.rules.add("mod")
        return [
            "def new_estimator():",
            "    return side.new_estimator(",
            f"        model_fn, {BATCH_SIZE}, [{columns}],",
            f"        side.parameters({self.optimizer.parameters}), side.{self.where}({grappler}),",
            *more,
            "    )",
        ]

    def _calls(self):
        until = self.choice("steps", "max_steps")
        lines = [
            "estimator = new_estimator()",
            f"estimator.train(input_fn, {until}={self.choice(1, 2, 3)})",
        ]
        # Each call builds a new graph, which takes most of the time.
        then = self.choice("nothing", "two trainings", "evaluate", "predict", "export")
        if then == "two trainings":
            if self.chance(0.5):
                lines.append("estimator = new_estimator()")
            lines.append(f"estimator.train(input_fn, steps={self.choice(1, 2)})")
        lines.append('side.record_checkpoint("checkpoint")')
        if then == "evaluate":
            lines.append(
                f'side.record("evaluate", estimator.evaluate(input_fn, '
                f"steps={self.samples // BATCH_SIZE}))"
            )
        if then == "predict":
            lines += [
                "for i, prediction in enumerate(estimator.predict(input_fn)):",
                '    side.record(f"predict/{i}", prediction)',
            ]
        if then == "export":
            lines += self._export()
        return lines

    def _export(self):
        lines = []
        for feature in self.features:
            dtypes = {feature.key: "tf.string" if feature.dtype == "string" else "tf.int64"}
            if feature.weights:
                dtypes[f"{feature.key}_weights"] = "tf.float32"
            for key, dtype in dtypes.items():
                lines.append(f'    "{key}": {FORMS[feature.form][1].format(dtype)},')
        narrow = [feature.key for feature in self.features if feature.dtype == "int32"]
        cut = [
            f'DATA["{feature.key}"] = side.cut(DATA["{feature.key}"], {self.max_sequence_length})'
            for feature in self.features
            if feature.sequence
        ]
        return [
            "parsing = {",
            *lines,
            "}",
            f"receiver_fn = side.receiver_fn(parsing, {narrow})",
            'directory = estimator.export_saved_model(side.model_dir + "/export", receiver_fn)',
            *cut,
            'side.record("serve", side.serve(directory, side.examples(DATA)))',
        ]


if __name__ == "__main__":
    print(Program(int(sys.argv[1])).source)
