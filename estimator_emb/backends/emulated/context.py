# SPDX-License-Identifier: Apache-2.0
"""What tensorflow-estimator asks about the TPU, of one that is emulated."""

from typing import Any

import tensorflow as tf

from estimator_emb.backends.emulated import topology
from estimator_emb.compat.internals.tpu_estimator import InternalTPUContext


class EmulatedTPU(InternalTPUContext):
    """A TPU of one host and N cores, as tensorflow-estimator sees it.

    Args:
      config: a `RunConfig`, which says how many cores it has.
      **kwargs: of `_InternalTPUContext`.
    """

    def __init__(self, config: Any, **kwargs: Any):
        super().__init__(config=config, use_tpu=True, embedding_config_spec=None, **kwargs)
        tpu = config.tpu_config
        cores = (tpu.num_shards or 1) * (tpu.num_cores_per_replica or 1)
        self._metadata = tf.tpu.experimental.TPUSystemMetadata(
            num_cores=cores,
            num_hosts=1,
            num_of_cores_per_host=cores,
            topology=topology.emulated(cores),
            devices=[],
        )

    def _get_tpu_system_metadata(self) -> Any:
        return self._metadata

    @property
    def master_job(self) -> None:
        """None: everything runs in this process."""

    def __deepcopy__(self, memo: Any) -> "EmulatedTPU":
        return self  # Programs copy `params`, which hold the context.
