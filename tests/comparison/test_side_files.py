"""A side of compare writes nothing of the user's, by Python or by TensorFlow."""

import pathlib

import numpy as np
import processes
import pytest
import saved_values

FILES = """
import os, pathlib, shutil, sys
sys.path.insert(0, sys.argv[1])
import side_files
folder, user = map(pathlib.Path, sys.argv[2:4])
files = side_files.Files(str(folder))
side_files._redirect_python(files)
import functools
sys.addaudithook(functools.partial(side_files._refuse, files))
os.chdir(user)

assert open("read.txt").read() == "mine"
open("new.txt", "w").write("new")
assert open(user / "new.txt").read() == "new" and os.path.exists("new.txt")
with open("read.txt", "a") as file:
    file.write(" and more")
assert pathlib.Path("read.txt").read_text() == "mine and more"
os.makedirs("deep/er", exist_ok=True)
pathlib.Path("deep/er/x").write_text("x")
assert os.listdir("deep/er") == ["x"] and os.path.getsize("deep/er/x") == 1
os.rename("deep/er/x", "deep/y")
assert not os.path.exists("deep/er/x") and os.path.isfile("deep/y")
shutil.rmtree("model")
assert not os.path.exists("model/checkpoint") and not os.path.isdir("model")
os.mkdir("model")
assert os.listdir("model") == []
os.remove("gone.txt")
assert not os.path.exists("gone.txt")
try:
    os.remove("never.txt")
except FileNotFoundError:
    pass
else:
    raise AssertionError
assert sorted(os.listdir(".")) == ["deep", "model", "new.txt", "read.txt"]
import _io
try:
    _io.FileIO("behind.txt", "w")
except PermissionError as error:
    print(error)
files.hide(str(user))
assert os.listdir(user) and not os.path.exists("gone.txt")
"""


def test_a_program_writes_no_file_of_the_users(tmp_path):
    user, folder = tmp_path / "user", tmp_path / "side"
    (user / "model").mkdir(parents=True)
    folder.mkdir()
    for name in ("read.txt", "gone.txt", "model/checkpoint"):
        (user / name).write_text("mine")
    here = processes.ROOT / "estimator_emb" / "cli" / "bin"
    done = processes.run_python("-c", FILES, here, folder, user, status=0)
    refused = f"estimator-emb compare does not let a program write '{user}/behind.txt'."
    assert done.stdout == refused + "\n"
    left = {str(path.relative_to(user)) for path in user.rglob("*")}
    assert left == {"read.txt", "gone.txt", "model", "model/checkpoint"}
    assert all((user / name).read_text() == "mine" for name in left - {"model"})


@pytest.mark.slow
def test_tensorflow_writes_no_file_of_the_users(tmp_path):
    user, folder = tmp_path / "user", tmp_path / "side"
    folder.mkdir()
    names = ("there/mine.txt", "read.txt", "renamed.txt", "removed.txt", "folder/file", "tree/file")
    for name in names:
        (user / name).parent.mkdir(parents=True, exist_ok=True)
        (user / name).write_text("mine")
    (user / "users").mkdir()
    saved_values.write(user / "users" / "model.ckpt", {"v": np.float32([7, 7])})
    before = {path: path.is_file() and path.read_bytes() for path in user.rglob("*")}
    program = pathlib.Path(__file__).with_name("writing_program.py")
    processes.run_python(program, folder, user, status=0)
    assert {path: path.is_file() and path.read_bytes() for path in user.rglob("*")} == before
