"""Tests of `compat.estimator_training`, and of TensorFlow's own module on 2.15."""

import importlib
import json
from types import SimpleNamespace

import harness
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.distribute.distribute_config import DistributeConfig

from estimator_emb import compat
from estimator_emb.compat import estimator_training as ours

THEIRS = "tensorflow.python.distribute.estimator_training"
# TensorFlow's module has other messages. So `module is not ours or ...` compares only our own.


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)


@pytest.fixture
def estimator_lib(module, monkeypatch):
    """Makes tensorflow-estimator's modules use the module under test, and returns them."""
    compat.prepare("estimator_emb.legacy.tpu_embedding")
    found = SimpleNamespace()
    for name in ("run_config", "estimator", "training"):
        user = importlib.import_module(f"tensorflow_estimator.python.estimator.{name}")
        monkeypatch.setattr(user, "distribute_coordinator_training", module)
        setattr(found, name, user)
    return found


class Strategy:
    """A distribution strategy as the coordinator sees it, without a server."""

    extended = SimpleNamespace(
        experimental_between_graph=True, experimental_should_init=True, _std_server_started=True
    )
    task = None

    def configure(self, session_config=None, cluster_spec=None, task_type=None, task_id=None):
        self.task = (task_type, task_id)


CLUSTER = {"chief": ["c:1"], "evaluator": ["e:1"], "ps": ["p:1", "p:2"], "worker": ["w:1", "w:2"]}
NO_EVALUATOR = {job: tasks for job, tasks in CLUSTER.items() if job != "evaluator"}
SETTINGS = (
    "cluster_spec task_type task_id master evaluation_master is_chief num_ps_replicas "
    "num_worker_replicas global_id_in_cluster"
).split()
LOCAL_TASK = ("worker", 0, "", "", True, 0, 1, 0)  # SETTINGS without a cluster, but the first.


def settings(config):
    cluster, *others = (getattr(config, "_" + name) for name in SETTINGS)
    return (cluster.as_dict() if cluster else {}, *others)


def tf_config(cluster, task_type, index):
    return {"cluster": cluster, "task": {"type": task_type, "index": index}}


MASTER_CLUSTER = {"master": ["m:1"], "ps": ["p:1"], "worker": ["w:1"]}
REMOTE = DistributeConfig(remote_cluster=tf.train.ClusterSpec(CLUSTER))
WORKER = tf_config(CLUSTER, "worker", 1)
EVALUATOR = tf_config(CLUSTER, "evaluator", 0)
ALONE = tf_config(NO_EVALUATOR, "worker", 1)
AS_WORKER = (NO_EVALUATOR, "worker", 1, "grpc://w:2", "", False, 2, 3, 2)  # After the chief.
AS_SERVER = (MASTER_CLUSTER, "ps", 0, "grpc://p:1", "", False, 1, 2, 2)
BY_STRATEGY = {"train_distribute": Strategy()}
OF_REMOTE = {"experimental_distribute": REMOTE}
BY_EXPERIMENT = {"experimental_distribute": DistributeConfig(train_distribute=Strategy())}
NOT_USED = "Not using Distribute Coordinator."
RUN_CONFIGS = {
    "no cluster": (BY_STRATEGY, {}, None, ({}, *LOCAL_TASK)),
    "cluster without training strategy": ({"eval_distribute": Strategy()}, ALONE, None, AS_WORKER),
    "master job": (BY_STRATEGY, tf_config(MASTER_CLUSTER, "ps", 0), None, AS_SERVER),
    "cluster": (BY_STRATEGY, WORKER, "independent_worker", (CLUSTER, *LOCAL_TASK)),
    "experiment": (BY_EXPERIMENT, EVALUATOR, "independent_worker", (CLUSTER, *LOCAL_TASK)),
    "remote cluster without training strategy": (OF_REMOTE, {}, None, ({}, *LOCAL_TASK)),
}
"""Case -> (arguments of RunConfig, TF_CONFIG, mode of the coordinator, values of SETTINGS)."""


@pytest.mark.parametrize(
    "options, environment, mode, expected", RUN_CONFIGS.values(), ids=RUN_CONFIGS
)
def test_run_config_gets_the_coordinator_settings(
    estimator_lib, module, monkeypatch, options, environment, mode, expected, caplog
):
    """If the coordinator will run, it sets the task's own settings later than RunConfig does."""
    caplog.set_level("INFO", "tensorflow")
    monkeypatch.setenv("TF_CONFIG", json.dumps(environment))
    config = estimator_lib.run_config.RunConfig(**options)
    assert config._distribute_coordinator_mode == mode
    assert settings(config) == expected
    assert module.should_run_distribute_coordinator(config) is (mode is not None)
    said = [one for one in caplog.messages if "Distribute Coordinator" in one]
    is_set_up = ["RunConfig is set up for Distribute Coordinator."]
    # Without a mode, both the RunConfig and should_run_distribute_coordinator say NOT_USED.
    assert module is not ours or said == (is_set_up if mode else [NOT_USED] * 2)
    # Device filters are set, as without a strategy, if the coordinator does not handle the cluster.
    has_filters = mode is None and bool(environment)
    assert bool(config.session_config and config.session_config.device_filters) is has_filters


@pytest.mark.parametrize("option", ["train_distribute", "eval_distribute"])
def test_refuses_settings_given_twice(estimator_lib, module, option):
    given = {option: Strategy()}
    given["experimental_distribute"] = DistributeConfig(**given)
    message = harness.refusal(ValueError, estimator_lib.run_config.RunConfig, **given)
    assert module is not ours or message == (
        f"Set either `{option}` or `experimental_distribute.{option}`, not both."
    )


@pytest.mark.parametrize(
    "mode, cluster, said",
    [
        (None, CLUSTER, NOT_USED),
        ("other", CLUSTER, "Ignoring the unknown distribute coordinator mode 'other'."),
        (3, CLUSTER, "Ignoring the unknown distribute coordinator mode 3."),
        ("independent_worker", {}, "No cluster: running locally, without Distribute Coordinator."),
    ],
)
def test_coordinator_does_not_run_without_its_settings(module, mode, cluster, said, caplog):
    caplog.set_level("INFO", "tensorflow")
    config = SimpleNamespace(_distribute_coordinator_mode=mode, cluster_spec=cluster)
    assert module.should_run_distribute_coordinator(config) is False
    assert module is not ours or caplog.messages == [said]
    assert module.should_run_distribute_coordinator(SimpleNamespace()) is False


def test_unsupported_calls_are_refused():
    remote = SimpleNamespace(
        _experimental_distribute=REMOTE, _train_distribute=Strategy(), _eval_distribute=None
    )
    without_mode = Estimator(Config(None, {}, Strategy())), TRAIN_SPEC, None, Executor
    cluster = tf.train.ClusterSpec({"worker": ["w:1"], "ps": ["p:1"]})
    assert harness.refusal(ValueError, ours.init_run_config, remote, {}) == (
        "`experimental_distribute.remote_cluster` is not supported: run the program in each task "
        "of the cluster, with a TF_CONFIG."
    )
    said = harness.refusal(ValueError, ours.train_and_evaluate, *without_mode)
    assert said == "The `RunConfig` has no distribute coordinator mode."
    said = harness.refusal(RuntimeError, ours._global_id, cluster, "chief", 0)
    assert said == "The cluster ['ps', 'worker'] has no job 'chief'."


class Log(list):
    """A list shared by copies of its owner."""

    def __deepcopy__(self, memo):
        return self


class Config:
    """The part of `RunConfig` that is used at run time."""

    def __init__(self, mode, cluster=None, train=None, evaluate=None):
        self._distribute_coordinator_mode = mode
        self._cluster_spec = tf.train.ClusterSpec(cluster or {})
        self._train_distribute = train
        self._eval_distribute = evaluate
        self.session_config = None

    cluster_spec = property(lambda self: self._cluster_spec)
    train_distribute = property(lambda self: self._train_distribute)
    eval_distribute = property(lambda self: self._eval_distribute)


class Estimator:
    """Records the settings of its calls of train and evaluate."""

    def __init__(self, config):
        self.config = self._config = config
        self._train_distribution = config._train_distribute
        self._eval_distribution = config._eval_distribute
        self.log = Log()

    def train(self, **arguments):
        assert self._train_distribution is self._config._train_distribute
        assert self._config._distribute_coordinator_mode is None
        self.note("train", self._train_distribution.task, arguments)

    def note(self, what, *details):
        self.log.append((what, settings(self._config), *details))


class Executor:
    def __init__(self, estimator, train_spec, eval_spec):
        self.estimator, self.specs = estimator, (train_spec, eval_spec)

    def _start_continuous_evaluation(self):
        strategy = self.estimator._eval_distribution
        assert strategy is self.estimator._config._eval_distribute
        assert self.estimator._config._distribute_coordinator_mode is None
        self.estimator.note("evaluate", strategy and strategy.task, self.specs)


TRAIN_SPEC = SimpleNamespace(input_fn="input_fn", max_steps=9, hooks=("hook",))
TRAIN_CALL = {"input_fn": "input_fn", "max_steps": 9, "hooks": ["hook"]}


def task(task_type, task_id, address, is_chief, global_id):
    """Returns values of SETTINGS in a task of CLUSTER, with 2 servers and 3 workers (or chief)."""
    master = f"grpc://{address}"
    return (CLUSTER, task_type, task_id, master, master, is_chief, 2, 3, global_id)


# It must not see the cluster. So it counts no servers and no workers, and has no global number.
EVALUATOR_TASK = ({}, "evaluator", 0, "", "", True, 0, 0, None)


@pytest.mark.parametrize(
    "task_type, index, expected",
    [
        *(
            (job, index, ("train", task(job, index, *more), (job, index), TRAIN_CALL))
            for job, index, *more in (("chief", 0, "c:1", True, 0), ("worker", 1, "w:2", False, 3))
        ),
        ("evaluator", 0, ("evaluate", EVALUATOR_TASK, None, (TRAIN_SPEC, "eval_spec"))),
    ],
)
def test_train_and_evaluate_as_independent_worker(module, monkeypatch, task_type, index, expected):
    """A task has a copy of the estimator, with TF_CONFIG's cluster.

    Global ids count the chief, then the evaluator and the workers, so worker 1 has number 3.
    """
    monkeypatch.setenv("TF_CONFIG", json.dumps(tf_config(CLUSTER, task_type, index)))
    estimator = Estimator(Config("independent_worker", NO_EVALUATOR, Strategy()))
    module.train_and_evaluate(estimator, TRAIN_SPEC, "eval_spec", Executor)
    assert estimator.log == [expected]


def test_train_and_evaluate_without_a_cluster_runs_both_here(module, caplog):
    caplog.set_level("INFO", "tensorflow")
    estimator = Estimator(Config("independent_worker", None, Strategy(), Strategy()))
    module.train_and_evaluate(estimator, TRAIN_SPEC, "eval_spec", Executor)
    alone = ({}, None, None, "", "", True, 0, 1, 0)
    assert [called[:2] for called in estimator.log] == [("train", alone), ("evaluate", alone)]
    assert module is not ours or caplog.text.count("RunConfig of this task: {") == 2


@pytest.mark.parametrize("method", ["train", "evaluate"])
def test_train_or_evaluate_alone_is_refused(module, method):
    estimator = Estimator(Config("independent_worker", NO_EVALUATOR, Strategy(), Strategy()))
    run = getattr(module, f"estimator_{method}")
    message = harness.refusal(ValueError, run, estimator, None, [])
    assert message.endswith("use `tf.estimator.train_and_evaluate`.") or module is not ours


@pytest.mark.slow
def test_trains_with_a_local_mirrored_strategy(estimator_lib, tmp_path):
    """Two steps of gradient descent on (w - 3)^2 from 0, then an evaluation."""
    v1, strategy = tf.compat.v1, tf.compat.v1.distribute.MirroredStrategy

    def input_fn():
        return tf.data.Dataset.from_tensors(([[1.0]], [[3.0]])).repeat(2)

    def model_fn(features, labels, mode):
        weight = v1.get_variable("w", [], initializer=v1.zeros_initializer())
        loss = tf.reduce_mean(tf.square(features * weight - labels))
        optimizer = v1.train.GradientDescentOptimizer(0.25)
        train_op = optimizer.minimize(loss, v1.train.get_global_step())
        return estimator_lib.estimator.model_fn_lib.EstimatorSpec(mode, None, loss, train_op)

    made = {f"{call}_distribute": strategy(["/cpu:0"]) for call in ("train", "eval")}
    config = estimator_lib.run_config.RunConfig(str(tmp_path), save_summary_steps=None, **made)
    estimator = estimator_lib.estimator.EstimatorV2(model_fn, config=config)
    training = estimator_lib.training.TrainSpec(input_fn, max_steps=2)
    evaluation = estimator_lib.training.EvalSpec(input_fn, steps=1)
    metrics, _ = estimator_lib.training.train_and_evaluate(estimator, training, evaluation)
    # A step halves the distance to 3, because the rate is 0.25 and the slope 2 * (w - 3).
    assert estimator.get_variable_value("w") == np.float32(3 - 3 / 4)
    assert metrics == {"loss": np.float32((3 / 4) ** 2), "global_step": 2}
