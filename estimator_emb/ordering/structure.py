# SPDX-License-Identifier: Apache-2.0
"""The ops that a session call runs: what each waits for, and in which loop or branch it stands."""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence

import tensorflow as tf

Ops = dict[tf.Operation, None]
"""A set that keeps its order."""

_FRAME = "frame_name"
_MERGES = frozenset(("Merge", "RefMerge"))
_BACKS = frozenset(("NextIteration", "RefNextIteration"))
_ENTERS = frozenset(("Enter", "RefEnter"))
_SWITCHES = frozenset(("Switch", "RefSwitch"))
_EXITS = frozenset(("Exit", "RefExit"))


def leading_to(
    roots: Iterable[tf.Operation], before: dict[tf.Operation, Sequence[tf.Operation]]
) -> Ops:
    """Finds the ops that a session runs for `roots`, each after those that it waits for.

    Args:
      roots: what is fetched.
      before: filled with what each of them waits for; the way back of a loop is left out.
    """
    done: Ops = {}
    waiting = [(root, False) for root in roots]
    begun = set()
    while waiting:
        op, ready = waiting.pop()
        if ready:
            done[op] = None
            continue
        if op in begun:
            continue
        begun.add(op)
        if op not in before:
            before[op] = before_of(op)
        waiting.append((op, True))
        waiting += [(one, False) for one in before[op] if one not in begun]
    return _with_loops(done, before)


def _with_loops(done: Ops, before: dict[tf.Operation, Sequence[tf.Operation]]) -> Ops:
    """Returns `done`, and what only the way back of its loops leads to."""
    backs = [
        tensor.op
        for op in done
        if op.type in ("Merge", "RefMerge")
        for tensor in op.inputs
        if tensor.op.type in ("NextIteration", "RefNextIteration") and tensor.op not in done
    ]
    return leading_to([*done, *backs], before) if backs else done


def before_of(op: tf.Operation) -> list[tf.Operation]:
    """Returns what an op waits for, but the way back of a loop; for what leaves one, its steps."""
    inputs = [tensor.op for tensor in op.inputs]
    if op.type in _MERGES:
        inputs = [one for one in inputs if one.type not in _BACKS]
    elif op.type in _EXITS:
        inputs += _steps_before(op)
    return inputs + op.control_inputs


def _steps_before(leaving: tf.Operation) -> list[tf.Operation]:
    """Returns the ends of a loop's steps that an op which leaves the loop waits for."""
    condition = leaving.inputs[0].op.inputs[1]
    merges = [one.inputs[0].op for one in condition.consumers() if one.type in _SWITCHES]
    frames = {
        tensor.op.get_attr(_FRAME)
        for merge in merges
        for tensor in merge.inputs
        if tensor.op.type in _ENTERS
    }
    backs: Ops = {}
    seen, waiting = {leaving}, [leaving]
    while waiting:
        op = waiting.pop()
        for one in (*(tensor.op for tensor in op.inputs), *op.control_inputs):
            if one.type in _BACKS and op in merges:
                backs[one] = None
            # What a loop takes from outside was there before it.
            if one not in seen and not (one.type in _ENTERS and one.get_attr(_FRAME) in frames):
                seen.add(one)
                waiting.append(one)
    return list(backs)


@dataclasses.dataclass(frozen=True)
class Place:
    """Where an op stands among loops and branches of TensorFlow 1's kind.

    Attributes:
      loops: names of the loops around it, the outermost first.
      branches: what must hold for it to run: names of conditions, each with the branch taken.
    """

    loops: tuple[bytes, ...] = ()
    branches: frozenset[tuple[str, int]] = frozenset()

    def can_precede(self, later: "Place") -> bool:
        """Whether an op there can be waited for: it runs whenever the later one does."""
        return self.loops == later.loops and self.branches <= later.branches


TOP = Place()


class Places:
    """The places of ops, told from the graph alone: copies of loops have no Python context.

    Args:
      ops: in an order in which each comes after those that it waits for.
      before: what each waits for.
    """

    def __init__(self, ops: Ops, before: Mapping[tf.Operation, Sequence[tf.Operation]]):
        self._inside: dict[tf.Operation, Place] = {}
        self._outside: dict[tf.Operation, Place] = {}
        self.enters: dict[tuple[bytes, ...], list[tf.Operation]] = {}
        if any(op.type in ("Switch", "RefSwitch", "Enter", "RefEnter") for op in ops):
            for op in ops:
                self._find(op, before[op])

    def of_inputs(self, op: tf.Operation) -> Place:
        """Returns where an op waits for its inputs."""
        return self._inside.get(op, TOP)

    def of_outputs(self, op: tf.Operation) -> Place:
        """Returns where what an op computes is."""
        return self._outside.get(op, TOP)

    def _find(self, op: tf.Operation, before: Sequence[tf.Operation]) -> None:
        if op.type in _EXITS:
            before = [one for one in before if one.type not in _BACKS]
        found = [place for one in before if (place := self._outside.get(one))]
        if any(one.type in ("Switch", "RefSwitch") for one in before):
            found += [self._taken(tensor) for tensor in op.inputs if tensor.op in self._outside]
        if not found and op.type not in ("Switch", "RefSwitch", "Enter", "RefEnter"):
            return
        loops = max((place.loops for place in found), key=len, default=())
        of_branches = [place.branches for place in found]
        if op.type in ("Merge", "RefMerge"):
            taken = [self._taken(t).branches for t in op.inputs if t.op in before]
            branches = frozenset.intersection(*taken) if taken else frozenset()
        else:
            branches = frozenset().union(*of_branches)
        inside = outside = Place(loops, branches)
        if op.type in ("Enter", "RefEnter"):
            outside = Place((*loops, op.get_attr(_FRAME)), branches)
            self.enters.setdefault(outside.loops, []).append(op)
        elif op.type in ("Exit", "RefExit"):
            outside = Place(loops[:-1], branches)
        self._inside[op], self._outside[op] = inside, outside

    def _taken(self, tensor: tf.Tensor) -> Place:
        """Returns where a tensor is: one of a Switch, in the branch that it stands for."""
        place = self._outside.get(tensor.op, TOP)
        if tensor.op.type not in ("Switch", "RefSwitch"):
            return place
        condition = tensor.op.inputs[1]
        if condition.op.type == "LoopCond":
            return place
        taken = condition.name, tensor.value_index
        return Place(place.loops, place.branches | {taken})
