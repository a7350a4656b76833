"""Finds the ops that a session call runs, the ops they wait for, and their loops and branches."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

import tensorflow as tf

Ops = dict[tf.Operation, None]
"""An ordered set of ops."""

_FRAME = "frame_name"
_MERGES = frozenset(("Merge", "RefMerge"))
_BACKS = frozenset(("NextIteration", "RefNextIteration"))
_ENTERS = frozenset(("Enter", "RefEnter"))
_SWITCHES = frozenset(("Switch", "RefSwitch"))
_EXITS = frozenset(("Exit", "RefExit"))


def reached(
    roots: Iterable[tf.Operation], before: Callable[[tf.Operation], Iterable[tf.Operation]]
) -> Ops:
    """Returns `roots` and all ops that `before` leads to, in any order."""
    found: Ops = {}
    waiting = list(roots)
    while waiting:
        op = waiting.pop()
        if op not in found:
            found[op] = None
            waiting += before(op)
    return found


def leading_to(
    roots: Iterable[tf.Operation], before: dict[tf.Operation, Sequence[tf.Operation]]
) -> Ops:
    """Returns the ops that a session runs for `roots`, in order. Adds their waits to `before`."""
    done: Ops = {}
    waiting = [(root, False) for root in roots]
    begun = set()
    while waiting:
        op, ready = waiting.pop()
        if ready:
            done[op] = None
        elif op not in begun:
            begun.add(op)
            if op not in before:
                before[op] = before_of(op)
            waiting.append((op, True))
            waiting += [(previous, False) for previous in before[op] if previous not in begun]
    # Adds the ops that only the back edges of loops need.
    backs = [
        tensor.op
        for op in done
        if op.type in _MERGES
        for tensor in op.inputs
        if tensor.op.type in _BACKS and tensor.op not in done
    ]
    return leading_to([*done, *backs], before) if backs else done


def before_of(op: tf.Operation) -> list[tf.Operation]:
    """Returns the ops that an op waits for, without back edges. Exits wait for the loop's steps."""
    inputs = [tensor.op for tensor in op.inputs]
    if op.type in _MERGES:
        inputs = [previous for previous in inputs if previous.type not in _BACKS]
    elif op.type in _EXITS:
        inputs += _steps_before(op)
    return inputs + op.control_inputs


def _steps_before(leaving: tf.Operation) -> list[tf.Operation]:
    """Returns the last ops of a loop's steps. An op that leaves the loop waits for them."""
    switch = leaving.inputs[0].op
    while switch.type not in _SWITCHES:  # A gradient passes through an Identity.
        switch = switch.inputs[0].op
    condition = switch.inputs[1]
    merges = [user.inputs[0].op for user in condition.consumers() if user.type in _SWITCHES]
    frames = {
        tensor.op.get_attr(_FRAME)
        for merge in merges
        for tensor in merge.inputs
        if tensor.op.type in _ENTERS
    }

    def inside(op: tf.Operation) -> list[tf.Operation]:
        before = [*(tensor.op for tensor in op.inputs), *op.control_inputs]
        # The search ends at the inputs of the loop.
        return [
            one for one in before if one.type not in _ENTERS or one.get_attr(_FRAME) not in frames
        ]

    found = reached([leaving], inside)
    backs = (one for op in found if op in merges for one in inside(op) if one.type in _BACKS)
    return list(dict.fromkeys(backs))


@dataclasses.dataclass(frozen=True)
class Place:
    """The loops around an op, outermost first, and its branches: (condition, branch number)."""

    loops: tuple[bytes, ...] = ()
    branches: frozenset[tuple[str, int]] = frozenset()

    def can_precede(self, later: "Place") -> bool:
        """Returns whether an op here runs whenever an op at `later` does, and so can go first."""
        return self.loops == later.loops and self.branches <= later.branches


TOP = Place()


class OpPlaces:
    """Finds the places of `ops`, in order, from the graph: copied ops have no Python context."""

    def __init__(self, ops: Ops, before: Mapping[tf.Operation, Sequence[tf.Operation]]):
        self._inside: dict[tf.Operation, Place] = {}
        self._outside: dict[tf.Operation, Place] = {}
        self.enters: dict[tuple[bytes, ...], list[tf.Operation]] = {}
        if any(op.type in _SWITCHES | _ENTERS for op in ops):
            for op in ops:
                self._find(op, before[op])

    def input_place(self, op: tf.Operation) -> Place:
        return self._inside.get(op, TOP)

    def output_place(self, op: tf.Operation) -> Place:
        return self._outside.get(op, TOP)

    def _find(self, op: tf.Operation, before: Sequence[tf.Operation]) -> None:
        places = [place for previous in before if (place := self._outside.get(previous))]
        if any(previous.type in _SWITCHES for previous in before):
            places += [self._taken(tensor) for tensor in op.inputs if tensor.op in self._outside]
        if not places and op.type not in _SWITCHES | _ENTERS:
            return
        loops = max((place.loops for place in places), key=len, default=())
        if op.type in _MERGES:
            taken = [self._taken(t).branches for t in op.inputs if t.op in before]
            branches = frozenset.intersection(*taken) if taken else frozenset()
        else:
            branches = frozenset().union(*(place.branches for place in places))
        inside = outside = Place(loops, branches)
        if op.type in _ENTERS:
            outside = Place((*loops, op.get_attr(_FRAME)), branches)
            self.enters.setdefault(outside.loops, []).append(op)
        elif op.type in _EXITS:
            outside = Place(loops[:-1], branches)
        self._inside[op], self._outside[op] = inside, outside

    def _taken(self, tensor: tf.Tensor) -> Place:
        """Returns the place of a tensor. An output of a Switch is in the branch it leads to."""
        place = self._outside.get(tensor.op, TOP)
        if tensor.op.type not in _SWITCHES:
            return place
        condition = tensor.op.inputs[1]
        if condition.op.type == "LoopCond":
            return place
        taken = condition.name, tensor.value_index
        return Place(place.loops, place.branches | {taken})
