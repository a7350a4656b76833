"""A wheel built from the sdist installs in an empty environment and trains there."""

import configparser
import importlib.metadata
import os
import pathlib
import re
import shlex
import sys
import tarfile
import zipfile

import processes
import pytest

import estimator_emb as ee

pytestmark = pytest.mark.any_version

REPOSITORY = processes.ROOT
SMOKE = REPOSITORY / "tests" / "data" / "smoke.py"
DATA = {
    "estimator_emb/py.typed",
    "feature_columns/py.typed",
    "estimator_emb/native/kernels.cc",
    "estimator_emb/native/runtime.h",
    "estimator_emb/preflight/tpu_kernels.json",
    "estimator_emb/backends/xla/device_tables.py",
    "estimator_emb/backends/xla/devices.py",
    "estimator_emb/backends/hosts/exchange.py",
    "estimator_emb/backends/hosts/joining.py",
}
"""Data files: no import fails without them, and a list of files may forget them."""


def run(*command, cwd, status=0):
    """Runs a command without PYTHONPATH, and without TF_USE_LEGACY_KERAS from this process."""
    own = ("PYTHONPATH", "TF_USE_LEGACY_KERAS")
    environment = {name: value for name, value in os.environ.items() if name not in own}
    return processes.ended(command, status, cwd, None, environment)


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Builds the sdist and, from it, the wheel. Returns their folder."""
    folder = tmp_path_factory.mktemp("built")
    run(sys.executable, "-m", "venv", folder / "env", cwd=folder)
    python = folder / "env" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "build", cwd=folder)
    # Build from a clone: uncommitted files must not be needed, and caches must not be packed.
    run("git", "clone", "-q", REPOSITORY, folder / "clone", cwd=folder)
    run(python, "-m", "build", "--outdir", folder / "dist", folder / "clone", cwd=folder)
    return folder / "dist"


def only_file(folder, pattern):
    (path,) = folder.glob(pattern)
    return path


@pytest.mark.slow
def test_wheel_and_sdist_contain_data_files_and_metadata_but_no_tests(built):
    with zipfile.ZipFile(only_file(built, "*.whl")) as wheel:
        in_wheel = set(wheel.namelist())
        (metadata,) = [name for name in in_wheel if name.endswith(".dist-info/METADATA")]
        text = wheel.read(metadata).decode()
    assert in_wheel >= DATA
    assert not [name for name in in_wheel if name.startswith(("tests/", "docs/", "benchmarks/"))]
    assert f"\nVersion: {ee.__version__}\n" in text
    assert "\nAuthor: The estimator_emb authors\n" in text
    with tarfile.open(only_file(built, "*.tar.gz")) as sdist:
        in_sdist = {name.split("/", 1)[-1] for name in sdist.getnames()}
    assert in_sdist >= DATA | {"LICENSE", "README.md"}


def assert_trains(programs, folder):
    """Trains with the installed package, in a folder outside the checkout."""
    printed = run(programs / "python", SMOKE, folder / "model", cwd=folder).stdout
    assert f"estimator_emb {ee.__version__} in {programs.parent}/lib/" in printed
    inspected = run(programs / "estimator-emb", "inspect", folder / "model", cwd=folder)
    assert "embedding_weights" in inspected.stdout


@pytest.mark.slow
def test_the_wheel_trains_in_an_empty_environment(built, tmp_path):
    """PIP_CONSTRAINT, if set, may limit pip to a version of TensorFlow."""
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    programs = tmp_path / "env" / "bin"
    asked = f"{only_file(built, '*.whl')}[tensorflow]"
    run(programs / "python", "-m", "pip", "install", "-q", "--no-compile", asked, cwd=tmp_path)
    assert_trains(programs, tmp_path)


BESIDE = {
    "tensorflow-cpu": ["tensorflow-cpu==2.21.0"],
    "tensorflow-tpu": ["tensorflow-cpu==2.20.0"],
    "2.15.1": ["tensorflow==2.15.1"],
    "2.18": ["tensorflow==2.18.1"],
    "2.20": ["tensorflow==2.20.0"],  # pip installs a protobuf that it rejects.
    "2.22, without a tf-keras of its own": ["tensorflow==2.22.0rc0"],
    "2.15.1, a numpy that it does not take": ["tensorflow==2.15.1"],
}
"""Earlier installation -> the packages that pip installs for it, before the test changes them."""


def as_package(site, name, other):
    """Renames an installed package, so that pip lists it under the name `other`."""
    (information,) = site.glob(f"{name.replace('-', '_')}-*.dist-info")
    metadata = information / "METADATA"
    text = re.sub("(?m)^Name: .*", f"Name: {other}", metadata.read_text(), count=1)
    metadata.write_text(text)
    version = information.name.removesuffix(".dist-info").rpartition("-")[2]
    renamed = site / f"{other.replace('-', '_')}-{version}.dist-info"
    information.rename(renamed)
    record = renamed / "RECORD"
    record.write_text(record.read_text().replace(information.name, renamed.name))


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("beside", BESIDE)
def test_installing_keeps_the_installed_tensorflow(built, beside, tmp_path, monkeypatch):
    """The import first fails, except beside 2.15.1. Its error has the pip command to run."""
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    monkeypatch.setenv("PIP_NO_COMPILE", "1")
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    programs = tmp_path / "env" / "bin"
    pip = [programs / "python", "-m", "pip"]
    run(*pip, "install", "-q", *BESIDE[beside], cwd=tmp_path)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    if beside == "tensorflow-tpu":
        as_package(site, "tensorflow-cpu", "tensorflow-tpu")
    if beside.endswith("numpy that it does not take"):
        run(*pip, "install", "-q", "--no-deps", "numpy==2.1.3", cwd=tmp_path)

    def installed():
        lines = run(*pip, "freeze", cwd=tmp_path).stdout.splitlines()
        names = ("tensorflow", "numpy", "protobuf", "keras")
        return {line for line in lines if line.startswith(names) and "-estimator" not in line}

    before = installed()
    assert any(line.startswith("tensorflow") for line in before)
    run(*pip, "install", "-q", only_file(built, "*.whl"), cwd=tmp_path)
    assert installed() >= before
    if beside != "2.15.1":
        command = (programs / "python", "-c", "import estimator_emb")
        said = run(*command, cwd=tmp_path, status=1)
        problem, _, line = said.stderr.splitlines()[-1].rpartition(": pip ")
        assert problem.startswith("ImportError: "), said.stderr
        run(*pip, *shlex.split(line), cwd=tmp_path)

    def tensorflow(lines):
        return {line for line in lines if line.startswith("tensorflow")}

    assert tensorflow(installed()) == tensorflow(before)
    assert_trains(programs, tmp_path)


def test_the_version_is_in_one_place():
    """The metadata's version comes from the package. An installation elsewhere may be older."""
    taken = "version = attr: estimator_emb.version.__version__"
    assert taken in (REPOSITORY / "setup.cfg").read_text()
    assert f"## {ee.__version__}\n" in (REPOSITORY / "docs" / "changelog.md").read_text()
    try:
        installed = importlib.metadata.distribution("estimator-emb")
    except importlib.metadata.PackageNotFoundError:
        return  # Tests run from a checkout, through PYTHONPATH.
    if pathlib.Path(ee.__file__).is_relative_to(installed.locate_file("")):
        assert installed.version == ee.__version__


def test_a_page_has_every_extra_that_users_install():
    config = configparser.ConfigParser()
    config.read(REPOSITORY / "setup.cfg")
    extras = set(config["options.extras_require"]) - {"test", "dev", "docs"}
    page = (REPOSITORY / "docs" / "support.md").read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE)) == extras
