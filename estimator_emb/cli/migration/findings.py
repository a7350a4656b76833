"""Finds what the author of a rewritten program still has to decide."""

import ast
import re
from dataclasses import dataclass

import libcst as cst

from estimator_emb.catalog import tf1 as tf1_names
from estimator_emb.cli.migration import renames
from estimator_emb.cli.migration.dotted_names import Program

LEFT = "Legacy names that stay as they are"
RUNS = "Where the program runs"
CHECKPOINTS = "Checkpoints"
BEHAVIOUR = "What differs from the legacy behaviour (docs/differences.md)"
TF1 = "TensorFlow 1"
GROUPS = (LEFT, RUNS, CHECKPOINTS, BEHAVIOUR, TF1)

_LOOK_TPUS_UP = (
    "distribute.cluster_resolver.TPUClusterResolver",
    "tpu.experimental.initialize_tpu_system",
    "tpu.experimental.shutdown_tpu_system",
)
_OTHER_SLOTS = frozenset(renames.PARAMETERS.split()) - {
    "AdagradParameters",
    "StochasticGradientDescentParameters",
}
_STRING_COLUMNS = re.compile(
    r"\.(sequence_)?categorical_column_with_(vocabulary_(list|file)|hash_bucket)$"
)
_SPEC = "EmbeddingConfigSpec"
_ARGUMENTS: dict[tuple[str, str], tuple[str, str, str]] = {
    (_SPEC, "partition_strategy"): (
        r"['\"]div['\"]",
        CHECKPOINTS,
        "EmbeddingConfigSpec(partition_strategy={value}): a checkpoint that a TPU wrote under "
        "'mod' has its rows in the order of the hosts. Convert it once: estimator-emb convert.",
    ),
    (_SPEC, "clipping_limit"): (
        "None",
        BEHAVIOUR,
        "EmbeddingConfigSpec(clipping_limit=...) clips the gradient of each row; it used to be "
        "ignored.",
    ),
    (_SPEC, "pipeline_execution_with_tensor_core"): (
        "False",
        BEHAVIOUR,
        "EmbeddingConfigSpec(pipeline_execution_with_tensor_core=True) delays each update by one "
        "lookup off a TPU too.",
    ),
    ("RunConfig", "train_distribute"): (
        "",
        BEHAVIOUR,
        "RunConfig(train_distribute=...) is refused with an EmbeddingConfigSpec or an emulated "
        "TPU.",
    ),
    ("TableConfig", "learning_rate"): (
        r"(?!0(\.0)?$).*",
        BEHAVIOUR,
        "TableConfig(learning_rate=0.0) is a rate; it used to mean that none is given.",
    ),
}
"""Class and argument -> pattern of values without a finding, and the finding's group and text."""

_DOTTED = re.compile(r"(tensorflow|tensorflow_estimator)(\.[A-Za-z_]\w*)+")


@dataclass(frozen=True, order=True)
class LeftToDo:
    """A decision for the author, in whole sentences. `line` is a line of the old source."""

    line: int
    group: str
    text: str


class Findings:
    """Collects the findings about a program, without repeats on a line."""

    def __init__(self, program: Program):
        self._program = program
        self._code = program.code
        self._found: dict[LeftToDo, None] = {}
        self._names = {use.whole: self._new_name(next(iter(use.paths))) for use in program.uses}

    def found(self) -> list[LeftToDo]:
        return sorted(self._found)

    def left(self, node: cst.CSTNode, text: str) -> None:
        self._add(node, LEFT, text)

    def about_star(self, star: cst.ImportFrom, module: str) -> None:
        """Adds a finding if a `from module import *` hides legacy names."""
        used = []
        for name in sorted({name.value for name in self._program.identifiers}):
            found = self._program.look_up(f"{module}.{name}")
            if found is not None and isinstance(found[0], renames.Target):
                used.append(f"{name} ({found[0].module})")
        found = self._program.look_up(module)
        if used or found is not None:
            which = f": {', '.join(used)}" if used else ""
            self.left(
                star,
                f"from {module} import * hides which names the program uses. Import them by name"
                f"{which}.",
            )

    def looks_tpus_up(self) -> bool:
        return any(_below_tf(name).endswith(_LOOK_TPUS_UP) for name in self._all_names()) or any(
            argument for _, argument in self._addresses()
        )

    def is_installed(self) -> bool:
        return f"{renames.OURS}.install" in self._all_names()

    def about_behaviour(self, changed: bool) -> None:
        """Adds the places where a program behaves differently under estimator_emb."""
        self._about_tf1()
        self._about_strings()
        own = [name for name in self._all_names() if name.startswith(renames.OURS)]
        if not (changed or own):
            return
        for use in self._program.uses:
            name = self._names[use.whole]
            if _below_tf(name).endswith(_LOOK_TPUS_UP[:1]) and name.startswith("tensorflow"):
                self._add(
                    use.whole,
                    RUNS,
                    "TPUClusterResolver looks up a TPU. After estimator_emb.install(), with "
                    "ESTIMATOR_EMB_DEVICE=emulate, every TPU name means the emulated TPU. A "
                    "program that makes the resolver only on a TPU needs neither.",
                )
        for call, argument in self._addresses():
            self._add(
                call,
                RUNS,
                f"RunConfig({argument}=...) is an address of a TPU. With estimator_emb.install() "
                "and ESTIMATOR_EMB_DEVICE=emulate it means an emulated TPU.",
            )
        for call in self._program.calls:
            self._about_call(call)
        self._about_names()

    def _about_call(self, call: cst.Call) -> None:
        name = self._names.get(call.func, "").removeprefix("estimator_emb.")
        arguments = {arg.keyword.value: self._code(arg.value) for arg in call.args if arg.keyword}
        if name == "TPUEstimator" and arguments.get("use_tpu") != "False":
            said = f"use_tpu={arguments['use_tpu']}" if "use_tpu" in arguments else "use_tpu=True"
            self._add(
                call,
                RUNS,
                f"TPUEstimator({said}) needs a TPU wherever use_tpu is True, unless the "
                'environment has ESTIMATOR_EMB_DEVICE=emulate or its TPUConfig says device="emulate'
                '".',
            )
        if name in _OTHER_SLOTS:
            self._add(
                call,
                CHECKPOINTS,
                f"{name}: slots are named as on a TPU. A checkpoint that a CPU wrote "
                "(use_tpu=False) has other names: give it as warm_start_from.",
            )
        for (owner, argument), (harmless, group, text) in _ARGUMENTS.items():
            value = arguments.get(argument)
            if owner == name and value and not re.fullmatch(harmless, value, re.DOTALL):
                self._add(call, group, text.format(value=value))

    def _about_names(self) -> None:
        columns = ("embedding_column", "shared_embedding_columns")
        makes_tables = any(f"{renames.COLUMNS}.{one}" in self._all_names() for one in columns)
        makes_estimator = f"{renames.OURS}.TPUEstimator" in self._all_names()
        told = False
        for use in self._program.uses:
            name = self._names[use.whole]
            if makes_tables and not told and _STRING_COLUMNS.search(name):
                told = True
                self._add(
                    use.whole,
                    BEHAVIOUR,
                    "Strings need no lookup in input_fn: the column's vocabulary or hash looks "
                    "them up. On an emulated TPU integers are ids, and are not looked up.",
                )
            if makes_estimator and re.match(r"(\w+\.)*keras\.optimizers\.\w", _below_tf(name)):
                self._add(
                    use.whole,
                    BEHAVIOUR,
                    "minimize() of a Keras optimizer in a model_fn is an error off a TPU, because "
                    "it would train nothing. Use get_updates(), or an optimizer of "
                    "tf.compat.v1.train.",
                )

    def _about_strings(self) -> None:
        for string in self._program.strings:
            text = _value(string)
            if _DOTTED.fullmatch(text) and self._program.look_up(text) is not None:
                self.left(string, f"The text {text!r} names a legacy module or class.")
        bound = {binding.local: binding.path for binding in self._program.bindings}
        for node, text in self._program.types():
            for name in re.findall(r"(?<![\w.])[A-Za-z_]\w*(?:\.\w+)*", text):
                root, dot, rest = name.partition(".")
                path = bound.get(root, "") + dot + rest
                found = self._program.look_up(path)
                if found is not None and found[1] > bound.get(root, "").count(".") + 1:
                    self.left(node, f"The type {name} is a text or a comment, which stays.")
        for call in self._program.calls:
            if self._code(call.func) in ("getattr", "hasattr", "setattr") and len(call.args) > 1:
                owner = self._names.get(call.args[0].value)
                attribute = call.args[1].value
                if (
                    owner
                    and isinstance(attribute, cst.SimpleString)
                    and self._program.look_up(f"{owner}.{_value(attribute)}") is not None
                ):
                    self.left(call, f"{self._code(call)} asks for a legacy name.")

    def tf1_names(self) -> dict[str, cst.CSTNode]:
        """Returns {name: its first place} for names that show the program means TensorFlow 1."""
        seen: dict[str, cst.CSTNode] = {}
        for use in self._program.uses:
            for path in use.paths:
                spelled = renames.canonical(path)
                if spelled.startswith("tf.compat.") or not path.startswith("tensorflow"):
                    continue
                part = tf1_names.part_of(spelled.removeprefix("tf."))
                if part not in (None, "contrib"):
                    seen.setdefault(f"tf.{part}", use.chain[0])
        return seen

    def _about_tf1(self) -> None:
        seen = self.tf1_names()
        for call in self._program.calls:
            if self._names.get(call.func) == "tensorflow.nn.dropout" and len(call.args) > 1:
                second = call.args[1]
                keeps = re.fullmatch(r"(0?\.[5-9]\d*|1\.0*)", self._code(second.value))
                if second.keyword is None and (seen or keeps):
                    self._add(
                        call,
                        BEHAVIOUR,
                        f"{self._code(call)}: the second argument is the share that TensorFlow 1 "
                        "keeps, and that TensorFlow 2 drops. Write rate=1 - keep_prob.",
                    )
        if not seen:
            return
        listed = ", ".join(list(seen)[:3]) + (f" and {len(seen) - 3} more" if len(seen) > 3 else "")
        self._add(
            next(iter(seen.values())),
            TF1,
            f"The program uses names of TensorFlow 1: {listed}. "
            "estimator_emb.install(tf_v1=True), before the import of TensorFlow, provides them. To "
            "do without that line, convert the program with tf_upgrade_v2.",
        )

    def _addresses(self) -> list[tuple[cst.Call, str]]:
        found = []
        for call in self._program.calls:
            if self._names.get(call.func) == f"{renames.OURS}.RunConfig":
                given = [arg.keyword.value for arg in call.args if arg.keyword is not None]
                found += [(call, one) for one in given if one.endswith("master")][:1]
        return found

    def _all_names(self) -> set[str]:
        imported = {self._new_name(binding.imported) for binding in self._program.bindings}
        return {*self._names.values(), *imported}

    def _new_name(self, path: str) -> str:
        found = self._program.look_up(path)
        if found is not None and isinstance(found[0], renames.Target):
            rest = path.split(".")[found[1] :]
            return ".".join([found[0].path, *rest])
        return path

    def _add(self, node: cst.CSTNode, group: str, text: str) -> None:
        self._found[LeftToDo(self._program.line(node), group, text)] = None


def _below_tf(name: str) -> str:
    spelled = renames.canonical(name)
    return spelled.removeprefix("tf.compat.v1.").removeprefix("tf.")


def _value(node: cst.SimpleString) -> str:
    value = ast.literal_eval(node.value)
    return value if isinstance(value, str) else ""
