"""`apical study`: what people type, and what they read."""

import csv
import json
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from apical import cli, study
from apical.cli import screen
from apical.report.conclusion import conclude
from apical.study import directory

FILE = """
title = "five minutes of work"
trials = 2
stack = 4
tune.alpha = [0.3, 1.0]
training = { epochs = 1, batch = 256, learning_rate = 1e-2 }

[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"
dims = { hidden = 8 }

[[rows]]
unit = "relu"

[[rows]]
unit = "ada"
paper.digits = { accuracy = 97.5 }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the study was run once, by one worker."""
    path = tmp_path_factory.mktemp("cli")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APICAL_HOME", str(path / "home"))
        patch.chdir(path)
        (path / "mine.toml").write_text(FILE)
        assert cli.run(["study", "run", "mine.toml", "--workers", "1"]) == 0
    return path


@pytest.fixture(autouse=True)
def there(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    path: Path = request.getfixturevalue("folder") if "folder" in request.fixturenames else tmp_path
    monkeypatch.setenv("APICAL_HOME", str(path / "home"))
    monkeypatch.chdir(path)
    return path


def test_a_finished_study_shows_its_table_and_is_not_run_again(folder, capsys):
    assert cli.run(["study", "run", "mine.toml"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "five minutes of work: 2 rows, 2 trials each, in studies/mine"
    assert lines.pop(1) == "compared with relu: ada"
    heads = [head for head in lines[1].split() if head != "setting"]  # validation may choose the usual alpha
    assert heads == ["unit", "test", "accuracy", "gain", "over", "ReLU", "n", "paper"]
    assert lines[2].startswith("ReLU ")
    assert lines[3].endswith("97.5")
    assert max(map(len, lines[1:4])) <= 80
    assert conclude(study.read("studies/mine")).sentence in " ".join(lines)
    assert max(map(len, lines)) <= 80
    assert "mine: 5 done; studies/mine" in lines
    assert cli.run(["study", "run", "studies/mine"]) == 0, "the directory names its study too"


def test_status_by_name_and_by_directory(folder, capsys):
    assert cli.run(["study", "status", "mine"]) == 0
    out = capsys.readouterr().out
    assert cli.run(["study", "status", "studies/mine"]) == 0
    assert capsys.readouterr().out == out
    assert "5 of 5 trials, 4 of 4 tested" in out
    assert cli.run(["study", "show", "mine"]) == 0
    *listed, compared, _ = capsys.readouterr().out.splitlines()  # the last line says how to see one of them
    assert compared == "compared with relu: ada"
    assert len(listed) == 6
    assert "\n".join(listed) in out
    assert cli.run(["study", "status", "mine", "--watch"]) == 0


def test_export_show_and_retry(folder, capsys):
    assert cli.run(["study", "export", "mine", "-o", "trials.csv"]) == 0
    with (folder / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    capsys.readouterr()
    assert cli.run(["study", "show", "mine"]) == 0
    listed = capsys.readouterr().out
    assert all(row["digest"][:8] in listed for row in rows)
    assert max(map(len, listed.splitlines())) <= 80
    frame = study.read("studies/mine").dataframe()
    assert list(frame["digest"]) == [row["digest"] for row in rows]
    assert cli.run(["study", "dataframe", "mine"]) == 0
    assert f"[{len(rows)} rows x " in capsys.readouterr().out
    assert cli.run(["study", "show", "mine", rows[0]["digest"][:10]]) == 0
    out = capsys.readouterr().out
    assert rows[0]["digest"] in out
    assert "epoch 1: loss" in out
    assert cli.run(["study", "retry", "mine", "--failed"]) == 0
    assert "no trial has failed" in capsys.readouterr().out


def test_what_is_compared_with_nothing_is_said_before_and_after_training(there, capsys):
    text = FILE.replace("trials = 2", "trials = 1").replace("tune.alpha = [0.3, 1.0]", "")
    (there / "mine.toml").write_text(f'{text.replace("relu", "gelu")}[[rows]]\nunit = "pynada"\n')
    said = "compared with nothing: pynada; a row is compared with the baseline of its group in the same part: add rows"
    assert cli.run(["study", "run", "mine.toml", "--workers", "1"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "five minutes of work: 3 rows, 1 trial each, in studies/mine"
    assert lines[0] == "compared with gelu: ada", "the first of the group, for lack of a relu"
    before, _, after = " ".join(" ".join(lines).split()).partition(" unit ")
    assert said in before
    assert said in after
    assert max(map(len, lines)) <= 80
    for words in ("list mine.toml", "show mine"):
        assert cli.run(["study", *words.split()]) == 0
        assert said in " ".join(capsys.readouterr().out.split())


def test_a_question_is_a_comparison_of_its_own_and_no_groups_are_none():
    assert list(screen.comparisons(study.load("parity"))) == []
    assert [*screen.comparisons(study.load("ablation-alpha"))] == ["nothing is compared: the study has no groups"]


def test_merge_brings_trials_into_a_new_directory(folder, capsys):
    assert cli.run(["study", "merge", "studies/both", "studies/mine"]) == 0
    assert "5 trials were copied into studies/both, 0 were there already" in capsys.readouterr().out
    assert study.read("studies/both").finished


def test_a_data_frame_without_pandas_says_what_to_install(folder, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pandas", None)
    assert cli.run(["study", "dataframe", "mine"]) == 1
    assert "this needs pandas, which is not installed: pip install 'apical[pandas]'" in capsys.readouterr().err


def test_names_that_are_too_long_are_cut_in_the_middle():
    lines = [("unit", "setting", "test"), ("a-very-long-name-" * 4, "alpha=0.3,c=1,scope=channel" * 2, "97.10 ± 0.31")]
    fitted = screen.fitted(lines)
    assert max(len("  ".join(line)) for line in fitted) <= 80
    assert fitted[1][0].startswith("a-very")
    assert fitted[1][2] == "97.10 ± 0.31"
    assert screen.middle_cut("one-hidden-layer", 9) == "one-…ayer"


def test_ctrl_c_is_answered_at_once(there, capsys, monkeypatch):
    (there / "mine.toml").write_text(FILE)

    def interrupted(*_, **__):
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(study, "run", interrupted)
    assert cli.run(["study", "run", "mine.toml"]) == 130
    said = capsys.readouterr()
    assert "stopping: trials save and stop at their next batch" in said.err
    assert "stopped before the study began" in said.out
    directory.open_for(study.load("mine.toml"), there / "studies" / "mine", 1)
    assert cli.run(["study", "run", "mine.toml"]) == 130
    assert "continue with: apical study run studies/mine" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "mine.toml", "--set", "training.lr=1"], "did you mean 'learning_rate'?"),
        (["run", "nothing-like-this"], "nothing-like-this"),
        (["run", "mine.toml", "--engine", "slurm"], "unknown engine 'slurm'; available: local, ray"),
        (["run", "mine.toml", "--set", "training.epochs=2"], "choose another directory with -d"),
        (["run", "mine.toml", "--tune-trials", "2"], "tune_trials was 1 and is 2"),
        (["run", "studies/mine", "--quick"], "and its study cannot change: use --quick"),
        (["status", "nowhere"], "there is no study directory"),
        (["show", "mine", "zzz"], "0 trials of studies/mine begin with 'zzz'"),
        (["retry", "mine", "abc"], "no failed trial begins with 'abc'"),
        (["export", "mine", "-o", "x.xlsx"], "must end in .parquet, .csv, .json"),
        (["merge", "studies/x", "nowhere"], "is not a study directory"),
        (["new", "mine.toml"], "exists already"),
        (["schema", "-o", "no/such/folder"], "cannot write"),
    ],
)
def test_errors_are_one_sentence(folder, capsys, arguments, words):
    assert cli.run(["study", *arguments]) == 1
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_a_new_study_file_is_valid_and_its_fields_are_in_the_schema(there, capsys):
    assert cli.run(["study", "new", "own.toml"]) == 0
    loaded = study.load("own.toml")
    assert len(loaded.rows) == 5
    assert study.load("own.toml", quick=True).trials == 2
    capsys.readouterr()
    assert cli.run(["study", "schema"]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert set(tomllib.loads((there / "own.toml").read_text())) <= set(schema["properties"])


def test_list_names_every_shipped_study_with_its_time_and_does_not_wait_for_torch():
    code = "import sys; from apical import cli; cli.run(['study', 'list']); sys.exit('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in study.names())
    assert "?" not in done.stdout
    assert "more than a year" in done.stdout


def test_list_shows_the_parts_of_one_study(capsys):
    assert cli.run(["study", "list", "table-fashion-cnn"]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert [row[:4] for row in rows[1:3]] == [["lenet", "LeNet", "11", "95"], ["vgg-9", "VGG-9", "11", "95"]]
    assert cli.run(["study", "list", "table-fashion"]) == 1
    assert "unknown study 'table-fashion'; did you mean" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.2, "about 1 s"), (40.4, "about 40 s"), (4740, "about 79 min"), (4 * 3600 + 600, "about 4 h"),
        (33 * 86400, "about 33 days"), (86847 * 86400, "more than a year"),
    ],
)  # fmt: skip
def test_an_estimate_is_said_in_one_unit(seconds, text):
    assert screen.about(seconds) == text


BROKEN = """import torch
class Broken(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x.flatten(1)[:, :3] if self.training else x.flatten(1))
def network():
    return Broken(64, 10)
"""
"""A network that takes its inputs, and fails in the first step of training."""


@pytest.mark.slow
def test_the_reason_of_a_failure_is_said_at_the_end_once_and_its_traceback_on_demand(there, capsys):
    (there / "broken.py").write_text(BROKEN)
    (there / "own.toml").write_text(FILE.replace('"mlp-1"', '"broken:network"').replace("dims =", "# dims ="))
    assert cli.run(["study", "run", "own.toml", "--workers", "1", "--import", "broken"]) == 1
    said = capsys.readouterr().out
    (line,) = [line for line in said.splitlines() if "cannot be multiplied" in line]
    assert " relu seed 0 and 1 more failed: RuntimeError" in line
    assert cli.run(["study", "status", "own"]) == 0
    assert line in capsys.readouterr().out
    assert cli.run(["study", "show", "own", line.split()[0]]) == 0
    assert "Traceback" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("seconds", "words"), [(7, "0:07"), (750, "12:30"), (12_000, "3 h 20 min"), (9e4, "1 day 1 h"), (2e5, "2 days 7 h")]
)
def test_times_are_short_words(seconds, words):
    assert screen.clock(seconds) == words


def test_missing_data_names_the_command_that_helps(capsys):
    assert cli.run(["study", "run", "table-moroco", "--quick"]) == 1
    assert "apical data prepare moroco" in capsys.readouterr().err


@pytest.mark.slow
def test_the_whole_demo(there, capsys):
    assert cli.run(["demo", "-o", "demo"]) == 0
    out = capsys.readouterr().out
    assert "computes XOR" in out
    assert all(unit in out for unit in ("ReLU", "tanh", "PyNADA", "leaky PyNADA"))
    assert max(map(len, out.split("3 of 3")[1].splitlines())) <= 100
    page = (there / "demo" / "report" / "index.html").read_text()
    sentence = conclude(study.read(there / "demo" / "studies" / "demo")).sentence
    assert sentence in " ".join(out.split())
    assert sentence in page.replace("\u00a0", " ")  # a number and its % stay on one line


def test_parts_are_chosen_on_the_command_line(there, here, capsys):
    more = FILE.replace("[[rows]]", '[[parts]]\nname = "wide"\ndata = "digits"\nmodel = "mlp-1"\n\n[[rows]]', 1)
    Path("mine.toml").write_text(more)
    assert cli.run(["study", "run", "mine.toml", "--engine", "here", "--part", "dig*"]) == 0
    assert "2 rows, 2 trials each" in capsys.readouterr().out
    assert cli.run(["study", "run", "mine.toml", "--part", "narrow"]) != 0
    assert "no part is called narrow: it has digits, wide" in capsys.readouterr().err


def test_a_directory_here_does_not_hide_the_shipped_study_of_its_name(there, here, capsys):
    """Run where the study directories are, a changed study is the shipped one, changed."""
    short = ["study", "run", "demo", "--engine", "here", "--set", 'only_rows=["relu"]', "--set", "training.epochs=1"]
    assert cli.run([*short, "--set", "trials=1", "-d", "demo"]) == 0
    assert cli.run([*short, "--set", "trials=2"]) == 0
    assert "2 trials each, in demo" in capsys.readouterr().out
