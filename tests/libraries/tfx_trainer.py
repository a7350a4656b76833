"""Runs the `run_fn` of the module given as argument in this folder, as a TFX Trainer does."""

# ruff: noqa: E402, I001 - TFX is imported where tf.estimator is.
import estimator_emb

estimator_emb.install()
import json
import os
import sys

import tensorflow as tf
from tfx.components.trainer import executor
from tfx.dsl.components.base import base_executor
from tfx.types import artifact_utils, standard_artifacts
from tfx.types import standard_component_specs as specs

examples = standard_artifacts.Examples()
examples.uri = "examples"
examples.split_names = artifact_utils.encode_split_names(["train", "eval"])
for split in ("train", "eval"):
    os.makedirs(f"examples/Split-{split}")
    with tf.io.TFRecordWriter(f"examples/Split-{split}/data.gz", "GZIP") as writer:
        for number in range(20):
            example = tf.train.Example()
            example.features.feature["x"].int64_list.value.append(number)
            example.features.feature["y"].float_list.value.append(1.0)
            writer.write(example.SerializeToString())
model, run = standard_artifacts.Model(), standard_artifacts.ModelRun()
model.uri, run.uri = "model", "run"
context = base_executor.BaseExecutor.Context(tmp_dir="tmp", unique_id="1")
properties = {specs.MODULE_FILE_KEY: sys.argv[1], specs.CUSTOM_CONFIG_KEY: "null"}
for key in (specs.TRAIN_ARGS_KEY, specs.EVAL_ARGS_KEY):
    properties[key] = json.dumps({"num_steps": 5})
outputs = {specs.MODEL_KEY: [model], specs.MODEL_RUN_KEY: [run]}
executor.GenericExecutor(context).Do({specs.EXAMPLES_KEY: [examples]}, outputs, properties)
