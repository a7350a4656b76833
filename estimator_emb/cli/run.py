"""Runs a TPU training program unchanged: `estimator-emb run`."""

import argparse
import os

from estimator_emb.catalog import environment
from estimator_emb.cli import load_package, parsing, run_options

DETAILS = """\
The program finds `tf.estimator`, with estimator_emb's classes in it, on every supported TensorFlow
(`estimator_emb.install`). It gets the same arguments, `__main__`, `sys.path[0]` and exit status as
when Python runs it.
"""


def fill_parser(parser: parsing.Parser) -> None:
    """Adds the arguments."""
    parser.add_argument(
        "--hosts",
        action="store_true",
        help="train with --device=pjrt together with the other hosts of a TPU or cluster. Each "
        f"host runs this command. jax finds the hosts, unless {environment.HOSTS}, "
        f"{environment.HOST} and {environment.COORDINATOR} name them",
    )
    run_options.add_to(parser)
    parser.add_program()


def main(options: argparse.Namespace) -> int:
    """Runs the program and returns the exit status of `legacy.launch.launch`."""
    run_options.check_program(options)
    os.environ.update(run_options.variables(options, os.environ))
    if options.hosts:
        if os.environ[environment.DEVICE.name] != "pjrt":
            raise parsing.WrongArguments("--hosts needs --device=pjrt")
        os.environ.setdefault(environment.HOSTS.name, "auto")
    load_package()
    from estimator_emb.legacy import launch

    return launch.launch(options.program, **run_options.launch_arguments(options))
