# SPDX-License-Identifier: Apache-2.0
"""Refuses distribution strategies of a RunConfig where they do not go with embedding tables."""

from typing import Any

from estimator_emb.spec.options import CannotEmulate


def check_none(config: Any, tables: bool, emulated: bool) -> None:
    """Refuses a strategy where this package trains tables or emulates cores.

    Without either, tensorflow-estimator runs the strategy as it does by itself.

    Args:
      config: the estimator's `RunConfig`.
      tables: True if there is an EmbeddingConfigSpec.
      emulated: True if a TPU is emulated.

    Raises:
      ValueError: there is a strategy, and either of them is True.
    """
    if not (tables or emulated):
        return
    for option in ("train_distribute", "eval_distribute"):
        strategy = getattr(config, option, None)
        if strategy is not None:
            what = "an EmbeddingConfigSpec" if tables else "an emulated TPU"
            raise (ValueError if tables else CannotEmulate)(
                f"RunConfig: {option} must be None with {what}; got a {type(strategy).__name__}. "
                "Several replicas on this machine: TPUConfig(device='host', num_shards=N) and "
                "use_tpu=True emulate N cores. Several machines: parameter servers, by TF_CONFIG "
                "alone."
            )
