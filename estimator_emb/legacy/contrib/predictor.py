"""`tf.contrib.predictor`: calls a SavedModel as a function of arrays.

Source: tensorflow/contrib/predictor, TF 1.15.
"""

from typing import Any

import tensorflow as tf

_tf1 = tf.compat.v1


class Predictor:
    """A function from a dictionary of arrays to a dictionary of arrays."""

    def __init__(self, graph: Any, session: Any, feed: dict[str, Any], fetch: dict[str, Any]):
        self.graph = graph
        self.session = session
        self.feed_tensors = feed
        self.fetch_tensors = fetch

    def __call__(self, input_dict: dict[str, Any]) -> dict[str, Any]:
        """Returns the outputs for the inputs. Raises ValueError for an unknown input name."""
        unexpected = set(input_dict) - set(self.feed_tensors)
        if unexpected:
            raise ValueError(
                f"Got unexpected keys in input_dict: {unexpected}\n"
                f"expected: {set(self.feed_tensors)}"
            )
        feed = {
            self.feed_tensors[name]: value
            for name, value in input_dict.items()
            if value is not None
        }
        outputs: dict[str, Any] = self.session.run(self.fetch_tensors, feed_dict=feed)
        return outputs

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__} with feed tensors {self.feed_tensors} and fetch_tensors "
            f"{self.fetch_tensors}"
        )


def from_saved_model(
    export_dir: str,
    signature_def_key: str | None = None,
    signature_def: Any = None,
    input_names: dict[str, str] | None = None,
    output_names: dict[str, str] | None = None,
    tags: str | None = None,
    graph: Any = None,
    config: Any = None,
) -> Predictor:
    """Loads a SavedModel into its own session, and returns a `Predictor` of it.

    Inputs and outputs come from the signature `signature_def_key` (by default 'serving_default'),
    from `signature_def`, or from `input_names` and `output_names` (the program's names -> names of
    tensors). Giving more than one source raises ValueError. `tags` of the graph are separated by
    commas, by default 'serve'.
    """
    if (input_names is None) != (output_names is None):
        raise ValueError(
            "input_names and output_names must both be specified or both be unspecified."
        )
    ways = (signature_def_key, signature_def, input_names)
    if sum(way is not None for way in ways) > 1:
        raise ValueError(
            "You must specify at most one of signature_def_key OR signature_def OR"
            "(input_names AND output_names)."
        )
    graph = graph or tf.Graph()
    with graph.as_default():
        session = _tf1.Session(config=config)
        names = [tag.strip() for tag in (tags or "serve").split(",")]
        try:
            loaded = _tf1.saved_model.loader.load(session, names, export_dir)
        except RuntimeError as error:
            raise ValueError(f"Could not find MetaGraphDef with tags {tags or 'serve'}") from error
    if input_names is None:
        if signature_def is None:
            key = signature_def_key or "serving_default"
            if key not in loaded.signature_def:
                raise ValueError(
                    f'Got signature_def_key "{key}". Available signatures are '
                    f"{list(loaded.signature_def)}."
                )
            signature_def = loaded.signature_def[key]
        input_names = {name: info.name for name, info in signature_def.inputs.items()}
        output_names = {name: info.name for name, info in signature_def.outputs.items()}
    assert output_names is not None
    return Predictor(
        graph,
        session,
        {name: graph.get_tensor_by_name(tensor) for name, tensor in input_names.items()},
        {name: graph.get_tensor_by_name(tensor) for name, tensor in output_names.items()},
    )
