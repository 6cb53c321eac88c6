"""The toy problems of the paper: logical functions of two inputs, and two curves."""

import hashlib
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from apical.data.keys import keys_of
from apical.data.recipe import Recipe
from apical.data.split import Parts, split_hash

if TYPE_CHECKING:
    from apical.data.dataset import DataSet
    from apical.data.inputs import Input

POINTS = 1_000
CORNERS = np.array([[0, 0], [0, 1], [1, 0], [1, 1]], np.float32)
TRUTH = {"xor": (0, 1, 1, 0), "and": (0, 0, 0, 1), "or": (0, 1, 1, 1)}


def curve(name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """1,000 even points of [-2 pi, 2 pi] and sin(x), or sin(x)/x with the value 1 at 0."""
    x = np.linspace(-2 * np.pi, 2 * np.pi, POINTS)
    y = np.sin(x) if name == "sin" else np.sinc(x / np.pi)
    return x.astype(np.float32)[:, None], y.astype(np.float32)[:, None]


def make(recipe: Recipe) -> "DataSet":
    """Train, validation and test are the same points: the question is what a network can represent."""
    if recipe.task == "regression":
        inputs, labels = curve(recipe.name)
    else:
        inputs, labels = CORNERS, np.array(TRUTH[recipe.name], np.int64)
    rows = np.arange(len(inputs))
    return in_memory(recipe, inputs, labels, [f"point-{i:04d}" for i in rows], Parts(rows, rows, rows))


def in_memory(
    recipe: Recipe,
    inputs: NDArray[Any],
    labels: NDArray[Any],
    ids: list[str],
    parts: Parts,
    *,
    input: "Input | None" = None,  # noqa: A002
    class_names: tuple[str, ...] | None = None,
) -> "DataSet":
    """A data set from arrays."""
    from apical.data.dataset import DataSet, three_splits  # noqa: PLC0415  torch is not needed to list data sets
    from apical.data.inputs import Numbers  # noqa: PLC0415
    from apical.data.sources import Memory  # noqa: PLC0415

    names = class_names or recipe.class_names
    train, validation, test = three_splits(
        parts,
        all_labels=labels,
        source=Memory(inputs),
        input=input or Numbers(),
        all_keys=keys_of(ids),
        all_ids=np.array(ids),
        class_names=names,
    )
    digest = hashlib.sha256(inputs.tobytes() + labels.tobytes())
    digest.update(split_hash([ids[i] for i in rows] for rows in parts).encode())
    return DataSet(
        name=recipe.name,
        task=recipe.task,
        train=train,
        validation=validation,
        test=test,
        description=recipe.description,
        licence=recipe.licence,
        citation=recipe.citation,
        class_names=names,
        fingerprint=digest.hexdigest(),
    )


_LOGIC = Recipe(
    name="xor",
    store="xor",
    kind="numbers",
    task="classification",
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
    description="sin(x) on 1,000 even points of [-2 pi, 2 pi]",
    citation="the paper's function approximation experiment",
    counts=(POINTS,) * 3,
    class_names=None,
)
RECIPES = (
    _LOGIC,
    replace(_LOGIC, name="and", store="and", description="the four points of logical and"),
    replace(_LOGIC, name="or", store="or", description="the four points of logical or"),
    _CURVE,
    replace(_CURVE, name="sinc", store="sinc", description="sin(x)/x, 1 at 0, on 1,000 even points of [-2 pi, 2 pi]"),
)
