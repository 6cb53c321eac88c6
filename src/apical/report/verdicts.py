"""Which claims of the paper do the studies of a report reproduce? By `apical.report.rules`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from math import ceil

from apical.report.evidence import Evidence, Pair
from apical.report.findings import MEASURED, find, metric_of, refs
from apical.report.rules import Finding, Outcome, Verdict
from apical.study.claim import Claim
from apical.study.file import Study
from apical.study.results import RowResults

SAID = 3
"""How many findings the reason of a verdict names."""


def relevant(claims: Iterable[Claim], evidence: Evidence) -> list[Claim]:
    """The claims that name at least one row of the report."""
    return [claim for claim in claims if any(evidence.row(ref) for refs_ in refs(claim) for ref in refs_)]


def needed_tests(claim: Claim, evidence: Evidence) -> Iterator[Pair]:
    """The paired tests that a claim needs, of rows that the report has."""
    for pair in refs(claim):
        rows = [evidence.row(ref) for ref in pair]
        if len(pair) == 2 and rows[0] is not None and rows[1] is not None:
            metric = metric_of(claim, rows[0])
            if metric not in MEASURED:
                yield pair[0], pair[1], metric


def judge(claim: Claim, evidence: Evidence, shipped: Mapping[str, Study]) -> Verdict:
    """The verdict on a claim. `shipped` holds the paper's studies by name, as they stand in the package."""
    found: list[Finding] = []
    obstacles: list[str] = []
    for position, pair in enumerate(refs(claim)):
        rows = tuple(row for ref in pair if (row := evidence.row(ref)) is not None)
        obstacle = _obstacle(pair, rows, evidence, shipped)
        if obstacle:
            obstacles.append(obstacle)
        else:
            found += find(claim, evidence, position, rows)
    outcome = _outcome(claim, found, len(obstacles))
    trials = tuple(dict.fromkeys(digest for f in found for digest in f.trials))
    return Verdict(claim, outcome, _reason(claim, outcome, found, obstacles), trials)


def _obstacle(
    pair: Sequence[tuple[str, str]], rows: Sequence[RowResults], evidence: Evidence, shipped: Mapping[str, Study]
) -> str:
    """Why these rows cannot be judged; empty where they can."""
    if len(rows) < len(pair):
        where, row = next(ref for ref in pair if evidence.row(ref) is None)
        return f"{row} of {where} is not there" if where in evidence.studies else f"{where} is not in this report"
    for (name, _), found in zip(pair, rows, strict=True):
        study = evidence.studies[name].study
        if study.quick:
            return f"{name} is a quick variant"
        if found.part.partial:
            return f"{found.part.title} has a part of the data ({found.part.partial})"
        if found.row.quoted:
            continue
        if _changed(found, study, shipped.get(name)):
            return f"{found.part.title} was not trained with the paper's protocol"
        tested = sum(t.test is not None for t in found.trials)
        if tested < study.trials or found.best is None:
            return f"{found.row.label} of {found.part.title} has {tested} of {study.trials} trials"
    return ""


def _changed(found: RowResults, study: Study, paper: Study | None) -> bool:
    if paper is None:
        return False
    parts = {part.name: part for part in paper.parts}
    rows = {row.key: row for row in paper.rows}
    same = parts.get(found.part.name) == found.part and rows.get(found.row.key) == found.row
    return not same or study.trials < paper.trials


def _outcome(claim: Claim, found: Sequence[Finding], missing: int) -> Outcome:
    """By the share of findings that must be shown; what is missing may still be either."""
    turn = 1 if claim.expected or claim.kind == "stable" else -1
    shown, refuted = (sum(turn * f.sign == sign for f in found) for sign in (1, -1))
    if claim.kind == "stable" and not claim.expected:  # one row that does not converge is enough
        return "reproduced" if refuted else "no verdict" if missing else "not reproduced"
    total = len(found) + missing
    needed = ceil(claim.share * total)
    if refuted > total - needed:
        return "not reproduced"
    if missing:
        return "no verdict"
    return "reproduced" if shown >= needed else "undecided"


def _reason(claim: Claim, outcome: Outcome, found: Sequence[Finding], obstacles: Sequence[str]) -> str:
    if outcome == "no verdict":
        return _so_far(found) + _listed(list(dict.fromkeys(obstacles)))
    if outcome == "undecided":
        decisive = [f for f in found if f.sign <= 0]
    elif outcome == "not reproduced":
        worst = min((f.sign for f in found), default=0) if claim.expected else max((f.sign for f in found), default=0)
        decisive = [f for f in found if f.sign == worst]
    else:
        decisive = list(found)
    return _listed([f.words for f in decisive])


def _so_far(found: Sequence[Finding]) -> str:
    """What the rows that are here say, where others are missing."""
    if not found:
        return ""
    signs = [f.sign for f in found]
    return f"here {signs.count(1)} shown, {signs.count(-1)} refuted, {signs.count(0)} open; missing: "


def _listed(sentences: Sequence[str]) -> str:
    rest = f"; and {len(sentences) - SAID} more" if len(sentences) > SAID else ""
    return "; ".join(sentences[:SAID]) + rest
