# SPDX-License-Identifier: Apache-2.0
"""Rewrites the imports of a program, and adds those that its new names need."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass, field

import libcst as cst

from . import names
from .findings import Findings
from .program import Binding, Program, Use, dotted

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


class Edits:
    """Replacements of parts of a source.

    Args:
      source: the source, in UTF-8.
    """

    def __init__(self, source: bytes):
        self._source = source
        self._edits: list[tuple[int, int, bytes]] = []

    def replace(self, start: int, end: int, text: str) -> None:
        """Puts `text` in the place of the bytes from `start` to `end`."""
        self._edits.append((start, end, text.encode()))

    def apply(self) -> bytes:
        """Returns the new source."""
        result, at = [], 0
        for start, end, text in sorted(self._edits, key=lambda edit: edit[:2]):
            assert start >= at, "Two edits overlap."
            result += [self._source[at:start], text]
            at = end
        return b"".join([*result, self._source[at:]])

    def lines(self) -> dict[int, int]:
        """Returns which line of the new source each line of the old one is."""
        shifts: dict[int, int] = {}
        for start, end, text in self._edits:
            line = self._source.count(b"\n", 0, end) + 1
            added = text.count(b"\n") - self._source.count(b"\n", start, end)
            shifts[line] = shifts.get(line, 0) + added
        result, shift = {}, 0
        for line in range(1, self._source.count(b"\n") + 2):
            shift += shifts.get(line, 0)
            result[line] = line + shift
        return result


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


@dataclass
class _Comments:
    """The comments of a name in parentheses: the lines above it, and the one behind it."""

    above: list[str] = field(default_factory=list)
    behind: str = ""


class Imports:
    """Decides about the imports of a program, and writes them."""

    def __init__(self, program: Program, source: bytes, is_package: bool, notes: Findings):
        self._program = program
        self._source = source
        self._is_package = is_package
        self._notes = notes
        self._newline = program.module.default_newline
        self._parts: dict[Binding, _Part] = {}
        self._new: dict[str, str] = {}
        """Module -> its new local name."""
        self._taken: set[str] = set()
        self._statements = list(program.module.body)

    # ---- Which imports change ----

    def decide(self, edited: dict[Use, bool], repathed: set[Use], needed: set[Binding]) -> None:
        """Decides what becomes of each import.

        Args:
          edited: of each use of a name, whether it changes.
          repathed: uses that stay as they are if their module is imported from elsewhere.
          needed: imports that new expressions use.
        """
        for binding in self._program.bindings:
            if binding.path.partition(".")[0] not in ("tensorflow", "tensorflow_estimator"):
                continue
            live = [use for use in binding.uses if not edited[use]]
            self._parts[binding] = self._part(binding, live, repathed, binding in needed)
        for star, module in self._program.stars:
            self._notes.about_star(star, module)

    def _part(
        self, binding: Binding, live: list[Use], repathed: set[Use], is_needed: bool
    ) -> _Part:
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
        if not live and self._may_remove(binding):
            return removed if is_from or binding.alias.asname else self._root_of(binding)
        if meaning.moved and all(
            use in repathed or self._program.look_up(next(iter(use.paths))) is None for use in live
        ):
            if meaning.moved == binding.imported:
                return kept
            if is_from or binding.alias.asname:
                module, _, leaf = meaning.moved.rpartition(".")
                return _Part(binding, module if is_from else "", leaf if is_from else meaning.moved)
        self._notes.left(
            binding.alias, f"{names.canonical(binding.imported)} is still used, see below."
        )
        return kept

    def _root_of(self, binding: Binding) -> _Part:
        """Returns what becomes of `import a.b.c`, of which nothing needs more than `a`."""
        others = [
            other
            for other in self._program.bindings
            if other is not binding
            and other.local == binding.local
            and self._parts.get(other, _Part(other, None, "")).module is not None
        ]
        is_used = any(
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

    def write(self, edits: Edits, has_edits: bool) -> None:
        """Writes all imports that change, and the new ones."""
        statements: dict[cst.CSTNode, list[_Part]] = {}
        for binding, part in self._parts.items():
            statements.setdefault(binding.statement, []).append(part)
        changed = {
            statement: parts
            for statement, parts in statements.items()
            if any(part.is_changed for part in parts)
        }
        self._add(edits, changed, has_edits)
        for statement, parts in changed.items():
            self._write_statement(statement, parts, edits)

    def remove_statement(self, statement: cst.BaseSmallStatement, edits: Edits) -> None:
        """Removes a statement, with its line where it has one of its own."""
        line = self._program.parent(statement)
        start, end = self._program.start(statement), self._program.end(statement)
        if not isinstance(line, cst.SimpleStatementLine) or len(line.body) > 1:
            edits.replace(start, end, "pass")
            return
        block = self._program.parent(line)
        if isinstance(block, cst.IndentedBlock) and self._is_emptied(block, line):
            edits.replace(start, end, "pass")
            return
        comment = line.trailing_whitespace.comment
        if comment is not None and not comment.value.lstrip("# ").startswith(
            ("noqa", "pylint", "type:", "isort", "pytype", "pragma")
        ):
            edits.replace(start, self._source.index(comment.value.encode(), end), "")
            return
        edits.replace(self._line_start(start), self._line_end(end), "")

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

    def _write_statement(self, statement: cst.CSTNode, parts: list[_Part], edits: Edits) -> None:
        assert isinstance(statement, (cst.Import, cst.ImportFrom))
        comments = _comments(statement)
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
            self.remove_statement(statement, edits)
            return
        line = self._program.parent(statement)
        is_alone = isinstance(line, cst.SimpleStatementLine) and len(line.body) == 1
        if not kept:
            edits.replace(start, end, self._joined(lost, start) + ("" if is_alone else "pass"))
            return
        modules = {part.module for part in kept}
        if len(modules) == 1 and not lost and len(kept) == len(parts):
            self._replace_names(statement, kept, edits)
            return
        groups: dict[str, list[_Part]] = {}
        for part in sorted(kept, key=lambda part: not part.is_changed):
            groups.setdefault(part.module or "", []).append(part)
        is_split = isinstance(statement, cst.ImportFrom) and b"\n" in self._source[start:end]
        lines = [
            self._import(module, group, comments, self._indent(start), is_split and is_alone)
            for module, group in groups.items()
        ]
        if is_alone:
            edits.replace(start, end, self._joined([*lost, *lines], start))
        else:
            edits.replace(start, end, "; ".join(lines))

    def _replace_names(
        self, statement: cst.Import | cst.ImportFrom, parts: list[_Part], edits: Edits
    ) -> None:
        """Replaces the module and the names alone, so that all else stays."""
        if isinstance(statement, cst.ImportFrom):
            assert statement.module is not None
            module = parts[0].module or ""
            if module != dotted(statement.module):
                start, end = (
                    self._program.start(statement.module),
                    self._program.end(statement.module),
                )
                edits.replace(start, end, module)
        for part in parts:
            alias = part.binding.alias
            if part.name != dotted(alias.name):
                text = part.name if alias.asname else _named(part)
                edits.replace(self._program.start(alias.name), self._program.end(alias.name), text)

    def _import(
        self,
        module: str,
        parts: list[_Part],
        comments: dict[cst.ImportAlias, _Comments],
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

    def _add(self, edits: Edits, changed: dict[cst.CSTNode, list[_Part]], has_edits: bool) -> None:
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
        unsafe = self._first_unsafe(changed)
        at = self._place(changed, unsafe)
        if names.OURS in self._new:
            lines.append(_as("import estimator_emb", names.OURS, self._new[names.OURS]))
        elif self._needs_ours() and not self._is_ours_before(unsafe, changed, at):
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
            edits.replace(at, at, "".join(line + self._newline for line in lines))
        if call:
            after = max(at, self._end_of_imports())
            edits.replace(after, after, f"{self._newline}{call}{self._newline}")

    def _needs_ours(self) -> bool:
        """Returns whether anything here can be imported only with, or after, estimator_emb."""
        modules = {*self._new, *(part.module for part in self._parts.values() if part.is_changed)}
        stay = [part for part in self._parts.values() if part.module is not None]
        return any(
            module is not None and module.startswith((names.OURS, names.COLUMNS, "tensorflow_est"))
            for module in modules
        ) or any(_needs_ours(f"{part.module}.{part.name}".lstrip(".")) for part in stay)

    def _is_ours_before(
        self, unsafe: int, changed: dict[cst.CSTNode, list[_Part]], at: int
    ) -> bool:
        if names.COLUMNS in self._new and at <= unsafe:
            return True
        for binding in self._program.bindings:
            module = binding.path
            if binding in self._parts:
                part = self._parts[binding]
                module = part.module if part.is_changed and part.module else ""
            if (
                module.partition(".")[0] in (names.OURS, names.COLUMNS)
                and self._program.is_unconditional(binding.statement)
                and self._program.start(binding.statement) <= unsafe
            ):
                return True
        return False

    def _place(self, changed: dict[cst.CSTNode, list[_Part]], unsafe: int) -> int:
        """Returns where new imports go: to the first that they replace, before any use of Keras."""
        places = [
            self._line_start(self._program.start(statement))
            for statement in changed
            if self._program.is_unconditional(statement)
        ]
        if not places:
            places = [
                self._line_start(self._program.start(binding.statement))
                for binding in self._program.bindings
                if binding.path.partition(".")[0].startswith("tensorflow")
                and self._program.is_unconditional(binding.statement)
            ]
        return min([*places, unsafe])

    def _first_unsafe(self, changed: dict[cst.CSTNode, list[_Part]]) -> int:
        """Returns where the first statement begins that may use tf.keras, or the first of code."""
        code: int | None = None
        for statement in self._statements:
            if _is_preamble(statement):
                continue
            start = self._line_start(self._program.start(statement))
            own = [
                binding
                for binding in self._program.bindings
                if self._program.top_level(binding.statement) is statement
            ]
            is_import = bool(own) or not isinstance(statement, cst.SimpleStatementLine)
            if code is None and not is_import:
                code = start
            stars = [
                module
                for star, module in self._program.stars
                if self._program.top_level(star) is statement
            ]
            if any(_may_use_keras(path) for path in (*self._remaining(own), *stars)):
                return start
            text = self._source[start : self._program.end(statement)]
            is_function = isinstance(statement, cst.FunctionDef)
            is_relative = b"from ." in text and not is_function
            if (not own and not is_function and b"keras" in text) or is_relative:
                return start
        if code is not None:
            return code
        return len(self._source)

    def _remaining(self, bindings: list[Binding]) -> list[str]:
        return [
            binding.imported
            for binding in bindings
            if binding not in self._parts or not self._parts[binding].is_changed
        ]

    def _end_of_imports(self) -> int:
        end = 0
        for statement in self._statements:
            has_import = any(
                self._program.top_level(binding.statement) is statement
                for binding in self._program.bindings
            )
            if not has_import and not _is_preamble(statement):
                break
            if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
                break
            end = self._line_end(self._program.end(statement))
        return end

    # ---- Text ----

    def _line_start(self, at: int) -> int:
        return max(self._source.rfind(b"\n", 0, at), self._source.rfind(b"\r", 0, at)) + 1

    def _line_end(self, at: int) -> int:
        newline = self._newline.encode()
        found = self._source.find(newline, at)
        return len(self._source) if found < 0 else found + len(newline)

    def _indent(self, at: int) -> str:
        line = self._source[self._line_start(at) : at].decode()
        return line[: len(line) - len(line.lstrip())]

    def _joined(self, lines: list[str], start: int) -> str:
        return (self._newline + self._indent(start)).join(lines)


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


def _comments(statement: cst.Import | cst.ImportFrom) -> dict[cst.ImportAlias, _Comments]:
    """Returns the comments of each name of an import."""
    assert not isinstance(statement.names, cst.ImportStar)
    result = {alias: _Comments() for alias in statement.names}
    if not isinstance(statement, cst.ImportFrom) or statement.lpar is None:
        return result
    spaces: list[cst.BaseParenthesizableWhitespace | None] = [statement.lpar.whitespace_after]
    for alias in statement.names:
        comma = alias.comma
        spaces.append(comma.whitespace_after if isinstance(comma, cst.Comma) else None)
    assert statement.rpar is not None
    aliases = list(statement.names)
    for index, space in enumerate([*spaces, statement.rpar.whitespace_before]):
        if not isinstance(space, cst.ParenthesizedWhitespace):
            continue
        first = space.first_line.comment
        lines = [line.comment.value for line in space.empty_lines if line.comment]
        before = min(index, len(aliases)) - 1
        if first is not None:
            if before < 0:
                result[aliases[0]].above.insert(0, first.value)
            else:
                result[aliases[before]].behind = first.value
        result[aliases[min(index, len(aliases) - 1)]].above += lines
    return result
