import csv
import io
from pathlib import Path

import numpy as np
import pytest

from apical import cli, data
from apical.train import TestResult, TrialResult, loop

DIGITS = ["train", "--data", "digits", "--model", "mlp-1", "--epochs", "2", "--lr", "0.01"]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_train_shows_each_epoch_and_ends_with_test_metric_and_folder(folder, capsys):
    assert cli.run([*DIGITS, "--unit", "ada(alpha=0.3)"]) == 0
    out, err = capsys.readouterr()
    assert [line.split(":")[0] for line in err.splitlines()] == ["epoch 1/2", "epoch 2/2"]
    for word in ("loss", "samples/s", "left", "validation accuracy"):
        assert all(word in line for line in err.splitlines())
    place = Path(out.strip().rpartition("folder ")[2])
    assert TrialResult.load(place).state == "done"
    assert f"test accuracy {TestResult.load(place).scores['accuracy']:.4f}" in out
    assert place.parent == Path("runs")
    assert cli.run([*DIGITS, "--unit", "ada(alpha=0.3)"]) == 0  # finished: shown again, not trained or opened again
    assert capsys.readouterr() == (out, "")


def test_no_test_leaves_the_test_split_closed(folder, capsys):
    assert cli.run([*DIGITS, "--no-test", "-o", "here"]) == 0
    assert "test" not in capsys.readouterr().out
    assert not (folder / "here" / "test.opened").exists()


def test_a_small_network_has_one_thread_unless_told_otherwise(folder):
    assert cli.run([*DIGITS, "--no-test", "-o", "one"]) == 0
    assert cli.run([*DIGITS, "--no-test", "-o", "two", "--threads", "2"]) == 0
    assert [TrialResult.load(folder / name).execution.threads for name in ("one", "two")] == [1, 2]


def test_a_stopped_run_says_how_to_continue_and_continues(folder, capsys, monkeypatch):
    monkeypatch.setattr(loop, "INTERVAL", 0.0)
    import signal

    from apical.cli import train

    real = train.showing

    def interrupting(spec):
        context = real(spec)
        show = context.__enter__()

        class Once:
            def __enter__(self):
                def heard(event):
                    show(event)
                    if event.kind == "batch" and event.batch == 3:
                        signal.raise_signal(signal.SIGTERM)

                return heard

            def __exit__(self, *error):
                return context.__exit__(*error)

        return Once()

    monkeypatch.setattr(train, "showing", interrupting)
    assert cli.run([*DIGITS, "-o", "here"]) == 130
    assert "stopped by SIGTERM; continue with: apical train --resume here" in capsys.readouterr().out
    monkeypatch.setattr(train, "showing", real)
    assert cli.run(["train", "--resume", "here", "--threads", "1"]) == 0
    assert "test accuracy" in capsys.readouterr().out


def test_fields_dimensions_and_corruptions_reach_the_spec(folder, capsys):
    options = ["--set", "milestones=[1]", "--set", "optimiser=sgd", "--dim", "hidden=7", "--corrupt", "imbalance"]
    assert cli.run([*DIGITS, *options, "--no-test", "-o", "here"]) == 0
    spec = TrialResult.load("here").spec
    assert (spec.milestones, spec.optimiser, spec.dims) == ((1,), "sgd", {"hidden": 7})
    assert spec.corruptions[0].startswith("imbalance(")
    assert spec.learning_rate == 0.01


def test_regression_data_gets_a_regression_loss(folder, capsys):
    np.savez("curve.npz", x=np.linspace(0, 1, 50)[:, None], y=np.linspace(0, 1, 50) ** 2)
    command = ["train", "--data", "curve.npz", "--model", "mlp-approx", "--epochs", "1", "--threads", "1", "-o", "here"]
    assert cli.run(command) == 0
    assert "test mae" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["train"], "nothing to train without --data and --model: give both, or --resume"),
        (["train", "--model", "mlp-1"], "nothing to train without --data: give it too, or --resume"),
        (["train", "--data", "digits"], "nothing to train without --model: give it too, or --resume"),
        (
            ["train", "--data", "digits", "--model", "lenet"],
            "16 pixels or more, and those of digits are smaller: pad=N adds N pixels on each side (--set pad=N",
        ),
        (
            ["train", "--data", "digits", "--model", "lenet", "--dim", "image_size=8"],
            "image_size is 8, but lenet needs images of 16 pixels or more\n",
        ),
        (["train", "--data", "digits", "--model", "mlp-1", "--unit", "bump"], "with --import MODULE, or in `imports`"),
        (["train", "--data", "digits", "--model", "mlp-1", "--set", "metric=hits"], "with --import MODULE"),
        (["train", "--data", "digits", "--model", "mlp-1", "--set", "loss=mine"], "with --import MODULE"),
        (["train", "--data", "digits", "--model", "mlp-3"], "unknown network 'mlp-3'"),
        (["train", "--data", "digits", "--model", "mlp-1", "--unit", "rleu"], "unknown unit 'rleu'"),
        (["train", "--data", "digits", "--model", "mlp-1", "--set", "epoch=3"], "epoch"),
        (["train", "--data", "digits", "--model", "mlp-1", "--set", "epochs"], "write name=value"),
        (["train", "--resume", "nowhere"], "is not the folder of a trial"),
        (["predict", "nowhere", "x.png"], "no finished trial"),
    ],
)
def test_errors_are_one_sentence(folder, capsys, arguments, words):
    assert cli.run(arguments) == 1
    err = capsys.readouterr().err
    assert words in err
    assert err.count("\n") == 1


def test_predict_gives_a_table_or_csv(folder, capsys):
    cli.run([*DIGITS, "--no-test", "-o", "here"])
    split = data.load("digits").test
    np.savez("x.npz", x=split.raw(np.arange(3)))
    capsys.readouterr()
    assert cli.run(["predict", "here", "x.npz"]) == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["sample", "prediction", "probabilities"]
    assert len(table) == 4
    assert cli.run(["predict", "here", "x.npz", "--csv", "-"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [row["prediction"] for row in rows] == [line.split()[1] for line in table[1:]]
    assert all(sum(float(row[str(k)]) for k in range(10)) == pytest.approx(1, abs=1e-4) for row in rows)
    assert cli.run(["predict", "here", "x.npz", "--csv", "out.csv"]) == 0
    assert list(csv.DictReader(io.StringIO((folder / "out.csv").read_text()))) == rows


def test_a_run_that_fails_leaves_nothing_behind(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken_here.py").write_text(
        "import torch\n"
        "class Broken(torch.nn.Linear):\n"
        "    def forward(self, x):  # fails in the first step of training, not when it is looked at\n"
        "        return super().forward(x.flatten(1)[:, :3] if self.training else x.flatten(1))\n"
        "def network():\n"
        "    return Broken(64, 10)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(RuntimeError, match="cannot be multiplied"):
        cli.run(["train", "--data", "digits", "--model", "broken_here:network", "--epochs", "1"])
    assert not (tmp_path / "runs").exists()


def test_a_setting_or_network_by_another_name_is_suggested(capsys):
    assert cli.run(["train", "--data", "digits", "--model", "mlp-1", "--set", "lr=0.1"]) == 1
    assert "did you mean 'learning_rate'?" in capsys.readouterr().err
    assert cli.run(["train", "--data", "digits", "--model", "mlp"]) == 1
    assert "did you mean 'mlp-1' or 'mlp-2'" in capsys.readouterr().err
