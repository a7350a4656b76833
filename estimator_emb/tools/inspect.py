# SPDX-License-Identifier: Apache-2.0
"""List the variables of a checkpoint: shapes, sizes, optimizers and slots.

    estimator-emb inspect CHECKPOINT

A checkpoint is named by its prefix, /models/a/model.ckpt-100, or by its folder, whose latest one is
meant. Slots of embedding optimizers stand with their table. Only the index is read.
"""

import argparse
import sys

from estimator_emb import checkpoint


def main(args: list[str]) -> int:
    """Prints the variables; returns 2 if there is no checkpoint."""
    options = _parser().parse_args(args)
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="estimator-emb inspect",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("checkpoint", help="prefix of a checkpoint, or its folder")
    return parser
