"""The committed evidence: its pages say what its trials say."""

import csv
import importlib.util
import re
import shutil
from collections import Counter, defaultdict
from itertools import combinations
from math import comb
from pathlib import Path
from statistics import geometric_mean

import pytest

from apical import study
from apical.report.claims.verdicts import OUTCOMES

ROOT = Path(__file__).parents[1]
EVIDENCE = ROOT / "docs" / "evidence"


def script(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def writer():
    return script(ROOT / "docs" / "write_evidence.py")


@pytest.fixture(scope="module")
def trials():
    with (EVIDENCE / "results.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_every_trial_stands_there_once_with_its_hash_seed_and_versions(trials):
    assert len({(t["study"], t["row"], t["unit"], t["digest"]) for t in trials}) == len(trials)
    assert all(re.fullmatch("[0-9a-f]{64}", t["digest"]) for t in trials)
    assert all(t["seed"].isdigit() and t["apical"] and t["torch"] and t["python"] for t in trials)
    assert {t["state"] for t in trials} <= {"done", "diverged"}


def test_the_best_trial_of_a_row_was_chosen_by_validation_and_tested(trials):
    rows = {(t["study"], t["row"]) for t in trials}
    best = Counter((t["study"], t["row"]) for t in trials if t["best"] == "True")
    assert best == Counter(rows)
    settings = defaultdict(list)
    for t in trials:
        settings[t["study"], t["row"], t["unit"]].append(float(t["validation accuracy"] or 0))
    for trial in trials:
        if trial["best"] == "True" and trial["metric"] == "accuracy":
            same = [
                t for t in trials if (t["study"], t["row"], t["unit"]) == (trial["study"], trial["row"], trial["unit"])
            ]
            values = [float(t["validation accuracy"]) for t in same if t["state"] == "done"]
            assert float(trial["validation accuracy"]) == max(values)
            assert trial["test accuracy"]


def test_only_chosen_settings_saw_the_test_split(trials):
    assert {t["chosen"] for t in trials if t["test accuracy"]} == {"True"}


def test_the_numbers_of_the_pages_are_those_of_the_trials(writer):
    made = writer.blocks()
    for page in writer.PAGES:
        text = page.read_text(encoding="utf-8")
        assert page.name == "why.md" or any(f"<!-- {name}: begin -->" in text for name in made)
        assert writer.filled(text, made) == text


def test_a_block_is_written_between_its_marks_alone(writer):
    text = "a\n<!-- headline: begin -->\nold\n<!-- headline: end -->\nb\n"
    assert writer.filled(text, {"headline": "new", "times": "x"}) == text.replace("old", "new")


def test_the_other_settings_of_adam_were_run_as_the_script_says():
    optimiser = script(EVIDENCE / "optimiser.py")
    with (EVIDENCE / "optimiser.csv").open(newline="", encoding="utf-8") as file:
        found = [(t["unit"], float(t["epsilon"]), float(t["alpha_rate"]), int(t["seed"])) for t in csv.DictReader(file)]
    assert sorted(found) == sorted((*s, seed) for s in optimiser.SETTINGS for seed in range(optimiser.TRIALS))


def test_the_what_if_was_run_as_the_script_says():
    what_if = script(EVIDENCE / "by_test.py")
    with (EVIDENCE / "by-test.csv").open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    settings = list(dict.fromkeys((t["network"], t["unit"]) for t in lines))
    assert settings == what_if.SETTINGS[: len(settings)]
    expected = [(*setting, str(seed)) for setting in settings for seed in what_if.SEEDS]
    assert [(t["network"], t["unit"], t["seed"]) for t in lines] == expected
    assert all(float(t["best_test"]) >= float(t["test"]) for t in lines)


def test_claims_have_verdicts_of_the_rule():
    text = (EVIDENCE / "claims.md").read_text(encoding="utf-8")
    verdicts = re.findall(r"^\*\*([a-z ]+)\*\*", text, re.MULTILINE)
    assert len(verdicts) > 20
    assert set(verdicts) <= set(OUTCOMES)


def test_the_table_of_claims_has_the_verdicts_of_the_page():
    with (EVIDENCE / "claims.csv").open(newline="", encoding="utf-8") as file:
        verdicts = {(row["basis"], row["claim"]): row["verdict"] for row in csv.DictReader(file)}
    text = (EVIDENCE / "claims.md").read_text(encoding="utf-8")
    told = Counter(re.findall(r"^\*\*([a-z ]+)\*\*", text, re.MULTILINE))
    judged = Counter(verdict for verdict in verdicts.values() if verdict != "not run")
    assert told == judged


def test_the_claims_and_the_picture_follow_from_the_results(writer, trials):
    text = (EVIDENCE / "claims.md").read_text(encoding="utf-8")
    studied = writer.ready(writer.recorded(trials))
    judgements = writer.judgements_of(studied)
    assert writer.claims_text(judgements, studied) == text
    picture = (EVIDENCE / "forest.svg").read_text(encoding="utf-8")
    assert all(effect.label[:40] in picture for effect in writer.forest_of(judgements, studied).effects)


def test_the_picture_shows_which_pairs_are_exploratory(writer, trials):
    fresh = [
        line for unit, shift in (("relu", 0.0), ("ada", 0.01))
        for line in lines("confirm-mlp", f"mlp-1/{unit}", [0.88 + shift + 0.0001 * (k * k % 7) for k in range(5)])
    ]  # fmt: skip
    studied = writer.recorded([*without_tables(trials), *fresh])
    chart = writer.forest_of(writer.judgements_of(studied), studied)
    drawn = {effect.label: effect.exploratory for effect in chart.effects}
    assert not drawn["ADA against ReLU (one-hidden-layer MLP)"]
    assert drawn["ADA against ReLU (two-hidden-layer MLP)"]
    assert sorted(drawn.values()) == list(drawn.values())


def test_histories_are_those_of_tested_trials(writer, trials):
    tested = {(t["study"], t["row"], t["seed"]) for t in trials if t["test accuracy"] and t["chosen"] == "True"}
    assert set(writer.histories()) <= tested
    for (name, row, _), epochs in writer.histories().items():
        assert len(epochs) == 30, (name, row)
        assert all(e["loss"] > 0 and 0 < e["dynamics"]["gradient"]["smallest"] <= 1 for e in epochs)


def test_what_samples_told_is_written_as_it_is_read(writer, trials, tmp_path, monkeypatch):
    before = writer.SAMPLES.read_text(encoding="utf-8")
    copied = Path(shutil.copy(writer.SAMPLES, tmp_path))
    monkeypatch.setattr(writer, "SAMPLES", copied)
    writer.write_samples(writer.ready(writer.recorded(trials)))
    assert copied.read_text(encoding="utf-8") == before


def test_what_was_seen_before_the_rule_is_called_exploratory(writer, trials):
    if any(int(t["seed"]) < writer.CONFIRMATORY for t in trials if t["study"] in writer.HEADLINE):
        for page in ("index.md", "claims.md"):
            assert "xploratory" in (EVIDENCE / page).read_text(encoding="utf-8")


def test_in_short_is_short():
    text = (EVIDENCE / "index.md").read_text(encoding="utf-8")
    assert len(text.split("## In short")[1].split("![")[0].split()) <= 120


def test_a_calibration_table_pairs_seeds(writer):
    names = [n + s for n in writer.SCORES for s in ("", " scaled")]
    lines = [
        {"study": "s", "row": f"mlp-1{draw}/{unit}", "seed": str(seed)} | dict.fromkeys(names, str(value + seed))
        for draw in ("-draw-1", "-draw-2")
        for unit, value in (("relu", 0.2), ("ada", 0.1))
        for seed in range(3)
    ]
    same = "−0.1000 (−0.1000 to −0.1000) |"
    assert f"| `s` | MLP-1 | `ada` − `relu` | 6 (2 draws) | {same}" in writer.calibrated(lines)
    first = [line for line in lines if "-draw-1" in line["row"]]
    assert f"| `s` | MLP-1 | `ada` − `relu` | 3 | {same}" in writer.calibrated(first)
    for line in lines:
        if line["row"] == "mlp-1-draw-2/ada":
            line["brier"] = str(float(line["brier"]) + 0.2)  # draws at -0.1 and +0.1: n = 2, not 6
    assert "+0.0000 (−1.2706 to +1.2706)" in writer.calibrated(lines)


def without_tables(trials):
    """The trials but those of tables with fresh seeds, which a test makes up."""
    return [t for t in trials if not t["study"].startswith(("confirm-mlp", "confirm-wide"))]


def lines(study_name, key, values, *, draw=""):
    part, _, unit = key.partition("/")
    own = study.load(EVIDENCE / f"{study_name}.toml")
    row = next(r for r in own.rows if r.key == f"{part}{draw}/{unit}")
    return [
        {"study": study_name, "part": f"{part}{draw}", "row": row.key, "unit": row.unit, "chosen": "True",
         "best": str(value == max(values)), "seed": str(1000 + k), "state": "done", "metric": "accuracy",
         "digest": f"{row.key}-{k}", "parameters": "1", "best_epoch": "1", "validation accuracy": str(value),
         "test accuracy": str(value), "test weighted-accuracy": str(value)}
        for k, value in enumerate(values)
    ]  # fmt: skip


def test_fresh_seeds_stand_for_the_study_that_they_repeat(writer, trials):
    def scores(mean, shift):
        return [mean + 0.0001 * ((3 * k + shift) % 5) for k in range(5)]

    trials = without_tables(trials)
    new = [
        *lines("confirm-mlp", "mlp-1/relu", scores(0.88, 0)), *lines("confirm-mlp", "mlp-1/ada", scores(0.89, 1)),
        *lines("confirm-mlp", "mlp-1/pynrelu", scores(0.88, 2)),
        *lines("confirm-mlp", "mlp-1/leaky-relu", scores(0.88, 3)),
        *lines("confirm-mlp", "mlp-1/leaky-relu-coded", scores(0.876, 4)),
        *lines("confirm-wide", "mlp-1-wide/relu", scores(0.89, 3)),
    ]  # fmt: skip
    deciding = writer.decisive(writer.recorded([*trials, *new]))
    assert [r.study.name for r in deciding if writer.base_of(r) == "table-fashion-mlp"] == ["confirm-mlp"]
    told = writer.state(deciding, {})
    decided = told.partition("**Exploratory**")[0]
    assert "`confirm-mlp` for `table-fashion-mlp` (one-hidden-layer MLP), `confirm-wide`" in decided
    assert "`table-fashion-mlp` (two-hidden-layer MLP)" in told.partition("Exploratory")[2]
    text = writer.confirmed(deciding)
    assert re.search(
        r"\| MLP-1 \| ADA \| 88.98 \| 89.02 ± 0.02 \(5\) \| ReLU \| \+1.00 \(.*\) \| supported \| outside \|", text
    )
    assert re.search(r"\n\|  \|  \|  \|  \| leaky ReLU \| −0.40 \(.*\) \| contradicted \|  \|", text)
    assert re.search(r"\| ReLU, MLP-1 with 200 hidden neurons \| −1.00 \(.*\) \| contradicted \|", text)
    evidence = writer.Evidence([r for r in deciding if r.study.name == "confirm-mlp"])
    claimed = evidence.get(("table-fashion-mlp", "mlp-1/ada"), ("table-fashion-mlp", "mlp-1/relu"), "accuracy")
    assert writer.with_interval(claimed) in text  # one finding wherever it appears
    assert writer.confirmed(writer.decisive(writer.recorded(trials))) == writer.NOTHING_YET


def test_a_claim_of_several_networks_is_judged_on_its_fresh_pairs_alone_too(writer, trials):
    exploratory = [t for t in without_tables(trials) if t["study"] == "table-fashion-mlp"]
    fresh = [
        line for unit, mean, step in (("relu", 0.88, 2), ("ada", 0.89, 3))
        for line in lines("confirm-mlp", f"mlp-1/{unit}", [mean + 0.0001 * (step * k % 5) for k in range(5)])
    ]  # fmt: skip
    judgements = writer.judgements_of(writer.recorded([*exploratory, *fresh]))
    both = {
        basis: next(v for v in judgements[basis] if v.claim.id == "fashion-ada-beats-relu")
        for basis in ("with fresh seeds", "exploratory")
    }
    assert [(v.outcome, v.judged) for v in both.values()] == [("supported where run", 1), ("contradicted", 2)]
    text = writer.claims_text(judgements, writer.recorded([*exploratory, *fresh]))
    assert text.count("ADA is better than ReLU in all four networks") == 2


def test_how_likely_a_printed_number_is_counts_every_draw_of_five(writer):
    validation = [0.90, 0.91, 0.91, 0.89, 0.92, 0.90, 0.88]
    tests = [0.881, 0.885, 0.879, 0.89, 0.882, 0.884, 0.886]
    own = lines("confirm-mlp", "mlp-1/ada", tests)
    made = [line | {"validation accuracy": str(v)} for line, v in zip(own, validation, strict=True)]
    (results,) = writer.recorded(made)
    row = results.row("mlp-1/ada")
    for by, order in (("validation", validation), ("test", tests)):
        values, chances = writer._bests(row, by)
        counted = Counter[float]()
        for draw in combinations(range(7), 5):
            best = [k for k in draw if order[k] == max(order[j] for j in draw)]
            for k in best:
                counted[k] += 1 / len(best) / comb(7, 5)
        assert values == pytest.approx([100 * t for t in tests])
        assert chances == pytest.approx([counted[k] for k in range(7)])
    gains, both = writer._gains((values, chances), (values, chances))
    assert both.sum() == pytest.approx(1)
    assert (gains * both).sum() == pytest.approx(0, abs=1e-9)


def test_a_network_decides_nothing_until_all_its_rows_are_there(writer, trials):
    trials = without_tables(trials)
    keys = [row.key for row in study.load(EVIDENCE / "confirm-wide.toml").trained]
    scores = [0.88 + 0.0001 * (k % 7) for k in range(40)]
    whole = [line for key in keys for line in lines("confirm-wide", key, scores)]
    relu, *rest = [row.key for row in study.load(EVIDENCE / "confirm-mlp.toml").trained if row.part == "mlp-1"]
    some = lines("confirm-mlp", relu, scores)
    recorded = writer.recorded([*trials, *whole, *some])
    waiting = writer.unready(recorded)
    assert waiting == {("confirm-mlp", "mlp-1"): (1, 1 + len(rest))}
    deciding = writer.decisive(writer.ready(recorded))
    assert "confirm-wide" in {r.study.name for r in deciding}
    assert "confirm-mlp" not in {r.study.name for r in deciding}  # the exploratory trials are shown as before
    told = writer.state(deciding, waiting)
    assert f"not looked at until all rows are there: 1 of {1 + len(rest)} rows of `confirm-mlp` (mlp-1)" in told
    assert not writer.unready(writer.recorded([*trials, *whole]))
    measured = [{"study": name, "row": key} for name, key in (("confirm-mlp", relu), ("confirm-wide", keys[0]))]
    assert [line["study"] for line in writer.looked_at(measured, waiting)] == ["confirm-wide"]
    short = lines("confirm-mlp", relu, scores[:39])
    assert writer.unready(writer.recorded(short)) == {("confirm-mlp", "mlp-1"): (0, 1 + len(rest))}


def test_rows_of_one_study_from_two_runs_are_one_study(writer):
    first = writer.recorded(lines("confirm-mlp", "mlp-1/relu", [0.88, 0.89]))
    second = writer.recorded(
        lines("confirm-mlp", "mlp-1/ada", [0.87, 0.86]) + lines("confirm-mlp", "mlp-1/relu", [0.1])
    )
    (joined,) = writer.together([*first, *second])
    assert {row.row.key: len(row.trials) for row in joined.rows if row.trials} == {"mlp-1/relu": 2, "mlp-1/ada": 2}
    assert {row.row.key for row in joined.rows} == {row.row.key for row in first[0].rows}  # quoted ones too


TINY = """
extends = "table-fashion-mlp"
only_parts = ["mlp-1"]
first_seed = 1000
trials = 2
training.epochs = 1

[[parts]]
name = "mlp-1"
data = "digits"
dims = { hidden = 2 }
"""


def test_rows_of_a_network_may_come_from_several_machines(writer, tmp_path, monkeypatch):
    """The paper's test and the bootstrap over images need answers of rows that one machine never had together."""
    monkeypatch.setattr(writer, "WAITING", tmp_path / "waiting")
    written = tmp_path / "tiny.toml"
    written.write_text('only_rows = ["relu", "rbf"]' + TINY, encoding="utf-8")
    whole, lines = study.load(written), []
    monkeypatch.setattr(writer, "_study", lambda name: {"tiny": whole}[name])
    for unit in ("relu", "rbf"):
        written.write_text(f'only_rows = ["{unit}"]' + TINY, encoding="utf-8")
        study.run(study.load(written), tmp_path / unit / "tiny", options=study.Options(workers=1))
        here = writer.directories(tmp_path / unit)
        studied = writer.together([*here, *writer.recorded(lines)])
        evidence = writer.evidence_of(writer.ready(studied))
        writer.write_answers(studied)
        if unit == "relu":
            assert [path.name for path in writer.WAITING.iterdir()] == ["tiny.mlp-1.npz"]
            assert not evidence.studies
            gathered = [row for results in here for row in writer.trials_of(results)]
            lines = [{key: "" if value is None else str(value) for key, value in row.items()} for row in gathered]
            shutil.rmtree(tmp_path / unit)
    assert not writer.WAITING.exists()
    pair = (("table-fashion-mlp", "mlp-1/rbf"), ("table-fashion-mlp", "mlp-1/relu"))
    compared = evidence.get(*pair, "accuracy")
    rbf, relu = (evidence.row(ref).best.test["accuracy"] for ref in pair)
    assert compared.test.n == 271  # test images of digits
    assert compared.test.difference == pytest.approx(rbf - relu)
    assert compared.crossed.difference == pytest.approx(compared.decision.difference)


def test_a_network_waits_for_all_draws_of_its_corruption(writer):
    one = [
        line for row in study.load(EVIDENCE / "confirm-imbalance.toml").trained if row.part.endswith("draw-1")
        for line in lines("confirm-imbalance", row.key.replace("-draw-1", ""), [0.8] * 5, draw="-draw-1")
    ]  # fmt: skip
    assert writer.unready(writer.recorded(one)) == {("confirm-imbalance", "mlp-2"): (7, 35)}


def test_draws_of_noise_are_one_sample(writer):
    rows = [
        line for draw in (1, 2) for unit, shift in (("relu", 0.0), ("ada", 0.01))
        for line in lines("confirm-imbalance", f"mlp-2/{unit}", [0.8 + shift + draw / 50, 0.81], draw=f"-draw-{draw}")
    ]  # fmt: skip
    (merged,) = writer.decisive(writer.recorded(rows))
    assert (merged.study.base, [r.row.key for r in merged.rows if r.trials]) == (
        "imbalance",
        ["mlp-2/relu", "mlp-2/ada"],
    )
    ada = merged.row("mlp-2/ada")
    assert len({t.seed for t in ada.trials}) == 4 == len(ada.trials)
    assert ada.best.digest == "mlp-2-draw-1/ada-0"


def test_curves_are_compared_with_relu_seed_by_seed(writer, trials):
    errors = {
        unit: {t["seed"]: float(t["test mse"]) for t in trials
               if (t["study"], t["row"], t["chosen"]) == ("confirm-curves", f"sin-biases/{unit}", "True")}
        for unit in ("relu", "ada")
    }  # fmt: skip
    assert len(errors["relu"]) == len(errors["ada"]) == 40
    ratios = [errors["relu"][seed] / error for seed, error in errors["ada"].items()]
    text = writer.curves(writer.decisive(writer.recorded(trials)))
    (line,) = [line for line in text.splitlines() if line.startswith("| sin(x), torch's biases | ADA |")]
    assert f"| {geometric_mean(ratios):.3g} (" in line


def test_every_study_of_the_evidence_can_be_run_again(trials):
    text = (EVIDENCE / "index.md").read_text(encoding="utf-8")
    for name in {t["study"] for t in trials}:
        given = name if name in study.names() else f"docs/evidence/{name}.toml"
        assert study.load(given if given == name else ROOT / given).name == name
        assert f"apical study run {given}" in text


@pytest.mark.parametrize("path", sorted(EVIDENCE.glob("*.*")), ids=lambda path: path.name)
def test_pages_name_no_folder_of_the_machine_and_stay_small(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"/(root|home|work|tmp)/", text)
    assert len(text) < (5_000_000 if path.name == "results.csv" else 3_000_000)
