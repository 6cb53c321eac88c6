"""Splits as pure functions of sorted ids and a seed, and the hash that writes a split down."""

import hashlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from apical.data.randomness import generator

Rows = NDArray[np.int64]
SEED = 357
"""The seed of every split made here; the authors' own, for Fashion-MNIST."""


class Parts(NamedTuple):
    """Row numbers of the three parts; each row is in at most one."""

    train: Rows
    validation: Rows
    test: Rows


def cut(n: int) -> tuple[int, int]:
    """Where 70/15/15 of n cuts: floor, floor, rest."""
    train = n * 70 // 100
    return train, train + n * 15 // 100


def random_split(ids: Sequence[str], *, seed: int = SEED) -> Parts:
    """70/15/15 of the ids in sorted order, shuffled by the seed: the order in which they are listed does not matter."""
    order = np.argsort(np.asarray(ids), kind="stable")[generator("split", seed).permutation(len(ids))]
    a, b = cut(len(ids))
    return _parts(order[:a], order[a:b], order[b:])


def grouped_split(ids: Sequence[str], groups: Sequence[str], *, seed: int = SEED) -> Parts:
    """70/15/15 of the groups: no group is on two sides, so what its members share cannot leak."""
    names, member = np.unique(np.asarray(groups), return_inverse=True)
    side = np.empty(len(names), np.int64)
    parts = random_split([str(n) for n in names], seed=seed)
    for number, rows in enumerate(parts):
        side[rows] = number
    order = np.argsort(np.asarray(ids), kind="stable")
    return _parts(*(order[side[member[order]] == number] for number in range(3)))


def hold_out_per_class(
    ids: Sequence[str], labels: Sequence[int] | Rows, *, per_class: int, seed: int = SEED
) -> tuple[Rows, Rows]:
    """Rows that stay and rows held out: `per_class` of each class, but never more than a tenth of it.

    Each class is shuffled by (seed, class) alone, so a subset of the classes holds out the same images.
    """
    names, classes = np.asarray(ids, np.str_), np.asarray(labels, np.int64)
    held = [_some_of_class(names, classes, c, per_class, seed) for c in np.unique(classes).tolist()]
    out = np.sort(np.concatenate(held)) if held else np.empty(0, np.int64)
    if not len(out) and len(ids) >= 2:  # a handful of images: a tenth of them all, so that there is a validation set
        order = np.argsort(names, kind="stable")[generator("hold out", seed).permutation(len(ids))]
        out = np.sort(order[: max(1, len(ids) // 10)])
    return np.setdiff1d(np.arange(len(ids)), out), out


def _some_of_class(ids: NDArray[np.str_], labels: Rows, label: int, per_class: int, seed: int) -> Rows:
    rows = np.flatnonzero(labels == label)
    rows = rows[np.argsort(ids[rows], kind="stable")]
    return rows[generator("hold out", seed, label).permutation(len(rows))[: min(per_class, len(rows) // 10)]]


def split_hash(ids: Iterable[Sequence[str]]) -> str:
    """sha256 of the ids of train, validation and test, each in its order: two equal hashes are the same split."""
    digest = hashlib.sha256()
    for part in ids:
        digest.update("\n".join(part).encode())
        digest.update(b"\0")
    return digest.hexdigest()


def _parts(*rows: NDArray[np.int64]) -> Parts:
    return Parts(*(np.ascontiguousarray(r, np.int64) for r in rows))
