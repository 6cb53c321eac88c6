"""`apical attack`: a run or a factory with weights, a table, a sentence, JSON and CSV."""

import csv
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from apical.cli import run
from apical.train import Execution, TrialSpec
from apical.train import run as train

FEW = ["--samples", "40", "--queries", "10", "--steps", "3"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attacked") / "run"
    spec = TrialSpec(
        data="digits", model="mlp-1", unit="ada(alpha=0.3)", dims={"hidden": 16}, epochs=4, learning_rate=0.01
    )
    return train(spec, Execution(threads=1), folder).directory


def test_a_run_is_attacked_and_left_alone(trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(trained.iterdir())
    files = ["--json", str(tmp_path / "a.json"), "--csv", str(tmp_path / "a.csv")]
    assert run(["attack", str(trained), "--eps", "0.1", "--source", str(trained), *FEW, *files]) == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines()[:5]] == ["none", "fgsm", "pgd", "transfer", "square"]
    assert "in the worst case of 4 attacks with eps = 0.1" in out
    assert sorted(trained.iterdir()) == before  # the test split stays closed
    result = json.loads((tmp_path / "a.json").read_text())
    assert result["weakest"] <= min(result["attacks"].values()) <= result["accuracy"]
    with (tmp_path / "a.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) == 40
    assert [*lines[0]] == ["id", "label", "right", "fgsm", "pgd", "transfer", "square"]
    share = sum(all(line[name] == "1" for name in [*lines[0]][2:]) for line in lines) / 40
    assert share == result["weakest"]


def test_a_factory_with_its_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "attack_me.py").write_text(
        "from torch import nn\n\ndef small():\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    save_file(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)).state_dict(), "small.safetensors")
    call = ["attack", "attack_me:small", "--weights", "small.safetensors", "--data", "digits", "--attacks", "pgd", *FEW]
    assert run(call) == 0
    assert "in the worst case of 1 attack with" in capsys.readouterr().out
    save_file({"1.weight": torch.zeros(10, 3)}, "other.safetensors")
    Path("broken.safetensors").write_bytes(b"nothing")
    for name in ("other", "broken", "absent"):
        assert run([*call[:3], f"{name}.safetensors", *call[4:]]) == 1
        assert f"{name}.safetensors does not fit attack_me:small" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--eps", "0"], "eps must be above 0"),
        (["--attacks", "pdg"], "unknown attack 'pdg'"),
        (["--attacks", "transfer"], "the attack 'transfer' needs source="),
        (["--data", "digits"], "leave --weights and --data out"),
        (["--json", "nowhere/a.json"], "the folder nowhere does not exist"),
    ],
)
def test_what_is_wrong_is_one_sentence(
    trained: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["attack", str(trained), *arguments, *FEW]) == 1
    assert sentence in capsys.readouterr().err


def test_code_that_a_folder_names_is_not_trusted(
    trained: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["attack", str(tmp_path), *FEW]) == 1
    assert "there is no finished trial" in capsys.readouterr().err
    assert run(["attack", "attack_me:small", *FEW]) == 1
    assert "is a factory: give --weights" in capsys.readouterr().err
