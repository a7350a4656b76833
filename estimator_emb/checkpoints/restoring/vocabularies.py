"""Starts training from a checkpoint with other vocabularies, and moves rows with their words."""

import atexit
import collections
import os
import shutil
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.files import checkpoint_files, checkpoint_reader
from estimator_emb.checkpoints.reading.vocabulary import Vocabulary
from estimator_emb.compat.internals.estimators import VocabInfo, WarmStartSettings
from estimator_emb.engine.tables.storage import InitialRows, constant
from estimator_emb.spec.config import EmbeddingConfigSpec
from estimator_emb.spec.resolved import Table, tables_of

_Words = str | os.PathLike[str] | Iterable[str | bytes]


def vocabulary_warm_start(
    checkpoint: str | os.PathLike[str],
    embedding_config_spec: EmbeddingConfigSpec,
    vocabularies: Mapping[str, tuple[_Words, _Words]],
    folder: str | os.PathLike[str] | None = None,
) -> Any:
    """Returns the `WarmStartSettings` that move rows from old vocabularies to new vocabularies.

    Give them to a `TPUEstimator` as `warm_start_from`, with a `model_dir` that has no checkpoint
    yet. The row of a word and its slots move to the word's new id. A new word has the row that the
    table's initializer makes at its id, and slots with the optimizer's initial values. Dropped
    words have no row. The rows after the words belong to unknown words. They move too if both
    tables have the same number of them. Otherwise they are new. All other variables, including the
    global step, are taken unchanged.

    Args:
      checkpoint: a checkpoint, or a folder for its latest checkpoint.
      embedding_config_spec: the spec of the new training, of columns or config dicts.
      vocabularies: name of a table, or key of a feature that looks it up -> (old, new). Each is a
        UTF-8 file with a word on each line, or the words, in id order. Tables that are not named
        keep their vocabulary.
      folder: folder for vocabulary files that the table's machine reads when training begins. None,
        the default, means a temporary folder that is removed when the process ends.

    Raises:
      MissingCheckpoint: there is no checkpoint.
      TypeError: a word is not a string.
      ValueError: a table is not in the spec, or is not exactly one variable of the checkpoint; its
        dimension differs; its words are not distinct, have a line break, or outnumber its rows; or
        a file is not UTF-8 or has a blank line.
    """
    path = tf.compat.path_to_str(checkpoint)
    path = (tf.io.gfile.isdir(path) and checkpoint_files.latest(path)) or path
    path = checkpoint_files.given(path)
    saved = checkpoint_reader.load(path).get_variable_to_shape_map()
    if folder is None:
        folder = tempfile.mkdtemp(prefix="estimator_emb_vocabularies_")
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    target = tf.compat.path_to_str(folder)
    tf.io.gfile.makedirs(target)
    infos: dict[str, Any] = {}
    for key, pair in vocabularies.items():
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(
                f"vocabulary_warm_start: vocabularies[{key!r}] must be a tuple (old, new), each a "
                f"file or a list of words; got {pair!r}."
            )
        old, new = pair
        table = _find_table(key, tables_of(embedding_config_spec, off_tpu=True))
        name = _find_variable(table, saved, path)
        rows, size = saved[name][0], table.config.vocabulary_size
        if saved[name][1] != table.config.dimension:
            raise ValueError(
                f"vocabulary_warm_start: table {table.name!r} has dimension "
                f"{table.config.dimension}, and variable {name!r} of checkpoint {path!r} is "
                f"{saved[name]}. Give the table its old dimension."
            )
        before = _read_words(old, "old", table.name, rows)
        after = _read_words(new, "new", table.name, size)
        kept = rows - len(before) == size - len(after)
        stem = os.path.join(target, f"{len(infos)}-{table.name.replace('/', '.')}")
        info = VocabInfo(
            new_vocab=_write_words(f"{stem}.new", after, size, "bucket"),
            new_vocab_size=size,
            num_oov_buckets=0,
            old_vocab=_write_words(f"{stem}.old", before, rows, "bucket" if kept else "old bucket"),
            backup_initializer=InitialRows(table.config),
        )
        infos[name] = info
        optimizer = table.optimizer
        if optimizer is None or optimizer.slot_variable_creation_fn:
            continue  # Slots that the program names are added when training begins.
        for slot in optimizer.slots:
            initializer = constant(optimizer.initial_value(slot))
            infos[name + slot.suffix] = info._replace(backup_initializer=initializer)
    # tensorflow-estimator takes slots only if the patterns are a list.
    return WarmStartSettings(path, [".*", "global_step"], infos)


def _find_table(key: str, tables: Sequence[Table]) -> Table:
    keys = {feature.input_key: table for table in tables for feature in table.features}
    keys.update({table.name: table for table in tables})
    if key not in keys:
        raise ValueError(
            f"vocabulary_warm_start: vocabularies has {key!r}, and the spec has no such table or "
            f"feature; it has {', '.join(sorted(keys)) or 'none'}."
        )
    return keys[key]


def _find_variable(table: Table, saved: Mapping[str, Any], path: str) -> str:
    if table.scope_key is None:
        names = {table.name} & set(saved)
    else:
        columns = [feature.column_name for feature in table.features]
        ends = [f"{column}/embedding_weights" for column in columns]
        if f"{table.scope_key}_embedding" not in columns:  # Shared columns.
            ends.append(table.scope_key)
        names = {name for name in saved for end in ends if f"/{name}".endswith(f"/{end}")}
    if len(names) != 1:
        raise ValueError(
            f"vocabulary_warm_start: table {table.name!r} must fit one variable of checkpoint "
            f"{path!r}, but fits {', '.join(sorted(names)) or 'none'}. Name the table or its "
            "column as in the training that wrote the checkpoint, or write the VocabInfo yourself."
        )
    return names.pop()


def _read_words(source: _Words, day: str, table: str, rows: int) -> list[bytes]:
    owner = f"{day} vocabulary of table {table!r}"
    if isinstance(source, (str, os.PathLike)):
        file = tf.compat.path_to_str(source)
        source = list(Vocabulary(file, table, rows, True))
        if "" in source:
            raise ValueError(
                f"vocabulary_warm_start: the {owner} has a blank line: line "
                f"{source.index('') + 1} of {file!r}. A column that looks words up in a file "
                "refuses it. Remove the line, or give the words as a list."
            )
    words = [_bytes_of(word, owner) for word in source]
    twice = [word for word, count in collections.Counter(words).items() if count > 1]
    if twice:
        raise ValueError(
            f"vocabulary_warm_start: the {owner} has {_shown(twice[0])} more than once; a word has "
            "one row."
        )
    if len(words) > rows:
        raise ValueError(
            f"vocabulary_warm_start: the {owner} has {len(words):,} words, and the table "
            f"{rows:,} rows. Give the vocabulary that the table was made for."
        )
    return words


def _bytes_of(word: Any, owner: str) -> bytes:
    if not isinstance(word, (str, bytes)):
        raise TypeError(
            f"vocabulary_warm_start: the {owner} has {word!r}, which is not a string. Ids "
            "without words stay where they are; leave their table out of vocabularies."
        )
    try:
        code = word.encode() if isinstance(word, str) else word
    except UnicodeEncodeError:
        raise ValueError(
            f"vocabulary_warm_start: the {owner} has {word!r}, which UTF-8 cannot encode. Give the "
            "word as the bytes that the input has."
        ) from None
    if b"\n" in code or b"\r" in code:
        raise ValueError(f"vocabulary_warm_start: the {owner} has a line break in {_shown(code)}.")
    return code


def _shown(word: bytes) -> str:
    """Returns a word in quotes, as a string if it is one."""
    try:
        return repr(word.decode())
    except UnicodeDecodeError:
        return repr(word)


def _write_words(path: str, words: Sequence[bytes], rows: int, rest: str) -> str:
    """Writes each word after a space, and a line that begins with a tab for each further row.

    So a word never equals such a line, and no line is blank. TensorFlow refuses blank lines.
    """
    lines = [b" " + word for word in words]
    lines += [f"\t{rest} {number}".encode() for number in range(rows - len(words))]
    # Other processes of a cluster may write the same file while this process reads it.
    checkpoint_files.write_whole(path, b"".join(line + b"\n" for line in lines))
    return path
