"""Plants faults in the package, one at a time, and says which test finds each.

    python .ci/planted.py --faults=20 --seed=any-text
    python .ci/planted.py --faults=10 --paths estimator_emb/optimizers/adagrad.py

A fault is a changed operator or constant, or a dropped statement, in a copy of the committed files.
By default it is in the core: the package without the extras of pyproject.toml. First this runs all
fast tests, under pytest-cov, and records which tests run each line. For each fault it then runs the
tests of the line, beginning with tests that run few lines. If none finds the fault, it runs all:
imports, threads of TensorFlow and other processes are not recorded, and of a cached function only
the first call is. The seed draws the faults. Some faults change nothing that a program can see,
such as a larger cache. `--keep=FILE` keeps the recording for later calls, because it takes longer
than many faults. `--every` prints each test of the line that fails.
"""

import argparse
import ast
import collections
import contextlib
import copy
import functools
import importlib
import os
import pathlib
import random
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile

import pytest
import tomllib
from coverage import CoverageData

PACKAGE = "estimator_emb"
HANGS = 5 * 60
"""Seconds after which a test has found that the fault makes a program hang."""
OTHER = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
"""Operator -> the operator that takes its place."""


def changed(node: ast.AST) -> ast.AST | None:
    """Returns a node with a fault, or None if this kind of node gets none."""
    new = copy.deepcopy(node)
    match new:
        case ast.BinOp(op=op) | ast.BoolOp(op=op) if type(op) in OTHER:
            new.op = OTHER[type(op)]()
        case ast.Compare(ops=[op, *rest]):
            new.ops = [OTHER[type(op)](), *rest]
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            return new.operand
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value) | float(value)):
            new.value = value + 1
        case ast.Expr(value=ast.Call()) | ast.AugAssign() | ast.Raise() | ast.Continue():
            return ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
            return ast.Pass()
        case _:
            return None
    return new


def places(node: ast.AST, statement: ast.stmt | None = None):
    """Yields (statement, node in it) for each node that can get a fault.

    Texts, annotations, decorators and the `strict` of zip get none.
    """
    if isinstance(node, ast.JoinedStr) or getattr(node, "arg", None) == "strict":
        return
    if isinstance(node, ast.stmt):
        statement = node
    if changed(node) is not None:
        yield statement, node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from places(child, statement)


def with_fault(source: str, node: ast.AST) -> tuple[str, str]:
    """Returns the source with a fault in place of the node, and the fault's own text."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    start = starts[node.lineno - 1] + node.col_offset
    end = starts[node.end_lineno - 1] + node.end_col_offset
    new = changed(node)
    text = ast.unparse(new)
    if isinstance(new, ast.expr):
        text = f"({text})"
    given = source.encode()
    return (given[:start] + text.encode() + given[end:]).decode(), text


@functools.cache
def tests_by_line(recorded: pathlib.Path, module: pathlib.Path) -> dict[int, set[str]]:
    """Returns the tests that run each line of a module. Lines that imports run have no test."""
    data = CoverageData(str(recorded))
    data.read()
    files = [file for file in data.measured_files() if file.endswith(f"/{module}")]
    lines = data.contexts_by_lineno(files[0]) if files else {}
    return {
        line: {context.partition("|")[0] for context in contexts if context}
        for line, contexts in lines.items()
    }


@functools.cache
def lines_by_test(recorded: pathlib.Path) -> collections.Counter[str]:
    """Returns how many lines each test runs."""
    counts: collections.Counter[str] = collections.Counter()
    query = "SELECT context, numbits FROM line_bits JOIN context ON context.id = context_id"
    with sqlite3.connect(recorded) as data:
        for context, bits in data.execute(query):
            counts[context.partition("|")[0]] += int.from_bytes(bits, "big").bit_count()
    return counts


def tests_of(recorded: pathlib.Path, module: pathlib.Path, statement: ast.stmt) -> list[str]:
    """Returns the recorded tests that run a statement.

    First are those that run few lines: they end soon, and are likely to be about the statement.
    """
    lines = tests_by_line(recorded, module)
    counts = lines_by_test(recorded)
    # A statement of several lines is recorded at some of them, and its body for itself.
    body = getattr(statement, "body", None)
    end = body[0].lineno if body else statement.end_lineno + 1
    recorded_lines = {statement.lineno, *range(statement.lineno, end)}
    tests = set().union(*(lines.get(line, ()) for line in recorded_lines))
    return sorted(tests, key=lambda test: (counts[test], test))


class Chosen:
    """A plugin of pytest that runs the given tests, in this order."""

    def __init__(self, tests: list[str]):
        self._places = {test: place for place, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self._places]
        items.sort(key=lambda item: self._places[item.nodeid])

    def pytest_runtest_logstart(self) -> None:
        signal.alarm(HANGS)


def failures(tree: pathlib.Path, tests: list[str], *options: str) -> list[str]:
    """Returns the names of the given tests that fail, or of all tests if none are given.

    Given tests run in a fork, which need not import TensorFlow again. Tests that are gone are left
    out. All tests run in new processes, because some tests measure the memory of their process.
    """
    files = sorted({test.partition("::")[0] for test in tests})
    with tempfile.TemporaryFile("w+") as output:
        child = os.fork()
        if not child:
            status = -1
            try:
                os.setpgid(0, 0)
                os.chdir(tree)
                os.environ["PYTHONPATH"] = sys.path[0] = str(tree)
                os.dup2(output.fileno(), 1)
                os.dup2(output.fileno(), 2)
                chosen = ["-n0", *filter(os.path.exists, files)] if tests else []
                status = pytest.main(["-q", *chosen, *options], [Chosen(tests)])
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        output.seek(0)
        failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output.read(), re.MULTILINE)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)  # What a test that hangs had started.
    if status in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        return []
    return failed or [f"pytest's end with status {status}"]


def import_tensorflow() -> None:
    """Imports TensorFlow with Keras 2, so that no fork imports it again."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TF_USE_LEGACY_KERAS", "1")  # The package sets it again.
        for name in ("tensorflow", "tf_keras"):
            importlib.import_module(name)


def core() -> list[pathlib.Path]:
    """Returns the modules of the package that are in no extra."""
    settings = tomllib.loads(pathlib.Path("pyproject.toml").read_text())["tool"]["estimator_emb"]
    extras = [
        pathlib.Path(path) for extra in settings["extras"].values() for path in extra["paths"]
    ]
    return [
        path
        for path in sorted(pathlib.Path(PACKAGE).rglob("*.py"))
        if not any(path.is_relative_to(extra) for extra in extras)
    ]


def main() -> None:
    """Plants the faults, and prints each and the test that finds it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--faults", type=int, default=20)
    parser.add_argument("--seed", default="0")
    parser.add_argument(
        "--paths", nargs="+", type=pathlib.Path, help="modules; by default the core"
    )
    parser.add_argument("--keep", type=pathlib.Path, help="file of the recording")
    parser.add_argument(
        "--every", action="store_true", help="print each test of the line that fails"
    )
    options = parser.parse_args()
    found = [
        (path, statement, node)
        for path in options.paths or core()
        for statement, node in places(ast.parse(path.read_text()))
    ]
    chosen = random.Random(options.seed).sample(found, min(options.faults, len(found)))
    first_only = [] if options.every else ["-x"]
    count = 0
    with tempfile.TemporaryDirectory(prefix="planted") as folder:
        tree = pathlib.Path(folder, "tree")
        subprocess.run(["git", "clone", "--quiet", ".", str(tree)], check=True)
        recorded = options.keep or pathlib.Path(folder, "recorded")
        if not recorded.exists():
            recording = [f"--cov={PACKAGE}", "--cov-context=test", "--cov-report="]
            subprocess.run(
                [sys.executable, "-m", "pytest", "-q", *recording],
                cwd=tree,
                env={**os.environ, "PYTHONPATH": str(tree)},
                check=True,
            )
            shutil.copy(tree / ".coverage", recorded)
        import_tensorflow()
        for path, statement, node in chosen:
            source = (tree / path).read_text()
            damaged, text = with_fault(source, node)
            (tree / path).write_text(damaged)
            tests = tests_of(recorded, path, statement)
            tests = (tests and failures(tree, tests, *first_only)) or failures(tree, [], "-x")
            (tree / path).write_text(source)
            count += bool(tests)
            before = ast.get_source_segment(source, node).partition("\n")[0]
            said = f"found by {', '.join(tests)}" if tests else "NOT FOUND"
            print(f"{path}:{node.lineno}: {before}  ->  {text}\n    {said}", flush=True)
    print(f"{count} of {len(chosen)} faults found")


if __name__ == "__main__":
    main()
