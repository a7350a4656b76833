"""Errors and warnings of `import estimator_emb` for missing or unsuitable packages."""

import json
import logging
import pathlib
import sys
import types
from importlib import metadata

import packaging
import processes
import pytest

from estimator_emb import compat
from estimator_emb.compat import installed, internals, legacy_keras

NEEDED = "estimator_emb needs TensorFlow 2.15.1 or newer, and"
OURS = "pip install '.[tensorflow]' (in a clone of estimator_emb)"
BELOW = "pip install '.[tensorflow]' 'tensorflow<2.23' (in a clone of estimator_emb)"


def install(folder, name, version, module, requires=()):
    """Puts a package into a folder, with the metadata that pip writes."""
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text(f"__version__ = {version!r}\n")
    information = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    (information / "METADATA").write_text("\n".join(lines) + "\n")
    (information / "top_level.txt").write_text(module + "\n")


def errors_of_import(*folders):
    """Imports estimator_emb with only the standard library and each folder. Returns the errors."""
    for folder in folders:
        (folder / "packaging").symlink_to(pathlib.Path(packaging.__file__).parent)
    program = f"""
import json, sys
for folder in {[*map(str, folders)]!r}:
    for name in [*sys.modules]:
        if name.startswith(("estimator_emb", "packaging", "tensorflow", "tf_keras")):
            del sys.modules[name]
    path, sys.path = sys.path, [folder, {str(processes.ROOT)!r}, *sys.path]
    try:
        import estimator_emb
    except ImportError as error:
        print(json.dumps(str(error)))
    sys.path = path
"""
    command = [sys.executable, "-S", "-c", program]
    printed = processes.ended(command, 0, folders[0], None, {}).stdout.splitlines()
    return [*map(json.loads, printed)]


def test_refuses_a_missing_tensorflow_and_a_folder_that_remains_of_it(tmp_path):
    (tmp_path / "nothing").mkdir()
    (tmp_path / "remains" / "tensorflow" / "python").mkdir(parents=True)
    errors = errors_of_import(tmp_path / "nothing", tmp_path / "remains")
    assert errors == [f"{NEEDED} none is installed: {OURS}"] * 2


UNFIT = [
    *(("tensorflow", "2.14.0", None), ("tensorflow", "2.15.0", None)),
    *(("tensorflow-cpu", "2.13.1", None), ("tensorflow-tpu", "2.14.0", None)),
    *(("tf-nightly", "2.14.0.dev20230601", None), ("tensorflow", "2.18.1", None)),
    *(("tensorflow", "2.21.0", "2.20.1"), ("tensorflow-cpu", "2.16.2", None)),
    *(("tensorflow", "2.22.0rc0", None), ("tensorflow", "2.22.1", "2.24.0")),
    *(("tensorflow", "2.23.0", None), ("intel-tensorflow", "2.16.2", "2.18.0")),
]
# TensorFlow's name and version, and the version of tf-keras or None. Before 2.15.1 it is too old.
# Then it needs the tf-keras of its own minor version; from 2.22 on, any from 2.21 to its own.


def test_refuses_an_old_tensorflow_or_an_unsuitable_tf_keras(tmp_path, assert_recorded):
    """Each message names the version and a pip command; messages.json has the whole messages."""
    folders = [tmp_path / str(number) for number in range(len(UNFIT))]
    for folder, (name, version, keras) in zip(folders, UNFIT, strict=True):
        folder.mkdir()
        install(folder, name, version, "tensorflow")
        fits = "6.33.0" if version < "2.21" else "7.36.2"
        install(folder, "protobuf", fits, "google")
        if keras:
            install(folder, "tf-keras", keras, "tf_keras")
    for error, (_, version, _) in zip(errors_of_import(*folders), UNFIT, strict=True):
        assert error.startswith("estimator_emb needs ") and f" {version}" in error
        assert "pip " in error
        assert_recorded(error)


@pytest.mark.parametrize(
    "version, requires, there, said",
    [
        (
            "2.15.1",
            ["numpy (<2.0.0,>=1.23.5)", "rich; extra == 'x'", "gone; python_version < '3'"],
            {"numpy": "2.1.3"},
            "it needs numpy<2.0.0,>=1.23.5, and 2.1.3 is installed: "
            "pip install 'numpy<2.0.0,>=1.23.5'",
        ),
        (
            "2.20.0",
            ["protobuf>=5.28.0", "numpy>=1.26.0", "wrapt>=1.11"],
            {"protobuf": "4.25.0", "numpy": "2.0.0rc1"},
            "it needs protobuf>=5.28.0, and 4.25.0 is installed; it needs wrapt>=1.11, and it is "
            "not installed: pip install 'protobuf>=5.28.0' 'wrapt>=1.11'",
        ),
    ],
)
def test_names_packages_that_do_not_fit_tensorflow(tmp_path, version, requires, there, said):
    install(tmp_path, "tensorflow", version, "tensorflow", requires)
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemError('compiled with 1.x')")
    for name, found in there.items():
        install(tmp_path, name, found, name)
    assert errors_of_import(tmp_path) == [f"TensorFlow {version} does not work here: {said}"]


def test_refuses_a_protobuf_that_cannot_write_graphs(tmp_path):
    """TensorFlow < 2.21 needs protobuf < 7, but pip does not know. tf-keras is missing here too."""
    install(tmp_path, "tensorflow", "2.20.0", "tensorflow", ["protobuf>=5.28.0"])
    install(tmp_path, "protobuf", "7.36.2", "google")
    assert errors_of_import(tmp_path) == [
        "TensorFlow 2.20.0 does not work with protobuf 7.36.2. And estimator_emb needs Keras 2, "
        "and the package tf-keras, which brings it to TensorFlow 2.20.0, is not installed: pip "
        "install 'protobuf<7' 'tf-keras==2.20.*'"
    ]


@pytest.mark.parametrize(
    "tensorflow, protobuf, tf_keras",
    [
        ("2.16.2", "4.25.0", "2.16.0"),
        ("2.21.0", "6.33.0", "2.21.0"),
        ("2.21.0", "7.36.2", "2.21.0"),
        ("2.22.0rc0", "7.37.0rc1", "2.21.0"),
        ("2.22.0", "7.37.0", "2.22.0"),
        ("2.23.0", "7.37.0", "2.21.0"),
        ("2.21.0", "6.33.0", None),  # Another tool than pip installed tf-keras.
    ],
)
def test_check_beside_accepts_packages_that_fit(monkeypatch, tensorflow, protobuf, tf_keras):
    monkeypatch.setattr(installed, "version", {"protobuf": protobuf, "tf-keras": tf_keras}.get)
    monkeypatch.setitem(sys.modules, "tf_keras", types.SimpleNamespace(__spec__="found"))
    installed.check_beside(tensorflow, needs_tf_keras=True)  # Raises no ImportError.


@pytest.mark.parametrize("version", ["2.15.1", "2.21.0", "2.22.0rc0", "2.22.3"])
def test_no_warning_for_a_tested_tensorflow(version):
    assert installed.newer_than_tried(version, internals) is None


@pytest.mark.parametrize("version", ["2.23.0", "2.30.0.dev20261101", "3.0.0"])
def test_prepare_warns_of_an_untested_newer_tensorflow(version, monkeypatch, caplog):
    newer = types.SimpleNamespace(__version__=version)
    monkeypatch.setattr(legacy_keras, "require", lambda: newer)
    compat.prepare("estimator_emb.legacy.tpu_embedding")
    ((_, level, said),) = caplog.record_tuples
    assert level == logging.WARNING
    assert f"TensorFlow {version} is newer than any that estimator_emb was tried with" in said


@pytest.mark.parametrize(
    "name, line",
    [
        ("tensorflow", BELOW),
        ("tf-nightly", f"pip uninstall -y tf-nightly && {BELOW}"),
        ("tensorflow-cpu", "pip install 'tensorflow-cpu>=2.15.1,<2.23'"),
    ],
)
def test_refuses_a_newer_tensorflow_without_a_private_name(tmp_path, monkeypatch, name, line):
    """Two of three modules that import private names fail; here the names are of `json`."""
    package = tmp_path / "names_of_tensorflow"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "columns.py").write_text("from json import no_such_name")
    (package / "graphs.py").write_text("import json\njson.neither")
    (package / "files.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    import names_of_tensorflow

    install(tmp_path, name, "2.23.0", "tensorflow")
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"tensorflow": [name]})
    with pytest.raises(ImportError) as raised:
        installed.newer_than_tried("2.23.0", names_of_tensorflow)
    monkeypatch.delitem(sys.modules, "names_of_tensorflow")
    assert str(raised.value).replace(f" ({sys.modules['json'].__file__})", "") == (
        "TensorFlow 2.23.0 is newer than any that estimator_emb was tried with, and lacks names "
        "that estimator_emb needs: cannot import name 'no_such_name' from 'json'; module 'json' "
        f"has no attribute 'neither'. Look for a newer estimator_emb, or: {line}"
    )


def test_unexplained_errors_of_tensorflow_are_not_changed(tmp_path):
    install(tmp_path, "tensorflow", "2.21.0", "tensorflow")
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise ImportError('libcuda.so')")
    assert errors_of_import(tmp_path) == ["libcuda.so"]
