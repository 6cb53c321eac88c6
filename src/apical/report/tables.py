"""The tables as data: the paper's numbers beside ours, the difference, how certain ours are."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from apical import stats
from apical.nn import kinds
from apical.report.comparison import MARKS, Comparison, Evidence
from apical.report.conclusion import Finding
from apical.report.numbers import (
    ACCURACY,
    MISSING,
    Number,
    heading,
    kind_of,
    mean_of,
    of_trial,
    scale,
    show,
    show_share,
    solved_by,
    test_value,
    tested,
)
from apical.study.model import Group, PaperNumber, Part, Row, Study
from apical.study.plan import RATE, fields_of
from apical.study.results import RowResults, StudyResults
from apical.train import metrics
from apical.train.metrics import Metric


@dataclass(frozen=True)
class Line:
    """One row of a table. `ours` is the test value of the trial that is best by validation, as the paper reports;
    `mean` and `deviation` are over all trials. `baseline` and `rival` are the tests against the group's baseline and
    against its best other row. `printed`: the paper prints numbers for the part, whose marks are ours too. `measured`
    has mean and deviation over trials of what `robustness` measures, by name.
    """

    key: str
    label: str
    kind: str
    group: str
    quoted: bool
    parameter: str
    paper_parameter: str
    paper: str
    paper_mark: str
    ours: Number | None
    mark: str
    best: bool
    difference: Number | None
    mean: Number | None
    deviation: Number | None
    trials: str
    remark: str
    baseline: Comparison | None
    rival: Comparison | None
    rival_label: str
    finding: Finding | None = None
    printed: bool = False
    solved: str = ""
    measured: Mapping[str, tuple[Number | None, Number | None]] = field(default_factory=dict)

    @property
    def decision(self) -> stats.Decision | None:
        """How the row compares with its baseline over trials; None where it cannot be said."""
        return self.finding.decision if self.finding else None

    @property
    def gain(self) -> Number | None:
        """The gain over the baseline with its interval, and what follows."""
        d, f = self.decision, self.finding
        if f is None or f.comparison is None or d is None:
            return None
        return Number(d.difference, f.gain_text, f.comparison.trials, f.metric.name, how="gain")


@dataclass(frozen=True)
class Table:
    """One part of a study."""

    name: str
    title: str
    metric: str
    heading: str
    lines: tuple[Line, ...]
    remarks: tuple[str, ...]

    @property
    def groups(self) -> list[tuple[str, list[Line]]]:
        """The lines by group, in the order in which groups first occur."""
        groups: dict[str, list[Line]] = {}
        for line in self.lines:
            groups.setdefault(line.group, []).append(line)
        return list(groups.items())

    @property
    def filled(self) -> bool:
        """True where a row of the table has a number, ours or the paper's."""
        return self.has_paper or any(line.mean for line in self.lines)

    @property
    def has_paper(self) -> bool:
        """True where the paper prints a number for a row of the table."""
        return any(line.paper for line in self.lines)

    @property
    def baselines(self) -> list[str]:
        """The labels of the rows that others are compared with; none where nothing is compared yet."""
        found = [line.finding for line in self.lines if line.finding]
        return list(dict.fromkeys(f.baseline for f in found if f.baseline)) if any(f.decision for f in found) else []

    @property
    def complete(self) -> bool:
        """True where every row has all its trials."""
        return all(len(set(line.trials.split(" of "))) == 1 for line in self.lines)

    @property
    def has_solved(self) -> bool:
        """True where it is told how many trials solve the task."""
        return any(line.solved for line in self.lines)


# The columns of a table, defined once: the page, Markdown and LaTeX print each `cell` in their own way, CSV `values`.


@dataclass(frozen=True, kw_only=True)
class Cell:
    """What stands in a column of a line: a text, a number, or nothing; then the page says `absent`.

    `mark` is the paper's dagger or "" (None: the column has no such marks), `strong` is printed bold, `spread` is what
    stands behind ±, `note` what only the page has room for, `trial` the digest of the trial that a number links to.
    """

    text: str = ""
    number: Number | None = None
    mark: str | None = None
    strong: bool = False
    spread: Number | None = None
    note: str = ""
    absent: str = MISSING
    trial: str = ""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column of every table that needs it. `latex` is its head where LaTeX has another; `values` gives the columns of
    CSV by name, at full precision.
    """

    head: str | Callable[[Table], str]
    cell: Callable[[Line], Cell]
    values: Mapping[str, Callable[[Table, Line], Any]]
    style: Literal["num", "par", "paper", ""] = "num"
    help: str = ""
    latex: str = ""
    needed: Callable[[Table], bool] = lambda _: True

    def title(self, table: Table) -> str:
        """The head of the column in this table."""
        return self.head if isinstance(self.head, str) else self.head(table)

    @property
    def right(self) -> bool:
        """True where numbers stand to the right."""
        return self.style in ("num", "paper")


def columns_of(table: Table) -> list[Column]:
    """The columns that a table needs; details of what robustness measures stand in CSV alone."""
    own = [column for column in measured_columns(table) if "." not in next(iter(column.values))]
    return [*(column for column in COLUMNS if column.needed(table)), *own]


def measured_columns(table: Table) -> list[Column]:
    """A column for each number that robustness measures in a row of the table."""
    names = dict.fromkeys(name for line in table.lines for name in line.measured)
    return [_measured_column(metrics.find(name)) for name in names]


def _measured_column(metric: Metric) -> Column:
    def pair(line: Line) -> tuple[Number | None, Number | None]:
        return line.measured.get(metric.name, (None, None))

    return Column(
        head=metric.heading[:1].upper() + metric.heading[1:],
        cell=lambda x: Cell(number=pair(x)[0], spread=pair(x)[1]),
        help="mean over all trials of the chosen setting, and its deviation",
        values={
            metric.name: lambda _, x: _value(pair(x)[0]),
            f"{metric.name}_deviation": lambda _, x: _value(pair(x)[1]),
        },
    )


def _value(number: Number | None) -> float | str:
    return number.value if number else ""


def _paper_note(line: Line) -> str:
    printed = line.paper_parameter
    return f"paper: {printed}" if printed and printed != line.parameter else ""


def _decision(name: str, of: Callable[[Line], Comparison | None]) -> dict[str, Callable[[Table, Line], Any]]:
    """The columns of CSV that say how a pair was decided; the gain is positive where the row is better."""

    def value(field: str) -> Callable[[Table, Line], Any]:
        return lambda _, x: getattr(c.decision, field) if (c := of(x)) is not None and c.decision is not None else ""

    fields = {"verdict": "verdict", "gain": "difference", "low": "low", "high": "high", "seeds": "seeds"}
    return {f"{name}_{column}": value(field) for column, field in fields.items()}


COLUMNS: tuple[Column, ...] = (
    Column(
        head="Unit",
        cell=lambda x: Cell(text=x.label, note=x.remark),
        style="",
        values={
            "part": lambda t, _: t.name,
            "group": lambda _, x: x.group,
            "row": lambda _, x: x.key,
            "label": lambda _, x: x.label,
        },
    ),
    Column(
        head="Parameter",
        cell=lambda x: Cell(text=x.parameter, note=_paper_note(x)),
        style="par",
        needed=lambda t: any(x.parameter or x.paper_parameter for x in t.lines),
        values={"parameter": lambda _, x: x.parameter, "metric": lambda t, _: t.metric},
    ),
    Column(
        head="Paper",
        cell=lambda x: Cell(text=x.paper, mark=x.paper_mark if x.paper else None),
        style="paper",
        help="as the paper prints it",
        needed=lambda t: t.has_paper,
        values={"paper": lambda _, x: x.paper, "paper_mark": lambda _, x: x.paper_mark},
    ),
    Column(
        head="Ours",
        cell=lambda x: Cell(
            number=x.ours,
            mark=None if x.quoted or not x.printed else x.mark,
            strong=x.best and x.printed,
            absent="quoted" if x.quoted else MISSING,
            trial=x.ours.trials[0] if x.ours else "",
        ),
        help="test value of the trial that is best by validation, as in the paper",
        needed=lambda t: t.has_paper,
        values={
            "ours": lambda _, x: _value(x.ours),
            "mark": lambda _, x: x.mark,
            "best_of_group": lambda _, x: x.best,
        },
    ),
    Column(
        head="Ours − paper",
        cell=lambda x: Cell(number=x.difference),
        latex="Diff.",
        needed=lambda t: t.has_paper,
        values={"difference": lambda _, x: _value(x.difference)},
    ),
    Column(
        head=lambda t: "Mean ± sd" if any(line.deviation for line in t.lines) else "Test",
        cell=lambda x: Cell(number=x.mean, spread=x.deviation),
        help="over all trials of the chosen setting",
        values={"mean": lambda _, x: _value(x.mean), "deviation": lambda _, x: _value(x.deviation)},
    ),
    Column(head="Trials", cell=lambda x: Cell(text=x.trials), values={}, needed=lambda t: not t.complete),
    Column(
        head="Solved",
        cell=lambda x: Cell(text=x.solved),
        help="trials that answer every point right, with the 95 % interval of their share",
        needed=lambda t: t.has_solved,
        values={},
    ),
    Column(
        head=lambda t: f"Gain over {t.baselines[0]}" if len(t.baselines) == 1 else "Gain over baseline",
        cell=lambda x: Cell(number=x.gain, strong=x.finding is not None and x.finding.verdict == "better"),
        help="mean over trials with equal seeds and its 95 % interval; positive is better",
        latex="Gain (95 \\% interval)",
        needed=lambda t: bool(t.baselines),
        values={
            **_decision("baseline", lambda x: x.baseline),
            **_decision("rival", lambda x: x.rival),
            "rival": lambda _, x: x.rival_label,
            "best_trial": lambda _, x: x.ours.trials[0] if x.ours else "",
            "trials": lambda _, x: " ".join(x.mean.trials) if x.mean else "",
        },
    ),
)


def rival_of(result: RowResults, results: StudyResults) -> RowResults | None:
    """The best other row of the same group and part, by validation; kinds of ADA are not each other's rivals."""
    if result.row.group is None or result.row.quoted:
        return None
    others = [r for r in results.rows if _rivals(r, result) and r.best is not None]
    metric = results.study.metric(result.part.metric)
    chosen: RowResults | None = None
    for other in others:
        if chosen is None or metric.better(_validation(other), _validation(chosen)):
            chosen = other
    return chosen


def _rivals(a: RowResults, b: RowResults) -> bool:
    same = a.row.part == b.row.part and a.row.group == b.row.group and a.row.key != b.row.key and not a.row.quoted
    return same and not (has_ada(a.row.unit) and has_ada(b.row.unit))


def has_ada(unit: str) -> bool:
    """True where the unit, or one of its branches, is computed by ADA's kernel."""
    name, given = kinds.parse(unit)
    kind = kinds.get(name)
    branches = (kind.branches if kind else None) or [str(given[b]) for b in ("basal", "apical") if b in given]
    return (kind is not None and kind.stack == "fused") or any(map(has_ada, branches))


def _validation(result: RowResults) -> float:
    return result.best.value if result.best is not None else float("nan")


def tables(study: str, evidence: Evidence, findings: Sequence[Finding]) -> list[Table]:
    """One table for each part of a study of the report."""
    by_row = {f.key: f for f in findings}
    return [_table(part, study, evidence, by_row) for part in evidence.studies[study].study.parts]


def _table(part: Part, study: str, evidence: Evidence, findings: Mapping[str, Finding]) -> Table:
    results = evidence.studies[study]
    rows = [result for result in results.rows if result.row.part == part.name]
    metric = results.study.metric(part.metric)
    champions = _champions(rows, metric)
    lines = tuple(
        _line(row, study, evidence, findings.get(row.row.key), metric, best=row.row.key in champions) for row in rows
    )
    return Table(
        name=part.name,
        title=part.title,
        metric=part.metric,
        heading=heading(metric),
        lines=lines,
        remarks=_remarks(part, results),
    )


def _champions(rows: Sequence[RowResults], metric: Metric) -> set[str]:
    """The keys of the best rows of each group; equals share."""
    best: dict[str, tuple[float, set[str]]] = {}
    for result in rows:
        value, group = test_value(result.best, metric), result.row.group
        if value is None or group is None:
            continue
        leader = best.get(group)
        if leader is None or metric.better(value, leader[0]):
            best[group] = (value, {result.row.key})
        elif value == leader[0]:
            leader[1].add(result.row.key)
    return {key for _, keys in best.values() for key in keys}


def _line(
    result: RowResults, study: str, evidence: Evidence, finding: Finding | None, metric: Metric, *, best: bool
) -> Line:
    results, row = evidence.studies[study], result.row
    value = test_value(result.best, metric)
    ours = of_trial(metric, value, result.best.digest) if result.best is not None and value is not None else None
    printed = row.paper.get(metric.name)
    base, rival = results.study.baseline(row), rival_of(result, results)
    if results.study.form in ("approximation", "logic") or row.quoted:
        base = rival = None  # curves are compared where claims are about them, logic by what is solved
    against = evidence.get((study, row.key), (study, base.key), metric.name) if base is not None else None
    mean, deviation = _over_trials(result, metric)
    return Line(
        row.key, row.label, kind_of(row), _group(row, results.study), row.quoted,
        parameter=_parameter(result), paper_parameter=_printed_parameter(printed),
        paper=_printed(metric, printed), paper_mark=MARKS[printed.mark] if printed else "",
        ours=ours, mark=MARKS[against.mark] if against else "", best=best,
        difference=_difference(metric, ours, printed), mean=mean, deviation=deviation,
        trials=_count(result, results.study), remark=_remark(result),
        baseline=against, rival=evidence.get((study, row.key), (study, rival.row.key), metric.name) if rival else None,
        rival_label=rival.row.label if rival else "", finding=finding,
        printed=any(metric.name in r.paper for r in results.study.rows if r.part == row.part),
        solved=_solved(result) if results.study.form == "logic" else "",
        measured=_measured(result),
    )  # fmt: skip


def _measured(result: RowResults) -> dict[str, tuple[Number | None, Number | None]]:
    """Mean and deviation of what the trials' robustness asked for."""
    names = dict.fromkeys(name for t in result.trials for name in t.test or ())
    known = [metric for name in names if (metric := metrics.get(name)) is not None and metric.measured_by]
    return {metric.name: _over_trials(result, metric) for metric in known}


def _over_trials(result: RowResults, metric: Metric) -> tuple[Number | None, Number | None]:
    values = tested(result, metric)
    digests = [digest for digest, _ in values]
    summary = stats.summarise([value for _, value in values])
    mean = mean_of(metric, summary.mean, digests) if summary.n else None
    spread = mean_of(metric, summary.deviation, digests, how="deviation") if summary.n > 1 else None
    return mean, spread


def _group(row: Row, study: Study) -> str:
    groups: dict[str, Group] = {group.name: group for group in study.groups}
    if row.group in groups:
        return groups[row.group].title
    return "quoted" if row.quoted else ""


def _printed(metric: Metric, number: PaperNumber | None) -> str:
    return show(metric, number.value / scale(metric)) if number else ""


def _difference(metric: Metric, ours: Number | None, printed: PaperNumber | None) -> Number | None:
    if ours is None or printed is None:
        return None
    value = ours.value - printed.value / scale(metric)
    return Number(value, show(metric, value, sign=True), ours.trials, metric.name, how="difference")


def _parameter(result: RowResults) -> str:
    """The values of the chosen setting: alpha and c, and every other parameter of the kind that the setting names."""
    setting = next((s for s in result.settings if s.setting == result.chosen), None)
    if setting is None:
        return ""
    chosen = fields_of(setting.setting)
    name, given = kinds.parse(chosen["unit"])
    kind = kinds.get(name)
    others = [key for key in given if key not in ("alpha", "c") and kind is not None and kind.parameter(key)]
    words = [] if setting.alpha is None else [parameter_text(setting.alpha, setting.c)]
    dims = [_value_text(key, value) for key, value in chosen.get("dims", {}).items()]
    rate = [f"learning rate {chosen[RATE]:g}"] if RATE in chosen else []
    return ", ".join([*words, *(_value_text(key, given[key]) for key in others), *dims, *rate])


def _value_text(name: str, value: float | str) -> str:
    if value == kinds.LEARN:
        return f"{name} learned"
    return f"{name} = {value}" if isinstance(value, str) else f"{name} = {value:g}"


def _printed_parameter(printed: PaperNumber | None) -> str:
    return parameter_text(printed.alpha, printed.c) if printed and printed.alpha is not None else ""


def parameter_text(alpha: float | str, c: float | str | None) -> str:
    """ "α = 0.3", "α learned", and c where it is not 0."""
    words = "α learned" if isinstance(alpha, str) else f"α = {alpha:g}"
    return f"{words}, c = {c if isinstance(c, str) else f'{c:g}'}" if c else words


def _count(result: RowResults, study: Study) -> str:
    if result.row.quoted:
        return MISSING
    return f"{sum(t.test is not None for t in result.trials)} of {study.trials}"


def _remark(result: RowResults) -> str:
    states = [t.state for t in result.trials]
    return ", ".join(f"{states.count(s)} {s}" for s in ("diverged", "failed", "running") if s in states)


def _solved(result: RowResults) -> str:
    """How many trials of those that were tested."""
    count = len(tested(result, ACCURACY))
    return show_share(solved_by(result), count) if count else ""


def _remarks(part: Part, results: StudyResults) -> tuple[str, ...]:
    remarks = []
    if part.partial:
        remarks.append(f"These numbers come from a part of the data set: {part.partial}. They carry no verdict.")
    if results.study.quick and any(row.paper for row in results.study.rows):
        remarks.append("A quick variant: shorter and smaller than the paper's experiment. It carries no verdict.")
    if results.study.form == "logic":
        remarks.append("Solved: trials that answer every point right, their share and its 95 % interval (Wilson's).")
    if results.study.metric(part.metric).by_class:
        remarks.append("The paper's marks are McNemar's, of plain right and wrong; the intervals are of mean recalls.")
    return tuple(remarks)
