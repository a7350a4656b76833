# SPDX-License-Identifier: Apache-2.0
"""Adds the imports that a program's new names need, in time for Keras and tensorflow-estimator."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import libcst as cst

from estimator_emb.cli.migration import names
from estimator_emb.cli.migration.findings import Findings
from estimator_emb.cli.migration.program import Binding, Program, Use, dotted
from estimator_emb.cli.migration.source import Edits

_LOCAL_NAMES = {
    names.OURS: ("estimator_emb", "ee", "estimator_emb_"),
    names.COLUMNS: ("feature_columns", "fc", "tpu_feature_columns"),
    names.API_V1: ("tf_estimator", "tf_estimator_v1", "tf1_estimator"),
    names.API_V2: ("tf_estimator", "tf_estimator_v2", "tf2_estimator"),
    names.TF1: ("tf1", "tf_v1", "tensorflow_v1"),
}
"""Module -> what it is called in a program, the first one that means nothing else there."""

_WITHOUT_KERAS = {*sys.stdlib_module_names, "absl", "numpy", "pandas", "scipy", "six", "yaml"}
"""Packages whose import does not use tf.keras."""

_INSTALL = "install()  # With ESTIMATOR_EMB_DEVICE=host, TPU names mean an emulated TPU."


@dataclass
class Part:
    """What becomes of one name of an import: `from module import name as local`.

    Attributes:
      module: None where the name is not imported any more; '' for `import name as local`.
    """

    binding: Binding
    module: str | None
    name: str
    is_changed: bool = True


class NewImports:
    """The imports that new expressions need.

    Args:
      program: the program.
      edits: where they are written.
      parts: what becomes of each name that the program imports, once that is decided.
      notes: the findings about the program.
    """

    def __init__(self, program: Program, edits: Edits, parts: dict[Binding, Part], notes: Findings):
        self._program = program
        self._edits = edits
        self._source = edits.source
        self._parts = parts
        self._notes = notes
        self._newline = program.module.default_newline
        self._statements = list(program.module.body)
        self._taken: set[str] = set()
        self._new: dict[str, str] = {}
        """Module -> its new local name."""

    def take_names(self, edited: Iterable[cst.CSTNode], removed: Iterable[cst.CSTNode]) -> None:
        """Learns which names are free once these nodes are gone."""
        gone = [*edited, *removed]
        gone += [part.binding.alias for part in self._parts.values() if part.module is None]
        spans = sorted((self._program.start(node), self._program.end(node)) for node in gone)
        self._taken = {
            name.value
            for name in self._program.identifiers
            if not any(start <= self._program.start(name) < end for start, end in spans)
        }

    def expression(self, target: names.Target, use: Use, tf1: str | None) -> str:
        """Returns what a target is called where `use` stands; imports its module if need be."""
        module, name = target.module, target.name
        if module == f"{names.OURS}.export":
            module, name = names.OURS, f"export.{name}"
        local = tf1 if module == names.TF1 and tf1 is not None else self._local(module, use)
        return f"{local}.{name}"

    def _local(self, module: str, use: Use | None) -> str:
        for binding in self._program.bindings:
            if (
                binding.path == module
                and self._program.is_unconditional(binding.statement)
                and not self._parts[binding].is_changed
                and (use is None or self._program.binds(use.chain[0], binding))
            ):
                return binding.local
        if module not in self._new:
            leaf = module.rpartition(".")[2]
            if module.startswith(f"{names.OURS}.legacy.contrib."):
                leaf = f"contrib_{leaf}"
            wanted = _LOCAL_NAMES.get(module, (leaf, f"{leaf}_lib", f"{leaf}_module"))
            taken = self._taken | set(self._new.values())
            free = [name for name in wanted if name not in taken]
            free += [
                name for name in (f"{wanted[-1]}{i}" for i in range(2, 99)) if name not in taken
            ]
            self._new[module] = free[0]
        return self._new[module]

    def add(self, changed: dict[cst.CSTNode, list[Part]], has_edits: bool) -> None:
        """Adds the imports of new names, and that of estimator_emb before what needs it."""
        is_changed = bool(changed) or has_edits
        lines: list[str] = []
        if not is_changed and not self._needs_ours():
            return
        installs = self._notes.looks_tpus_up() and is_changed and self._needs_ours()
        if installs and not self._notes.is_installed():
            call = f"{self._local(names.OURS, None)}.{_INSTALL}"
        else:
            call = ""
        limit = min([*self._unsafe(), *self._places_that_need_ours(changed)], default=None)
        at = self._place(changed, limit)
        if names.OURS in self._new:
            lines.append(_as("import estimator_emb", names.OURS, self._new[names.OURS]))
        elif self._needs_ours() and not self._is_ours_before(limit, at):
            lines.append("import estimator_emb  # noqa: F401 - before what uses tf.keras.")
        for module, local in sorted(self._new.items(), key=lambda item: item[0] != names.COLUMNS):
            if module == names.OURS:
                continue
            parent, _, leaf = module.rpartition(".")
            if module in (names.COLUMNS, names.TF1):
                lines.append(_as(f"import {module}", module, local))
            else:
                lines.append(_as(f"from {parent} import {leaf}", leaf, local))
        if lines:
            self._edits.replace(at, at, "".join(line + self._newline for line in lines))
        if call:
            after = max(at, self._end_of_imports())
            is_near = self._source[after : after + 1].strip()
            text = self._newline + call + self._newline * (2 if is_near else 1)
            self._edits.replace(after, after, text)

    def _needs_ours(self) -> bool:
        """Returns whether anything here can be imported only with, or after, estimator_emb."""
        modules = {*self._new, *(part.module for part in self._parts.values() if part.is_changed)}
        stay = [part for part in self._parts.values() if part.module is not None]
        return any(
            module is not None and module.startswith((names.OURS, names.COLUMNS, "tensorflow_est"))
            for module in modules
        ) or any(_needs_ours(f"{part.module}.{part.name}".lstrip(".")) for part in stay)

    def _is_ours_before(self, limit: int | None, at: int) -> bool:
        """Returns whether estimator_emb is imported in time without a line of its own."""
        if limit is None:
            if b"keras" not in self._source:
                return True
            limit = len(self._source)
        if names.COLUMNS in self._new and names.API_V1 not in self._new:
            return names.API_V2 not in self._new
        for binding in self._program.bindings:
            module = binding.path
            if self._parts[binding].is_changed:
                module = self._parts[binding].module or ""
            if (
                module.partition(".")[0] in (names.OURS, names.COLUMNS)
                and self._program.is_unconditional(binding.statement)
                and self._program.start(binding.statement) <= limit
            ):
                return True
        return False

    def _place(self, changed: dict[cst.CSTNode, list[Part]], limit: int | None) -> int:
        """Returns where new imports go: to the first that they replace, before any use of Keras."""
        imported = [
            binding.statement
            for binding in self._program.bindings
            if binding.path.startswith("tensorflow")
            and self._program.is_unconditional(binding.statement)
        ]
        replaced = [one for one in changed if self._program.is_unconditional(one)]
        places = [self._before(statement) for statement in replaced or imported]
        if not places:
            places = [
                self._before(statement)
                for statement in self._statements
                if not (
                    isinstance(statement, cst.SimpleStatementLine) and self._is_import(statement)
                )
            ]
        places += [] if limit is None else [limit]
        return min(places, default=len(self._source))

    def _before(self, statement: cst.CSTNode) -> int:
        """Returns where a line goes before a statement; a docstring stays the first one."""
        top = self._program.top_level(statement)
        if top is not None and _is_preamble(top):
            return self._edits.line_end(self._program.end(top))
        return self._edits.line_start(self._program.start(statement))

    def _is_import(self, statement: cst.CSTNode) -> bool:
        """Returns whether a statement of the module imports, or is a docstring."""
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            return False
        if isinstance(statement, cst.SimpleStatementLine) and any(
            isinstance(one, (cst.Import, cst.ImportFrom)) for one in statement.body
        ):
            return True
        return _is_preamble(statement) or any(
            self._program.top_level(binding.statement) is statement
            for binding in self._program.bindings
        )

    def _places_that_need_ours(self, changed: dict[cst.CSTNode, list[Part]]) -> Iterator[int]:
        """Yields where a module is imported anew that needs estimator_emb before."""
        if any(_needs_ours(module) for module in self._new):
            yield self._place(changed, None)
        for statement, parts in changed.items():
            top = self._program.top_level(statement)
            if top is not None and any(
                part.is_changed and part.module and _needs_ours(f"{part.module}.{part.name}")
                for part in parts
            ):
                yield self._before(top)

    def _unsafe(self) -> Iterator[int]:
        """Yields where a statement begins that may use tf.keras; the first one is enough."""
        for statement in self._statements:
            if _is_preamble(statement):
                continue
            start = self._edits.line_start(self._program.start(statement))
            own = [
                binding
                for binding in self._program.bindings
                if self._program.top_level(binding.statement) is statement
            ]
            stars = [
                module
                for star, module in self._program.stars
                if self._program.top_level(star) is statement
            ]
            text = self._source[start : self._program.end(statement)]
            is_function = isinstance(statement, cst.FunctionDef)
            if (
                any(_may_use_keras(path) for path in (*self._remaining(own), *stars))
                or (not own and not is_function and b"keras" in text)
                or (not is_function and b"from ." in text)
            ):
                yield start
                return

    def _remaining(self, bindings: list[Binding]) -> list[str]:
        return [binding.imported for binding in bindings if not self._parts[binding].is_changed]

    def _end_of_imports(self) -> int:
        end = 0
        for statement in self._statements:
            if not self._is_import(statement):
                break
            end = self._edits.line_end(self._program.end(statement))
        return end


def _as(statement: str, name: str, local: str) -> str:
    return statement if name == local else f"{statement} as {local}"


def _needs_ours(path: str) -> bool:
    return any((path + ".").startswith(module + ".") for module in names.NEED_OURS)


def _may_use_keras(path: str) -> bool:
    if path.partition(".")[0] == "tensorflow" and not _needs_ours(path):
        return "keras" in path.split(".")
    return path.partition(".")[0] not in (*_WITHOUT_KERAS, names.OURS, names.COLUMNS)


def _is_preamble(statement: cst.CSTNode) -> bool:
    """Returns whether a statement is a docstring or an import from `__future__`."""
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    first = statement.body[0]
    if isinstance(first, cst.ImportFrom):
        return first.module is not None and dotted(first.module) == "__future__"
    return isinstance(first, cst.Expr) and isinstance(
        first.value, (cst.SimpleString, cst.ConcatenatedString)
    )
