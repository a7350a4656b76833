# SPDX-License-Identifier: Apache-2.0
"""Rewrites the imports of a program, and adds those that its new names need."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from . import names
from .findings import Findings
from .program import Binding, Program, Use, dotted
from .source import Comments, Edits, comments_of

_LOCAL_NAMES = {
    names.OURS: ("estimator_emb", "ee", "estimator_emb_"),
    names.COLUMNS: ("feature_columns", "fc", "tpu_feature_columns"),
    names.API_V1: ("tf_estimator", "tf_estimator_v1", "tf1_estimator"),
    names.API_V2: ("tf_estimator", "tf_estimator_v2", "tf2_estimator"),
    names.TF1: ("tf1", "tf_v1", "tensorflow_v1"),
    f"{names.OURS}.compat.contrib": ("contrib", "tf_contrib", "estimator_emb_contrib"),
}
"""Module -> what it is called in a program, the first one that means nothing else there."""

_WITHOUT_KERAS = {*sys.stdlib_module_names, "absl", "numpy", "pandas", "scipy", "six", "yaml"}
"""Packages whose import does not use tf.keras."""

_INSTALL = "install()  # With ESTIMATOR_EMB_DEVICE=host, TPU names mean an emulated TPU."


@dataclass
class _Part:
    """What becomes of one name of an import: `from module import name as local`.

    Attributes:
      module: None where the name is not imported any more; '' for `import name as local`.
    """

    binding: Binding
    module: str | None
    name: str
    is_changed: bool = True


class Imports:
    """Decides about the imports of a program, and writes them."""

    def __init__(self, program: Program, edits: Edits, is_package: bool, notes: Findings):
        self._program = program
        self._edits = edits
        self._source = edits.source
        self._is_package = is_package
        self._notes = notes
        self._newline = program.module.default_newline
        self._parts: dict[Binding, _Part] = {}
        self._new: dict[str, str] = {}
        """Module -> its new local name."""
        self._taken: set[str] = set()
        self._removed: set[cst.CSTNode] = set()
        """Assignments that are removed."""
        self._statements = list(program.module.body)

    # ---- Which imports change ----

    def decide(self, edited: set[Use], left: set[Use], needed: set[Binding]) -> None:
        """Decides what becomes of each import.

        Args:
          edited: expressions that change.
          left: expressions that stay although they are legacy.
          needed: imports that new expressions use.
        """
        for binding in self._program.bindings:
            if binding.path.partition(".")[0] in ("tensorflow", "tensorflow_estimator"):
                live = [use for use in binding.uses if use not in edited]
                self._parts[binding] = self._part(binding, live, left, binding in needed)
        for star, module in self._program.stars:
            self._notes.about_star(star, module)

    def _part(self, binding: Binding, live: list[Use], left: set[Use], is_needed: bool) -> _Part:
        module, _, leaf = binding.imported.rpartition(".")
        is_from = isinstance(binding.statement, cst.ImportFrom)
        kept = _Part(
            binding, module if is_from else "", leaf if is_from else binding.imported, False
        )
        removed = _Part(binding, None, "")
        found = self._program.look_up(binding.imported)
        if found is None:
            is_unused = binding.uses and not live and not is_needed
            return removed if is_unused and self._may_remove(binding) else kept
        meaning, count = found
        if isinstance(meaning, names.Advice):
            self._notes.left(binding.alias, meaning.text)
            return kept
        if isinstance(meaning, names.Target):
            if count < binding.imported.count(".") + 1 or not is_from:
                self._notes.left(binding.alias, f"{binding.imported} is no module.")
                return kept
            module, _, leaf = meaning.path.rpartition(".")
            return _Part(binding, module, leaf)
        if not is_from and binding.alias.asname is None:
            live = [use for use in live if _goes_through(use, binding.imported)]
        if not binding.uses and self._program.is_in_try(binding.statement):
            self._notes.left(binding.alias, f"{binding.imported} is imported, but not used.")
            return kept
        is_used = bool(binding.uses) or not meaning.moved
        if not live and is_used and self._may_remove(binding):
            is_whole = is_from or binding.alias.asname is not None
            return removed if is_whole else self._root_of(binding, is_needed)
        if live and left.isdisjoint(live):
            if meaning.moved in ("", binding.imported):
                return kept
            if is_from or binding.alias.asname:
                module, _, leaf = meaning.moved.rpartition(".")
                return _Part(binding, module if is_from else "", leaf if is_from else meaning.moved)
        if not binding.uses and meaning.moved:
            module, _, leaf = meaning.moved.rpartition(".")
            is_same = meaning.moved == binding.imported
            return kept if is_same or not is_from else _Part(binding, module, leaf)
        self._notes.left(
            binding.alias, f"{names.canonical(binding.imported)} is still used, see below."
        )
        return kept

    def _root_of(self, binding: Binding, is_needed: bool) -> _Part:
        """Returns what becomes of `import a.b.c`, of which nothing needs more than `a`."""
        others = [
            other
            for other in self._program.bindings
            if other is not binding
            and other.local == binding.local
            and self._parts.get(other, _Part(other, None, "")).module is not None
        ]
        is_used = is_needed or any(
            use.paths and not _goes_through(use, binding.imported) for use in binding.uses
        )
        if others or not is_used:
            return _Part(binding, None, "")
        return _Part(binding, "", binding.local)

    def _may_remove(self, binding: Binding) -> bool:
        return not self._is_package and not self._program.is_named_in_text(binding.local)

    # ---- What new expressions say ----

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
                and (binding not in self._parts or not self._parts[binding].is_changed)
                and (use is None or self._program.binds(use.chain[0], binding))
            ):
                return binding.local
        if module not in self._new:
            leaf = module.rpartition(".")[2]
            wanted = _LOCAL_NAMES.get(module, (leaf, f"{leaf}_lib", f"{leaf}_module"))
            taken = self._taken | set(self._new.values())
            free = [name for name in wanted if name not in taken]
            free += [
                name for name in (f"{wanted[-1]}{i}" for i in range(2, 99)) if name not in taken
            ]
            self._new[module] = free[0]
        return self._new[module]

    # ---- Writing ----

    def write(self, removed: Sequence[cst.Assign], has_edits: bool) -> None:
        """Writes all imports that change, and the new ones.

        Args:
          removed: assignments to remove.
          has_edits: whether expressions change.
        """
        self._removed = set(removed)
        statements: dict[cst.CSTNode, list[_Part]] = {}
        for binding, part in self._parts.items():
            statements.setdefault(binding.statement, []).append(part)
        changed = {
            statement: parts
            for statement, parts in statements.items()
            if any(part.is_changed for part in parts)
        }
        self._add(changed, has_edits)
        merged = self._merge_tries(statements)
        for assignment in removed:
            if assignment not in merged:
                self._remove_statement(assignment)
        for statement, parts in changed.items():
            if statement not in merged:
                self._write_statement(statement, parts)

    def _merge_tries(self, statements: dict[cst.CSTNode, list[_Part]]) -> set[cst.CSTNode]:
        """Replaces `try: import ... except ImportError: import ...` where both import the same now.

        Returns:
          The imports that are written so.
        """
        merged: set[cst.CSTNode] = set()
        for node in self._program.tries:
            blocks = [node.body, *(handler.body for handler in node.handlers)]
            start, end = self._program.start(node), self._program.end(node)
            if node.orelse or node.finalbody or b"#" in self._source[start:end]:
                continue
            inside = [_small_statements(block) for block in blocks]
            flat = [statement for block in inside for statement in block]
            if not all(
                statement in self._removed
                or (
                    statement in statements
                    and any(part.is_changed for part in statements[statement])
                    and len(statements[statement]) == len(statement.names)
                )
                for statement in flat
            ):
                continue
            new = [
                [
                    line
                    for statement in block
                    if statement not in self._removed
                    for line in self._lines_of(statements[statement])
                ]
                for block in inside
            ]
            if any(lines != new[0] for lines in new):
                continue
            merged.update(flat)
            if new[0]:
                self._edits.replace(start, end, self._joined(new[0], start))
            else:
                self._edits.replace(self._edits.line_start(start), self._edits.line_end(end), "")
        return merged

    def _lines_of(self, parts: list[_Part]) -> list[str]:
        """Returns the new imports for the names of one, without comments."""
        groups: dict[str, list[_Part]] = {}
        for part in sorted(parts, key=lambda part: not part.is_changed):
            if part.module is not None:
                groups.setdefault(part.module, []).append(part)
        return [self._import(module, group, {}, "", False) for module, group in groups.items()]

    def _remove_statement(self, statement: cst.BaseSmallStatement) -> None:
        """Removes a statement, with its line where it has one of its own."""
        line = self._program.parent(statement)
        start, end = self._program.start(statement), self._program.end(statement)
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) > 1:
            self._edits.replace(start, end, "pass")
            return
        block = self._program.parent(line)
        if isinstance(block, cst.IndentedBlock) and self._is_emptied(block, line):
            self._edits.replace(start, end, "pass")
            return
        comment = line.trailing_whitespace.comment
        if comment is not None and not comment.value.lstrip("# ").startswith(
            ("noqa", "pylint", "type:", "isort", "pytype", "pragma")
        ):
            self._edits.replace(start, self._source.index(comment.value.encode(), end), "")
            return
        self._edits.replace(self._edits.line_start(start), self._edits.line_end(end), "")

    def _is_emptied(self, block: cst.IndentedBlock, line: cst.CSTNode) -> bool:
        """Returns whether nothing stays in a block before or behind `line`."""
        others = [other for other in block.body if other is not line]
        return all(
            isinstance(other, cst.SimpleStatementLine)
            and all(
                isinstance(one, (cst.Import, cst.ImportFrom)) and self._is_gone(one)
                for one in other.body
            )
            for other in others
        )

    def _is_gone(self, statement: cst.Import | cst.ImportFrom) -> bool:
        parts = [part for part in self._parts.values() if part.binding.statement is statement]
        return bool(parts) and all(part.module is None for part in parts)

    def _write_statement(self, statement: cst.CSTNode, parts: list[_Part]) -> None:
        assert isinstance(statement, (cst.Import, cst.ImportFrom))
        comments = comments_of(statement)
        kept = [part for part in parts if part.module is not None]
        lost = [
            text
            for part in parts
            if part.module is None
            for text in (*comments[part.binding.alias].above, comments[part.binding.alias].behind)
            if text
        ]
        start, end = self._program.start(statement), self._program.end(statement)
        if not kept and not lost:
            self._remove_statement(statement)
            return
        line = self._program.parent(statement)
        is_alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
        if not kept:
            self._edits.replace(
                start, end, self._joined(lost, start) + ("" if is_alone else "pass")
            )
            return
        modules = {part.module for part in kept}
        if len(modules) == 1 and not lost and len(kept) == len(parts):
            self._replace_names(statement, kept)
            return
        groups: dict[str, list[_Part]] = {}
        for part in sorted(kept, key=lambda part: not part.is_changed):
            groups.setdefault(part.module or "", []).append(part)
        is_split = isinstance(statement, cst.ImportFrom) and b"\n" in self._source[start:end]
        lines = [
            self._import(module, group, comments, self._edits.indent(start), is_split and is_alone)
            for module, group in groups.items()
        ]
        if is_alone:
            self._edits.replace(start, end, self._joined([*lost, *lines], start))
        else:
            self._edits.replace(start, end, "; ".join(lines))

    def _replace_names(self, statement: cst.Import | cst.ImportFrom, parts: list[_Part]) -> None:
        """Replaces the module and the names alone, so that all else stays."""
        if isinstance(statement, cst.ImportFrom):
            assert statement.module is not None
            module = parts[0].module or ""
            if module != dotted(statement.module):
                start, end = (
                    self._program.start(statement.module),
                    self._program.end(statement.module),
                )
                self._edits.replace(start, end, module)
        for part in parts:
            alias = part.binding.alias
            if part.name != dotted(alias.name):
                text = part.name if alias.asname else _named(part)
                self._edits.replace(
                    self._program.start(alias.name), self._program.end(alias.name), text
                )

    def _import(
        self,
        module: str,
        parts: list[_Part],
        comments: dict[cst.ImportAlias, Comments],
        indent: str,
        is_split: bool,
    ) -> str:
        said = [_named(part) for part in parts]
        if not module:
            return f"import {', '.join(said)}"
        if not is_split or (
            len(parts) == 1
            and not comments[parts[0].binding.alias].above
            and not comments[parts[0].binding.alias].behind
        ):
            return f"from {module} import {', '.join(said)}"
        lines = [f"from {module} import ("]
        for part, text in zip(parts, said, strict=True):
            of_part = comments[part.binding.alias]
            lines += [f"{indent}    {comment}" for comment in of_part.above]
            lines.append(f"{indent}    {text},{'  ' + of_part.behind if of_part.behind else ''}")
        return self._newline.join([*lines, f"{indent})"])

    def _add(self, changed: dict[cst.CSTNode, list[_Part]], has_edits: bool) -> None:
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
            if binding in self._parts:
                part = self._parts[binding]
                module = part.module if part.is_changed and part.module else ""
            if (
                module.partition(".")[0] in (names.OURS, names.COLUMNS)
                and self._program.is_unconditional(binding.statement)
                and self._program.start(binding.statement) <= limit
            ):
                return True
        return False

    def _place(self, changed: dict[cst.CSTNode, list[_Part]], limit: int | None) -> int:
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

    def _places_that_need_ours(self, changed: dict[cst.CSTNode, list[_Part]]) -> Iterator[int]:
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
        return [
            binding.imported
            for binding in bindings
            if binding not in self._parts or not self._parts[binding].is_changed
        ]

    def _end_of_imports(self) -> int:
        end = 0
        for statement in self._statements:
            if not self._is_import(statement):
                break
            end = self._edits.line_end(self._program.end(statement))
        return end

    def _joined(self, lines: list[str], start: int) -> str:
        return (self._newline + self._edits.indent(start)).join(lines)


def _small_statements(block: cst.BaseSuite) -> list[Any]:
    """Returns the statements of a block; a compound one as a whole."""
    lines: Sequence[Any] = block.body if isinstance(block, cst.IndentedBlock) else [block]
    found: list[Any] = []
    for line in lines:
        is_simple = isinstance(line, (cst.SimpleStatementLine, cst.SimpleStatementSuite))
        found += line.body if is_simple else [line]
    return found


def _named(part: _Part) -> str:
    binds = part.name if part.module else part.name.partition(".")[0]
    local = part.binding.local
    has_as = part.binding.alias.asname is not None
    return part.name if binds == local and not has_as else f"{part.name} as {local}"


def _as(statement: str, name: str, local: str) -> str:
    return statement if name == local else f"{statement} as {local}"


def _goes_through(use: Use, module: str) -> bool:
    return any((path + ".").startswith(module + ".") for path in use.paths)


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
