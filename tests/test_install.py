"""Wheels and source installs, with and without a compiler."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NO_COMPILER = {"CC": "no-such-compiler", "CXX": "no-such-compiler"}
PROBE = """
import apical, torch
x = torch.randn(100, 7, requires_grad=True)
(g,) = torch.autograd.grad(apical.ADA()(x).sum(), x)
assert g.isfinite().all()
library = apical.kernels.native.library()
assert bool(library.images) == library.loaded  # conv.c is built with ada.c
assert library.loaded or not library.winograd
print(apical.__file__)
print(apical.kernels.backend())
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project as a fresh clone has it."""
    folder = tmp_path_factory.mktemp("source")
    names = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    for name in filter(None, names):
        if (ROOT / name).is_file():
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
    return folder


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    copy = shutil.copytree(source, out / "source")  # building leaves libraries behind
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(copy)])
    (file,) = out.glob("*.whl")
    return file


def run(command: list[str], **environment: str) -> str:
    result = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def install(what: Path, target: Path, **environment: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--no-cache-dir"]
    run([*pip, "--target", str(target), str(what)], **environment)


def probe(target: Path) -> list[str]:
    lines = run([sys.executable, "-c", PROBE], PYTHONPATH=str(target)).splitlines()
    assert lines[0].startswith(str(target))
    return lines[1:]


def test_wheel_fits_every_python_of_the_platform(wheel: Path) -> None:
    assert "-py3-none-" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    assert {"apical/kernels/ada_openmp.so", "apical/kernels/ada_serial.so", "apical/py.typed"} <= set(names)
    assert {f"apical/report/render/templates/page.{end}" for end in ("html.j2", "css", "js")} <= set(names)
    assert not [name for name in names if name.startswith(("tests", "benchmarks", "docs"))]


def test_wheel_brings_the_kernel_where_there_is_no_compiler(wheel: Path, tmp_path: Path) -> None:
    install(wheel, tmp_path, **NO_COMPILER)
    assert probe(tmp_path)[0].startswith("native: C library, shares torch's OpenMP threads")


def test_serial_library_serves_where_openmp_does_not_load(wheel: Path, tmp_path: Path) -> None:
    install(wheel, tmp_path, **NO_COMPILER)
    (tmp_path / "apical/kernels/ada_openmp.so").write_bytes(b"not a library")
    assert probe(tmp_path)[0].startswith("native: C library, single-threaded")


def test_source_installs_without_a_compiler_and_says_so(source: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(source, tmp_path / "source")
    target = tmp_path / "target"
    install(copy, target, **NO_COMPILER)
    assert probe(target) == ["composite: no C compiler was found when apical was installed, so plain torch computes it"]
    text = run([sys.executable, "-m", "apical.env"], PYTHONPATH=str(target))
    assert "no C compiler was found" in text


def test_the_wheel_holds_the_studies_of_the_paper(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        found = {Path(name).name for name in archive.namelist() if name.startswith("apical/study/paper/")}
    assert found == {path.name for path in (ROOT / "src/apical/study/paper").rglob("*.toml")}
