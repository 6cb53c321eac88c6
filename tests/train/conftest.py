import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest
import torch

from apical.train import Execution, TrialSpec, evaluate, run

ONE_THREAD = Execution(threads=1)


@pytest.fixture
def spec():
    """A trial of a second or less: real digits, a small network."""
    return TrialSpec(
        data="digits",
        model="mlp-1",
        unit="ada(alpha=0.3)",
        dims={"hidden": 16},
        epochs=3,
        batch=128,
        learning_rate=0.01,
    )


@pytest.fixture
def finished(spec, tmp_path):
    return run(spec, ONE_THREAD, tmp_path / "finished")


@pytest.fixture(scope="session")
def python():
    """Run a program in a new process with one thread; gives the finished process."""

    def call(code, *arguments, check=True, **options):
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        return subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
            check=check, capture_output=True, text=True, env=environment, **options,
        )  # fmt: skip

    return call


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def paired():
    """Test accuracies of trials, stacked and alone, whose mean difference must be within two standard errors of 0."""

    def compare(stacked, alone):
        scores = np.array([[evaluate(r).scores["accuracy"] for r in results] for results in (stacked, alone)])
        difference = scores[0] - scores[1]
        assert abs(difference.mean()) <= 2 * difference.std(ddof=1) / np.sqrt(len(difference))
        return scores

    return compare
