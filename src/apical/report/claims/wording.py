"""Findings in words: rows by their names, differences with their intervals, and how many samples and trials."""

from collections.abc import Sequence

import numpy as np

from apical import stats
from apical.report.comparison import Comparison
from apical.report.numbers import gain, scale, show, show_p
from apical.report.tables import test_value
from apical.study.results import RowResults


def name(found: RowResults) -> str:
    """A row with its part."""
    return f"{found.row.label} ({found.part.title})"


def pair_name(a: RowResults, b: RowResults) -> str:
    """Two rows, their part said once where they share it."""
    if a.part.title == b.part.title:
        return f"{a.row.label} against {b.row.label} ({a.part.title})"
    return f"{name(a)} against {name(b)}"


def minus(metric: str, a: float, b: float) -> str:
    """`88.98 − 88.88 = +0.10`."""
    return f"{show(metric, a)} − {show(metric, b)} = {show(metric, a - b, sign=True)}"


def between(metric: str, low: float, high: float) -> str:
    """`(−0.30 to +0.54)`."""
    return f"({show(metric, low, sign=True)} to {show(metric, high, sign=True)})"


def compared(a: RowResults, b: RowResults, found: Comparison) -> str:
    """Both values, the difference with its interval, the test, and the mean over trials with its own."""
    metric, over = found.metric, found.over_trials
    values = [test_value(r.best, metric) for r in (a, b)]
    first = f"{show(metric, found.difference, sign=True)}"
    if None not in values and abs((values[0] or 0) - (values[1] or 0) - found.difference) < 1e-9:
        first = minus(metric, values[0] or 0.0, values[1] or 0.0)
    words = f"{first} {between(metric, found.low, found.high)}, {found.test} p {show_p(found.p_value)}"
    words += f", adjusted {show_p(found.p_holm)}"
    if over.n > 1:
        words += f"; mean over trials {show(metric, over.mean, sign=True)} {between(metric, over.low, over.high)}"
    return words


def samples_and_trials(found: Comparison) -> str:
    """`10,000 samples, 5 trials`."""
    return f"{found.n:,} samples, {trials(found.over_trials.n)}"


def trials(count: int) -> str:
    """`5 trials`."""
    return f"{count:,} trial{'' if count == 1 else 's'}"


def printed_pair(a: RowResults, b: RowResults, metric: str) -> str:
    """What the paper prints for both rows, and the difference; "" where it prints none."""
    numbers = [r.row.paper.get(metric) for r in (a, b)]
    if numbers[0] is None or numbers[1] is None:
        return ""
    return minus(metric, numbers[0].value / scale(metric), numbers[1].value / scale(metric))


def printed(found: RowResults, metric: str) -> str:
    """What the paper prints for a row; "" where it prints none."""
    number = found.row.paper.get(metric)
    return show(metric, number.value / scale(metric)) if number else ""


def ratio(of_a: Sequence[float], of_b: Sequence[float]) -> tuple[str, stats.Summary]:
    """The geometric mean of a / b over trials with Student's interval of the logarithm, in words and as logarithms."""
    found = stats.summarise(np.log(of_a) - np.log(of_b))
    words = f"{np.exp(found.mean):.3g} times as large"
    if found.n > 1:
        words += f" ({np.exp(found.low):.2g} to {np.exp(found.high):.2g})"
    return words, found


def turned_sign(metric: str, summary: stats.Summary, *, ratios: bool) -> int:
    """+1 where the whole interval says that a is better, -1 where it says worse, else 0."""
    ends = (-summary.low, -summary.high) if ratios else (gain(metric, summary.low), gain(metric, summary.high))
    return 1 if min(ends) > 0 else -1 if max(ends) < 0 else 0
