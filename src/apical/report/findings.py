"""What each pair or row of a claim says: `apical.report.rules`, done."""

from collections.abc import Callable, Iterator
from math import isfinite, sqrt
from statistics import median

import numpy as np

from apical.report.comparison import Comparison
from apical.report.evidence import Evidence, Ref
from apical.report.numbers import gain, scale, show, show_p
from apical.report.rules import VANISHED, Finding
from apical.report.tables import test_value, tested
from apical.study.claim import Claim
from apical.study.results import RowResults, TrialRecord

MEASURED = ("seconds", "parameters", "mse")
"""Metrics of a trial itself: no test samples stand for others here (mse is that of a whole curve)."""
Rows = tuple[RowResults, RowResults]


def metric_of(claim: Claim, found: RowResults) -> str:
    """The claim's metric, or that of the row's part."""
    return claim.metric or found.part.metric


def refs(claim: Claim) -> list[tuple[Ref, ...]]:
    """What is judged one by one: pairs of rows, or rows."""
    pairs = [(claim.locate(a), claim.locate(b)) for a, b in claim.pairs]
    return [*pairs] if claim.b else [(claim.locate(a),) for a in claim.a]


def find(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    """The findings of the pair (or row) at this position of a claim."""
    yield from _KINDS[claim.kind](claim, evidence, position, rows)


def seconds_per_epoch(record: TrialRecord) -> float | None:
    """The median training time of an epoch, without the first where there are more."""
    times = record.seconds[1:] or record.seconds
    return median(times) if times else None


def alone(record: TrialRecord) -> bool:
    """True where a trial had its program to itself, so that its time is its own."""
    return record.execution is None or record.execution.stacking == "alone"


def _better(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    a, b = rows
    metric = metric_of(claim, a)
    if metric in MEASURED:
        yield _trial_by_trial(a, b, metric, measured(a, metric), measured(b, metric))
        return
    if "validation" in claim.splits:
        yield _trial_by_trial(a, b, f"validation {metric}", _validation(a, metric), _validation(b, metric))
    if "test" in claim.splits:
        yield (
            _against_quoted(a, b, metric) if a.row.quoted or b.row.quoted else _on_test(a, b, claim, evidence, position)
        )


def _on_test(a: RowResults, b: RowResults, claim: Claim, evidence: Evidence, position: int) -> Finding:
    metric = metric_of(claim, a)
    found = _comparison(claim, evidence, position, metric)
    if found is None:
        return Finding(0, f"{name(a)} and {name(b)} could not be compared")
    sign = found.shown if found.shown == _trend(found) else 0
    words, printed = pair_words(a, b, found), _printed_gain(a, b, metric)
    if sign == 0 and found.low <= 0 <= found.high and printed is not None and printed > _ends(found)[1]:
        return Finding(-1, f"{words}, which excludes the printed gain of {show(metric, printed)}", found.trials)
    return Finding(sign, words, found.trials)


def _comparison(claim: Claim, evidence: Evidence, position: int, metric: str) -> Comparison | None:
    a, b = refs(claim)[position]
    return evidence.get(a, b, metric)


def _trend(found: Comparison) -> int:
    """Where the mean over trials points: +1 to a, -1 to b."""
    return int(np.sign(gain(found.metric, found.over_trials.mean))) if found.over_trials.n else 0


def _ends(found: Comparison) -> tuple[float, float]:
    """The interval of the gain."""
    low, high = sorted((gain(found.metric, found.low), gain(found.metric, found.high)))
    return low, high


def _printed_gain(a: RowResults, b: RowResults, metric: str) -> float | None:
    if metric not in a.row.paper or metric not in b.row.paper:
        return None
    return gain(metric, (a.row.paper[metric].value - b.row.paper[metric].value) / scale(metric))


def _trial_by_trial(a: RowResults, b: RowResults, what: str, of_a: dict[int, float], of_b: dict[int, float]) -> Finding:
    metric = what.removeprefix("validation ")
    gains = [gain(metric, of_a[seed] - of_b[seed]) for seed in sorted(of_a.keys() & of_b.keys())]
    sign = 1 if gains and min(gains) > 0 else -1 if gains and max(gains) < 0 else 0
    words = f"{name(a)} has better {what} than {name(b)} in {sum(g > 0 for g in gains)} of {len(gains)} trials"
    return Finding(sign, words, _digests(a, b))


def _against_quoted(a: RowResults, b: RowResults, metric: str) -> Finding:
    """A printed number has no samples: ours must lie beyond it by two standard errors."""
    values = [_value(found, metric) for found in (a, b)]
    difference = gain(metric, values[0] - values[1])
    error = max(_standard_error(found.best, metric) for found in (a, b))
    sign = int(np.sign(difference)) if abs(difference) > 2 * error else 0
    words = f"{name(a)} {show(metric, values[0])} against {name(b)} {show(metric, values[1])} as quoted"
    return Finding(sign, words, tuple(f.best.digest for f in (a, b) if f.best is not None))


def _value(found: RowResults, metric: str) -> float:
    value = test_value(found.best, metric)
    return value if value is not None else found.row.paper[metric].value / scale(metric)


def _gain(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    a, b = rows
    metric = metric_of(claim, a)
    printed = claim.paper[position if len(claim.paper) > 1 else 0] / scale(metric)
    if a.row.quoted or b.row.quoted:
        yield _gain_on_quoted(a, b, metric, claim.bound, printed)
        return
    found = _comparison(claim, evidence, position, metric)
    if found is None:
        yield Finding(0, f"{name(a)} and {name(b)} could not be compared")
        return
    words = f"{pair_words(a, b, found)}, printed {show(metric, printed, sign=True)}"
    yield Finding(_gain_sign(claim.bound, _ends(found), printed), words, found.trials)


def _gain_on_quoted(a: RowResults, b: RowResults, metric: str, bound: str, printed: float) -> Finding:
    """Two standard errors around our value stand for the interval."""
    difference = gain(metric, _value(a, metric) - _value(b, metric))
    error = 2 * max(_standard_error(found.best, metric) for found in (a, b))
    sign = _gain_sign(bound, (difference - error, difference + error), printed)
    words = f"{name(a)} beyond {name(b)} as quoted: {show(metric, difference, sign=True)} ± {show(metric, error)}"
    trials = tuple(f.best.digest for f in (a, b) if f.best is not None)
    return Finding(sign, f"{words}, printed {show(metric, printed, sign=True)}", trials)


def _gain_sign(bound: str, ends: tuple[float, float], printed: float) -> int:
    low, high = ends
    if bound == "at-least":
        return 1 if low >= printed and low > 0 else -1 if high < printed else 0
    if bound == "at-most":
        return 1 if high <= printed and low > 0 else -1 if low > printed else 0
    return -1 if not low <= printed <= high else int(low > 0)


def _largest(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    if position == 0:
        yield from _gain(claim, evidence, 0, rows)
        return
    a, b = rows
    first = _comparison(claim, evidence, 0, claim.metric or a.part.metric)
    found = _comparison(claim, evidence, position, metric_of(claim, a))
    if first is None or found is None:
        yield Finding(0, f"{name(a)} and {name(b)} could not be compared")
        return
    sign = 1 if found.gain <= first.gain else -1 if _ends(found)[0] > _ends(first)[1] else 0
    yield Finding(sign, pair_words(a, b, found), found.trials)


def _about(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    (found,) = rows
    metric = metric_of(claim, found)
    value = test_value(found.best, metric)
    if value is None:
        yield Finding(0, f"{name(found)} has no number")
        return
    printed = claim.paper[position if len(claim.paper) > 1 else 0] / scale(metric)
    values = [v for _, v in tested(found, metric)]
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    error = sqrt(_standard_error(found.best, metric) ** 2 + spread**2)
    sign = 1 if abs(value - printed) <= 2 * error else -1
    words = f"{name(found)} {show(metric, value)} with a standard error of {show(metric, error)}"
    yield Finding(sign, f"{words}, printed {show(metric, printed)}", _digests(found))


def _range(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    (found,) = rows
    metric = metric_of(claim, found)
    value = test_value(found.best, metric)
    if value is None:
        yield Finding(0, f"{name(found)} has no number")
        return
    low, high = (figure / scale(metric) for figure in claim.paper[:2])
    outside = max(low - value, value - high, 0.0)
    sign = 1 if outside == 0 else -1 if outside > 2 * _standard_error(found.best, metric) else 0
    yield Finding(sign, f"{name(found)} {show(metric, value)}", _digests(found))


def _cost(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    a, b = rows
    of_a, of_b = measured(a, claim.metric), measured(b, claim.metric)
    relative = claim.scale == "relative"
    seeds = [seed for seed in sorted(of_a.keys() & of_b.keys()) if of_b[seed]]
    more = [of_a[s] / of_b[s] - 1 if relative else of_a[s] - of_b[s] for s in seeds]
    inside = [claim.paper[0] <= value <= claim.paper[1] for value in more]
    sign = 1 if inside and all(inside) else -1 if inside and not any(inside) else 0
    form = "+.1%" if relative else "+.3g"
    said = f"{min(more):{form}} to {max(more):{form}}" if more else "not measured"
    yield Finding(sign, f"{claim.metric} of {name(a)} beyond {name(b)}: {said}", _digests(a, b))


def _stable(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    (found,) = rows
    faults = {fault for t in found.trials if (fault := _unstable(t))}
    if found.best is not None and _at_chance(found.best):
        faults.add("the best trial is at chance")
    words = f"{name(found)}: {', '.join(sorted(faults)) or 'every trial converged'}"
    yield Finding(-1 if faults else 1, words, _digests(found))


def _unstable(record: TrialRecord) -> str:
    if record.state != "done":
        return f"a trial {record.state}"
    losses = [entry["loss"] for entry in record.history if entry.get("loss") is not None]
    return "a training loss did not fall" if len(losses) > 1 and not losses[-1] < losses[0] else ""


def _at_chance(record: TrialRecord) -> bool:
    value = test_value(record, "accuracy")
    if value is None:
        return False
    labels = record.outputs().labels
    chance = float(np.bincount(labels).max() / len(labels))
    return value <= chance + 3 * sqrt(chance * (1 - chance) / len(labels))


def _solves(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    (found,) = rows
    solved = sum(t.test is not None and t.test.get("accuracy") == 1.0 for t in found.trials)
    words = f"{name(found)}: {solved} of {len(found.trials)} trials answer every point right"
    yield Finding(1 if solved else -1, words, _digests(found))


def _vanishing(claim: Claim, evidence: Evidence, position: int, rows: tuple[RowResults, ...]) -> Iterator[Finding]:
    (found,) = rows
    shares = [share for t in found.trials for share in smallest_gradient_shares(t)]
    if not shares:
        yield Finding(0, f"{name(found)}: no gradients were recorded")
        return
    words = f"{name(found)}: the smallest layer's gradient is {min(shares):.1e} of the largest's at least"
    yield Finding(1 if min(shares) >= VANISHED else -1, words, _digests(found))


def smallest_gradient_shares(record: TrialRecord) -> list[float]:
    """For each epoch, the smallest layer's gradient norm as a share of the largest's."""
    shares = []
    for entry in record.history:
        norms = [n for n in (entry.get("dynamics") or {}).get("gradient", {}).values() if n is not None]
        if norms and max(norms) > 0:
            shares.append(min(norms) / max(norms))
    return shares


def measured(found: RowResults, metric: str) -> dict[int, float]:
    """Seconds per epoch, parameters or the error on a curve of each finished trial, by seed."""
    read: dict[str, Callable[[TrialRecord], float | None]] = {
        "seconds": lambda t: seconds_per_epoch(t) if alone(t) else None,
        "parameters": lambda t: t.parameters,
        "mse": lambda t: test_value(t, "mse"),
    }
    values = {t.seed: read[metric](t) for t in found.trials if t.finished}
    return {seed: float(value) for seed, value in values.items() if value}


def _validation(found: RowResults, metric: str) -> dict[int, float]:
    values = {t.seed: t.validation.get(metric) for t in found.trials}
    return {seed: value for seed, value in values.items() if value is not None and isfinite(value)}


def _standard_error(record: TrialRecord | None, metric: str) -> float:
    """Of a share of the test samples; 0 for what is no share."""
    value = test_value(record, metric)
    if record is None or value is None or scale(metric) == 1:
        return 0.0
    return sqrt(value * (1 - value) / len(record.outputs().ids))


def pair_words(a: RowResults, b: RowResults, found: Comparison) -> str:
    """A comparison in words."""
    metric = found.metric
    ends = f"{show(metric, found.low, sign=True)} to {show(metric, found.high, sign=True)}"
    p = f"p {show_p(found.p_value)}, adjusted {show_p(found.p_holm)}"
    return f"{name(a)} against {name(b)}: {show(metric, found.difference, sign=True)} ({ends}), {p}"


def name(found: RowResults) -> str:
    """A row with its part."""
    return f"{found.row.label} ({found.part.title})"


def _digests(*rows: RowResults) -> tuple[str, ...]:
    return tuple(t.digest for found in rows for t in found.trials)


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
