# SPDX-License-Identifier: Apache-2.0
"""Rewrites the imports of a program: which names they lose, keep, or take from elsewhere."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

from estimator_emb.cli.migration import names
from estimator_emb.cli.migration.findings import Findings
from estimator_emb.cli.migration.new_imports import NewImports, Part
from estimator_emb.cli.migration.program import Binding, Program, Use, dotted
from estimator_emb.cli.migration.source import Comments, Edits, comments_of


class Imports:
    """Decides about the imports of a program, and writes them."""

    def __init__(self, program: Program, edits: Edits, is_package: bool, notes: Findings):
        self._program = program
        self._edits = edits
        self._source = edits.source
        self._is_package = is_package
        self._notes = notes
        self._newline = program.module.default_newline
        self._parts: dict[Binding, Part] = {}
        self._removed: set[cst.CSTNode] = set()
        """Assignments that are removed."""
        self.new = NewImports(program, edits, self._parts, notes)

    # ---- Which imports change ----

    def decide(self, edited: set[Use], left: set[Use], needed: set[Binding]) -> None:
        """Decides what becomes of each import.

        Args:
          edited: expressions that change.
          left: expressions that stay although they are legacy.
          needed: imports that new expressions use.
        """
        for binding in self._program.bindings:
            live = [use for use in binding.uses if use not in edited]
            self._parts[binding] = self._part(binding, live, left, binding in needed)
        for star, module in self._program.stars:
            self._notes.about_star(star, module)

    def _part(self, binding: Binding, live: list[Use], left: set[Use], is_needed: bool) -> Part:
        module, _, leaf = binding.imported.rpartition(".")
        is_from = isinstance(binding.statement, cst.ImportFrom)
        kept = Part(
            binding, module if is_from else "", leaf if is_from else binding.imported, False
        )
        if binding.path.partition(".")[0] not in ("tensorflow", "tensorflow_estimator"):
            return kept
        removed = Part(binding, None, "")
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
            return Part(binding, module, leaf)
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
                return Part(binding, module if is_from else "", leaf if is_from else meaning.moved)
        if not binding.uses and meaning.moved:
            module, _, leaf = meaning.moved.rpartition(".")
            is_same = meaning.moved == binding.imported
            return kept if is_same or not is_from else Part(binding, module, leaf)
        self._notes.left(
            binding.alias, f"{names.canonical(binding.imported)} is still used, see below."
        )
        return kept

    def _root_of(self, binding: Binding, is_needed: bool) -> Part:
        """Returns what becomes of `import a.b.c`, of which nothing needs more than `a`."""
        others = [
            other
            for other in self._program.bindings
            if other is not binding
            and other.local == binding.local
            and self._program.is_unconditional(other.statement)
            and self._parts.get(other, Part(other, None, "")).module is not None
        ]
        is_used = is_needed or any(
            use.paths and not _goes_through(use, binding.imported) for use in binding.uses
        )
        if others or not is_used:
            return Part(binding, None, "")
        return Part(binding, "", binding.local)

    def _may_remove(self, binding: Binding) -> bool:
        return not self._is_package and not self._program.is_named_in_text(binding.local)

    # ---- Writing ----

    def write(self, removed: Sequence[cst.Assign], has_edits: bool) -> None:
        """Writes all imports that change, and the new ones.

        Args:
          removed: assignments to remove.
          has_edits: whether expressions change.
        """
        self._removed = set(removed)
        statements: dict[cst.CSTNode, list[Part]] = {}
        for binding, part in self._parts.items():
            statements.setdefault(binding.statement, []).append(part)
        changed = {
            statement: parts
            for statement, parts in statements.items()
            if any(part.is_changed for part in parts)
        }
        self.new.add(changed, has_edits)
        merged = self._merge_tries(statements)
        for assignment in removed:
            if assignment not in merged:
                self._remove_statement(assignment)
        for statement, parts in changed.items():
            if statement not in merged:
                self._write_statement(statement, parts)

    def _merge_tries(self, statements: dict[cst.CSTNode, list[Part]]) -> set[cst.CSTNode]:
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

    def _lines_of(self, parts: list[Part]) -> list[str]:
        """Returns the new imports for the names of one, without comments."""
        groups: dict[str, list[Part]] = {}
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

    def _write_statement(self, statement: cst.CSTNode, parts: list[Part]) -> None:
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
        groups: dict[str, list[Part]] = {}
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

    def _replace_names(self, statement: cst.Import | cst.ImportFrom, parts: list[Part]) -> None:
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
        parts: list[Part],
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


def _named(part: Part) -> str:
    binds = part.name if part.module else part.name.partition(".")[0]
    local = part.binding.local
    has_as = part.binding.alias.asname is not None
    return part.name if binds == local and not has_as else f"{part.name} as {local}"


def _goes_through(use: Use, module: str) -> bool:
    return any((path + ".").startswith(module + ".") for path in use.paths)
