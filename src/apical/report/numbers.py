"""The numbers of a report: value, printed form and the trials behind it; scores, seconds per epoch, data sets."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import isfinite, isnan
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Literal

from apical import stats
from apical.errors import ApicalError
from apical.nn import kinds
from apical.study.model import Part, Row
from apical.study.results import RowResults, StudyResults, TrialRecord
from apical.train import metrics
from apical.train.metrics import Metric

if TYPE_CHECKING:
    from apical.data import DataSet

How = Literal["trial", "mean", "median", "deviation", "difference", "gain", "ratio", "test"]
"""What was done with the trials' values; "gain" is over the baseline's trials with equal seeds."""
MISSING = "–"

ACCURACY, SECONDS = metrics.find("accuracy"), metrics.find("seconds")


@dataclass(frozen=True)
class Number:
    """`value` in the trials' own unit (shares, not per cent), `text` as printed, `trials` their digests.

    A difference is of the first trial minus the second (or of one trial minus the paper's number).
    """

    value: float
    text: str
    trials: tuple[str, ...] = ()
    metric: str = ""
    split: str = "test"
    how: How = "trial"

    @property
    def title(self) -> str:
        """One line that says where the number comes from."""
        words = {"trial": "", "mean": "mean, ", "deviation": "deviation, ", "difference": "difference, "}
        names = ", ".join(digest[:8] for digest in self.trials)
        what = SECONDS.title if self.metric == SECONDS.name else f"{self.split} {self.metric}"
        return f"{what}: {words.get(self.how, self.how + ', ')}{'trials' if len(self.trials) > 1 else 'trial'} {names}"


def gain(metric: Metric, difference: float) -> float:
    """A difference, turned so that positive is better."""
    return difference if metric.larger_is_better else -difference


def heading(metric: Metric) -> str:
    """What a table or an axis of test values is called."""
    return metric.heading if metric == SECONDS else f"test {metric.heading}"


def scale(metric: Metric) -> float:
    """What a trial's value is multiplied by for print."""
    return 100.0 if metric.percent else 1.0


def show(metric: Metric, value: float, *, sign: bool = False) -> str:
    """A trial's value as it is printed."""
    if not isfinite(value):
        return MISSING
    text = f"{value * scale(metric):{'+' if sign else ''}{metric.format}}"
    return text.replace("-", "−")


def show_p(value: float) -> str:
    """A p-value with two digits, and no more zeros than a reader counts."""
    if isnan(value):
        return MISSING
    return "< 0.0001" if value < 1e-4 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def show_count(value: float) -> str:
    """A count with thousands apart."""
    return f"{value:,.0f}".replace(",", "\u202f") if isfinite(value) else "no number"


def show_share(count: int, n: int) -> str:
    """`46 of 200 (23 %, 18 to 29 %)`, with Wilson's interval."""
    low, high = stats.wilson(count, n)
    return f"{count:,} of {n:,} ({100 * count / n:.0f} %, {100 * low:.0f} to {100 * high:.0f} %)"


def of_trial(metric: Metric, value: float, digest: str, *, split: str = "test") -> Number:
    """The value of one trial."""
    return Number(value, show(metric, value), (digest,), metric.name, split)


def mean_of(metric: Metric, value: float, digests: Sequence[str], *, how: How = "mean") -> Number:
    """A summary of several trials."""
    return Number(value, show(metric, value), tuple(digests), metric.name, how=how)


# What rows and trials say.


def kind_of(row: Row) -> str:
    """The kind of a row's unit: "pynada" of "pynada(alpha=0.3)"."""
    return row.unit.partition("(")[0].strip()


def is_leaky(kind: str) -> bool:
    """True where a kind lets a share of negative inputs through: figures draw it dashed."""
    known = kinds.get(kind)
    return known is not None and known.parameter("leak") is not None


def test_value(record: TrialRecord | None, metric: Metric) -> float | None:
    """A trial's finite test value, or None."""
    value = None if record is None or record.test is None else record.test.get(metric.name)
    return value if value is not None and isfinite(value) else None


def tested(result: RowResults, metric: Metric) -> list[tuple[str, float]]:
    """Digest and test value of the trials that were tested."""
    values = [(t.digest, test_value(t, metric)) for t in result.trials]
    return [(digest, value) for digest, value in values if value is not None]


def solved_by(result: RowResults) -> int:
    """How many trials answer every point right."""
    return sum(test_value(t, ACCURACY) == 1 for t in result.trials)


def seconds_per_epoch(record: TrialRecord) -> float | None:
    """The median training time of an epoch, without the first where there are more."""
    times = record.seconds[1:] or record.seconds
    return median(times) if times else None


# Seconds per epoch, relative to ReLU, of trials that ran alone, in turn, on a quiet machine: each records when its
# epochs ended and how busy the machine was.

QUIET = 0.5
"""Processes beside a trial, on average, that leave its seconds alone."""


@dataclass(frozen=True)
class Time:
    """One row: median seconds per epoch over its trials with the lowest and the highest, as a multiple of the reference
    row's, and so the paper's.
    """

    label: str
    kind: str
    seconds: Number
    spread: str
    ratio: Number
    paper: str
    paper_ratio: str


@dataclass(frozen=True)
class Times:
    """One part, relative to its ReLU row (its first row where it has none)."""

    title: str
    reference: str
    rows: tuple[Time, ...]


@dataclass(frozen=True)
class Timing:
    """The tables of seconds, or why there are none; neither where nothing was trained."""

    tables: tuple[Times, ...] = ()
    why: str = ""


def times(results: StudyResults) -> Timing:
    """One table for each part where all trials ran alone, in turn, on one quiet machine, and each row has two."""
    rows = [r for r in results.rows if any(t.finished for t in r.trials)]
    if not rows:
        return Timing()
    why = _disturbed(rows) or next((w for p in results.study.parts if (w := _not_in_turn(p, rows))), "")
    tables = () if why else tuple(_times(part, rows) for part in results.study.parts)
    return Timing(tuple(table for table in tables if table is not None), why)


def _disturbed(rows: Sequence[RowResults]) -> str:
    """What ran beside the trials; "" where nothing did."""
    every = {t.digest: t for r in rows for t in (*(t for s in r.settings for t in s.trials), *r.trials) if t.finished}
    trials = list(every.values())
    if any(t.execution is not None and t.execution.stacking != "alone" for t in trials):
        return "networks were trained together, as one program"
    if len({t.environment.get("processor") for t in trials}) > 1:
        return "trials ran on several kinds of machines"
    if not all("ended" in epoch and "load" in epoch for t in trials for epoch in t.timings):
        return "these trials do not record when they ran and how busy the machine was"
    spans = sorted((e["ended"] - e["train"] - e["validate"], e["ended"], t.digest) for t in trials for e in t.timings)
    for (_, end, one), (start, _, other) in pairwise(spans):
        if start < end and one != other:
            return "trials ran at the same time"
    busiest = max(
        (e["load"] - ((t.execution and t.execution.threads) or 1) for t in trials for e in t.timings), default=0.0
    )
    return "" if busiest <= QUIET else f"the machine was busy (up to {busiest:.1f} processes beside a trial)"


def _not_in_turn(part: Part, rows: Sequence[RowResults]) -> str:
    """Why the rows of a part were not timed in turn: the first trial of each, then the second of each, and so on."""
    starts = [sorted(_start(t) for t in r.trials if t.finished and t.timings) for r in rows if r.row.part == part.name]
    if any(len(own) < 2 for own in starts):
        return "that needs two trials of every row"
    rounds = [[own[k] for own in starts if k < len(own)] for k in range(max(map(len, starts), default=0))]
    if any(max(before) > min(after) for before, after in pairwise(rounds)):
        return "rows were trained one after the other, not in turn"
    return ""


def _start(trial: TrialRecord) -> float:
    first = trial.timings[0]
    return first["ended"] - first["train"] - first["validate"]


def _times(part: Part, trained: Sequence[RowResults]) -> Times | None:
    rows = [r for r in trained if r.row.part == part.name and _row_seconds(r)]
    if not rows:
        return None
    reference = next((r for r in rows if kind_of(r.row) == "relu"), rows[0])
    return Times(part.title, reference.row.label, tuple(_time(r, reference) for r in rows))


def _time(result: RowResults, reference: RowResults) -> Time:
    values = _row_seconds(result)
    own, base = median(values.values()), median(_row_seconds(reference).values())
    against = tuple(values) + tuple(_row_seconds(reference))
    printed, printed_base = result.row.paper.get("seconds"), reference.row.paper.get("seconds")
    return Time(
        result.row.label, kind_of(result.row), Number(own, show(SECONDS, own), tuple(values), "seconds", how="median"),
        f"{show(SECONDS, min(values.values()))} to {show(SECONDS, max(values.values()))}",
        Number(own / base, f"{own / base:.2f}×", against, "seconds", how="ratio"),
        f"{printed.value:g}" if printed else "",
        f"{printed.value / printed_base.value:.2f}×" if printed and printed_base else "",
    )  # fmt: skip


def _row_seconds(result: RowResults) -> dict[str, float]:
    """Seconds per epoch of each finished trial, by digest."""
    values = {t.digest: seconds_per_epoch(t) for t in result.trials if t.finished}
    return {digest: value for digest, value in values.items() if value}


# What the networks of a study were trained on: the sizes of the splits and the names of the classes.

NAMED = 40
"""How many classes are named; ImageNet has 1,000."""


@dataclass(frozen=True)
class Data:
    """One data set as a study uses it. Sizes are None where this machine does not have the data."""

    name: str
    changes: str
    train: int | None
    validation: int | None
    test: int | None
    classes: tuple[str, ...]

    @property
    def named(self) -> str:
        """The names of the classes, in a line."""
        rest = f" and {len(self.classes) - NAMED} more" if len(self.classes) > NAMED else ""
        return ", ".join(self.classes[:NAMED]) + rest


def datasets(results: StudyResults) -> tuple[Data, ...]:
    """Each data set once, however many networks were trained on it."""
    parts: dict[tuple[object, ...], Part] = {}
    for part in results.study.parts:
        parts.setdefault((part.data, part.split, part.partial, part.corruptions), part)
    return tuple(_data(part, [r for r in results.rows if r.part.data == part.data]) for part in parts.values())


def opened(part: Part) -> "DataSet | None":
    """The data of a part as its networks see it; None where it is not on this machine: a report fetches nothing."""
    from apical.data import corrupt, load, statuses  # noqa: PLC0415  torch and the data

    here = any(s.recipe.name == part.data and s.state != "not prepared" for s in statuses())
    if not here and not Path(part.data).expanduser().exists():
        return None
    try:
        return corrupt(load(part.data, partial=part.partial is not None, split=part.split), *part.corruptions)
    except ApicalError:
        return None  # a report is made where the data may never have been


def classes_of(rows: Iterable[RowResults]) -> tuple[str, ...]:
    """The names of the classes as the trials recorded them."""
    return next((t.classes for result in rows for t in result.trials if t.classes), ())


def _data(part: Part, rows: list[RowResults]) -> Data:
    data = opened(part)
    changes = ", ".join([*part.corruptions, *filter(None, (part.partial, _split(part)))])
    if data is not None:
        names = classes_of(rows) or data.class_names or ()
        return Data(part.data, changes, len(data.train), len(data.validation), len(data.test), tuple(names))
    best = [r.best for r in rows if r.row.part == part.name and r.best is not None and r.best.test is not None]
    return Data(part.data, changes, None, None, _test_samples(best[0]) if best else None, classes_of(rows))


def _split(part: Part) -> str:
    return "" if part.split == "paper" else f"split {part.split}"


def _test_samples(record: TrialRecord) -> int | None:
    try:
        return len(record.outputs().ids)
    except ApicalError:
        return None
