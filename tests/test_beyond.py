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
    made = writer.blocks(writer.read_csv())
    for page in writer.PAGES:
        text = page.read_text(encoding="utf-8")
        assert any(f"<!-- {name}: begin -->" in text for name in made)
        assert writer.filled(text, made) == text


def test_every_study_beyond_the_paper_has_its_question_and_figure_on_the_page(writer):
    text = (ROOT / "docs" / "beyond.md").read_text(encoding="utf-8")
    for name in study.names():
        question = study.load(name).question
        if question is not None:
            assert question.asks in text
            assert f"](images/{name}.svg)" in text
            assert (ROOT / "docs" / "images" / f"{name}.svg").is_file()
