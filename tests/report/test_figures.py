"""Figures as gathered numbers; that they can be drawn."""

import re
from dataclasses import replace
from math import pi

import numpy as np
import pytest

from apical import stats
from apical import study as studies
from apical.report import figures
from apical.report.charts import Bar, Bars, Dots, Fit, Line, Lines, Palette, slug
from apical.report.draw import draw, draw_svg, inline
from apical.report.figures import noisy_samples
from apical.report.illustrations import building_block

CURVE = """
title = "Noise"
form = "curve"
axis = "sigma"
trials = 2
[[parts]]
name = "low"
title = "low"
data = "digits"
model = "mlp-1"
x = 0.3
[[parts]]
name = "high"
title = "high"
data = "digits"
model = "mlp-1"
x = 0.1
[[rows]]
unit = "relu"
[[rows]]
unit = "ada(alpha=0.3)"
"""
ABLATION = """
title = "Alpha"
form = "curve"
axis = "alpha"
trials = 2
groups = []
[[parts]]
name = "mlp"
title = "MLP"
data = "digits"
model = "mlp-1"
[[rows]]
unit = "ada(alpha=0.1)"
x = 0.1
[[rows]]
unit = "ada(alpha=0.5)"
x = 0.5
"""


PALETTE = Palette()


def results_of(text: str, folder, make, skill):
    path = folder / "own.toml"
    path.write_text(text, encoding="utf-8")
    return make(studies.load(path), folder / "study", skill)


def test_means_stand_with_interval_trials_gain_and_the_papers_number(fashion) -> None:
    first, narrow, *_ = figures.means(fashion).charts
    assert isinstance(first, Dots)
    assert (narrow.dots, narrow.narrow, narrow.name) == (first.dots, True, f"{first.name}-narrow")
    dot = next(d for d in first.dots if d.label == "ADA")
    values = [100 * v for v in fashion.row("mlp-1/ada").tests("accuracy")]
    own = stats.summarise(values)
    assert (dot.mean, dot.low, dot.high) == (pytest.approx(own.mean), pytest.approx(own.low), pytest.approx(own.high))
    assert (dot.trials, dot.paper) == (pytest.approx(tuple(values)), 88.98)
    relu = fashion.row("mlp-1/relu").tests("accuracy")
    assert dot.gain[0] == pytest.approx(own.mean - 100 * np.mean(relu))
    assert dot.sure
    assert not next(d for d in first.dots if d.label == "leaky PyNADA").sure
    quoted = next(d for d in first.dots if "Xiao" in d.label)
    assert (quoted.mean, quoted.paper, quoted.gain) == (None, 87.10, None)
    assert f"ADA {dot.mean:.4g}" in first.alt


def test_figures_that_show_nothing_are_left_out_and_named(tmp_path, make) -> None:
    results = results_of(CURVE, tmp_path, make, lambda _: 0.8)

    def still(record):
        flat = {"saturated": {"hidden": 0.0}, "inactive": {"hidden": 0.5}, "gradient": {"hidden": 0.5}}
        return replace(record, history=[{**entry, "dynamics": flat} for entry in record.history])

    rows = tuple(replace(r, trials=tuple(map(still, r.trials))) for r in results.rows)
    (inside,) = [g for g in figures.galleries("s", replace(results, rows=rows)) if g.title == "Training dynamics"]
    assert inside.charts == ()
    assert inside.empty[:2] == ("inputs below 0 (%) (always 50; low)", "saturated units (%) (always 0; low)")
    one = Lines(
        "one", "title", "alt", "epoch", "loss", (Line("a", "relu", (1,), (2.0,)), Line("b", "ada", (1,), (3.0,)))
    )
    assert figures.nothing_in(one) == "one point"


def test_learning_curves_are_the_mean_and_the_range_over_trials(fashion) -> None:
    charts = figures.learning(fashion).charts
    assert [chart.title for chart in charts[:3]] == [
        f"one-hidden-layer MLP: {group.title}" for group in fashion.study.groups
    ]
    line = next(x for x in charts[0].lines if x.label == "ADA")
    table = np.array([[100 * e["validation"]["accuracy"] for e in t.history] for t in fashion.row("mlp-1/ada").trials])
    assert line.x == (1, 2, 3, 4)
    assert line.y == pytest.approx(table.mean(0))
    assert (line.low, line.high) == (pytest.approx(table.min(0)), pytest.approx(table.max(0)))


def test_trials_of_different_length_are_averaged_where_they_are(fashion) -> None:
    first, *rest = fashion.row("mlp-1/ada").trials
    short = replace(first, history=first.history[:2])
    rows = tuple(replace(r, trials=(short, *rest)) if r.row.key == "mlp-1/ada" else r for r in fashion.rows)
    line = next(x for x in figures.learning(replace(fashion, rows=rows)).charts[0].lines if x.label == "ADA")
    assert len(line.y) == 4
    assert line.y[3] == pytest.approx(np.mean([100 * t.history[3]["validation"]["accuracy"] for t in rest]))


def test_dynamics_have_shares_in_per_cent_and_the_norm_of_all_gradients(fashion) -> None:
    gallery = figures.dynamics(fashion)
    inactive, saturated, gradient = gallery.charts[:3]
    assert inactive.lines[0].y == pytest.approx((40, 38, 36, 34))
    assert saturated.lines[0].y == pytest.approx((0, 1, 2, 3))
    assert gradient.logarithmic
    assert gradient.lines[0].y[0] == pytest.approx(np.hypot(0.5, 0.3))


def test_learned_parameters_are_shown_where_something_was_learned(fashion, tmp_path, make) -> None:
    assert figures.alphas(fashion).charts == ()  # alpha = 0.1 was chosen everywhere
    text = CURVE.replace("ada(alpha=0.3)", "ada(alpha=learn)")
    (chart, *_) = figures.alphas(results_of(text, tmp_path, make, lambda _: 0.8)).charts
    assert chart.lines[0].y == pytest.approx((1.0, 0.9, 0.8, 0.7))


def test_alpha_and_beta_have_charts_of_their_own(tmp_path, make) -> None:
    text = CURVE.replace("ada(alpha=0.3)", "ada(alpha=learn)")
    results = results_of(text, tmp_path, make, lambda _: 0.8)

    def learned(record, name):
        return replace(record, history=[{**entry, "learned": {f"hidden.{name}": 2.0}} for entry in record.history])

    rows = tuple(
        replace(r, trials=tuple(learned(t, "beta" if "relu" in r.row.key else "alpha") for t in r.trials))
        for r in results.rows
    )
    charts = figures.alphas(replace(results, rows=rows)).charts
    assert {(chart.y_axis, line.label) for chart in charts for line in chart.lines} == {
        ("learned alpha", "ADA (alpha=learn)"), ("learned beta", "ReLU"),
    }  # fmt: skip
    assert all(len(chart.lines) == 1 for chart in charts)


def test_imbalance_is_a_curve_over_the_classes_with_the_thinned_ones_at_the_right(tmp_path, make) -> None:
    from apical.data import Imbalance

    names = tuple(f"kind {k}" for k in range(10))
    study = studies.load("imbalance", quick=True)
    results = make(study, tmp_path / "study", lambda _: 0.8, samples=600, classes=names)
    chart = figures.recalls(results).charts[0]
    thinned = Imbalance().thinned(10)
    assert chart.ticks[5:] == tuple(f"10% of kind {k}" for k in thinned)
    assert set(chart.ticks[:5]) == {f"kind {k}" for k in range(10) if k not in thinned}
    found = results.row("mlp-2/relu")
    outputs = [t.outputs() for t in found.trials]
    own = [(o.outputs.argmax(1) == o.labels)[o.labels == thinned[0]].mean() for o in outputs]
    line = next(x for x in chart.lines if x.label == "ReLU")
    assert line.y[5] == pytest.approx(100 * np.mean(own))
    assert "kind" in draw_svg(chart, PALETTE)


def test_diamonds_are_explained_where_there_are_some(fashion, tmp_path, make) -> None:
    assert "Diamonds: the paper." in figures.means(fashion).caption
    demo = make(studies.load("demo"), tmp_path / "study", lambda _: 0.9, samples=50)
    assert "Diamonds" not in figures.means(demo).caption


OWN = """
title = "Own"
trials = 3
[[parts]]
name = "p"
title = "MLP"
data = "digits"
model = "mlp-1"
"""


def means_of(skills: dict[str, float], folder, make):
    folder.mkdir()
    text = OWN + "".join(f'[[rows]]\nunit = "{unit}"\n' for unit in skills)
    return figures.means(results_of(text, folder, make, lambda row: skills[row.partition("/")[2]]))


def test_a_row_far_below_the_others_goes_beyond_the_axis_with_its_numbers(tmp_path, make) -> None:
    skills = {"relu": 0.8, "tanh": 0.81, "gelu": 0.79, "rbf": 0.2}
    gallery = means_of(skills, tmp_path / "far", make)
    chart, narrow = gallery.charts
    (far,) = chart.beyond
    assert far.label == "RBF"
    assert narrow.beyond == (far,)
    assert chart.ends[0] > 70
    assert "An arrow with numbers: the row lies far beyond the axis." in gallery.caption
    for drawing in (draw_svg(c, PALETTE) for c in (chart, narrow)):
        assert drawing.count(f">{far.text}<") == 1
        assert drawing.count(f">{far.gain_text}<") == 1
    assert far.text.startswith(f"{far.mean:.2f} (")
    assert far.gain_text.endswith(" worse")


@pytest.mark.parametrize(
    "skills",
    [
        {"relu": 0.8, "tanh": 0.81, "gelu": 0.79, "rbf": 0.7},  # not so far
        {"relu": 0.2, "tanh": 0.21, "gelu": 0.19, "rbf": 0.8},  # a win
        {"relu": 0.2, "tanh": 0.81, "gelu": 0.79, "rbf": 0.8},  # the baseline
        {"relu": 0.8, "rbf": 0.2},  # nothing to tell apart
        {"relu": 0.8, "tanh": 0.81, "gelu": 0.2, "rbf": 0.2},  # half of the rows
    ],
)
def test_other_rows_stay_on_the_axis(skills, tmp_path, make) -> None:
    gallery = means_of(skills, tmp_path / "near", make)
    chart = gallery.charts[0]
    assert chart.beyond == ()
    assert all(chart.ends[0] <= dot.mean <= chart.ends[1] for dot in chart.dots)
    assert "beyond the axis" not in gallery.caption


def test_a_study_with_several_baselines_says_which_pairs_are_compared(tmp_path, make) -> None:
    said = "A row is compared with the baseline of its group (ReLU or PyNReLU); baselines have no gain."
    pyramidal = {"relu": 0.8, "ada": 0.82, "pynrelu": 0.85, "pynada": 0.86}
    gallery = means_of(pyramidal, tmp_path / "two", make)
    assert said in gallery.caption
    assert {dot.label for dot in gallery.charts[0].dots if dot.gain} == {"ADA", "PyNADA"}
    assert "compared with" not in means_of({"relu": 0.8, "ada": 0.82}, tmp_path / "one", make).caption


def test_dots_of_logical_functions_are_shares_of_trials_that_solve_them(tmp_path, make) -> None:
    study = studies.load("logic", quick=True)
    results = make(study, tmp_path / "study", lambda row: 1.5 if row == "xor/ada" else 0.7, samples=40)
    dots = {dot.label: dot for dot in figures.means(results).charts[0].dots}
    assert (dots["ADA"].mean, dots["ADA"].high) == (100, pytest.approx(100))
    assert (dots["ReLU"].mean, dots["ReLU"].low) == (0, 0)
    assert dots["ReLU"].high == pytest.approx(16.1, abs=0.1)  # Wilson, 0 of 20


def test_bars_from_a_cut_axis_are_dots() -> None:
    near, far = (Bars("b", "title", "alt", "axis", (Bar("a", "relu", 99.0), Bar("b", "ada", v))) for v in (98.0, 1.0))
    assert draw_svg(near, PALETTE).count("patch_") < draw_svg(far, PALETTE).count("patch_")


def test_curves_run_along_the_axis_one_line_for_each_unit(tmp_path, make) -> None:
    results = results_of(CURVE, tmp_path, make, lambda row: 0.9 if "ada" in row else 0.7)
    (chart,) = figures.curves(results).charts
    assert chart.x_axis == "sigma"
    assert [line.label for line in chart.lines] == ["ReLU", "ADA (alpha=0.3)"]
    assert all(line.x == (0.1, 0.3) for line in chart.lines)
    assert chart.lines[1].y[0] == 100 * results.row("high/ada-alpha-0.3").best.test["accuracy"]


def test_an_ablation_is_one_line_of_one_kind(tmp_path, make) -> None:
    (chart,) = figures.curves(results_of(ABLATION, tmp_path, make, lambda _: 0.8)).charts
    (line,) = chart.lines
    assert (line.label, line.x) == ("ada", (0.1, 0.5))


def test_rows_that_differ_by_a_number_alone_have_colours_in_its_order(tmp_path, make) -> None:
    text = ABLATION + '[[rows]]\nunit = "ada(alpha=1.0)"\nx = 1.0\n'
    results = results_of(text, tmp_path, make, lambda _: 0.8)
    (chart,) = figures.learning(results).charts
    assert [line.kind for line in chart.lines] == ["step-0", "step-4", "step-9"]
    assert "var(--u-step-9)" in inline(draw_svg(chart, PALETTE), name="one", alt="learning curves", palette=PALETTE)


def test_approximations_draw_the_median_trial_and_print_the_mean_error(tmp_path, make) -> None:
    study = studies.load("approximation", quick=True)
    results = make(study, tmp_path / "study", lambda _: 0.2, samples=1000)
    assert len(results.rows[0].trials) == study.trials > 1
    fits = figures.approximations(results).charts
    assert len(fits) == 12
    found = results.rows[0]
    median = sorted(found.trials, key=lambda t: t.test["mse"])[(len(found.trials) - 1) // 2]
    assert isinstance(fits[0], Fit)
    assert fits[0].fit[0] == pytest.approx(float(median.outputs().outputs.ravel()[0]))
    assert (fits[0].x[0], fits[0].x[-1]) == (pytest.approx(-2 * pi), pytest.approx(2 * pi, abs=0.1))
    assert fits[0].words.startswith("MSE ")
    assert f"{np.mean([t.test['mse'] for t in found.trials]):.3g}" in fits[0].alt


def test_nothing_is_shown_of_a_study_that_has_not_begun(tmp_path, make) -> None:
    results = make(studies.load("demo"), tmp_path / "study", lambda _: 0.9, keep=lambda _: False)
    assert figures.galleries("s", results) == []


def test_every_kind_of_chart_is_drawn_as_svg_and_pdf(fashion, tmp_path) -> None:
    charts = [g.charts[0] for g in figures.galleries("s", fashion)] + list(building_block().charts)
    assert len({type(chart) for chart in charts}) == 3
    for chart in charts:
        text = draw(chart, tmp_path, PALETTE)
        assert (tmp_path / f"{chart.name}.svg").read_text(encoding="utf-8") == text
        assert (tmp_path / f"{chart.name}.pdf").read_bytes().startswith(b"%PDF")


def test_drawing_twice_gives_the_same_bytes(fashion) -> None:
    chart = figures.means(fashion).charts[0]
    assert draw_svg(chart, PALETTE) == draw_svg(chart, PALETTE)


def test_on_the_page_colours_follow_the_theme_and_ids_do_not_collide(fashion) -> None:
    chart = figures.learning(fashion).charts[0]
    text = inline(draw_svg(chart, PALETTE), name="one", alt='curves & "more"', palette=PALETTE)
    assert "var(--u-ada)" in text
    assert "var(--ink)" in text
    assert "#1d2329" not in text
    assert 'aria-label="curves &amp; &quot;more&quot;"' in text
    assert all(part.startswith("one-") for part in text.split('id="')[1:])
    assert "RBF" not in text  # the legend of the gallery serves all its charts


@pytest.mark.parametrize("name", ["../../etc", "a/b", "<b>", "", "α", "plain-1.2_x"])
def test_names_of_files_are_harmless(name: str) -> None:
    made = Lines(name, "title", "alt").name
    assert made == slug(name)
    assert made
    assert set(made) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
    assert not made.startswith(".")


NOISE = CURVE.replace("x = 0.3", 'corruptions = ["input-noise(sigma=0.3)"]\nx = 0.3').replace(
    "x = 0.1", 'corruptions = ["input-noise(sigma=0.1)"]\nx = 0.1'
)


def test_samples_are_the_same_images_with_each_level_of_noise(tmp_path) -> None:
    path = tmp_path / "own.toml"
    path.write_text(NOISE, encoding="utf-8")
    ((sheet,),) = [gallery.charts for gallery in noisy_samples("s", studies.load(path))]
    assert [label for label, _ in sheet.rows] == ["no noise", "σ = 0.3", "σ = 0.1"]
    clean, noisy, less = (np.array([image.ravel() for image in images]) for _, images in sheet.rows)
    assert 0 < np.abs(less - clean).mean() < np.abs(noisy - clean).mean()
    assert draw_svg(sheet, PALETTE).count("<image") >= 3


def test_samples_bear_the_names_of_their_classes_as_text(tmp_path) -> None:
    from PIL import Image

    names = ("<img src=x onerror=alert(1)>", "$x^2$ **bold** & _y_")
    for k, name in enumerate(names):
        (tmp_path / "own" / name).mkdir(parents=True)
        for number in range(20):
            Image.new("L", (8, 8), 10 * number + k).save(tmp_path / "own" / name / f"{number}.png")
    path = tmp_path / "own.toml"
    path.write_text(NOISE.replace('"digits"', repr(str(tmp_path / "own"))), encoding="utf-8")
    ((gallery, sheet),) = [(g, g.charts[0]) for g in noisy_samples("s", studies.load(path))]
    assert set(sheet.columns) <= set(names)
    assert any(name in gallery.caption for name in names)
    text = inline(draw_svg(sheet, PALETTE), name="sheet", alt=sheet.alt, palette=PALETTE)
    assert "<img" not in text
    assert "&lt;img" in text or "$x^2$" in text


def test_a_report_fetches_no_data(fashion) -> None:
    noise = studies.load("input-noise")  # Fashion-MNIST, which these tests have not prepared
    assert noisy_samples("s", noise) == []


def test_names_in_other_scripts_and_with_control_characters_can_be_drawn(tmp_path) -> None:
    bars = (Bar("漢字 \x01 مرحبا", "ada", 90.0, paper=89.0), Bar("$x^2$ \\frac", "relu", 80.0))
    chart = Bars("odd", "<title> & \x07 🙂", "a chart of odd names", "accuracy", bars)
    text = inline(draw(chart, tmp_path, PALETTE), name="odd", alt=chart.alt, palette=PALETTE)
    assert "漢字" in text
    assert "$x^2$" in text
    assert "&lt;title&gt; &amp;" in text


def test_labels_of_a_logarithmic_axis_are_few_however_far_it_reaches() -> None:
    for low in (0.4, 1e-2, 1e-9):
        line = Line("ReLU", "relu", (1, 2), (1.0, low))
        text = draw_svg(Lines("log", "title", "alt", "epoch", "gradient norm", (line,), logarithmic=True), PALETTE)
        labels = [float(found) for found in re.findall(r">([\d.e-]+)</text>", text) if found not in ("1", "2")]
        assert 1 <= len(labels) <= 8


def test_a_pyramidal_unit_of_the_users_own_has_another_colour_than_its_standard_one():
    for name in ("wave", "bump", "sine", "mish"):
        assert PALETTE.colour(name) != PALETTE.colour(f"pyn{name}")
        assert PALETTE.variable(name) != PALETTE.variable(f"pyn{name}")
    lights = [light for _, light, _ in PALETTE.variables()]
    assert len(set(lights)) == len(lights)
