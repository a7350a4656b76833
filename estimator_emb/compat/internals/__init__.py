"""Every private name of TensorFlow and tensorflow-estimator that this package uses, in one place.

A name is private if it is not in `tf`, `tf.compat.v1` or `tf.estimator`. A TensorFlow release may
remove it. Each private name is listed here once, without its underscore, and all other modules
import it from here. Each TensorFlow name has the reason why it is needed. tensorflow-estimator has
a single version, so its names need no reason. `tests/compat/internals/test_private.py` finds names
that a TensorFlow does not have, and docs/contributing.md says what to do then.

    graphs         graphs, variables, savers, input, and how a cluster is run
    column_classes feature columns, TensorFlow's own and those of TPU tables
    tpu            cores, embedding ops and TPU systems
    protos         protocol buffers
    estimators     tensorflow-estimator, except its TPUEstimator
    tpu_estimator  tensorflow-estimator's TPUEstimator
    patches        replaces attributes and modules, and puts them back

A TensorFlow module is imported whole if we or others replace an attribute of it.
`tests/compat/internals/private_attributes.json` lists the attributes that we use, of such modules
and of objects that are not ours. `estimators` and `tpu_estimator` can be imported only after
`compat.prepare()`.
"""
