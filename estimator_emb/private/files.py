"""Private modules of TensorFlow: where a path goes from Python to TensorFlow's file systems."""

# Runs an op at once; as `op_def_library`.
from tensorflow.python import pywrap_tfe

# Writes the events of `tf.summary.FileWriter`, for `--map`.
from tensorflow.python.client import _pywrap_events_writer as events_writer

# Makes datasets of records; it turns their names into a dataset first.
from tensorflow.python.data.ops import readers

# Runs an op at once that `pywrap_tfe` has declined; as `op_def_library`.
from tensorflow.python.eager import execute

# Makes every op of a graph; the paths of those that read or write files are mapped there.
from tensorflow.python.framework import op_def_library

# Every function of `tf.io.gfile` calls it, so that `--map` reaches them all.
from tensorflow.python.lib.io import _pywrap_file_io as file_io

# Reads records in Python, for `--map`.
from tensorflow.python.lib.io import _pywrap_record_io as record_io

# Reads checkpoints in Python, for `--map`.
from tensorflow.python.training import py_checkpoint_reader as checkpoint_reader
