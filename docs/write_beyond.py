"""Write the numbers and figures of docs/beyond.md, docs/xor.md and README.md about the studies beyond the paper.

python docs/write_beyond.py [FOLDER]

FOLDER holds the study directories `parity` and `parity-bare`, as `apical study run` leaves them in studies/; from them
docs/evidence/parity.csv is written: a line for each row, with one digit for each start, 1 where it solves the problem.
Without FOLDER pages and figures are written again from that file. Nothing is trained here.
"""

import argparse
import csv
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from apical import stats, study
from apical.imports import optional
from apical.report.charts import FAINT, Palette
from apical.report.comparison import between, scores
from apical.report.draw import STYLE, svg_text
from apical.report.numbers import ACCURACY, show, show_share
from apical.report.question import conclusion
from apical.report.render.markdown import table
from apical.study.model import Study

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "docs"))
from write_evidence import filled  # noqa: E402  the script beside this one

RESULTS = ROOT / "docs" / "evidence" / "parity.csv"
PAGES = (ROOT / "docs" / "beyond.md", ROOT / "docs" / "xor.md", ROOT / "README.md")
IMAGES = ROOT / "docs" / "images"
STUDIES = ("parity", "parity-bare")
COLUMNS = ("study", "part", "row", "unit", "first_seed", "solved", "starts", "apical", "torch")
Starts = Mapping[tuple[str, str], Sequence[int]]
"""Of each study and row (`part/name`), 1 for each start that solves the problem and 0 for each other, by seed."""


# --- from the study directories to the file ---------------------------------------------------------------------------


def collect(folder: Path) -> list[dict[str, Any]]:
    """A line for each row of both studies; every planned start must be tested."""
    lines = []
    for name in STUDIES:
        results = study.read(folder / name)
        if results.study != study.load(name) or not results.finished:
            raise SystemExit(f"{folder / name} is not the whole study {name}: apical study run {name}")
        for row in results.rows:
            values = scores(row, ACCURACY)
            solved = "".join(str(int(values[seed] == 1.0)) for seed in sorted(values))
            environment = row.trials[0].environment
            facts = (name, row.part.name, row.row.name, row.chosen, min(values), solved.count("1"), solved)
            lines.append(dict(zip(COLUMNS, (*facts, environment["apical"], environment["torch"]), strict=True)))
    return lines


def write_csv(lines: Sequence[Mapping[str, Any]]) -> None:
    """The file that everything else is made of."""
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(lines)


def read_csv() -> Starts:
    """The starts of every row."""
    with RESULTS.open(encoding="utf-8", newline="") as file:
        return {
            (line["study"], f"{line['part']}/{line['row']}"): [*map(int, line["starts"])]
            for line in csv.DictReader(file)
        }


# --- what is said between the marks -----------------------------------------------------------------------------------


def blocks(starts: Starts) -> dict[str, str]:
    """Every generated block by its name."""
    made: dict[str, str] = {}
    for name in STUDIES:
        asked = study.load(name)
        made |= {f"{name}-answer": answer(asked, starts), f"{name}-table": counts(asked, starts)}
    return made | {"xor-layers": xor_table(starts), "xor-output": xor_sentence(starts)}


def answer(asked: Study, starts: Starts) -> str:
    """The question, the answer by its rule, and the comparisons that decide it."""
    q = asked.question
    assert q is not None
    decisions, rows = [], []
    for part in q.parts:
        for other in q.against:
            a, b = (starts[asked.name, f"{part}/{row}"] for row in (q.row, other))
            d = stats.decide(a, b, margin=q.effect)
            decisions.append(d)
            gain = f"{show(ACCURACY, d.difference, sign=True)} {between(ACCURACY, d.low, d.high)}"
            label = asked.row(f"{part}/{other}").label
            rows.append((asked.part(part).title, label, str(sum(a)), str(sum(b)), gain, d.verdict))
    word, why = conclusion(decisions)
    meaning = {"yes": q.yes, "no": q.no, "undecided": q.undecided}[word]
    heads = ("Problem", "ADA against", "ADA solves", "the other", "Difference in points (95 % interval)", "Finding")
    text = f"**Question.** {q.asks}\n\n**Expected.** {' '.join(q.hypothesis.split())}\n\n"
    return f"{text}**Answer: {word}.** {meaning} {why}\n\n{table(heads, rows, right=(2, 3))}"


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
        "([Beyond the paper](docs/beyond.md)). ADA's advantage is that of a bare, rounded output."
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


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="the folder of the study directories")
    arguments = parser.parse_args()
    if arguments.folder is not None:
        write_csv(collect(arguments.folder))
    starts = read_csv()
    made = blocks(starts)
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")
    for name in STUDIES:
        (IMAGES / f"{name}.svg").write_text(draw(study.load(name), starts), encoding="utf-8")


if __name__ == "__main__":
    main()
