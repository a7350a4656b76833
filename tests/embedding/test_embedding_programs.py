"""Whole programs move to TensorFlow 2's TPUEmbedding and come back."""

import pathlib

import harness
import numpy as np
import processes
import pytest
import reference
import tensorflow as tf
from descriptors import OPTIMIZERS
from restored_embedding import restored, updated

import estimator_emb as ee
import feature_columns as fc
from estimator_emb import embedding

pytestmark = pytest.mark.slow

MOD = str(pathlib.Path(__file__).parents[1] / "data" / "tpu_checkpoints" / "mod")
VOCABULARY, DIMENSION = 7, 3


def program(kind, start):
    """Returns a spec with a table, the names of the table and its variable, and its optimizer."""
    name = "ftrl_regularized" if kind == "dicts" else "adam_outside"
    (one,) = (each for each in OPTIMIZERS if each.name == name)
    if kind == "dicts":
        return harness.table_spec(*start.shape, one.parameters, start), "t", "t", one
    column = fc.categorical_column_with_identity("x", VOCABULARY)
    column = fc.embedding_column(column, DIMENSION, "sum", harness.initializer(start))
    spec = ee.EmbeddingConfigSpec([column], one.parameters)
    return spec, "tbl_x", "x_embedding/embedding_weights", one


@pytest.mark.parametrize("kind, device", [("dicts", "host"), ("columns", None)])
def test_a_program_resumes_from_tensorflow_2(kind, device, tmp_path):
    """Two steps here, one in TensorFlow 2 and one here equal four steps of the formula."""
    start = harness.normal(2, VOCABULARY, DIMENSION)
    spec, table, variable, one = program(kind, start)
    ids = np.array([[1], [4], [4], [6]])
    gradients = harness.normal(3, 4, 4, DIMENSION)
    batches = [({"x": ids}, {"x": gradients[step]}) for step in range(4)]
    wanted = [np.float64(start), *(np.full(start.shape, value) for value in np.float64(one.start))]
    for step in range(4):
        summed = reference.row_gradients(ids.tolist(), np.ones([4, 1]), gradients[step], "sum")
        for row, g in summed.items():
            w, *slots = (value[row] for value in wanted)
            for value, after in zip(wanted, one.step(0.1, g, w, slots), strict=True):
                value[row] = after
    model_fn = harness.gradient_model_fn(["x"])
    here = harness.estimator(model_fn, spec, tmp_path / "here", device=device)
    here.train(harness.input_fn_of(batches[:2]), steps=2)
    moved = embedding.checkpoint_to_tensorflow(spec, here.model_dir, f"{tmp_path}/tf2")
    layer, step = restored(moved)
    assert step == 2
    optimizer = moved.translation.features["x"].table.optimizer
    summed = np.stack([gradients[2][0], gradients[2][1] + gradients[2][2], gradients[2][3]])
    updated(optimizer, layer._variables[table], np.array([1, 4, 6]), summed)
    saver = tf.train.Checkpoint(embedding=layer, step=tf.Variable(3, dtype=tf.int64))
    path = saver.save(f"{tmp_path}/trained/ckpt")
    back = f"{tmp_path}/back/model.ckpt-3"
    embedding.checkpoint_from_tensorflow(path, back, {table: variable})
    # First resume from the checkpoint itself: it holds all variables of this model. Then use it for
    # a warm start.
    patterns = [f"{variable}.*"]
    for folder, settings, step in (
        ("back", None, 4),
        ("warm", ee.WarmStartSettings(back, vars_to_warm_start=patterns), 1),
    ):
        again = harness.estimator(
            model_fn, spec, tmp_path / folder, device=device, warm_start_from=settings
        )
        again.train(harness.input_fn_of(batches[3:]), steps=1)
        saved = harness.saved(tmp_path / folder, step)
        suffixes = ["", *(slot.suffix for slot in one.parameters.slots)]
        for suffix, value in zip(suffixes, wanted, strict=True):
            np.testing.assert_allclose(saved[variable + suffix], value, rtol=2e-5, atol=1e-5)


def test_a_checkpoint_moves_both_ways_in_a_tensorflow_1_program(tmp_path):
    """The program that makes the spec also does the move, without eager execution."""
    program = f"""
import tensorflow as tf
import estimator_emb as ee
from estimator_emb import checkpoint, embedding
tf.compat.v1.disable_v2_behavior()
table = ee.TableConfig(13, 2, learning_rate_fn=lambda step: 0.1)
spec = ee.EmbeddingConfigSpec(
    feature_to_config_dict={{"w": ee.FeatureConfig("words")}},
    table_to_config_dict={{"words": table}},
    optimization_parameters=ee.AdagradParameters(0.1),
)
step = tf.compat.v1.train.get_or_create_global_step()
moved = embedding.checkpoint_to_tensorflow(spec, {MOD!r}, "tf2", step=step)
back = embedding.checkpoint_from_tensorflow(moved.checkpoint, "back/model.ckpt-7")
assert (checkpoint.table(back.checkpoint, "words") == checkpoint.table({MOD!r}, "words")).all()
print(sorted(back.variables.values()))
"""
    done = processes.run(program, cwd=tmp_path)
    assert done.stdout == "['global_step', 'words', 'words/Adagrad']\n"
