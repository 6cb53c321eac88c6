"""The two branches of pyramidal neurons in one kernel.

The last axis of a kernel, and of a bias, is ordered by group, and within a group basal then apical; with one group the
basal half comes first. The rows of the torch layers have the same order.
"""

from typing import Any

import keras
import numpy as np
from keras import ops


def indices(outputs: int, groups: int) -> tuple[Any, Any]:
    """Where the basal and the apical outputs stand among `2 * outputs`."""
    rows = np.arange(2 * outputs).reshape(groups, 2, outputs // groups)
    return rows[:, 0].reshape(-1), rows[:, 1].reshape(-1)


def split(values: Any, groups: int, *, axis: int = -1) -> tuple[Any, Any]:
    """The basal and the apical part of a tensor along `axis`."""
    if groups == 1:
        basal, apical = ops.split(values, 2, axis=axis)
        return basal, apical
    first, second = indices(values.shape[axis] // 2, groups)
    return ops.take(values, first, axis=axis), ops.take(values, second, axis=axis)


def join(basal: Any, apical: Any, groups: int) -> Any:
    """The inverse of `split` along the last axis."""
    shape = tuple(basal.shape)
    parts = [ops.reshape(part, (*shape[:-1], groups, 1, shape[-1] // groups)) for part in (basal, apical)]
    return ops.reshape(ops.concatenate(parts, axis=-2), (*shape[:-1], 2 * shape[-1]))


class PerBranch(keras.initializers.Initializer):
    """Draws each branch by itself: with fans counted per branch, and different numbers for the two."""

    def __init__(self, initializer: Any, groups: int = 1) -> None:
        self.initializer, self.groups = keras.initializers.get(initializer), groups

    def __call__(self, shape: tuple[int, ...], dtype: Any = None) -> Any:
        half = (*shape[:-1], shape[-1] // 2)
        basal = self.initializer(half, dtype=dtype)
        return join(basal, reseeded(self.initializer)(half, dtype=dtype), self.groups)

    def get_config(self) -> dict[str, Any]:
        return {"initializer": keras.initializers.serialize(self.initializer), "groups": self.groups}


def reseeded(initializer: Any) -> Any:
    """`initializer` with the next seed: a Keras initialiser with a number for a seed repeats itself at each call."""
    seed = getattr(initializer, "seed", None)
    if not isinstance(seed, int):
        return initializer
    return initializer.__class__.from_config({**initializer.get_config(), "seed": seed + 1})
