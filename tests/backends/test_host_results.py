"""What the chief tells the other hosts is data, not code."""

import pickle

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf.message import DecodeError

from estimator_emb.backends.hosts import agreement

METRICS = {
    "loss": np.float32(0.1),
    "global_step": np.int64(2**40),
    "nan": np.float32("nan"),
    "double": 1e-9,
    "true": True,
    "text": b"a\xff",
    "texts": np.array([b"x", b"longer"], object),
    "matrix": np.arange(6.0).reshape(2, 3),
    "empty": np.zeros([0, 2], np.int32),
    "bfloat16": tf.as_dtype("bfloat16").as_numpy_dtype(1.5),
}


def test_the_results_of_the_chief_arrive_unchanged():
    got = agreement._unpacked(agreement._packed(METRICS))
    assert sorted(got) == sorted(METRICS)
    for name, want in METRICS.items():
        assert np.asarray(got[name]).dtype.kind == np.asarray(want).dtype.kind, name
        np.testing.assert_array_equal(got[name], want, err_msg=name)
    assert isinstance(got["loss"], np.float32) and isinstance(got["text"], bytes)
    for result in ({}, b"/tmp/\xc3\xa4/1700000000"):
        assert agreement._unpacked(agreement._packed(result)) == result


class FailsWhenUnpickled:
    def __reduce__(self):
        return pytest.fail, ("code from another host ran",)


def test_no_code_of_another_host_runs():
    with pytest.raises(DecodeError):
        agreement._unpacked(pickle.dumps(FailsWhenUnpickled()))
