# SPDX-License-Identifier: Apache-2.0
"""Runs a lowered step on PJRT devices. The only file that imports jax."""

import re
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax._src.interpreters import mlir
from jax._src.lib.mlir import ir
from jax._src.lib.mlir.dialects import func
from jax.extend import core
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxlib import _hlo, _jax

_SUM = re.compile(
    r"(?P<shape>= (?P<dtype>\w+)\[[^=\n]*) custom-call\((?P<operand>[^)]*)\), "
    r'custom_call_target="estimator_emb\.cross_replica_sum"'
    r'[^\n]*?backend_config="?(?P<groups>\{\{[\d,{}]*\}\})"?'
)
_COPY = re.compile(r"(= \S+ )copy\(")


def stablehlo(module: bytes, replicas: int):
    options = _hlo.HloPrintOptions()
    options.print_metadata = options.print_large_constants = True
    text = _hlo.XlaComputation(module).get_hlo_module().to_string(options)
    text = _COPY.sub(r"\1reshape(", text)
    if replicas == 1:
        text = _SUM.sub(r"\g<shape> reshape(\g<operand>)", text)
    else:
        text = _with_all_reduce(text)
    alias = re.search(r"input_output_alias=\{(.*?)\}, entry_computation_layout", text)
    pairs = []
    if alias:
        pairs = [
            (int(result or 0), int(parameter))
            for result, parameter in re.findall(r"\{(\d*)\}: \((\d+), \{\}", alias[1])
        ]
    proto = _hlo.hlo_module_from_text(text).as_serialized_hlo_module_proto()
    return _jax.mlir.hlo_to_stablehlo(proto), pairs


def _with_all_reduce(text: str) -> str:
    dtypes = sorted({match["dtype"] for match in _SUM.finditer(text)})
    channels = iter(range(1, 1 + len(_SUM.findall(text))))
    text = _SUM.sub(
        lambda match: (
            f"{match['shape']} all-reduce({match['operand']}), channel_id={next(channels)}, "
            f"use_global_device_ids=true, "
            f"replica_groups={match['groups']}, to_apply=%sum_over_cores_{match['dtype']}"
        ),
        text,
    )
    sums = "".join(
        f"%sum_over_cores_{dtype} (a: {dtype}[], b: {dtype}[]) -> {dtype}[] {{\n"
        f"  %a = {dtype}[] parameter(0)\n  %b = {dtype}[] parameter(1)\n"
        f"  ROOT %sum = {dtype}[] add(%a, %b)\n}}\n\n"
        for dtype in dtypes
    )
    entry = text.index("\nENTRY ") + 1
    return text[:entry] + sums + text[entry:]


_step = core.Primitive("estimator_emb_step")
_step.multiple_results = True


@_step.def_abstract_eval
def _(*operands, code, avals):
    return list(avals)


def _lower(ctx, *operands, code, avals):
    module = ir.Module.parse(code, context=ctx.module_context.context.context
                             if hasattr(ctx.module_context.context, "context")
                             else ctx.module_context.context)
    entry = next(op for op in module.body.operations if op.name.value == "main")
    name = mlir.merge_mlir_modules(ctx.module_context.module, "estimator_emb_step", module)
    types = list(entry.type.results)
    call = func.CallOp(types, ir.FlatSymbolRefAttr.get(name), operands)
    return call.results


mlir.register_lowering(_step, _lower)


class DeviceProgram:
    """A step on `count` devices, with its variables there."""

    def __init__(self, module: bytes, count: int, arguments: int, platform: str | None = None):
        devices = jax.devices(platform)
        if len(devices) < count:
            raise ValueError(f"{count} devices asked, {len(devices)} there")
        self.devices = devices[:count]
        self._mesh = Mesh(np.array(self.devices), ("core",))
        self._of_each = NamedSharding(self._mesh, PartitionSpec("core"))
        self._same = NamedSharding(self._mesh, PartitionSpec())
        code, aliases = stablehlo(module, count)
        self._arguments = arguments
        with mlir.make_ir_context():
            main = ir.Module.parse(code)
            entry = next(op for op in main.body.operations if op.name.value == "main")
            results = [_aval(one) for one in entry.type.results]
            parameters = len(entry.type.inputs)
        self.written = [parameter - arguments for _, parameter in aliases]
        self._new = [result for result, _ in aliases]
        self._results = [i for i in range(len(results)) if i not in self._new]
        self._count = count
        variables = parameters - arguments
        each, same = PartitionSpec("core"), PartitionSpec()

        def step(variables, arguments):
            made = _step.bind(
                *(one[0] for one in arguments), *variables, code=code, avals=tuple(results)
            )
            changed = list(variables)
            for index, result in zip(self.written, self._new, strict=True):
                changed[index] = made[result]
            return changed, [made[i][None] for i in self._results]

        mapped = jax.shard_map(
            step,
            mesh=self._mesh,
            in_specs=([same] * variables, [each] * arguments),
            out_specs=([same] * variables, [each] * len(self._results)),
            check_vma=False,
        )
        self._jit = jax.jit(mapped, donate_argnums=0)
        self._variables: list[Any] = []

    def load(self, *values: np.ndarray) -> None:
        with jax.enable_x64(True):
            self._variables = [jax.device_put(one, self._same) for one in values]

    def run(self, of_cores: Sequence[Sequence[np.ndarray]]) -> list[list[np.ndarray]]:
        """Runs a step; `of_cores` has each argument of each core. Returns each result of each core."""
        with jax.enable_x64(True):
            arguments = [self._put(values) for values in of_cores]
            self._variables, results = self._jit(self._variables, arguments)
            return [
                [np.asarray(shard.data)[0] for shard in _in_order(one, self.devices)]
                for one in results
            ]

    def fetch(self, indices: Sequence[int]) -> list[np.ndarray]:
        return [np.asarray(self._variables[index]) for index in indices]

    def _put(self, values):
        parts = [
            jax.device_put(np.asarray(value)[None], device)
            for value, device in zip(values, self.devices, strict=True)
        ]
        shape = (self._count, *parts[0].shape[1:])
        return jax.make_array_from_single_device_arrays(shape, self._of_each, parts)


def _in_order(array, devices):
    shards = {shard.device: shard for shard in array.addressable_shards}
    return [shards[device] for device in devices]


def _aval(kind):
    shaped = ir.RankedTensorType(kind)
    return jax.core.ShapedArray(tuple(shaped.shape), mlir.ir_type_to_dtype(shaped.element_type)
                                if hasattr(mlir, "ir_type_to_dtype") else _dtype(str(shaped.element_type)))


def _dtype(name):
    import ml_dtypes
    names = {"f32": np.float32, "f64": np.float64, "f16": np.float16, "bf16": ml_dtypes.bfloat16,
             "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64,
             "ui8": np.uint8, "ui16": np.uint16, "ui32": np.uint32, "ui64": np.uint64}
    return np.dtype(names[name])
