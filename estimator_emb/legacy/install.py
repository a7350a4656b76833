"""Puts estimator_emb where programs of TensorFlow 1 and 2 look for `tf.estimator`.

TensorFlow's API can have several module objects for the same name. For example, importing
`tensorflow.compat.v1` makes a copy of `tensorflow._api.v2.compat.v1`, and the copy replaces it as
`tf.compat.v1`. `install` changes all of them. A module of tensorflow-estimator that defines a
replaced class stays unchanged, because the class names itself in `super(...)`. Imports find a
substitute module instead. It has our class, and shares everything else.
"""

import importlib
import importlib.util
import re
import sys
from typing import Any

from estimator_emb import estimator, optimizers
from estimator_emb.backends.cluster import training
from estimator_emb.catalog import environment, extras, legacy, moved
from estimator_emb.compat import async_checkpoint
from estimator_emb.compat.internals.patches import AliasFinder, Changes, SharedModule
from estimator_emb.legacy import (
    emulated_tpu,
    input_checkpoint,
    keras_overrides,
    plain_estimators,
    text_frames,
    tpu_embedding,
)
from estimator_emb.reporting import console
from estimator_emb.spec import config, options

_OURS: dict[str, Any] = {
    ours.__name__: ours
    for ours in (
        estimator.TPUEstimator,
        options.TPUConfig,
        options.RunConfig,
        config.EmbeddingConfigSpec,
        training.train_and_evaluate,
    )
}
_OPTIMIZERS: dict[str, Any] = {
    parameters.__name__: parameters for parameters in optimizers.PARAMETERS
}

_API_REPLACED = {
    "tpu": ("TPUEstimator", "TPUConfig", "RunConfig"),
    "tpu.experimental": ("EmbeddingConfigSpec",),
}
"""Module of tensorflow-estimator's API -> the names that it gets from this package."""

_ALIASES = {
    "tensorflow.estimator": legacy.API_V2,
    "tensorflow.compat.v1.estimator": legacy.API_V1,
    "tensorflow.compat.v2.estimator": legacy.API_V2,
    "tensorflow.python.estimator": legacy.ESTIMATOR,
    **{
        f"tensorflow.python.tpu.{name}": f"{legacy.ESTIMATOR}.tpu.{name}"
        for name in legacy.FROM_TENSORFLOW
    },
}
"""Imported name -> the module to find. Submodules are found likewise."""

_API_COPIES = {
    f"{copy}.{module}": f"{api}.{module}"
    for copy, api, modules in (
        ("tensorflow", "tensorflow._api.v2", "data tpu"),
        ("tensorflow.compat.v1", "tensorflow._api.v2.compat.v1", "compat data tpu"),
        ("tensorflow.compat.v2", "tensorflow._api.v2.compat.v2", "compat data tpu"),
    )
    for module in modules.split()
}
"""The same for modules of TensorFlow's API that an import would otherwise load twice."""

_RENAMED = {"tf_keras.legacy_tf_layers": "tf_keras.src.legacy_tf_layers"}
"""Module that tf-keras has renamed, and that TensorFlow still imports -> its current name."""

_API_ROOT = re.compile(r"tensorflow(\._api\.v2(\.v2)?)?(\.compat\.v[12])*")

_installed: Changes | None = None


def install(tf_v1: bool = False, contrib: str | None = None) -> None:
    """Makes unchanged programs find `tf.estimator`, with estimator_emb in it.

    Afterwards, on every TensorFlow from 2.15.1 on, even if it was imported before:

    * `tf.estimator`, `tf.compat.v1.estimator` and `tf.compat.v2.estimator` exist as attributes, and
      can be imported. `tf.compat.v1.estimator.tpu` has `TPUEstimator`, `TPUConfig`,
      `RunConfig` and `experimental.EmbeddingConfigSpec` of estimator_emb.
    * `tf.compat.v1.tpu.experimental` has every optimizer class of the legacy vocabulary, and
      `tf.data.experimental` has our `CheckpointInputPipelineHook`.
    * `tensorflow.python.tpu.tpu_embedding` has our configs, optimizer classes and `TPUEmbedding`.
    * `tensorflow_estimator.python.estimator` has the classes of estimator_emb. So do its old names
      `tensorflow.python.estimator` and `tensorflow.python.tpu.tpu_estimator`.
    * Names that moved inside `tensorflow.python` also exist at their old places (`catalog.moved`).
    * While the environment variable ESTIMATOR_EMB_DEVICE is 'emulate', a `TPUClusterResolver` and
      the `master` of a TPU's `RunConfig` mean the emulated TPU, under any name. Initialising a TPU
      system then does nothing.
    * Overrides of Keras's methods get only the arguments that they take (`keras_overrides`), and
      `pandas_input_fn` takes the text columns of pandas 3.
    * `Estimator` and canned Estimators get the safeguards of `TPUEstimator`. SIGTERM ends a
      training with a checkpoint. The log says where it trains and shows its progress. An evaluation
      without input is an error, and so is a checkpoint that does not fit.

    Classes that a program has imported before by `from ... import <class>` stay as they were. A
    second call changes nothing. `uninstall` restores everything except TensorFlow 1.

    Args:
      tf_v1: True makes `import tensorflow` give TensorFlow 1, with `tf.contrib`, until the process
        ends (`legacy.tf_v1`). `estimator-emb run --tf-v1` does the same. The call must come before
        the program's imports of TensorFlow.
      contrib: the wheel of TensorFlow 1.15, or a folder with its files. With `tf_v1`, the names of
        `tf.contrib` that TensorFlow no longer has come from it. By default, the environment
        variable ESTIMATOR_EMB_CONTRIB names it.

    Raises:
      ValueError: `contrib` is something else.
    """
    if _installed is None:
        _install()
    if tf_v1:
        extras.load("tf1", "legacy.tf_v1").bind(contrib or environment.CONTRIB.value())


def _install() -> None:
    global _installed
    with Changes() as changes:
        _replace_modules(changes)
        _alias_modules(changes)
        _extend_api(changes)
        emulated_tpu.replace_lookups(changes)
        plain_estimators.replace_methods(changes)
        keras_overrides.fit_overrides(changes)
        text_frames.take_text(changes)
        _supply_moved(changes)
        console.without_advice_to_leave(changes)
        input_checkpoint.attach_hooks()
        _installed = changes.pop_all()


def uninstall() -> None:
    """Undoes `install`. Does nothing if nothing is installed."""
    global _installed
    if _installed is not None:
        _installed.close()
        _installed = None


def _replace_modules(changes: Changes) -> None:
    for version in ("v1", "v2"):  # If imported later, they would keep our names after `uninstall`.
        for api in (f"{legacy.ESTIMATOR}.api._{version}", f"tensorflow_estimator._api.{version}"):
            importlib.import_module(f"{api}.estimator")
    for name, replaced in legacy.REPLACED.items():
        ours = {one: _OURS[one] for one in replaced.split()}
        ours |= _OPTIMIZERS if name == legacy.EMBEDDING else {}
        _share(changes, f"{legacy.ESTIMATOR}.{name}", ours)
    if importlib.import_module(legacy.TPU_EMBEDDING) is not tpu_embedding:  # TensorFlow 2.15's.
        ours = {name: one for name, one in vars(tpu_embedding).items() if name[:2] != "__"}
        _share(changes, legacy.TPU_EMBEDDING, ours)
    for api in (legacy.API_V1, "tensorflow_estimator._api.v1.estimator"):
        for path, api_names in _API_REPLACED.items():
            module = importlib.import_module(f"{api}.{path}")
            for name in api_names:
                changes.set_attribute(module, name, _OURS[name])


def _share(changes: Changes, name: str, ours: dict[str, Any]) -> None:
    shared = SharedModule(importlib.import_module(name), ours)
    changes.set_module(name, shared)
    parent, _, leaf = name.rpartition(".")
    changes.set_attribute(importlib.import_module(parent), leaf, shared)


def _alias_modules(changes: Changes) -> None:
    name = "tensorflow.python.tpu.async_checkpoint"
    own = {name: async_checkpoint.__name__} if _is_absent(name) else {}
    _add_aliases(changes, {**_ALIASES, **own}, _API_COPIES)


def _add_aliases(changes: Changes, aliases: dict[str, str], copies: dict[str, str]) -> None:
    changes.hide_modules(*aliases)  # Undoing it removes the aliases.
    for name in aliases:
        parent, _, leaf = name.rpartition(".")
        if parent not in aliases:
            changes.hide_attribute(importlib.import_module(parent), leaf)
    changes.add_finder(AliasFinder({**aliases, **copies}))


def _extend_api(changes: Changes) -> None:
    estimators = {
        "v1": importlib.import_module(legacy.API_V1),
        "v2": importlib.import_module(legacy.API_V2),
    }
    others = [
        importlib.import_module(f"tensorflow_estimator._api.{one}.estimator") for one in estimators
    ]
    for api in (*estimators.values(), *others):
        changes.set_attribute(api, "train_and_evaluate", training.train_and_evaluate)
    for name, root in list(sys.modules.items()):
        if not _API_ROOT.fullmatch(name) or root is None:
            continue
        version = "v1" if name.endswith("v1") else "v2"
        changes.set_attribute(root, "estimator", estimators[version])
        if version == "v1":
            for optimizer_name, optimizer in _OPTIMIZERS.items():
                changes.set_attribute(root.tpu.experimental, optimizer_name, optimizer)
        if hasattr(root, "data"):
            hook = input_checkpoint.CheckpointInputPipelineHook
            changes.set_attribute(root.data.experimental, hook.__name__, hook)


def _supply_moved(changes: Changes) -> None:
    aliases = {
        f"tensorflow.python.{old}": f"tensorflow.python.{new}"
        for old, new in moved.MODULES.items()
        if _is_absent(f"tensorflow.python.{old}")
    }
    _add_aliases(changes, aliases, _RENAMED)
    for old, places in moved.NAMES.items():
        module = importlib.import_module(f"tensorflow.python.{old}")
        for place, names in places.items():
            for name in names.split():
                name, _, now = name.partition("=")
                if not hasattr(module, name):
                    found = importlib.import_module(f"tensorflow.python.{place}")
                    changes.set_attribute(module, name, getattr(found, now or name))


def _is_absent(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:  # Its package is absent, too.
        return True
