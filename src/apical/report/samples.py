"""A sheet of samples: what a data set holds, as pictures with labels."""

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apical import imports
from apical.data.dataset import DataSet, Split, order
from apical.data.inputs import Codes, Images, Spectrograms
from apical.data.text import decode
from apical.errors import DataError, InvalidArgumentError

TEXT_SHOWN = 220
DECIBEL_FLOOR = -80.0


@dataclass(frozen=True)
class Panel:
    """One sample: an image (h, w) or (h, w, 3) in [0, 1], a spectrogram in dB (f, t), or a text, and its title."""

    kind: str
    title: str
    content: NDArray[Any] | str


def gather(data: DataSet, *, split: str = "train", count: int = 24, seed: int = 0) -> list[Panel]:
    """The panels of `count` samples drawn by the seed: the same ids whatever corruption the data carries."""
    if split not in data.splits:
        raise InvalidArgumentError(f"split is {split!r}, but it must be one of {', '.join(data.splits)}")
    part = data.splits[split]
    positions = order(len(part), seed=seed, epoch=0)[:count]
    return [_panel(part, int(p)) for p in positions]


def _panel(part: Split, position: int) -> Panel:
    title = _title(part, position)
    if isinstance(part.input, Codes):
        return Panel("text", title, decode(part.raw([position])[0])[:TEXT_SHOWN])
    values = part.inputs([position])[0].numpy()
    if isinstance(part.input, Spectrograms):
        return Panel("spectrogram", title, decibels(values))
    if isinstance(part.input, Images):
        pixels = np.clip(values + part.input.mean, 0, 1).transpose(1, 2, 0)
        return Panel("image", title, pixels[..., 0] if pixels.shape[-1] == 1 else pixels)
    return Panel("text", title, ", ".join(f"{v:.4g}" for v in values.ravel()[:16]))


def _title(part: Split, position: int) -> str:
    label = part.labels[position]
    name = part.class_names[int(label)] if part.class_names else ", ".join(f"{v:.4g}" for v in np.atleast_1d(label))
    return f"{name}\n{part.ids[position]}"


def decibels(channels: NDArray[Any]) -> NDArray[Any]:
    """Real and imaginary part to power in dB below the loudest, silence at the floor."""
    power = (channels**2).sum(0)
    loudest = power.max()
    if loudest == 0:
        return np.full(power.shape, DECIBEL_FLOOR)
    return np.asarray(np.maximum(10 * np.log10(np.maximum(power / loudest, 1e-12)), DECIBEL_FLOOR))


def draw(panels: Sequence[Panel], path: Path, *, title: str = "") -> None:
    """Draw the panels on one page; the suffix of `path` (.png, .pdf, .svg) says as what."""
    figure_class = imports.optional("matplotlib.figure", extra="lab").Figure
    columns = 3 if panels and panels[0].kind == "text" else min(6, max(1, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    figure = figure_class(
        figsize=(12, 0.6 + rows * 12 / columns * (0.27 if columns == 3 else 1.2)), layout="constrained"
    )
    figure.suptitle(_plain(title))
    axes = figure.subplots(rows, columns, squeeze=False).ravel()
    for axis, panel in zip(axes, panels, strict=False):
        axis.set_title(_plain(panel.title), fontsize=8, loc="left" if panel.kind == "text" else "center")
        _draw_panel(axis, panel)
    for axis in axes:
        axis.set_axis_off()
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise DataError(f"cannot write {path}: {error}") from error


def _draw_panel(axis: Any, panel: Panel) -> None:
    if panel.kind == "text":
        wrapped = textwrap.fill(_plain(str(panel.content)), 62)
        axis.text(0, 1, wrapped, va="top", fontsize=7, family="DejaVu Sans", transform=axis.transAxes)
    elif panel.kind == "spectrogram":
        axis.imshow(panel.content, origin="lower", aspect="auto", vmin=DECIBEL_FLOOR, vmax=0, cmap="magma")
    else:
        axis.imshow(panel.content, vmin=0, vmax=1, cmap="gray", interpolation="nearest")


def _plain(text: str) -> str:
    """Names are text, never matplotlib's mathematics."""
    return text.replace("$", r"\$")
