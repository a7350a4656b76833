# SPDX-License-Identifier: Apache-2.0
"""Distribution strategies of a RunConfig, which embedding tables do not go with."""

from typing import Any


def check(config: Any, tables: bool, emulated: bool) -> None:
    """Refuses a strategy where this package trains tables or emulates cores.

    Without either, tensorflow-estimator runs the strategy as it does by itself.

    Args:
      config: of the estimator.
      tables: whether there is an EmbeddingConfigSpec.
      emulated: whether a TPU is emulated.

    Raises:
      ValueError: there is a strategy, and one of both.
    """
    if not (tables or emulated):
        return
    for option in ("train_distribute", "eval_distribute"):
        strategy = getattr(config, option, None)
        if strategy is not None:
            what = "an EmbeddingConfigSpec" if tables else "an emulated TPU"
            raise ValueError(
                f"RunConfig: {option} must be None with {what}; got a {type(strategy).__name__}. "
                "Several replicas on this machine: TPUConfig(device='host', num_shards=N) and "
                "use_tpu=True emulate N cores. Several machines: parameter servers, by TF_CONFIG "
                "alone."
            )
