"""A good program. Mistakes can replace each part of it."""

import types

import tensorflow as tf

import estimator_emb as ee
import feature_columns as fc

v1 = tf.compat.v1
MISSING = object()


def changed(program, change):
    """Sets attributes of a program, or items of them, to other values.

    The value MISSING deletes an item. A function becomes a method if its first parameter is
    `program`.
    """
    for place, value in change.items():
        *owners, last = place.split(".")
        owner = program
        for name in owners:
            owner = owner[name] if isinstance(owner, dict) else getattr(owner, name)
        code = getattr(value, "__code__", None)
        if code is not None and code.co_varnames[:1] == ("program",):
            value = types.MethodType(value, program)
        if value is MISSING:
            del owner[last]
        elif isinstance(owner, dict):
            owner[last] = value
        else:
            setattr(owner, last, value)


class Program:
    """Trains, evaluates, predicts and exports a small model with two tables."""

    def __init__(self, model_dir, device="cpu"):
        self.features = {
            "item": [[1], [2], [3], [0]],
            "words": [[1, 2], [3, -1], [0, 0], [2, -1]],
            "age": [[0.1], [0.2], [0.3], [0.4]],
        }
        self.labels = [[1.0], [0.0], [1.0], [0.0]]
        # Arguments of constructors and calls.
        self.item = {"dimension": 2}
        self.spec = {}
        self.dicts = False
        self.lookups = {"item": {"table_id": "items"}, "words": {"table_id": "texts"}}
        self.tpu = {"iterations_per_loop": 1, "device": None if device == "cpu" else device}
        silent = dict.fromkeys(("save_summary_steps", "log_step_count_steps"))
        self.config = {"model_dir": str(model_dir), **silent}
        sizes = dict.fromkeys(("train_batch_size", "eval_batch_size", "predict_batch_size"), 4)
        self.estimator = {"use_tpu": device != "cpu", **sizes}
        self.train = {"max_steps": 1}
        self.evaluate = {"steps": 1}
        self.predict = {}
        self.export = {}
        self.exported_features = {"item": [None, 1], "words": [None, 2]}
        self.returned = {}  # By model_fn.
        self.environment = {}

    def columns(self):
        item = fc.categorical_column_with_identity("item", 5)
        words = fc.categorical_column_with_identity("words", 6)
        texts = fc.embedding_column(words, dimension=3, combiner="sum")
        return [fc.embedding_column(item, **self.item), texts]

    def parameters(self):
        return ee.AdagradParameters(0.1)

    def embedding_config_spec(self):
        arguments = {"optimization_parameters": self.parameters()}
        if self.dicts:
            tables = {"items": ee.TableConfig(5, 2), "texts": ee.TableConfig(6, 3)}
            features = {name: ee.FeatureConfig(**one) for name, one in self.lookups.items()}
            arguments |= {"table_to_config_dict": tables, "feature_to_config_dict": features}
        else:
            arguments["feature_columns"] = self.used = self.columns()
        return ee.EmbeddingConfigSpec(**{**arguments, **self.spec})

    def input_fn(self, params):
        data = tf.data.Dataset.from_tensor_slices((self.features, self.labels))
        return data.batch(params["batch_size"], drop_remainder=True).repeat()

    def embeddings(self, features):
        if self.dicts:
            return tf.concat([features["item"], features["words"]], axis=1)
        return fc.DenseFeatures(self.used)(features)

    def logits(self, features):
        hidden = tf.concat([self.embeddings(features), features["age"]], axis=1)
        return v1.layers.dense(hidden, 1, name="output")

    def loss(self, logits, labels):
        return tf.reduce_mean(v1.losses.sigmoid_cross_entropy(labels, logits))

    def dense_optimizer(self):
        return v1.tpu.CrossShardOptimizer(v1.train.AdagradOptimizer(0.1))

    def train_op(self, loss):
        return self.dense_optimizer().minimize(loss, v1.train.get_global_step())

    def metrics(self, labels, logits):
        def metric_fn(labels, logits):
            return {"mean": v1.metrics.mean(logits)}

        return metric_fn, [labels, logits]

    def predictions(self, logits):
        return {"logits": logits}

    def model_fn(self, features, labels, mode, params):
        if mode == ee.ModeKeys.PREDICT:
            predictions = self.predictions(self.logits(features))
            exported = {"serving_default": ee.export.PredictOutput(predictions)}
            given = {"predictions": predictions, "export_outputs": exported, **self.returned}
            return ee.TPUEstimatorSpec(mode, **given)
        logits = self.logits(features)
        loss = self.loss(logits, labels)
        returned = {"loss": loss}
        if mode == ee.ModeKeys.TRAIN:
            returned["train_op"] = self.train_op(loss)
        else:
            returned["eval_metrics"] = self.metrics(labels, logits)
        return ee.TPUEstimatorSpec(mode, **{**returned, **self.returned})

    def build(self):
        # A variable of a program refers to its spec, also where the estimator is not given it.
        self.made_spec = self.embedding_config_spec()
        config = ee.RunConfig(tpu_config=ee.TPUConfig(**self.tpu), **self.config)
        parts = {"config": config, "embedding_config_spec": self.made_spec}
        return ee.TPUEstimator(**{"model_fn": self.model_fn, **parts, **self.estimator})

    def serving_input_fn(self):
        receivers = {
            key: v1.placeholder(tf.int64, shape) for key, shape in self.exported_features.items()
        }
        batch = tf.shape(receivers["item"])[0]
        features = {**receivers, "age": tf.zeros([batch, 1])}
        return ee.export.ServingInputReceiver(features, receivers)

    def run(self, action):
        """Runs the action 'build', 'train', 'evaluate', 'predict' or 'export'."""
        estimator = self.build()
        if action == "build":
            return estimator
        if action == "export":
            receive = self.export.get("serving_input_receiver_fn", self.serving_input_fn)
            return estimator.export_saved_model(f"{estimator.model_dir}/export", receive)
        done = getattr(estimator, action)(**{"input_fn": self.input_fn, **getattr(self, action)})
        return next(done) if action == "predict" else done
