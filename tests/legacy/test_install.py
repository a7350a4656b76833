"""install() replaces each name that programs import, in any order. uninstall() restores it."""

import sys
import textwrap
import urllib.error
from unittest import mock

import harness
import processes
import pytest
import tensorflow as tf

import estimator_emb as ee
from estimator_emb.legacy import emulated_tpu
from estimator_emb.legacy import install as install_lib

EVERY_NAME = """
    import tensorflow as tf
    import tensorflow.compat.v1 as tf1
    import tensorflow.compat.v2 as tf2
    import tensorflow.compat.v2.compat.v1 as nested
    import tensorflow.compat.v1.estimator as estimator
    import tensorflow.compat.v1.estimator.tpu
    import tensorflow.compat.v2.estimator
    import tensorflow.estimator as estimator2
    from tensorflow.compat.v1.estimator import tpu as estimator_tpu
    from tensorflow.compat.v1.estimator.tpu.experimental import EmbeddingConfigSpec
    from tensorflow.compat.v1.tpu import experimental as tpu_experimental
    from tensorflow.estimator import ModeKeys
    from estimator_emb.legacy.input_checkpoint import CheckpointInputPipelineHook

    assert estimator is tf1.estimator is tf.compat.v1.estimator
    assert estimator2 is tf.estimator is tf2.estimator is tf.compat.v2.estimator
    assert estimator_tpu is estimator.tpu and ModeKeys is ee.ModeKeys
    assert EmbeddingConfigSpec is ee.EmbeddingConfigSpec
    assert estimator.train_and_evaluate is estimator2.train_and_evaluate is ee.train_and_evaluate
    for v1 in (tf1, tf.compat.v1, tf2.compat.v1, tf.compat.v2.compat.v1, nested):
        assert v1.estimator is estimator and estimator.tpu.TPUEstimator is ee.TPUEstimator, v1
        assert v1.tpu.experimental.AdagradParameters is ee.AdagradParameters
        assert v1.tpu.experimental.embedding_column
    for api in (tf, tf1, tf2, tf.compat.v1, tf.compat.v2):
        assert api.data.experimental.CheckpointInputPipelineHook is CheckpointInputPipelineHook
    assert tf.keras.estimator.model_to_estimator and tf1.keras.estimator.model_to_estimator

    from tensorflow_estimator.python.estimator.tpu import _tpu_estimator_embedding
    from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_context, tpu_estimator
    assert tpu_estimator.TPUEstimator is ee.TPUEstimator
    assert tpu_config.TPUConfig is ee.TPUConfig and tpu_context.TPUContext is ee.TPUContext
    assert _tpu_estimator_embedding.EmbeddingConfigSpec is ee.EmbeddingConfigSpec
    assert _tpu_estimator_embedding.AdadeltaParameters is ee.AdadeltaParameters  # Only ours has it.

    from tensorflow.python.estimator import estimator as old
    from tensorflow.python.estimator.canned import head
    from tensorflow.python.tpu import async_checkpoint, session_support, tpu_embedding
    from tensorflow.python.tpu import tpu_config as old_config, tpu_estimator as old_tpu
    import tensorflow.python.estimator.tpu.tpu_estimator as very_old
    from tensorflow_estimator.python.estimator import estimator as new
    assert old is new and old_config is tpu_config and tpu_estimator is old_tpu is very_old
    assert async_checkpoint.AsyncCheckpointSaverHook and tpu_embedding.TableConfig is ee.TableConfig

    everything = {}
    exec("from tensorflow_estimator.python.estimator.tpu.tpu_estimator import *", everything)
    assert everything["TPUEstimator"] is ee.TPUEstimator and everything["TPUEstimatorSpec"]
"""


@pytest.mark.slow
def test_install_replaces_every_name_before_tensorflow_is_imported():
    processes.run(
        f"""
    import estimator_emb as ee, feature_columns
    ee.install()
    ee.install()
    {EVERY_NAME}
    ee.uninstall()
    assert tpu_estimator is not __import__("sys").modules[tpu_estimator.__name__]  # Restored.
    assert ee.train_and_evaluate not in [one.train_and_evaluate for one in (estimator, estimator2)]
        """
    )


@pytest.mark.slow
def test_install_after_tensorflow_is_imported_can_be_undone():
    """Each attribute of each module is as before, but for what lazy modules cache (`_tfmw...`)."""
    processes.run(
        f"""
    import sys
    import tensorflow as tf
    import tensorflow.compat.v1
    import tensorflow.compat.v2.compat.v1
    if hasattr(tf, "estimator"):
        import tensorflow.estimator
        import tensorflow.compat.v1.estimator.tpu
        import tensorflow.python.estimator.estimator
        import tensorflow.python.tpu.tpu_estimator
    import estimator_emb as ee, feature_columns
    import tensorflow_estimator.python.estimator.api._v1.estimator
    import tensorflow_estimator.python.estimator.api._v2.estimator
    import tensorflow_estimator._api.v1.estimator
    from tensorflow.python.distribute.cluster_resolver.tpu import tpu_cluster_resolver
    tf.keras, tf.compat.v1.keras, tf.compat.v1.tpu.experimental, tf.compat.v1.data.experimental

    def state():
        owners = {{name: module for name, module in sys.modules.items()
                  if name.startswith("tensorflow")}}
        owners["resolver"] = tpu_cluster_resolver.TPUClusterResolver
        return owners, {{name: dict(vars(owner)) for name, owner in owners.items()}}

    modules, names = state()
    finders = list(sys.meta_path)
    ee.install()
    {EVERY_NAME}
    ee.uninstall()
    ee.uninstall()
    modules_after, names_after = state()
    assert sys.meta_path == finders
    for name, module in modules.items():
        assert modules_after[name] is module, name
        for key, value in names[name].items():
            if key not in ("__all__", "__warningregistry__") and not key.startswith("_tfmw"):
                assert names_after[name].get(key) is value, (name, key)
    # What is new is what the imports above have loaded anew, by its own name.
    aliases = ("tensorflow.python.estimator", "tensorflow.estimator")
    assert not [n for n in set(modules_after) - set(modules) if n.startswith(aliases)]
    assert hasattr(tf, "estimator") == ("estimator" in names["tensorflow"])
    assert hasattr(tf.compat.v1, "estimator") == ("estimator" in names["tensorflow.compat.v1"])
    from tensorflow_estimator.python.estimator.tpu import tpu_estimator
    assert tpu_estimator.TPUEstimator.__module__ == tpu_estimator.__name__
        """
    )


def test_install_replaces_every_name_in_this_process(installed):
    exec(textwrap.dedent(EVERY_NAME), {"ee": ee})


def test_a_replaced_module_shares_all_but_the_replaced_names(installed):
    """The original module keeps its class, which names itself in `super(...)`. Imports find ours.

    Programs patch names of either module, such as constants that the class reads.
    """
    from tensorflow_estimator.python.estimator.tpu import tpu_estimator as shared

    stock = ee.TPUEstimator.__mro__[1]  # The class of tensorflow-estimator.
    assert sys.modules[stock.__module__] is shared
    original = shared._original
    assert original.TPUEstimator is stock
    with mock.patch.object(shared, "_TPU_ESTIMATOR", "patched"):
        assert original._TPU_ESTIMATOR == "patched"
    assert original._TPU_ESTIMATOR == shared._TPU_ESTIMATOR != "patched"
    with mock.patch.object(shared, "TPUEstimator", "mine"):
        assert original.TPUEstimator is stock
    assert shared.TPUEstimator is ee.TPUEstimator
    assert {"TPUEstimator", "TPUEstimatorSpec", "_Inputs"} <= set(dir(shared))
    assert "TPUEstimator" in shared.__all__ and "_Inputs" not in shared.__all__
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        shared.nonsense  # noqa: B018


def test_tpu_embedding_takes_our_parameters_until_uninstall(installed):
    module = sys.modules["tensorflow.python.tpu.tpu_embedding"]
    parameters = tf.compat.v1.tpu.experimental.AdagradParameters(0.1)
    assert module.TableConfig(5, 2, optimization_parameters=parameters)[-1] == parameters
    ee.uninstall()
    assert ("estimator_emb" in sys.modules[module.__name__].__file__) is not harness.IS_2_15


def test_classes_by_their_legacy_names_can_be_subclassed(installed, tmp_path):
    import tensorflow.compat.v1 as tf1
    from tensorflow_estimator.python.estimator.tpu import tpu_config, tpu_estimator

    class Mine(tpu_estimator.TPUEstimator):
        def __init__(self, **kwargs):
            super().__init__(lambda features, labels, mode, params: None, use_tpu=False, **kwargs)

    estimator = Mine(config=tpu_config.RunConfig(model_dir=str(tmp_path)))
    assert isinstance(estimator, tf1.estimator.Estimator)
    assert isinstance(estimator, tf1.estimator.tpu.TPUEstimator)
    assert isinstance(estimator, tpu_estimator._original.TPUEstimator)
    assert estimator.model_dir == str(tmp_path)


def test_the_device_variable_is_read_at_each_call(installed, monkeypatch, caplog):
    """With 'host' no TPU is looked up: the address becomes ''."""
    caplog.set_level("INFO", "estimator_emb")
    address = "grpc://10.0.0.2:8470"
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver
    monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", "tpu")
    assert resolver(address).master() == address
    monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", "host")
    assert resolver(address).master() == ""
    assert resolver(address, coordinator_name="coordinator").cluster_spec().jobs == []
    assert resolver(address).num_accelerators() == {"TPU": 1}
    assert tf.tpu.experimental.initialize_tpu_system(resolver(address)).num_tasks == 1
    tf.tpu.experimental.shutdown_tpu_system(resolver(address))
    config = ee.RunConfig(master=address, evaluation_master=address)
    assert (config.master, config.evaluation_master) == ("", "")
    assert harness.said(caplog) == [
        f"TPUClusterResolver: {address!r} is the emulated TPU; no name is looked up.",
        *(f"An emulated TPU needs no {what}." for what in ("initialisation", "shutdown")),
        f"RunConfig: {address!r} is the emulated TPU; there is no connection.",
    ]
    config = ee.RunConfig(cluster=resolver(address))
    assert (config.master, config.evaluation_master) == ("", "")
    with pytest.raises(ValueError, match="Both master and cluster are set"):
        ee.RunConfig(master=address, cluster=resolver(address))
    config = ee.RunConfig(ee.TPUConfig(device="tpu"), master=address)
    assert config.master == address
    ee.uninstall()
    assert resolver(address).master() == address
    assert ee.RunConfig(master=address).master == address


def test_a_search_for_a_tpu_says_how_to_run_without_one(monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", "tpu")
    told = urllib.error.URLError("no host"), ValueError("Please provide a TPU Name to connect to.")
    for error in (*told, OSError("other")):
        search = emulated_tpu._choosing(None, mock.Mock(side_effect=error))
        with pytest.raises(type(error)) as caught:
            search()
        assert ("TPUConfig(device='emulate')" in str(caught.value)) is (error in told)


@pytest.mark.usefixtures("eight_devices")
def test_the_resolver_counts_pjrt_devices(installed, monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", "pjrt")
    resolver = tf.distribute.cluster_resolver.TPUClusterResolver("name")
    assert resolver.num_accelerators() == {"TPU": 8}


def test_a_module_that_does_not_exist_is_not_found(installed):
    for name in ("tensorflow.python.estimator.nonsense", "tensorflow.estimator.nonsense.more"):
        with pytest.raises(ModuleNotFoundError):
            __import__(name)


def test_a_failed_install_changes_nothing(monkeypatch):
    before = dict(vars(tf)), list(sys.meta_path)
    fails = mock.Mock(side_effect=RuntimeError("for the test"))
    monkeypatch.setattr(install_lib.emulated_tpu, "replace_lookups", fails)
    with pytest.raises(RuntimeError, match="for the test"):
        ee.install()
    assert (dict(vars(tf)), list(sys.meta_path)) == before
    assert install_lib._installed is None
