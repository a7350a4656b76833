"""Pairs variables of two sides that have different names."""

import dataclasses
import fnmatch
import re
from collections.abc import Mapping, Sequence

RULES = {
    "part": "legacy TPU names end in /part_0, CPU names do not",
    "slot": (
        "the slots of a table have the names of a TPU, such as <table>/Adam/m, and optimizers of "
        "tf.compat.v1.train use <table>/Adam and <table>/Adam_1"
    ),
    "beta": (
        "a table's Adam on a TPU corrects no bias, so only tf.compat.v1.train.AdamOptimizer has "
        "beta1_power and beta2_power"
    ),
}
"""Name of a rule -> its description."""

_SLOTS = {
    "Adam/m": "Adam",
    "Adam/v": "Adam_1",
    "RMSProp/ms": "RMSProp",
    "RMSProp/mom": "RMSProp_1",
    "Adadelta/accumulators": "Adadelta",
    "Adadelta/updates": "Adadelta_1",
}
"""End of a slot's name on a TPU -> end of its name in tf.compat.v1.train.

Source: `optimizers/*.py`, and the names passed to `tf.compat.v1.train.Optimizer._zeros_slot`.
"""

_BETA = re.compile(r"(^|/)beta[12]_power(_[0-9]+)?$")


@dataclasses.dataclass
class Matching:
    """The pairs (name in A, name in B, rule or ''), and the names without a pair."""

    pairs: list
    only_a: list
    only_b: list
    left_out: list
    ignored: list


def match(
    a: Mapping[str, Sequence[int]], b: Mapping[str, Sequence[int]], ignore: Sequence[str] = ()
) -> Matching:
    """Pairs {name: shape} of two sides by equal names, or by a rule with a single candidate."""
    ignored = {name for name in {*a, *b} if any(fnmatch.fnmatchcase(name, one) for one in ignore)}
    a = {name: tuple(shape) for name, shape in a.items() if name not in ignored}
    b = {name: tuple(shape) for name, shape in b.items() if name not in ignored}
    pairs = [(name, name, "") for name in a if name in b]
    rest_a, rest_b = sorted(a.keys() - b.keys()), sorted(b.keys() - a.keys())
    for name in list(rest_a):
        fitting = [
            (other, rule)
            for other in rest_b
            if a[name] == b[other] and (rule := _rule(name, other)) is not None
        ]
        if len(fitting) == 1:
            other, rule = fitting[0]
            pairs.append((name, other, rule))
            rest_a.remove(name)
            rest_b.remove(other)
    left_out = []
    if any("slot" in rule and "/Adam" in one for one, _, rule in pairs):
        left_out = [name for name in (*rest_a, *rest_b) if _BETA.search(name)]
        rest_a, rest_b = (
            [name for name in rest if name not in left_out] for rest in (rest_a, rest_b)
        )
    return Matching(sorted(pairs), rest_a, rest_b, sorted(left_out), sorted(ignored))


def _rule(a: str, b: str) -> str | None:
    """Returns the rules that make two names match, joined by '+'. None means no match."""
    plain_a, plain_b = _without_part(a), _without_part(b)
    rules = ["part"] if (plain_a != a) != (plain_b != b) else []
    if plain_a == plain_b:
        return "+".join(rules)
    for ours, theirs in ((plain_a, plain_b), (plain_b, plain_a)):
        for slot, legacy in _SLOTS.items():
            table = ours.removesuffix(f"/{slot}")
            if table != ours and theirs == f"{table}/{legacy}":
                return "+".join([*rules, "slot"])
    return None


def _without_part(name: str) -> str:
    return "/".join(part for part in name.split("/") if part != "part_0")
