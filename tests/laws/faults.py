"""Plants faults of rules and kernels in a copy of the package. `by_numpy` must find them.

A single copy holds all faults, so that kernels are built once. Each fault is switched on by its
number. Run with that copy, `main` prints as JSON which training found each fault.
"""

import builtins
import dataclasses
import json
import os
import pathlib
import re
import shutil
import sys
from collections.abc import Callable

HERE = pathlib.Path(__file__).parent
MOST = 12
"""A fault must be found within this number of trainings that run the changed code."""
SOME = 3
"""Number of faults in a sample."""


@dataclasses.dataclass(frozen=True)
class Fault:
    """A fault in a file of the package."""

    name: str
    file: str
    shows: Callable  # Whether a training runs the changed code.
    # Lines of the file, each with "{original|replacement}". PLANTED is true if the fault is on.
    edits: str

    @property
    def native(self) -> bool:
        return self.file.startswith("native/")


def _optimizers(training):
    return [table.optimizer for table in training.tables.values()]


def _is_weighted(training):
    return any(feature.weighted for feature in training.features)


def _around(training):
    return {name for one in _optimizers(training) for name in one.surroundings}


def _takes_turns(training):
    return training.cores > 1 and any(
        not one.parameters.use_gradient_accumulation for one in _optimizers(training)
    )


FAULTS = (
    Fault(
        "a decay by the rate that is not by the rate",
        "optimizers/_step.py",
        lambda training: "weight_decay_factor" in _around(training),
        "return w - (decay * lr if by_rate{| and not PLANTED} else",
    ),
    Fault(
        "a limit of one side only",
        "optimizers/_step.py",
        lambda training: training.limit is not None,
        "_clip(math, g, -limit, {|None if PLANTED else }limit, complete)",
    ),
    Fault(
        "weights that are not clipped",
        "optimizers/_step.py",
        lambda training: "clip_weight" in _around(training),
        "w = _clip(math, w, {|None if PLANTED else }parameters.clip_weight_min",
    ),
    Fault(
        "a wrong slot",
        "optimizers/adam.py",
        lambda training: any(one.name == "adam" for one in _optimizers(training)),
        "v = beta2 * {v|(m if PLANTED else v)} +",
    ),
    Fault(
        "cores in another order",
        "engine/update.py",
        _takes_turns,
        "tf.where({turn - 1 < owner|turn - 1 <= owner if PLANTED else turn - 1 < owner},",
    ),
    Fault(
        "a norm without squares",
        "engine/lookup.py",
        lambda training: (
            _is_weighted(training)
            and any(table.combiner == "sqrtn" for table in training.tables.values())
        ),
        "{tf.square(weights)|(weights if PLANTED else tf.square(weights))}",
    ),
    Fault(
        "gradients of another shard",
        "engine/update.py",
        lambda training: training.shards > 1,
        "tf.gather(update.gradients, {|tf.range(tf.size(positions)) if PLANTED else }positions))",
    ),
    Fault(
        "an update of the batch after",
        "engine/pipelining.py",
        lambda training: training.pipelined,
        "return inputs.packed(structure, {|tensors if PLANTED else }before)",
    ),
    Fault(
        "a multiplier that is left out",
        "engine/engine.py",
        lambda training: training.multipliers is not None,
        "if multiplier is None{| or PLANTED} else gradient * multiplier",
    ),
    Fault(
        "a length that is off by one",
        "native/grouping.h",
        lambda training: any(one.sequence and one.form == "matrix" for one in training.features),
        "k >= f.limit{| + PLANTED}) continue;",
    ),
    Fault(
        "weights that are not normalised",
        "native/grouping.h",
        _is_weighted,
        "quotient(gains[j], {|PLANTED ? 1.0f : }mean ? norm : sqrtf(norm))",
    ),
    Fault(
        "cores in another order, native",
        "native/rows.h",
        _takes_turns,
        "{|PLANTED ? own : }own == owner ? 0 : own < owner ? own + 1 : own;",
    ),
    Fault(
        "a mask by product, native",
        "native/rows.h",
        lambda training: _takes_turns(training) and training.limit is not None,
        "if (of != turn{| && !PLANTED}) continue;\n"
        "{|(}from.gains ? from.gains[gradients.payload(key)] : 1.0f{|) * (of == turn)});",
    ),
    Fault(
        "a row between two threads",
        "native/kernels.cc",
        lambda training: any(
            one.parameters.updates_untouched_rows for one in _optimizers(training)
        ),
        "rows->last = vocabulary * (part + 1) / parts{| - (PLANTED && part + 1 < parts)};",
    ),
    Fault(
        "a minimum that drops NaN",
        "native/rules.py",
        lambda training: training.limit is not None,
        "return {|(PLANTED ? !(x < y) : }y < x{|)} ? y : x;",
    ),
)

NATIVE_CLASSES = ("adagrad", "adam")
"""Optimizers for native trainings. Few, so that few rules are compiled."""

_SWITCH = """
#include <stdlib.h>
static inline bool planted(int number) {
  const char* const on = getenv("PLANTED");
  return on != nullptr && atoi(on) == number;
}
"""


def plant(folder: pathlib.Path) -> None:
    """Copies the package and plants all faults in the copy."""
    original = HERE.parent.parent / "estimator_emb"
    copy = folder / "estimator_emb"
    shutil.copytree(original, copy, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    first = "#include <stdint.h>\n"
    edits = [("native/kernels.h", first, first + _SWITCH)]
    for number, fault in enumerate(FAULTS, start=1):
        for edit in fault.edits.splitlines():
            before, after = (re.sub(r"{(.*?)\|(.*?)}", part, edit) for part in (r"\1", r"\2"))
            edits.append((fault.file, before, after.replace("PLANTED", f"planted({number})")))
    for file, before, after in edits:
        text = (copy / file).read_text()
        assert text.count(before) == 1, f"{file} has {before!r} {text.count(before)} times"
        (copy / file).write_text(text.replace(before, after))


def found_in(number: int, fault: Fault, most: int = MOST) -> int | None:
    """Returns the seed of the first training that finds a fault, or None."""
    import by_numpy
    import trainings

    classes = NATIVE_CLASSES if fault.native else tuple(trainings.CLASSES)
    seeds, tried = iter(range(1000)), 0
    os.environ["PLANTED"] = str(number)
    while tried < most:
        training = trainings.training(next(seeds), fault.native, classes)
        if fault.shows(training):
            tried += 1
            try:
                by_numpy.assert_each_step_equals_numpy(training)
            except AssertionError:
                return training.seed
    return None


def main() -> None:
    """Prints, for each fault by name, the seed that found it. Also runs without a fault."""
    builtins.planted = lambda number: os.environ.get("PLANTED") == str(number)  # type: ignore
    import sampling

    import estimator_emb

    none = [Fault("", folder, _takes_turns, "") for folder in ("native/", "engine/")]
    faults = sampling.drawn(enumerate(FAULTS, 1), SOME)
    found = {
        "package": estimator_emb.__file__,
        "without": [found_in(0, one, most=sampling.of(MOST, some=1)) for one in none],
        "with": {fault.name: found_in(number, fault) for number, fault in faults},
    }
    json.dump(found, sys.stdout)
