"""mypy finds wrong arguments in a user's program."""

import pathlib
import re

import pytest

REPOSITORY = pathlib.Path(__file__).parents[1]

PROGRAM = """
import estimator_emb as ee
import feature_columns as fc
from estimator_emb import embedding


def model_fn(features, labels, mode, params):
    raise NotImplementedError


spec = ee.EmbeddingConfigSpec(
    feature_columns=[fc.embedding_column(fc.categorical_column_with_identity("item", 5), 2)],
    optimization_parameters=ee.AdagradParameters(0.1, initial_accumulator=0.2),
)
tpu_config = ee.TPUConfig(iterations_per_loop=100, num_shards=8, device="host")
estimator = ee.TPUEstimator(
    model_fn,
    config=ee.RunConfig(tpu_config=tpu_config),
    train_batch_size=128,
    embedding_config_spec=spec,
)
table = ee.TableConfig(10, 4, combiner="sum")
size: int = table.vocabulary_size
rates: list[embedding.Adam] = [embedding.Adam(0.1)]

reveal_type(ee.TPUConfig)
reveal_type(ee.TPUEstimator)
ee.TPUConfig(iterations_per_lop=100)  # unexpected keyword
ee.TPUConfig(device=1)  # wrong type
ee.AdagradParameters("0.1")  # wrong type
ee.TableConfig(10)  # missing argument
ee.TPUEstimator(model_fn, train_batch_size="128")  # wrong type
"""


def test_mypy_finds_exactly_the_wrong_arguments(tmp_path, monkeypatch, request):
    """Lines of PROGRAM with a comment are wrong. All other lines are right."""
    api = pytest.importorskip("mypy.api", reason="mypy is not installed")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    for package in ("estimator_emb", "feature_columns"):
        # mypy ignores an installed package without py.typed.
        assert (REPOSITORY / package / "py.typed").exists()
    monkeypatch.setenv("MYPYPATH", str(REPOSITORY))
    cache = request.config.cache.mkdir("mypy")
    options = "--config-file= --ignore-missing-imports --follow-imports=silent".split()
    printed, errors, _ = api.run([*options, f"--cache-dir={cache}", str(program)])
    assert errors == ""
    lines = program.read_text().splitlines()
    wrong = {number for number, line in enumerate(lines, 1) if "  # " in line}
    said = {int(number) for number in re.findall(r"program\.py:(\d+): error", printed)}
    assert said == wrong, printed
    # mypy shows each argument, and not just "*args: Any".
    for text in (
        "iterations_per_loop: Union[int, str] =",
        "num_shards: Union[int, None] =",
        "device: Union[str, None] =",
        "train_batch_size: Union[int, None] =",
        "embedding_config_spec: Union[",
    ):
        either = text.replace("Union[", "").replace(", ", " | ").replace("]", "")
        assert text in printed or either in printed, (text, printed)
    assert "*args" not in printed
