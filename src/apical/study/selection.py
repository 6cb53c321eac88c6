"""Choose settings and trials by validation values. No test result is passed to this module."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from math import isnan

from apical.study.plan import Plan
from apical.train.metrics import Metric


def choose(plan: Plan, validation: Mapping[str, float], rows: Collection[str] | None = None) -> dict[str, str]:
    """The setting of each row with the best mean validation value over its tuning trials; ties go to the first.

    `validation` has the value of each finished trial by digest. A trial without one (it failed, or its value is not a
    number) does not count, and a row none of whose trials counts is left out, as are those not in `rows`.
    """
    values: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for trial in plan.tuning:
        value = validation.get(trial.digest)
        if value is not None and not isnan(value) and (rows is None or trial.row in rows):
            values[trial.row][trial.setting].append(value)
    return {row: _best_setting(by_setting, metric_of(plan, row)) for row, by_setting in values.items()}


def best_trial(metric: Metric, values: Sequence[float]) -> int | None:
    """The position of the best value, the first of equals; None where there is no number."""
    known = [k for k, value in enumerate(values) if not isnan(value)]
    return min(known, key=lambda k: _rank(metric, values[k]), default=None)


def metric_of(plan: Plan, row: str) -> Metric:
    """The metric that judges a row's trials."""
    return plan.study.metric(plan.study.part(plan.study.row(row).part).metric)


def _best_setting(values: Mapping[str, Sequence[float]], metric: Metric) -> str:
    return min(values, key=lambda setting: _rank(metric, sum(values[setting]) / len(values[setting])))


def _rank(metric: Metric, value: float) -> float:
    return -value if metric.larger_is_better else value
