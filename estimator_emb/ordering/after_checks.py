# SPDX-License-Identifier: Apache-2.0
"""The variables that a step writes wait until its batch was found good.

A dense variable whose gradient needs no lookup, and the global step, would otherwise be written in
a step that ends in an error of the ids. The edges go from the check to the writes alone: all that
is computed runs as it did.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.ordering import accesses, structure


def wait(targets: Iterable[Any], checked: tf.Tensor) -> None:
    """Makes every write of a variable that `targets` run wait for `checked`.

    Args:
      targets: tensors and operations of one step, and None.
      checked: what cannot be computed where the batch is bad.
    """
    before: dict[tf.Operation, Sequence[tf.Operation]] = {}
    ops = [one if isinstance(one, tf.Operation) else one.op for one in targets if one is not None]
    step = structure.leading_to(ops, before)
    of_check = structure.leading_to([checked.op], before)
    places = structure.Places(step, before)
    for variable in accesses.variables_of(tf.compat.v1.get_default_graph()):
        for write in variable.writes:
            if write not in step:
                continue
            loops = places.of_inputs(write).loops
            # Nothing in a loop of TensorFlow 1's kind can wait for what is outside, but its head.
            for head in places.enters[loops[:1]] if loops else [write]:
                if head not in of_check and checked.op not in head.control_inputs:
                    head._add_control_inputs([checked.op])
