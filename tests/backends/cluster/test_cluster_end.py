"""The processes of a cluster end together, and name the processes for which they wait."""

import json
import signal
import socket
import threading
import time
import types

import harness
import id_program
import processes
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.backends.cluster import ending, tasks, training, waiting
from estimator_emb.catalog import environment
from estimator_emb.compat.internals.estimators import TrainingExecutor
from estimator_emb.spec import options

v1 = tf.compat.v1


@pytest.fixture
def cluster():
    """A cluster with servers in this process. Worker 1 and server 1 are listed but never start."""
    spec = tf.train.ClusterSpec(processes.addresses(chief=1, worker=2, ps=2))
    config = tf.compat.v1.ConfigProto(device_count={"GPU": 0})
    servers = {
        job: tf.distribute.Server(spec, job, 0, config=config) for job in ("chief", "worker", "ps")
    }
    return spec, {job: server.target for job, server in servers.items()}, servers


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    """Lets a slow machine answer late. A test that waits for a time limit sets it itself."""
    monkeypatch.setattr(ending, "_FOR_CHIEF_TO_HEAR", 0.2)
    monkeypatch.setattr(ending, "_FOR_ANSWER", processes.HANGS)
    monkeypatch.setattr(ending, "_FOR_LAST_STEP", processes.HANGS)
    monkeypatch.setattr(tasks, "_FOR_CONNECTION", 60.0)


def in_thread(function, *args):
    thread = threading.Thread(target=function, args=args, daemon=True)
    thread.start()
    return thread


def test_servers_end_after_the_last_step_of_the_workers(cluster, said):
    """The chief tells the worker, waits until it leaves, and then tells the server."""
    spec, targets, _ = cluster
    # A `Member` listens to the chief. It is also a hook that stops the worker's training.
    worker, server = ending.Member("worker", 0), ending.Member("ps", 0)
    worker.after_create_session(None, None)
    worker.listen(targets["worker"])
    server.listen(targets["ps"])
    serving, step = in_thread(server.wait), v1.train.SessionRunContext(None, None)
    time.sleep(0.2)
    worker.after_run(step, None)  # A step ends, and the chief has said nothing yet.
    assert serving.is_alive() and not worker.is_over() and not step.stop_requested
    chief = in_thread(ending.end_all, targets["chief"], spec)
    processes.until(worker.is_over)
    worker.after_run(step, None)
    assert step.stop_requested
    # The worker is still in its last step. The server asks each second whether all is over.
    time.sleep(1.3)
    assert chief.is_alive() and serving.is_alive() and not server.is_over()
    worker.leave()
    chief.join(processes.HANGS)
    serving.join(processes.HANGS)
    assert not chief.is_alive() and not serving.is_alive()
    assert said() == ["Training is over: this parameter server ends."]


@pytest.mark.parametrize("begun", [False, True])
def test_a_worker_that_makes_no_further_step_ends(begun, cluster, said, monkeypatch):
    """It ends at once before its first step (not `begun`), else after the time for a last step."""
    spec, targets, _ = cluster
    statuses = []
    monkeypatch.setattr(tasks, "end_process", statuses.append)  # Instead of an exit.
    if begun:
        monkeypatch.setattr(ending, "_FOR_LAST_STEP", 0.5)
    worker = ending.Member("worker", 0)
    worker.begun = begun
    worker.listen(targets["worker"])
    ending.end_all(targets["chief"], spec)  # No Member listens on server 0, so it keeps running.
    processes.until(lambda: statuses)
    assert statuses == [0]
    why = "'s last step does not end" if begun else " has made no step"
    over = f"Training is over. This worker{why}: this process ends."
    worker.end_late("it is late")  # As for a worker that starts after the end.
    late = "Training is over: it is late. This process ends."
    assert said() == [over, late] and statuses == [0, 0]


def test_a_worker_that_does_not_answer_is_not_waited_for(cluster, caplog, monkeypatch):
    spec, targets, _ = cluster
    monkeypatch.setattr(ending, "_FOR_ANSWER", 0.5)
    monkeypatch.setattr(ending, "_FOR_LAST_STEP", 0.5)  # The chief waits for 0.5 + 0.5 = 1 s.
    ending.end_all(targets["chief"], spec)  # No Member listens on worker 0.
    address = spec.task_address("worker", 0)
    said = f"/job:worker/task:0 at {address} has not answered for 1 s: it is not waited for."
    processes.until(lambda: said in harness.said(caplog))


def test_train_and_evaluate_ends_a_server(tmp_path, monkeypatch):
    """In stock tensorflow-estimator, parameter servers run forever."""
    cluster = processes.addresses(chief=1, ps=1)
    estimators, returned = {}, []
    for job in cluster:
        task = {"type": job, "index": 0}
        monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": cluster, "task": task}))
        estimators[job] = id_program.make(tmp_path, use_tpu=False)
    input_fn = id_program.input_of(64)

    def train(job):
        specs = ee.TrainSpec(input_fn, max_steps=3), ee.EvalSpec(input_fn, steps=1)
        try:
            returned.append((job, ee.train_and_evaluate(estimators[job], *specs)))
        except SystemExit as end:
            returned.append((job, f"status {end.code}"))

    server = in_thread(train, "ps")
    train("chief")
    server.join(processes.HANGS)
    assert sorted(returned) == [("chief", None), ("ps", "status 0")]
    assert harness.last_step(tmp_path) == 3
    # The threads that watch for absent tasks end.
    processes.until(lambda: not any("(_watch)" in one.name for one in threading.enumerate()))
    # A server that starts late ends if the checkpoint, of step 3, is of max_steps (`last`).
    for last, is_over in ((None, False), (4, False), (3, True)):
        specs = ee.TrainSpec(input_fn, max_steps=last), ee.EvalSpec(input_fn)
        late = training._Executor(estimators["ps"], *specs)
        assert late._is_over() == late._member.is_over() == is_over


@pytest.mark.parametrize("job", ["worker", "master"])
def test_a_trainer_says_when_it_has_trained(job, tmp_path, monkeypatch):
    """A worker tells the chief that it leaves. A master, an older kind of chief, ends all tasks."""
    trained, input_fn = [], id_program.input_of(16)
    monkeypatch.setattr(TrainingExecutor, f"run_{job}", lambda self: trained.append(self))
    specs = ee.TrainSpec(input_fn, max_steps=1), ee.EvalSpec(input_fn)
    executor = training._Executor(id_program.make(tmp_path, use_tpu=False), *specs)
    getattr(executor, f"run_{job}")()
    assert trained == [executor] and executor._watch._stopped.is_set()
    leaves, said = executor._member._left.is_set(), executor._end_of_training()
    # `said`: what a chief or a master has written for the other tasks.
    assert (leaves, said != "") == (job == "worker", job == "master")
    # A hook stops a worker when the chief ends the training.
    assert (executor._member in executor._train_hooks) == leaves


def test_train_and_evaluate_without_a_cluster_acts_like_stock(tmp_path, monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    monkeypatch.setenv(environment.WAIT_LIMIT.name, "invalid")  # Only a cluster waits.
    estimator = id_program.make(tmp_path, use_tpu=False)
    train_spec = ee.TrainSpec(id_program.input_of(16), max_steps=1)
    eval_spec = ee.EvalSpec(id_program.input_of(16), steps=1)
    with pytest.raises(TypeError, match=r"^`eval_spec` must have type `tf.estimator.EvalSpec`"):
        ee.train_and_evaluate(estimator, train_spec, None)
    with pytest.raises(TypeError, match=r"^`estimator` must have type `tf.estimator.Estimator`"):
        ee.train_and_evaluate("one", train_spec, eval_spec)
    metrics, exports = ee.train_and_evaluate(estimator, train_spec, eval_spec)
    assert metrics["global_step"] == 1 and exports == []


def test_tasks_that_refuse_connections_are_away():
    with socket.create_server(("localhost", 0)) as server:
        here = f"localhost:{server.getsockname()[1]}"
        gone = processes.addresses(ps=1)["ps"][0]
        spec = tf.train.ClusterSpec({"ps": [gone, here, "no.such.host.invalid:1"], "chief": [here]})
        found = tasks.tasks_of(spec, "ps", "chief", "master")
        assert [str(task) for task in found] == [
            f"/job:ps/task:0 at {gone}",
            f"/job:ps/task:1 at {here}",
            "/job:ps/task:2 at no.such.host.invalid:1",
            f"/job:chief/task:0 at {here}",
        ]
        assert tasks.away(found) == [found[0], found[2]]


@pytest.fixture
def watch(monkeypatch, caplog, said):
    """Returns a function of a job. It makes `judge`: (absent hosts, second) -> logged messages."""
    monkeypatch.delenv(environment.WAIT_LIMIT.name, raising=False)
    # The hosts are called c (the chief's), w (the worker's), p and q (the servers').
    spec = tf.train.ClusterSpec({"chief": ["c:1"], "worker": ["w:1"], "ps": ["p:1", "q:2"]})

    def end(status):
        raise SystemExit(status)

    monkeypatch.setattr(tasks, "end_process", end)

    def make(job, is_over=lambda: False):
        watch = waiting.AbsenceWatch(spec, job, is_over)
        needed = {task.address[0]: task for task in watch._tasks}

        def judge(away, second):
            watch._judge([needed[one] for one in away], 1000.0 + second)
            logged = said()
            caplog.clear()
            return logged

        judge.needed = "".join(needed)
        judge.watch = watch
        return judge

    return make


def test_absence_watch_knows_the_tasks_that_a_job_needs(watch):
    needed = {"chief": "pq", "master": "pq", "worker": "pqc", "ps": "c"}  # Hosts, as in `watch`.
    assert {job: watch(job).needed for job in needed} == needed


def test_absent_tasks_are_named_within_a_minute_and_again(watch):
    judge = watch("worker")
    assert judge("p", 0) == judge("p", 29) == []  # Logged after 30 s, and then every 60 s.
    said = "/job:ps/task:0 at p:1 has been away for {} s"
    assert judge("pc", 31) == [said.format(31) + "."]
    assert judge("pc", 60) == []
    of_chief = "/job:chief/task:0 at c:1 has been away for {} s."
    assert judge("pc", 62) == [f"{said.format(62)}; {of_chief.format(31)}"]
    assert judge("c", 100) == ["/job:ps/task:0 at p:1 is there, after 100 s."]
    assert judge("pc", 121) == []
    assert judge("pc", 122) == [of_chief.format(91)]
    assert judge("", 123) == ["/job:chief/task:0 at c:1 is there, after 92 s."]
    assert judge("", 300) == []


def test_wait_limit_ends_the_process(watch, monkeypatch, caplog):
    monkeypatch.setenv(environment.WAIT_LIMIT.name, "12.5")
    judge = watch("chief")
    for away, second in (("q", 0), ("q", 12), ("", 13), ("q", 14), ("q", 26)):
        assert judge(away, second) == []  # q is away for 12 s, twice.
    with pytest.raises(SystemExit) as ended:
        judge("q", 27)
    assert ended.value.code == 1
    assert harness.said(caplog) == [
        "/job:ps/task:1 at q:2 has been away for 13 s, and ESTIMATOR_EMB_WAIT_LIMIT=12.5: this "
        "process ends."
    ]


@pytest.mark.parametrize(("job", "seconds"), [("worker", 30), ("ps", 600)])  # Servers wait longer.
def test_an_absent_chief_may_mean_that_training_is_over(job, seconds, watch):
    asked = []  # Once for each question whether training is over. The answer is yes.
    judge = watch(job, lambda: asked.append(True) or True)
    judge("c", 0)
    judge("c", seconds - 1)
    assert not asked
    assert judge("c", seconds) == [] and asked
    assert judge.watch._stopped.is_set()


def test_a_watch_connects_to_tasks_until_it_is_stopped(monkeypatch):
    """No chief listens. So the watch asks whether training is over, until the answer is True."""
    monkeypatch.setattr(waiting, "_BETWEEN_KNOCKS", 0.01)
    monkeypatch.setattr(waiting, "_UNTIL_OVER", {"ps": 0.0})
    answers = [None, True, False]  # The last answer is given first.
    cluster = tf.train.ClusterSpec(processes.addresses(chief=1))
    waiting.AbsenceWatch(cluster, "ps", answers.pop).start()
    (thread,) = [one for one in threading.enumerate() if "(_watch)" in one.name]
    assert thread.daemon
    thread.join(processes.HANGS)
    assert answers == [None]


@pytest.mark.parametrize("text", ["no", "0", "-1", "nan", "inf"])
def test_refuses_an_invalid_wait_limit(text, monkeypatch):
    monkeypatch.setenv(environment.WAIT_LIMIT.name, text)
    assert harness.refusal(ValueError, options.asked_wait_limit) == (
        "Environment variable ESTIMATOR_EMB_WAIT_LIMIT must be a positive number of seconds; got "
        f"'{text}'."
    )


def test_end_process_writes_the_log_and_the_output_first(monkeypatch):
    done = []
    stream = types.SimpleNamespace(flush=lambda: done.append("output"))
    monkeypatch.setattr("sys.stdout", stream)
    monkeypatch.setattr("sys.stderr", stream)
    monkeypatch.setattr("logging.shutdown", lambda: done.append("log"))
    monkeypatch.setattr("os._exit", done.append)
    tasks.end_process(3)
    assert done == ["log", "output", "output", 3]


@pytest.mark.slow
def test_a_cluster_ends_when_its_chief_is_done(tmp_path):
    """A killed chief ends no process: it is reported missing (here after 3 s). Late tasks end.

    A process that ends well prints "goes on", except a server, which exits before that.
    """
    model, jobs = tmp_path / "model", {"chief": 1, "worker": 1, "ps": 2}
    arguments = [str(model), "100000"]
    program = """
    from estimator_emb.backends.cluster import ending, waiting

    ending._FOR_ANSWER = 600.0
    waiting._UNTIL_SAID, waiting._BETWEEN_KNOCKS = 3.0, 1.0
    """
    program += id_program.UNTIL_THE_END
    with processes.Processes(tmp_path, program, arguments, jobs) as cluster:
        servers = [cluster.start("ps", 0), cluster.start("ps", 1)]
        chief, worker = cluster.start("chief"), cluster.start("worker")
        cluster.until(lambda: harness.last_step(model))
        before = {one: len(one.log.read_text()) for one in [*servers, worker]}
        chief.send_signal(signal.SIGKILL)
        chief.wait()
        address = cluster.cluster["chief"][0]
        absence = f"/job:chief/task:0 at {address} has been away for "
        cluster.until(
            lambda: all(absence in one.log.read_text()[end:] for one, end in before.items())
        )
        assert all(one.poll() is None for one in before), cluster.logs()

        arguments[1] = str(harness.last_step(model) + 1)  # A new chief trains one more step.
        cluster.ended(cluster.start("chief"))
        cluster.ended(*servers)
        if ": this process ends." not in worker.log.read_text():  # Else it ends without "goes on".
            cluster.ended(worker)
        for server in servers:
            assert "Training is over: this parameter server ends." in server.log.read_text()

        cluster.ended(cluster.start("worker"))
