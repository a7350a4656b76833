"""Defines the absl flags that most TPUEstimator programs have, with a single call.

    from estimator_emb import flags as tpu_flags

    FLAGS = tpu_flags.define(train_batch_size=1024)

    def main(argv):
        estimator = ee.TPUEstimator(
            model_fn,
            config=FLAGS.run_config(),
            use_tpu=FLAGS.use_tpu.value,
            train_batch_size=FLAGS.train_batch_size.value,
        )

Flags that the program has already defined stay unchanged.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import tensorflow as tf
from absl import flags

from estimator_emb.catalog import environment
from estimator_emb.compat.internals.tpu_estimator import InputPipelineConfig
from estimator_emb.spec import options
from estimator_emb.spec.options import RunConfig


@dataclasses.dataclass(frozen=True)
class TPUFlags:
    """The holders of the flags that `define` defines. A flag's value is `holder.value`."""

    model_dir: flags.FlagHolder
    use_tpu: flags.FlagHolder
    device: flags.FlagHolder
    tpu: flags.FlagHolder
    tpu_zone: flags.FlagHolder
    gcp_project: flags.FlagHolder
    num_shards: flags.FlagHolder
    train_batch_size: flags.FlagHolder
    eval_batch_size: flags.FlagHolder
    predict_batch_size: flags.FlagHolder
    train_steps: flags.FlagHolder
    eval_steps: flags.FlagHolder
    iterations_per_loop: flags.FlagHolder
    save_checkpoints_steps: flags.FlagHolder
    keep_checkpoint_max: flags.FlagHolder

    def run_config(self, **kwargs: Any) -> RunConfig:
        """Returns the `RunConfig` that the flags ask for.

        If --tpu, --save_checkpoints_steps or --keep_checkpoint_max is not given, the default of
        `RunConfig` stays. The name of a TPU is looked up only if the program will run on a TPU.

        Args:
          **kwargs: arguments of `RunConfig`, which take precedence over the flags. If `tpu_config`
            is given, --iterations_per_loop, --num_shards and --device have no effect.
        """
        asked: dict[str, Any] = {"model_dir": self.model_dir.value}
        for holder in (self.save_checkpoints_steps, self.keep_checkpoint_max):
            if holder.value is not None:
                asked[holder.name] = holder.value
        if "tpu_config" not in kwargs:
            asked["tpu_config"] = options.TPUConfig(
                iterations_per_loop=_iterations(self.iterations_per_loop.value),
                num_shards=self.num_shards.value,
                per_host_input_for_training=InputPipelineConfig.PER_HOST_V2,
                device=self.device.value,
            )
        config = RunConfig(**{**asked, **kwargs})
        wanted = self.use_tpu.value and self.tpu.value is not None
        is_given = {"cluster", "master"} & set(kwargs)
        if not wanted or is_given or options.asked(config) != "tpu":
            return config
        cluster = tf.distribute.cluster_resolver.TPUClusterResolver(
            self.tpu.value, zone=self.tpu_zone.value, project=self.gcp_project.value
        )
        return RunConfig(**{**asked, **kwargs, "cluster": cluster})


_TEXT, _COUNT, _AT_LEAST_1 = flags.DEFINE_string, flags.DEFINE_integer, {"lower_bound": 1}
_FLAGS: dict[str, tuple[Callable[..., Any], Any, str, dict[str, Any]]] = {
    "model_dir": (_TEXT, None, "Directory of checkpoints and summaries.", {}),
    "use_tpu": (flags.DEFINE_boolean, True, "Whether the program is one for a TPU.", {}),
    "device": (
        flags.DEFINE_enum,
        None,
        "Where a program for a TPU runs: 'emulate' emulates a TPU, 'pjrt' takes the PJRT devices "
        f"of this machine. By default what {environment.DEVICE} of the environment says, or 'tpu'.",
        {"enum_values": [*environment.DEVICE.choices, *dict(environment.DEVICE.older)]},
    ),
    "tpu": (_TEXT, None, "Name or address of the Cloud TPU.", {}),
    "tpu_zone": (_TEXT, None, "Zone of the Cloud TPU; by default that of this machine.", {}),
    "gcp_project": (_TEXT, None, "Project of the Cloud TPU; by default this machine's.", {}),
    "num_shards": (_COUNT, None, "Number of TPU cores; by default all there are.", _AT_LEAST_1),
    "train_batch_size": (_COUNT, 128, "Examples per training step, all cores.", _AT_LEAST_1),
    "eval_batch_size": (_COUNT, 128, "Examples per evaluation step, all cores.", _AT_LEAST_1),
    "predict_batch_size": (_COUNT, 128, "Examples per prediction step.", _AT_LEAST_1),
    "train_steps": (_COUNT, 1000, "Global step at which training ends.", _AT_LEAST_1),
    "eval_steps": (_COUNT, None, "Batches of an evaluation; by default all.", _AT_LEAST_1),
    "iterations_per_loop": (
        _TEXT,
        "100",
        "Training steps on the TPU between two calls of hooks: a number, or a time as 30s.",
        {},
    ),
    "save_checkpoints_steps": (_COUNT, None, "Steps between checkpoints.", _AT_LEAST_1),
    "keep_checkpoint_max": (_COUNT, None, "How many checkpoints stay; 0: all.", {"lower_bound": 0}),
}
"""Flag -> the function that defines it, its default, its help text and further arguments."""


def define(flag_values: flags.FlagValues = flags.FLAGS, **defaults: Any) -> TPUFlags:
    """Defines the flags of `TPUFlags`, except flags that exist already.

    Args:
      flag_values: the flags to add them to. By default absl's own `FLAGS`.
      **defaults: default values by flag name, instead of the usual defaults.

    Returns:
      The holders of the flags.

    Raises:
      TypeError: `defaults` names an unknown flag.
    """
    known = [field.name for field in dataclasses.fields(TPUFlags)]
    unknown = sorted(set(defaults) - set(known))
    if unknown:
        raise TypeError(f"define: there are no flags {unknown}; the flags are {known}.")

    had = set(flag_values)
    for name, (define_flag, default, help, kwargs) in _FLAGS.items():
        if name not in had:
            default = defaults.get(name, default)
            define_flag(name, default, help=help, flag_values=flag_values, **kwargs)
    return TPUFlags(**{name: flags.FlagHolder(flag_values, flag_values[name]) for name in known})


def _iterations(value: Any) -> Any:
    return int(value) if str(value).isdigit() else value
