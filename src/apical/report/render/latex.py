"""The report as LaTeX with booktabs: a document that compiles, and each table in a file to paste."""

import unicodedata
from collections.abc import Sequence

from apical.report.charts import Chart, Dots, Forest, Pictures, slug
from apical.report.claims.verdicts import Verdict
from apical.report.gathering import Report, Section, marked_by, marks, notices
from apical.report.numbers import Data
from apical.report.tables import Cell, Table, columns_of

_COMMANDS = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "^": r"\textasciicircum{}", "~": r"\textasciitilde{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}",
    "[": "{[}", "*": "{*}",  # bare, they would be arguments of the end of a row, or of an item
    "†": r"$^\dagger$", "‡": r"$^\ddagger$", "−": "$-$", "–": "--", "±": r"$\pm$", "×": r"$\times$", "≤": r"$\le$",
    "α": r"$\alpha$", "β": r"$\beta$", "σ": r"$\sigma$", "π": r"$\pi$", "\u202f": r"\,",
}  # fmt: skip

HEAD = r"""\documentclass[10pt]{article}
\usepackage[T1]{fontenc}
\usepackage{textcomp}
\usepackage[a4paper,margin=2cm]{geometry}
\usepackage{booktabs}
\usepackage{graphicx}
\setlength{\parindent}{0pt}
\setlength{\parskip}{4pt}
\raggedbottom
\makeatletter\setlength{\@fptop}{0pt}\makeatother
\begin{document}
"""


MARKED = (
    r"$^\dagger$, $^\ddagger$: better than the group's baseline at 0.05, 0.01 by {} of the best trials. "
    "Bold: best of its group."
)
GAIN = "Gain: mean over trials with equal seeds; bold where the row is better."
CHOSEN = " Ours: the trial that is best by validation. Diff.: ours $-$ paper. "


def escape(text: str) -> str:
    """Text that LaTeX prints as it is; letters that its basic fonts lack lose their accents, or become their number."""
    return "".join(_COMMANDS.get(c) or (c if " " <= c <= "~" else _plain(c)) for c in " ".join(text.split()))


def latex(report: Report) -> str:
    """The whole document; it takes `tables/*.tex` and `figures/*.pdf` from beside it."""
    parts = [HEAD, rf"\section*{{{escape(report.title)}}}", f"Made {escape(report.made)} by apical {report.version}."]
    parts += [escape(line) + "\n" for line in report.summary]
    parts += _claims(report.verdicts)
    for section in report.sections:
        parts += _section(section)
    parts += _figures([c for c in report.charts if not (isinstance(c, Dots) and c.narrow)])
    return "\n".join([*parts, r"\end{document}", ""])


def _figures(charts: Sequence[Chart]) -> list[str]:
    """Two in a line; wide ones have one to themselves."""
    wide = [c for c in charts if isinstance(c, Pictures | Forest | Dots)]
    names = [rf"\includegraphics[width=0.48\linewidth]{{figures/{c.name}.pdf}}" for c in charts if c not in wide]
    lines = [r"\hfill".join(names[k : k + 2]) + r"\par" for k in range(0, len(names), 2)]
    return [
        *lines,
        *(
            rf"\includegraphics[width=\linewidth,height=0.9\textheight,keepaspectratio]{{figures/{c.name}.pdf}}\par"
            for c in wide
        ),
    ]


def _claims(verdicts: Sequence[Verdict]) -> list[str]:
    """Each claim with its verdict, where it stands, and what decided it."""
    if not verdicts:
        return []
    items = []
    for v in verdicts:
        scope = f" ({v.scope})" if v.scope else ""
        where = rf"{{\footnotesize {escape(v.claim.where)}.}}"
        items.append(rf"\item {escape(v.claim.text)} {where} \textbf{{{v.outcome}}}{scope}: {escape(v.reason)}.")
    return [r"\subsection*{Claims}", r"\begin{itemize}", *items, r"\end{itemize}"]


def table_file(section: Section, table: Table) -> str:
    """The name of a table's file, without its ending."""
    return slug(f"{section.name}-{table.name}")


def table_text(section: Section, table: Table) -> str:
    """One table, in the paper's form with its numbers beside ours."""
    columns = columns_of(table)
    heads = [column.latex or escape(column.title(table)) for column in columns]
    groups = [[_row([_cell(column.cell(line)) for column in columns]) for line in lines] for _, lines in table.groups]
    body = "\n\\midrule\n".join("\n".join(rows) for rows in groups)
    judged = f"{CHOSEN}{MARKED.format(escape(marked_by(section, table)))}" if table.has_paper else ""
    gains = f" {GAIN}" if table.baselines else ""
    remarks = "".join(f" {escape(r)}" for r in table.remarks)
    named = f"{escape(section.title)}. {escape(table.title)}: {escape(table.heading)}."
    caption = f"{named}{judged}{gains}{remarks}"
    alignment = "".join("r" if column.right else "l" for column in columns)
    return "\n".join([
        r"\begin{table}[htbp]", r"\centering", r"\footnotesize\setlength{\tabcolsep}{3pt}",
        rf"\caption{{{caption}}}", rf"\begin{{tabular}}{{{alignment}}}",
        r"\toprule", " & ".join(heads) + r" \\", r"\midrule", body, r"\bottomrule", r"\end{tabular}", r"\end{table}",
        "",
    ])  # fmt: skip


def _section(section: Section) -> list[str]:
    lines = [rf"\section*{{{escape(section.title)}}}"]
    lines += [rf"\textbf{{{escape(mark)}}}" + "\n" for mark in marks(section)]
    lines += [escape(line) + "\n" for line in (section.study.source, *section.study.notes) if line]
    for notice in notices(section):
        commands = " and ".join(rf"\texttt{{{escape(command)}}}" for command in notice.commands)
        lines.append(f"{escape(notice.words)} {commands}\n")
    if section.answer is not None:
        lines += [rf"\textbf{{{head}.}} {escape(text)}" + "\n" for head, text in section.answer.lines]
        items = [rf"\item {escape(': '.join(row))}" for row in section.answer.cells[1:]]
        lines += [r"\begin{itemize}", *items, r"\end{itemize}"] if items else []
    lines += [rf"\input{{tables/{table_file(section, table)}}}" for table in section.tables]
    lines += [_data(data) for data in section.data]
    facts = [f"{escape(k)}: {escape(v)}" for k, v in section.results.environment.items()]
    return [*lines, r"{\footnotesize " + "; ".join(facts) + r"\par}", r"\clearpage"]


def _data(data: Data) -> str:
    """A paragraph on one data set."""
    sizes = " / ".join("--" if n is None else f"{n:,}" for n in (data.train, data.validation, data.test))
    changes = f" ({escape(data.changes)})" if data.changes else ""
    classes = f" {len(data.classes)} classes: {escape(data.named)}." if data.classes else ""
    return rf"{{\footnotesize Data: {escape(data.name)}{changes}, train / validation / test {sizes}.{classes}\par}}"


def _cell(cell: Cell) -> str:
    if cell.number is not None:
        text = escape(cell.number.text)
        text = (rf"\textbf{{{text}}}" if cell.strong else text) + escape(cell.mark or "")
        return rf"{text} $\pm$ {escape(cell.spread.text)}" if cell.spread else text
    return escape(cell.text + (cell.mark or "")) or "--"


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _plain(character: str) -> str:
    folded = [c for c in unicodedata.normalize("NFKD", character) if " " < c <= "~"]
    return "".join(_COMMANDS.get(c, c) for c in folded) or f"{{[}}U+{ord(character):04X}]"
