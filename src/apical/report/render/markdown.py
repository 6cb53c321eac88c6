"""The report as Markdown: names are escaped, so that they come out as text."""

import re
from collections.abc import Iterable, Mapping, Sequence

from apical.report.charts import Dots
from apical.report.claims.verdicts import Verdict
from apical.report.gathering import Report, Section, by_topic, counted, marks, notices
from apical.report.numbers import MISSING, Data
from apical.report.tables import Cell, Table, columns_of

SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~$^&@-]|:(?=\S)|=(?==)|^[:=]|(?<=www)\.)")
"""What may mean something in Markdown; a colon only where an address or a symbol could begin, = where it repeats, a
point where an address could."""


PAIRS = 12
"""How many pairs of a claim its table names."""


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
        blocks += [f"{level} Claims: {topic}", f"{len(verdicts)}: {counted(verdicts)}."]
        blocks += [block for v in verdicts for block in _claim(v)]
    if unjudged:
        rows = [(_claimed(v), escape(v.reason)) for v in unjudged]
        blocks += [f"{level} Claims that were not run", table(("Claim", "Why"), rows)]
    return [*blocks, *rules(report.rules, level=level)]


def rules(by_kind: Mapping[str, str], *, level: str = "##") -> list[str]:
    """The rule of each kind of claim in words."""
    listed = "\n".join(f"- **{escape(kind)}**: {escape(rule)}" for kind, rule in by_kind.items())
    return [f"{level} The rule", listed] if listed else []


def _claim(verdict: Verdict) -> list[str]:
    """The verdict and what the claim says; below it the pairs, in few columns, so that a phone shows them all."""
    shown, rest = verdict.findings[:PAIRS], len(verdict.findings) - PAIRS
    scope = f" ({escape(verdict.scope)})" if verdict.scope else ""
    printed = any(f.paper for f in shown)
    rows = [
        [escape(f.what), *([escape(f.paper) or "no number"] if printed else []),
         "; ".join(escape(part) for part in (f.ours, f.n) if part) or MISSING, f.said]
        for f in shown
    ]  # fmt: skip
    heads = ["Compared", *(["Paper"] if printed else []), "Ours, with 95 % interval and n", "Finding"]
    pairs = [table(heads, rows)] if rows else []
    more = [f"And {rest} more, in tables/claims.csv."] if rest > 0 else []
    return [f"**{verdict.outcome}**{scope}: {_claimed(verdict)}", *pairs, *more]


def _claimed(verdict: Verdict) -> str:
    """What the claim says, where, and what is to be known about it."""
    claim = verdict.claim
    own = " The paper's own tables disagree." if claim.consistent is False else ""
    note = f" {escape(claim.note)}" if claim.note else ""
    return f"{escape(claim.text)} *{escape(claim.where)}.*{own}{note}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()) -> str:
    """A table of cells that are escaped already; `right` names the columns that stand to the right."""
    rule = [" ---: " if k in right else " --- " for k in range(len(heads))]
    lines = [f"| {' | '.join(heads)} |", f"|{'|'.join(rule)}|", *(f"| {' | '.join(row)} |" for row in rows)]
    return "\n".join(lines)


def _section(section: Section) -> list[str]:
    study = section.study
    blocks = [f"## {escape(section.title)}", *(f"**{escape(mark)}**" for mark in marks(section))]
    blocks += [escape(line) for line in (study.source, *study.notes) if line]
    blocks += [" ".join((escape(n.words), escape(" and ".join(n.commands)))).strip() for n in notices(section)]
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
    heads = [escape(column.title(results)) for column in columns]
    return table(heads, rows, right=[k for k, column in enumerate(columns) if column.right])


def _cell(cell: Cell) -> str:
    if cell.number is not None:
        text = (f"**{cell.number.text}**" if cell.strong else cell.number.text) + (cell.mark or "")
        return f"{text} ± {cell.spread.text}" if cell.spread else text
    return escape(cell.text + (cell.mark or "")) or MISSING
