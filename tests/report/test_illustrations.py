"""The numbers behind the figures."""

import math
from pathlib import Path

import pytest

from apical.report import illustrations


def test_curves_hold_the_formula() -> None:
    *ada, dendrite = illustrations.ada_curves(alphas=(0.5, 2.0), points=101)
    for curve, alpha in zip(ada, (0.5, 2.0), strict=True):
        for x, y in zip(curve.x, curve.y, strict=True):
            assert y == pytest.approx(max(0.0, x) * math.exp(-alpha * max(0.0, x)), abs=1e-6)
    assert dendrite.y[0] == 0
    assert max(dendrite.y) == pytest.approx(1, abs=0.05)


def test_surface_is_xor_at_the_corners() -> None:
    surface = illustrations.xor_surface(points=7)
    assert [round(v) for v in surface.corners] == illustrations.XOR_LABELS.tolist()
    assert len(surface.values) == len(surface.values[0]) == len(surface.axis) == 7


@pytest.mark.parametrize("ending", ["svg", "pdf", "png"])
def test_drawing_writes_the_file(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"figure.{ending}"
    illustrations.draw_overview(path, illustrations.ada_curves(points=21), illustrations.xor_surface(points=9))
    assert path.stat().st_size > 1000


def test_text_plot_peaks_where_the_curve_does() -> None:
    text = illustrations.plot_text(illustrations.ada_curves(alphas=(1.0,))[0], width=40, height=6)
    top, *_, bottom = text.splitlines()[:6]
    assert top.startswith("  0.37 ┤")
    column = top.index("•") - 8
    assert -2 + 10 * column / 39 == pytest.approx(1.0, abs=0.6)
    assert bottom.count("•") > 8


def test_the_surface_in_characters_has_its_corners_and_is_darkest_where_it_is_highest() -> None:
    lines = illustrations.surface_text(illustrations.xor_surface()).splitlines()
    (above,) = [line for line in lines if line.startswith("   1 ┤")]
    (below,) = [line for line in lines if line.startswith("   0 ┤")]
    assert above.index("1.00") < above.index("0.04")
    assert below.index("0.00") < below.index("1.00")
    assert max(map(len, lines)) <= 80
    middle = lines[6]
    assert middle.index("█") > middle.index("░")
