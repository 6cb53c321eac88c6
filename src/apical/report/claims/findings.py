"""Check a claim of the paper on each of its pairs or rows. `verdicts` makes one verdict of these findings."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import isfinite, sqrt
from statistics import NormalDist

import numpy as np

from apical import stats
from apical.report.comparison import (
    Comparison,
    Evidence,
    Ref,
    between,
    count_trials,
    in_words,
    minus,
    pair_name,
    printed,
    printed_pair,
    ratio,
    row_name,
    samples_and_trials,
    turned_sign,
)
from apical.report.numbers import (
    ACCURACY,
    SECONDS,
    alone,
    gain,
    scale,
    seconds_per_epoch,
    show,
    show_share,
    solved_by,
    test_value,
    tested,
)
from apical.study.claim import Claim
from apical.study.results import RowResults, TrialRecord
from apical.train import metrics
from apical.train.metrics import Metric

OF_TWO = sqrt(2)
"""A printed number comes from trials and samples like ours: a difference of the two is so much wider than one alone."""
Rows = tuple[RowResults, RowResults]


PARAMETERS = metrics.find("parameters")
SIGNS = {1: "shown", 0: "open", -1: "refuted"}
VANISHED = 1e-6
"""A layer's gradient has vanished where its norm is below this share of the largest layer's in the same epoch."""


@dataclass(frozen=True)
class Finding:
    """One pair or row of a claim: shown (+1), refuted (-1) or open (0).

    `what` names it, `paper` is what the paper prints about it ("" for nothing), `ours` the same with its interval,
    `n` of how many samples and trials; `trials` are those it rests on.
    """

    sign: int
    what: str
    ours: str
    paper: str = ""
    n: str = ""
    trials: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """The finding in a line."""
        paper = f"; the paper: {self.paper}" if self.paper else ""
        return f"{self.what}: {self.ours}{f', n = {self.n}' if self.n else ''}{paper}"

    @property
    def answer(self) -> str:
        """The sign as a word."""
        return SIGNS[self.sign]


def metric_of(claim: Claim, evidence: Evidence, position: int) -> Metric:
    """The claim's metric, or that of the part of the row at this position of the claim."""
    ref = refs(claim)[position][0]
    row = evidence.row(ref)
    return evidence.metric(ref[0], claim.metric or (row.part.metric if row else ""))


def refs(claim: Claim) -> list[tuple[Ref, ...]]:
    """What is judged one by one: pairs of rows, or rows."""
    pairs = [(claim.locate(a), claim.locate(b)) for a, b in claim.pairs]
    return [*pairs] if claim.b else [(claim.locate(a),) for a in claim.a]


def find(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    """The findings of the pair (or row) at this position of a claim."""
    yield from _KINDS[claim.kind](claim, evidence, position, rows)


def _better(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    a, b = rows
    metric = metric_of(claim, evidence, position)
    if metric.by_trial:
        yield _trial_by_trial(a, b, metric, measured(a, metric), measured(b, metric))
        return
    if "validation" in claim.splits:
        yield _trial_by_trial(a, b, metric, _validation(a, metric), _validation(b, metric), split="validation ")
    if "test" in claim.splits:
        yield (
            _against_quoted(a, b, metric) if a.row.quoted or b.row.quoted else _on_test(a, b, claim, evidence, position)
        )


def _on_test(a: RowResults, b: RowResults, claim: Claim, evidence: Evidence, position: int) -> Finding:
    metric = metric_of(claim, evidence, position)
    comparison = _comparison(claim, evidence, position, metric)
    if comparison is None:
        return _incomparable(a, b)
    sign = comparison.shown if comparison.shown == _trend(comparison) else 0
    gap = _printed_gain(a, b, metric)
    no_gain = comparison.gain <= 0 and _trend(comparison) <= 0
    if sign == 0 and no_gain and gap is not None and gap > max(0.0, _wider(_ends(comparison), len(refs(claim)))[1]):
        sign = -1
    return _pair(sign, a, b, comparison, printed_pair(a, b, metric))


def _pair(sign: int, a: RowResults, b: RowResults, comparison: Comparison, paper: str) -> Finding:
    own = comparison.metric.name == a.part.metric
    title = pair_name(a, b) if own else f"{pair_name(a, b)}, test {comparison.metric.name}"
    return Finding(sign, title, in_words(a, b, comparison), paper, samples_and_trials(comparison), comparison.trials)


def _incomparable(a: RowResults, b: RowResults) -> Finding:
    return Finding(0, pair_name(a, b), "could not be compared")


def _comparison(claim: Claim, evidence: Evidence, position: int, metric: Metric) -> Comparison | None:
    a, b = refs(claim)[position]
    return evidence.get(a, b, metric.name)


def _trend(comparison: Comparison) -> int:
    """Where the mean over trials points: +1 to a, -1 to b."""
    return int(np.sign(gain(comparison.metric, comparison.over_trials.mean))) if comparison.over_trials.n else 0


def _ends(comparison: Comparison) -> tuple[float, float]:
    """The interval of the gain."""
    low, high = sorted((gain(comparison.metric, comparison.low), gain(comparison.metric, comparison.high)))
    return low, high


def _printed_gain(a: RowResults, b: RowResults, metric: Metric) -> float | None:
    first, second = a.row.paper.get(metric.name), b.row.paper.get(metric.name)
    if first is None or second is None:
        return None
    return gain(metric, (first.value - second.value) / scale(metric))


def _wider(ends: tuple[float, float], pairs: int) -> tuple[float, float]:
    """The interval for another such difference, as uncertain as this one, at 95 % for all pairs of a claim together."""
    normal = NormalDist()
    factor = OF_TWO * normal.inv_cdf(1 - 0.025 / pairs) / normal.inv_cdf(0.975)
    middle, half = sum(ends) / 2, (ends[1] - ends[0]) / 2
    return middle - factor * half, middle + factor * half


def _trial_by_trial(
    a: RowResults, b: RowResults, metric: Metric, of_a: dict[int, float], of_b: dict[int, float], *, split: str = ""
) -> Finding:
    seeds = sorted(of_a.keys() & of_b.keys())
    title = f"{pair_name(a, b)}, {split}{metric.name}"
    if not seeds:
        return Finding(0, title, "not measured")
    first, second = [of_a[s] for s in seeds], [of_b[s] for s in seeds]
    gains = [gain(metric, x - y) for x, y in zip(first, second, strict=True)]
    ratios = metric.by_trial and min(*first, *second) > 0
    if ratios:
        words, summary = ratio(first, second)
    else:
        summary = stats.summarise(np.subtract(first, second))
        words = f"{show(metric, summary.mean, sign=True)} {between(metric, summary.low, summary.high)}"
    agreed = 1 if min(gains) > 0 else -1 if max(gains) < 0 else 0
    sign = agreed if agreed == turned_sign(metric, summary, ratios=ratios) else 0
    words += f", better in {sum(g > 0 for g in gains)} of {len(gains)}"
    return Finding(sign, title, words, "", count_trials(len(seeds)), _digests(a, b))


def _against_quoted(a: RowResults, b: RowResults, metric: Metric) -> Finding:
    """A printed number has no samples: ours must lie beyond it by two standard errors of such a difference."""
    low, high = _quoted_ends(a, b, metric)
    sign = 1 if low > 0 else -1 if high < 0 else 0
    return _quoted(sign, a, b, metric, printed_pair(a, b, metric))


def _quoted(sign: int, a: RowResults, b: RowResults, metric: Metric, paper: str) -> Finding:
    values = [_value(result, metric) for result in (a, b)]
    half = show(metric, 2 * OF_TWO * _largest_error(a, b, metric))
    words = f"{minus(metric, *values)} ± {half}, one side as quoted"
    digests = tuple(f.best.digest for f in (a, b) if f.best is not None)
    return Finding(sign, pair_name(a, b), words, paper, _tested_on(a, b), digests)


def _quoted_ends(a: RowResults, b: RowResults, metric: Metric) -> tuple[float, float]:
    """The gain over a quoted number, minus and plus two standard errors."""
    difference = gain(metric, _value(a, metric) - _value(b, metric))
    error = 2 * OF_TWO * _largest_error(a, b, metric)
    return difference - error, difference + error


def _largest_error(a: RowResults, b: RowResults, metric: Metric) -> float:
    return max(_standard_error(result.best, metric) for result in (a, b))


def _tested_on(*rows: RowResults) -> str:
    """How many samples and trials stand behind rows."""
    best = next((result for result in rows if result.best is not None), None)
    if best is None or best.best is None or best.best.test is None:
        return ""
    return f"{len(best.best.outputs().ids):,} samples, {count_trials(len(best.trials))}"


def _value(result: RowResults, metric: Metric) -> float:
    value = test_value(result.best, metric)
    return value if value is not None else result.row.paper[metric.name].value / scale(metric)


def _gain(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    a, b = rows
    metric = metric_of(claim, evidence, position)
    wanted = claim.paper[position if len(claim.paper) > 1 else 0] / scale(metric)
    paper = f"{BOUNDS[claim.bound]}{show(metric, gain(metric, wanted), sign=True)}"
    if a.row.quoted or b.row.quoted:
        yield _quoted(_gain_sign(claim, _quoted_ends(a, b, metric), wanted), a, b, metric, paper)
        return
    comparison = _comparison(claim, evidence, position, metric)
    if comparison is None:
        yield _incomparable(a, b)
        return
    yield _pair(_gain_sign(claim, _ends(comparison), wanted), a, b, comparison, paper)


BOUNDS = {"about": "", "at-least": "at least ", "at-most": "at most "}


def _gain_sign(claim: Claim, ends: tuple[float, float], printed: float) -> int:
    (low, high), (lowest, highest) = ends, _wider(ends, len(refs(claim)))
    if claim.bound == "at-least":
        return 1 if low >= printed and low > 0 else -1 if highest < printed else 0
    if claim.bound == "at-most":
        return 1 if high <= printed and low > 0 else -1 if lowest > printed else 0
    if not lowest <= printed <= highest:
        return -1
    return int(low <= printed <= high and low > 0)


def _largest(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    if position == 0:
        yield from _gain(claim, evidence, 0, rows)
        return
    a, b = rows
    metric = metric_of(claim, evidence, position)
    first = _comparison(claim, evidence, 0, metric)
    comparison = _comparison(claim, evidence, position, metric)
    if first is None or comparison is None:
        yield _incomparable(a, b)
        return
    halves = [(ends[1] - ends[0]) / 2 for ends in (_ends(first), _ends(comparison))]
    apart = abs(first.gain - comparison.gain) > sqrt(sum(half**2 for half in halves))
    sign = int(np.sign(first.gain - comparison.gain)) if apart else 0
    yield _pair(sign, a, b, comparison, printed_pair(a, b, comparison.metric))


def _about(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    (result,) = rows
    metric = metric_of(claim, evidence, position)
    value = test_value(result.best, metric)
    if value is None:
        yield Finding(0, row_name(result), "no number")
        return
    wanted = claim.paper[position if len(claim.paper) > 1 else 0] / scale(metric)
    values = [v for _, v in tested(result, metric)]
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    error = sqrt(_standard_error(result.best, metric) ** 2 + spread**2)
    sign = 1 if abs(value - wanted) <= 2 * error else -1
    words = f"{show(metric, value)} ± {show(metric, 2 * error)}"
    yield Finding(sign, row_name(result), words, show(metric, wanted), _tested_on(result), _digests(result))


def _range(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    (result,) = rows
    metric = metric_of(claim, evidence, position)
    value = test_value(result.best, metric)
    if value is None:
        yield Finding(0, row_name(result), "no number")
        return
    low, high = (figure / scale(metric) for figure in claim.paper[:2])
    outside, error = max(low - value, value - high, 0.0), 2 * _standard_error(result.best, metric)
    sign = 1 if outside == 0 else -1 if outside > error else 0
    words, paper = f"{show(metric, value)} ± {show(metric, error)}", f"{show(metric, low)} to {show(metric, high)}"
    yield Finding(sign, row_name(result), words, paper, _tested_on(result), _digests(result))


def _cost(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    a, b = rows
    metric = metric_of(claim, evidence, position)
    of_a, of_b = measured(a, metric), measured(b, metric)
    relative = claim.scale == "relative"
    seeds = [seed for seed in sorted(of_a.keys() & of_b.keys()) if of_b[seed]]
    more = [of_a[s] / of_b[s] - 1 if relative else of_a[s] - of_b[s] for s in seeds]
    inside = [claim.paper[0] <= value <= claim.paper[1] for value in more]
    sign = 1 if inside and all(inside) else -1 if inside and not any(inside) else 0
    form = "+.4g"
    percent = [(100 * v, " %") if relative else (v, "") for v in more]
    said = " to ".join(f"{v:{form}}{unit}" for v, unit in dict.fromkeys((min(percent), max(percent)))) if more else ""
    paper = " to ".join(f"{100 * v:+g} %" if relative else f"{v:+g}" for v in claim.paper[:2])
    title = f"{claim.metric} of {pair_name(a, b)}"
    yield Finding(sign, title, said or "not measured", paper, count_trials(len(more)) if more else "", _digests(a, b))


def _stable(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    (result,) = rows
    faults = {fault for t in result.trials if (fault := _unstable(t))}
    if result.best is not None and _at_chance(result.best):
        faults.add("the best trial is at chance")
    words = ", ".join(sorted(faults)) or "every trial converged"
    metric = evidence.metric(refs(claim)[position][0][0], result.part.metric)
    if (value := test_value(result.best, metric)) is not None:
        words += f", best {show(metric, value)}"
    paper = printed(result, metric)
    yield Finding(
        -1 if faults else 1, row_name(result), words, paper, count_trials(len(result.trials)), _digests(result)
    )


def _unstable(record: TrialRecord) -> str:
    if record.state != "done":
        return f"a trial {record.state}"
    losses = [entry["loss"] for entry in record.history if entry.get("loss") is not None]
    return "a training loss did not fall" if len(losses) > 1 and not losses[-1] < losses[0] else ""


def _at_chance(record: TrialRecord) -> bool:
    value = test_value(record, ACCURACY)
    if value is None:
        return False
    labels = record.outputs().labels
    chance = float(np.bincount(labels).max() / len(labels))
    return value <= chance + 3 * sqrt(chance * (1 - chance) / len(labels))


def _solves(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    (result,) = rows
    solved = solved_by(result)
    words = f"every point right in {show_share(solved, len(result.trials))} trials"
    paper = printed(result, ACCURACY)
    yield Finding(
        1 if solved else -1, row_name(result), words, paper, count_trials(len(result.trials)), _digests(result)
    )


def _vanishing(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    (result,) = rows
    shares = [share for t in result.trials for share in smallest_gradient_shares(t)]
    if not shares:
        yield Finding(0, row_name(result), "no gradients were recorded")
        return
    words = f"the smallest layer's gradient is at least {min(shares):.1e} of the largest's"
    sign = 1 if min(shares) >= VANISHED else -1
    yield Finding(sign, row_name(result), words, "", count_trials(len(result.trials)), _digests(result))


def smallest_gradient_shares(record: TrialRecord) -> list[float]:
    """For each epoch, the smallest layer's gradient norm as a share of the largest's."""
    shares = []
    for entry in record.history:
        norms = [n for n in (entry.get("dynamics") or {}).get("gradient", {}).values() if n is not None]
        if norms and max(norms) > 0:
            shares.append(min(norms) / max(norms))
    return shares


def measured(result: RowResults, metric: Metric) -> dict[int, float]:
    """Seconds per epoch, parameters or the error on a curve of each finished trial, by seed."""
    values = {t.seed: _measure(t, metric) for t in result.trials if t.finished}
    return {seed: float(value) for seed, value in values.items() if value}


def _measure(record: TrialRecord, metric: Metric) -> float | None:
    if metric == SECONDS:
        return seconds_per_epoch(record) if alone(record) else None
    return record.parameters if metric == PARAMETERS else test_value(record, metric)


def _validation(result: RowResults, metric: Metric) -> dict[int, float]:
    values = {t.seed: t.validation.get(metric.name) for t in result.trials}
    return {seed: value for seed, value in values.items() if value is not None and isfinite(value)}


def _standard_error(record: TrialRecord | None, metric: Metric) -> float:
    """Of a share of the test samples; 0 for what is no share."""
    value = test_value(record, metric)
    if record is None or value is None or scale(metric) == 1:
        return 0.0
    return sqrt(value * (1 - value) / len(record.outputs().ids))


def _digests(*rows: RowResults) -> tuple[str, ...]:
    return tuple(t.digest for result in rows for t in result.trials)


_KINDS: dict[str, Callable[[Claim, Evidence, int, tuple[RowResults, ...]], Iterator[Finding]]] = {
    "better": _better,
    "gain": _gain,
    "largest": _largest,
    "value": _about,
    "range": _range,
    "cost": _cost,
    "stable": _stable,
    "solves": _solves,
    "vanishing": _vanishing,
}
