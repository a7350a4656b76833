"""The DLRM of `dlrm.py` in PyTorch, for `whole_step.py`.

    python benchmarks/dlrm_torch.py PEER BATCH

PEER 'FBGEMM' uses its table-batched embeddings, which update tables in the backward pass.
'EmbeddingBag' uses a `torch.nn.EmbeddingBag` with sparse gradients and Adagrad for each table. 'no
tables' replaces each table by a given activation with a trained vector. PyTorch's fused Adagrad
trains the dense layers. Batches are in memory. The rest is as in `dlrm.py`.
"""

import itertools
import sys
import time
from collections.abc import Callable, Iterable

STARTED = time.time()

import numpy as np  # noqa: E402
import torch  # noqa: E402
from dlrm_workload import (  # noqa: E402
    BATCHES,
    BOTTOM,
    DIMENSION,
    INITIAL_ACCUMULATOR,
    LEARNING_RATE,
    NUMBERS,
    TABLES,
    TOP,
    VOCABULARY,
    Clock,
    pairs,
    samples,
)


def adagrad(parameters, **how):
    return torch.optim.Adagrad(
        parameters, LEARNING_RATE, initial_accumulator_value=INITIAL_ACCUMULATOR, **how
    )


class FBGEMM(torch.nn.Module):
    """All tables in a single op that updates them in its backward pass."""

    def __init__(self, batch: int, vocabulary: int = VOCABULARY):
        super().__init__()
        from fbgemm_gpu.split_embedding_configs import EmbOptimType
        from fbgemm_gpu.split_table_batched_embeddings_ops_common import (
            EmbeddingLocation,
            PoolingMode,
        )
        from fbgemm_gpu.split_table_batched_embeddings_ops_training import (
            ComputeDevice,
            SplitTableBatchedEmbeddingBagsCodegen,
        )

        self.tables = SplitTableBatchedEmbeddingBagsCodegen(
            [(vocabulary, DIMENSION, EmbeddingLocation.HOST, ComputeDevice.CPU)] * TABLES,
            optimizer=EmbOptimType.EXACT_ADAGRAD,
            learning_rate=LEARNING_RATE,
            eps=1e-10,
            pooling_mode=PoolingMode.MEAN,
        )
        for weights in self.tables.split_embedding_weights():
            torch.nn.init.trunc_normal_(weights, std=DIMENSION**-0.5)
        for (accumulator,) in self.tables.split_optimizer_states():
            accumulator.fill_(INITIAL_ACCUMULATOR)
        self.offsets = torch.arange(0, TABLES * batch + 1, dtype=torch.int64)

    def forward(self, ids):
        return self.tables(ids.reshape(-1), self.offsets).reshape(-1, TABLES, DIMENSION)

    def update(self) -> None:
        """Does nothing, because the backward pass has updated the tables."""


class EmbeddingBag(torch.nn.Module):
    """A module for each table, with gradients of only the rows in a batch."""

    def __init__(self, batch: int):
        super().__init__()
        self.bags = torch.nn.ModuleList(
            torch.nn.EmbeddingBag(VOCABULARY, DIMENSION, mode="mean", sparse=True)
            for _ in range(TABLES)
        )
        for bag in self.bags:
            torch.nn.init.trunc_normal_(bag.weight, std=DIMENSION**-0.5)
        self.optimizer = adagrad(self.bags.parameters())
        self.offsets = torch.arange(batch)

    def forward(self, ids):
        found = [bag(one, self.offsets) for bag, one in zip(self.bags, ids, strict=True)]
        return torch.stack(found, dim=1)

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class NoTables(torch.nn.Module):
    """A trained vector for each table, and a number for each sample instead of a row."""

    def __init__(self, batch: int):
        super().__init__()
        self.vectors = torch.nn.Parameter(torch.zeros(TABLES, DIMENSION))
        self.optimizer = adagrad([self.vectors], fused=True)
        self.given = torch.randn(batch, 1, 1)

    def forward(self, ids):
        return self.given + self.vectors

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


class Dense(torch.nn.Module):
    """The dense layers of the reference: a bottom, products of all pairs, a top and a logit."""

    def __init__(self):
        super().__init__()
        self.bottom = layers(NUMBERS, BOTTOM)
        self.top = layers(DIMENSION + len(pairs()), TOP)
        self.logits = torch.nn.Linear(TOP[-1], 1, bias=False)
        self.pairs = torch.from_numpy(pairs())

    def forward(self, numbers, activations):
        bottom = self.bottom(numbers)
        vectors = torch.cat([bottom.unsqueeze(1), activations], dim=1)
        products = torch.bmm(vectors, vectors.transpose(1, 2)).reshape(len(numbers), -1)
        return self.logits(self.top(torch.cat([bottom, products[:, self.pairs]], dim=1)))


def layers(inputs: int, sizes: tuple[int, ...]) -> torch.nn.Sequential:
    made: list[torch.nn.Module] = []
    for size in sizes:
        linear = torch.nn.Linear(inputs, size)
        torch.nn.init.xavier_uniform_(linear.weight)
        torch.nn.init.zeros_(linear.bias)
        made += [linear, torch.nn.ReLU()]
        inputs = size
    return torch.nn.Sequential(*made)


PEERS: dict[str, Callable] = {"FBGEMM": FBGEMM, "EmbeddingBag": EmbeddingBag, "no tables": NoTables}


def train(embeddings, batches: Iterable, clock: Clock) -> None:
    """Trains `embeddings` and dense layers on `batches` of (ids, numbers, labels)."""
    dense = Dense()
    optimizer = adagrad(dense.parameters(), fused=True)
    loss_of = torch.nn.BCEWithLogitsLoss()
    for ids, numbers, labels in batches:
        loss = loss_of(dense(numbers, embeddings(ids)), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        embeddings.update()
        if np.isnan(loss.item()):  # As an Estimator's training does.
            raise SystemExit("The loss is NaN.")
        if not clock.goes_on():
            return


def main() -> None:
    peer, batch = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    ids, numbers, labels = samples(batch)
    batches = [
        tuple(torch.from_numpy(np.ascontiguousarray(part)) for part in parts)
        for parts in zip(
            np.split(ids, BATCHES, axis=1),
            np.split(numbers, BATCHES),
            np.split(labels, BATCHES),
            strict=True,
        )
    ]
    clock = Clock(batch, STARTED, f"PyTorch {torch.__version__}")
    train(PEERS[peer](batch), itertools.cycle(batches), clock)


if __name__ == "__main__":
    main()
