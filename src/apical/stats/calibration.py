"""Are probabilities right? Cross-entropy, Brier score, calibration error and temperature of log-probabilities.

`log_probabilities` are (samples, classes), as trials store them; `labels` the classes of the samples.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from apical.errors import InvalidArgumentError

Array = NDArray[Any]


def cross_entropy(log_probabilities: Array, labels: Array) -> float:
    """Mean over samples of -log p of the right class, in nats."""
    logs, classes = _checked(log_probabilities, labels)
    return float(-logs[np.arange(len(classes)), classes].mean())


def brier(log_probabilities: Array, labels: Array) -> float:
    """Mean over samples of the squared distance between probabilities and the right answer: 0 to 2 (Brier 1950)."""
    logs, classes = _checked(log_probabilities, labels)
    return float(((np.exp(logs) - np.eye(logs.shape[1])[classes]) ** 2).sum(1).mean())


def calibration_error(log_probabilities: Array, labels: Array, *, bins: int = 15) -> float:
    """Expected calibration error: mean of |accuracy - confidence| over bins of equal width (Guo et al. 2017)."""
    logs, classes = _checked(log_probabilities, labels)
    sure, right = np.exp(logs.max(1)), logs.argmax(1) == classes
    places = np.clip(np.ceil(sure * bins).astype(int) - 1, 0, bins - 1)
    gaps = np.bincount(places, weights=right - sure, minlength=bins)
    return float(np.abs(gaps).sum() / len(classes))


def at_temperature(log_probabilities: Array, temperature: float) -> Array:
    """Log-probabilities with the logits divided by a temperature: above 1 less sure, below 1 more."""
    scaled = np.asarray(log_probabilities, dtype=np.float64) / temperature
    return np.asarray(scaled - special.logsumexp(scaled, axis=1, keepdims=True))


def fit_temperature(log_probabilities: Array, labels: Array) -> float:
    """The temperature from 0.05 to 20 with the least cross-entropy."""
    logs, classes = _checked(log_probabilities, labels)
    fit = optimize.minimize_scalar(
        lambda log_t: cross_entropy(at_temperature(logs, float(np.exp(log_t))), classes),
        bounds=(np.log(0.05), np.log(20)),
        method="bounded",
    )
    return float(np.exp(fit.x))


def cross_fitted(log_probabilities: Array, labels: Array) -> Array:
    """Log-probabilities at temperatures that were fitted on other samples: each half at that of the other half.

    For trials of which only the test split's outputs are stored. Samples with even places are one half.
    """
    logs, classes = _checked(log_probabilities, labels)
    scaled = np.empty_like(logs)
    for half in (0, 1):
        other = fit_temperature(logs[1 - half :: 2], classes[1 - half :: 2])
        scaled[half::2] = at_temperature(logs[half::2], other)
    return scaled


def _checked(log_probabilities: Array, labels: Array) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    logs, classes = np.asarray(log_probabilities, dtype=np.float64), np.asarray(labels)
    if logs.ndim != 2 or classes.shape != logs.shape[:1] or not len(classes):
        raise InvalidArgumentError(
            f"log_probabilities are {logs.shape} and labels {classes.shape}, "
            "but must be (samples, classes) and (samples,)"
        )
    return logs, classes.astype(np.intp)
