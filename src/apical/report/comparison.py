"""Two rows of a study, compared on the same test samples and over trials.

Right/wrong metrics: McNemar's test, chi-square without correction for the paper's marks, exact for the verdicts. Errors
and losses: the Wilcoxon signed-rank test. Beside it the bootstrap interval of the difference, the effect size, and the
number of test samples that would show a difference like this one.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from apical import stats
from apical.report.answers import RIGHT_OR_WRONG, AnswerBook, Answers
from apical.report.numbers import gain
from apical.study.results import RowResults, TrialRecord

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
    metric: str
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


def compare(a: RowResults, b: RowResults, metric: str, book: AnswerBook) -> Comparison | None:
    """The comparison of two rows' best trials, or None where one of them was not tested."""
    if a.best is None or b.best is None:
        return None
    first, second = book.read(a.best, metric), book.read(b.best, metric)
    if first is None or second is None:
        return None
    if len(first.ids) != len(second.ids) or (first.ids != second.ids).any():
        book.faults.append(f"{a.row.key} and {b.row.key} were tested on different samples: they are not compared")
        return None
    strata = first.labels if metric == "weighted-accuracy" else None
    interval = stats.bootstrap_difference(first.values, second.values, strata=strata)
    found = _mcnemar(first, second) if metric in RIGHT_OR_WRONG else _wilcoxon(first, second)
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
        **found._asdict(),
    )


def adjusted(found: Iterable[Comparison]) -> list[Comparison]:
    """The same comparisons with Holm's adjustment over all of them: each pair of rows counts once."""
    listed = list(found)
    family = {_pair(c): c.p_value for c in listed}
    p_holm = dict(zip(family, stats.holm(list(family.values())), strict=True))
    return [replace(c, p_holm=p_holm[_pair(c)]) for c in listed]


def _pair(found: Comparison) -> tuple[str, ...]:
    return (found.metric, *sorted((found.a, found.b)))


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


def _wilcoxon(a: Answers, b: Answers) -> _Tested:
    """Its effect is turned: smaller errors are better."""
    found = stats.wilcoxon(a.values, b.values)
    needed = stats.wilcoxon_sample_size(found.rank_biserial)
    return _Tested("Wilcoxon", found.p_value, found.p_value, "rank-biserial", -found.rank_biserial, needed)


def _over_trials(a: Iterable[TrialRecord], b: Iterable[TrialRecord], metric: str) -> stats.Summary:
    first, second = _by_seed(a, metric), _by_seed(b, metric)
    return stats.summarise([first[seed] - second[seed] for seed in sorted(first.keys() & second.keys())])


def _by_seed(trials: Iterable[TrialRecord], metric: str) -> dict[int, float]:
    return {t.seed: t.test[metric] for t in trials if t.test is not None and np.isfinite(t.test.get(metric, nan))}
