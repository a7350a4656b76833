"""Makes a restarted `BestExporter` continue from the best evaluation recorded earlier.

tensorflow-estimator's `BestExporter` exports the first model of each process, even if an earlier
process recorded a better evaluation.
"""

import os
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.estimators import BestExporter

_ANY_NAME = "eval/*.tfevents.*"
"""The default pattern of event files. It matches only evaluations without a name."""


def begin(estimator: Any, eval_spec: Any) -> None:
    """Loads the best recorded evaluation into each `BestExporter`. Call it before evaluating.

    An exporter starts from scratch if it has no exports yet or its recorded evaluations are gone.
    """
    for exporter in eval_spec.exporters or ():
        pattern = getattr(exporter, "_event_file_pattern", None)
        if not isinstance(exporter, BestExporter) or not pattern:
            continue
        folder = os.path.join(estimator.model_dir, "export", exporter.name)
        if exporter._model_dir == estimator.model_dir or not _has_exports(folder):
            continue
        pattern = os.path.join(estimator.model_dir, pattern)
        if exporter._event_file_pattern == _ANY_NAME:
            pattern = os.path.join(estimator.eval_dir(eval_spec.name), os.path.basename(_ANY_NAME))
        exporter._model_dir = estimator.model_dir
        exporter._best_eval_result = exporter._get_best_eval_result(pattern)
        exporter._has_exported = True


def _has_exports(folder: str) -> bool:
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return any(name.rstrip("/").isdigit() for name in names)
