"""The report as Markdown: names are escaped, so that they come out as text."""

import re
from collections.abc import Iterable, Sequence

from apical.report.charts import Dots
from apical.report.claims.verdicts import Verdict
from apical.report.gathering import Report, Section, by_topic, counted, marks, progress
from apical.report.numbers import MISSING, Data
from apical.report.tables import Cell, Table, columns_of

SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~$^&@-]|:(?=\S)|=(?==)|^[:=])")
"""What may mean something in Markdown; a colon only where an address or a symbol could begin, = where it repeats."""


PAIRS = 12
"""How many pairs of a claim its row names."""


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
    charts = [c for c in report.charts if not (isinstance(c, Dots) and c.narrow)]
    blocks += ["## Figures", *(f"![{escape(c.alt)}](figures/{c.name}.svg)" for c in charts)]
    return "\n\n".join(blocks) + "\n"


def claims_page(report: Report) -> str:
    """A page of its own: every claim, by what it is about."""
    titles = "; ".join(escape(section.title) for section in report.sections)
    made = f"Made {report.made} by apical {report.version} from these studies: {titles}."
    return "\n\n".join(["# What the studies say about the paper's claims", made, *claims(report, level="##")]) + "\n"


def claims(report: Report, *, level: str = "##") -> list[str]:
    """Every claim about the studies: where it stands, the paper's number, ours with interval and n, the verdict."""
    if not report.verdicts:
        return []
    unjudged = [v for v in report.verdicts if v.outcome == "not run"]
    blocks = []
    for topic, verdicts in by_topic([v for v in report.verdicts if v.outcome != "not run"]).items():
        heads = ("Claim", "Verdict", "Compared", "The paper", "Ours, with 95 % interval", "n", "Finding")
        rows = [row for v in verdicts for row in _claim(v)]
        blocks += [f"{level} Claims: {topic}", f"{len(verdicts)}: {counted(verdicts)}.", table(heads, rows)]
    if unjudged:
        rows = [(_claimed(v), escape(v.reason)) for v in unjudged]
        blocks += [f"{level} Claims that were not run", table(("Claim", "Why"), rows)]
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
    if section.answer is not None:
        blocks += [f"**{head}.** {escape(text)}" for head, text in section.answer.lines]
        heads, *rows = section.answer.cells or ((),)
        blocks += [table(heads, [[escape(cell) for cell in row] for row in rows])] if rows else []
    for results in section.tables:
        blocks += [
            f"### {escape(results.title)}: {escape(results.heading)}",
            _table(results),
            *map(escape, results.remarks),
        ]
    blocks += ["### Data", _data(section.data)]
    if section.results.missing:
        blocks += ["### Missing", "\n".join(f"- {escape(line)}" for line in section.results.missing)]
    facts = [f"- {escape(k)}: {escape(v)}" for k, v in section.results.environment.items()]
    facts += [f"- command: {escape(c)}" for c in section.commands]
    return [*blocks, "### How it was run", "\n".join(facts) or "No trial has run yet."]


def _data(data: Sequence[Data]) -> str:
    heads = ("Data set", "Changed", "Train", "Validation", "Test", "Classes")
    rows = [
        (escape(d.name), escape(d.changes) or MISSING, *map(_size, (d.train, d.validation, d.test)),
         f"{len(d.classes)}: {escape(d.named)}" if d.classes else MISSING)
        for d in data
    ]  # fmt: skip
    return table(heads, rows, right=(2, 3, 4))


def _size(count: int | None) -> str:
    return MISSING if count is None else f"{count:,}"


def _table(results: Table) -> str:
    columns = columns_of(results)
    rows = [[_cell(column.cell(line)) for column in columns] for line in results.lines]
    heads = [column.title(results) for column in columns]
    return table(heads, rows, right=[k for k, column in enumerate(columns) if column.right])


def _cell(cell: Cell) -> str:
    if cell.number is not None:
        text = (f"**{cell.number.text}**" if cell.strong else cell.number.text) + (cell.mark or "")
        return f"{text} ± {cell.spread.text}" if cell.spread else text
    return escape(cell.text + (cell.mark or "")) or MISSING
