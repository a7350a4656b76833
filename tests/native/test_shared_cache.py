"""Environments in different folders share a built library if everything it depends on is equal."""

import os
import shutil

import pytest
import tensorflow as tf
from native_builds import ANSWERS_42, message_of_failed_build

from estimator_emb.native import build, ops

RECORD = """\
../../../bin/toco,sha256=of-{folder},227
tensorflow/__init__.py,sha256={python},20
tensorflow/include/tensorflow/core/op.h,sha256={header},30
tensorflow/libtensorflow_framework.so.2,sha256={framework},40
"""
HASHES = {"python": "a", "header": "b", "framework": "c"}


def identity(folder, distribution="tensorflow-2.21.0", **changes):
    """Returns the identity of a TensorFlow in a folder that has only pip's record."""
    record = folder / f"{distribution}.dist-info" / "RECORD"
    record.parent.mkdir(parents=True)
    record.write_text(RECORD.format(folder=folder, **HASHES | changes))
    return ops.tensorflow_identity(folder / "tensorflow")


CHANGES = {
    "another folder": ({}, True),
    "another distribution of the same files": ({"distribution": "tensorflow_cpu-2.21.0"}, True),
    "other Python files": ({"python": "z"}, True),
    "other headers": ({"header": "z"}, False),
    "another library": ({"framework": "z"}, False),
    "one for GPUs": ({"distribution": "tensorflow_gpu-2.21.0", "framework": "z"}, False),
}


@pytest.mark.parametrize("changes, is_same", CHANGES.values(), ids=CHANGES)
def test_identity_follows_the_headers_and_the_library(changes, is_same, tmp_path):
    first, second = identity(tmp_path / "a"), identity(tmp_path / "b", **changes)
    assert (first == second) == is_same
    assert str(tmp_path) not in first + second


def test_identity_is_the_folder_unless_there_is_a_single_record(tmp_path):
    version = f"{tf.version.VERSION} {tf.version.GIT_VERSION}"
    folder = tmp_path / "tensorflow"
    assert ops.tensorflow_identity(folder) == f"{folder} {version}"  # Without a record.
    identity(tmp_path)
    # With two records, it is unknown whose files were written last.
    assert identity(tmp_path, "tensorflow_cpu-2.21.0") == f"{folder} {version}"


def test_identity_of_the_installed_tensorflow_is_a_digest():
    found = ops.installed_tensorflow()
    assert (found.folder / "include" / "tensorflow").is_dir()
    assert len(found.identity) == 64 and int(found.identity, 16)


USES_A_HEADER = build.Unit("""
#include "where.h"
extern "C" __attribute__((visibility("default"))) const char* whence() { return where(); }
""")


@pytest.fixture
def tensorflows(tmp_path, native_library):
    """Returns two folders of a TensorFlow with a header that contains its own path."""
    found = []
    for name in ("first", "second"):
        include = tmp_path / name / "tensorflow" / "include"
        include.mkdir(parents=True)
        (include / "where.h").write_text("inline const char* where() { return __FILE__; }\n")
        found.append(build.TensorFlow(include.parent, "same", ()))
    return found


def test_a_library_contains_no_folder_names(tensorflows, tmp_path):
    contents = []
    for number, tensorflow in enumerate(tensorflows):
        made = tmp_path / f"{number}.so"
        build.compile_to(made, [USES_A_HEADER], tensorflow)
        contents.append(made.read_bytes())
    assert b"tensorflow/include/where.h\0" in contents[0]
    assert str(tmp_path).encode() not in contents[0]
    assert contents[0] == contents[1]


def test_the_second_tensorflow_takes_the_library_of_the_first(tensorflows, monkeypatch, tmp_path):
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(tmp_path / "cache"))
    first, second = tensorflows
    made = build.library("whence", [USES_A_HEADER], (), first)
    shutil.rmtree(first.folder)
    assert build.library("whence", [USES_A_HEADER], (), second) == made
    another = build.TensorFlow(second.folder, "another", ())
    assert build.library("whence", [USES_A_HEADER], (), another) != made


def test_without_a_compiler_a_library_of_any_compiler_is_taken(
    native_library, monkeypatch, tmp_path
):
    """A library's file name tells what compiled it. `message_of_failed_build` asks for it again."""
    monkeypatch.setenv("ESTIMATOR_EMB_CACHE", str(tmp_path / "cache"))
    path = build.library("quick", ANSWERS_42, ["answer"])
    monkeypatch.setenv("PATH", "")
    assert build.library("quick", ANSWERS_42, ["answer"]) == path
    os.truncate(path, 9)  # Damaged, so it must be built, which is impossible.
    assert message_of_failed_build() == (
        "there is no C++ compiler (g++, c++, clang++) on PATH; install one, or a wheel that "
        "contains the kernels"
    )
    os.chmod(tmp_path / "cache", 0o777)  # Now the library may not be used at all.
    assert message_of_failed_build().startswith(
        "another user could put code into the cache, because "
    )
