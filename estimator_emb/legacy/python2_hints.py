"""Explains what to change in a program that was written for an older Python."""

import collections.abc
import os
import re
import traceback

_OLD_SYNTAX = {
    r"(?<![\w.])(async|await)\s*[=,)\]:]|\.(async|await)\b|\bas\s+(async|await)\b": (
        "async and await are keywords since Python 3.7: choose another name"
    ),
    r"\bexcept\s+[\w.()]+(\s*,\s*[\w.]+)*\s*,\s*\w+\s*:": (
        "Python 3 writes it `except Error as name:`"
    ),
    r"\braise\s+[\w.]+\s*,": "Python 3 writes it `raise Error(message)`",
    r"<>": "Python 3 writes <> as !=",
    r"\b[uU][rR][\"']": "Python 3 has no strings ur'...': r'...' is Unicode",
    r"\b\d+[lL]\b": "Python 3 writes long integers without an L",
    r"`[^`]+`": "Python 3 writes backquotes as repr(...)",
}
"""Pattern of older syntax -> what to write instead, if Python's error does not say it."""

_BUILTINS = {
    "basestring": "str",
    "cmp": "(a > b) - (a < b)",
    "execfile": "exec(open(file).read())",
    "file": "open",
    "intern": "sys.intern",
    "long": "int",
    "raw_input": "input",
    "reduce": "functools.reduce",
    "reload": "importlib.reload",
    "unichr": "chr",
    "unicode": "str",
}
"""Built-in name of Python 2 -> its name in Python 3."""

_METHODS = {
    ("dict", "has_key"): "key in dictionary",
    **{("dict", f"iter{name}"): name for name in ("items", "keys", "values")},
    **{("dict", f"view{name}"): name for name in ("items", "keys", "values")},
    ("str", "decode"): "the string itself, which is Unicode already",
    ("generator", "next"): "next(generator)",
    **{("function", f"func_{name}"): f"__{name}__" for name in ("name", "code", "defaults")},
}
"""Type, and method or attribute of Python 2 -> its replacement in Python 3."""

_NUMPY_METHODS = {
    "itemset": "array[index] = value",
    "newbyteorder": "array.view(array.dtype.newbyteorder(order))",
    "ptp": "numpy.ptp(array)",
    "tostring": "tobytes",
}
"""Method that NumPy removed from arrays -> its replacement."""

_FLOATS = re.compile(
    r"'float' object cannot be interpreted as an integer"
    r"|slice indices must be integers|indices must be integers or slices, not float"
    r"|can't multiply sequence by non-int of type 'float'"
    r"|expected a sequence of integers or a single integer, got '\(?[\d.]"
    r"|nly integers, slices \(.*are valid indices"
    r"|Dimension value must be integer or None .* type '<class 'float'>'"
    r"|has DataType float(32|64) not in list of allowed values: int32, int64"
    r"|Expected int(32|64), but got [\d.]+ of type 'float'"
    r"|invalid value for `\w+`, expected a positive integer. Received: \w+=\d+\.\d"
)
"""Matches an error about a float used as an integer, such as a shape or an index."""

_ITERATORS = {"map", "filter", "zip", "dict_keys", "dict_values", "dict_items"}

_ATTRIBUTES = {
    **{f"collections.{name}": f"collections.abc.{name}" for name in collections.abc.__all__},
    "asyncio.coroutine": "async def",
    "base64.decodestring": "base64.decodebytes",
    "base64.encodestring": "base64.encodebytes",
    "fractions.gcd": "math.gcd",
    "inspect.formatargspec": "inspect.signature",
    "inspect.getargspec": "inspect.getfullargspec",
    **{f"itertools.i{name}": name for name in ("filter", "map", "zip")},
    "itertools.izip_longest": "itertools.zip_longest",
    "string.join": "separator.join(strings)",
    **{f"string.{name}": f"string.ascii_{name}" for name in ("letters", "lowercase", "uppercase")},
    "string.maketrans": "str.maketrans",
    "sys.maxint": "sys.maxsize",
    "sys.setdefaultencoding": "nothing: strings are Unicode, and files take encoding=...",
    "time.clock": "time.perf_counter or time.process_time",
    "types.ListType": "list",
    "types.StringTypes": "str",
    "types.StringType": "str",
    **{f"urllib.{name}": f"urllib.parse.{name}" for name in ("quote", "unquote", "urlencode")},
    **{f"urllib.{name}": f"urllib.request.{name}" for name in ("urlopen", "urlretrieve")},
    "numpy.in1d": "numpy.isin of the flat array",
    "numpy.loads": "pickle.loads",
    "numpy.long": "int",
    "numpy.rank": "numpy.ndim",
    "numpy.trapz": "numpy.trapezoid",
    "numpy.unicode": "str",
}
"""Name that a module of Python or NumPy no longer has -> its replacement."""

_MODULES = {
    **{name: name.lower() for name in ("ConfigParser", "Queue", "SocketServer", "Tkinter")},
    "HTMLParser": "html.parser",
    "StringIO": "io",
    "__builtin__": "builtins",
    "cPickle": "pickle",
    "cStringIO": "io",
    "cgi": "urllib.parse and email",
    "commands": "subprocess",
    "copy_reg": "copyreg",
    "distutils": "setuptools, packaging.version or shutil",
    "httplib": "http.client",
    "imp": "importlib",
    "lib2to3": "the package libcst",
    "pipes": "subprocess and shlex",
    "sets": "set",
    "urllib2": "urllib.request",
    "urlparse": "urllib.parse",
}
"""Module of older Pythons -> where its contents are now."""


def place(file: str | None, line: int | None) -> str:
    """Returns '<file>, line <line>', with the file relative to the current folder."""
    shown = file or "?"
    if os.path.isabs(shown):
        relative = os.path.relpath(shown)
        shown = shown if relative.startswith(os.pardir) else relative
    return f"{shown}, line {line}"


def explained_syntax_error(error: SyntaxError) -> str:
    """Returns a syntax error's place and message, and how to write it today."""
    return f"{place(error.filename, error.lineno)}: {what_is_wrong(error)}"


def what_is_wrong(error: SyntaxError) -> str:
    """Returns a syntax error's message and line, and how to write it today."""
    line = (error.text or "").strip()
    said = f"{error.msg}: {line}" if line else str(error.msg)
    today = (text for pattern, text in _OLD_SYNTAX.items() if re.search(pattern, line))
    return next((f"{said} ({text})" for text in today), said)


def advice_about_python(error: BaseException) -> str | None:
    """Returns where a program used a name or syntax of an older Python, and what to change."""
    if isinstance(error, SyntaxError):
        return explained_syntax_error(error)
    what = _what(error)
    extracted = traceback.extract_tb(error.__traceback__)
    frames = [frame for frame in extracted if not frame.filename.startswith("<frozen ")]
    while frames and frames[-1].name == "__getattr__":  # A module's own, such as NumPy's.
        frames.pop()
    if what is None or not frames:
        return None
    return f"{place(frames[-1].filename, frames[-1].lineno)}: {what}"


def _what(error: BaseException) -> str | None:
    if isinstance(error, ModuleNotFoundError):
        name = (error.name or "").partition(".")[0]
        if name in _MODULES:
            return f"the module {name} is one of an older Python; today: {_MODULES[name]}."
    elif isinstance(error, ImportError):
        match = re.match(r"cannot import name '(\w+)' from '([\w.]+)'", str(error))
        if match:
            return _attribute(match[2], match[1])
    elif isinstance(error, NameError):
        if error.name in _BUILTINS:
            return f"{error.name} is Python 2's; today: {_BUILTINS[error.name]}."
    elif isinstance(error, AttributeError):
        match = re.match(r"module '([\w.]+)' has no attribute '(\w+)'", str(error))
        if match:
            return _attribute(match[1], match[2])
        is_array = any(base.__name__ in ("ndarray", "array") for base in type(error.obj).__mro__)
        if is_array and error.name in _NUMPY_METHODS:
            gone = f"the method {error.name} of arrays is gone"
            return f"{gone}; today: {_NUMPY_METHODS[error.name]}."
        for base in type(error.obj).__mro__:
            today = _METHODS.get((base.__name__, error.name or ""))
            if today is not None:
                return f"{base.__name__}.{error.name} is Python 2's; today: {today}."
    elif isinstance(error, TypeError):
        match = re.match(
            r"'(\w+)' object is not subscriptable|object of type '(\w+)' has no len\(\)", str(error)
        )
        kind = match and (match[1] or match[2])
        if kind in _ITERATORS:
            return f"{kind} was a list in Python 2; today: list(...) of it."
    if isinstance(error, (IndexError, TypeError, ValueError)) and _FLOATS.search(str(error)):
        return "a float stands where an integer must; Python 2's / of integers is // today."
    return None


def _attribute(module: str, name: str) -> str | None:
    today = _ATTRIBUTES.get(f"{module}.{name}")
    return today and f"{module}.{name} is gone; today: {today}."
