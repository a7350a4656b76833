# SPDX-License-Identifier: Apache-2.0
"""A program's input_fn, wrapped for where it runs; a wrapper takes the arguments that it takes."""

from collections.abc import Callable
from typing import Any

from estimator_emb.backends.host_context import HostContext
from estimator_emb.backends.tpu import system
from estimator_emb.checks.program_checks import takes
from estimator_emb.compat.internals.graphs import fn_args
from estimator_emb.compat.internals.tpu_estimator import add_item_to_params
from estimator_emb.spec import Table
from estimator_emb.step import transfer

InputFn = Callable[..., Any]


def with_context(input_fn: InputFn) -> InputFn:
    """Returns an input_fn for the host, whose `params` have a 'context'."""

    def wrapped(**kwargs: Any) -> Any:
        if "params" in kwargs:
            context = HostContext(call_from_input_fn=True)
            add_item_to_params(kwargs["params"], "context", context)
        return input_fn(**kwargs)

    return takes(wrapped, fn_args(input_fn))


def with_one_more(input_fn: InputFn, batches: int) -> InputFn:
    """Returns an input_fn whose dataset ends some batches later; see `transfer.with_one_more`."""

    def wrapped(**kwargs: Any) -> Any:
        return transfer.with_one_more(input_fn(**kwargs), batches)

    return takes(wrapped, fn_args(input_fn))


def for_hardware(input_fn: InputFn, tables: list[Table]) -> InputFn:
    """Returns an input_fn with ids in the forms that are sent to a TPU's embedding hardware."""

    def wrapped(**kwargs: Any) -> Any:
        return system.as_hardware_reads(input_fn(**kwargs), tables)

    return takes(wrapped, fn_args(input_fn))
