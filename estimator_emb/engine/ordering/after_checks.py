"""Makes the writes of a step wait until its batch has passed its checks.

Otherwise a step with bad ids would still write the global step, and any dense variable with a
gradient that needs no lookup. Control edges from the checks lead only to writes. All other ops run
as before.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import accesses, structure


def wait(targets: Iterable[Any], checked: tf.Tensor, ahead: tf.Operation | None = None) -> None:
    """Makes all variable writes among the fetched `targets` wait for `checked`.

    Writes that lead to `ahead` do not wait. Initializers do not wait either, because a step may run
    them again to reset variables.
    """
    before: dict[tf.Operation, Sequence[tf.Operation]] = {}
    ops = [getattr(target, "op", target) for target in targets if target is not None]
    step = structure.leading_to(ops, before)
    free = {*structure.leading_to([ahead] if ahead is not None else [], before)}
    free |= accesses.initial_writes()
    check = structure.leading_to([checked.op], before)
    places = structure.OpPlaces(step, before)
    for variable in accesses.variables_of(tf.compat.v1.get_default_graph()):
        for write in variable.writes:
            if write not in step or write in free:
                continue
            loops = places.input_place(write).loops
            # In a TensorFlow 1 loop, only the entry of the loop can wait for an op outside.
            for head in places.enters[loops[:1]] if loops else [write]:
                if head not in check and checked.op not in head.control_inputs:
                    head._add_control_inputs([checked.op])
