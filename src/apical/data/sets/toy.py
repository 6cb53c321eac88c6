"""The toy problems of the paper: logical functions of two inputs, and two curves; the parity of more inputs."""

from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apical.data.recipe import Arrays, Recipe
from apical.data.split import Parts

POINTS = 1_000
CORNERS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
TRUTH = {"xor": (0, 1, 1, 0), "and": (0, 0, 0, 1), "or": (0, 1, 1, 1)}
BITS = (3, 4, 5)
"""Inputs of the parity problems; that of two inputs is XOR."""


def curve(name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """1,000 even points of [-2 pi, 2 pi] and sin(x), or sin(x)/x with the value 1 at 0."""
    x = np.linspace(-2 * np.pi, 2 * np.pi, POINTS)
    y = np.sin(x) if name == "sin" else np.sinc(x / np.pi)
    return x.astype(np.float32)[:, None], y.astype(np.float32)[:, None]


def parity(bits: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """All inputs of so many bits, and whether the number of ones in each is odd."""
    inputs = np.array([*product((0, 1), repeat=bits)])
    return inputs.astype(np.float32), inputs.sum(1) % 2


def make(recipe: Recipe) -> Arrays:
    """Train, validation and test are the same points: the question is what a network can represent."""
    labels: NDArray[Any]
    if recipe.task == "regression":
        inputs, labels = curve(recipe.name)
    elif recipe.name not in TRUTH:
        inputs, labels = parity(*recipe.shape)
    else:
        inputs, labels = CORNERS, np.array(TRUTH[recipe.name], np.int64)
    rows = np.arange(len(inputs))
    ids = [f"point-{i:04d}" for i in rows]
    return Arrays(inputs=inputs, labels=labels, ids=ids, parts=Parts(rows, rows, rows))


_LOGIC = Recipe(
    name="xor",
    store="xor",
    kind="numbers",
    task="classification",
    shape=(2,),
    description="the four points of exclusive or",
    licence="none needed",
    citation="M. Minsky, S. Papert: Perceptrons, 1969",
    counts=(4, 4, 4),
    class_names=("0", "1"),
    make=make,
)
_CURVE = replace(
    _LOGIC,
    name="sin",
    store="sin",
    task="regression",
    shape=(1,),
    description="sin(x) on 1,000 even points of [-2 pi, 2 pi]",
    citation="the paper's function approximation experiment",
    counts=(POINTS,) * 3,
    class_names=None,
)
RECIPES = (
    _LOGIC,
    replace(_LOGIC, name="and", store="and", description="the four points of logical and"),
    replace(_LOGIC, name="or", store="or", description="the four points of logical or"),
    *(
        replace(
            _LOGIC,
            name=f"parity-{n}",
            store=f"parity-{n}",
            shape=(n,),
            counts=(2**n,) * 3,
            description=f"is the number of ones among {n} bits odd? All {2**n} points",
        )
        for n in BITS
    ),
    _CURVE,
    replace(_CURVE, name="sinc", store="sinc", description="sin(x)/x, 1 at 0, on 1,000 even points of [-2 pi, 2 pi]"),
)
