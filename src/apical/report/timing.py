"""Seconds per epoch, relative to ReLU."""

from dataclasses import dataclass
from statistics import median

from apical.report.claims.findings import alone, seconds_per_epoch
from apical.report.numbers import Number, show
from apical.report.tables import kind_of
from apical.study.model import Part
from apical.study.results import RowResults, StudyResults


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
    rows = [r for r in results.rows if r.row.part == part.name and _seconds(r)]
    if not rows:
        return None
    reference = next((r for r in rows if kind_of(r.row) == "relu"), rows[0])
    shared = any(not alone(t) for r in rows for t in r.trials)
    return Times(part.title, reference.row.label, tuple(_time(r, reference) for r in rows), shared)


def _time(found: RowResults, reference: RowResults) -> Time:
    own, base = median(_seconds(found).values()), median(_seconds(reference).values())
    digests = tuple(_seconds(found))
    against = digests + tuple(_seconds(reference))
    timed = all(
        alone(t) for r in (found, reference) for t in r.trials if t.finished
    )  # shares of a stack compare nothing
    ratio = Number(own / base, f"{own / base:.2f}×", against, "seconds", how="ratio") if base and timed else None
    printed, printed_base = found.row.paper.get("seconds"), reference.row.paper.get("seconds")
    return Time(
        found.row.label, kind_of(found.row), Number(own, show("seconds", own), digests, "seconds", how="median"), ratio,
        f"{printed.value:g}" if printed else "",
        f"{printed.value / printed_base.value:.2f}×" if printed and printed_base else "",
    )  # fmt: skip


def _seconds(found: RowResults) -> dict[str, float]:
    """Seconds per epoch of each finished trial, by digest."""
    values = {t.digest: seconds_per_epoch(t) for t in found.trials if t.finished}
    return {digest: value for digest, value in values.items() if value}
