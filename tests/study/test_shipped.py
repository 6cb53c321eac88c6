"""Every shipped study, found by looking, loads, plans and fits its schema."""

import json
import tomllib
from pathlib import Path

import jsonschema
import pytest

from apical.study import Study, load, names, schema
from apical.study.config.toml import BEYOND, PAPER, TEMPLATE
from apical.study.plan import plan, settings, spec_of

FILES = sorted(path for folder in (PAPER, BEYOND) for path in folder.rglob("*.toml") if path.stem != "claims")
EXPECTED = {  # rows that are trained, and trials with one tuning trial a setting
    "ablation-alpha": (20, 100),
    "adversarial": (4, 40),
    "approximation": (12, 100),
    "corruption": (4, 40),
    "coordinates": (30, 350),
    "coordinates-128": (30, 350),
    "demo": (12, 40),
    "evolution": (20, 1320),
    "evolution-digits": (8, 160),
    "far-away": (4, 40),
    "imbalance": (14, 70),
    "imbalance-train-only": (14, 70),
    "input-noise": (42, 210),
    "label-noise": (42, 210),
    "logic": (36, 7200),
    "noisy": (5, 264),
    "parity": (168, 33600),
    "parity-bare": (168, 33600),
    "scale": (120, 1200),
    "signal": (20, 270),
    "small-data": (88, 5192),
    "sound": (20, 270),
    "table-crema-d": (11, 95),
    "table-fashion-cnn": (22, 190),
    "table-fashion-mlp": (22, 190),
    "table-imagenet": (4, 40),
    "table-moroco": (22, 190),
    "table-tiny-imagenet": (4, 30),
    "table-utkface": (22, 190),
    "utkface-64": (6, 30),
}


def test_all_files_are_shipped_studies() -> None:
    assert {path.stem for path in FILES} == set(names()) == set(EXPECTED)


@pytest.mark.parametrize("quick", [False, True], ids=["full", "quick"])
@pytest.mark.parametrize("name", names())
def test_it_loads_plans_and_survives_json(name: str, quick: bool) -> None:
    study = load(name, quick=quick)
    assert Study.from_dict(json.loads(json.dumps(study.to_dict()))) == study
    assert len({row.key for row in study.rows}) == len(study.rows)
    assert plan(study).count > 0
    for trial in plan(study).tuning[:3]:
        assert trial.digest == trial.spec.digest


@pytest.mark.parametrize("name", EXPECTED)
def test_rows_and_trials(name: str) -> None:
    study = load(name)
    assert (len(study.trained), plan(study).count) == EXPECTED[name]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_its_file_fits_the_schema(path: Path) -> None:
    jsonschema.Draft202012Validator(schema()).validate(tomllib.loads(path.read_text(encoding="utf-8")))


def test_the_schema_refuses_what_is_wrong() -> None:
    validator = jsonschema.Draft202012Validator(schema())
    jsonschema.Draft202012Validator.check_schema(schema())
    good = {"title": "x", "parts": [{"name": "a", "data": "digits", "model": "mlp-1"}], "rows": [{"unit": "relu"}]}
    validator.validate(good)
    for wrong in ({"titel": "x"}, {"trials": 0}, {"tune": {"alpha": [True]}}, {"rows": []}, {"form": "pie"}):
        assert not validator.is_valid(good | wrong)
    assert not validator.is_valid({"title": "x"})
    assert validator.is_valid({"extends": "table-moroco"})


@pytest.mark.parametrize("name", names())
def test_quick_is_smaller_and_says_so(name: str) -> None:
    study, quick = load(name), load(name, quick=True)
    assert quick.quick
    assert quick.base == study.base == name
    if study.quick:
        assert quick == study
        return
    assert (quick.name, quick.title) == (f"{name}-quick", f"{study.title} (quick)")
    assert quick.notes[0].startswith(f"quick: {quick.trials} of {study.trials} trials")
    assert quick.trials < study.trials
    assert plan(quick).count < plan(study).count
    for small, full in zip(quick.parts, study.parts, strict=True):
        short, long = spec_of(small), spec_of(full)
        assert short.epochs < long.epochs
        assert len(short.milestones) == len(long.milestones)
        assert all(0 < m <= short.epochs for m in short.milestones)
    assert [row.key for row in quick.rows] == [row.key for row in study.rows]
    assert all(set(settings(a)) <= set(settings(b)) for a, b in zip(quick.rows, study.rows, strict=True))


@pytest.mark.parametrize("name", names())
def test_metrics_are_those_of_the_protocol(name: str) -> None:
    study = load(name)
    wanted = {"diabetes": "mse", "age": "mae", "sin": "mse", "sinc": "mse", "standard": "top-5", "apical": "top-5"}
    for part in study.parts:
        weighted = "weighted-accuracy" if name.startswith("imbalance") else "accuracy"
        weighted = "psnr" if part.model == "coordinates" else weighted
        assert part.metric == spec_of(part).metric == wanted.get(part.name, weighted)


def test_studies_beyond_the_paper_ask_a_question_and_no_others_do() -> None:
    assert {name for name in names() if load(name).question is not None} == {path.stem for path in BEYOND.iterdir()}


def test_c_is_1_on_moroco_and_0_elsewhere_unless_tuned() -> None:
    from apical import Unit

    for name in (path.stem for path in FILES if path.parent == PAPER):
        if name == "logic":
            continue
        found = {Unit.parse(s).c for row in load(name).trained for s in settings(row)} - {None}
        assert found <= {1.0 if name == "table-moroco" else 0.0}
    tuned = load("table-moroco", tune_c=True)
    assert tuned.row("cnn/ada").tune["c"] == (1.0, 0.0)
    assert load("table-fashion-mlp", tune_c=True).row("mlp-1/pynada").tune["c"] == (0.0, 1.0)
    assert load("table-fashion-mlp", tune_c=True).row("mlp-1/relu").tune == {}
    assert plan(tuned).count == plan(load("table-moroco")).count + 8 * 11


def test_noise_studies_use_the_alphas_of_the_tables() -> None:
    for name in ("input-noise", "label-noise", "imbalance"):
        units = {row.key: row.unit for row in load(name).rows}
        for key, unit in units.items():
            part, row = key.split("/")
            learned, fixed = ("learn", "0.1") if part.startswith("mlp-2") else ("1", "0.3")
            table = {"ada": learned, "leaky-ada": fixed, "pynada": learned, "leaky-pynada": learned}
            alpha = unit.partition("alpha=")[2].rstrip(")") or "1"  # 1 is the default, which units do not write
            assert alpha == table.get(row, "1")
    assert len({row.name for row in load("input-noise").rows}) == 7


def test_the_groups_of_the_paper() -> None:
    study = load("table-fashion-mlp")
    assert [(g.baseline, g.rows) for g in study.groups] == [
        ("relu", ("relu", "rbf", "swish", "ada")),
        ("leaky-relu", ("leaky-relu", "leaky-ada")),
        ("pynrelu", ("pynrelu", "pynrbf", "pynswish", "pynada", "leaky-pynada")),
    ]
    assert study.baseline(study.row("mlp-2/leaky-pynada")) == study.row("mlp-2/pynrelu")
    assert study.baseline(study.row("mlp-2/relu")) is None
    assert study.baseline(study.row("mlp-2/xiao-relu")) is None


def test_the_published_schema_is_the_schema() -> None:
    published = Path(__file__).parents[2] / "docs" / "study.schema.json"
    assert json.loads(published.read_text(encoding="utf-8")) == schema()


def test_the_file_that_users_start_from_is_a_study(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(TEMPLATE.read_bytes())
    jsonschema.Draft202012Validator(schema()).validate(tomllib.loads(path.read_text()))
    assert plan(load(path)).count > plan(load(path, quick=True)).count > 0


def test_the_file_that_users_start_from_gives_every_row_the_same_budget(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(TEMPLATE.read_bytes())
    todo = plan(load(path))
    assert {len(todo.settings(row)) for row in todo.study.trained} == {6}
    assert all(len({t.spec.learning_rate for t in todo.tuning if t.row == r.key}) >= 3 for r in todo.study.trained)
