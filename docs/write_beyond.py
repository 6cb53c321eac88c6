"""Write the numbers and figures of docs/beyond.md, docs/xor.md and README.md about the studies beyond the paper.

python docs/write_beyond.py [FOLDER]

FOLDER holds the study directories, as `apical study run` leaves them in studies/; from `parity` and `parity-bare`
docs/evidence/parity.csv is written: a line for each row, with one digit for each start, 1 where it solves the problem;
from `corruption`, `far-away` and `adversarial`, which have the same trials, docs/evidence/robustness.csv: a line for
each trial and number; from every other study docs/evidence/beyond.csv: a line for each trial, with the test value of
the metric that its question names. A directory that is not there leaves its numbers as they are. Without FOLDER pages
and figures are written again from these files. Nothing is trained here.
"""

import argparse
import csv
import re
import sys
import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apical import stats, study
from apical.imports import optional
from apical.report.charts import FAINT, Palette
from apical.report.comparison import scores
from apical.report.draw import STYLE, svg_text
from apical.report.numbers import ACCURACY, scale, show, show_share
from apical.report.question import compared, conclusion
from apical.report.render.markdown import table
from apical.stats import Decision
from apical.study.model import Study
from apical.study.plan import plan
from apical.train import metrics

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
from write_evidence import filled  # noqa: E402  the script beside this one

TRIALS = ROOT / "docs" / "evidence" / "beyond.csv"
RESULTS = ROOT / "docs" / "evidence" / "parity.csv"
PAGES = (ROOT / "docs" / "beyond.md", ROOT / "docs" / "xor.md", ROOT / "README.md")
IMAGES = ROOT / "docs" / "images"
STUDIES = ("parity", "parity-bare")
ASSESSED = ("corruption", "far-away", "adversarial")
NUMBERS = ROOT / "docs" / "evidence" / "robustness.csv"
FACTS = ("row", "seed", "metric", "value")
Scores = Mapping[tuple[str, str], Mapping[int, float]]
"""Of each row (`part/name`) and metric, the test value of each trial by its seed."""
Values = Mapping[str, Mapping[int, float]]
"""Of each row (`part/name`) of a study, the test value of each trial, by seed."""
TRIAL_COLUMNS = ("study", "part", "row", "setting", "parameters", "seed", "metric", "value", "apical", "torch")
COLUMNS = ("study", "part", "row", "unit", "first_seed", "solved", "starts", "apical", "torch")
Starts = Mapping[tuple[str, str], Sequence[int]]
"""Of each study and row (`part/name`), 1 for each start that solves the problem and 0 for each other, by seed."""


# --- from the study directories to the file ---------------------------------------------------------------------------


def whole(folder: Path, name: str) -> study.StudyResults:
    """The results of a study as it is shipped, every planned trial trained and tested."""
    results = study.read(folder / name)
    if results.study != study.load(name) or not results.finished:
        raise SystemExit(f"{folder / name} is not the whole study {name}: apical study run {name}")
    return results


def collect(folder: Path) -> list[dict[str, Any]]:
    """A line for each row of both studies; every planned start must be tested."""
    lines = []
    for name in STUDIES:
        for row in whole(folder, name).rows:
            values = scores(row, ACCURACY)
            solved = "".join(str(int(values[seed] == 1.0)) for seed in sorted(values))
            environment = row.trials[0].environment
            facts = (name, row.part.name, row.row.name, row.chosen, min(values), solved.count("1"), solved)
            lines.append(dict(zip(COLUMNS, (*facts, environment["apical"], environment["torch"]), strict=True)))
    return lines


def write_csv(path: Path, columns: Sequence[str], lines: Sequence[Mapping[str, Any]]) -> None:
    """A file that everything else is made of."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, columns, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def read_csv() -> Starts:
    """The starts of every row."""
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return {
            (line["study"], f"{line['part']}/{line['row']}"): [*map(int, line["starts"])]
            for line in csv.DictReader(file)
        }


def collect_scores(folder: Path) -> list[dict[str, Any]]:
    """A line for each trial and number of the studies of robustness that are there; they must be whole, and agree."""
    lines: list[dict[str, Any]] = []
    for name in (name for name in ASSESSED if (folder / name).is_dir()):
        results = whole(folder, name)
        own = [
            dict(zip(FACTS, (row.row.key, trial.seed, metric, f"{value:.6g}"), strict=True))
            for row in results.rows
            for trial in row.trials
            for metric, value in (trial.test or {}).items()
        ]
        if lines and own != lines:
            raise SystemExit(f"{folder / name} has other numbers than {ASSESSED[0]}, though the trials are the same")
        lines = own
    return lines


def read_scores() -> Scores:
    """The numbers of every trial; none where the studies were not run yet."""
    scores: dict[tuple[str, str], dict[int, float]] = {}
    if NUMBERS.is_file():
        with NUMBERS.open(encoding="utf-8", newline="") as file:
            for line in csv.DictReader(file):
                scores.setdefault((line["row"], line["metric"]), {})[int(line["seed"])] = float(line["value"])
    return scores


def collect_trials(folder: Path, name: str) -> list[dict[str, Any]]:
    """A line for each trial of the chosen settings of a study."""
    asked = study.load(name)
    assert asked.question is not None
    metric, lines = asked.metric(asked.question.metric), []
    for row in whole(folder, name).rows:
        trials = {trial.seed: trial for trial in row.trials}
        for seed, value in sorted(scores(row, metric).items()):
            facts = (name, row.part.name, row.row.name, row.chosen, trials[seed].parameters, seed, metric.name)
            own = trials[seed].environment
            values = (*facts, f"{value:.6g}", own["apical"], own["torch"])
            lines.append(dict(zip(TRIAL_COLUMNS, values, strict=True)))
    return lines


def others() -> list[str]:
    """The studies beyond the paper but those of parity and of robustness."""
    names = (name for name in study.names() if name not in (*STUDIES, *ASSESSED))
    return [name for name in names if study.load(name).question is not None]


def read_trials() -> list[dict[str, str]]:
    """The lines of the trials."""
    if not TRIALS.exists():
        return []
    with TRIALS.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def by_row(name: str, lines: Sequence[Mapping[str, str]]) -> Values:
    """The values of a study by row and seed, or 1 and 0 where its question counts trials; none where it was not run."""
    q = study.load(name).question
    assert q is not None
    values: dict[str, dict[int, float]] = {}
    for line in lines:
        if line["study"] == name:
            value = float(line["value"])
            score = value if q.reaches is None else float(value >= q.reaches)
            values.setdefault(f"{line['part']}/{line['row']}", {})[int(line["seed"])] = score
    return values


def heading(asked: Study) -> str:
    """What the numbers of a study are."""
    q = asked.question
    assert q is not None
    return asked.metric(q.metric).heading if q.reaches is None else "starts that solve it (%)"


# --- what is said between the marks -----------------------------------------------------------------------------------


def values_of(name: str, starts: Starts, numbers: Scores, trials: Sequence[Mapping[str, str]]) -> Values:
    """The values by row and seed of the metric that a study's question names; none where it was not run."""
    asked = study.load(name)
    if name in STUDIES:
        own = {row.key: starts[name, row.key] for row in asked.rows}
        return {key: {asked.first_seed + k: float(v) for k, v in enumerate(values)} for key, values in own.items()}
    if name in ASSESSED:
        assert asked.question is not None
        return {row.key: numbers[row.key, asked.question.metric] for row in asked.rows} if numbers else {}
    return by_row(name, trials)


def blocks(starts: Starts, numbers: Scores, trials: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Every generated block by its name."""
    made, lines = {}, []
    for name in (*STUDIES, *ASSESSED, *others()):
        asked, values = study.load(name), values_of(name, starts, numbers, trials)
        made[f"{name}-answer"] = answer(asked, values)
        lines.append(overview(asked, values))
        if name in STUDIES:
            made[f"{name}-table"] = counts(asked, starts)
        elif name in ASSESSED:
            made[f"{name}-table"] = details(asked, numbers)
        else:
            made[f"{name}-table"] = means(asked, values, trials)
    heads = ("Question", "Answer", "Mean gains, from the least to the largest over the problems", "Seeds")
    made["answers"] = table(heads, lines, right=(3,))
    made["beyond"] = summary(lines)
    return made | {"xor-layers": xor_table(starts), "xor-output": xor_sentence(starts)}


def decide(asked: Study, values: Values) -> list[tuple[str, str, tuple[str, str], str, Decision]]:
    """The comparisons of a question: part, other row, both means and the gain as printed, the decision."""
    q = asked.question
    assert q is not None
    metric, seeds = asked.metric(q.metric), [*range(asked.first_seed, asked.first_seed + asked.trials)]
    comparisons = []
    for part, other in ((part, other) for part in q.parts for other in q.against):
        first, second = (values[f"{part}/{row}"] for row in (q.row, other))
        assert sorted(first) == sorted(second) == seeds
        comparisons.append((part, other, *compared(q, metric, first, second)))
    return comparisons


def answer(asked: Study, values: Values) -> str:
    """The question, the answer by its rule, and the comparisons that decide it; no answer where it was not run."""
    q = asked.question
    assert q is not None
    label = asked.row(f"{q.parts[0]}/{q.row}").label
    score, shown = f"test {heading(asked)}", asked.metric(q.metric)
    if q.reaches is not None:
        score, shown = heading(asked), ACCURACY
    text = (
        f"**Question.** {q.asks}\n\n**Expected.** {' '.join(q.hypothesis.split())}\n\n**Decided by** {label} against "
        f"{', '.join(asked.row(f'{q.parts[0]}/{name}').label for name in q.against)}; {score}; smallest effect of "
        f"interest {show(shown, q.effect)}; {asked.trials} seeds ({q.seeds} are needed if two trials differ with a "
        f"deviation of {show(shown, q.deviation)}).\n\n"
    )
    if not values:
        count = f"{plan(asked).count:,}"
        return f"{text}**Not run in full yet.** `apical study run {asked.name}` trains its {count} trials."
    comparisons = decide(asked, values)
    word, why = conclusion([decision for *_, decision in comparisons])
    heads = ("Where", f"{label} against", label, "the other", "Gain (95 % interval)", "Finding")
    rows = [
        (asked.part(part).title, asked.row(f"{part}/{other}").label, *both, gain, decision.verdict)
        for part, other, both, gain, decision in comparisons
    ]
    return f"{text}**Answer: {word}.** {q.meanings[word]} {why}\n\n{table(heads, rows, right=(2, 3))}"


def section(name: str) -> str:
    """A link to the section of the page that answers a study's question, with its headings."""
    before = PAGES[0].read_text(encoding="utf-8").partition(f"<!-- {name}-answer: begin -->")[0]
    chapter = before.rpartition("\n## ")[2]
    title, _, rest = chapter.partition("\n")
    part = rest.rpartition("\n### ")[2].partition("\n")[0] if "\n### " in rest else ""
    slug = re.sub(r"[^a-z0-9 -]", "", (part or title).lower()).replace(" ", "-")
    return f"[{title}{', ' if part else ''}{part}](#{slug})"


def summary(lines: Sequence[tuple[str, str, str, str]]) -> str:
    """The answers as a list, for README; questions that were not run in full are left out."""
    told = [(anchor.replace("](", "](docs/beyond.md"), f"{text} {gains}.") for anchor, text, gains, _ in lines if gains]
    head = (
        "- Questions beyond the paper, each fixed with its rule before its trials were trained (a to b: over settings, "
        "no interval):"
    )
    return "\n".join((head, *(f"    - {anchor}: {text}" for anchor, text in told)))


def overview(asked: Study, values: Values) -> tuple[str, str, str, str]:
    """A line of the table of answers: the question, the answer, the gains over each other row, the seeds."""
    q = asked.question
    assert q is not None
    anchor = section(asked.name)
    if not values:
        return anchor, "not run in full yet", "", ""
    comparisons = decide(asked, values)
    metric = ACCURACY if q.reaches is not None else asked.metric(q.metric)
    ranges = []
    for other in q.against:
        gains = [decision.difference for _, own, _, _, decision in comparisons if own == other]
        low, high = (show(metric, value, sign=True) for value in (min(gains), max(gains)))
        ranges.append(f"{asked.row(f'{q.parts[0]}/{other}').label} {low}" + ("" if low == high else f" to {high}"))
    unit = "points of starts" if q.reaches is not None else metric.heading.replace("(%)", "(points)")
    row = asked.row(f"{q.parts[0]}/{q.row}").label
    word, _ = conclusion([decision for *_, decision in comparisons])
    return (
        anchor,
        f"**{word[:1].upper()}{word[1:]}.** {q.meanings[word]}",
        f"{row} over {', over '.join(ranges)}; {unit}",
        str(asked.trials),
    )


SHOWN = {
    "corruption": ("accuracy", "corruption-accuracy", "calibration-error", "corruption-calibration-error"),
    "far-away": (
        "softmax-auroc", "softmax-auroc.digits", "softmax-auroc.noise", "norm-auroc.digits", "norm-auroc.noise",
    ),
    "adversarial": ("accuracy", "adversarial-accuracy", *(
        f"adversarial-accuracy.{name}" for name in ("fgsm", "pgd", "transfer", "square")
    ), "masked"),
}  # fmt: skip
"""What the table and the figure of each study show."""


def details(asked: Study, numbers: Scores) -> str:
    """The figure, then mean and deviation of each row."""
    if not numbers:
        return ""
    q, rows = asked.question, []
    assert q is not None
    alt = f"{asked.title}: differences from ReLU of each other unit, with 95 % intervals over {asked.trials} seeds"
    picture = (
        f"![{alt}](images/{asked.name}.svg)\n\nFull dots are compared by the question; hollow ones are details, peers."
    )
    for row in asked.rows:
        cells = []
        for name in SHOWN[asked.name]:
            own = stats.summarise([*numbers[row.key, name].values()])
            metric = metrics.find(name)
            cells.append(f"{show(metric, own.mean)} ± {show(metric, own.deviation)}")
        rows.append((row.label, *cells))
    titles = (metrics.find(name).heading for name in SHOWN[asked.name])
    heads = ("Unit", *(title[:1].upper() + title[1:] for title in titles))
    return f"{picture}\n\n{table(heads, rows, right=range(1, len(heads)))}"


def means(asked: Study, values: Values, trials: Sequence[Mapping[str, str]]) -> str:
    """The figure, then the mean and the deviation of each row in each part, and the setting that was chosen."""
    if not values:
        return ""
    q = asked.question
    assert q is not None
    metric = asked.metric(q.metric)
    own = {f"{line['part']}/{line['row']}": line for line in trials if line["study"] == asked.name}
    parts = [part for part in asked.parts if part.metric == q.metric]
    heads = ("Row", *(part.title for part in parts), "Parameters", f"Setting ({parts[0].title})")
    rows = []
    for name in dict.fromkeys(row.name for row in asked.rows):
        cells = [values[f"{part.name}/{name}"] for part in parts]
        shown = [stats.summarise([*cell.values()]) for cell in cells]
        line = own[f"{parts[0].name}/{name}"]
        texts = [f"{show(metric, s.mean)} ± {show(metric, s.deviation)}" for s in shown]
        if q.reaches is not None:
            texts = [f"{sum(cell.values()):.0f} of {len(cell)}" for cell in cells]
        count = f"{int(line['parameters']):,}"
        rows.append((asked.row(f"{asked.parts[0].name}/{name}").label, *texts, count, f"`{line['setting']}`"))
    picture = f"![{asked.title}: mean of each row with its 95 % interval over {asked.trials} seeds]"
    picture += f"(images/{asked.name}.svg)\n\nFull dots are compared by the question; hollow ones are peers."
    return f"{picture}\n\n{table(heads, rows, right=range(1, len(heads) - 1))}"


def counts(asked: Study, starts: Starts) -> str:
    """How many starts solve each problem with each width."""
    names = list(dict.fromkeys(row.name for row in asked.rows))
    heads = ("Unit", *(part.title.replace(", width ", "&nbsp;/&nbsp;").replace(" bits", "") for part in asked.parts))
    rows = []
    for name in names:
        label = asked.row(f"{asked.parts[0].name}/{name}").label
        rows.append((label, *(str(sum(starts[asked.name, f"{part.name}/{name}"])) for part in asked.parts)))
    return table(heads, rows, right=range(1, len(heads)))


def xor_table(starts: Starts) -> str:
    """One neuron and XOR, with and without an output layer behind it."""
    rows = []
    for row in study.load(STUDIES[0]).rows:
        if row.part == "xor-1":
            shares = [show_share(sum(own), len(own)) for own in (starts[name, row.key] for name in reversed(STUDIES))]
            rows.append((row.label, *shares))
    return table(("One neuron", "Its rounded output", "A learned scale and bias behind it"), rows, right=(1, 2))


def xor_sentence(starts: Starts) -> str:
    """The other half of the sentence about XOR."""
    order = ("silu", "gelu", "mish", "ada", "relu")
    asked = study.load(STUDIES[0])
    said = [f"{asked.row(f'xor-1/{name}').label} from {sum(starts['parity', f'xor-1/{name}'])}" for name in order]
    return (
        f"- With a learned scale and bias behind the neuron, others learn XOR more often: "
        f"{', '.join(said)} of 200 starts "
        "([Beyond the paper](docs/beyond.md)). ADA's advantage over these is that of a bare, rounded output."
    )


# --- the figures ------------------------------------------------------------------------------------------------------


def draw(asked: Study, starts: Starts) -> str:
    """A panel for each problem that decides: the share of starts that solve it, with Wilson's interval, by unit."""
    matplotlib, figures = optional("matplotlib", extra="lab"), optional("matplotlib.figure", extra="lab")
    q, palette = asked.question, Palette()
    assert q is not None
    names = list(dict.fromkeys(row.name for row in asked.rows))[::-1]
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(figsize=(9.2, 2.9), layout="constrained")
        for axis, part in zip(figure.subplots(1, len(q.parts), sharey=True), q.parts, strict=True):
            for place, name in enumerate(names):
                own, row = starts[asked.name, f"{part}/{name}"], asked.row(f"{part}/{name}")
                low, high = stats.wilson(sum(own), len(own))
                color, share = palette.colour(row.unit), sum(own) / len(own)
                axis.plot([100 * low, 100 * high], [place, place], color=color, linewidth=1.6)
                compared = name == q.row or name in q.against
                axis.plot(100 * share, place, "o", color=color, markerfacecolor=color if compared else "white")
            axis.set(xlim=(-4, 104), xlabel="starts that solve it, %", yticks=range(len(names)))
            axis.set_yticklabels([asked.row(f"{part}/{name}").label for name in names])
            axis.set_title(asked.part(part).title, fontsize=9, loc="left")
            axis.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.6)
        return svg_text(figure, asked.name)


def draw_effects(asked: Study, numbers: Scores) -> str:
    """A panel for each number: the difference from ReLU of every other row, mean over seeds with its 95 % interval."""
    matplotlib, figures = optional("matplotlib", extra="lab"), optional("matplotlib.figure", extra="lab")
    q, palette = asked.question, Palette()
    assert q is not None
    base, rows = (
        asked.row(f"{q.parts[0]}/{q.against[0]}"),
        [row for row in asked.rows if row.name not in q.against][::-1],
    )
    with matplotlib.rc_context(STYLE):
        figure = figures.Figure(figsize=(9.2, 2.3), layout="constrained")
        keys = [row.key for row in asked.rows]
        told = [
            name for name in SHOWN[asked.name] if any(any(numbers[key, name].values()) for key in keys)
        ]  # not all 0
        for axis, name in zip(figure.subplots(1, len(told), sharey=True), told, strict=True):
            metric = metrics.find(name)
            for place, row in enumerate(rows):
                first, second = ([*numbers[key, name].values()] for key in (row.key, base.key))
                d = stats.decide(first, second, margin=q.effect)
                color = palette.colour(row.unit)
                axis.plot([scale(metric) * d.low, scale(metric) * d.high], [place, place], color=color, linewidth=1.6)
                full = color if row.name == q.row and name == q.metric else "white"
                axis.plot(scale(metric) * d.difference, place, "o", color=color, markerfacecolor=full)
            axis.axvline(0, color=FAINT, linewidth=0.8)
            axis.set(yticks=range(len(rows)), ylim=(-0.6, len(rows) - 0.4))
            axis.set_yticklabels([row.label for row in rows])
            axis.set_title("\n".join(textwrap.wrap(metric.title, 17)), fontsize=7, loc="left")
            axis.set_xlabel("points" if metric.percent else "AUROC", fontsize=8)
            axis.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.6)
        return svg_text(figure, asked.name)


PANELS = 4
"""Side by side in a figure; titles of more would run into one another."""


def draw_means(asked: Study, values: Values) -> str:
    """A panel for each part that decides: the mean of each row, with its interval."""
    matplotlib, figures = optional("matplotlib", extra="lab"), optional("matplotlib.figure", extra="lab")
    q, palette = asked.question, Palette()
    assert q is not None
    metric = asked.metric(q.metric)
    scale = 100 if metric.percent else 1
    names = list(dict.fromkeys(row.name for row in asked.rows))[::-1]
    with matplotlib.rc_context(STYLE):
        lines = -(-len(q.parts) // PANELS)
        figure = figures.Figure(figsize=(9.2, lines * (0.9 + 0.21 * len(names))), layout="constrained")
        axes = figure.subplots(lines, min(len(q.parts), PANELS), sharey=True, squeeze=False).ravel()
        for axis in axes[len(q.parts) :]:
            axis.set_visible(False)
        for axis, part in zip(axes, q.parts, strict=False):
            for place, name in enumerate(names):
                row = asked.row(f"{part}/{name}")
                s = stats.summarise([*values[row.key].values()])
                color, compared = palette.colour(row.unit), name == q.row or name in q.against
                axis.plot([scale * s.low, scale * s.high], [place, place], color=color, linewidth=1.6)
                axis.plot(scale * s.mean, place, "o", color=color, markerfacecolor=color if compared else "white")
            axis.set(xlabel=heading(asked), yticks=range(len(names)))
            axis.set_yticklabels([asked.row(f"{part}/{name}").label for name in names])
            axis.set_title(asked.part(part).title, fontsize=9, loc="left")
            axis.grid(axis="x", color=FAINT, alpha=0.25, linewidth=0.6)
        return svg_text(figure, asked.name)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="the folder of the study directories")
    arguments = parser.parse_args()
    if arguments.folder is not None and (arguments.folder / STUDIES[0]).is_dir():
        write_csv(RESULTS, COLUMNS, collect(arguments.folder))
    if arguments.folder is not None and (lines := collect_scores(arguments.folder)):
        write_csv(NUMBERS, FACTS, lines)
    trials: list[Any] = read_trials()
    names = others()
    for name in names if arguments.folder is not None else ():
        if (arguments.folder / name).is_dir():
            trials = [t for t in trials if t["study"] != name] + collect_trials(arguments.folder, name)
            write_csv(TRIALS, TRIAL_COLUMNS, sorted(trials, key=lambda trial: names.index(trial["study"])))
    starts, numbers, trials = read_csv(), read_scores(), read_trials()
    made = blocks(starts, numbers, trials)
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")
    for name in STUDIES:
        (IMAGES / f"{name}.svg").write_text(draw(study.load(name), starts), encoding="utf-8")
    for name in ASSESSED if numbers else ():
        (IMAGES / f"{name}.svg").write_text(draw_effects(study.load(name), numbers), encoding="utf-8")
    for name in others():
        if values := by_row(name, trials):
            (IMAGES / f"{name}.svg").write_text(draw_means(study.load(name), values), encoding="utf-8")


if __name__ == "__main__":
    main()
