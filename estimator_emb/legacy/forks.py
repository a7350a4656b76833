"""Recognises a program's own copy of tensorflow-estimator's tpu_estimator.py.

Such a copy needs private parts of the TensorFlow that it was copied from. If it runs at all, this
package neither emulates its TPUEstimator nor trains its tables.
"""

import linecache
import re
import sys
import traceback
from typing import Any

from estimator_emb.compat.internals import patches
from estimator_emb.compat.internals.estimators import Estimator
from estimator_emb.legacy import python2_hints
from estimator_emb.reporting.console import logger

_CLASS = re.compile(r"^class TPUEstimator\b")
_PARTS = re.compile(
    r"^class (TPUInfeedOutfeedSessionHook|_ModelFnWrapper|_InputPipeline|_OutfeedHostCall)\b"
)
_OWNERS = ("estimator_emb.", "tensorflow_estimator.")
_DO = (
    "Import ours in its place: from estimator_emb import TPUEstimator, TPUEstimatorSpec, "
    "TPUConfig, RunConfig (also tf.estimator.tpu in TensorFlow 1)."
)


def advice_about_copy(error: BaseException) -> str | None:
    """Returns advice if the error comes from a copy of tpu_estimator.py."""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        files.append(error.filename)
    for file in files:
        line = _line_of_copy(file)
        if line is not None:
            return (
                f"{python2_hints.place(file, line)}: this is the program's own copy of "
                "tpu_estimator.py, which needs private parts of the TensorFlow that it was taken "
                f"from. {_DO}"
            )
    return None


def warn_of_copies() -> None:
    """Makes Estimators of a copied tpu_estimator.py warn once per file, until the process ends."""
    patches.LASTING.wrap(Estimator, "__init__", _warning)


def _warning(begin: Any) -> Any:
    warned = set()

    def make(self: Any, *args: Any, **kwargs: Any) -> None:
        for base in type(self).__mro__:
            if base.__name__ != "TPUEstimator" or base.__module__.startswith(_OWNERS):
                continue
            file = getattr(sys.modules.get(base.__module__), "__file__", None) or ""
            line = _line_of_copy(file)
            if line is not None and file not in warned:
                warned.add(file)
                logger.warning(
                    "%s: TPUEstimator is the program's own copy of tpu_estimator.py. It is not "
                    "emulated, and the tables of an EmbeddingConfigSpec are not trained as "
                    "estimator_emb trains them. %s",
                    python2_hints.place(file, line),
                    _DO,
                )
        begin(self, *args, **kwargs)

    return make


def _line_of_copy(file: str) -> int | None:
    if "/tensorflow_estimator/python/" in file.replace("\\", "/"):
        return None
    lines = linecache.getlines(file)
    numbers = [number for number, line in enumerate(lines, 1) if _CLASS.match(line)]
    if not numbers or not any(_PARTS.match(line) for line in lines):
        return None
    return numbers[0]
