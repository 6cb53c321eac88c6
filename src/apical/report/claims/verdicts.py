"""Which claims of the paper do the studies of a report reproduce? By `apical.report.claims.rules`."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil

from apical.report.claims.findings import MEASURED, find, metric_of, refs
from apical.report.claims.rules import Finding, Outcome, Verdict
from apical.report.comparison import Evidence, Pair
from apical.report.protocol import changed
from apical.study.claim import Claim
from apical.study.model import Study
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
            found += [_as_claimed(claim, f) for f in here if f.n]
            missing += [f.words for f in here if not f.n][:1]  # rows without what the claim is about
            judged += all(f.n for f in here)
    outcome = _outcome(claim, found, len(missing))
    return Verdict(claim, outcome, _reason(outcome, found, missing), tuple(found), tuple(missing), judged)


def _as_claimed(claim: Claim, found: Finding) -> Finding:
    """Turned round where the paper says that something does not happen."""
    return found if claim.expected else replace(found, sign=-found.sign)


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
        if change := changed(found.row, found.part, study, shipped.get(name)):
            return f"{found.row.label} of {found.part.title} was not trained with the paper's protocol ({change})"
        tested = sum(t.test is not None for t in found.trials)
        if tested < study.trials or found.best is None:
            return f"{found.row.label} of {found.part.title} has {tested} of {study.trials} trials"
    return ""


def _outcome(claim: Claim, found: Sequence[Finding], missing: int) -> Outcome:
    """By the share of findings that must be shown; of a claim with missing rows, on those that are here."""
    if not found:
        return "no verdict"
    shown, refuted = (sum(f.sign == sign for f in found) for sign in (1, -1))
    if claim.kind == "stable" and not claim.expected:  # one row that does not converge is enough
        return "reproduced" if shown else "not reproduced where run" if missing else "not reproduced"
    needed = ceil(claim.share * len(found))
    if refuted > len(found) - needed:
        return "not reproduced where run" if missing and claim.share < 1 else "not reproduced"
    if shown >= needed:
        return "reproduced where run" if missing else "reproduced"
    return "undecided"


def _reason(outcome: Outcome, found: Sequence[Finding], missing: Sequence[str]) -> str:
    if outcome == "no verdict":
        return _listed(list(dict.fromkeys(missing)))
    return _listed([f.words for f in decisive(outcome, found)])


def decisive(outcome: Outcome, found: Sequence[Finding]) -> list[Finding]:
    """The findings that made the outcome what it is."""
    if outcome == "undecided":
        return [f for f in found if f.sign <= 0]
    if outcome.startswith("not reproduced"):
        worst = min(f.sign for f in found)
        return [f for f in found if f.sign == worst]
    return list(found)


def _listed(sentences: Sequence[str]) -> str:
    rest = f"; and {len(sentences) - SAID} more" if len(sentences) > SAID else ""
    return "; ".join(sentences[:SAID]) + rest
