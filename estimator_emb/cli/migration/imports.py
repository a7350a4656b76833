# SPDX-License-Identifier: Apache-2.0
"""Rewrites the imports of a program: which names they lose, keep, or take from elsewhere."""

from collections.abc import Iterable, Sequence
from typing import Any

import libcst as cst
from libcst import helpers

from estimator_emb.cli.migration import names
from estimator_emb.cli.migration.findings import Findings
from estimator_emb.cli.migration.new_imports import NewImports, Part
from estimator_emb.cli.migration.program import Binding, Program, Use
from estimator_emb.cli.migration.source import Comments, Edits, comments_of


class Imports(NewImports):
    """Decides about the imports of a program, and writes them."""

    def __init__(self, program: Program, edits: Edits, is_package: bool, notes: Findings):
        super().__init__(program, edits, notes)
        self._is_package = is_package
        self._removed: set[cst.CSTNode] = set()

    def decide(self, edited: set[Use], left: set[Use], needed: set[Binding]) -> None:
        """Decides what becomes of each import; new expressions use those that are `needed`."""
        for binding in self._program.bindings:
            live = [use for use in binding.uses if use not in edited]
            path = self._new_path(binding, live, left, binding in needed)
            self._parts[binding] = Part(binding, path)
        for star, module in self._program.stars:
            self._notes.about_star(star, module)

    def add_install(self) -> None:
        self._parts.update({one: Part(one, one.imported) for one in self._program.bindings})
        super().add_install()

    def _new_path(
        self, binding: Binding, live: list[Use], left: set[Use], is_needed: bool
    ) -> str | None:
        """Returns the dotted name to import; None where the import of this name goes."""
        kept = binding.imported
        if binding.path.partition(".")[0] not in ("tensorflow", "tensorflow_estimator"):
            return kept
        found = self._program.look_up(kept)
        if found is None:
            is_unused = binding.uses and not live and not is_needed
            return None if is_unused and self._may_remove(binding) else kept
        meaning, count = found
        is_from = isinstance(binding.statement, cst.ImportFrom)
        if isinstance(meaning, names.Advice):
            self._notes.left(binding.alias, meaning.text)
            return kept
        if isinstance(meaning, names.Target):
            if is_from and count == kept.count(".") + 1:
                return meaning.path
            self._notes.left(binding.alias, f"{kept} is no module.")
            return kept
        is_whole = is_from or binding.alias.asname is not None
        if not is_whole:
            live = [use for use in live if _goes_through(use, kept)]
        # A try statement may ask whether a module can be imported.
        around = self._program.ancestors(binding.statement)
        if not binding.uses and any(isinstance(one, cst.Try) for one in around):
            self._notes.left(binding.alias, f"{kept} is imported, but not used.")
            return kept
        is_used = bool(binding.uses) or not meaning.moved
        if not live and is_used and self._may_remove(binding):
            return None if is_whole else self._root_of(binding, is_needed)
        if live and left.isdisjoint(live) and (is_whole or meaning.moved in ("", kept)):
            return meaning.moved or kept
        if not binding.uses and meaning.moved:
            return meaning.moved if is_from else kept
        self._notes.left(binding.alias, f"{names.canonical(kept)} is still used, see below.")
        return kept

    def _root_of(self, binding: Binding, is_needed: bool) -> str | None:
        """Returns `a` if a program needs no more of `import a.b.c`; None if it needs nothing."""
        has_other = any(
            other is not binding
            and other.local == binding.local
            and self._program.is_unconditional(other.statement)
            and other in self._parts
            and self._parts[other].path is not None
            for other in self._program.bindings
        )
        is_used = is_needed or any(
            use.paths and not _goes_through(use, binding.imported) for use in binding.uses
        )
        return binding.local if is_used and not has_other else None

    def _may_remove(self, binding: Binding) -> bool:
        return not self._is_package and not self._program.is_named_in_text(binding.local)

    def write(self, removed: Sequence[cst.Assign], has_edits: bool) -> None:
        self._removed = set(removed)
        statements: dict[cst.CSTNode, list[Part]] = {}
        for binding, part in self._parts.items():
            statements.setdefault(binding.statement, []).append(part)
        changed = {
            statement: parts
            for statement, parts in statements.items()
            if any(part.is_changed for part in parts)
        }
        self.add(has_edits or bool(changed))
        merged = self._merge_tries(changed)
        for assignment in removed:
            if assignment not in merged:
                self._remove_statement(assignment)
        for statement, parts in changed.items():
            if statement not in merged:
                self._write_statement(statement, parts)

    def _merge_tries(self, changed: dict[cst.CSTNode, list[Part]]) -> set[cst.CSTNode]:
        """Replaces `try` statements whose imports are the same now; returns what was in them."""
        merged: set[cst.CSTNode] = set()
        for node in self._program.tries:
            blocks = [node.body, *(handler.body for handler in node.handlers)]
            start, end = self._program.start(node), self._program.end(node)
            if node.orelse or node.finalbody or b"#" in self._source[start:end]:
                continue
            inside = [_small_statements(block) for block in blocks]
            flat = [statement for block in inside for statement in block]
            if not all(one in self._removed or one in changed for one in flat):
                continue
            new = [
                [line for one in block for line in self._lines(changed.get(one, ()))]
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

    def _lines(
        self,
        parts: Iterable[Part],
        comments: dict[cst.ImportAlias, Comments] | None = None,
        indent: str = "",
    ) -> list[str]:
        """Returns imports of names, changed ones first; with `comments`, each in its own line."""
        groups: dict[str, list[Part]] = {}
        for part in sorted(parts, key=lambda part: not part.is_changed):
            if part.path is not None:
                groups.setdefault(part.module, []).append(part)
        return [self._import(module, group, comments, indent) for module, group in groups.items()]

    def _remove_statement(self, statement: cst.BaseSmallStatement) -> None:
        line = self._program.parent(statement)
        start, end = self._program.start(statement), self._program.end(statement)
        if not _is_alone(line) or self._is_emptied(self._program.parent(line)):
            self._edits.replace(start, end, "pass")
            return
        assert isinstance(line, cst.SimpleStatementLine)
        comment = line.trailing_whitespace.comment
        if comment is not None and not comment.value.lstrip("# ").startswith(
            ("noqa", "pylint", "type:", "isort", "pytype", "pragma")
        ):
            self._edits.replace(start, self._source.index(comment.value.encode(), end), "")
            return
        self._edits.replace(self._edits.line_start(start), self._edits.line_end(end), "")

    def _is_emptied(self, block: cst.CSTNode) -> bool:
        return isinstance(block, cst.IndentedBlock) and all(
            one in self._removed or self._is_gone(one) for one in _small_statements(block)
        )

    def _is_gone(self, statement: cst.CSTNode) -> bool:
        parts = [part for part in self._parts.values() if part.binding.statement is statement]
        return bool(parts) and all(part.path is None for part in parts)

    def _write_statement(self, statement: cst.CSTNode, parts: list[Part]) -> None:
        assert isinstance(statement, (cst.Import, cst.ImportFrom))
        comments = comments_of(statement)
        kept = [part for part in parts if part.path is not None]
        lost = [
            text
            for part in parts
            if part.path is None
            for text in (*comments[part.binding.alias].above, comments[part.binding.alias].behind)
            if text
        ]
        start, end = self._program.start(statement), self._program.end(statement)
        line = self._program.parent(statement)
        is_alone = _is_alone(line)
        if not kept and (not lost or not is_alone):
            self._remove_statement(statement)
        elif not kept:
            lost += ["pass"] if self._is_emptied(self._program.parent(line)) else []
            self._edits.replace(start, end, self._joined(lost, start))
        elif len(kept) == len(parts) and len({part.module for part in kept}) == 1:
            self._replace_names(statement, kept)
        elif is_alone:
            is_split = isinstance(statement, cst.ImportFrom) and b"\n" in self._source[start:end]
            lines = self._lines(kept, comments if is_split else None, self._edits.indent(start))
            self._edits.replace(start, end, self._joined([*lost, *lines], start))
        else:
            self._edits.replace(start, end, "; ".join(self._lines(kept)))

    def _replace_names(self, statement: cst.Import | cst.ImportFrom, parts: list[Part]) -> None:
        if isinstance(statement, cst.ImportFrom):
            assert statement.module is not None
            self._replace_dotted(statement.module, parts[0].module, parts[0].module)
        for part in parts:
            alias = part.binding.alias
            self._replace_dotted(alias.name, part.name, part.name if alias.asname else _named(part))

    def _replace_dotted(self, node: cst.CSTNode, name: str, text: str) -> None:
        if name != helpers.get_full_name_for_node(node):
            self._edits.replace(self._program.start(node), self._program.end(node), text)

    def _import(
        self,
        module: str,
        parts: list[Part],
        comments: dict[cst.ImportAlias, Comments] | None,
        indent: str,
    ) -> str:
        said = [_named(part) for part in parts]
        if not module:
            return f"import {', '.join(said)}"
        beside = [(comments or {}).get(part.binding.alias, Comments()) for part in parts]
        if comments is None or (len(parts) == 1 and beside == [Comments()]):
            return f"from {module} import {', '.join(said)}"
        lines = [f"from {module} import ("]
        for of_part, text in zip(beside, said, strict=True):
            lines += [f"{indent}    {comment}" for comment in of_part.above]
            lines.append(f"{indent}    {text},{'  ' + of_part.behind if of_part.behind else ''}")
        return self._newline.join([*lines, f"{indent})"])

    def _joined(self, lines: list[str], start: int) -> str:
        return (self._newline + self._edits.indent(start)).join(lines)


def _is_alone(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1


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
