"""The DLRM of `files_program.py` in PyTorch with FBGEMM's tables, for `from_files.py`.

    python benchmarks/files_torch.py FILE BATCH

It reads the CSV file with Python's csv module and a DataLoader. The rest is as in `dlrm_torch.py`.
"""

import sys

import torch
from dlrm_torch import FBGEMM, STARTED, train
from dlrm_workload import Clock
from files_workload import BUCKETS, read


class Rows(torch.utils.data.IterableDataset):
    """The rows of a file, repeated endlessly."""

    def __init__(self, path: str):
        super().__init__()
        self._path = path

    def __iter__(self):
        return read(self._path)


def collate(rows):
    """Returns ids [tables, batch], numbers and labels of a batch."""
    labels, numbers, ids = zip(*rows, strict=True)
    return (
        torch.tensor(ids).T.contiguous(),
        torch.log1p(torch.clamp(torch.tensor(numbers), min=0)),
        torch.tensor(labels).unsqueeze(1),
    )


def main() -> None:
    path, batch = sys.argv[1], int(sys.argv[2])
    torch.manual_seed(0)
    loader = torch.utils.data.DataLoader(Rows(path), batch_size=batch, collate_fn=collate)
    clock = Clock(batch, STARTED, f"PyTorch {torch.__version__}")
    train(FBGEMM(batch, BUCKETS), loader, clock)


if __name__ == "__main__":
    main()
