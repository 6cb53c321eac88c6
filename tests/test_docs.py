"""Every code block of README and docs runs as it stands.

A block with a file name (`title="mine.py"`) is written to that file, and a diff that makes a file is applied, for the
other blocks of its page; `test_contributing.py` applies the other diffs.
"""

import importlib
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable
from fnmatch import fnmatchcase
from itertools import pairwise
from operator import attrgetter
from pathlib import Path

import pytest

import apical
from apical import study
from apical.study.plan import plan, spec_of

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r'^```(\w*)(?: title="([\w.-]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")
NOT_CODE = ("text", "toml", "bibtex", "diff")
BLOCKS = [
    pytest.param(
        page, language, code, id=f"{page.relative_to(ROOT)}:{page.read_text()[: match.start()].count(chr(10)) + 1}"
    )
    for page in PAGES
    if page.parent.name != "libraries" or page.name == "pytorch.md"  # the others: tests/libraries/test_pages.py
    for match in BLOCK.finditer(page.read_text(encoding="utf-8"))
    for language, _, code in [match.groups()]
    if language not in NOT_CODE
]


@pytest.fixture
def python(forked: Callable[..., subprocess.CompletedProcess[str]], tmp_path: Path) -> Callable[..., None]:
    """Runs `python ARGUMENTS` in the folder of the test; it has to end with 0."""

    def finish(*arguments: object) -> None:
        done = forked(*arguments, cwd=tmp_path, APICAL_HOME=str(tmp_path / "home"))
        assert done.returncode == 0, done.stdout + done.stderr

    return finish


@pytest.mark.parametrize(("page", "language", "code"), BLOCKS)
def test_block_runs(page: Path, language: str, code: str, python: Callable[..., None], tmp_path: Path) -> None:
    for kind, name, text in BLOCK.findall(page.read_text(encoding="utf-8")):
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
        elif kind == "diff" and text.startswith("--- /dev/null"):
            subprocess.run(["git", "apply", "-"], cwd=tmp_path, input=text, text=True, check=True)
    assert language in ("python", "sh"), f"say what this block is: python, sh, or {', '.join(NOT_CODE)}"
    if language == "python":
        python("-W", "error::UserWarning", "-c", code)
    else:
        run_shell(code, python)


def run_shell(code: str, python: Callable[..., None]) -> None:
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        if words[0] == "make":  # what make would do; doing it is what runs this test
            subprocess.run(["make", "-n", *words[1:]], cwd=ROOT, check=True)
        elif words[:2] == ["pip", "install"]:
            check_extras(words[-1])
        elif words[0] == "apical":
            python(Path(sys.executable).with_name("apical"), *words[1:])
        elif words[0] == "python":
            python(*words[1:])
        else:
            pytest.fail(f"{line!r}: neither make, pip install, apical nor python")


def check_extras(requirement: str) -> None:
    name, _, rest = requirement.partition("[")
    assert name in ("apical", ".")
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {extra for extra in rest.rstrip("]").split(",") if extra} <= set(declared)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_no_block_escapes(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(FENCE.findall(text)) == 2 * len(BLOCK.findall(text))


@pytest.mark.parametrize("name", study.names())
def test_the_table_of_studies_holds_what_the_studies_hold(name: str) -> None:
    page = "reproduce.md" if study.load(name).question is None else "beyond.md"
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    (line,) = re.findall(rf"^\| [^|]+ \| `apical study run {name}` \| (.+) \|$", text, re.MULTILINE)
    data, epochs, full, quick = line.split(" | ")
    whole, reduced = study.load(name), study.load(name, quick=True)
    used = {part.data for part in whole.parts}
    assert {found for found in used if any(fnmatchcase(found, p) for p in re.findall(r"`(.+?)`", data))} == used
    specs = [spec_of(part) for part in whole.parts]
    assert epochs.split(", ") == [str(n) for n in dict.fromkeys(spec.epochs * spec.passes for spec in specs)]
    assert (full, quick) == tuple(str(plan(found).count) for found in (whole, reduced))


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: page.name)
def test_lists_and_tables_are_seen_as_such(page: Path) -> None:
    """Without an empty line before it, the site shows a list as a part of the paragraph; a table needs its heads."""
    lines = BLOCK.sub("", page.read_text(encoding="utf-8")).splitlines()
    inside = re.compile(r"\s|- |\d+\. |<!--|$")
    pairs = pairwise(lines)
    assert [line for before, line in pairs if re.match(r"- |\d+\. ", line) and not inside.match(before)] == []
    assert [line for line in lines if re.fullmatch(r"[|\s]+", line) and "|" in line] == []


def test_the_reference_names_what_a_user_imports() -> None:
    text = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    headings = re.findall(r"^::: ([\w.]+)\n    options: \{ heading: ([\w.]+) \}$", text, re.MULTILINE)
    assert len(headings) > 10
    for path, name in headings:
        module, _, own = path.rpartition(".")
        assert attrgetter(name.removeprefix("apical."))(apical) is getattr(importlib.import_module(module), own)


@pytest.mark.parametrize("name", ["layers", "flow"])
def test_the_pictures_of_the_architecture_are_those_of_their_scripts(
    name: str, python: Callable[..., None], tmp_path: Path
) -> None:
    python(ROOT / "docs" / f"draw_{name}.py", f"{name}.svg")
    assert (tmp_path / f"{name}.svg").read_text() == (ROOT / "docs" / "images" / f"{name}.svg").read_text()


def test_the_flow_of_a_study_names_modules_that_are_there() -> None:
    text = (ROOT / "docs" / "flow.md").read_text() + (ROOT / "docs" / "images" / "flow.svg").read_text()
    named = re.findall(r"(?<!tests/)\b((?:study|train|report|apical)/[\w/]+(?:\.py|/))", text)
    assert len(named) > 15
    source = ROOT / "src" / "apical"
    assert [name for name in named if not (source / name.removeprefix("apical/")).exists()] == []


def anchors(page: Path) -> set[str]:
    """The names that GitHub gives to the headings of a page; test_site.py looks for the same on the site."""
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    words = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in words}


@pytest.mark.parametrize("page", [*PAGES, *ROOT.glob("C*.md")], ids=lambda page: page.name)
def test_links_between_pages_and_their_anchors_lead_somewhere(page: Path) -> None:
    for path, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        if "://" not in path:
            target = page.parent / path if path else page
            assert target.exists(), path
            assert not anchor or anchor in anchors(target), (path, anchor)
