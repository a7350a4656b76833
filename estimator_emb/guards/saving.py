"""Saves a model, and compares a graph with the checkpoint that it begins from."""

import contextlib
import os
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from estimator_emb.checkpoints.restoring import live_servers, saver, vocabulary_record
from estimator_emb.compat.internals.graphs import FileWriterCache
from estimator_emb.engine.alone import ALONE
from estimator_emb.engine.tables import helper_variable
from estimator_emb.guards.call import Call, Runs
from estimator_emb.guards.events import Facts, with_hooks


def locked(call: Call) -> contextlib.AbstractContextManager[Any]:
    """Returns a context that locks a training's folder. It yields hooks for the training.

    It prevents two simultaneous trainings in the folder, and removes unfinished saves.
    """
    if call.method != "train" or call.directory is None:
        return contextlib.nullcontext([])
    writing(call.model_dir)
    return call.directory.continuing(call.config, call.is_chief, call.warm_start)


def writing(folder: str) -> None:
    """Lets the summaries of a folder begin a new file if somebody has removed its event files.

    TensorFlow keeps the writer of a folder until the process ends. After `rmtree(model_dir)` all
    that it writes would be lost.
    """
    writer = FileWriterCache._cache.get(folder)
    if writer is None:
        return
    with contextlib.suppress(Exception):  # Its folder may be gone.
        writer.flush()
    if not tf.io.gfile.glob(os.path.join(folder, "events.out.tfevents.*")):
        del FileWriterCache._cache[folder]


def restoring(call: Call) -> contextlib.AbstractContextManager[Any]:
    """Returns a context in which graphs begin from the call's checkpoint.

    `locked` does this for a training.
    """
    if call.method == "train" or call.directory is None:
        return contextlib.nullcontext()
    return call.directory.restoring(call.checkpoint)


def complete_savers(facts: Facts, spec: Any) -> None:
    """Adds the tables to the program's savers."""
    call = facts.call
    if facts.lookup is not None and call.ours:
        saver.complete(
            saver.savers_of_program(spec),
            facts.lookup.all_variables(),
            helper_variable.HELPER_VARIABLE,
            on_tpu=call.on_cores,
            training=call.training,
        )


def with_saver(facts: Facts, spec: Any) -> Any:
    """Returns a training's spec with the hooks of its saver, and adds a saver for its tables.

    It saves tables in parts. With parameter servers, a new chief keeps the servers' steps.
    """
    call, savers = facts.call, tf.compat.v1.GraphKeys.SAVERS
    if not (call.ours and call.has_spec):
        return spec
    has_saver = spec.scaffold.saver or tf.compat.v1.get_collection(savers)
    made: saver.PartsSaver | None = None
    if call.config.num_ps_replicas:
        seen = live_servers.StepsSeen()
        spec = with_hooks(spec, [seen], call.mode)
        if call.is_chief:
            made = live_servers.LiveServersSaver(call.config, seen)
    if not has_saver:
        host = facts.lookup.step.place.host if facts.lookup else ALONE
        tf.compat.v1.add_to_collection(savers, made or saver.PartsSaver(call.config, host))
    return spec


def take_turns(facts: Facts, hooks: Sequence[Any]) -> None:
    """Prevents two savers of the same folder from writing at once."""
    if facts.call.runs not in (Runs.PLAIN, Runs.DESCRIBED):
        waits = facts.lookup is not None and facts.lookup.fetch is not None
        saver.take_turns(hooks, waits)


def check_fit(facts: Facts, spec: Any) -> None:
    """Raises an error for variables and vocabularies that do not fit the checkpoint."""
    call = facts.call
    if call.directory is None:
        return
    scaffold, start = getattr(spec, "scaffold", None), facts.warm_start()
    call.directory.check(scaffold, start, call.tables, trains=call.training)
    if call.in_session:
        _check_vocabularies(call)  # Later, because `check` explains a grown vocabulary better.


def _check_vocabularies(call: Call) -> None:
    """Rejects a checkpoint that was trained with other vocabularies.

    A training's chief records them beside its checkpoints. A folder without this record is not
    checked.
    """
    directory = call.directory
    # A replica has only a part of the graph. A worker leaves the folder to the chief.
    if directory is None or directory.start is None or tf.distribute.has_strategy():
        return
    found = vocabulary_record.vocabularies_of(tf.compat.v1.get_default_graph())
    (path,) = directory.start
    if found and path is not None:
        vocabulary_record.check_unchanged(path, found)
    if found and call.method == "train":
        vocabulary_record.write(call.model_dir, found, continues=path is not None)
