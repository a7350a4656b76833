# SPDX-License-Identifier: Apache-2.0
"""Every private name of TensorFlow and tensorflow-estimator that this package uses, in one place.

A name is private where `tf`, `tf.compat.v1` or `tf.estimator` does not have it: a release of
TensorFlow may drop it. Each stands here once, without its underscore, and with a word on why it is
needed; every other module imports it from here. `tests/private/test_private.py` says which of them
a TensorFlow lacks, and docs/contributing.md what to do then.

    graphs         graphs, variables, savers, input, and how a cluster is run
    columns        feature columns, TensorFlow's own and those of TPU tables
    tpu            cores, embedding ops and TPU systems
    protos         protocol buffers
    estimator      tensorflow-estimator, but for its TPUEstimator
    tpu_estimator  tensorflow-estimator's TPUEstimator
    files          how TensorFlow opens files
    patches        puts one thing in the place of another, and takes it back

A module of TensorFlow is given as a whole where one of its attributes is replaced, or is looked up
again for each call because others replace it; what is used of it is listed in
`tests/private/private_attributes.py`, with the attributes of objects that are not ours.
`estimator` and `tpu_estimator` can be imported only after `compat.prepare()`.
"""
