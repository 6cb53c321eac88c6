"""Export and merge."""

import csv
import json

import pytest
import torch

import apical
from apical import study
from apical.errors import InvalidArgumentError, StudyError
from apical.study import Row, driver
from apical.study.maintenance import gather
from apical.train import TrialResult
from apical.train.evaluation import network_of

pytestmark = pytest.mark.usefixtures("here")


@pytest.fixture
def done(tiny, tmp_path):
    study.run(tiny, tmp_path / "s", engine="here")
    return tmp_path / "s"


def test_parquet_csv_and_json_hold_the_same(done, tmp_path):
    import pyarrow.parquet

    for name in ("t.parquet", "t.csv", "t.json"):
        assert study.export(done, tmp_path / "new" / name) == tmp_path / "new" / name
    stored = json.loads((tmp_path / "new" / "t.json").read_text())
    assert stored == gather(study.read(done))
    assert pyarrow.parquet.read_table(tmp_path / "new" / "t.parquet").to_pylist() == stored
    with (tmp_path / "new" / "t.csv").open(newline="") as file:
        texts = list(csv.DictReader(file))
    assert [{k: _parsed(v, stored[0][k]) for k, v in row.items()} for row in texts] == [
        {k: "" if v is None else v for k, v in row.items()} for row in stored
    ]


def test_results_say_in_a_line_what_they_are(done):
    results = study.read(done)
    row = results.rows[0]
    assert repr(results) == f"<results of {results.study.title!r}: {len(results.rows)} rows, trials: 5 done>"
    assert repr(row) == f"<row {row.row.key}: {row.chosen}, {len(row.trials)} trials>"
    trial = row.trials[0]
    said = f"seed {trial.seed}, done, validation {trial.value:.4g}, test accuracy {trial.test['accuracy']:.4g}"
    assert repr(trial) == f"<trial {trial.digest[:8]}: {said}>"


def _parsed(text, like):
    if text == "":
        return ""
    return (
        text == "True"
        if isinstance(like, bool)
        else type(like)(text)
        if isinstance(like, int | float)
        else _number(text)
    )


def _number(text):
    try:
        return float(text)
    except ValueError:
        return text


def test_a_learned_alpha_is_that_of_the_weights_that_are_kept(make_tiny, tmp_path):
    learned = make_tiny(epochs=4, trials=1, alphas=("learn",))
    study.run(learned, tmp_path / "s", engine="here")
    results = study.read(tmp_path / "s")
    trials = {t.digest: t for row in results.rows for t in row.trials}
    found = {r["digest"]: r["learned"] for r in gather(results)}
    assert len([value for value in found.values() if value is not None]) == 1
    for digest, value in found.items():
        trial = trials[digest]
        kept = network_of(TrialResult.load(trial.directory))
        values = [m.effective_alpha.item() for m in kept.modules() if isinstance(m, apical.ADA)]
        assert [value] == values if values else value is None


def test_every_trial_is_there_once_and_only_the_chosen_have_tests(done):
    rows = gather(study.read(done))
    assert len({(r["row"], r["digest"]) for r in rows}) == len(rows) == 5
    assert {(r["apical"], r["torch"]) for r in rows} == {(apical.__version__, torch.__version__)}
    assert all(r["stacking"].startswith(("alone", "stacked(")) for r in rows)
    assert {r["chosen"] for r in rows if r["test accuracy"] is not None} == {True}
    assert sum(r["best"] for r in rows) == 2
    assert all(r["state"] == "done" and 0 <= r["validation accuracy"] <= 1 for r in rows)


def test_a_study_that_has_not_begun_can_be_exported(tiny, tmp_path):
    driver.open_for(tiny, tmp_path / "s", None)
    study.export(tmp_path / "s", tmp_path / "t.csv")
    assert {r["state"] for r in gather(study.read(tmp_path / "s"))} == {"planned"}


def test_another_ending_and_a_place_that_cannot_be_written_are_said(done, tmp_path):
    with pytest.raises(InvalidArgumentError, match=r"must end in \.parquet, \.csv, \.json"):
        study.export(done, tmp_path / "t.xlsx")
    (tmp_path / "file").touch()
    with pytest.raises(StudyError, match=r"cannot write .*: choose another place with -o"):
        study.export(done, tmp_path / "file" / "t.csv")


def test_directories_that_were_filled_apart_come_together(tiny, tmp_path, numbers):
    study.run(tiny, tmp_path / "whole", engine="here")
    halves = [tiny.model_copy(update={"rows": (row,)}) for row in tiny.rows]
    study.run(halves[0], tmp_path / "a", engine="here")
    study.run(tiny, tmp_path / "b", engine="here")
    first = study.merge(tmp_path / "all", tmp_path / "a", tmp_path / "b")
    assert (first.copied, first.known, first.damaged) == (5, 2, 0)
    assert numbers(tmp_path / "all") == numbers(tmp_path / "whole")
    again = study.merge(tmp_path / "all", tmp_path / "a", tmp_path / "b")
    assert (again.copied, again.known) == (0, 7)
    assert list((tmp_path / "all" / "attempts").iterdir()) == []
    assert numbers(tmp_path / "b") == numbers(tmp_path / "whole"), "a source was changed"


def test_damaged_trials_stay_behind(done, tmp_path):
    next((done / "trials").iterdir()).joinpath("result.json").write_text("{")
    merged = study.merge(tmp_path / "all", done)
    assert (merged.copied, merged.damaged) == (4, 1)


def test_another_study_is_not_merged(tiny, done, tmp_path):
    other = tiny.model_copy(update={"rows": (Row(key="digits/ada", part="digits", label="", unit="ada(c=1)"),)})
    driver.open_for(other, tmp_path / "other", None)
    with pytest.raises(StudyError, match=r"cannot be merged into .*: merge directories of one study"):
        study.merge(done, tmp_path / "other")
    driver.open_for(tiny, tmp_path / "five", 5)
    with pytest.raises(StudyError, match="its tune_trials is 5, but that of the others is 1"):
        study.merge(done, tmp_path / "five")
    with pytest.raises(StudyError, match="is not a study directory"):
        study.merge(done, tmp_path / "nowhere")
