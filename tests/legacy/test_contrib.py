"""tf.contrib: supplied names give TensorFlow 1.15's results, and removed names get advice."""

import contextlib
import importlib
import importlib.util
import operator
import re
import sys
import types

import contrib_calls
import harness
import processes
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.catalog import contrib as contrib_names
from estimator_emb.compat.internals.patches import Changes
from estimator_emb.legacy import contrib, tf_v1
from estimator_emb.legacy.contrib import layers

tf1 = tf.compat.v1


def elements(end, apply):
    """Returns the elements of a dataset of the numbers below `end`, to which `apply` is applied."""
    found = []
    with tf.Graph().as_default(), tf1.Session() as session:
        dataset = tf1.data.Dataset.range(end).apply(apply)
        following = tf1.data.make_one_shot_iterator(dataset).get_next()
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                found.append(session.run(following).tolist())
    return found


def test_wrong_arguments_of_layers_are_refused():
    with tf.Graph().as_default():
        of_any_rank = tf1.placeholder(tf.float32)
        of_any_size = tf1.placeholder(tf.float32, [2, None])
        wrong_axis = {"inputs": tf.ones([2, 3]), "begin_norm_axis": 4}
        for message, function, arguments in (
            ("inputs must have a known rank", layers.layer_norm, {"inputs": of_any_rank}),
            ("must be known from begin_params_axis", layers.layer_norm, {"inputs": of_any_size}),
            ("begin_norm_axis", layers.layer_norm, wrong_axis),
            ("FAN_IN, FAN_OUT or", layers.variance_scaling_initializer, {"mode": "fan_in"}),
            ("l1_regularizer: scale must be a number >= 0", layers.l1_regularizer, {"scale": -1}),
        ):
            assert message in harness.refusal(ValueError, function, **arguments)


@pytest.fixture(scope="module", autouse=True)
def installed():
    ee.install()
    yield
    ee.uninstall()


@pytest.fixture
def tf_contrib():
    """Makes `tensorflow.contrib` importable. Afterwards, all modules of it are forgotten."""
    with Changes() as changes:
        yield contrib.add_contrib(changes)


def test_every_supported_contrib_name_resolves(tf_contrib):
    """Programs import a name from its module, or from the files inside it (`inner`)."""
    for owner, module in contrib_names.MODULES.items():
        for name in module.members:
            path, imported = f"{owner}.{name}", {}
            assert contrib.has_path(tf_contrib, path), path
            for place in ("", *(f".{inner}" for inner in module.inner)):
                exec(f"from tensorflow.contrib.{owner}{place} import {name} as it", imported)
                assert imported["it"] is operator.attrgetter(path)(tf_contrib), (path, place)
        for path in module.modules:
            assert importlib.import_module(f"tensorflow.contrib.{owner}.{path}")


def test_a_contrib_name_is_the_object_of_the_same_name_today(tf_contrib):
    assert tf_contrib.tpu.CrossShardOptimizer is tf1.tpu.CrossShardOptimizer
    assert tf_contrib.tpu.TPUEstimator is ee.TPUEstimator
    assert tf_contrib.data.map_and_batch is tf1.data.experimental.map_and_batch
    assert tf_contrib.data.Dataset is tf1.data.Dataset


def test_advice_names_what_exists(tf_contrib):
    """The advice is for programs under --tf-v1, in which `tf` is `tf.compat.v1`."""
    for owner, module in contrib_names.MODULES.items():
        advice = " ".join([module.rest or "", *module.elsewhere.values()])
        for name in re.findall(r"\b(?:tf|tensorflow|estimator_emb)\.[\w.]*\w", advice):
            path = name.removeprefix("tf.")
            assert not path.startswith("contrib."), (owner, name)
            if path == name:  # In a module that is imported by its name, or the module itself.
                assert contrib.has_path(*contrib._start(name)) or importlib.import_module(name)
            else:
                start = tf if path.startswith("compat.v2.") else tf1
                assert contrib.has_path(start, path), (owner, name)


GONE = (
    "seq2seq slim layers.fully_connected learn.monitors.StopAtStep learn.datasets "
    "rnn.LSTMBlockCell gan.nonsense tpu.python.tpu.keras_support"
).split()


@pytest.mark.parametrize("path", GONE)
def test_a_removed_name_gets_advice(path, tf_contrib, monkeypatch, assert_recorded):
    for package in ("tf_slim", "tensorflow_gan"):
        monkeypatch.setitem(sys.modules, package, None)  # As if it were not installed.
    with pytest.raises(AttributeError) as raised:
        operator.attrgetter(path)(tf_contrib)
    message = str(raised.value)
    assert message.startswith(f"tf.contrib.{path} left TensorFlow with version 2.")
    assert_recorded(message)
    parent, _, leaf = f"tensorflow.contrib.{path}".rpartition(".")
    names = {}
    exec(f"from {parent} import {leaf} as gone", names)  # No error until it is used.
    for use in (
        lambda gone: gone(1, name="x"),
        lambda gone: type("Derived", types.resolve_bases((gone,)), {}),
    ):
        with pytest.raises(AttributeError, match=re.escape(message)):
            use(names["gone"])
    with pytest.raises(AttributeError, match=re.escape(f"tf.contrib.{path}.nonsense ")):
        names["gone"].nonsense  # noqa: B018


def test_an_unknown_module_of_contrib_is_refused(tf_contrib):
    with pytest.raises(AttributeError, match="^tf.contrib.nonsense: TensorFlow 1.15's tf.contrib"):
        tf_contrib.nonsense  # noqa: B018
    with pytest.raises(ImportError, match="tf.contrib has no module 'nonsense'"):
        from tensorflow.contrib import nonsense  # noqa: F401
    with pytest.raises(ImportError, match=r"^tensorflow.examples.*left TensorFlow.*pip download"):
        from tensorflow.examples.tutorials.mnist import input_data  # noqa: F401


FORMS = [
    "import tensorflow.contrib.quantize as quantize",
    "import tensorflow.contrib.tensorrt as trt",
    "from tensorflow.contrib import quantize",
    "from tensorflow.contrib import cloud, tensorrt as trt",
    "from tensorflow.contrib.quantize import create_training_graph",
    "from tensorflow.contrib.quantize.python import quantize_graph as graph, fold_batch_norms",
    "from tensorflow.contrib.cloud.python.ops import bigquery_reader_ops",
    "from tensorflow.contrib.layers import sparse_feature_cross",
    "import tensorflow as tf, tensorflow.contrib.distributions as ds",
]
CATCHING = ["ImportError", "ModuleNotFoundError", "(AttributeError, ImportError)", "Exception", ""]
HANDLERS = dict.fromkeys(CATCHING, True) | {"ValueError": False, "AttributeError": False}
"""The handler of a `try` around an import -> whether it catches the import's error."""


def program(tmp_path, text):
    path = tmp_path / "program.py"
    path.write_text(text)
    return vars(processes.module_of(path))


@pytest.mark.parametrize("form", FORMS)
def test_importing_a_removed_name_fails_only_on_use(form, tf_contrib, tmp_path):
    """Many programs import a name that they use only under a flag."""
    bound = form.split()[-1]  # The last name that the import binds.
    made = program(tmp_path, f"{form}\ndef use():\n    return {bound}.use()")
    with pytest.raises(AttributeError, match="^tf.contrib.* left TensorFlow .*pip download"):
        made["use"]()


@pytest.mark.parametrize("handler", HANDLERS)
@pytest.mark.parametrize("form", FORMS)
def test_a_try_that_catches_the_import_of_a_removed_name_finds_it_missing(
    form, handler, tf_contrib, tmp_path
):
    lines = f"try:\n    {form}\n    missing = False\nexcept {handler}:\n    missing = True\n"
    assert program(tmp_path, lines)["missing"] is HANDLERS[handler]


@pytest.mark.parametrize("handler", ["ImportError", "Exception"])
def test_a_try_around_another_module_counts_only_for_import_error(
    handler, tf_contrib, tmp_path, monkeypatch
):
    """A `try` for any exception may surround a whole program, without a choice of modules."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "inner_of_test.py").write_text("from tensorflow.contrib import quantize\n")
    text = f"try:\n    import inner_of_test\n    found = True\nexcept {handler}:\n    found = False"
    assert program(tmp_path, text)["found"] is (handler == "Exception")
    sys.modules.pop("inner_of_test", None)


def test_an_import_outside_a_try_body_succeeds(tf_contrib, tmp_path):
    """These imports are in a handler, after a `try`, and in a `try` but of a module that exists."""
    text = (
        "try:\n    import nonsense\nexcept ImportError:\n"
        "    from tensorflow.contrib import quantize\n"
        "try:\n    pass\nexcept ImportError:\n    pass\n"
        "from tensorflow.contrib import tensorrt\n"
        "try:\n    from tensorflow.contrib import layers\n    there = True\n"
        "except ImportError:\n    there = False\n"
    )
    made = program(tmp_path, text)
    assert made["there"] and made["quantize"] and made["tensorrt"]


def test_every_contrib_module_imports_or_gets_advice(tf_contrib):
    """The list comes from TensorFlow 1.15's files. Its wheel lacks gan, lite, nccl and rate."""
    there = processes.data("tensorflow_1_15.json")
    assert set(contrib_names.MODULES) == {*there["contrib"], "gan", "lite", "nccl", "rate"}
    walked = 0
    for owner, paths in there["contrib_modules"].items():
        for path in (owner, *(f"{owner}.{inner}" for inner in paths.split())):
            module = importlib.import_module(f"tensorflow.contrib.{path}")
            walked += 1
            if type(module) is not contrib._Namespace:  # A module of today's TensorFlow.
                continue
            with pytest.raises(AttributeError) as error:
                module.nonsense  # noqa: B018
            said = str(error.value)
            assert said.startswith(f"tf.contrib.{path}.nonsense left TensorFlow with version 2")
            in_wheel = " TensorFlow 1.15's wheel has it. Download it once: `pip download" in said
            assert in_wheel == (owner != "rate"), said  # The list has no other of the four.
    assert walked > 700


EXPECTED = processes.data("contrib_calls.json")


@pytest.mark.parametrize("module", ["framework", "layers", "lookup", "training"])
def test_supplied_names_give_the_results_of_tensorflow_1_15(module, tf_contrib):
    """A line of contrib_calls.txt calls names of a module C. Some need TensorFlow 1.15's wheel."""
    members = contrib_names.MODULES[module].members
    supplied = [
        line
        for owner, line in contrib_calls.lines()
        if owner == module and {*re.findall(r"\bC\.(\w+)", line)} <= {*members}
    ]
    assert supplied
    for line in supplied:
        actual = contrib_calls.called(tf1, module, line)
        contrib_calls.same(actual, EXPECTED[f"{module}: {line}"], line, 1e-6)


def test_a_program_cannot_give_hparams_a_definition(tf_contrib):
    with pytest.raises(NotImplementedError, match="^HParams: hparam_def is not supported"):
        tf_contrib.training.HParams(hparam_def=object())  # Of a dropped protocol buffer.


def test_functions_of_contrib_data_return_the_elements_of_tensorflow_1_15(tf_contrib):
    data = tf_contrib.data
    assert elements(5, data.batch_and_drop_remainder(2)) == [[0, 1], [2, 3]]
    assert elements(5, data.padded_batch_and_drop_remainder(2, [])) == [[0, 1], [2, 3]]
    interleaved = data.sloppy_interleave(lambda x: tf.data.Dataset.from_tensors(x), 2)
    assert sorted(elements(4, interleaved)) == [0, 1, 2, 3]  # In any order.


def test_functions_of_contrib_find_todays_scopes_and_devices(tf_contrib):
    with tf.Graph().as_default(), tf.name_scope("a"), tf.name_scope("b"):
        assert tf_contrib.framework.get_name_scope() == "a/b"
        with tf_contrib.compiler.jit.experimental_jit_scope():
            assert tf.constant(1).op.get_attr("_XlaCompile")
    assert "/job:localhost/replica:0/task:0/device:CPU:0" in tf_contrib.eager.list_devices()
    assert tf_contrib.distribute.AllReduceCrossDeviceOps()


SLIM = """
import estimator_emb
estimator_emb.install(tf_v1=True)
import sys
import tensorflow as tf
from tensorflow.contrib import slim
from tensorflow.contrib.slim.nets import resnet_v2
from tensorflow.contrib.slim.python.slim.nets import resnet_utils, inception_v3
from tensorflow.contrib.slim.python.slim.data import tfexample_decoder
from tensorflow.contrib.slim.python import slim as third
import tensorflow.contrib.slim.python.slim.evaluation as evaluation
assert third is slim and resnet_utils is sys.modules["tf_slim.nets.resnet_utils"]
assert evaluation is slim.evaluation and slim is tf.contrib.slim is sys.modules["tf_slim"]
assert tfexample_decoder.TFExampleDecoder is slim.tfexample_decoder.TFExampleDecoder
assert tf.contrib.layers.fully_connected is slim.fully_connected
x = tf.placeholder(tf.float32, [None, 4])
with slim.arg_scope([slim.fully_connected], weights_regularizer=slim.l2_regularizer(0.1)):
    net = slim.fully_connected(x, 8, normalizer_fn=tf.contrib.layers.batch_norm)
assert len(tf.losses.get_regularization_losses()) == 1
step = tf.train.get_or_create_global_step()
tf.contrib.layers.optimize_loss(tf.reduce_mean(net), step, 0.1, "SGD", clip_gradients=1.0)
"""


@pytest.mark.slow
def test_tf_slim_takes_the_place_of_modules_of_contrib():
    if importlib.util.find_spec("tf_slim") is None:
        pytest.skip("tf_slim is not installed")
    processes.run(SLIM)


UNDER_TF_V1 = """
import sys
import estimator_emb
estimator_emb.install(tf_v1=True)
import pytest, tensorflow as tf
assert tf.placeholder and not tf.executing_eagerly()
chosen = ["-m", "not slow", "-k", "not advice_to_try_tf_v1", sys.argv[1]]
sys.exit(pytest.main(["-q", "-p", "no:cacheprovider", "-n0", *chosen]))
"""


@pytest.mark.slow
def test_these_tests_pass_under_the_binding_of_tf_v1():
    done = processes.run(UNDER_TF_V1, __file__, cwd=processes.ROOT)
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 90


HINTS = {
    "tf.contrib.tpu": tf_v1._HINT,
    "import tensorflow.contrib.slim": tf_v1._HINT,
    "tf.compat.v1.contrib": tf_v1._HINT,
    "tf.placeholder": f"tf.placeholder is a name of TensorFlow 1: {tf_v1._TRY}. In TensorFlow 2 it "
    "is tf.compat.v1.placeholder.",
    "tf.train.AdamOptimizer": f"tf.train.AdamOptimizer is a name of TensorFlow 1: {tf_v1._TRY}. In "
    "TensorFlow 2 it is tf.compat.v1.train.AdamOptimizer.",
    **dict.fromkeys(["tf.nonsense", "tf.compat.v1.nonsense", "contrib.nonsense"]),
    **dict.fromkeys(["import nonsense", "{}['contrib']"]),
}
"""Program without --tf-v1 -> the advice, if any, about its error."""


@pytest.mark.parametrize("program", HINTS)
def test_missing_names_get_advice_to_try_tf_v1(program):
    with pytest.raises(Exception) as error:
        exec(program)
    assert tf_v1.advice_about_name(error.value) == HINTS[program]
