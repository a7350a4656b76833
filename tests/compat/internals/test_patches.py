"""`patches` changes modules of TensorFlow and Python, and undoes it."""

import warnings

import tensorflow as tf

from estimator_emb.compat.internals import patches


def test_a_name_added_to_tensorflow_is_removed_even_if_it_was_never_read():
    with patches.Changes() as changes:
        changes.set_attribute(tf.compat.v1, "never_read", 1)
    assert not hasattr(tf.compat.v1, "never_read")


def test_without_warnings_drops_warnings_inside_only(recwarn):
    with patches.without_warnings():
        warnings.warn("inside", stacklevel=1)
    warnings.warn("outside", stacklevel=1)
    assert [str(one.message) for one in recwarn] == ["outside"]
