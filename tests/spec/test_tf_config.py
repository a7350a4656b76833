"""An impossible TF_CONFIG gives an error that quotes it. Whatever stock accepts is accepted."""

import json

import harness
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.compat.internals.estimators import LocalRunConfig
from estimator_emb.compat.internals.tpu_estimator import StockRunConfig
from estimator_emb.spec import tf_config

EXAMPLE = (
    'such as {"cluster": {"chief": ["host0:2222"], "ps": ["host1:2222"]}, '
    '"task": {"type": "chief", "index": 0}}'
)
OBJECT = f"it is %s, but must be an object {EXAMPLE}. Unset it to train in one process."
PART = f"%s is %s, but must be an object, if it is given, {EXAMPLE}."
ADDRESS = (
    '%s is %s, but must be host:port such as "host0:2222" or "[::1]:2222", with a port of 1-65535.'
)
INDEX = (
    "task.index is %s, but must be a whole number, 0 or more (Task index must be non-negative "
    "number)."
)
TASK = {"type": "worker", "index": 0}


def cluster(job="worker", tasks=None, **task):
    return {
        "cluster": {"chief": ["a:1"], job: ["b:2"] if tasks is None else tasks},
        "task": {**TASK, **task},
    }


WRONG = [
    (None, OBJECT % "null"),
    ([], OBJECT % "[]"),
    (1, OBJECT % "1"),
    ("x" * 90, OBJECT % f'"{"x" * 76}...'),
    (False, OBJECT % "false"),
    ({"cluster": None}, PART % ("cluster", "null")),
    ({"cluster": ["a:1"]}, PART % ("cluster", '["a:1"]')),
    ({"task": "worker"}, PART % ("task", '"worker"')),
    ({"task": None}, PART % ("task", "null")),
    ({"service": []}, PART % ("service", "[]")),
    ({"session_master": 5}, "session_master is 5, but must be a text, if it is given."),
    ({"eval_session_master": {}}, "eval_session_master is {}, but must be a text, if it is given."),
    ({"model_dir": 5}, "model_dir is 5, but must be a text, if it is given."),
    (
        cluster(tasks="b:2"),
        'cluster.worker is "b:2", but must be a list of addresses, or an object such as '
        '{"0": address}.',
    ),
    *(
        (
            cluster(tasks={key: "b:2"}),
            f'an index of cluster.worker is "{key}", but must be a whole number, 0 or more.',
        )
        for key in ("x", "-1", "0.5")
    ),
    (
        cluster(tasks=[]),
        "cluster.worker is [], but must be the addresses of its tasks, including this process.",
    ),
    *(
        (cluster(tasks=[address]), ADDRESS % ("cluster.worker[0]", json.dumps(address)))
        for address in (
            *("grpc://b:1", "b:1:2", "b :1", "b", "b:", ":2", "b:x", "b:0", "b:65536", "b:-1"),
            *("b:2.5", "b:2 ", "b:²", "", None, 2),
            *("::1", "2001:db8::2", "[::1]", "grpc://b"),
        )
    ),
    (cluster(tasks={"3": "b"}), ADDRESS % ("cluster.worker[3]", '"b"')),
    (
        cluster(tasks=["b:2", "a:1"]),
        'cluster.worker[1] is "a:1", but must be another address than that of cluster.chief[0].',
    ),
    (
        cluster("ps", ["b:2", "b:2"]),
        'cluster.ps[1] is "b:2", but must be another address than that of cluster.ps[0].',
    ),
    *(
        (cluster(index=index), INDEX % json.dumps(index))
        for index in (0.5, -1, "x", "0.5", [], {}, float("inf"), float("nan"))
    ),
    *(({"task": {"index": index}}, INDEX % json.dumps(index)) for index in (0.5, None, "x")),
    (
        cluster(tasks={"1": "b:2", "4": "b:3"}),
        "task.index is 0, but must be the index of an address in cluster.worker: 0 is not a valid "
        "task_id for task_type worker, which has 1, 4.",
    ),
]


@pytest.mark.parametrize("config, message", WRONG)
def test_an_impossible_tf_config_is_quoted(config, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert harness.refusal(ValueError, tf_config.read_tf_config) == f"TF_CONFIG: {message}"


@pytest.mark.parametrize(
    "text, message",
    [
        ("", "'': Expecting value: line 1 column 1 (char 0)"),
        (
            '{"cluster": {"chief": [host0:2222]}, "task": {"type": "chief", "index": 0}}',
            '\'luster": {"chief": [host0:2222]}, "task"\': Expecting value: line 1 column 24 '
            "(char 23)",
        ),
    ],
)
def test_a_tf_config_without_json_is_quoted(text, message, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", text)
    assert harness.refusal(ValueError, tf_config.read_tf_config) == (
        f"TF_CONFIG is no JSON, at {message}. It must be an object {EXAMPLE}. Unset it to train in "
        "one process."
    )


@pytest.mark.usefixtures("installed")
@pytest.mark.parametrize("text", ["[]", "{'task': 1}"])
def test_every_class_of_tensorflow_names_a_wrong_tf_config(text, tmp_path, monkeypatch):
    """These are classes of tensorflow-estimator, and of strategies with several workers."""
    monkeypatch.setenv("TF_CONFIG", text)
    for read in (
        tf.estimator.RunConfig,
        tf.compat.v1.estimator.RunConfig,
        lambda: tf.estimator.Estimator(lambda features: None, str(tmp_path)),
        lambda: tf.estimator.LinearRegressor([], str(tmp_path)),
        lambda: tf.distribute.cluster_resolver.TFConfigClusterResolver().cluster_spec(),
        tf.distribute.MultiWorkerMirroredStrategy,
    ):
        message = harness.refusal(ValueError, read)
        assert message.startswith("TF_CONFIG" + (": it is []" if text == "[]" else " is no JSON"))
        assert message.endswith("Unset it to train in one process.")


READERS = {
    "TPUConfig": ee.TPUConfig,
    "RunConfig": ee.RunConfig,
    "TPUEstimator": lambda: ee.TPUEstimator(
        harness.gradient_model_fn(["x"]), config=StockRunConfig(), use_tpu=False
    ),
    "train_and_evaluate": lambda: ee.train_and_evaluate(None, None, None),
}


@pytest.mark.parametrize("reader", READERS)
def test_every_reader_names_a_wrong_tf_config(reader, monkeypatch):
    bad = cluster(index=0.5)
    monkeypatch.setenv("TF_CONFIG", json.dumps(bad))
    assert harness.refusal(ValueError, READERS[reader]) == "TF_CONFIG: " + INDEX % "0.5"


ACCEPTED = [
    {},
    {"cluster": {}},
    {"task": {}},
    {"task": TASK},
    {"task": {"type": "worker", "index": "0"}},
    {"environment": "cloud", "job": {"args": ["--x"]}, "rpc_layer": "grpc"},
    {"service": {"tpu_worker_job_name": "w"}, "session_master": None, "model_dir": "/m"},
    cluster(),
    cluster(index="0"),
    cluster(index=0.0),
    cluster(tasks=["b:2", "[2001:db8::2]:2222", "10.0.0.7:65535"]),
    cluster(tasks={"0": "b:2", "7": "b:3"}),
    cluster(tasks={"5": "b:2"}, type="chief"),
    cluster(tasks=[], type="chief"),
    cluster("ps", ["b:2"], type="ps"),
    cluster("evaluator", ["a:1"], type="chief"),
    cluster(type="evaluator", index=3),
    {"cluster": {"master": ["a:1"], "ps": ["b:2"]}, "task": {"type": "master", "index": 0}},
    {"cluster": {"chief": ["a:1"]}, "task": {"type": "chief", "index": 0}},
]


@pytest.mark.parametrize("config", ACCEPTED)
def test_a_tf_config_that_stock_accepts_is_accepted(config, monkeypatch):
    monkeypatch.setenv("TF_CONFIG", json.dumps(config))
    assert tf_config.read_tf_config() == config
    ours, stock = ee.RunConfig(), LocalRunConfig()
    for name in ("task_type", "task_id", "cluster_spec", "num_ps_replicas", "is_chief", "service"):
        assert getattr(ours, name) == getattr(stock, name)


def test_tf_config_need_not_be_set(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert tf_config.read_tf_config() == {}
    assert isinstance(ee.RunConfig(model_dir="/m").replace(tf_random_seed=3), ee.RunConfig)
    assert ee.RunConfig(tpu_config=ee.TPUConfig(3)).tpu_config.iterations_per_loop == 3
