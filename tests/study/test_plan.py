"""The plan is a pure function of the study: deterministic, paired by seeds, and quick to make."""

import pickle
import re
from math import ceil
from pathlib import Path

import pytest

from apical.errors import InvalidArgumentError, StudyError
from apical.study import load
from apical.study.directory import differences
from apical.study.plan import Plan, grouped, plan, stack_keys
from apical.study.state import Facts, StudyState, count_states
from apical.train import stack_key

EVIDENCE = Path(__file__).parents[2] / "docs" / "evidence"
DIGESTS = {  # a change here is a change of what a finished study holds: it needs a new RESULTS_VERSION
    "demo": "746a0242d376d48f15b53fdcc57eb3906a4e46a6122858532aafea4f29ac59ea",
    "table-fashion-mlp": "63b8a932d19e6a2301b76f63642071d1d0792486f26b335f5d0b34745ed651df",
}


@pytest.fixture(scope="module")
def fashion() -> Plan:
    return plan(load("table-fashion-mlp"))


def test_the_first_final_is_the_tuning_trial(fashion: Plan) -> None:
    for trial in fashion.tuning:
        finals = fashion.finals(trial.row, trial.setting)
        assert finals[0] == trial
        assert [final.trial for final in finals] == [0, 1, 2, 3, 4]


def test_digests_are_those_of_the_trials() -> None:
    for trial in plan(load("table-fashion-mlp"), tune_trials=2).tuning:
        assert trial.digest == trial.spec.digest
        assert (trial.spec.unit, trial.spec.seed) == (trial.setting, trial.trial)


@pytest.mark.parametrize("name", DIGESTS)
def test_digests_are_stable(name: str) -> None:
    assert plan(load(name)).tuning[0].digest == DIGESTS[name]


def test_trial_k_of_all_rows_has_seed_k_and_the_same_data(fashion: Plan) -> None:
    trials = [fashion.finals(row, fashion.settings(row)[0])[3].spec for row in fashion.study.trained]
    assert {trial.seed for trial in trials} == {3}
    for model in ("mlp-1", "mlp-2"):
        own = [trial.as_dict() | {"unit": ""} for trial in trials if trial.model == model]
        assert all(values == own[0] for values in own)


def test_settings_are_the_grid_in_order(fashion: Plan) -> None:
    grid = [f"ada(alpha={alpha})" for alpha in (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)]
    assert fashion.settings("mlp-1/ada") == (*grid, "ada", "ada(alpha=learn)")
    assert fashion.settings("mlp-1/relu") == ("relu",)
    assert fashion.settings("mlp-1/xiao-relu") == ()
    both = plan(load("table-fashion-mlp", tune_c=True)).settings("mlp-1/ada")
    assert both[:3] == ("ada(alpha=0.1)", "ada(alpha=0.1,c=1)", "ada(alpha=0.2)")


def test_the_learning_rate_is_tuned_beside_the_unit_and_stacked() -> None:
    sets = ["tune.learning_rate=[1e-3, 0.01]", "tune.alpha=[0.3]", "rows.relu.tune.learning_rate=[1e-4]"]
    todo = plan(load("demo", sets=sets))
    row = next(row for row in todo.study.trained if row.name == "ada")
    assert todo.settings(row) == ("ada(alpha=0.3), learning_rate=0.001", "ada(alpha=0.3), learning_rate=0.01")
    assert todo.settings(row.key.replace("/ada", "/relu")) == ("relu, learning_rate=0.0001",)
    for trial in todo.tuning:
        unit, _, rate = trial.setting.partition(", learning_rate=")
        assert (trial.spec.unit, trial.spec.learning_rate) == (unit, float(rate))
        assert trial.digest == trial.spec.digest
    assert len(todo.tuning_stacks) < len(todo.tuning)


def test_more_tuning_trials() -> None:
    study = load("demo")
    once, thrice = plan(study), plan(study, tune_trials=3)
    assert len(thrice.tuning) == 3 * len(once.tuning)
    assert thrice.count == len(thrice.tuning)
    assert {t.digest for t in once.tuning} < {t.digest for t in thrice.tuning}
    with pytest.raises(InvalidArgumentError, match="tune_trials is 0, but must be at least 1"):
        plan(study, tune_trials=0)


def test_seeds_begin_where_the_study_says_and_the_default_leaves_no_trace() -> None:
    usual, later = load("demo"), load("demo", sets=["first_seed=1000", "tune_trials=2"])
    assert [t.spec.seed for t in plan(later).finals("digits/relu", "relu")] == [1000, 1001, 1002]
    assert len(plan(later).tuning) == 2 * len(plan(usual).tuning)
    assert not {"first_seed", "tune_trials"} & usual.to_dict().keys()
    assert (usual.digest, type(later).from_dict(later.to_dict())) != (later.digest, usual)
    assert differences(usual, later) == ["first_seed was 0 and is 1000", "tune_trials was 1 and is 2"]


@pytest.mark.parametrize("path", sorted(EVIDENCE.glob("confirm-*.toml")), ids=lambda path: path.stem)
def test_studies_of_the_rule_have_its_seeds_and_can_be_stacked(path: Path) -> None:
    study = load(path)
    planned = plan(study)
    rule = {"mlp": 40, "wide": 40, "curves": 40, "lenet": 10, "lenet-conv": 10, "utkface": 3}
    assert study.first_seed == 1000
    assert study.trials == rule.get(path.stem.removeprefix("confirm-"), 5)
    assert planned.tune_trials == (5 if any(row.tune for row in study.rows) else 1)
    assert path.stem == "confirm-utkface" or None not in stack_keys(planned.tuning)


def test_two_plans_of_one_study_are_equal(fashion: Plan) -> None:
    again = plan(load("table-fashion-mlp"))
    assert again.tuning == fashion.tuning
    assert again.stacks(again.tuning) == fashion.stacks(fashion.tuning)


def test_ten_thousand_trials() -> None:
    study = load("table-fashion-mlp", sets=["trials=100"])
    trials = plan(study, tune_trials=100).tuning
    assert len(trials) == len({trial.digest for trial in trials}) == 10_200


def test_groups_hold_every_trial_once_and_only_trials_that_can_be_one_stack(fashion: Plan) -> None:
    trials = plan(fashion.study, tune_trials=2).tuning
    groups = grouped(trials, 8)
    assert sorted(t.digest for group in groups for t in group) == sorted(t.digest for t in trials)
    assert {*map(len, groups)} == {6, 7}  # 27 and 25 settings in four groups each; no small one is left
    for group in groups:
        assert len({stack_key(t.spec) for t in group}) == 1
        assert len({t.trial for t in group}) == 1
    assert len(groups) == 2 * 2 * (
        ceil(27 / 8) + ceil(25 / 8)
    )  # seeds, parts, settings of standard and pyramidal units
    assert grouped(trials, 8) == groups
    alike = groups[0] + groups[1]
    assert [len(group) for group in grouped(alike[:8], 8)] == [8]
    assert [len(group) for group in grouped(alike[:9], 8)] == [4, 5]


def test_networks_that_cannot_be_stacked_stay_alone() -> None:
    trials = plan(load("table-tiny-imagenet")).tuning
    assert grouped(trials, 8) == tuple((trial,) for trial in trials)
    assert all(len(group) == 1 for group in grouped(plan(load("demo")).tuning, 1))


def test_a_planned_trial_goes_to_another_process(fashion: Plan) -> None:
    trial = fashion.tuning[7]
    assert pickle.loads(pickle.dumps(trial)).spec == trial.spec


def test_unknown_settings_are_refused(fashion: Plan) -> None:
    with pytest.raises(InvalidArgumentError, match=r"row 'mlp-1/ada' has no setting 'ada.alpha=7.'"):
        fashion.finals("mlp-1/ada", "ada(alpha=7)")


TUNED_ELSEWHERE = """
title = "tuned elsewhere"
trials = 3

[[parts]]
name = "one"
data = "sin"
model = "coordinates"
training = { loss = "mse", metric = "psnr" }

[[parts]]
name = "two"
data = "sinc"
model = "coordinates"
training = { loss = "mse", metric = "psnr" }
tuned_on = "one"

[[rows]]
unit = "ada"
tune = { alpha = [0.5, 1], width = [8], learning_rate = [0.1, 0.01] }

[[rows]]
unit = "sine"
tune = { initial = ["xavier", "siren"] }
"""


@pytest.fixture
def elsewhere(tmp_path: Path) -> Plan:
    (tmp_path / "own.toml").write_text(TUNED_ELSEWHERE)
    return plan(load(tmp_path / "own.toml"))


def test_a_row_may_tune_dimensions_of_the_network_and_fix_them(elsewhere: Plan) -> None:
    assert elsewhere.settings("one/ada") == (
        "ada(alpha=0.5), width=8, learning_rate=0.1",
        "ada(alpha=0.5), width=8, learning_rate=0.01",
        "ada, width=8, learning_rate=0.1",
        "ada, width=8, learning_rate=0.01",
    )
    first = elsewhere.tuning[1].spec
    assert (first.unit, first.dims, first.learning_rate) == ("ada(alpha=0.5)", {"width": 8}, 0.01)
    assert [trial.spec.dims for trial in elsewhere.tuning[4:]] == [{"initial": "xavier"}, {"initial": "siren"}]
    for trial in (*elsewhere.tuning, *elsewhere.finals("two/ada", elsewhere.settings("two/ada")[0])):
        assert trial.digest == trial.spec.digest
        assert all(len({str(t.spec.dims) for t in stack}) == 1 for stack in elsewhere.tuning_stacks)


def test_a_part_that_is_tuned_on_another_has_no_tuning_trials_and_takes_its_choice(elsewhere: Plan) -> None:
    assert {trial.row for trial in elsewhere.tuning} == {"one/ada", "one/sine"}
    assert elsewhere.count == 4 + 2 + 2 * 2 + 2 * 3
    done = {t.digest: Facts("done", -abs(k - 2.0), 1.0) for k, t in enumerate(elsewhere.tuning[:4])}
    state = StudyState(elsewhere, done, ())
    best = "ada, width=8, learning_rate=0.1"
    assert state.chosen == {"one/ada": best, "two/ada": best}
    assert {t.row for t in state.finals_left} == {"one/ada", "two/ada"}
    assert sum(t.row == "two/ada" for t in state.finals_left) == 3
    assert sum(count_states(state, ()).values()) == elsewhere.count


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('tuned_on = "one"', 'tuned_on = "three"', "no other part is called 'three': there are one"),
        ('tuned_on = "one"', 'tuned_on = "two"', "no other part is called 'two': there are one"),
        (
            'unit = "sine"',
            'unit = "sine"\nparts = ["two"]',
            "the row 'sine' is not in part 'one', which should tune it",
        ),
        ("width = [8]", "wdth = [8]", "unit 'ada' has no wdth to tune, or fixes it itself"),
        ("trials = 3", 'trials = 3\nonly_parts = ["two"]', "which only_parts leaves out: keep both"),
    ],
)
def test_what_cannot_be_tuned_elsewhere_is_said(tmp_path: Path, old: str, new: str, said: str) -> None:
    (tmp_path / "own.toml").write_text(TUNED_ELSEWHERE.replace(old, new))
    with pytest.raises(StudyError, match=re.escape(said)):
        load(tmp_path / "own.toml")
