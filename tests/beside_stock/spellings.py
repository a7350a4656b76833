"""Programs that use TPU embedding columns in every supported way, for tests of variable names.

Does not import estimator_emb. Run as a program under TensorFlow 2.15.1, this module trains each
program with stock tensorflow-estimator and `use_tpu=False`. It prints the variable names in the
checkpoints, as JSON:

    python tests/beside_stock/spellings.py > tests/data/stock_names.json

The loss is the sum of a program's outputs.
"""

import contextlib
import dataclasses
import importlib
import json
import sys
import tempfile
from collections.abc import Callable
from typing import Any

import tensorflow as tf

VOCABULARY, DIMENSION, BATCH, LENGTH = 6, 4, 8, 3
"""Rows and dimension of every table, samples of a batch, positions of a sequence."""

KEYS = ("c0", "c1", "c2")
SEQUENCES = ("s0", "s1")

v1 = tf.compat.v1
fc = tf.feature_column
tpu_columns = v1.tpu.experimental


@dataclasses.dataclass(frozen=True)
class Spelling:
    """A way to use columns.

    Attributes:
      program: takes features and columns by key, returns one or several tensors.
      keys: of the columns that the program uses.
      columns: makes the columns of `keys`, in this order.
    """

    program: Callable[[dict[str, Any], dict[str, Any]], Any]
    keys: tuple[str, ...] = KEYS
    columns: Callable[[tuple[str, ...]], list[Any]] | None = None


def features(keys: tuple[str, ...]) -> dict[str, Any]:
    def sparse(key: str) -> Any:
        return tf.sparse.from_dense(tf.ones([BATCH, LENGTH if key in SEQUENCES else 1], tf.int64))

    beside = {"number": tf.ones([BATCH, 1]), "kind": tf.zeros([BATCH, 1], tf.int64)}
    return {**{key: sparse(key) for key in keys}, **beside}


def input_fn_of(keys: tuple[str, ...]) -> Callable[..., Any]:
    def input_fn(params: Any) -> Any:
        one = tf.data.Dataset.from_tensors((features(keys), tf.zeros([BATCH])))
        return one.repeat(2)

    return input_fn


def columns_of(keys: tuple[str, ...]) -> list[Any]:
    """Returns a column for each key, each with its own table."""
    one = fc.categorical_column_with_identity, 0
    sequence = fc.sequence_categorical_column_with_identity, LENGTH
    made = []
    for key in keys:
        column_of, length = sequence if key in SEQUENCES else one
        options = {"combiner": "sum", "max_sequence_length": length}
        made.append(tpu_columns.embedding_column(column_of(key, VOCABULARY), DIMENSION, **options))
    return made


def shared_columns_of(keys: tuple[str, ...]) -> list[Any]:
    """Returns columns: c0 and c1, or s0 and s1, share a table. Other keys have their own."""
    made = dict(zip(keys, columns_of(keys), strict=True))
    together = [key for key in keys if key[1] in "01"]
    categorical = [made[key].categorical_column for key in together]
    lengths = [LENGTH if key in SEQUENCES else 0 for key in together]
    options = {"combiner": "sum", "max_sequence_lengths": lengths}
    columns = tpu_columns.shared_embedding_columns(categorical, DIMENSION, **options)
    made.update(zip(together, columns, strict=True))
    return list(made.values())


def model_fn_of(spelling: Spelling, by_key: dict[str, Any], spec_class: Any) -> Callable[..., Any]:
    def model_fn(features: Any, labels: Any, mode: str, params: Any) -> Any:
        tensors = tf.nest.flatten(spelling.program(features, by_key))
        each = [tf.reduce_sum(tf.reshape(one, [tf.shape(one)[0], -1]), axis=1) for one in tensors]
        if mode == "infer":
            return spec_class(mode, predictions={"each": tf.add_n(each)})
        loss = tf.reduce_sum(tf.add_n(each))
        train_op = None
        if mode == "train":
            optimizer = v1.train.AdagradOptimizer(0.0)
            if params["use_tpu"]:
                optimizer = v1.tpu.CrossShardOptimizer(optimizer, reduction=v1.losses.Reduction.SUM)
            train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return spec_class(mode, loss=loss, train_op=train_op)

    return model_fn


def layers() -> dict[str, Any]:
    """Returns the layers that turn columns into a dense tensor, by the name used here."""
    return {
        "v2": tf.keras.layers.DenseFeatures,
        "v1": v1.keras.layers.DenseFeatures,
        "tf_keras_v2": _of_tf_keras("tf_keras.layers", "DenseFeatures"),
        "tf_keras_v1": _of_tf_keras("tf_keras.src.feature_column.dense_features", "DenseFeatures"),
    }


def _of_tf_keras(module: str, name: str) -> Callable[..., Any]:
    # Imported only on use. On TensorFlow 2.15, where tf.keras is another package, importing
    # tf_keras re-registers the names of Keras classes for the whole process.
    return lambda *args, **kwargs: getattr(importlib.import_module(module), name)(*args, **kwargs)


def sequence_layers() -> dict[str, Any]:
    return {
        "v2": tf.keras.experimental.SequenceFeatures,
        "v1": v1.keras.experimental.SequenceFeatures,
        "tf_keras": _of_tf_keras("tf_keras.experimental", "SequenceFeatures"),
    }


def of_list(way: Callable[[Any, list[Any]], Any]) -> Callable[..., Any]:
    """Turns a function of features and a list of columns into a program."""
    return lambda features, by_key: way(features, list(by_key.values()))


def common_ways(make: Callable[..., Any]) -> dict[str, Callable[..., Any]]:
    """Returns ways common to all kinds of layers. `make` returns a function of the features."""

    def called_twice(features: Any, columns: Any) -> Any:
        made = make(columns)
        return made(features), made(dict(features))

    def in_name_scope(features: Any, columns: Any) -> Any:
        with tf.name_scope("deep"):
            return make(columns)(features)

    return {
        "one_layer": lambda features, columns: make(columns)(features),
        "one_for_each": each_in_scope(make),
        "called_twice": called_twice,
        "in_name_scope": in_name_scope,
    }


def each_in_scope(
    make: Callable[..., Any], scope: Callable[[int], Any] = lambda _: contextlib.nullcontext()
) -> Callable[..., Any]:
    """Gives each column its own layer, made in the scope for the column's number."""

    def way(features: Any, columns: Any) -> Any:
        made = []
        for number, column in enumerate(columns):
            with scope(number):
                made.append(make([column])(features))
        return made

    return way


def dense_ways(layer: str) -> dict[str, Spelling]:
    """Returns the ways to use a kind of `DenseFeatures`."""

    def keras() -> Any:
        return importlib.import_module("tf_keras") if layer.startswith("tf_keras") else tf.keras

    def head() -> Any:
        return keras().layers.Dense(1, kernel_initializer="ones")

    def make(columns: Any, **kwargs: Any) -> Any:
        return layers()[layer](columns, **kwargs)

    def called_twice_and_another(features: Any, columns: Any) -> Any:
        made = make(columns[:1])
        called = [made(features), made(features)]
        return make(columns[1:])(features), called[0]

    def in_variable_scope(features: Any, columns: Any) -> Any:
        with v1.variable_scope("deep"), v1.variable_scope("inputs"):
            return make(columns)(features)

    def made_outside_of_the_scope(features: Any, columns: Any) -> Any:
        made = make(columns)
        with v1.variable_scope("deep"):
            return made(features)

    def functional(features: Any, columns: Any) -> Any:
        inputs, classes = {}, {"sparse": tf.SparseTensor, "ragged": tf.RaggedTensor}
        for key, value in features.items():
            form = {name: isinstance(value, of_class) for name, of_class in classes.items()}
            inputs[key] = keras().Input(value.shape[1:], dtype=value.dtype, name=key, **form)
        return keras().Model(inputs, head()(make(columns)(inputs)))(features)

    def subclassed(features: Any, columns: Any) -> Any:
        class Tower(keras().Model):
            def __init__(self):
                super().__init__()
                self.inputs_of_tower = make(columns)
                self.head = head()

            def call(self, features: Any) -> Any:
                return self.head(self.inputs_of_tower(features))

        return Tower()(features)

    def nested(features: Any, columns: Any) -> Any:
        class Inner(keras().layers.Layer):
            def __init__(self, columns: Any):
                super().__init__()
                self.columns = [make([column]) for column in columns]

            def call(self, features: Any) -> Any:
                return tf.concat([layer(features) for layer in self.columns], axis=1)

        class Outer(keras().Model):
            def __init__(self):
                super().__init__(name="outer")
                self.first, self.second = Inner(columns[:1]), Inner(columns[1:])

            def call(self, features: Any) -> Any:
                return tf.concat([self.first(features), self.second(features)], axis=1)

        return Outer()(features)

    def module(features: Any, columns: Any) -> Any:
        class Tower(tf.Module):
            def __init__(self):
                super().__init__(name="tower")
                self.layer = make(columns)

            @tf.Module.with_name_scope
            def __call__(self, features: Any) -> Any:
                return self.layer(features)

        return Tower()(features)

    def template(features: Any, columns: Any) -> Any:
        return v1.make_template("tower", lambda given: make(columns)(given))(features)

    def beside_dense_columns(features: Any, columns: Any) -> Any:
        kind = fc.categorical_column_with_identity("kind", 2)
        own = fc.embedding_column(kind, 2, initializer=v1.zeros_initializer())
        beside = [fc.numeric_column("number"), fc.indicator_column(kind), own]
        return make([*columns, *beside])(features)

    common = common_ways(make)
    ways = {
        **common,
        "named": lambda features, columns: make(columns, name="inputs")(features),
        "two_of_one_name": lambda features, columns: [
            make(some, name="inputs")(features) for some in (columns[:1], columns[1:])
        ],
        "called_twice_and_another": called_twice_and_another,
        "column_without_list": each_in_scope(lambda columns: make(columns[0])),
        "in_variable_scope": in_variable_scope,
        "made_outside_of_the_scope": made_outside_of_the_scope,
        "sequential": lambda features, columns: keras().Sequential([make(columns), head()])(
            features
        ),
        "functional": functional,
        "subclassed": subclassed,
        "nested": nested,
        "module": module,
        "template": template,
    }
    for name, scope in {
        "each_in_one_variable_scope": lambda _: v1.variable_scope("deep", reuse=v1.AUTO_REUSE),
        "in_default_variable_scope": lambda _: v1.variable_scope(None, "tower"),
        "each_in_name_scope": lambda _: v1.name_scope("deep"),
    }.items():
        ways[name] = each_in_scope(make, scope)
    ways["beside_dense_columns"] = beside_dense_columns
    made = {name: Spelling(of_list(way)) for name, way in ways.items()}
    in_scopes = each_in_scope(make, lambda number: v1.variable_scope("abc"[number]))
    for name, way in {
        "shared": common["one_layer"],
        "shared_by_two_layers": common["one_for_each"],
        "shared_in_variable_scopes": in_scopes,
    }.items():
        made[name] = Spelling(of_list(way), columns=shared_columns_of)
    for name, way in {"": "one_layer", "_in_two_layers": "one_for_each"}.items():
        made[f"names_in_two_cases{name}"] = Spelling(of_list(common[way]), keys=("C0", "c0"))
    return made


def sequence_ways(layer: str) -> dict[str, Spelling]:
    """Returns the ways to use a kind of `SequenceFeatures`."""

    def make(columns: Any, **kwargs: Any) -> Any:
        made = sequence_layers()[layer](columns, **kwargs)
        return lambda features: made(features)[0]

    def named_in_variable_scope(features: Any, columns: Any) -> Any:
        with v1.variable_scope("deep"):
            return make(columns, name="inputs")(features)

    def subclassed(features: Any, columns: Any) -> Any:
        class Tower(tf.keras.Model):
            def __init__(self):
                super().__init__()
                self.sequences = sequence_layers()[layer](columns)

            def call(self, features: Any) -> Any:
                return self.sequences(features)[0]

        return Tower()(features)

    common = common_ways(make)
    own = {"named_in_variable_scope": named_in_variable_scope, "subclassed": subclassed}
    ways = {name: Spelling(of_list(way), keys=SEQUENCES) for name, way in {**common, **own}.items()}
    shared = of_list(common["one_layer"])
    ways["shared"] = Spelling(shared, keys=SEQUENCES, columns=shared_columns_of)
    return ways


def other_ways() -> dict[str, Spelling]:
    """Returns ways with `input_layer` and `linear_model`, and mixtures."""
    input_layer = v1.feature_column.input_layer
    dense, old_dense = layers()["v2"], layers()["v1"]
    sequence = sequence_layers()["v2"]

    def input_layer_in_scopes(features: Any, columns: Any) -> Any:
        with v1.variable_scope("deep"), tf.name_scope("inner"):
            return input_layer(features, columns)

    def input_layer_beside_dense_columns(features: Any, columns: Any) -> Any:
        kind = fc.categorical_column_with_identity("kind", 2)
        beside = [fc.numeric_column("number"), fc.indicator_column(kind)]
        return input_layer(features, [*columns, *beside])

    def input_layer_template(features: Any, columns: Any) -> Any:
        return v1.make_template("tower", lambda given: input_layer(given, columns))(features)

    def mixture(features: Any, columns: Any) -> Any:
        made = dense(columns[:1])(features), old_dense(columns[1:2])(features)
        return *made, input_layer(features, columns[2:])

    def mixture_of_layers(features: Any, columns: Any) -> Any:
        kinds = zip((old_dense, dense, old_dense), columns, strict=True)
        return [kind([column])(features) for kind, column in kinds]

    def sequences_and_others(features: Any, columns: Any) -> Any:
        return dense(columns[:1])(features), sequence(columns[1:])(features)[0]

    def layers_named_as_ops(features: Any, columns: Any) -> Any:
        made = dense(columns[:1], name="all")(features)
        more = dense(columns[1:2], name="identity")(features)
        return made, more, sequence(columns[2:], name="split")(features)[0]

    def in_a_function(features: Any, columns: Any) -> Any:
        layer = dense(columns)
        return tf.function(lambda: layer(features))()

    for_each = each_in_scope(lambda columns: lambda features: input_layer(features, columns))
    return {
        "one_input_layer": Spelling(of_list(input_layer)),
        "input_layer_in_scopes": Spelling(of_list(input_layer_in_scopes)),
        "input_layer_template": Spelling(of_list(input_layer_template)),
        "mixture": Spelling(of_list(mixture)),
        "mixture_of_layers": Spelling(of_list(mixture_of_layers)),
        "in_a_function": Spelling(of_list(in_a_function)),
        "one_input_layer_for_each": Spelling(of_list(for_each)),
        "input_layer_beside_dense_columns": Spelling(of_list(input_layer_beside_dense_columns)),
        "linear_model": Spelling(of_list(v1.feature_column.linear_model)),
        "layers_named_as_ops": Spelling(
            of_list(layers_named_as_ops), keys=("c0", "c1", "s0", "s1")
        ),
        "sequences_and_others": Spelling(of_list(sequences_and_others), keys=("c0", "s0")),
    }


def every() -> dict[str, Spelling]:
    made = {f"other/{name}": way for name, way in other_ways().items()}
    for layer in layers():
        made |= {f"{layer}/{name}": way for name, way in dense_ways(layer).items()}
    for layer in sequence_layers():
        made |= {f"sequence_{layer}/{name}": way for name, way in sequence_ways(layer).items()}
    return made


def columns_by_key(spelling: Spelling) -> dict[str, Any]:
    made = (spelling.columns or columns_of)(spelling.keys)
    return dict(zip(spelling.keys, made, strict=True))


def stock(name: str) -> dict[str, Any]:
    """Returns the names in stock's checkpoint, or its error."""
    from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_estimator

    assert "estimator_emb" not in sys.modules
    way = every()[name]
    with tempfile.TemporaryDirectory() as folder:
        model_fn = model_fn_of(way, columns_by_key(way), tpu_estimator.TPUEstimatorSpec)
        silent = {"save_summary_steps": None, "log_step_count_steps": None}
        config = tpu_config.RunConfig(model_dir=folder, **silent)
        sizes = dict.fromkeys(("train_batch_size", "eval_batch_size", "predict_batch_size"), BATCH)
        estimator = tpu_estimator.TPUEstimator(model_fn, config=config, use_tpu=False, **sizes)
        try:
            estimator.train(input_fn_of(way.keys), steps=2)
        except Exception as error:
            return {"error": f"{type(error).__name__}: {error}".split("\n")[0]}
        made = {"names": sorted(name for name, _ in tf.train.list_variables(folder))}
        try:
            estimator.evaluate(input_fn_of(way.keys), steps=1)
            list(estimator.predict(input_fn_of(way.keys)))
        except Exception as error:
            made["restoring"] = f"{type(error).__name__}: {error}".split("\n")[0]
        return made


if __name__ == "__main__":
    v1.logging.set_verbosity("ERROR")
    names = sys.argv[1:] or list(every())
    lines = [f"{json.dumps(name)}: {json.dumps(stock(name))}" for name in sorted(names)]
    print("{", ",\n".join(lines), "}", sep="\n")
