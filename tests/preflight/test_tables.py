"""Memory of tables on the embedding hardware, and the generations with such hardware."""

import harness
import programs
import pytest
from tpu_described import NO_ESTIMATOR

import estimator_emb as ee
from estimator_emb import embedding, preflight
from estimator_emb.preflight import tables
from estimator_emb.preflight.report import Compilation
from estimator_emb.spec.resolved import Table, tables_of


def spec(rows, dimension, parameters=None, **kwargs):
    return harness.table_spec(rows, dimension, parameters or ee.AdagradParameters(0.1), **kwargs)


def bytes_per_core(made, cores, training=True):
    return tables.table_bytes(tables_of(made), cores, made.partition_strategy, training)


@pytest.mark.parametrize("strategy", ["div", "mod"])
@pytest.mark.parametrize(
    ("rows", "dimension", "cores", "rows_per_core", "columns"),
    [
        (1000, 16, 8, 125, 16),
        (1001, 16, 8, 126, 16),
        (1000, 13, 8, 125, 16),  # Columns come in units of 8.
        (1000, 1, 8, 125, 8),
        (1000, 16, 2, 500, 16),
        (1001, 16, 32, 32, 16),  # The fullest of 4 hosts has 251 rows.
        (3, 16, 32, 1, 16),  # A host without rows gets a row of padding.
    ],
)
def test_bytes_per_core_include_padding_and_slots(
    rows, dimension, cores, rows_per_core, columns, strategy
):
    # A table and Adam's two slots, in float32.
    made = spec(rows, dimension, ee.AdamParameters(0.1), partition_strategy=strategy)
    assert bytes_per_core(made, cores) == 4 * 3 * rows_per_core * columns
    assert bytes_per_core(made, cores, training=False) == 4 * rows_per_core * columns


@pytest.mark.parametrize(("dimension", "columns"), [(1, 1), (2, 2), (3, 8), (4, 4), (5, 8)])
def test_packed_rows_take_fewer_columns(dimension, columns):
    """Rows of 1, 2 or 4 floats share a unit of 8 floats. Other rows take whole units."""
    packed = embedding.Adagrad(0.1, low_dimensional_packing_status=True)
    found = [Table("t", ee.TableConfig(1000, dimension, combiner="sum"), (), optimizer=packed)]
    # A table and Adagrad's slot, in float32, with 125 rows on each of 8 cores.
    assert tables.table_bytes(found, 8, "div", training=True) == 4 * 2 * 125 * columns


def estimator_of(made, **tpu_config):
    """Returns the estimator of a small program with the spec `made`, or without tables."""
    model_fn = programs.model_fn_with()
    return programs.estimator(model_fn, embedding_config_spec=made, device="host", **tpu_config)


def checked(
    made, mode="train", generations=("v3",), cores=8, compilations=(), device="host", place=None
):
    estimator = estimator_of(made)
    request, config = estimator.backend.request, estimator.config
    config = config.replace(tpu_config=config.tpu_config._replace(device=device, tables=place))
    return tables.check_tables(request, config, mode, generations, cores, compilations)


def test_tables_larger_than_a_v3_8_are_refused(assert_recorded):
    made = spec(390_625_000, 64)  # 100 GB, and another 100 GB for Adagrad's slot.
    (refused,) = checked(made)
    assert refused.table_bytes == 2 * 100 * 10**9 / 8  # 23.3 GiB
    assert "23.3 GiB of each of 8 cores, and a core has 16 GiB." in str(refused)
    assert_recorded(str(refused))
    (accepted,) = checked(made, cores=16)
    assert_recorded(str(accepted))  # Half of 23.3 GiB on each core.
    assert [one.outcome for one in checked(made, mode="eval")] == ["accepted"]  # Without slots.


def test_the_dense_step_is_added(assert_recorded):
    made = spec(250_000_000, 64)  # 14.9 GiB per core of 8.
    steps = [
        Compilation(name, "", replicas, "accepted", argument_bytes=size, temporary_bytes=2**29)
        for name, replicas, size in (("v3", 1, 0), ("v3", 8, 2**30), ("v4", 8, 0))
    ]
    v3, v4 = checked(made, generations=("v3", "v4"), compilations=steps)
    # 14.9 + 1 + 0.5 GiB on v3, by its larger compilation, and 14.9 + 0.5 GiB on v4, of 16 GiB.
    assert (v3.outcome, v4.outcome) == ("refused", "accepted")
    assert_recorded(f"{v3}\n{v4}")


@pytest.mark.parametrize(
    ("generation", "words"),
    [
        ("v2", ""),
        ("v4", ""),
        ("v5e", f"TPU v5e has no embedding hardware, and {NO_ESTIMATOR}"),
        ("v5p", f"TPU v5p has SparseCore, which TPUEstimator cannot drive, and {NO_ESTIMATOR}"),
        ("v6e", f"TPU v6e has SparseCore, which TPUEstimator cannot drive, and {NO_ESTIMATOR}"),
    ],
)
def test_only_v2_to_v4_accept_tables_but_on_the_host_all_do(generation, words):
    (found,) = checked(spec(1000, 16), generations=(generation,))
    assert (found.outcome, found.words) == ("refused" if words else "accepted", words)
    assert checked(None, generations=(generation,)) == ()
    # On the host, a table and Adagrad's slot: 1000 * 16 * 4 * 2 bytes.
    (on_host,) = checked(spec(1000, 16), generations=(generation,), device="pjrt")
    assert str(on_host) == (
        f"{generation}, tables: accepted; on the host, where they need 0.000128 GB of memory"
    )


ON_DEVICES = {"device": "pjrt", "place": "device"}


@pytest.mark.parametrize(
    ("rows", "dimension", "of_device"),
    [
        (8_000, 16, 1_000 * 16),
        # 1,001 rows of 16 floats on a device. 8 of them share a row of 128 floats: 126 such rows.
        (8_001, 10, 126 * 8 * 16),
        (8_000, 128, 1_000 * 128),
        (8_000, 130, 1_000 * 256),  # Two rows of 128 floats.
    ],
)
def test_bytes_of_tables_on_a_device_include_padding(rows, dimension, of_device):
    """Tables in the memory of 8 PJRT devices, with Adagrad's slot."""
    (found,) = checked(spec(rows, dimension), cores=8, generations=("v6e",), **ON_DEVICES)
    assert (found.outcome, found.table_bytes) == ("accepted", 2 * 4 * of_device)


def test_tables_larger_than_the_devices_are_refused(assert_recorded):
    (found,) = checked(spec(10**9, 64), cores=8, generations=("v5e",), **ON_DEVICES)
    assert found.outcome == "refused"
    # 10^9 rows * 64 floats * 4 bytes * 2 (Adagrad's slot) / 8 devices are 64 GB, or 59.6 GiB.
    assert "59.6 GiB of each of 8 devices, and a device has 16 GiB." in found.words
    assert_recorded(found.words)


@pytest.mark.parametrize(
    ("made", "tpu_config", "names"),  # made: the spec. names: those of the generations.
    [
        (spec(1000, 16), {}, ("v4",)),
        (None, {}, ("v4", "v6e")),
        (spec(1000, 16), {"tpu_generation": "v2"}, ("v2",)),
        (None, {"tpu_generation": "v5e"}, ("v5e",)),
        (spec(1000, 16), {"tpu_generation": "v6e"}, ("v6e",)),
    ],
)
def test_default_generations_follow_spec_and_config(made, tpu_config, names):
    """Without a tpu_generation: v4, the newest with embedding hardware, and v6e without tables."""
    estimator = estimator_of(made, **tpu_config)
    assert tables.default_generations(estimator.backend.request, estimator.config) == names


def test_a_generation_without_an_estimator_is_noted():
    """A note says so. Without tables, the report neither refuses nor accepts the program there."""
    given = estimator_of(None), programs.input_fn
    said = str(preflight.check_program(*given, generations=["v6e"], compile=False))
    untried = "  What compiles for v5e, v5p, v6e is for TPUConfig(device='pjrt'), which nobody "
    assert untried in said
    assert f" on a TPU: {NO_ESTIMATOR}\n" in said
    assert "use_tpu=True raises ValueError" not in said and "accepted" not in said
