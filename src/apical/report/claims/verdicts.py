"""Which claims of the paper do the studies of a report reproduce? The rules in words, the verdicts, the protocol."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any, Literal, get_args

from apical.report.claims.findings import VANISHED, Finding, find, metric_of, refs
from apical.report.comparison import LEVEL, Evidence, Pair
from apical.study.claim import Claim
from apical.study.model import Part, Row, Study
from apical.study.results import RowResults

Outcome = Literal[
    "reproduced", "reproduced where run", "not reproduced", "not reproduced where run", "undecided", "no verdict"
]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)
"""`where run`: on the pairs or rows that this report has, while others are missing that could change the answer."""

RULES = {
    "who is judged": (
        "Finished rows of the paper's own protocol. Quick variants, partial data, changed settings (a coarser grid, "
        "fewer trials) and unfinished rows give no verdict."
    ),
    "how": (
        "Each pair or row of a claim is shown, refuted or open. Reproduced: all are shown (or the share that the "
        "claim asks for). Not reproduced: so many are refuted that this cannot be. Else undecided at this number "
        "of samples and trials. Where the paper says that something does not happen, the answer is turned round. "
        "A claim of which only some pairs or rows were run is judged on these, and says so: reproduced (or not) "
        "where run. One refuted pair refutes a claim about all, whatever is missing."
    ),
    "better": (
        "Shown: the best trials (by validation) differ in the claimed direction, the exact test's p adjusted by "
        f"Holm over all tests of the study is at most {LEVEL}, the 95 % bootstrap interval of the difference "
        "excludes 0, and the mean over trials with equal seeds points the same way. Refuted: all of that the other "
        "way round; or neither the best trials nor the mean over trials show a gain, and the interval, made wider "
        "(see gain), lies below the printed difference. On validation, for seconds and for errors on a "
        "curve: shown where every trial with equal seeds agrees and the 95 % interval of the mean (of the ratio, for "
        "seconds and curves) does too, refuted where all that is the other way round. Against a quoted number: two "
        "standard errors of the difference of two such shares beyond it."
    ),
    "gain": (
        "Shown: the interval of the difference contains the printed gain (or lies wholly above it for at least, "
        "below it for at most) and lies above 0. Refuted: made wider, it excludes the printed gain (lies wholly below "
        "it for at least, above it for at most). Else open. Made wider: by the square root of 2, because the printed "
        "difference is as uncertain as ours, and to 95 % for all pairs of the claim together, run or not (Bonferroni). "
        "So a pair may be refuted in a claim about itself and open in one about many."
    ),
    "largest": (
        "The first gain as above. Another gain is shown to be smaller, or refuted by being larger, where the two "
        "differ by more than the root of the sum of squares of their intervals' half widths. Else open."
    ),
    "value": "Shown: within two standard errors of sample and trials together of the printed value. Else refuted.",
    "range": "Shown: inside the printed range. Refuted: outside by more than two standard errors. Else open.",
    "cost": (
        "Parameters, or the median seconds per epoch after the first, beyond the other row's: shown where every "
        "trial lies in the printed range, refuted where every trial lies outside. Times are those of this "
        "machine, and of trials that shared no program with others."
    ),
    "stable": (
        "Shown: no trial diverged or failed, every training loss fell, and the best trial is right more often "
        "than the largest class alone explains (three standard errors). Else refuted."
    ),
    "solves": (
        "Shown: at least one trial answers every point right. Else refuted. How many of them do is printed with its "
        "95 % interval (Wilson's)."
    ),
    "vanishing": (
        f"Shown: in no epoch of any trial is a layer's gradient norm below {VANISHED:g} of the largest layer's. "
        "Else refuted."
    ),
}


@dataclass(frozen=True)
class Verdict:
    """A claim, what the studies say about it pair by pair, and why in a sentence.

    `missing` says for each pair or row that could not be judged why not; `judged` is how many could.
    """

    claim: Claim
    outcome: Outcome
    reason: str
    findings: tuple[Finding, ...] = ()
    missing: tuple[str, ...] = ()
    judged: int = 0

    @property
    def trials(self) -> tuple[str, ...]:
        """The trials that it rests on."""
        return tuple(dict.fromkeys(digest for finding in self.findings for digest in finding.trials))

    @property
    def scope(self) -> str:
        """How much of the claim was judged, where that is some of it and not all."""
        if not self.missing or not self.judged:
            return ""
        noun = "pairs" if self.claim.b else "rows"
        return f"judged on {self.judged} of {self.judged + len(self.missing)} {noun}"


# Which claims of the paper do the studies of a report reproduce? By `apical.report.claims.verdicts`.

SAID = 3
"""How many findings the reason of a verdict names."""


def relevant(claims: Iterable[Claim], evidence: Evidence) -> list[Claim]:
    """The claims that name at least one row of the report."""
    return [claim for claim in claims if any(evidence.row(ref) for refs_ in refs(claim) for ref in refs_)]


def needed_tests(claim: Claim, evidence: Evidence) -> Iterator[Pair]:
    """The paired tests that a claim needs, of rows that the report has."""
    for position, pair in enumerate(refs(claim)):
        rows = [evidence.row(ref) for ref in pair]
        if len(pair) == 2 and rows[0] is not None and rows[1] is not None:
            metric = metric_of(claim, evidence, position)
            if not metric.by_trial:
                yield pair[0], pair[1], metric.name


def judge(claim: Claim, evidence: Evidence, shipped: Mapping[str, Study]) -> Verdict:
    """The verdict on a claim. `shipped` holds the paper's studies by name, as they stand in the package."""
    findings: list[Finding] = []
    missing: list[str] = []
    judged = 0
    for position, pair in enumerate(refs(claim)):
        rows = tuple(row for ref in pair if (row := evidence.row(ref)) is not None)
        obstacle = _obstacle(pair, rows, evidence, shipped)
        if claim.kind == "largest" and missing and not judged:
            obstacle = missing[0]  # the gain that all others are compared with is not here
        if obstacle:
            missing.append(obstacle)
        else:
            here = list(find(claim, evidence, position, rows))
            findings += [_as_claimed(claim, f) for f in here if f.n]
            missing += [f.words for f in here if not f.n][:1]  # rows without what the claim is about
            judged += all(f.n for f in here)
    outcome = _outcome(claim, findings, len(missing))
    return Verdict(claim, outcome, _reason(outcome, findings, missing), tuple(findings), tuple(missing), judged)


def _as_claimed(claim: Claim, finding: Finding) -> Finding:
    """Turned round where the paper says that something does not happen."""
    return finding if claim.expected else replace(finding, sign=-finding.sign)


def _obstacle(
    pair: Sequence[tuple[str, str]], rows: Sequence[RowResults], evidence: Evidence, shipped: Mapping[str, Study]
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
        if change := changed(result.row, result.part, study, shipped.get(name)):
            return f"{result.row.label} of {result.part.title} was not trained with the paper's protocol ({change})"
        tested = sum(t.test is not None for t in result.trials)
        if tested < study.trials or result.best is None:
            return f"{result.row.label} of {result.part.title} has {tested} of {study.trials} trials"
    return ""


def _outcome(claim: Claim, findings: Sequence[Finding], missing: int) -> Outcome:
    """By the share of findings that must be shown; of a claim with missing rows, on those that are here."""
    if not findings:
        return "no verdict"
    shown, refuted = (sum(f.sign == sign for f in findings) for sign in (1, -1))
    if claim.kind == "stable" and not claim.expected:  # one row that does not converge is enough
        return "reproduced" if shown else "not reproduced where run" if missing else "not reproduced"
    needed = ceil(claim.share * len(findings))
    if refuted > len(findings) - needed:
        return "not reproduced where run" if missing and claim.share < 1 else "not reproduced"
    if shown >= needed:
        return "reproduced where run" if missing else "reproduced"
    return "undecided"


def _reason(outcome: Outcome, findings: Sequence[Finding], missing: Sequence[str]) -> str:
    if outcome == "no verdict":
        return _listed(list(dict.fromkeys(missing)))
    return _listed([f.words for f in decisive(outcome, findings)])


def decisive(outcome: Outcome, findings: Sequence[Finding]) -> list[Finding]:
    """The findings that made the outcome what it is."""
    if outcome == "undecided":
        return [f for f in findings if f.sign <= 0]
    if outcome in ("not reproduced", "not reproduced where run"):
        worst = min(f.sign for f in findings)
        return [f for f in findings if f.sign == worst]
    return list(findings)


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
