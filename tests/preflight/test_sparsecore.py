# SPDX-License-Identifier: Apache-2.0
"""The tables of a spec on SparseCore: their layout, what libtpu says of them, and the report."""

import json
import random
import re
import subprocess

import programs
import pytest
from descriptors import OPTIMIZERS

import estimator_emb as ee
from estimator_emb import preflight
from estimator_emb.names.generations import SPARSE_CORES
from estimator_emb.optimizers import PARAMETERS
from estimator_emb.preflight import compiler
from estimator_emb.preflight.sparsecore import compiling
from estimator_emb.preflight.sparsecore.layout import (
    Chips,
    SparseCoreLimits,
    stacks_of,
)
from estimator_emb.preflight.sparsecore.results import (
    Answer,
    SparseCoreResult,
    StackResult,
    report,
)
from estimator_emb.preflight.sparsecore.rule import trace
from estimator_emb.spec.resolved import Feature, Table, tables_of

PYTHON, MISSING = compiler.interpreter(None)
needs_compiler = pytest.mark.skipif(bool(MISSING), reason=MISSING or "installed")
ADAGRAD, ADAM = ee.AdagradParameters(0.1), ee.AdamParameters(0.1)


def table(name, rows=100, dimension=16, optimizer=ADAGRAD, features=1, **config):
    return Table(
        name,
        ee.TableConfig(rows, dimension, combiner="mean", **config),
        tuple(Feature(f"{name}_{index}") for index in range(features)),
        None,
        optimizer,
    )


def names(stacks):
    return [[table.name for table in stack.tables] for stack in stacks]


def rate(step):
    return 0.1


def test_what_is_trained_alike_is_stacked():
    given = [
        table("a"),
        table("b", dimension=9),
        table("c", dimension=17),
        table("d", optimizer=ee.AdagradParameters(0.2)),
        table("e", optimizer=ADAM),
        table("f", learning_rate=0.3),
        table("g", learning_rate_fn=rate),
        table("h", learning_rate_fn=rate),
    ]
    stacks = stacks_of(given[::-1], 64, Chips(8, 2))
    assert names(stacks) == [["a", "b"], ["c"], ["d"], ["e"], ["f"], ["g", "h"]]
    # 128 rows each, of which a chip has an eighth; 64 samples for each of the two features.
    first = stacks[0]
    assert (first.rows, first.dimension, first.samples) == (2 * 16, 16, 2 * 64)
    assert first.table_bytes == 2 * 4 * 32 * 16
    assert first.used_bytes == 2 * 4 * (100 * 16 + 100 * 9) / 8


def test_stacks_are_those_of_tensorflow():
    """Also where the activations or the weights of one stack would be too large."""
    layouts = pytest.importorskip("tensorflow.python.tpu._pywrap_sparse_core_layout")
    for seed in range(150):
        drawn = random.Random(seed)
        chips = Chips(drawn.choice([1, 4, 8, 16]), drawn.choice([2, 4]))
        batch = drawn.choice([4, 64, 1024, 4096])
        stacker = layouts.SparseCoreLayoutStacker(
            num_partitions=chips.count,
            sparse_cores_per_partition=chips.sparse_cores,
            disable_table_stacking=False,
        )
        given = []
        for index in range(drawn.randint(1, 14)):
            optimizer = drawn.choice([ADAGRAD, ADAM])
            one = table(
                f"t{index:02}",
                drawn.choice([1, 7, 100, 1000, 10**6, 10**7, 5 * 10**7]),
                drawn.choice([1, 8, 10, 16, 64, 120, 128]),
                optimizer,
                drawn.randint(0, 3),
            )
            given.append(one)
            stacker.AddTable(
                table_name=one.name,
                table_height=one.config.vocabulary_size,
                table_width=one.config.dimension,
                group=type(optimizer).__name__,
                output_samples=batch * len(one.features),
                num_features=len(one.features),
            )
        expected = {}
        for layout in stacker.GetLayouts().tables:
            shape = (
                layout.total_rows_per_sparse_core_shard * chips.sparse_cores,
                layout.unsharded_padded_shape[1],
            )
            expected.setdefault((layout.stacked_table_name, *shape), []).append(layout.table_name)
        actual = stacks_of(given, batch, chips)
        assert sorted(
            ([one.name for one in stack.tables], stack.rows, stack.dimension) for stack in actual
        ) == sorted((members, *key[1:]) for key, members in expected.items()), seed


def test_a_position_of_a_sequence_is_a_sample():
    found = stacks_of(tables_of(programs.spec()), 16, Chips(8, 2))
    assert [stack.samples for stack in found] == [16 * 4 + 16]


def test_limits():
    assert str(SparseCoreLimits(64)) == (
        "in a minibatch at most 64 ids, 64 of them distinct, of the samples of one SparseCore "
        "among the rows of another; at most 64 minibatches; on a chip 64 ids a sample on average"
    )
    assert SparseCoreLimits(1000).max_unique_ids_per_partition == 256
    with pytest.raises(
        ValueError, match=r"^SparseCoreLimits: max_minibatches must be at least 1; got 0\.$"
    ):
        SparseCoreLimits(max_minibatches=0)


@pytest.fixture
def fake_compiler(monkeypatch):
    """Answers in place of libtpu, by a function of each program's text; gives what was asked."""
    asked = []

    def install(answer):
        def run(python, process, work, result, timeout):
            assert process == "compile_tables.py"
            order = json.loads((work / "tables.json").read_text())
            file = work / "compiled.json"
            file.unlink(missing_ok=True)
            answers = []
            for name in order["programs"]:
                text = (work / name).read_text()
                asked.append((order["topology"], order["replicas"], text))
                said = answer(text)
                if said is None:  # The process ends here.
                    break
                answers.append(said)
                file.write_text(json.dumps({"libtpu": "1.2", "programs": answers}))
            if answers:
                return json.loads(file.read_text()), ""
            return None, "its process ended with status -6:\nCheck failed"

        monkeypatch.setattr(compiler, "run_process", run)
        return asked

    return install


def ask(given, batch=16, replicas=8, generations=("v4", "v5p", "v6e"), training=True, **kwargs):
    step = compiling.SparseCoreStep(given, None, training, batch, replicas, **kwargs)
    return compiling.compile_tables(step, generations, "python", 100.0)


ACCEPTED = {"ok": True, "argument_bytes": 2**20, "temporary_bytes": 2**19}


def test_each_generation_with_sparse_cores_is_asked_once_about_each_program(fake_compiler):
    asked = fake_compiler(lambda text: ACCEPTED)
    # b is as a, but for a rate, which is an argument of the update.
    results = ask([table("a"), table("b", learning_rate=0.3), table("c", optimizer=ADAM)])
    assert [(result.generation, result.topology) for result in results] == [
        ("v5p", "v5p:2x2x2"),
        ("v6e", "v6e:2x4"),
    ]
    assert [one[:2] for one in asked] == [("v5p:2x2x2", 8)] * 3 + [("v6e:2x4", 8)] * 3
    assert [result.outcome for result in results] == ["compiles"] * 2
    assert results[0].stacks[1].update == Answer("compiles", "", 2**20, 2**19)
    # The pointers of a chip: 32 SparseCores or 16, for each of its 4 or 2, in 64 minibatches.
    assert (
        f"tensor<{32 * 4 * 64}xi32>" in asked[0][2] and f"tensor<{16 * 2 * 64}xi32>" in asked[3][2]
    )


@pytest.mark.parametrize(("mode", "count"), [("train", 2), ("eval", 1), ("infer", 0)])
def test_a_program_is_asked_about_by_its_mode(mode, count, fake_compiler, monkeypatch):
    """And the answers are no part of the exit status."""
    asked = fake_compiler(lambda text: {"ok": False, "error": "too large"})
    monkeypatch.setattr(compiler, "interpreter", lambda given: ("python", ""))
    monkeypatch.setattr(compiler, "compile_step", lambda *_: ((), None, []))
    estimator = programs.estimator(programs.model_fn_with())

    def check(**kwargs):
        limits = SparseCoreLimits(9)
        return preflight.check_program(
            estimator,
            programs.input_fn,
            mode,
            generations=["v4", "v6e"],
            sparse_core_limits=limits,
            **kwargs,
        )

    found = check()
    assert len(asked) == count
    assert [result.outcome for result in found.sparse_core] == ["refused"] * min(count, 1)
    assert all(r"max_ids_per_partition\22: 9," in text for _, _, text in asked)
    without = check(compile=False)
    assert without.sparse_core == () and len(asked) == count
    assert found.status == without.status


def test_the_batch_of_a_replica_is_its_share_where_no_step_says_it():
    estimator = programs.estimator(programs.model_fn_with(), num_cores_per_replica=2)
    limits = SparseCoreLimits(9)
    step = compiling.of_program(estimator, "train", 8, None, limits)
    assert (step.batch, step.training, step.cores_per_replica) == (programs.PER_CORE, True, 2)
    assert step.limits == limits
    assert compiling.of_program(estimator, "eval", 4, 3).batch == 3
    assert compiling.of_program(estimator, "infer", 8) is None


def test_evaluation_looks_up_only(fake_compiler):
    asked = fake_compiler(lambda text: ACCEPTED)
    (result,) = ask([table("a", optimizer=None)], generations=["v6e"], training=False)
    assert len(asked) == 1 and result.stacks[0].update is None
    assert report((result,))[0] == (
        "SparseCore: the lookup of the tables, given to libtpu 1.2. TPUEstimator drives no "
        "SparseCore, so this is not how the program trains."
    )


def test_a_program_that_ends_the_compiler_leaves_the_others_their_answers(fake_compiler):
    fake_compiler(lambda text: None if "x24xf32>" in text and "@rule" in text else ACCEPTED)
    given = [table("a"), table("b", dimension=24), table("c", dimension=32)]
    (result,) = ask(given, generations=["v6e"])
    outcomes = [(stack.lookup.outcome, stack.update.outcome) for stack in result.stacks]
    assert outcomes == [
        ("compiles", "compiles"),
        ("compiles", "not compiled"),
        ("compiles", "compiles"),
    ]
    assert result.stacks[1].update.words == "its process ended with status -6:\nCheck failed"
    assert result.outcome == "not compiled"


def test_a_rule_that_cannot_be_said_is_refused_and_its_table_looked_up(fake_compiler):
    fake_compiler(lambda text: ACCEPTED)
    lazy = ee.AdamParameters(0.1, lazy_adam=False)
    (result,) = ask([table("a"), table("b", optimizer=lazy)], generations=["v6e"])
    assert result.stacks[1].lookup.outcome == "compiles"
    assert str(result.stacks[1].update) == (
        "refused: it cannot be said for SparseCore: AdamParameters(lazy_adam=False) changes all "
        "rows of the table in each step, and SparseCore updates only those that the batch looks "
        "up: use lazy_adam=True."
    )
    assert result.outcome == "refused"


def test_what_cannot_be_laid_out_is_not_compiled(fake_compiler):
    asked = fake_compiler(lambda text: ACCEPTED)
    (three,) = ask([table("a")], replicas=3, generations=["v6e"])
    assert str(three) == (
        "v6e, 3 chips of 2 SparseCores each: not compiled: no topology with 3 chips is known, but "
        "with 1, 4, 8, 16, 32, 64, 128, 256"
    )
    (odd,) = ask([table("a")], batch=6, generations=["v5p"])
    assert str(odd) == (
        "v5p, 8 chips of 4 SparseCores each: not compiled: a chip's SparseCores share its samples "
        "evenly, and 6 samples per core are no multiple of 4"
    )
    (divided,) = ask([table("a")], generations=["v6e"], cores_per_replica=2)
    assert divided.words == (
        "num_cores_per_replica=2 divides the model, and it is not known how SparseCores would "
        "share the samples of a replica"
    )
    assert asked == []
    assert report((three, odd))[0] == (
        "SparseCore: the lookup of the tables. TPUEstimator drives no SparseCore, so this is not "
        "how the program trains."
    )


def test_the_words_of_the_compiler_are_told_apart(fake_compiler):
    words = "E3001: No viable count:\nmax_nz_per_row = 256" + " and more" * 100
    fake_compiler(lambda text: {"ok": False, "error": words} if "@rule" in text else ACCEPTED)
    (result,) = ask([table("a")], generations=["v6e"])
    assert result.outcome == "refused"
    said = str(result).splitlines()
    assert said[2] == "    lookup compiles; per chip: arguments 1 MiB, temporaries 0.5 MiB"
    assert said[3] == "    update refused: E3001: No viable count:"
    assert said[4].startswith("      max_nz_per_row = 256 and more") and said[4].endswith(" ...")
    fake_compiler(lambda text: {"ok": False, "error": "INTERNAL: a bug"})
    (result,) = ask([table("a")], generations=["v6e"])
    assert result.outcome == "not compiled"


def test_tables_that_fit_one_by_one_and_not_together_are_refused():
    one = StackResult(("a",), "SGD", 2**24, 8, 2**29, 2**28, Answer("compiles", "", 1, 1), None)
    result = SparseCoreResult("v6e", "v6e:2x2", 1, 2, "", (one, one), "1.2", 2**29)
    assert result.outcome == "refused"
    assert str(result).splitlines()[0] == (
        "v6e, 1 chip of 2 SparseCores each (topology v6e:2x2): refused; tables and slots per chip: "
        "1 GiB, 2e+02 % of 0.5 GiB"
    )


@pytest.mark.slow
@needs_compiler
def test_the_tables_of_a_program_compile_for_v5p_and_v6e():
    found = preflight.check_program(
        programs.estimator(programs.model_fn_with()),
        programs.input_fn,
        generations=["v5p", "v6e"],
        compiler_python=PYTHON,
    )
    assert [(result.generation, result.outcome) for result in found.sparse_core] == [
        ("v5p", "compiles"),
        ("v6e", "compiles"),
    ]
    for result in found.sparse_core:
        (stack,) = result.stacks
        assert stack.tables == ("items", "users") and stack.dimension == 16
        for answer, tables in ((stack.lookup, 1), (stack.update, 2)):
            # The arguments have the tables, and what else is in them is ids and activations.
            assert answer.argument_bytes > tables * stack.table_bytes / 2
    assert "SparseCore: the lookup of the tables and their update" in str(found)


@pytest.mark.slow
@needs_compiler
@pytest.mark.any_version
def test_every_optimizer_compiles():
    """Of each class the settings with the longest rule."""
    longest = {}
    for one in sorted(OPTIMIZERS, key=lambda one: len(trace(one.parameters, None, 8).statements)):
        longest[one.parameters.hardware.name] = one.parameters
    assert len(longest) == len(PARAMETERS)
    given = [
        table(f"t_{name}", 1000, parameters.required_dimension or 32, parameters)
        for name, parameters in longest.items()
    ]
    step = compiling.SparseCoreStep(given, 0.5, True, 64, 8)
    for result in compiling.compile_tables(step, ["v5p", "v6e"], PYTHON, 1200.0):
        assert result.outcome == "compiles", str(result)


@pytest.mark.slow
@needs_compiler
@pytest.mark.any_version
def test_large_tables_are_updated_in_place():
    """In another layout than a SparseCore's, each step would copy them: twice the memory."""
    (result,) = ask_compiler([table("a", 40_000_000, 16)])
    assert result.outcome == "compiles"
    (stack,) = result.stacks
    assert stack.update.argument_bytes == pytest.approx(stack.table_bytes, rel=1e-2)
    assert stack.update.temporary_bytes < stack.table_bytes / 1000


@pytest.mark.slow
@needs_compiler
@pytest.mark.any_version
def test_the_compiler_refuses_what_is_too_large():
    """A table, and buffers of ids; each in the compiler's words."""
    (memory,) = ask_compiler([table("a", 200_000_000, 128)])
    assert memory.outcome == "refused"
    assert re.search("Ran out of memory|RESOURCE_EXHAUSTED", memory.stacks[0].update.words)
    (buffers,) = ask_compiler([table("a")], limits=SparseCoreLimits(65536, 65536))
    assert buffers.outcome == "refused"
    assert "max_nz_per_row = 65536" in buffers.stacks[0].update.words


@pytest.mark.slow
@needs_compiler
@pytest.mark.any_version
def test_the_sparse_cores_of_a_chip_are_those_that_jax_knows():
    program = (
        "from jax._src.pallas.mosaic import tpu_info as t\n"
        "for kind in (t.ChipVersion.TPU_V5P, t.ChipVersion.TPU_V6E):\n"
        "    print(t.get_tpu_info_for_chip(kind, 1).sparse_core.num_cores)\n"
    )
    done = subprocess.run([PYTHON, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(SPARSE_CORES[name]) for name in ("v5p", "v6e")]


def ask_compiler(given, **kwargs):
    step = compiling.SparseCoreStep(given, None, True, 64, 1, **kwargs)
    return compiling.compile_tables(step, ["v6e"], PYTHON, 600.0)
