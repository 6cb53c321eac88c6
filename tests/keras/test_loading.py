"""What importing apical.keras needs, and what it says when that is missing."""

import os
import subprocess
import sys

import keras
import pytest

BACKEND = keras.backend.backend()
ABSENT = "jax" if BACKEND == "tensorflow" else "tensorflow"


def run(code: str, backend: str = BACKEND) -> str:
    environment = {**os.environ, "KERAS_BACKEND": backend}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_top_level_package_offers_it_lazily_and_torch_is_imported_only_as_the_backend() -> None:
    """In one process: to import Keras takes seconds."""
    code = (
        "import apical, sys; before = 'keras' in sys.modules; apical.keras.ADA;"
        "print(before, *(name in sys.modules for name in ('keras', 'torch')))"
    )
    assert run(code) == f"False True {BACKEND == 'torch'}"


@pytest.mark.parametrize(
    ("code", "backend", "message"),
    [
        (
            "sys.modules['keras'] = None",
            BACKEND,
            "this needs keras, which is not installed: pip install 'apical[keras]'",
        ),
        ("", ABSENT, f"Keras is set to its {ABSENT} backend, but {ABSENT} is not installed: install it, or set"),
    ],
)
def test_what_is_missing_is_named_in_one_sentence(code: str, backend: str, message: str) -> None:
    program = f"""
import sys
from apical.errors import MissingExtraError
{code}
try:
    import apical.keras
except MissingExtraError as error:
    print(error)
"""
    found = run(program, backend)
    assert found.startswith(message)
    assert "\n" not in found
