"""Records the vocabularies of a training's columns, and compares a later graph with them.

A column's ids are the positions of its words. If the words change, a saved row stands for another
word, and no shape shows it.
"""

import hashlib
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.files import checkpoint_files
from estimator_emb.checkpoints.files.checkpoint_files import CheckpointError
from estimator_emb.reporting.console import logger

FILE = "estimator_emb_vocabularies.json"
"""Name of the file in `model_dir`: key of a column -> [[words, checksum], ...]."""

_LOOKUP = re.compile(r"(?:.*/)?([^/]+?)_lookup(?:_\d+)?/.*")
"""Matches the op with which a column fills the lookup table of its vocabulary."""
_PIECE_BYTES = 1 << 20

Vocabularies = dict[str, list[list[Any]]]


class ChangedVocabulary(CheckpointError, tf.errors.FailedPreconditionError):  # type: ignore[misc]
    """Raised if a column's words have changed since the training of the checkpoint."""


def vocabularies_of(graph: Any) -> Vocabularies:
    """Returns the vocabularies that columns look words up in."""
    found: Vocabularies = {}
    for op in graph.get_operations():
        match = _LOOKUP.fullmatch(op.name)
        if match and op.type in ("InitializeTableFromTextFileV2", "LookupTableImportV2"):
            words = _from_file(op) if "File" in op.type else _from_list(op)
            if words and words not in found.setdefault(match[1], []):
                found[match[1]].append(words)
    return found


def check_unchanged(path: str, found: Vocabularies) -> None:
    """Raises ChangedVocabulary if columns had other words in the training of a checkpoint."""
    file = os.path.join(path.rpartition("/")[0] or ".", FILE)
    recorded = _read(file)
    for key, now in found.items():
        before = recorded.get(key, [])
        gone = [one for one in before if one not in now]
        new = [one for one in now if one not in before]
        if gone and new:  # Another column with the same key is not a change.
            (was, _), (words, _) = gone[0], new[0]
            count = f"{words:,} others" if words != was else "others, as many"
            raise ChangedVocabulary(
                f"The vocabulary of column {key!r} has changed since the training of checkpoint "
                f"'{path}': it had {was:,} words, and now has {count}, or in another order. So "
                "saved rows would stand for other words.\n"
                "What to do: give the column its old vocabulary, or train in another model_dir "
                "with warm_start_from=vocabulary_warm_start(...), which moves rows to the new ids "
                f"of their words. If no row has another word, delete '{file}'."
            )


def write(model_dir: str, found: Vocabularies, continues: bool) -> None:
    """Records vocabularies. Keeps earlier records if the training `continues`."""
    file = os.path.join(model_dir, FILE)
    recorded = _read(file) if continues else {}
    merged = dict(recorded)
    for key, now in found.items():
        before = merged.get(key, [])
        merged[key] = [*before, *(one for one in now if one not in before)]
    if merged != recorded:
        text = json.dumps(merged, ensure_ascii=False, sort_keys=True, indent=1) + "\n"
        checkpoint_files.write_whole(file, text.encode())


def _read(file: str) -> Mapping[str, list[list[Any]]]:
    if not tf.io.gfile.exists(file):
        return {}
    try:
        with tf.io.gfile.GFile(file) as opened:
            recorded = json.loads(opened.read())
        return {key: [[int(words), str(sum)] for words, sum in of] for key, of in recorded.items()}
    except (ValueError, TypeError, AttributeError):
        logger.warning("%s cannot be read: vocabularies are not compared with it.", file)
        return {}


def _from_file(op: Any) -> list[Any] | None:
    name = tf.get_static_value(op.inputs[1])
    if name is None:
        return None
    file, size = name.item().decode(), op.get_attr("vocab_size")
    if not tf.io.gfile.exists(file):  # The file may be on another machine of a cluster.
        return None
    return list(_summed(_first_lines(file, size)))


def _first_lines(file: str, size: int) -> Iterator[bytes]:
    """Yields the first `size` lines of a file, or all for -1, as TensorFlow reads them."""
    left = sys.maxsize if size == -1 else size
    with tf.io.gfile.GFile(file, "rb") as opened:
        end = b"\n"
        while data := opened.read(_PIECE_BYTES):
            data = data.replace(b"\r", b"")
            lines = data.count(b"\n")
            if lines >= left:
                yield b"".join(data.splitlines(keepends=True)[:left])
                return
            left -= lines
            end = data[-1:] or end
            yield data
        if end != b"\n":
            yield b"\n"


def _from_list(op: Any) -> list[Any] | None:
    words = tf.get_static_value(op.inputs[1])
    if words is None:
        return None
    return list(
        _summed(
            (word if isinstance(word, bytes) else str(word).encode()) + b"\n"
            for word in words.tolist()
        )
    )


def _summed(pieces: Iterable[bytes]) -> tuple[int, str]:
    """Returns the number of lines in pieces of a text, and its checksum."""
    words, checksum = 0, hashlib.sha256()
    for piece in pieces:
        words += piece.count(b"\n")
        checksum.update(piece)
    return words, checksum.hexdigest()
