"""A data set as its users hold it: three splits with stable ids, and what must be known about them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from apical.data.inputs import Draw, Images, Input
from apical.data.keys import Keys
from apical.data.sources import Source
from apical.data.split import Parts
from apical.errors import InvalidArgumentError

if TYPE_CHECKING:
    from apical.data.batches import Batches
    from apical.data.corruptions import Corruption

Task = Literal["classification", "regression"]


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

    def batches(self, size: int, **how: Any) -> "Batches":
        """Batches of `size` samples; see `apical.data.Batches`."""
        from apical.data.batches import Batches  # noqa: PLC0415  it stands on this module

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
    corruptions: tuple["Corruption", ...] = ()
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
