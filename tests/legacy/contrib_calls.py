"""Calls functions and classes of `tf.contrib`, as tests/data/contrib_calls.txt lists them.

TensorFlow 1.15.5 writes the expected results, in a Python 3.7 with protobuf below 3.21:

    python3.7 tests/legacy/contrib_calls.py > tests/data/contrib_calls.json

A line is an expression, perhaps after statements. Its section is the module C of tf.contrib.
"""

import importlib
import inspect
import json
import logging
import operator
import os
import re
import signal
import sys
import tempfile
import warnings
import zlib

import numpy as np

FOLDER = os.path.join(os.path.dirname(os.path.abspath(__file__)), os.pardir, "data")


def lines():
    """Yields each pair of a module of tf.contrib and a line for it."""
    module = None
    with open(os.path.join(FOLDER, "contrib_calls.txt")) as file:
        for line in file.read().splitlines():
            if re.match(r"\[[\w.]+\]$", line):
                module = line.strip("[]")
            elif line and not line.startswith("#"):
                yield module, line


def a(*shape):
    """Returns different floats."""
    return np.sin(np.arange(np.prod(shape, dtype=int)) + 1).reshape(shape).astype(np.float32)


def i(*shape, below=3):
    """Returns integers from 0 to below - 1."""
    return (np.arange(np.prod(shape, dtype=int)) * 7 % 11 % below).reshape(shape)


class Steps:
    """An op to run three times before the values."""

    def __init__(self, op, *values):
        self.op, self.values = op, values


def described(value):
    """Returns a value as JSON has it."""
    if isinstance(value, bytes):
        return value.decode("latin1")
    if isinstance(value, (bool, int, str, type(None))):
        return value
    if isinstance(value, dict):
        return {str(key): described(value[key]) for key in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [described(one) for one in value]
    array = np.asarray(value)
    if array.dtype.kind not in "bfiu":
        return [described(one) for one in array.ravel().tolist()]
    numbers = array.astype(float).ravel()
    weighted = float(np.sum(numbers * np.cos(np.arange(numbers.size))))
    return [str(array.dtype), list(array.shape), [float(one) for one in numbers[:6]], weighted]


def names_of(tf):
    """Returns what lines can use, but for C."""

    def x(*shape):
        return tf.constant(a(*shape))

    def minimized(optimizer, **more):
        w = tf.get_variable("w", initializer=a(4, 2))
        v = tf.get_variable("v", initializer=a(6, 2))
        loss = tf.reduce_sum(w * w * a(4, 2)) + tf.reduce_sum(tf.gather(v, [4, 1]) ** 2)
        step = tf.train.get_or_create_global_step()
        return Steps(optimizer.minimize(loss, step, **more), w, v, step)

    def fitted(estimator, input_fn):
        train = estimator.fit if hasattr(estimator, "fit") else estimator.train
        train(input_fn=input_fn, steps=3)
        metrics = estimator.evaluate(input_fn=input_fn, steps=1)
        return sorted(metrics), sorted(estimator.get_variable_names())

    def run(cell, size=3, times=4):
        return tf.nn.dynamic_rnn(cell, x(2, times, size), dtype=tf.float32, sequence_length=[4, 2])

    def table(lookup, *keys):
        return lookup.lookup(tf.constant(keys)), lookup.size()

    def sparse(*values):
        return tf.contrib.layers.dense_to_sparse(tf.constant(values), "")

    def built(function, scope, size, **more):
        """Returns the shape of a network's output, and what its variables are."""
        with tf.Graph().as_default(), tf.contrib.framework.arg_scope(scope):
            output, _ = function(tf.zeros([1, size, size, 3]), **more)
            variables = [(one.op.name, one.shape.as_list()) for one in tf.global_variables()]
            shape = output.shape.as_list()
        return shape, len(variables), zlib.crc32(repr(sorted(variables)).encode())

    def raised(function):
        try:
            return function()
        except Exception as error:
            return type(error)

    def hparams(contrib, use):
        """Returns the result or error of a use of HParams, and the values after it."""
        h = contrib.HParams(rate=0.1, steps=3, layers=[1, 2], on=True, name="x", nothing=None)
        h.add_hparam("dotted.name", 1)
        try:
            result = use(h)
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        return repr(result), repr(sorted(h.values().items()))

    def signature(function):
        """Returns names and defaults of a function's arguments."""
        return [
            [parameter.name, repr(parameter.default), parameter.kind == parameter.VAR_KEYWORD]
            for parameter in inspect.signature(function).parameters.values()
        ]

    def derived(*bases, **members):
        return type("Derived", bases, members)

    def xy():
        return {"x": x(6, 1), "w": tf.constant([["a"], ["b"]] * 3)}, tf.constant([[0], [1]] * 3)

    names = {"t": tf.constant, "F": tf.float32, "cells": tf.nn.rnn_cell, "shape": tf.shape}
    names.update(a=a, i=i, Steps=Steps, temp=tempfile.mkdtemp, lines=written, np=np, os=os, tf=tf)
    names.update(x=x, minimized=minimized, fitted=fitted, run=run, table=table, sparse=sparse)
    names.update(xy=xy, built=built, derived=derived, raised=raised)
    names.update(hparams=hparams, signature=signature)
    return names


def written(*texts):
    path = os.path.join(tempfile.mkdtemp(), "lines")
    with open(path, "w") as file:
        file.write("\n".join(texts) + "\n")
    return path


def evaluated(tf, result):
    """Returns the values of a result after initializers, with the variables' names."""
    op = result.op if isinstance(result, Steps) else None
    result = result.values if op is not None else result
    with tf.Session() as session:
        session.run([tf.global_variables_initializer(), tf.local_variables_initializer()])
        session.run(tf.tables_initializer())
        for number, variable in enumerate(tf.trainable_variables()):
            if op is None and variable.dtype.base_dtype.is_floating:
                values = np.sin(number + a(*variable.shape.as_list()))
                variable.load(values.astype(variable.dtype.as_numpy_dtype), session)
        coordinator = tf.train.Coordinator()
        tf.train.start_queue_runners(session, coordinator)
        for _ in range(3 if op is not None else 0):
            session.run(op)
        result = fetched(tf, session, result)
        coordinator.request_stop()
        names = sorted(variable.op.name for variable in tf.global_variables())
    return [described(result), names]


def fetched(tf, session, result):
    """Returns a structure with the values of its tensors. Each update runs once more."""
    if isinstance(result, dict):
        return {key: fetched(tf, session, value) for key, value in result.items()}
    if isinstance(result, (list, tuple)) and not hasattr(result, "dense_shape"):
        return [fetched(tf, session, value) for value in result]
    is_variable = hasattr(result, "read_value")
    if is_variable or isinstance(result, (tf.Tensor, tf.SparseTensor, tf.Operation)):
        return session.run(result)
    if isinstance(result, (bool, int, float, str, bytes, np.ndarray, np.generic, type(None))):
        return result
    return result.__name__ if isinstance(result, type) else type(result).__name__


def module_of(tf, path):
    """Returns a module of tf.contrib. Some, like slim.nets, are imported by their name only."""
    try:
        return operator.attrgetter(path)(tf.contrib)
    except AttributeError:
        return importlib.import_module("tensorflow.contrib." + path)


def called(tf, module, line):
    """Returns the results of a line, or its error."""
    with tf.Graph().as_default():
        names = {**names_of(tf), "C": module_of(tf, module)}
        *statements, last = re.split(r"; ", line)
        try:
            for statement in statements:
                exec(statement, names)
            return evaluated(tf, eval(last, names))
        except Exception as error:
            return [f"{type(error).__name__}: {error}"]


def same(actual, expected, where, tolerance):
    """Asserts that results are equal, and floats up to rounding."""
    if isinstance(expected, dict):
        assert sorted(actual) == sorted(expected), where
        for key, value in expected.items():
            same(actual[key], value, where, tolerance)
    elif isinstance(expected, list):
        assert len(actual) == len(expected), (where, actual, expected)
        for one, other in zip(actual, expected):  # noqa: B905
            same(one, other, where, tolerance)
    elif isinstance(expected, float):
        np.testing.assert_allclose(actual, expected, 3 * tolerance, tolerance, err_msg=where)
    else:
        assert actual == expected, (where, actual, expected)


def main(wanted=None):
    warnings.simplefilter("ignore")
    import tensorflow as tf

    tf.logging.set_verbosity(tf.logging.FATAL)
    logging.getLogger().setLevel(logging.CRITICAL)
    results = {}
    for module, line in lines():
        if not wanted or module in wanted:
            signal.alarm(120)  # An endless prediction, for example, ends the process.
            results[f"{module}: {line}"] = called(tf, module, line)
    return results


if __name__ == "__main__":
    said = main(sys.argv[1:])
    print(json.dumps(said, indent=0, sort_keys=True))
