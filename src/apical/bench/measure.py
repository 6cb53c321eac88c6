"""Interleaved timing: every candidate runs in every round, so that what disturbs one round disturbs them all.

On a device that computes on its own, `synchronise` waits for it before a clock is read. Figures are medians of rounds.
A ratio is the median of the per-round ratios, with the interval that holds the true median with about 95 % confidence
(order statistics of the sign test). Fewer than 6 rounds cannot give it, and tables then leave it out.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import floor, sqrt
from statistics import median

from apical.errors import InvalidArgumentError
from apical.files import csv_text

Work = Callable[[], object]


def nothing() -> None:
    """Wait for nothing: the CPU has done its work when a call returns."""


FEWEST = 6
"""Rounds of an interval: the lowest and the highest ratio have the true median between them in 31 of 32 cases."""
Progress = Callable[[str, int, int], None]
"""Called with what is being measured, the round just finished, and the number of rounds."""


@dataclass(frozen=True)
class Timing:
    """One line of a table: a candidate's median time and its ratio to a reference of the same rounds.

    `share`: of the bandwidth that a copy reached in the same rounds, if the candidate moves no more bytes than
    it must.
    """

    case: str
    candidate: str
    reference: str
    microseconds: float
    ratio: float
    low: float
    high: float
    rounds: int
    share: float | None = None


def interleaved(
    candidates: Mapping[str, Work],
    *,
    rounds: int = 15,
    seconds: float = 0.02,
    progress: Progress | None = None,
    synchronise: Work = nothing,
) -> dict[str, list[float]]:
    """Seconds per call of each candidate in each round; a call shorter than `seconds` is repeated to fill them."""
    if rounds < 1:
        raise InvalidArgumentError(f"rounds is {rounds}, but at least one round must be measured")
    repeats = {name: _repeats(work, seconds, synchronise) for name, work in candidates.items()}
    times: dict[str, list[float]] = {name: [] for name in candidates}
    order = list(candidates)
    for done in range(rounds):
        for name in order[done % len(order) :] + order[: done % len(order)]:
            times[name].append(_time(candidates[name], repeats[name], synchronise))
        if progress is not None:
            progress("", done + 1, rounds)
    return times


def _repeats(work: Work, seconds: float, synchronise: Work) -> int:
    work()
    return max(1, floor(seconds / max(_time(work, 1, synchronise), 1e-9)))


def _time(work: Work, repeats: int, synchronise: Work) -> float:
    synchronise()
    start = time.perf_counter()
    for _ in range(repeats):
        work()
    synchronise()
    return (time.perf_counter() - start) / repeats


def ratio(times: Mapping[str, Sequence[float]], candidate: str, reference: str) -> tuple[float, float, float]:
    """Median of candidate/reference over the rounds, and its 95 % interval."""
    ratios = sorted(a / b for a, b in zip(times[candidate], times[reference], strict=True))
    n = len(ratios)
    margin = 1.96 * sqrt(n) / 2
    low = max(0, floor(n / 2 - margin))
    return median(ratios), ratios[low], ratios[n - 1 - low]


def compare(
    case: str,
    candidates: Mapping[str, Work],
    *,
    reference: str,
    rounds: int = 15,
    seconds: float = 0.02,
    progress: Progress | None = None,
    synchronise: Work = nothing,
    copy: str | None = None,
    least: float = 1.0,
) -> list[Timing]:
    """Time the candidates of one case against `reference`, which is one of them.

    `copy` names the candidate that is a copy; one that moves no more than it must moves `least` times the bytes of it.
    """
    report = None if progress is None else lambda _, done, of: progress(case, done, of)
    times = interleaved(candidates, rounds=rounds, seconds=seconds, progress=report, synchronise=synchronise)
    return [
        Timing(
            case, name, reference, median(times[name]) * 1e6, *ratio(times, name, reference), rounds,
            None if copy is None else (1.0 if name == copy else least / ratio(times, name, copy)[0]),
        )
        for name in candidates
    ]  # fmt: skip


def as_text(timings: Sequence[Timing]) -> str:
    """The timings as a table for people."""
    shares = any(t.share is not None for t in timings)
    head = ("case", "candidate", "median", "ratio", "95 % interval", "to", *(["of a copy's bandwidth"] * shares))
    rows = [
        (
            t.case,
            t.candidate,
            f"{t.microseconds:,.1f} µs",
            f"{t.ratio:.2f}",
            f"{t.low:.2f} .. {t.high:.2f}" if t.rounds >= FEWEST else "",
            t.reference,
            *([f"{t.share:.0%}" if t.share is not None else ""] * shares),
        )
        for t in timings
    ]
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (head, *rows)]
    return "\n".join(line.rstrip() for line in lines)


def as_csv(timings: Sequence[Timing]) -> str:
    """The timings as CSV for programs."""
    shares = any(t.share is not None for t in timings)
    head = ("case", "candidate", "reference", "microseconds", "ratio", "low", "high", "rounds")
    rows = []
    for t in timings:
        interval = [f"{v:.6g}" if t.rounds >= FEWEST else "" for v in (t.low, t.high)]
        numbers = (f"{t.microseconds:.6g}", f"{t.ratio:.6g}", *interval)
        share = "" if t.share is None else f"{t.share:.6g}"
        rows.append((t.case, t.candidate, t.reference, *numbers, t.rounds, *([share] * shares)))
    return csv_text((*head, *(["share"] * shares)), rows)
