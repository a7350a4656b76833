# SPDX-License-Identifier: Apache-2.0
"""Mistakes in an input_fn and in the features that it returns."""

import tensorflow as tf
from program import MISSING, mistakes, v1

INPUT_FN = "input_fn (<lambda> (inputs.py, line {line}))"
MUST_RETURN = f"{INPUT_FN} must return a Dataset, or features and labels; it returned"
MUST_BE_A_DICT = (
    f"With an EmbeddingConfigSpec, input_fn must return its features as a dict; {INPUT_FN} returned"
)

for action in ("train", "evaluate", "predict"):
    mistakes(
        action,
        TypeError,
        {
            "a_dataset_as_input_fn": (
                {f"{action}.input_fn": tf.data.Dataset.from_tensors(1)},
                "input_fn must be a function of params that returns a Dataset, or features and "
                "labels; got a Dataset. Give the function itself, and make the Dataset inside of "
                "it.",
            )
        },
    )
mistakes(
    "train",
    ValueError,
    {
        "input_fn_returns_nothing": (
            {"train.input_fn": lambda params: None},
            f"{MUST_RETURN} None. Is its `return` missing?",
        ),
        "input_fn_without_params": (
            {"train.input_fn": lambda program: program.input_fn({"batch_size": 4})},
            f"{INPUT_FN} does not include params argument, required by TPUEstimator to pass batch "
            'size as params["batch_size"].',
        ),
        "input_fn_with_three_parts": (
            {
                "train.input_fn": lambda program, params: program.input_fn(params).map(
                    lambda x, y: (x, y, y)
                )
            },
            f"{INPUT_FN}: input_fn should return (features, labels) as a len 2 tuple; got 3 parts.",
        ),
        "features_and_labels_swapped": (
            {
                "train.input_fn": lambda program, params: program.input_fn(params).map(
                    lambda x, y: (y, x)
                )
            },
            f"{MUST_BE_A_DICT} a tensor. Are features and labels swapped?",
        ),
        "features_as_a_tensor": (
            {
                "train.input_fn": lambda program, params: program.input_fn(params).map(
                    lambda x, y: (x["item"], y)
                )
            },
            f"{MUST_BE_A_DICT} a tensor.",
        ),
        "features_as_a_tuple": (
            {
                "train.input_fn": lambda program, params: program.input_fn(params).map(
                    lambda x, y: ((x["item"], x["words"]), y)
                )
            },
            f"{MUST_BE_A_DICT} a tuple.",
        ),
    },
)
mistakes(
    "train",
    TypeError,
    {
        "input_fn_returns_a_generator": (
            {"train.input_fn": lambda params: (one for one in [])},
            f"{MUST_RETURN} a generator. For Python's values, see tf.data.Dataset.from_generator.",
        ),
        "input_fn_returns_an_iterator": (
            {
                "train.input_fn": lambda program, params: v1.data.make_one_shot_iterator(
                    program.input_fn(params)
                )
            },
            f"{MUST_RETURN} an iterator, Iterator. Return the Dataset, or what get_next() returns.",
        ),
        "input_fn_with_another_argument": (
            {"train.input_fn": lambda params, path: None},
            f"{INPUT_FN} takes the argument 'path', which TPUEstimator does not give: it gives "
            "params, config, mode and input_context. Give it a value by functools.partial.",
        ),
    },
)
mistakes(
    "train",
    KeyError,
    {
        "a_parameter_of_input_fn_by_another_name": (
            {"train.input_fn": lambda params: params["batchsize"]},
            "\"params has no 'batchsize'; it has ['batch_size', 'context']. Did you mean "
            "'batch_size'?\"",
        ),
        "a_feature_is_misspelt": (
            {"features.words": MISSING, "features.word": [[1], [2], [3], [0]]},
            "\"Feature words of table tbl_words is not among the features of the batch, ['age', "
            "'item', 'word']. Did you mean 'word'?\"",
        ),
        "a_dense_feature_is_misspelt": (
            {"features.age": MISSING, "features.Age": [[1], [2], [3], [0]]},
            "\"'age'. The features that model_fn is given are ['Age', 'item', 'words']. Did you "
            "mean 'Age'?\"",
        ),
    },
)
