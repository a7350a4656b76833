"""Only `estimator_emb.compat.internals` imports private names, and all of them exist.

With a new TensorFlow, `test_names_resolve` and `test_attributes_resolve` list missing names. The
first test only needs TensorFlow. If `import estimator_emb` fails, run it with `python -m pytest
--noconftest`.
"""

import ast
import functools
import importlib
import importlib.util
import inspect
import json
import pathlib
import pkgutil
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[3]
INTERNALS = ROOT / "estimator_emb" / "compat" / "internals"
PROCESSES = {ROOT / "estimator_emb" / room for room in ("preflight/processes", "cli/bin")}
"""Separate programs that import TensorFlow or JAX without this package."""
WITHOUT_TABLES = ("__init__", "patches")
"""Files of `compat.internals` that use names but list no names."""
SOURCES = [
    path
    for package in ("estimator_emb", "feature_columns")
    for path in sorted((ROOT / package).rglob("*.py"))
    if (path.parent != INTERNALS or path.stem in WITHOUT_TABLES)
    and PROCESSES.isdisjoint(path.parents)
]
MODULES = [path for path in sorted(INTERNALS.glob("*.py")) if path.stem not in WITHOUT_TABLES]
UNTIL = "Until TensorFlow "
"""Start of the reason for a name that later versions removed."""


@functools.cache
def tree(path):
    return ast.parse(path.read_text())


@functools.cache
def nodes(path):
    return inside(tree(path))


def inside(tree):
    """Returns all nodes of a tree with fields. `ast.walk` takes several times as long."""
    found = [tree]
    for node in found:
        for value in vars(node).values():
            values = value if isinstance(value, list) else [value]
            found += [one for one in values if isinstance(one, ast.AST) and one._fields]
    return found


def names_of(path):
    """Returns {name: (module, attribute or None, reason beside it)} of a file of internals."""
    modules, names = {}, {}
    body, lines = tree(path).body, path.read_text().splitlines()
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.ImportFrom):
            for one in statement.names:
                if one.asname and one.asname.startswith("_"):
                    modules[one.asname] = f"{statement.module}.{one.name}"
                elif statement.module.startswith("tensorflow_estimator"):
                    # Names for programs, as the file says.
                    names[one.asname or one.name] = statement.module, one.name, body[0].value.value
                else:
                    reason = lines[one.lineno - 2].partition("# ")[2]
                    names[one.asname or one.name] = statement.module, one.name, reason
        elif isinstance(statement, ast.Assign):
            (target,) = statement.targets
            value = statement.value
            if isinstance(value, ast.Call):  # getattr(module, "name", None)
                module, attribute = value.args[0].id, value.args[1].value
            elif isinstance(value, ast.Attribute):
                module, attribute = value.value.id, value.attr
            else:
                module, attribute = value.id, None
            is_text = isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant)
            names[target.id] = modules[module], attribute, after.value.value if is_text else ""
    return names


NAMES = {(path.stem, name): of for path in MODULES for name, of in names_of(path).items()}


def is_over(reason):
    """Returns whether this TensorFlow no longer has a name, according to its reason."""
    import tensorflow as tf

    until = re.match(rf"{UNTIL}(\d+)\.(\d+):", reason)
    version = re.match(r"(\d+)\.(\d+)\.", tf.__version__)
    return until is not None and [*map(int, version.groups())] > [*map(int, until.groups())]


def complaint(missing):
    import tensorflow as tf

    return (
        f"TensorFlow {tf.__version__} lacks what estimator_emb uses:\n  "
        + "\n  ".join(missing)
        + "\nFor each: find where it went, and take it from there in compat/internals, "
        "or do without it; see 'A new TensorFlow' in docs/contributing.md."
    )


def users(name):
    return [
        str(path.relative_to(ROOT))
        for path in SOURCES
        if any(name in (one.name for one in imported.names) for imported in imports(path))
    ]


@functools.cache
def imports(path):
    return [
        node
        for node in nodes(path)
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").startswith("estimator_emb.compat.internals")
    ]


def test_names_resolve():
    not_imported = None
    try:
        import estimator_emb  # noqa: F401  (without it, tensorflow-estimator cannot be imported)
    except (ImportError, AttributeError) as error:
        not_imported = error
    missing = []  # Of TensorFlow's names, also if the package does not import.
    for (place, name), (module, attribute, reason) in NAMES.items():
        if not_imported and module.startswith("tensorflow_estimator"):
            continue
        try:
            found = __import__(module, fromlist=[attribute or ""])
            if attribute is not None:
                getattr(found, attribute)
        except (ImportError, AttributeError) as error:
            if not is_over(reason):
                missing.append(
                    f"{place}.{name} ({error}). Why: {reason} Used by: {', '.join(users(name))}"
                )
    assert not missing, complaint(missing)
    assert not_imported is None, f"import estimator_emb: {not_imported!r}"


@functools.cache
def classes(file):
    return {node.name: node for node in tree(file).body if isinstance(node, ast.ClassDef)}


@functools.cache
def set_by(cls):
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    found = classes(pathlib.Path(file)).get(cls.__name__) if file else None
    return {node.attr for node in inside(found) if of_self(node)} if found else set()


def of_self(node):
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("self", "cls")
    )


def has(owner, name):
    """Returns whether an object, or the instances of a class, have an attribute."""
    return hasattr(owner, name) or (
        inspect.isclass(owner) and any(name in set_by(base) for base in owner.__mro__)
    )


@functools.cache
def listed():
    """Returns (owner, name, reason) of each attribute of private_attributes.json.

    They are the private attributes of TensorFlow and Python that we read, set, call or override: an
    override that is no longer called raises no error. For modules used as a whole, the table lists
    the attributes in use. It omits tensorflow-estimator, which has only one version.
    """
    table = json.loads(pathlib.Path(__file__).with_name("private_attributes.json").read_text())
    return [
        (pkgutil.resolve_name(owner), *one)
        for owner, reasons in table.items()
        for one in reasons.items()
    ]


def test_attributes_resolve():
    missing = [
        f"{name} of {owner!r}. Why: {reason}"
        for owner, name, reason in listed()
        if not is_over(reason) and not has(owner, name)
    ]
    assert not missing, complaint(missing)


def test_each_name_is_listed_once_with_a_reason():
    places = [(module, attribute) for module, attribute, _ in NAMES.values()]
    assert [one for one in places if places.count(one) > 1] == []
    changing = {
        name: reason
        for name, (module, _, reason) in NAMES.items()
        if not module.startswith("tensorflow_estimator")  # Has a single version.
    }
    assert [name for name, reason in changing.items() if len(reason) < 10] == []


def test_each_name_is_used():
    used = {one.name for path in SOURCES for imported in imports(path) for one in imported.names}
    read = {
        (node.value.id, node.attr)  # As in graphs.op_name.
        for path in SOURCES
        for node in nodes(path)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name)
    }
    assert [one for one in NAMES if one[1] not in used and one not in read] == []


def is_private(module):
    return module.split(".")[0] == "tensorflow_estimator" or module.startswith(
        ("tensorflow.python", "tensorflow.core", "tensorflow._api", "tensorflow.compiler")
    )


def test_no_other_module_imports_private_names():
    found = []
    for path in SOURCES:
        for node in nodes(path):
            names = []
            if isinstance(node, ast.Import):
                names = [one.name for one in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                # Also finds `from tensorflow import python`.
                names = [f"{node.module}.{one.name}" for one in node.names]
            for name in filter(is_private, names):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {name}")
    assert not found, "import these in estimator_emb/compat/internals, and take them from there"


def private(name):
    return name.startswith("_") and not name.startswith("__") and name not in PYTHONS


PYTHONS = {"_asdict", "_exit", "_fields", "_replace"}
"""Names of namedtuples and of `os`."""
MARKS = {
    "_distribute_coordinator_mode",  # of a RunConfig, like the next two
    "_experimental_distribute",
    "_train_distribute",
    "_is_short",  # of an error
    "_original",  # of a SharedModule, like the next
    "_own",
    "_suggests",  # of a function, like `_watched`
    "_tfll_initialized",  # of a loader of `tf.keras`, optional
    "_watched",
}
"""Attributes that we or tensorflow-estimator set on other objects. Some are optional."""
THEIRS = ("tensorflow", "keras", "tf_keras")
"""Packages of our base classes that change between versions. Keras 2 is in one of the last two."""


def private_attributes(path):
    """Returns private attributes that a file reads, sets, deletes, or passes to `getattr` etc."""
    found = set()
    for node in nodes(path):
        if isinstance(node, ast.Attribute):
            found.add(node.attr)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("getattr", "hasattr", "setattr", "delattr")
            and isinstance(node.args[1], ast.Constant)
        ):
            found.add(node.args[1].value)
    return {name for name in found if private(name)}


def defined(sources):
    """Returns every name that sources define, also as an attribute of self or cls."""
    found = set()
    for path in sources:
        for node in nodes(path):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                found.add(node.name)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                found.add(node.id)
            elif of_self(node):
                found.add(node.attr)
    return found


def advice_to_add(names):
    return f"add {sorted(names)} to tests/compat/internals/private_attributes.json, with why"


def test_private_attributes_in_use_are_listed():
    import tensorflow_estimator

    stock = pathlib.Path(tensorflow_estimator.__file__).parent / "python" / "estimator"
    of_stock = defined([*stock.glob("*.py"), *stock.glob("tpu/*.py")])
    unlisted = {name for path in SOURCES for name in private_attributes(path)}
    unlisted -= defined(SOURCES) | of_stock | {name for _, name, _ in listed()} | MARKS
    assert not unlisted, advice_to_add(unlisted)


def test_attributes_of_modules_are_listed():
    """Checks all attributes used of TensorFlow modules that `internals` exports as a whole."""
    of_modules = {(owner, name) for owner, name, _ in listed() if inspect.ismodule(owner)}
    used = set()
    for path in SOURCES:
        exported = {
            name.name: getattr(importlib.import_module(one.module), name.name)
            for one in imports(path)
            for name in one.names
        }
        for node in nodes(path):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = exported.get(node.value.id)
                of_protos = node.value.id.endswith("_pb2")  # Messages are not listed.
                ours = inspect.ismodule(module) and module.__name__.startswith("estimator_emb.")
                if inspect.ismodule(module) and not of_protos and not ours:
                    used.add((module, node.attr))
    unlisted = {name for _, name in used - of_modules}
    assert not unlisted, advice_to_add(unlisted)


def private_of_self(node):
    """Returns private names that one of our classes uses on itself or defines."""
    found = set()
    for inner in inside(node):
        if isinstance(inner, ast.Attribute) and private(inner.attr):
            if ast.unparse(inner.value) in ("self", "super()"):
                found.add(inner.attr)
        elif isinstance(inner, ast.FunctionDef) and private(inner.name):
            found.add(inner.name)
    return found


def test_attributes_taken_from_base_classes_are_listed():
    """Checks attributes and methods of TensorFlow's classes that our subclasses use or override."""
    unlisted = set()
    for path in SOURCES:
        for name, node in classes(path).items():
            if not node.bases:
                continue
            parts = path.relative_to(ROOT).with_suffix("").parts
            if {"hosts", "xla"} & {*parts} and importlib.util.find_spec("jax") is None:
                continue  # These files import jax.
            cls = getattr(importlib.import_module(".".join(parts).removesuffix(".__init__")), name)
            theirs = [base for base in cls.__mro__ if base.__module__.split(".")[0] in THEIRS]
            of_bases = {
                attribute
                for owner, attribute, _ in listed()
                if inspect.isclass(owner) and issubclass(cls, owner)
            }
            unlisted |= {
                f"{attribute} of what {name} extends"
                for attribute in private_of_self(node) - of_bases
                if any(attribute in vars(base) or attribute in set_by(base) for base in theirs)
            }
    assert not unlisted, advice_to_add(unlisted)


def test_each_listed_attribute_is_used():
    words = {word for path in SOURCES for word in re.findall(r"\w+", path.read_text())}
    unused = [name for _, name, _ in listed() if name not in words]
    assert not unused, f"take {unused} out of tests/compat/internals/private_attributes.json"


def test_tensorflow_is_imported_after_keras_is_chosen():
    """Preparing imports TensorFlow, with the Keras it selected. Nothing may import it earlier."""
    program = "import sys, types; sys.modules['estimator_emb'] = package = types.ModuleType('p')\n"
    program += f"package.__path__ = [{str(ROOT / 'estimator_emb')!r}]\n"
    program += "import estimator_emb.compat; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
