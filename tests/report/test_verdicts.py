"""Verdicts on claims, by the rule that the page prints."""

from dataclasses import replace

import pytest

from apical import study as studies
from apical.report import gather
from apical.report.evidence import Evidence
from apical.report.rules import OUTCOMES, RULES
from apical.report.verdicts import judge, needed_tests
from apical.study.claim import Claim, Kind

SHIPPED = {"table-fashion-mlp": studies.load("table-fashion-mlp")}


def claim(kind: str = "better", **changes) -> Claim:
    values = {
        "id": "x", "text": "A claim.", "where": "Section 1", "kind": kind, "study": "table-fashion-mlp",
        "a": ("mlp-1/ada",), "b": ("mlp-1/relu",),
    }  # fmt: skip
    return Claim.model_validate(values | changes)


def verdict(results, found: Claim, shipped=SHIPPED):
    evidence = Evidence([results])
    evidence.make(needed_tests(found, evidence))
    return judge(found, evidence, shipped)


def test_every_kind_of_claim_has_a_rule_and_a_judge(fashion) -> None:
    from apical.report.findings import _KINDS

    assert set(Kind.__args__) == set(_KINDS)
    assert set(Kind.__args__) <= set(RULES)


def test_a_large_difference_is_reproduced(fashion) -> None:
    found = verdict(fashion, claim())
    assert found.outcome == "reproduced"
    assert "ADA (one-hidden-layer MLP) against ReLU" in found.reason
    assert len(found.trials) == 2


def test_a_large_difference_the_other_way_round_is_not(fashion) -> None:
    assert verdict(fashion, claim(a=("mlp-1/pynada",), b=("mlp-1/pynrelu",))).outcome == "not reproduced"


def test_no_difference_is_undecided_where_the_paper_prints_none(fashion) -> None:
    found = verdict(fashion, claim(a=("mlp-1/leaky-relu",), b=("mlp-1/relu",)))
    assert found.outcome == "undecided"  # the paper's own difference is negative: nothing to exclude


def test_an_interval_that_excludes_the_printed_gain_refutes_it(fashion) -> None:
    found = verdict(fashion, claim(a=("mlp-2/relu",), b=("mlp-2/leaky-relu",)))
    assert found.outcome == "not reproduced"  # no difference to be seen, and less than the paper prints
    assert "which excludes the printed gain of 0.53" in found.reason


def test_one_refuted_pair_of_many_is_enough_unless_a_share_will_do(fashion) -> None:
    pairs = {"a": ("mlp-1/ada", "mlp-2/ada", "mlp-1/pynada"), "b": ("mlp-1/relu", "mlp-2/relu", "mlp-1/pynrelu")}
    assert verdict(fashion, claim(**pairs)).outcome == "not reproduced"
    assert verdict(fashion, claim(**pairs, share=0.6)).outcome == "reproduced"


def test_missing_rows_give_no_verdict_but_a_refuted_pair_does(fashion) -> None:
    elsewhere = {"study": "", "a": ("table-fashion-mlp:mlp-1/ada", "table-moroco:cnn/ada")}
    elsewhere |= {"b": ("table-fashion-mlp:mlp-1/relu", "table-moroco:cnn/relu")}
    found = verdict(fashion, claim(**elsewhere))
    assert found.outcome == "no verdict"
    assert found.reason.startswith("here 1 shown, 0 refuted, 0 open; missing: table-moroco is not in this report")
    elsewhere["a"] = ("table-fashion-mlp:mlp-1/rbf", "table-moroco:cnn/ada")
    elsewhere["b"] = ("table-fashion-mlp:mlp-1/ada", "table-moroco:cnn/relu")
    assert verdict(fashion, claim(**elsewhere)).outcome == "not reproduced"


def test_quick_and_partial_and_changed_and_unfinished_rows_carry_no_verdict(fashion) -> None:
    study = fashion.study
    quick = replace(fashion, study=study.model_copy(update={"quick": True}))
    assert verdict(quick, claim()).outcome == "no verdict"
    parts = [part.model_copy(update={"partial": "partial (10 of 20)"}) for part in study.parts]
    rows = tuple(replace(r, part=next(p for p in parts if p.name == r.row.part)) for r in fashion.rows)
    partial = verdict(replace(fashion, rows=rows), claim())
    assert (partial.outcome, "partial (10 of 20)" in partial.reason) == ("no verdict", True)
    changed = [part.model_copy(update={"training": {"epochs": 1}}) for part in study.parts]
    rows = tuple(replace(r, part=next(p for p in changed if p.name == r.row.part)) for r in fashion.rows)
    assert "protocol" in verdict(replace(fashion, rows=rows), claim()).reason
    rows = tuple(replace(r, trials=r.trials[:3]) for r in fashion.rows)
    assert verdict(replace(fashion, rows=rows), claim()).reason == "ADA of one-hidden-layer MLP has 3 of 5 trials"


def test_quoted_numbers_are_passed_by_two_standard_errors(fashion) -> None:
    assert verdict(fashion, claim(b=("mlp-1/xiao-tanh",))).outcome == "reproduced"
    assert verdict(fashion, claim(a=("mlp-1/rbf",), b=("mlp-1/xiao-tanh",))).outcome == "not reproduced"


def test_validation_counts_trial_by_trial(fashion) -> None:
    both = claim(metric="cross-entropy", splits=("validation", "test"))
    found = verdict(fashion, both)
    assert found.outcome == "reproduced"
    assert "in 5 of 5 trials" in found.reason


@pytest.mark.parametrize(
    ("kind", "changes", "outcome"),
    [
        ("gain", {"paper": (0.5,)}, "not reproduced"),
        ("gain", {"paper": (0.5,), "bound": "at-least"}, "reproduced"),
        ("gain", {"paper": (50.0,), "bound": "at-most"}, "reproduced"),
        ("largest", {"paper": (0.5,), "a": ("mlp-1/ada", "mlp-2/ada"), "b": ("mlp-1/relu",) * 2}, "not reproduced"),
        ("value", {"paper": (89.0,), "b": ()}, "reproduced"),
        ("value", {"paper": (70.0,), "b": ()}, "not reproduced"),
        ("range", {"paper": (80.0, 95.0), "b": ()}, "reproduced"),
        ("range", {"paper": (10.0, 20.0), "b": ()}, "not reproduced"),
        ("cost", {"paper": (-0.01, 0.01), "metric": "parameters"}, "reproduced"),
        ("cost", {"paper": (0.9, 1.1), "metric": "parameters"}, "not reproduced"),
        ("cost", {"paper": (-9.0, 9.0), "metric": "seconds", "scale": "absolute"}, "reproduced"),
        ("stable", {"b": ()}, "reproduced"),
        ("stable", {"b": (), "expected": False}, "not reproduced"),
        ("solves", {"b": ()}, "not reproduced"),
        ("solves", {"b": (), "expected": False}, "reproduced"),
        ("vanishing", {"b": ()}, "reproduced"),
        ("better", {"expected": False}, "not reproduced"),
    ],
)
def test_each_kind_of_claim(fashion, kind: str, changes: dict, outcome: str) -> None:
    assert verdict(fashion, claim(kind, **changes)).outcome == outcome


def test_a_diverged_trial_is_not_stable_and_a_vanished_gradient_is_seen(fashion) -> None:
    def spoiled(record, **changes):
        return replace(record, **changes)

    first, *rest = fashion.row("mlp-1/ada").trials
    gone = {"dynamics": {"gradient": {"first": 1e-9, "last": 1.0}}, "loss": 1.0}
    for changes, kind in (({"state": "diverged"}, "stable"), ({"history": [gone]}, "vanishing")):
        trials = (spoiled(first, **changes), *rest)
        rows = tuple(replace(r, trials=trials) if r.row.key == "mlp-1/ada" else r for r in fashion.rows)
        assert verdict(replace(fashion, rows=rows), claim(kind, b=())).outcome == "not reproduced"


def test_the_summary_counts_the_verdicts_on_the_papers_claims(fashion) -> None:
    report = gather([fashion])
    assert len(report.verdicts) > 20
    counts = {outcome: sum(v.outcome == outcome for v in report.verdicts) for outcome in OUTCOMES}
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    assert report.summary[0] == f"{len(report.verdicts)} claims of the paper are about these studies: {said}."


def test_the_summary_says_who_is_better_and_who_is_worse_than_the_baseline(fashion) -> None:
    report = gather([fashion], pictures=False)
    told = " ".join(report.summary)
    for table in report.sections[0].tables:
        for line in table.lines:
            if line.baseline is not None and line.baseline.shown:
                word = "better" if line.baseline.shown > 0 else "worse"
                named = told.split(f"{table.title}: best trials")[1].split(f"Shown {word}: ")[1].split(".  ")[0]
                assert f"{line.label} against" in named
    assert "Shown better: " in told


def test_trials_that_shared_a_program_are_not_timed(fashion) -> None:
    from apical.train import Execution

    stacked = Execution(stacking="stacked(8, 0)")
    rows = tuple(replace(r, trials=tuple(replace(t, execution=stacked) for t in r.trials)) for r in fashion.rows)
    cost = claim("cost", metric="seconds", paper=(-0.9, 9.0))
    assert verdict(fashion, cost).outcome == "reproduced"
    found = verdict(replace(fashion, rows=rows), cost)
    assert (found.outcome, "not measured" in found.reason) == ("undecided", True)
