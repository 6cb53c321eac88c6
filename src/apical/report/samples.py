"""Figures that are computed, not trained: the shape of ADA, XOR with one neuron, noisy images."""

import re
from typing import Any

from numpy.typing import NDArray

from apical.report import curves, sheets
from apical.report.charts import Gallery, Line, Lines, Pictures, Surface
from apical.report.datasets import opened
from apical.study.model import Part, Study

SAMPLES = 8


def building_block() -> Gallery:
    """ADA for several alphas against the dendrite's response (Eq. 2), and XOR with one neuron (Lemma 1)."""
    kinds = ("ada", "swish", "pynrbf", "leaky_ada", "relu")
    lines = tuple(
        Line(curve.label, kind, tuple(curve.x[::4]), tuple(curve.y[::4]), dashed=curve.label.startswith("dendrite"))
        for curve, kind in zip(curves.ada_curves(), kinds, strict=True)
    )
    alt = (
        "ADA rises to its peak at 1/alpha and falls towards 0; a dendrite's response (Eq. 2) falls from its threshold."
    )
    shape = Lines("ada", "ADA and the dendrite it models", alt, "input", "activation", lines)
    legend = tuple((line.label, line.kind, line.dashed) for line in lines)
    return Gallery(
        "The building block", "ADA (Eq. 3) and one neuron that computes XOR (Lemma 1).", (shape, _xor()), legend
    )


def _xor() -> Surface:
    surface = curves.xor_surface()
    points = zip(curves.XOR_POINTS.tolist(), curves.XOR_LABELS.tolist(), surface.corners, strict=True)
    corners = tuple((a, b, int(label), value) for (a, b), label, value in points)
    every = max(1, len(surface.axis) // 60)
    values = tuple(tuple(row[::every]) for row in surface.values[::every])
    said = ", ".join(f"{value:.2f} at ({a:g}, {b:g})" for a, b, _, value in corners)
    alt = f"Output of one ADA neuron over two inputs: {said}."
    return Surface("xor", "One ADA neuron computes XOR", alt, tuple(surface.axis[::every]), values, corners)


def noisy_samples(name: str, study: Study) -> list[Gallery]:
    """The same images with each level of noise; nothing where the study has none, or its data is not here."""
    parts = {part.corruptions: part for part in study.parts if any("input-noise" in c for c in part.corruptions)}
    if not parts:
        return []
    clean = next(iter(parts.values())).model_copy(update={"corruptions": ()})
    found = [(_level(part), _panels(part)) for part in (clean, *parts.values())]
    rows = tuple((label, tuple(image for _, image in panels)) for label, panels in found if panels)
    if not rows:
        return []
    classes = tuple(title for title, _ in next(panels for _, panels in found if panels))
    levels = ", ".join(label for label, _ in rows)
    alt = f"The same {len(rows[0][1])} images ({', '.join(classes)}) in {len(rows)} rows: {levels}."
    sheet = Pictures(f"{name}-samples", "Samples with noise", alt, rows, classes)
    caption = f"Test images, the same in each row, from left to right: {', '.join(classes)}."
    return [Gallery("What the networks see", caption, (sheet,))]


def _level(part: Part) -> str:
    """ "σ = 0.1", or the corruptions as they are written; which samples were taken is no matter here."""
    written = [text for text in part.corruptions if not text.startswith("subset")]
    sigmas = re.findall(r"input-noise\(.*?sigma=([0-9.]+)", " ".join(written))
    return f"σ = {sigmas[0]}" if len(sigmas) == 1 == len(written) else ", ".join(written) or "no noise"


def _panels(part: Part) -> list[tuple[str, NDArray[Any]]]:
    """The class and the pixels of the samples; nothing where they are no images, or not on this machine."""
    data = opened(part)
    if data is None:
        return []
    panels = sheets.gather(data, split="test", count=SAMPLES)
    images = [(p.title.rpartition("\n")[0], p.content) for p in panels if p.kind == "image"]
    return [(title, content) for title, content in images if not isinstance(content, str)]
