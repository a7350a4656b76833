"""Shows where the time of a whole training step goes, from TensorFlow's own trace of kernels.

    python benchmarks/profile_step.py [--batch=4096] [--steps=10] [--ops=5]

It trains the DLRM of `dlrm.py` on one thread, so the time of a kernel is CPU time without waiting.
It adds up kernels by the part of the step that they belong to. The input is a batch in memory, and
tf.data prepares it on its own threads.
"""

import argparse
import collections
import tempfile

import dlrm
import tensorflow as tf
from dlrm_workload import WARM_UP
from workload import positive

LOOKUP_OPS = ("ResourceGather", "ResourceGatherNd", "HostTablesLookup")
ORDER = (
    "input pipeline",
    "reading and checking ids",
    "distinct ids",
    "lookup",
    "combine",
    "dense",
    "backward",
    "gradients of rows",
    "update",
    "dense optimizer",
    "other",
)


def part_of(name: str, op: str) -> str:
    """Returns the part of the step that a node belongs to."""
    if op.startswith(("Iterator", "_Recv", "_Send")):
        return "input pipeline"
    if "check_ids" in name:
        return "reading and checking ids"
    if "embedding_lookup" in name:
        if op == "UniqueWithCounts":
            return "distinct ids"
        return "lookup" if op in LOOKUP_OPS else "combine"
    if "embedding_update" in name:
        return "gradients of rows" if op == "SparseTensorDenseMatMul" else "update"
    if name.startswith("gradients"):
        return "backward"
    if name.startswith("dense"):
        return "dense"
    if name.startswith("Adagrad"):
        return "dense optimizer"
    return "other"


class Trace(tf.compat.v1.train.SessionRunHook):
    """A hook that adds up microseconds by (part, op) over the steps after the tenth."""

    def __init__(self, part_of=part_of):
        self.spent, self.steps, self.ops = collections.Counter(), 0, {}
        self._part_of = part_of

    def before_run(self, run_context):
        options = tf.compat.v1.RunOptions(
            trace_level=tf.compat.v1.RunOptions.FULL_TRACE, output_partition_graphs=True
        )
        return tf.compat.v1.train.SessionRunArgs(None, options=options)

    def after_run(self, run_context, run_values):
        metadata = run_values.run_metadata
        for graph in metadata.partition_graphs:
            self.ops.update({node.name: node.op for node in graph.node})
        self.steps += 1
        if self.steps <= WARM_UP:
            return
        for device in metadata.step_stats.dev_stats:
            for node in device.node_stats:
                op = self.ops.get(node.node_name, "")
                part = self._part_of(node.node_name, op)
                self.spent[part, op] += node.op_end_rel_micros - node.op_start_rel_micros


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=positive, default=4096)
    parser.add_argument("--steps", type=positive, default=10)
    parser.add_argument("--ops", type=positive, default=5, help="how many ops to name of each part")
    options = parser.parse_args()
    tf.compat.v1.logging.set_verbosity("ERROR")
    trace = Trace()
    with tempfile.TemporaryDirectory(prefix="dlrm") as folder:
        one_thread = tf.compat.v1.ConfigProto(
            intra_op_parallelism_threads=1, inter_op_parallelism_threads=1
        )
        estimator = dlrm.ours(folder, options.batch, one_thread)
        estimator.train(dlrm.input_fn, hooks=[trace], steps=options.steps + WARM_UP)
    total = sum(trace.spent.values())
    print(f"TensorFlow {tf.__version__}: {total / options.steps / 1e3:.1f} ms of kernels in a step")
    for part in ORDER:
        by_op = collections.Counter(
            {op: spent for (where, op), spent in trace.spent.items() if where == part}
        )
        spent = sum(by_op.values())
        named = ", ".join(
            f"{op or '?'} {micros / options.steps / 1e3:.2f}"
            for op, micros in by_op.most_common(options.ops)
            if micros > 0.01 * spent
        )
        print(f"{part:25s}{spent / options.steps / 1e3:8.2f} ms {spent / total:5.0%}  {named}")


if __name__ == "__main__":
    main()
