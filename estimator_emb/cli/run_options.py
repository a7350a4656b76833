"""Defines the options of `estimator-emb run`.

`cluster` passes them to its processes, and `compare` to its sides. `check` and `compare` also take
the options OF_ANY_PROGRAM. An option sets an environment variable or an argument of `launch`.
"""

import argparse
import os
from collections.abc import Callable, Mapping
from typing import Any

from estimator_emb.catalog import environment, slices, wheel
from estimator_emb.catalog.environment import EnvironmentVariable
from estimator_emb.cli import parsing
from estimator_emb.cli.parsing import WrongArguments


class RunOption:
    """An option of `run` that sets an environment variable or an argument of `launch`.

    `check` also accepts it if `of_any_program`. `add_argument` gets `parsing`.
    """

    def __init__(
        self,
        flag: str,
        help: str,
        variable: EnvironmentVariable | None = None,
        launch: str | None = None,
        of_any_program: bool = False,
        **parsing: Any,
    ):
        self.flag = flag
        self.variable = variable
        self.launch = launch
        self.of_any_program = of_any_program
        self.parsing = {"help": help, **parsing}

    @property
    def name(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")

    def words(self, options: argparse.Namespace) -> list[str]:
        """Returns the command-line words that set this option to its value in `options`."""
        value = getattr(options, self.name)
        if self.parsing.get("action") is argparse.BooleanOptionalAction and value is False:
            return [f"--no-{self.flag.removeprefix('--')}"]
        if isinstance(value, bool):
            return [self.flag] if value else []
        return [] if value is None else [f"{self.flag}={value}"]


def _checked(kind: Callable[[str], Any], look_up: Callable[[Any], Any]) -> Callable[[str], Any]:
    def parsed(text: str) -> Any:
        value = kind(text)
        try:
            look_up(value)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None
        return value

    return parsed


_seed = parsing.number(
    int, f"an integer from 0 to {(1 << 32) - 1}", lambda value: 0 <= value < 1 << 32
)
"""Parses a seed that Python, NumPy and TensorFlow all accept."""

RUN_OPTIONS = (
    RunOption(
        "--device",
        "where a program with use_tpu=True runs: 'emulate' emulates a TPU, 'pjrt' runs its model "
        "on the PJRT devices of this machine (neither looks up a TPU name), 'tpu' needs a TPU. "
        f"Default: {environment.DEVICE}, or 'emulate'",
        variable=environment.DEVICE,
        choices=environment.DEVICE.choices,
        type=environment.DEVICE.today,
    ),
    RunOption(
        "--tables",
        "where --device=pjrt trains the tables: on the host, or in the memory of the devices. "
        f"Default: {environment.TABLES}, or 'host'",
        variable=environment.TABLES,
        choices=environment.TABLES.choices,
    ),
    RunOption(
        "--shards",
        "number of emulated TPU cores, instead of TPUConfig(num_shards=...): up to 8 on a single "
        "host, or a multiple of 8 on hosts with 8 cores each",
        variable=environment.SHARDS,
        type=_checked(parsing.at_least_one, slices.slice_of),
        metavar="N",
    ),
    RunOption(
        "--topology",
        "name of the TPU to emulate, such as v3-32 with 4 hosts of 8 cores. One of "
        f"{', '.join(slices.names())}",
        variable=environment.TOPOLOGY,
        type=_checked(str, slices.named),
        metavar="NAME",
    ),
    RunOption(
        "--steps-limit",
        "end every train() after N more steps, and every evaluate() after N steps",
        launch="steps_limit",
        type=parsing.at_least_one,
        metavar="N",
    ),
    RunOption(
        "--seed",
        "seed Python's random, NumPy, TensorFlow and each RunConfig without a tf_random_seed, so "
        "that a second run repeats the first",
        launch="seed",
        type=_seed,
        metavar="N",
    ),
    RunOption(
        "--table-summaries",
        "whether TensorBoard shows how each embedding table trains. The program's TPUConfig takes "
        f"precedence. Default: {environment.TABLE_SUMMARIES}, or yes if save_summary_steps is 100 "
        "or more",
        variable=environment.TABLE_SUMMARIES,
        action=argparse.BooleanOptionalAction,
    ),
    RunOption(
        "--tf-v1",
        "for TensorFlow 1 programs: `import tensorflow` gives tensorflow.compat.v1 without "
        "TensorFlow 2's behaviour, and the parts of tf.contrib that TPU programs use",
        launch="binds_tf_v1",
        of_any_program=True,
        action="store_true",
    ),
    RunOption(
        "--contrib",
        "wheel of TensorFlow 1.15, or a folder with its files, from which --tf-v1 takes the rest "
        f"of tf.contrib. Download it by: {wheel.DOWNLOAD}. Default: {environment.CONTRIB}",
        variable=environment.CONTRIB,
        of_any_program=True,
        type=_checked(os.path.abspath, wheel.opened),
        metavar="WHEEL",
    ),
)
OF_ANY_PROGRAM = tuple(option for option in RUN_OPTIONS if option.of_any_program)


def check_program(options: argparse.Namespace) -> None:
    """Raises WrongArguments for a missing program, and for --contrib without --tf-v1."""
    if not options.program or options.program == ["-m"]:
        raise WrongArguments("name one program: SCRIPT.py or -m MODULE")
    script = options.program[0]
    if script != "-m" and not os.path.isfile(script):
        raise WrongArguments(f"there is no file {script!r}")
    if options.contrib is not None and not options.tf_v1:
        raise WrongArguments("--contrib needs --tf-v1")


def add_to(parser: parsing.Parser, options: tuple[RunOption, ...] = RUN_OPTIONS) -> None:
    """Adds options of `run` to a parser, by default all."""
    for option in options:
        parser.add_argument(option.flag, **option.parsing)


def words(options: argparse.Namespace, of: tuple[RunOption, ...] = RUN_OPTIONS) -> list[str]:
    """Returns the command-line words that give `run` the same options."""
    return [word for option in of for word in option.words(options)]


def launch_arguments(options: argparse.Namespace) -> dict[str, Any]:
    """Returns the keyword arguments of `launch` that the options set."""
    return {one.launch: getattr(options, one.name) for one in RUN_OPTIONS if one.launch is not None}


def variables(options: argparse.Namespace, given: Mapping[str, str]) -> dict[str, str]:
    """Returns the environment variables to set. Without --device, `given` names the device."""
    device = options.device or environment.DEVICE.today(given.get(environment.DEVICE.name, ""))
    device = device or environment.DEVICE.choices[0]
    if device not in environment.DEVICE.choices:
        raise WrongArguments(
            f"the environment variable {environment.DEVICE} must be one of "
            f"{', '.join(environment.DEVICE.choices)}; it is {device!r}"
        )
    if options.shards is not None and options.topology is not None:
        raise WrongArguments("--shards and --topology both say how many cores there are")
    for flag, value, devices in (
        ("--shards", options.shards, ("emulate", "pjrt")),
        ("--topology, of an emulated TPU,", options.topology, ("emulate",)),
        ("--tables=device", options.tables == "device" or None, ("pjrt",)),
    ):
        if value is not None and device not in devices:
            needed = " or ".join(f"--device={one}" for one in devices)
            raise WrongArguments(f"{flag} needs {needed}; the device is {device!r}")
    found = {}
    if options.shards is not None or options.topology is not None:
        # Each of the two options also overrides the other's variable.
        found = {str(environment.SHARDS): "", str(environment.TOPOLOGY): ""}
    for option in RUN_OPTIONS:
        value = getattr(options, option.name)
        if option.variable is not None and value is not None:
            found[str(option.variable)] = str(int(value) if isinstance(value, bool) else value)
    return {**found, str(environment.DEVICE): device}
