"""The example runs as it stands. It needs scikit-learn, so it runs where torch is the backend of Keras."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "keras_lenet.py"


def test_lenet_learns_the_digits_that_come_with_scikit_learn(
    forked: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path
) -> None:
    done = forked(EXAMPLE, "digits", "2", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    accuracy = [float(value) for value in re.findall(r"val_accuracy: ([\d.]+)", done.stdout)]
    assert len(accuracy) == 2
    assert accuracy[-1] > 0.8


def test_the_example_is_short() -> None:
    code = EXAMPLE.read_text(encoding="utf-8").split('"""')[2]
    assert len([line for line in code.splitlines() if line.strip()]) <= 26
