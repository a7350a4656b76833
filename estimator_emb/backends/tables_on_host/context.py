# SPDX-License-Identifier: Apache-2.0
"""Describes a TPU whose tables are on its host to tensorflow-estimator."""

import contextlib
from collections.abc import Iterator
from typing import Any

from estimator_emb.private.estimator import ModeKeys
from estimator_emb.private.tpu_estimator import InternalTPUContext


class TPUWithoutTables(InternalTPUContext):
    """A TPU that receives activations, and that predicts on its host."""

    _by_core = False

    def __init__(self, **kwargs: Any):
        super().__init__(use_tpu=True, embedding_config_spec=None, **kwargs)

    @contextlib.contextmanager
    def by_core(self) -> Iterator[None]:
        """Lets the contexts of modes report that input_fn is called for each core."""
        self._by_core = True
        try:
            yield
        finally:
            self._by_core = False

    def is_input_sharded_per_core(self) -> bool:
        return self._by_core or super().is_input_sharded_per_core()

    def _is_running_on_cpu(self, is_export_mode: bool) -> bool:
        # Prediction is one session call, a loop in the graph that could not be completed.
        predicting = self._assert_mode() == ModeKeys.PREDICT
        return predicting or super()._is_running_on_cpu(is_export_mode)
