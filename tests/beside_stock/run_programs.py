"""Runs generated programs in this process, on one side.

    run_programs.py stock|ours RESULTS PROGRAM...

Appends a line of JSON to the file RESULTS for each PROGRAM, a Python file: its records, or its
error. `stock` is unmodified tensorflow-estimator, and estimator_emb must not be importable there.
"""

import gc
import json
import os
import shutil
import sys
import tempfile
import traceback
import types


def main(which, results, paths):
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
    if which == "ours":
        import estimator_emb
    import tensorflow as tf

    tf.config.threading.set_inter_op_parallelism_threads(1)
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.get_logger().setLevel("ERROR")
    import side
    from tensorflow.python.training import training_util

    # Writing the graph as text takes as long as a training step, and it is not compared.
    training_util.write_graph = lambda *args, **kwargs: None
    side.is_stock = which == "stock"
    if side.is_stock:
        side.estimator = tf.compat.v1.estimator
        assert "estimator_emb" not in sys.modules
        side.EmbeddingConfigSpec = tf.compat.v1.estimator.tpu.experimental.EmbeddingConfigSpec
    else:
        side.estimator = types.SimpleNamespace(
            tpu=estimator_emb, ModeKeys=estimator_emb.ModeKeys, export=estimator_emb.export
        )
        side.EmbeddingConfigSpec = estimator_emb.EmbeddingConfigSpec
    # TensorFlow's own objects stay alive, so garbage collection skips them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000)
    with open(results, "a") as file:
        for path in paths:
            print(json.dumps(run(side, path)), file=file, flush=True)


def run(side, path):
    import tensorflow as tf

    side.model_dir = tempfile.mkdtemp()
    side.recorded.clear()
    result = {}
    os.environ["ESTIMATOR_EMB_NATIVE"] = "1" if path.endswith("_native.py") else "0"
    try:
        with open(path) as file:
            exec(compile(file.read(), path, "exec"), {"__name__": "__main__"})
    except Exception as error:
        result["error"] = f"{type(error).__name__}: {error}"[:4000]
        result["traceback"] = traceback.format_exc()[-6000:]
    finally:
        tf.compat.v1.reset_default_graph()
        tf.keras.backend.clear_session()
        shutil.rmtree(side.model_dir, ignore_errors=True)
    result["recorded"] = {
        name: {"dtype": value.dtype.name, "value": value.tolist()}
        for name, value in side.recorded.items()
    }
    return result


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
