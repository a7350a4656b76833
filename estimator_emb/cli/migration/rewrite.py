# SPDX-License-Identifier: Apache-2.0
"""Rewrites the expressions and the imports of a program that name legacy modules.

LibCST's tree and scopes decide; only parts of the source are replaced, so that everything else
stays byte for byte.
"""

import enum
import re
import warnings
from dataclasses import dataclass

import libcst as cst

from estimator_emb.cli.migration import findings, imports, names
from estimator_emb.cli.migration.program import Alias, Binding, Program, Use
from estimator_emb.cli.migration.source import Edits

_KEPT = re.compile(r"tf(\.compat\.v1)?\.estimator(?!\.tpu\b)\b")
"""Names that `estimator_emb.install()` brings back, as TensorFlow spells them."""

_MAKES_AN_ESTIMATOR = re.compile(
    r"tf(\.compat\.v1)?(\.estimator(\.experimental)?\.(\w*(Estimator|Classifier|Regressor)|KMeans"
    r"|LinearSDCA)|\.keras\.estimator\.model_to_estimator)"
)


class Outcome(enum.Enum):
    """What becomes of an expression."""

    KEPT = "kept"
    """No legacy name, or only its import changes."""
    EDITED = "edited"
    LEFT = "left"
    """A legacy name that a person must change."""
    ALIASED = "aliased"
    """A module to which an assignment gives another name."""


@dataclass(frozen=True)
class Rewritten:
    """The new source of a program, what a person must decide, and {old line: new line}."""

    text: str
    findings: list[findings.LeftToDo]
    lines: dict[int, int]


class CannotRewrite(Exception):
    """The result of the rewrite would not be Python; the program stays as it is."""


def rewrite(text: str, is_package: bool = False) -> Rewritten:
    """Rewrites a program; `is_package` says that it is an `__init__.py`."""
    if "tensorflow" not in text:  # Most files of a folder; scopes take the time.
        cst.parse_module(text)
        return Rewritten(text, [], {})
    program = Program(text)
    notes = findings.Findings(program)
    source = text.encode()
    edits = Edits(source)
    changes = imports.Imports(program, edits, is_package, notes)
    if _keeps_names(program, notes.is_installed()):
        if not notes.is_installed():
            changes.add_install()
    else:
        _rename(program, notes, edits, changes)
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


def _keeps_names(program: Program, is_installed: bool) -> bool:
    """Returns whether a program never had a TPU: it has no legacy names but `tf.estimator`'s.

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


def _rename(
    program: Program, notes: findings.Findings, edits: Edits, changes: imports.Imports
) -> None:
    plan = _Plan(program, notes)
    changes.decide(plan.uses(Outcome.EDITED), plan.uses(Outcome.LEFT), plan.needed)
    removed = [alias.statement for alias in plan.removed]
    changes.take_names([*(node for node, _ in plan.targets.values()), *removed])
    for use, (node, target) in plan.targets.items():
        expression = changes.expression(target, use, plan.tf1.get(use))
        edits.replace(program.start(node), program.end(node), expression)
    changes.write(removed, has_edits=bool(plan.targets or removed))


class _Plan:
    """Decides what becomes of the expressions of a program, and of what binds their names.

    `targets` are the parts to replace and what to put there; `removed` are assignments that nothing
    needs any more, and `needed` imports that new expressions use. `tf1` has the name by which the
    program knows `tensorflow.compat.v1` in their places; None where it must be imported.
    """

    def __init__(self, program: Program, notes: findings.Findings):
        self._program = program
        self._notes = notes
        self._outcomes: dict[Use, Outcome] = {}
        self._values = {alias.value: alias for alias in program.aliases}
        self._assigned = {
            names.canonical(path)
            for use in program.uses
            if len(use.chain) > 1 and not program.is_read(use.whole)
            for path in use.paths
        }
        self.targets: dict[Use, tuple[cst.BaseExpression, names.Target]] = {}
        self.removed: set[Alias] = set()
        self.needed: set[Binding] = set()
        for use in program.uses:
            self._outcomes[use] = self._outcome(use)
        self._decide_aliases()
        self.tf1 = {
            use: self._tf1_name(use)
            for use, (_, target) in self.targets.items()
            if target.module == names.TF1
        }

    def uses(self, outcome: Outcome) -> set[Use]:
        return {use for use, one in self._outcomes.items() if one is outcome}

    def _outcome(self, use: Use) -> Outcome:
        found = set()
        for path, root in use.paths.items():
            result = self._program.look_up(path)
            if result is not None and isinstance(result[0], names.Target) and result[1] <= root:
                result = None  # Its import changes.
            found.add(None if result is None else (result[0], result[1] - root))
        if found == {None}:
            return Outcome.KEPT
        if len(found) > 1 or not use.is_certain:
            name, root_name = self._code(use.whole), self._code(use.chain[0])
            said = "" if name == root_name else f"{name}: "
            return self._left(use, f"{said}{root_name} may be bound to something else as well.")
        ((meaning, index),) = found  # type: ignore[misc]
        if isinstance(meaning, names.Advice):
            return self._left(use, meaning.text) if index > 0 else Outcome.KEPT
        path, root = next(iter(use.paths.items()))
        if isinstance(meaning, names.Namespace):
            return self._outcome_of_module(use, meaning, path, root)
        node = use.chain[index]
        name = names.canonical(".".join(path.split(".")[: index + root]))
        if name in self._assigned:
            return self._left(use, f"{name} is assigned in this program.")
        if "#" in self._code(node):
            return self._left(use, f"{name} has a comment inside.")
        self.targets[use] = node, meaning
        return Outcome.EDITED

    def _outcome_of_module(
        self, use: Use, namespace: names.Namespace, path: str, root: int
    ) -> Outcome:
        of_root = self._program.look_up(".".join(path.split(".")[:root]))
        if namespace.is_whole:
            if namespace.moved == path:
                return Outcome.KEPT
            is_import = all(isinstance(source, Binding) for source in use.sources)
            if is_import and of_root is not None and isinstance(of_root[0], names.Namespace):
                return Outcome.KEPT
        if use.whole in self._values:
            return Outcome.ALIASED
        moved = f" Its place today is {namespace.moved}." if namespace.moved else ""
        return self._left(
            use,
            f"{names.canonical(path)} is handed on as a module: name what is used of it.{moved}",
        )

    def _decide_aliases(self) -> None:
        """Removes the assignments of legacy modules whose name nothing needs any more."""
        aliased = {self._values[use.whole]: use for use in self.uses(Outcome.ALIASED)}
        self.removed = {
            alias
            for alias in aliased
            if not self._program.is_in_class(alias.statement)
            and not self._program.is_named_in_text(alias.local)
        }
        before = -1
        while before != len(self.removed):
            before = len(self.removed)
            self.removed = {
                alias
                for alias in self.removed
                if all(
                    self._outcomes[use] is Outcome.EDITED
                    or self._values.get(use.whole) in self.removed
                    for use in alias.uses
                )
            }
        for alias, use in aliased.items():
            if alias in self.removed:
                self._outcomes[use] = Outcome.EDITED
            else:
                text = f"{alias.local} is used as a module: name what is used of it."
                self._outcomes[use] = self._left(use, text)

    def _tf1_name(self, use: Use) -> str | None:
        """Returns an expression for `tensorflow.compat.v1` in the place of `use`, or None."""
        suffixes = {
            names.TF1: "",
            "tensorflow": ".compat.v1",
            "tensorflow.compat.v2": ".compat.v1",
        }
        roots = {".".join(path.split(".")[:count]) for path, count in use.paths.items()}
        if len(roots) == 1 and roots <= set(suffixes):
            self.needed.update(source for source in use.sources if isinstance(source, Binding))
            return self._code(use.chain[0]) + suffixes[roots.pop()]
        for path, suffix in suffixes.items():
            for binding in self._program.bindings:
                if (
                    binding.path == path
                    and self._program.is_unconditional(binding.statement)
                    and self._program.binds(use.chain[0], binding)
                ):
                    self.needed.add(binding)
                    return binding.local + suffix
        return None

    def _left(self, use: Use, text: str) -> Outcome:
        self._notes.left(use.whole, text)
        return Outcome.LEFT

    def _code(self, node: cst.CSTNode) -> str:
        return self._program.module.code_for_node(node)
