# SPDX-License-Identifier: Apache-2.0
"""Runs one side of `estimator-emb compare`: python compared_side.py FOLDER.

FOLDER is described in `comparison/processes/side.py`, which is loaded by its file, as the
interpreter of a side may not have this package.
"""

import argparse
import importlib.util
import os
import sys


def launch(program, **arguments):
    """Runs a program as `estimator-emb run` does."""
    from estimator_emb.cli import arguments as of_commands
    from estimator_emb.cli import program_files
    from estimator_emb.legacy import launch

    try:
        program_files.check_program(argparse.Namespace(program=program, map=()))
    except of_commands.WrongArguments as error:
        print(f"estimator-emb run: error: {error}", file=sys.stderr)
        return 2
    return launch.launch(program, **arguments)


def main(folder):
    """Runs the side, and returns its exit status."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    path = os.path.join(package, "comparison", "processes", "side.py")
    spec = importlib.util.spec_from_file_location("estimator_emb_compare_side", path)
    side = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(side)
    return side.main(folder, launch)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
