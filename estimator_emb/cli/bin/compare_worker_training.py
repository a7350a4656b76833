"""Starts and records the training of a model directory on one of the two sides."""

import math
import os

import tensorflow as tf


class TrainingOfSide(tf.compat.v1.train.SessionRunHook):
    """A hook that records the training of a model directory, in all calls of `train`."""

    def __init__(self, watch, number):
        self.made = self.step = 0
        self._watch = watch
        self._number = number
        self._record = watch.record
        self._every_step = watch.given["every_step"]
        self._saved_step = None
        self._spec = None

    def prepare(self, spec):
        self._spec = spec
        scaffold = spec.scaffold
        before = scaffold.init_fn

        def initialize(session):
            if before is not None:
                before(session)
            self._start(session)

        # TensorFlow calls it after the initializers if there is no checkpoint to restore.
        scaffold._init_fn = initialize

    def begin(self):
        loss = self._spec.loss
        # On several emulated cores, spec.loss is the first core's loss.
        means = tf.compat.v1.get_collection("estimator_emb/loss_of_all_cores")
        self._loss = means[-1] if means else loss
        self._global_step = tf.compat.v1.train.get_global_step()
        random = _random_ops([self._spec.train_op, loss])
        self._record.add("training", number=self._number, random=random)

    def before_run(self, run_context):
        return tf.compat.v1.train.SessionRunArgs(self._loss)

    def after_run(self, run_context, run_values):
        self.made += 1
        self.step = int(run_context.session.run(self._global_step))
        due = self._every_step or self.made & (self.made - 1) == 0
        self._record.add(
            "step",
            number=self._number,
            step=self.step,
            loss=float(run_values.results),
            saved=self._save(run_context.session, f"step-{self.step}") if due else None,
        )
        if due:
            self._saved_step = self.step

    def end(self, session):
        if self.made and self._saved_step != self.step:
            self._saved_step = self.step
            path = self._save(session, f"step-{self.step}")
            self._record.add("saved", number=self._number, step=self.step, saved=path)

    def _save(self, session, name):
        path = os.path.join(self._record.saved, f"{self._number}-{name}")
        return self._spec.scaffold.saver.save(
            session, path, write_meta_graph=False, write_state=False
        )

    def _start(self, session):
        own = self._save(session, "own")
        start, path = self._watch.start_of(self._number), own
        if start is not None:
            path = self._given(start, own)
            self._spec.scaffold.saver.restore(session, path)
            for file in tf.io.gfile.glob(f"{own}.*"):
                tf.io.gfile.remove(file)
        reader = tf.train.load_checkpoint(path)
        types_of = reader.get_variable_to_dtype_map()
        size = sum(
            math.prod(shape) * (types_of[name].size or 1)
            for name, shape in reader.get_variable_to_shape_map().items()
        )
        if self._every_step is None:
            self._every_step = size * self._watch.given["steps"] <= 2 << 30
        if reader.has_tensor("global_step"):
            self.step = int(reader.get_tensor("global_step"))
        self._record.add(
            "start",
            number=self._number,
            saved=path,
            every_step=self._every_step,
            unsaved=_unsaved(session.graph, reader),
        )

    def _given(self, start, own):
        """Returns a checkpoint of the variables of `own`, with the values of `start` by name."""
        ours, theirs = (tf.train.load_checkpoint(path) for path in (own, start))
        shapes, their_shapes = (one.get_variable_to_shape_map() for one in (ours, theirs))
        dtypes, their_dtypes = (one.get_variable_to_dtype_map() for one in (ours, theirs))
        matching = self._watch.names.match(shapes, their_shapes)
        source = {
            name: other
            for name, other, _ in matching.pairs
            if list(shapes[name]) == list(their_shapes[other])
            and dtypes[name] == their_dtypes[other]
        }
        if shapes == their_shapes and all(name == source.get(name) for name in shapes):
            return start
        folder = os.path.join(self._record.saved, f"{self._number}-parts")
        parts = []
        for name in sorted(shapes):
            given = name in source
            value = theirs.get_tensor(source[name]) if given else ours.get_tensor(name)
            parts.append(os.path.join(folder, str(len(parts))))
            with tf.Graph().as_default(), tf.compat.v1.Session() as session:
                tensor = tf.compat.v1.placeholder(dtypes[name], shapes[name])
                save = tf.raw_ops.SaveV2(
                    prefix=parts[-1], tensor_names=[name], shape_and_slices=[""], tensors=[tensor]
                )
                session.run(save, {tensor: value})
        path = os.path.join(self._record.saved, f"{self._number}-start")
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            merge = tf.raw_ops.MergeV2Checkpoints(
                checkpoint_prefixes=parts, destination_prefix=path, delete_old_dirs=True
            )
            session.run(merge)
        return path


def _unsaved(graph, reader):
    found = []
    with graph.as_default():
        for variable in tf.compat.v1.trainable_variables():
            part = getattr(variable, "_save_slice_info", None)
            name = part.full_name if part is not None else variable.op.name
            if not reader.has_tensor(name):
                found.append(name)
    return sorted(set(found))


def _random_ops(fetches):
    seen, found = set(), {}
    waiting = [getattr(fetch, "op", fetch) for fetch in fetches]
    while waiting:
        op = waiting.pop()
        if op.name in seen:
            continue
        seen.add(op.name)
        draws = ("Random", "StatelessRandom", "TruncatedNormal", "Multinomial", "Parameterized")
        if op.type.startswith(draws) and op.type != "RandomShuffleQueueV2":
            found.setdefault(op.type, op.name)
        waiting += [tensor.op for tensor in op.inputs]
        waiting += op.control_inputs
    return [f"{kind} ({name})" for kind, name in sorted(found.items())]
