"""Runs a training program for TPUs as it is: `estimator-emb run`."""

import argparse
import os

from estimator_emb.cli import load_package, parsing, program_files, run_options

DETAILS = """\
The program finds `tf.estimator` and estimator_emb's classes in it (`estimator_emb.install`) on
every supported TensorFlow. Its own arguments, `__main__`, `sys.path[0]` and exit status are those
that Python would give it.
"""


def fill_parser(parser: parsing.Parser) -> None:
    """Adds the arguments."""
    run_options.add_to(parser)
    parser.add_program()


def main(options: argparse.Namespace) -> int:
    """Runs the program; returns the exit status of `legacy.launch.launch`."""
    program_files.check_program(options)
    os.environ.update(run_options.variables(options, os.environ))
    load_package()
    from estimator_emb.legacy import launch

    return launch.launch(options.program, **run_options.launch_arguments(options))
