"""Cases of tf.contrib that TensorFlow 1.15 can run too.

This writes the expected values of the tests, with tensorflow 1.15.5 and protobuf below 3.20:

    python3.7 tests/legacy/contrib_cases.py > tests/data/contrib_goldens.json
"""

import functools
import inspect
import json

import numpy as np

INITIAL = np.linspace(-1, 1, 12).reshape(6, 2).astype(np.float32)
DENSE = np.linspace(0.5, -0.4, 12).reshape(6, 2).astype(np.float32)
ROWS = [4, 1, 4]
SPARSE = np.array([[0.1, -0.2], [0.3, 0.4], [0.5, -0.6]], np.float32)
LABELS = np.array([[1, 0, 1, 1], [0, 0, 1, 0]])
PREDICTIONS = np.array([[0.9, 0.4, 0.3, 0.8], [0.2, 0.7, 0.6, 0.1]], np.float32)
WEIGHTS = np.array([[1, 2, 0.5, 1], [1, 1, 3, 0]], np.float32)
LOGITS = np.array([[0.1, 0.5, 0.3, 0.2], [0.4, 0.2, 0.35, 0.1]], np.float32)

OPTIMIZERS = {
    "adamw": ("AdamWOptimizer", {"weight_decay": 0.05, "learning_rate": 0.1}),
    "adamw_by_function": ("AdamWOptimizer", {"weight_decay": 0.01, "beta1": 0.8, "epsilon": 1e-3}),
    "momentumw": (
        "MomentumWOptimizer",
        {"weight_decay": 0.05, "learning_rate": 0.1, "momentum": 0.9},
    ),
    "momentumw_nesterov": (
        "MomentumWOptimizer",
        {"weight_decay": 0.02, "learning_rate": 0.1, "momentum": 0.9, "use_nesterov": True},
    ),
    "lars": ("LARSOptimizer", {"learning_rate": 2.0, "weight_decay": 0.01}),
    "lars_skipping": (
        "LARSOptimizer",
        {"learning_rate": 0.1, "skip_list": ["one"], "use_nesterov": True, "epsilon": 0.5},
    ),
    "lazy_adam": ("LazyAdamOptimizer", {"learning_rate": 0.1}),
}


def trained(tf, make, resource, list_=None, by_minimize=False):
    """Returns variables and slots after three steps by name: dense, sparse, zero gradients."""
    with tf.Graph().as_default(), tf.Session() as session:
        optimizer = make()
        variables = [
            tf.get_variable(name, initializer=INITIAL, use_resource=resource)
            for name in ("one", "two", "three")
        ]
        one, two, three = variables
        decayed = {} if list_ is None else {"decay_var_list": [variables[i] for i in list_]}
        if by_minimize:
            loss = tf.reduce_sum(one * DENSE) + tf.reduce_sum(tf.gather(two, ROWS) * SPARSE)
            update = optimizer.minimize(loss, var_list=[one, two], **decayed)
        else:
            gradients = [
                tf.constant(DENSE),
                tf.IndexedSlices(tf.constant(SPARSE), tf.constant(ROWS), tf.constant([6, 2])),
                tf.zeros([6, 2]),
            ]
            update = optimizer.apply_gradients(
                [(gradients[i], variables[i]) for i in range(3)], **decayed
            )
        session.run(tf.global_variables_initializer())
        for _ in range(3):
            session.run(update)
        values = session.run({variable.op.name: variable for variable in tf.global_variables()})
        return {name: np.asarray(value, np.float64).tolist() for name, value in values.items()}


def optimizers(tf, opt):
    adamw = functools.partial(opt.AdamWOptimizer, 0.05, 0.1)
    extended = opt.extend_with_decoupled_weight_decay(tf.train.AdagradOptimizer)
    made = {
        name: (functools.partial(getattr(opt, class_), **arguments), {})
        for name, (class_, arguments) in OPTIMIZERS.items()
    }
    made["listed"] = adamw, {"list_": [0]}
    made["listed_sparse"] = adamw, {"list_": [1]}
    made["listed_by_minimize"] = adamw, {"list_": [0], "by_minimize": True}
    made["extended"] = functools.partial(extended, weight_decay=0.1, learning_rate=0.1), {}
    results = {
        name + ("_resource" if resource else ""): trained(tf, make, resource, **keywords)
        for resource in (False, True)
        for name, (make, keywords) in made.items()
    }
    with tf.Graph().as_default(), tf.Session() as session:
        variable = tf.get_variable("v", initializer=INITIAL)
        pairs, norm = opt.clip_gradients_by_global_norm([(tf.constant(DENSE), variable)], 0.5)
        results["clipped"] = [np.asarray(x).tolist() for x in session.run([pairs[0][0], norm])]
    return results


METRICS = [
    ("streaming_accuracy", {}, True),
    ("streaming_auc", {"num_thresholds": 20}, False),
    ("streaming_auc", {"curve": "PR"}, False),
    ("streaming_false_negatives", {}, True),
    ("streaming_false_positives", {}, True),
    ("streaming_true_negatives", {}, True),
    ("streaming_true_positives", {}, True),
    ("streaming_mean_absolute_error", {}, False),
    ("streaming_mean_cosine_distance", {"dim": 1, "weights": [[1.0], [2.0]]}, False),
    ("streaming_mean_iou", {"num_classes": 2}, True),
    ("streaming_mean_relative_error", {"normalizer": [[2.0] * 4] * 2}, False),
    ("streaming_mean_squared_error", {}, False),
    ("streaming_root_mean_squared_error", {}, False),
    ("streaming_precision", {}, True),
    ("streaming_recall", {}, True),
    ("streaming_precision_at_thresholds", {"thresholds": [0.3, 0.65]}, False),
    ("streaming_recall_at_thresholds", {"thresholds": [0.3, 0.65]}, False),
    ("streaming_sensitivity_at_specificity", {"specificity": 0.6}, False),
    ("streaming_specificity_at_sensitivity", {"sensitivity": 0.6}, False),
]


OTHER_METRICS = {
    "streaming_recall_at_k": ([LOGITS], {"labels": np.array([0, 2]), "k": 2}),
    "streaming_sparse_recall_at_k": ([LOGITS], {"labels": np.array([[0], [2]]), "k": 2}),
    "streaming_sparse_precision_at_k": (
        [LOGITS],
        {"labels": np.array([[0], [2]]), "k": 2, "class_id": 0},
    ),
    "streaming_sparse_average_precision_at_k": ([LOGITS], {"labels": np.array([[0], [2]]), "k": 2}),
    "streaming_mean": ([PREDICTIONS], {"weights": WEIGHTS}),
    "streaming_mean_tensor": ([PREDICTIONS], {"weights": WEIGHTS}),
    "streaming_percentage_less": ([PREDICTIONS, 0.5], {"weights": WEIGHTS}),
}


def metrics(tf, module):
    """Returns each metric's value and update after two batches, and its variables' names."""
    results = {}
    for number, (name, arguments, hard) in enumerate(METRICS):
        predictions = (PREDICTIONS > 0.5).astype(int) if hard else PREDICTIONS
        labels = np.float32(LABELS) if "error" in name or "distance" in name else LABELS
        weights = np.float32(arguments.get("weights", WEIGHTS))
        arguments = dict(arguments, weights=weights)
        key = f"{number} {name}"
        results[key] = run_metric(tf, getattr(module, name), predictions, labels, **arguments)
    for name, (values, arguments) in OTHER_METRICS.items():
        results[name] = run_metric(tf, getattr(module, name), *values, **arguments)
    with tf.Graph().as_default(), tf.Session() as session:
        args = tf.constant(PREDICTIONS > 0.5), tf.constant(LABELS > 0)
        results["accuracy"] = [
            float(session.run(module.accuracy(*args))),
            float(session.run(module.accuracy(*args, weights=tf.constant(WEIGHTS)))),
        ]
    return results


def run_metric(tf, metric, *args, **kwargs):
    """Calls a metric with its arrays as tensors, and runs two updates."""

    def given(value):
        return tf.constant(value) if isinstance(value, np.ndarray) else value

    with tf.Graph().as_default(), tf.Session() as session:
        value, update = metric(*map(given, args), **{k: given(v) for k, v in kwargs.items()})
        session.run(tf.local_variables_initializer())
        session.run(update)
        last = session.run(update)
        result = [np.asarray(x, np.float64).tolist() for x in (session.run(value), last)]
        return result + [sorted(variable.op.name for variable in tf.local_variables())]


HPARAMS = [
    "h.parse('rate=0.5,layers=[3, 4],on=false,name=x_1')",
    "h.parse('layers[1]=7')",
    "h.parse('on=1')",
    "h.parse('on=maybe')",
    "h.parse('rate=abc')",
    "h.parse('rate=1,rate=2')",
    "h.parse('layers=[1],layers=[2]')",
    "h.parse('layers[1]=[2,3]')",
    "h.parse('nonsense=1')",
    "h.parse('rate 1')",
    "h.parse('steps=1.5')",
    "h.parse('dotted.name=3')",
    "h.set_hparam('rate', 3)",
    "h.set_hparam('steps', 3.0)",
    "h.set_hparam('steps', True)",
    "h.set_hparam('on', 1)",
    "h.set_hparam('name', 3)",
    "h.set_hparam('layers', 3)",
    "h.set_hparam('rate', [3.0])",
    "h.set_hparam('nonsense', 3)",
    "h.set_hparam('nothing', 'anything')",
    "h.add_hparam('new', 'x')",
    "h.add_hparam('values', 1)",
    "h.add_hparam('rate', 1)",
    "h.add_hparam('empty', [])",
    "h.del_hparam('rate')",
    "h.del_hparam('nonsense')",
    "h.override_from_dict({'rate': 2, 'layers': [9]})",
    'h.parse_json(\'{"rate": 3, "name": "y"}\')',
    "h.to_json(sort_keys=True)",
    "h.get('rate')",
    "h.get('rate', 1.5)",
    "h.get('rate', 'x')",
    "h.get('layers', 3)",
    "h.get('nonsense', 5)",
    "'rate' in h, 'nonsense' in h",
    "repr(h)",
    "sorted(str(h).split(','))",
    "training.parse_values('a=1,b[2]=x', {'a': int, 'b': str})",
    "training.parse_values('a=1,c=2', {'a': int}, ignore_unknown=True)",
    "training.parse_values('a[0]=1,a[0]=2', {'a': int})",
    "training.parse_values('a=1,a[0]=2', {'a': int})",
]


def hparams(training):
    """Returns the result or error of each line of HPARAMS, and the values after it."""
    results = {}
    for line in HPARAMS:
        h = training.HParams(rate=0.1, steps=3, layers=[1, 2], on=True, name="x", nothing=None)
        h.add_hparam("dotted.name", 1)
        try:
            result = eval(line, {"h": h, "training": training})
        except Exception as error:
            result = f"{type(error).__name__}: {error}"
        if result is h:
            result = "itself"
        results[line] = [repr(result), repr(sorted(h.values().items()))]
    return results


def scopes(framework):
    """Returns the arguments that an arg_scope passes to its functions."""
    calls = []

    @framework.add_arg_scope
    def layer(x, size=1, name=None):
        """Makes a layer."""
        calls.append([x, size, name])
        return x

    @framework.add_arg_scope
    def other(x, size=1):
        calls.append([x, size])

    def plain(x):
        return x

    with framework.arg_scope([layer, other], size=2) as outer:
        layer(1)
        with framework.arg_scope([layer], name="n"):
            layer(2)
            layer(3, size=4)
            other(4)
        layer(5)
    layer(6)
    with framework.arg_scope(outer):
        layer(7)
    for arguments in (([plain],), (layer,)):
        try:
            with framework.arg_scope(*arguments, size=2):
                pass
        except Exception as error:
            calls.append(type(error).__name__)
    try:
        with framework.arg_scope(outer, size=2):
            pass
    except ValueError as error:
        calls.append(str(error))
    calls.append([framework.has_arg_scope(layer), framework.has_arg_scope(plain)])
    calls.append(list(framework.arg_scoped_arguments(layer)))
    calls.append([layer.__name__, layer.__doc__])
    return calls


def signature(function):
    """Returns names and defaults of a function's arguments."""
    return [
        [parameter.name, repr(parameter.default), parameter.kind == parameter.VAR_KEYWORD]
        for parameter in inspect.signature(function).parameters.values()
        if parameter.name != "self"
    ]


SIGNATURES = {
    "framework": "arg_scope add_arg_scope load_variable list_variables load_checkpoint "
    "init_from_checkpoint get_or_create_global_step",
    "layers": "layer_norm l1_regularizer l2_regularizer variance_scaling_initializer "
    "xavier_initializer",
    "metrics": " ".join(["accuracy", *OTHER_METRICS, *sorted({m[0] for m in METRICS})]),
    "opt": "AdamWOptimizer MomentumWOptimizer LARSOptimizer LazyAdamOptimizer "
    "clip_gradients_by_global_norm extend_with_decoupled_weight_decay",
    "predictor": "from_saved_model",
    "training": "HParams parse_values",
}


def signatures(contrib):
    return {
        f"{module}.{name}": signature(getattr(getattr(contrib, module), name))
        for module, names in SIGNATURES.items()
        for name in names.split()
    }


def everything(tf, contrib):
    return {
        "hparams": hparams(contrib.training),
        "metrics": metrics(tf, contrib.metrics),
        "optimizers": optimizers(tf, contrib.opt),
        "scopes": scopes(contrib.framework),
        "signatures": signatures(contrib),
    }


if __name__ == "__main__":
    import tensorflow

    print(json.dumps(everything(tensorflow, tensorflow.contrib), indent=1, sort_keys=True))
