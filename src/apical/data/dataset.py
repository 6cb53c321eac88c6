"""A data set as its users hold it: three splits with stable ids, and what must be known about them."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from functools import cached_property
from queue import Full, Queue
from threading import Event, Thread
from typing import Any, ClassVar, NamedTuple, NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apical.data.inputs import Draw, Images, Input, Source
from apical.data.randomness import Keys, generator
from apical.data.recipe import Task
from apical.data.split import Parts
from apical.errors import InvalidArgumentError

PIECE = 4096
"""Samples that `Split.tensors` makes at a time."""


class Sample(NamedTuple):
    """One sample: what the network sees, its label, its stable id."""

    input: Tensor
    label: Tensor
    id: str


@dataclass(frozen=True, eq=False)
class Split:
    """Train, validation or test: rows of a source, their labels, and ids that no order of listing changes.

    `labels` is int64 (classes) or float32 (regression); `ids` are strings. It is also a map-style dataset for
    torch's DataLoader, in any number of worker processes.
    """

    name: str
    source: Source
    input: Input
    rows: NDArray[np.int64]
    all_labels: NDArray[Any]
    all_keys: Keys
    all_ids: NDArray[Any]
    class_names: tuple[str, ...] | None = None
    changed_labels: NDArray[Any] | None = None
    """Labels of this split that are not those of the source: label noise."""

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, position: int) -> Sample:
        return self.__getitems__([range(len(self))[position]])[0]

    def __getitems__(self, positions: Sequence[int]) -> list[Sample]:
        where = np.asarray(positions, np.int64)
        inputs, labels = self.inputs(where), torch.from_numpy(self.labels[where])
        return [Sample(*item) for item in zip(inputs, labels, self.ids[where].tolist(), strict=True)]

    def __repr__(self) -> str:
        return f"<{self.name}: {len(self):,} samples of shape {self.shape}>"

    @cached_property
    def labels(self) -> NDArray[Any]:
        """The labels, in this split's order."""
        return self.all_labels[self.rows] if self.changed_labels is None else self.changed_labels

    @cached_property
    def ids(self) -> NDArray[np.str_]:
        """The stable ids, in this split's order."""
        chosen = self.all_ids[self.rows]
        return np.char.decode(chosen, "utf-8") if chosen.dtype.kind == "S" else chosen.astype(np.str_)

    @cached_property
    def keys(self) -> Keys:
        """The 64-bit keys of the ids: what randomness by sample depends on."""
        return np.asarray(self.all_keys[self.rows])

    @cached_property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input as a network sees it."""
        raw = np.zeros((1, *self.source.shape), np.uint8)
        return tuple(self.input(raw, np.zeros(1, np.uint64), None).shape[1:])

    def raw(self, positions: NDArray[np.int64] | Sequence[int], draw: Draw | None = None) -> NDArray[Any]:
        """The stored values: uint8 pixels, int16 sound, character codes, float32 numbers."""
        where = np.asarray(positions, np.int64)
        return self.source.gather(self.rows[where], self.keys[where], draw)

    def inputs(self, positions: NDArray[np.int64] | Sequence[int], draw: Draw | None = None) -> Tensor:
        """What a network sees at these positions; with a draw, as augmented for that seed and epoch."""
        where = np.asarray(positions, np.int64)
        keys = self.keys[where]
        return self.input(self.source.gather(self.rows[where], keys, draw), keys, draw)

    def tensors(self, device: torch.device | str = "cpu") -> tuple[Tensor, Tensor]:
        """All inputs and labels on a device, made once for a split and kept as long as it lives."""
        place = torch.device(device)
        if place not in self._tensors:
            n = len(self)
            pieces = [self.inputs(np.arange(i, min(i + PIECE, n))) for i in range(0, n, PIECE)]
            labels = torch.from_numpy(np.ascontiguousarray(self.labels))
            self._tensors[place] = torch.cat(pieces).to(place), labels.to(place)
        return self._tensors[place]

    @cached_property
    def _tensors(self) -> dict[torch.device, tuple[Tensor, Tensor]]:
        return {}

    def batches(self, size: int, **how: Any) -> "Batches":
        """Batches of `size` samples; see `apical.data.Batches`."""

        return Batches(self, size, **how)

    def only(self, positions: NDArray[np.int64]) -> "Split":
        """The samples at these positions, in this order."""
        changed = None if self.changed_labels is None else self.changed_labels[positions]
        return replace(self, rows=self.rows[positions], changed_labels=changed)


def three_splits(parts: Parts, **common: Any) -> tuple[Split, Split, Split]:
    """Train, validation and test from their rows and what they have in common."""
    train, validation, test = (
        Split(name=name, rows=rows, **common) for name, rows in zip(Parts._fields, parts, strict=True)
    )
    return train, validation, test


@dataclass(frozen=True, kw_only=True)
class Corruption:
    """A change of a data set; `str(c)` names it with all its values and `corruptions.parse(str(c)) == c`."""

    kind: ClassVar[str]
    seed: int = 0

    def apply(self, data: "DataSet") -> "DataSet":
        """A new data set; the old one is untouched."""
        raise NotImplementedError

    def for_trial(self, seed: int) -> "Corruption":
        """As a trial of this seed sees it: with `by_trial`, the trial's seed takes the place of its own."""
        return replace(self, seed=seed) if getattr(self, "by_trial", False) else self

    def __str__(self) -> str:
        return f"{self.kind}({','.join(f'{f.name}={getattr(self, f.name)!r}' for f in fields(self))})"


@dataclass(frozen=True, eq=False)
class DataSet:
    """Train, validation and test of one task, and where they come from."""

    name: str
    task: Task
    train: Split
    validation: Split
    test: Split
    description: str
    licence: str
    citation: str
    class_names: tuple[str, ...] | None = None
    split: str = "paper"
    partial: str | None = None
    """`partial (n of N)` where a subset of the official files was accepted."""
    fingerprint: str = ""
    """sha256 over the stored bytes and the split."""
    corruptions: tuple[Corruption, ...] = ()
    vocabulary: int | None = None
    """Number of character codes, for text."""
    notes: tuple[str, ...] = ()

    @property
    def splits(self) -> dict[str, Split]:
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one input as a network sees it."""
        return self.train.shape

    @property
    def identity(self) -> dict[str, Any]:
        """What a trial must record to say which data it saw."""
        return {
            "name": self.name,
            "split": self.split,
            "partial": self.partial,
            "corruptions": [str(c) for c in self.corruptions],
            "fingerprint": self.fingerprint,
        }

    def map(self, change: Callable[[Split], Split]) -> "DataSet":
        """Each of the three splits changed."""
        return replace(self, train=change(self.train), validation=change(self.validation), test=change(self.test))

    def padded(self, pad: int = 2) -> "DataSet":
        """Images with `pad` zero pixels on each side; the mean that is taken off counts them."""
        old = self.train.input
        if not isinstance(old, Images) or old.pad:
            raise InvalidArgumentError(f"{self.name} holds no unpadded images: there is nothing to pad")
        height, width = self.train.source.shape[-2:]
        share = height * width / ((height + 2 * pad) * (width + 2 * pad))
        new = replace(old, pad=pad, mean=old.mean * share)
        return self.map(lambda split: replace(split, input=new))

    def __repr__(self) -> str:
        counts = " / ".join(f"{len(s):,}" for s in self.splits.values())
        mark = f", {self.partial}" if self.partial else ""
        return f"<{self.name}: {counts} samples, {self.task}{mark}>"


# Batches in an order that (seed, epoch) alone decides, for one process or a shard of many.

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
