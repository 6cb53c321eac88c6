"""`write`: a report in a folder: the page, Markdown, LaTeX, CSV, and every figure as SVG and PDF."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from apical import files
from apical.errors import InvalidArgumentError
from apical.files import csv_text
from apical.report import draw
from apical.report.charts import slug
from apical.report.difference import StudyDiff, compare_studies
from apical.report.gathering import Report, Section, displayed, gather, slimmer
from apical.report.render import html, latex, markdown
from apical.report.tables import COLUMNS, Table, measured_columns
from apical.study.results import StudyResults

PAGE = "index.html"
LIMIT = 3_000_000
"""Bytes of a page that is mailed, opened on a phone and kept."""


def write(studies: Sequence[StudyResults], folder: str | Path, *, compare: bool = False) -> Path:
    """Write the report of these studies into `folder`; returns the path of the page.

    With `compare`, the first two studies stand side by side as well.
    """
    if not studies:
        raise InvalidArgumentError("studies is empty, but a report needs at least one study")
    if compare and len(studies) != 2:
        raise InvalidArgumentError(
            f"{len(studies)} studies were given, but a comparison needs two: apical report A B --compare"
        )
    target = Path(folder)
    studies = [displayed(results) for results in studies]
    diffs = [compare_studies(*studies)] if compare else []
    try:
        report = gather(studies)  # first: a user's figure that fails leaves nothing half written
        for place in (target, target / "figures", target / "tables"):
            place.mkdir(parents=True, exist_ok=True)
        drawings = {c.name: draw.draw(c, target / "figures", report.palette) for c in report.charts}
        page = _small_page(report, drawings, diffs)
        for name, text in _texts(report, page).items():
            files.write(target / name, text.encode(errors="backslashreplace"), durable=False)
    except OSError as error:
        raise InvalidArgumentError(f"the report cannot be written to {target}: {error.strerror or error}") from error
    return target / PAGE


def _small_page(report: Report, drawings: Mapping[str, str], diffs: Sequence[StudyDiff]) -> str:
    """The whole page, or the first of ever smaller ones that stays within the limit (the smallest where none does)."""
    page = html.page(report, drawings, differences=diffs)
    for smaller in slimmer(report):
        if len(page.encode()) <= LIMIT:
            break
        page = html.page(smaller, drawings, differences=diffs)
    return page


def _texts(report: Report, page: str) -> Mapping[str, str]:
    texts = {
        PAGE: page,
        "report.md": markdown.markdown(report),
        "report.tex": latex.latex(report),
        "claims.md": markdown.claims_page(report),
        "tables/claims.csv": claims_csv(report),
        "tables/trials.csv": trials_csv(report.sections),
    }
    for section in report.sections:
        for table in section.tables:
            name = latex.table_file(section, table)
            texts[f"tables/{name}.tex"] = latex.table_text(section, table)
            texts[f"tables/{name}.csv"] = table_csv(table)
        texts[f"tables/{slug(section.name)}-tests.csv"] = tests_csv(section)
    return texts


# The report's tables as CSV: full precision, with the trials that each number comes from.


def table_csv(table: Table) -> str:
    """One table; values in the trials' own unit (shares of 1), the paper's as it prints them."""
    columns = (*COLUMNS, *measured_columns(table))
    values = {name: value for column in columns for name, value in column.values.items()}
    return csv_text([*values], ([value(table, line) for value in values.values()] for line in table.lines))


def tests_csv(section: Section) -> str:
    """Every pair of a study: the decision over seeds, and the test of the best trials."""
    own = ("difference", "low", "high", "p_value", "seeds", "deviation", "degrees", "pooled", "next_low", "next_high")
    names = ("n", "difference", "low", "high", "test", "p_paper", "p_value", "only_a", "only_b", "effect_name",
             "effect", "needed")  # fmt: skip
    heads = ("a", "b", "metric", "verdict", *("gain" if x == "difference" else x for x in own), "margin", "printed",
             "crossed_low", "crossed_high", *(f"best_{x}" for x in names), "trial_a", "trial_b")  # fmt: skip
    rows = (
        (c.a, c.b, c.metric.name, c.verdict, *_fields(c.decision, own), c.margin, c.printed,
         *_fields(c.crossed, ("low", "high")), *_fields(c.test, names), *(c.test.trials if c.test else ("", "")))
        for c in section.comparisons
    )  # fmt: skip
    return csv_text(heads, rows)


def _fields(values: object, names: Sequence[str]) -> list[Any]:
    return ["" if values is None else getattr(values, name) for name in names]


def claims_csv(report: Report) -> str:
    """Every pair or row of every claim: what the paper prints, ours, and what follows."""
    heads = ("claim", "about", "text", "where", "kind", "verdict", "scope", "pair", "paper", "ours", "n", "finding",
             "trials")  # fmt: skip
    rows: list[Sequence[str]] = []
    for v in report.verdicts:
        common = (v.claim.id, v.claim.about, v.claim.text, v.claim.where, v.claim.kind, v.outcome, v.scope)
        rows += [(*common, f.what, f.paper, f.ours, f.n, f.answer, " ".join(f.trials)) for f in v.findings]
        rows += [(*common, "", "", "", "", f"missing: {why}", "") for why in dict.fromkeys(v.missing)]
    return csv_text(heads, rows)


def trials_csv(sections: Iterable[Section]) -> str:
    """Every trial of the report."""
    heads = ("study", "digest", "row", "setting", "seed", "state", "best_epoch", "validation", "test", "seconds")
    rows = (
        (s.study.name, t.digest, t.row, t.setting, t.seed, t.state, t.best_epoch,
         t.validation.value if t.validation else "", t.test.value if t.test else "", t.seconds)
        for s in sections for t in s.trials
    )  # fmt: skip
    return csv_text(heads, rows)
