"""Metrics by name: how each is computed, printed and compared. Importing this needs no torch.

A metric gets log-probabilities (n, classes) and classes (n,), or predictions and targets: what the trial's loss makes
of the outputs of the network. `compute` gets torch tensors, `per_sample` numpy arrays.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import isnan, log10
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from apical import imports
from apical.errors import InvalidArgumentError, TrainingError, unknown

if TYPE_CHECKING:
    from torch import Tensor

Task = Literal["classification", "regression"]
Array = NDArray[Any]
FORMAT = r"^([ 0]?[<>=^])?[-+ ]?z?#?0?\d{0,2}[,_]?(\.\d{1,2})?[eEfFgGn%]?$"
"""What Python's format() takes for a float, with widths that fit into a table."""
_EXACT = 1e-20  # a smaller squared error counts as this one, so that the PSNR stays a number


@dataclass(frozen=True, kw_only=True)
class Metric:
    """A metric: its name, its direction, how it is printed and how it is computed.

    `percent`: `compute` gives shares of 1, tables print per cent. `format` is Python's format of the printed value.
    `per_sample` gives one value per test sample, for paired tests: with `right_or_wrong` 1 or 0, else an error.
    `by_trial`: the samples are no sample of a population (the points of a curve), so rows are compared trial by trial.
    `of_each` is `compute` for k trials at once: outputs (k, n, ...) -> k values.
    `by_class`: the metric is a mean over classes, so the bootstrap resamples within each class.
    A quantity that does not follow from outputs, such as seconds, has no `compute`; `measured_by` names the assessment
    of a trial's `robustness` that gives it (`apical.train.assessment`).
    """

    name: str
    title: str
    larger_is_better: bool
    task: Task | None = None
    compute: "Callable[[Tensor, Tensor], float] | None" = None
    of_each: "Callable[[Tensor, Tensor], Tensor] | None" = None
    per_sample: Callable[[Array, Array], Array] | None = None
    right_or_wrong: bool = False
    by_trial: bool = False
    by_class: bool = False
    percent: bool = False
    unit: str = ""
    format: str = ""
    measured_by: str = ""

    def __post_init__(self) -> None:
        if not self.format:
            object.__setattr__(self, "format", ".2f" if self.percent else ".4g")

    @property
    def heading(self) -> str:
        """The title with the unit of its values."""
        unit = "%" if self.percent else self.unit
        return f"{self.title} ({unit})" if unit else self.title

    def better(self, new: float, old: float | None) -> bool:
        """True where `new` beats `old`; equal values do not, so that the earliest of equals stays the best."""
        if old is None:
            return not isnan(new)
        return new > old if self.larger_is_better else new < old


def accuracy(log_probabilities: "Tensor", labels: "Tensor") -> float:
    """Share of samples whose most probable class is the right one."""
    return _mean(log_probabilities.argmax(1) == labels)


def weighted_accuracy(log_probabilities: "Tensor", labels: "Tensor") -> float:
    """Mean over the classes that occur of the share of each that is found (mean of recalls)."""
    right = log_probabilities.argmax(1) == labels
    count = labels.bincount()
    hits = labels[right].bincount(minlength=len(count))
    return _mean(hits[count > 0] / count[count > 0].double())


def top_5(log_probabilities: "Tensor", labels: "Tensor") -> float:
    """Share of samples whose right class is among the five most probable."""
    own = log_probabilities.gather(1, labels[:, None])
    return _mean((log_probabilities > own).sum(1) < 5)


def cross_entropy(log_probabilities: "Tensor", labels: "Tensor") -> float:
    """Mean of minus the log-probability of the right class."""
    return -_mean(log_probabilities.gather(1, labels[:, None]))


def mae(predictions: "Tensor", targets: "Tensor") -> float:
    """Mean absolute error."""
    return _mean((predictions.double().reshape(targets.shape) - targets).abs())


def mse(predictions: "Tensor", targets: "Tensor") -> float:
    """Mean squared error."""
    return _mean((predictions.double().reshape(targets.shape) - targets).square())


def psnr(predictions: "Tensor", targets: "Tensor") -> float:
    """Peak signal-to-noise ratio, -10 log10 of the mean squared error, of targets between 0 and 1."""
    return -10 * log10(max(mse(predictions, targets), _EXACT))


def _mean(values: "Tensor") -> float:
    return float(values.double().mean())


# The same of k trials, from outputs (k, n, values) for the same samples.


def _right_of_each(outputs: "Tensor", labels: "Tensor") -> "Tensor":
    return (outputs.argmax(2) == labels).double()


def _recall_of_each(outputs: "Tensor", labels: "Tensor") -> "Tensor":
    from torch.nn.functional import one_hot  # noqa: PLC0415  torch

    classes = one_hot(labels).double()
    count = classes.sum(0)
    recalls = (_right_of_each(outputs, labels) @ classes)[:, count > 0] / count[count > 0]
    return recalls.mean(1)


def _own(outputs: "Tensor", labels: "Tensor") -> "Tensor":
    return outputs.gather(2, labels.expand(len(outputs), -1)[:, :, None])


def _errors(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    return (outputs.double().reshape(len(outputs), *targets.shape) - targets).flatten(1)


# The same of each sample, by numpy.


def _right(outputs: Array, labels: Array) -> Array:
    return np.asarray(outputs.argmax(1) == labels, dtype=np.float64)


def _among_five(outputs: Array, labels: Array) -> Array:
    own = np.take_along_axis(outputs, labels[:, None], 1)
    return np.asarray((outputs > own).sum(1) < 5, dtype=np.float64)


def _surprise(outputs: Array, labels: Array) -> Array:
    return np.asarray(-np.take_along_axis(outputs, labels[:, None], 1)[:, 0].astype(np.float64))


def _off(outputs: Array, targets: Array) -> Array:
    return np.asarray((outputs.astype(np.float64).reshape(targets.shape) - targets).reshape(len(targets), -1))


_BUILT_IN = {
    metric.name: metric
    for metric in (
        Metric(
            name="accuracy", title="accuracy", larger_is_better=True, percent=True, task="classification",
            compute=accuracy, of_each=lambda o, y: _right_of_each(o, y).mean(1), per_sample=_right, right_or_wrong=True,
        ),
        Metric(
            name="weighted-accuracy", title="weighted accuracy", larger_is_better=True, percent=True,
            task="classification", compute=weighted_accuracy, of_each=_recall_of_each, per_sample=_right,
            right_or_wrong=True, by_class=True,
        ),
        Metric(
            name="top-5", title="top-5 accuracy", larger_is_better=True, percent=True, task="classification",
            compute=top_5, of_each=lambda o, y: ((o > _own(o, y)).sum(2) < 5).double().mean(1),
            per_sample=_among_five, right_or_wrong=True,
        ),
        Metric(
            name="cross-entropy", title="cross-entropy", larger_is_better=False, format=".4f", task="classification",
            compute=cross_entropy, of_each=lambda o, y: -_own(o, y)[:, :, 0].double().mean(1), per_sample=_surprise,
        ),
        Metric(
            name="mae", title="MAE", larger_is_better=False, format=".2f", task="regression", compute=mae,
            of_each=lambda o, y: _errors(o, y).abs().mean(1), per_sample=lambda o, y: np.abs(_off(o, y)).mean(1),
        ),
        Metric(
            name="mse", title="MSE", larger_is_better=False, format=".2e", task="regression", compute=mse,
            of_each=lambda o, y: _errors(o, y).square().mean(1),
            per_sample=lambda o, y: np.square(_off(o, y)).mean(1), by_trial=True,
        ),
        Metric(
            name="psnr", title="PSNR", larger_is_better=True, unit="dB", format=".2f", task="regression", compute=psnr,
            of_each=lambda o, y: -10 * _errors(o, y).square().mean(1).clamp_min(_EXACT).log10(), by_trial=True,
        ),
        Metric(name="seconds", title="seconds per epoch", larger_is_better=False, format=".3g", by_trial=True),
        Metric(name="parameters", title="parameters", larger_is_better=False, format=",.0f", by_trial=True),
        *(
            Metric(
                name=name, title=title, larger_is_better=larger, percent=percent, by_trial=True, task="classification",
                measured_by=by, format="" if percent else ".3f",
            )
            for name, title, larger, percent, by in (
                ("calibration-error", "calibration error", False, True, "calibration"),
                ("corruption-accuracy", "accuracy under corruption", True, True, "corruptions"),
                ("corruption-calibration-error", "calibration error under corruption", False, True, "corruptions"),
                ("softmax-auroc", "AUROC of the largest softmax", True, False, "far_away"),
                ("norm-auroc", "AUROC of the logit norm", True, False, "far_away"),
                ("adversarial-accuracy", "accuracy under attack", True, True, "attacks"),
                ("masked", "hidden from white-box attacks", False, True, "attacks"),
            )
        ),
    )
}  # fmt: skip
_REGISTERED: dict[str, Metric] = {}


def find(name: str) -> Metric:
    """The metric of that name, or a quantity that tables print beside metrics (seconds, parameters).

    `corruption-accuracy.fog` is a detail of what is measured beside metrics.
    """
    metric = get(name)
    if metric is None:
        raise InvalidArgumentError(unknown("metric", name, names(), imports.adding("register_metric")))
    return metric


def get(name: str) -> Metric | None:
    """The metric of that name; None where there is none."""
    metric = _BUILT_IN.get(name) or _REGISTERED.get(name)
    base, dot, detail = name.partition(".")
    if metric is None and dot and detail and base in measured():
        own = _BUILT_IN[base]
        return replace(own, name=name, title=f"{own.title}: {detail}")
    return metric


def measured() -> tuple[str, ...]:
    """What the assessments of a trial's `robustness` give."""
    return tuple(m.name for m in _BUILT_IN.values() if m.measured_by)


def names(task: Task | None = None) -> tuple[str, ...]:
    """The metrics that outputs tell, of one task or of all: the built-in ones, then the registered ones."""
    known = (*_BUILT_IN.values(), *_REGISTERED.values())
    return tuple(m.name for m in known if m.compute is not None and task in (None, m.task))


def registered() -> tuple[Metric, ...]:
    """The metrics that users added."""
    return tuple(_REGISTERED.values())


def register_metric(
    name: str,
    *,
    compute: "Callable[[Tensor, Tensor], float]",
    larger_is_better: bool,
    task: Task = "classification",
    **facts: Any,
) -> None:
    """Add a metric: every trial of its task records it; `facts` are further fields of `Metric`.

    `compute` gets what `apical.train.metrics` says, on the CPU, and gives a number (NaN where it has no meaning).
    Tables compare rows by paired tests where there is a `per_sample`, else trial by trial.

    Examples:
        >>> def hedging(log_probabilities, labels):
        ...     return float(-(log_probabilities.exp() * log_probabilities).sum(1).mean())
        >>> register_metric("hedging", compute=hedging, larger_is_better=False, title="mean entropy", unit="nats")
    """
    check_name("metric", name, (*_BUILT_IN, *_REGISTERED))
    if task not in ("classification", "regression") or not callable(compute):
        raise InvalidArgumentError(
            f"metric {name!r} has task={task!r} and compute={compute!r:.50}, but needs the task 'classification' or "
            "'regression' and a function of outputs and labels"
        )
    unfit = sorted(facts.keys() - Metric.__dataclass_fields__.keys())
    if unfit:
        raise InvalidArgumentError(unknown(f"setting of metric {name!r}:", unfit[0], Metric.__dataclass_fields__))
    given: dict[str, Any] = {"title": name, "by_trial": facts.get("per_sample") is None} | facts
    metric = Metric(name=name, compute=compute, larger_is_better=larger_is_better, task=task, **given)
    _check_format(metric)
    _check_per_sample(metric)
    _REGISTERED[name] = metric


def _check_format(metric: Metric) -> None:
    if not (isinstance(metric.format, str) and re.search(FORMAT, metric.format)):
        raise InvalidArgumentError(
            f"format of metric {metric.name!r} is {metric.format!r}, but must be what Python's format() takes for a "
            "float, such as '.3f'"
        )


def _check_per_sample(metric: Metric) -> None:
    """Call it once: a report that fails after days of training would be late."""
    if metric.per_sample is None:
        return
    fault = ""
    for outputs, targets in _few_samples(metric.task):
        try:
            with np.errstate(all="ignore"):
                values = metric.per_sample(outputs, targets)
        except Exception as error:  # somebody's function may raise anything
            fault = fault or f"raises {type(error).__name__}: {error}"
            continue
        if isinstance(values, np.ndarray) and values.dtype.kind == "f" and values.shape == (len(targets),):
            return
        kind = f"{values.dtype} array {values.shape}" if isinstance(values, np.ndarray) else type(values).__name__
        fault = fault or f"returns a {kind}"
    raise InvalidArgumentError(
        f"per_sample of metric {metric.name!r} must return a float array of numpy with one value for each sample, but "
        f"for 4 samples it {fault}"
    )


def _few_samples(task: Task | None) -> list[tuple[Array, Array]]:
    """Outputs and targets of four samples; targets of a regression come with and without a dimension of values."""
    if task == "classification":
        shares = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.1, 0.1, 0.8], [0.5, 0.2, 0.3]], dtype=np.float32)
        return [(np.log(shares), np.array([0, 1, 2, 1]))]
    predictions, targets = np.array([[[1.0], [2.0], [3.0], [4.0]], [[1.5], [1.0], [3.5], [6.0]]], dtype=np.float32)
    return [(predictions, targets), (predictions, targets[:, 0])]


def check_name(what: str, name: object, taken: tuple[str, ...]) -> None:
    """Refuse a name that study files cannot write, or that is taken."""
    if not (isinstance(name, str) and re.fullmatch(r"[^\W_][\w.-]*", name)):
        raise InvalidArgumentError(f"{name!r} cannot name a {what}: use letters, digits, '-', '_' and '.'")
    if name in taken or name == "loss":
        raise InvalidArgumentError(f"there is a {what} {name!r} already: register yours under another name")


def scores(outputs: "Tensor", labels: "Tensor", *, task: Task) -> dict[str, float]:
    """Every metric of the task."""
    return {m.name: _score(m, outputs, labels) for m in map(find, names(task))}


def scores_of_each(outputs: "Tensor", labels: "Tensor", *, task: Task) -> list[dict[str, float]]:
    """Every metric of each of k trials from their outputs (k, n, values) for the same samples."""
    columns: dict[str, list[float]] = {}
    for metric in map(find, names(task)):
        if metric.of_each is not None:
            with _named(metric, "of_each"):
                columns[metric.name] = metric.of_each(outputs, labels).tolist()
        else:
            columns[metric.name] = [_score(metric, own, labels) for own in outputs]
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _score(metric: Metric, outputs: "Tensor", labels: "Tensor") -> float:
    compute: Any = metric.compute  # `names` lists those that have one
    with _named(metric, "compute"):
        return float(compute(outputs, labels))


@contextmanager
def _named(metric: Metric, function: str) -> Iterator[None]:
    """What somebody's function raises becomes a sentence that names the metric."""
    try:
        yield
    except Exception as error:
        raise TrainingError(
            f"{function} of metric {metric.name!r} does not return a number ({type(error).__name__}: {error})"
        ) from error
