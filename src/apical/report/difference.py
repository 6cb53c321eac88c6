"""Two study directories side by side: two machines, two versions, two settings."""

from collections.abc import Iterable
from dataclasses import dataclass

from apical import stats
from apical.errors import StudyError
from apical.report.gathering import shown_path
from apical.report.numbers import (
    SECONDS,
    Number,
    heading,
    kind_of,
    mean_of,
    of_trial,
    seconds_per_epoch,
    show,
    test_value,
    tested,
)
from apical.study.results import RowResults, StudyResults, TrialRecord
from apical.train.metrics import Metric


@dataclass(frozen=True)
class RowDiff:
    """One row of both studies. `same` tells of trials that both have, by digest."""

    label: str
    part: str
    kind: str
    a: Number | None
    b: Number | None
    mean_a: Number | None
    mean_b: Number | None
    deviation_a: Number | None
    deviation_b: Number | None
    difference: Number | None
    seconds_a: Number | None
    seconds_b: Number | None
    same: str


@dataclass(frozen=True)
class StudyDiff:
    """Two studies, row by row."""

    title: str
    caption: str
    remarks: tuple[str, ...]
    rows: tuple[RowDiff, ...]


def compare_studies(a: StudyResults, b: StudyResults) -> StudyDiff:
    """The rows that both studies have."""
    second = {result.row.key: result for result in b.rows if not result.row.quoted}
    rows = tuple(
        _row_diff(row, second[row.row.key], a.study.metric(row.part.metric)) for row in a.rows if row.row.key in second
    )
    if not rows:
        raise StudyError(f"{a.directory} and {b.directory} have no row in common: compare two runs of one study")
    only = [f"only in A: {k}" for k in _keys(a) if k not in second]
    only += [f"only in B: {k}" for k in second if k not in _keys(a)]
    metrics = ", ".join(dict.fromkeys(heading(a.study.metric(row.part.metric)) for row in a.rows))
    places = f"A is {shown_path(a.directory)}, B is {shown_path(b.directory)}."
    remarks = (places, *([f"{'; '.join(only)}."] if only else []), *_machines(a, b))
    return StudyDiff(f"{a.study.title}: A against B", metrics, remarks, rows)


def _keys(results: StudyResults) -> list[str]:
    return [result.row.key for result in results.rows if not result.row.quoted]


def _machines(a: StudyResults, b: StudyResults) -> Iterable[str]:
    names = [n for n in dict.fromkeys((*a.environment, *b.environment)) if a.environment.get(n) != b.environment.get(n)]
    if not names:
        return ["Both ran in the same environment."]
    words = [
        f"{name}: A {a.environment.get(name, 'unknown')}, B {b.environment.get(name, 'unknown')}" for name in names
    ]
    return [f"The environments differ in {'; '.join(words)}."]


def _row_diff(a: RowResults, b: RowResults, metric: Metric) -> RowDiff:
    (mean_a, deviation_a), (mean_b, deviation_b) = _summary(a, metric), _summary(b, metric)
    difference = None
    if mean_a and mean_b:
        value = mean_a.value - mean_b.value
        trials = (*mean_a.trials, *mean_b.trials)
        difference = Number(value, show(metric, value, sign=True), trials, metric.name, how="difference")
    return RowDiff(
        label=a.row.label,
        part=a.part.title,
        kind=kind_of(a.row),
        a=_best(a, metric),
        b=_best(b, metric),
        mean_a=mean_a,
        mean_b=mean_b,
        deviation_a=deviation_a,
        deviation_b=deviation_b,
        difference=difference,
        seconds_a=_seconds(a),
        seconds_b=_seconds(b),
        same=_same(a.trials, b.trials, metric),
    )


def _best(result: RowResults, metric: Metric) -> Number | None:
    value = test_value(result.best, metric)
    return of_trial(metric, value, result.best.digest) if result.best is not None and value is not None else None


def _summary(result: RowResults, metric: Metric) -> tuple[Number | None, Number | None]:
    values = tested(result, metric)
    summary, digests = stats.summarise([v for _, v in values]), [d for d, _ in values]
    mean = mean_of(metric, summary.mean, digests) if summary.n else None
    return mean, mean_of(metric, summary.deviation, digests, how="deviation") if summary.n > 1 else None


def _seconds(result: RowResults) -> Number | None:
    times = {t.digest: seconds for t in result.trials if t.finished and (seconds := seconds_per_epoch(t))}
    return mean_of(SECONDS, stats.summarise(list(times.values())).mean, list(times)) if times else None


def _same(a: Iterable[TrialRecord], b: Iterable[TrialRecord], metric: Metric) -> str:
    """How far trials with the same digest agree: they are the same trial, run twice."""
    second = {t.digest: test_value(t, metric) for t in b}
    pairs = [(test_value(t, metric), second.get(t.digest)) for t in a if t.digest in second]
    gaps = [abs(x - y) for x, y in pairs if x is not None and y is not None]
    if not gaps:
        return "none"
    return f"{len(gaps)}, equal" if max(gaps) == 0 else f"{len(gaps)}, apart by {show(metric, max(gaps))} at most"
