# SPDX-License-Identifier: Apache-2.0
"""Gives private modules of TensorFlow back what has moved out of them since TensorFlow 1.

Programs of that time, and the package tf_slim, write `ops.Tensor` or `control_flow_ops.cond`.
"""

from __future__ import annotations

import importlib
from typing import Any

import tensorflow as tf

from estimator_emb.compat.changes import AliasFinder, Changes

_tf1 = tf.compat.v1

_MOVED: dict[str, dict[str, Any]] = {
    "framework.ops": {
        "IndexedSlices": tf.IndexedSlices,
        "Tensor": tf.Tensor,
        "convert_to_tensor_or_indexed_slices": _tf1.convert_to_tensor_or_indexed_slices,
        "register_tensor_conversion_function": tf.register_tensor_conversion_function,
    },
    "ops.array_ops": {"stack": tf.stack, "unstack": tf.unstack},
    "ops.control_flow_ops": {
        "Assert": _tf1.Assert,
        "case": _tf1.case,
        "cond": _tf1.cond,
        "switch_case": tf.switch_case,
        "while_loop": _tf1.while_loop,
    },
    "ops.nn": {
        name: getattr(_tf1.nn, name)
        for name in (
            "bidirectional_dynamic_rnn",
            "dynamic_rnn",
            "raw_rnn",
            "static_rnn",
            "static_state_saving_rnn",
        )
    },
    "ops.variable_scope": {
        "disable_resource_variables": _tf1.disable_resource_variables,
        "enable_resource_variables": _tf1.enable_resource_variables,
        "resource_variables_enabled": _tf1.resource_variables_enabled,
        "variable": _tf1.Variable,
    },
    "ops.variables": {
        "VariableV1": _tf1.Variable,
        "is_variable_initialized": _tf1.is_variable_initialized,
    },
}
"""Module below tensorflow.python -> names that it had in TensorFlow 1.15 -> what they are."""

_RENAMED = {"tf_keras.legacy_tf_layers": "tf_keras.src.legacy_tf_layers"}
"""Module that TensorFlow itself imports by a name that tf-keras no longer has -> its name."""


def supply(changes: Changes) -> None:
    """Adds the names that are absent, by changes that can be undone."""
    for module_name, names in _MOVED.items():
        module = importlib.import_module(f"tensorflow.python.{module_name}")
        for name, value in names.items():
            if not hasattr(module, name):
                changes.set_attribute(module, name, value)
    changes.add_finder(AliasFinder(_RENAMED))
