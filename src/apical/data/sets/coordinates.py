"""Places and what is there: the pixels of photographs that come with scikit-learn and matplotlib, and a signal.

A sample is a coordinate, its target the colour or the value there, between 0 and 1. A quarter of the pixels (half of
the points of a signal) is for fitting, a quarter for validation, the rest for the test: a network has to fill them in.
"""

from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apical.data.randomness import generator
from apical.data.recipe import Arrays, Recipe
from apical.data.split import SEED, Parts
from apical.errors import MissingExtraError
from apical.files import open_image, read_file

PHOTOGRAPHS = {
    "china": ("sklearn", "datasets/images/china.jpg"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "portrait": ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
}
"""The library that brings each, and where in it."""
SIZES = (64, 128)
TONES = {"tones": (5, 10, 15, 20, 25, 30, 35, 40, 45, 50), "tones-other": (4, 9, 14, 19, 24, 29, 34, 39, 44, 49)}
"""Whole periods of the sines of each signal over its length; all have the same amplitude."""
POINTS = 1_024
FILE_LIMIT = 1 << 24


def photograph(name: str, size: int) -> NDArray[np.float32]:
    """(size, size, 3) values in [0, 1]: the largest square in the middle, resized."""
    library, inside = PHOTOGRAPHS[name]
    spec = find_spec(library)
    if spec is None or spec.origin is None:
        raise MissingExtraError(f"this needs {library}, which is not installed: pip install 'apical[lab]'")
    path = Path(spec.origin).parent / inside
    image = open_image(read_file(path, limit=FILE_LIMIT), origin=path)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side)).resize((size, size), 1)  # Lanczos
    return np.asarray(square).astype(np.float32) / np.float32(255)


def tones(name: str) -> NDArray[np.float32]:
    """POINTS even samples of a sum of sines with seeded phases, moved and scaled to [0, 1]."""
    turns = np.arange(POINTS) / POINTS
    phases = generator("tones", name, SEED).uniform(0, 2 * np.pi, len(TONES[name]))
    values = sum(np.sin(2 * np.pi * k * turns + phase) for k, phase in zip(TONES[name], phases, strict=True))
    low, high = np.min(values), np.max(values)
    return np.asarray((values - low) / (high - low), np.float32)


def _parts(n: int, fit: int) -> Parts:
    """`fit` of n places for fitting, a quarter for validation, the rest for the test, shuffled by the splits' seed."""
    order = generator("places", SEED).permutation(n)
    return Parts(*(np.sort(rows) for rows in np.split(order, [fit, fit + n // 4])))


def make_photograph(recipe: Recipe) -> Arrays:
    """Pixel centres in [-1, 1] x [-1, 1], row by row, and their colours."""
    name, _, size = recipe.name.rpartition("-")
    side = int(size)
    centres = (2 * np.arange(side, dtype=np.float32) + 1) / side - 1
    inputs = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=2).reshape(-1, 2)
    ids = [f"pixel-{y:03d}-{x:03d}" for y in range(side) for x in range(side)]
    parts = _parts(side * side, side * side // 4)
    return Arrays(inputs=inputs, labels=photograph(name, side).reshape(-1, 3), ids=ids, parts=parts)


def make_tones(recipe: Recipe) -> Arrays:
    """Points of [-1, 1) and the values of the signal there."""
    inputs = (2 * np.arange(POINTS, dtype=np.float32) / POINTS - 1)[:, None]
    ids = [f"point-{i:04d}" for i in range(POINTS)]
    return Arrays(inputs=inputs, labels=tones(recipe.name)[:, None], ids=ids, parts=_parts(POINTS, POINTS // 2))


_PIXELS = Recipe(
    name="china-64",
    store="china-64",
    kind="numbers",
    task="regression",
    shape=(2,),
    description="",
    licence="CC BY 2.0",
    citation="danielbuechele, flickr.com/photos/danielbuechele/6061409035; comes with scikit-learn",
    counts=(1_024, 1_024, 2_048),
    make=make_photograph,
)
_OF = {
    "china": ("a temple in China", _PIXELS.licence, _PIXELS.citation),
    "flower": (
        "a flower",
        "CC BY 2.0",
        "vultilion, flickr.com/photos/vultilion/6056698931; comes with scikit-learn",
    ),
    "portrait": (
        "a portrait of Grace Hopper",
        "public domain (work of the US Navy)",
        "James S. Davis, US Navy, 1984; comes with matplotlib",
    ),
}
_TONES = replace(
    _PIXELS, shape=(1,), licence="none needed", citation="the signal of N. Rahaman et al.: On the spectral bias of "
    "neural networks, 2019", counts=(512, 256, 256), make=make_tones,
)  # fmt: skip
RECIPES = (
    *(
        replace(
            _PIXELS,
            name=f"{name}-{size}",
            store=f"{name}-{size}",
            description=f"the pixels of {what}, {size} x {size}: place to colour",
            licence=licence,
            citation=citation,
            counts=(size * size // 4, size * size // 4, size * size // 2),
        )
        for size in SIZES
        for name, (what, licence, citation) in _OF.items()
    ),
    *(
        replace(
            _TONES,
            name=name,
            store=name,
            description=f"a signal of ten sines, {turns[0]} to {turns[-1]} periods: place to value",
        )
        for name, turns in TONES.items()
    ),
)
