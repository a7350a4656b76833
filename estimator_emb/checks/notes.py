"""What checks note of a graph while it is built, for the errors of its steps."""

from typing import Any, TypeVar

import tensorflow as tf

_Notes = TypeVar("_Notes")


def of(kind: type[_Notes], graph: tf.Graph | None = None) -> _Notes:
    """Returns the notes of a class on a graph, by default the default one; empty ones at first.

    They are in a collection, and go with the graph. Its name is no text, so that no file has it.
    """
    notes: list[Any] = (graph or tf.compat.v1.get_default_graph()).get_collection_ref(kind)
    if not notes:
        notes.append(kind())
    return notes[0]
