# SPDX-License-Identifier: Apache-2.0
"""Tells which programs keep their names of `tf.estimator`: those that never had a TPU."""

import re

from estimator_emb.cli.migration import names
from estimator_emb.cli.migration.program import Program

_KEPT = re.compile(r"tf(\.compat\.v1)?\.estimator(?!\.tpu\b)\b")
"""Names that `estimator_emb.install()` brings back, as TensorFlow spells them."""

_MAKES_AN_ESTIMATOR = re.compile(
    r"tf(\.compat\.v1)?(\.estimator(\.experimental)?\.(\w*(Estimator|Classifier|Regressor)|KMeans"
    r"|LinearSDCA)|\.keras\.estimator\.model_to_estimator)"
)


def keeps_names(program: Program, is_installed: bool) -> bool:
    """Returns whether a program makes estimators, and has no legacy names but `tf.estimator`'s.

    None that means TensorFlow 1 does, nor one that imports estimator_emb without `install`.
    """
    paths = {use.whole: names.canonical(next(iter(use.paths))) for use in program.uses}
    if not any(_MAKES_AN_ESTIMATOR.fullmatch(paths.get(call.func, "")) for call in program.calls):
        return False
    said = {binding.imported for binding in program.bindings}
    said.update(path for use in program.uses for path in use.paths)
    imports_ours = any(path.partition(".")[0] == names.OURS for path in said)
    if program.means_v1 or (imports_ours and not is_installed):
        return False
    legacy = {path: found[0] for path in said if (found := program.look_up(path)) is not None}
    if any(program.look_up(module) for _, module in program.stars) or any(
        not (legacy.keys().isdisjoint(use.paths) or program.is_read(use.whole))
        for use in program.uses
    ):
        return False
    return all(
        _KEPT.match(names.canonical(path)) and not isinstance(meaning, names.Advice)
        for path, meaning in legacy.items()
    )
