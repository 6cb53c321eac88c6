"""The sentence of a study: it agrees with the numbers, whatever they are."""

import html
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import stats as scipy_stats

from apical import study as studies
from apical.errors import InvalidArgumentError, StudyError
from apical.report.conclusion import MARGIN, Conclusion, Finding, conclude
from apical.study.model import Study
from apical.study.results import RowResults, SettingResults, StudyResults, TrialRecord
from apical.train import TrialSpec

UNITS = ("relu", "ada", "swish", "tanh", "rbf")
LABELS = dict(zip(UNITS, ("ReLU", "ADA", "Swish", "tanh", "RBF"), strict=True))


def study_of(units=UNITS, *, trials: int = 3, metric: str = "accuracy", parts: int = 1, **more) -> Study:
    names = [f"part-{k}" for k in range(parts)]
    return Study.from_dict({
        "name": "own", "title": "own", "trials": trials, **more,
        "parts": [
            {"name": n, "title": f"net {'ab'[k]}", "data": "digits", "model": "mlp-1", "metric": metric}
            for k, n in enumerate(names)
        ],
        "rows": [
            {"key": f"{n}/{u}", "part": n, "label": LABELS[u], "unit": u, "group": "standard"}
            for n in names
            for u in units
        ],
        "groups": [{"name": "standard", "title": "Standard", "baseline": "relu", "rows": list(units)}],
    })  # fmt: skip


def trial(unit: str, seed: int, value: float | None, metric: str, state: str = "done") -> TrialRecord:
    spec = TrialSpec(data="digits", model="mlp-1", unit=unit, seed=seed)
    done = state in ("done", "diverged")
    return TrialRecord(
        digest=f"{unit}-{seed}", directory=None, spec=spec, state=state, seed=seed, metric=metric,
        reason="" if state == "done" else "RuntimeError: no memory", validation={metric: value} if done else {},
        test={metric: value} if done and value is not None else None,
    )  # fmt: skip


def results_of(study: Study, values: dict[str, dict[int, float]], *, failed=(), planned: int = 0) -> StudyResults:
    """Results with these test values by row and seed; `failed` names (row, seed)."""
    metric, rows, states = study.parts[0].metric, [], Counter(planned=planned)
    for row in study.rows:
        trials = [trial(row.unit, s, v, metric) for s, v in values.get(row.key, {}).items()]
        trials += [trial(row.unit, s, None, metric, "failed") for key, s in failed if key == row.key]
        states.update(t.state for t in trials)
        setting = SettingResults(setting=row.unit, trials=tuple(trials))
        best = next((t for t in trials if t.test), None)
        rows.append(RowResults(row=row, part=study.part(row.part), chosen=row.unit, settings=(setting,),
                               trials=tuple(trials), best=best))  # fmt: skip
    finished = not planned and not failed
    return StudyResults(study=study, directory=Path("own"), rows=tuple(rows), states=states, finished=finished)


def sentence(values: dict[str, list[float]], **more) -> str:
    study = study_of(tuple(values), **{k: v for k, v in more.items() if k not in ("failed", "planned")})
    by_seed = {f"part-0/{u}": dict(enumerate(v)) for u, v in values.items()}
    how = {k: v for k, v in more.items() if k in ("failed", "planned")}
    return conclude(results_of(study, by_seed, **how)).sentence


def test_a_win_names_the_unit_the_amount_the_interval_and_the_trials() -> None:
    said = sentence({"relu": [0.90, 0.91, 0.92], "ada": [0.93, 0.941, 0.949]})
    assert re.fullmatch(
        r"ADA is better than ReLU by 3\.00 points in test accuracy "
        r"\(95 % interval 2\.\d\d to 3\.\d\d; 3 trials each\)\.",
        said,
    )


def test_a_loss_says_that_nothing_is_better() -> None:
    said = sentence({"relu": [0.90, 0.91, 0.92], "ada": [0.87, 0.881, 0.889], "tanh": [0.901, 0.909, 0.921]})
    assert said.startswith("No unit is measurably better than ReLU (3 trials each); ADA is worse by 3.00 points")


def test_pairs_of_unequal_rows_are_counted_by_the_seeds_that_both_have() -> None:
    said = sentence({"relu": [0.90, 0.91, 0.92, 0.90], "ada": [0.93, 0.941, 0.949]}, planned=1)
    assert "3 shared seeds)" in said


def test_a_row_that_has_one_trial_waits_for_its_own_baseline() -> None:
    said = sentence({"relu": [0.90, 0.91, 0.92], "ada": [0.93, 0.941, 0.949], "tanh": [0.9]}, planned=2)
    assert said.endswith("; too few trials to compare tanh with ReLU.")


def test_nothing_to_see_says_how_much_would_be_seen() -> None:
    said = sentence({"relu": [0.90, 0.91, 0.92], "ada": [0.92, 0.90, 0.91]})
    assert said.startswith("ADA is not measurably better or worse than ReLU (3 trials each; a difference of ")
    assert said.endswith(" points in test accuracy would be needed to see it).")


def test_many_trials_without_a_difference_say_so() -> None:
    values = [0.9 + 0.0001 * (k % 3) for k in range(30)]
    said = sentence({"relu": values, "ada": values[1:] + values[:1]})
    assert said == "ADA scores as ReLU does, within 0.20 points in test accuracy (30 trials each)."


def test_one_trial_each_decides_nothing() -> None:
    said = sentence({"relu": [0.90], "ada": [0.95]}, trials=1)
    assert said == (
        "With one trial each, differences cannot be told from chance; ADA has the best test accuracy, 95.00 %."
    )


def test_unfinished_and_failed_studies_say_so() -> None:
    assert sentence({"relu": [], "ada": []}, planned=6) == "No result yet: 0 of 6 trials are done."
    failed = [("part-0/relu", 0), ("part-0/ada", 0)]
    assert sentence({"relu": [], "ada": []}, failed=failed) == "No result: all 2 trials failed."
    said = sentence({"relu": [], "ada": []}, failed=failed, planned=4)
    assert said == "No result: 2 trials of 6 failed, and none is done."
    said = sentence({"relu": [0.9, 0.91], "ada": [0.95, 0.961], "tanh": []}, planned=3)
    assert said.startswith("So far (4 of 7 trials): ADA ")
    assert said.endswith("; no result for tanh.")


def test_differences_without_a_spread_are_not_called_measurable() -> None:
    assert "not measurably better" in sentence({"relu": [0.5, 0.5], "ada": [0.75, 0.75]})


def test_what_was_run_tells_failures_and_trials_that_are_not_there_yet() -> None:
    study = study_of(("relu", "ada"))
    values = {"part-0/relu": {0: 0.9, 1: 0.91}, "part-0/ada": {0: 0.95}}
    run = conclude(results_of(study, values, failed=[("part-0/ada", 1)], planned=2)).run
    assert run.endswith("; 3 of 6 trials so far, 1 failed.")
    run = conclude(results_of(study, values, failed=[("part-0/ada", 1), ("part-0/ada", 2), ("part-0/relu", 2)])).run
    assert run.endswith("; 3 of 6 trials done, 3 failed.")
    values = {key: dict.fromkeys(range(3), 0.9) for key in values}
    assert conclude(results_of(study, values)).run.endswith("; 3 trials each, 6 in all.")


def test_errors_count_the_other_way_round() -> None:
    said = sentence({"relu": [6.0, 6.2, 6.1], "ada": [5.0, 5.21, 5.1]}, metric="mae")
    assert said.startswith("ADA is better than ReLU by 1")
    assert "points" not in said


def test_a_finding_is_that_of_the_statistics(fashion) -> None:
    listed = {f.key: f for f in conclude(fashion).findings}
    assert listed["mlp-1/ada"].verdict == "better"
    assert listed["mlp-1/pynada"].verdict == "worse"
    assert listed["mlp-1/pynada"].baseline == "PyNReLU"
    assert listed["mlp-1/relu"].decision is None
    a, b = (fashion.row(f"mlp-1/{name}").tests("accuracy") for name in ("ada", "relu"))
    assert listed["mlp-1/ada"].decision.difference == pytest.approx(np.mean(a) - np.mean(b))


def test_logical_functions_are_told_by_shares(tmp_path, make) -> None:
    results = make(studies.load("logic", quick=True), tmp_path / "s", lambda row: 1.5 if row == "xor/ada" else 0.7,
                   samples=40)  # fmt: skip
    assert re.search(r"ADA solves .* most often, in 20 of 20 \(100 %", conclude(results).sentence)


NUMBER = r"(−?[\d.]+(?:e[−-]\d+)?)"


def generated(seed: int) -> StudyResults:
    """Effects, numbers of trials, rows without any, failures and work left to do."""
    random = np.random.default_rng(seed)
    metric = str(random.choice(["accuracy", "mae"]))
    units, trials = UNITS[: random.integers(2, len(UNITS) + 1)], int(random.integers(1, 7))
    study = study_of(units, metric=metric, trials=trials, parts=int(random.integers(1, 3)))
    values, failed = {}, []
    for row in study.rows:
        count = random.choice([trials, 0, 1], p=[0.8, 0.1, 0.1])
        effect, spread = random.choice([0.0, 0.0, 0.004, -0.02, 0.05]), random.choice([0.0, 0.0005, 0.01, 0.01])
        middle = 0.8 + effect if metric == "accuracy" else 5 - 10 * effect
        values[row.key] = {s: float(middle + spread * random.normal()) for s in range(count)}
        failed += [(row.key, s) for s in range(count, trials) if random.random() < 0.5]
    return results_of(study, values, failed=failed, planned=int(random.choice([0, 0, 4])))


@pytest.mark.parametrize("seed", range(60))
def test_the_sentence_agrees_with_the_numbers(seed: int) -> None:
    """Everything it says is computed again from the trials."""
    results = generated(seed)
    told = conclude(results)
    said, larger = told.sentence, results.study.parts[0].metric == "accuracy"
    several = len(results.study.parts) > 1
    names = {f.key: f"{f.label} ({f.part.title})" if several else f.label for f in told.findings}
    unit = 100 if larger else 1
    assert said.endswith(".")
    assert said.startswith("So far") == bool(results.states["planned"] and any(f.scores for f in told.findings))
    for f in told.findings:
        base = f"{f.part.name}/relu"
        shared = sorted(f.scores.keys() & next(x.scores for x in told.findings if x.key == base).keys())
        assert (f.decision is not None) == (f.key != base and len(shared) > 1)
        if f.decision is not None:
            own = [f.scores[s] - next(x.scores for x in told.findings if x.key == base)[s] for s in shared]
            assert f.decision.difference == pytest.approx(np.mean(own) * (1 if larger else -1))
            check_verdict(f)
    verdicts = Counter(f.verdict for f in told.findings)
    by_name = {names[f.key]: f for f in told.findings}
    for word, sign in (("better", 1), ("worse", -1)):
        claimed = re.search(rf"(?:^|[;:] )([^;:]*?) (?:is|are) {word}(?: than [^;(]*?)?(?: by|, )", said)
        assert (claimed is not None) == (verdicts[word] > 0), said
        if claimed is None:
            continue
        named = re.search(rf"{word}[^;]*?, ([^;,]*) by most", said)
        first = named[1] if named else claimed[1]
        assert by_name[first].verdict == word
        top = max((f for f in told.findings if f.verdict == word), key=lambda f: abs(f.decision.difference))
        assert by_name[first].decision.difference == top.decision.difference
        brief = word == "worse" and verdicts["better"]  # the sentence has named the metric
        amount = r"\(" if brief else r"[^(;]*in test \w+ \(95 % interval "
        numbers = re.search(rf"{word}[^;]*?{NUMBER}(?: points)? ?{amount}{NUMBER} to {NUMBER}", said)
        ends = sorted((sign * top.decision.low, sign * top.decision.high))
        for text, value in zip(numbers.groups(), (sign * top.decision.difference, *ends), strict=True):
            digits = 0.5 * 10.0 ** -len(text.partition(".")[2]) * 1.01
            assert float(text.replace("−", "-")) == pytest.approx(unit * value, abs=digits)
    check_others(told, names)
    check_counts(results, told)
    if "measurably better or worse" in said:
        assert not verdicts["better"]
        assert not verdicts["worse"]
        if needed := re.search(rf"a difference of {NUMBER}", said):
            widest = max((f.decision.high - f.decision.low) / 2 for f in told.findings if f.decision)
            assert float(needed[1]) == pytest.approx(unit * widest, rel=0.05, abs=0.0051)
    if "No unit is measurably better than" in said:
        assert not verdicts["better"]
    single = [f for f in told.findings if f.scores and f.baseline and not f.verdict]
    assert ("too few trials to compare" in said) == bool(single and any(f.verdict for f in told.findings))
    bare = [f for f in told.findings if not f.scores]
    assert ("no result for" in said) == (0 < len(bare) < len(told.findings))


def check_others(told: Conclusion, names: dict[str, str]) -> None:
    """Beside a win or a loss, rows without a difference are named where they are few, and counted otherwise."""
    rest = [names[f.key] for f in told.findings if f.verdict in ("same", "unclear")]
    decided = any(f.verdict in ("better", "worse") for f in told.findings)
    said = re.findall(r"; ([^;]*?) (is|are) not measurably different( \(gain [^)]* to [^)]*\))?", told.sentence)
    if not rest or not decided:
        assert said == []
        return
    ((who, verb, interval),) = said
    if len(rest) == 1:
        (f,) = (f for f in told.findings if f.verdict in ("same", "unclear"))
        assert f.gain_text.endswith(interval.removeprefix(" (gain "))
    assert bool(interval) == (len(rest) == 1)
    assert verb == ("is" if len(rest) == 1 else "are")
    assert sorted(re.split(r", | and ", who)) == sorted(rest if len(rest) <= 3 else [f"{len(rest)} others"])


def check_counts(results: StudyResults, told: Conclusion) -> None:
    """What was run is what the trials say, not what was planned."""
    trials = [t for r in results.rows for t in r.trials]
    done, failed = (sum(t.state == state for t in trials) for state in ("done", "failed"))
    total = len(trials) + results.states["planned"]
    said = told.run.partition("; ")[2]
    if done == total:
        assert re.fullmatch(rf"{results.study.trials} trials? each, {total} in all\.", said)
    else:
        end = "so far" if results.states["planned"] else "done"
        assert said == f"{done} of {total} trials {end}{f', {failed} failed' if failed else ''}."
    assert re.findall(r"So far \((.*?)\):", told.sentence) in ([], [f"{done} of {total} trials"])


def check_verdict(f: Finding) -> None:
    d = f.decision
    half = scipy_stats.t.ppf(0.975, d.degrees) * d.deviation / np.sqrt(d.seeds)
    assert (d.low, d.high) == (pytest.approx(d.difference - half), pytest.approx(d.difference + half))
    if d.deviation <= 1e-9 * abs(d.difference):
        assert f.verdict == "unclear"
    elif d.low > 0:
        assert f.verdict == "better"
    elif d.high < 0:
        assert f.verdict == "worse"
    elif f.verdict == "same" and f.metric.percent:
        assert -MARGIN / 100 < d.difference < MARGIN / 100


def test_notebooks_show_the_sentence_and_the_picture(fashion) -> None:
    shown = fashion._repr_html_()
    told = conclude(fashion)
    assert html.escape(told.sentence) in shown
    assert shown.count("<tr>") == 1 + len(told.findings)
    assert next(f.gain_text for f in told.findings if f.key == "mlp-1/ada") in shown
    figure = fashion.plot("mlp-2")
    assert [axis.get_xlabel() for axis in figure.axes] == ["test accuracy (%)", "gain over the baseline (points)"]
    with pytest.raises(InvalidArgumentError, match="unknown part 'mlp-3'; available: mlp-1, mlp-2"):
        fashion.plot("mlp-3")
    with pytest.raises(StudyError, match="nothing to plot"):
        results_of(study_of(), {}).plot()
