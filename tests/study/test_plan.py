"""The plan is a pure function of the study."""

from apical.study import load
from apical.study.plan import plan


def test_the_first_final_is_the_tuning_trial() -> None:
    plan_ = plan(load("table-fashion-mlp"))
    for trial in plan_.tuning:
        assert plan_.finals(trial.row, trial.setting)[0] == trial


def test_digests_are_those_of_the_trials() -> None:
    for trial in plan(load("table-fashion-mlp"), tune_trials=2).tuning:
        assert trial.digest == trial.spec.digest
        assert (trial.spec.unit, trial.spec.seed) == (trial.setting, trial.trial)
