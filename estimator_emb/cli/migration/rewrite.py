# SPDX-License-Identifier: Apache-2.0
"""Rewrites a program: which of its expressions and imports change, and into what.

All is decided on LibCST's tree and scopes, and then written as replacements of parts of the source,
so that everything else stays byte for byte.
"""

from __future__ import annotations

import enum
import warnings
from dataclasses import dataclass, field

import libcst as cst

from estimator_emb.cli.migration import findings, imports, names
from estimator_emb.cli.migration.program import Alias, Binding, Program, Use
from estimator_emb.cli.migration.source import Edits


class Outcome(enum.Enum):
    """What becomes of an expression."""

    KEPT = "kept"
    """It is no legacy name, or its import alone changes."""
    EDITED = "edited"
    LEFT = "left"
    """It is legacy, and a person must change it."""
    ALIASED = "aliased"
    """It is the module that an assignment gives another name."""


@dataclass(frozen=True)
class Rewritten:
    """The result for one program.

    Attributes:
      text: the new source; the old one if nothing changes.
      findings: what a person must decide, by the place in the old source.
      lines: line in the old source -> line in the new one.
    """

    text: str
    findings: list[findings.Finding]
    lines: dict[int, int]


@dataclass(eq=False)
class _Plan:
    """What becomes of the expressions of a program, and of what binds their names."""

    outcomes: dict[Use, Outcome] = field(default_factory=dict)
    targets: dict[Use, tuple[cst.BaseExpression, names.Target]] = field(default_factory=dict)
    removed: set[Alias] = field(default_factory=set)
    needed: set[Binding] = field(default_factory=set)
    """Imports that new expressions use."""
    tf1: dict[Use, str | None] = field(default_factory=dict)
    """What `tensorflow.compat.v1` is called where a new expression needs it; None for an import."""


class CannotRewrite(Exception):
    """An error of this rewrite: its result would not be Python. The program stays as it is."""


def rewrite(text: str, is_package: bool = False) -> Rewritten:
    """Rewrites a program.

    Args:
      text: the source.
      is_package: whether it is an `__init__.py`, whose imports others may use.

    Raises:
      libcst.ParserSyntaxError: the source is not Python.
      CannotRewrite: the result would not be Python.
    """
    if "tensorflow" not in text:  # Most files of a folder; scopes are what takes the time.
        cst.parse_module(text)
        return Rewritten(text, [], {})
    program = Program(text)
    notes = findings.Findings(program)
    plan = _classify(program, notes)
    source = text.encode()
    edits = Edits(source)
    changes = imports.Imports(program, edits, is_package, notes)
    changes.decide(
        {use for use, outcome in plan.outcomes.items() if outcome is Outcome.EDITED},
        {use for use, outcome in plan.outcomes.items() if outcome is Outcome.LEFT},
        plan.needed,
    )
    edited = [node for node, _ in plan.targets.values()]
    changes.new.take_names(edited, [alias.statement for alias in plan.removed])
    for use, (node, target) in plan.targets.items():
        expression = changes.new.expression(target, use, plan.tf1.get(use))
        edits.replace(program.start(node), program.end(node), expression)
    removed = [alias.statement for alias in plan.removed]
    changes.write(removed, has_edits=bool(plan.targets or removed))
    result = edits.apply()
    if result != source:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                compile(result, "", "exec", dont_inherit=True)
        except (SyntaxError, ValueError) as error:
            raise CannotRewrite(str(error)) from error
    notes.about_behaviour(changed=result != source)
    return Rewritten(result.decode(), notes.found(), edits.lines())


def _classify(program: Program, notes: findings.Findings) -> _Plan:
    plan = _Plan()
    values = {alias.value: alias for alias in program.aliases}
    assigned = {
        names.canonical(path)
        for use in program.uses
        if len(use.chain) > 1 and not program.is_read(use.whole)
        for path in use.paths
    }
    for use in program.uses:
        plan.outcomes[use] = _outcome(program, use, plan, values, assigned, notes)
    _decide_aliases(program, plan, values, notes)
    for use, (_, target) in plan.targets.items():
        if target.module == names.TF1:
            plan.tf1[use] = _tf1_name(program, use, plan)
    return plan


def _outcome(
    program: Program,
    use: Use,
    plan: _Plan,
    values: dict[cst.BaseExpression, Alias],
    assigned: set[str],
    notes: findings.Findings,
) -> Outcome:
    found = set()
    for path, root in use.paths.items():
        result = program.look_up(path)
        if result is not None and isinstance(result[0], names.Target) and result[1] <= root:
            result = None  # Its import changes.
        found.add(None if result is None else (result[0], result[1] - root))
    if found == {None}:
        return Outcome.KEPT
    name = program.module.code_for_node(use.whole)
    if len(found) > 1 or not use.is_certain:
        root_name = program.module.code_for_node(use.chain[0])
        said = "" if name == root_name else f"{name}: "
        notes.left(use.whole, f"{said}{root_name} may be bound to something else as well.")
        return Outcome.LEFT
    ((meaning, index),) = found  # type: ignore[misc]
    if isinstance(meaning, names.Advice):
        if index > 0:
            notes.left(use.whole, meaning.text)
        return Outcome.LEFT if index > 0 else Outcome.KEPT
    if isinstance(meaning, names.Namespace):
        return _outcome_of_module(program, use, meaning, values, notes)
    node = use.chain[index]
    path = ".".join(next(iter(use.paths)).split(".")[: index + next(iter(use.paths.values()))])
    is_assigned = names.canonical(path) in assigned
    if is_assigned or "#" in program.module.code_for_node(node):
        why = "is assigned in this program" if is_assigned else "has a comment inside"
        notes.left(use.whole, f"{names.canonical(path)} {why}.")
        return Outcome.LEFT
    plan.targets[use] = node, meaning
    return Outcome.EDITED


def _outcome_of_module(
    program: Program,
    use: Use,
    namespace: names.Namespace,
    values: dict[cst.BaseExpression, Alias],
    notes: findings.Findings,
) -> Outcome:
    ((path, root),) = use.paths.items()
    of_root = program.look_up(".".join(path.split(".")[:root]))
    if namespace.is_whole:
        if namespace.moved == path:
            return Outcome.KEPT
        is_import = all(isinstance(source, Binding) for source in use.sources)
        if is_import and of_root is not None and isinstance(of_root[0], names.Namespace):
            return Outcome.KEPT
    if use.whole in values:
        return Outcome.ALIASED
    moved = f" Its place today is {namespace.moved}." if namespace.moved else ""
    notes.left(
        use.whole,
        f"{names.canonical(path)} is handed on as a module: name what is used of it.{moved}",
    )
    return Outcome.LEFT


def _decide_aliases(
    program: Program,
    plan: _Plan,
    values: dict[cst.BaseExpression, Alias],
    notes: findings.Findings,
) -> None:
    """Removes the assignments of legacy modules whose name nothing needs any more."""
    uses = {use.whole: use for use in plan.outcomes}
    plan.removed = {
        alias
        for value, alias in values.items()
        if value in uses
        and plan.outcomes[uses[value]] is Outcome.ALIASED
        and not program.is_in_class(alias.statement)
        and not program.is_named_in_text(alias.local)
    }
    before = -1
    while before != len(plan.removed):
        before = len(plan.removed)
        plan.removed = {
            alias
            for alias in plan.removed
            if all(
                plan.outcomes[use] is Outcome.EDITED or values.get(use.whole) in plan.removed
                for use in alias.uses
            )
        }
    for value, alias in values.items():
        use = uses.get(value)
        if use is None or plan.outcomes[use] is not Outcome.ALIASED:
            continue
        if alias in plan.removed:
            plan.outcomes[use] = Outcome.EDITED
        else:
            plan.outcomes[use] = Outcome.LEFT
            notes.left(use.whole, f"{alias.local} is used as a module: name what is used of it.")


def _tf1_name(program: Program, use: Use, plan: _Plan) -> str | None:
    """Returns an expression for `tensorflow.compat.v1` where `use` stands; None if there is none.

    What it begins with stays imported.
    """
    suffixes = {
        names.TF1: "",
        "tensorflow": ".compat.v1",
        "tensorflow.compat.v2": ".compat.v1",
    }
    roots = {".".join(path.split(".")[:count]) for path, count in use.paths.items()}
    if len(roots) == 1 and roots <= set(suffixes):
        plan.needed.update(source for source in use.sources if isinstance(source, Binding))
        return program.module.code_for_node(use.chain[0]) + suffixes[roots.pop()]
    for path, suffix in suffixes.items():
        for binding in program.bindings:
            if (
                binding.path == path
                and program.is_unconditional(binding.statement)
                and program.binds(use.chain[0], binding)
            ):
                plan.needed.add(binding)
                return binding.local + suffix
    return None
