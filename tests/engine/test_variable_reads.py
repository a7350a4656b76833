"""Variables are read in place: those of this process together by one op, others one by one."""

import functools

import pytest
import tensorflow as tf

from estimator_emb.engine.ordering import reads_before_writes, variable_reads

v1 = tf.compat.v1


@pytest.mark.parametrize(
    "config, devices, together",
    [
        (None, ["CPU"], True),
        (v1.ConfigProto(), ["CPU"], True),
        (v1.ConfigProto(device_count={"CPU": 2}), ["CPU"], False),
        (None, ["CPU", "GPU"], False),
    ],
)
def test_one_op_reads_the_variables_of_a_single_cpu(config, devices, together, monkeypatch):
    found = [tf.config.PhysicalDevice(f"/physical_device:{kind}:0", kind) for kind in devices]
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda: found)
    on_cpu = v1.ConfigProto(device_count={"GPU": 0})
    with tf.Graph().as_default(), v1.Session(config=on_cpu) as session:
        create = functools.partial(v1.get_variable, initializer=[1.0, 2.0], use_resource=True)
        variables = [create("here"), create("sparse"), create("reference", use_resource=False)]
        with tf.device("/job:localhost/task:0"):  # A job may be of another process.
            variables.append(create("of_job"))
        updates = [v1.scatter_add(variables[number], [0], [4.0]).op for number in (1, 3)]
        reads = variable_reads.in_place(variables, config)
        assert {name: read.op.type for name, read in reads.items()} == {
            **dict.fromkeys(
                ("here:0", "sparse:0"), "_ReadVariablesOp" if together else "ReadVariableOp"
            ),
            "reference:0": "VariableV2",
            "of_job:0": "ReadVariableOp",
        }
        assert reads["of_job:0"].device == "/job:localhost/task:0"
        # A plain read would copy a variable that is updated sparsely.
        for tensor in (reads["sparse:0"], reads["of_job:0"]):
            (keeps,) = tensor.op.control_inputs
            assert keeps.type == "DisableCopyOnRead"
            assert keeps.inputs[0] is tensor.op.inputs[tensor.value_index]
        # Updates do not wait for these reads, which only calls between the steps run.
        assert reads_before_writes.order(updates, reads.values()) == 0
        session.run([one.initializer for one in variables])
        session.run(updates)
        values = {name: value.tolist() for name, value in session.run(reads).items()}
        updated = {"sparse:0": [5.0, 2.0], "of_job:0": [5.0, 2.0]}
        assert values == {"here:0": [1.0, 2.0], "reference:0": [1.0, 2.0], **updated}
