"""The page: one HTML file with everything in it. Names are escaped by Jinja2, whatever is in them."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from apical import imports
from apical.report.charts import Chart, Dots, Forest, Palette, Pictures
from apical.report.claims.verdicts import OUTCOMES, decisive
from apical.report.comparison import with_interval
from apical.report.conclusion import VERDICTS
from apical.report.difference import StudyDiff
from apical.report.draw import inline
from apical.report.gathering import (
    Report,
    Section,
    Trial,
    badges,
    by_topic,
    counted,
    gains_caption,
    heading,
    notices,
    spelled,
)
from apical.report.numbers import show, show_count, show_p
from apical.report.tables import columns_of

SHORT = 16
"""Letters of a digest that name a trial on the page."""
TEMPLATES = Path(__file__).parent / "templates"
LIGHT = (
    "--bg:#fcfbf9; --ink:#1d2329; --faint:#5b6570; --grid:#d9dde2; --rule:#e6e3dd; --accent:#1f5fbf; --wash:#f3f1ec; "
    "--good:#1d6b43; --bad:#a8321f; --open:#7a5a00; --truth:#c8102e; --fit:#1f5fbf;"
)
DARK = (
    "--bg:#14181d; --ink:#e6e9ec; --faint:#a3adb8; --grid:#39424c; --rule:#2a3139; --accent:#8ab4f8; --wash:#1c2229; "
    "--good:#7fd0a0; --bad:#f2a08f; --open:#e3c26b; --truth:#ff7b7b; --fit:#7fb0ff; color-scheme: dark;"
)


def page(
    report: Report, drawings: Mapping[str, str], *, differences: Sequence[StudyDiff] = (), refresh: int | None = None
) -> str:
    """The HTML; `drawings` holds the SVG of each chart by name; with `refresh` it looks again after so many seconds."""
    jinja2, markup = imports.optional("jinja2", extra="lab"), imports.optional("markupsafe", extra="lab").Markup
    loader = jinja2.FileSystemLoader(TEMPLATES)
    environment = jinja2.Environment(loader=loader, autoescape=True, undefined=jinja2.StrictUndefined)
    return str(
        environment.get_template("page.html.j2").render(
            report=report,
            differences=differences,
            refresh=refresh,
            outcomes=OUTCOMES,
            css=markup(_css(report.palette)),
            js=markup((TEMPLATES / "page.js").read_text(encoding="utf-8")),
            svg=lambda chart: markup(
                inline(drawings[chart.name], name=chart.name, alt=chart.alt, palette=report.palette)
            ),
            anchor=_anchors(markup),
            on_page={t.digest for section in report.sections for t in section.trials},
            shape=_shape,
            show=show,
            with_interval=with_interval,
            by_topic=by_topic,
            counted=counted,
            show_p=show_p,
            show_count=show_count,
            variable=report.palette.variable,
            short=lambda digests: " ".join(digest[:SHORT] for digest in digests),
            columns_of=columns_of,
            badges=badges,
            notices=notices,
            gains_caption=gains_caption,
            spelled=spelled,
            words=VERDICTS,
            heading=heading,
            printed=any(section.has_paper for section in report.sections),
            decisive=lambda v: decisive(v.outcome, v.findings),
            label=_label,
        )
    )


def _shape(chart: Chart) -> str:
    """How much room a figure takes; of a picture of means, one form is for wide windows and one for narrow ones."""
    if isinstance(chart, Dots):
        return "narrow" if chart.narrow else "broad" if any(dot.gain for dot in chart.dots) else "broad half"
    return "wide" if isinstance(chart, Pictures | Forest) else "small"


def _css(palette: Palette) -> str:
    light = " ".join(f"{name}:{colour};" for name, colour, _ in palette.variables())
    dark = " ".join(f"{name}:{colour};" for name, _, colour in palette.variables())
    text = (TEMPLATES / "page.css").read_text(encoding="utf-8")
    return text.replace("LIGHT", f"{LIGHT} {light}").replace("DARK", f"{DARK} {dark}")


def _label(section: Section, key: str) -> str:
    return section.labels.get(key, key)


def _anchors(markup: Callable[[str], Any]) -> Callable[[Trial], Any]:
    """Gives each trial one anchor on the page, though two studies may share it."""
    given: set[str] = set()

    def anchor(trial: Trial) -> Any:
        name = f"t-{trial.digest[:SHORT]}"
        if name in given:
            return ""
        given.add(name)
        return markup(f' id="{name}"')

    return anchor
