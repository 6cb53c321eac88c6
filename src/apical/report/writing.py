"""`write`: a report in a folder: the page, Markdown, LaTeX, CSV, and every figure as SVG and PDF."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from apical.errors import InvalidArgumentError
from apical.report import draw
from apical.report.charts import slug
from apical.report.difference import Sides, compare_studies
from apical.report.gathering import Report, gather, slimmer
from apical.report.render import csv, html, latex, markdown
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
            f"{len(studies)} studies were given, but two are compared: apical report A B --compare"
        )
    sides = [compare_studies(*studies)] if compare else []
    target = Path(folder)
    try:
        for place in (target, target / "figures", target / "tables"):
            place.mkdir(parents=True, exist_ok=True)
        report = gather(studies)
        drawings = {chart.name: draw.draw(chart, target / "figures") for chart in html.charts_of(report)}
        page = _small_page(report, drawings, sides)
        for name, text in _texts(report, page).items():
            (target / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise InvalidArgumentError(f"the report cannot be written to {target}: {error.strerror or error}") from error
    return target / PAGE


def _small_page(report: Report, drawings: Mapping[str, str], sides: Sequence[Sides]) -> str:
    """The whole page, or the first of ever smaller ones that stays within the limit (the smallest where none does)."""
    page = html.page(report, drawings, comparisons=sides)
    for smaller in slimmer(report):
        if len(page.encode()) <= LIMIT:
            break
        page = html.page(smaller, drawings, comparisons=sides)
    return page


def _texts(report: Report, page: str) -> Mapping[str, str]:
    texts = {
        PAGE: page,
        "report.md": markdown.markdown(report),
        "report.tex": latex.latex(report),
        "claims.md": markdown.claims_page(report),
        "tables/claims.csv": csv.claims_csv(report),
        "tables/trials.csv": csv.trials_csv(report.sections),
    }
    for section in report.sections:
        for table in section.tables:
            name = latex.table_file(section, table)
            texts[f"tables/{name}.tex"] = latex.table_text(section, table)
            texts[f"tables/{name}.csv"] = csv.table_csv(table)
        texts[f"tables/{slug(section.name)}-tests.csv"] = csv.tests_csv(section)
    return texts
