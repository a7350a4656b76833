"""Prints the public names of modules of TensorFlow 2.9 for tensorflow_2_9.json.

    python tests/data/read_tensorflow_2_9.py FOLDER

FOLDER holds an unpacked wheel of TensorFlow 2.9.3. The modules are those listed in
`estimator_emb.catalog.moved`, and the names are those that the modules define.
"""

import ast
import json
import pathlib
import sys

from estimator_emb.catalog import moved

ROOT = pathlib.Path(sys.argv[1], "tensorflow", "python")


def is_lazy_module(node):
    return isinstance(node.value, ast.Call) and "LazyLoader" in ast.unparse(node.value.func)


def file_of(module):
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def names_of(module):
    found = set()
    for node in ast.parse(file_of(module).read_text()).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            found.add(node.name)
        elif isinstance(node, ast.Assign) and not is_lazy_module(node):
            found |= {one.id for one in node.targets if isinstance(one, ast.Name)}
    return {one for one in found if not one.startswith("_")}


modules = {*moved.MODULES, *moved.NAMES}
modules |= {
    f"training.tracking.{path.stem}" for path in (ROOT / "training/tracking").glob("[a-z]*")
}
there = sorted(name for name in modules if file_of(name).exists())
print(json.dumps({name: " ".join(sorted(names_of(name))) for name in there}, indent=0))
