"""Plants faults in the package, one at a time, and says which test finds each.

    python .ci/planted.py --faults=20 --seed=any-text
    python .ci/planted.py --faults=10 --paths estimator_emb/optimizers/adagrad.py

A fault is a changed operator or constant, or a dropped statement, in a copy of the committed files.
By default it is in the core: the package without the extras of pyproject.toml. First this runs all
fast tests, under pytest-cov, and records which tests run each line. For each fault it then runs the
tests of the line, and if none fails, all fast tests. The seed draws the faults. Some faults change
nothing that a program can see, such as a larger cache. `--keep=FILE` keeps the recording for later
calls, because it takes longer than many faults. `--every` prints each test of the line that fails.
"""

import argparse
import ast
import copy
import functools
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import tempfile

import tomllib
from coverage import CoverageData

PACKAGE = "estimator_emb"
HANGS = 20 * 60
"""Seconds after which a run of the tests has found that the fault makes a program hang."""
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


def places(node: ast.AST):
    """Yields the nodes that can get a fault. Texts, annotations and decorators get none."""
    if isinstance(node, ast.JoinedStr):
        return
    if changed(node) is not None:
        yield node
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from places(child)


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


def tests_of(recorded: pathlib.Path, module: pathlib.Path, node: ast.AST) -> list[str]:
    """Returns the tests that run a node, those beside its module first."""
    lines = tests_by_line(recorded, module)
    # A statement of several lines is recorded at some of them.
    starts = [line for line in lines if line <= node.lineno]
    recorded_lines = {*range(node.lineno, node.end_lineno + 1), max(starts, default=0)}
    tests = set().union(*(lines.get(line, ()) for line in recorded_lines))
    beside = f"tests/{module.parts[1]}/"
    return sorted(tests, key=lambda test: (not test.startswith(beside), test))


def failures(tree: pathlib.Path, tests: list[str], *options: str) -> list[str]:
    """Returns the names of the given tests that fail."""
    arguments = tree / "arguments"
    arguments.write_text("\n".join(tests))
    command = [sys.executable, "-m", "pytest", "-q", *options]
    try:
        done = subprocess.run(
            [*command, f"@{arguments}"],
            cwd=tree,
            env={**os.environ, "PYTHONPATH": str(tree)},
            capture_output=True,
            text=True,
            timeout=HANGS,
        )
    except subprocess.TimeoutExpired:
        return ["the time limit"]
    if not done.returncode:
        return []
    failed = re.findall(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", done.stdout, re.MULTILINE)
    return failed or [f"the start of pytest (status {done.returncode})"]


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
        (path, node)
        for path in options.paths or core()
        for node in places(ast.parse(path.read_text()))
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
            if tests := failures(tree, ["tests"], *recording):
                sys.exit(f"{', '.join(tests)}: fails without a fault.")
            shutil.copy(tree / ".coverage", recorded)
        for path, node in chosen:
            source = (tree / path).read_text()
            damaged, text = with_fault(source, node)
            (tree / path).write_text(damaged)
            of_line = tests_of(recorded, path, node)
            tests = (of_line and failures(tree, of_line, *first_only)) or failures(
                tree, ["tests"], "-x"
            )
            (tree / path).write_text(source)
            count += bool(tests)
            before = ast.get_source_segment(source, node).partition("\n")[0]
            said = f"found by {', '.join(tests)}" if tests else "NOT FOUND"
            print(f"{path}:{node.lineno}: {before}  ->  {text}\n    {said}", flush=True)
    print(f"{count} of {len(chosen)} faults found")


if __name__ == "__main__":
    main()
