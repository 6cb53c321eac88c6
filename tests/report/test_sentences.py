"""Every sentence of a page agrees with the numbers, whatever they are: studies are generated, and each kind of sentence
(what was run, notices, badges, captions, marks, headings of folds) is computed again from the files of the trials."""

import html as entities
import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pytest
from scipy import stats as scipy_stats

from apical import study as studies
from apical.report.gathering import Section, gather, progress
from apical.report.render import html
from apical.study.directory import open_for
from apical.study.plan import plan

UNITS = ("relu", "tanh", "ada(alpha=0.3)", "gelu")


@dataclass
class Made:
    """A generated study: its page as text, and its trials as their files have them."""

    section: Section
    page: str
    tests: dict[str, dict[int, float]]
    states: Counter[str]
    paper: bool
    metric: str
    untested: int = 0

    @property
    def unit(self) -> float:
        return 100.0 if self.metric == "accuracy" else 1.0

    def text(self, pattern: str) -> str:
        """The only text of the page that matches."""
        (match,) = re.findall(pattern, self.page)
        return match

    def gains(self) -> Iterator[tuple[str, np.ndarray]]:
        """Of each row with a baseline: what it gains over it on shared seeds."""
        for key, own in self.tests.items():
            base = self.tests[f"{key.partition('/')[0]}/relu"]
            seeds = sorted(own.keys() & base.keys())
            if not key.endswith("/relu"):
                sign = 1 if self.metric == "accuracy" else -1
                yield key, sign * np.array([own[s] - base[s] for s in seeds])


def toml(random: np.random.Generator, *, paper: bool, metric: str, trials: int, parts: int, units: list[str]) -> str:
    lines = ['title = "Own"', f"trials = {trials}", "stack = 1"]
    for k in range(parts):
        lines += ["[[parts]]", f'name = "p{k}"', f'title = "net {k}"', 'data = "digits"', 'model = "mlp-1"']
        lines += [f'training = {{ metric = "{metric}" }}']
    for unit in units:
        lines += ["[[rows]]", f'unit = "{unit}"']
        lines += [f"paper.p0 = {{ {metric} = {random.uniform(60, 90):.2f} }}"] if paper else []
    return "\n".join([*lines, "[quick]", f"trials = {trials}"])


def generated(seed: int, folder: Path, make) -> Made:
    """Effects, numbers of trials, missing rows, failed and diverged trials, the paper's numbers, quick variants."""
    random = np.random.default_rng(seed)
    paper, metric = bool(random.random() < 0.3), str(random.choice(["accuracy", "accuracy", "cross-entropy"]))
    trials, parts = int(random.choice([1, 2, 3, 5])), int(random.choice([1, 1, 2]))
    units = list(UNITS[: random.integers(2, len(UNITS) + 1)])
    (folder / "own.toml").write_text(toml(random, paper=paper, metric=metric, trials=trials, parts=parts, units=units))
    study = studies.load(folder / "own.toml", quick=bool(random.random() < 0.3))
    effects = [0.0, 0.0, 0.05, -0.05, -0.6]
    skill = {row.key: 0.8 + float(random.choice(effects, p=[0.2, 0.2, 0.2, 0.2, 0.2])) for row in study.trained}
    fate = {}
    for row in study.trained:
        kind = random.choice(["whole", "none", "short", "failed"], p=[0.7, 0.1, 0.1, 0.1])
        for trial in plan(study).finals(row, plan(study).settings(row)[0]):
            gone = kind == "none" or (kind != "whole" and random.random() < 0.5)
            fate[trial.digest] = ("failed" if kind == "failed" else "planned") if gone else "done"
            if fate[trial.digest] == "done" and random.random() < 0.05:
                fate[trial.digest] = "diverged"
    store = open_for(study, folder / "study", None)
    for digest in (d for d, state in fate.items() if state == "failed"):
        store.fail(digest, "RuntimeError: no memory", "")
    results = make(
        study, folder / "study", skill.__getitem__, samples=60,
        keep=lambda t: fate[t.digest] in ("done", "diverged"), state=lambda t: fate[t.digest],
    )  # fmt: skip
    done = [digest for digest, state in fate.items() if state in ("done", "diverged")]
    untested = [digest for digest in done if random.random() < 0.1] if random.random() < 0.3 else []
    for digest in untested:
        (folder / "study" / "trials" / digest / "scores.json").unlink()
    report = gather([studies.read(folder / "study") if untested else results], pictures=False)
    drawings = dict.fromkeys((c.name for c in report.charts), '<svg style="background: #ffffff"><g></g></svg>')
    raw = html.page(report, drawings)
    main = raw[raw.index("<main") : raw.index("</main>")]
    page = " ".join(entities.unescape(re.sub(r"<[^>]+>", " ", re.sub(r"<svg.*?</svg>", "", main, flags=re.S))).split())
    return Made(
        report.sections[0], page, scores_of(study, folder / "study", metric), Counter(fate.values()), paper, metric,
        len(untested),
    )  # fmt: skip


def scores_of(study, folder: Path, metric: str) -> dict[str, dict[int, float]]:
    """The test values by row and seed, from the files."""
    tests: dict[str, dict[int, float]] = {}
    for row in study.trained:
        own = tests.setdefault(row.key, {})
        for trial in plan(study).finals(row, plan(study).settings(row)[0]):
            path = folder / "trials" / trial.digest / "scores.json"
            if path.is_file():
                own[trial.trial] = json.loads(path.read_text())[metric]
    return tests


def printed(text: str) -> Any:
    """A printed number, equal to every value that it rounds."""
    return pytest.approx(float(text.replace("−", "-")), abs=0.51 * 10.0 ** -len(text.partition(".")[2]))


def cells(made: Made) -> dict[str, list[str]]:
    """The cells of the tables by row: mean, trials, gain, as Markdown-like texts."""
    from apical.report.tables import columns_of

    listed = {}
    for table in made.section.tables:
        for line in table.lines:
            listed[line.key] = {column.title(table): column.cell(line) for column in columns_of(table)}
    return listed


@pytest.mark.parametrize("seed", range(40))
def test_no_sentence_of_the_page_is_wrong(seed: int, tmp_path: Path, make) -> None:
    made = generated(seed, tmp_path, make)
    for check in (check_run, check_notices, check_badges, check_picture, check_tables, check_folds):
        check(made)


def test_trials_that_wait_for_their_test_are_told(tmp_path: Path, make) -> None:
    random = np.random.default_rng(0)
    text = toml(random, paper=False, metric="accuracy", trials=2, parts=1, units=["relu", "tanh"])
    (tmp_path / "own.toml").write_text(text)
    study = studies.load(tmp_path / "own.toml")
    digests = [t.digest for row in study.trained for t in plan(study).finals(row, plan(study).settings(row)[0])]
    results = make(study, tmp_path / "study", lambda _: 0.8, samples=60, keep=lambda t: t.digest != digests[-1])
    assert progress(gather([results], pictures=False).sections[0]) == "3 of 4 trials are trained"
    (tmp_path / "study" / "trials" / digests[2] / "scores.json").unlink()
    (section,) = gather([studies.read(tmp_path / "study")], pictures=False).sections
    assert progress(section) == "3 of 4 trials are trained, 1 of them not tested yet"


def check_run(made: Made) -> None:
    study, total = made.section.study, sum(made.states.values())
    units = len({row.unit for row in study.trained})
    said = made.text(rf"{units} units, mlp-1 on digits, \d+ epochs?; ([^.]*)\.")
    failed, planned = made.states["failed"], made.states["planned"]
    if failed or planned:
        expected = f"{total - failed - planned} of {total} trials {'so far' if planned else 'done'}"
    else:
        expected = f"{study.trials} trial{'' if study.trials == 1 else 's'} each, {total} in all"
    waiting = f", {made.untested} of them not tested yet" if made.untested else ""
    assert said == f"{expected}{waiting}" + (f", {failed} failed" if failed else "")
    assert made.page.count("not tested yet") == (2 if made.untested else 0)
    partial = planned and any(made.tests.values())
    so_far = [f"So far ({total - failed - planned} of {total} trials): "] if partial else []
    assert re.findall(r"So far \([^)]*\): ", made.page) == so_far
    assert ("Quick variant." in made.page) == (study.quick and not made.paper)
    begun = total - made.states["planned"]
    assert re.search(rf"(?<!\d){begun} trials Every number", made.page)


def check_notices(made: Made) -> None:
    failed, diverged, planned = (made.states[s] for s in ("failed", "diverged", "planned"))
    total = sum(made.states.values())
    of_row, seen = {state: Counter() for state in ("failed", "diverged")}, set()
    for row in made.section.results.rows:
        for t in (*row.trials, *(t for s in row.settings for t in s.trials)):
            if t.state in of_row and t.digest not in seen:  # parts with equal networks share their trials
                of_row[t.state][row.row.label] += 1
                seen.add(t.digest)
    who = {
        state: f" ({', '.join(f'{n} of {label}' for label, n in counts.items())})" if 0 < len(counts) <= 3 else ""
        for state, counts in of_row.items()
    }
    cause = r": RuntimeError: no memory\. Fix the cause, then: (.*?run \S+)"
    said = re.findall(rf"(\d+) trials? failed{re.escape(who['failed'])}{cause}", made.page)
    assert [int(n) for n, _ in said] == ([failed] if failed else [])
    assert all("apical study retry" in commands for _, commands in said)
    last = ": the last network before that is tested"
    said = re.findall(rf"(\d+) trials? diverged{re.escape(who['diverged'])}{last}", made.page)
    assert [int(n) for n in said] == ([diverged] if diverged else [])
    unfinished = re.findall(r"Unfinished\. (\d+) of (\d+) trials are trained", made.page)
    assert unfinished == ([(str(total - planned - failed), str(total))] if planned or made.untested else [])
    assert ("This runs the rest: apical study run" in made.page) == bool(planned or made.untested)


def check_badges(made: Made) -> None:
    study = made.section.study
    assert ("quick variant " in made.page.replace("Quick", "")) == (study.quick and made.paper)
    assert "not the paper's protocol" not in made.page
    assert "claim" not in made.page, "a study of one's own judges no claim of the paper"


def check_picture(made: Made) -> None:
    """The caption of the first picture, and what it draws."""
    counts = {key: len(own) for key, own in made.tests.items()}
    several, single = any(n > 1 for n in counts.values()), any(n == 1 for n in counts.values())
    pairs = {key: gains for key, gains in made.gains() if len(gains) > 1}
    assert ("Large dots: means over trials, lines: their 95 % intervals" in made.page) == several
    assert ("A dot without a line is one trial." in made.page) == (several and single)
    assert ("Dots: one trial each, so there is no interval." in made.page) == (single and not several)
    assert (
        "Gains (positive: better) are over trials with equal seeds; filled where the interval excludes 0." in made.page
    ) == bool(pairs)
    pooled = {is_pooled(made, key) for key in pairs}
    but = r"(, except rows that vary much more)?"
    said = re.findall(rf"Their intervals take the variance of all rows with these seeds together{but}\.", made.page)
    assert said == ([", except rows that vary much more" if False in pooled else ""] if True in pooled else [])
    drawn = [c for g in made.section.galleries if g.lead for c in g.charts if not c.narrow]
    assert ("Arrows: the line goes on." in made.page) == any(map(is_cut, drawn))
    assert ("Diamonds: the paper." in made.page) == (
        made.paper and any(d.paper is not None for c in drawn for d in c.dots)
    )
    check_beyond(made, drawn)
    labels = {row.row.key: (row.part.title, row.row.label) for row in made.section.results.rows}
    dots = {(chart.title, dot.label): dot for chart in drawn for dot in chart.dots}
    for key, own in made.tests.items():
        dot = dots.get(labels[key])
        assert (dot is not None and dot.mean is not None) == bool(own)
        if own:
            assert dot.mean == pytest.approx(made.unit * fmean(own.values()))
            assert (dot.gain is not None) == (key in pairs)
        if key in pairs:
            assert dot.gain[0] == pytest.approx(made.unit * pairs[key].mean())
            assert dot.sure == (verdict_of(made, key) in ("better", "worse"))


def check_beyond(made: Made, drawn) -> None:
    """Rows beyond an axis are worse than all on it, no baselines, and told in numbers; all others are on it."""
    assert ("An arrow with numbers: the row lies far beyond the axis." in made.page) == any(c.beyond for c in drawn)
    worst = min if made.metric == "accuracy" else max
    for chart in drawn:
        low, high = chart.ends
        near = [d for d in chart.dots if d not in chart.beyond and d.mean is not None]
        assert all(low <= v <= high for d in near for v in (d.mean, *d.trials))
        assert len(chart.beyond) <= (len(near) + len(chart.beyond)) // 3
        part = next(p.name for p in made.section.study.parts if p.title == chart.title)
        for dot in chart.beyond:
            (key,) = (r.row.key for r in made.section.results.rows if (r.row.part, r.row.label) == (part, dot.label))
            mean = made.unit * fmean(made.tests[key].values())
            assert key != f"{part}/relu"
            assert not low <= mean <= high
            assert worst(mean, *(d.mean for d in near)) == mean
            assert 4 * (high - low) < max(high, mean, dot.high or mean) - min(low, mean, dot.low or mean)
            assert printed(dot.text.split()[0]) == mean
            gains = dict(made.gains())[key]
            assert bool(dot.gain_text) == (len(gains) > 1)
            if dot.gain_text:
                assert printed(dot.gain_text.split()[0]) == made.unit * gains.mean()
                assert dot.gain_text in made.page, "the table says the same"


def is_cut(chart) -> bool:
    """True where an interval reaches beyond the values of its picture by more than their range."""
    near = [d for d in chart.dots if d not in chart.beyond]
    values = [v for d in near for v in (d.mean, d.paper, *d.trials) if v is not None]
    reach = max(values) - min(values)
    lines = [(d.low, d.high) for d in near if d.low is not None]
    return reach > 0 and any(low < min(values) - reach or high > max(values) + reach for low, high in lines)


def close_rows(made: Made, key: str) -> dict[str, list[float]]:
    """Rows of the same part that have the seeds which a row shares with its baseline, and vary no more than others."""
    part = key.partition("/")[0]
    seeds = sorted(made.tests[key].keys() & made.tests[f"{part}/relu"].keys())
    rows = {
        k: [v[s] for s in seeds] for k, v in made.tests.items() if k.startswith(f"{part}/") and v.keys() >= set(seeds)
    }
    spread = {k: np.var(v, ddof=1) for k, v in rows.items()}
    return {k: rows[k] for k in rows if spread[k] <= 4 * np.median(list(spread.values()))}


def is_pooled(made: Made, key: str) -> bool:
    return {key, f"{key.partition('/')[0]}/relu"} <= close_rows(made, key).keys()


def verdict_of(made: Made, key: str) -> str:
    """By the rule, from the tests alone: Student's t over shared seeds, the variance pooled over complete rows."""
    gains, close = dict(made.gains())[key], close_rows(made, key)
    seeds = range(len(gains))
    variance, degrees = gains.var(ddof=1), len(seeds) - 1
    if is_pooled(made, key):
        table = np.array(list(close.values()))
        errors = table - table.mean(0) - table.mean(1, keepdims=True) + table.mean()
        degrees = (len(close) - 1) * (len(seeds) - 1)
        variance = 2 * (errors**2).sum() / degrees
    half = scipy_stats.t.ppf(0.975, degrees) * np.sqrt(variance / len(seeds))
    if half <= 1e-9 * abs(gains.mean()):
        return ""
    return "better" if gains.mean() - half > 0 else "worse" if gains.mean() + half < 0 else ""


def check_tables(made: Made) -> None:
    """Means, deviations, counts, gains, their words and bold type, the paper's marks, and the captions below."""
    listed, trials = cells(made), made.section.study.trials
    pairs = {key: gains for key, gains in made.gains() if len(gains) > 1}
    for key, own in made.tests.items():
        row = listed[key]
        value = row.get("Mean ± sd") or row["Test"]
        assert (value.number is not None) == bool(own)
        if own:
            assert printed(value.number.text) == made.unit * fmean(own.values())
        if len(own) > 1:
            assert printed(value.spread.text) == made.unit * stdev(own.values())
        if "Trials" in row:
            assert row["Trials"].text == f"{len(own)} of {trials}"
        gain = next((cell for head, cell in row.items() if head.startswith("Gain over")), None)
        assert (gain is not None and gain.number is not None) == (key in pairs)
        if key in pairs:
            verdict = verdict_of(made, key)
            assert printed(gain.number.text.split()[0]) == made.unit * pairs[key].mean()
            assert (re.search(r"\) (better|worse)$", gain.number.text) or [None, ""])[1] == verdict
            assert gain.strong == (verdict == "better")
        if made.metric == "accuracy" and "Ours" in row and row["Ours"].number is not None:
            check_mark(made, key, row["Ours"].mark)
    partners = {key: made.tests[f"{key.partition('/')[0]}/relu"] for key in pairs}
    alone = [key for key, base in partners.items() if made.tests[key].keys() != base.keys()]
    assert ("A trial without a partner counts in the mean of its row, and not in the gain." in made.page) == bool(alone)
    digits = 2 if made.metric == "accuracy" else 4
    apart = [
        key
        for key, base in partners.items()
        if key not in alone
        and rounded(made, made.tests[key].values(), digits) - rounded(made, base.values(), digits)
        != (1 if made.metric == "accuracy" else -1) * rounded(made, pairs[key], digits)
    ]
    assert ("Gains are rounded last" in made.page) == bool(apart)
    same = [g for g in pairs.values() if np.ptp(g) <= 1e-9]
    assert ("bold where the row is better" in made.page) == bool(pairs)
    assert ("about 1 in 20 would still be called better or worse" in made.page) == bool(pairs)
    marks = made.paper and bool(pairs)
    assert ("† and ‡: the best trial" in made.page) == marks
    right = made.metric == "accuracy"
    assert ("McNemar's chi-square test without correction" in made.page) == (marks and right)
    assert ("a bootstrap of the mean difference" in made.page) == (marks and not right)
    if not same:
        assert "decides nothing." not in made.page.partition("How to read this page")[0]


def rounded(made: Made, values, digits: int) -> int:
    """The printed mean in units of its last digit."""
    return round(float(f"{made.unit * fmean(values):.{digits}f}") * 10**digits)


def check_mark(made: Made, key: str, mark: str) -> None:
    """McNemar's chi-square without correction, of the best trials by validation, from their answers."""
    base = made.section.results.row(f"{key.partition('/')[0]}/relu")
    own = made.section.results.row(key)
    if own is base or base.best is None or own.best is None or base.best.test is None or own.best.test is None:
        assert mark == ""
        return
    right = []
    for record in (own.best, base.best):
        outputs = record.outputs()
        right.append(outputs.outputs.argmax(1) == outputs.labels)
    only_own, only_base = int((right[0] & ~right[1]).sum()), int((right[1] & ~right[0]).sum())
    if only_own <= only_base:
        assert mark == ""
        return
    p = scipy_stats.chi2.sf((only_own - only_base) ** 2 / (only_own + only_base), 1)
    assert mark == ("‡" if p <= 0.01 else "†" if p <= 0.05 else "")


def has_chart(made: Made, axis: str) -> bool:
    return any(getattr(c, "y_axis", "") == axis for g in made.section.galleries for c in g.charts)


def check_folds(made: Made) -> None:
    """What folds are called, and the captions inside them."""
    finished = {r.row.key: sum(t.finished for t in r.trials) for r in made.section.results.rows}
    if any(finished.values()):
        several = any(n > 1 for n in finished.values())
        shown = "mean over trials; bands from the lowest to the highest" if several else "one trial of each row"
        titles = {g.title for g in made.section.galleries if g.charts}
        assert (f"Validation during training: {shown}." in made.page) == ("Learning curves" in titles)
        assert (f"Shown: {shown}." in made.page) == ("Training dynamics" in titles)
        assert ("the share of units that are saturated" in made.page) == has_chart(made, "saturated units (%)")
        assert "Seconds are not compared: these trials do not record when they ran" in made.page
    else:
        assert "Seconds" not in made.page.partition("How to read")[0].replace("Seconds Ran", "")
    compared = [c for c in made.section.comparisons if c.decision is not None or c.test is not None]
    said = re.findall(r"Statistical tests: (\d+ pairs?) of units", made.page)
    assert said == ([f"{len(compared)} pair{'' if len(compared) == 1 else 's'}"] if compared else [])
    for words in made.section.empty:
        axis, why = re.fullmatch(r"(.*?) \((always \S+|one point|no value); .*\)", words).groups()
        assert axis
        assert why
        assert words in made.page
    has_ada = any("ada" in row.unit for row in made.section.study.trained)
    assert ("XOR" in made.page) == has_ada
    if any(made.tests.values()):
        assert (
            made.page.count("ADA: apical dendrite activation, max(0, x) · exp(c − αx) with settings alpha (α) and c.")
            == has_ada
        )
