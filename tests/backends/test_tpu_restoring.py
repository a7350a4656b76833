"""On a described TPU, a graph is compared with its checkpoint before a session opens."""

import harness
import numpy as np
import pytest
import tensorflow as tf
import tpu_described
from saved_values import save

import estimator_emb as ee
from estimator_emb.engine.tables.storage import saved_name


def input_fn(params):
    batch = params["batch_size"]
    return tf.data.Dataset.range(100).map(
        lambda _: ({"words": tpu_described.sparse(batch)}, tf.zeros([batch]))
    )


def run(how, model_dir, hosts, rows=31, dimension=4, parameters=None, **kwargs):
    """Returns the session arguments."""
    tables = {"words": ee.TableConfig(rows, dimension)}
    estimator = tpu_described.estimator(
        tpu_described.model_fn_of(None, ["words"]),
        harness.tables_spec(tables, parameters or ee.AdagradParameters(0.1)),
        model_dir,
        hosts,
        tpu_config=tpu_described.per_core_input(),
        **kwargs,
    )
    return how(estimator, input_fn)


@pytest.mark.slow
@pytest.mark.parametrize("hosts", [1, 3])
def test_checkpoint_is_compared_before_a_session_opens(hosts, tmp_path, same_message):
    train, evaluate = tpu_described.train, tpu_described.evaluate
    reached = run(train, tmp_path / "new", hosts)
    saved = {}
    for variable in reached.graph.get_collection("variables"):
        part = variable._get_save_slice_info()
        shape = part.full_shape if part else variable.shape.as_list()
        saved[saved_name(variable)] = np.zeros(shape, variable.dtype.as_numpy_dtype)
    assert saved["words"].shape == saved["words/Adagrad"].shape == (31, 4)
    assert not [name for name in saved if "dummy" in name]
    folder = tmp_path / "model"
    # A legacy TPU's checkpoint also has helper variables.
    helper = "tpu_embedding_dummy_table_variable_words"
    helpers = {name: np.zeros([1], np.float32) for name in (helper, f"{helper}/Adam")}
    path = save(f"{folder}/model.ckpt-0", {**saved, **helpers})
    for how in (train, evaluate):
        assert run(how, folder, hosts).graph

    def refused(error, phrase, how, model_dir, **changed):
        with pytest.raises(error, match=f"^{phrase} from checkpoint failed: ") as caught:
            run(how, model_dir, hosts, **changed)
        same_message(caught.value)

    # The hardware's tables are not trainable, so a warm start takes them only if it lists them.
    for how in (train, evaluate):
        refused(ValueError, "Restoring", how, folder, rows=40)
    adam = ee.AdamParameters(0.1)
    refused(tf.errors.NotFoundError, "Restoring", train, folder, parameters=adam)
    settings = {"dimension": 8, "warm_start_from": ee.WarmStartSettings(path, ["words/part_"])}
    refused(ValueError, "Warm-starting", train, tmp_path / "new", **settings)
    (folder / "checkpoint").unlink()
    for how in (train, evaluate):
        with pytest.raises(ValueError, match="which says which checkpoint is the latest, is miss"):
            run(how, folder, hosts)
