"""Every private name of TensorFlow and tensorflow-estimator that this package uses, in one place.

A name that `tf`, `tf.compat.v1` and `tf.estimator` lack is private: a release of TensorFlow may
drop it. Each is here once, without its underscore, and with the reason why it is needed, but for
those of tensorflow-estimator, which has one version; every other module imports it from here.
`tests/compat/internals/test_private.py` finds those that a TensorFlow lacks, and
docs/contributing.md says what to do then.

    graphs         graphs, variables, savers, input, and how a cluster is run
    column_classes feature columns, TensorFlow's own and those of TPU tables
    tpu            cores, embedding ops and TPU systems
    protos         protocol buffers
    estimators     tensorflow-estimator, but for its TPUEstimator
    tpu_estimator  tensorflow-estimator's TPUEstimator
    patches        replaces attributes and modules, and puts them back

A module of TensorFlow is imported whole where one of its attributes is replaced, by us or by
others. The attributes used of it are listed in `tests/compat/internals/private_attributes.py`, with
those of objects that are not ours. `estimators` and `tpu_estimator` can be imported only after
`compat.prepare()`.
"""
