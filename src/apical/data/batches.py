"""Batches in an order that (seed, epoch) alone decides, for one process or a shard of many."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from queue import Full, Queue
from threading import Event, Thread
from typing import NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apical.data.dataset import Split
from apical.data.inputs import Draw
from apical.data.keys import generator
from apical.errors import InvalidArgumentError

AHEAD = 2
"""Batches decoded ahead where decoding is heavy."""


class Batch(NamedTuple):
    """Inputs, labels, and the samples' positions in their split (`split.ids[batch.positions]` are the ids)."""

    inputs: Tensor
    labels: Tensor
    positions: Tensor


def order(n: int, *, seed: int, epoch: int) -> NDArray[np.int64]:
    """The order of n samples in an epoch: a function of its arguments alone."""
    return generator("order", seed, epoch).permutation(n).astype(np.int64, copy=False)


@dataclass(frozen=True)
class Batches:
    """The batches of a split, epoch by epoch: `for batch in batches.epoch(3)`.

    `size` counts the samples of all ranks together: batch k of the ranks 0..world-1, laid side by side, is batch k of
    one process. With `shuffle`, the order is that of (seed, epoch). With `augment`, inputs are augmented by
    (seed, epoch, id). `prefetch` batches are made ahead by a thread (by default 2 where decoding is heavy).
    """

    split: Split
    size: int
    seed: int = 0
    shuffle: bool = False
    augment: bool = False
    rank: int = 0
    world: int = 1
    drop_last: bool = False
    prefetch: int | None = None

    def __post_init__(self) -> None:
        if self.size < 1 or not 0 <= self.rank < self.world:
            raise InvalidArgumentError(
                f"batches of size {self.size} for rank {self.rank} of {self.world}: the size must be at least 1 and "
                "the rank one of 0 to world - 1"
            )

    def __len__(self) -> int:
        whole, rest = divmod(len(self.split), self.size)
        return whole + (rest > 0 and not self.drop_last)

    def __iter__(self) -> NoReturn:
        raise InvalidArgumentError(
            "batches belong to an epoch, which decides their order: write `for batch in batches.epoch(k)` for epoch k"
        )

    def positions(self, epoch: int = 0) -> list[NDArray[np.int64]]:
        """The positions of each batch of this rank."""
        n = len(self.split)
        all_ = order(n, seed=self.seed, epoch=epoch) if self.shuffle else np.arange(n, dtype=np.int64)
        batches = (all_[k * self.size : (k + 1) * self.size] for k in range(len(self)))
        return [self._shard(b) for b in batches]

    def epoch(self, epoch: int = 0) -> Iterator[Batch]:
        """One pass over the split."""
        ahead = self.prefetch if self.prefetch is not None else AHEAD * self.split.input.heavy
        made = self._made(epoch)
        return in_background(made, ahead) if ahead else made

    def _made(self, epoch: int) -> Iterator[Batch]:
        draw = Draw(self.seed, epoch) if self.augment else None
        labels = self.split.labels
        for where in self.positions(epoch):
            yield Batch(
                self.split.inputs(where, draw), torch.from_numpy(labels.take(where, 0)), torch.from_numpy(where)
            )

    def _shard(self, batch: NDArray[np.int64]) -> NDArray[np.int64]:
        bounds = [len(batch) * r // self.world for r in (self.rank, self.rank + 1)]
        return batch[bounds[0] : bounds[1]]


class _Failure(NamedTuple):
    error: BaseException


def in_background(items: Iterator[Batch], ahead: int) -> Iterator[Batch]:
    """The same items, made by a thread that runs at most `ahead` of them in front."""
    queue: Queue[Batch | _Failure | None] = Queue(ahead)
    stop = Event()

    def work() -> None:
        try:
            for item in items:
                if not _offer(queue, item, stop.is_set):
                    return
            _offer(queue, None, stop.is_set)
        except BaseException as error:
            _offer(queue, _Failure(error), stop.is_set)

    thread = Thread(target=work, name="apical-prefetch", daemon=True)
    thread.start()
    try:
        while (item := queue.get()) is not None:
            if isinstance(item, _Failure):
                raise item.error
            yield item
    finally:
        stop.set()
        thread.join()


def _offer(queue: "Queue[Batch | _Failure | None]", item: Batch | _Failure | None, stopped: Callable[[], bool]) -> bool:
    while not stopped():
        with suppress(Full):
            queue.put(item, timeout=0.1)
            return True
    return False
