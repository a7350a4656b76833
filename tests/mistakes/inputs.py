# SPDX-License-Identifier: Apache-2.0
"""Mistakes in an input_fn and in the features that it returns."""

import tensorflow as tf
from program import mistake, train, v1


def a_dataset_as_input_fn(program):
    for arguments in (program.train, program.evaluate, program.predict):
        arguments["input_fn"] = tf.data.Dataset.from_tensors(1)


for action in ("train", "evaluate", "predict"):
    mistake(
        action,
        TypeError,
        "input_fn must be a function of params that returns a Dataset, or features and labels; got "
        "a Dataset. Give the function itself, and make the Dataset inside of it.",
    )(a_dataset_as_input_fn)


@train(
    ValueError,
    "input_fn ({name} (inputs.py, line {line})) must return a Dataset, or features and labels; it "
    "returned None. Is its `return` missing?",
    at="train.input_fn",
)
def input_fn_returns_nothing(program, params):
    program.input_fn(params)


@train(
    TypeError,
    "input_fn ({name} (inputs.py, line {line})) must return a Dataset, or features and labels; it "
    "returned a generator. For Python's values, see tf.data.Dataset.from_generator.",
    at="train.input_fn",
)
def input_fn_returns_a_generator(program, params):
    yield program.features, program.labels


@train(
    TypeError,
    "input_fn ({name} (inputs.py, line {line})) must return a Dataset, or features and labels; it "
    "returned an iterator, Iterator. Return the Dataset, or what get_next() returns.",
    at="train.input_fn",
)
def input_fn_returns_an_iterator(program, params):
    return v1.data.make_one_shot_iterator(program.input_fn(params))


@train(
    ValueError,
    "input_fn ({name} (inputs.py, line {line})) does not include params argument, required by "
    'TPUEstimator to pass batch size as params["batch_size"].',
    at="train.input_fn",
)
def input_fn_without_params(program):
    return program.input_fn({"batch_size": 4})


@train(
    TypeError,
    "input_fn ({name} (inputs.py, line {line})) takes the argument 'path', which TPUEstimator does "
    "not give: it gives params, config, mode and input_context. Give it a value by "
    "functools.partial.",
    at="train.input_fn",
)
def input_fn_with_another_argument(program, params, path):
    return program.input_fn(params)


@train(
    ValueError,
    "input_fn ({name} (inputs.py, line {line})): input_fn should return (features, labels) as a "
    "len 2 tuple; got 3 parts.",
    at="train.input_fn",
)
def input_fn_with_three_parts(program, params):
    return program.input_fn(params).map(lambda x, y: (x, y, y))


@train(
    ValueError,
    "With an EmbeddingConfigSpec, input_fn must return its features as a dict; input_fn ({name} "
    "(inputs.py, line {line})) returned a tensor. Are features and labels swapped?",
    at="train.input_fn",
)
def features_and_labels_swapped(program, params):
    return program.input_fn(params).map(lambda x, y: (y, x))


@train(
    ValueError,
    "With an EmbeddingConfigSpec, input_fn must return its features as a dict; input_fn ({name} "
    "(inputs.py, line {line})) returned a tensor.",
    at="train.input_fn",
)
def features_as_a_tensor(program, params):
    return program.input_fn(params).map(lambda x, y: (x["item"], y))


@train(
    ValueError,
    "With an EmbeddingConfigSpec, input_fn must return its features as a dict; input_fn ({name} "
    "(inputs.py, line {line})) returned a tuple.",
    at="train.input_fn",
)
def features_as_a_tuple(program, params):
    return program.input_fn(params).map(lambda x, y: ((x["item"], x["words"]), y))


@train(
    KeyError,
    "\"params has no 'batchsize'; it has ['batch_size', 'context']. Did you mean 'batch_size'?\"",
    at="train.input_fn",
)
def a_parameter_of_input_fn_by_another_name(program, params):
    return program.input_fn({"batch_size": params["batchsize"]})


@train(
    KeyError,
    "\"Feature words of table tbl_words is not among the features of the batch, ['age', 'item', "
    "'word']. Did you mean 'word'?\"",
)
def a_feature_is_misspelt(program):
    program.features["word"] = program.features.pop("words")


@train(
    KeyError,
    "\"'age'. The features that model_fn is given are ['Age', 'item', 'words']. Did you mean "
    "'Age'?\"",
)
def a_dense_feature_is_misspelt(program):
    program.features["Age"] = program.features.pop("age")
