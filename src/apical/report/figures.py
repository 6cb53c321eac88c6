"""Figures of a study, gathered from its results: pure functions, nothing is drawn here."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from math import isfinite, nan
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apical import stats
from apical.errors import InvalidArgumentError
from apical.report.charts import Chart, Dot, Dots, Effect, Fit, Forest, Gallery, Line, Lines, Pictures, step
from apical.report.claims.verdicts import Verdict
from apical.report.comparison import Comparison
from apical.report.conclusion import NAMED, Finding, findings
from apical.report.numbers import (
    ACCURACY,
    classes_of,
    heading,
    is_leaky,
    kind_of,
    opened,
    scale,
    show,
    solved_by,
    test_value,
    tested,
)
from apical.study.model import Part, Study
from apical.study.results import RowResults, StudyResults, TrialRecord
from apical.train.metrics import Metric

SAMPLES = 8
OTHERS = "rows outside the groups"
MANY = 20
"""With more trials than these the lowest and the highest say nothing: bands hold the middle half."""


Figure = Callable[[StudyResults], Gallery | Chart | None]
"""A pure function that gathers what a figure shows of a study; None where it has nothing to show."""


def galleries(study: str, results: StudyResults) -> list[Gallery]:
    """Every gallery that has something to show, in the order of the page; `study` is the name within the report, and
    begins the names of the charts.
    """
    shown = []
    made = {name: figure(results) for name, figure in _built_in().items()}
    made |= {name: _of_user(name, figure, results) for name, figure in _REGISTERED.items()}
    for name, figure in made.items():
        gallery = Gallery(name, "", (figure,), _legend((figure,))) if isinstance(figure, Chart) else figure
        if gallery is not None and gallery.charts:
            full = [chart for chart in gallery.charts if not (isinstance(chart, Lines) and nothing_in(chart))]
            charts = tuple(replace(chart, name=f"{study}-{chart.name}") for chart in full)
            empty = tuple(
                f"{c.y_axis} ({nothing_in(c)}; {c.title})"
                for c in gallery.charts
                if isinstance(c, Lines) and nothing_in(c)
            )
            shown.append(replace(gallery, charts=charts, legend=gallery.legend and _legend(full), empty=empty))
    return shown


def nothing_in(chart: Lines) -> str:
    """Why a chart of lines has nothing to show: one point, or the same value everywhere; "" where it has."""
    values = {value for line in chart.lines for value in (*line.y, *line.low, *line.high) if isfinite(value)}
    if len(values) <= 1:
        return f"always {next(iter(values)):g}" if values else "no value"
    return "one point" if max(len(line.x) for line in chart.lines) == 1 else ""


def _of_user(name: str, figure: Figure, results: StudyResults) -> Gallery | Chart | None:
    """What a registered figure gives, or one sentence about what is wrong with it."""
    try:
        made: object = figure(results)
    except Exception as error:  # somebody's function may raise anything
        raise InvalidArgumentError(
            f"figure {name!r} cannot be drawn for study {results.study.name!r} ({type(error).__name__}: {error})"
        ) from error
    charts = made.charts if isinstance(made, Gallery) else (made,)
    if made is None or (isinstance(made, Gallery | Chart) and all(isinstance(chart, Chart) for chart in charts)):
        return made
    kinds = ", ".join(dict.fromkeys(type(chart).__name__ for chart in charts if not isinstance(chart, Chart)))
    where = "a gallery of " if isinstance(made, Gallery) else ""
    raise InvalidArgumentError(
        f"figure {name!r} returns {where}{kinds}, but must return a chart of apical.report.charts, a Gallery of those, "
        "or None"
    )


def _built_in() -> dict[str, Figure]:
    return {
        "curves": curves,
        "means": means,
        "approximations": approximations,
        "recalls": recalls,
        "learning": learning,
        "alphas": alphas,
        "dynamics": dynamics,
    }


_REGISTERED: dict[str, Figure] = {}


def register_figure(name: str, function: Figure) -> None:
    """Add a figure to every report that is made from now on.

    `function` gets the `StudyResults` of one study and returns a chart of `apical.report.charts`, a `Gallery` of them,
    or None. `name` is the title above a single chart. The module of a study's `imports` is a good place for the call.

    Examples:
        >>> from apical.report.charts import Bar, Bars
        >>> def parameters(results):
        ...     bars = tuple(Bar(r.row.label, r.row.unit, r.best.parameters) for r in results.rows if r.best)
        ...     return Bars("size", "Parameters", "The number of parameters of each row.", "parameters", bars)
        >>> register_figure("Size of the networks", parameters)
    """
    if name in _built_in() or name in _REGISTERED:
        raise InvalidArgumentError(f"there is a figure {name!r} already: register yours under another name")
    _REGISTERED[name] = function


def forest(verdicts: Iterable[Verdict], exploratory: Callable[[Comparison], bool] = lambda _: False) -> list[Gallery]:
    """Every judged pair once, a chart for each score: ours with its interval, the printed gain, the verdict.

    Pairs that are `exploratory` stand last, and are drawn as such.
    """
    pairs: dict[str, dict[str, Comparison]] = {}
    known: set[tuple[str, ...]] = set()
    for finding in (f for verdict in verdicts for f in verdict.findings):
        comparison = finding.comparison
        if comparison is None or comparison.decision is None:
            continue
        name, own = comparison.metric.name, ", validation" in finding.what
        key = (name, str(own), *sorted((comparison.a, comparison.b)), *sorted(comparison.trials))
        if key not in known:  # whichever way round
            known.add(key)
            pairs.setdefault(name, {})[finding.what.removesuffix(f", test {name}")] = comparison
    shown = tuple(forest_chart(name, own, exploratory) for name, own in pairs.items())
    caption = (
        "Lines: the mean gain of the first over the second over seeds, with its 95 % interval. Grey: what counts as no "
        "difference. Arrows: beyond the axis. Diamonds: the paper. Of pairs without a difference 1 in 20 is expected "
        "to be called supported or contradicted by chance."
    )
    return [Gallery("Every judged pair", caption, shown)] if shown else []


def forest_chart(
    name: str, pairs: Mapping[str, Comparison], exploratory: Callable[[Comparison], bool] = lambda _: False
) -> Forest:
    """The chart of comparisons of one score, by their labels."""
    effects = []
    for label, comparison in pairs.items():
        decision, unit = comparison.decision, scale(comparison.metric)
        if decision is not None:
            ends = (decision.difference * unit, decision.low * unit, decision.high * unit)
            printed = None if comparison.printed is None else comparison.printed * unit
            effects.append(Effect(label, *ends, printed, decision.verdict, exploratory(comparison)))
    effects.sort(key=lambda effect: effect.exploratory)
    first = next(iter(pairs.values()))
    axis = f"gain in {first.metric.title}" + (" (points)" if first.metric.percent else "")
    said = "; ".join(f"{e.label} {e.gain:+.3g} ({e.low:+.3g} to {e.high:+.3g}), {e.verdict}" for e in effects)
    margin = first.margin * scale(first.metric) if first.metric.percent else 0.0
    return Forest(f"forest-{name}", f"Every judged pair: {axis}", f"{axis}: {said}.", axis, tuple(effects), margin)


def means(results: StudyResults) -> Gallery:
    """The first picture of a study: for each part the means with their intervals, and the gains over the baseline."""
    if results.study.form == "logic":
        charts = [_solved(part, _of_part(results, part)) for part in results.study.parts]
        caption = "Dots: the share of trials that answer every point right, with its 95 % interval (Wilson's)."
    else:
        found = findings(results)
        charts = [_means(part, [f for f in found if f.part.name == part.name], results) for part in results.study.parts]
        caption = _means_caption([chart for chart in charts if chart is not None], found)
    shown = [chart for chart in charts if chart is not None]
    places = {results.study.place(result.row) for result in results.rows}
    lead = results.study.form != "curve" or len(places) < 2
    both = tuple(replace(c, name=f"{c.name}-narrow", narrow=True) if n else c for c in shown for n in (False, True))
    return Gallery("Results", caption, both, lead=lead, detail=not lead)


def _means_caption(charts: Sequence[Dots], found: Sequence[Finding]) -> str:
    dots = [dot for chart in charts for dot in chart.dots]
    single = any(dot.mean is not None and dot.low is None for dot in dots)
    if any(dot.low is not None for dot in dots):
        said = ["Large dots: means over trials, lines: their 95 % intervals, small dots: trials."]
        said += ["Arrows: the line goes on."] if any(chart.cut for chart in charts) else []
        said += ["A dot without a line is one trial."] if single else []
    else:
        said = ["Dots: one trial each, so there is no interval."] if single else []
    if any(chart.beyond for chart in charts):
        said.append("An arrow with numbers: the row lies far beyond the axis.")
    said += ["Diamonds: the paper."] if any(dot.paper is not None for dot in dots) else []
    if any(dot.gain for dot in dots):
        said.append("Gains (positive: better) are over trials with equal seeds; filled where the interval excludes 0.")
        pooled = {f.decision.pooled for f in found if f.decision}
        but = ", except rows that vary much more" if False in pooled else ""
        together = f"Their intervals take the variance of all rows with these seeds together{but}."
        said += [together] if True in pooled else []
        bases = list(dict.fromkeys(f.baseline for f in found if f.baseline))
        if 1 < len(bases) <= NAMED:
            names = f"{', '.join(bases[:-1])} or {bases[-1]}"
            said.append(f"A row is compared with the baseline of its group ({names}); baselines have no gain.")
    return " ".join(said)


def _means(part: Part, rows: Sequence[Finding], results: StudyResults) -> Dots | None:
    metric = results.study.metric(part.metric)
    quoted = [r for r in _of_part(results, part) if r.row.quoted and metric.name in r.row.paper]
    if not any(f.scores for f in rows):
        return None
    dots = [_dot(f, results.row(f.key)) for f in rows]
    dots = [dot for dot in dots if dot.mean is not None or dot.paper is not None]
    dots += [Dot(r.row.label, kind_of(r.row), paper=r.row.paper[metric.name].value) for r in quoted]
    bases = list(dict.fromkeys(f.baseline for f in rows if f.baseline))
    unit = "points" if metric.percent else metric.unit
    over = f"gain over {bases[0] if len(bases) == 1 and len(bases[0]) <= 16 else 'the baseline'}"
    gain_axis = f"{over} ({unit})" if unit else over
    said = ", ".join(f"{d.label} {d.mean:.4g}" for d in dots if d.mean is not None)
    gains = ", ".join(f"{d.label} {d.gain[0]:+.3g} ({d.gain[1]:+.3g} to {d.gain[2]:+.3g})" for d in dots if d.gain)
    alt = f"Mean {heading(metric)}, {part.title}: {said}." + (f" {gain_axis.capitalize()}: {gains}." if gains else "")
    better = "" if metric.percent else ", higher is better"  # of a share everybody knows
    axis = f"{heading(metric)}{better if metric.larger_is_better else ', lower is better'}"
    return Dots(
        f"{part.name}-means", part.title, alt, axis, gain_axis, tuple(dots), larger_is_better=metric.larger_is_better
    )


def _dot(f: Finding, result: RowResults) -> Dot:
    unit, own, d = scale(f.metric), f.summary, f.decision
    printed = result.row.paper.get(f.metric.name)
    several = own.n > 1
    return Dot(
        f.label, f.kind, own.mean * unit if own.n else None, own.low * unit if several else None,
        own.high * unit if several else None, tuple(v * unit for v in f.scores.values()) if several else (),
        printed.value if printed else None,
        None if d is None else (d.difference * unit, d.low * unit, d.high * unit), f.verdict in ("better", "worse"),
        show(f.metric, own.mean) + (f" ({show(f.metric, own.low)} to {show(f.metric, own.high)})" if several else "")
        if own.n else "", f.gain_text, not f.baseline,
    )  # fmt: skip


def _solved(part: Part, rows: Sequence[RowResults]) -> Dots | None:
    """The share of trials that answer every point right: one start in 200 would make the best trial perfect."""
    dots = []
    for result in rows:
        if count := len(tested(result, ACCURACY)):
            low, high = stats.wilson(solved := solved_by(result), count)
            kind = kind_of(result.row)
            dots.append(Dot(result.row.label, kind, 100 * solved / count, 100 * low, 100 * high))
    said = ", ".join(f"{dot.label} {dot.mean:.3g}" for dot in dots)
    alt = f"Share of trials that solve {part.title}, in per cent: {said}."
    return Dots(f"{part.name}-means", part.title, alt, "trials that solve it (%)", "", tuple(dots)) if dots else None


def curves(results: StudyResults) -> Gallery:
    """The metric against what the study varies (noise, alpha): one chart for each network."""
    if results.study.form != "curve":
        return Gallery("", "", ())
    places = {result.row.key: results.study.place(result.row) for result in results.rows}
    rows = [result for result in results.rows if places[result.row.key] is not None]
    models = dict.fromkeys(result.part.model for result in rows)
    charts = [_curve(m, [f for f in rows if f.part.model == m], places, results) for m in models]
    shown = tuple(chart for chart in charts if chart.lines)
    caption = f"Lines: the trial that is best by validation.{_ranges(results)}"
    return Gallery(f"Against {results.study.axis}", caption, shown, _legend(shown), lead=True)


def _curve(model: str, rows: Sequence[RowResults], places: dict[str, float | None], results: StudyResults) -> Lines:
    metric = results.study.metric(rows[0].part.metric)
    names: dict[str, list[RowResults]] = {}
    for result in rows:
        by_unit = result.row.x is not None  # the unit itself is what varies: one line for its kind
        names.setdefault(kind_of(result.row) if by_unit else result.row.label, []).append(result)
    lines = tuple(line for label, members in names.items() if (line := _over_places(label, members, places, metric)).x)
    said = "; ".join(f"{line.label} from {line.y[0]:.4g} to {line.y[-1]:.4g}" for line in lines)
    axis = heading(metric)
    alt = f"{axis} of {model} against {results.study.axis}: {said}."
    return Lines(f"{model}-curve", model, alt, results.study.axis, axis, lines, markers=True)


def _over_places(label: str, rows: Sequence[RowResults], places: dict[str, float | None], metric: Metric) -> Line:
    points, unit = [], scale(metric)
    for result in rows:
        value, values = test_value(result.best, metric), [v * unit for _, v in tested(result, metric)]
        place = places[result.row.key]
        if value is not None and place is not None:
            points.append((place, value * unit, min(values), max(values)))
    x, y, low, high = zip(*sorted(points), strict=True) if points else ((), (), (), ())
    kind = kind_of(rows[0].row)
    return Line(label, kind, x, y, low, high, is_leaky(kind))


def recalls(results: StudyResults) -> Gallery:
    """Of imbalanced data: the share of each class that is found, the classes that were thinned at the right."""
    parts = [part for part in results.study.parts if "imbalance" in _corruption_names(part)]
    charts = [_recall(part, [r for r in _of_part(results, part) if not r.row.quoted]) for part in parts]
    shown = tuple(chart for chart in charts if chart is not None)
    caption = (
        f"Lines: the share of each class's test samples that is recognised, mean over trials.{_ranges(results)} "
        "Thinned classes, with the share that they keep, stand at the right."
    )
    return Gallery("Recall of each class", caption, shown, _legend(shown))


def _recall(part: Part, rows: Sequence[RowResults]) -> Lines | None:
    tested_rows = [result for result in rows if any(t.test is not None for t in result.trials)]
    if not tested_rows:
        return None
    recalls_of = {r.row.key: np.array([_recalls(t) for t in r.trials if t.test is not None]) for r in tested_rows}
    count = min(table.shape[1] for table in recalls_of.values())
    kept = _kept(part, count)
    order = sorted(range(count), key=lambda k: (kept[k] < 1, k))
    names = classes_of(tested_rows) or tuple(f"class {k}" for k in range(count))
    ticks = tuple(names[k] if kept[k] == 1 else f"{kept[k]:.0%} of {names[k]}" for k in order)
    lines = tuple(_recall_line(r, 100 * recalls_of[r.row.key][:, order]) for r in tested_rows)
    said = "; ".join(f"{line.label} {line.y[0]:.3g} for {ticks[0]}, {line.y[-1]:.3g} for {ticks[-1]}" for line in lines)
    alt = f"Recall of each class (%), {part.title}: {said}."
    name = f"{part.name}-recalls"
    return Lines(name, part.title, alt, "class", "recall (%)", lines, markers=True, ticks=ticks)


def _recall_line(result: RowResults, table: NDArray[np.float64]) -> Line:
    places, kind = tuple(float(k) for k in range(table.shape[1])), kind_of(result.row)
    mean, low, high = _plain(table.mean(0)), _plain(table.min(0)), _plain(table.max(0))
    return Line(result.row.label, kind, places, mean, low, high, is_leaky(kind))


def _recalls(record: TrialRecord) -> list[float]:
    outputs = record.outputs()
    right = outputs.outputs.argmax(1) == outputs.labels
    counts = np.bincount(outputs.labels, minlength=outputs.outputs.shape[1])
    return list(np.bincount(outputs.labels, weights=right, minlength=len(counts)) / np.maximum(counts, 1))


def _kept(part: Part, count: int) -> list[float]:
    """The share of its training samples that each class keeps."""
    from apical.data.corruptions import Imbalance, parse  # noqa: PLC0415  torch

    kept = [1.0] * count
    for corruption in map(parse, part.corruptions):
        if isinstance(corruption, Imbalance):
            for label in corruption.thinned(count):
                kept[label] *= corruption.keep
    return kept


def approximations(results: StudyResults) -> Gallery:
    """The approximations of a function: one panel for each unit, the trial with the median error."""
    if results.study.form != "approximation":
        return Gallery("", "", ())
    charts = [_fit(row, results.study.metric(row.part.metric)) for row in results.rows]
    caption = (
        "Red: the function. Blue: the network, the trial with the median error. The error is the mean over trials."
    )
    return Gallery("Approximations", caption, tuple(chart for chart in charts if chart is not None))


def _fit(result: RowResults, metric: Metric) -> Fit | None:
    values = tested(result, metric)
    if not values:
        return None
    drawn = sorted(values, key=lambda pair: pair[1])[(len(values) - 1) // 2][0]
    record = next(t for t in result.trials if t.digest == drawn)
    outputs = record.outputs()
    order = np.argsort(outputs.ids, kind="stable")
    truth, fit = outputs.labels[order].ravel(), outputs.outputs[order].ravel()
    x = np.linspace(-2 * np.pi, 2 * np.pi, len(truth))  # the even points of apical.data's curves
    error = float(np.mean([value for _, value in values]))
    every = max(1, len(truth) // 250)
    title = f"{result.part.title}: {result.row.label}"
    alt = f"{title}: the function and its approximation, mean {metric.title} {error:.3g} over {len(values)} trials."
    return Fit(
        f"{result.row.key.replace('/', '-')}-fit", title, alt, kind_of(result.row), _plain(x[::every]),
        _plain(truth[::every]), _plain(fit[::every]), f"{metric.title} {show(metric, error)}",
    )  # fmt: skip


def learning(results: StudyResults) -> Gallery:
    """The validation metric over the epochs, one chart for each part and group."""
    charts: list[Lines] = []
    for part in results.study.parts:
        metric = results.study.metric(part.metric)
        read = partial(_validation, metric=metric)
        made = _by_group(results, part, "learning", read, f"validation {metric.heading}")
        charts += map(_with_log, made) if metric.format.endswith("e") else made  # printed in powers of ten: drawn so
    caption = f"Validation during training: {_bands(results)}."
    return Gallery("Learning curves", caption, tuple(charts), _legend(charts), detail=True)


def alphas(results: StudyResults) -> Gallery:
    """Learned alphas, and apart from them (another parameter, another scale) the betas of Swish, over the epochs."""
    charts: list[Lines] = []
    for name in _learned_names(results):
        for part in results.study.parts:
            charts += _by_group(results, part, f"learned-{name}", partial(_learned, name=name), f"learned {name}")
    caption = f"What a network learned beside weights, its mean where there are several: {_bands(results)}."
    return Gallery("Learned parameters", caption, tuple(charts), _legend(charts), detail=True)


def _learned_names(results: StudyResults) -> list[str]:
    """The names of what the trials learned beside weights: `alpha` of `activation.alpha`; alpha comes first."""
    entries = (e for result in results.rows for t in result.trials[:1] for e in t.history[:1])
    return sorted({key.rpartition(".")[2] for entry in entries for key in entry.get("learned") or {}})


def dynamics(results: StudyResults) -> Gallery:
    """Shares of inactive and saturated units and the norm of the gradient over the epochs."""
    kinds: tuple[tuple[str, Callable[[TrialRecord], list[float]], str, bool], ...] = (
        ("inactive", lambda t: _mean_share(t, "inactive"), "inputs below 0 (%)", False),
        ("saturated", lambda t: _mean_share(t, "saturated"), "saturated units (%)", False),
        ("gradient", _gradient_norm, "gradient norm", True),
    )
    charts = []
    for part in results.study.parts:
        for name, read, axis, log in kinds:
            rows = _of_part(results, part)
            chart = _over_epochs(f"{part.name}-{name}", part.title, axis, rows, read, from_zero=not log)
            if chart is not None:
                charts.append(_with_log(chart) if log else chart)
    shown = {chart.y_axis for chart in charts if not nothing_in(chart)}
    told = {
        kinds[0][2]: "the share of inputs of units that are below 0",
        kinds[1][2]: "the share of units that are saturated: alpha times their input exceeds 5, beyond ADA's peak",
        kinds[2][2]: "the Euclidean norm of the gradient of all parameters",
    }
    words = "; ".join(text for axis, text in told.items() if axis in shown)
    caption = f"On one batch of each epoch: {words}. Shown: {_bands(results)}."
    return Gallery("Training dynamics", caption, tuple(charts), _legend(charts), detail=True)


def _with_log(chart: Lines) -> Lines:
    positive = all(value > 0 for line in chart.lines for value in (*line.y, *line.low) if isfinite(value))
    return replace(chart, logarithmic=positive)


def _by_group(
    results: StudyResults, part: Part, what: str, read: Callable[[TrialRecord], list[float]], axis: str
) -> Iterator[Lines]:
    """One chart for each group of a part."""
    titles = {group.name: group.title for group in results.study.groups}
    groups: dict[str, list[RowResults]] = {}
    for row in _of_part(results, part):
        if not row.row.quoted:
            groups.setdefault(titles.get(row.row.group or "", OTHERS), []).append(row)
    for number, (group, rows) in enumerate(groups.items(), start=1):
        title = part.title if len(groups) == 1 else f"{part.title}: {group}"
        chart = _over_epochs(f"{part.name}-{what}-{number}", title, axis, rows, read)
        if chart is not None:
            yield chart


def _over_epochs(
    name: str,
    title: str,
    axis: str,
    rows: Sequence[RowResults],
    read: Callable[[TrialRecord], list[float]],
    *,
    from_zero: bool = False,
) -> Lines | None:
    kinds = _coloured(rows)
    lines = tuple(line for result in rows if (line := _band(result, kinds[result.row.key], read)) is not None)
    if not lines:
        return None
    said = "; ".join(f"{line.label} ends at {line.y[-1]:.3g}" for line in lines)
    return Lines(
        name, title, f"{axis} over the epochs, {title}: {said}.", "epoch", axis, lines, whole=True, from_zero=from_zero
    )


def _coloured(rows: Sequence[RowResults]) -> dict[str, str]:
    """The kind that gives each row its colour: its unit's, or its place on the axis where they differ in that alone."""
    places = [result.row.x for result in rows if result.row.x is not None]
    low, width = (min(places), max(places) - min(places)) if places else (0.0, 0.0)
    return {
        result.row.key: kind_of(result.row) if result.row.x is None or not width else step((result.row.x - low) / width)
        for result in rows
    }


def _band(result: RowResults, kind: str, read: Callable[[TrialRecord], list[float]]) -> Line | None:
    histories = [values for t in result.trials if t.finished and (values := read(t))]
    if not histories:
        return None
    length = max(map(len, histories))
    table = np.array([[*values, *[nan] * (length - len(values))] for values in histories], dtype=float)
    known = np.isfinite(table).any(0)
    if not known.any():
        return None
    table, epochs = table[:, known], np.flatnonzero(known) + 1
    ends = (25, 75) if len(histories) > MANY else (0, 100)
    mean, (low, high) = np.nanmean(table, 0), np.nanpercentile(table, ends, axis=0)
    dashed = is_leaky(kind_of(result.row))
    several = len(histories) > 1
    return Line(
        result.row.label, kind, _plain(epochs), _plain(mean), _plain(low) if several else (),
        _plain(high) if several else (), dashed,
    )  # fmt: skip


def _bands(results: StudyResults) -> str:
    """What the lines and bands of `_band` are."""
    counts = {count for r in results.rows if (count := sum(t.finished for t in r.trials)) > 1}
    if not counts:
        return "one trial of each row"
    if min(counts) > MANY:
        return "mean over trials; bands hold the middle half of them"
    wide = f" (of more than {MANY} trials the middle half)" if max(counts) > MANY else ""
    return f"mean over trials; bands from the lowest to the highest{wide}"


def _ranges(results: StudyResults) -> str:
    """What the bands of test values are; "" where no row has two."""
    several = any(sum(t.test is not None for t in r.trials) > 1 for r in results.rows)
    return " Bands: lowest to highest trial." if several else ""


def _validation(record: TrialRecord, *, metric: Metric) -> list[float]:
    return [_number((e.get("validation") or {}).get(metric.name)) * scale(metric) for e in record.history]


def _learned(record: TrialRecord, *, name: str) -> list[float]:
    entries = [(entry.get("learned") or {}).items() for entry in record.history]
    values = [[_number(v) for key, v in entry if key.rpartition(".")[2] == name] for entry in entries]
    return [float(np.mean(v)) for v in values] if values and all(values) else []


def _mean_share(record: TrialRecord, what: str) -> list[float]:
    shares = [list((entry.get("dynamics") or {}).get(what, {}).values()) for entry in record.history]
    known = [[100 * v for v in epoch if v is not None] for epoch in shares]
    return [float(np.mean(v)) if v else nan for v in known] if any(known) else []


def _gradient_norm(record: TrialRecord) -> list[float]:
    norms = [list((entry.get("dynamics") or {}).get("gradient", {}).values()) for entry in record.history]
    known = [[v for v in epoch if v is not None] for epoch in norms]
    return [float(np.linalg.norm(v)) if v else nan for v in known] if any(known) else []


def _number(value: float | None) -> float:
    return nan if value is None else float(value)


def _of_part(results: StudyResults, part: Part) -> list[RowResults]:
    return [result for result in results.rows if result.row.part == part.name]


def _legend(charts: Iterable[Chart]) -> tuple[tuple[str, str, bool], ...]:
    lines = [line for chart in charts if isinstance(chart, Lines) for line in chart.lines]
    return tuple(dict.fromkeys((line.label, line.kind, line.dashed) for line in lines))


def _plain(values: Any) -> tuple[float, ...]:
    return tuple(float(v) for v in values)


def noisy_samples(name: str, study: Study) -> list[Gallery]:
    """The same images with each level of noise; nothing where the study has none, or its data is not here."""
    parts = {part.corruptions: part for part in study.parts if "input-noise" in _corruption_names(part)}
    if not parts:
        return []
    clean = next(iter(parts.values())).model_copy(update={"corruptions": ()})
    sheets_of = [(_noise_level(part), _panels(part)) for part in (clean, *parts.values())]
    rows = tuple((label, tuple(image for _, image in panels)) for label, panels in sheets_of if panels)
    if not rows:
        return []
    classes = tuple(title for title, _ in next(panels for _, panels in sheets_of if panels))
    levels = ", ".join(label for label, _ in rows)
    alt = f"The same {len(rows[0][1])} images ({', '.join(classes)}) in {len(rows)} rows: {levels}."
    sheet = Pictures(f"{name}-samples", "Samples with noise", alt, rows, classes)
    caption = f"Test images, the same in each row, from left to right: {', '.join(classes)}."
    return [Gallery("What the networks see", caption, (sheet,))]


def _noise_level(part: Part) -> str:
    """ "σ = 0.1", or the corruptions as they are written; which samples were taken is no matter here."""
    written = [text for text in part.corruptions if _name_of(text) != "subset"]
    sigmas = re.findall(r"input-noise\(.*?sigma=([0-9.]+)", " ".join(written))
    return f"σ = {sigmas[0]}" if len(sigmas) == 1 == len(written) else ", ".join(written) or "no noise"


def _panels(part: Part) -> list[tuple[str, NDArray[Any]]]:
    """The class and the pixels of the samples; nothing where they are no images, or not on this machine."""
    from apical.report import samples  # noqa: PLC0415  opens data, and torch with it

    data = opened(part)
    if data is None:
        return []
    panels = samples.gather(data, split="test", count=SAMPLES)
    images = [(p.title.rpartition("\n")[0], p.content) for p in panels if p.kind == "image"]
    return [(title, content) for title, content in images if not isinstance(content, str)]


def _corruption_names(part: Part) -> list[str]:
    return [_name_of(text) for text in part.corruptions]


def _name_of(corruption: str) -> str:
    """ "input-noise" of "input-noise(sigma=0.1)"."""
    return corruption.partition("(")[0].strip()
