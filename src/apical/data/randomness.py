"""Random numbers by sample id: a sample gets the same numbers in every batch, worker, rank and process.

A sample's key is the first 8 bytes of the sha256 of its id. Numbers are a hash (the SplitMix64 finaliser) of seed, key
and position, vectorised over samples and positions: there is no generator, and so no state.
"""

import hashlib
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_FIRST, _SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


def keys_of(ids: Iterable[str | int]) -> Keys:
    """One 64-bit key for each id."""
    return np.array([number(str(i)) for i in ids], np.uint64)


def number(*parts: object) -> int:
    """A 64-bit number that depends on all `parts` and on nothing else."""
    text = "/".join(map(str, parts))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def generator(*parts: object) -> np.random.RandomState:
    """numpy's frozen generator (its streams never change between versions), seeded by all `parts`."""
    return np.random.RandomState(np.frombuffer(hashlib.sha256("/".join(map(str, parts)).encode()).digest(), "<u4"))


def mix(values: Keys) -> Keys:
    """The SplitMix64 finaliser: a bijection of 64-bit numbers that scatters neighbours."""
    values = values ^ (values >> np.uint64(30))
    values *= _FIRST
    values ^= values >> np.uint64(27)
    values *= _SECOND
    values ^= values >> np.uint64(31)
    return values


def bits(keys: Keys, count: int, *parts: object) -> Keys:
    """(len(keys), count) random 64-bit numbers by (parts, key, position)."""
    start = mix(keys + np.uint64(number(*parts)))
    return mix(start[:, None] + _GOLDEN * np.arange(1, count + 1, dtype=np.uint64))


def uniform(keys: Keys, *parts: object) -> NDArray[np.float64]:
    """One number in [0, 1) for each key."""
    return (bits(keys, 1, *parts)[:, 0] >> np.uint64(11)).astype(np.float64) * 2.0**-53


def normal(keys: Keys, shape: Sequence[int], *parts: object) -> NDArray[np.float32]:
    """Standard normal numbers of the given shape for each key: Box-Muller on the two halves of 64 bits."""
    count = int(np.prod(shape))
    pairs = bits(keys, (count + 1) // 2, *parts)
    radius = (pairs >> np.uint64(32)).astype(np.float64)
    radius += 1.0
    radius *= 2.0**-32
    np.log(radius, out=radius)
    radius *= -2.0
    np.sqrt(radius, out=radius)
    angle = (pairs & np.uint64(0xFFFFFFFF)).astype(np.float64)
    angle *= 2.0 * np.pi * 2.0**-32
    both = np.empty((len(keys), 2, pairs.shape[1]), np.float32)
    np.multiply(radius, np.cos(angle), out=both[:, 0], casting="same_kind")
    np.multiply(radius, np.sin(angle), out=both[:, 1], casting="same_kind")
    return both.reshape(len(keys), -1)[:, :count].reshape(len(keys), *shape)
