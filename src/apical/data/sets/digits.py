"""Handwritten digits, 8 x 8 pixels, that come with scikit-learn: real images without a download."""

import numpy as np

from apical import files, imports
from apical.data.recipe import Arrays, Recipe
from apical.data.split import random_split

SIZE = 1_000_000


def make(_recipe: Recipe) -> Arrays:
    """1,797 images with values 0 to 16, split 70/15/15 by the seed of all splits."""
    path = imports.file_of("sklearn", "datasets/data/digits.csv.gz", extra="lab")
    data = files.gunzip(files.read_file(path, limit=SIZE), most=SIZE, origin=path)
    table = np.array(files.parse_csv(data.decode()), np.float64).astype(np.uint8)
    images, labels = table[:, :-1].reshape(-1, 1, 8, 8), table[:, -1].astype(np.int64)
    ids = [f"digit-{i:04d}" for i in range(len(images))]
    return Arrays(inputs=images, labels=labels, ids=ids, parts=random_split(ids), white=16.0)


RECIPE = Recipe(
    name="digits",
    store="digits",
    kind="image",
    task="classification",
    shape=(1, 8, 8),
    description="handwritten digits, 8 x 8 pixels, from scikit-learn",
    licence="CC BY 4.0",
    citation="E. Alpaydin, C. Kaynak: Optical recognition of handwritten digits, UCI, 1998",
    counts=(1_257, 269, 271),
    class_names=tuple("0123456789"),
    make=make,
)
