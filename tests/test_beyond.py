"""The page "Beyond the paper": it says what its file of starts says, and the file is whole."""

import csv
import importlib.util
from pathlib import Path

import pytest

from apical import study

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def writer():
    spec = importlib.util.spec_from_file_location("write_beyond", ROOT / "docs" / "write_beyond.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_start_of_the_studies_is_in_the_file(writer):
    with writer.RESULTS.open(newline="", encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    assert writer.RESULTS.stat().st_size < 300_000
    for name in writer.STUDIES:
        asked, own = study.load(name), [line for line in lines if line["study"] == name]
        assert [f"{line['part']}/{line['row']}" for line in own] == [row.key for row in asked.rows]
        assert {(int(line["first_seed"]), len(line["starts"])) for line in own} == {(asked.first_seed, asked.trials)}
        assert all(set(line["starts"]) <= {"0", "1"} for line in own)
        assert all(line["starts"].count("1") == int(line["solved"]) for line in own)


def test_the_numbers_of_the_pages_are_those_of_the_file(writer):
    made = writer.blocks(writer.read_csv(), writer.read_scores(), writer.read_trials())
    for page in writer.PAGES:
        text = page.read_text(encoding="utf-8")
        assert any(f"<!-- {name}: begin -->" in text for name in made)
        assert writer.filled(text, made) == text


def test_every_study_beyond_the_paper_has_its_question_and_figure_on_the_page(writer):
    """A study that was not run in full has its question there, which says so, and no figure."""
    text = (ROOT / "docs" / "beyond.md").read_text(encoding="utf-8")
    for name in study.names():
        question = study.load(name).question
        if question is not None:
            assert question.asks in text
            drawn = (ROOT / "docs" / "images" / f"{name}.svg").is_file()
            assert drawn == (f"](images/{name}.svg)" in text)
            answer = text.partition(question.asks)[2].partition("**Question.**")[0]
            assert drawn == ("**Answer:" in answer) == ("**Not run in full yet.**" not in answer)


def test_every_trial_of_an_answered_study_is_in_the_file(writer):
    lines = writer.read_trials()
    assert {line["study"] for line in lines} <= {*writer.others()}
    for name in {line["study"] for line in lines}:
        asked = study.load(name)
        values = writer.by_row(name, lines)
        seeds = [*range(asked.first_seed, asked.first_seed + asked.trials)]
        own = {part.name for part in asked.parts if part.metric == asked.question.metric}
        assert [*values] == [row.key for row in asked.rows if row.part in own]
        assert all(sorted(own) == seeds for own in values.values())


def test_a_question_that_counts_starts_is_answered_by_their_number(writer):
    """ADA solves all starts but two here and the others none, though they are right in most points."""
    asked = study.load("evolution")
    lines = [
        {
            "study": "evolution", "part": row.part, "row": row.name, "setting": row.unit, "parameters": "9",
            "seed": str(asked.first_seed + k), "value": "1" if row.name == "ada" and k > 1 else "0.99",
        }
        for row in asked.rows
        for k in range(asked.trials)
    ]  # fmt: skip
    said = writer.answer(asked, writer.by_row("evolution", lines))
    assert "**Answer: yes.**" in said
    assert "starts that solve it (%)" in said
    shown = writer.means(asked, writer.by_row("evolution", lines), lines)
    assert "| ADA | 64 of 66 |" in shown
    assert "| ReLU | 0 of 66 |" in shown


@pytest.mark.parametrize("name", ["coordinates", "signal", "sound", "evolution-digits"])
def test_an_answer_follows_from_the_trials(writer, name):
    """Made-up trials in which the row of the question is 3 better, then 3 worse, than all others."""
    asked = study.load(name)
    for gain, word in ((3.0, "yes"), (-3.0, "no")):
        values = {
            row.key: {
                asked.first_seed + k: 20 + 0.1 * ((7 * i + 3 * k) % 5) + gain * (row.name == asked.question.row)
                for k in range(asked.trials)
            }
            for i, row in enumerate(asked.rows)
        }
        said = writer.answer(asked, values)
        assert f"**Answer: {word}.**" in said
        assert said.count("supported" if gain > 0 else "contradicted") > len(asked.question.parts)
        assert "<svg" in writer.draw_means(asked, values)


@pytest.mark.parametrize("name", ["corruption", "far-away", "adversarial"])
def test_the_numbers_of_robustness_become_an_answer_a_figure_and_a_table(writer, name):
    """With made-up numbers, in which ADA is better by twice the smallest effect of interest."""
    asked = study.load(name)
    question, seeds = asked.question, range(asked.first_seed, asked.first_seed + asked.trials)
    better = {question.metric: 2 * question.effect}
    numbers = {
        (row.key, metric): {
            seed: 0.5 + seed % 3 / 1000 + (better.get(metric, 0.0) + seed % 2 / 1000 if row.name == "ada" else 0.0)
            for seed in seeds
        }
        for row in asked.rows
        for metric in {*writer.SHOWN[name], question.metric}
    }
    values = {row.key: numbers[row.key, question.metric] for row in asked.rows}
    text, table = writer.answer(asked, values), writer.details(asked, numbers)
    assert f"**Answer: yes.** {question.yes} Its one comparison is supported." in text
    assert f"](images/{name}.svg)" in table
    assert table.count("\n| ") == len(asked.rows) + 2
    assert "<svg" in writer.draw_effects(asked, numbers)
    assert "**Not run in full yet.**" in writer.answer(asked, {})
    assert writer.details(asked, {}) == ""
