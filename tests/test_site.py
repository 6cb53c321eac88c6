"""The documentation site builds without a warning, needs no network, every link in it leads somewhere, and it fits.

Its figures follow the switch between light and dark.

It is opened in Chromium from the disk, as `make docs` tells people to do.
"""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
PAGES_MADE = ("command-line.html", "changelog.html")
WIDTHS, SCHEMES = (360, 1400), ("light", "dark")
OUTSIDE = """() => {
  const width = document.documentElement.clientWidth
  const scrolls = e => e && (['auto', 'scroll'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement))
  const cut = [...document.querySelectorAll('.md-content *')].filter(
    e => e.getBoundingClientRect().right > width + 1 && !scrolls(e))
  return [document.documentElement.scrollWidth > width, cut.map(e => e.outerHTML.slice(0, 80))]
}"""
"""Whether a page must be scrolled sideways, and what of its text leaves the window without a scroll bar of its own."""


class Page(HTMLParser):
    """The anchors of a page, what it links to, and what a browser would load for it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path, self.anchors, self.links, self.loaded = path, set[str](), list[str](), list[str]()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        given = {name: value for name, value in attributes if value}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if "src" in given or (tag == "link" and given.get("rel") in ("stylesheet", "icon", "preconnect")):
            self.loaded.append(given.get("src") or given["href"])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    built = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(built)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return built


@pytest.fixture(scope="module")
def hooks() -> Any:
    spec = importlib.util.spec_from_file_location("hooks", ROOT / "docs" / "hooks.py")
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def broken(page: Page, pages: dict[Path, Page]) -> Iterator[str]:
    for link in (*page.links, *page.loaded):
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (page.path.parent / unquote(parts.path)).resolve() if parts.path else page.path
        target = target / "index.html" if target.is_dir() else target
        missing = parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors
        if not target.is_file() or missing:
            yield f"{page.path.name}: {link}"


def test_the_site_builds_strictly_and_its_links_and_anchors_hold(folder: Path) -> None:
    pages = {path: Page(path) for path in folder.rglob("*.html")}
    written = [p.stem for p in (ROOT / "docs").glob("*.md")]
    assert {f"{name}.html" for name in written} | set(PAGES_MADE) <= {path.name for path in pages}
    real = [page for path, page in pages.items() if path.name != "404.html"]  # that one is served from the root alone
    assert [fault for page in real for fault in broken(page, pages)] == []
    assert [url for page in real for url in page.loaded if urlsplit(url).netloc] == []
    assert all("url(http" not in sheet.read_text(encoding="utf-8") for sheet in folder.rglob("*.css"))
    assert {"apical-study-run", "apical-completion"} <= pages[folder / "command-line.html"].anchors


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
def test_every_page_fits_and_the_console_stays_empty(folder: Path, browser: Any, width: int, scheme: str) -> None:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    page, said = context.new_page(), []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    for path in sorted(folder.glob("*.html")):
        if path.name != "404.html":
            page.goto(path.as_uri())
            assert (path.name, page.evaluate(OUTSIDE)) == (path.name, [False, []])
            assert page.evaluate("document.body.dataset.mdColorScheme") == {"light": "default", "dark": "slate"}[scheme]
    context.close()
    assert said == []


@pytest.mark.parametrize(
    ("width", "opened_by"), [(360, ".md-header__button[for=__search]"), (1400, ".md-search__input")]
)
def test_the_search_works_in_pages_from_the_disk(folder: Path, browser: Any, width: int, opened_by: str) -> None:
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.goto((folder / "convert.html").as_uri())
    page.click(opened_by)
    page.locator(".md-search__input").press_sequentially("Wilcoxon")
    page.locator(".md-search-result__item").first.wait_for()
    found = page.locator(".md-search-result__link").evaluate_all("links => links.map(a => a.pathname.split('/').pop())")
    assert "statistics.html" in found
    page.locator(".md-search-result__link").first.click()
    page.wait_for_url(lambda url: not url.partition("?")[0].endswith("/convert.html"))
    assert "Wilcoxon" in page.inner_text("article")
    page.close()


def test_a_link_of_the_markdown_is_a_link_of_the_site(folder: Path) -> None:
    for source in sorted((ROOT / "docs").rglob("*.md")):
        links = re.findall(r"\]\(([\w./-]+)\.md((?:#[\w-]+)?)\)", source.read_text(encoding="utf-8"))
        inside = {
            f"{to}.html{anchor}" for to, anchor in links if (source.parent / to).resolve().is_relative_to(ROOT / "docs")
        }
        page = Page(folder / source.relative_to(ROOT / "docs").with_suffix(".html"))
        assert inside - set(page.links) == set(), source.name


def test_every_figure_has_a_light_and_a_dark_form(folder: Path) -> None:
    for path in folder.rglob("*.html"):
        figures = [url for url in Page(path).loaded if ".svg" in url]
        light = [url.removesuffix(".svg#only-light") for url in figures if url.endswith("#only-light")]
        assert figures == [url for name in light for url in (f"{name}.svg#only-light", f"{name}-dark.svg#only-dark")]
        for name in light:
            drawn, turned = ((path.parent / f"{name}{end}.svg").read_text(encoding="utf-8") for end in ("", "-dark"))
            assert drawn != turned
            assert not re.search(r"(fill|background): ?#fff", turned), name


@pytest.mark.parametrize("scheme", SCHEMES)
def test_figures_follow_the_switch_of_the_page(folder: Path, browser: Any, scheme: str) -> None:
    """Not the system: the page may be dark where the system is light."""
    page = browser.new_page(viewport={"width": 1400, "height": 900}, color_scheme=scheme)
    page.goto((folder / "index.html").as_uri())
    other = SCHEMES[1 - SCHEMES.index(scheme)]
    seen = "[...document.images].filter(i => i.checkVisibility()).map(i => i.src.split('#')[1])"
    assert set(page.evaluate(seen)) == {f"only-{scheme}"}
    page.locator("label.md-header__button:not([hidden])[title]").click()
    assert set(page.evaluate(seen)) == {f"only-{other}"}
    page.close()


@pytest.mark.parametrize("drawn", sorted((ROOT / "docs").rglob("*.svg")), ids=lambda drawn: drawn.stem)
def test_what_is_seen_on_white_is_seen_on_a_dark_page(hooks: Any, drawn: Path) -> None:
    colours = {match[2] for match in hooks.COLOUR.finditer(drawn.read_text(encoding="utf-8"))}
    assert colours
    for colour in colours:
        before = hooks.contrast("fff", colour)
        after = hooks.contrast(hooks.dark_colour(colour)[1:], hooks.DARK_PAGE)
        assert after > 0.95 * before**0.87, colour
        assert before > 2 or after < 5, colour  # a wash stays a wash


def test_cells_of_a_wide_table_know_their_heads(folder: Path) -> None:
    page = (folder / "performance.html").read_text(encoding="utf-8")
    assert '<td data-head="ADA / SiLU">1.50 (1.44 to 1.52)</td>' in page
    assert '<td data-head="unit">' not in page, "a narrow table stays a table"


def test_wide_tables_need_no_swipe_on_a_phone(folder: Path, browser: Any) -> None:
    context = browser.new_context(viewport={"width": 360, "height": 800})
    page = context.new_page()
    for name in ("performance.html", "networks.html", "evidence/index.html"):
        page.goto((folder / name).as_uri())
        widths = "[...document.querySelectorAll('table[data-wide]')].map(t => t.getBoundingClientRect().right)"
        assert max(page.evaluate(widths)) <= 360, name
    context.close()
