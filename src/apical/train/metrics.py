"""Metrics, plain torch: of log-probabilities (n, classes) and classes (n,), or of predictions and targets."""

from collections.abc import Callable
from math import isnan

import torch
from torch import Tensor

Metric = Callable[[Tensor, Tensor], float]


def accuracy(log_probabilities: Tensor, labels: Tensor) -> float:
    """Share of samples whose most probable class is the right one."""
    return _mean(log_probabilities.argmax(1) == labels)


def weighted_accuracy(log_probabilities: Tensor, labels: Tensor) -> float:
    """Mean over the classes that occur of the share of each that is found (mean of recalls)."""
    right = log_probabilities.argmax(1) == labels
    count = torch.bincount(labels)
    found = torch.bincount(labels[right], minlength=len(count))
    return _mean(found[count > 0] / count[count > 0].double())


def top_5(log_probabilities: Tensor, labels: Tensor) -> float:
    """Share of samples whose right class is among the five most probable."""
    own = log_probabilities.gather(1, labels[:, None])
    return _mean((log_probabilities > own).sum(1) < 5)


def cross_entropy(log_probabilities: Tensor, labels: Tensor) -> float:
    """Mean of minus the log-probability of the right class."""
    return -_mean(log_probabilities.gather(1, labels[:, None]))


def mae(predictions: Tensor, targets: Tensor) -> float:
    """Mean absolute error."""
    return _mean((predictions.double().reshape(targets.shape) - targets).abs())


def mse(predictions: Tensor, targets: Tensor) -> float:
    """Mean squared error."""
    return _mean((predictions.double().reshape(targets.shape) - targets).square())


CLASSIFICATION: dict[str, Metric] = {
    "accuracy": accuracy,
    "weighted-accuracy": weighted_accuracy,
    "top-5": top_5,
    "cross-entropy": cross_entropy,
}
REGRESSION: dict[str, Metric] = {"mae": mae, "mse": mse}
NAMES = (*CLASSIFICATION, *REGRESSION)
SMALLER_IS_BETTER = ("cross-entropy", "mae", "mse")


def scores(outputs: Tensor, labels: Tensor, *, classification: bool) -> dict[str, float]:
    """Every metric of the task."""
    table = CLASSIFICATION if classification else REGRESSION
    return {name: metric(outputs, labels) for name, metric in table.items()}


def scores_of_each(outputs: Tensor, labels: Tensor, *, classification: bool) -> list[dict[str, float]]:
    """Every metric of each of k trials from their outputs (k, n, values) for the same samples, in one go."""
    if not classification:
        error = outputs.double().reshape(len(outputs), *labels.shape) - labels
        error = error.flatten(1)
        found = {"mae": error.abs().mean(1), "mse": error.square().mean(1)}
    else:
        right = (outputs.argmax(2) == labels).double()
        own = outputs.gather(2, labels.expand(len(outputs), -1)[:, :, None])
        classes = torch.nn.functional.one_hot(labels).double()
        count = classes.sum(0)
        recalls = (right @ classes)[:, count > 0] / count[count > 0]
        found = {
            "accuracy": right.mean(1),
            "weighted-accuracy": recalls.mean(1),
            "top-5": ((outputs > own).sum(2) < 5).double().mean(1),
            "cross-entropy": -own[:, :, 0].double().mean(1),
        }
    columns = {name: values.tolist() for name, values in found.items()}
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def better(metric: str, new: float, old: float | None) -> bool:
    """True where `new` beats `old`; equal values do not, so that the earliest of equals stays the best."""
    if old is None:
        return not isnan(new)
    return new < old if metric in SMALLER_IS_BETTER else new > old


def _mean(values: Tensor) -> float:
    return float(values.double().mean())
