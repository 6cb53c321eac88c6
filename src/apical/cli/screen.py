"""What `apical study` shows: live progress, tables, final lines."""

import os
import textwrap
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from apical import study
from apical.cli import echo
from apical.cli.options import Screen, aligned
from apical.errors import InvalidArgumentError, unknown, visible
from apical.study import listing
from apical.study.directory import Store
from apical.study.plan import RATE, fields_of
from apical.study.results import RowResults, StudyResults, TrialRecord
from apical.train import metrics

if TYPE_CHECKING:  # they need torch or scipy, and `--help` does not
    from apical.report.conclusion import Finding
    from apical.study.state import Progress

WIDTH = 80
"""Columns of a terminal that nobody has widened."""
EVERY = 5.0
"""Seconds between two lines of progress where there is no terminal."""
LISTED = 100
"""Trials that `study status` lists; `study show` lists them all."""
STATES = ("planned", "running", "done", "diverged", "failed")


def screen(*, error: bool = False) -> Screen:
    """The console; wide where nobody looks, so that tables are not cut."""
    wide = None if Screen(stderr=error).is_terminal else 160
    return Screen(stderr=error, width=wide)


# --- progress ----------------------------------------------------------------------------------------------------


@contextmanager
def progress() -> "Iterator[Callable[[Progress], None]]":
    """Live on a terminal; elsewhere a line now and then, on stderr."""
    console = screen(error=True)
    if not console.is_terminal:
        yield _Lines(console)
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda now: live.update(picture(now), refresh=True)


class _Lines:
    def __init__(self, console: Screen) -> None:
        self.console, self.last, self.said = console, -EVERY, ""

    def __call__(self, now: "Progress") -> None:
        line = headline(now)
        done = now.settled == now.trials and now.tested == now.tests
        if line != self.said and (done or time.monotonic() - self.last >= EVERY):
            self.console.print(line)
            self.last, self.said = time.monotonic(), line


def headline(now: "Progress") -> str:
    """`14 of 40 trials, 3 of 36 tested, 2 running, 1:20 left`."""
    words = [f"{now.settled} of {now.trials} trials", f"{now.tested} of {now.tests} tested"]
    running = sum(not r.testing for r in now.running)
    words += [f"{running} running"] if running else []
    words += [f"{now.states[state]} {state}" for state in ("diverged", "failed") if now.states[state]]
    words += [f"about {clock(now.seconds_left)} left"] if now.seconds_left else []
    return ", ".join(words)


def picture(now: "Progress") -> Group:
    """The headline, a bar, and a line for each trial that runs."""
    table = Table.grid(padding=(0, 2))
    for r in now.running:
        doing = "testing" if r.testing else f"epoch {r.epoch} of {r.epochs}" if r.epochs else "starting"
        bar = ProgressBar(total=1.0, completed=1.0 if r.testing else r.done, width=16)
        table.add_row(r.trial.row, r.trial.setting, f"seed {r.trial.trial}", bar, doing, r.host)
    whole = ProgressBar(total=max(1, now.trials + now.tests), completed=now.settled + now.tested, width=60)
    return Group(headline(now), whole, "", table)  # a bar does not end its line


def clock(seconds: float) -> str:
    """`0:07`, `12:30`, `3 h 20 min`, `1 day 5 h`."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    if hours >= 24:
        return f"{hours // 24} day{'s' if hours >= 48 else ''} {hours % 24} h"
    return f"{hours} h {minutes_left:02d} min" if hours else f"{minutes}:{rest:02d}"


def watch(folder: Path) -> None:
    """The status, live, until everything is finished."""
    with progress() as tell:
        while True:
            now = study.status(folder)
            tell(now)
            if now.settled == now.trials and (now.tested >= now.tests or not now.running):
                break
            time.sleep(1.0)
    print_status(folder)


# --- tables ------------------------------------------------------------------------------------------------------


def print_status(folder: Path) -> None:
    """Rows with the states of their trials, the trials, and how far it is."""
    results, now = study.read(folder), study.status(folder)
    rows = [row for row in results.rows if not row.row.quoted]
    used = [s for s in STATES if any(_states(row, results.study.trials)[s] for row in rows)]
    lines = [("row", "setting", *used, "best validation")]
    for row in rows:
        best, setting = _best_so_far(row)
        lines.append((row.row.key, setting, *(str(_states(row, results.study.trials)[s] or "") for s in used), best))
    console = screen()
    console.print(f"{visible(results.study.title)}, in {folder}")
    echo(aligned(fitted(lines)), end="\n\n")
    trials = _trial_lines(results)
    echo(aligned(fitted(trials[: LISTED + 1])))
    if len(trials) > LISTED + 1:
        echo(f"and {len(trials) - LISTED - 1:,} more: apical study show {folder}")
    console.print(f"\n{headline(now)}")
    for r in now.running:
        console.print(f"  {r.trial.digest[:8]} {r.trial.setting} seed {r.trial.trial} on {r.host}")
    for line in failures(results):
        console.print(line, soft_wrap=True)


def _states(row: RowResults, trials: int) -> Counter[str]:
    """How many trials of a row are in which state; `trials` of its chosen setting are planned from the start."""
    known = {t.digest: t for t in (*(t for s in row.settings for t in s.trials), *row.trials)}
    states = Counter(t.state for t in known.values())
    chosen = next((s for s in row.settings if s.setting == row.chosen), row.settings[0])
    there = {t.digest for t in (*chosen.trials, *row.trials)}
    return states + Counter(planned=max(0, trials - len(there)))


def _best_so_far(row: RowResults) -> tuple[str, str]:
    known = [s for s in row.settings if isfinite(s.validation)]
    if row.chosen is not None and row.best is not None:
        return number(row.part.metric, row.best.value), row.chosen
    if not known:
        return "", ""
    sign = -1 if metrics.find(row.part.metric).larger_is_better else 1
    best = min(known, key=lambda s: sign * s.validation)
    return number(row.part.metric, best.validation), f"{best.setting} (so far)"


def comparisons(wanted: study.Study) -> Iterator[str]:
    """What the rows are compared with, by their names in the study file, and which are compared with nothing."""
    against: dict[str, list[str]] = {}
    for row, base in wanted.pairs:
        against.setdefault(base.name, []).append(row.name)
    for name, others in against.items():
        yield wrapped(f"compared with {name}: {', '.join(dict.fromkeys(others))}")
    yield from uncompared(wanted)


def uncompared(wanted: study.Study) -> Iterator[str]:
    """The rows without a comparison, and how to give them one; a question, or a logical function, has its own."""
    compared = {row.key for pair in wanted.pairs for row in pair}
    alone = [row for row in wanted.trained if row.key not in compared]
    if wanted.question is not None or wanted.form == "logic":
        return
    if not wanted.groups:
        yield "nothing is compared: the study has no groups"
    elif alone:
        some = {row.name for row in wanted.trained if row.key in compared}
        names = dict.fromkeys(row.key if row.name in some else row.name for row in alone)
        yield wrapped(
            f"compared with nothing: {', '.join(names)}; a row is compared with the baseline of its group in the same "
            "part: add rows to its group, or write group = ... in the row to name another"
        )


def wrapped(text: str) -> str:
    """Lines of 80 columns, all but the first indented."""
    return textwrap.fill(text, WIDTH, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def print_results(results: StudyResults) -> None:
    """The rows of a study in 80 columns, a table for each part."""
    from apical.report.conclusion import conclude  # noqa: PLC0415  scipy, which `study list` does not need

    conclusion = conclude(results)
    for part in results.study.parts:
        rows = [r for r in results.rows if r.row.part == part.name]
        if len(results.study.parts) > 1:
            echo(f"\n{middle_cut(visible(part.title), WIDTH)}")
        echo(aligned(fitted(result_cells(rows, {f.key: f for f in conclusion.findings}))))


def result_cells(rows: Sequence[RowResults], findings: "Mapping[str, Finding]") -> list[tuple[str, ...]]:
    """Unit, tuned values, mean and deviation of the tests, gain over the baseline, trials, paper; no empty column."""
    metric = rows[0].part.metric
    bases = list(dict.fromkeys(f.baseline for f in findings.values() if f.decision))
    over = bases[0] if len(bases) == 1 else "baseline"
    lines = [("unit", "setting", f"test {metric}", f"gain over {over}", "n", "paper")]
    for row in rows:
        tests, finding = row.tests(metric), findings.get(row.row.key)
        spread = f" ± {number(metric, stdev(tests))}" if len(tests) > 1 else ""
        test = f"{number(metric, mean(tests))}{spread}" if tests else "quoted" if row.row.quoted else "-"
        setting = _tuned(row.chosen) if row.chosen else ""
        lines.append(
            (row.row.label, setting, test, finding.gain_text if finding else "", str(len(tests) or ""), _paper(row))
        )
    filled = [k for k in range(len(lines[0])) if k == 0 or any(line[k] for line in lines[1:])]
    return [tuple(line[k] for k in filled) for line in lines]


def _tuned(setting: str) -> str:
    """`alpha=0.3, width=90, lr 0.003`."""
    chosen = fields_of(setting)
    unit = chosen["unit"].partition("(")[2].removesuffix(")")
    dims = (f"{name}={value}" for name, value in chosen.get("dims", {}).items())
    return ", ".join(filter(None, (unit, *dims, f"lr {chosen[RATE]:g}" if RATE in chosen else "")))


def fitted(lines: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Cells that fit 80 columns: the two widest of the first columns are cut in the middle."""
    lines = [tuple(map(visible, line)) for line in lines]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    excess = sum(widths) + 2 * (len(widths) - 1) - WIDTH
    for k in (1, 0, 1, 0):
        if excess > 0 and k < len(widths):
            cut = min(excess, max(0, widths[k] - (10 if excess < 40 else 6)))
            widths[k], excess = widths[k] - cut, excess - cut
    return [tuple(middle_cut(cell, w) for cell, w in zip(line, widths, strict=True)) for line in lines]


def middle_cut(text: str, width: int) -> str:
    """`one-hidden…on digits`: both ends of a name that is too long."""
    if len(text) <= width:
        return text
    head = width // 2
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"[:width]


def _paper(row: RowResults) -> str:
    printed = row.row.paper.get(row.part.metric)
    return f"{printed.value:g}" if printed else ""


def number(metric: str, value: float) -> str:
    """A share in per cent, any other value with four digits."""
    known = metrics.get(metric)
    return f"{100 * value:.2f}" if known is not None and known.percent else f"{value:.4g}"


def print_sentence(results: StudyResults) -> None:
    """What was found, in lines of 80 columns."""
    from apical.report.conclusion import conclude  # noqa: PLC0415  scipy

    together = conclude(results).sentence.replace(" %", "\u00a0%")  # a number keeps its unit
    echo(f"\n{textwrap.fill(together, WIDTH, break_long_words=False, break_on_hyphens=False)}\n".replace("\u00a0", " "))


def print_end(results: StudyResults) -> int:
    """The last lines of a run; 1 where trials failed."""
    states = ", ".join(f"{results.states[s]} {s}" for s in STATES if results.states[s])
    note = " (quick: no replication of the paper)" if results.study.quick and results.study.base else ""
    print_sentence(results)
    for line in uncompared(results.study):
        echo(line)
    echo(f"{results.study.name}{note}: {states}; {results.directory}")
    for line in (*failures(results), *results.missing):
        echo(line)
    echo(f"as a page: apical report {results.directory} -o report")
    echo(f"all trials as a table: apical study export {results.directory} -o results.csv")
    return 1 if results.states["failed"] else 0


def failures(results: StudyResults) -> Iterator[str]:
    """Each reason for which trials failed, once, with the first of these trials."""
    alike: dict[str, list[TrialRecord]] = {}
    for trial in {t.digest: t for t in _every(results) if t.state == "failed"}.values():
        alike.setdefault(trial.reason, []).append(trial)
    for reason, (first, *others) in alike.items():
        more = f" and {len(others)} more" if others else ""
        yield f"  {first.digest[:8]} {first.spec.unit} seed {first.seed}{more} failed: {visible(reason)}"


def _every(results: StudyResults) -> Iterator[TrialRecord]:
    for row in results.rows:
        for setting in row.settings:
            yield from setting.trials
        yield from row.trials


# --- one trial ---------------------------------------------------------------------------------------------------


def print_trials(folder: Path) -> None:
    """Every trial of a study, a line each."""
    results = study.read(folder)
    echo(aligned(fitted(_trial_lines(results))))
    for line in comparisons(results.study):
        echo(line)
    echo(f"one of them: apical study show {folder} TRIAL")


def _trial_lines(results: StudyResults) -> list[tuple[str, ...]]:
    """The cells of a table of all trials, its heads first."""
    lines: list[tuple[str, ...]] = [("row", "setting", "trial", "seed", "state", "validation", "test")]
    seen: set[str] = set()
    for row in results.rows:
        settings = [(s.setting, t) for s in row.settings for t in s.trials]
        for setting, t in [*settings, *((row.chosen or "", t) for t in row.trials)]:
            if t.digest in seen:
                continue
            seen.add(t.digest)
            test = number(t.metric, t.test[t.metric]) if t.test and t.metric in t.test else ""
            value = number(t.metric, t.value) if isfinite(t.value) else ""
            lines.append((row.row.key, setting, t.digest[:8], str(t.seed), t.state, value, test))
    return lines


def print_trial(folder: Path, start: str) -> None:
    """What a trial is and how it went."""
    results = study.read(folder)
    trials = {t.digest: t for t in _every(results) if t.digest.startswith(start)}
    if len(trials) != 1:
        raise InvalidArgumentError(
            f"{len(trials)} trials of {folder} begin with {start!r}: apical study show {folder} lists them all"
        )
    (trial,) = trials.values()
    table = Table.grid(padding=(0, 2))
    for name, value in _facts(trial):
        table.add_row(name, value)
    console = screen()
    console.print(table)
    if trial.state == "failed":
        console.print(Store.open(folder).failure(trial.digest).get("detail", ""), soft_wrap=True)
    for record in trial.history:
        value = record["validation"].get(trial.metric)
        said = "not finite" if value is None else number(trial.metric, value)
        console.print(f"epoch {record['epoch']}: loss {record['loss']:.4f}, validation {trial.metric} {said}")


def _facts(trial: TrialRecord) -> Iterator[tuple[str, str]]:
    spec = trial.spec
    yield "trial", trial.digest
    yield "state", trial.state + (f": {trial.reason}" if trial.reason else "")
    yield "unit", f"{spec.unit}, seed {spec.seed}"
    yield "network", f"{spec.model} on {spec.data}" + (f", {spec.partial}" if spec.partial else "")
    yield "training", f"{spec.epochs} epochs, batch {spec.batch}, {spec.optimiser} at {spec.learning_rate:g}"
    if trial.finished:
        yield "best epoch", str(trial.best_epoch)
        yield "validation", _scores(trial.validation)
        yield "test", _scores(trial.test) if trial.test else "not opened"
        yield "parameters", f"{trial.parameters:,}"
        yield "time", clock(sum(trial.seconds))
        yield "folder", str(trial.directory)


def _scores(scores: Any) -> str:
    return ", ".join(f"{name} {'not finite' if v is None else number(name, v)}" for name, v in scores.items())


# --- what there is -----------------------------------------------------------------------------------------------


def print_list(name: str | None, *, measure: bool) -> None:
    """The shipped studies, or the parts of one of them or of a study file."""
    own = name is not None and name not in study.names() and Path(name).is_file()
    if own:
        entries = _measuring(lambda tell: [listing.estimated(str(name), trust="ask", progress=tell)])
    else:
        entries = _measuring(lambda tell: list(study.catalogue(measure=measure, progress=tell)))
    whole: list[study.Entry] = []
    if name is not None:
        known = {entry.name: entry for entry in entries}
        if name not in known:
            raise InvalidArgumentError(unknown("study", name, known, "or name a study file"))
        entries = list(known[name].parts)
        whole = [known[name]] * (len(entries) > 1)
    cores = os.cpu_count() or 1
    head = ("study" if name is None else "part", "what", "rows", "trials", "data", "time", "quick")
    table = Table(*head, box=None, pad_edge=False)
    entries.sort(key=lambda entry: entry.beyond)
    for before, entry in zip((None, *entries), entries, strict=False):
        if entry.beyond and not (before is not None and before.beyond):
            table.add_section()
            table.add_row("", "beyond the paper", style="bold")
        needs = ", ".join(f"{data} ({state})" for data, state in entry.data.items())
        table.add_row(entry.name, entry.what, str(entry.rows), str(entry.trials), needs, *_times(entry))
    for entry in whole:
        table.add_section()
        table.add_row("all", "", str(entry.rows), str(entry.trials), "", *_times(entry))
    screen().print(table)
    workers = f"{cores} workers" if cores > 1 else "1 worker"
    where = "here" if own else f"on {listing.machine()}; --measure measures here"
    echo(f"time: {workers} of one thread each, measured {where}")
    for line in comparisons(study.load(name, trust="ask")) if name is not None else ():
        echo(line)
    what = "NAME" if name is None else name if len(entries) == 1 else f"{name} --part PART"
    echo(f"apical study run {what}, or the same with --quick for a reduced variant")
    if name is None:
        echo("its parts, each with its time: apical study list NAME; those of a study file: apical study list FILE")


def _times(entry: "study.Entry") -> Iterator[str]:
    return (about(s) if s is not None else "?" for s in (entry.seconds, entry.quick_seconds))


def about(seconds: float) -> str:
    """An estimate: `about 40 s`, `about 12 min`, `about 4 h`, `about 9 days`, `more than a year`."""
    if seconds < 90:
        return f"about {max(1, round(seconds))} s"
    if seconds < 90 * 60:
        return f"about {round(seconds / 60)} min"
    if seconds < 48 * 3600:
        return f"about {round(seconds / 3600)} h"
    return f"about {round(seconds / 86400)} days" if seconds < 365 * 86400 else "more than a year"


def _measuring(work: "Callable[[listing.ProgressCallback], list[study.Entry]]") -> "list[study.Entry]":
    """What `work` gives; what it measures is said on stderr meanwhile."""
    console = screen(error=True)
    if not console.is_terminal:
        return work(lambda what, *_: console.print(what))
    with console.status("reading the studies") as status:
        return work(lambda what, *_: status.update(Text(visible(what))))
