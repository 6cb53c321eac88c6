"""A drawing made part of the page: small, with its colours in the hands of the page's theme."""

import re
from xml.etree import ElementTree

from apical.report import palette
from apical.report.draw import LEGEND, LEGEND_ROW

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)

COLOURS = re.compile("|".join(map(re.escape, palette.themed())))
DECIMALS = re.compile(r"(\d+\.\d)\d+")
SPACES = re.compile(r"\s+")
FAMILIES = re.compile(r"font-family: [^;]*; ?")
FONT = re.compile(r"font: (?:\d+ )?([\d.]+px) [^;]*")
"""The page chooses the letters; their size stays."""
REFERENCE = re.compile(r"url\(#([^)]*)\)")
POINTS_PER_INCH = 72


def inline(text: str, *, name: str, alt: str) -> str:
    """The SVG of a drawing for the inside of an HTML page; `alt` is what is read where it cannot be seen."""
    root = ElementTree.fromstring(text)
    for tag in ("metadata", "style"):  # its one rule stands in the page's style sheet
        _remove(root, f"{{{SVG}}}{tag}")
    cut = _remove_legend(root)
    wanted = _referenced(root)
    for element in root.iter():
        _lean(element, name, wanted)
    _fit_to_page(root, cut=cut)
    root.set("role", "img")
    root.set("aria-label", alt)
    return ElementTree.tostring(root, encoding="unicode")


def _remove(root: ElementTree.Element, tag: str) -> None:
    for parent in root.iter():
        for child in parent.findall(tag):
            parent.remove(child)


def _remove_legend(root: ElementTree.Element) -> float:
    """Takes the legend away; returns its height in points."""
    for parent in root.iter():
        for child in list(parent):
            if child.get("id") == LEGEND:
                entries = len(list(child.iter(f"{{{SVG}}}text")))
                parent.remove(child)
                return -(-entries // 3) * LEGEND_ROW * POINTS_PER_INCH
    return 0.0


def _referenced(root: ElementTree.Element) -> set[str]:
    """The ids that something refers to; nobody needs the others."""
    values = [(key, value) for element in root.iter() for key, value in element.attrib.items()]
    links = {value[1:] for key, value in values if key.endswith("href") and value.startswith("#")}
    return links | {found for _, value in values for found in REFERENCE.findall(value)}


def _lean(element: ElementTree.Element, name: str, wanted: set[str]) -> None:
    for key, value in list(element.attrib.items()):
        if key == "id":
            if value in wanted:
                element.set(key, f"{name}-{value}")
            else:
                del element.attrib[key]
        elif key.endswith("href"):
            element.set(key, f"#{name}-{value[1:]}" if value.startswith("#") else value)
        else:
            element.set(key, _lean_value(value, name))
    if not element.tag.endswith(("text", "tspan")):
        element.text = element.text if element.text and element.text.strip() else None
    element.tail = element.tail if element.tail and element.tail.strip() else None


def _lean_value(value: str, name: str) -> str:
    value = FONT.sub(r"font-size: \1", FAMILIES.sub("", value))
    value = SPACES.sub(" ", DECIMALS.sub(r"\1", value)).strip()
    value = value.replace("url(#", f"url(#{name}-")
    return COLOURS.sub(lambda found: palette.themed()[found.group()], value)


def _fit_to_page(root: ElementTree.Element, *, cut: float) -> None:
    """Scaled by its box: the page decides on the width."""
    left, top, width, height = (float(v) for v in root.get("viewBox", "0 0 1 1").split())
    root.set("viewBox", f"{left:g} {top:g} {width:g} {height - cut:g}")
    root.set("width", f"{width:g}pt")
    root.attrib.pop("height", None)
