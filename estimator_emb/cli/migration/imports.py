"""Rewrites the imports of a program, and adds imports of its new names.

The program then imports estimator_emb before anything that uses Keras or tensorflow-estimator.
"""

import itertools
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst import helpers

from estimator_emb.cli.migration import renames
from estimator_emb.cli.migration.dotted_names import Binding, Program, Use
from estimator_emb.cli.migration.findings import Findings
from estimator_emb.cli.migration.source import Comments, Edits, comments_of

_LOCAL_NAMES = {
    renames.OURS: ("estimator_emb", "ee", "estimator_emb_"),
    renames.COLUMNS: ("feature_columns", "fc", "tpu_feature_columns"),
    renames.API_V1: ("tf_estimator", "tf_estimator_v1", "tf1_estimator"),
    renames.API_V2: ("tf_estimator", "tf_estimator_v2", "tf2_estimator"),
    renames.TF1: ("tf1", "tf_v1", "tensorflow_v1"),
}
"""Module -> local names for it in order of preference. A program gets the first free name."""

_WITHOUT_KERAS = {*sys.stdlib_module_names, "absl", "numpy", "pandas", "scipy", "six", "yaml"}
"""Packages whose import does not use tf.keras."""

_INSTALL_V1 = "install(tf_v1=True)  # `import tensorflow` gives TensorFlow 1."
_INSTALL_ESTIMATORS = "install()  # It brings tf.estimator back."
_INSTALL = "install()  # With ESTIMATOR_EMB_DEVICE=emulate, TPU names mean an emulated TPU."


@dataclass(frozen=True)
class Part:
    """A name of an import after the rewrite. `path` is None if its import is removed."""

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


class Imports:
    """Decides how the imports of a program change, and writes the changes to `edits`."""

    def __init__(self, program: Program, edits: Edits, is_package: bool, notes: Findings):
        self._program = program
        self._edits = edits
        self._source = edits.source
        self._is_package = is_package
        self._parts = {binding: Part(binding, binding.imported) for binding in program.bindings}
        self._notes = notes
        self._newline = program.module.default_newline
        self._statements = list(program.module.body)
        self._bindings: dict[cst.CSTNode, list[Binding]] = {one: [] for one in self._statements}
        for binding in program.bindings:
            self._bindings[program.top_level(binding.statement)].append(binding)
        self._new: dict[str, str] = {}
        """Module -> its new local name."""

    def decide(self, edited: set[Use], left: set[Use], needed: set[Binding]) -> None:
        """Decides how each import changes. New expressions use the `needed` imports."""
        self._parts.clear()  # `_root_of` may see only the imports above.
        for binding in self._program.bindings:
            live = [use for use in binding.uses if use not in edited]
            path = self._new_path(binding, live, left, binding in needed)
            self._parts[binding] = Part(binding, path)
        for star, module in self._program.stars:
            self._notes.about_star(star, module)

    def _new_path(
        self, binding: Binding, live: list[Use], left: set[Use], is_needed: bool
    ) -> str | None:
        """Returns the dotted name to import, or None to remove the import of this name."""
        kept = binding.imported
        if binding.path.partition(".")[0] not in ("tensorflow", "tensorflow_estimator"):
            return kept
        found = self._program.look_up(kept)
        if found is None:
            is_unused = binding.uses and not live and not is_needed
            return None if is_unused and self._may_remove(binding) else kept
        meaning, count = found
        is_from = isinstance(binding.statement, cst.ImportFrom)
        if isinstance(meaning, renames.Advice):
            self._notes.left(binding.alias, meaning.text)
            return kept
        if isinstance(meaning, renames.Target):
            if is_from and count == kept.count(".") + 1:
                return meaning.path
            self._notes.left(binding.alias, f"{kept} is no module.")
            return kept
        is_whole = is_from or binding.alias.asname is not None
        if not is_whole:
            live = [use for use in live if _goes_through(use, kept)]
        # In a `try`, an unused import may test whether the module exists.
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
        self._notes.left(binding.alias, f"{renames.canonical(kept)} is still used, see below.")
        return kept

    def _root_of(self, binding: Binding, is_needed: bool) -> str | None:
        """Returns `a` if a program only needs `a` of `import a.b.c`, else None."""
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

    def take_names(self, gone: Iterable[cst.CSTNode]) -> None:
        removed = {part.binding.alias for part in self._parts.values() if part.path is None}
        nodes = {*gone, *removed}
        self._taken = {
            name.value
            for name in self._program.identifiers
            if name not in nodes and nodes.isdisjoint(self._program.ancestors(name))
        }

    def expression(self, target: renames.Target, use: Use, tf1: str | None) -> str:
        """Returns the expression that replaces `use`, and notes the import that it needs."""
        module, name = target.module, target.name
        if module == f"{renames.OURS}.export":
            module, name = renames.OURS, f"export.{name}"
        local = tf1 if module == renames.TF1 and tf1 is not None else self._local(module, use)
        return f"{local}.{name}"

    def _local(self, module: str, use: Use | None) -> str:
        for binding in self._program.always_bound(module, use and use.chain[0]):
            if not self._parts[binding].is_changed:
                return binding.local
        if module not in self._new:
            leaf = module.rpartition(".")[2]
            if module.startswith(f"{renames.OURS}.legacy.contrib."):
                leaf = f"contrib_{leaf}"
            wanted = _LOCAL_NAMES.get(module, (leaf, f"{leaf}_lib", f"{leaf}_module"))
            taken = self._taken | set(self._new.values())
            more = (f"{wanted[-1]}{i}" for i in itertools.count(2))
            self._new[module] = next(n for n in itertools.chain(wanted, more) if n not in taken)
        return self._new[module]

    def _add(self, is_changed: bool) -> None:
        """Adds imports of new names, and imports estimator_emb before everything that needs it."""
        needs_ours = self._needs_ours()
        ours = any(path.partition(".")[0] == renames.OURS for path in self._program.paths)
        gets_v1 = not ours and bool(self._notes.tf1_names())
        if not (is_changed or needs_ours or gets_v1):
            return
        is_called = is_changed and needs_ours and not self._notes.is_installed()
        call = ""
        if gets_v1:
            first = f"{self._local(renames.OURS, None)}.{_INSTALL_V1}"
        elif is_called and self._notes.looks_tpus_up():
            call = f"{self._local(renames.OURS, None)}.{_INSTALL}"
        limit = self._limit()
        at = self._place(limit)
        lines: list[str] = []
        if renames.OURS in self._new:
            lines.append(_as("import estimator_emb", renames.OURS, self._new[renames.OURS]))
        elif needs_ours and not self._is_ours_before(limit, at):
            lines.append("import estimator_emb  # noqa: F401 - before what uses tf.keras.")
        if gets_v1:
            lines.append(first)
        for module, local in sorted(self._new.items(), key=lambda item: item[0] != renames.COLUMNS):
            parent, _, leaf = module.rpartition(".")
            if module in (renames.COLUMNS, renames.TF1):
                lines.append(_as(f"import {module}", module, local))
            elif module != renames.OURS:
                lines.append(_as(f"from {parent} import {leaf}", leaf, local))
        self._edits.replace(at, at, "".join(line + self._newline for line in lines))
        if call:
            after = max(at, self._end_of_imports())
            is_near = self._source[after : after + 1].strip()
            text = self._newline + call + self._newline * (2 if is_near else 1)
            self._edits.replace(after, after, text)

    def add_install(self) -> None:
        at = self._place(self._limit())
        call = _INSTALL_V1 if self._notes.tf1_names() else _INSTALL_ESTIMATORS
        lines = ("import estimator_emb", f"{renames.OURS}.{call}")
        self._edits.replace(at, at, "".join(line + self._newline for line in lines))

    def _needs_ours(self) -> bool:
        changed = [part.path for part in self._parts.values() if part.is_changed and part.path]
        return any(
            path.startswith((renames.OURS, renames.COLUMNS, "tensorflow_est"))
            for path in (*self._new, *changed)
        ) or any(_needs_ours(part.path) for part in self._parts.values() if part.path)

    def _is_ours_before(self, limit: int | None, at: int) -> bool:
        """Returns whether other lines already import estimator_emb early enough."""
        if renames.COLUMNS in self._new:  # Its line comes first, and imports estimator_emb.
            return True
        if any(_needs_ours(module) for module in self._new):
            limit = at - 1
        elif limit is None:
            limit = len(self._source)
            if b"keras" not in self._source:
                return True
        return any(
            (part.path or "").partition(".")[0] in (renames.OURS, renames.COLUMNS)
            and self._program.is_unconditional(part.binding.statement)
            and self._program.start(part.binding.statement) <= limit
            for part in self._parts.values()
        )

    def _place(self, limit: int | None) -> int:
        """Returns where new imports go: before TensorFlow imports, definitions and `limit`."""
        places = [] if limit is None else [limit]
        for statement in self._statements:
            imported = [binding.path for binding in self._bindings[statement]]
            if _is_definition(statement) or any(one.startswith("tensorflow") for one in imported):
                places.append(self._before(statement))
        return min(places, default=len(self._source))

    def _limit(self) -> int | None:
        """Returns the start of the first statement that may use tf.keras after the rewrite."""
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
        """Returns where to insert a line before a statement, but below a docstring."""
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

    def write(self, removed: Sequence[cst.Assign], has_edits: bool) -> None:
        self._removed: set[cst.CSTNode] = set(removed)
        changed: dict[cst.CSTNode, list[Part]] = {
            statement: self._parts_of(statement)
            for statement in self._program.imports
            if any(part.is_changed for part in self._parts_of(statement))
        }
        self._add(has_edits or bool(changed))
        merged = self._merge_tries(changed)
        for assignment in removed:
            if assignment not in merged:
                self._remove_statement(assignment)
        for statement, parts in changed.items():
            if statement not in merged:
                self._write_statement(statement, parts)

    def _merge_tries(self, changed: dict[cst.CSTNode, list[Part]]) -> set[cst.CSTNode]:
        """Replaces `try` statements if all branches import the same. Returns their statements."""
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
        """Returns import statements, changed names first. `comments` puts each name on its line."""
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
        parts = self._parts_of(statement)
        return bool(parts) and all(part.path is None for part in parts)

    def _parts_of(self, statement: cst.CSTNode) -> list[Part]:
        return [self._parts[one] for one in self._program.bound_by.get(statement, ())]

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


def _as(statement: str, name: str, local: str) -> str:
    return statement if name == local else f"{statement} as {local}"


def _needs_ours(path: str) -> bool:
    return any((path + ".").startswith(module + ".") for module in renames.NEED_OURS)


def _may_use_keras(path: str) -> bool:
    if path.partition(".")[0] == "tensorflow" and not _needs_ours(path):
        return "keras" in path.split(".")
    return path.partition(".")[0] not in (*_WITHOUT_KERAS, renames.OURS, renames.COLUMNS)


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


def _is_alone(line: cst.CSTNode) -> bool:
    return isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1


def _small_statements(block: cst.BaseSuite) -> list[Any]:
    """Returns the statements of a block. Compound statements stay whole."""
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
