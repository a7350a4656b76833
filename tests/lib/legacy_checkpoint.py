"""A checkpoint like those of the legacy TPUEstimator with 'mod' and four hosts."""

import numpy as np
import saved_values
import tensorflow as tf

HOSTS = 4
TABLE = "dense_features/words_embedding/embedding_weights"
WORDS = np.arange(26, dtype=np.float32).reshape(13, 2)
ACCUMULATORS = 100 + WORDS
FEW = np.array([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], np.float32)
HELPER = "tpu_embedding_dummy_table_variable_tbl_words"


def write_legacy(folder):
    """Writes a checkpoint with one part of each table per TPU host: the host's rows."""
    tables = {
        TABLE: WORDS,
        f"{TABLE}/Adagrad": ACCUMULATORS,
        "few": FEW,
        "few/Adam/m": FEW + 10,
        "few/Adam/v": FEW + 20,
        "few/mine": FEW + 30,
    }
    others = {
        HELPER: np.zeros([1], np.float32),
        f"{HELPER}/Adam": np.zeros([1], np.float32),
        "dense/kernel": np.eye(3, dtype=np.float32),
        "global_step": np.int64(7),
        "note": np.array([b"a\0b\0", b""], object),
        "empty": np.zeros([0, 2], np.float32),
    }
    hosts = {name: min(len(values), HOSTS) for name, values in tables.items()}
    path = saved_values.write(f"{folder}/model.ckpt-7", {**tables, **others}, hosts=hosts)
    tf.compat.v1.train.update_checkpoint_state(str(folder), path, [path])
    return path


def read(path):
    reader = tf.train.load_checkpoint(path)
    return {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
