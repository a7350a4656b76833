# SPDX-License-Identifier: Apache-2.0
"""Rejects distribution strategies of a RunConfig for embedding tables and emulated TPUs."""

from typing import Any

from estimator_emb.spec.options import CannotEmulate


def check_none(config: Any, tables: bool, emulated: bool) -> None:
    """Raises ValueError if a `RunConfig` has a strategy, with tables or an emulated TPU.

    Without either, tensorflow-estimator runs the strategy.
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
