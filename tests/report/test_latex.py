"""The LaTeX output compiles with Debian's texlive."""

import shutil
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fixture", ["fashion_folder", "evil_folder"])
def test_the_document_compiles(fixture: str, request: pytest.FixtureRequest, tmp_path: Path) -> None:
    assert shutil.which("pdflatex"), "this test needs LaTeX: apt-get install texlive-latex-recommended"
    folder = shutil.copytree(request.getfixturevalue(fixture), tmp_path / "report")
    command = ["pdflatex", "-halt-on-error", "-interaction=nonstopmode", "-no-shell-escape", "report.tex"]
    result = subprocess.run(command, cwd=folder, capture_output=True, text=True, errors="replace", check=False)
    assert result.returncode == 0, result.stdout[-3000:]
    assert (folder / "report.pdf").read_bytes().startswith(b"%PDF")
    assert "Missing character" not in result.stdout
    if fixture == "fashion_folder":
        assert "Overfull" not in result.stdout, "something is wider than the page"
