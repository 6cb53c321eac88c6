"""Batches for the loop: gathered from one tensor where the split fits into memory, else made by `apical.data`."""

from collections.abc import Iterator
from itertools import islice
from math import prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from apical.data import Batches, Split

IN_MEMORY = 1 << 29
"""Bytes that the inputs of a split may take to be held as one float32 tensor."""
AT_ONCE = 1 << 20
"""Values in the inputs of one batch where nothing is trained."""


class Feed:
    """The batches of a split for one rank; `how` are the arguments of `apical.data.Batches`.

    Where nothing is augmented, inputs are a pure function of the sample, so that they can be made once and gathered.
    """

    def __init__(
        self,
        split: Split,
        size: int,
        *,
        device: torch.device,
        channels_last: bool = False,
        passes: int = 1,
        **how: Any,
    ) -> None:
        self.split, self.size, self.device, self.passes = split, size, device, passes
        self.batches = Batches(split, size, **how)
        self.format = torch.channels_last if channels_last and len(split.shape) == 3 else torch.preserve_format
        self._samples, self._per_pass = len(split), len(self.batches)
        self.in_memory = not self.batches.augment and 4 * len(split) * prod(split.shape) <= IN_MEMORY

    def __len__(self) -> int:
        return self.passes * len(self.batches)

    @property
    def whole(self) -> bool:
        """True where one batch is the whole split: it comes in its own order, for a mean over all knows none."""
        return self.in_memory and len(self.batches) == self.batches.world == 1

    def samples(self, batch: int) -> int:
        """Samples of batch number `batch`, of all ranks together."""
        return min(self.size, self._samples - batch % self._per_pass * self.size)

    def epoch(self, epoch: int = 0, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and labels of the batches from number `start` on; each pass has an order of its own."""
        first, start = divmod(start, len(self.batches))
        for number in range(first, self.passes):
            make = self._gathered if self.in_memory else self._made
            yield from make(epoch * self.passes + number, start)
            start = 0

    def _gathered(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        inputs, labels = self.split.tensors(self.device)
        if self.whole:
            yield inputs.to(memory_format=self.format), labels
            return
        for rows in self.rows(epoch)[start:]:
            batch = inputs.index_select(0, rows)
            if self.format is not torch.preserve_format:
                batch = batch.to(memory_format=self.format)
            yield batch, labels.index_select(0, rows)

    def rows(self, epoch: int) -> tuple[Tensor, ...]:
        """The positions of each batch of a pass, on the device."""
        positions = self.batches.positions(epoch)
        whole = torch.from_numpy(np.concatenate(positions)).to(self.device)
        return whole.split([len(p) for p in positions])  # type: ignore[no-untyped-call, no-any-return]

    def _made(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in islice(self.batches.epoch(epoch), start, None):
            yield batch.inputs.to(self.device, memory_format=self.format), batch.labels.to(self.device)


def evaluation_batch(split: Split, batch: int) -> int:
    """Samples evaluated at once: as many as fill AT_ONCE, but no fewer than a training batch holds.

    A function of spec and data alone, so that sums round alike wherever a trial runs.
    """
    return max(batch, min(1024, AT_ONCE // max(1, prod(split.shape))))
