"""Verdicts on claims, by the rule that the page prints."""

from dataclasses import replace
from itertools import cycle

import numpy as np
import pytest

from apical import stats
from apical import study as studies
from apical.report import gather
from apical.report.charts import Effect, Forest, Palette
from apical.report.claims.verdicts import OUTCOMES, RULES, judge
from apical.report.comparison import Evidence
from apical.report.draw import draw_svg
from apical.report.render import latex, markdown
from apical.study.claim import Claim, ClaimKind

SHIPPED = {"table-fashion-mlp": studies.load("table-fashion-mlp")}
TIMES = [
    {"network": "mlp-1", "unit": unit, "ratio_to_relu": str(ratio), "low": str(low), "high": str(high), "rounds": "11"}
    for unit, ratio, low, high in (("relu", 1, 1, 1), ("ada", 1.17, 1.15, 1.19), ("leaky_relu", 1.1, 1.0, 1.2))
]


def claim(kind: str = "better", **changes) -> Claim:
    values = {
        "id": "x", "text": "A claim.", "where": "Section 1", "about": "logic", "kind": kind,
        "study": "table-fashion-mlp", "a": ("mlp-1/ada",), "b": ("mlp-1/relu",),
    }  # fmt: skip
    return Claim.model_validate(values | changes)


def verdict(results, made: Claim, shipped=SHIPPED, timings=()):
    return judge(made, Evidence([results], timings=timings), shipped)


def scored(results, metric: str = "accuracy", **rows):
    """The study with other test scores: `ada=[...]` for mlp-1/ada."""

    def changed(row):
        values = rows.get(row.row.key.removeprefix("mlp-1/").replace("-", "_"))
        if values is None:
            return row
        pairs = zip(row.trials, values, strict=True)
        trials = tuple(replace(t, test={**t.test, metric: value}) for t, value in pairs)
        best = next(t for t in trials if t.digest == row.best.digest)
        return replace(row, trials=trials, best=best)

    return replace(results, rows=tuple(map(changed, results.rows)))


BASE = np.array([0.88, 0.882, 0.884, 0.882, 0.88])
NOISE = np.array([0.001, -0.001, 0.0, 0.001, -0.001])
EQUAL = {
    row: BASE + place * 1e-5 + NOISE[np.roll(np.arange(5), place)] / 10
    for place, row in enumerate(
        ("relu", "rbf", "swish", "ada", "leaky_relu", "leaky_ada", "pynrelu", "pynrbf", "pynswish", "pynada",
         "leaky_pynada")
    )
}  # fmt: skip


def test_every_kind_of_claim_has_a_rule_and_a_judge() -> None:
    from apical.report.claims.findings import _KINDS

    assert set(ClaimKind.__args__) == set(_KINDS)
    assert set(ClaimKind.__args__) - {"better"} <= set(RULES)


def test_a_pair_is_decided_over_seeds_with_the_variance_of_its_network(fashion) -> None:
    (finding,) = verdict(fashion, claim()).findings
    rows = {r.row.key: r.tests("accuracy") for r in fashion.rows if r.row.part == "mlp-1" and not r.row.quoted}
    pool = stats.pool(rows)
    assert len(pool.rows) == 11
    expected = stats.decide(rows["mlp-1/ada"], rows["mlp-1/relu"], margin=0.002, pooled=pool)
    assert finding.comparison.decision == expected
    assert (finding.answer, finding.n) == ("supported", "1,500 samples, 5 seeds")
    assert finding.paper == "88.98 − 88.88 = +0.10"
    assert "the printed gain is outside of what one pair may give" in finding.ours
    assert "over other samples too (" in finding.ours
    assert "without the seeds that chose" in finding.ours


@pytest.mark.parametrize(
    ("shift", "noise", "outcome"),
    [(0.005, 0, "supported"), (-0.005, 0, "contradicted"), (0.0, 0, "negligible"), (0.0, 20, "inconclusive")],
)
def test_the_four_verdicts_of_a_pair(fashion, shift: float, noise: float, outcome: str) -> None:
    made = verdict(scored(fashion, **EQUAL | {"ada": EQUAL["relu"] + shift + noise * NOISE}), claim())
    assert made.outcome == outcome
    assert ("seeds would show the margin of 0.20" in made.reason) == (outcome == "inconclusive")


def test_one_pair_has_one_finding_wherever_it_appears(fashion) -> None:
    report = gather([fashion], pictures=False)
    in_claims = {f.what: f.comparison for v in report.verdicts for f in v.findings if f.comparison is not None}
    lines = {line.key: line for table in report.sections[0].tables for line in table.lines}
    assert in_claims["ADA against ReLU (one-hidden-layer MLP)"] == lines["mlp-1/ada"].baseline
    assert all(x.baseline.decision == x.finding.decision for x in lines.values() if x.baseline)
    assert (lines["mlp-1/ada"].baseline.verdict, lines["mlp-1/ada"].finding.verdict) == ("supported", "better")


def test_a_claim_about_all_is_contradicted_after_holm_over_the_pairs_run(fashion) -> None:
    pairs = {"a": ("mlp-1/rbf", "mlp-1/swish", "mlp-1/ada", "mlp-1/leaky-relu"), "b": ("mlp-1/relu",) * 4}
    noisy = {row: BASE + 3 * NOISE[np.roll(np.arange(5), k)] for k, row in enumerate(EQUAL)}
    pool = stats.pool(noisy)
    margin = stats.decide(noisy["relu"], noisy["relu"] + 1, margin=0.002, pooled=pool).high + 1
    worse = scored(fashion, **noisy | {"rbf": noisy["relu"] - 1.1 * margin})
    (alone, *_) = verdict(worse, claim(**pairs)).findings
    assert alone.answer == "contradicted"
    corrected = 4 * alone.comparison.decision.p_value  # the smallest of four
    assert alone.ours.endswith(f"p = {corrected:.2g} after Holm's correction")
    (single,) = verdict(worse, claim(a=("mlp-1/rbf",))).findings
    assert "Holm" not in single.ours
    assert verdict(worse, claim(a=("mlp-1/rbf",))).outcome == "contradicted"
    assert verdict(worse, claim(**pairs)).outcome == "inconclusive"  # one of four by chance
    clear = scored(fashion, **noisy | {"rbf": noisy["relu"] - 0.05})
    assert verdict(clear, claim(**pairs)).outcome == "contradicted"
    assert verdict(clear, claim(**pairs, expected=False)).outcome == "supported"


def test_most_is_a_binomial_test(fashion) -> None:
    names = ("rbf", "swish", "ada", "leaky_relu", "leaky_ada")
    pairs = {"a": tuple(f"mlp-1/{n.replace('_', '-')}" for n in names), "b": ("mlp-1/relu",) * 5}
    better = dict.fromkeys(names, EQUAL["relu"] + 0.01)
    assert verdict(scored(fashion, **EQUAL | better), claim(**pairs, quantifier="most")).outcome == "supported"
    four = EQUAL | better | {"rbf": EQUAL["relu"]}
    assert verdict(scored(fashion, **four), claim(**pairs, quantifier="most")).outcome == "inconclusive"
    none = verdict(scored(fashion, **EQUAL), claim(**pairs, quantifier="most"))
    assert (none.outcome, none.reason.split(";")[0]) == ("contradicted", "0 of 5 pairs are supported")


def test_significant_reads_the_papers_own_marks(fashion) -> None:
    assert verdict(fashion, claim(significant=True)).outcome == "supported"
    gained = scored(fashion, **EQUAL | {"leaky_ada": EQUAL["leaky_relu"] + 0.01})
    pair = {"a": ("mlp-1/leaky-ada",), "b": ("mlp-1/leaky-relu",)}
    assert verdict(gained, claim(**pair)).outcome == "supported"
    assert verdict(gained, claim(**pair, significant=True)).outcome == "inconclusive"  # the stored answers bear no mark


@pytest.mark.parametrize("quantifier", ["most", "all"])
def test_where_answers_are_missing_the_papers_marks_are_not_counted(fashion, quantifier) -> None:
    made = claim(significant=True, quantifier=quantifier)
    assert verdict(fashion, made).outcome != "not run"
    seen = verdict(blind(fashion), made)
    assert (seen.outcome, "the answers that the paper's test needs are not there" in seen.reason) == ("not run", True)


def test_a_loss_contradicts_a_significant_gain_without_the_answers_too(fashion) -> None:
    worse = blind(scored(fashion, **EQUAL | {"leaky_ada": EQUAL["leaky_relu"] - 0.01}))
    pair = {"a": ("mlp-1/leaky-ada",), "b": ("mlp-1/leaky-relu",)}
    assert verdict(worse, claim(**pair, significant=True)).outcome == "contradicted"


def blind(results):
    """Without the answers to single images."""
    rows = tuple(
        replace(
            r,
            best=r.best and replace(r.best, directory=None),
            trials=tuple(replace(t, directory=None) for t in r.trials),
        )
        for r in results.rows
    )
    return replace(results, rows=rows)


def test_a_claim_about_more_than_was_run_says_so(fashion) -> None:
    elsewhere = {"study": "", "a": ("table-fashion-mlp:mlp-1/ada", "table-moroco:cnn/ada")}
    elsewhere |= {"b": ("table-fashion-mlp:mlp-1/relu", "table-moroco:cnn/relu")}
    made = verdict(fashion, claim(**elsewhere))
    assert (made.outcome, made.scope) == ("supported where run", "judged on 1 of 2 pairs")
    assert made.missing == ("table-moroco is not in this report",)
    few = claim(**elsewhere | {"a": ("table-moroco:cnn/ada",), "b": ("table-moroco:cnn/relu",)})
    assert (verdict(fashion, few).outcome, verdict(fashion, few).scope) == ("not run", "")
    elsewhere["a"] = ("table-fashion-mlp:mlp-1/rbf", "table-moroco:cnn/ada")
    elsewhere["b"] = ("table-fashion-mlp:mlp-1/ada", "table-moroco:cnn/relu")
    assert verdict(fashion, claim(**elsewhere)).outcome == "contradicted"  # a claim about all needs no more
    largest = {"paper": (0.73,), "a": elsewhere["a"][::-1], "b": elsewhere["b"][::-1], "study": ""}
    assert verdict(fashion, claim("largest", **largest)).outcome == "not run"


def test_one_seed_decides_nothing_and_says_how_many_would(fashion) -> None:
    one = replace(
        fashion,
        study=fashion.study.model_copy(update={"trials": 1}),
        rows=tuple(replace(r, trials=r.trials[:1]) for r in fashion.rows),
    )
    made = verdict(one, claim(), shipped={})
    assert made.outcome == "not run"
    assert "1 shared seeds, but a decision needs 2 or more, 15 to show the margin" in made.reason


PAIR = {"a": ("mlp-1/ada",), "b": ("mlp-1/relu",)}
TWO = {"a": ("mlp-1/ada", "mlp-1/leaky-ada"), "b": ("mlp-1/relu", "mlp-1/leaky-relu")}


@pytest.mark.parametrize(
    ("bound", "figure", "gain", "outcome"),
    [
        ("about", 0.5, 0.005, "supported"),
        ("about", 0.9, 0.005, "contradicted"),
        ("about", 0.02, 0.0002, "inconclusive"),
        ("about", 0.5, -0.005, "contradicted"),
        ("at-least", 0.3, 0.005, "supported"),
        ("at-least", 0.7, 0.005, "contradicted"),
        ("at-most", 0.7, 0.005, "supported"),
        ("at-most", 0.3, 0.005, "contradicted"),
        ("at-most", 0.7, -0.005, "contradicted"),
        ("at-most", 0.7, 0.0, "inconclusive"),
    ],
)
def test_the_size_of_a_gain(fashion, bound: str, figure: float, gain: float, outcome: str) -> None:
    noisy = EQUAL | {"ada": EQUAL["relu"] + gain + NOISE / 2}
    assert verdict(scored(fashion, **noisy), claim("gain", paper=(figure,), bound=bound)).outcome == outcome


@pytest.mark.parametrize(("figure", "outcome"), [(0.5, "supported"), (0.9, "contradicted"), (0.2, "contradicted")])
def test_up_to_is_about_the_largest_gain(fashion, figure: float, outcome: str) -> None:
    gains = {"ada": EQUAL["relu"] + 0.005, "leaky_ada": EQUAL["leaky_relu"] + 0.002}
    made = verdict(scored(fashion, **EQUAL | gains), claim("gain", **TWO, paper=(figure,), bound="up-to"))
    assert made.outcome == outcome


def test_a_finding_on_the_size_of_a_gain_names_that_of_the_pair_too(fashion) -> None:
    noisy = EQUAL | {"ada": EQUAL["relu"] + 0.005 + NOISE / 2}
    (finding,) = verdict(scored(fashion, **noisy), claim("gain", paper=(2.0,), bound="at-least")).findings
    assert (finding.answer, finding.comparison.verdict) == ("contradicted", "supported")
    assert finding.said == "contradicted (the pair by itself: supported)"
    (plain,) = verdict(scored(fashion, **noisy), claim()).findings
    assert plain.said == plain.answer


@pytest.mark.parametrize(("other", "outcome"), [(0.002, "supported"), (0.0051, "inconclusive"), (0.02, "contradicted")])
def test_the_largest_gain_is_larger_than_the_others(fashion, other: float, outcome: str) -> None:
    gains = {"ada": EQUAL["relu"] + 0.005, "leaky_ada": EQUAL["leaky_relu"] + other}
    assert verdict(scored(fashion, **EQUAL | gains), claim("largest", **TWO, paper=(0.5,))).outcome == outcome


@pytest.mark.parametrize(
    ("printed", "noise", "outcome"), [(88.2, 1, "supported"), (86.0, 1, "contradicted"), (86.0, 9, "inconclusive")]
)
def test_a_value_is_not_helped_by_imprecision(fashion, printed: float, noise: float, outcome: str) -> None:
    made = scored(fashion, **EQUAL | {"relu": 0.882 + noise * NOISE})
    assert verdict(made, claim("value", a=("mlp-1/relu",), b=(), paper=(printed,))).outcome == outcome


@pytest.mark.parametrize(
    ("kind", "changes", "outcome"),
    [
        ("range", {"paper": (80.0, 95.0), "b": ()}, "supported"),
        ("range", {"paper": (10.0, 20.0), "b": ()}, "contradicted"),
        ("cost", {"paper": (-0.01, 0.01), "metric": "parameters"}, "supported"),
        ("cost", {"paper": (0.9, 1.1), "metric": "parameters"}, "contradicted"),
        ("stable", {"b": ()}, "supported"),
        ("stable", {"b": (), "expected": False}, "contradicted"),
        ("solves", {"b": ()}, "contradicted"),
        ("solves", {"b": (), "expected": False}, "supported"),
        ("slow", {}, "inconclusive"),  # the same ratio for every seed
        ("vanishing", {}, "supported"),
        ("better", {"b": ("mlp-1/xiao-tanh",)}, "supported"),
        ("better", {"a": ("mlp-1/rbf",), "b": ("mlp-1/xiao-tanh",)}, "contradicted"),
    ],
)
def test_each_kind_of_claim(fashion, kind: str, changes: dict, outcome: str) -> None:
    assert verdict(fashion, claim(kind, **changes)).outcome == outcome


def with_history(results, *histories, state: str = "done"):
    """The trials of ADA with these histories in turn."""
    rows = [r for r in results.rows if r.row.key == "mlp-1/ada"]
    in_turn = zip(rows[0].trials, cycle(histories), strict=False)
    trials = tuple(replace(t, history=history, state=state) for t, history in in_turn)
    return replace(results, rows=tuple(replace(r, trials=trials) if r in rows else r for r in results.rows))


def test_slow_vanishing_and_unstable_are_measured_against_relu(fashion) -> None:
    slow = [{"loss": 1.0 - 0.01 * k} for k in range(8)]
    slower, fast = [*slow, *slow], [{"loss": 1.0 / (k + 1) ** 2} for k in range(8)]
    assert verdict(with_history(fashion, slow, slower), claim("slow")).outcome == "contradicted"
    assert verdict(with_history(fashion, fast, fast[1:]), claim("slow")).outcome == "supported"
    assert verdict(with_history(fashion, slow), claim("slow")).outcome == "inconclusive"  # no variance
    assert (
        verdict(with_history(fashion, slow[:4], slow[:3]), claim("slow")).outcome == "inconclusive"
    )  # they end before
    gone = [{"dynamics": {"gradient": {"first": 1e-9, "last": 1.0}}, "loss": 1.0}]
    assert verdict(with_history(fashion, gone), claim("vanishing")).outcome == "contradicted"
    assert verdict(with_history(fashion, []), claim("vanishing")).outcome == "not run"
    assert verdict(with_history(fashion, slow, state="diverged"), claim("stable", b=())).outcome == "contradicted"


def test_without_the_answers_it_says_that_chance_was_not_looked_at(fashion) -> None:
    rows = [replace(r, best=replace(r.best, directory=None)) if r.best else r for r in fashion.rows]
    (finding,) = verdict(replace(fashion, rows=tuple(rows)), claim("stable", b=())).findings
    assert "not compared with chance" in finding.ours
    (finding,) = verdict(fashion, claim("stable", b=())).findings
    assert "chance" not in finding.ours


def test_seconds_are_those_of_the_benchmark(fashion) -> None:
    cost = {"metric": "seconds", "paper": (0.12, 0.23)}
    assert verdict(fashion, claim("cost", **cost)).outcome == "not run"  # never the seconds of trials
    made = verdict(fashion, claim("cost", **cost), timings=TIMES)
    assert (made.outcome, made.findings[0].n) == ("supported", "11 rounds")
    assert verdict(fashion, claim("cost", **cost | {"paper": (0.5, 0.6)}), timings=TIMES).outcome == "contradicted"
    leaky = {"a": ("mlp-1/ada",), "b": ("mlp-1/leaky-relu",)}
    assert verdict(fashion, claim("cost", **cost | leaky), timings=TIMES).outcome == "inconclusive"
    faster = claim(metric="seconds", a=("mlp-1/relu",), b=("mlp-1/ada",))
    assert verdict(fashion, faster, timings=TIMES).outcome == "supported"
    absolute = verdict(fashion, claim("cost", **cost, scale="absolute"), timings=TIMES)
    assert (absolute.outcome, absolute.reason) == ("not run", "these are seconds of another machine")


def test_validation_counts_beside_the_test_split(fashion) -> None:
    made = verdict(fashion, claim(metric="cross-entropy", splits=("validation", "test")))
    assert made.outcome == "supported"
    assert [f.what.rpartition(", ")[2] for f in made.findings] == ["validation cross-entropy", "test cross-entropy"]
    assert made.findings[0].comparison.decision.difference > 0  # a lower loss is a gain
    assert made.judged == 1


def test_of_two_copies_of_a_study_the_full_one_is_judged(fashion) -> None:
    quick = replace(fashion, study=fashion.study.model_copy(update={"quick": True}))
    report = gather([quick, fashion], pictures=False, crossed=False)
    assert [section.name for section in report.sections] == ["table-fashion-mlp (2)", "table-fashion-mlp"]
    assert any(v.outcome == "supported" for v in report.verdicts)
    assert any("(2) is a quick variant" in line for line in report.summary)


def test_a_coarser_grid_and_fewer_trials_carry_no_verdict_and_are_told(fashion) -> None:
    changed = studies.load("table-fashion-mlp", sets=["tune.alpha=[0.1, 0.5]"])
    rows = tuple(replace(r, row=changed.row(r.row.key)) for r in fashion.rows)
    report = gather([replace(fashion, study=changed, rows=rows)], pictures=False, crossed=False)
    assert any("tune.alpha = (0.1, 0.5) instead of (0.1, 0.2," in line for line in report.summary)
    assert "**Not the paper's protocol: tune.alpha" in markdown.markdown(report)
    assert r"\textbf{Not the paper\textquotesingle{}s protocol: tune.alpha" in latex.latex(report)
    made = {v.claim.id: v for v in report.verdicts}
    assert made["fashion-ada-beats-relu"].outcome == "not run"
    assert "was not trained with the paper's protocol (tune.alpha" in made["fashion-ada-beats-relu"].reason
    assert made["fashion-swish-beats-relu"].outcome != "not run"  # no alpha to tune


def test_quick_and_partial_and_changed_and_unfinished_rows_carry_no_verdict(fashion) -> None:
    study = fashion.study
    quick = replace(fashion, study=study.model_copy(update={"quick": True}))
    assert verdict(quick, claim()).outcome == "not run"
    parts = [part.model_copy(update={"partial": "partial (10 of 20)"}) for part in study.parts]
    rows = tuple(replace(r, part=next(p for p in parts if p.name == r.row.part)) for r in fashion.rows)
    partial = verdict(replace(fashion, rows=rows), claim())
    assert (partial.outcome, "partial (10 of 20)" in partial.reason) == ("not run", True)
    changed = [part.model_copy(update={"training": {"epochs": 1}}) for part in study.parts]
    rows = tuple(replace(r, part=next(p for p in changed if p.name == r.row.part)) for r in fashion.rows)
    assert "protocol" in verdict(replace(fashion, rows=rows), claim()).reason
    rows = tuple(replace(r, trials=r.trials[:3]) for r in fashion.rows)
    assert verdict(replace(fashion, rows=rows), claim()).reason == "ADA of one-hidden-layer MLP has 3 of 5 trials"
    rows = tuple(replace(r, trials=(), best=None) for r in fashion.rows)
    fewer = study.model_copy(update={"trials": 2})
    none = verdict(replace(fashion, study=fewer, rows=rows), claim())
    assert none.reason == "ADA of one-hidden-layer MLP was not trained"


def test_the_summary_counts_the_verdicts_by_what_claims_are_about(fashion) -> None:
    report = gather([fashion], pictures=False, crossed=False)
    assert len(report.verdicts) > 20
    counts = {outcome: sum(v.outcome == outcome for v in report.verdicts) for outcome in OUTCOMES}
    said = ", ".join(f"{count} {outcome}" for outcome, count in counts.items() if count)
    assert f"{len(report.verdicts)} claims of the paper are about these studies: {said}." in report.summary
    about = [v for v in report.verdicts if v.claim.about == "improvement by PyNADA"]
    line = next(line for line in report.summary if line.startswith("Improvement by PyNADA: "))
    assert sum(int(word) for word in line.split() if word.isdigit()) == len(about)
    page = markdown.claims_page(report)
    assert f"## Claims: {about[0].claim.about}" in page
    assert all(f"**{v.outcome}**" in page for v in report.verdicts if v.outcome != "not run")


def test_the_forest_has_every_judged_pair_once(fashion) -> None:
    report = gather([fashion], pictures=False, crossed=False)
    charts = {c.name: c for g in report.overview for c in g.charts if c.name.startswith("forest-")}
    judged = {f.what: f for v in report.verdicts for f in v.findings if f.comparison is not None}
    plain = [f for f in judged.values() if f.comparison.metric.name == "accuracy"]
    effects = {effect.label: effect for effect in charts["forest-accuracy"].effects}
    pairs = {frozenset((f.comparison.a, f.comparison.b)) for f in plain}
    assert effects.keys() <= {f.what for f in plain}
    assert len(effects) == len(pairs)
    ada = effects["ADA against ReLU (one-hidden-layer MLP)"]
    decision = judged["ADA against ReLU (one-hidden-layer MLP)"].comparison.decision
    assert (ada.gain, ada.low, ada.verdict) == (100 * decision.difference, 100 * decision.low, "supported")
    assert ada.printed == pytest.approx(0.10)
    assert charts["forest-accuracy"].margin == pytest.approx(0.2)


def test_a_printed_gain_beyond_the_axis_has_an_arrow() -> None:
    near = Effect("near", 0.1, -0.1, 0.3, 0.2, "supported")

    def marks(printed: float | None) -> int:
        far = replace(near, label="far", printed=printed)
        return draw_svg(Forest("forest", "", "", effects=(near, near, far), margin=0.2), Palette()).count("<use ")

    assert marks(1.0) == marks(40.0) == marks(-40.0) == marks(None) + 1
