"""Makes a restarted `BestExporter` continue from the best evaluation recorded earlier.

tensorflow-estimator's `BestExporter` exports the first model of each process, even if an earlier
process recorded a better evaluation.
"""

import contextlib
import os
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.compat.internals.estimators import BestExporter
from estimator_emb.reporting.console import logger

_ANY_NAME = "eval/*.tfevents.*"
"""The default pattern of event files. It matches only evaluations without a name."""


def begin(estimator: Any, eval_spec: Any) -> None:
    """Loads the best recorded evaluation into each `BestExporter`. Call it before evaluating.

    An exporter starts from scratch if it has no exports yet or its recorded evaluations are gone.
    """
    for exporter in eval_spec.exporters or ():
        if not isinstance(exporter, BestExporter) or not exporter._event_file_pattern:
            continue
        if exporter._model_dir == estimator.model_dir:
            continue
        exporter._model_dir = estimator.model_dir  # Otherwise the exporter reads the files itself.
        if not _has_exports(os.path.join(estimator.model_dir, "export", exporter.name)):
            continue
        pattern = os.path.join(estimator.model_dir, exporter._event_file_pattern)
        if exporter._event_file_pattern == _ANY_NAME:
            pattern = os.path.join(estimator.eval_dir(eval_spec.name), os.path.basename(_ANY_NAME))
        for path in tf.io.gfile.glob(pattern):
            _read(path, exporter)
        exporter._has_exported = True


@contextlib.contextmanager
def undone_by_errors(eval_spec: Any) -> Iterator[None]:
    """Lets each `BestExporter` forget an evaluation whose export failed."""
    exporters = [one for one in eval_spec.exporters or () if isinstance(one, BestExporter)]
    best = [exporter._best_eval_result for exporter in exporters]
    try:
        yield
    except Exception:
        for exporter, result in zip(exporters, best, strict=True):
            exporter._best_eval_result = result
        raise


def _read(path: str, exporter: Any) -> None:
    """Gives an exporter the best evaluation of an event file, up to a damaged record."""
    try:
        for event in tf.compat.v1.train.summary_iterator(path):
            values = [value for value in event.summary.value if value.HasField("simple_value")]
            result = {value.tag: value.simple_value for value in values}
            best = exporter._best_eval_result
            if result and (best is None or exporter._compare_fn(best, result)):
                exporter._best_eval_result = result
    except tf.errors.DataLossError as error:
        logger.warning(
            "BestExporter %r: the event file %s is damaged (%s). The evaluations behind the damage "
            "are not compared.",
            exporter.name,
            path,
            error.message,
        )


def _has_exports(folder: str) -> bool:
    names = tf.io.gfile.listdir(folder) if tf.io.gfile.isdir(folder) else []
    return any(name.rstrip("/").isdigit() for name in names)
