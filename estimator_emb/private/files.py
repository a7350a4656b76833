"""Private names of TensorFlow: where a path goes from Python to TensorFlow's file systems."""

from tensorflow.python import pywrap_tfe as _pywrap_tfe
from tensorflow.python.client import _pywrap_events_writer as _events_writer
from tensorflow.python.data.ops import readers as _readers
from tensorflow.python.eager import execute as _execute
from tensorflow.python.framework import op_def_library as _op_def_library
from tensorflow.python.lib.io import _pywrap_file_io as _file_io
from tensorflow.python.lib.io import _pywrap_record_io as _record_io
from tensorflow.python.training import py_checkpoint_reader as _py_checkpoint_reader

file_io = _file_io
"""Every function of `tf.io.gfile` calls it, so that `--map` reaches them all."""

readers = _readers
"""Makes datasets of records; it turns their names into a dataset first."""

record_io = _record_io
"""Reads records in Python, for `--map`."""

events_writer = _events_writer
"""Writes the events of `tf.summary.FileWriter`, for `--map`."""

checkpoint_reader = _py_checkpoint_reader
"""Reads checkpoints in Python, for `--map`."""

op_def_library = _op_def_library
"""Makes every op of a graph; the paths of those that read or write files are mapped there."""

pywrap_tfe = _pywrap_tfe
"""Runs an op at once; as `op_def_library`."""

execute = _execute
"""Runs an op at once that `pywrap_tfe` has declined; as `op_def_library`."""
