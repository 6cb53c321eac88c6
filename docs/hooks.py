"""What MkDocs does not find in docs/: the command line reference, the changelog, dark figures, links out of docs/; and
the heads of wide tables beside their cells, for phones."""

import colorsys
import re
from html import escape, unescape
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

from apical.cli import overview, tree

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
UPWARDS = re.compile(r"\[[^\]]+\]\((\.\./[\w./-]+)\)")
"""A link to another folder, of docs/ or of the repository."""
OPTION = re.compile(r"`[^`]*`|(?<![\w-])(--[a-z][a-z-]*)")
"""Code, or the name of an option in plain text."""
FIGURE = re.compile(r'<img ([^>]*)src="([^"]+)\.svg"([^>]*)>')
COLOUR = re.compile(r"""((?:fill|stroke|color|background)(?::\s*|="))#([0-9a-fA-F]{6}|[0-9a-fA-F]{3})\b""")
TABLE, HEAD, ROW, CELL, TAG = (
    re.compile(pattern, re.S)
    for pattern in ("<table>.*?</table>", "<th[^>]*>(.*?)</th>", "<tr>.*?</tr>", "<td", "<[^>]+>")
)
WIDE, LONG = 4, 60
"""A phone shows the cells of a row below each other, each with its head (docs/style.css), in tables of so many columns,
and in those of three whose cells have so many letters."""
DARK_PAGE = "1e2129"
"""The background of Material's dark scheme."""


def on_files(files: "Files", config: "MkDocsConfig") -> "Files":
    """Add the pages and figures that are made from other files."""
    for figure in [file for file in files if file.src_uri.endswith(".svg")]:
        text = dark(figure.content_string)
        files.append(File.generated(config, figure.src_uri.removesuffix(".svg") + "-dark.svg", content=text))
    files.append(File.generated(config, "command-line.md", content=command_line()))
    files.append(File.generated(config, "changelog.md", content=(ROOT / "CHANGELOG.md").read_text(encoding="utf-8")))
    return files


def on_page_markdown(markdown: str, page: "Page", **_: object) -> str:
    """Name files outside of docs/ instead of linking them: the site does not hold them."""

    def named(link: re.Match[str]) -> str:
        target = (ROOT / "docs" / page.file.src_uri).parent.joinpath(link[1]).resolve()
        return link[0] if target.is_relative_to(ROOT / "docs") else f"`{target.relative_to(ROOT).as_posix()}`"

    return UPWARDS.sub(named, markdown)


def on_page_content(html: str, **_: object) -> str:
    """Show each figure in the colours of the page: Material hides the one that its switch does not want."""
    one = r'<img loading="lazy" \1src="\2{}"\3>'  # a hidden one is not fetched
    html = FIGURE.sub(one.format(".svg#only-light") + one.format("-dark.svg#only-dark"), html)
    return TABLE.sub(lambda table: with_heads(table[0]), html)


def with_heads(table: str) -> str:
    """The table with the head of its column in each cell, if it is wide."""
    heads = [escape(unescape(TAG.sub("", head))).strip() for head in HEAD.findall(table)]
    longest = max(len(TAG.sub("", cell)) for cell in table.split("<td"))
    if len(heads) < (WIDE - 1 if longest > LONG else WIDE):
        return table

    def row(found: re.Match[str]) -> str:
        places = iter(heads)
        return CELL.sub(lambda cell: f'{cell[0]} data-head="{next(places, "")}"', found[0])

    return ROW.sub(row, table.replace("<table>", "<table data-wide>", 1))


def dark(svg: str) -> str:
    """The figure for a dark page: each colour keeps its hue, and stands out from the page as it did from white."""
    text = COLOUR.sub(lambda match: match[1] + dark_colour(match[2]), svg)
    return text.replace("<svg ", f'<svg fill="{dark_colour("000")}" ', 1)  # what names no colour is black


def dark_colour(colour: str) -> str:
    """Of that hue, the colour whose contrast with the dark page is the one that `colour` has with white."""
    hue, light, saturation = colorsys.rgb_to_hls(*parts(colour))
    wanted = contrast("fff", colour) ** 0.87  # black on white has 21, the text of a dark page 14
    wanted = max(wanted, 4.0) if light < 0.7 else wanted  # lines are seen
    pale, low, high = saturation * (1 - abs(2 * light - 1)), 0.14, 1.0
    if wanted == 1:
        return f"#{DARK_PAGE}"
    for _ in range(12):
        middle = (low + high) / 2
        most = min(saturation, 2 * pale / (1 - abs(2 * middle - 1)))  # what was nearly grey stays so
        answer = "".join(f"{round(255 * part):02x}" for part in colorsys.hls_to_rgb(hue, middle, most))
        low, high = (middle, high) if contrast(answer, DARK_PAGE) < wanted else (low, middle)
    return f"#{answer}"


def contrast(one: str, other: str) -> float:
    """The ratio of WCAG, from 1 to 21."""
    linear = [[p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts(c)] for c in (one, other)]
    low, high = sorted(0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in linear)
    return (high + 0.05) / (low + 0.05)


def parts(colour: str) -> list[float]:
    """Red, green and blue of `rrggbb` or `rgb`, from 0 to 1."""
    size = len(colour) // 3
    return [int((colour[k * size : (k + 1) * size] * 2)[:2], 16) / 255 for k in range(3)]


def command_line() -> str:
    """The reference of every command."""
    intro = "# Command line\n\n`apical --help` shows the map:\n\n```text\n" + overview() + "\n```\n"
    return "\n".join([intro, *(section(command) for command in tree.flat())])


def section(command: tree.Command) -> str:
    """One command: what it does, what it takes, examples."""
    words = " ".join(["apical", *command.path])
    blocks = [f"{'#' * (1 + len(command.path))} {words}", marked(command.text)]
    if command.parameters:
        blocks.append("\n".join(["| argument | meaning |", "|---|---|", *(row(p) for p in command.parameters)]))
    blocks.append("\n".join(["```text", *command.examples, "```"]))
    return "\n\n".join(blocks) + "\n"


def row(parameter: tree.Argument) -> str:
    """A line of the table."""
    names = " ".join(f"`{name}`" for name in parameter.names)
    more = " (required)" if parameter.required else f" (default: `{parameter.default}`)" if parameter.default else ""
    return f"| {names} | {marked(parameter.help)}{more} |".replace("\n", " ")


def marked(text: str) -> str:
    """The text with the options in it as code; what stands in backticks is left alone."""
    return OPTION.sub(lambda found: f"`{found[1]}`" if found[1] else found[0], text)
