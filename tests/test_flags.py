"""The flags of TPUEstimator programs, and the RunConfig made from them."""

import dataclasses

import pytest
from absl import flags

import estimator_emb as ee
from estimator_emb import flags as tpu_flags


def parsed(*arguments, before=None, **defaults):
    """Defines the flags, parses a command line, and returns the flags. `before` defines others."""
    values = flags.FlagValues()
    if before is not None:
        before(values)
    holders = tpu_flags.define(flag_values=values, **defaults)
    values(["program", *arguments])
    return holders


def test_defaults_of_flags_and_run_config(assert_recorded):
    holders = parsed()
    names = [field.name for field in dataclasses.fields(holders)]
    # tests/messages.json has the default of each flag.
    assert_recorded("\n".join(f"{name}: {getattr(holders, name).value!r}" for name in names))
    config = holders.run_config()
    default = ee.RunConfig()
    assert config.save_checkpoints_secs == default.save_checkpoints_secs
    assert config.keep_checkpoint_max == default.keep_checkpoint_max
    assert config.cluster is None and config.master == ""


def test_run_config_takes_the_values_of_flags():
    config = parsed(
        "--model_dir=/tmp/x",
        "--device=emulate",
        "--num_shards=4",
        "--iterations_per_loop=30",
        "--save_checkpoints_steps=1",
        "--keep_checkpoint_max=0",
        "--tpu=name",  # Ignored on the host, so `cluster` is None.
    ).run_config(tf_random_seed=3)
    assert config.model_dir == "/tmp/x"
    assert config.save_checkpoints_steps == 1 and config.keep_checkpoint_max == 0
    assert config.tf_random_seed == 3 and config.cluster is None
    tpu = config.tpu_config
    assert isinstance(tpu, ee.TPUConfig)
    assert (tpu.device, tpu.num_shards, tpu.iterations_per_loop) == ("emulate", 4, 30)
    assert tpu.per_host_input_for_training == ee.InputPipelineConfig.PER_HOST_V2


def test_arguments_of_run_config_override_flags():
    holders, mine = parsed("--model_dir=/tmp/x", "--num_shards=4"), ee.TPUConfig(5)
    config = holders.run_config(tpu_config=mine, model_dir="/tmp/y", master="here")
    assert (config.tpu_config, config.model_dir, config.master) == (mine, "/tmp/y", "here")


def test_a_tpu_is_looked_up_only_for_device_tpu(monkeypatch):
    monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", "tpu")
    # TensorFlow's resolver takes "local" for a TPU of this machine, whose master is "".
    holders = parsed("--tpu=local", "--tpu_zone=z", "--gcp_project=p")
    assert holders.run_config().cluster.master() == ""
    assert parsed("--tpu=local", "--nouse_tpu").run_config().cluster is None
    assert parsed("--tpu=local", "--device=host").run_config().cluster is None
    monkeypatch.setenv("ESTIMATOR_EMB_DEVICE", "host")
    assert holders.run_config().cluster is None


def test_flags_that_the_program_has_defined_before_are_kept():
    def before(values):
        for name, value in {"train_batch_size": 33, "iterations_per_loop": 9}.items():
            flags.DEFINE_integer(name, value, "Mine.", flag_values=values)

    holders = parsed(before=before, eval_batch_size=64)
    assert holders.train_batch_size.value == 33 and holders.eval_batch_size.value == 64
    assert holders.run_config().tpu_config.iterations_per_loop == 9


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--device=gpu"], r"flag --device=gpu: value should be one of <emulate\|pjrt\|tpu\|host>"),
        (["--train_batch_size=0"], "flag --train_batch_size=0"),
        (["--keep_checkpoint_max=-1"], "flag --keep_checkpoint_max=-1"),
    ],
)
def test_wrong_values_of_flags_are_refused(arguments, message):
    with pytest.raises(flags.IllegalFlagValueError, match=message):
        parsed(*arguments)


def test_iterations_per_loop_may_be_a_duration():
    assert parsed("--iterations_per_loop=30s").run_config().tpu_config.iterations_per_loop == "30s"
    with pytest.raises(ValueError, match="Invalid TPUConfig `iterations_per_loop` value"):
        parsed("--iterations_per_loop=often").run_config()


def test_an_unknown_default_is_refused():
    with pytest.raises(TypeError, match=r"define: there are no flags \['batch_size'\]; the flags"):
        tpu_flags.define(flag_values=flags.FlagValues(), batch_size=3)
