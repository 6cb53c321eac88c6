"""Handwritten digits, 8 x 8 pixels, that come with scikit-learn: real images without a download."""

from typing import TYPE_CHECKING

import numpy as np

from apical import extras
from apical.data.recipe import Recipe
from apical.data.sets.toy import in_memory
from apical.data.split import random_split

if TYPE_CHECKING:
    from apical.data.dataset import DataSet


def make(recipe: Recipe) -> "DataSet":
    """1,797 images with values 0 to 16, split 70/15/15 by the seed of all splits."""
    from apical.data.inputs import Images  # noqa: PLC0415  torch is not needed to list data sets

    bunch = extras.load("sklearn.datasets", extra="lab").load_digits()
    images, labels = bunch.images.astype(np.uint8)[:, None], bunch.target.astype(np.int64)
    ids = [f"digit-{i:04d}" for i in range(len(images))]
    parts = random_split(ids)
    mean = float(images[parts.train].mean() / 16)
    return in_memory(recipe, images, labels, ids, parts, input=Images(divisor=16.0, mean=mean))


RECIPE = Recipe(
    name="digits",
    store="digits",
    kind="image",
    task="classification",
    description="handwritten digits, 8 x 8 pixels, from scikit-learn",
    licence="CC BY 4.0",
    citation="E. Alpaydin, C. Kaynak: Optical recognition of handwritten digits, UCI, 1998",
    counts=(1_257, 269, 271),
    class_names=tuple("0123456789"),
    make=make,
)
