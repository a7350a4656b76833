"""Runs a peer of `embedding_step.py` in its own process.

    python benchmarks/peers.py PEER WORKLOAD FILE

WORKLOAD is a `Workload` as JSON. The process first runs CHECK_STEPS steps on the first batch and
stores two tables in FILE. Then it reads numbers of steps from stdin, each on its own line. For each
it runs that many steps, and prints the wall and CPU milliseconds of a step.
"""

import functools
import importlib.util
import json
import resource
import sys
import time
from collections.abc import Callable

import numpy as np
from workload import (
    BATCHES,
    BETA1,
    BETA2,
    CHECK_STEPS,
    EPSILON,
    INITIAL_ACCUMULATOR,
    LEARNING_RATE,
    Workload,
)

Step = Callable[[int], None]
"""Runs one step on the batch of that index."""
Table = Callable[[int], np.ndarray]
"""The present weights of the table of that index."""


class Unsupported(Exception):
    """Raised by a peer that cannot do this workload."""


def all_ids(work: Workload) -> np.ndarray:
    """Returns the ids of all tables, int64 [BATCHES, tables, batch, ids]."""
    return np.stack([work.ids_of(table) for table in range(work.tables)], 1)


def all_gradients(work: Workload) -> np.ndarray:
    """Returns the gradients of all activations, float32 [tables, batch, dimension]."""
    return np.stack([work.gradient_of(table) for table in range(work.tables)])


class _Graph:
    """The inputs and the given gradients that peers in v1 graphs share.

    Inputs are in local variables, so that no peer pays for a pipeline and TensorFlow folds nothing
    into a constant. A variable holds the inputs of all tables, and each table gets its part without
    a copy. A pipeline also gives a program all features at once.
    """

    def __init__(self, work: Workload):
        import tensorflow as tf

        tf.compat.v1.disable_eager_execution()
        tf.compat.v1.logging.set_verbosity("ERROR")
        self.tf, self.work = tf, work
        self.index = tf.compat.v1.placeholder(tf.int64, [])
        self._fed: list[tuple] = []

    def local(self, value: np.ndarray):
        tf = self.tf
        fed = tf.compat.v1.placeholder(value.dtype, value.shape)
        variable = tf.compat.v1.Variable(
            fed, trainable=False, collections=["benchmark"], use_resource=True
        )
        self._fed.append((variable.initializer, fed, value))
        return variable.read_value()

    def dense(self, table: int):
        """Returns the ids of a table, int64 [batch], or [batch, ids] for several ids."""
        return self._dense[table]

    def sparse(self, table: int):
        indices, shape = self._places
        return self.tf.SparseTensor(indices, self._values[table], shape)

    def gradient(self, table: int):
        return self._gradients[table]

    @functools.cached_property
    def _dense(self):
        ids = all_ids(self.work)
        return self.tf.unstack(self.local(ids[..., 0] if self.work.ids == 1 else ids)[self.index])

    @functools.cached_property
    def _values(self):
        ids = all_ids(self.work).reshape(BATCHES, self.work.tables, -1)
        return self.tf.unstack(self.local(ids)[self.index])

    @functools.cached_property
    def _places(self):
        shape = np.array([self.work.batch, self.work.ids])
        return self.local(self.work.indices()), self.local(shape)

    @functools.cached_property
    def _gradients(self):
        return self.tf.unstack(self.local(all_gradients(self.work)))

    def initial(self, shape, dtype=None, partition_info=None):
        # A placeholder keeps TensorFlow from folding it into a constant.
        tf = self.tf
        unknown = tf.compat.v1.placeholder_with_default(tf.constant(1, tf.int64), [])
        places = tf.range(unknown * 0, int(np.prod(shape)), dtype=tf.int64) % 1009
        return tf.reshape(tf.cast(places, tf.float32) * np.float32(1e-4), shape)

    def optimizer(self):
        train = self.tf.compat.v1.train
        if self.work.optimizer == "adam":
            return train.AdamOptimizer(LEARNING_RATE, BETA1, BETA2, EPSILON)
        return train.AdagradOptimizer(LEARNING_RATE, INITIAL_ACCUMULATOR)

    def minimize(self, tables, activations):
        """Adds a step of a v1 optimizer for the given gradients of the activations."""
        tf = self.tf
        gradients = [self.gradient(table) for table in range(self.work.tables)]
        slopes = tf.gradients(activations, tables, grad_ys=gradients)
        apply = self.optimizer().apply_gradients(zip(slopes, tables, strict=True))
        return apply, self.used(activations)

    def used(self, activations):
        """Returns a scalar to fetch that needs every activation.

        An op with a side effect takes the activations. If only control dependencies needed them,
        graph optimizers would remove ops without side effects, even whole lookups of other peers.
        """
        taken = self.tf.raw_ops.Assert(condition=True, data=activations)
        with self.tf.control_dependencies([taken]):
            return self.tf.identity(0.0)

    def start(self, fetched, tables) -> tuple[Step, Table]:
        tf = self.tf
        session = tf.compat.v1.Session()
        for initializer, fed, value in self._fed:
            session.run(initializer, {fed: value})
        session.run(tf.compat.v1.global_variables_initializer())
        session.run(tf.compat.v1.local_variables_initializer())
        step = session.make_callable(fetched, feed_list=[self.index])
        return step, lambda table: session.run(tables[table])


def ours(work: Workload, form: str = "dense") -> tuple[Step, Table]:
    """Builds the graph in which `TPUEstimator` trains on the host."""
    import estimator_emb as ee

    graph = _Graph(work)
    tf = graph.tf
    keys = [f"f{table:03d}" for table in range(work.tables)]
    if work.optimizer == "adam":

        def rate(step):
            step = tf.cast(step, tf.float32) + 1.0
            return LEARNING_RATE * tf.sqrt(1.0 - BETA2**step) / (1.0 - BETA1**step)

        parameters = ee.AdamParameters(LEARNING_RATE, BETA1, BETA2, EPSILON, sum_inside_sqrt=False)
    else:
        rate = None
        parameters = ee.AdagradParameters(LEARNING_RATE, INITIAL_ACCUMULATOR)

    def model_fn(features, labels, mode, params):
        activations = [features[key] for key in keys]
        gradients = [graph.gradient(table) for table in range(work.tables)]
        slopes = tf.gradients(activations, tf.compat.v1.trainable_variables(), grad_ys=gradients)
        step = tf.compat.v1.train.get_global_step()
        with tf.control_dependencies([slope for slope in slopes if slope is not None]):
            train_op = step.assign_add(1, read_value=False)
        return ee.TPUEstimatorSpec(mode, loss=graph.used(activations), train_op=train_op)

    estimator = ee.TPUEstimator(
        model_fn,
        config=ee.RunConfig(),
        use_tpu=False,
        train_batch_size=work.batch,
        embedding_config_spec=ee.EmbeddingConfigSpec(
            feature_to_config_dict={key: ee.FeatureConfig(key) for key in keys},
            table_to_config_dict={
                key: ee.TableConfig(
                    work.vocabulary, work.dimension, graph.initial, learning_rate_fn=rate
                )
                for key in keys
            },
            optimization_parameters=parameters,
        ),
    )
    read = graph.dense if form == "dense" and work.ids == 1 else graph.sparse
    features = {key: read(table) for table, key in enumerate(keys)}
    tf.compat.v1.train.create_global_step()
    spec = estimator._call_model_fn(features, None, ee.ModeKeys.TRAIN, estimator.config)
    variables = {variable.op.name: variable for variable in tf.compat.v1.global_variables()}
    return graph.start([spec.train_op, spec.loss], [variables[key] for key in keys])


def ours_native(work: Workload) -> tuple[Step, Table]:
    """Builds the graph of `ours` with native kernels, if ESTIMATOR_EMB_NATIVE allows them."""
    if importlib.util.find_spec("estimator_emb.native") is None:
        raise Unsupported("there are no native kernels")
    started = ours(work)
    import tensorflow as tf

    ops = {op.type for op in tf.compat.v1.get_default_graph().get_operations()}
    if "HostTablesLookup" not in ops:
        raise Unsupported("the native kernels are not used here")
    return started


def ours_sparse(work: Workload) -> tuple[Step, Table]:
    if work.ids > 1:
        raise Unsupported("with several ids, 'ours' reads sparse ids already")
    return ours(work, "sparse")


def feature_column(work: Workload) -> tuple[Step, Table]:
    graph = _Graph(work)
    tf = graph.tf
    columns = [
        tf.feature_column.embedding_column(
            tf.feature_column.categorical_column_with_identity(f"f{table:03d}", work.vocabulary),
            work.dimension,
            "mean",
            graph.initial,
        )
        for table in range(work.tables)
    ]
    activations = []
    for table, column in enumerate(columns):
        ids = tf.expand_dims(graph.dense(table), 1) if work.ids == 1 else graph.sparse(table)
        with tf.compat.v1.variable_scope(f"t{table}"):
            features = {column.categorical_column.key: ids}
            activations.append(tf.compat.v1.feature_column.input_layer(features, column))
    tables = tf.compat.v1.trainable_variables()
    return graph.start(graph.minimize(tables, activations), tables)


def _v1_tables(graph: _Graph):
    return [
        graph.tf.compat.v1.get_variable(
            f"t{table}",
            [graph.work.vocabulary, graph.work.dimension],
            initializer=graph.initial,
            use_resource=True,
        )
        for table in range(graph.work.tables)
    ]


def safe_lookup(work: Workload) -> tuple[Step, Table]:
    graph = _Graph(work)
    tables = _v1_tables(graph)
    activations = [
        graph.tf.nn.safe_embedding_lookup_sparse(variable, graph.sparse(table), combiner="mean")
        for table, variable in enumerate(tables)
    ]
    return graph.start(graph.minimize(tables, activations), tables)


def plain_gather(work: Workload) -> tuple[Step, Table]:
    graph = _Graph(work)
    tf = graph.tf
    tables = _v1_tables(graph)
    activations = [tf.gather(variable, graph.dense(table)) for table, variable in enumerate(tables)]
    if work.ids > 1:
        activations = [tf.reduce_mean(rows, axis=1) for rows in activations]
    return graph.start(graph.minimize(tables, activations), tables)


def _keras(work: Workload, keras) -> tuple[Step, Table]:
    import tensorflow as tf

    class Initial(keras.initializers.Initializer):
        def __call__(self, shape, dtype=None, **kwargs):
            return tf.constant(work.initial())

    layers = [
        keras.layers.Embedding(work.vocabulary, work.dimension, embeddings_initializer=Initial())
        for _ in range(work.tables)
    ]
    for layer in layers:
        layer.build(None)
    tables = [layer.weights[0] for layer in layers]
    if work.optimizer == "adam":
        optimizer = keras.optimizers.Adam(LEARNING_RATE, BETA1, BETA2, EPSILON)
    else:
        optimizer = keras.optimizers.Adagrad(LEARNING_RATE, INITIAL_ACCUMULATOR, epsilon=1e-10)
    optimizer.build(tables)
    ids = tf.Variable(all_ids(work), trainable=False)
    gradients = tf.Variable(all_gradients(work), trainable=False)

    @tf.function
    def run(index):
        with tf.GradientTape() as tape:
            activations = []
            for layer, batch in zip(layers, tf.unstack(ids[index]), strict=True):
                if work.ids == 1:
                    activations.append(layer(batch[:, 0]))
                else:
                    activations.append(tf.reduce_mean(layer(batch), axis=1))
        trained = [
            getattr(table, "value", table) if keras.__name__ == "keras" else table
            for table in tables
        ]
        slopes = tape.gradient(activations, trained, output_gradients=tf.unstack(gradients))
        if keras.__name__ == "keras":
            slopes = [_summed(slope) for slope in slopes]
        optimizer.apply_gradients(zip(slopes, tables, strict=True))
        return tf.add_n([activation[0, 0] for activation in activations])

    def step(index: int) -> None:
        run(tf.constant(index)).numpy()

    return step, lambda table: np.array(tables[table])


def _summed(slope):
    """Returns a sparse gradient with a single term for each row.

    The optimizers of Keras 3 (3.15.1) square each occurrence of a row by itself. Then a row that
    occurs twice gets a different accumulator than from the sum of its gradients.
    """
    import tensorflow as tf

    rows, places = tf.unique(slope.indices)
    values = tf.math.unsorted_segment_sum(slope.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, slope.dense_shape)


def tf_keras(work: Workload) -> tuple[Step, Table]:
    import tf_keras

    return _keras(work, tf_keras)


def keras3(work: Workload) -> tuple[Step, Table]:
    import keras

    if keras.__version__.startswith("2."):
        raise Unsupported(f"keras {keras.__version__} is no Keras 3")
    return _keras(work, keras)


def fbgemm(work: Workload) -> tuple[Step, Table]:
    import torch
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
        EmbeddingLocation,
        PoolingMode,
    )
    from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
        ComputeDevice,
        SplitTableBatchedEmbeddingBagsCodegen,
    )

    if work.optimizer == "adam":
        raise Unsupported("FBGEMM has no Adam on CPU")
    tables = SplitTableBatchedEmbeddingBagsCodegen(
        [(work.vocabulary, work.dimension, EmbeddingLocation.HOST, ComputeDevice.CPU)]
        * work.tables,
        optimizer=EmbOptimType.EXACT_ADAGRAD,
        learning_rate=LEARNING_RATE,
        eps=1e-10,
        pooling_mode=PoolingMode.MEAN,
    )
    for weights in tables.split_embedding_weights():
        weights.copy_(torch.from_numpy(work.initial()))
    for (accumulator,) in tables.split_optimizer_states():
        accumulator.fill_(INITIAL_ACCUMULATOR)
    indices = [torch.from_numpy(batch.reshape(-1)) for batch in all_ids(work)]
    offsets = torch.arange(0, work.tables * work.batch + 1, dtype=torch.int64) * work.ids
    gradient = torch.from_numpy(
        np.concatenate([work.gradient_of(table) for table in range(work.tables)], axis=1)
    )

    def step(index: int) -> None:
        tables(indices[index], offsets).backward(gradient)

    return step, lambda table: tables.split_embedding_weights()[table].detach().numpy()


def embedding_bag(work: Workload) -> tuple[Step, Table]:
    import torch

    bags = [
        torch.nn.EmbeddingBag(work.vocabulary, work.dimension, mode="mean", sparse=True)
        for _ in range(work.tables)
    ]
    with torch.no_grad():
        for bag in bags:
            bag.weight.copy_(torch.from_numpy(work.initial()))
    weights = [bag.weight for bag in bags]
    if work.optimizer == "adam":
        optimizer = torch.optim.SparseAdam(weights, LEARNING_RATE, (BETA1, BETA2), EPSILON)
    else:
        optimizer = torch.optim.Adagrad(
            weights, LEARNING_RATE, initial_accumulator_value=INITIAL_ACCUMULATOR
        )
    ids = [torch.from_numpy(work.ids_of(table)) for table in range(work.tables)]
    gradients = [torch.from_numpy(work.gradient_of(table)) for table in range(work.tables)]

    def step(index: int) -> None:
        optimizer.zero_grad(set_to_none=True)
        activations = [bag(table_ids[index]) for bag, table_ids in zip(bags, ids, strict=True)]
        torch.autograd.backward(activations, gradients)
        optimizer.step()

    return step, lambda table: weights[table].detach().numpy()


PEERS: dict[str, Callable[[Workload], tuple[Step, Table]]] = {
    "ours": ours,
    "ours (native)": ours_native,
    "ours (sparse ids)": ours_sparse,
    "feature_column": feature_column,
    "safe lookup": safe_lookup,
    "plain gather": plain_gather,
    "tf-keras": tf_keras,
    "Keras 3": keras3,
    "FBGEMM": fbgemm,
    "EmbeddingBag": embedding_bag,
}
TORCH_PEERS = ("FBGEMM", "EmbeddingBag")


def main() -> None:
    name, work, file = sys.argv[1], Workload(**json.loads(sys.argv[2])), sys.argv[3]
    answers = sys.stdout
    sys.stdout = sys.stderr
    try:
        step, table = PEERS[name](work)
    except Unsupported as error:
        print(json.dumps({"unsupported": str(error)}), file=answers, flush=True)
        return
    for _ in range(CHECK_STEPS):
        step(0)
    np.savez(file, first=table(0), last=table(work.tables - 1))
    print(json.dumps({"checked": file}), file=answers, flush=True)
    for line in sys.stdin:
        steps = int(line)
        before, wall = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
        for index in range(steps):
            step(index % BATCHES)
        wall = time.perf_counter() - wall
        after = resource.getrusage(resource.RUSAGE_SELF)
        cpu = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
        print(
            json.dumps({"wall": wall / steps * 1e3, "cpu": cpu / steps * 1e3}),
            file=answers,
            flush=True,
        )


if __name__ == "__main__":
    main()
