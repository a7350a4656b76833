"""Makes a program's estimator for a TPU that is only described, to see which errors it raises.

tensorflow-estimator asks the TPU's master for its hosts and cores. Here the answer is made up. The
rest is as with `use_tpu=True`, except that no session is opened.
"""

import contextlib
import copy
import logging
import types
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.backends.emulated import topology
from estimator_emb.backends.pjrt.backend import PjrtDevices, check_config, shape_of
from estimator_emb.catalog import slices
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.estimator import TPUEstimator
from estimator_emb.preflight import program_lines
from estimator_emb.preflight.report import CannotCheck, Finding
from estimator_emb.spec import options
from estimator_emb.spec.options import CannotEmulate

_MASTER = "grpc://described"
_JOB = "tpu_worker"


def slice_of(replicas: int, each: int | None) -> slices.Slice:
    """Returns a slice with eight cores per host, of `each` cores for a replica."""
    if not each:
        return slices.Slice((replicas, 1, 1, 1), (min(replicas, slices.CORES_PER_HOST), 1, 1, 1))
    return topology.slice_with_cores(replicas * each, "A described TPU")


def _metadata(replicas: int, each: int | None) -> tf.tpu.experimental.TPUSystemMetadata:
    shape = slice_of(replicas, each)
    devices = tuple(
        types.SimpleNamespace(name=f"/job:{_JOB}/replica:0/task:{host}/device:CPU:0")
        for host in range(shape.hosts)
    )
    return topology.metadata(shape, topology.emulated(shape) if each else None, devices)


class DescribedDevices(PjrtDevices):
    """PJRT devices that are only described, so that a machine without them can check a program."""

    def prepare_session(self, config: tf.compat.v1.ConfigProto) -> None:
        """Leaves the configuration as it is, because no session opens."""

    def shape(self, tpu_config: Any, has_tables: bool) -> slices.Slice:
        check_config(tpu_config)
        return shape_of(options.asked_shards() or tpu_config.num_shards or slices.CORES_PER_HOST)


def findings(
    estimator: TPUEstimator, mode: str, replicas: int, has_steps: bool = True
) -> list[Finding]:
    """Returns the errors that `use_tpu=True` raises before it builds a graph.

    With `device='pjrt'` TensorFlow drives no TPU, so nothing is made.
    """
    if options.asked(estimator.config) == "pjrt":
        return []
    try:
        with silent():
            made = _on_described_tpu(estimator, replicas)
            if mode == ModeKeys.PREDICT:
                made.backend.check_prediction()
            elif not has_steps and mode == ModeKeys.TRAIN:
                made._convert_train_steps_to_hooks(None, None)
            elif not has_steps:
                made._convert_eval_steps_to_hooks(None)
            with made._ctx.with_mode(mode) as context:
                # This checks the batch size, and makes the configuration of the hardware.
                context.is_running_on_cpu() or context.embedding_config  # noqa: B018
    except CannotEmulate as error:
        raise CannotCheck(str(error)) from error
    except Exception as error:
        return [program_lines.refusal(error)]
    return []


def _on_described_tpu(estimator: TPUEstimator, replicas: int) -> TPUEstimator:
    request = estimator.backend.request
    config = copy.deepcopy(estimator.config)
    # Without the generation, so that a program that no TPU runs today is still checked.
    own = {**options.additions(config.tpu_config), "device": "tpu", "tpu_generation": None}
    tpu_config = options.TPUConfig(*config.tpu_config, **own)._replace(tpu_job_name=_JOB)
    if tpu_config.num_shards != replicas:
        tpu_config = tpu_config._replace(num_shards=None)
    config = config.replace(tpu_config=tpu_config)
    config._master = config._evaluation_master = _MASTER
    config._cluster = None
    made = TPUEstimator(
        request.model_fn,
        model_dir=estimator.model_dir,
        config=config,
        params={key: value for key, value in estimator.params.items() if key not in _OWN_PARAMS},
        use_tpu=True,
        embedding_config_spec=request.spec,
        **{name: getattr(request, name) for name in _OF_REQUEST},
    )
    each = tpu_config.num_cores_per_replica
    made._ctx._lazy_tpu_system_metadata_dict[_MASTER] = _metadata(replicas, each)
    return made


_OWN_PARAMS = ("batch_size", "context", "use_tpu")
_OF_REQUEST = "train_batch_size eval_batch_size predict_batch_size batch_axis eval_on_tpu".split()


@contextlib.contextmanager
def silent(level: int = logging.WARNING) -> Iterator[None]:
    """Hides log lines up to `level`, because nothing trains on this TPU."""
    before = logging.root.manager.disable
    logging.disable(level)
    try:
        yield
    finally:
        logging.disable(before)
