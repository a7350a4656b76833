"""Writes a checkpoint like those of stock TensorFlow 2.15.1 on a TPU with several hosts.

    python tests/data/make_tpu_checkpoint.py FOLDER {div,mod} HOSTS [OPTIMIZER]

Runs without this package. TensorFlow's own `TPUEmbedding` creates the tables and the ops that load
the hardware. The hardware is missing, so the values that it would return are assigned. Row r,
column c of table `words` is 10 r + c, and of table `items` 1000 + 10 r + c. The first slot is 0.5
higher, and each further slot another 0.25 higher.
"""

import sys

import numpy as np
import tensorflow as tf
from tensorflow.python.tpu import tpu_embedding, tpu_embedding_gradient

ROWS = {"words": (13, 2), "items": (3, 4), "few": (2, 3)}
OPTIMIZERS = {
    "adagrad": tpu_embedding.AdagradParameters(0.1, initial_accumulator=0.5),
    "adam": tpu_embedding.AdamParameters(0.1),
}


def values(table):
    rows, dimension = ROWS[table]
    first = list(ROWS).index(table) * 1000
    return np.float32(first + 10 * np.arange(rows)[:, None] + np.arange(dimension))


def write(folder, strategy, hosts, optimizer="adagrad"):
    """Writes `<folder>/model.ckpt-7`."""
    tables = {
        name: tpu_embedding.TableConfig(rows, dimension, combiner="sum")
        for name, (rows, dimension) in ROWS.items()
    }
    with tf.Graph().as_default():
        features = {f"in_{name}": tpu_embedding.FeatureConfig(name) for name in tables}
        given = {"batch_size": 8, "mode": tpu_embedding.TRAINING, "partition_strategy": strategy}
        given["optimization_parameters"] = OPTIMIZERS[optimizer]
        given["device_config"] = tpu_embedding.DeviceConfig(hosts, 2 * hosts, "/job:worker")
        embedding = tpu_embedding.TPUEmbedding(tables, features, **given)
        created = embedding.create_variables_and_ops()
        helpers, _ = tpu_embedding_gradient.create_dummy_table_variables(embedding)
        step = tf.compat.v1.train.get_or_create_global_step()
        initial = np.eye(3, dtype=np.float32)
        kernel = tf.compat.v1.get_variable("dense/kernel", initializer=initial, use_resource=True)
        # Optimizers of tf.compat.v1.train save slots under these names.
        shapes = {"dense/kernel": [3, 3], **{one.op.name: [1] for one in helpers.values()}}
        dense, options = [], {"use_resource": True, "trainable": False}
        for name, shape in shapes.items():
            given = {"initializer": tf.ones(shape), **options}
            dense.append(tf.compat.v1.get_variable(f"{name}/Adagrad", **given))
        assigned = {step: 7, kernel: np.eye(3), **{one: np.ones(one.shape) for one in dense}}
        for name in tables:
            slots = created.slot_variables_by_table[name] or ()
            parts = [created.embedding_variables_by_table[name], *slots]
            for slot, variables in enumerate(parts):
                whole = values(name) + (0.25 * (slot + 1) if slot else 0)
                start = 0
                for host, variable in enumerate(variables[: len(whole)]):
                    size = variable.shape[0]
                    mine = whole[host::hosts] if strategy == "mod" else whole[start : start + size]
                    start += size
                    assigned[variable] = mine
        feeds, ops = {}, []
        for variable, value in assigned.items():
            placeholder = tf.compat.v1.placeholder(variable.dtype.base_dtype, variable.shape)
            feeds[placeholder.name] = np.asarray(value)
            ops.append(tf.compat.v1.assign(variable, placeholder).op.name)
        saver = tf.compat.v1.train.Saver(sharded=True, save_relative_paths=True)
        runnable = tf.compat.v1.train.export_meta_graph(saver_def=saver.as_saver_def())
        created.load_ops()
        trained = tf.compat.v1.train.export_meta_graph(saver_def=saver.as_saver_def())
    # This process stands for all hosts, so it leaves out the ops that load a TPU.
    with tf.Graph().as_default():
        saver = tf.compat.v1.train.import_meta_graph(runnable, clear_devices=True)
        with tf.compat.v1.Session() as session:
            session.run(ops, feeds)
            given = {"global_step": 7, "write_meta_graph": False}
            path = saver.save(session, f"{folder}/model.ckpt", **given)
    with open(f"{path}.meta", "wb") as file:
        file.write(trained.SerializeToString())


if __name__ == "__main__":
    write(sys.argv[1], sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
