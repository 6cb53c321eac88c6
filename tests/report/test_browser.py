"""The page in Chromium: it loads nothing, says nothing, sorts, fits, and can be read in light and in dark."""

from pathlib import Path
from typing import Any

import pytest

from apical.report import write

pytestmark = pytest.mark.slow

WIDTHS, SCHEMES = (360, 1400), ("light", "dark")
AA = 4.5
"""The contrast that WCAG asks of text of ordinary size."""


@pytest.fixture(scope="module")
def folders(fashion_folder: Path, evil_folder: Path, tmp_path_factory: pytest.TempPathFactory, make) -> dict[str, Path]:
    from apical import study as studies

    home = tmp_path_factory.mktemp("more")
    unfinished = make(
        studies.load("input-noise", quick=True), home / "noise", lambda row: 0.9 if "ada" in row else 0.8,
        keep=lambda t: "mlp-2" in t.row and t.trial < 1, samples=100,
    )  # fmt: skip
    curves = make(studies.load("approximation", quick=True), home / "curves", lambda _: 0.2, samples=1000)
    demo = studies.load("demo")
    runs = [make(demo, home / name, lambda _: 0.9, samples=100) for name in ("a", "b")]
    return {
        "table": fashion_folder,
        "names": evil_folder,
        "unfinished": write([unfinished, curves], home / "report").parent,
        "compared": write(runs, home / "compared", compare=True).parent,
    }


PAGES = ("table", "names", "unfinished", "compared")


class Visit:
    """One look at a page: what it asked for and complained about."""

    def __init__(self, browser: Any, folder: Path, width: int, scheme: str) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.address = (folder / "index.html").absolute().as_uri()
        self.page.goto(self.address)

    def __enter__(self) -> "Visit":
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", PAGES)
def test_a_page_loads_itself_alone_complains_of_nothing_and_fits(browser, folders, name, width, scheme) -> None:
    with Visit(browser, folders[name], width, scheme) as visit:
        assert [url for url in visit.requests if not url.startswith("data:")] == [visit.address]
        assert visit.complaints == []
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        visit.page.evaluate("document.querySelectorAll('details').forEach((d) => d.open = true)")
        assert visit.page.evaluate("document.documentElement.scrollWidth") <= width
        assert visit.page.evaluate(OUTSIDE) == []
        assert visit.page.evaluate(OVERLAPPING) == []


OUTSIDE = """() => [...document.querySelectorAll('main *, header *, nav *')].filter((e) => {
  if (e.closest('.scroll') || e.closest('svg') && e.tagName !== 'svg' || !e.getClientRects().length) return false;
  const box = e.getBoundingClientRect();
  return box.right > innerWidth + 1 || box.left < -1;
}).map((e) => e.outerHTML.slice(0, 120))"""
"""Elements that leave the window; tables may, inside a box that scrolls."""

OVERLAPPING = """() => {
  const found = [];
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1.5
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3;
  const check = (elements) => {
    const boxes = elements.map((e) => [e, e.getBoundingClientRect()]).filter(([, b]) => b.width && b.height);
    boxes.forEach(([a, x], i) => boxes.slice(i + 1).forEach(([b, y]) => {
      if (meet(x, y)) found.push(a.textContent.trim().slice(0, 40) + ' | ' + b.textContent.trim().slice(0, 40));
    }));
  };
  for (const figure of document.querySelectorAll('figure svg')) check([...figure.querySelectorAll('text')]);
  const free = (cell) => getComputedStyle(cell).position !== 'sticky';
  for (const row of document.querySelectorAll('tr')) check([...row.cells].filter(free));
  const blocks = [...document.querySelectorAll('main > section > *, main > section figure')];
  check(blocks.filter((e) => !e.querySelector('figure')));
  return found;
}"""
"""Texts of a figure, cells of a row and blocks of a section that cover each other."""


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("name", PAGES)
def test_text_has_the_contrast_that_wcag_asks_for(browser, folders, name: str, scheme: str) -> None:
    with Visit(browser, folders[name], 1400, scheme) as visit:
        visit.page.evaluate("document.querySelectorAll('details').forEach((d) => d.open = true)")
        found = visit.page.evaluate(CONTRASTS)
        assert len(found) > 50
        assert [f"{words}: {ratio:.2f}" for words, ratio in found if ratio < AA] == []


CONTRASTS = """() => {
  const part = (v) => { v /= 255; return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const numbers = (text) => (text.match(/[0-9.]+/g) || []).map(Number);
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const behind = (e) => {
    for (let at = e; at; at = at.parentElement) {
      const c = numbers(getComputedStyle(at).backgroundColor);
      if (c.length === 3 || c[3] > 0) return c;
    }
    return [255, 255, 255];
  };
  const seen = new Map();
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const element = texts.currentNode.parentElement;
    if (!texts.currentNode.data.trim() || ['SCRIPT', 'STYLE'].includes(element.tagName)) continue;
    const style = getComputedStyle(element);
    const own = numbers(element.closest('svg') ? style.fill : style.color);
    // labels on the picture of a neuron stand in white boxes of their own
    const boxed = element.closest('svg') && own.join() === '17,17,17';
    const under = boxed ? [255, 255, 255] : behind(element);
    const [a, b] = [light(own), light(under)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    const key = `${element.tagName}.${element.className.baseVal ?? element.className} ${own} on ${under}`;
    seen.set(key + texts.currentNode.data.trim().slice(0, 20), ratio);
  }
  return [...seen];
}"""
"""Each kind of text with its contrast against what lies behind it."""


def test_every_picture_has_words_for_who_cannot_see_it(browser, folders) -> None:
    for folder in folders.values():
        with Visit(browser, folder, 1400, "light") as visit:
            words = visit.page.evaluate(
                "[...document.querySelectorAll('img, svg')].map((e) => e.alt || e.ariaLabel || '')"
            )
            assert words
            assert all(len(text) > 20 for text in words)


def test_tables_sort_by_every_column_and_back(browser, folders) -> None:
    with Visit(browser, folders["table"], 1400, "light") as visit:
        table = visit.page.locator("table.results").first
        head = table.locator("thead th", has_text="Ours").first
        before = table.locator("tbody tr").all_inner_texts()
        head.locator("button").click()
        assert head.get_attribute("aria-sort") == "ascending"
        rising = values(table)
        assert rising == sorted(rising)
        assert not table.locator("tr.group").first.is_visible()
        head.locator("button").click()
        assert values(table) == sorted(rising, reverse=True)
        head.locator("button").click()
        assert head.get_attribute("aria-sort") is None
        assert table.locator("tbody tr").all_inner_texts() == before


def values(table: Any) -> list[float]:
    column = table.locator("tbody tr:not(.group) td:nth-child(4) [data-value]")
    return [float(v) for v in column.evaluate_all("(all) => all.map((e) => e.dataset.value)")]


def test_sorting_needs_no_mouse(browser, folders) -> None:
    with Visit(browser, folders["table"], 1400, "light") as visit:
        button = visit.page.locator("table.results thead button").first
        button.focus()
        visit.page.keyboard.press("Enter")
        assert visit.page.locator("table.results thead th").first.get_attribute("aria-sort") == "ascending"
        visit.page.keyboard.press("Tab")
        assert visit.page.evaluate("document.activeElement.tagName") == "BUTTON"


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_theme_follows_the_system_until_it_is_switched(browser, folders, scheme: str) -> None:
    with Visit(browser, folders["table"], 1400, scheme) as visit:
        background = "getComputedStyle(document.body).backgroundColor"
        axis = "getComputedStyle(document.querySelector('figure svg text')).fill"
        before = [visit.page.evaluate(background), visit.page.evaluate(axis)]
        visit.page.locator("#theme").click()
        after = [visit.page.evaluate(background), visit.page.evaluate(axis)]
        assert all(a != b for a, b in zip(before, after, strict=True))


def test_a_number_leads_to_its_trial(browser, folders) -> None:
    with Visit(browser, folders["table"], 1400, "light") as visit:
        link = visit.page.locator("table.results a.trial").first
        target = link.get_attribute("href")
        link.click()
        row = visit.page.locator(f"tr{target}")
        assert row.is_visible()
        assert row.locator("code").first.get_attribute("title").startswith(target[3:])


def test_names_run_no_script(browser, folders) -> None:
    with Visit(browser, folders["names"], 1400, "light") as visit:
        assert visit.complaints == []
        assert visit.page.title().startswith("<script>alert(1)</script>")
        assert visit.page.locator("h1").inner_text().startswith("<script>alert(1)</script>")


def test_it_prints(browser, folders, tmp_path: Path) -> None:
    with Visit(browser, folders["table"], 1400, "dark") as visit:
        visit.page.locator("#theme").click()
        visit.page.locator("#theme").click()  # dark because somebody wanted it so
        visit.page.emulate_media(media="print")
        assert visit.page.evaluate("getComputedStyle(document.body).color") == "rgb(29, 35, 41)"
        assert visit.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        visit.page.pdf(path=str(tmp_path / "page.pdf"), format="A4")
        assert (tmp_path / "page.pdf").stat().st_size > 20_000


UNFINISHED = """
title = "Five activations on handwritten digits"
trials = 4
[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"
""" + "".join(f'[[rows]]\nunit = "{u}"\n' for u in ("relu", "tanh", "swish", "gelu", "elu"))


@pytest.mark.parametrize("size", [(390, 844), (1400, 900)])
def test_sentence_picture_and_notice_of_an_unfinished_study_fit_the_first_screen(
    browser, make, tmp_path, monkeypatch, size
) -> None:
    from apical import study as studies

    monkeypatch.chdir(tmp_path)  # the notice names the study's folder, whose path may be long
    Path("own.toml").write_text(UNFINISHED, encoding="utf-8")
    results = make(
        studies.load(Path("own.toml")), Path("study"), lambda row: 0.9 if "tanh" in row else 0.8,
        keep=lambda t: t.row.endswith(("/relu", "/tanh")), samples=100,
    )  # fmt: skip
    folder = write([results], tmp_path / "report").parent
    with Visit(browser, folder, size[0], "light") as visit:
        ends = visit.page.evaluate(
            "['.sentence', '.picture', '.notices'].map((s) => document.querySelector(s).getBoundingClientRect().bottom)"
        )
        assert all(0 < end <= size[1] for end in ends), ends
