# SPDX-License-Identifier: Apache-2.0
"""Gives TensorFlow folders of this machine in place of paths such as gs://bucket/data.

A path is changed where it goes from Python to TensorFlow's file systems: in the functions that
`tf.io.gfile`, checkpoint readers and writers of records and events call, and in the inputs of ops
that read or write files. A program sees its own paths. Where an op's path is known only when it
runs, ops before it change it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

from estimator_emb.compat.changes import Changes
from estimator_emb.compat.internals.files import (
    checkpoint_reader,
    events_writer,
    execute,
    file_io,
    op_def_library,
    pywrap_tfe,
    readers,
    record_io,
)

FILE_INPUTS: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(
        (
            "CSVDataset CSVDatasetV2 ExperimentalCSVDataset ExperimentalLMDBDataset "
            "ExperimentalMatchingFilesDataset FixedLengthRecordDataset FixedLengthRecordDatasetV2 "
            "LMDBDataset ListSnapshotChunksDataset LoadAndRemapMatrix LoadDataset MatchingFiles "
            "MatchingFilesDataset ReadFile Restore RestoreSlice RestoreV2 Save SaveSlices SaveV2 "
            "SnapshotChunkDataset SnapshotDatasetReader TFRecordDataset TFRecordDatasetV2 "
            "TextLineDataset WriteFile"
        ).split(),
        (0,),
    ),
    **dict.fromkeys(
        (
            "CacheDataset CacheDatasetV2 CreateSummaryFileWriter DatasetToTFRecord "
            "DistributedSave ExperimentalDatasetToTFRecord InitializeTableFromTextFile "
            "InitializeTableFromTextFileV2 SaveDataset SaveDatasetV2 SnapshotDataset "
            "SnapshotDatasetV2"
        ).split(),
        (1,),
    ),
    "GenerateVocabRemapping": (0, 1),
    "MergeV2Checkpoints": (0, 1),
}
"""Op that reads or writes files -> which of its inputs are paths."""

_READERS = {
    file_io: (
        "BufferedInputStream DeleteFile DeleteRecursively FileExists GetChildren HasAtomicMove "
        "IsDirectory Stat CreateDir RecursivelyCreateDir"
    ),
    record_io: "RecordIterator RandomRecordReader",
}
"""Module -> its functions whose first argument is a path."""

_REFUSED = "/dev/null/estimator-emb has no --map for gs:/"
"""Where a path goes whose op runs without a folder for it: nothing can exist there."""

_installed: Changes | None = None
_paths: _Paths | None = None


def install(folders: dict[str, str], refuses_gs: bool) -> None:
    """Makes TensorFlow use folders in place of paths, and no others; `uninstall` undoes it.

    Args:
      folders: prefix of paths -> folder, or the prefix itself for paths to leave alone. The longest
        prefix that fits counts.
      refuses_gs: True makes other paths that begin with gs:// an error.
    """
    global _installed, _paths
    uninstall()
    if not (folders or refuses_gs):
        return
    paths = _Paths(folders, refuses_gs)
    changes = Changes()
    try:
        _change_python(changes, paths)
        _change_ops(changes, paths)
    except BaseException:
        changes.undo()
        raise
    _installed, _paths = changes, paths


def uninstall() -> None:
    """Undoes `install`."""
    global _installed, _paths
    if _installed is not None:
        _installed.undo()
        _installed = _paths = None


def local(path: str) -> str:
    """Returns where TensorFlow finds a path of the program on this machine."""
    return path if _paths is None else _paths.local(path)


class _Paths:
    """Prefixes of paths, and the folders in their place; see `install`."""

    def __init__(self, folders: dict[str, str], refuses_gs: bool):
        self._folders = sorted(folders.items(), key=lambda one: -len(one[0]))
        self._refuses_gs = refuses_gs

    def local(self, path: Any) -> Any:
        """Returns where a path is on this machine, as the type that it has; others as they are."""
        if not isinstance(path, (str, bytes)):
            return path
        text = os.fsdecode(path)
        for prefix, folder in self._folders:
            if text == prefix or text.startswith(prefix + "/"):
                text = folder + text[len(prefix) :]
                return text if isinstance(path, str) else os.fsencode(text)
        if self._refuses_gs and text.startswith("gs://"):
            bucket = "/".join(text.split("/")[:3])
            raise ValueError(
                f"{text!r}: nothing is read from or written to Google Cloud Storage while a TPU is "
                f"emulated. Name a folder for it: estimator-emb run --map {bucket}=DIR (or --map "
                f"{bucket}={bucket} for the bucket itself)."
            )
        return path

    def local_for_writing(self, path: Any) -> Any:
        """Does what `local` does, and makes the folder of a file, which a bucket needs not."""
        found = self.local(path)
        if found != path:
            os.makedirs(os.path.dirname(os.fsdecode(found)), exist_ok=True)
        return found

    def remote(self, found: list[Any], pattern: Any) -> list[Any]:
        """Returns what a pattern has found, with the prefix that the pattern has."""
        text = os.fsdecode(pattern)
        for prefix, folder in self._folders:
            if text == prefix or text.startswith(prefix + "/"):
                begin = os.fsencode(folder) if found and isinstance(found[0], bytes) else folder
                put = os.fsencode(prefix) if isinstance(begin, bytes) else prefix
                return [put + path[len(begin) :] for path in found]
        return found

    def local_tensor(self, value: Any) -> Any:
        """Returns an input of an op, of strings, with the paths of this machine."""
        if isinstance(value, (list, tuple)) and any(tf.is_tensor(one) for one in value):
            value = tf.convert_to_tensor(value)
        known = tf.get_static_value(value) if tf.is_tensor(value) else value
        if known is None:
            return self._mapped_when_it_runs(value)
        if isinstance(known, (str, bytes)):
            return self.local(known)
        array = np.asarray(known, dtype=object)
        if not any(isinstance(path, (str, bytes)) for path in array.flat):
            return value
        mapped = np.array([self.local(path) for path in array.flat], object)
        if all(one == other for one, other in zip(mapped, array.flat, strict=True)):
            return value
        return mapped.reshape(array.shape).tolist()

    def _mapped_when_it_runs(self, tensor: Any) -> Any:
        # Without folders, graphs stay as they are.
        if not self._folders or tensor.dtype.base_dtype != tf.string:
            return tensor
        with tf.name_scope("map_path"):
            for prefix, folder in self._folders:
                if folder != prefix:
                    put = folder.replace("\\", "\\\\") + r"\1"
                    tensor = tf.strings.regex_replace(
                        tensor, f"^{re.escape(prefix)}(/|$)", put, replace_global=False
                    )
            left = "|".join(re.escape(p) for p, folder in self._folders if p == folder)
            if self._refuses_gs and not left:
                tensor = tf.strings.regex_replace(tensor, "^gs:/", _REFUSED, replace_global=False)
        return tensor


def _change_python(changes: Changes, paths: _Paths) -> None:
    def mapping(original: Callable[..., Any], *maps: Callable[[Any], Any]) -> Callable[..., Any]:
        def mapped(*args: Any, **kwargs: Any) -> Any:
            count = len(maps)
            first = [change(path) for change, path in zip(maps, args[:count], strict=False)]
            return original(*first, *args[count:], **kwargs)

        return mapped

    def replace(owner: Any, name: str, *maps: Callable[[Any], Any]) -> None:
        changes.set_attribute(owner, name, mapping(getattr(owner, name), *maps))

    for module, names in _READERS.items():
        for name in names.split():
            replace(module, name, paths.local)
    replace(file_io, "WritableFile", paths.local_for_writing)
    for name in ("CopyFile", "RenameFile"):
        replace(file_io, name, paths.local, paths.local_for_writing)
    replace(events_writer, "EventsWriter", paths.local_for_writing)

    matching = file_io.GetMatchingFiles
    changes.set_attribute(
        file_io,
        "GetMatchingFiles",
        lambda pattern: paths.remote(matching(paths.local(pattern)), pattern),
    )

    begin = tf.io.TFRecordWriter.__init__

    def make_writer(self: Any, path: Any, options: Any = None) -> None:
        begin(self, paths.local_for_writing(path), options)

    changes.set_attribute(tf.io.TFRecordWriter, "__init__", make_writer)

    class CheckpointReader(checkpoint_reader.CheckpointReader):  # type: ignore[misc]
        """A reader of the checkpoint that a path of the program names."""

        def __init__(self, filename: Any):
            super().__init__(paths.local(filename))

    changes.set_attribute(checkpoint_reader, "CheckpointReader", CheckpointReader)

    # Of a list of names, a dataset of records makes a dataset, whose op reads no files.
    name_files = readers._create_or_validate_filenames_dataset

    def name_mapped_files(filenames: Any, *args: Any, **kwargs: Any) -> Any:
        if not isinstance(filenames, tf.data.Dataset):
            filenames = paths.local_tensor(filenames)
        return name_files(filenames, *args, **kwargs)

    changes.set_attribute(readers, "_create_or_validate_filenames_dataset", name_mapped_files)


def _change_ops(changes: Changes, paths: _Paths) -> None:
    in_graph = op_def_library._apply_op_helper
    at_once = pywrap_tfe.TFE_Py_FastPathExecute
    slowly = execute.execute

    def make_op(op_type_name: str, name: Any = None, **inputs: Any) -> Any:
        for place in FILE_INPUTS.get(op_type_name, ()):
            # The generated functions name inputs in the order of the op, before attributes.
            key = list(inputs)[place]
            inputs[key] = paths.local_tensor(inputs[key])
        if op_type_name == "RecordInput":  # The only op with a path as an attribute.
            inputs["file_pattern"] = paths.local(inputs["file_pattern"])
        return in_graph(op_type_name, name, **inputs)

    def run_op(context: Any, op_type_name: str, name: Any, *inputs: Any) -> Any:
        places = FILE_INPUTS.get(op_type_name)
        if places is not None:
            inputs = tuple(
                paths.local_tensor(one) if i in places else one for i, one in enumerate(inputs)
            )
        return at_once(context, op_type_name, name, *inputs)

    def run_op_slowly(
        op_name: Any, num_outputs: Any, inputs: Any, *args: Any, **kwargs: Any
    ) -> Any:
        places = FILE_INPUTS.get(os.fsdecode(op_name))
        if places is not None:
            inputs = [
                tf.convert_to_tensor(paths.local_tensor(one)) if i in places else one
                for i, one in enumerate(inputs)
            ]
        return slowly(op_name, num_outputs, inputs, *args, **kwargs)

    changes.set_attribute(op_def_library, "_apply_op_helper", make_op)
    changes.set_attribute(pywrap_tfe, "TFE_Py_FastPathExecute", run_op)
    changes.set_attribute(execute, "execute", run_op_slowly)
