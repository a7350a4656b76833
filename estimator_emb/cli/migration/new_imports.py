# SPDX-License-Identifier: Apache-2.0
"""Adds imports for a program's new names, in time for Keras and tensorflow-estimator."""

import itertools
import sys
from collections.abc import Iterable
from dataclasses import dataclass

import libcst as cst
from libcst import helpers

from estimator_emb.cli.migration import names
from estimator_emb.cli.migration.findings import Findings
from estimator_emb.cli.migration.program import Binding, Program, Use
from estimator_emb.cli.migration.source import Edits

_LOCAL_NAMES = {
    names.OURS: ("estimator_emb", "ee", "estimator_emb_"),
    names.COLUMNS: ("feature_columns", "fc", "tpu_feature_columns"),
    names.API_V1: ("tf_estimator", "tf_estimator_v1", "tf1_estimator"),
    names.API_V2: ("tf_estimator", "tf_estimator_v2", "tf2_estimator"),
    names.TF1: ("tf1", "tf_v1", "tensorflow_v1"),
}
"""Module -> local names for it in order of preference; a program gets the first free one."""

_WITHOUT_KERAS = {*sys.stdlib_module_names, "absl", "numpy", "pandas", "scipy", "six", "yaml"}
"""Packages whose import does not use tf.keras."""

_INSTALL = "install()  # With ESTIMATOR_EMB_DEVICE=host, TPU names mean an emulated TPU."


@dataclass(frozen=True)
class Part:
    """One name of an import after the rewrite; `path` is None where it is no longer imported."""

    binding: Binding
    path: str | None

    @property
    def is_changed(self) -> bool:
        return self.path != self.binding.imported

    @property
    def module(self) -> str:
        is_from = isinstance(self.binding.statement, cst.ImportFrom)
        return (self.path or "").rpartition(".")[0] if is_from else ""

    @property
    def name(self) -> str:
        return (self.path or "").removeprefix(f"{self.module}.")


class NewImports:
    """Base of `Imports`: the imports that new expressions need, written to `edits`."""

    def __init__(self, program: Program, edits: Edits, notes: Findings):
        self._program = program
        self._edits = edits
        self._source = edits.source
        self._parts: dict[Binding, Part] = {}
        self._notes = notes
        self._newline = program.module.default_newline
        self._statements = list(program.module.body)
        self._bindings: dict[cst.CSTNode, list[Binding]] = {one: [] for one in self._statements}
        for binding in program.bindings:
            self._bindings[program.top_level(binding.statement)].append(binding)
        self._taken: set[str] = set()
        self._new: dict[str, str] = {}
        """Module -> its new local name."""

    def take_names(self, gone: Iterable[cst.CSTNode]) -> None:
        removed = {part.binding.alias for part in self._parts.values() if part.path is None}
        nodes = {*gone, *removed}
        self._taken = {
            name.value
            for name in self._program.identifiers
            if name not in nodes and nodes.isdisjoint(self._program.ancestors(name))
        }

    def expression(self, target: names.Target, use: Use, tf1: str | None) -> str:
        """Returns an expression for a target in the place of `use`, and imports its module."""
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
            more = (f"{wanted[-1]}{i}" for i in itertools.count(2))
            self._new[module] = next(n for n in itertools.chain(wanted, more) if n not in taken)
        return self._new[module]

    def add(self, is_changed: bool) -> None:
        """Adds the imports of new names, and that of estimator_emb before what needs it."""
        needs_ours = self._needs_ours()
        if not (is_changed or needs_ours):
            return
        is_called = is_changed and needs_ours and not self._notes.is_installed()
        call = ""
        if is_called and self._notes.looks_tpus_up():
            call = f"{self._local(names.OURS, None)}.{_INSTALL}"
        limit = self._limit()
        at = self._place(limit)
        lines: list[str] = []
        if names.OURS in self._new:
            lines.append(_as("import estimator_emb", names.OURS, self._new[names.OURS]))
        elif needs_ours and not self._is_ours_before(limit, at):
            lines.append("import estimator_emb  # noqa: F401 - before what uses tf.keras.")
        for module, local in sorted(self._new.items(), key=lambda item: item[0] != names.COLUMNS):
            parent, _, leaf = module.rpartition(".")
            if module in (names.COLUMNS, names.TF1):
                lines.append(_as(f"import {module}", module, local))
            elif module != names.OURS:
                lines.append(_as(f"from {parent} import {leaf}", leaf, local))
        self._edits.replace(at, at, "".join(line + self._newline for line in lines))
        if call:
            after = max(at, self._end_of_imports())
            is_near = self._source[after : after + 1].strip()
            text = self._newline + call + self._newline * (2 if is_near else 1)
            self._edits.replace(after, after, text)

    def add_install(self) -> None:
        at = self._place(self._limit())
        lines = ("import estimator_emb", "estimator_emb.install()  # It brings tf.estimator back.")
        self._edits.replace(at, at, "".join(line + self._newline for line in lines))

    def _needs_ours(self) -> bool:
        changed = [part.path for part in self._parts.values() if part.is_changed and part.path]
        return any(
            path.startswith((names.OURS, names.COLUMNS, "tensorflow_est"))
            for path in (*self._new, *changed)
        ) or any(_needs_ours(part.path) for part in self._parts.values() if part.path)

    def _is_ours_before(self, limit: int | None, at: int) -> bool:
        """Returns whether estimator_emb is imported in time without a line of its own."""
        if names.COLUMNS in self._new:  # Its line is the first one, and imports estimator_emb.
            return True
        if any(_needs_ours(module) for module in self._new):
            limit = at - 1
        elif limit is None:
            limit = len(self._source)
            if b"keras" not in self._source:
                return True
        return any(
            (part.path or "").partition(".")[0] in (names.OURS, names.COLUMNS)
            and self._program.is_unconditional(part.binding.statement)
            and self._program.start(part.binding.statement) <= limit
            for part in self._parts.values()
        )

    def _place(self, limit: int | None) -> int:
        """Returns where new imports go: before any of TensorFlow, any definition and `limit`."""
        places = [] if limit is None else [limit]
        for statement in self._statements:
            imported = [binding.path for binding in self._bindings[statement]]
            if _is_definition(statement) or any(one.startswith("tensorflow") for one in imported):
                places.append(self._before(statement))
        return min(places, default=len(self._source))

    def _limit(self) -> int | None:
        """Returns where, after the rewrite, the first statement begins that may use tf.keras."""
        for statement in self._statements:
            if _is_preamble(statement):
                continue
            paths = [self._parts[binding].path for binding in self._bindings[statement]]
            stars = [
                module
                for star, module in self._program.stars
                if self._program.top_level(star) is statement
            ]
            text = self._source[self._program.start(statement) : self._program.end(statement)]
            has_keras = b"keras" in text and not paths or b"from ." in text
            if any(path and _may_use_keras(path) for path in (*paths, *stars)) or (
                has_keras and not isinstance(statement, cst.FunctionDef)
            ):
                return self._before(statement)
        return None

    def _before(self, statement: cst.CSTNode) -> int:
        """Returns where a line goes before a statement; a docstring stays the first one."""
        if _is_preamble(statement):
            return self._edits.line_end(self._program.end(statement))
        first = [*getattr(statement, "decorators", ()), statement][0]
        return self._edits.line_start(self._program.start(first))

    def _end_of_imports(self) -> int:
        end = 0
        imports = {self._program.top_level(node) for node in self._program.imports}
        for statement in self._statements:
            is_import = statement in imports and not _is_definition(statement)
            if not (is_import or _is_preamble(statement)):
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


def _is_definition(statement: cst.CSTNode) -> bool:
    return isinstance(statement, (cst.FunctionDef, cst.ClassDef))


def _is_preamble(statement: cst.CSTNode) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    first = statement.body[0]
    if isinstance(first, cst.ImportFrom):
        module = first.module and helpers.get_full_name_for_node(first.module)
        return module == "__future__"
    return isinstance(first, cst.Expr) and isinstance(
        first.value, (cst.SimpleString, cst.ConcatenatedString)
    )
