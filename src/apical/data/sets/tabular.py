"""Small tables of measurements that come with scikit-learn: iris, wine, breast cancer and diabetes.

Each column has mean 0 and variance 1 over all samples, so has the target of diabetes: scales are no part of the task.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from apical import imports
from apical.data.recipe import Arrays, Recipe
from apical.data.split import random_split


def _standard(values: NDArray[np.float64]) -> NDArray[np.float32]:
    return np.asarray((values - values.mean(0)) / values.std(0), np.float32)


def make(recipe: Recipe) -> Arrays:
    """All samples, split 70/15/15 by the seed of all splits."""
    datasets = imports.optional("sklearn.datasets", extra="lab")
    bunch = getattr(datasets, f"load_{recipe.name.replace('-', '_')}")()
    targets = bunch.target.astype(np.float64)
    labels = targets.astype(np.int64) if recipe.task == "classification" else _standard(targets)[:, None]
    ids = [f"row-{i:04d}" for i in range(len(labels))]
    inputs = _standard(np.asarray(bunch.data, np.float64))
    return Arrays(inputs=inputs, labels=labels, ids=ids, parts=random_split(ids))


_IRIS = Recipe(
    name="iris",
    store="iris",
    kind="numbers",
    task="classification",
    shape=(4,),
    description="three kinds of iris by four lengths, from scikit-learn",
    licence="CC BY 4.0",
    citation="R. A. Fisher: The use of multiple measurements in taxonomic problems, 1936; UCI",
    counts=(105, 22, 23),
    class_names=("setosa", "versicolor", "virginica"),
    make=make,
)
RECIPES = (
    _IRIS,
    replace(
        _IRIS,
        name="wine",
        store="wine",
        shape=(13,),
        description="wines of three growers by chemical analysis, from scikit-learn",
        citation="S. Aeberhard, M. Forina: Wine, UCI, 1991",
        counts=(124, 26, 28),
        class_names=("0", "1", "2"),
    ),
    replace(
        _IRIS,
        name="breast-cancer",
        store="breast-cancer",
        shape=(30,),
        description="malignant and benign tumours by cell nuclei, from scikit-learn",
        citation="W. Wolberg, O. Mangasarian, N. Street, W. Street: Breast cancer Wisconsin (diagnostic), UCI, 1995",
        counts=(398, 85, 86),
        class_names=("malignant", "benign"),
    ),
    replace(
        _IRIS,
        name="diabetes",
        store="diabetes",
        task="regression",
        shape=(10,),
        description="progression of diabetes after a year by ten measurements, from scikit-learn",
        licence="not stated; given with its paper",
        citation="B. Efron, T. Hastie, I. Johnstone, R. Tibshirani: Least angle regression, 2004",
        counts=(309, 66, 67),
        class_names=None,
    ),
)
