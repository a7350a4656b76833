# SPDX-License-Identifier: Apache-2.0
"""Writes sparsecore_calls.json: how jax-tpu-embedding calls SparseCore, to compare ours with.

Run it with an interpreter that has jax and jax-tpu-embedding, whose modules of primitives need
nothing else:

    python tests/data/make_sparsecore_calls.py
"""

import importlib.metadata
import inspect
import json
import pathlib
import re

import jax
import jax.numpy as jnp
from jax_tpu_embedding.sparsecore.lib.core.primitives import sparse_dense_matmul_csr as lookup
from jax_tpu_embedding.sparsecore.lib.core.primitives import (
    sparse_dense_matmul_grad_with_adam as adam,
)

LIMITS = {"max_ids_per_partition": 7, "max_unique_ids_per_partition": 5}
IDS = [
    jax.ShapeDtypeStruct(shape, kind)
    for shape, kind in [((512,), jnp.int32)]
    + 2 * [((4096,), jnp.int32)]
    + [((4096,), jnp.float32), ((), jnp.int32)]
]
TABLE = jax.ShapeDtypeStruct((1024, 8), jnp.float32)
GRADIENT = jax.ShapeDtypeStruct((256, 8), jnp.float32)
NUMBER = jax.ShapeDtypeStruct((), jnp.float32)


def described(primitive, lowering, arguments, **parameters):
    """The call of a primitive: its target, its operands by name, its configuration."""

    def call(*values):
        return primitive.bind(*values, enable_minibatching=True, **LIMITS, **parameters)

    text = jax.jit(call).trace(*arguments).lower(lowering_platforms=("tpu",)).as_text()
    names = list(inspect.signature(lowering).parameters)[1:]
    target, operands, config = re.search(
        r'custom_call @(\w+)\(([^)]*)\) \{backend_config = "(.*?)"[,}]', text
    ).groups()
    rule = re.search(r"func.func private @\w+\(.*?\n  \}", text, re.DOTALL)
    return {
        "target": target,
        "operands": [
            names[int(operand[4:])] if operand.startswith("%arg") else "computed"
            for operand in operands.split(", ")
        ],
        "backend_config": json.loads(config.replace("\\22", '"')),
        "rule": rule[0] if rule else "",
    }


result = {
    "versions": {name: importlib.metadata.version(name) for name in ("jax", "jax-tpu-embedding")},
    "lookup": described(
        lookup.tpu_sparse_dense_matmul_csr_primitive,
        lookup._tpu_sparse_dense_matmul_csr_lowering,
        [*IDS, TABLE],
        device_batch_size=256,
    ),
    "adam": described(
        adam.tpu_sparse_dense_matmul_grad_with_adam_primitive,
        adam._tpu_sparse_dense_matmul_grad_with_adam_lowering,
        [*IDS, TABLE, TABLE, TABLE, GRADIENT, NUMBER, NUMBER, NUMBER, NUMBER],
    ),
}
file = pathlib.Path(__file__).with_name("sparsecore_calls.json")
file.write_text(json.dumps(result, indent=1) + "\n")
