"""What a study found, in one sentence.

`findings` compares each row with its baseline over trials with equal seeds, by the rule of `apical.stats.decision`.
The same findings give the sentence, the picture, the marks of the tables and the last lines of the terminal.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from apical import notation, stats
from apical.report.comparison import MARGIN, Comparison, between, decide, scores
from apical.report.numbers import ACCURACY, gain, heading, kind_of, scale, show, show_share, solved_by, tested
from apical.study.model import Part
from apical.study.results import RowResults, StudyResults, TrialRecord
from apical.train.metrics import Metric

NAMED = 3
"""Rows that a sentence names before it counts them."""
VERDICTS = {"supported": "better", "contradicted": "worse", "negligible": "same", "inconclusive": "unclear"}


@dataclass(frozen=True)
class Finding:
    """One row: the test values of its trials by seed, and its gain over the baseline of its group.

    `baseline` is the baseline's label, "" for the baseline itself and for rows without one. `decision` is None where
    fewer than two seeds are shared; `against` counts the baseline's trials. Gains are positive where the row is better.
    """

    key: str
    label: str
    kind: str
    part: Part
    metric: Metric
    scores: Mapping[int, float]
    baseline: str = ""
    against: int = 0
    comparison: Comparison | None = None

    @property
    def decision(self) -> stats.Decision | None:
        """How the row compares with its baseline over seeds; None where it cannot be said."""
        return self.comparison.decision if self.comparison else None

    @property
    def summary(self) -> stats.Summary:
        """Mean, deviation and interval over the trials."""
        return stats.summarise(list(self.scores.values()))

    @property
    def verdict(self) -> str:
        """better, worse, same, unclear, or "" where nothing was compared."""
        return VERDICTS[self.decision.verdict] if self.decision else ""

    @property
    def gain_text(self) -> str:
        """`+1.20 (+0.40 to +2.00) better`; "" where nothing was compared."""
        d = self.decision
        if d is None:
            return ""
        word = f" {self.verdict}" if self.verdict in ("better", "worse") else ""
        return f"{show(self.metric, d.difference, sign=True)} {between(self.metric, d.low, d.high)}{word}"


@dataclass(frozen=True)
class Conclusion:
    """A study in a sentence, what was run in a line, remarks on what is missing, and the findings behind it."""

    sentence: str
    run: str
    remarks: tuple[str, ...]
    findings: tuple[Finding, ...]


def conclude(results: StudyResults) -> Conclusion:
    """What these results say, finished or not."""
    listed = findings(results)
    return Conclusion(_sentence(results, listed), _run(results), tuple(_remarks(results)), listed)


def notebook(results: StudyResults) -> str:
    """The sentence and the rows as a notebook shows them."""
    told, rows = conclude(results), []
    for f in told.findings:
        own = f.summary
        mean = (
            f"{show(f.metric, own.mean)}{f' ± {show(f.metric, own.deviation)}' if own.n > 1 else ''}" if own.n else ""
        )
        part = f.part.title if len(results.study.parts) > 1 else ""
        rows.append((f.label, part, results.row(f.key).chosen or "", mean, f.gain_text, own.n))
    head = ("unit", "part", "setting", "test", "gain over the baseline", "trials")
    return notation.html_table(head, rows, title=told.sentence, notes=[told.run, *told.remarks])


def findings(results: StudyResults) -> tuple[Finding, ...]:
    """A finding for each row that is trained, in the order of the study."""
    return tuple(finding for part in results.study.parts for finding in _of_part(part, results))


def _of_part(part: Part, results: StudyResults) -> list[Finding]:
    metric = results.study.metric(part.metric)
    rows = [r for r in results.rows if r.row.part == part.name and not r.row.quoted]
    listed = []
    for row in rows:
        base = results.study.baseline(row.row)
        against = None if base is None or results.study.form == "logic" else results.row(base.key)
        comparison = None if against is None else decide(row, against, metric, rows)
        listed.append(Finding(
            row.row.key, row.row.label, kind_of(row.row), part, metric, dict(sorted(scores(row, metric).items())),
            "" if base is None else base.label, 0 if against is None else len(scores(against, metric)), comparison,
        ))  # fmt: skip
    return listed


# The sentence.


def _sentence(results: StudyResults, listed: Sequence[Finding]) -> str:
    known = [f for f in listed if f.scores]
    if not known:
        return _nothing(results)
    pairs = [f for f in listed if f.verdict]
    if results.study.form == "logic":
        said = _solved(results)
    elif pairs:
        said = _compared(pairs, several=len(results.study.parts) > 1)
    else:
        said = _uncompared(known, several=len(results.study.parts) > 1)
    single = [f for f in known if f.baseline and not f.verdict]
    if single and pairs:
        bases = {f.baseline for f in single}
        base = f" with {bases.pop()}" if len(bases) == 1 else ""
        said += f"; too few trials to compare {_names(single, several=len(results.study.parts) > 1)}{base}"
    if bare := [f for f in listed if not f.scores]:
        said += f"; no result for {_names(bare, several=len(results.study.parts) > 1)}"
    if results.states["planned"] + results.states["running"]:
        return f"So far ({_done(results):,} of {_trials(sum(results.states.values()))}): {said}."
    begins = said.startswith(("no ", "every ", "with "))  # a unit's label stays as it is
    return f"{said[0].upper() if begins else said[0]}{said[1:]}."


def _nothing(results: StudyResults) -> str:
    total, failed, done = sum(results.states.values()), results.states["failed"], _done(results)
    if failed and failed == total:
        return f"No result: {_all(total)} failed."
    if failed and not done:
        return f"No result: {_trials(failed)} of {total:,} failed, and none is done."
    untested = "" if not done else ", but not tested yet" if done == 1 else ", but none of them is tested yet"
    return f"No result yet: {done:,} of {_trials(total)} {'is' if done == 1 else 'are'} done{untested}."


def _done(results: StudyResults) -> int:
    return results.states["done"] + results.states["diverged"]


def _all(count: int) -> str:
    return "the only trial" if count == 1 else f"all {count:,} trials"


def _trials(count: int) -> str:
    return f"{count:,} trial{'' if count == 1 else 's'}"


def _uncompared(known: Sequence[Finding], *, several: bool) -> str:
    """Without a pair of rows and two seeds: who scores highest, and why that says little."""
    f = known[0]
    if len(known) == 1:
        return f"{_name(f, several=several)} has a {_score(f)} ({_trials(len(f.scores))}); nothing to compare it with"
    if len({g.part.metric for g in known}) > 1 or len({g.part.name for g in known}) > 1:
        words = f"{len(known)} rows have results"
    else:
        best = sorted(known, key=lambda g: -gain(g.metric, g.summary.mean))
        tied = [g for g in best if g.summary.mean == best[0].summary.mean]
        verb = "has" if len(tied) == 1 else "have"
        words = f"{_names(tied, several=False)} {verb} the best {_score(best[0]).replace(' of ', ', ')}"
    if not any(g.baseline for g in known):
        return f"{words}; no row is a baseline, so nothing is compared"
    if max(len(g.scores) for g in known) == 1:
        return f"with one trial each, differences cannot be told from chance; {words}"
    return f"{words}; no row shares two seeds with its baseline, so nothing is compared"


def _score(f: Finding) -> str:
    words = heading(f.metric).partition(" (")[0]
    unit = " %" if f.metric.percent else f" {f.metric.unit}" if f.metric.unit else ""
    mean_of = "mean " if len(f.scores) > 1 else ""
    return f"{mean_of}{words} of {show(f.metric, f.summary.mean)}{unit}"


def _compared(pairs: Sequence[Finding], *, several: bool) -> str:
    sides = {name: [f for f in pairs if f.verdict == name] for name in VERDICTS.values()}
    better, worse = (sorted(sides[s], key=lambda f: -abs(_gap(f))) for s in ("better", "worse"))
    bases = list(dict.fromkeys(f.baseline for f in pairs))
    base = bases[0] if len(bases) == 1 else "the baseline of its group"
    rest = [*sides["same"], *sides["unclear"]]
    if better:
        said = [_side(better, "better", several=several, bases=bases)]
        known = better[0].metric if worse and worse[0].metric == better[0].metric else None
        said += [_side(worse, "worse", several=several, bases=bases, brief=True, known=known)] if worse else []
        return "; ".join((*said, *_others(rest, several=several)))
    one = f"{_name(pairs[0], several=several)} is not" if len(pairs) == 1 else "no unit is"
    if worse:
        if len(pairs) == 1:
            return _side(worse, "worse", several=several, bases=bases)
        losses = _side(worse, "worse", several=several, bases=bases[:1], brief=True)
        first = f"no unit is measurably better than {base} ({_seeds(pairs)})"
        return "; ".join((first, losses, *_others(rest, several=several)))
    if not sides["unclear"] and len({f.metric.percent for f in pairs}) == 1:
        within = (
            f"{_amount(pairs[0], MARGIN / scale(pairs[0].metric))}"
            if pairs[0].metric.percent
            else "a fifth of the deviation of one trial"
        )
        who = _name(pairs[0], several=several) if len(pairs) == 1 else "every unit"
        return f"{who} scores as {base} does, within {within} ({_seeds(pairs)})"
    needed = f"; {_needed(pairs)}" if len({f.part.metric for f in pairs}) == 1 else ""
    return f"{one} measurably better or worse than {base} ({_seeds(pairs)}{needed})"


def _needed(pairs: Sequence[Finding]) -> str:
    """The widest half of an interval: a smaller mean difference would not be seen."""
    widest = max(pairs, key=lambda f: f.decision.high - f.decision.low if f.decision else 0.0)
    decision = widest.decision
    half = (decision.high - decision.low) / 2 if decision else 0.0
    if half == 0:
        return "too few to tell how far they vary"
    return f"a difference of {_amount(widest, half)} would be needed to see it"


def _side(
    rows: Sequence[Finding], word: str, *, several: bool, bases: Sequence[str], brief: bool = False,
    known: Metric | None = None,
) -> str:  # fmt: skip
    """`ADA is better than ReLU by 1.20 points in test accuracy (95 % interval 0.40 to 2.00; 5 trials each)`.

    Rows of several parts are counted, and the one with the largest difference is named. `known` is a metric that the
    sentence has named already: `RBF is worse by 20.11 points (13.24 to 26.99)`.
    """
    first, sign = rows[0], 1 if word == "better" else -1
    decision = first.decision
    ends = sorted((sign * decision.low, sign * decision.high)) if decision else (0.0, 0.0)
    interval = f"{'' if known else '95 % interval '}{_bare(first, ends[0])} to {_bare(first, ends[1])}"
    size = abs(_gap(first))
    by = _quantity(first, size) if known else _amount(first, size)
    amount = f"{by} ({interval}{'' if brief else f'; {_seeds(rows)}'})"
    base = first.baseline if len({f.baseline for f in rows}) == 1 else "the baseline of their group"
    than = f" than {base}" if not brief or len(bases) > 1 else ""
    if len(rows) == 1:
        return f"{_name(first, several=several)} is {word}{than} by {amount}"
    if several:
        count = str(len(rows)) if brief else f"{len(rows)} rows"
        return f"{count} are {word}{than}, {_name(first, several=True)} by most: {amount}"
    return f"{_names(rows, several=False)} are {word}{than}, {first.label} by most: {amount}"


def _others(rows: Sequence[Finding], *, several: bool) -> tuple[str, ...]:
    """The rows without a difference, by name where they are few; one that stands alone has its interval."""
    if not rows:
        return ()
    who = _names(rows, several=several) if len(rows) <= NAMED else f"{len(rows)} others"
    d = rows[0].decision
    interval = f" (gain {between(rows[0].metric, d.low, d.high)[1:]}" if d and len(rows) == 1 else ""
    return (f"{who} {'is' if len(rows) == 1 else 'are'} not measurably different{interval}",)


def _gap(f: Finding) -> float:
    return f.decision.difference if f.decision else 0.0


def _bare(f: Finding, value: float) -> str:
    """A difference as printed, with one digit more than usual where it would print as nothing."""
    text = show(f.metric, value)
    nothing = value != 0 and float(text.replace("−", "-")) == 0
    return f"{value * scale(f.metric):.1g}".replace("-", "−") if nothing else text


def _quantity(f: Finding, value: float) -> str:
    return f"{_bare(f, value)}{' points' if f.metric.percent else f' {f.metric.unit}' if f.metric.unit else ''}"


def _amount(f: Finding, value: float) -> str:
    return f"{_quantity(f, value)} in {heading(f.metric).partition(' (')[0]}"


def _seeds(pairs: Sequence[Finding]) -> str:
    counts = [f.decision.seeds for f in pairs if f.decision]
    low, high = min(counts), max(counts)
    whole = all(f.decision.seeds == len(f.scores) == f.against for f in pairs if f.decision)
    return f"{low if low == high else f'{low} to {high}'} {'trials each' if whole else 'shared seeds'}"


def _name(f: Finding, *, several: bool) -> str:
    return f"{f.label} ({f.part.title})" if several else f.label


def _names(rows: Sequence[Finding], *, several: bool) -> str:
    names = [_name(f, several=several) for f in rows]
    if len(names) > NAMED + 1:
        names = [*names[:NAMED], f"{len(names) - NAMED} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _solved(results: StudyResults) -> str:
    """Of logical functions: the share of trials that answer every point right, the best row of each part."""
    said = []
    for part in results.study.parts:
        rows = [r for r in results.rows if r.row.part == part.name]
        known = [(r.row.label, solved_by(r), count) for r in rows if (count := len(tested(r, ACCURACY)))]
        if not known:
            continue
        top = max(solved / count for _, solved, count in known)
        best = [(name, solved, count) for name, solved, count in known if solved / count == top]
        names = [name for name, _, _ in best]
        if top == 0:
            said.append(f"no unit solves {part.title} in {_trials(sum(c for _, _, c in known))}")
        elif len(best) == len(known) > 1:
            said.append(f"every unit solves {part.title} in {100 * top:.0f} % of its trials")
        else:
            shown = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
            verb = "solves" if len(names) == 1 else "solve"
            said.append(f"{shown} {verb} {part.title} most often, in {show_share(*best[0][1:])}")
    return "; ".join(said)


# What was run, in a line, and what is to be known beside it.


def _run(results: StudyResults) -> str:
    study, parts = results.study, results.study.parts
    units = len(dict.fromkeys(row.unit for row in study.trained))
    networks = list(dict.fromkeys(f"{part.model} on {part.data}" for part in parts))
    where = ", ".join(networks) if len(networks) <= 2 else f"{len(parts)} parts"
    epochs = sorted({t.spec.epochs for t in _every(results)})
    many = " to ".join(str(n) for n in dict.fromkeys(epochs[:: max(1, len(epochs) - 1)]))
    length = f", {many} epoch{'' if epochs == [1] else 's'}" if epochs else ""
    quick = " Quick variant." if study.quick and not any(row.paper for row in study.rows) else ""
    return f"{units} unit{'' if units == 1 else 's'}, {where}{length}; {_trained(results)}.{quick}"


def _trained(results: StudyResults) -> str:
    """How many trials are trained; where some are missing, of how many, and how many failed."""
    states, done, total = results.states, _done(results), sum(results.states.values())
    tuned = ", with those that tune" if any(len(r.settings) > 1 for r in results.rows) else ""
    if done == total:
        return f"{_trials(results.study.trials)} each, {total:,} in all{tuned}{untested(results)}"
    end = "so far" if states["planned"] + states["running"] else "done"
    failed = f", {states['failed']:,} failed" if states["failed"] else ""
    return f"{done:,} of {_trials(total)} {end}{tuned}{untested(results)}{failed}"


def untested(results: StudyResults) -> str:
    """`, 1 of them not tested yet`, of the trials that are done; "" where all are tested."""
    count = len({t.digest for row in results.rows for t in row.trials if t.finished and t.test is None})
    return f", {count:,} of them not tested yet" if count else ""


def _remarks(results: StudyResults) -> list[str]:
    """Failures and divergence, each in a sentence."""
    lines = []
    for state in ("failed", "diverged"):
        found = {t.digest: (row.row.label, t) for row in results.rows for t in _of_row(row) if t.state == state}
        if not found:
            continue
        labels = Counter(label for label, _ in found.values())
        who = f" ({', '.join(f'{n} of {label}' for label, n in labels.items())})" if len(labels) <= NAMED else ""
        said = f"{_trials(len(found))} {state}{who}"
        reason = " ".join(next(iter(found.values()))[1].reason.split())
        if state == "diverged":
            lines.append(f"{said}: the last network before that is tested.")
        elif reason:
            lines.append(f"{said}: {reason if len(reason) <= 160 else f'{reason[:159]}…'}")
        else:
            lines.append(f"{said}.")
    return lines


def _every(results: StudyResults) -> list[TrialRecord]:
    return [trial for row in results.rows for trial in _of_row(row)]


def _of_row(row: RowResults) -> list[TrialRecord]:
    return [*(t for s in row.settings for t in s.trials), *row.trials]
