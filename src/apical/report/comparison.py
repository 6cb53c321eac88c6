"""Rows compared in pairs: what trials answered on each sample, the tests on them, and their results in words."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apical import stats
from apical.errors import ApicalError
from apical.report.numbers import gain, scale, show, show_p, test_value
from apical.study.results import RowResults, StudyResults, TrialRecord
from apical.train.metrics import Metric


@dataclass(frozen=True)
class Answers:
    """One value for each test sample, sorted by id: right (1) or wrong (0), or an error; and the label."""

    ids: NDArray[Any]
    values: NDArray[np.float64]
    labels: NDArray[Any]


class AnswerBook:
    """Reads each trial's outputs once; what cannot be read or paired is said in `faults`, and left out."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._known: dict[tuple[str, str], Answers | None] = {}

    def read(self, record: TrialRecord, metric: Metric) -> Answers | None:
        """The answers of a trial as `metric` counts them; None where there are none."""
        key = (record.digest, metric.name)
        if key not in self._known:
            self._known[key] = self._read(record, metric)
        return self._known[key]

    def _read(self, record: TrialRecord, metric: Metric) -> Answers | None:
        if record.test is None or metric.per_sample is None:
            return None
        try:
            answers = record.outputs()
        except ApicalError as error:
            self.faults.append(str(error))
            return None
        order = np.argsort(answers.ids, kind="stable")
        values = np.asarray(metric.per_sample(answers.outputs, answers.labels), dtype=np.float64)
        return Answers(answers.ids[order], values[order], answers.labels[order])


# Two rows of a study, compared on the same test samples and over trials.
#
# Right/wrong metrics: McNemar's test, chi-square without correction for the paper's marks, exact for the verdicts.
# Errors and losses: the Wilcoxon signed-rank test. Beside it the bootstrap interval of the difference, the effect size,
# and the number of test samples that would show a difference like this one.

LEVEL, STRICT = 0.05, 0.01
"""The paper's two levels: dagger, double dagger."""
MARKS = {"": "", "dagger": "†", "ddagger": "‡"}


@dataclass(frozen=True)
class Comparison:
    """Row `a` against row `b` by their best trials. `difference` is a - b in the metric's own unit, `gain` turns it so
    that positive is better for a. `p_paper` is the p-value that the paper's marks stand for, `p_value` the exact one,
    `p_holm` that one adjusted for all tests of the study. `over_trials` sums up the differences of trials with equal
    seeds.
    """

    a: str
    b: str
    metric: Metric
    trials: tuple[str, str]
    n: int
    difference: float
    low: float
    high: float
    test: str
    p_paper: float
    p_value: float
    effect_name: str
    effect: float
    needed: float
    over_trials: stats.Summary
    only_a: int | None = None
    only_b: int | None = None
    p_holm: float = nan

    @property
    def gain(self) -> float:
        """The difference, positive where a is better."""
        return gain(self.metric, self.difference)

    @property
    def direction(self) -> str:
        """Which way the difference goes, where the exact test sees one; empty where it does not."""
        if not self.p_value <= LEVEL:
            return ""
        return "better" if self.gain > 0 else "worse"

    @property
    def means_agree(self) -> bool:
        """False where the mean difference of trials with equal seeds points the other way than that of the best."""
        return not gain(self.metric, self.over_trials.mean) * self.gain < 0

    @property
    def mark(self) -> str:
        """The paper's mark: dagger or ddagger where a is better than b at 0.05 or 0.01, else none."""
        if self.gain <= 0 or isnan(self.p_paper) or self.p_paper > LEVEL:
            return ""
        return "ddagger" if self.p_paper <= STRICT else "dagger"

    @property
    def shown(self) -> int:
        """+1 where a is better beyond doubt (Holm's p at most 0.05, interval without 0), -1 where b is, else 0."""
        sure = self.p_holm <= LEVEL and not self.low <= 0 <= self.high
        return int(np.sign(self.gain)) if sure else 0


def compare(a: RowResults, b: RowResults, metric: Metric, book: AnswerBook) -> Comparison | None:
    """The comparison of two rows' best trials, or None where one of them was not tested."""
    if a.best is None or b.best is None:
        return None
    first, second = book.read(a.best, metric), book.read(b.best, metric)
    if first is None or second is None:
        return None
    if len(first.ids) != len(second.ids) or (first.ids != second.ids).any():
        book.faults.append(f"{a.row.key} and {b.row.key} were tested on different samples: they are not compared")
        return None
    strata = first.labels if metric.by_class else None
    interval = stats.bootstrap_difference(first.values, second.values, strata=strata)
    test = _mcnemar(first, second) if metric.right_or_wrong else _wilcoxon(first, second, metric)
    return Comparison(
        a=a.row.key,
        b=b.row.key,
        metric=metric,
        trials=(a.best.digest, b.best.digest),
        n=len(first.ids),
        difference=interval.difference,
        low=interval.low,
        high=interval.high,
        over_trials=_over_trials(a.trials, b.trials, metric),
        **test._asdict(),
    )


def adjusted(comparisons: Iterable[Comparison]) -> list[Comparison]:
    """The same comparisons with Holm's adjustment over all of them: each pair of rows counts once."""
    listed = list(comparisons)
    family = {_pair(c): c.p_value for c in listed}
    p_holm = dict(zip(family, stats.holm(list(family.values())), strict=True))
    return [replace(c, p_holm=p_holm[_pair(c)]) for c in listed]


def _pair(comparison: Comparison) -> tuple[str, ...]:
    return (comparison.metric.name, *sorted((comparison.a, comparison.b)))


class _Tested(NamedTuple):
    test: str
    p_paper: float
    p_value: float
    effect_name: str
    effect: float
    needed: float
    only_a: int | None = None
    only_b: int | None = None


def _mcnemar(a: Answers, b: Answers) -> _Tested:
    table = stats.table(a.values, b.values)
    exact, chi2 = stats.mcnemar_table(table, method="exact"), stats.mcnemar_table(table, method="chi2")
    needed = stats.mcnemar_sample_size(table.only_a / table.n, table.only_b / table.n)
    return _Tested(
        "McNemar", chi2.p_value, exact.p_value, "Cohen's g", exact.cohens_g, needed, table.only_a, table.only_b
    )


def _wilcoxon(a: Answers, b: Answers, metric: Metric) -> _Tested:
    """Its effect is turned so that positive is better."""
    result = stats.wilcoxon(a.values, b.values)
    needed = stats.wilcoxon_sample_size(result.rank_biserial)
    effect = gain(metric, result.rank_biserial)
    return _Tested("Wilcoxon", result.p_value, result.p_value, "rank-biserial", effect, needed)


def _over_trials(a: Iterable[TrialRecord], b: Iterable[TrialRecord], metric: Metric) -> stats.Summary:
    first, second = _by_seed(a, metric), _by_seed(b, metric)
    return stats.summarise([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])


def _by_seed(trials: Iterable[TrialRecord], metric: Metric) -> dict[int, float]:
    return {t.seed: value for t in trials if (value := test_value(t, metric)) is not None}


# All comparisons of the studies of a report, made once and adjusted together, study by study.

Ref = tuple[str, str]
"""The name of a study within the report, and the key of a row."""
Pair = tuple[Ref, Ref, str]
"""Row, row, the name of a metric."""


class Evidence:
    """The tests of a report: ask for pairs with `make`, then look them up with `get`."""

    def __init__(self, studies: Sequence[StudyResults]) -> None:
        self.book = AnswerBook()
        self.studies: dict[str, StudyResults] = _named(studies)
        self._rows = {(name, result.row.key): result for name, r in self.studies.items() for result in r.rows}
        self._comparisons: dict[Pair, Comparison] = {}

    def row(self, ref: Ref) -> RowResults | None:
        """The row, or None where this report does not have it."""
        return self._rows.get(ref)

    def metric(self, study: str, name: str) -> Metric:
        """A metric as a study of the report knows it."""
        return self.studies[study].study.metric(name)

    def make(self, pairs: Iterable[Pair]) -> None:
        """Compare these pairs; Holm's adjustment is over all pairs of the first row's study."""
        families: dict[str, dict[Pair, Comparison]] = defaultdict(dict)
        for pair in pairs:
            a, b, metric = pair
            first, second = self._rows.get(a), self._rows.get(b)
            if pair in families[a[0]] or first is None or second is None:
                continue
            comparison = compare(first, second, self.metric(a[0], metric), self.book)
            if comparison is not None:
                families[a[0]][pair] = comparison
        self._comparisons = {}
        for family in families.values():
            self._comparisons |= dict(zip(family, adjusted(family.values()), strict=True))

    def get(self, a: Ref, b: Ref, metric: str) -> Comparison | None:
        """The comparison of a pair that was asked for, whichever way round; None where it could not be made."""
        comparison = self._comparisons.get((a, b, metric))
        if comparison is None and (b, a, metric) in self._comparisons:
            return turned(self._comparisons[b, a, metric])
        return comparison

    def of(self, study: str) -> list[Comparison]:
        """Every comparison that was made for a study."""
        return [comparison for (a, _, _), comparison in self._comparisons.items() if a[0] == study]


def turned(comparison: Comparison) -> Comparison:
    """The same comparison with its two rows exchanged."""
    over = comparison.over_trials
    return replace(
        comparison,
        a=comparison.b,
        b=comparison.a,
        trials=comparison.trials[::-1],
        difference=-comparison.difference,
        low=-comparison.high,
        high=-comparison.low,
        effect=-comparison.effect,
        only_a=comparison.only_b,
        only_b=comparison.only_a,
        over_trials=replace(over, mean=-over.mean, low=-over.high, high=-over.low),
    )


def _named(studies: Sequence[StudyResults]) -> dict[str, StudyResults]:
    """Each under its study's name, in the order given. Of several copies of one study, the first that can carry
    verdicts (neither quick nor partial) has the plain name, by which claims find it; the others bear a number.
    """
    names: dict[int, str] = {}
    for place in sorted(range(len(studies)), key=lambda k: _lesser(studies[k])):
        study = studies[place].study
        names[place] = _free(study.base or study.name, names.values())
    return {names[place]: results for place, results in enumerate(studies)}


def _lesser(results: StudyResults) -> bool:
    return results.study.quick or any(part.partial for part in results.study.parts)


def _free(name: str, taken: Iterable[str]) -> str:
    """The name, with a number where another study of the report has it."""
    count = sum(other == name or other.startswith(f"{name} (") for other in taken)
    return name if not count else f"{name} ({count + 1})"


# Comparisons in words: rows by their names, differences with their intervals, and how many samples and trials.


def row_name(result: RowResults) -> str:
    """A row with its part."""
    return f"{result.row.label} ({result.part.title})"


def pair_name(a: RowResults, b: RowResults) -> str:
    """Two rows, their part said once where they share it."""
    if a.part.title == b.part.title:
        return f"{a.row.label} against {b.row.label} ({a.part.title})"
    return f"{row_name(a)} against {row_name(b)}"


def minus(metric: Metric, a: float, b: float) -> str:
    """`88.98 − 88.88 = +0.10`."""
    return f"{show(metric, a)} − {show(metric, b)} = {show(metric, a - b, sign=True)}"


def between(metric: Metric, low: float, high: float) -> str:
    """`(−0.30 to +0.54)`."""
    return f"({show(metric, low, sign=True)} to {show(metric, high, sign=True)})"


def in_words(a: RowResults, b: RowResults, comparison: Comparison) -> str:
    """Both values, the difference with its interval, the test, and the mean over trials with its own."""
    metric, over = comparison.metric, comparison.over_trials
    values = [test_value(r.best, metric) for r in (a, b)]
    first = f"{show(metric, comparison.difference, sign=True)}"
    if None not in values and abs((values[0] or 0) - (values[1] or 0) - comparison.difference) < 1e-9:
        first = minus(metric, values[0] or 0.0, values[1] or 0.0)
    words = (
        f"{first} {between(metric, comparison.low, comparison.high)}, {comparison.test} p {show_p(comparison.p_value)}"
    )
    words += f", adjusted {show_p(comparison.p_holm)}"
    if over.n > 1:
        words += f"; mean over trials {show(metric, over.mean, sign=True)} {between(metric, over.low, over.high)}"
    return words


def samples_and_trials(comparison: Comparison) -> str:
    """`10,000 samples, 5 trials`."""
    return f"{comparison.n:,} samples, {count_trials(comparison.over_trials.n)}"


def count_trials(count: int) -> str:
    """`5 trials`."""
    return f"{count:,} trial{'' if count == 1 else 's'}"


def printed_pair(a: RowResults, b: RowResults, metric: Metric) -> str:
    """What the paper prints for both rows, and the difference; "" where it prints none."""
    numbers = [r.row.paper.get(metric.name) for r in (a, b)]
    if numbers[0] is None or numbers[1] is None:
        return ""
    return minus(metric, numbers[0].value / scale(metric), numbers[1].value / scale(metric))


def printed(result: RowResults, metric: Metric) -> str:
    """What the paper prints for a row; "" where it prints none."""
    number = result.row.paper.get(metric.name)
    return show(metric, number.value / scale(metric)) if number else ""


def ratio(of_a: Sequence[float], of_b: Sequence[float]) -> tuple[str, stats.Summary]:
    """The geometric mean of a / b over trials with Student's interval of the logarithm, in words and as logarithms."""
    summary = stats.summarise(np.log(of_a) - np.log(of_b))
    words = f"{np.exp(summary.mean):.3g} times as large"
    if summary.n > 1:
        words += f" ({np.exp(summary.low):.2g} to {np.exp(summary.high):.2g})"
    return words, summary


def turned_sign(metric: Metric, summary: stats.Summary, *, ratios: bool) -> int:
    """+1 where the whole interval says that a is better, -1 where it says worse, else 0."""
    ends = (-summary.low, -summary.high) if ratios else (gain(metric, summary.low), gain(metric, summary.high))
    return 1 if min(ends) > 0 else -1 if max(ends) < 0 else 0
