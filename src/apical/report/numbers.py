"""The numbers of a report: value, printed form and the trials behind it; scores of trials; seconds per epoch."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, isnan
from statistics import median
from typing import Literal

from apical import stats
from apical.nn import kinds
from apical.study.model import Part, Row
from apical.study.results import RowResults, StudyResults, TrialRecord
from apical.train import metrics
from apical.train.metrics import Metric

How = Literal["trial", "mean", "median", "deviation", "difference", "ratio", "test"]
"""What was done with the trials' values; "test" is a paired test on their answers."""
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


def tested(found: RowResults, metric: Metric) -> list[tuple[str, float]]:
    """Digest and test value of the trials that were tested."""
    values = [(t.digest, test_value(t, metric)) for t in found.trials]
    return [(digest, value) for digest, value in values if value is not None]


def solved_by(found: RowResults) -> int:
    """How many trials answer every point right."""
    return sum(test_value(t, ACCURACY) == 1 for t in found.trials)


def seconds_per_epoch(record: TrialRecord) -> float | None:
    """The median training time of an epoch, without the first where there are more."""
    times = record.seconds[1:] or record.seconds
    return median(times) if times else None


def alone(record: TrialRecord) -> bool:
    """True where a trial had its program to itself, so that its time is its own."""
    return record.execution is None or record.execution.stacking == "alone"


# Seconds per epoch, relative to ReLU.


@dataclass(frozen=True)
class Time:
    """One row: median seconds per epoch over its trials, and as a multiple of the reference row's; so the paper's."""

    label: str
    kind: str
    seconds: Number
    ratio: Number | None
    paper: str
    paper_ratio: str


@dataclass(frozen=True)
class Times:
    """One part, relative to its ReLU row (its first row where it has none).

    `shared`: some trials were trained as one program, and their times are shares of its time.
    """

    title: str
    reference: str
    rows: tuple[Time, ...]
    shared: bool


def times(results: StudyResults) -> list[Times]:
    """One table for each part that has trials."""
    return [found for part in results.study.parts if (found := _times(part, results)) is not None]


def _times(part: Part, results: StudyResults) -> Times | None:
    rows = [r for r in results.rows if r.row.part == part.name and _row_seconds(r)]
    if not rows:
        return None
    reference = next((r for r in rows if kind_of(r.row) == "relu"), rows[0])
    shared = any(not alone(t) for r in rows for t in r.trials)
    return Times(part.title, reference.row.label, tuple(_time(r, reference) for r in rows), shared)


def _time(found: RowResults, reference: RowResults) -> Time:
    own, base = median(_row_seconds(found).values()), median(_row_seconds(reference).values())
    digests = tuple(_row_seconds(found))
    against = digests + tuple(_row_seconds(reference))
    timed = all(
        alone(t) for r in (found, reference) for t in r.trials if t.finished
    )  # shares of a stack compare nothing
    ratio = Number(own / base, f"{own / base:.2f}×", against, "seconds", how="ratio") if base and timed else None
    printed, printed_base = found.row.paper.get("seconds"), reference.row.paper.get("seconds")
    return Time(
        found.row.label, kind_of(found.row), Number(own, show(SECONDS, own), digests, "seconds", how="median"), ratio,
        f"{printed.value:g}" if printed else "",
        f"{printed.value / printed_base.value:.2f}×" if printed and printed_base else "",
    )  # fmt: skip


def _row_seconds(found: RowResults) -> dict[str, float]:
    """Seconds per epoch of each finished trial, by digest."""
    values = {t.digest: seconds_per_epoch(t) for t in found.trials if t.finished}
    return {digest: value for digest, value in values.items() if value}
