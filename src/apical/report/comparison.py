"""Rows compared in pairs: what trials answered on each sample, the decision over seeds, and its words."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan, sqrt
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apical import stats
from apical.errors import ApicalError
from apical.report.numbers import gain, scale, show, test_value
from apical.stats import Decision, Interval
from apical.study.results import RowResults, StudyResults, TrialRecord
from apical.train.metrics import Metric


@dataclass(frozen=True)
class Answers:
    """One value for each test sample, sorted by id: right (1) or wrong (0), or an error; and the label."""

    ids: NDArray[Any]
    values: NDArray[np.float64]
    labels: NDArray[Any]


class AnswerBook:
    """Reads each trial's outputs once; what cannot be read or paired is said in `faults`, and left out.

    `known` has the answers of trials, by digest and metric, whose outputs need not be there.
    """

    def __init__(self, known: "Mapping[tuple[str, str], Answers] | None" = None) -> None:
        self.faults: list[str] = []
        self._known: dict[tuple[str, str], Answers | None] = dict(known or {})
        self._shared: dict[tuple[str, bytes], NDArray[Any]] = {}

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
        return Answers(self._once(answers.ids[order]), values[order], self._once(answers.labels[order]))

    def _once(self, array: NDArray[Any]) -> NDArray[Any]:
        """The same array for all trials of one test split: hundreds of copies would fill the memory."""
        return self._shared.setdefault((str(array.dtype), array.tobytes()), array)


# Two rows of a study. What decides is the mean over seeds (docs/evidence/rule.md); beside it stands the paper's own
# comparison, of the two networks that are best by validation.

LEVEL, STRICT = 0.05, 0.01
"""The paper's two levels: dagger, double dagger."""
MARKS = {"": "", "dagger": "†", "ddagger": "‡"}
MARGIN = 0.2
"""Points of accuracy that count as no difference; of other scores, this share of the deviation of one trial."""
USUAL = 0.0027
"""Deviation of the difference of two trials of an MLP on Fashion-MNIST, for rows that have none of their own."""
Split = Literal["test", "validation"]


@dataclass(frozen=True)
class PairedTest:
    """Two networks on the same test samples: `difference` is a - b with its bootstrap interval, `p_paper` the p-value
    of the paper's marks, `p_value` that of the exact test; `needed` samples would show a difference like this one.
    """

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
    only_a: int | None = None
    only_b: int | None = None


@dataclass(frozen=True)
class Comparison:
    """Row `a` against row `b`: one finding, wherever the pair appears.

    `decision` is about the gain, which is positive where a is better; None where fewer than two seeds are shared.
    `later` is the mean gain over the seeds that did not choose a setting (None where all or none did), `crossed` the
    bootstrap over seeds and samples, `printed` the gain that the paper prints, `test` the paper's comparison.
    """

    a: str
    b: str
    metric: Metric
    margin: float
    seeds: tuple[int, ...]
    trials: tuple[str, ...]
    decision: Decision | None
    later: float | None = None
    crossed: Interval | None = None
    printed: float | None = None
    test: PairedTest | None = None

    @property
    def made(self) -> bool:
        """True where there is anything to say about the pair."""
        return self.decision is not None or self.test is not None

    @property
    def verdict(self) -> str:
        """What the decision says; "not run" where there is none."""
        return self.decision.verdict if self.decision else "not run"

    @property
    def mark(self) -> str:
        """The paper's mark: dagger or ddagger where the best a is better than the best b at 0.05 or 0.01."""
        test = self.test
        if test is None or gain(self.metric, test.difference) <= 0 or isnan(test.p_paper) or test.p_paper > LEVEL:
            return ""
        return "ddagger" if test.p_paper <= STRICT else "dagger"

    @property
    def needed(self) -> float:
        """Seeds that would show a difference of the margin; infinite where nothing is known of the deviation."""
        if self.decision is not None:
            return stats.seeds_needed(self.margin, self.decision.deviation)
        return stats.seeds_needed(self.margin, USUAL) if self.metric.percent else inf

    @property
    def inside(self) -> bool | None:
        """Whether one more pair of trials could give the printed gain; None where nothing is printed."""
        return None if self.decision is None or self.printed is None else self.decision.contains(self.printed)


def compare(
    a: RowResults, b: RowResults, metric: Metric, book: "AnswerBook", rows: Sequence[RowResults] = (), *,
    split: Split = "test", crossed: bool = True,
) -> Comparison:  # fmt: skip
    """The finding about two rows, and what stands beside it, from the answers on each sample; see `decide`."""
    comparison = decide(a, b, metric, rows, split=split)
    if split != "test" or metric.per_sample is None or metric.by_trial:
        return comparison
    decided = crossed and comparison.decision is not None
    beside = _crossed(a, b, comparison.seeds, metric, book) if decided else None
    return replace(comparison, crossed=beside, test=_test(a, b, metric, book))


def decide(
    a: RowResults, b: RowResults, metric: Metric, rows: Sequence[RowResults] = (), *, split: Split = "test"
) -> Comparison:
    """The finding about two rows; `rows` are those of the same network, whose variances are pooled.

    A quoted number is a constant.
    """
    of_a, of_b = scores(a, metric, split), scores(b, metric, split)
    shared = sorted((of_a or of_b).keys() & (of_b or of_a).keys())
    first, second = (_values(result, of_row, shared, metric) for result, of_row in ((a, of_a), (b, of_b)))
    pool, margin = _pool(a, b, shared, {r.row.key: scores(r, metric, split) for r in rows}, metric)
    decision = None
    if len(shared) > 1 and first is not None and second is not None:
        decision = stats.decide(first, second, margin=margin, pooled=pool, larger_is_better=metric.larger_is_better)
    return Comparison(
        a.row.key, b.row.key, metric, margin, tuple(shared), _digests((a, b), shared), decision,
        later=_later(a, b, shared, first, second, metric), printed=_printed_gain(a, b, metric),
    )  # fmt: skip


def scores(result: RowResults, metric: Metric, split: Split = "test") -> dict[int, float]:
    """The value of each trial of the chosen setting, by seed."""
    trials = [t for t in result.trials if t.finished]
    values = {t.seed: test_value(t, metric) if split == "test" else t.validation.get(metric.name) for t in trials}
    return {seed: float(value) for seed, value in values.items() if value is not None and isfinite(value)}


def _values(
    result: RowResults, of_row: dict[int, float], seeds: Sequence[int], metric: Metric
) -> NDArray[np.float64] | None:
    if of_row:
        return np.array([of_row[seed] for seed in seeds])
    printed = result.row.paper.get(metric.name) if result.row.quoted else None
    return None if printed is None else np.full(len(seeds), printed.value / scale(metric))


def _pool(
    a: RowResults, b: RowResults, seeds: Sequence[int], rows: dict[str, dict[int, float]], metric: Metric
) -> tuple[stats.Pool | None, float]:
    """The pooled variance where both rows belong to it, and the margin."""
    complete = {key: [of_row[s] for s in seeds] for key, of_row in rows.items() if of_row.keys() >= set(seeds)}
    pool = stats.pool(complete) if len(complete) > 1 and len(seeds) > 1 else None
    if metric.percent:
        margin = MARGIN / scale(metric)
    else:
        kept = [complete[key] for key in (pool.rows if pool else complete)]
        margin = MARGIN * sqrt(float(np.mean([np.var(v, ddof=1) for v in kept]))) if kept and len(seeds) > 1 else 0.0
    both = pool is not None and {a.row.key, b.row.key} <= set(pool.rows)
    return pool if both else None, margin or float(np.finfo(float).tiny)


def _later(
    a: RowResults, b: RowResults, seeds: Sequence[int], first: NDArray[Any] | None, second: NDArray[Any] | None,
    metric: Metric,
) -> float | None:  # fmt: skip
    """The mean gain over the seeds that chose nothing."""
    chose = {t.seed for r in (a, b) if len(r.settings) > 1 for s in r.settings for t in s.trials}
    rest = [k for k, seed in enumerate(seeds) if seed not in chose]
    if first is None or second is None or not rest or len(rest) == len(seeds):
        return None
    return gain(metric, float((first[rest] - second[rest]).mean()))


def _printed_gain(a: RowResults, b: RowResults, metric: Metric) -> float | None:
    first, second = a.row.paper.get(metric.name), b.row.paper.get(metric.name)
    return None if first is None or second is None else gain(metric, (first.value - second.value) / scale(metric))


def _digests(rows: Iterable[RowResults], seeds: Sequence[int]) -> tuple[str, ...]:
    return tuple(t.digest for result in rows for t in result.trials if t.seed in seeds)


def _crossed(a: RowResults, b: RowResults, seeds: Sequence[int], metric: Metric, book: "AnswerBook") -> Interval | None:
    """The bootstrap over seeds and samples, of the gain; None where answers are missing or differ in their samples."""
    tables = []
    for result in (a, b):
        by_seed = {t.seed: book.read(t, metric) for t in result.trials if t.seed in seeds}
        answers = [answer for seed in seeds if (answer := by_seed.get(seed)) is not None]
        if len(answers) < len(seeds):
            return None
        tables.append(answers)
    first = tables[0][0]
    if any(len(x.ids) != len(first.ids) or (x.ids != first.ids).any() for table in tables for x in table):
        return None
    weights = _weights(first.labels) if metric.by_class else np.ones(len(first.ids))
    values = [np.array([x.values for x in table]) * weights for table in tables]
    return stats.crossed_bootstrap(*(values if metric.larger_is_better else values[::-1]))


def _weights(labels: NDArray[Any]) -> NDArray[np.float64]:
    """So that a mean over samples is the mean over classes."""
    _, place, counts = np.unique(labels, return_inverse=True, return_counts=True)
    return np.asarray(len(labels) / (len(counts) * counts[place]))


def _test(a: RowResults, b: RowResults, metric: Metric, book: "AnswerBook") -> PairedTest | None:
    """The paper's comparison of the best trials, or None where one of them was not tested."""
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
    made = _mcnemar(first, second) if metric.right_or_wrong else _bootstrap(first, second, interval)
    if metric.by_class:
        flipped = stats.sign_flip(first.values, second.values, strata=strata)
        made = made._replace(test="McNemar, sign flip", p_value=flipped)
    return PairedTest(
        trials=(a.best.digest, b.best.digest), n=len(first.ids), difference=interval.difference, low=interval.low,
        high=interval.high, **made._asdict(),
    )  # fmt: skip


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


def _bootstrap(a: Answers, b: Answers, interval: Interval) -> _Tested:
    """Of errors and losses: their mean is what is compared."""
    deviation = float((a.values - b.values).std())
    effect = interval.difference / deviation if deviation else 0.0
    needed = stats.seeds_needed(effect, 1.0)
    return _Tested("bootstrap", interval.p_value, interval.p_value, "Cohen's d", effect, needed)


class Beside(NamedTuple):
    """What stands beside a decision and needs the answers on each sample."""

    crossed: Interval | None
    test: PairedTest | None


def fingerprint(comparison: Comparison) -> str:
    """Of the trials of both rows and the metric: the same in another process, and with the trials in another order."""
    own, n = comparison.trials, len(comparison.seeds)
    text = " ".join([comparison.metric.name, *sorted(own[:n]), "-", *sorted(own[n:])])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


# All comparisons of the studies of a report, each made once, when it is asked for.

Ref = tuple[str, str]
"""The name of a study within the report, and the key of a row."""


class Evidence:
    """The rows of a report, and the findings about their pairs. `timings` are those of benchmarks/epochs.py.

    `crossed` false leaves out the bootstrap over seeds and samples, which reads every trial's answers. `beside` has
    what was once found with answers that are no longer there, by `fingerprint`; `answers` are such as were kept.
    """

    def __init__(
        self, studies: Sequence[StudyResults], *, timings: Sequence[Mapping[str, str]] = (), crossed: bool = True,
        beside: Mapping[str, Beside] | None = None, answers: Mapping[tuple[str, str], Answers] | None = None,
    ) -> None:  # fmt: skip
        self.book = AnswerBook(answers)
        self._beside = beside or {}
        self.timings = {(t["network"], t["unit"]): t for t in timings}
        self.studies: dict[str, StudyResults] = _named(studies)
        self._rows = {(name, result.row.key): result for name, r in self.studies.items() for result in r.rows}
        self._crossed = crossed
        self._comparisons: dict[tuple[Ref, Ref, str, Split], Comparison] = {}

    def row(self, ref: Ref) -> RowResults | None:
        """The row, or None where this report does not have it."""
        return self._rows.get(ref)

    def metric(self, study: str, name: str) -> Metric:
        """A metric as a study of the report knows it."""
        return self.studies[study].study.metric(name)

    def get(self, a: Ref, b: Ref, metric: str, split: Split = "test") -> Comparison:
        """The comparison of two rows that the report has, made once, whichever way round it is asked for."""
        if (b, a, metric, split) in self._comparisons:
            return turned(self._comparisons[b, a, metric, split])
        key = (a, b, metric, split)
        if key not in self._comparisons:
            first, second = self._rows[a], self._rows[b]
            near = a[0] == b[0] and first.row.part == second.row.part
            rows = self.studies[a[0]].rows if near else (first, second)
            rows = tuple(r for r in rows if not near or (r.row.part == first.row.part and not r.row.quoted))
            made = compare(
                first, second, self.metric(a[0], metric), self.book, rows, split=split, crossed=self._crossed
            )
            kept = self._beside.get(fingerprint(made)) if split == "test" and made.test is None else None
            self._comparisons[key] = replace(made, crossed=kept.crossed, test=kept.test) if kept else made
        return self._comparisons[key]

    def of(self, study: str) -> list[Comparison]:
        """Every comparison on the test split that was made for a study."""
        made = self._comparisons.items()
        return [c for (a, _, _, split), c in made if a[0] == study and split == "test"]


def turned(comparison: Comparison) -> Comparison:
    """The same comparison with its two rows exchanged."""
    c, d, x, t = comparison, comparison.decision, comparison.crossed, comparison.test
    of_a = len(c.seeds) if len(c.trials) == 2 * len(c.seeds) else 0  # a quoted row has none
    opposite: dict[str, Any] = {"supported": "contradicted", "contradicted": "supported"}
    return replace(
        c, a=c.b, b=c.a, trials=c.trials[of_a:] + c.trials[:of_a], later=None if c.later is None else -c.later,
        printed=None if c.printed is None else -c.printed,
        decision=d and replace(
            d, verdict=opposite.get(d.verdict, d.verdict), difference=-d.difference, low=-d.high, high=-d.low,
            next_low=-d.next_high, next_high=-d.next_low,
        ),
        crossed=x and replace(x, difference=-x.difference, low=-x.high, high=-x.low),
        test=t and replace(
            t, trials=t.trials[::-1], difference=-t.difference, low=-t.high, high=-t.low, effect=-t.effect,
            only_a=t.only_b, only_b=t.only_a,
        ),
    )  # fmt: skip


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


def with_interval(comparison: Comparison) -> str:
    """`+0.12 (+0.01 to +0.23)`: a - b in the metric's own unit, mean over seeds; what is missing where it has none."""
    metric, d = comparison.metric, comparison.decision
    if d is None:
        least = "a decision needs 2 or more"
        least += f", {comparison.needed:.0f} to show the margin" if isfinite(comparison.needed) else ""
        return f"{len(comparison.seeds)} shared seeds, but {least}"
    low, high = sorted((gain(metric, d.low), gain(metric, d.high)))
    return f"{show(metric, gain(metric, d.difference), sign=True)} {between(metric, low, high)}"


def in_words(comparison: Comparison, of_a: Sequence[float] = (), of_b: Sequence[float] = ()) -> str:
    """The decision and all that stands beside it; the scores of curves give a factor too."""
    metric, d = comparison.metric, comparison.decision
    words = [with_interval(comparison)]
    if d is None:
        return words[0]
    if comparison.later is not None:
        words.append(f"{show(metric, gain(metric, comparison.later), sign=True)} without the seeds that chose")
    if comparison.crossed is not None:
        low, high = sorted(gain(metric, end) for end in (comparison.crossed.low, comparison.crossed.high))
        words.append(f"over other samples too {between(metric, low, high)}")
    if metric.by_trial and len(of_a) and min(*of_a, *of_b) > 0:
        words.append(f"{np.exp(np.mean(np.log(of_a) - np.log(of_b))):.3g} times as large")
    if comparison.inside is not None:
        words.append(f"the printed gain is {'inside' if comparison.inside else 'outside'} of what one pair may give")
    if comparison.verdict == "inconclusive":
        words.append(f"{comparison.needed:.0f} seeds would show the margin of {show(metric, comparison.margin)}")
    if comparison.test is not None:
        words.append(f"best trials {show(metric, comparison.test.difference, sign=True)}, {_marks(comparison)}")
    return "; ".join(words)


def _marks(comparison: Comparison) -> str:
    """What the test of the best trials says: of mean recalls the sign flip, else the paper's, in favour of either."""
    test = comparison.test
    assert test is not None
    if comparison.metric.by_class:
        return f"sign flip p = {test.p_value:.2g}"
    against = "" if comparison.mark else turned(comparison).mark
    return f"no mark, but {MARKS[against]} for the other" if against else MARKS[comparison.mark] or "no mark"


def count_seeds(comparison: Comparison) -> str:
    """`40 seeds`, and the samples of a test."""
    samples = f"{comparison.test.n:,} samples, " if comparison.test else ""
    return f"{samples}{len(comparison.seeds):,} seeds"


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
