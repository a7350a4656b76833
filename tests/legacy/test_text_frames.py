"""`pandas_input_fn` reads text columns of pandas as it reads columns of type object."""

import numpy as np
import pytest
import tensorflow as tf

from estimator_emb.legacy import text_frames

pd = pytest.importorskip("pandas")
v1 = tf.compat.v1


def read(input_fn):
    """Returns the values of an input_fn's first batch, as lists."""
    with tf.Graph().as_default(), v1.Session() as session:
        batch = input_fn()
        coordinator = tf.train.Coordinator()
        threads = v1.train.start_queue_runners(session, coordinator)
        values = session.run(batch)
        coordinator.request_stop()
        coordinator.join(threads)
    return tf.nest.map_structure(lambda value: value.tolist(), values)


TEXT = ["a", "b", "\u00e9"]


@pytest.mark.parametrize("target", [None, "text", "number"])
@pytest.mark.parametrize("index", ["numbers", "text"])
@pytest.mark.parametrize("kind", ["str", "string", "object"])
def test_text_columns_read_as_object_columns(kind, index, target, installed):
    def frame(kind):
        rows = pd.Index(["x", "y", "z"]).astype(kind) if index == "text" else range(3)
        columns = {"word": pd.Series(TEXT, index=rows).astype(kind), "size": [1.5, 2.5, 3.5]}
        labels = {"text": pd.Series(TEXT, index=rows).astype(kind), "number": [1, 2, 3]}
        y = None if target is None else pd.Series(labels[target], index=rows, name="y")
        return pd.DataFrame(columns, index=rows), y

    if kind == "str" and int(pd.__version__.split(".")[0]) < 3:
        pytest.skip("pandas 3 brings the type")
    x, y = frame(kind)
    before, pandas_input_fn = x.copy(), v1.estimator.inputs.pandas_input_fn
    got = read(pandas_input_fn(x, y, batch_size=3, shuffle=False))
    assert got == read(pandas_input_fn(*frame(object), batch_size=3, shuffle=False))
    features = got if target is None else got[0]
    assert features == {"word": [one.encode() for one in TEXT], "size": [1.5, 2.5, 3.5]}
    pd.testing.assert_frame_equal(x, before)


def test_a_frame_of_numbers_is_unchanged():
    """Only text is converted, so other input is passed on without a copy."""
    frame = pd.DataFrame({"a": np.arange(3)})
    assert text_frames._with_objects(frame) is frame
    assert text_frames._with_objects({"a": 1}) == {"a": 1}
