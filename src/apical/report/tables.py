"""The tables as data: the paper's numbers beside ours, the difference, how certain ours are; the data sets."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from apical import stats
from apical.errors import ApicalError
from apical.nn import kinds
from apical.report.comparison import MARKS, Comparison, Evidence, Pair
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
from apical.study.results import RowResults, StudyResults, TrialRecord
from apical.train.metrics import Metric

if TYPE_CHECKING:
    from apical.data import DataSet


@dataclass(frozen=True)
class Line:
    """One row of a table. `ours` is the test value of the trial that is best by validation, as the paper reports;
    `mean` and `deviation` are over all trials. `baseline` and `rival` are the tests against the group's baseline and
    against its best other row.
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
    solved: str = ""


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
        found: dict[str, list[Line]] = {}
        for line in self.lines:
            found.setdefault(line.group, []).append(line)
        return list(found.items())


def pairs(study: str, results: StudyResults) -> Iterator[Pair]:
    """Every test that the tables of a study show; `study` is its name within the report.

    Curves and logical functions have none: their points are all there are, no sample of others.
    """
    if results.study.form in ("approximation", "logic"):
        return
    for found in results.rows:
        metric = found.part.metric
        base, rival = results.study.baseline(found.row), rival_of(found, results)
        if base is not None and not found.row.quoted:
            yield (study, found.row.key), (study, base.key), metric
        if rival is not None:
            yield (study, found.row.key), (study, rival.row.key), metric


def rival_of(found: RowResults, results: StudyResults) -> RowResults | None:
    """The best other row of the same group and part, by validation; kinds of ADA are not each other's rivals."""
    if found.row.group is None or found.row.quoted:
        return None
    others = [r for r in results.rows if _rivals(r, found) and r.best is not None]
    metric = results.study.metric(found.part.metric)
    chosen: RowResults | None = None
    for other in others:
        if chosen is None or metric.better(_validation(other), _validation(chosen)):
            chosen = other
    return chosen


def _rivals(a: RowResults, b: RowResults) -> bool:
    same = a.row.part == b.row.part and a.row.group == b.row.group and a.row.key != b.row.key and not a.row.quoted
    return same and not (_has_ada(a.row.unit) and _has_ada(b.row.unit))


def _has_ada(unit: str) -> bool:
    """True where the unit, or one of its branches, is computed by ADA's kernel."""
    name, given = kinds.parse(unit)
    kind = kinds.get(name)
    branches = (kind.branches if kind else None) or [str(given[b]) for b in ("basal", "apical") if b in given]
    return (kind is not None and kind.stack == "fused") or any(map(_has_ada, branches))


def _validation(found: RowResults) -> float:
    return found.best.value if found.best is not None else float("nan")


def tables(study: str, evidence: Evidence) -> list[Table]:
    """One table for each part of a study of the report."""
    return [_table(part, study, evidence) for part in evidence.studies[study].study.parts]


def _table(part: Part, study: str, evidence: Evidence) -> Table:
    results = evidence.studies[study]
    rows = [found for found in results.rows if found.row.part == part.name]
    metric = results.study.metric(part.metric)
    champions = _champions(rows, metric)
    lines = tuple(_line(row, study, evidence, metric, best=row.row.key in champions) for row in rows)
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
    for found in rows:
        value, group = test_value(found.best, metric), found.row.group
        if value is None or group is None:
            continue
        leader = best.get(group)
        if leader is None or metric.better(value, leader[0]):
            best[group] = (value, {found.row.key})
        elif value == leader[0]:
            leader[1].add(found.row.key)
    return {key for _, keys in best.values() for key in keys}


def _line(found: RowResults, study: str, evidence: Evidence, metric: Metric, *, best: bool) -> Line:
    results, row = evidence.studies[study], found.row
    value = test_value(found.best, metric)
    ours = of_trial(metric, value, found.best.digest) if found.best is not None and value is not None else None
    printed = row.paper.get(metric.name)
    base, rival = results.study.baseline(row), rival_of(found, results)
    against = evidence.get((study, row.key), (study, base.key), metric.name) if base is not None else None
    mean, deviation = _over_trials(found, metric)
    return Line(
        row.key, row.label, kind_of(row), _group(row, results.study), row.quoted,
        parameter=_parameter(found), paper_parameter=_printed_parameter(printed),
        paper=_printed(metric, printed), paper_mark=MARKS[printed.mark] if printed else "",
        ours=ours, mark=MARKS[against.mark] if against else "", best=best,
        difference=_difference(metric, ours, printed), mean=mean, deviation=deviation,
        trials=_count(found, results.study), remark=_remark(found),
        baseline=against, rival=evidence.get((study, row.key), (study, rival.row.key), metric.name) if rival else None,
        rival_label=rival.row.label if rival else "",
        solved=_solved(found) if results.study.form == "logic" else "",
    )  # fmt: skip


def _over_trials(found: RowResults, metric: Metric) -> tuple[Number | None, Number | None]:
    values = tested(found, metric)
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


def _parameter(found: RowResults) -> str:
    """The values of the chosen setting: alpha and c, and every other parameter of the kind that the setting names."""
    setting = next((s for s in found.settings if s.setting == found.chosen), None)
    if setting is None:
        return ""
    name, given = kinds.parse(setting.setting)
    kind = kinds.get(name)
    others = [key for key in given if key not in ("alpha", "c") and kind is not None and kind.parameter(key)]
    words = [] if setting.alpha is None else [parameter_text(setting.alpha, setting.c)]
    return ", ".join([*words, *(_value_text(key, given[key]) for key in others)])


def _value_text(name: str, value: float | str) -> str:
    if value == kinds.LEARN:
        return f"{name} learned"
    return f"{name} = {value}" if isinstance(value, str) else f"{name} = {value:g}"


def _printed_parameter(printed: PaperNumber | None) -> str:
    return parameter_text(printed.alpha, printed.c) if printed and printed.alpha is not None else ""


def parameter_text(alpha: float | str, c: float | None) -> str:
    """ "α = 0.3", "α learned", and c where it is not 0."""
    words = "α learned" if isinstance(alpha, str) else f"α = {alpha:g}"
    return f"{words}, c = {c:g}" if c else words


def _count(found: RowResults, study: Study) -> str:
    if found.row.quoted:
        return MISSING
    return f"{sum(t.test is not None for t in found.trials)} of {study.trials}"


def _remark(found: RowResults) -> str:
    states = [t.state for t in found.trials]
    return ", ".join(f"{states.count(s)} {s}" for s in ("diverged", "failed", "running") if s in states)


def _solved(found: RowResults) -> str:
    """How many trials of those that were tested."""
    count = len(tested(found, ACCURACY))
    return show_share(solved_by(found), count) if count else ""


def _remarks(part: Part, results: StudyResults) -> tuple[str, ...]:
    remarks = []
    if part.partial:
        remarks.append(f"These numbers come from a part of the data set: {part.partial}. They carry no verdict.")
    if results.study.quick:
        remarks.append("A quick variant: shorter and smaller than the paper's experiment. It carries no verdict.")
    if results.study.form == "logic":
        remarks.append("Solved: trials that answer every point right, their share and its 95 % interval (Wilson's).")
    if results.study.metric(part.metric).by_class:
        remarks.append("McNemar's test counts plain right and wrong; the interval is of the weighted accuracy.")
    return tuple(remarks)


# What the networks of a study were trained on: the sizes of the splits and the names of the classes.

NAMED = 40
"""How many classes are named; ImageNet has 1,000."""


@dataclass(frozen=True)
class Data:
    """One data set as a study uses it. Sizes are None where this machine does not have the data."""

    name: str
    changes: str
    train: int | None
    validation: int | None
    test: int | None
    classes: tuple[str, ...]

    @property
    def named(self) -> str:
        """The names of the classes, in a line."""
        rest = f" and {len(self.classes) - NAMED} more" if len(self.classes) > NAMED else ""
        return ", ".join(self.classes[:NAMED]) + rest


def datasets(results: StudyResults) -> tuple[Data, ...]:
    """Each data set once, however many networks were trained on it."""
    parts: dict[tuple[object, ...], Part] = {}
    for part in results.study.parts:
        parts.setdefault((part.data, part.split, part.partial, part.corruptions), part)
    return tuple(_data(part, [r for r in results.rows if r.part.data == part.data]) for part in parts.values())


def opened(part: Part) -> "DataSet | None":
    """The data of a part as its networks see it; None where it is not on this machine: a report fetches nothing."""
    from apical.data import corrupt, load, statuses  # noqa: PLC0415  torch and the data

    here = any(s.recipe.name == part.data and s.state != "not prepared" for s in statuses())
    if not here and not Path(part.data).expanduser().exists():
        return None
    try:
        return corrupt(load(part.data, partial=part.partial is not None, split=part.split), *part.corruptions)
    except ApicalError:
        return None  # a report is made where the data may never have been


def classes_of(rows: Iterable[RowResults]) -> tuple[str, ...]:
    """The names of the classes as the trials recorded them."""
    return next((t.classes for found in rows for t in found.trials if t.classes), ())


def _data(part: Part, rows: list[RowResults]) -> Data:
    data = opened(part)
    changes = ", ".join([*part.corruptions, *filter(None, (part.partial, _split(part)))])
    if data is not None:
        names = classes_of(rows) or data.class_names or ()
        return Data(part.data, changes, len(data.train), len(data.validation), len(data.test), tuple(names))
    best = [r.best for r in rows if r.row.part == part.name and r.best is not None and r.best.test is not None]
    return Data(part.data, changes, None, None, _test_samples(best[0]) if best else None, classes_of(rows))


def _split(part: Part) -> str:
    return "" if part.split == "paper" else f"split {part.split}"


def _test_samples(record: TrialRecord) -> int | None:
    try:
        return len(record.outputs().ids)
    except ApicalError:
        return None
