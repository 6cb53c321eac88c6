"""Verdicts on claims, by the rule that the page prints."""

import re
from dataclasses import replace

import pytest

from apical import study as studies
from apical.report import gather, tables
from apical.report.claims.verdicts import OUTCOMES, RULES, judge, needed_tests
from apical.report.comparison import Evidence
from apical.report.gathering import _results_of
from apical.report.render import latex, markdown
from apical.study.claim import Claim, ClaimKind

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
    from apical.report.claims.findings import _KINDS

    assert set(ClaimKind.__args__) == set(_KINDS)
    assert set(ClaimKind.__args__) <= set(RULES)


def test_a_large_difference_is_reproduced(fashion) -> None:
    found = verdict(fashion, claim())
    assert found.outcome == "reproduced"
    assert "ADA against ReLU (one-hidden-layer MLP)" in found.reason
    assert len(found.trials) == 2


def test_a_large_difference_the_other_way_round_is_not(fashion) -> None:
    assert verdict(fashion, claim(a=("mlp-1/pynada",), b=("mlp-1/pynrelu",))).outcome == "not reproduced"


def test_no_difference_is_undecided_where_the_paper_prints_none(fashion) -> None:
    found = verdict(fashion, claim(a=("mlp-1/leaky-relu",), b=("mlp-1/relu",)))
    assert found.outcome == "undecided"  # the paper's own difference is negative: nothing to exclude


def test_an_interval_that_excludes_the_printed_gain_refutes_it(fashion) -> None:
    pair = {"a": ("mlp-2/relu",), "b": ("mlp-2/leaky-relu",)}
    found = verdict(fashion, claim(**pair))
    assert found.outcome == "undecided"  # 0.53 in print: 1,500 samples cannot exclude it
    assert "the paper: 88.71 − 88.18 = +0.53" in found.reason
    rows = tuple(with_paper(r, 95.0) if r.row.key == "mlp-2/relu" else r for r in fashion.rows)
    shipped = {"table-fashion-mlp": fashion.study}
    assert verdict(replace(fashion, rows=rows), claim(**pair), shipped).outcome == "not reproduced"


def with_paper(found, value: float):
    number = found.row.paper["accuracy"].model_copy(update={"value": value})
    return replace(found, row=found.row.model_copy(update={"paper": {"accuracy": number}}))


def test_the_printed_difference_is_as_uncertain_as_ours(fashion) -> None:
    from apical.report.claims.findings import _gain_sign

    one, many = claim("gain"), claim("gain", a=("mlp-1/ada",) * 9, b=("mlp-1/relu",) * 9)
    assert _gain_sign(one, (-1.0, 1.0), 1.2) == 0  # beyond our interval, but within 1.41 times its width
    assert _gain_sign(one, (-1.0, 1.0), 1.5) == -1
    assert _gain_sign(many, (-1.0, 1.0), 1.5) == 0  # one of nine pairs may lie so far off by chance
    assert _gain_sign(one, (0.5, 1.5), 1.2) == 1


def test_a_gain_smaller_than_the_printed_one_does_not_refute_that_there_is_one(fashion) -> None:
    pair = {"a": ("mlp-2/leaky-pynada",), "b": ("mlp-2/pynrelu",)}
    shipped = {"table-fashion-mlp": fashion.study}
    for unit, outcome in (("mlp-2/leaky-pynada", "undecided"), ("mlp-2/pynrelu", "not reproduced")):
        turned = pair if unit == pair["a"][0] else {"a": pair["b"], "b": pair["a"]}
        rows = tuple(with_paper(r, 98.0) if r.row.key == unit else r for r in fashion.rows)
        found = verdict(replace(fashion, rows=rows), claim(**turned), shipped)
        assert found.outcome == outcome, found.reason


def test_a_clear_loss_refutes_a_printed_gain_though_it_misses_the_adjusted_level(fashion) -> None:
    rows = tuple(with_paper(r, 99.0) if r.row.key == "mlp-2/rbf" else r for r in fashion.rows)
    evidence = Evidence([replace(fashion, rows=rows)])
    own = claim(a=("mlp-2/rbf",), b=("mlp-2/relu",))
    evidence.make([*needed_tests(own, evidence), *tables.pairs("table-fashion-mlp", fashion)])
    assert evidence.get(("table-fashion-mlp", "mlp-2/rbf"), ("table-fashion-mlp", "mlp-2/relu"), "accuracy").shown == 0
    assert judge(own, evidence, {}).outcome == "not reproduced"


def test_one_refuted_pair_of_many_is_enough_unless_a_share_will_do(fashion) -> None:
    pairs = {"a": ("mlp-1/ada", "mlp-2/ada", "mlp-1/pynada"), "b": ("mlp-1/relu", "mlp-2/relu", "mlp-1/pynrelu")}
    assert verdict(fashion, claim(**pairs)).outcome == "not reproduced"
    assert verdict(fashion, claim(**pairs, share=0.6)).outcome == "reproduced"


def test_a_claim_about_more_than_was_run_is_judged_on_what_was_and_says_so(fashion) -> None:
    elsewhere = {"study": "", "a": ("table-fashion-mlp:mlp-1/ada", "table-moroco:cnn/ada")}
    elsewhere |= {"b": ("table-fashion-mlp:mlp-1/relu", "table-moroco:cnn/relu")}
    found = verdict(fashion, claim(**elsewhere))
    assert found.outcome == "reproduced where run"
    assert found.scope == "judged on 1 of 2 pairs"
    assert found.missing == ("table-moroco is not in this report",)
    few = claim(**elsewhere | {"a": ("table-moroco:cnn/ada",), "b": ("table-moroco:cnn/relu",)})
    assert (verdict(fashion, few).outcome, verdict(fashion, few).scope) == ("no verdict", "")
    elsewhere["a"] = ("table-fashion-mlp:mlp-1/rbf", "table-moroco:cnn/ada")
    elsewhere["b"] = ("table-fashion-mlp:mlp-1/ada", "table-moroco:cnn/relu")
    assert verdict(fashion, claim(**elsewhere)).outcome == "not reproduced"  # a claim about all needs no more
    assert verdict(fashion, claim(**elsewhere, share=0.5)).outcome == "not reproduced where run"


def test_the_largest_gain_needs_the_gain_that_others_are_compared_with(fashion) -> None:
    largest = {"study": "", "paper": (0.73,), "a": ("table-fashion-cnn:lenet/ada", "table-fashion-mlp:mlp-1/ada")}
    largest |= {"b": ("table-fashion-cnn:lenet/relu", "table-fashion-mlp:mlp-1/relu")}
    assert verdict(fashion, claim("largest", **largest)).outcome == "no verdict"


def test_every_finding_has_the_papers_number_ours_with_its_interval_and_n(fashion) -> None:
    (found,) = verdict(fashion, claim()).findings
    assert found.paper == "88.98 − 88.88 = +0.10"
    best = [fashion.row(f"mlp-1/{unit}").best.test["accuracy"] for unit in ("ada", "relu")]
    assert found.ours.startswith(f"{100 * best[0]:.2f} − {100 * best[1]:.2f} = {100 * (best[0] - best[1]):+.2f} (")
    assert "mean over trials" in found.ours
    assert found.n == "1,500 samples, 5 trials"
    assert found.answer == "shown"


def test_what_the_paper_says_does_not_happen_is_shown_where_it_does_not(fashion) -> None:
    (found,) = verdict(fashion, claim("solves", b=(), expected=False)).findings
    assert found.answer == "shown"
    assert "every point right in 0 of 5 (0 %, 0 to 43 %) trials" in found.ours


def test_of_two_copies_of_a_study_the_full_one_is_judged(fashion) -> None:
    quick = replace(fashion, study=fashion.study.model_copy(update={"quick": True}))
    report = gather([quick, fashion], pictures=False)
    assert [section.name for section in report.sections] == ["table-fashion-mlp (2)", "table-fashion-mlp"]
    assert any(v.outcome == "reproduced" for v in report.verdicts)
    assert any("(2) is a quick variant" in line for line in report.summary)


def test_a_coarser_grid_and_fewer_trials_carry_no_verdict_and_are_told(fashion) -> None:
    changed = studies.load("table-fashion-mlp", sets=["tune.alpha=[0.1, 0.5]"])
    rows = tuple(replace(r, row=changed.row(r.row.key)) for r in fashion.rows)
    report = gather([replace(fashion, study=changed, rows=rows)], pictures=False)
    assert any("tune.alpha = (0.1, 0.5) instead of (0.1, 0.2," in line for line in report.summary)
    assert "**Not the paper's protocol: tune.alpha" in markdown.markdown(report)
    assert r"\textbf{Not the paper\textquotesingle{}s protocol: tune.alpha" in latex.latex(report)
    found = {v.claim.id: v for v in report.verdicts}
    assert found["fashion-ada-beats-relu"].outcome == "no verdict"
    assert "was not trained with the paper's protocol (tune.alpha" in found["fashion-ada-beats-relu"].reason
    assert found["fashion-swish-beats-relu"].outcome != "no verdict"  # no alpha to tune


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
    assert "validation cross-entropy" in found.reason
    assert "better in 5 of 5, n = 5 trials" in found.reason


@pytest.mark.parametrize(
    ("kind", "changes", "outcome"),
    [
        ("gain", {"paper": (0.5,)}, "not reproduced"),
        ("gain", {"paper": (0.5,), "bound": "at-least"}, "reproduced"),
        ("gain", {"paper": (50.0,), "bound": "at-most"}, "reproduced"),
        ("largest", {"paper": (0.5,), "a": ("mlp-1/ada", "mlp-2/ada"), "b": ("mlp-1/relu",) * 2}, "not reproduced"),
        ("largest", {"paper": (10.5,), "a": ("mlp-1/ada", "mlp-2/ada"), "b": ("mlp-1/relu",) * 2}, "undecided"),
        ("largest", {"paper": (10.5,), "a": ("mlp-1/ada", "mlp-1/rbf"), "b": ("mlp-1/relu",) * 2}, "reproduced"),
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
    said = said.replace("no verdict", "without a verdict")
    assert report.summary[0] == f"{len(report.verdicts)} claims of the paper are about these studies: {said}."


def test_the_summary_says_who_is_better_and_who_is_worse_than_the_baseline(fashion) -> None:
    report = gather([fashion], pictures=False)
    told = " ".join(report.summary)
    for table in report.sections[0].tables:
        for line in table.lines:
            if line.baseline is not None and line.baseline.shown and line.baseline.means_agree:
                word = "better" if line.baseline.shown > 0 else "worse"
                best = told.split(f"{table.title}, against")[1].split("Best trials by validation: ")[1]
                assert f"{line.label} against" in best.split(f"shown {word} ")[1].split(";")[0]
    assert "shown better " in told


def test_the_summary_says_of_means_over_trials_what_their_interval_shows(fashion) -> None:
    section = gather([fashion], pictures=False).sections[0]
    table = section.tables[0]
    found = next(line for line in table.lines if line.baseline is not None)
    for mean, shown in ((0.02, "shown better {}; shown worse none"), (-0.02, "shown better none; shown worse {}")):
        over = replace(found.baseline.over_trials, mean=mean, low=mean - 0.01, high=mean + 0.01)
        line = replace(found, baseline=replace(found.baseline, over_trials=over))
        told = _results_of(replace(section, tables=(replace(table, lines=(line,)),)))[0]
        name = rf"{found.label} against [^(]+ [+−]2\.00 \([^)]+\)"
        assert re.search(f"Means over trials: {shown.format(name)}\\.", told)


def test_the_summary_calls_nobody_better_whose_mean_over_trials_is_worse(fashion) -> None:
    found = next(line.baseline for line in gather([fashion]).sections[0].tables[0].lines if line.baseline is not None)
    sure = replace(found, difference=0.1, low=0.05, high=0.15, p_holm=0.001)
    for mean, agree in ((0.02, True), (-0.02, False), (0.0, True), (float("nan"), True)):
        assert replace(sure, over_trials=replace(found.over_trials, mean=mean)).means_agree is agree
    section = gather([fashion]).sections[0]
    table = section.tables[0]
    torn = replace(sure, over_trials=replace(found.over_trials, mean=-0.02))
    told = _results_of(replace(section, tables=(replace(table, lines=(replace(table.lines[0], baseline=torn),)),)))
    said = "shown better none; shown worse none. Their means over trials say the opposite: "
    assert f"Best trials by validation: {said}" in told[0]


def test_trials_that_shared_a_program_are_not_timed(fashion) -> None:
    from apical.train import Execution

    stacked = Execution(stacking="stacked(8, 0)")
    rows = tuple(replace(r, trials=tuple(replace(t, execution=stacked) for t in r.trials)) for r in fashion.rows)
    cost = claim("cost", metric="seconds", paper=(-0.9, 9.0))
    assert verdict(fashion, cost).outcome == "reproduced"
    found = verdict(replace(fashion, rows=rows), cost)
    assert (found.outcome, "not measured" in found.reason) == ("no verdict", True)
