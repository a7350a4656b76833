"""Makes the writes of a step wait until its batch was found good.

A step that ends in an error of the ids would otherwise write the global step, and a dense variable
whose gradient needs no lookup. Only the writes get an edge from the check; everything else runs as
it did.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.engine.ordering import accesses, structure


def wait(targets: Iterable[Any], checked: tf.Tensor, ahead: tf.Operation | None = None) -> None:
    """Makes every write of a variable among the fetched `targets` wait for `checked`.

    Writes that lead to `ahead` do not wait, and neither do initializers, which a step may run again
    to reset variables.
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
            # In a loop of TensorFlow 1's kind, only the head can wait for an op outside.
            for head in places.enters[loops[:1]] if loops else [write]:
                if head not in check and checked.op not in head.control_inputs:
                    head._add_control_inputs([checked.op])
