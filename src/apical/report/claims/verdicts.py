"""Which claims of the paper do the studies of a report support? The rule in words, the verdicts, the protocol."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import comb
from typing import Any, Literal, get_args

from apical import stats
from apical.report.claims.findings import (
    PARAMETERS,
    SLOW,
    WIDEST,
    Finding,
    find,
    find_times,
    refs,
    timed,
)
from apical.report.comparison import LEVEL, MARGIN, Evidence
from apical.report.numbers import kind_of
from apical.study.claim import Claim
from apical.study.model import Part, Row, Study
from apical.study.results import RowResults

Outcome = Literal["supported", "supported where run", "contradicted", "negligible", "inconclusive", "not run"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""`supported where run`: by all pairs or rows that this report has, while others are missing."""
OPPOSITE: Mapping[str, Any] = {"supported": "contradicted", "contradicted": "supported"}

RULES = {
    "who is judged": (
        "Finished rows of the paper's own protocol, with two or more seeds. Quick variants, partial data, changed "
        "settings (a coarser grid, fewer trials) and unfinished rows are not judged."
    ),
    "a pair": (
        "The mean over seeds of A - B on the test split, with the 95 % interval of Student's t; the variance is pooled "
        "over the network's rows. Supported: the interval of the gain lies above 0. Contradicted: below 0. Negligible: "
        f"the 90 % interval lies within the margin ({MARGIN:g} points of accuracy; of other scores {MARGIN:g} times "
        "the deviation of one trial). Else inconclusive. A pair has one finding wherever it appears. A printed gain is "
        "inside or outside of the 95 % prediction interval of one more pair of trials, which decides nothing."
    ),
    "all": (
        "Supported if every pair is, contradicted if any is after Holm's correction over the pairs run, negligible if "
        "every pair is, else inconclusive. With pairs that were not run it is at best supported where run. Where the "
        "paper says that something does not hold throughout, the answer is turned round. That all gains are "
        "significant needs the paper's own mark on each."
    ),
    "most": (
        "Supported if more than half of the pairs are, by a one-sided binomial test at 0.05; contradicted if more than "
        "half are not. Of significant gains the pairs are counted that the paper's own test marks (McNemar's "
        "chi-square without correction at 0.05, on the trials that are best by validation)."
    ),
    "gain": (
        "By x, up to x: supported if the pairs are and the interval of the gain (of the largest, for up to) contains "
        "x; contradicted if it excludes x, or the pair is contradicted. At least x needs the lower bound at x or "
        "above, and is contradicted by an upper bound below x; at most x the other way round, with a supported gain."
    ),
    "largest": "The first gain as above; another is smaller or larger where the two differ beyond both intervals.",
    "value": (
        f"Inside or outside of the 95 % prediction interval of one trial, of {WIDEST:g} point at most to each side; "
        "wider ones are inconclusive."
    ),
    "range": "Supported: the 95 % interval of the mean lies inside. Contradicted: outside. Else inconclusive.",
    "cost": (
        "Parameters are counted. Seconds are the interleaved timings of benchmarks/epochs.py with the interval of the "
        "median: supported inside of the printed range, contradicted outside. Seconds of another machine decide "
        "nothing."
    ),
    "stable": (
        "Supported: no trial diverged or failed, every training loss fell, and the best trial is right more often "
        "than the largest class alone explains (three standard errors). Else contradicted."
    ),
    "solves": (
        "Supported: at least one trial answers every point right. Else contradicted. How many of them do is printed "
        "with its 95 % interval (Wilson's)."
    ),
    "slow": (
        "The ratio of the epochs that A and ReLU need for 95 % of ReLU's reduction of the training loss, mean over "
        f"seeds. Not slow is supported by an upper bound of at most {SLOW:g}, contradicted by a lower bound above it; "
        "trials that end before count as one epoch more than they have, and support nothing. A ratio that is the same "
        "for every seed is inconclusive."
    ),
    "vanishing": (
        "The smallest layer's share of the gradient against ReLU's own: supported if the lower bound of the mean over "
        "seeds is above a tenth, contradicted if the upper bound is below."
    ),
}


@dataclass(frozen=True)
class Verdict:
    """A claim, what the studies say about it pair by pair, and why in a sentence.

    `missing` says for each pair or row that could not be judged why not; `judged` is how many could; `count` is what a
    claim about most, or about significance, goes by.
    """

    claim: Claim
    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()
    judged: int = 0
    count: str = ""

    @property
    def trials(self) -> tuple[str, ...]:
        """The trials that it rests on."""
        return tuple(dict.fromkeys(digest for finding in self.findings for digest in finding.trials))

    @property
    def scope(self) -> str:
        """How much of the claim was judged, where that is some of it and not all, and the count that decides it."""
        noun = "pairs" if self.claim.b else "rows"
        some = f"judged on {self.judged} of {self.judged + len(self.missing)} {noun}" if self.missing else ""
        return "; ".join(filter(None, (some, self.count))) if self.judged else ""


SAID = 3
"""How many findings the reason of a verdict names."""


def relevant(claims: Iterable[Claim], evidence: Evidence) -> list[Claim]:
    """The claims that name at least one row of the report, and those on seconds where times were measured."""
    return [
        claim for claim in claims
        if (timed(claim) and evidence.timings) or any(evidence.row(ref) for refs_ in refs(claim) for ref in refs_)
    ]  # fmt: skip


def judge(claim: Claim, evidence: Evidence, shipped: Mapping[str, Study]) -> Verdict:
    """The verdict on a claim. `shipped` holds the paper's studies by name, as they stand in the package."""
    made, missing = _times(claim, evidence, shipped) if timed(claim) else _findings(claim, evidence, shipped)
    findings = [f for f in made if f.n]
    missing += [f.words for f in made if not f.n]  # rows without what the claim is about
    if claim.significant:  # the paper's own test is what is counted
        known = [_tested(f) or (claim.quantifier == "all" and f.answer == "contradicted") for f in findings]
        missing += [f"{f.what}: {UNTESTED}" for f, k in zip(findings, known, strict=True) if not k]
        findings = [f for f, k in zip(findings, known, strict=True) if k]
    outcome, count = _outcome(claim, findings, bool(missing))
    findings = _with_corrected(claim, findings)
    judged = len(findings) // len(claim.splits)
    reason = _reason(outcome, findings, missing, count)
    return Verdict(claim, outcome, reason, tuple(findings), tuple(missing), judged, count)


def _findings(claim: Claim, evidence: Evidence, shipped: Mapping[str, Study]) -> tuple[list[Finding], list[str]]:
    judged: dict[int, tuple[RowResults, ...]] = {}
    missing: list[str] = []
    for position, pair in enumerate(refs(claim)):
        rows = tuple(row for ref in pair if (row := evidence.row(ref)) is not None)
        if obstacle := _obstacle(claim, pair, rows, evidence, shipped):
            missing.append(obstacle)
        else:
            judged[position] = rows
    if claim.kind == "largest" and 0 not in judged:  # the gain that all others are compared with is not here
        return [], missing
    made = find(claim, evidence, judged)
    if claim.kind == "solves" and not claim.expected:  # no trial of any row does
        made = [replace(f, answer=OPPOSITE.get(f.answer, f.answer)) for f in made]
    return made, missing


def _times(claim: Claim, evidence: Evidence, shipped: Mapping[str, Study]) -> tuple[list[Finding], list[str]]:
    if claim.scale == "absolute":
        return [], ["these are seconds of another machine"]
    units = [tuple(_unit(shipped[name], key) for name, key in pair) for pair in refs(claim)]
    return find_times(claim, evidence, units), []


def _unit(study: Study, key: str) -> tuple[str, str]:
    row = study.row(key)
    return study.part(row.part).model, kind_of(row)


def _obstacle(
    claim: Claim,
    pair: Sequence[tuple[str, str]],
    rows: Sequence[RowResults],
    evidence: Evidence,
    shipped: Mapping[str, Study],
) -> str:
    """Why these rows cannot be judged; empty where they can."""
    if len(rows) < len(pair):
        where, row = next(ref for ref in pair if evidence.row(ref) is None)
        return f"{row} of {where} is not there" if where in evidence.studies else f"{where} is not in this report"
    for (name, _), result in zip(pair, rows, strict=True):
        study = evidence.studies[name].study
        if study.quick:
            return f"{name} is a quick variant"
        if result.part.partial:
            return f"{result.part.title} has a part of the data ({result.part.partial})"
        if result.row.quoted:
            continue
        if not result.trials:
            return f"{result.row.label} of {result.part.title} was not trained"
        if change := changed(result.row, result.part, study, shipped.get(name)):
            return f"{result.row.label} of {result.part.title} was not trained with the paper's protocol ({change})"
        tested = sum(t.test is not None for t in result.trials)
        least = 1 if claim.metric == PARAMETERS.name else study.trials
        if tested < least or result.best is None:
            return f"{result.row.label} of {result.part.title} has {tested} of {study.trials} trials"
    return ""


def _outcome(claim: Claim, findings: Sequence[Finding], missing: bool) -> tuple[Outcome, str]:
    """What follows from the findings, and the count that decides a claim about most."""
    if not findings:
        return "not run", ""
    of_most, count = _most(claim, findings)
    answer = of_most if claim.quantifier == "most" else _all(claim, findings)
    count = count if claim.quantifier == "most" or claim.significant else ""
    if not claim.expected and claim.kind != "solves":  # not throughout: one that fails is enough
        answer = "inconclusive" if answer == "supported" and missing else OPPOSITE.get(answer, answer)
        return answer, count
    return ("supported where run" if answer == "supported" and missing else answer), count


def _all(claim: Claim, findings: Sequence[Finding]) -> Outcome:
    for finding, p in zip(findings, _corrected(findings), strict=True):
        if finding.answer == "contradicted" and (p is None or p <= LEVEL):
            return "contradicted"
    if claim.significant and _most(claim, findings)[0] == "contradicted":  # all would be most
        return "contradicted"
    if all(f.answer == "supported" for f in findings):
        return "supported" if not claim.significant or all(map(_marked, findings)) else "inconclusive"
    return "negligible" if all(f.answer == "negligible" for f in findings) else "inconclusive"


def _corrected(findings: Sequence[Finding]) -> list[float | None]:
    """Of pairs that are contradicted by themselves, p after Holm's correction over the pairs run; None of others."""
    decisions = [f.comparison.decision if f.comparison else None for f in findings]
    adjusted = stats.holm([float("nan") if d is None else d.p_value for d in decisions])
    by_pair = [d is not None and d.verdict == "contradicted" for d in decisions]
    return [float(p) if of_pair else None for p, of_pair in zip(adjusted, by_pair, strict=True)]


def _with_corrected(claim: Claim, findings: Sequence[Finding]) -> list[Finding]:
    """The findings, where several pairs decide a claim about all with the corrected p of what contradicts it."""
    if claim.quantifier == "most" or len(findings) < 2:
        return list(findings)
    pairs = zip(findings, _corrected(findings), strict=True)
    return [
        f
        if p is None or f.answer != "contradicted"
        else replace(f, ours=f"{f.ours}; p = {p:.2g} after Holm's correction")
        for f, p in pairs
    ]


UNTESTED = "the answers that the paper's test needs are not there"


def _tested(finding: Finding) -> bool:
    return finding.comparison is not None and finding.comparison.test is not None


def _marked(finding: Finding) -> bool:
    return finding.comparison is not None and bool(finding.comparison.mark)


def _most(claim: Claim, findings: Sequence[Finding]) -> tuple[Outcome, str]:
    held = [_marked(f) if claim.significant else f.answer == "supported" for f in findings]
    n, k = len(held), sum(held)
    word = "marked by the paper's test" if claim.significant else "supported"
    count = f"{k} of {n} pairs are {word}"
    if _at_least(k, n) <= LEVEL:
        return "supported", count
    return ("contradicted" if _at_least(n - k, n) <= LEVEL else "inconclusive"), count


def _at_least(k: int, n: int) -> float:
    """The probability of k or more heads in n throws of a fair coin."""
    return float(sum(comb(n, i) for i in range(k, n + 1)) / 2**n)


def _reason(outcome: Outcome, findings: Sequence[Finding], missing: Sequence[str], count: str) -> str:
    if outcome == "not run":
        return _listed(list(dict.fromkeys(missing)))
    return "; ".join(filter(None, (count, _listed([f.words for f in decisive(outcome, findings)]))))


def decisive(outcome: Outcome, findings: Sequence[Finding]) -> list[Finding]:
    """The findings that made the outcome what it is; all of them where none did alone."""
    wanted = {"contradicted": ("contradicted",), "inconclusive": ("inconclusive", "negligible", "contradicted")}
    return [f for f in findings if f.answer in wanted.get(outcome, ())] or list(findings)


def _listed(sentences: Sequence[str]) -> str:
    rest = f"; and {len(sentences) - SAID} more" if len(sentences) > SAID else ""
    return "; ".join(sentences[:SAID]) + rest


# Where a study differs from the paper's own, as the package ships it: such rows carry no verdict.

SHOWN_OF_PART = {"title", "x", "partial"}
"""Fields that change what is printed, not what is trained; a partial mark is told apart."""
SHOWN_OF_ROW = {"label", "paper", "group", "x"}


def deviations(study: Study, paper: Study | None) -> tuple[str, ...]:
    """In words, once each: what of a study is not as the paper's; nothing where there is no study of the paper."""
    if paper is None or study.quick:
        return ()
    changes = [*_trial_changes(study, paper)]
    for part in study.parts:
        changes += _part_changes(part, paper)
    for row in study.rows:
        changes += _row_changes(row, paper)
    return tuple(dict.fromkeys(changes))


def changed(row: Row, part: Part, study: Study, paper: Study | None) -> str:
    """How one row differs from the paper's, in words; "" where it does not."""
    if paper is None:
        return ""
    return ", ".join(
        dict.fromkeys([*_part_changes(part, paper), *_row_changes(row, paper), *_trial_changes(study, paper)])
    )


def _trial_changes(study: Study, paper: Study) -> Iterator[str]:
    if study.trials < paper.trials:
        yield f"{study.trials} trials instead of {paper.trials}"


def _part_changes(part: Part, paper: Study) -> Iterator[str]:
    own = next((other for other in paper.parts if other.name == part.name), None)
    return _fields(part, own, SHOWN_OF_PART) if own else iter([f"{part.title} is no part of the paper's"])


def _row_changes(row: Row, paper: Study) -> Iterator[str]:
    own = next((other for other in paper.rows if other.key == row.key), None)
    return _fields(row, own, SHOWN_OF_ROW) if own else iter([f"{row.key} is no row of the paper's"])


def _fields(ours: Part | Row, theirs: Part | Row, shown: set[str]) -> Iterator[str]:
    for field in sorted(set(type(ours).model_fields) - shown):
        yield from _difference(field, getattr(ours, field), getattr(theirs, field))


def _difference(field: str, ours: Any, theirs: Any) -> Iterator[str]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key in dict.fromkeys((*ours, *theirs)):
            yield from _difference(f"{field}.{key}", ours.get(key), theirs.get(key))
    elif ours != theirs:
        yield f"{field} = {_said(ours)} instead of {_said(theirs)}"


def _said(value: Any) -> str:
    if isinstance(value, tuple | list):
        return f"({', '.join(map(str, value))})"
    return "the protocol's" if value is None else str(value)
