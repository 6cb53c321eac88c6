"""The report's tables as CSV: full precision, with the trials that each number comes from."""

import csv
from collections.abc import Iterable, Sequence
from io import StringIO
from typing import Any

from apical.report.gathering import Report, Section
from apical.report.tables import Line, Table

COLUMNS = (
    "part", "group", "row", "label", "parameter", "metric", "paper", "paper_mark", "ours", "mark", "best_of_group",
    "difference", "mean", "deviation", "p_baseline", "p_baseline_holm", "p_rival", "p_rival_holm", "rival",
    "best_trial", "trials",
)  # fmt: skip


def table_csv(table: Table) -> str:
    """One table; values in the trials' own unit (shares of 1), the paper's as it prints them."""
    return _csv(COLUMNS, (_line(table, line) for line in table.lines))


def tests_csv(section: Section) -> str:
    """Every paired test of a study."""
    names = ("a", "b", "metric", "n", "difference", "low", "high", "test", "p_paper", "p_value", "p_holm", "only_a",
             "only_b", "effect_name", "effect", "needed")  # fmt: skip
    rows = ([*(getattr(c, name) for name in names), *c.trials] for c in section.comparisons)
    return _csv((*names, "trial_a", "trial_b"), rows)


def claims_csv(report: Report) -> str:
    """Every pair or row of every claim: what the paper prints, ours, and what follows."""
    heads = ("claim", "text", "where", "kind", "verdict", "scope", "pair", "paper", "ours", "n", "finding", "trials")
    rows = []
    for v in report.verdicts:
        common = (v.claim.id, v.claim.text, v.claim.where, v.claim.kind, v.outcome, v.scope)
        rows += [(*common, f.what, f.paper, f.ours, f.n, f.answer, " ".join(f.trials)) for f in v.findings]
        rows += [(*common, "", "", "", "", f"missing: {why}", "") for why in dict.fromkeys(v.missing)]
    return _csv(heads, rows)


def trials_csv(sections: Iterable[Section]) -> str:
    """Every trial of the report."""
    heads = ("study", "digest", "row", "setting", "seed", "state", "best_epoch", "validation", "test", "seconds")
    rows = (
        (s.study.name, t.digest, t.row, t.setting, t.seed, t.state, t.best_epoch,
         t.validation.value if t.validation else "", t.test.value if t.test else "", t.seconds)
        for s in sections for t in s.trials
    )  # fmt: skip
    return _csv(heads, rows)


def _line(table: Table, line: Line) -> Sequence[Any]:
    numbers = [n.value if n else "" for n in (line.ours, line.difference, line.mean, line.deviation)]
    tests = [v for c in (line.baseline, line.rival) for v in ((c.p_value, c.p_holm) if c else ("", ""))]
    return (
        table.name, line.group, line.key, line.label, line.parameter, table.metric, line.paper, line.paper_mark,
        numbers[0], line.mark, line.best, *numbers[1:], *tests, line.rival_label,
        line.ours.trials[0] if line.ours else "", " ".join(line.mean.trials) if line.mean else "",
    )  # fmt: skip


def _csv(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(heads)
    writer.writerows(rows)
    return text.getvalue()
