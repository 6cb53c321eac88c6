"""The report as Markdown: names are escaped, so that they come out as text."""

import re
from collections.abc import Callable, Iterable, Sequence

from apical.report.claims.verdicts import Verdict
from apical.report.comparison import Comparison
from apical.report.gathering import Report, Section, marks, progress
from apical.report.numbers import MISSING, show_p
from apical.report.render.html import charts_of, has_paper, has_solved, has_tests, value_head
from apical.report.tables import Data, Line, Table

SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~$^&@-]|:(?=\S)|=(?==)|^[:=])")
"""What may mean something in Markdown; a colon only where an address or a symbol could begin, = where it repeats."""


PAIRS = 12
"""How many pairs of a claim its row names."""
Column = tuple[str, Callable[[Line], str], bool]


def escape(text: str) -> str:
    """Text that Markdown shows as it is; line ends become spaces."""
    return SPECIAL.sub(r"\\\1", " ".join(text.split()))


def markdown(report: Report) -> str:
    """The whole report."""
    blocks = [f"# {escape(report.title)}", f"Made {report.made} by apical {report.version}."]
    blocks += [escape(line) for line in report.summary]
    blocks += claims(report)
    for section in report.sections:
        blocks += _section(section)
    blocks += ["## Figures", *(f"![{escape(c.alt)}](figures/{c.name}.svg)" for c in charts_of(report))]
    return "\n\n".join(blocks) + "\n"


def claims_page(report: Report) -> str:
    """A page of its own: what reproduced and what did not."""
    titles = "; ".join(escape(section.title) for section in report.sections)
    made = f"Made {report.made} by apical {report.version} from these studies: {titles}."
    return "\n\n".join(["# What reproduced and what did not", made, *claims(report, level="##")]) + "\n"


def claims(report: Report, *, level: str = "##") -> list[str]:
    """Every claim about the studies: where it stands, the paper's number, ours with interval and n, the verdict."""
    if not report.verdicts:
        return []
    judged = [v for v in report.verdicts if v.outcome != "no verdict"]
    unjudged = [v for v in report.verdicts if v.outcome == "no verdict"]
    blocks = []
    if judged:
        heads = ("Claim", "Verdict", "Compared", "The paper", "Ours, with 95 % interval", "n", "Finding")
        rows = [row for v in judged for row in _claim(v)]
        blocks += [f"{level} Claims", table(heads, rows)]
    if unjudged:
        rows = [(_claimed(v), escape(v.reason)) for v in unjudged]
        blocks += [f"{level} Claims without a verdict", table(("Claim", "Why"), rows)]
    rule = "\n".join(f"- **{escape(kind)}**: {escape(rule)}" for kind, rule in report.rules.items())
    return [*blocks, f"{level} The rule", rule]


def _claim(verdict: Verdict) -> list[Sequence[str]]:
    """Rows of a claim: what it says and the verdict stand in the first, each pair has one."""
    scope = f"<br>{escape(verdict.scope)}" if verdict.scope else ""
    first = (_claimed(verdict), f"**{verdict.outcome}**{scope}")
    rows: list[Sequence[str]] = []
    for f in verdict.findings[:PAIRS]:
        cells = (escape(f.what), escape(f.paper) or "no number", escape(f.ours), escape(f.n) or MISSING, f.answer)
        rows.append((*first, *cells))
        first = ("", "")
    if rest := len(verdict.findings) - len(rows):
        rows.append(("", "", f"and {rest} more, in tables/claims.csv", "", "", "", ""))
    return rows


def _claimed(verdict: Verdict) -> str:
    """What the claim says, where, and what is to be known about it."""
    claim = verdict.claim
    own = " The paper's own tables disagree." if claim.consistent is False else ""
    note = f" {escape(claim.note)}" if claim.note else ""
    return f"{escape(claim.text)}<br>*{escape(claim.where)}.*{own}{note}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """A table of cells that are escaped already; `right` names the columns that stand to the right."""
    rule = [" ---: " if k in right else " --- " for k in range(len(heads))]
    lines = [f"| {' | '.join(heads)} |", f"|{'|'.join(rule)}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def _section(section: Section) -> list[str]:
    study = section.study
    blocks = [f"## {escape(section.title)}", *(f"**{escape(mark)}**" for mark in marks(section))]
    blocks += [escape(line) for line in (study.source, *study.notes) if line]
    if not section.results.finished:
        blocks.append(f"**Unfinished.** {escape(progress(section))}. This runs the rest: {escape(section.command)}")
    for found in section.tables:
        blocks += [f"### {escape(found.title)}: {escape(found.heading)}", _table(found), *map(escape, found.remarks)]
    blocks += ["### Data", _data(section.data)]
    if section.results.missing:
        blocks += ["### Missing", "\n".join(f"- {escape(line)}" for line in section.results.missing)]
    facts = [f"- {escape(k)}: {escape(v)}" for k, v in section.results.environment.items()]
    facts += [f"- command: {escape(c)}" for c in section.commands]
    return [*blocks, "### Circumstances", "\n".join(facts) or "No trial has run yet."]


def _data(found: Sequence[Data]) -> str:
    heads = ("Data set", "Changed", "Train", "Validation", "Test", "Classes")
    rows = [
        (escape(d.name), escape(d.changes) or MISSING, *map(_size, (d.train, d.validation, d.test)),
         f"{len(d.classes)}: {escape(d.named)}" if d.classes else MISSING)
        for d in found
    ]  # fmt: skip
    return table(heads, rows, right=(2, 3, 4))


def _size(count: int | None) -> str:
    return MISSING if count is None else f"{count:,}"


def _table(found: Table) -> str:
    columns = columns_of(found)
    rows = [[cell(line) for _, cell, _ in columns] for line in found.lines]
    return table([head for head, _, _ in columns], rows, right=[k for k, c in enumerate(columns) if c[2]])


def columns_of(found: Table) -> list[Column]:
    """Head, cell and whether it is a number, of the columns that this table needs."""
    paper: list[Column] = [("Paper", lambda x: escape(f"{x.paper}{x.paper_mark}") or MISSING, True)]
    difference: list[Column] = [("Ours − paper", lambda x: x.difference.text if x.difference else MISSING, True)]
    solved: list[Column] = [("Solved", lambda x: escape(x.solved) or MISSING, True)]
    tests: list[Column] = [
        ("p: baseline (Holm)", lambda x: _p(x.baseline), True),
        ("p: best rival (Holm)", lambda x: _p(x.rival), True),
    ]
    return [
        ("Unit", lambda x: escape(x.label), False),
        ("Parameter", lambda x: escape(x.parameter) or MISSING, False),
        *(paper if has_paper(found) else []),
        (value_head(found), _ours, True),
        *(difference if has_paper(found) else []),
        ("Mean ± sd", _mean, True),
        ("Trials", lambda x: x.trials, True),
        *(solved if has_solved(found) else []),
        *(tests if has_tests(found) else []),
    ]


def _ours(line: Line) -> str:
    if line.ours is None:
        return MISSING
    return f"**{line.ours.text}**{line.mark}" if line.best else f"{line.ours.text}{line.mark}"


def _mean(line: Line) -> str:
    if line.mean is None:
        return MISSING
    return f"{line.mean.text} ± {line.deviation.text}" if line.deviation else line.mean.text


def _p(found: Comparison | None) -> str:
    if found is None:
        return MISSING
    return escape(f"{found.direction} {show_p(found.p_value)} ({show_p(found.p_holm)})".strip())
