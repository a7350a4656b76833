"""Rewrites programs to use estimator_emb's names: `estimator-emb migrate`. Needs no TensorFlow."""

import argparse
import ast
import contextlib
import difflib
import importlib.util
import io
import os
import stat
import sys
import tempfile
import tokenize
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from estimator_emb.cli import parsing
from estimator_emb.reporting.text_columns import escaped

if TYPE_CHECKING:
    from estimator_emb.cli.migration.rewrite import Rewritten

DETAILS = """\
    estimator-emb migrate PROGRAM.py
    estimator-emb migrate --write PROGRAM.py FOLDER
    estimator-emb migrate --explain tf.contrib.layers.fully_connected

The command prints the changes as a diff. On stderr it lists what a person must decide, by file and
line. The exit status is 0 if something changes. It is 2 if nothing changes or a file cannot be
read, and then no file is written. The command needs LibCST: pip install libcst

--explain works without LibCST. It prints where a legacy name is today. For a module it also prints
the names in it. The last part of a name is enough: --explain fully_connected. The exit status is 2
if no table has the name.
"""

_Opcode = tuple[Literal["replace", "delete", "insert", "equal"], int, int, int, int]


@dataclass(frozen=True)
class _File:
    """A source file: `path` is escaped for the terminal, `real` has its symbolic links resolved."""

    path: str
    real: str
    encoding: str
    text: str


class _Unusable(Exception):
    """Raised for a file that cannot be rewritten. The text says where and why."""


def fill_parser(parser: parsing.Parser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "--write", action="store_true", help="change the files instead of printing a diff"
    )
    parser.add_argument(
        "--explain", metavar="NAME", help="print where a legacy name is today, and change nothing"
    )
    parser.add_argument(
        "paths",
        nargs="*",
        metavar="PROGRAM.py",
        help="a program, or a folder for all *.py files in it",
    )


def main(options: argparse.Namespace) -> int:
    """Rewrites programs, shows how they would change, or explains a name.

    Returns the exit status that DETAILS describes.
    """
    if options.explain is not None:
        if options.paths or options.write:
            raise parsing.WrongArguments("--explain takes neither a program nor --write")
        return _explain(options.explain)
    if not options.paths:
        raise parsing.WrongArguments("the following arguments are required: PROGRAM.py")
    if importlib.util.find_spec("libcst") is None:
        _say("estimator-emb migrate needs LibCST: pip install libcst")
        return 2
    results: list[tuple[_File, Rewritten]] = []
    errors: list[str] = []
    for path in _files(options.paths, errors):
        try:
            file = _read(path, options.write)
            results.append((file, _rewritten(file)))
        except _Unusable as error:
            errors.append(str(error))
    if errors:
        _say("\n".join(errors))
        return 2
    changed = [(file, result) for file, result in results if result.text != file.text]
    if options.write:
        try:
            _write({file.real: result.text.encode(file.encoding) for file, result in changed})
        except OSError as error:
            name = escaped(error.filename)
            _say(f"{name}: cannot be written: {error.strerror}; no file was changed.")
            return 2
        for file, _ in changed:
            print(f"changed {file.path}")
    else:
        for file, result in changed:
            _print_diff(file, result)
    _report(results, options.write)
    if changed:
        return 0
    for file, _ in results:
        _say(f"{file.path}: nothing to change.")
    return 2


def _explain(name: str) -> int:
    from estimator_emb.cli.migration import explained

    lines = explained.lines(name)
    if not lines:
        said = f"{name!r} is in no table of legacy names.{explained.near(name)}"
        advice = explained.where(name) or ""
        if advice.startswith("left "):
            said += f" If the name is right, it {advice}"
        _say(f"estimator-emb migrate: {said}")
        return 2
    print("\n".join(lines))
    return 0


def _files(paths: Sequence[str], errors: list[str]) -> Iterator[str]:
    seen: set[str] = set()
    folders = [os.path.realpath(path) for path in paths if os.path.isdir(path)]
    for path in paths:
        if os.path.isdir(path):
            found = sorted(_files_in(path, folders, errors))
            if not found:
                errors.append(f"{escaped(path)}: there is no Python file in this folder.")
        elif os.path.lexists(path):
            found = [path]
        else:
            errors.append(f"{escaped(path)}: there is no such file.")
            continue
        for file in found:
            real = os.path.realpath(file)
            if real not in seen:
                seen.add(real)
                yield file


def _files_in(folder: str, folders: Sequence[str], errors: list[str]) -> Iterator[str]:
    """Yields Python files, except hidden folders, environments, and links that leave `folders`."""

    def fail(error: OSError) -> None:
        errors.append(f"{escaped(error.filename)}: cannot be read: {error.strerror}.")

    for path, inside, files in os.walk(folder, onerror=fail):
        inside[:] = sorted(
            name
            for name in inside
            if not name.startswith(".")
            and name != "__pycache__"
            and not os.path.exists(os.path.join(path, name, "pyvenv.cfg"))
        )
        for name in files:
            file = os.path.join(path, name)
            if not name.endswith(".py") or not os.path.isfile(file):
                continue
            real = os.path.realpath(file)
            if any(real.startswith(os.path.join(root, "")) for root in folders):
                yield file


def _read(path: str, is_written: bool) -> _File:
    real, path = os.path.realpath(path), escaped(path)
    try:
        if not stat.S_ISREG(os.stat(real).st_mode):
            raise _Unusable(f"{path}: this is no regular file.")
        with open(real, "rb") as file:
            data = file.read()
    except OSError as error:
        raise _Unusable(f"{path}: cannot be read: {error.strerror}.") from error
    if is_written and not (os.access(real, os.W_OK) and os.access(os.path.dirname(real), os.W_OK)):
        raise _Unusable(f"{path}: this file, or its folder, may not be written.")
    try:
        text, encoding = _decoded(data)
        if text.encode(encoding) != data:
            raise _Unusable(f"{path}: its encoding {encoding} cannot be written back.")
    except ValueError as error:
        raise _Unusable(f"{path}: this is not Python: {error}.") from error
    return _File(path, real, encoding, text)


def _decoded(source: bytes) -> tuple[str, str]:
    """Returns (text, encoding) of source code, or raises ValueError if it is not source code."""
    if b"\0" in source:
        raise ValueError("it has null bytes")
    try:
        # Binary files often fail here, because their first lines declare no valid encoding.
        encoding, _ = tokenize.detect_encoding(io.BytesIO(source).readline)
        return source.decode(encoding), encoding
    except (SyntaxError, LookupError) as error:
        raise ValueError(str(error)) from error


def _rewritten(file: _File) -> "Rewritten":
    import libcst

    from estimator_emb.cli.migration import rewrite

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # The program's own warnings, such as about '\d'.
            ast.parse(file.text)
        return rewrite.rewrite(file.text, os.path.basename(file.real) == "__init__.py")
    except SyntaxError as error:
        line = (error.text or "").strip()
        wrong = f"{error.msg}: {line}" if line else str(error.msg)
        why = (
            f":{error.lineno}: this is not Python 3: {escaped(wrong)}. If it is Python 2, 2to3 and "
            "futurize convert it."
        )
    except libcst.ParserSyntaxError as error:
        why = f":{error.raw_line}: LibCST cannot read this: {error.message}."
    except rewrite.CannotRewrite as error:
        why = f": the changes would not be Python ({error}); please report this."
    except RecursionError:
        why = ": its expressions are nested too deeply."
    raise _Unusable(f"{file.path}{why}")


def _write(contents: dict[str, bytes]) -> None:
    """Writes all new contents to temporary files first, then replaces the files."""
    written: dict[str, str] = {}
    try:
        for path, data in contents.items():
            handle, new = tempfile.mkstemp(prefix=".estimator-emb-", dir=os.path.dirname(path))
            written[new] = path
            with open(handle, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            state = os.stat(path)
            with contextlib.suppress(OSError):  # Only root may change the owner.
                os.chown(new, state.st_uid, state.st_gid)
            os.chmod(new, stat.S_IMODE(state.st_mode))
        for new, path in list(written.items()):
            os.replace(new, path)
            del written[new]
    finally:
        for new in written:
            with contextlib.suppress(OSError):
                os.unlink(new)


def _print_diff(file: _File, result: "Rewritten") -> None:
    old, new = (
        io.BytesIO(text.encode(file.encoding)).readlines() for text in (file.text, result.text)
    )
    name = file.path.encode()
    sys.stdout.flush()
    sys.stdout.buffer.write(b"--- %s\n+++ %s\n" % (name, name))
    for group in _Changes(old, new, result.lines).get_grouped_opcodes():
        (_, i1, _, j1, _), (_, _, i2, _, j2) = group[0], group[-1]
        sys.stdout.buffer.write(b"@@ -%s +%s @@\n" % (_range(i1, i2), _range(j1, j2)))
        for tag, i1, i2, j1, j2 in group:
            for sign, lines in ((b"-", old[i1:i2]), (b"+", new[j1:j2])):
                for line in lines if tag != "equal" else old[i1:i2] if sign == b"-" else ():
                    end = b"" if line.endswith(b"\n") else b"\n\\ No newline at end of file\n"
                    sys.stdout.buffer.write((b" " if tag == "equal" else sign) + line + end)
    sys.stdout.buffer.flush()


class _Changes(difflib.SequenceMatcher[bytes]):
    """The changes of lines in the form of `difflib`, whose own search may be quadratic.

    `lines` is {old line: new line}, from 1.
    """

    def __init__(self, old: Sequence[bytes], new: Sequence[bytes], lines: Mapping[int, int]):
        super().__init__(None, [b""], [b""])
        self._known = _opcodes(old, new, lines)

    def get_opcodes(self) -> list[_Opcode]:
        return self._known


def _opcodes(old: Sequence[bytes], new: Sequence[bytes], lines: Mapping[int, int]) -> list[_Opcode]:
    found: list[_Opcode] = []
    i = j = 0
    for start, line in [*enumerate(old), (len(old), None)]:
        to = len(new) if line is None else lines.get(start + 1, start + 1) - 1
        if line is not None and (to < j or to >= len(new) or new[to] != line):
            continue
        if (i, j) != (start, to):
            found.append(("replace", i, start, j, to))
        i, j = start, to
        if line is not None:
            if found and found[-1][0] == "equal":
                found[-1] = ("equal", found[-1][1], start + 1, found[-1][3], to + 1)
            else:
                found.append(("equal", start, start + 1, to, to + 1))
            i, j = start + 1, to + 1
    return found


def _range(start: int, end: int) -> bytes:
    count = end - start
    start += bool(count)
    return b"%d" % start if count == 1 else b"%d,%d" % (start, count)


def _report(results: Sequence[tuple[_File, "Rewritten"]], is_written: bool) -> None:
    from estimator_emb.cli.migration.findings import GROUPS

    groups: dict[str, list[str]] = {}
    for file, result in results:
        for finding in result.findings:
            line = result.lines.get(finding.line, finding.line) if is_written else finding.line
            groups.setdefault(finding.group, []).append(
                f"{file.path}:{line}: {escaped(finding.text)}"
            )
    for group in GROUPS:
        if group in groups:
            _say(f"\n{group}:")
            for text in groups[group]:
                _say(f"  {text}")


def _say(text: str) -> None:
    print(text, file=sys.stderr)
