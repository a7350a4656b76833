# SPDX-License-Identifier: Apache-2.0
"""Removes what killed saves have left behind in a model directory.

A checkpoint is written into a folder `model.ckpt-<step>_temp` and moved to its place at the end. A
process that is killed while it saves leaves that folder, which may be as large as the checkpoint.
The next training removes it, unless another process may be writing it.
"""

import contextlib
import os
import re
import time

import tensorflow as tf

from estimator_emb.messages.console import logger

OLD_SECONDS = 3600
"""Age at which a folder counts as left behind where no lock tells."""


def remove(model_dir: str, alone: bool) -> None:
    """Removes the folders of killed saves; unless `alone`, only those older than `OLD_SECONDS`."""
    for folder in _folders(model_dir):
        if alone or _is_old(folder):
            logger.info("Removing %s, which a killed save has left.", folder)
            with contextlib.suppress(tf.errors.OpError):
                tf.io.gfile.rmtree(folder)
        else:
            logger.info("Another process may be writing %s: it stays.", folder)


def _folders(model_dir: str) -> list[str]:
    if not tf.io.gfile.isdir(model_dir):
        return []
    names = (name.rstrip("/") for name in tf.io.gfile.listdir(model_dir))
    return [
        folder
        for name in sorted(names)
        if re.fullmatch(r"model\.ckpt-\d+_temp(_[0-9a-f]+)?", name)
        and tf.io.gfile.isdir(folder := os.path.join(model_dir, name))
    ]


def _is_old(folder: str) -> bool:
    try:
        names = [folder, *(f"{folder}/{name}" for name in tf.io.gfile.listdir(folder))]
        newest = max(tf.io.gfile.stat(name).mtime_nsec for name in names) / 1e9
    except tf.errors.OpError:
        return False
    return time.time() - newest > OLD_SECONDS
