"""What all tests share: the environment that Keras reads when it is first imported, and seeds."""

import os
import random
import tempfile

import hypothesis
import pytest

os.environ.setdefault("KERAS_BACKEND", "torch")
os.environ.setdefault("KERAS_HOME", tempfile.mkdtemp(prefix="keras-home-"))
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

# Where a change is judged, the same examples are tried every time; elsewhere hypothesis looks for new ones.
hypothesis.settings.register_profile("repeatable", derandomize=True)
if os.environ.get("CI"):
    hypothesis.settings.load_profile("repeatable")


@pytest.fixture(autouse=True)
def same_numbers_every_time() -> None:
    """No test may depend on what ran before it."""
    import torch

    random.seed(0)
    torch.manual_seed(0)
