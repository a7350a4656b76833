"""Where this package raises tensorflow-estimator's errors, the words are tensorflow-estimator's.

Its own tests, and the people who search for an error, look for these words. A field is `{}`.
"""

import pathlib
import re

import pytest
import tensorflow_estimator

import estimator_emb

PHRASES = """
Unsupported feature column {}
is used with multiple embeddings and this is not supported
Cannot find weights {} for weighted_categorical_column. Please check if the weights are present in\
 feature dict. Also note weight-sharing among weighted_categorical_column is not supported on TPU
weighted_categorical_column with weight key name {} has dense weights. Dense weights are not\
 supported on TPU. Please use sparse weights instead
SparseTensor with string as values are not supported
for Tensor Core embedding is already in use
This TPUContext instance must not be called from model_fn.
This TPUContext instance must not be called from input_fn.
For mode PREDICT, `input_fn` must return `Dataset` instead of `features` and `labels`.
For mode PREDICT, batch_axis is not supported yet.
`input_fn` must return a `Dataset` for the PER_HOST_V2 input pipeline configuration.
is not yet supported in per-Core input pipeline deployment yet. Please set\
 TPUConfig.per_host_input_for_training to True or return `features` and `labels` from `input_fn`
does not include params argument, required by TPUEstimator to pass batch size as\
 params['batch_size']
All tensors outfed from TPU should preserve batch size dimension, but got scalar {}
Only PER_HOST_V1 and PER_HOST_V2 is supported when using TPU Embedding
TPUEstimatorSpec.scaffold_fn returns None, which is not allowed
depends on TPU computation {}, which is not allowed.
CrossShardOptimizer must be used for model training on TPUs.
"""


def texts(package):
    """Returns a package's sources with joined parts of texts, and `{}` for each field."""
    paths = pathlib.Path(package.__file__).parent.rglob("*.py")
    text = "\n".join(path.read_text() for path in paths).replace("\\'", "'")
    joined = re.sub(r"""(["'])\s*\n\s*f?["']""", "", text)
    return re.sub(r"{[^{}\n]*}|%[sd]", "{}", joined)


@pytest.mark.any_version
def test_errors_keep_the_phrases_of_tensorflow_estimator():
    stock, own = texts(tensorflow_estimator), texts(estimator_emb)
    for phrase in PHRASES.strip().splitlines():
        assert phrase in stock
        assert phrase in own
