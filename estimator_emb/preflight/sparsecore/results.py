# SPDX-License-Identifier: Apache-2.0
"""The compiler's answers about tables on SparseCore, and their text."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Answer:
    """The compiler's answer about one program.

    Attributes:
      outcome: 'compiles', 'refused', or 'not compiled' where there is no program or no answer.
      words: why the program does not compile.
      argument_bytes: on one chip, ids, activations or their gradients, weights and slots; None, as
        the next, where the program does not compile.
      temporary_bytes: on one chip, what the program needs in addition.
    """

    outcome: str
    words: str = ""
    argument_bytes: int | None = None
    temporary_bytes: int | None = None

    def __str__(self) -> str:
        if self.outcome != "compiles":
            words = "\n    ".join(line.strip() for line in self.words.splitlines())
            return f"{self.outcome}: {words}"
        assert self.argument_bytes is not None and self.temporary_bytes is not None
        return (
            f"compiles; per chip: arguments {bytes_text(self.argument_bytes)}, temporaries "
            f"{bytes_text(self.temporary_bytes)}"
        )


@dataclasses.dataclass(frozen=True)
class StackResult:
    """The answers about the tables of one stack.

    Attributes:
      optimizer: its name in the report; '' if the tables have none.
      rows, dimension: the shape of the stack on one chip, with padding.
      table_bytes: bytes of its weights and slots on one chip, with padding.
      used_bytes: the same without padding, on average over the chips.
      update: None if the step does not train.
    """

    tables: tuple[str, ...]
    optimizer: str
    rows: int
    dimension: int
    table_bytes: int
    used_bytes: float
    lookup: Answer
    update: Answer | None

    def __str__(self) -> str:
        names = ", ".join(repr(name) for name in self.tables)
        kind = "table" if len(self.tables) == 1 else "tables stacked:"
        optimizer = f" ({self.optimizer})" if self.optimizer else ""
        size = bytes_text(self.table_bytes)
        padding = 100 * (1 - self.used_bytes / self.table_bytes)
        lines = [
            f"{kind} {names}{optimizer}: {self.rows:,} x {self.dimension} per chip, {size} with "
            f"slots, of which padding {padding:.2g} %",
            f"  lookup {self.lookup}",
        ]
        if self.update is not None:
            lines.append(f"  update {self.update}")
        return "\n".join(lines)


@dataclasses.dataclass(frozen=True)
class SparseCoreResult:
    """The answers about the tables of a spec for one generation.

    Attributes:
      generation: 'v5p' or 'v6e'.
      topology: libtpu's name of the TPU it compiled for; '' if nothing was compiled.
      chips: number of chips, each one core of the program.
      sparse_cores: number of SparseCores of each chip.
      limits: the sizes that were assumed, in words.
      stacks: the answers about each stack.
      libtpu: version of libtpu, or '' if nothing was compiled.
      memory_bytes: memory of one chip.
      words: why nothing was compiled, or ''.
    """

    generation: str
    topology: str
    chips: int
    sparse_cores: int
    limits: str
    stacks: tuple[StackResult, ...] = ()
    libtpu: str = ""
    memory_bytes: int = 0
    words: str = ""

    @property
    def outcome(self) -> str:
        """Returns 'refused' or 'not compiled' if that is so of one program, else 'compiles'."""
        if self.words:
            return "not compiled"
        if self.table_bytes > self.memory_bytes:
            return "refused"
        answers = [answer for stack in self.stacks for answer in (stack.lookup, stack.update)]
        outcomes = {answer.outcome for answer in answers if answer is not None}
        for outcome in ("refused", "not compiled"):
            if outcome in outcomes:
                return outcome
        return "compiles"

    @property
    def table_bytes(self) -> int:
        """Returns the bytes of the weights and slots of all stacks on one chip."""
        return sum(stack.table_bytes for stack in self.stacks)

    def __str__(self) -> str:
        chips = "1 chip" if self.chips == 1 else f"{self.chips} chips"
        topology = f" (topology {self.topology})" if self.topology else ""
        title = (
            f"{self.generation}, {chips} of {self.sparse_cores} SparseCores each{topology}: "
            f"{self.outcome}"
        )
        if self.words:
            return f"{title}: {self.words}"
        part = self.table_bytes / self.memory_bytes
        lines = [
            f"{title}; tables and slots per chip: {bytes_text(self.table_bytes)}, "
            f"{100 * part:.2g} % of {self.memory_bytes / 2**30:g} GiB",
            *(line for stack in self.stacks for line in str(stack).splitlines()),
        ]
        return "\n  ".join(lines)


def report(results: tuple[SparseCoreResult, ...]) -> list[str]:
    """Returns the lines of a report about SparseCore; none without results."""
    if not results:
        return []
    versions = sorted({result.libtpu for result in results if result.libtpu})
    asked = f", given to libtpu {' and '.join(versions)}" if versions else ""
    training = any(stack.update is not None for result in results for stack in result.stacks)
    update = " and their update by the rules of this package's optimizers" if training else ""
    lines = [
        f"SparseCore: the lookup of the tables{update}{asked}. TPUEstimator drives no SparseCore, "
        "so this is not how the program trains.",
        f"  Assumed: {results[0].limits}.",
    ]
    for result in results:
        lines += [f"  {line}" for line in str(result).splitlines()]
    return lines


def bytes_text(size: float) -> str:
    """Returns a number of bytes as a text, in MiB or GiB."""
    return f"{size / 2**20:,.3g} MiB" if size < 2**30 else f"{size / 2**30:,.3g} GiB"
