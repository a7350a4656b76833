# SPDX-License-Identifier: Apache-2.0
"""Parsers of the subcommands' arguments. A description's first line is its line in the help.

Those of subcommands that read checkpoints are in `checkpoint_parsers`.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

from estimator_emb.cli import argument_types, checkpoint_parsers, programs
from estimator_emb.names import slices
from estimator_emb.names.generations import GENERATIONS

DEVICES = ("host", "tpu")


def parse(name: str, args: list[str]) -> argparse.Namespace:
    """Returns the options of a subcommand; exits if they are wrong or ask for help.

    They may stand anywhere; what stands after a program is the program's own.
    """
    parser = PARSERS[name]()
    if name not in ("run", "cluster", "check", "compare"):
        # Behind '--', argparse takes names that begin with '-' only where all options come first.
        parse_all = parser.parse_args if "--" in args else parser.parse_intermixed_args
        return parse_all(args)
    options = _parse_with_program(parser, args)
    if not _compares_finished(options):
        if (options.script is None) == (not options.module):
            parser.error("name one program: SCRIPT.py or -m MODULE")
        refusal = programs.refusal(options, by_this_python=name != "compare")
        if refusal is not None:
            parser.exit(2, f"{parser.prog}: error: {refusal}\n")
    return options


def run() -> argparse.ArgumentParser:
    """Returns the parser of `estimator-emb run`."""
    parser = argparse.ArgumentParser(
        prog="estimator-emb run",
        usage="estimator-emb run [options] SCRIPT.py [its arguments]\n"
        "       estimator-emb run [options] -m MODULE [its arguments]",
        description="""Runs a training program for TPUs as it is, by default without a TPU.

The program finds `tf.estimator` and estimator_emb's classes in it (`estimator_emb.install`) on
every supported TensorFlow. Its own arguments, `__main__`, `sys.path[0]` and exit status are those
that Python would give it.
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    _add_how_to_run(parser)
    _add_program(parser)
    return parser


def cluster() -> argparse.ArgumentParser:
    """Returns the parser of `estimator-emb cluster`."""
    parser = argparse.ArgumentParser(
        prog="estimator-emb cluster",
        usage="estimator-emb cluster [options] SCRIPT.py [its arguments]\n"
        "       estimator-emb cluster [options] -m MODULE [its arguments]",
        description="""Runs a training program as a cluster of processes on this machine.

Each process runs the same program, as `estimator-emb run` does, with a TF_CONFIG of its own: the
program calls tf.estimator.train_and_evaluate, and gives its RunConfig a model_dir. The lines that
a process writes are shown behind its name. When the chief is done, all end. The first Ctrl-C or
SIGTERM ends training after a step, with a checkpoint, and a second one at once. The exit status is
the chief's; 1 where it would be 0 and a server died.
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--workers",
        type=argument_types.at_least_one,
        default=1,
        metavar="N",
        help="processes that train: 'chief', which also saves the model, and N - 1 others, "
        "'worker 0' to 'worker N-2'; default 1",
    )
    parser.add_argument(
        "--ps",
        type=argument_types.at_least_one,
        default=1,
        metavar="N",
        help="parameter servers, 'ps 0' to 'ps N-1'; default 1",
    )
    parser.add_argument(
        "--evaluator",
        action="store_true",
        help="adds the process 'evaluator', which evaluates each new checkpoint",
    )
    parser.add_argument(
        "--wait-limit",
        type=argument_types.at_least_one,
        metavar="SECONDS",
        help="ends a process that has waited so long for one that is away; by default what "
        "ESTIMATOR_EMB_WAIT_LIMIT says, or never",
    )
    _add_how_to_run(parser)
    _add_program(parser)
    return parser


def check() -> argparse.ArgumentParser:
    """Returns the parser of `estimator-emb check`."""
    parser = argparse.ArgumentParser(
        prog="estimator-emb check",
        usage="estimator-emb check [options] SCRIPT.py [its flags]\n"
        "       estimator-emb check [options] -m MODULE [its flags]",
        description="Checks whether a TPU will accept a program, without a TPU.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--generations",
        type=argument_types.generations,
        help="TPU generations that are checked, of "
        f"{','.join(GENERATIONS)}; default TPUConfig.tpu_generation, else v4 and, unless tables "
        "are in the embedding hardware, v6e",
    )
    parser.add_argument(
        "--replicas",
        "--shards",
        type=argument_types.positive(int),
        help="number of cores; default TPUConfig.num_shards, or 8",
    )
    parser.add_argument(
        "--compile",
        choices=("auto", "yes", "no"),
        default="auto",
        help="ask the compiler: auto (default) if it is installed",
    )
    parser.add_argument(
        "--compiler_python",
        help="interpreter that has jax, jaxlib and libtpu, where this one has not",
    )
    parser.add_argument(
        "--timeout",
        type=argument_types.positive(float),
        default=600.0,
        help="seconds for the lowering and for each generation; default 600",
    )
    parser.add_argument(
        "--max_ids_per_partition",
        type=argument_types.positive(int),
        default=256,
        help="v5p, v6e: ids that one SparseCore's samples may have among the rows of another, in a "
        "minibatch; default 256",
    )
    parser.add_argument(
        "--max_unique_ids_per_partition",
        type=argument_types.positive(int),
        help="distinct ones among these; default 256, or all if they are fewer",
    )
    _add_program(parser)
    return parser


def compare() -> argparse.ArgumentParser:
    """Returns the parser of `estimator-emb compare`."""
    parser = argparse.ArgumentParser(
        prog="estimator-emb compare",
        usage="estimator-emb compare [options] --a SETTINGS --b SETTINGS SCRIPT.py [its flags]\n"
        "       estimator-emb compare [options] --a SETTINGS --b SETTINGS -m MODULE [its flags]\n"
        "       estimator-emb compare [options] --a-model-dir=FOLDER --b-model-dir=FOLDER",
        description="""Tells whether a program trains the same under two settings.

Side A and side B run the same steps of the program from the same variables and seeds, in temporary
model directories; nothing of yours is written. SETTINGS are options of `estimator-emb run` and
environment variables, such as "--shards=8" or "ESTIMATOR_EMB_NATIVE=0"; or the word "stock", for
tensorflow-estimator without this package. Losses, variables with their slots, metrics and
predictions are compared. The exit status is 0 if the sides are the same within the tolerance, 1 if
they differ, and 2 if they could not be compared.
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for side in ("a", "b"):
        one = f"side {side.upper()}"
        for name, metavar, text in (
            ("python", "PYTHON", f"interpreter of {one}, of an environment with its TensorFlow"),
            ("program", "FILE.py", f"program of {one}, in place of SCRIPT.py"),
            ("flags", "FLAGS", f"flags of the program on {one} alone, after the others"),
            ("model-dir", "FOLDER", f"what a finished run has left stands for {one}"),
        ):
            if name == "python":
                parser.add_argument(
                    f"--{side}",
                    dest=f"{side}_settings",
                    default="",
                    metavar="SETTINGS",
                    help=f"settings of {one}; none by default",
                )
            default = "" if name == "flags" else None
            parser.add_argument(f"--{side}-{name}", default=default, metavar=metavar, help=text)
    parser.add_argument(
        "--steps",
        type=argument_types.at_least_one,
        default=20,
        metavar="N",
        help="steps of each model directory, and of each evaluation; default 20",
    )
    parser.add_argument(
        "--start",
        metavar="CHECKPOINT",
        help="prefix of a checkpoint, or its folder, whose values both sides start from; by "
        "default those with which the program initializes on side A",
    )
    parser.add_argument(
        "--rtol",
        type=argument_types.tolerance,
        default=1e-4,
        help="relative tolerance; default 1e-4",
    )
    parser.add_argument(
        "--atol",
        type=argument_types.tolerance,
        default=1e-5,
        help="absolute tolerance; default 1e-5",
    )
    parser.add_argument(
        "--ignore",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leaves out variables, metrics and predictions of such names; * and ? stand for "
        "anything; may be given several times",
    )
    parser.add_argument(
        "--repeat",
        choices=("auto", "yes", "no"),
        default="auto",
        help="runs side A twice, to tell chance from a difference of the sides: if they differ "
        "(auto, the default), always, or never",
    )
    parser.add_argument(
        "--plot", metavar="FILE.png", help="draws losses and differences; needs matplotlib"
    )
    _add_program(parser)
    return parser


def migrate() -> argparse.ArgumentParser:
    """Returns the parser of `estimator-emb migrate`."""
    parser = argparse.ArgumentParser(
        prog="estimator-emb migrate",
        description="""Moves programs from the legacy imports to those of estimator_emb.

    estimator-emb migrate PROGRAM.py
    estimator-emb migrate --write PROGRAM.py FOLDER

It prints the changes as a diff, and on stderr what a person must decide, by file and line. The
exit status is 0 if something changes, 2 if nothing does or a file cannot be read; then no file is
written. It needs LibCST: pip install 'estimator-emb[migrate]'
""",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--write", action="store_true", help="change the files, in place of a diff")
    parser.add_argument(
        "paths",
        nargs="+",
        metavar="PROGRAM.py",
        help="a program; a folder stands for all files *.py in it",
    )
    return parser


PARSERS: dict[str, Callable[[], argparse.ArgumentParser]] = {
    "run": run,
    "cluster": cluster,
    "check": check,
    "compare": compare,
    "inspect": checkpoint_parsers.inspect,
    "convert": checkpoint_parsers.convert,
    "migrate": migrate,
    "export": checkpoint_parsers.export,
}


def _parse_with_program(parser: argparse.ArgumentParser, args: list[str]) -> argparse.Namespace:
    """Parses what argparse would read otherwise than Python: `-mMODULE`, and `--`."""
    for i, arg in enumerate(args):
        if arg == "--" or arg.startswith("-m"):
            options = parser.parse_args(args[:i])
            rest = args[i + 1 :]
            if options.script is not None:
                options.arguments += args[i:]
            elif arg == "--":
                options.script, options.arguments = next(iter(rest), None), rest[1:]
            else:
                options.module = [arg[2:], *rest] if arg[2:] else rest
            return options
    return parser.parse_args(args)


def _add_how_to_run(parser: argparse.ArgumentParser) -> None:
    """Adds the options with which `estimator-emb run` runs a program."""
    parser.add_argument(
        "--device",
        choices=DEVICES,
        help="where a program with use_tpu=True runs: 'host' emulates a TPU and looks up no TPU "
        "name, 'tpu' needs a TPU; by default what ESTIMATOR_EMB_DEVICE says, or 'host'",
    )
    parser.add_argument(
        "--shards",
        type=argument_types.cores,
        metavar="N",
        help="number of emulated TPU cores, in place of TPUConfig(num_shards=...): up to 8 on one "
        "host, or a multiple of 8 on hosts of 8 each",
    )
    parser.add_argument(
        "--topology",
        type=argument_types.topology,
        metavar="NAME",
        help="the emulated TPU by its name, such as v3-32, which has 4 hosts of 8 cores; of "
        f"{', '.join(slices.names())}",
    )
    parser.add_argument(
        "--steps-limit",
        type=argument_types.at_least_one,
        metavar="N",
        help="ends every train() after N steps more, and every evaluate() after N steps",
    )
    parser.add_argument(
        "--table-summaries",
        action=argparse.BooleanOptionalAction,
        help="whether TensorBoard shows how each embedding table trains, unless the program's "
        "TPUConfig says it; by default what ESTIMATOR_EMB_TABLE_SUMMARIES says, or else yes if "
        "save_summary_steps is 100 or more",
    )


def _add_program(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments that name a program; they come after all others."""
    parser.add_argument(
        "--tf-v1",
        action="store_true",
        help="for programs of TensorFlow 1: `import tensorflow` gives tensorflow.compat.v1 without "
        "TensorFlow 2's behaviour, and tf.contrib has what TPU programs use of it",
    )
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        type=programs.mapping,
        metavar="gs://BUCKET=DIR",
        help="TensorFlow finds in the folder DIR, which exists, what the program calls "
        "gs://BUCKET; may be given several times, also for longer paths",
    )
    parser.add_argument(
        "-m", dest="module", metavar="MODULE", nargs=argparse.REMAINDER, help="run a module"
    )
    parser.add_argument("script", metavar="SCRIPT.py", nargs="?", help="the program")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the program's own arguments")


def _compares_finished(options: argparse.Namespace) -> bool:
    """Returns whether `estimator-emb compare` is given what runs have left, and no program."""
    return any(getattr(options, f"{side}_model_dir", None) is not None for side in "ab")
