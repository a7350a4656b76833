"""Runs one side of `estimator-emb compare`: python compare_worker.py FOLDER.

With stock tensorflow-estimator, an environment without this package must be able to run this file.
So it loads `compare_worker_training.py` and `comparison/name_pairs.py` by path, and nothing else of
this package. FOLDER/side.json says what to run:

  kind: 'ours' runs as `estimator-emb run` does, 'stock' runs with this interpreter alone.
  launch: keyword arguments of `legacy.launch.launch`, or {} for 'stock'.
  program: a file and its arguments, or '-m', a module and its arguments.
  steps: how many steps each model directory trains, and each evaluation takes.
  start: prefixes of the checkpoints that the model directories start from, in the order of their
    first training. [] if they start from their own initial values.
  all_start: whether all further model directories start from the last of these checkpoints.
  every_step: True saves the variables after every step. False saves them after steps 1, 2, 4, 8,
    ... and the last step. None means True if that takes at most 2 GB, else False.
  package: folder to import this package from, or None if the interpreter finds it.

The process writes an event per line to FOLDER/record.jsonl, and checkpoints to FOLDER/saved.
"""

import argparse
import functools
import importlib.util
import json
import os
import random
import runpy
import sys
import zlib

PACKAGE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SEED = 1
"""Seed of the random numbers of Python, NumPy and TensorFlow."""

MOST_PREDICTIONS = 1000
"""The most predictions that are compared for each call of `predict`."""


class Done(BaseException):
    """Raised to end a program that would train on after its last step."""


def main(folder):
    with open(os.path.join(folder, "side.json")) as file:
        given = json.load(file)
    record = Record(folder)
    if given["package"]:
        sys.path.append(given["package"])
    # Before TensorFlow is imported, because the import draws random numbers too.
    random.seed(SEED)
    if given["kind"] == "ours":
        try:
            from estimator_emb.version import __version__ as package
        except ModuleNotFoundError as error:
            record.add("refused", why=f"{sys.executable} has no module {error.name}")
            return 2
    import numpy as np
    import tensorflow as tf

    if given["kind"] == "stock" and not hasattr(tf, "estimator"):
        record.add(
            "refused",
            why=f"{sys.executable} has TensorFlow {tf.__version__}, without tf.estimator, which "
            "TensorFlow has up to 2.15",
        )
        return 2
    record.add(
        "environment",
        python=".".join(map(str, sys.version_info[:3])),
        tensorflow=tf.__version__,
        package=package if given["kind"] == "ours" else None,
    )
    random.seed(SEED)
    np.random.seed(SEED)
    tf.random.set_seed(SEED)
    Watch(given, record).install()
    try:
        return _run_ours(given) if given["kind"] == "ours" else _run_stock(given["program"])
    except Done:
        record.add("done", steps=given["steps"])
        return 0
    finally:
        record.add("end")


def _run_ours(given):
    from estimator_emb.cli import parsing, program_files
    from estimator_emb.legacy import launch

    try:
        program_files.check_program(argparse.Namespace(program=given["program"]))
    except parsing.WrongArguments as error:
        print(f"estimator-emb run: error: {error}", file=sys.stderr)
        return 2
    return launch.launch(given["program"], **given["launch"])


def _run_stock(command):
    program, *arguments = command
    if program == "-m":
        sys.argv[:] = arguments
        sys.path[0] = os.getcwd()
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
        return 0
    sys.argv[:] = command
    sys.path[0] = os.path.dirname(os.path.realpath(program))
    runpy.run_path(os.path.abspath(program), run_name="__main__")
    return 0


def load(file):
    """Loads a module of this package by its path, without importing the package."""
    name = f"estimator_emb_compare_{os.path.basename(file)}"
    spec = importlib.util.spec_from_file_location(name, os.path.join(PACKAGE, f"{file}.py"))
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


class Record:
    """The file of events. Each event is flushed, so that it survives a crash."""

    def __init__(self, folder):
        self.saved = os.path.join(folder, "saved")
        os.makedirs(self.saved, exist_ok=True)
        self._file = open(os.path.join(folder, "record.jsonl"), "a")  # noqa: SIM115

    def add(self, event, **values):
        print(json.dumps({"event": event, **values}, default=_plain), file=self._file, flush=True)


def _plain(value):
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    return value.tolist() if hasattr(value, "tolist") else str(value)


class Watch:
    """Patches tensorflow-estimator to record a program, end it early and fix its start."""

    def __init__(self, given, record):
        self.given = given
        self.record = record
        self.names = load("cli/comparison/name_pairs")
        self._new_training = load("cli/bin/compare_worker_training").TrainingOfSide
        self._trainings = {}
        """Model directory -> its training."""
        self._predictions = 0

    def install(self):
        import tensorflow as tf
        from tensorflow_estimator.python.estimator import estimator as estimators
        from tensorflow_estimator.python.estimator.tpu import tpu_estimator

        stock = estimators.Estimator
        classes = [stock, tpu_estimator.TPUEstimator]
        if self.given["kind"] == "ours":
            from estimator_emb.estimator import TPUEstimator

            classes.append(TPUEstimator)
            os.environ["ESTIMATOR_EMB_LOSS"] = "mean"
        for owner in classes:
            self._prepare_constructor(owner)
        self._watch_training(stock)
        self._watch_evaluation(stock)
        self._watch_prediction(stock)
        _seed_shuffles(tf.data.Dataset)

    def _prepare_constructor(self, owner):
        real = owner.__init__

        @functools.wraps(real)
        def constructor(estimator, *args, **kwargs):
            args = [self._prepared(value) for value in args]
            kwargs = {name: self._prepared(value) for name, value in kwargs.items()}
            real(estimator, *args, **kwargs)

        owner.__init__ = constructor

    def _prepared(self, value):
        from tensorflow_estimator.python.estimator import run_config

        if not isinstance(value, run_config.RunConfig):
            return value
        changes = {}
        if value.tf_random_seed is None:
            changes["tf_random_seed"] = SEED
        tpu_config = getattr(value, "tpu_config", None)
        if tpu_config is not None and tpu_config.iterations_per_loop != 1:
            changes["tpu_config"] = tpu_config._replace(iterations_per_loop=1)
        return value.replace(**changes) if changes else value

    def _watch_training(self, stock):
        watch, limit = self, self.given["steps"]
        real, real_with_spec = stock.train, stock._train_with_estimator_spec

        @functools.wraps(real)
        def train(self, input_fn, hooks=None, steps=None, max_steps=None, saving_listeners=None):
            training = watch._trainings.get(self.model_dir)
            made = training.made if training else 0
            if made >= limit and (max_steps is None or max_steps > training.step):
                raise Done
            left = limit - made
            if steps is not None and max_steps is None:
                steps = min(steps, left) if steps > 0 else steps
            elif max_steps is not None and steps is None:
                # Steps before the starting checkpoint do not count.
                first = training.step if training else watch._first_step()
                max_steps = min(max_steps, first + left) if max_steps > 0 else max_steps
            elif steps is None and not watch._must_say_steps(self):
                steps = left
            return real(self, input_fn, hooks, steps, max_steps, saving_listeners)

        @functools.wraps(real_with_spec)
        def train_with_spec(self, spec, worker_hooks, *args, **kwargs):
            if self.model_dir not in watch._trainings:
                number = len(watch._trainings)
                watch._trainings[self.model_dir] = watch._new_training(watch, number)
            training = watch._trainings[self.model_dir]
            training.prepare(spec)
            worker_hooks.insert(0, training)
            return real_with_spec(self, spec, worker_hooks, *args, **kwargs)

        stock.train, stock._train_with_estimator_spec = train, train_with_spec

    def start_of(self, number):
        start = self.given["start"]
        if number < len(start):
            return start[number]
        return start[-1] if start and self.given["all_start"] else None

    def _first_step(self):
        import tensorflow as tf

        start = self.start_of(len(self._trainings))
        if start is None:
            return 0
        reader = tf.train.load_checkpoint(start)
        return int(reader.get_tensor("global_step")) if reader.has_tensor("global_step") else 0

    def _must_say_steps(self, estimator):
        backend = getattr(estimator, "backend", None)
        return backend is not None and backend.request.use_tpu

    def _watch_evaluation(self, stock):
        watch, limit, real = self, self.given["steps"], stock.evaluate

        @functools.wraps(real)
        def evaluate(self, input_fn, steps=None, hooks=None, checkpoint_path=None, name=None):
            if steps is None:
                steps = None if watch._must_say_steps(self) else limit
            else:
                steps = min(steps, limit)
            result = real(self, input_fn, steps, hooks, checkpoint_path, name)
            metrics = {
                key: {"value": _plain(value), "type": str(getattr(value, "dtype", ""))}
                for key, value in (result or {}).items()
                if key != "global_step"
            }
            step = None if not result else int(result.get("global_step", -1))
            watch.record.add("evaluation", name=name, step=step, metrics=metrics)
            return result

        stock.evaluate = evaluate

    def _watch_prediction(self, stock):
        watch, real = self, stock.predict

        @functools.wraps(real)
        def predict(self, *args, **kwargs):
            number, watch._predictions = watch._predictions, watch._predictions + 1
            kept, count = [], 0
            predictions = real(self, *args, **kwargs)
            try:
                for one in predictions:
                    if count < MOST_PREDICTIONS:
                        kept.append(one)
                    count += 1
                    yield one
            finally:
                predictions.close()
                watch._save_predictions(number, kept, count)

        stock.predict = predict

    def _save_predictions(self, number, kept, count):
        import numpy as np

        arrays = {}
        for index, one in enumerate(kept):
            for key, value in (one if isinstance(one, dict) else {"": one}).items():
                value = np.asarray(value)
                if value.dtype.kind == "O":
                    value = np.array(
                        [x if isinstance(x, bytes) else str(x).encode() for x in value.flat], "S"
                    ).reshape(value.shape)
                arrays.setdefault(key, []).append((index, value))
        joined = {}
        for key, values in arrays.items():
            shapes = {(value.shape, value.dtype) for _, value in values}
            if len(shapes) == 1 and len(values) == len(kept):
                joined[key] = np.stack([value for _, value in values])
            else:
                joined.update({f"{key}[{index}]": value for index, value in values})
        path = os.path.join(self.record.saved, f"predictions-{number}.npz")
        # Names of arrays in an .npz file are file names, so they cannot contain '/'.
        keys = list(joined)
        np.savez(path, **{f"a{index}": joined[key] for index, key in enumerate(keys)})
        self.record.add("predictions", number=number, count=count, path=path, keys=keys)


def _seed_shuffles(dataset):
    """Seeds each unseeded `Dataset.shuffle` by the line of the program that calls it.

    TensorFlow would take the seed from the number of ops in the graph. This number depends on the
    TensorFlow version and on the number of cores.
    """
    import linecache

    real = dataset.shuffle
    packages = [
        os.path.dirname(os.path.abspath(sys.modules[name].__file__))
        for name in ("tensorflow", "tensorflow_estimator", "estimator_emb")
        if name in sys.modules
    ]

    def is_of_program(file):
        return not any(file.startswith(package + os.sep) for package in packages)

    @functools.wraps(real)
    def shuffle(self, buffer_size, seed=None, *args, **kwargs):
        if seed is None:
            frame = sys._getframe(1)
            while frame.f_back is not None and not is_of_program(frame.f_code.co_filename):
                frame = frame.f_back
            code = frame.f_code
            line = linecache.getline(code.co_filename, frame.f_lineno).strip()
            seed = (SEED + zlib.crc32(f"{code.co_name}: {line}".encode())) % 2**31
        return real(self, buffer_size, seed, *args, **kwargs)

    dataset.shuffle = shuffle


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
