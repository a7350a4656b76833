"""Runs programs of `cases.py` in this process, on one side.

    run_cases.py stock|ours FOLDER GROUP

Writes the result or error of each program of the group, as JSON, to FOLDER/<side>.json. Ours run
after `install()`. They fail on any warning of estimator_emb but the expected ones, because it is a
false alarm.
"""

import json
import logging
import os
import sys
import tempfile
import traceback

EXPECTED = {
    "Keras calls": "A layer that is called without training= runs in inference mode",
    "one batch": "train: input_fn yielded no batch",
}
"""Group -> the start of the warning that some of its programs deserve."""


def main(side, folder, group):
    warned = []
    if side == "ours":
        import estimator_emb

        estimator_emb.install()
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: warned.append(record.getMessage())
        logging.getLogger("estimator_emb").addHandler(handler)
    import numpy as np
    import tensorflow as tf

    (cpu,) = tf.config.list_physical_devices("CPU")
    two = [tf.config.LogicalDeviceConfiguration()] * 2
    tf.config.set_logical_device_configuration(cpu, two)
    tf.get_logger().setLevel("ERROR")
    import cases
    import keras_calls  # noqa: F401 - it adds a group, as the next two
    import one_batch  # noqa: F401
    import savers  # noqa: F401

    assert ("estimator_emb" in sys.modules) == (side == "ours")

    def written(value):
        if isinstance(value, dict):
            return {str(key): written(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [written(one) for one in value]
        value = value.numpy() if tf.is_tensor(value) else np.asarray(value)
        return value.astype(str).tolist() if value.dtype.kind in "SO" else value.tolist()

    found = {}
    for name, program in cases.GROUPS[group].items():
        tf.compat.v1.reset_default_graph()
        tf.keras.backend.clear_session()
        # Keras initializers without a seed draw it from Python's generator.
        tf.keras.utils.set_random_seed(3)
        try:
            found[name] = program(os.path.join(tempfile.mkdtemp(dir=folder), "model"))
        except Exception:
            found[name] = "raised " + traceback.format_exc()[-3000:]
    with open(os.path.join(folder, f"{side}.json"), "w") as file:
        json.dump(written(found), file)
    false_alarms = [one for one in warned if not one.startswith(EXPECTED.get(group, ()))]
    if false_alarms:
        sys.exit("\n".join(["estimator_emb warns:", *false_alarms]))


if __name__ == "__main__":
    main(*sys.argv[1:])
