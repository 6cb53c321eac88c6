"""Studies in files that tests write."""

from collections.abc import Callable
from pathlib import Path

import pytest

SMALL = """
title = "small"

[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"

[[rows]]
unit = "relu"

[[rows]]
unit = "ada"
"""


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a study file and give its path."""

    def write_(text: str = SMALL, name: str = "mine.toml") -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write_
