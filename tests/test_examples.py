"""Every example runs as it stands, with small settings, and shows what it promises."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
RUNS = {
    "xor": (["2"], r"ada\(c=1\): XOR solved from 2 of 2 starts\nrelu: XOR solved from 0 of 2"),
    "swap_activation": (
        ["2"],
        r"2 of 2 activations converted to pynada\(alpha=0.3\)[\s\S]*pynada\(alpha=0.3\): "
        r"validation accuracy \d\d\.\d %",
    ),
    "pyramidal_resnet": (
        ["32"],
        r"17 of 17 activations converted[\s\S]*changed by 0\.0e\+00[\s\S]*every parameter has a gradient: True",
    ),
    "own_activation": (["1", "1"], r"bump +test accuracy \d+\.\d\d %, mean of 1 trials"),
    "fashion_mnist": (["digits", "1"], r"pynada\(alpha=learn\)[\s\S]*test accuracy \d+\.\d\d %"),
    "onnx_export": (["net.onnx"], r"batch of 9: onnxruntime and torch differ by \d\.\de-0[6-9]"),
}
ELSEWHERE = {"keras_lenet"}
"""Run by tests/keras/test_example.py."""


@pytest.fixture
def finish(forked: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Callable[..., str]:
    """What a program prints; on stderr it has nothing to say."""

    def run(*arguments: object) -> str:
        done = forked(*arguments, cwd=tmp_path, APICAL_HOME=str(tmp_path / "home"), MPLBACKEND="agg")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "arning" not in done.stderr, done.stderr
        assert "W1" not in done.stderr, done.stderr
        return done.stdout

    return run


@pytest.mark.parametrize("name", RUNS)
def test_example_runs(name: str, finish: Callable[..., str]) -> None:
    arguments, promise = RUNS[name]
    assert re.search(promise, finish(EXAMPLES / f"{name}.py", *arguments))


def test_every_example_is_run_and_short() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*RUNS, *ELSEWHERE}
    assert all(len(path.read_text(encoding="utf-8").splitlines()) < 60 for path in EXAMPLES.glob("*.py"))


def test_the_notebook_runs_and_holds_no_outputs(finish: Callable[..., str]) -> None:
    cells = json.loads((EXAMPLES / "first_steps.ipynb").read_text(encoding="utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)
    text = "\n".join(cell["source"] for cell in code)
    assert "EPOCHS = 10" in text
    small = text.replace("EPOCHS = 10", "EPOCHS = 1")
    assert "of the validation images are right" in finish("-W", "ignore::UserWarning", "-c", small)
