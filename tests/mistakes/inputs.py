# SPDX-License-Identifier: Apache-2.0
"""Mistakes in an input_fn and in the features that it returns."""

import tensorflow as tf
from program import mistake, v1


def mapped(program, function):
    program.train["input_fn"] = lambda params: program.input_fn(params).map(function)


@mistake(
    "train",
    TypeError,
    "input_fn must be a function of params that returns a Dataset, or features and labels; got "
    "a Dataset. Give the function itself, and make the Dataset inside of it.",
)
def a_dataset_as_input_fn(program):
    program.train["input_fn"] = tf.data.Dataset.from_tensors(1)


@mistake(
    "evaluate",
    TypeError,
    "input_fn must be a function of params that returns a Dataset, or features and labels; got "
    "a Dataset. Give the function itself, and make the Dataset inside of it.",
)
def a_dataset_as_input_fn_of_evaluation(program):
    program.evaluate["input_fn"] = tf.data.Dataset.from_tensors(1)


@mistake(
    "predict",
    TypeError,
    "input_fn must be a function of params that returns a Dataset, or features and labels; got "
    "a Dataset. Give the function itself, and make the Dataset inside of it.",
)
def a_dataset_as_input_fn_of_prediction(program):
    program.predict["input_fn"] = tf.data.Dataset.from_tensors(1)


@mistake(
    "train",
    TypeError,
    "input_fn must be a function of params that returns a Dataset, or features and labels; got "
    "None. Give the function itself, and make the Dataset inside of it.",
)
def no_input_fn(program):
    program.train["input_fn"] = None


@mistake(
    "train",
    ValueError,
    "input_fn (input_fn (inputs.py, line {line})) must return a Dataset, or features and "
    "labels; it returned None. Is its `return` missing?",
)
def input_fn_returns_nothing(program):
    def input_fn(params):
        program.input_fn(params)

    program.train["input_fn"] = input_fn


@mistake(
    "train",
    TypeError,
    "input_fn (input_fn (inputs.py, line {line})) must return a Dataset, or features and "
    "labels; it returned a generator. For Python's values, see tf.data.Dataset.from_generator.",
)
def input_fn_returns_a_generator(program):
    def input_fn(params):
        yield program.features, program.labels

    program.train["input_fn"] = input_fn


@mistake(
    "train",
    TypeError,
    "input_fn (input_fn (inputs.py, line {line})) must return a Dataset, or features and "
    "labels; it returned an iterator, Iterator. Return the Dataset, or what get_next() returns.",
)
def input_fn_returns_an_iterator(program):
    def input_fn(params):
        return v1.data.make_one_shot_iterator(program.input_fn(params))

    program.train["input_fn"] = input_fn


@mistake(
    "train",
    ValueError,
    "input_fn (input_fn (inputs.py, line {line})) does not include params argument, required "
    'by TPUEstimator to pass batch size as params["batch_size"].',
)
def input_fn_without_params(program):
    def input_fn():
        return program.input_fn({"batch_size": 4})

    program.train["input_fn"] = input_fn


@mistake(
    "train",
    TypeError,
    "input_fn (input_fn (inputs.py, line {line})) takes the argument 'path', which "
    "TPUEstimator does not give: it gives params, config, mode and input_context. Give it a "
    "value by functools.partial.",
)
def input_fn_with_another_argument(program):
    def input_fn(params, path):
        return program.input_fn(params)

    program.train["input_fn"] = input_fn


@mistake(
    "train",
    ValueError,
    "input_fn (input_fn (inputs.py, line {line})): input_fn should return (features, labels) "
    "as a len 2 tuple; got 3 parts.",
)
def input_fn_with_three_parts(program):
    def input_fn(params):
        return program.input_fn(params).map(lambda x, y: (x, y, y))

    program.train["input_fn"] = input_fn


@mistake(
    "train",
    ValueError,
    "With an EmbeddingConfigSpec, input_fn must return its features as a dict; input_fn "
    "(input_fn (inputs.py, line {line})) returned a tensor. Are features and labels swapped?",
)
def features_and_labels_swapped(program):
    def input_fn(params):
        return program.input_fn(params).map(lambda x, y: (y, x))

    program.train["input_fn"] = input_fn


@mistake(
    "train",
    ValueError,
    "With an EmbeddingConfigSpec, input_fn must return its features as a dict; input_fn "
    "(input_fn (inputs.py, line {line})) returned a tensor.",
)
def features_as_a_tensor(program):
    def input_fn(params):
        return program.input_fn(params).map(lambda x, y: (x["item"], y))

    program.train["input_fn"] = input_fn


@mistake(
    "train",
    ValueError,
    "With an EmbeddingConfigSpec, input_fn must return its features as a dict; input_fn "
    "(input_fn (inputs.py, line {line})) returned a tuple.",
)
def features_as_a_tuple(program):
    def input_fn(params):
        return program.input_fn(params).map(lambda x, y: ((x["item"], x["words"]), y))

    program.train["input_fn"] = input_fn


@mistake(
    "train",
    KeyError,
    "\"params has no 'batchsize'; it has ['batch_size', 'context']. Did you mean 'batch_size'?\"",
)
def a_parameter_of_input_fn_by_another_name(program):
    def input_fn(params):
        return program.input_fn({"batch_size": params["batchsize"]})

    program.train["input_fn"] = input_fn


@mistake(
    "train",
    KeyError,
    "\"Feature words of table tbl_words is not among the features of the batch, ['age', 'item'].\"",
)
def a_feature_is_missing(program):
    del program.features["words"]


@mistake(
    "train",
    KeyError,
    "\"Feature words of table tbl_words is not among the features of the batch, ['age', "
    "'item', 'word']. Did you mean 'word'?\"",
)
def a_feature_is_misspelt(program):
    program.features["word"] = program.features.pop("words")


@mistake(
    "train",
    KeyError,
    "\"'age'. The features that model_fn is given are ['Age', 'item', 'words']. Did you mean "
    "'Age'?\"",
)
def a_dense_feature_is_misspelt(program):
    program.features["Age"] = program.features.pop("age")


@mistake(
    "train",
    ValueError,
    "Feature item of table tbl_item: ids must be int32 or int64; got float32.",
)
def ids_are_floats(program):
    program.features["item"] = [[1.0], [2.0], [3.0], [0.0]]


@mistake(
    "train",
    ValueError,
    "Feature item of table tbl_item: ids must be int32 or int64; got strings. Strings need a "
    "categorical column with a vocabulary or hash buckets.",
    host=(
        ValueError,
        "Feature 'item' of table 'tbl_item': SparseTensor with string as values are not supported "
        "on a TPU, and neither are other strings. Turn them into ids in input_fn, for example "
        "with a tf.lookup.StaticHashTable or tf.strings.to_hash_bucket_fast. feature_key = item.",
    ),
)
def ids_are_strings(program):
    program.features["item"] = [["1"], ["2"], ["3"], ["0"]]


@mistake(
    "train",
    ValueError,
    "Feature item of table tbl_item: dense ids must have shape [batch] or [batch, n]; got (4, "
    "1, 1).",
)
def ids_have_three_dimensions(program):
    program.features["item"] = [[[1]], [[2]], [[3]], [[0]]]


@mistake(
    "train",
    ValueError,
    "Feature words of table texts: Cannot find weights word_weights for "
    "weighted_categorical_column among the features of the batch, ['age', 'item', 'words'].",
)
def weights_are_missing(program):
    program.dicts = True
    program.lookups["words"]["weight_key"] = "word_weights"


@mistake(
    "train",
    ValueError,
    "Feature words of table texts: weights word_weights must have the shape of the ids, (4, "
    "2); got (4, 1).",
)
def weights_of_another_shape(program):
    program.dicts = True
    program.lookups["words"]["weight_key"] = "word_weights"
    program.features["word_weights"] = [[1.0], [1.0], [1.0], [1.0]]


@mistake(
    "train",
    ValueError,
    "Feature words of table texts: weights word_weights must be numbers; got string.",
)
def weights_are_strings(program):
    program.dicts = True
    program.lookups["words"]["weight_key"] = "word_weights"
    program.features["word_weights"] = [["a", "b"]] * 4


@mistake(
    "train",
    ValueError,
    "Feature words of table texts: a sequence feature takes no weights; got weight key "
    "word_weights.",
)
def a_sequence_with_weights(program):
    program.dicts = True
    program.lookups["words"] |= {"weight_key": "word_weights", "max_sequence_length": 2}
    program.features["word_weights"] = [[1.0, 1.0]] * 4


@mistake(
    "train",
    ValueError,
    "Feature words of table texts: its table has combiner None, so ids must have shape [batch] "
    "or [batch, 1]; got (4, 2).",
)
def many_ids_without_combiner(program):
    program.dicts = True
    program.tables["texts"]["combiner"] = None
