"""Figures that are computed, not trained: the shape of ADA, XOR with one neuron, noisy images."""

import re
from typing import Any

from numpy.typing import NDArray

from apical.errors import ApicalError
from apical.report import curves, sheets
from apical.report.charts import Gallery, Line, Lines, Pictures, Surface
from apical.study.file import Part, Study

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
    found = [(_level(part), _images(part)) for part in (clean, *parts.values())]
    rows = tuple((label, images) for label, images in found if images)
    if not rows:
        return []
    alt = f"The same {len(rows[0][1])} images in {len(rows)} rows: {', '.join(label for label, _ in rows)}."
    sheet = Pictures(f"{name}-samples", "Samples with noise", alt, rows)
    return [Gallery("What the networks see", "Test images, the same in each row.", (sheet,))]


def _level(part: Part) -> str:
    """ "σ = 0.1", or the corruptions as they are written; which samples were taken is no matter here."""
    written = [text for text in part.corruptions if not text.startswith("subset")]
    sigmas = re.findall(r"input-noise\(.*?sigma=([0-9.]+)", " ".join(written))
    return f"σ = {sigmas[0]}" if len(sigmas) == 1 == len(written) else ", ".join(written) or "no noise"


def _images(part: Part) -> tuple[NDArray[Any], ...]:
    from apical.data import corrupt, load, statuses  # noqa: PLC0415  torch and the data

    if not any(status.recipe.name == part.data and status.state != "not prepared" for status in statuses()):
        return ()  # a report fetches nothing
    try:
        data = corrupt(load(part.data, partial=part.partial is not None, split=part.split), *part.corruptions)
    except ApicalError:
        return ()  # a report is made where the data may never have been
    panels = sheets.gather(data, split="test", count=SAMPLES)
    return tuple(panel.content for panel in panels if not isinstance(panel.content, str) and panel.kind == "image")
