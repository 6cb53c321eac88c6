"""A report as plain data: everything that a page says, before anything is drawn or written."""

import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

import apical
from apical.errors import visible
from apical.report import figures, numbers, tables
from apical.report.charts import Chart, Gallery, Palette
from apical.report.claims import verdicts
from apical.report.claims.verdicts import OUTCOMES, RULES, Verdict, deviations
from apical.report.comparison import Comparison, Evidence
from apical.report.conclusion import Conclusion, conclude, untested
from apical.report.numbers import Data, Number, Timing, datasets, of_trial, test_value
from apical.report.tables import Table
from apical.study.claim import TOPICS, claims
from apical.study.model import Study
from apical.study.results import RowResults, SettingResults, StudyResults, TrialRecord
from apical.train.metrics import Metric

if TYPE_CHECKING:
    from apical.report.question import Answer


@dataclass(frozen=True)
class Trial:
    """One trial of the appendix: what every number of the page is traced to."""

    digest: str
    row: str
    setting: str
    seed: int
    state: str
    reason: str
    best_epoch: int
    validation: Number | None
    test: Number | None
    seconds: float
    stacking: str
    final: bool


@dataclass(frozen=True)
class Section:
    """One study of the page."""

    name: str
    study: Study
    results: StudyResults
    conclusion: Conclusion
    tables: tuple[Table, ...]
    comparisons: tuple[Comparison, ...]
    labels: Mapping[str, str]
    galleries: tuple[Gallery, ...]
    times: Timing
    trials: tuple[Trial, ...]
    seeds: tuple[int, ...]
    states: Mapping[str, int]
    command: str
    deviations: tuple[str, ...] = ()
    data: tuple[Data, ...] = ()
    commands: tuple[str, ...] = ()
    answer: "Answer | None" = None

    @property
    def title(self) -> str:
        """The study's title, with a number where the report has it twice."""
        return f"{self.study.title} ({self.name.rpartition(' (')[2]}" if self.name.endswith(")") else self.study.title

    @property
    def has_paper(self) -> bool:
        """True where the paper's numbers stand beside ours."""
        return any(table.has_paper for table in self.tables)

    @property
    def empty(self) -> list[str]:
        """Figures that are left out because they would show nothing."""
        return [words for gallery in self.galleries for words in gallery.empty]


@dataclass(frozen=True)
class Report:
    """Everything that the page says."""

    title: str
    sections: tuple[Section, ...]
    verdicts: tuple[Verdict, ...]
    summary: tuple[str, ...]
    notes: tuple[str, ...]
    rules: Mapping[str, str]
    faults: tuple[str, ...]
    overview: tuple[Gallery, ...]
    palette: Palette
    version: str
    made: str

    @property
    def charts(self) -> list[Chart]:
        """Every chart of the page, once by name."""
        galleries = [*(g for section in self.sections for g in section.galleries), *self.overview]
        return list({chart.name: chart for gallery in galleries for chart in gallery.charts}.values())


def gather(
    studies: Sequence[StudyResults],
    *,
    title: str = "",
    pictures: bool = True,
    timings: Sequence[Mapping[str, str]] = (),
    crossed: bool = True,
) -> Report:
    """The report of these studies. `pictures`: sample sheets too, where the data is on this machine. `timings` are the
    lines of `benchmarks/epochs.py --csv`; `crossed`: bootstraps over seeds and samples stand beside the decisions.
    """
    studies = [displayed(results) for results in studies]
    evidence = Evidence(studies, timings=timings, crossed=crossed)
    judged = verdicts.relevant(claims(), evidence)
    shipped = _shipped([*evidence.studies, *(name for claim in judged for name in claim.studies)])
    judgements = tuple(sorted((verdicts.judge(claim, evidence, shipped) for claim in judged), key=_by_topic))
    sections = tuple(_section(name, evidence, shipped, pictures=pictures) for name in evidence.studies)
    return Report(
        title=title or _title(sections),
        sections=sections,
        verdicts=judgements,
        summary=_summary(judgements, sections),
        notes=tuple(dict.fromkeys(line for section in sections for line in _state_of(section))),
        rules=RULES,
        faults=tuple(dict.fromkeys(evidence.book.faults)),
        overview=(*figures.forest(judgements), *_overview(studies)),
        palette=Palette({kind: colours for r in studies for kind, colours in r.study.colors.items()}),
        version=apical.__version__,
        made=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
    )


def displayed(value: Any) -> Any:
    """Results with the hidden characters of their texts made visible: those come from files, and are shown here."""
    if isinstance(value, str):
        text = visible(value, lines=True)
        return value if text == value else text
    if isinstance(value, tuple | list):
        changed = [displayed(item) for item in value]
        same = all(new is old for new, old in zip(changed, value, strict=True))
        return value if same else tuple(changed) if isinstance(value, tuple) else changed
    if isinstance(value, dict):
        table = {displayed(key): displayed(item) for key, item in value.items()}
        same = all(key in value and table[key] is value[key] for key in table)
        return value if same else table
    if isinstance(value, StudyResults | RowResults | SettingResults | TrialRecord):
        own = {field.name: getattr(value, field.name) for field in fields(value)}
        changes = {name: new for name, old in own.items() if (new := displayed(old)) is not old}
        return replace(value, **changes) if changes else value
    if isinstance(value, BaseModel):
        own = {name: getattr(value, name) for name in type(value).model_fields}
        changes = {name: new for name, old in own.items() if (new := displayed(old)) is not old}
        return value.model_copy(update=changes) if changes else value
    return value


Slimming = tuple[str, Callable[["Section"], "Section"]]


def slimmer(report: Report) -> Iterator[Report]:
    """Ever smaller pages of a report that is too large for one, each saying what it lacks; the folder has it all."""
    best, details = "all but the best trials to tables/trials.csv", "learning curves and dynamics to figures/"
    steps: tuple[Slimming, ...] = (
        ("tuning trials to tables/trials.csv", _without_trials(lambda t, _: t.final)),
        (best, _without_trials(lambda t, best: t.digest in best)),
        (f"{best}, {details}", _without_galleries(lambda g: not g.detail)),
        (f"{best}, all figures of the studies to figures/", _without_galleries(lambda _: False)),
    )
    sections = report.sections
    for words, step in steps:
        sections = tuple(step(s) for s in sections)
        said = f"To stay small, this page leaves {words}."
        yield replace(report, sections=sections, notes=(*report.notes, said))


def _without_trials(keep: Callable[[Trial, set[str]], bool]) -> Callable[[Section], Section]:
    def step(section: Section) -> Section:
        best = {result.best.digest for result in section.results.rows if result.best is not None}
        return replace(section, trials=tuple(t for t in section.trials if keep(t, best)))

    return step


def _without_galleries(keep: Callable[[Gallery], bool]) -> Callable[[Section], Section]:
    return lambda section: replace(section, galleries=tuple(g for g in section.galleries if keep(g)))


def _shipped(wanted: Sequence[str]) -> dict[str, Study]:
    from apical.study.config.loading import load, names  # noqa: PLC0415  only a report of the paper's studies needs the files

    return {name: load(name) for name in names() if name in wanted}


def _section(name: str, evidence: Evidence, shipped: Mapping[str, Study], *, pictures: bool) -> Section:
    results = evidence.studies[name]
    shown = figures.galleries(name, results)
    if pictures:
        shown += figures.noisy_samples(name, results.study)
    records, conclusion = list(_records(results)), conclude(results)
    return Section(
        name=name,
        study=results.study,
        results=results,
        conclusion=conclusion,
        tables=tuple(tables.tables(name, evidence, conclusion.findings)),
        comparisons=tuple(evidence.of(name)),
        labels={row.row.key: f"{row.row.label}, {row.part.title}" for row in results.rows},
        galleries=tuple(shown),
        times=numbers.times(results),
        trials=tuple(records),
        seeds=tuple(sorted({t.seed for t in records})),
        states={state: count for state, count in results.states.items() if count},
        command=_command(results),
        deviations=deviations(results.study, shipped.get(results.study.base)),
        data=datasets(results),
        commands=_commands(results),
        answer=_answer(results),
    )


def _answer(results: StudyResults) -> "Answer | None":
    if results.study.question is None:
        return None
    from apical.report.question import answer  # noqa: PLC0415  few studies ask one

    return answer(results, results.study.question)


def _records(results: StudyResults) -> list[Trial]:
    """Every trial that was begun, once, though rows may share it: those of the settings, then of the chosen one."""
    trials: dict[str, Trial] = {}
    for row in results.rows:
        metric, key = results.study.metric(row.part.metric), row.row.key
        finals = {t.digest for t in row.trials}
        for setting in row.settings:
            for record in setting.trials:
                final = record.digest in finals
                trials[record.digest] = _trial(record, metric, row=key, setting=setting.setting, final=final)
        for record in row.trials:
            if record.digest not in trials:
                trials[record.digest] = _trial(record, metric, row=key, setting=row.chosen or "", final=True)
    return [t for t in trials.values() if t.state != "planned"]


def _trial(record: TrialRecord, metric: Metric, *, row: str, setting: str, final: bool) -> Trial:
    validation, test = record.value, test_value(record, metric)
    return Trial(
        digest=record.digest,
        row=row,
        setting=setting,
        seed=record.seed,
        state=record.state,
        reason=record.reason,
        best_epoch=record.best_epoch,
        validation=of_trial(metric, validation, record.digest, split="validation") if isfinite(validation) else None,
        test=of_trial(metric, test, record.digest) if test is not None else None,
        seconds=sum(record.seconds),
        stacking=record.execution.stacking if record.execution else "",
        final=final,
    )


def _command(results: StudyResults) -> str:
    """What would run the rest, wherever the directory came from."""
    return f"apical study run {shlex.quote(str(shown_path(results.directory)))}"


def _commands(results: StudyResults) -> tuple[str, ...]:
    """The commands that were given; the directory is named as `shown_path` does, wherever it was then."""
    return tuple(_with_path(command, shlex.quote(str(shown_path(results.directory)))) for command in results.commands)


def _with_path(command: str, shown: str) -> str:
    words = command.split(" ")
    words[:1] = ["apical"] if words[0] in ("-c", "-m", "__main__.py") else words[:1]  # started through python itself
    for place, word in enumerate(words[:-1]):
        if word in ("-d", "--directory"):
            words[place + 1] = shown
    return " ".join(words)


def shown_path(directory: Path) -> Path:
    """Within the present folder where it is: a page that is handed on need not tell where its writer works."""
    absolute = directory.absolute()
    return absolute.relative_to(Path.cwd()) if absolute.is_relative_to(Path.cwd()) else directory


def _by_topic(verdict: Verdict) -> tuple[bool, int]:
    return verdict.outcome == "not run", TOPICS.index(verdict.claim.about)


def _title(sections: Sequence[Section]) -> str:
    titles = list(dict.fromkeys(section.study.title for section in sections))
    return "; ".join(titles) if len(titles) <= 2 else f"{len(titles)} studies"


def _summary(verdicts_: Sequence[Verdict], sections: Sequence[Section]) -> tuple[str, ...]:
    """Each study's sentence, with what it lacks, then the claims."""
    lines = []
    for section in sections:
        name = f"{section.title}: " if len(sections) > 1 else ""
        lines += [f"{name}{section.conclusion.sentence}", *section.conclusion.remarks]
        if section.answer is not None:
            lines.append(f"{section.answer.question.asks} Answer: {section.answer.lines[-1][1]}")
        lines += _state_of(section)
    if verdicts_:
        many = f"{len(verdicts_)} claims of the paper are" if len(verdicts_) > 1 else "One claim of the paper is"
        lines.append(f"{many} about these studies: {counted(verdicts_)}.")
        lines += [f"{topic[0].upper()}{topic[1:]}: {counted(own)}." for topic, own in by_topic(verdicts_).items()]
    if part := sum(bool(v.missing and v.judged) for v in verdicts_):
        lines.append(f"{part} of them speak of more than was run, and are judged on what was: each says on how much.")
    return tuple(dict.fromkeys(lines))


def counted(verdicts_: Sequence[Verdict]) -> str:
    """`7 supported, 2 inconclusive`."""
    counts = Counter(v.outcome for v in verdicts_)
    return ", ".join(f"{counts[o]} {o}" for o in OUTCOMES if counts[o])


def by_topic(verdicts_: Sequence[Verdict]) -> dict[str, list[Verdict]]:
    """The verdicts by what their claims are about."""
    grouped = {topic: [v for v in verdicts_ if v.claim.about == topic] for topic in TOPICS}
    return {topic: own for topic, own in grouped.items() if own}


def _state_of(section: Section) -> list[str]:
    study, lines = section.study, []
    if study.quick and any(row.paper for row in study.rows):
        lines.append(
            f"{section.title} is a quick variant: it shows that everything works, not what the paper's trials give."
        )
    partial = [part for part in study.parts if part.partial]
    if partial:
        lines.append(f"{section.title} was trained on a part of its data ({partial[0].partial}).")
    if section.deviations:
        lines.append(
            f"{section.title} was not run with the paper's protocol ({'; '.join(section.deviations)}): "
            "rows that differ carry no verdict."
        )
    return lines


def marks(section: Section) -> list[str]:
    """Why rows of a study carry no verdict, in words that stand at its head."""
    study, partial = section.study, [part.partial for part in section.study.parts if part.partial]
    printed = any(row.paper for row in study.rows)
    reasons = ["Quick variant: no verdicts."] if study.quick and printed else []
    reasons += [f"Part of the data: {partial[0]}; no verdicts."] if partial else []
    if section.deviations:
        reasons.append(f"Not the paper's protocol: {'; '.join(section.deviations)}. Rows that differ carry no verdict.")
    return reasons


def badges(section: Section) -> list[tuple[str, str]]:
    """Short words beside the sentence that keep its numbers from being taken for more than they are, and why."""
    partial = [part.partial for part in section.study.parts if part.partial]
    return [
        *([("quick variant", "")] if section.study.quick and section.has_paper else []),
        *([("not the paper's protocol", "; ".join(section.deviations))] if section.deviations else []),
        *((mark, "") for mark in partial[:1]),
    ]


@dataclass(frozen=True)
class Notice:
    """What is to be known or done beside the sentence; the commands stand after the words."""

    words: str
    commands: tuple[str, ...] = ()


def notices(section: Section) -> list[Notice]:
    """What failed, diverged or is not finished."""
    run, retry = section.command, section.command.replace("study run", "study retry", 1)
    listed = [Notice(line) for line in section.conclusion.remarks]
    if section.states.get("failed"):
        failed, *others = listed
        listed = [Notice(f"{failed.words.rstrip('.')}. Fix the cause, then:", (retry, run)), *others]
    if not section.results.finished:
        left = section.results.seconds_left
        time = f" About {duration(left)} of work are left." if left else ""
        listed.append(Notice(f"Unfinished. {progress(section)}.{time} This runs the rest:", (run,)))
    return listed


def duration(seconds: float) -> str:
    """Seconds in words that a person plans with."""
    if seconds < 90:
        return f"{max(2, round(seconds))} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"


def spelled(section: Section) -> str:
    """What the letters ADA stand for, in a study that has it."""
    ada = any(tables.has_ada(row.unit) for row in section.study.trained)
    words = "max(0,\u00a0x)\u00a0·\u00a0exp(c\u00a0−\u00a0αx) with settings alpha\u00a0(α) and\u00a0c"
    return f"ADA: apical dendrite activation, {words}." if ada else ""


def gains_caption(section: Section) -> str:
    """What the columns of gains and marks mean; "" where there are none."""
    said, decided = [], [f.decision for f in section.conclusion.findings if f.decision]
    if decided and any(table.baselines for table in section.tables):
        said.append("Gains: means over trials with equal seeds, with 95 % intervals; bold where the row is better.")
        said += _unequal(section)
        said.append("If no row differed from its baseline, about 1 in 20 would still be called better or worse.")
        if any(d.high - d.low <= 1e-8 * abs(d.difference) for d in decided):
            said.append(
                "A difference that is the same for every seed has an interval without width, and decides nothing."
            )
    if decided and section.has_paper:
        tests = list(dict.fromkeys(marked_by(section, table) for table in section.tables if table.has_paper))
        said.append(
            "† and ‡: the best trial by validation is better than that of the baseline at 0.05 and 0.01, as the paper "
            f"marks it ({' or '.join(tests)})."
        )
    return " ".join(said)


def _unequal(section: Section) -> list[str]:
    """Why a gain is not the difference of the printed means, where it is not."""
    rows = {f.key: f for f in section.conclusion.findings}
    pairs = [(f, rows[f.comparison.b], f.decision) for f in rows.values() if f.comparison and f.decision]
    said = []
    if any(f.scores.keys() != base.scores.keys() for f, base, _ in pairs):
        said.append("A trial without a partner counts in the mean of its row, and not in the gain.")
    for f, base, decision in pairs:
        texts = [numbers.show(f.metric, value) for value in (f.summary.mean, base.summary.mean, decision.difference)]
        own, other, gain = (Decimal(text.replace("−", "-")) for text in texts)
        if f.scores.keys() == base.scores.keys() and abs(own - other) != abs(gain):
            return [*said, "Gains are rounded last: the printed means can differ by 1 more or less in the last digit."]
    return said


def marked_by(section: Section, table: Table) -> str:
    """The test behind the marks of a table."""
    right_or_wrong = section.study.metric(table.metric).right_or_wrong
    return "McNemar's chi-square test without correction" if right_or_wrong else "a bootstrap of the mean difference"


def heading(section: Section) -> str:
    """What stands above the tables and what follows them."""
    return "Tables" if any(table.filled for table in section.tables) else "Details"


def progress(section: Section) -> str:
    """How many trials are trained of how many, those that tune and those of chosen settings."""
    done = sum(section.states.get(state, 0) for state in ("done", "diverged"))
    finals = {t.digest for result in section.results.rows for t in result.trials}
    tuning = {t.digest for result in section.results.rows for s in result.settings for t in s.trials if t.finished}
    only = len(tuning - finals)
    told = f", {only} of them only to tune" if only else ""
    told += untested(section.results)
    others = [f"{count} {state}" for state, count in section.states.items() if state in ("running", "failed")]
    return f"{done} of {sum(section.states.values())} trials are trained{told}" + "".join(
        f", {said}" for said in others
    )


def _overview(studies: Sequence[StudyResults]) -> tuple[Gallery, ...]:
    """ADA's shape and its XOR, where a row has it."""
    if not any(tables.has_ada(row.unit) for results in studies for row in results.study.trained):
        return ()
    from apical.report.illustrations import building_block  # noqa: PLC0415  computes ADA, with torch

    return (building_block(),)
