"""Every code block of the pages about other libraries runs as it stands, beside the CPU build of torch."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r'^```(\w*)(?: title="([\w.-]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
PAGES = sorted((ROOT / "docs" / "libraries").glob("*.md"))
START = """
import torch
operators = torch.library.Library("torchvision", "FRAGMENT")
for name in ("nms", "qnms"):
    operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
"""
"""With these two operators, torchvision loads beside the CPU build of torch."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_blocks_run(page: Path, tmp_path: Path) -> None:
    """One process for a page: most of the time goes into importing the library."""
    text = page.read_text(encoding="utf-8")
    code = START
    for block in BLOCK.finditer(text):
        language, name, body = block.groups()
        if name:
            (tmp_path / name).write_text(body, encoding="utf-8")
        elif language == "python":
            place = f"{page.name}:{text[: block.start()].count(chr(10)) + 1}"
            code += f"exec(compile({body!r}, {place!r}, 'exec'), {{'__name__': '__main__'}})\n"
    assert code != START
    offline = {"HF_HUB_OFFLINE": "1", "YOLO_CONFIG_DIR": str(tmp_path), "YOLO_OFFLINE": "true"}
    environment = os.environ | offline | {"PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-W", "error::UserWarning", "-c", code]
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
