"""Rewrites the expressions and imports of a program that name legacy modules.

LibCST's tree and scopes decide what to replace. Everything else stays byte for byte.
"""

import re
import warnings
from dataclasses import dataclass

import libcst as cst

from estimator_emb.cli.migration import findings, imports, renames
from estimator_emb.cli.migration.dotted_names import Alias, Binding, Program, Use
from estimator_emb.cli.migration.source import Edits

_KEPT = re.compile(r"tf(\.compat\.v1)?\.estimator(?!\.tpu\b)\b")
"""Matches names that `estimator_emb.install()` restores, in TensorFlow's spelling."""

_MAKES_AN_ESTIMATOR = re.compile(
    r"tf(\.compat\.v1)?(\.estimator(\.experimental)?\.(\w*(Estimator|Classifier|Regressor)|KMeans"
    r"|LinearSDCA)|\.keras\.estimator\.model_to_estimator)"
)


@dataclass(frozen=True)
class Rewritten:
    """The new source of a program, the findings about it, and `lines` as {old line: new line}."""

    text: str
    findings: list[findings.LeftToDo]
    lines: dict[int, int]


class CannotRewrite(Exception):
    """Raised if the rewritten program would not be Python. The program stays unchanged."""


def rewrite(text: str, is_package: bool = False) -> Rewritten:
    """Rewrites a program. `is_package` is True for an `__init__.py`."""
    if "tensorflow" not in text:  # Skips the slow scope analysis for most files.
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
    """Returns whether a program never used a TPU, so that its `tf.estimator` names can stay.

    Such a program makes an Estimator, and its other legacy names are those of TensorFlow 1 outside
    `tf.contrib`. It does not import estimator_emb without `install`.
    """
    paths = {use.whole: renames.canonical(next(iter(use.paths))) for use in program.uses}
    if not any(_MAKES_AN_ESTIMATOR.fullmatch(paths.get(call.func, "")) for call in program.calls):
        return False
    imports_ours = any(path.partition(".")[0] == renames.OURS for path in program.paths)
    if imports_ours and not is_installed:
        return False
    legacy = {path: found[0] for path in program.paths if (found := program.look_up(path))}
    if any(program.look_up(module) for _, module in program.stars) or any(
        not (legacy.keys().isdisjoint(use.paths) or program.is_read(use.whole))
        for use in program.uses
    ):
        return False
    return all(
        _KEPT.match(renames.canonical(path)) and not isinstance(meaning, renames.Advice)
        for path, meaning in legacy.items()
    )


def _rename(
    program: Program, notes: findings.Findings, edits: Edits, changes: imports.Imports
) -> None:
    plan = _Plan(program, notes)
    changes.decide(plan.edited, plan.left, plan.needed)
    removed = [alias.statement for alias in plan.removed]
    changes.take_names([*(node for node, _ in plan.targets.values()), *removed])
    for use, (node, target) in plan.targets.items():
        expression = changes.expression(target, use, plan.tf1.get(use))
        edits.replace(program.start(node), program.end(node), expression)
    changes.write(removed, has_edits=bool(plan.targets or removed))


class _Plan:
    """Decides how the expressions of a program change, and the assignments that bind their names.

    `edited` uses are rewritten, `left` uses are reported. Others stay, but their import may change.
    `targets` maps a use to the expression to replace and to its new name. `removed` are assignments
    that nothing needs now. `needed` are imports that new expressions use. `tf1` maps a use to the
    program's own name for `tensorflow.compat.v1`, or to None if that must be imported.
    """

    def __init__(self, program: Program, notes: findings.Findings):
        self._program = program
        self._code = program.code
        self._notes = notes
        self._aliased: dict[Alias, Use] = {}
        """Assignment that gives a legacy module another name -> the use of the module."""
        self._values = {alias.value: alias for alias in program.aliases}
        self._assigned = {
            renames.canonical(path)
            for use in program.uses
            if len(use.chain) > 1 and not program.is_read(use.whole)
            for path in use.paths
        }
        self.edited: set[Use] = set()
        self.left: set[Use] = set()
        self.targets: dict[Use, tuple[cst.BaseExpression, renames.Target]] = {}
        self.removed: set[Alias] = set()
        self.needed: set[Binding] = set()
        for use in program.uses:
            self._decide(use)
        self._decide_aliases()
        self.tf1 = {
            use: self._tf1_name(use)
            for use, (_, target) in self.targets.items()
            if target.module == renames.TF1
        }

    def _decide(self, use: Use) -> None:
        found = set()
        for path, root in use.paths.items():
            result = self._program.look_up(path)
            if result is not None and isinstance(result[0], renames.Target) and result[1] <= root:
                result = None  # Only its import changes.
            found.add(None if result is None else (result[0], result[1] - root))
        if found == {None}:
            return
        if len(found) > 1 or not use.is_certain:
            name, root_name = self._code(use.whole), self._code(use.chain[0])
            said = "" if name == root_name else f"{name}: "
            self._leave(use, f"{said}{root_name} may be bound to something else as well.")
            return
        ((meaning, index),) = found  # type: ignore[misc]
        path, root = next(iter(use.paths.items()))
        if isinstance(meaning, renames.Namespace):
            self._decide_module(use, meaning, path, root)
        elif isinstance(meaning, renames.Advice):
            if index > 0:
                self._leave(use, meaning.text)
        else:
            node = use.chain[index]
            name = renames.canonical(".".join(path.split(".")[: index + root]))
            if name in self._assigned:
                self._leave(use, f"{name} is assigned in this program.")
            elif "#" in self._code(node):
                self._leave(use, f"{name} has a comment inside.")
            else:
                self.targets[use] = node, meaning
                self.edited.add(use)

    def _decide_module(self, use: Use, namespace: renames.Namespace, path: str, root: int) -> None:
        of_root = self._program.look_up(".".join(path.split(".")[:root]))
        if namespace.is_whole:
            if namespace.moved == path:
                return
            is_import = all(isinstance(source, Binding) for source in use.sources)
            if is_import and of_root is not None and isinstance(of_root[0], renames.Namespace):
                return
        if use.whole in self._values:
            self._aliased[self._values[use.whole]] = use
            return
        moved = f" Its place today is {namespace.moved}." if namespace.moved else ""
        self._leave(
            use,
            f"{renames.canonical(path)} is passed on as a module: use its names instead.{moved}",
        )

    def _decide_aliases(self) -> None:
        """Removes assignments that name a legacy module, if nothing needs the name any more."""
        self.removed = {
            alias
            for alias in self._aliased
            if not self._program.is_in_class(alias.statement)
            and not self._program.is_named_in_text(alias.local)
        }
        while needed := {
            alias for alias in self.removed if not all(map(self._is_gone, alias.uses))
        }:
            self.removed -= needed
        for alias, use in self._aliased.items():
            if alias in self.removed:
                self.edited.add(use)
            else:
                self._leave(use, f"{alias.local} is used as a module: name what is used of it.")

    def _is_gone(self, use: Use) -> bool:
        return use in self.edited or self._values.get(use.whole) in self.removed

    def _tf1_name(self, use: Use) -> str | None:
        """Returns the program's expression for `tensorflow.compat.v1` at `use`, or None."""
        suffixes = {
            renames.TF1: "",
            "tensorflow": ".compat.v1",
            "tensorflow.compat.v2": ".compat.v1",
        }
        roots = {".".join(path.split(".")[:count]) for path, count in use.paths.items()}
        if len(roots) == 1 and roots <= set(suffixes):
            self.needed.update(source for source in use.sources if isinstance(source, Binding))
            return self._code(use.chain[0]) + suffixes[roots.pop()]
        for path, suffix in suffixes.items():
            for binding in self._program.always_bound(path, use.chain[0]):
                self.needed.add(binding)
                return binding.local + suffix
        return None

    def _leave(self, use: Use, text: str) -> None:
        self._notes.left(use.whole, text)
        self.left.add(use)
