"""Tells whether two finished runs trained the same: `estimator-emb compare`."""

import argparse
import os
import sys

from estimator_emb.cli import load_package, parsing
from estimator_emb.cli.comparison import CannotCompare

DETAILS = """\
    estimator-emb compare MODEL_DIR_A MODEL_DIR_B

The runs are compared at each step that both have: their checkpoints with all slots, the losses and
metrics of their event files, and their exports. So give both runs the same start, the same seed and
the same steps.

The exit status is 0 if the runs are the same within the tolerance, 1 if they differ, and 2 if they
could not be compared.
"""


def fill_parser(parser: parsing.Parser) -> None:
    """Adds the arguments."""
    parser.add_argument("a", metavar="MODEL_DIR_A", help="model directory of the first run")
    parser.add_argument("b", metavar="MODEL_DIR_B", help="model directory of the second run")
    tolerance = parsing.number(float, "a number >= 0", lambda value: 0 <= value < float("inf"))
    parser.add_argument(
        "--rtol", type=tolerance, default=1e-4, help="relative tolerance. Default: 1e-4"
    )
    parser.add_argument(
        "--atol", type=tolerance, default=1e-5, help="absolute tolerance. Default: 1e-5"
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out variables, metrics and losses with matching names. * and ? are wildcards. "
        "May be given several times",
    )
    parser.add_plot("draw losses and differences. Needs matplotlib")


def main(options: argparse.Namespace) -> int:
    """Compares two runs. Returns the exit status that DETAILS describes."""
    for path in (options.a, options.b):
        if "://" not in path and not os.path.isdir(path):
            raise parsing.WrongArguments(f"there is no folder {path!r}")
    load_package()
    from estimator_emb.checkpoints.files.checkpoint_files import CheckpointError
    from estimator_emb.cli.comparison import comparison_report
    from estimator_emb.reporting import console
    from estimator_emb.reporting.text_columns import escaped

    try:
        with console.shown():  # Hides deprecation warnings.
            return comparison_report.report(options)
    except CheckpointError as error:
        why = error.message
    except CannotCompare as error:
        why = str(error)
    print(f"estimator-emb compare: {escaped(why)}", file=sys.stderr)
    return 2
