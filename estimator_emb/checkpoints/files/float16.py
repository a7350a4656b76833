# SPDX-License-Identifier: Apache-2.0
"""Rounds tables to float16."""

import numpy as np

LARGEST = 65504


def rounded(owner: str, table: str, rows: np.ndarray, start: int) -> np.ndarray:
    """Returns rows, from `start` on, as float16; ValueErrors beyond `LARGEST` name the `owner`."""
    if not np.issubdtype(rows.dtype, np.floating):
        rows = rows.astype(np.float32)  # NumPy knows little of bfloat16.
    beyond = np.argwhere(np.isfinite(rows) & (np.abs(rows) > LARGEST))
    if len(beyond):
        row, column = beyond[0]
        raise ValueError(
            f"{owner} cannot write table {table!r}: row {start + row} has {rows[row, column]:g}, "
            f"and float16 ends at {LARGEST}. Write the tables as float32."
        )
    return rows.astype(np.float16)
