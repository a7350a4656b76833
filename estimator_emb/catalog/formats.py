"""The export formats of `estimator-emb export`. Each also has a module of its own."""

import typing
from collections.abc import Mapping, Sequence


class ExportFormat(typing.NamedTuple):
    """An export format: its module, its line of help, the file to open, and a package it needs.

    `slots` and `labels` say whether it can hold them.
    """

    module: str
    line: str
    file: str
    package: str = ""
    slots: bool = True
    labels: bool = True


EXPORT_FORMATS = {
    "npz": ExportFormat("npz", "NumPy's", "tables.npz"),
    "parquet": ExportFormat("parquet", "Apache Parquet", "<table>.parquet", "pyarrow"),
    "saved-model": ExportFormat(
        "saved_model", "a SavedModel that looks up ids or labels", "saved_model.pb", slots=False
    ),
    "tf2": ExportFormat(
        "tf2", "a checkpoint for TPUEmbedding of TensorFlow 2", "ckpt-1.index", labels=False
    ),
    "keras": ExportFormat(
        "keras", "weights for Embedding layers of Keras 2 or 3", "tables.h5", "", False, False
    ),
}


def check_arguments(
    to: str,
    tables: Sequence[str] | None,
    slots: bool,
    vocabularies: Mapping[str, str],
    allow_unlabelled: bool,
) -> None:
    """Raises a ValueError if arguments of `checkpoint.export` are invalid or conflict."""
    if to not in EXPORT_FORMATS:
        raise ValueError(f"export: to must be one of {', '.join(EXPORT_FORMATS)}; got {to!r}.")
    format = EXPORT_FORMATS[to]
    if slots and not format.slots:
        raise ValueError(f"export: {to} has no slots.")
    if vocabularies and not format.labels:
        raise ValueError(f"export: {to} has no labels; leave vocabularies out.")
    if allow_unlabelled and not vocabularies:
        raise ValueError(
            "export: allow_unlabelled needs vocabularies: it is for rows beyond their ends."
        )
    if tables is not None:
        check_labelled(tables, vocabularies)


def check_labelled(tables: Sequence[str], vocabularies: Mapping[str, str]) -> None:
    """Raises a ValueError for a vocabulary of a table that is not in `tables`."""
    unknown = set(vocabularies) - set(tables)
    if unknown:
        raise ValueError(
            f"export: there are vocabularies of {sorted(unknown)}, which are not among the "
            f"tables {list(tables)}."
        )
