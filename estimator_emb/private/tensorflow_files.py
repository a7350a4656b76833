"""Changes every path on its way from Python to TensorFlow's file systems.

It changes the functions behind `tf.io.gfile`, checkpoint readers and writers of records and events,
and the inputs of ops that read or write files. `estimator-emb run --map` and the sides of
`estimator-emb compare` say where a path goes. A side may run where this package is not installed,
so this file imports nothing of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

_OPS = (
    (
        "read",
        0,
        "CSVDataset CSVDatasetV2 ExperimentalCSVDataset ExperimentalLMDBDataset "
        "FixedLengthRecordDataset FixedLengthRecordDatasetV2 LMDBDataset ListSnapshotChunksDataset "
        "LoadDataset ReadFile SnapshotChunkDataset SnapshotDatasetReader TFRecordDataset "
        "TFRecordDatasetV2 TextLineDataset GenerateVocabRemapping",
    ),
    (
        "read",
        1,
        "GenerateVocabRemapping InitializeTableFromTextFile InitializeTableFromTextFileV2",
    ),
    ("listed", 0, "ExperimentalMatchingFilesDataset MatchingFiles MatchingFilesDataset"),
    ("restored", 0, "LoadAndRemapMatrix MergeV2Checkpoints Restore RestoreSlice RestoreV2"),
    ("saved", 0, "Save SaveSlices SaveV2"),
    ("saved", 1, "MergeV2Checkpoints"),
    ("written", 0, "WriteFile"),
    (
        "written",
        1,
        "CacheDataset CacheDatasetV2 CreateSummaryFileWriter DatasetToTFRecord DistributedSave "
        "ExperimentalDatasetToTFRecord SaveDataset SaveDatasetV2 SnapshotDataset SnapshotDatasetV2",
    ),
)
"""(method of `places`, number of an input, ops in which this input is a path or several)."""

FILE_INPUTS = {
    op: {number: how for how, number, ops in _OPS if op in ops.split()}
    for _, _, all_ops in _OPS
    for op in all_ops.split()
}
"""Op that reads or writes files -> number of an input that is a path -> method of `places`."""

_FUNCTIONS: dict[str, dict[str, tuple[str, ...]]] = {
    "file_io": {
        **dict.fromkeys(
            "BufferedInputStream FileExists HasAtomicMove IsDirectory ReadFileToString "
            "Stat".split(),
            ("read",),
        ),
        **dict.fromkeys("CreateDir RecursivelyCreateDir WriteStringToFile".split(), ("written",)),
        **dict.fromkeys("DeleteFile DeleteRecursively".split(), ("removed",)),
        "CopyFile": ("read", "written"),
        "RenameFile": ("moved", "written"),
    },
    "record_io": dict.fromkeys("RandomRecordReader RecordIterator".split(), ("read",)),
    "events_writer": {"EventsWriter": ("written",)},
}
"""Module of `doors` -> its functions -> methods of `places` for their first arguments, paths."""


def redirect(doors: Any, replace: Callable[[Any, str, Any], Any], places: Any) -> None:
    """Makes TensorFlow use the files that `places` names.

    `doors` is the module `private.files`; `replace(owner, name, value)` sets an attribute. `places`
    says where the files that a program names are; a str gives a str, and bytes give bytes. It has

        read, written, changed    of a path to read, to write, or to append to
        moved, removed            of a path to rename or remove; None if nothing is to be removed
        restored, saved           of the prefix of the files of a checkpoint
        listed                    the patterns that an op matches in place of one
        children(names_in, path)  the names in a folder; `names_in` lists one of the file system
        matching(match, pattern)  the files that match a pattern, under the program's names
        when_it_runs(how, paths)  a tensor of what the method `how` returns for those of a tensor
    """
    _change_functions(doors, replace, places)
    _change_ops(doors, replace, places)


def changed(function: Callable[..., Any], *hows: Callable[[Any], Any]) -> Callable[..., Any]:
    """Returns `function` with its first arguments changed; where one is None, it is not called."""

    def call(*args: Any, **kwargs: Any) -> Any:
        paths = [how(path) for how, path in zip(hows, args, strict=False)]
        return None if None in paths else function(*paths, *args[len(paths) :], **kwargs)

    return call


def _change_functions(doors: Any, replace: Callable[..., Any], places: Any) -> None:
    for door, functions in _FUNCTIONS.items():
        module = getattr(doors, door)
        for name, hows in functions.items():
            real = getattr(module, name)
            replace(module, name, changed(real, *(getattr(places, how) for how in hows)))

    file_io, checkpoint_reader, readers = doors.file_io, doors.checkpoint_reader, doors.readers
    names_in, match, open_file = file_io.GetChildren, file_io.GetMatchingFiles, file_io.WritableFile
    replace(file_io, "GetChildren", lambda path, *args: places.children(names_in, path))
    replace(file_io, "GetMatchingFiles", lambda pattern, *args: places.matching(match, pattern))

    def writable_file(path: Any, mode: Any, *args: Any) -> Any:
        appends = mode[:1] in ("a", b"a")
        return open_file(places.changed(path) if appends else places.written(path), mode, *args)

    replace(file_io, "WritableFile", writable_file)
    begin = tf.io.TFRecordWriter.__init__

    def make_writer(self: Any, path: Any, options: Any = None) -> None:
        begin(self, places.written(path), options)

    replace(tf.io.TFRecordWriter, "__init__", make_writer)

    base: Any = checkpoint_reader.CheckpointReader

    class CheckpointReader(base):  # type: ignore[misc]
        def __init__(self, filename: Any):
            super().__init__(places.restored(filename))

    replace(checkpoint_reader, "CheckpointReader", CheckpointReader)

    # A dataset of records turns a list of names into a dataset, whose op reads no files.
    name_files = readers._create_or_validate_filenames_dataset

    def name_changed_files(filenames: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(filenames, tf.data.Dataset):
            filenames = _changed_input(places, "read", filenames)
        return name_files(filenames, *args, **kwargs)

    replace(readers, "_create_or_validate_filenames_dataset", name_changed_files)


def _change_ops(doors: Any, replace: Callable[..., Any], places: Any) -> None:
    in_graph = doors.op_def_library._apply_op_helper
    at_once = doors.pywrap_tfe.TFE_Py_FastPathExecute
    slowly = doors.execute.execute

    def make_op(op_type_name: str, name: Any = None, **inputs: Any) -> Any:
        for number, how in FILE_INPUTS.get(op_type_name, {}).items():
            # The generated functions pass inputs in the op's order, before attributes.
            key = list(inputs)[number]
            inputs[key] = _changed_input(places, how, inputs[key])
        if op_type_name == "RecordInput":  # The only op with a path as an attribute.
            inputs["file_pattern"] = places.listed(inputs["file_pattern"])[0]
        return in_graph(op_type_name, name, **inputs)

    def run_op(context: Any, op_type_name: str, name: Any, *inputs: Any) -> Any:
        hows = FILE_INPUTS.get(op_type_name)
        if hows is not None:
            inputs = tuple(
                _changed_input(places, hows[i], one) if i in hows else one
                for i, one in enumerate(inputs)
            )
        return at_once(context, op_type_name, name, *inputs)

    def run_op_slowly(
        op_name: Any, num_outputs: Any, inputs: Any, *args: Any, **kwargs: Any
    ) -> Any:
        hows = FILE_INPUTS.get(os.fsdecode(op_name))
        if hows is not None:
            inputs = [
                tf.convert_to_tensor(_changed_input(places, hows[i], one)) if i in hows else one
                for i, one in enumerate(inputs)
            ]
        return slowly(op_name, num_outputs, inputs, *args, **kwargs)

    replace(doors.op_def_library, "_apply_op_helper", make_op)
    replace(doors.pywrap_tfe, "TFE_Py_FastPathExecute", run_op)
    replace(doors.execute, "execute", run_op_slowly)


def _changed_input(places: Any, how: str, value: Any) -> Any:
    """Returns an op's input with each path replaced by what the method `how` returns."""
    if isinstance(value, (list, tuple)) and any(tf.is_tensor(one) for one in value):
        value = tf.convert_to_tensor(value)
    if how in ("saved", "restored") and tf.is_symbolic_tensor(value):
        known = None  # A saver feeds even a constant; asking for its value would forbid that.
    else:
        known = tf.get_static_value(value) if tf.is_tensor(value) else value
    if known is None:
        is_text = value.dtype.base_dtype == tf.string
        return places.when_it_runs(how, value) if is_text else value
    array = np.asarray(known, dtype=object)
    if not any(isinstance(path, (str, bytes)) for path in array.flat):
        return value
    if how == "listed":
        flat = [found for pattern in array.flat for found in places.listed(pattern)]
        shape = array.shape if len(flat) == array.size else (len(flat),)
    else:
        flat, shape = [getattr(places, how)(path) for path in array.flat], array.shape
    if flat == list(array.flat):
        return value
    new = np.empty(len(flat), object)
    new[:] = flat
    return new.reshape(shape).tolist()
