"""Builds a program for a TPU that is only described, to see which errors it raises.

tensorflow-estimator asks the TPU's master for its hosts and cores. Here the answer is made up. The
rest is as with `use_tpu=True`, except that no session is opened.
"""

import collections
import contextlib
import copy
import logging
import types
from collections.abc import Callable, Iterator
from typing import Any

import tensorflow as tf

from estimator_emb.backends.emulated import topology
from estimator_emb.catalog import slices
from estimator_emb.compat import custom_gradients
from estimator_emb.compat.internals.estimators import ModeKeys
from estimator_emb.estimator import TPUEstimator
from estimator_emb.preflight import program_lines
from estimator_emb.preflight.report import CannotCheck, Finding
from estimator_emb.spec import options

_MASTER = "grpc://described"
_JOB = "tpu_worker"


def metadata(cores: int, divided: bool = False) -> tf.tpu.experimental.TPUSystemMetadata:
    """Returns the metadata of a TPU with eight cores per host, with a topology if `divided`."""
    shape = slices.Slice((cores, 1, 1, 1), (min(cores, slices.CORES_PER_HOST), 1, 1, 1))
    known = None
    if divided:
        try:
            shape = topology.slice_with_cores(cores, "A described TPU")
            known = topology.emulated(shape)
        except ValueError as error:
            raise CannotCheck(str(error)) from error
    devices = tuple(
        types.SimpleNamespace(name=f"/job:{_JOB}/replica:0/task:{host}/device:CPU:0")
        for host in range(shape.hosts)
    )
    return topology.metadata(shape, known, devices)


class Described:
    """A program made as with `use_tpu=True`. `findings` has the errors of __init__ and `build`.

    With `device='pjrt'` TensorFlow drives no TPU, so nothing is made.
    """

    def __init__(self, estimator: TPUEstimator, mode: str, replicas: int, has_steps: bool = True):
        self._mode = mode
        self.findings: list[Finding] = []
        self._made: TPUEstimator | None = None
        if options.asked(estimator.config) == "pjrt":
            return
        with self._found():
            self._made = _on_described_tpu(estimator, replicas)
            if mode == ModeKeys.PREDICT:
                self._made.backend.check_prediction()
            elif not has_steps and mode == ModeKeys.TRAIN:
                self._made._convert_train_steps_to_hooks(None, None)
            elif not has_steps:
                self._made._convert_eval_steps_to_hooks(None)

    def build(self, input_fn: Callable[..., Any]) -> list[Finding]:
        """Builds the graph and returns the findings. Calls input_fn for each host, and model_fn."""
        if self._made is not None and not self.findings:
            with self._found():
                _build(self._made, input_fn, self._mode)
        return self.findings

    @contextlib.contextmanager
    def _found(self) -> Iterator[None]:
        try:
            with _silent():
                yield
        except CannotCheck:
            raise
        except Exception as error:
            self.findings.append(program_lines.refusal(error))


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
    # Threads of a session report errors to each other through this, but there is no session.
    made._rendezvous = collections.defaultdict(lambda: None)
    made._ctx._lazy_tpu_system_metadata_dict[_MASTER] = metadata(
        replicas * (each or 1), divided=bool(each)
    )
    return made


_OWN_PARAMS = ("batch_size", "context", "use_tpu")
_OF_REQUEST = "train_batch_size eval_batch_size predict_batch_size batch_axis eval_on_tpu".split()


def _build(made: TPUEstimator, input_fn: Callable[..., Any], mode: str) -> None:
    with custom_gradients.forgotten(), tf.Graph().as_default() as graph:
        tf.compat.v1.set_random_seed(made.config.tf_random_seed)
        made._create_and_assert_global_step(graph)
        if mode == ModeKeys.PREDICT:
            features, _ = made._get_features_from_input_fn(input_fn, mode)
            labels = None
        else:
            features, labels, _ = made._get_features_and_labels_from_input_fn(input_fn, mode)
        made._call_model_fn(features, labels, mode, made.config)


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Hides warnings of this build, because the program itself has logged them already."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
