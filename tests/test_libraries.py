"""`apical.register` and the pages about other libraries, where none of the libraries is installed."""

import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from apical.libraries import LIBRARIES

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "libraries").glob("*.md"))
PINNED = dict(
    line.lower().replace("_", "-").split("==")
    for line in (ROOT / "constraints-libraries.txt").read_text().splitlines()
    if "==" in line
)


@pytest.fixture
def told(forked: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Callable[..., str]:
    """What `register` raises in a fresh process that imports from `tmp_path` first."""

    def tell(arguments: str, *absent: str) -> str:
        hidden = "".join(f"sys.modules[{name!r}] = None; " for name in absent)
        code = f"import sys; {hidden}import apical\n" + (
            f"try: apical.register({arguments})\nexcept apical.errors.ApicalError as e: print(type(e).__name__, e)"
        )
        done = forked("-c", code, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return tell


def test_without_any_library_a_sentence_says_what_to_do(told: Callable[..., str]) -> None:
    text = told("", *LIBRARIES)
    assert text.startswith("MissingExtraError none of timm, transformers, monai is installed")
    text = told("'timm'", *LIBRARIES)
    assert text == "LibraryError timm is not installed: pip install timm\n"


@pytest.mark.parametrize(
    ("files", "sentence"),
    [
        ({"timm/__init__.py": "raise RuntimeError('no nms')"}, "does not import (RuntimeError: no nms)"),
        ({"timm/__init__.py": "import no_such_package"}, "does not import (No module named 'no_such_package')"),
        ({"timm/__init__.py": ""}, "has no timm.layers.create_act, where its activations were"),
        (
            {"timm/__init__.py": "", "timm/layers/__init__.py": "", "timm/layers/create_act.py": ""},
            "stores its activations in an unknown way (AttributeError: ",
        ),
    ],
)
def test_a_library_that_is_not_as_known_is_told(
    files: dict[str, str], sentence: str, told: Callable[..., str], tmp_path: Path
) -> None:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    text = told("'timm'")
    assert sentence in text
    assert text.endswith("; apical.register is tested with timm 1.0.30: use act_layer=apical.ADA instead\n")


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_tested_version_is_the_pinned_one(name: str) -> None:
    assert LIBRARIES[name].tested == PINNED[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_names_the_version_that_it_is_tested_with(page: Path) -> None:
    ((library, version),) = re.findall(r"Tested with ([\w-]+) (\d[\d.]*\d)", page.read_text(encoding="utf-8"))
    assert version == PINNED[library]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_is_in_the_navigation(page: Path) -> None:
    assert f"libraries/{page.name}\n" in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
