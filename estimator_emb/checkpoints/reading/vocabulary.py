"""Reads the labels of a table's rows from a vocabulary file, one label per line, in id order."""

from collections.abc import Iterator

import tensorflow as tf


class Vocabulary:
    """The labels of a table's rows, lines of a UTF-8 file. Raises ValueError if they do not fit.

    If a line is missing anywhere in the file, all labels after it are wrong. So a file with too few
    lines is accepted only with `allow_unlabelled`. The last rows then have no labels.
    """

    def __init__(self, file: str, table: str, rows: int, allow_unlabelled: bool):
        self.file = file
        self._owner = f"vocabulary {file!r} of table {table!r}"
        if not tf.io.gfile.exists(file) or tf.io.gfile.isdir(file):
            raise ValueError(f"{self._owner}: there is no such file.")
        self.size = self.longest = 0
        for label in self:
            self.size += 1
            self.longest = max(self.longest, len(label))
        if not self.size:
            raise ValueError(f"{self._owner} is empty.")
        if self.size > rows:
            raise ValueError(f"{self._owner} has {self.size:,} lines, and the table {rows:,} rows.")
        if self.size < rows and not allow_unlabelled:
            raise ValueError(
                f"{self._owner} has {self.size:,} lines, and the table {rows:,} rows: if a line is "
                "missing, all labels after it are of the wrong rows. If only the last rows have no "
                "label, as those of words outside the vocabulary, give --allow-unlabelled, in "
                "Python allow_unlabelled=True."
            )

    def __iter__(self) -> Iterator[str]:
        with tf.io.gfile.GFile(self.file, "rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield line.removesuffix(b"\n").removesuffix(b"\r").decode()
                except UnicodeDecodeError:
                    raise ValueError(f"{self._owner}: line {number} is not UTF-8.") from None

    def check_distinct(self) -> None:
        seen: dict[str, int] = {}
        for number, label in enumerate(self, 1):
            if seen.setdefault(label, number) != number:
                raise ValueError(
                    f"{self._owner}: lines {seen[label]} and {number} are both {label!r}; a lookup "
                    "by labels needs each once."
                )
