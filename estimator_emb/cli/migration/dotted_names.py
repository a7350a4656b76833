"""Resolves the dotted name that each expression of a program stands for, by scopes."""

import ast
import bisect
import collections
import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst
from libcst import helpers, metadata
from libcst.metadata.scope_provider import ScopeVisitor

from estimator_emb.catalog import tf1 as tf1_names
from estimator_emb.cli.migration import renames

_Order = tuple[list[int] | None, list[metadata.BaseAssignment]]


@dataclass(eq=False)
class Binding:
    """A name bound by an import. In `import a.b`, `imported` is `a.b`, the other two are `a`."""

    statement: cst.Import | cst.ImportFrom
    alias: cst.ImportAlias
    local: str
    path: str
    imported: str
    uses: list["Use"] = field(default_factory=list)


@dataclass(eq=False)
class Alias:
    """A local name that an assignment gives to a module, such as `tpu = tf.contrib.tpu`."""

    statement: cst.Assign
    local: str
    value: cst.BaseExpression
    uses: list["Use"] = field(default_factory=list)


@dataclass(eq=False)
class Use:
    """A use of a dotted name, such as the `chain` of `tf`, `tf.train` and `tf.train.Saver`.

    `paths` maps each possible name of the last to the number of its parts that `tf` covers. It
    `is_certain` if it can be nothing else. `sources` bind `tf`.
    """

    chain: list[cst.BaseExpression]
    paths: dict[str, int]
    is_certain: bool
    sources: list[Binding | Alias]

    @property
    def whole(self) -> cst.BaseExpression:
        return self.chain[-1]


_Meanings = tuple[set[str], bool, list[Binding | Alias]]


class _Assignments(ScopeVisitor):
    """Finds scopes and their assignments in linear time.

    For each call, subscript and name, LibCST's own visitor searches all assignments of a name.
    """

    def visit_Call(self, node: Any) -> None:  # noqa: N802 - LibCST calls these by name.
        pass

    leave_Call: Any = visit_Call  # noqa: N815
    visit_Subscript: Any = visit_Call  # noqa: N815
    leave_Subscript: Any = visit_Call  # noqa: N815

    def visit_Name(self, node: cst.Name) -> None:  # noqa: N802
        context = self.provider.get_metadata(metadata.ExpressionContextProvider, node, None)
        if context == metadata.ExpressionContext.STORE:
            self.scope.record_assignment(node.value, node)


class _Scopes(metadata.ScopeProvider):
    """Provides the scope of each node, without LibCST's lists of the reads of each name."""

    def visit_Module(self, node: cst.Module) -> None:  # noqa: N802
        node.visit(_Assignments(self))


class Program:
    """A parsed program. Raises libcst.ParserSyntaxError if the source is not Python.

    `bindings` are the names bound by imports, in order, and `bound_by` groups them by import.
    `stars` are star imports. `uses` are expressions that may name TensorFlow. `paths` are the
    dotted names of uses and imports, and `means_v1` is True if they show that TensorFlow 1 is
    meant. `strings` excludes f-strings, and `identifiers` excludes attributes and keywords.
    """

    def __init__(self, text: str):
        wrapper = metadata.MetadataWrapper(cst.parse_module(text), unsafe_skip_copy=True)
        self.module = wrapper.module
        found = wrapper.resolve_many(
            [
                _Scopes,
                metadata.ByteSpanPositionProvider,
                metadata.ExpressionContextProvider,
            ]
        )
        self._scopes: Any = found[_Scopes]
        self._spans: Any = found[metadata.ByteSpanPositionProvider]
        self._contexts: Any = found[metadata.ExpressionContextProvider]
        self._ends = [end.end() for end in re.finditer(rb"\r\n|\n|\r", text.encode())]
        """Where each line of the source ends, in bytes."""
        self._orders: dict[tuple[Any, str], _Order] = {}
        self._known: dict[tuple[Any, ...], _Meanings] = {}
        nodes, self._parents = _nodes(self.module)
        imports = nodes[cst.Import] + nodes[cst.ImportFrom]
        self.bindings: list[Binding] = []
        self.aliases: list[Alias] = []
        self.uses: list[Use] = []
        self.stars: list[tuple[cst.ImportFrom, str]] = []
        self.calls: list[cst.Call] = nodes[cst.Call]
        self.strings: list[cst.SimpleString] = nodes[cst.SimpleString]
        self.tries: list[cst.Try] = nodes[cst.Try]
        self.imports: list[cst.Import | cst.ImportFrom] = sorted(imports, key=self.start)
        self._comments: list[cst.Comment] = nodes[cst.Comment]
        self.identifiers: list[cst.Name] = [
            name for name in nodes[cst.Name] if not _is_part(name, self._parents[name])
        ]
        self.bound_by: dict[cst.CSTNode, list[Binding]] = {}
        self._by_path: dict[str, list[Binding]] = collections.defaultdict(list)
        for statement in self.imports:
            self._bind(statement)
        self._alias_of: dict[cst.CSTNode, Alias | None] = {}
        for name in nodes[cst.Name]:
            if self._is_expression(name):
                self._use(name)
        self.paths = {path for use in self.uses for path in use.paths}
        self.paths.update(binding.imported for binding in self.bindings)
        self.means_v1 = any(map(_is_tf1, self.paths))

    def start(self, node: cst.CSTNode) -> int:
        return int(self._spans[node].start)

    def end(self, node: cst.CSTNode) -> int:
        return int(self._spans[node].start + self._spans[node].length)

    def parent(self, node: cst.CSTNode) -> cst.CSTNode:
        return self._parents[node]

    def ancestors(self, node: cst.CSTNode) -> Iterator[cst.CSTNode]:
        while node in self._parents:
            node = self._parents[node]
            yield node

    def is_read(self, node: cst.CSTNode) -> bool:
        return self._contexts.get(node) in (None, metadata.ExpressionContext.LOAD)

    def code(self, node: cst.CSTNode) -> str:
        return self.module.code_for_node(node).strip()

    def line(self, node: cst.CSTNode) -> int:
        return bisect.bisect_right(self._ends, self.start(node)) + 1

    def look_up(self, path: str) -> tuple[renames.Meaning, int] | None:
        return renames.look_up(path, self.means_v1)

    def top_level(self, node: cst.CSTNode) -> cst.CSTNode:
        while self._parents[node] is not self.module:
            node = self._parents[node]
        return node

    def is_unconditional(self, statement: cst.CSTNode) -> bool:
        return self._parents[self._parents[statement]] is self.module

    def always_bound(self, path: str, use: Any) -> Iterator[Binding]:
        """Yields the unconditional imports of `path`. They bind its name at `use`, if given."""
        for binding in self._by_path.get(path, ()):
            found = [] if use is None else self._scopes[use][binding.local]
            nodes = (getattr(one, "node", None) for one in found)
            if self.is_unconditional(binding.statement) and (
                use is None or (found and all(node is binding.statement for node in nodes))
            ):
                yield binding

    def _bind(self, statement: cst.Import | cst.ImportFrom) -> None:
        found = self.bound_by[statement] = []
        owner = ""
        if isinstance(statement, cst.ImportFrom):
            if statement.relative or statement.module is None:
                return
            module = helpers.get_full_name_for_node_or_raise(statement.module)
            if isinstance(statement.names, cst.ImportStar):
                self.stars.append((statement, module))
                return
            owner = f"{module}."
        assert not isinstance(statement.names, cst.ImportStar)
        for alias in statement.names:
            imported = f"{owner}{alias.evaluated_name}"
            local = alias.evaluated_alias or alias.evaluated_name.partition(".")[0]
            path = imported if owner or alias.asname else local
            found.append(Binding(statement, alias, local, path, imported))
            self._by_path[path].append(found[-1])
        self.bindings += found

    def _is_expression(self, name: cst.Name) -> bool:
        parent = self._parents[name]
        if isinstance(parent, cst.Attribute):
            return parent.value is name
        if isinstance(parent, (cst.ImportAlias, cst.AsName, cst.Param, cst.NameItem)):
            return parent is not None and getattr(parent, "default", None) is name
        if isinstance(parent, (cst.Arg, cst.FunctionDef, cst.ClassDef)):
            return isinstance(parent, cst.Arg) and parent.value is name
        return self.is_read(name) or self._contexts[name] == metadata.ExpressionContext.DEL

    def _use(self, name: cst.Name) -> None:
        paths, is_certain, sources = self._meanings(name, name)
        if not paths:
            return
        chain: list[cst.BaseExpression] = [name]
        attributes = ""
        parent = self._parents[name]
        while isinstance(parent, cst.Attribute) and parent.value is chain[-1]:
            chain.append(parent)
            attributes += f".{parent.attr.value}"
            parent = self._parents[parent]
        use = Use(
            chain,
            {path + attributes: path.count(".") + 1 for path in paths},
            is_certain,
            sources,
        )
        self.uses.append(use)
        for source in sources:
            source.uses.append(use)

    def _meanings(self, name: cst.Name, reader: cst.CSTNode) -> _Meanings:
        """Returns (possible dotted names, is_certain, sources) of a name that `reader` reads."""
        scope = self._scopes.get(name)
        if scope is None:
            return set(), False, []
        count, assignments = self._effective(scope, name.value, reader)
        key: tuple[Any, ...] = scope, name.value, count
        if isinstance(scope, metadata.ClassScope) and name.value in scope.assignments:
            # In a class body, a name means the module's variable until the class assigns it.
            outer, others = self._effective(scope.parent, name.value, reader)
            key, assignments = (*key, outer), [*assignments, *others]
        if key not in self._known:
            self._known[key] = set(), False, []  # For a name that is assigned from itself.
            self._known[key] = self._meanings_of(name.value, assignments)
        return self._known[key]

    def _meanings_of(self, name: str, assignments: Iterable[metadata.BaseAssignment]) -> _Meanings:
        paths: set[str] = set()
        sources: list[Binding | Alias] = []
        is_certain = True
        for assignment in assignments:
            node: Any = getattr(assignment, "node", None)
            if node in self.bound_by:
                for binding in self.bound_by[node]:
                    if binding.local == name:
                        sources.append(binding)
                        if binding.path.partition(".")[0] in renames.ROOTS:
                            paths.add(binding.path)
                        else:
                            is_certain = False
                continue
            alias = None if node is None else self._alias(node)
            root, attributes = (None, "") if alias is None else _split(alias.value)
            found, certain, _ = (set(), False, []) if root is None else self._meanings(root, root)
            if alias is None or not found:
                is_certain = False
                continue
            is_certain = is_certain and certain
            paths |= {path + attributes for path in found}
            sources.append(alias)
        return paths, is_certain, sources

    def _effective(
        self, scope: Any, name: str, reader: cst.CSTNode
    ) -> tuple[int, Sequence[metadata.BaseAssignment]]:
        """Returns the assignments that may be in effect when a name is read, and their number.

        If all are top-level statements of the module, this is the last assignment above the reader,
        and the number counts the assignments above. In a function it is the last assignment in the
        file, because the function is called later.
        """
        if (scope, name) not in self._orders:
            self._orders[scope, name] = self._order(scope[name])
        starts, found = self._orders[scope, name]
        if starts is None:
            return len(found), found
        line = self.top_level(reader)
        is_simple = isinstance(line, cst.SimpleStatementLine)
        count = bisect.bisect_left(starts, self.start(line)) if is_simple else len(starts)
        return count, found[count - 1 : count] if count else found

    def _order(self, assignments: Iterable[metadata.BaseAssignment]) -> "_Order":
        """Returns sorted assignments with their starts, which are None if one is not top-level."""
        found = list(assignments)
        starts: dict[int, metadata.BaseAssignment] = {}
        for assignment in found:
            node = getattr(assignment, "node", None)
            line = None if node is None or node not in self._spans else self.top_level(node)
            if not isinstance(line, cst.SimpleStatementLine):
                return None, found
            starts[self.start(line)] = assignment
        return sorted(starts), [starts[start] for start in sorted(starts)]

    def _alias(self, node: cst.CSTNode) -> Alias | None:
        """Returns the assignment with the single target `node`, if it binds a dotted name."""
        if node not in self._alias_of:
            self._alias_of[node] = None
            target = self._parents.get(node)
            statement = self._parents.get(target) if target is not None else None
            if (
                isinstance(node, cst.Name)
                and isinstance(target, cst.AssignTarget)
                and isinstance(statement, cst.Assign)
                and len(statement.targets) == 1
                and _split(statement.value)[0] is not None
            ):
                alias = Alias(statement, node.value, statement.value)
                self._alias_of[node] = alias
                self.aliases.append(alias)
        return self._alias_of[node]

    def is_named_in_text(self, name: str) -> bool:
        """Returns whether a string or a type comment may refer to a name, as `__all__` does."""
        return name in self._text_names

    @functools.cached_property
    def _text_names(self) -> set[object]:
        names = {ast.literal_eval(text.value) for text in self.strings}
        return names.union(*(re.findall(r"\w+", text) for _, text in self.types()))

    def types(self) -> Iterator[tuple[cst.CSTNode, str]]:
        """Yields (node, text) of types written as text: type comments and quoted annotations."""
        for comment in self._comments:
            if re.match(r"#\s*type:(?!\s*ignore)", comment.value):
                yield comment, comment.value
        for text in self.strings:
            node: cst.CSTNode = text
            while isinstance(
                node, (cst.BaseExpression, cst.BaseSlice, cst.SubscriptElement, cst.Element)
            ):
                node = self._parents[node]
            if isinstance(node, cst.Annotation):
                yield text, text.value

    def is_in_class(self, node: cst.CSTNode) -> bool:
        return isinstance(self._scopes.get(node), metadata.ClassScope)


def _nodes(module: cst.Module) -> tuple[dict[type, list[Any]], dict[cst.CSTNode, cst.CSTNode]]:
    nodes: dict[type, list[Any]] = collections.defaultdict(list)
    parents: dict[cst.CSTNode, cst.CSTNode] = {}
    waiting: list[cst.CSTNode] = [module]
    while waiting:
        node = waiting.pop()
        nodes[type(node)].append(node)
        children = node.children
        parents.update(dict.fromkeys(children, node))
        waiting += reversed(children)
    return nodes, parents


def _is_tf1(path: str) -> bool:
    path = renames.canonical(path)
    if not path.startswith("tf.") or path.startswith("tf.compat."):
        return False
    rest = path.removeprefix("tf.")
    is_tf1 = tf1_names.part_of(rest) is not None
    return is_tf1 or rest.startswith(("estimator.tpu", "estimator.inputs"))


def _is_part(name: cst.Name, parent: cst.CSTNode) -> bool:
    if isinstance(parent, cst.Attribute):
        return parent.attr is name
    if isinstance(parent, cst.Arg):
        return parent.keyword is name
    return isinstance(parent, cst.ImportAlias) and parent.asname is not None


def _split(node: cst.CSTNode) -> tuple[cst.Name | None, str]:
    """Splits a dotted name into its first name and the rest. Returns (None, '') for others."""
    attributes = ""
    while isinstance(node, cst.Attribute):
        attributes = f".{node.attr.value}{attributes}"
        node = node.value
    return (node, attributes) if isinstance(node, cst.Name) else (None, "")
