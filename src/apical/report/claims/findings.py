"""Check a claim of the paper on each of its pairs or rows. `verdicts` makes one verdict of these findings."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isfinite, log10, sqrt
from typing import Final

import numpy as np

from apical import stats
from apical.report.comparison import (
    Comparison,
    Evidence,
    Ref,
    count_seeds,
    count_trials,
    in_words,
    pair_name,
    printed,
    printed_pair,
    row_name,
    scores,
)
from apical.report.numbers import ACCURACY, SECONDS, gain, scale, show, show_share, solved_by, test_value, tested
from apical.stats.decision import Verdict as Answer
from apical.study.claim import Claim
from apical.study.results import RowResults, TrialRecord
from apical.train import metrics
from apical.train.metrics import Metric

PARAMETERS = metrics.find("parameters")
WIDEST: Final = 1.0
"""Points that the half of a prediction interval may have for a printed value to be judged by it."""
SLOW: Final = 1.25
"""Times ReLU's epochs that a unit may need for 95 % of ReLU's reduction of the training loss."""
REDUCTION: Final = 0.95
VANISHED: Final = -1.0
"""log10 of how far the smallest layer's share of the gradient may lie below ReLU's."""
Rows = tuple[RowResults, ...]
Judged = Mapping[int, Rows]
"""The pairs or rows of a claim that can be judged, by their position in it."""


@dataclass(frozen=True)
class Finding:
    """One pair or row of a claim: what it says of the claim.

    `what` names it, `paper` is what the paper prints about it ("" for nothing), `ours` the same with its interval,
    `n` of how many samples and seeds ("": not measured); `trials` are those it rests on. `comparison` is the finding
    about the pair itself, the same wherever the pair appears.
    """

    answer: Answer
    what: str
    ours: str
    paper: str = ""
    n: str = ""
    trials: tuple[str, ...] = ()
    comparison: Comparison | None = None

    @property
    def said(self) -> str:
        """The answer, and that of the pair itself where the claim is about more, such as the size of its gain."""
        own = self.comparison.verdict if self.comparison else self.answer
        return self.answer if own == self.answer else f"{self.answer} (the pair by itself: {own})"

    @property
    def words(self) -> str:
        """The finding in a line."""
        paper = f"; the paper: {self.paper}" if self.paper else ""
        return f"{self.what}: {self.ours}{f', n = {self.n}' if self.n else ''}{paper}"


def metric_of(claim: Claim, evidence: Evidence, position: int) -> Metric:
    """The claim's metric, or that of the part of the row at this position of the claim."""
    ref = refs(claim)[position][0]
    row = evidence.row(ref)
    return evidence.metric(ref[0], claim.metric or (row.part.metric if row else ""))


def refs(claim: Claim) -> list[tuple[Ref, ...]]:
    """What is judged one by one: pairs of rows, or rows."""
    pairs = [(claim.locate(a), claim.locate(b)) for a, b in claim.pairs]
    return [*pairs] if claim.b else [(claim.locate(a),) for a in claim.a]


def find(claim: Claim, evidence: Evidence, judged: Judged) -> list[Finding]:
    """The findings of a claim."""
    return [*_KINDS[claim.kind](claim, evidence, judged)]


# Pairs of rows: by the decision over seeds.


def _better(claim: Claim, evidence: Evidence, judged: Judged) -> Iterator[Finding]:
    for position in judged:
        metric = metric_of(claim, evidence, position)
        for split in claim.splits:
            first, second = refs(claim)[position]
            comparison = evidence.get(first, second, metric.name, split)
            title = "" if split == "test" else f", {split} {metric.name}"
            yield _pair(judged[position], comparison, title=title)


def _pair(
    rows: Rows, comparison: Comparison, answer: Answer | None = None, *, title: str = "", paper: str = ""
) -> Finding:
    a, b = rows
    metric, seeds = comparison.metric, comparison.seeds
    own = title or ("" if metric.name == a.part.metric else f", test {metric.name}")
    values = [
        [of_row[s] for s in seeds] for r in rows if len(of_row := scores(r, metric)) and of_row.keys() >= {*seeds}
    ]
    return Finding(
        answer or (comparison.decision.verdict if comparison.decision else "inconclusive"),
        f"{pair_name(a, b)}{own}",
        in_words(comparison, *(values if len(values) == 2 else ())),
        paper or printed_pair(a, b, metric),
        count_seeds(comparison) if comparison.decision else "",
        comparison.trials,
        comparison,
    )


def _gain(claim: Claim, evidence: Evidence, judged: Judged) -> Iterator[Finding]:
    """ "By x", "up to x": the size of the gain, of every pair or of the largest."""
    made = {place: _compared(claim, evidence, place) for place in judged}
    decided = [place for place in made if made[place].decision is not None]
    largest = max(decided, key=lambda place: _size(made[place])[0], default=None)
    for place, comparison in made.items():
        wanted = claim.paper[place if len(claim.paper) > 1 else 0] / scale(comparison.metric)
        sized = claim.bound != "up-to" or place == largest
        paper = f"{BOUNDS[claim.bound]}{show(comparison.metric, gain(comparison.metric, wanted), sign=True)}"
        yield _pair(judged[place], comparison, _sized(claim, comparison, wanted) if sized else None, paper=paper)


BOUNDS = {"about": "", "at-least": "at least ", "at-most": "at most ", "up-to": "up to "}


def _compared(claim: Claim, evidence: Evidence, position: int) -> Comparison:
    a, b = refs(claim)[position]
    return evidence.get(a, b, metric_of(claim, evidence, position).name)


def _size(comparison: Comparison) -> tuple[float, float, float]:
    d = comparison.decision
    return (d.difference, d.low, d.high) if d else (-np.inf, -np.inf, np.inf)


def _sized(claim: Claim, comparison: Comparison, wanted: float) -> Answer | None:
    """Whether the gain is as large as the claim says."""
    if comparison.decision is None or comparison.verdict == "contradicted":
        return None
    _, low, high = _size(comparison)
    denied = {"at-least": high < wanted, "at-most": low > wanted}.get(claim.bound, not low <= wanted <= high)
    holds = {"at-least": low >= wanted, "at-most": high <= wanted}.get(claim.bound, low <= wanted <= high)
    if denied:
        return "contradicted"
    return "supported" if holds and comparison.verdict == "supported" else "inconclusive"


def _largest(claim: Claim, evidence: Evidence, judged: Judged) -> Iterator[Finding]:
    """The first gain by its size; each other must be smaller."""
    yield from _gain(claim, evidence, {0: judged[0]})
    first = _compared(claim, evidence, 0)
    for place in [place for place in judged if place]:
        other = _compared(claim, evidence, place)
        (one, low, high), (two, low_2, high_2) = _size(first), _size(other)
        apart = isfinite(one - two) and abs(one - two) > sqrt((high - low) ** 2 + (high_2 - low_2) ** 2) / 2
        answer: Answer = "inconclusive" if not apart else "supported" if one > two else "contradicted"
        yield _pair(judged[place], other, answer)


# Rows, and pairs by what else was measured.


def _value(claim: Claim, evidence: Evidence, judged: Judged) -> Iterator[Finding]:
    """Inside or outside of the prediction interval of one trial."""
    for place, (result,) in judged.items():
        metric = metric_of(claim, evidence, place)
        wanted = claim.paper[place if len(claim.paper) > 1 else 0] / scale(metric)
        summary = stats.summarise([v for _, v in tested(result, metric)])
        half = (summary.high - summary.low) / 2 * sqrt(summary.n + 1) if summary.n > 1 else np.inf
        inside = abs(summary.mean - wanted) <= half + 0.005 / scale(metric)  # the paper rounds to two digits
        narrow = half * scale(metric) <= WIDEST
        answer: Answer = "inconclusive" if not narrow else "supported" if inside else "contradicted"
        words = f"{show(metric, summary.mean)} ± {show(metric, half)} for one trial"
        yield _of_row(answer, result, words, show(metric, wanted), summary.n)


def _range(claim: Claim, evidence: Evidence, judged: Judged) -> Iterator[Finding]:
    """The interval of the mean within the printed range, or beside it."""
    for place, (result,) in judged.items():
        metric = metric_of(claim, evidence, place)
        low, high = (figure / scale(metric) for figure in claim.paper[:2])
        summary = stats.summarise([v for _, v in tested(result, metric)])
        answer: Answer = "inconclusive"
        if summary.low >= low and summary.high <= high:
            answer = "supported"
        elif summary.high < low or summary.low > high:
            answer = "contradicted"
        words = f"{show(metric, summary.mean)} ({show(metric, summary.low)} to {show(metric, summary.high)})"
        yield _of_row(answer, result, words, f"{show(metric, low)} to {show(metric, high)}", summary.n)


def _of_row(answer: Answer, result: RowResults, words: str, paper: str, n: int) -> Finding:
    count = count_trials(n) if n > 1 else ""
    return Finding(answer, row_name(result), words, paper, count, _digests(result))


def _cost(claim: Claim, evidence: Evidence, judged: Judged) -> Iterator[Finding]:
    """Parameters are counted; both rows have the same in every trial."""
    low, high = claim.paper[:2]
    for a, b in judged.values():
        of_a, of_b = (next((t.parameters for t in r.trials if t.finished), 0) for r in (a, b))
        more = (of_a / of_b - 1 if claim.scale == "relative" else of_a - of_b) if of_b else float("nan")
        share = claim.scale == "relative"
        words = f"{of_a:,} against {of_b:,} = {100 * more:+.4g} %" if share else f"{more:+,.0f}"
        paper = "accepted: " + " to ".join(f"{100 * v:+g} %" if share else f"{v:+g}" for v in (low, high))
        answer: Answer = "supported" if low <= more <= high else "contradicted"
        yield Finding(answer, f"parameters of {pair_name(a, b)}", words, paper, count_trials(1), _digests(a, b))


def _stable(claim: Claim, evidence: Evidence, judged: Judged) -> Iterator[Finding]:
    for place, (result,) in judged.items():
        if all(t.state == "done" and not _losses(t) for t in result.trials):
            yield Finding("inconclusive", row_name(result), "no training losses were recorded")
            continue
        faults = {fault for t in result.trials if (fault := _unstable(t))}
        at_chance = result.best is not None and _at_chance(result.best)
        if at_chance:
            faults.add("the best trial is at chance")
        words = ", ".join(sorted(faults)) or "every trial converged"
        words += " (not compared with chance: answers to single samples were not kept)" if at_chance is None else ""
        metric = evidence.metric(refs(claim)[place][0][0], result.part.metric)
        if (value := test_value(result.best, metric)) is not None:
            words += f", best {show(metric, value)}"
        answer: Answer = "contradicted" if faults else "supported"
        count = count_trials(len(result.trials))
        yield Finding(answer, row_name(result), words, printed(result, metric), count, _digests(result))


def _unstable(record: TrialRecord) -> str:
    if record.state != "done":
        return f"a trial {record.state}"
    losses = _losses(record)
    return "a training loss did not fall" if len(losses) > 1 and not losses[-1] < losses[0] else ""


def _losses(record: TrialRecord) -> list[float]:
    return [entry["loss"] for entry in record.history if entry.get("loss") is not None]


def _at_chance(record: TrialRecord) -> bool | None:
    """Whether a trial does no better than the most frequent class; None where its answers were not kept."""
    value = test_value(record, ACCURACY)
    if value is None:
        return False
    if record.directory is None:
        return None
    labels = record.outputs().labels
    chance = float(np.bincount(labels).max() / len(labels))
    return value <= chance + 3 * sqrt(chance * (1 - chance) / len(labels))


def _solves(claim: Claim, evidence: Evidence, judged: Judged) -> Iterator[Finding]:
    for (result,) in judged.values():
        solved = solved_by(result)
        words = f"every point right in {show_share(solved, len(result.trials))} trials"
        count = count_trials(len(result.trials))
        answer: Answer = "supported" if solved else "contradicted"
        yield Finding(answer, row_name(result), words, printed(result, ACCURACY), count, _digests(result))


def _slow(claim: Claim, evidence: Evidence, judged: Judged) -> Iterator[Finding]:
    """The ratio of the epochs that both need for 95 % of ReLU's reduction of the training loss."""
    for rows in judged.values():
        ratios = [ratio for t, u in _by_seed(*rows) if (ratio := _epochs_ratio(t, u)) is not None]
        summary = stats.summarise([ratio for ratio, _ in ratios])
        short = sum(not reached for _, reached in ratios)
        words = f"{summary.mean:.2f} times ReLU's epochs ({summary.low:.2f} to {summary.high:.2f})"
        words += f", {short} of {summary.n} trials end before" if short else ""
        answer = _bounded(summary.low > SLOW, summary.high <= SLOW and not short)
        if len({ratio for ratio, _ in ratios}) == 1 < summary.n:
            answer, words = "inconclusive", f"{words}, the same for every seed: nothing to judge it by"
        yield _of_pair(answer, rows, words, summary.n, missing="no training losses of equal seeds were recorded")


def _epochs_ratio(record: TrialRecord, base: TrialRecord) -> tuple[float, bool] | None:
    """And whether the trial gets there: one that does not needs more epochs than it has. None without losses."""
    losses, reference = _losses(record), _losses(base)
    if not losses or len(reference) < 2 or not min(reference) < reference[0]:
        return None
    bound = reference[0] - REDUCTION * (reference[0] - min(reference))
    own, theirs = (
        next((k for k, x in enumerate(line, 1) if x <= bound), len(line) + 1) for line in (losses, reference)
    )
    return own / theirs, own <= len(losses)


def _vanishing(claim: Claim, evidence: Evidence, judged: Judged) -> Iterator[Finding]:
    """log10 of the smallest layer's share of the gradient, A's over ReLU's, with equal seeds."""
    for rows in judged.values():
        shares = [(smallest_gradient_shares(t), smallest_gradient_shares(u)) for t, u in _by_seed(*rows)]
        ratios = [log10(max(min(x), 1e-12) / max(min(y), 1e-12)) for x, y in shares if x and y]
        summary = stats.summarise(ratios)
        words = f"smallest layer's gradient {10**summary.mean:.2g} times ReLU's" if ratios else ""
        words += f" ({10**summary.low:.2g} to {10**summary.high:.2g})" if summary.n > 1 else ""
        answer = _bounded(summary.high < VANISHED, summary.low > VANISHED)
        yield _of_pair(answer, rows, words, summary.n, missing="no gradients of equal seeds were recorded")


def _bounded(denied: bool, holds: bool) -> Answer:
    return "contradicted" if denied else "supported" if holds else "inconclusive"


def _of_pair(answer: Answer, rows: Rows, words: str, n: int, *, missing: str) -> Finding:
    """Without two seeds there is no interval, and nothing is judged."""
    if n < 2:
        return Finding("inconclusive", pair_name(*rows), missing)
    return Finding(answer, pair_name(*rows), words, "", f"{n:,} seeds", _digests(*rows))


def _by_seed(a: RowResults, b: RowResults) -> list[tuple[TrialRecord, TrialRecord]]:
    others = {t.seed: t for t in b.trials if t.finished}
    return [(t, others[t.seed]) for t in a.trials if t.finished and t.seed in others]


def smallest_gradient_shares(record: TrialRecord) -> list[float]:
    """For each epoch, the smallest layer's gradient norm as a share of the largest's."""
    shares = []
    for entry in record.history:
        norms = [n for n in (entry.get("dynamics") or {}).get("gradient", {}).values() if n is not None]
        if norms and max(norms) > 0:
            shares.append(min(norms) / max(norms))
    return shares


def _digests(*rows: RowResults) -> tuple[str, ...]:
    return tuple(t.digest for result in rows for t in result.trials)


# Seconds: the interleaved timings of benchmarks/epochs.py, never those of trials that ran beside others.


def timed(claim: Claim) -> bool:
    """True where a claim is about seconds."""
    return claim.metric == SECONDS.name


def find_times(claim: Claim, evidence: Evidence, units: Sequence[tuple[tuple[str, str], ...]]) -> list[Finding]:
    """The findings of a claim on seconds; `units` are (network, unit) of both rows of each pair."""
    findings = []
    for (network, unit), (_, base) in units:
        ratio = _time_ratio(evidence, network, unit, base)
        title = f"seconds of {unit} against {base} ({network})"
        if ratio is None:
            findings.append(Finding("inconclusive", title, "not timed: python benchmarks/epochs.py --csv FILE"))
            continue
        middle, low, high, rounds = ratio
        words = f"{middle:.2f} times as long ({low:.2f} to {high:.2f})"
        if claim.kind == "better":
            answer, paper = _bounded(low > 1, high < 1), "shorter"
        else:
            least, most = (1 + share for share in claim.paper[:2])
            answer, paper = (
                _bounded(high < least or low > most, least <= low and high <= most),
                f"{least:g} to {most:g}",
            )
        findings.append(Finding(answer, title, words, paper, f"{rounds} rounds"))
    return findings


def _time_ratio(evidence: Evidence, network: str, unit: str, base: str) -> tuple[float, float, float, str] | None:
    own, other = (evidence.timings.get((network, name)) for name in (unit, base))
    if own is None or other is None:
        return None
    (middle, low, high), (by, least, most) = (
        [float(t[key]) for key in ("ratio_to_relu", "low", "high")] for t in (own, other)
    )
    return middle / by, low / most, high / least, own["rounds"]


_KINDS: dict[str, Callable[[Claim, Evidence, Judged], Iterator[Finding]]] = {
    "better": _better,
    "gain": _gain,
    "largest": _largest,
    "value": _value,
    "range": _range,
    "cost": _cost,
    "stable": _stable,
    "solves": _solves,
    "slow": _slow,
    "vanishing": _vanishing,
}
