"""Programs of `tf.estimator`'s API give the numbers of stock tensorflow-estimator on 2.15.1.

The programs are in `cases`. They use every public name.
"""

import concurrent.futures
import json
import pathlib
import re

import cases
import numpy as np
import processes
import pytest

ELSEWHERE = {
    **dict.fromkeys(("Exporter", "Head", "ExportOutput"), "only its subclasses do something"),
    "EvalOutput": "made by the export of evaluation graphs, 'all graphs'",
    "InputPipelineConfig": "of tf.estimator.tpu, in tests/backends",
    "TPUEstimatorSpec": "of tf.estimator.tpu, in tests/beside_stock",
    "EmbeddingConfigSpec": "of tf.estimator.tpu, in tests/beside_stock",
    **dict.fromkeys(
        "make_early_stopping_hook make_stop_at_checkpoint_step_hook stop_if_higher_hook "
        "stop_if_lower_hook stop_if_no_decrease_hook stop_if_no_increase_hook".split(),
        "in tests/systems/test_experimental.py",
    ),
}
"""Public names without a case -> the reason."""
STRICT = ("Keras calls", "one batch", "savers")
"""Groups that `run_cases` imports. Their numbers are equal up to the rounding of a few steps."""


def public_names(module):
    """Yields the public names of a module and of its submodules."""
    for name in dir(module):
        if not name.startswith("_"):
            one = getattr(module, name)
            yield from public_names(one) if isinstance(one, type(module)) else [name]


def test_every_public_name_has_a_case():
    used = set(re.findall(r"\w+", pathlib.Path(cases.__file__).read_text()))
    names = {*public_names(cases.v1e), *public_names(cases.v2e)}
    assert names - used == ELSEWHERE.keys()


def leaves(value, name=""):
    """Yields (name, value) of nested dicts and lists: the keys of each dict, numbers and texts."""
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        yield name, sorted(value)
        for key, one in value.items():
            yield from leaves(one, f"{name}/{key}")
    else:
        yield name, value


@pytest.mark.slow
@pytest.mark.sampled(4)
@pytest.mark.parametrize("group", [*cases.GROUPS, *STRICT])
def test_programs_give_the_numbers_of_stock(group, tmp_path):
    """All numbers and texts that the group's programs return are equal, but for rounding."""
    processes.stock_python()  # Skips the test without a stock Python.

    def results_of(side):
        program = pathlib.Path(cases.__file__).with_name("run_cases.py")
        processes.run_side(side, program, side, tmp_path, group, status=0)
        return json.loads((tmp_path / f"{side}.json").read_text())

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        stock, ours = pool.map(results_of, ["stock", "ours"])
    assert stock.keys() == ours.keys() and len(stock) > 1
    assert [one for one in stock.values() if str(one).startswith("raised")] == []
    found = dict(leaves(ours))
    for name, expected in leaves(stock):
        if isinstance(expected, float):  # Equal up to the rounding of float32.
            rtol, atol = (1e-5, 1e-6) if group in STRICT else (2e-4, 2e-6)
            # TensorFlow 2.21 rounds an LSTM otherwise than 2.15.1, which runs stock.
            atol = 5e-5 if "timeseries" in name else atol
            np.testing.assert_allclose(found[name], expected, rtol, atol, err_msg=name)
        else:
            assert found[name] == expected, name
