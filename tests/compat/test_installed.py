"""What the import of estimator_emb says where TensorFlow, or what it needs, is missing or unfit."""

import pathlib
import sys

import packaging
import processes
import pytest

NEEDED = "estimator_emb needs TensorFlow 2.15.1 to 2.21, and"
OURS = "pip install 'estimator-emb[tensorflow]'"


def install(folder, name, version, module, requires=()):
    """Puts a package into a folder, with what pip writes of it."""
    (folder / module).mkdir()
    (folder / module / "__init__.py").write_text(f"__version__ = {version!r}\n")
    information = folder / f"{name.replace('-', '_')}-{version}.dist-info"
    information.mkdir()
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Requires-Dist: {one}" for one in requires]
    (information / "METADATA").write_text("\n".join(lines) + "\n")
    (information / "top_level.txt").write_text(module + "\n")


def error_of_import(folder):
    """Imports estimator_emb where nothing but the standard library and a folder is installed."""
    (folder / "packaging").symlink_to(pathlib.Path(packaging.__file__).parent)
    program = f"""
import sys
sys.path[:0] = [{str(folder)!r}, {str(processes.ROOT)!r}]
try:
    import estimator_emb
except ImportError as error:
    print(error)
"""
    command = [sys.executable, "-S", "-c", program]
    return processes.ended(command, 0, folder, None, {}).stdout.removesuffix("\n")


@pytest.mark.parametrize("remains", [False, True], ids=["nothing", "a folder of one"])
def test_there_is_no_tensorflow(tmp_path, remains):
    if remains:
        (tmp_path / "tensorflow" / "python").mkdir(parents=True)
    assert error_of_import(tmp_path) == f"{NEEDED} none is installed: {OURS}"


@pytest.mark.parametrize(
    "name, version, line",
    [
        ("tensorflow", "2.14.0", OURS),
        ("tensorflow", "2.15.0", OURS),
        ("tensorflow", "2.22.0", OURS),
        ("tf-nightly", "2.22.0.dev20261101", f"pip uninstall -y tf-nightly && {OURS}"),
        ("tensorflow-cpu", "2.22.0", "pip install 'tensorflow-cpu>=2.15.1,<2.22'"),
        ("tensorflow-tpu", "2.14.0", "pip install 'tensorflow-tpu>=2.15.1,<2.22'"),
    ],
)
def test_tensorflow_is_too_old_or_too_new(tmp_path, name, version, line):
    install(tmp_path, name, version, "tensorflow")
    assert error_of_import(tmp_path) == f"{NEEDED} {version} is installed: {line}"


@pytest.mark.parametrize(
    "name, version, keras, problem, line",
    [
        ("tensorflow", "2.18.1", None, "is not installed", "pip install 'tf-keras==2.18.*'"),
        ("tensorflow", "2.21.0", "2.20.1", "is 2.20.1", "pip install 'tf-keras==2.21.*'"),
        *(
            (name, "2.16.2", keras, problem, "pip install --no-deps 'tf-keras==2.16.*'")
            for name in ("tensorflow-cpu", "tensorflow-tpu", "intel-tensorflow")
            for keras, problem in ((None, "is not installed"), ("2.18.0", "is 2.18.0"))
        ),
    ],
)
def test_tf_keras_is_missing_or_another_one(tmp_path, name, version, keras, problem, line):
    install(tmp_path, name, version, "tensorflow")
    install(tmp_path, "protobuf", "6.33.0" if version < "2.21" else "7.36.2", "google")
    if keras:
        install(tmp_path, "tf-keras", keras, "tf_keras")
    assert error_of_import(tmp_path) == (
        "estimator_emb needs Keras 2, and the package tf-keras, which brings it to TensorFlow "
        f"{version}, {problem}: {line}"
    )


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
            {"protobuf": "4.25.0", "numpy": "1.26.4"},
            "it needs protobuf>=5.28.0, and 4.25.0 is installed; it needs wrapt>=1.11, and it is "
            "not installed: pip install 'protobuf>=5.28.0' 'wrapt>=1.11'",
        ),
    ],
)
def test_tensorflow_does_not_take_what_is_beside_it(tmp_path, version, requires, there, said):
    install(tmp_path, "tensorflow", version, "tensorflow", requires)
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise SystemError('compiled with 1.x')")
    for name, found in there.items():
        install(tmp_path, name, found, name)
    assert error_of_import(tmp_path) == f"TensorFlow {version} does not work here: {said}"


@pytest.mark.parametrize(
    "name, version, protobuf, line",
    [
        ("tensorflow", "2.20.0", "7.36.2", "pip install 'protobuf<7' 'tf-keras==2.20.*'"),
        (
            "tensorflow-cpu",
            "2.17.1",
            "7.0",
            "pip install --no-deps 'protobuf<7' 'tf-keras==2.17.*'",
        ),
    ],
)
def test_protobuf_with_which_no_graph_can_be_written(tmp_path, name, version, protobuf, line):
    install(tmp_path, name, version, "tensorflow", ["protobuf>=5.28.0"])
    install(tmp_path, "protobuf", protobuf, "google")
    assert error_of_import(tmp_path) == (
        f"TensorFlow {version} does not work with protobuf {protobuf}. And estimator_emb needs "
        f"Keras 2, and the package tf-keras, which brings it to TensorFlow {version}, is not "
        f"installed: {line}"
    )


def test_an_error_of_tensorflow_that_no_package_explains_stays(tmp_path):
    install(tmp_path, "tensorflow", "2.21.0", "tensorflow")
    (tmp_path / "tensorflow" / "__init__.py").write_text("raise ImportError('libcuda.so')")
    assert error_of_import(tmp_path) == "libcuda.so"
