"""The tables as data: the paper's numbers beside ours, traced to their trials."""

import csv
import io
from dataclasses import replace
from statistics import mean, stdev

import pytest

from apical import study as studies
from apical.report import gather
from apical.report.tables import columns_of, parameter_text
from apical.report.writing import table_csv


@pytest.fixture(scope="module")
def tables(fashion):
    return gather([fashion]).sections[0].tables


def line(tables, key: str):
    return next(line for table in tables for line in table.lines if line.key == key)


def test_there_is_a_table_for_each_part_with_all_rows(tables, fashion) -> None:
    assert [table.name for table in tables] == ["mlp-1", "mlp-2"]
    assert [x.key for table in tables for x in table.lines] == [row.key for row in fashion.study.rows]


def test_ours_is_the_test_value_of_the_best_trial_by_validation(tables, fashion) -> None:
    for found in fashion.rows:
        if found.row.quoted:
            continue
        best = max(found.trials, key=lambda t: t.validation["accuracy"])
        ours = line(tables, found.row.key).ours
        assert ours.trials == (best.digest,)
        assert ours.value == best.test["accuracy"]
        assert ours.text == f"{100 * best.test['accuracy']:.2f}"


def test_mean_and_deviation_are_over_all_trials(tables, fashion) -> None:
    found = fashion.row("mlp-1/ada")
    values = [t.test["accuracy"] for t in found.trials]
    shown = line(tables, "mlp-1/ada")
    assert len(values) == 5
    assert shown.mean.value == pytest.approx(mean(values))
    assert shown.deviation.value == pytest.approx(stdev(values))
    assert set(shown.mean.trials) == {t.digest for t in found.trials}
    assert shown.trials == "5 of 5"


def test_the_papers_numbers_stand_beside_ours_with_the_difference(tables) -> None:
    shown = line(tables, "mlp-1/pynada")
    assert (shown.paper, shown.paper_mark, shown.paper_parameter) == ("89.45", "‡", "α learned")
    assert shown.difference.value == pytest.approx(shown.ours.value - 0.8945)
    assert shown.difference.text.startswith("−")


def test_the_best_of_each_group_is_marked_and_no_other(tables) -> None:
    best = {x.key for table in tables for x in table.lines if x.best}
    assert {"mlp-1/ada", "mlp-2/ada"} <= best
    for table in tables:
        for title, lines in table.groups:
            if title == "quoted":
                assert not any(x.best for x in lines)
                continue
            top = max(x.ours.value for x in lines)
            assert [x.best for x in lines] == [x.ours.value == top for x in lines]


def test_marks_say_better_than_the_baseline_as_the_paper_does(tables) -> None:
    ada, pynada = line(tables, "mlp-1/ada"), line(tables, "mlp-1/pynada")
    assert ada.mark == "‡"
    assert ada.baseline.b == "mlp-1/relu"
    assert pynada.mark == ""  # significantly worse is no mark
    assert pynada.baseline.test.p_paper < 0.01
    assert (ada.baseline.verdict, pynada.baseline.verdict) == ("supported", "contradicted")
    assert line(tables, "mlp-1/relu").baseline is None


def test_the_rival_is_the_best_other_row_and_no_other_ada(tables) -> None:
    assert line(tables, "mlp-1/ada").rival.b in ("mlp-1/relu", "mlp-1/rbf", "mlp-1/swish")
    assert line(tables, "mlp-1/pynada").rival.b == "mlp-1/pynrelu"
    assert line(tables, "mlp-1/pynrelu").rival.b == "mlp-1/leaky-pynada"


def test_quoted_rows_have_the_papers_number_alone(tables) -> None:
    shown = line(tables, "mlp-1/xiao-tanh")
    assert (shown.paper, shown.ours, shown.mean, shown.baseline) == ("86.80", None, None, None)


@pytest.mark.parametrize(
    ("alpha", "c", "text"), [(0.3, 0.0, "α = 0.3"), ("learn", None, "α learned"), (1.0, 1.0, "α = 1, c = 1")]
)
def test_parameters_in_words(alpha, c, text: str) -> None:
    assert parameter_text(alpha, c) == text


AGES = """
title = "Ages"
trials = 2
training = { metric = "mae", loss = "l1" }
[[parts]]
name = "age"
title = "a network"
data = "sin"
model = "mlp-approx"
[[rows]]
unit = "relu"
paper.age = { mae = 6.39 }
[[rows]]
unit = "ada(alpha=0.3)"
paper.age = { mae = 5.91 }
"""


def test_errors_in_years_are_compared_by_their_means_and_smaller_is_better(tmp_path, make) -> None:
    path = tmp_path / "ages.toml"
    path.write_text(AGES, encoding="utf-8")
    results = make(studies.load(path), tmp_path / "study", lambda row: 3.0 if "ada" in row else 6.0)
    (table,) = gather([results]).sections[0].tables
    relu, ada = table.lines
    assert ada.best
    assert not relu.best
    assert ada.baseline.test.test == "bootstrap"
    assert ada.baseline.decision.difference > 0 > ada.baseline.test.difference
    assert ada.baseline.test.effect < 0
    assert ada.mark == "‡"
    assert ada.ours.text == f"{ada.ours.value:.2f}"


def test_what_robustness_measures_has_columns_and_its_details_stand_in_csv(fashion) -> None:
    def assessed(trial, place: int):
        more = {"corruption-accuracy": 0.5 + place / 100, "corruption-accuracy.fog": 0.25, "softmax-auroc": 0.75}
        return replace(trial, test={**trial.test, **more} if trial.test else None)

    rows = [replace(row, trials=tuple(map(assessed, row.trials, range(9)))) for row in fashion.rows]
    first, *_ = gather([replace(fashion, rows=tuple(rows))]).sections[0].tables
    heads = [column.title(first) for column in columns_of(first)]
    assert heads[-2:] == ["Accuracy under corruption (%)", "AUROC of the largest softmax"]
    cells = [column.cell(line([first], "mlp-1/ada")) for column in columns_of(first)[-2:]]
    assert [cell.number.text for cell in cells] == ["52.00", "0.750"]
    (values,) = [x for x in csv.DictReader(io.StringIO(table_csv(first))) if x["row"] == "mlp-1/ada"]
    assert float(values["corruption-accuracy"]) == pytest.approx(0.52)
    assert float(values["corruption-accuracy_deviation"]) == pytest.approx(stdev([0.5, 0.51, 0.52, 0.53, 0.54]))
    assert float(values["corruption-accuracy.fog"]) == 0.25
    assert columns_of(gather([fashion]).sections[0].tables[0])[-1].title(first) not in heads[-2:]
