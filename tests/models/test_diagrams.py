"""The committed diagrams are what the script draws of the networks as they are."""

import subprocess
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest

from apical import models

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def drawn(forked: Callable[..., subprocess.CompletedProcess[str]], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("networks")
    assert forked(DOCS / "draw_networks.py", folder, cwd=folder).returncode == 0
    return folder


@pytest.mark.parametrize("name", models.list())
def test_diagram_is_up_to_date_and_shown(name: str, drawn: Path) -> None:
    committed = DOCS / "images" / "networks" / f"{name}.svg"
    assert committed.read_text(encoding="utf-8") == (drawn / f"{name}.svg").read_text(encoding="utf-8")
    assert f"images/networks/{name}.svg" in (DOCS / "networks.md").read_text(encoding="utf-8")
    words = " ".join(ElementTree.parse(committed).getroot().itertext())
    assert "standard neurons" in words
    assert "pyramidal neurons" in words
