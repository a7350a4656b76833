"""The results of a check, and their text."""

import dataclasses

from estimator_emb.reporting.text_columns import counted, escaped

ACCEPTED, FINDINGS, UNCHECKED = 0, 1, 2
"""Exit statuses of `estimator-emb check`."""


class CannotCheck(Exception):
    """Raised if a step cannot be built or compiled. This is not a finding."""


@dataclasses.dataclass(frozen=True)
class Finding:
    """A part of the step that a TPU will not accept.

    Attributes:
      problem: the problem, as a sentence without its full stop.
      instead: what to use instead, without a full stop. '' if nothing is known.
      op_type: type of the op, such as 'AsString', if the finding is about an op.
      op_name: name of the op in the graph, if the finding is about an op.
      dtype: the type that the op's kernel does not take, or the type of the tensor. None if the
        type is not the problem.
      where: 'file:line' of the program that created the op, if a line of the program did.
      more: number of other ops of this type, from the same line, with the same problem.
    """

    problem: str
    instead: str = ""
    op_type: str | None = None
    op_name: str | None = None
    dtype: str | None = None
    where: str | None = None
    more: int = 0

    def __str__(self) -> str:
        text = f"{escaped(self.where)}: " if self.where else ""
        if self.op_type:
            text += self.op_type
            named = [f"op '{self.op_name}'"]
            if self.more:
                named[0] += f" and {self.more} more"
            if self.dtype:
                named.append(f"dtype {self.dtype}")
            text += f" ({', '.join(named)}): "
        text += f"{self.problem}."
        return f"{text} Instead: {self.instead}." if self.instead else text


@dataclasses.dataclass(frozen=True)
class Compilation:
    """The compiler's answer about the step for a generation.

    Attributes:
      generation: a name such as 'v4', or 'v4, v6e' if the step did not get as far as the compiler.
      topology: libtpu's name of the TPU it compiled for, such as 'v4:2x2x1'. '' if lowering failed.
      replicas: number of cores that train together, each with its own part of the batch.
      outcome: 'accepted', 'compiles' for a generation that cannot run a TPUEstimator, 'refused', or
        'not compiled' if the compiler could not be asked.
      words: the compiler's own message, if the step was not compiled.
      flops: floating-point operations per step and core. This and the following are None if the
        step was not compiled.
      argument_bytes: bytes of features, labels, activations and dense variables per core.
      temporary_bytes: further bytes that the step needs per core.
      memory_bytes: memory of a core of this generation.
      all_reduces: number of sums over the cores in the compiled program.
    """

    generation: str
    topology: str
    replicas: int
    outcome: str
    words: str = ""
    flops: float | None = None
    argument_bytes: int | None = None
    temporary_bytes: int | None = None
    memory_bytes: int | None = None
    all_reduces: int | None = None

    def __str__(self) -> str:
        count = counted(self.replicas, "replica")
        topology = f" (topology {self.topology})" if self.topology else ""
        text = f"{self.generation}, dense step, {count}{topology}: {self.outcome}"
        if self.words:
            words = "\n".join("      " + line for line in self.words.strip().splitlines())
            return f"{text}\n{words}"
        assert self.argument_bytes is not None and self.temporary_bytes is not None
        assert self.memory_bytes
        part = (self.argument_bytes + self.temporary_bytes) / self.memory_bytes
        flops = "unknown" if self.flops is None else _count(self.flops)
        sums = "" if self.replicas == 1 else f" all-reduces {self.all_reduces},"
        return (
            f"{text}; per core:{sums} floating-point operations {flops}, "
            f"arguments {_bytes_text(self.argument_bytes)}, "
            f"temporaries {_bytes_text(self.temporary_bytes)}, "
            f"together {100 * part:.2g} % of {self.memory_bytes / 2**30:g} GiB"
        )


@dataclasses.dataclass(frozen=True)
class Tables:
    """The result for the tables of the EmbeddingConfigSpec on a generation.

    Attributes:
      generation: a name such as 'v4'.
      outcome: 'accepted' or 'refused'.
      words: why the tables were refused, or where they are if not in the cores' memory, or ''.
      cores: number of cores that share the tables.
      table_bytes: bytes of tables and slots on the fullest core, if they are in its memory.
      step_bytes: bytes of the dense step on a core, if it was compiled.
      memory_bytes: memory of a core.
    """

    generation: str
    outcome: str
    words: str = ""
    cores: int = 0
    table_bytes: int | None = None
    step_bytes: int | None = None
    memory_bytes: int = 0

    def __str__(self) -> str:
        text = f"{self.generation}, tables: {self.outcome}"
        if self.outcome != "accepted":
            return f"{text}\n      {self.words}"
        if self.table_bytes is None:
            return f"{text}; {self.words}"
        used = self.table_bytes + (self.step_bytes or 0)
        part = 100 * used / self.memory_bytes
        of = f"{part:.2g} % of {self.memory_bytes / 2**30:g} GiB"
        text += f"; per core of {self.cores}: tables and slots {_bytes_text(self.table_bytes)}, "
        if self.step_bytes is None:
            return f"{text}{of}; the dense step, which was not compiled, comes on top"
        return f"{text}the dense step {_bytes_text(self.step_bytes)}, together {of}"


@dataclasses.dataclass(frozen=True)
class Report:
    """The report of a check, with its scope and its findings.

    Attributes:
      mode: 'train', 'eval' or 'infer'.
      replicas: number of cores that the step was built for.
      batch_per_core: number of samples per core. None if the step could not be built.
      op_count: number of ops that the TPU would run. 0 if the step could not be built.
      findings: the findings about the program, its input, ops, types and shapes.
      compilations: the answers of the compiler.
      skipped: why the compiler was not asked. '' if it was asked.
      versions: (TensorFlow version, libtpu version) that compiled, if anything was compiled.
      tables: the results for the tables, by generation. If there are findings, it has only the
        refused tables.
      notes: parts that were left out, and other remarks.
    """

    mode: str
    replicas: int
    batch_per_core: int | None
    op_count: int
    findings: tuple[Finding, ...] = ()
    compilations: tuple[Compilation, ...] = ()
    skipped: str = ""
    versions: tuple[str, str] | None = None
    notes: tuple[str, ...] = ()
    tables: tuple[Tables, ...] = ()

    @property
    def status(self) -> int:
        """Returns the exit status: ACCEPTED, FINDINGS or UNCHECKED."""
        outcomes = {compilation.outcome for compilation in self.compilations}
        outcomes |= {tables.outcome for tables in self.tables}
        if self.findings or "refused" in outcomes:
            return FINDINGS
        return UNCHECKED if "not compiled" in outcomes else ACCEPTED

    def __str__(self) -> str:
        built = (
            "was not built"
            if self.batch_per_core is None
            else f"{self.op_count} ops, {self.batch_per_core} samples per core"
        )
        lines = [f"The {self.mode} step of one core, one of {self.replicas}: {built}."]
        lines += [f"  {note}" for note in self.notes]
        if self.findings:
            lines.append(f"Program, ops and shapes: {counted(len(self.findings), 'finding')}.")
            lines += [f"  {finding}" for finding in self.findings]
        elif self.batch_per_core is not None:
            lines.append(
                "Program, ops and shapes: use_tpu=True raises no error before a session opens, "
                "every op has a TPU kernel for its types, and every input a static shape."
            )
        if self.skipped:
            lines.append(f"Compiler: skipped. {self.skipped}")
        if self.versions:
            tensorflow, libtpu = self.versions
            lines.append(
                f"Compiler: the dense step, lowered by TensorFlow {tensorflow} (CPU kernels, "
                f"copies rewritten, all-reduce substituted), given to libtpu {libtpu}:"
            )
        elif self.compilations:
            lines.append("Compiler: the step did not get that far.")
        lines += [f"  {compilation}" for compilation in self.compilations]
        if self.tables:
            lines.append("Tables of the EmbeddingConfigSpec:")
            lines += [f"  {tables}" for tables in self.tables]
        lines.append(NOT_SHOWN)
        return "\n".join(lines)


NOT_SHOWN = (
    "Nothing ran on a TPU. This says nothing about step time or throughput, the numbers that the "
    "step computes, or what the host does: the records that input_fn reads, host_call, the "
    "functions of eval_metrics."
)


def _count(number: float) -> str:
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if number >= size:
            return f"{number / size:,.3g} {unit}"
    return f"{number:,.0f}"


def _bytes_text(size: int) -> str:
    return f"{size / 2**20:,.3g} MiB" if size < 2**30 else f"{size / 2**30:,.3g} GiB"
