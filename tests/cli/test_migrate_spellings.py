"""estimator-emb migrate: for every way to spell a name, the rewrite finds the same object."""

import itertools
import pkgutil
import re
import textwrap

import pytest
import text_tables

from estimator_emb.cli.migration import findings
from estimator_emb.cli.migration.rewrite import rewrite

STOCK = "tensorflow_estimator.python.estimator"

# Name below tf.compat.v1.estimator -> its object.
V1 = {
    "ModeKeys": "estimator_emb.ModeKeys",
    "Estimator": f"{STOCK}.estimator.Estimator",
    "RunConfig": f"{STOCK}.run_config.RunConfig",
    "DNNClassifier": f"{STOCK}.canned.dnn.DNNClassifier",
    "train_and_evaluate": "estimator_emb.train_and_evaluate",
    "SessionRunHook": "tensorflow.compat.v1.train.SessionRunHook",
    "export.PredictOutput": f"{STOCK}.export.export_output.PredictOutput",
    "inputs.numpy_input_fn": f"{STOCK}.inputs.numpy_io.numpy_input_fn",
    "experimental.KMeans": f"{STOCK}.canned.kmeans.KMeansClustering",
    "tpu.TPUEstimator": "estimator_emb.TPUEstimator",
    "tpu.RunConfig": "estimator_emb.RunConfig",
    "tpu.TPUConfig": "estimator_emb.TPUConfig",
    "tpu.experimental.EmbeddingConfigSpec": "estimator_emb.EmbeddingConfigSpec",
}
V2 = {
    "ModeKeys": "estimator_emb.ModeKeys",
    "Estimator": f"{STOCK}.estimator.EstimatorV2",
    "EvalSpec": "estimator_emb.EvalSpec",
    "RunConfig": f"{STOCK}.run_config.RunConfig",
    "DNNClassifier": f"{STOCK}.canned.dnn.DNNClassifierV2",
    "train_and_evaluate": "estimator_emb.train_and_evaluate",
    "export.PredictOutput": f"{STOCK}.export.export_output.PredictOutput",
    "experimental.RNNEstimator": f"{STOCK}.canned.rnn.RNNEstimator",
}
CONTRIB_TPU = {
    "TPUEstimator": "estimator_emb.TPUEstimator",
    "TPUEstimatorSpec": "estimator_emb.TPUEstimatorSpec",
    "RunConfig": "estimator_emb.RunConfig",
    "TPUConfig": "estimator_emb.TPUConfig",
    "InputPipelineConfig": "estimator_emb.InputPipelineConfig",
    "CrossShardOptimizer": "tensorflow.compat.v1.tpu.CrossShardOptimizer",
    "bfloat16_scope": "tensorflow.compat.v1.tpu.bfloat16_scope",
    "repeat": "tensorflow.python.tpu.training_loop.repeat",
}

# Statement that imports a module -> the program's name for the module.
SPELLINGS = {
    "tensorflow.compat.v1.estimator": {
        "import tensorflow.compat.v1 as tf": "tf.estimator",
        "import tensorflow as tf": "tf.compat.v1.estimator",
        "import tensorflow": "tensorflow.compat.v1.estimator",
        "import tensorflow.compat.v1": "tensorflow.compat.v1.estimator",
        "import tensorflow.compat.v1.estimator": "tensorflow.compat.v1.estimator",
        "import tensorflow.compat.v1.estimator as e": "e",
        "import os, tensorflow.compat.v1.estimator as e, sys": "e",
        "from tensorflow import compat": "compat.v1.estimator",
        "from tensorflow.compat import v1 as tf": "tf.estimator",
        "from tensorflow.compat.v1 import estimator": "estimator",
        "from tensorflow.compat.v1 import estimator as tf_estimator": "tf_estimator",
        "from tensorflow.compat.v1 import estimator as estimator_emb": "estimator_emb",
        "from tensorflow.compat.v1 import (\n  float32 as f,  # a\n  estimator,\n)": "estimator",
        "import tensorflow.compat.v2 as tf": "tf.compat.v1.estimator",
        "import tensorflow as tf\ntf = tf.compat.v1": "tf.estimator",
        "import tensorflow as tf\ntf1 = tf.compat.v1\nest = tf1.estimator": "est",
        "import tensorflow as tf; est = tf.compat.v1.estimator; x = 1": "est",
        "import tensorflow_estimator": "tensorflow_estimator.estimator",
        **{
            f"from {owner} import estimator as e": "e"
            for owner in (
                f"{STOCK}.api._v1",
                "tensorflow.compat.v2.compat.v1",
                "tensorflow._api.v2.compat.v1",
                "tensorflow_estimator._api.v1",
            )
        },
        "try:\n  from tensorflow.compat.v1 import estimator as e\n"
        "except ImportError:\n  from tensorflow_estimator import estimator as e": "e",
        "if 1:\n  import tensorflow.compat.v1 as tf\nelse:\n  import tensorflow.compat.v1 as tf": (
            "tf.estimator"
        ),
    },
    "tensorflow.estimator": {
        "import tensorflow as tf": "tf.estimator",
        "import tensorflow.compat.v2 as tf": "tf.estimator",
        "from tensorflow import estimator as tf_estimator": "tf_estimator",
        "import tensorflow.estimator": "tensorflow.estimator",
        "import tensorflow as tf\nest = tf.estimator": "est",
        "from tensorflow.compat.v2 import estimator": "estimator",
        "from tensorflow_estimator._api.v2 import estimator": "estimator",
        f"from {STOCK}.api._v2 import estimator": "estimator",
    },
    "tensorflow.contrib.tpu": {
        "import tensorflow as tf": "tf.contrib.tpu",
        "import tensorflow.compat.v1 as tf": "tf.contrib.tpu",
        "from tensorflow import contrib": "contrib.tpu",
        "from tensorflow.contrib import tpu": "tpu",
        "from tensorflow.contrib import tpu as contrib_tpu": "contrib_tpu",
        "import tensorflow.contrib.tpu as contrib_tpu": "contrib_tpu",
        "import tensorflow.contrib.tpu": "tensorflow.contrib.tpu",
        "import tensorflow as tf\ntpu = tf.contrib.tpu": "tpu",
        "import tensorflow as tf\ntry:\n  from tensorflow.contrib import tpu as contrib_tpu\n"
        "except ImportError:\n  contrib_tpu = tf.contrib.tpu": "contrib_tpu",
    },
}
NAMES = {
    "tensorflow.compat.v1.estimator": V1,
    "tensorflow.estimator": V2,
    "tensorflow.contrib.tpu": CONTRIB_TPU,
}

# Ways to use an expression. Each entry of NAMES has at least as many names.
PLACES = (
    "VALUE = {}",
    "def f(a={}):\n    return a\nVALUE = f()",
    "def f(tf=None, tpu=None):\n    return g()\ndef g():\n    return {}\nVALUE = f()",
    "class C:\n    kept = {}\nVALUE = C.kept",
    "VALUE = (lambda: {})()",
    "VALUE = [{} for _ in [0]][0]",
    "VALUE = {{0: {}}}[0]  # not tf.estimator.Estimator",
    "VALUE = [\n    {},  # a\n][0]",
)


def migrated(program):
    result = rewrite(program)
    again = rewrite(result.text)
    assert again.text == result.text, "The rewrite of a rewrite must change nothing."
    return result


def values_of(text):
    """Returns a program's names. Leaves out install(tf_v1=True), which would affect other tests."""
    text = text.replace("estimator_emb.install(tf_v1=True)", "")
    scope = {"__name__": "program"}
    exec(compile(text, "program", "exec"), scope)
    return scope


def left(result):
    return [finding for finding in result.findings if finding.group == findings.LEFT]


@pytest.mark.fast(12)
@pytest.mark.parametrize(
    "module, statement",
    [(module, statement) for module, all_ in SPELLINGS.items() for statement in all_],
)
def test_rewrites_a_module_in_any_spelling(module, statement):
    said = SPELLINGS[module][statement]
    program = f'"""Doc."""\n{statement}\n'
    for index, (name, place) in enumerate(zip(NAMES[module], itertools.cycle(PLACES))):
        program += f"{place.format(f'{said}.{name}')}\nVALUE_{index} = VALUE\n"
    result = migrated(program)
    assert left(result) == [], result.text
    values = values_of(result.text)
    for index, expected in enumerate(NAMES[module].values()):
        assert values[f"VALUE_{index}"] is pkgutil.resolve_name(expected), result.text
    for gone in (r"(?<!compat)\.contrib\b", r"\bv1\.estimator", r"tensorflow\.estimator"):
        assert not re.search(gone, re.sub("#.*", "", result.text)), result.text


@pytest.mark.parametrize(
    "module, name",
    [(module, name) for module, all_ in NAMES.items() for name in all_],
)
def test_rewrites_a_name_imported_by_itself(module, name):
    owner, _, leaf = f"{module}.{name}".rpartition(".")
    expected = pkgutil.resolve_name(NAMES[module][name])
    statements = (
        (f"from {owner} import {leaf}", leaf),
        (f"from {owner} import {leaf} as other", "other"),
        (f"from {owner} import (\n    {leaf},  # why\n)", leaf),
        (f"from {owner} import {leaf}; x = 1", leaf),
        (f"def f():\n\tfrom {owner} import {leaf}\n\treturn {leaf}\n{leaf} = f()", leaf),
        (f"try:\n  from {owner} import {leaf}\nexcept ImportError:\n  {leaf} = None", leaf),
        (f"if 1: from {owner} import {leaf}", leaf),
    )
    # Tests a third of the statements for each name, so that each statement is tested per module.
    for statement, said in statements[list(NAMES[module]).index(name) % 3 :: 3]:
        result = migrated(f"{statement}\nVALUE = {said}\n")
        assert left(result) == []
        assert values_of(result.text)["VALUE"] is expected, result.text
        assert "# why" in result.text or "why" not in statement


OTHER_NAMES = r"""
from tensorflow.python.tpu import tpu_config\nVALUE = tpu_config.TPUConfig
    estimator_emb.TPUConfig
from tensorflow.python.tpu import tpu_context\nVALUE = tpu_context._get_tpu_context
    STOCK.tpu.tpu_context._get_tpu_context
from tensorflow.python.estimator import run_config as r\nVALUE = r.RunConfig
    STOCK.run_config.RunConfig
from tensorflow.python.estimator.canned.dnn import DNNClassifier as VALUE
    STOCK.canned.dnn.DNNClassifier
from STOCK.canned import dnn\nVALUE = dnn.DNNClassifierV2
    STOCK.canned.dnn.DNNClassifierV2
from STOCK import training\nVALUE = training.train_and_evaluate
    estimator_emb.train_and_evaluate
from tensorflow.contrib.tpu.python.tpu import tpu_function\nVALUE = tpu_function.get_tpu_context
    tensorflow.python.tpu.tpu_function.get_tpu_context
from tensorflow.contrib.tpu.python.ops import tpu_ops\nVALUE = tpu_ops
    tensorflow.python.tpu.ops.tpu_ops
from tensorflow.python.tpu import tpu_embedding as t\nt.AdamParameters\nVALUE = t.TPUEmbedding
    tensorflow.python.tpu.tpu_embedding.TPUEmbedding
import tensorflow.compat.v1 as tf\nVALUE = tf.tpu.experimental.embedding_column
    feature_columns.embedding_column
from tensorflow.compat.v1.tpu import experimental as e\nVALUE = e.FtrlParameters
    estimator_emb.FtrlParameters
import tensorflow as tf
feature_columns = ee = 1
VALUE = tf.contrib.feature_column.sequence_input_layer
    feature_columns.sequence_input_layer
from tensorflow.contrib.layers.python.layers import layers\nVALUE = layers.layer_norm
    estimator_emb.legacy.contrib.layers.layer_norm
from tensorflow.contrib.training.python.training import hparam\nVALUE = hparam.HParams
    estimator_emb.legacy.contrib.hparam.HParams
import tensorflow as tf\nhparam = 1\nVALUE = tf.contrib.training.HParams
    estimator_emb.legacy.contrib.hparam.HParams
from tensorflow.contrib.framework import nest\nVALUE = nest.flatten_up_to
    tensorflow.python.util.nest.flatten_up_to
from tensorflow.contrib.tensorboard.plugins import projector\nVALUE = projector.ProjectorConfig
    tensorboard.plugins.projector.ProjectorConfig
from tensorflow.contrib import summary\nVALUE = summary.all_summary_ops
    tensorflow.compat.v1.summary.all_v2_summary_ops
import tensorflow as tf\ndef f(): tf.placeholder\nVALUE = tf.estimator.Estimator
    STOCK.estimator.Estimator
import estimator_emb as ee\nimport tensorflow as tf\nVALUE = tf.estimator.ModeKeys
    estimator_emb.ModeKeys
from __future__ import annotations
import tensorflow as tf
def f(x: tf.estimator.RunConfig): pass
VALUE = tf.estimator.VocabInfo
    estimator_emb.VocabInfo
from tensorflow import keras
from tensorflow.compat.v1.estimator import ModeKeys
from tensorflow.keras.layers import Dense
VALUE = ModeKeys
    estimator_emb.ModeKeys
import tensorflow as tf\nVALUE = (tf.\n  estimator\n .Exporter)
    estimator_emb.Exporter
import tensorflow as tf\nVALUE = (tf.estimator).ModeKeys
    estimator_emb.ModeKeys
""".replace("STOCK", STOCK)


@pytest.mark.parametrize("program, expected", text_tables.read(OTHER_NAMES).items())
def test_rewrites_other_names(program, expected):
    result = migrated(program.replace("\\n", "\n") + "\n")
    assert left(result) == []
    assert values_of(result.text)["VALUE"] is pkgutil.resolve_name(expected), result.text


INSTALL_V1 = "import estimator_emb\nestimator_emb.install(tf_v1=True)  # {}\n".format(
    "`import tensorflow` gives TensorFlow 1."
)


@pytest.mark.parametrize(
    "before, after",
    [
        ("", "import tensorflow as tf\nx = tf.placeholder(tf.float32)\n"),
        ("'''A program.'''\nimport os\n", "import models\nimport tensorflow as tf\ntf.app.run()\n"),
        ("from absl import app\n", "from tensorflow import Session, placeholder\nSession()\n"),
    ],
)
def test_installs_tf_v1_for_programs_of_tensorflow_1(before, after):
    """The call stands before any import that may import TensorFlow."""
    result = migrated(before + after)
    assert result.text == before + INSTALL_V1 + after
    assert migrated(result.text).text == result.text
    (finding,) = result.findings
    assert finding.text.endswith(
        "estimator_emb.install(tf_v1=True), before the import of TensorFlow, provides them. To do "
        "without that line, convert the program with tf_upgrade_v2."
    )


@pytest.mark.parametrize(
    "program",
    [
        "import tensorflow as tf\nx = tf.compat.v1.placeholder(tf.float32)\n",
        "import tensorflow.compat.v1 as tf\nx = tf.placeholder(tf.float32)\n",
        "import estimator_emb\nimport tensorflow as tf\nx = tf.placeholder(tf.float32)\n",
    ],
)
def test_does_not_install_tf_v1_for_other_programs(program):
    assert migrated(program).text == program


UNTOUCHED = """
    # tf.estimator.Estimator is only said here.
    import tensorflow as tf
    TEXT = "tf.estimator.Estimator"
    def f(tf):
        return tf.estimator.Estimator, tf.contrib.tpu
    def g():
        tf = object()
        return tf.estimator
    class C:
        tf = None
        def estimator(self, estimator=3):
            return self.tf.estimator.ModeKeys, estimator
    for_all = [tf.estimator for tf in []]
    with open("x") as file: estimator = file
    mine.contrib.tpu.TPUConfig, tf.keras.layers.Dense, tf.distribute
    tf.tpu.experimental.embedding.Adagrad, tf.tpu.experimental.initialize_tpu_system
    tf.estimators.Estimator, tf.contribution.tpu, mine.tensorflow.estimator.Estimator
"""


def test_does_not_rewrite_unrelated_names():
    program = textwrap.dedent(UNTOUCHED)
    assert rewrite(program).text == program
    assert left(rewrite(program)) == []


@pytest.mark.parametrize(
    "program, lines",
    [
        ("import tensorflow as tf\nbuild(tf.estimator)", [2]),
        ('import tensorflow as tf\ngetattr(tf, "estimator")', [2]),
        ('import tensorflow.compat.v1 as tf\nhasattr(tf.estimator, "tpu")', [2]),
        ("from tensorflow.contrib.tpu import *\nTPUConfig", [1]),
        ("import tensorflow as tf\nif a:\n  tf = fake\ntf.estimator.Estimator", [4]),
        ("import tensorflow as tf\nx = (tf.estimator # c\n  .Estimator)", [2]),
        ("import tensorflow as tf\ntf.estimator.Estimator = 1\ntf.estimator.Estimator()", [2, 3]),
        ("import tensorflow as tf\nclass C:\n  est = tf.estimator", [3]),
        ("import tensorflow as tf\ntf.contrib.slim.conv2d", [2]),
        ("from tensorflow.contrib.framework.python.ops.arg_scope import arg_scope", [1]),
        ("from tensorflow.contrib.framework.python.ops import arg_scope\narg_scope", [1, 2]),
        ("from tensorflow.contrib.layers import fully_connected", [1]),
        ("import tensorflow as tf\ntpu = tf.contrib.tpu\nf(tpu)", [2, 3]),
        ("from tensorflow.contrib import tpu\nf(tpu)", [1, 2]),
        ('from tensorflow.contrib import tpu\n__all__ = ["tpu"]', [1]),
        ("from tensorflow.contrib import slim", [1]),
        ("import tensorflow as tf\nclass C:\n  tf = tf\n  x = tf.estimator.ModeKeys", [4]),
        (
            "try:\n  import tensorflow.contrib.tpu\n  HAS = True\nexcept ImportError:\n"
            "  HAS = False",
            [2],
        ),
        ('import importlib\nimportlib.import_module("tensorflow.contrib.tpu")', [2]),
        ("import tensorflow as tf\ndel tf.estimator", [2]),
        ("import tensorflow as tf\ndef f(x: 'tf.estimator.RunConfig'): pass", [2]),
        ("import tensorflow as tf\nx = f()  # type: tf.estimator.RunConfig", [2]),
        (
            "try:\n  from tensorflow.contrib import tpu\nexcept ImportError:\n  tpu = None\n"
            "tpu and tpu.TPUConfig()",
            [2, 5],
        ),
    ],
)
def test_leaves_and_reports_unsafe_uses(program, lines):
    result = rewrite(program)
    assert result.text == program
    assert sorted({finding.line for finding in left(result)}) == lines


def test_rewrites_the_rest_beside_unsafe_uses():
    result = migrated(
        "from tensorflow.contrib import tpu, slim  # both\ntpu.TPUConfig\nslim.conv2d\nbuild(tpu)\n"
    )
    assert result.text == (
        "import estimator_emb\n"
        "from tensorflow.contrib import tpu, slim  # both\n"
        "estimator_emb.TPUConfig\nslim.conv2d\nbuild(tpu)\n"
    )
    assert [(finding.line, finding.text) for finding in left(result)] == [
        (
            1,
            "tf.contrib.slim left TensorFlow with version 2. Today: the package tf_slim, which "
            "--tf-v1 finds. TensorFlow 1.15's wheel has it.",
        ),
        (1, "tf.contrib.tpu is still used, see below."),
        (4, "tf.contrib.tpu is passed on as a module: use its names instead."),
    ]


IMPORTS = {
    # Inserted after docstring and __future__, before replaced imports and TensorFlow. Comments
    # stay.
    '"""Doc."""\nfrom __future__ import division\n# A comment.\nimport os\n\nimport numpy as np\n'
    "import tensorflow.compat.v1 as tf  # v1\nfrom tensorflow.contrib import tpu  # pylint: x\n\n"
    "tpu.TPUConfig(tf.float32)\n": (
        '"""Doc."""\nfrom __future__ import division\n# A comment.\nimport os\n\n'
        "import numpy as np\nimport estimator_emb\nimport tensorflow.compat.v1 as tf  # v1\n\n"
        "estimator_emb.TPUConfig(tf.float32)\n"
    ),
    # Before any import that may use tf.keras.
    "import os\nimport modeling\nimport tensorflow as tf\ntf.estimator.ModeKeys, tf.add\n": (
        "import os\nimport estimator_emb\nimport modeling\nimport tensorflow as tf\n"
        "estimator_emb.ModeKeys, tf.add\n"
    ),
    "from tensorflow.keras import layers\nfrom tensorflow.estimator import ModeKeys\nlayers\n": (
        "import estimator_emb  # noqa: F401 - before what uses tf.keras.\n"
        "from tensorflow.keras import layers\nfrom estimator_emb import ModeKeys\nlayers\n"
    ),
    "from tensorflow_estimator.python.estimator.canned import dnn\ndnn.x\n": (
        "import estimator_emb  # noqa: F401 - before what uses tf.keras.\n"
        "from tensorflow_estimator.python.estimator.canned import dnn\ndnn.x\n"
    ),
    "from tensorflow.estimator import ModeKeys\nimport tensorflow as tf\n"
    "tf.estimator.RunConfig, ModeKeys\n": (
        "import estimator_emb  # noqa: F401 - before what uses tf.keras.\n"
        "from tensorflow_estimator.python.estimator.api._v2 import estimator as tf_estimator\n"
        "from estimator_emb import ModeKeys\ntf_estimator.RunConfig, ModeKeys\n"
    ),
    # Not between a decorator and its function, and not before the program's first statements.
    "import os\nos.environ['A'] = 'b'\n@cache\ndef f():\n  import tensorflow as tf\n"
    "  return tf.estimator.ModeKeys\n": (
        "import os\nos.environ['A'] = 'b'\nimport estimator_emb\n@cache\ndef f():\n"
        "  return estimator_emb.ModeKeys\n"
    ),
    # Removes an import that nothing else uses.
    "import tensorflow as tf\ntf.estimator.ModeKeys": (
        "import estimator_emb\nestimator_emb.ModeKeys"
    ),
    "import tensorflow.contrib.tpu\ntensorflow.contrib.tpu.TPUConfig\ntensorflow.add\n": (
        "import estimator_emb\nimport tensorflow\nestimator_emb.TPUConfig\ntensorflow.add\n"
    ),
    "import six, tensorflow as tf, sys\ntf.estimator.ModeKeys, sys, six\n": (
        "import estimator_emb\nimport six, sys\nestimator_emb.ModeKeys, sys, six\n"
    ),
    "import tensorflow.contrib.tpu\ndef f():\n import tensorflow\ntensorflow.contrib.tpu.shard": (
        "import tensorflow\ndef f():\n import tensorflow\ntensorflow.compat.v1.tpu.shard"
    ),
    # Comments within a list.
    "from tensorflow.compat.v1.estimator import (  # all\n    # modes\n    ModeKeys,  # m\n"
    "    DNNClassifier,  # d\n)\n": (
        "from estimator_emb import (\n    # all\n    # modes\n    ModeKeys,  # m\n)\n"
        "from tensorflow_estimator.python.estimator.api._v1.estimator import (\n"
        "    DNNClassifier,  # d\n)\n"
    ),
    # In a function, and as the only statement of a block.
    "def f():\n\tfrom tensorflow.contrib import tpu\n\n\n\tx = 1\n\treturn tpu.TPUConfig\n": (
        "import estimator_emb\ndef f():\n\n\n\tx = 1\n\treturn estimator_emb.TPUConfig\n"
    ),
    "if use_tpu:\n  from tensorflow.contrib import tpu\nx = tpu.TPUConfig\n": (
        "import estimator_emb\nif use_tpu:\n  pass\nx = estimator_emb.TPUConfig\n"
    ),
    "if use_tpu:\n  from tensorflow.contrib import (\n    tpu,  # Why.\n  )\ntpu.TPUConfig\n": (
        "import estimator_emb\nif use_tpu:\n  # Why.\n  pass\nestimator_emb.TPUConfig\n"
    ),
    "from tensorflow.contrib import (\n  tpu,  # Why.\n); x = tpu.TPUConfig\n": (
        "import estimator_emb\npass; x = estimator_emb.TPUConfig\n"
    ),
    "if TYPE_CHECKING:\n  from tensorflow.estimator import ModeKeys\ndef f(m: ModeKeys): pass\n": (
        "if TYPE_CHECKING:\n  from estimator_emb import ModeKeys\ndef f(m: ModeKeys): pass\n"
    ),
    # Today both branches import the same object.
    "try:\n  from tensorflow.contrib.tpu import RunConfig\nexcept ImportError:\n"
    "  from tensorflow.compat.v1.estimator.tpu import RunConfig\nRunConfig\n": (
        "from estimator_emb import RunConfig\nRunConfig\n"
    ),
    # Does not import twice.
    "import estimator_emb as ee\nfrom tensorflow.contrib import tpu\nee.TPUConfig, tpu.RunConfig": (
        "import estimator_emb as ee\nee.TPUConfig, ee.RunConfig"
    ),
    # A docstring and __future__ remain the first statements.
    '"""Doc."""; import tensorflow as tf\ntf.estimator.ModeKeys\n': (
        '"""Doc."""; pass\nimport estimator_emb\nestimator_emb.ModeKeys\n'
    ),
    "from __future__ import division; import tensorflow as tf\ntf.estimator.ModeKeys\n": (
        "from __future__ import division; pass\nimport estimator_emb\nestimator_emb.ModeKeys\n"
    ),
    # Names that look up a TPU.
    "import tensorflow.compat.v1 as tf\n\nr = tf.distribute.cluster_resolver.TPUClusterResolver()\n"
    "c = tf.estimator.tpu.RunConfig(cluster=r)\n": (
        "import estimator_emb\nimport tensorflow.compat.v1 as tf\n\n"
        "estimator_emb.install()  # With ESTIMATOR_EMB_DEVICE=emulate, TPU names mean an emulated "
        "TPU.\n\nr = tf.distribute.cluster_resolver.TPUClusterResolver()\n"
        "c = estimator_emb.RunConfig(cluster=r)\n"
    ),
}


INSTALLS = "import estimator_emb\nestimator_emb.install()  # It brings tf.estimator back.\n"


@pytest.mark.parametrize(
    "program",
    [
        "import os\n^import tensorflow as tf\ntf.estimator.Estimator(f).train(g)\n",
        "^import tensorflow.compat.v1 as tf\ntf.estimator.DNNRegressor(c)\nf(tf.estimator)\n",
        "^from tensorflow import estimator as e\ne.train_and_evaluate(e.DNNClassifier(c), a)\n",
        "^from tensorflow.compat.v1.estimator import BaselineRegressor as B\ndef f(): B()\n",
        "^from tensorflow import keras\nkeras.estimator.model_to_estimator(m)\n",
        "^import tensorflow as tf\ntf1 = tf.compat.v1\ntf1.estimator.experimental.KMeans(2)\n",
        '"""Doc."""\n^def f():\n  import tensorflow as tf\n  tf.estimator.DNNClassifier()\n',
    ],
)
def test_programs_without_a_tpu_keep_their_names(program):
    result = migrated(program.replace("^", ""))
    assert result.text == program.replace("^", INSTALLS)
    assert result.findings == []


def test_programs_of_tensorflow_1_without_a_tpu_keep_their_names():
    program = (
        "import models\nimport tensorflow as tf\n"
        "tf.estimator.Estimator(f).train(tf.layers.dense)\ntf.app.run()\n"
    )
    result = migrated(program)
    assert result.text == INSTALL_V1 + program
    (finding,) = result.findings
    assert finding.text.startswith("The program uses names of TensorFlow 1: tf.layers, tf.app. ")
    assert migrated(result.text).text == result.text


def test_programs_that_use_other_legacy_names_are_rewritten():
    for other in ("tf.estimator.tpu.TPUConfig", "tf.contrib.layers", "tf.estimator.Nothing"):
        program = f"import tensorflow as tf\ntf.estimator.Estimator(f)\n{other}\n"
        assert "install()" not in migrated(program).text


@pytest.mark.parametrize("program", IMPORTS)
def test_inserts_and_removes_imports(program):
    assert migrated(program).text == IMPORTS[program]


def test_imports_of_a_package_are_kept():
    program = "from tensorflow import estimator\nestimator.ModeKeys\n"
    result = rewrite(program, is_package=True)
    assert result.text == (
        "import estimator_emb\nfrom tensorflow import estimator\nestimator_emb.ModeKeys\n"
    )
    assert [finding.text for finding in left(result)] == ["tf.estimator is still used, see below."]


@pytest.mark.parametrize(
    "program, count",
    [
        ("import tensorflow as tf\ntf.nn.dropout(x, 0.9)", 1),
        ("import tensorflow as tf\ntf.placeholder\ntf.nn.dropout(x, keep)", 1),
        ("import tensorflow as tf\ntf.nn.dropout(x, 0.1)", 0),
        ("import tensorflow as tf\ntf.nn.dropout(x, rate=0.9)", 0),
        ("import tensorflow.compat.v1 as tf\ntf.nn.dropout(x, 0.9)", 0),
    ],
)
def test_dropout_that_keeps_its_argument_is_reported(program, count):
    said = [one.text for one in rewrite(program).findings if "nn.dropout" in one.text]
    assert len(said) == count and all("rate=1 - keep_prob" in text for text in said)
