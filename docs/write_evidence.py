"""Write docs/evidence/ and the headline numbers of README.md from finished studies.

python docs/write_evidence.py [FOLDER] [--timing FILE] [--optimiser FILE] [--by-test FILE]

FOLDER holds study directories, as `apical study run` leaves them in studies/. Rows that are complete enter results.csv,
whose other lines stay: a long study can be run row by row (`--set 'only_rows=["ada"]'`), on several machines. A network
with fresh seeds enters pages and verdicts when all its rows are there. The files are those of `python
benchmarks/epochs.py --csv FILE`, `python docs/evidence/optimiser.py FILE` and `python docs/evidence/by_test.py FILE`.
The claims, the forest plot and the numbers are made from what stands in docs/evidence alone: results.csv has every
score, histories.csv the training losses and the gradients of tables, samples.json the paper's marks and bootstraps over
images of the pairs whose answers were there, and waiting/ the answers of networks that lack rows, until these come from
another machine. Nothing is trained here.

A study with fresh seeds (docs/evidence/confirm-*.toml) stands for the shipped one that it extends; its draws of noise
are one sample of draws x seeds.
"""

import argparse
import csv
import json
import re
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from math import comb, exp, log
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from apical import stats, study
from apical.models.registry import unit_for
from apical.report import draw, figures, writing
from apical.report.charts import Chart, Palette
from apical.report.claims import verdicts
from apical.report.claims.findings import smallest_gradient_shares
from apical.report.comparison import (
    MARKS,
    AnswerBook,
    Answers,
    Beside,
    Evidence,
    PairedTest,
    between,
    compare,
    fingerprint,
    with_interval,
)
from apical.report.gathering import by_topic, counted
from apical.report.numbers import ACCURACY, show
from apical.report.render import markdown
from apical.report.render.markdown import table
from apical.stats import calibration
from apical.study.maintenance import gather as trials_of
from apical.study.model import Study
from apical.study.results import FINISHED, RowResults, SettingResults, StudyResults, TrialRecord

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "docs" / "evidence"
TABLES = ("results", "timing", "optimiser", "by-test")
RESULTS, TIMING, OPTIMISER, BY_TEST = (EVIDENCE / f"{name}.csv" for name in TABLES)
CLAIMS, CALIBRATION, HISTORIES = (EVIDENCE / f"{name}.csv" for name in ("claims", "calibration", "histories"))
SAMPLES = EVIDENCE / "samples.json"
WAITING = EVIDENCE / "waiting"
PAGES = (ROOT / "README.md", *(EVIDENCE / f"{name}.md" for name in ("index", "why", "calibration")))
CONFIRMATORY = 1000
"""The first seed of the trials that the rule decides by; smaller ones were seen before it was written."""
DRAW = re.compile(r"-draw-\d+")
Row = Mapping[str, str]

HEADLINE = {"table-fashion-mlp": ("mlp-1", "mlp-2"), "table-fashion-cnn": ("lenet",)}
UNITS = ("relu", "ada", "pynrelu", "pynada")
NAMES = {"mlp-1": "MLP-1", "mlp-2": "MLP-2", "lenet": "LeNet", "vgg-9": "VGG-9", "char-cnn": "char-CNN"}
LEARNED = ("table-fashion-mlp", "table-fashion-cnn", "controls", "confirm-mlp", "confirm-lenet", "confirm-lenet-conv")
ROBUSTNESS = ("input-noise", "label-noise", "imbalance")
PAPER_TIMES = "table-moroco"
"""The only table of the paper with times: char-CNN, seconds per epoch."""


# --- what is said between the marks, from results.csv, timing.csv and optimiser.csv alone -----------------------------


def blocks() -> dict[str, str]:
    """Every generated block by its name."""
    trials, timings = _read(RESULTS), _read(TIMING)
    waiting = unready(recorded(trials))
    studied = ready(recorded(trials))
    deciding = decisive(studied)
    calibrations = looked_at(_read(CALIBRATION), waiting) if CALIBRATION.is_file() else []
    return {
        "state": state(deciding, waiting),
        "headline": headline(deciding),
        "pairs": pairs(deciding),
        "losses": losses(deciding),
        "confirmed": confirmed(deciding),
        "as-coded": as_coded(deciding),
        "likelihood": likelihood(deciding),
        "marks": marks(studied),
        "verdicts": by_subject(judgements_of(studied)),
        "calibration": calibrated(calibrations) if calibrations else NOTHING_YET,
        "calibration-levels": calibration_levels(calibrations) if calibrations else NOTHING_YET,
        "xor": xor(trials),
        "cost": cost(timings),
        "studies": studies(trials),
        "times": times(timings),
        "robustness": robustness(deciding),
        "imbalance": imbalance(deciding),
        "alphas": alphas(looked_at(trials, waiting)),
        "curves": curves(deciding),
        "optimiser": optimiser(_read(OPTIMISER)),
        "by-test": by_test(_read(BY_TEST)),
    }


def headline(studied: Sequence[StudyResults]) -> str:
    """Fashion-MNIST, test accuracy: the paper's number, ours, and how ours varies."""
    rows = []
    for results in (r for name in HEADLINE for r in studied if base_of(r) == name):
        for row in results.rows:
            part, unit = row.part.name, row.row.name
            if part in HEADLINE[base_of(results)] and unit in UNITS and row.best is not None and row.best.test:
                printed, ours = f"{row.row.paper['accuracy'].value:.2f}", show(ACCURACY, row.best.test["accuracy"])
                rows.append((NAMES[part], row.row.label, printed, spread(row.tests("accuracy")), ours))
    heads = ("Network", "Unit", "Paper, best of five", "Ours, mean ± sd (trials)", "Best by validation")
    return table(heads, rows, right=(2, 3, 4))


def spread(values: Sequence[float]) -> str:
    """Mean and deviation of trials in per cent, and how many there are."""
    found = stats.summarise(values)
    deviation = f" ± {show(ACCURACY, found.deviation)}" if found.n > 1 else ""
    return f"{show(ACCURACY, found.mean)}{deviation} ({found.n})"


def robustness(studied: Sequence[StudyResults]) -> str:
    """Test accuracy under noise and imbalance, over trials."""
    rows = []
    for results in (r for name in ROBUSTNESS for r in studied if base_of(r) == name):
        for part in {row.part.name: row.part for row in results.rows if row.trials}.values():
            cells = [spread(results.row(f"{part.name}/{unit}").tests(part.metric)) for unit in UNITS]
            title = results.study.title.partition(":")[0] + part.title.partition(",")[2].replace(" ", ": ", 1)
            rows.append((title, *cells))
    heads = ("MLP-2", *(study.load("imbalance").row(f"mlp-2/{unit}").label for unit in UNITS))
    return table(heads, rows, right=range(1, len(heads)))


def imbalance(studied: Sequence[StudyResults]) -> str:
    """The rows with ADA against their baselines on imbalanced data, where fresh draws and seeds decide."""
    own = [results for results in studied if base_of(results) == "imbalance" and any(map(fresh, results.rows))]
    evidence, lines = Evidence(own), []
    rows = {row.row.key: row for results in own for row in results.rows if row.trials}
    for key, row in rows.items():
        base = rows.get(f"{row.part.name}/{dict(COMPARED).get(row.row.name)}")
        if base is not None:
            c = evidence.get(("imbalance", key), ("imbalance", base.row.key), row.part.metric)
            pair = f"{row.row.label} − {base.row.label}"
            lines.append(
                (NAMES[row.part.name], pair, with_interval(c), str(len(c.seeds)), c.verdict, by_draws(row, base))
            )
    heads = ("Network", "Pair", "Gain (95 %)", "Draws x seeds", "Decision", "95 %, means of draws alone")
    return table(heads, lines, right=(2, 3, 5)) if lines else NOTHING_YET


def by_draws(row: RowResults, base: RowResults) -> str:
    """The interval of the gain with the mean of each draw as one value, in case the gain differs between draws."""
    scores = [{t.seed: t.test[row.part.metric] for t in r.trials if t.test} for r in (row, base)]
    size = _study("confirm-imbalance").trials
    gains: dict[int, list[float]] = {}
    for seed in scores[0].keys() & scores[1].keys():
        gains.setdefault((seed - CONFIRMATORY) // size, []).append(scores[0][seed] - scores[1][seed])
    means = stats.summarise([stats.summarise(own).mean for own in gains.values()])
    return f"{show(ACCURACY, means.low, sign=True)} to {show(ACCURACY, means.high, sign=True)}"


def curves(studied: Sequence[StudyResults]) -> str:
    """Mean squared errors on sin(x) and sin(x)/x over trials, and the factor to ReLU's error with equal seeds."""
    rows = []
    for results in (r for r in studied if base_of(r) == "approximation"):
        for row in results.rows:
            of_relu = dict(_errors(results.row(f"{row.part.name}/relu")))
            own = dict(_errors(row))
            logs = stats.summarise([log(of_relu[seed] / own[seed]) for seed in sorted(own.keys() & of_relu.keys())])
            factor, low, high = (plain(exp(value)) for value in (logs.mean, logs.low, logs.high))
            errors = stats.summarise(list(own.values()))
            cells = (f"{errors.mean:.2g} ± {errors.deviation:.2g} ({errors.n})", f"{factor} ({low} to {high})")
            rows.append((row.part.title, row.row.label, *(cells if row.row.name != "relu" else (cells[0], "1"))))
    heads = ("Curve", "Unit", "Mean squared error ± sd (trials)", "ReLU's error is larger by a factor of (95 %)")
    return table(heads, rows, right=(2, 3))


def _errors(row: RowResults) -> Iterator[tuple[int, float]]:
    return ((t.seed, t.test["mse"]) for t in row.trials if t.test is not None)


def alphas(trials: Sequence[Row]) -> str:
    """Where a learned alpha starts, and where it ends in the weights that are kept."""
    found: dict[tuple[str, str, str], dict[bool, list[float]]] = {}
    for t in trials:
        if t["study"] in LEARNED and "alpha=learn" in t["unit"]:
            start = unit_for(t["model"], t["unit"]).alpha_init
            unit = re.sub(",alpha_init=[0-9.]+", "", t["unit"])
            seen = found.setdefault((NAMES[t["model"]], unit, f"{start:g}"), {})
            seen.setdefault(int(t["seed"]) >= CONFIRMATORY, []).append(float(t["learned"]))
    rows = [
        (network, f"`{unit}`", start, span(ends), f"{np.median(ends):.2g}",
         f"{sum(e < 0 for e in ends)} of {len(ends)}", "fresh" if is_fresh else "exploratory")
        for (network, unit, start), groups in sorted(found.items())
        for is_fresh, ends in sorted(groups.items())
    ]  # fmt: skip
    heads = ("Network", "Unit", "alpha starts at", "and ends at", "median", "below 0", "Trials")
    return table(heads, rows, right=(2, 3, 4, 5))


def optimiser(trials: Sequence[Row]) -> str:
    """Other settings of Adam: test accuracy, and where a learned alpha ends."""
    rows = []
    for setting in dict.fromkeys((t["unit"], t["epsilon"], t["alpha_rate"]) for t in trials):
        own = [t for t in trials if (t["unit"], t["epsilon"], t["alpha_rate"]) == setting]
        unit, epsilon, rate = setting
        ends = [float(t["alpha"]) for t in own if "learn" in unit]
        times = f"{float(rate):g} times" if ends else ""
        rows.append(
            (f"`{unit}`", f"{float(epsilon):.0e}", times, spread([float(t["test"]) / 100 for t in own]), span(ends))
        )
    heads = ("Unit", "epsilon", "learning rate of alpha", "Mean ± sd (trials)", "alpha ends at")
    return table(heads, rows, right=(1, 2, 3, 4))


def by_test(trials: Sequence[Row]) -> str:
    """The what-if: chosen by validation, and by the test score of every epoch."""
    paper, rows = _study("table-fashion-mlp"), []
    for network, unit in dict.fromkeys((t["network"], t["unit"]) for t in trials):
        own = [t for t in trials if (t["network"], t["unit"]) == (network, unit)]
        best = max(own, key=lambda t: float(t["validation"]))
        printed = paper.row(f"{network}/{unit.partition('(')[0]}").paper["accuracy"].value
        means = [stats.summarise([float(t[name]) for t in own]).mean for name in ("test", "best_test")]
        top = max(float(t["best_test"]) for t in own)
        rows.append((NAMES[network], f"`{unit}`", f"{printed:.2f}", best["test"], f"{top:.2f}",
                     *(f"{mean:.2f}" for mean in means), str(len(own))))  # fmt: skip
    heads = ("Network", "Unit", "Paper", "Best trial, by validation", "Best trial and epoch, by test",
             "Mean, epoch by validation", "Mean, epoch by test", "Trials")  # fmt: skip
    return table(heads, rows, right=range(2, len(heads)))


def span(values: Sequence[float]) -> str:
    """From the smallest to the largest, as far as they differ in two digits."""
    return " to ".join(dict.fromkeys(f"{value:.2g}" for value in (min(values), max(values)))) if values else ""


def xor(trials: Sequence[Row]) -> str:
    """From how many starts one neuron learns XOR."""
    solved = {}
    for unit in ("ada", "relu"):
        values = [t["test accuracy"] for t in trials if (t["study"], t["row"]) == ("logic", f"xor/{unit}")]
        solved[unit] = f"{sum(float(value) == 1 for value in values)} of {len(values)}"
    ada, relu = solved.values()
    return f"- One ADA neuron learns XOR with Adam from {ada} random starts, one ReLU neuron from {relu}."


def cost(timings: Sequence[Row]) -> str:
    """An epoch of LeNet with ADA and PyNADA."""
    found = {t["unit"]: ratio(t) for t in timings if t["network"] == "lenet"}
    ada, pynada = found["ada"], found["pynada"]
    return f"- An epoch of LeNet takes {ada} times as long with ADA as with ReLU, {pynada} times with PyNADA."


def studies(trials: Sequence[Row]) -> str:
    """What was run: parts, trials, epochs, hours, of each study."""
    rows = []
    for name in dict.fromkeys(t["study"] for t in trials):
        own = {(t["part"], t["digest"]): t for t in trials if t["study"] == name}.values()
        tested = sum(bool(t["test accuracy"] or t.get("test mse") or t.get("test mae")) for t in own)
        parts = ", ".join(dict.fromkeys(t["part"] for t in own))
        epochs = ", ".join(dict.fromkeys(t["epochs"] for t in own))
        minutes = sum(float(t["seconds"]) for t in own) / 60
        rows.append((f"`{name}`", parts, str(len(own)), str(tested), epochs, f"{minutes:.0f}"))
    heads = ("Study", "Parts", "Trials", "of which tested", "Epochs", "Minutes of training")
    return table(heads, rows, right=(2, 3, 4, 5))


def times(timings: Sequence[Row]) -> str:
    """Seconds per epoch relative to ReLU: four networks here, char-CNN in the paper."""
    networks = list(dict.fromkeys(t["network"] for t in timings))
    paper = study.load(PAPER_TIMES)
    base = paper.row("cnn/relu").paper["seconds"].value
    rows = []
    for unit in dict.fromkeys(t["unit"] for t in timings):
        here = {t["network"]: t for t in timings if t["unit"] == unit}
        key = f"cnn/{unit.partition('(')[0].replace('_', '-')}"
        printed = paper.row(key).paper["seconds"].value
        rows.append((f"`{unit}`", *(ratio(here[n]) for n in networks), f"{printed / base:.2f}"))
    reference = {t["network"]: t["seconds_per_epoch"] for t in timings if t["unit"] == "relu"}
    rows.append(("ReLU, seconds per epoch", *(plain(float(reference[n])) for n in networks), f"{base:g}"))
    heads = ("Unit", *(NAMES[n] for n in networks), "The paper: char-CNN")
    return table(heads, rows, right=range(1, len(heads)))


def plain(value: float) -> str:
    """Three digits, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def ratio(timing: Row) -> str:
    """A ratio with its interval; ReLU itself has none."""
    value, low, high = (float(timing[name]) for name in ("ratio_to_relu", "low", "high"))
    return f"{value:.2f} ({low:.2f} to {high:.2f})" if low < high else f"{value:.0f}"


def filled(text: str, found: Mapping[str, str]) -> str:
    """The text with what stands between `<!-- NAME: begin -->` and `<!-- NAME: end -->` written anew."""
    for name, block in found.items():
        begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
        before, mark, rest = text.partition(begin)
        if mark:
            text = f"{before}{begin}\n{block}\n{end}{rest.partition(end)[2]}"
    return text


# --- the decisions about pairs and claims, from results.csv or from the study directories -----------------------------


def recorded(trials: Sequence[Row]) -> list[StudyResults]:
    """The studies of results.csv as far as it has them: every score, no answers, no learning curves."""
    return [_recorded(name, [t for t in trials if t["study"] == name]) for name in dict.fromkeys(_names(trials))]


def _names(trials: Sequence[Row]) -> list[str]:
    return [t["study"] for t in trials]


@cache
def _study(name: str) -> Study:
    return study.load(name if name in study.names() else EVIDENCE / f"{name}.toml")


def _recorded(name: str, trials: Sequence[Row]) -> StudyResults:
    own = _study(name)
    by_row: dict[str, list[Row]] = {}
    for t in trials:
        by_row.setdefault(t["row"], []).append(t)
    finals = {key: [t for t in rows if t["chosen"] == "True"] for key, rows in by_row.items()}
    count = max(len(rows) for rows in finals.values())
    rows = []
    for row in own.rows:
        settings: dict[str, list[TrialRecord]] = {}
        for t in by_row.get(row.key, []):
            settings.setdefault(t["unit"], []).append(_record(t))
        rows.append(
            RowResults(
                row=row,
                part=own.part(row.part),
                settings=tuple(
                    SettingResults(setting=s, trials=_first(records, own.tune_trials))
                    for s, records in settings.items()
                ),
                trials=tuple(_record(t) for t in finals.get(row.key, [])),
                best=next((_record(t) for t in finals.get(row.key, []) if t["best"] == "True"), None),
            )
        )
    own = own.model_copy(update={"trials": count})
    return StudyResults(study=own, directory=EVIDENCE, rows=tuple(rows), states=Counter(), finished=True)


def _first(records: Sequence[TrialRecord], count: int) -> tuple[TrialRecord, ...]:
    """Of a setting's trials those that served to choose."""
    return tuple(sorted(records, key=lambda record: record.seed)[:count])


def _record(t: Row) -> TrialRecord:
    scores = {
        split: {
            key.partition(" ")[2]: float(value) for key, value in t.items() if key.startswith(f"{split} ") and value
        }
        for split in ("validation", "test")
    }
    return TrialRecord(
        digest=t["digest"], directory=None, spec=None, state=t["state"], seed=int(t["seed"]), metric=t["metric"],
        validation=scores["validation"], test=scores["test"] or None, parameters=int(t["parameters"]),
        best_epoch=int(t["best_epoch"] or 0), history=histories().get((t["study"], t["row"], t["seed"]), []),
    )  # type: ignore[arg-type]  # fmt: skip


@cache
def histories() -> dict[tuple[str, str, str], list[dict[str, Any]]]:
    """By study, row and seed the epochs of the trials that were tested, as far as claims look at them."""
    lines = _read(HISTORIES) if HISTORIES.is_file() else ()
    made = {}
    for line in lines:
        numbers = zip(line["loss"].split(), line["smallest gradient"].split(), strict=True)
        made[line["study"], line["row"], line["seed"]] = [
            {"loss": float(loss), "dynamics": {"gradient": {"largest": 1.0, "smallest": float(share)}}}
            for loss, share in numbers
        ]
    return made


def write_histories(studies: Sequence[StudyResults]) -> None:
    """Of each tested trial of a table, epoch by epoch: training loss, smallest layer's share of the gradient."""
    rows = [dict(line) for line in _others(HISTORIES, studies)]
    for results in studies:
        for row in results.rows if results.study.form == "table" else ():
            for t in (t for t in row.trials if t.test is not None):
                losses, shares = [e["loss"] for e in t.history], smallest_gradient_shares(t)
                if None not in losses and len(losses) == len(shares):
                    line = {"study": results.study.name, "row": row.row.key, "seed": str(t.seed)}
                    line |= {"loss": " ".join(f"{x:.5g}" for x in losses)}
                    rows.append(line | {"smallest gradient": " ".join(f"{x:.3g}" for x in shares)})
    if rows:
        _write(HISTORIES, rows)
        histories.cache_clear()


def base_of(results: StudyResults) -> str:
    """The shipped study that this one is or extends."""
    return results.study.base or results.study.name


def fresh(row: RowResults) -> bool:
    """True of a row whose seeds nobody had seen when the rule was written."""
    return bool(row.trials) and all(t.seed >= CONFIRMATORY for t in row.trials)


def decisive(studied: Sequence[StudyResults]) -> list[StudyResults]:
    """Of each network of a study the trials with fresh seeds where it has them, draws merged; else those there are."""
    of_base: dict[str, list[StudyResults]] = {}
    for results in sorted(map(merged, studied), key=lambda r: not any(map(fresh, r.rows))):
        own = of_base.setdefault(base_of(results), [])
        taken = {row.part.name for earlier in own for row in earlier.rows if row.trials}
        rows = tuple(row for row in results.rows if row.part.name not in taken)
        own += [replace(results, rows=rows)] if any(row.trials for row in rows) else []
    return [joined(own) for own in of_base.values() if own]


def joined(studies_: Sequence[StudyResults]) -> StudyResults:
    """What several runs of one study have of its networks, as one.

    A row then needs as many trials as the shortest run has.
    """
    first = studies_[0]
    about = {"trials": min(results.study.trials for results in studies_)}
    rows = tuple(row for results in studies_ for row in results.rows)
    return replace(first, study=first.study.model_copy(update=about), rows=rows) if len(studies_) > 1 else first


def merged(results: StudyResults) -> StudyResults:
    """The draws of a corruption as one part: each pair of a draw and a seed is a seed of its own.

    The best trial, which the paper's test compares, is that of the first draw: two draws have different test images.
    """
    if not any(DRAW.search(part.name) for part in results.study.parts):
        return results
    shipped, rows, count = _study(base_of(results)), [], 0
    for row in shipped.rows:
        draws = [own for own in results.rows if DRAW.sub("", own.row.key) == row.key]
        count = max(count, len(draws))
        trials = tuple(
            replace(t, seed=t.seed + k * results.study.trials) for k, own in enumerate(draws) for t in own.trials
        )
        if draws:
            rows.append(replace(draws[0], row=row, part=shipped.part(row.part), trials=trials))
    about = {
        "name": results.study.name, "base": shipped.name, "title": results.study.title, "first_seed": CONFIRMATORY,
        "trials": count * results.study.trials,
    }  # fmt: skip
    return replace(results, study=shipped.model_copy(update=about), rows=tuple(rows))


def completed(results: StudyResults) -> StudyResults:
    """The rows of a study with all the trials that its file asks for, tested."""
    wanted = _study(results.study.name).trials
    return replace(results, rows=tuple(row for row in results.rows if tested(row) >= wanted))


def tested(row: RowResults) -> int:
    """How many trials of a row have seen the test split."""
    return sum(t.test is not None for t in row.trials if t.finished)


def ready(studied: Iterable[StudyResults]) -> list[StudyResults]:
    """The studies without the networks that `unready` names: by the rule these decide nothing yet."""
    studied = list(studied)
    waiting = unready(studied)
    kept = [replace(r, rows=tuple(row for row in r.rows if network_of(r, row) not in waiting)) for r in studied]
    return [results for results in kept if any(row.trials for row in results.rows)]


def unready(studied: Iterable[StudyResults]) -> dict[tuple[str, str], tuple[int, int]]:
    """Of networks with fresh seeds that lack rows or trials: how many rows are complete, and of how many."""
    waiting = {}
    for results in studied:
        own = _study(results.study.name)
        done = {row.row.key for row in completed(results).rows}
        for network in dict.fromkeys(network_of(results, row) for row in results.rows if fresh(row)):
            keys = [row.key for row in own.trained if DRAW.sub("", row.part) == network[1]]
            if not done.issuperset(keys):
                waiting[network] = len(done.intersection(keys)), len(keys)
    return waiting


def looked_at(lines: Iterable[Row], waiting: Iterable[tuple[str, str]]) -> list[Row]:
    """The lines about networks that do not wait for rows."""
    left = set(waiting)
    return [line for line in lines if (line["study"], DRAW.sub("", line["row"].partition("/")[0])) not in left]


def network_of(results: StudyResults, row: RowResults) -> tuple[str, str]:
    """The study and the part that a row belongs to; the draws of a corruption are one part."""
    return results.study.name, DRAW.sub("", row.part.name)


def read_answers() -> dict[tuple[str, str], Answers]:
    """Right or wrong on each test image, by trial and metric, of networks that wait for rows."""
    made: dict[tuple[str, str], Answers] = {}
    for path in sorted(WAITING.glob("*.npz")):
        with np.load(path, allow_pickle=False) as file:
            for number in range(int(file["splits"])):
                trials, metric, ids, labels, right = (
                    file[f"{name}-{number}"] for name in ("trials", "metric", "ids", "labels", "right")
                )
                values = np.unpackbits(right, axis=1, count=len(ids)).astype(np.float64)
                made |= {(str(t), str(metric)): Answers(ids, v, labels) for t, v in zip(trials, values, strict=True)}
    return made


def write_answers(studied: Sequence[StudyResults]) -> None:
    """The same of these studies, one file for each network that lacks rows; others need it no longer."""
    book, waiting = AnswerBook(read_answers()), unready(studied)
    shutil.rmtree(WAITING, ignore_errors=True)
    for network in waiting:
        splits: dict[tuple[str, bytes], dict[str, Answers]] = {}
        for results in studied:
            for row in (row for row in results.rows if network_of(results, row) == network):
                for t in row.trials:
                    metric = results.study.metric(t.metric)
                    answers = book.read(t, metric) if metric.right_or_wrong else None
                    if answers is not None:
                        splits.setdefault((t.metric, answers.ids.tobytes()), {})[t.digest] = answers
        arrays: dict[str, Any] = {"splits": len(splits)}
        for number, ((name, _), own) in enumerate(splits.items()):
            first = next(iter(own.values()))
            right = np.packbits(np.array([answers.values > 0 for answers in own.values()]), axis=1)
            about = {"trials": list(own), "metric": name, "ids": first.ids, "labels": first.labels, "right": right}
            arrays |= {f"{key}-{number}": value for key, value in about.items()}
        if splits:
            WAITING.mkdir(exist_ok=True)
            np.savez_compressed(WAITING / f"{'.'.join(network)}.npz", **arrays)


def together(studied: Iterable[StudyResults]) -> list[StudyResults]:
    """One entry for each study: its rows from wherever they have trials, the first such place."""
    by_name: dict[str, list[StudyResults]] = {}
    for results in studied:
        by_name.setdefault(results.study.name, []).append(results)
    made = []
    for several in by_name.values():
        rows: dict[str, RowResults] = {}
        for row in (row for results in several for row in results.rows):
            if not rows.setdefault(row.row.key, row).trials:
                rows[row.row.key] = row
        made.append(replace(several[0], rows=tuple(rows.values())))
    return made


def evidence_of(studied: Sequence[StudyResults], *, fresh_alone: bool = False) -> Evidence:
    """The pairs of these studies, with what is kept of trials whose answers are not here."""
    deciding = decisive(studied)
    if fresh_alone:
        rows = [tuple(row for row in results.rows if fresh(row) or row.row.quoted) for results in deciding]
        deciding = [replace(r, rows=own) for r, own in zip(deciding, rows, strict=True) if any(map(fresh, own))]
    return Evidence(deciding, timings=_read(TIMING), beside=read_samples(), answers=read_answers())


def read_samples() -> dict[str, Beside]:
    """Bootstraps over images and the paper's own test, as they were found with the answers to single images."""
    if not SAMPLES.is_file():
        return {}
    known = json.loads(SAMPLES.read_text(encoding="utf-8"))
    made = {}
    for key, found in known.items():
        crossed = stats.Interval(**found["crossed"]) if found["crossed"] else None
        made[key] = Beside(crossed, PairedTest(**found["test"] | {"trials": tuple(found["test"]["trials"])}))
    return made


def write_samples(studied: Sequence[StudyResults]) -> None:
    """The same of every pair that a claim about these studies looks at."""
    evidence = evidence_of(studied)
    judged(evidence)  # makes the comparisons
    found: dict[str, dict[str, Any]] = {
        fingerprint(c): {"pair": f"{name}: {c.a} - {c.b}, {c.metric.name}", "crossed": c.crossed and asdict(c.crossed),
                         "test": asdict(c.test)}
        for name in evidence.studies
        for c in evidence.of(name)
        if c.test is not None
    }  # fmt: skip
    text = json.dumps(dict(sorted(found.items(), key=lambda item: item[1]["pair"])), indent=1)
    SAMPLES.write_text(text + "\n", encoding="utf-8")


def judged(evidence: Evidence) -> list[verdicts.Verdict]:
    """The verdict on every claim about these studies."""
    shipped = {name: study.load(name) for name in study.names()}
    made = [verdicts.judge(claim, evidence, shipped) for claim in verdicts.relevant(study.claims(), evidence)]
    return sorted(made, key=lambda v: v.outcome == "not run")


BASES = ("with fresh seeds", "counted or timed", "exploratory")
"""What a verdict rests on. Counts and timings need no fresh seeds: no trial was chosen by them."""
SAID_OF = {
    BASES[
        0
    ]: "Claims of several networks are judged on the pairs with fresh seeds alone. Curves have zero biases here, "
    "a choice that was written down after the results: [with torch's](index.md#with-fresh-seeds), Swish is not shown "
    "to be the best on sin(x).",
    BASES[1]: "These results were known when the rule was written. Ratios of seconds are those of this package's "
    "kernels on one thread of one processor, and say nothing of the authors' program on theirs.",
    BASES[2]: "What the rule would conclude from trials that were seen before it was written. These are not verdicts. "
    "Claims share pairs, so that their numbers are not independent.",
}
COUNTED = ("logic", "parameter counts", "time")
ALL_COUNTED = ("logic",)
"""Studies whose claims are all counted."""


def judgements_of(studied: Sequence[StudyResults]) -> dict[str, list[verdicts.Verdict]]:
    """The verdicts by what they rest on.

    A claim of which some pairs alone have fresh seeds stands with the first, by these pairs, and with the last, by all.
    Claims that were not run stand with the last.
    """
    seeds = seeds_of(studied)
    grouped: dict[str, list[verdicts.Verdict]] = {basis: [] for basis in BASES}
    for v in judged(evidence_of(studied, fresh_alone=True)):
        if v.outcome != "not run" and v.claim.about not in COUNTED:
            grouped[BASES[0]].append(v)
    for v in judged(evidence_of(studied)):
        decided = v.trials and all(seeds[digest] >= CONFIRMATORY for digest in v.trials)
        if v.claim.about in COUNTED and v.outcome != "not run":
            grouped[BASES[1]].append(v)
        elif not decided:
            grouped[BASES[2]].append(v)
    return {basis: own for basis, own in grouped.items() if own}


def seeds_of(studied: Iterable[StudyResults]) -> dict[str, int]:
    """The seed of each trial, by its digest."""
    return {t.digest: t.seed for results in studied for row in results.rows for t in row.trials}


def by_subject(judgements: Mapping[str, Sequence[verdicts.Verdict]]) -> str:
    """How many claims of each subject have which verdict, and what it rests on."""
    rows = [
        (topic, basis, str(len(own)), counted(own))
        for basis, group in judgements.items()
        for topic, own in by_topic([v for v in group if v.outcome != "not run"]).items()
    ]
    made = table(("Claims about", "Basis", "Number", "The rule says, or would"), rows, right=(2,))
    rest = by_topic([v for group in judgements.values() for v in group if v.outcome == "not run"])
    if not rest:
        return made
    left = ", ".join(f"{len(own)} about {topic}" for topic, own in rest.items())
    return f"{made}\n\nNot run: {left}."


def pairs(studied: Sequence[StudyResults]) -> str:
    """Every row with ADA of the Fashion-MNIST tables against its baseline."""
    rows, own = [], [results for results in studied if base_of(results) in HEADLINE]
    evidence = Evidence(own, beside=read_samples(), answers=read_answers())
    for name, parts in HEADLINE.items():
        for a, b in COMPARED:
            for part in parts:
                c = evidence.get((name, f"{part}/{a}"), (name, f"{part}/{b}"), "accuracy")
                labels = [evidence.row((name, f"{part}/{unit}")).row.label for unit in (a, b)]
                printed = show(ACCURACY, c.printed, sign=True) if c.printed is not None else ""
                inside = "" if c.inside is None else "inside" if c.inside else "outside"
                verdict = c.verdict if len(c.seeds) >= _study(name).trials else "not judged: too few seeds"
                images = between(ACCURACY, c.crossed.low, c.crossed.high).strip("()") if c.crossed else ""
                rows.append((NAMES[part], " − ".join(labels), printed, with_interval(c), images, str(len(c.seeds)),
                             inside, verdict))  # fmt: skip
    heads = ("Network", "Pair", "Printed", "Ours (95 %)", "over other images too", "Seeds", "Printed gain",
             "The rule says, or would")  # fmt: skip
    return table(heads, sorted(rows, key=lambda row: list(NAMES.values()).index(row[0])), right=(2, 3, 4, 5))


def losses(studied: Sequence[StudyResults]) -> str:
    """Test cross-entropy of the rows with ADA of the MLPs against their baselines, and with 200 hidden neurons."""
    networks = {"mlp-1": "table-fashion-mlp", "mlp-2": "table-fashion-mlp", "wide": "controls"}
    evidence, rows = Evidence([r for r in studied if base_of(r) in networks.values()]), []
    for part, name in networks.items():
        for a, b in COMPARED if part != "wide" else COMPARED[:1]:
            refs = (name, f"{part}/{a}"), (name, f"{part}/{b}")
            c = evidence.get(*refs, "cross-entropy")
            own = [row for row in map(evidence.row, refs) if row is not None]
            pair = " − ".join(row.row.label for row in own)
            accuracy = with_interval(evidence.get(*refs, "accuracy"))
            rows.append((own[0].part.title, pair, with_interval(c), accuracy, str(len(c.seeds)), c.verdict))
    heads = ("Network", "Pair", "Cross-entropy (95 %)", "Accuracy (95 %)", "Seeds", "Of the first, by the rule")
    return table(heads, rows, right=(2, 3, 4))


COMPARED = (("ada", "relu"), ("leaky-ada", "leaky-relu"), ("pynada", "pynrelu"), ("leaky-pynada", "pynrelu"))


NOTHING_YET = "No table of accuracies with fresh seeds is complete yet."


def confirmed(studied: Sequence[StudyResults]) -> str:
    """Of the tables with fresh seeds every row: against its baseline, as coded against as printed, and controls."""
    rows, book, lines = _fresh_rows(studied), AnswerBook(), []
    for row in rows.values():
        printed = row.row.paper.get("accuracy")
        cells = [NAMES.get(row.part.name, row.part.title), row.row.label, f"{printed.value:.2f}" if printed else "",
                 spread(row.tests("accuracy"))]  # fmt: skip
        for other in [rows[key] for key in _compared_with(row) if key in rows] or [None]:
            lines.append((*cells, *_decided(row, other, rows.values(), book)))
            cells = ["", "", "", ""]
    heads = ("Network", "Row", "Paper", "Mean ± sd (trials)", "Against", "Gain (95 %)", "Decision", "Printed gain")
    return table(heads, lines, right=(2, 3, 5)) if lines else NOTHING_YET


def as_coded(studied: Sequence[StudyResults]) -> str:
    """The rows as the authors' code has them beside the same rows as the text has them."""
    rows, book, lines = _fresh_rows(studied), AnswerBook(), []
    for row in rows.values():
        other = rows.get(f"{row.part.name.removesuffix('-conv')}/{_as_printed(row.row.name)}")
        if other is not None and other is not row:
            paper, means = other.row.paper.get("accuracy"), (spread(r.tests("accuracy")) for r in (other, row))
            _, gain, *_ = _decided(row, other, rows.values(), book)
            network, printed = NAMES.get(row.part.name, row.part.title), f"{paper.value:.2f}" if paper else ""
            lines.append((network, row.row.label, printed, *means, gain))
    heads = ("Network", "Row", "Paper", "As printed (trials)", "As coded (trials)", "As coded − as printed (95 %)")
    return table(heads, lines, right=(2, 3, 4, 5)) if lines else NOTHING_YET


IMAGES = {"table-fashion-mlp": 10_000, "table-crema-d": 1_117, "table-imagenet": 50_000}
"""Studies whose marks are looked at, and the test samples of each."""
QUANTILES = {"dagger": 3.841, "ddagger": 6.635}
"""Of chi-square with one degree of freedom, at 0.05 and 0.01."""


def marks(studied: Sequence[StudyResults]) -> str:
    """On how many samples two networks may disagree for a printed gain to bear its mark, and on how many ours do."""
    evidence, lines = evidence_of(studied), []
    for name, n in IMAGES.items():
        paper = study.load(name)
        for row in (row for row in paper.rows if any(number.mark for number in row.paper.values())):
            ((metric, number),) = row.paper.items()
            group = next(group for group in paper.groups if group.name == row.group)
            part = paper.part(row.part)
            cells = [NAMES.get(part.name, paper.title.partition(":")[0]), row.label, MARKS[number.mark or ""]]
            for base in dict.fromkeys((group.baseline, "relu")):
                other = next((r for r in paper.rows if r.key == f"{row.part}/{base}"), None)
                if other is None:
                    continue
                size = number.value - other.paper[metric].value
                most = int((size / 100 * n) ** 2 / QUANTILES[number.mark or "dagger"])
                rows = (name, row.key), (name, other.key)
                test = evidence.get(*rows, metric).test if all(map(evidence.row, rows)) else None
                ours = (
                    f"{test.only_a + test.only_b:,}"
                    if test and test.only_a is not None and test.only_b is not None
                    else ""
                )
                cells += [f"{size:+.2f} against {other.label}", f"{most:,} ({100 * most / n:.1f} %)", ours]
            lines.append([*cells, "", "", ""][:9])
    heads = ("Network", "Row", "Mark", "Printed gain", "at most", "Ours", "Printed gain", "at most", "Ours")
    return table(heads, lines, right=(4, 5, 7, 8))


PAPERS_TRIALS = 5
"""The paper reports the best of this many."""


def likelihood(studied: Sequence[StudyResults]) -> str:
    """How often the best of five of our trials would be as high as printed, and its gain over the baseline's best."""
    rows, lines = _fresh_rows(studied), []
    for row in rows.values():
        part, name = row.part.name.removesuffix("-conv"), _as_printed(row.row.name)
        own, base = (rows.get(f"{part}/{each}") for each in (name, dict(COMPARED).get(name)))
        printed = own.row.paper.get("accuracy") if own else None
        if printed is None:
            continue
        cells = [NAMES.get(part, part), row.row.label, f"{printed.value:.2f}"]
        cells += [_share(*_bests(row, by), printed.value) for by in ("validation", "test")]
        if base is not None:
            size = printed.value - base.row.paper["accuracy"].value
            rival = rows.get(f"{base.row.key}-coded", base) if row.row.name != name else base
            cells.append(f"{size:+.2f} against {rival.row.label.partition(':')[0]}")
            cells += [_share(*_gains(_bests(row, by), _bests(rival, by)), size) for by in ("validation", "test")]
        lines.append([*cells, "", "", ""][:8])
    heads = ("Network", "Row", "Printed", "as high: best of five by validation", "by test (a what-if)", "Printed gain",
             "as large: by validation", "by test (a what-if)")  # fmt: skip
    return table(heads, lines, right=(2, 3, 4, 6, 7)) if lines else NOTHING_YET


Chances = tuple[NDArray[np.float64], NDArray[np.float64]]
"""Values, and the probability of each."""


def _bests(row: RowResults, by: str) -> Chances:
    """The test accuracies in per cent of the best of five trials drawn from a row's, with their probabilities.

    Exact: of the C(n, 5) draws, those whose best value is v are the ones from trials of at most v, less those from
    trials below v. Trials that tie share their draws.
    """
    trials = [t for t in row.trials if t.test]
    tests = np.array([100 * t.test["accuracy"] for t in trials if t.test])
    chosen = tests if by == "test" else np.array([t.validation["accuracy"] for t in trials])
    below, ties = ((chosen[:, None] > chosen).sum(1), (chosen[:, None] == chosen).sum(1))
    draws = [comb(int(b + k), PAPERS_TRIALS) - comb(int(b), PAPERS_TRIALS) for b, k in zip(below, ties, strict=True)]
    return tests, np.array(draws) / ties / comb(len(trials), PAPERS_TRIALS)


def _gains(a: Chances, b: Chances) -> Chances:
    """The differences of two independent draws."""
    return np.subtract.outer(a[0], b[0]).ravel(), np.multiply.outer(a[1], b[1]).ravel()


def _share(values: NDArray[np.float64], chances: NDArray[np.float64], printed: float) -> str:
    """How often a value is at least as large as the printed one."""
    share = 100 * float(chances[values >= printed - 1e-6].sum())
    return f"{share:.0f} %" if 1 <= share <= 99 else "below 1 %" if share < 1 else "above 99 %"


def _fresh_rows(studied: Sequence[StudyResults]) -> dict[str, RowResults]:
    """The rows of tables with fresh seeds, by their keys."""
    tables = [r for r in studied if r.study.form == "table" and base_of(r) not in ROBUSTNESS]
    return {row.row.key: row for results in tables for row in results.rows if fresh(row) and not row.row.quoted}


def _as_printed(name: str) -> str:
    """The name of the row that one as coded departs from."""
    return name.removesuffix("-coded").removesuffix("-learned")


def _decided(
    row: RowResults, other: RowResults | None, rows: Iterable[RowResults], book: AnswerBook
) -> tuple[str, str, str, str]:
    """What row is compared with, the gain, the decision; the variance is pooled over the rows of the parts of both."""
    if other is None:
        return "", "", "", ""
    near = [r for r in rows if r.part.name in (row.part.name, other.part.name)]
    c = compare(row, other, ACCURACY, book, near, crossed=False)
    inside = "" if c.inside is None else "inside" if c.inside else "outside"
    name = other.row.label if other.part.name == row.part.name else f"{other.row.label}, {other.part.title}"
    return name, with_interval(c), c.verdict, inside


BASELINES = {"leaky-ada": "leaky-relu", "pynrelu": "relu"}
WIDER = {"mlp-1": "mlp-1-wide", "mlp-2": "mlp-2-wide", "gender-64": "gender-64-wide"}


def _compared_with(row: RowResults) -> Iterator[str]:
    """The keys: the baseline, also as coded; of a row as coded the one as printed; of a pyramidal row the controls."""
    part, name = row.part.name.removesuffix("-conv"), row.row.name
    printed = _as_printed(name)
    base = BASELINES.get(printed, "pynrelu" if "pyn" in printed else "relu")
    if base != printed or part != row.part.name:
        yield from (f"{part}/{base}", *([f"{part}/{base}-coded"] if name != printed and base == "leaky-relu" else []))
    if name != printed:
        yield f"{part}/{printed}"
    if printed in ("pynrelu", "pynada") and name == printed:
        yield from ([f"{part}/relu"] if base != "relu" else [])
        yield f"{WIDER.get(part, '')}/relu"


def state(studied: Iterable[StudyResults], waiting: Mapping[tuple[str, str], tuple[int, int]]) -> str:
    """Which studies decide, which wait for rows, and which were seen before the rule was written."""
    by_seeds: dict[bool, list[str]] = {True: [], False: []}
    for results in studied:
        rows = [row for row in results.rows if row.trials]
        if base_of(results) in ALL_COUNTED:
            continue
        for known, names in by_seeds.items():
            parts = dict.fromkeys(row.part.title for row in rows if fresh(row) == known)
            whole = len(parts) == len({row.part.title for row in rows})
            if parts:
                own, base = f"`{results.study.name}`", f"`{base_of(results)}`"
                name = f"{own} for {base}" if known and own != base else base
                names.append(name + ("" if whole else f" ({', '.join(parts)})"))
    seen = ", ".join(by_seeds[False])
    exploratory = (
        f"**Exploratory**: the trials of {seen} were seen before [the rule](rule.md) was written. By that rule they "
        "decide nothing: the words about them say what it would conclude from these seeds, and are not verdicts."
    )
    decided = ", ".join(by_seeds[True])
    rest = ", ".join(f"{done} of {count} rows of `{name}` ({part})" for (name, part), (done, count) in waiting.items())
    unfinished = f"**Unfinished**, not looked at until all rows are there: {rest}."
    return " ".join(
        filter(
            None,
            (
                f"**Confirmatory**, with fresh seeds: {decided or 'none yet'}.",
                unfinished if rest else "",
                exploratory if seen else "",
            ),
        )
    )


CLAIMS_INTRO = (
    "This page lists every claim of the paper that we could judge, by subject: the verdict, then each comparison with "
    "the paper's number, ours with its 95 % interval and n, and the finding. [The rule](rule.md) decides; of "
    "exploratory trials the page says what it would conclude."
)


def claims_text(judgements: Mapping[str, Sequence[verdicts.Verdict]], studied: Sequence[StudyResults]) -> str:
    """The page of claims: those that fresh seeds decide first."""
    head = ["# What the studies say about the paper's claims", CLAIMS_INTRO, state(decisive(studied), {}), MADE_FROM]
    blocks = [*head, by_subject(judgements)]
    for basis, own in judgements.items():
        blocks += [f"## {basis.capitalize()}", *([SAID_OF[basis]] if basis in SAID_OF else [])]
        blocks += [*markdown.claims(_Claims(tuple(own), {}), level="###")]
    blocks += markdown.rules(verdicts.RULES)
    return for_site("\n\n".join(blocks) + "\n")


class _Claims(NamedTuple):
    verdicts: tuple[verdicts.Verdict, ...]
    rules: Mapping[str, str]


MADE_FROM = (
    "Made from [results.csv](results.csv), [timing.csv](timing.csv), [histories.csv](histories.csv) and "
    "[samples.json](samples.json) (`python docs/write_evidence.py`). Training losses and gradients, the paper's marks "
    "and bootstraps over images are missing of trials that were run before these were kept."
)


def forest_of(judgements: Mapping[str, Sequence[verdicts.Verdict]], studied: Sequence[StudyResults]) -> Chart:
    """The picture of the index: every judged pair of accuracies, those that fresh seeds decide first."""
    seeds = seeds_of(studied)
    every = [v for own in judgements.values() for v in own]
    (gallery,) = figures.forest(every, lambda pair: any(seeds[digest] < CONFIRMATORY for digest in pair.trials))
    return next(chart for chart in gallery.charts if chart.name == "forest-accuracy")


def write_claims(studied: Sequence[StudyResults]) -> None:
    """The page, the table and the picture of the claims."""
    judgements = judgements_of(studied)
    (EVIDENCE / "claims.md").write_text(claims_text(judgements, studied), encoding="utf-8")
    lines = [
        {"basis": basis, **line}
        for basis, own in judgements.items()
        for line in csv.DictReader(writing.claims_csv(_Claims(tuple(own), {})).splitlines())
    ]
    _write(CLAIMS, lines)
    text = draw.draw_svg(forest_of(judgements, studied), Palette())
    (EVIDENCE / "forest.svg").write_text(text, encoding="utf-8")


# --- calibration, from the stored answers -----------------------------------------------------------------------------

SCORES: Mapping[str, Callable[[Any, Any], float]] = {
    "cross-entropy": calibration.cross_entropy,
    "brier": calibration.brier,
    "calibration error": calibration.calibration_error,
}


def write_calibration(studies: Sequence[StudyResults]) -> None:
    """Of each tested trial of a table: three scores of its probabilities, before and after temperature scaling.

    Trials store the answers to test images alone: the temperature of each half of them is fitted on the other half.
    """
    rows: list[dict[str, Any]] = [dict(line) for line in _others(CALIBRATION, studies)]
    for results in studies:
        for row in results.rows if results.study.form == "table" else ():
            for t in (t for t in row.trials if t.test is not None and "accuracy" in t.test):
                answers = t.outputs()
                scaled = calibration.cross_fitted(answers.outputs, answers.labels)
                line: dict[str, Any] = {"study": results.study.name, "row": row.row.key, "seed": t.seed}
                for name, score in SCORES.items():
                    line[name] = score(answers.outputs, answers.labels)
                    line[f"{name} scaled"] = score(scaled, answers.labels)
                rows.append(line)
    if rows:
        _write(CALIBRATION, rows)


def calibrated(trials: Sequence[Row]) -> str:
    """Differences of each score over seeds, or over the means of draws: negative is better for the first."""
    rows = []
    for name, part, own in _calibrated_parts(trials):
        for unit, base in COMPARED:
            seeds = sorted(own[unit].keys() & own[base].keys()) if own.keys() >= {unit, base} else []
            if len(seeds) > 1:
                cells = [_interval(*_gap(own, unit, base, seeds, score)) for score in CALIBRATED]
                draws = len({draw for draw, _ in seeds})
                count = f"{len(seeds)} ({draws} draws)" if draws > 1 else str(len(seeds))
                rows.append((f"`{name}`", NAMES.get(part, part), f"`{unit}` − `{base}`", count, *cells))
    heads = ("Study", "Network", "Pair", "Trials", *CALIBRATED)
    return table(heads, rows, right=range(3, len(heads)))


def calibration_levels(trials: Sequence[Row]) -> str:
    """Every row of every network with each score, mean and deviation over trials."""
    rows = []
    for name, part, own in _calibrated_parts(trials):
        for unit, lines in own.items():
            means = [stats.summarise([float(t[score]) for t in lines.values()]) for score in CALIBRATED]
            cells = [f"{m.mean:.4f} ± {m.deviation:.4f}" for m in means]
            rows.append((f"`{name}`", NAMES.get(part, part), f"`{unit}`", str(len(lines)), *cells))
    heads = ("Study", "Network", "Row", "Trials", *CALIBRATED)
    return table(heads, rows, right=range(3, len(heads)))


CALIBRATED = [name + scaled for name in SCORES for scaled in ("", " scaled")]
Scored = Mapping[str, Mapping[tuple[str, str], Row]]
"""The lines of a network by its rows, then by draw and seed."""


def _calibrated_parts(trials: Sequence[Row]) -> Iterator[tuple[str, str, Scored]]:
    """Of each study each network, the draws of a corruption together."""
    for name in dict.fromkeys(_names(trials)):
        parts: dict[str, dict[str, dict[tuple[str, str], Row]]] = {}
        for t in (t for t in trials if t["study"] == name):
            draw, _, unit = t["row"].partition("/")
            parts.setdefault(DRAW.sub("", draw), {}).setdefault(unit, {})[draw, t["seed"]] = t
        for part, own in parts.items():
            yield name, part, own


def _gap(own: Scored, unit: str, base: str, keys: Sequence[tuple[str, str]], name: str) -> tuple[float, float, float]:
    """The mean difference and its interval: the variance pooled over the network's rows, or that of means of draws."""
    values = {
        key: np.array([float(lines[k][name]) for k in keys]) for key, lines in own.items() if lines.keys() >= {*keys}
    }
    gaps = values[unit] - values[base]
    draws = np.array([draw for draw, _ in keys])
    if len({*draws}) > 1:
        means = stats.summarise([float(gaps[draws == draw].mean()) for draw in dict.fromkeys(draws)])
        return means.mean, means.low, means.high
    pool = stats.pool(values)
    pooled = pool if {unit, base} <= {*pool.rows} else None
    decision = stats.decide(values[unit], values[base], margin=1e-9, pooled=pooled)
    return decision.difference, decision.low, decision.high


def _interval(middle: float, low: float, high: float) -> str:
    return f"{middle:+.4f} ({low:+.4f} to {high:+.4f})".replace("-", "−")


# --- the pages, from the study directories ----------------------------------------------------------------------------


def write(folder: Path | None, tables: Mapping[Path, Path | None]) -> None:
    """Reports, results, claims, and the blocks; without a folder, what results.csv tells."""
    for place, given in tables.items():
        if given is not None:
            shutil.copyfile(given, place)
    if folder is not None and (full := directories(folder)):
        kept = _others(RESULTS, full)
        write_results(full, kept)
        write_calibration(full)
        write_histories(full)
        studied = together([*full, *recorded(kept)])
        write_samples(ready(studied))
        write_answers(studied)
    write_claims(ready(recorded(_read(RESULTS))))
    made = blocks()
    for page in PAGES:
        page.write_text(filled(page.read_text(encoding="utf-8"), made), encoding="utf-8")


def directories(folder: Path) -> list[StudyResults]:
    """The complete rows of the studies in a folder; says of the others that they are not."""
    read = [study.read(path) for path in sorted(folder.iterdir()) if (path / "study.json").is_file()]
    whole = []
    for results in (r for r in read if not r.study.quick):
        own = completed(results)
        left = [row.row.key for row in results.rows if row not in own.rows and not row.row.quoted]
        if left:
            print(f"{results.study.name}: {', '.join(left)} left out, since trials are missing")
        whole += [own] if own.rows else []
    return together(whole)


def _others(path: Path, studied: Iterable[StudyResults]) -> list[Row]:
    """The lines of a table about other rows of studies than these."""
    taken = {(results.study.name, row.row.key) for results in studied for row in results.rows}
    lines = _read(path) if path.is_file() else ()
    return [line for line in lines if (line["study"], line["row"]) not in taken]


def for_site(text: str) -> str:
    """Markdown for MkDocs too, which shows a backslash before these; claims.csv stands beside the page."""
    text = text.replace("tables/claims.csv", CLAIMS.name)
    return re.sub(r"\\([:=~$^@])", r"\1", text).replace("\\<", "&lt;").replace("\\&", "&amp;")


def write_results(studies: Iterable[StudyResults], kept: Sequence[Row]) -> None:
    """One line for each finished trial of each study, as `apical study export` gives it, without columns that are
    empty or the same throughout; `kept` are the lines of other studies.
    """
    made = [row for results in studies for row in trials_of(results) if row["state"] in FINISHED]
    rows: list[dict[str, Any]] = [*map(dict, kept), *made]
    for row in rows:
        row["seconds"] = round(float(row["seconds"]), 3)
    names = list(dict.fromkeys(name for row in rows for name in row))
    used = [name for name in names if name != "quick" and any(row.get(name) not in (None, "") for row in rows)]
    with RESULTS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, used, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        writer.writerows({n: "" if row.get(n) is None else row[n] for n in used} for row in rows)


def _write(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


def _read(path: Path) -> list[Row]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, nargs="?", help="the folder of the study directories")
    parser.add_argument("--timing", type=Path, help="the table of benchmarks/epochs.py")
    parser.add_argument("--optimiser", type=Path, help="the table of docs/evidence/optimiser.py")
    parser.add_argument("--by-test", type=Path, help="the table of docs/evidence/by_test.py")
    arguments = parser.parse_args()
    given = {TIMING: arguments.timing, OPTIMISER: arguments.optimiser, BY_TEST: arguments.by_test}
    write(arguments.folder, given)


if __name__ == "__main__":
    main()
