"""A drawing made part of the page: small, with its colours in the hands of the page's theme."""

import re
from xml.etree import ElementTree

from apical.report import palette
from apical.report.draw import LEGEND, LEGEND_ROW

SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
ElementTree.register_namespace("", SVG)
ElementTree.register_namespace("xlink", XLINK)

LONG = re.compile(r"(\d+\.\d)\d+")
COLOURS = re.compile("|".join(map(re.escape, palette.themed())))
POINTS_PER_INCH = 72


def inline(text: str, *, name: str, alt: str) -> str:
    """The SVG of a drawing for the inside of an HTML page; `alt` is what is read where it cannot be seen."""
    root = ElementTree.fromstring(text)
    for tag in ("metadata", "style"):  # its one rule stands in the page's style sheet
        _remove(root, f"{{{SVG}}}{tag}")
    legend = _remove_legend(root)
    for element in root.iter():
        _lean(element, name)
    _fit_to_page(root, cut=legend)
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
                entries = sum(len(list(text.itertext())) > 0 for text in child.iter(f"{{{SVG}}}text"))
                parent.remove(child)
                return -(-entries // 3) * LEGEND_ROW * POINTS_PER_INCH
    return 0.0


def _lean(element: ElementTree.Element, name: str) -> None:
    for key, value in list(element.attrib.items()):
        if key == "id":
            element.set(key, f"{name}-{value}")
        elif key.endswith("href") and value.startswith("#"):
            element.set(key, f"#{name}-{value[1:]}")
        elif not key.endswith("href"):
            element.set(key, _lean_value(value, name))


def _lean_value(value: str, name: str) -> str:
    value = value.replace("url(#", f"url(#{name}-")
    value = COLOURS.sub(lambda found: palette.themed()[found.group()], value)
    return LONG.sub(r"\1", value) if "var(" not in value else value


def _fit_to_page(root: ElementTree.Element, *, cut: float) -> None:
    """Scaled by its box: the page decides on the width."""
    left, top, width, height = (float(v) for v in root.get("viewBox", "0 0 1 1").split())
    root.set("viewBox", f"{left:g} {top:g} {width:g} {height - cut:g}")
    root.set("width", f"{width:g}pt")
    root.attrib.pop("height", None)
