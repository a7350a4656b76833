"""Maps each legacy name to its replacement, for `estimator-emb migrate`.

TABLE spells names as in TensorFlow 2: `tf.estimator...`, `tf.compat.v1.estimator...`,
`tf.contrib...`, or by their modules. `look_up` converts every other spelling.
"""

import functools
import pathlib
import re
from dataclasses import dataclass
from typing import Any

from estimator_emb.catalog import contrib as contrib_names
from estimator_emb.catalog.legacy import (
    API_V1,
    API_V2,
    ESTIMATOR,
    FROM_TENSORFLOW,
    LACKING,
    REPLACED,
    TREES,
)

TF1 = "tensorflow.compat.v1"
OURS = "estimator_emb"
COLUMNS = "feature_columns"
ROOTS = ("tensorflow", "tensorflow_estimator", OURS, COLUMNS)


@dataclass(frozen=True)
class Target:
    """The new place of a name: the module to import, and the dotted name in it."""

    module: str
    name: str

    @property
    def path(self) -> str:
        return f"{self.module}.{self.name}"


@dataclass(frozen=True)
class Advice:
    """Advice to the author about a legacy name that has no equivalent replacement."""

    text: str


@dataclass(frozen=True)
class Namespace:
    """A module of legacy names.

    `moved` is the module that now has the names missing from TABLE, or ''. `is_whole` is True if
    estimator_emb replaces no name of the module. Then `moved` can replace the whole module.
    """

    path: str
    moved: str = ""
    is_whole: bool = False


Meaning = Target | Advice | Namespace


def _same(owner: str, module: str, names: str, prefix: str = "") -> dict[str, Target | Advice]:
    return {f"{owner}.{name}": Target(module, prefix + name) for name in names.split()}


_CLASSES = pathlib.Path(__file__).parents[2] / "optimizers" / "_classes.py"
PARAMETERS = " ".join(re.findall(r"(\w+) as ", _CLASSES.read_text(encoding="utf-8")))
"""The optimizers of this package. Importing their module needs TensorFlow, so its text is read."""

_OF_TPU_EMBEDDING = re.sub(r"\b(Adadelta|CenteredRMSProp)\w+ ?", "", PARAMETERS)
"""The optimizers that TensorFlow's own `tpu_embedding` has."""

_PUBLIC = (
    "BestExporter EstimatorSpec EvalSpec Exporter FinalExporter LatestExporter ModeKeys TrainSpec "
    "VocabInfo WarmStartSettings train_and_evaluate"
)
_EXPORT = (
    "ClassificationOutput EvalOutput ExportOutput PredictOutput RegressionOutput "
    "ServingInputReceiver TensorServingInputReceiver build_parsing_serving_input_receiver_fn "
    "build_raw_serving_input_receiver_fn"
)
_INPUT = f"{OURS}.legacy.input_checkpoint"
_TPU = "InputPipelineConfig RunConfig TPUConfig TPUEstimator TPUEstimatorSpec"

# This `RunConfig` is for Estimators without a TPU. estimator_emb's `RunConfig` is for TPUs.
_STOCK = (
    "BaselineClassifier BaselineEstimator BaselineRegressor BinaryClassHead CheckpointSaverHook "
    "CheckpointSaverListener DNNClassifier DNNEstimator DNNLinearCombinedClassifier "
    "DNNLinearCombinedEstimator DNNLinearCombinedRegressor DNNRegressor FeedFnHook FinalOpsHook "
    "GlobalStepWaiterHook Head LinearClassifier LinearEstimator LinearRegressor LoggingTensorHook "
    "LogisticRegressionHead MultiClassHead MultiHead MultiLabelHead NanLossDuringTrainingError "
    "NanTensorHook PoissonRegressionHead ProfilerHook RegressionHead RunConfig SecondOrStepTimer "
    "SessionRunArgs SessionRunContext SessionRunHook SessionRunValues StepCounterHook "
    "StopAtStepHook SummarySaverHook add_metrics classifier_parse_example_spec "
    "regressor_parse_example_spec"
)
_EXPERIMENTAL = (
    "InMemoryEvaluatorHook LinearSDCA build_raw_supervised_input_receiver_fn call_logit_fn "
    "make_early_stopping_hook make_stop_at_checkpoint_step_hook stop_if_higher_hook "
    "stop_if_lower_hook stop_if_no_decrease_hook stop_if_no_increase_hook"
)

_TREES = Advice(TREES)


def _api(owner: str, api: str, ours: str, stock: str, experimental: str) -> dict[str, Any]:
    """Returns the entries of a `tf.estimator`, the `owner`. Module `api` has its `stock` names."""
    return {
        **_same(owner, OURS, f"{ours} {_PUBLIC}"),
        **_same(owner, api, f"{stock} {_STOCK}"),
        **_same(f"{owner}.export", f"{OURS}.export", _EXPORT),
        **_same(f"{owner}.experimental", f"{OURS}.experimental", f"{_EXPERIMENTAL} {experimental}"),
        **{f"{owner}.BoostedTrees{k}": _TREES for k in ("Classifier", "Estimator", "Regressor")},
    }


TABLE: dict[str, Target | Advice] = {
    **_api("tf.estimator", API_V2, "", "Estimator", "RNNClassifier RNNEstimator"),
    **_api(
        "tf.compat.v1.estimator",
        API_V1,
        "Estimator",
        "",
        "KMeans dnn_logit_fn_builder linear_logit_fn_builder",
    ),
    **_same("tf.compat.v1.estimator.inputs", API_V1, "numpy_input_fn pandas_input_fn", "inputs."),
    **_same("tf.compat.v1.estimator.tpu", OURS, _TPU),
    **_same("tf.compat.v1.estimator.tpu.experimental", OURS, "EmbeddingConfigSpec"),
    # TPU embeddings.
    **_same("tf.compat.v1.tpu.experimental", OURS, PARAMETERS),
    **_same("tf.compat.v1.tpu.experimental", COLUMNS, "embedding_column shared_embedding_columns"),
    **_same(
        "tensorflow.python.tpu.tpu_embedding",
        OURS,
        f"FeatureConfig TableConfig {_OF_TPU_EMBEDDING}",
    ),
    **{
        f"tensorflow.python.tpu.feature_column_v2.{name}_v2": Target(COLUMNS, name)
        for name in ("embedding_column", "shared_embedding_columns")
    },
    # Hooks that estimator_emb reimplements.
    **_same("tf.compat.v1.data.experimental", _INPUT, "CheckpointInputPipelineHook"),
    **_same("tf.data.experimental", _INPUT, "CheckpointInputPipelineHook"),
    **_same(
        "tensorflow.python.tpu.async_checkpoint",
        f"{OURS}.compat.async_checkpoint",
        "AsyncCheckpointSaverHook",
    ),
    # The modules of tensorflow-estimator.
    **{
        f"{ESTIMATOR}.{module}.{name}": Target(OURS, name)
        for module, replaced in REPLACED.items()
        for name in replaced.split()
    },
    **_same(f"{ESTIMATOR}.tpu.tpu_estimator", OURS, "ExportSavedModelApiVersion TPUEstimatorSpec"),
    **_same(f"{ESTIMATOR}.tpu.tpu_config", OURS, "InputPipelineConfig"),
    **_same(f"{ESTIMATOR}.tpu.tpu_context", OURS, "TPUContext"),
    **_same(f"{ESTIMATOR}.tpu._tpu_estimator_embedding", OURS, PARAMETERS),
    **_same(f"{ESTIMATOR}.training", OURS, "EvalSpec TrainSpec"),
    **_same(f"{ESTIMATOR}.estimator", OURS, "Estimator VocabInfo WarmStartSettings"),
    **_same(f"{ESTIMATOR}.model_fn", OURS, "EstimatorSpec"),
    **_same(f"{ESTIMATOR}.mode_keys", OURS, "ModeKeys"),
    **_same(f"{ESTIMATOR}.exporter", OURS, "BestExporter Exporter FinalExporter LatestExporter"),
}
"""Legacy name outside tf.contrib -> its new place, or what a person must decide."""

NEED_OURS = ("tensorflow_estimator", *LACKING)
"""Modules that TensorFlow >= 2.16 can import only after estimator_emb."""

_LEGACY_MODULES = frozenset(
    (
        "tf.contrib tf.estimator tf.estimator.experimental tf.estimator.export tf.estimator.inputs "
        "tf.compat.v1.estimator tf.compat.v1.estimator.experimental tf.compat.v1.estimator.export "
        "tf.compat.v1.estimator.inputs tf.compat.v1.estimator.tpu "
        "tf.compat.v1.estimator.tpu.experimental tensorflow.python.tpu.async_checkpoint"
    ).split()
)
"""Modules that the newest TensorFlow no longer has. Every name in them is legacy."""

_CONTRIB_MODULES = [
    *contrib_names.MOVED,
    *(
        path
        for path, owner in contrib_names.NAMESPACES.items()
        if contrib_names.MODULES[owner].members or contrib_names.MODULES[owner].elsewhere
    ),
]
"""Modules below tf.contrib for whose names there are separate entries."""

_SPELLINGS = [
    (re.compile(pattern + r"(?=\.|$)"), canonical)
    for pattern, canonical in (
        (r"tensorflow\._api(\.v2)+", "tensorflow"),
        (r"tensorflow(\.compat\.v[12])*\.compat\.v1", "tf.compat.v1"),
        (r"tensorflow\.python\.estimator", ESTIMATOR),
        (rf"tensorflow\.python\.tpu\.({'|'.join(FROM_TENSORFLOW)})", rf"{ESTIMATOR}.tpu.\1"),
        (r"tensorflow(\.compat\.v2)*(?!\.(python|core)\b)", "tf"),
        (r"tensorflow_estimator\.(_api\.v1\.)?estimator", "tf.compat.v1.estimator"),
        (r"tensorflow_estimator\._api\.v2\.estimator", "tf.estimator"),
        (rf"{re.escape(ESTIMATOR)}\.api\._v1\.estimator", "tf.compat.v1.estimator"),
        (rf"{re.escape(ESTIMATOR)}\.api\._v2\.estimator", "tf.estimator"),
        (r"tf\.compat\.v1\.contrib", "tf.contrib"),
    )
]


@functools.cache
def canonical(name: str) -> str:
    """Returns a dotted name in the spelling of TABLE, even if TABLE does not list the name."""
    for pattern, spelling in _SPELLINGS:
        name = pattern.sub(spelling, name) if pattern.match(name) else name
    for module, moved in contrib_names.MOVED.items():
        contrib = f"tf.contrib.{module}"
        if name == contrib or name.startswith(contrib + "."):
            return canonical(moved + name[len(contrib) :])
    return name


def look_up(name: str, means_v1: bool = False) -> tuple[Meaning, int] | None:
    """Returns the meaning of the legacy name that starts a dotted name, and its number of parts.

    In `tensorflow.compat.v1.estimator.ModeKeys.TRAIN`, the first five parts are the legacy name and
    `TRAIN` is an attribute. `means_v1` is True if `tensorflow` means TensorFlow 1 in the program.
    """
    if name.partition(".")[0] not in ("tensorflow", "tensorflow_estimator"):
        return None
    parts = name.split(".")
    namespace: tuple[Namespace, int] | None = None
    for count in range(1, len(parts) + 1):
        meaning = _meaning(".".join(parts[:count]), means_v1)
        if isinstance(meaning, Namespace):
            namespace = meaning, count
        elif isinstance(meaning, Target) and meaning.path == ".".join(parts[:count]):
            return None  # The name is in its new place already.
        elif meaning is not None:
            return meaning, count
    if namespace is None or namespace[1] == len(parts):
        return namespace
    return _unlisted(*namespace, parts)


def _meaning(name: str, means_v1: bool) -> Meaning | None:
    path = canonical(name)
    spellings = [path]
    if path.startswith("tf.") and not path.startswith(("tf.compat.", "tf.contrib")):
        spellings.insert(0 if means_v1 else 1, "tf.compat.v1." + path.removeprefix("tf."))
    for spelling in spellings:
        if spelling in TABLE:
            return TABLE[spelling]
    for spelling in spellings:
        if spelling in _LEGACY_MODULES:
            return Namespace(spelling)
    if path.startswith("tf.contrib."):
        return _contrib_meaning(path.removeprefix("tf.contrib."))
    if path == ESTIMATOR or path.startswith(ESTIMATOR + "."):
        # A module with names that estimator_emb replaces must not be passed on as an object.
        replaced = any(f"{ESTIMATOR}.{module}.".startswith(path + ".") for module in REPLACED)
        return Namespace(path, moved=path, is_whole=not replaced)
    if name.startswith("tensorflow.contrib.") or ".contrib." in name:
        return Namespace(path, moved=path, is_whole=True)  # A module of contrib_names.MOVED.
    return None


def _contrib_meaning(path: str) -> Meaning | None:
    owner, _, leaf = path.rpartition(".")
    module = contrib_names.MODULES.get(contrib_names.NAMESPACES.get(owner, ""))
    if module is None or leaf not in module.members:
        is_module = any(f"{name}.".startswith(f"{path}.") for name in _CONTRIB_MODULES)
        return Namespace(f"tf.contrib.{path}") if is_module else None
    where = module.members[leaf]
    if where.startswith("tf."):
        where = f"{TF1}.{where.removeprefix('tf.')}"
    found = look_up(where)
    if found is not None and isinstance(found[0], Target):
        return found[0]
    if where.startswith(f"{TF1}."):
        return Target(TF1, where.removeprefix(f"{TF1}."))
    place, _, name = where.rpartition(".")
    return Target(place, name)


def _unlisted(namespace: Namespace, count: int, parts: list[str]) -> tuple[Advice, int]:
    name = f"{namespace.path}.{parts[count]}"
    if name.startswith("tf.contrib."):
        return Advice(contrib_names.advice_about(name.removeprefix("tf.contrib."))), count + 1
    return Advice(f"neither estimator_emb nor tensorflow-estimator 2.15 has {name}."), count + 1
