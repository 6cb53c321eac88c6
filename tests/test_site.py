"""The documentation site builds without a warning, needs no network, and every link in it leads somewhere."""

import os
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

ROOT = Path(__file__).parents[1]
PAGES_MADE = ("command-line.html", "changelog.html")


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


def site(folder: Path) -> dict[Path, Page]:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    quiet = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=quiet, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return {path: Page(path) for path in folder.rglob("*.html")}


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


@pytest.mark.slow
def test_the_site_builds_strictly_and_its_links_and_anchors_hold(tmp_path: Path) -> None:
    pages = site(tmp_path)
    written = [p.stem for p in (ROOT / "docs").glob("*.md")]
    assert {f"{name}.html" for name in written} | set(PAGES_MADE) <= {path.name for path in pages}
    real = [page for path, page in pages.items() if path.name != "404.html"]  # that one is served from the root alone
    assert [fault for page in real for fault in broken(page, pages)] == []
    assert [url for page in real for url in page.loaded if urlsplit(url).netloc] == []
    assert all("url(http" not in sheet.read_text(encoding="utf-8") for sheet in tmp_path.rglob("*.css"))
    assert {"apical-study-run", "apical-completion"} <= pages[tmp_path / "command-line.html"].anchors
