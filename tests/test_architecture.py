"""The layout is the architecture: who may import what, and what is public."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import apical

SOURCE = Path(apical.__file__).parent

# external package -> the only part of apical that may import it
OWNERS = {"matplotlib": ("report",), "typer": ("cli",), "ray": ("study.engines.ray",)}


def imported_packages(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module.split(".")[0])
    return found


@pytest.mark.parametrize("package", OWNERS)
def test_only_its_owner_imports_a_package(package: str) -> None:
    offenders = []
    for path in SOURCE.rglob("*.py"):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        owned = any(module == owner or module.startswith(owner + ".") for owner in OWNERS[package])
        if package in imported_packages(path) and not owned:
            offenders.append(module)
    assert offenders == []


@pytest.mark.parametrize("heavy", ["torch", "numpy"])
def test_importing_apical_imports_nothing_heavy(heavy: str) -> None:
    code = f"import apical, sys; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_public_name_loads_and_is_listed() -> None:
    for name in apical.__all__:
        assert getattr(apical, name) is not None
    assert set(apical.__all__) <= set(dir(apical))
    with pytest.raises(AttributeError, match="no attribute 'Ada'"):
        apical.Ada  # noqa: B018


def test_type_checkers_see_the_same_names() -> None:
    stub = ast.parse((SOURCE / "__init__.pyi").read_text(encoding="utf-8"))
    seen = {alias.asname for node in ast.walk(stub) if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen | {"__version__"} == set(apical.__all__)


def test_the_keras_half_imports_torch_inside_functions_alone() -> None:
    for path in (SOURCE / "keras").rglob("*.py"):
        top = ast.parse(path.read_text(encoding="utf-8")).body
        for node in top:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            assert not {"torch", "nn", "functional", "kernels"} & {*names} or module.startswith("apical.keras"), path
            assert module.split(".")[0] != "torch", path
