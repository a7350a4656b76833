# SPDX-License-Identifier: Apache-2.0
"""Lists the variables of a checkpoint: `estimator-emb inspect`."""

import sys

from estimator_emb import checkpoint
from estimator_emb.command import parsers


def main(args: list[str]) -> int:
    """Prints the variables of a checkpoint; returns 0, or 2 if there is no checkpoint."""
    options = parsers.parse("inspect", args)
    try:
        variables = checkpoint.inspect(options.checkpoint)
    except ValueError as error:
        print(f"estimator-emb inspect: {error}", file=sys.stderr)
        return 2
    rows = [("variable", "shape", "type", "MB with slots", "optimizer")]
    for variable in variables:
        optimizer = variable.optimizer or ("unknown" if variable.slots else "")
        shape = " x ".join(f"{size:,}" for size in variable.shape) or "scalar"
        megabytes = f"{variable.bytes / 1e6:,.3f}"
        rows.append((variable.name, shape, variable.dtype.name, megabytes, optimizer))
        rows += [
            (f"  {slot.removeprefix(variable.name)}", "", "", "", "") for slot in variable.slots
        ]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        print("  ".join(cells).rstrip())
    total = sum(variable.bytes for variable in variables)
    print(f"{len(variables)} variables, {total / 1e6:,.3f} MB with slots")
    return 0
