"""Writes tpu_goldens.json: results of TensorFlow 2.15's TPUEmbedding for tests/lib/tpu_cases.py.

Run with TensorFlow 2.15.1, the last version with that class, from the top of the repository:

    PYTHONPATH=.:tests/lib python tests/data/make_tpu_goldens.py
"""

import json
import pathlib

import tensorflow as tf
import tpu_cases
import tpu_graphs

import estimator_emb  # noqa: F401  (binds Keras 2)

FILE = pathlib.Path(__file__).parent / "tpu_goldens.json"


def main():
    from tensorflow.python.tpu import tpu_embedding

    assert tf.__version__ == "2.15.1" and "estimator_emb" not in tpu_embedding.__file__
    goldens = {"configurations": {}, "graphs": {}}
    for case in tpu_cases.KEPT:
        goldens["configurations"][case.name] = str(case.build(tpu_embedding).config_proto)
    for case in tpu_cases.GRAPHS:
        graph = tpu_graphs.build(case.build(tpu_embedding), tpu_embedding)
        goldens["graphs"][case.name] = tpu_graphs.describe(graph)
    FILE.write_text(json.dumps(goldens, indent=1) + "\n")
    print(f"{FILE}: {FILE.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
