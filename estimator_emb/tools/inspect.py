# SPDX-License-Identifier: Apache-2.0
"""Lists the variables of a checkpoint: `estimator-emb inspect`."""

import sys

from estimator_emb import checkpoint
from estimator_emb.command import parsers


def main(args: list[str]) -> int:
    """Prints the variables; returns 2 if there is no checkpoint."""
    options = parsers.parse("inspect", args)
    try:
        variables = checkpoint.inspect(options.checkpoint)
    except ValueError as error:
        print(f"estimator-emb inspect: {error}", file=sys.stderr)
        return 2
    rows = [("variable", "shape", "type", "MB with slots", "optimizer")]
    for one in variables:
        optimizer = one.optimizer or ("unknown" if one.slots else "")
        shape = " x ".join(f"{size:,}" for size in one.shape) or "scalar"
        megabytes = f"{one.bytes / 1e6:,.3f}"
        rows.append((one.name, shape, one.dtype.name, megabytes, optimizer))
        rows += [(f"  {slot.removeprefix(one.name)}", "", "", "", "") for slot in one.slots]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    total = sum(one.bytes for one in variables)
    print(f"{len(variables)} variables, {total / 1e6:,.3f} MB with slots")
    return 0
