"""A report in a folder: what is written, and that names stay names."""

import csv
import json
import re
from collections.abc import Iterable
from dataclasses import replace
from html.parser import HTMLParser
from operator import itemgetter
from pathlib import Path
from statistics import fmean, median
from time import perf_counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apical import study as studies
from apical.errors import InvalidArgumentError, StudyError
from apical.report import gather, numbers, write, writing
from apical.report.charts import VERDICTS
from apical.report.render import latex, markdown
from apical.study.results import StudyResults, TrialRecord
from apical.train import Execution


class Elements(HTMLParser):
    """Names of all elements and attributes of a page, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[str] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag, attrs) -> None:
        self.tags.append(tag)
        self.attributes += [name for name, _ in attrs]

    def handle_data(self, data) -> None:
        self.texts.append(data)


def test_html_in_names_comes_out_as_text(evil_folder: Path) -> None:
    page = Elements((evil_folder / "index.html").read_text(encoding="utf-8"))
    assert page.tags.count("script") == 1
    assert page.tags.count("style") == 1
    assert "img" not in page.tags
    assert not [name for name in page.attributes if name.startswith("on")]
    text = "".join(page.texts)
    for name in ("<script>alert(1)</script>", "<b>ReLU</b> & _x_ {{ 7*7 }} {% raw %}", '"><svg onload=alert(1)>'):
        assert name in text


def test_markdown_in_names_comes_out_as_text(evil_folder: Path) -> None:
    text = (evil_folder / "report.md").read_text(encoding="utf-8")
    assert "<script>" not in text.replace("\\<script\\>", "")
    assert r"\*\*bold\*\*" in text
    assert r"\[link\]\(http\://example.org\)" in text
    rows = [line for line in text.splitlines() if "ReLU" in line and line.startswith("|")]
    heads = next(line for line in text.splitlines() if line.startswith("| Unit"))
    assert all(len(re.findall(r"(?<!\\)\|", row)) == heads.count("|") for row in rows)


def test_latex_in_names_comes_out_as_text(evil_folder: Path) -> None:
    text = (evil_folder / "report.tex").read_text(encoding="utf-8")
    text += "".join(p.read_text(encoding="utf-8") for p in (evil_folder / "tables").glob("*.tex"))
    assert r"\write18" not in text
    assert text.count(r"\end{document}") == 1
    assert r"\textbackslash{}end\{document\} \%" in text
    assert r"\textbackslash{}textbf\{x\} \# \textasciitilde{} \textasciicircum{} \textbar{}" in text
    assert "ș" not in text


def test_names_of_classes_come_out_as_text_everywhere(evil, evil_folder: Path) -> None:
    (recalls,) = [g for g in gather([evil]).sections[0].galleries if g.title == "Recall of each class"]
    classes = evil.rows[0].trials[0].classes
    assert len(classes) == 10
    assert set(classes) <= {tick.removeprefix("10% of ") for tick in recalls.charts[0].ticks}
    page = Elements((evil_folder / "index.html").read_text(encoding="utf-8"))
    assert ", ".join(classes) in "".join(page.texts)  # the table of the data
    assert "iframe" not in page.tags
    drawn = (evil_folder / "figures" / f"{recalls.charts[0].name}.svg").read_text(encoding="utf-8")
    assert "&lt;iframe" in drawn
    assert "<iframe" not in drawn
    text = (evil_folder / "report.md").read_text(encoding="utf-8")
    assert "<iframe" not in text.replace(r"\<iframe", "")
    assert r"\<iframe src=x\>" in text
    assert r"\!\[x\]\(http\://example.org/c\)" in text
    assert r"a \| b" in text
    tex = (evil_folder / "report.tex").read_text(encoding="utf-8")
    assert r"\textbackslash{}input\{secret\} \$y\_1\$ \& 50\%" in tex
    assert r"\input{secret}" not in tex


def test_the_name_of_a_baseline_is_text_in_the_heads_of_tables(evil_folder: Path) -> None:
    text = (evil_folder / "report.md").read_text(encoding="utf-8")
    (head,) = {line for line in text.splitlines() if line.startswith("| Unit |")}
    assert r"Gain over \<b\>ReLU\</b\> \& \_x\_" in head


@pytest.mark.parametrize(
    ("text", "latex_text", "markdown_text"),
    [
        ("a_b", r"a\_b", r"a\_b"),
        ("100 %", r"100 \%", "100 %"),
        ("α ± −1", r"$\alpha$ $\pm$ $-$1", "α ± −1"),
        ("two\nlines", "two lines", "two lines"),
        ("漢 é", "{[}U+6F22] e", "漢 é"),
        ("[9cm] *x*", "{[}9cm] {*}x{*}", r"\[9cm\] \*x\*"),
        ("www.example.org", "www.example.org", r"www\.example.org"),
        ("a: b = c", "a: b = c", "a: b = c"),
        (":smile: == http://x", ":smile: == http://x", r"\:smile: \== http\://x"),
        ("=", "=", r"\="),
        ("<i>", r"\textless{}i\textgreater{}", r"\<i\>"),
    ],
)
def test_escaping(text: str, latex_text: str, markdown_text: str) -> None:
    assert latex.escape(text) == latex_text
    assert markdown.escape(text) == markdown_text


@given(st.text())
def test_whatever_a_name_holds_latex_sees_plain_letters(text: str) -> None:
    found = latex.escape(text)
    assert found.isascii()
    assert found.isprintable()
    bare = re.sub(r"\\[{}$&#%_]", "", found)
    assert bare.count("{") == bare.count("}")
    assert not re.search(r"[&#%_~^]", re.sub(r"\$\^\\d?dagger\$", "", bare))
    assert not re.match(r"[\[*]", found), "after the end of a row, these would be its arguments"


@given(st.text())
def test_whatever_a_name_holds_markdown_sees_one_line_without_markup(text: str) -> None:
    found = markdown.escape(text)
    assert "\n" not in found
    assert not re.search(r"(?<!\\)(?:\\\\)*[*_`<>|#\[\]]", found)


def test_a_study_without_the_papers_numbers_speaks_of_itself_alone(evil_folder: Path, fashion_folder: Path) -> None:
    for folder, judged in ((evil_folder, False), (fashion_folder, True)):
        page = (folder / "index.html").read_text(encoding="utf-8")
        assert ("A claim is judged by this rule" in page) is judged
        assert (">Ours<" in page) is judged
        assert ("| Ours |" in (folder / "report.md").read_text(encoding="utf-8")) is judged
        tables = [path.read_text(encoding="utf-8") for path in (folder / "tables").glob("*.tex")]
        assert any("Ours: the trial that is best by validation" in text for text in tables) is judged


def test_everything_is_written(fashion_folder: Path) -> None:
    names = {p.relative_to(fashion_folder).as_posix() for p in fashion_folder.rglob("*") if p.is_file()}
    assert {"index.html", "report.md", "report.tex", "tables/trials.csv"} <= names
    for part in ("mlp-1", "mlp-2"):
        assert {f"tables/table-fashion-mlp-{part}.{end}" for end in ("tex", "csv")} <= names
    drawn = {name[:-4] for name in names if name.startswith("figures/") and name.endswith(".svg")}
    assert drawn == {name[:-4] for name in names if name.startswith("figures/") and name.endswith(".pdf")}
    assert len(drawn) > 10


def test_the_page_is_one_small_file_without_addresses(fashion_folder: Path) -> None:
    page = (fashion_folder / "index.html").read_text(encoding="utf-8")
    assert len(page.encode()) < 3_000_000
    loads = re.findall(r'(?:src|href)="(?!#|data:)([^"]*)"', page)
    assert loads == []
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


NUMBER = re.compile(
    r'data-value="([^"]*)" data-trials="([^"]*)" data-metric="([^"]*)" data-split="([^"]*)" data-how="([^"]*)">([^<]*)<'
)


def test_every_number_of_the_page_equals_the_export(fashion, fashion_folder: Path, tmp_path: Path) -> None:
    """Each number names its trials: it is computed again from what `study export` writes."""
    exported = json.loads(studies.export(fashion.directory, tmp_path / "all.json").read_text(encoding="utf-8"))
    rows = exported if isinstance(exported, list) else exported["trials"]
    trials = {row["digest"][:16]: row for row in rows}
    paper = {row.key: row.paper for row in fashion.study.rows}
    page = (fashion_folder / "index.html").read_text(encoding="utf-8")
    found = NUMBER.findall(page)
    assert len(found) > 300
    checked = dict.fromkeys(("trial", "mean", "deviation", "difference"), 0)
    for value, digests, metric, split, how, text in found:
        names = digests.split()
        assert names
        assert set(names) <= set(trials), "a number without its trials"
        if metric == "seconds" or how not in checked:
            continue
        own = [trials[name][f"{split} {metric}"] for name in names]
        if how == "trial":
            wanted = own[0]
        elif how == "mean":
            wanted = sum(own) / len(own)
        elif how == "deviation":
            middle = sum(own) / len(own)
            wanted = (sum((v - middle) ** 2 for v in own) / (len(own) - 1)) ** 0.5
        else:
            printed = paper[trials[names[0]]["row"]][metric].value / 100 if len(names) == 1 else own[1]
            wanted = own[0] - printed
        assert float(value) == pytest.approx(wanted, abs=1e-12)
        shown, exact = float(text.replace("−", "-")), wanted * (1 if metric == "cross-entropy" else 100)
        assert shown == pytest.approx(exact, abs=0.00501)
        checked[how] += 1
    assert min(checked.values()) > 20


def test_every_gain_and_time_of_the_page_is_that_of_its_trials(fashion, fashion_folder: Path) -> None:
    records = {t.digest[:16]: t for row in fashion.rows for t in row.trials}
    found = NUMBER.findall((fashion_folder / "index.html").read_text(encoding="utf-8"))
    gains = [(value, digests.split(), metric) for value, digests, metric, _, how, _ in found if how == "gain"]
    assert len(gains) > 20
    row_of = {t.digest[:16]: row.row.key for row in fashion.rows for t in row.trials}
    quoted = [row.row.paper["accuracy"].value / 100 for row in fashion.rows if row.row.quoted]
    for value, digests, metric in gains:
        values = [records[d].test[metric] for d in digests]
        if len({row_of[d] for d in digests}) == 1:  # against a number that the paper quotes
            assert min(abs(fmean(values) - number - float(value)) for number in quoted) < 1e-12
            continue
        half, sign = len(values) // 2, -1 if metric == "cross-entropy" else 1
        assert float(value) == pytest.approx(sign * (fmean(values[:half]) - fmean(values[half:])), abs=1e-12)


def timed(results: StudyResults, *, in_turn: bool = True, gap: float = 1.0, load: float = 1.2) -> StudyResults:
    """The same trials with the times at which their epochs ended: one after the other, `gap` seconds between them."""
    rows = [r for r in results.rows if r.trials]
    finals = [(t.seed if in_turn else 0, k, t) for k, r in enumerate(rows) for t in r.trials]
    every = [t for r in rows for s in r.settings for t in s.trials] + [
        t for *_, t in sorted(finals, key=itemgetter(0, 1))
    ]
    clock, stamped = 0.0, {}
    for trial in {t.digest: t for t in reversed(every)}.values():  # reversed: a final trial that tuned counts as final
        clock -= gap
        epochs = []
        for epoch in reversed(trial.timings):
            epochs.insert(0, {**epoch, "ended": clock, "load": load})
            clock -= epoch["train"] + epoch["validate"]
        stamped[trial.digest] = replace(trial, timings=epochs)

    def of(trials: Iterable[TrialRecord]) -> tuple[TrialRecord, ...]:
        return tuple(stamped[t.digest] for t in trials)

    return replace(results, rows=tuple(
        replace(r, trials=of(r.trials), settings=tuple(replace(s, trials=of(s.trials)) for s in r.settings))
        for r in results.rows
    ))  # fmt: skip


def test_seconds_are_shown_with_their_spread_and_only_of_trials_that_ran_alone_and_in_turn(fashion, tmp_path) -> None:
    refused = {
        "these trials do not record when they ran and how busy the machine was": fashion,
        "trials ran at the same time": timed(fashion, gap=-0.5),
        "the machine was busy (up to 1.0 processes beside a trial)": timed(fashion, load=2.0),
        "rows were trained one after the other, not in turn": timed(fashion, in_turn=False),
    }
    for why, results in refused.items():
        assert numbers.times(results) == numbers.Timing(why=why)
    relu = fashion.row("mlp-1/relu")
    together = replace(relu.trials[0], execution=Execution(stacking="stacked"))
    stacked = replace(fashion, rows=(replace(relu, trials=(together, *relu.trials[1:]), settings=()),))
    assert numbers.times(stacked).why == "networks were trained together, as one program"
    ran = timed(fashion)
    first, second = numbers.times(ran).tables
    assert len(first.rows) == len(second.rows) == 11
    own = sorted(median(t.seconds[1:]) for t in fashion.row("mlp-1/ada").trials)
    shown = next(row for row in first.rows if row.label == "ADA")
    assert shown.seconds.value == median(own)
    assert shown.spread == f"{numbers.show(numbers.SECONDS, own[0])} to {numbers.show(numbers.SECONDS, own[-1])}"
    page = write([ran], tmp_path).read_text(encoding="utf-8")
    assert "Seconds per epoch" in page
    assert "Seconds are not compared" not in page


def test_claims_have_a_page_of_their_own_and_every_pair_a_line_of_csv(fashion, fashion_folder: Path) -> None:
    found = gather([fashion], pictures=False).verdicts
    text = (fashion_folder / "claims.md").read_text(encoding="utf-8")
    assert text.startswith("# What the studies say about the paper's claims")
    assert "| Compared | Paper | Ours, with 95 % interval and n | Finding |" in text
    for v in found:
        assert markdown.escape(v.claim.text) in text
        assert markdown.escape(v.claim.where) in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", row)) for row in rows} <= {3, 4, 5}  # four columns fit a phone
    with (fashion_folder / "tables" / "claims.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert sum(line["finding"] in VERDICTS for line in lines) == sum(len(v.findings) for v in found)
    assert {line["claim"] for line in lines} == {v.claim.id for v in found}


def test_a_page_does_not_tell_where_its_writer_works(fashion, tmp_path: Path, monkeypatch) -> None:
    ran = replace(fashion, commands=(f"-c study run table-fashion-mlp -d {fashion.directory.absolute()} --workers 2",))
    monkeypatch.chdir(fashion.directory.parent)
    text = (write([ran], tmp_path / "report").parent / "report.md").read_text(encoding="utf-8")
    assert f"command: apical study run table\\-fashion\\-mlp \\-d {fashion.directory.name} \\-\\-workers 2" in text
    assert str(fashion.directory.parent) not in text


def test_latex_tables_have_the_gains_of_the_page(fashion, fashion_folder: Path) -> None:
    text = (fashion_folder / "tables" / "table-fashion-mlp-mlp-1.tex").read_text(encoding="utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("ADA ")]
    shown = next(x for x in gather([fashion], pictures=False).sections[0].tables[0].lines if x.key == "mlp-1/ada")
    assert rf"\textbf{{{latex.escape(shown.gain.text)}}}" in line
    assert shown.gain.text.endswith(" better")
    assert line.count("&") == 6


def test_a_study_without_ada_shows_nothing_of_it(tmp_path: Path, make) -> None:
    (tmp_path / "own.toml").write_text(OTHERS, encoding="utf-8")
    results = make(studies.load(tmp_path / "own.toml"), tmp_path / "study", lambda _: 0.8, samples=100)
    page = write([results], tmp_path / "report").read_text(encoding="utf-8")
    assert not re.search(r"XOR|Lemma|The building block", re.sub(r"<style>.*?</style>", "", page, flags=re.DOTALL))
    assert not [p for p in (tmp_path / "report" / "figures").iterdir() if p.name.startswith(("ada", "xor"))]
    sentence = gather([results], pictures=False).sections[0].conclusion.sentence
    assert sentence in page
    assert markdown.escape(sentence) in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")
    assert latex.escape(sentence) in (tmp_path / "report" / "report.tex").read_text(encoding="utf-8")


OTHERS = """
title = "Two units"
trials = 2
[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"
[[rows]]
unit = "relu"
[[rows]]
unit = "gelu"
"""


def test_csv_has_full_precision_and_the_trials(fashion, fashion_folder: Path) -> None:
    with (fashion_folder / "tables" / "table-fashion-mlp-mlp-1.csv").open(encoding="utf-8", newline="") as file:
        rows = {row["row"]: row for row in csv.DictReader(file)}
    best = fashion.row("mlp-1/ada").best
    assert float(rows["mlp-1/ada"]["ours"]) == best.test["accuracy"]
    assert rows["mlp-1/ada"]["best_trial"] == best.digest
    assert len(rows["mlp-1/ada"]["trials"].split()) == 5
    assert rows["mlp-1/xiao-relu"]["ours"] == ""


def test_a_page_that_would_be_too_large_leaves_details_to_the_folder(
    fashion, fashion_folder: Path, tmp_path: Path, monkeypatch
) -> None:
    sizes = []
    monkeypatch.setattr(writing, "LIMIT", 1)
    for written, words, trials in (
        (fashion_folder / "index.html", "", 190),
        (
            write([fashion], tmp_path),
            "all but the best trials to tables/trials.csv, all figures of the studies to figures/",
            22,
        ),
    ):
        page = written.read_text(encoding="utf-8")
        assert ("To stay small, this page leaves" in page) == bool(words)
        assert words in page
        assert page.count('id="t-') == trials
        targets = set(re.findall(r'href="#([^"]*)"', page))
        assert targets <= set(re.findall(r' id="([^"]*)"', page)), "a link to a trial that was left out"
        sizes.append(len(page))
    assert sizes[1] < 0.6 * sizes[0]
    assert (tmp_path / "figures" / "table-fashion-mlp-mlp-1-learning-1.svg").is_file()
    assert len((tmp_path / "tables" / "trials.csv").read_text(encoding="utf-8").splitlines()) == 191


def test_an_unfinished_study_says_so_and_how_to_go_on(tmp_path: Path, make) -> None:
    study = studies.load("demo")
    results = make(study, tmp_path / "study", lambda _: 0.9, keep=lambda t: t.row != "digits/ada" and t.trial < 2)
    page = write([results], tmp_path / "report").read_text(encoding="utf-8")
    assert "Unfinished." in page
    (told,) = set(re.findall(r"(\d+) of \d+ trials are trained, (\d+) of them only to tune", page))
    finals = {t.digest for row in results.rows for t in row.trials}
    assert int(told[0]) - int(told[1]) == len(finals) > 0
    assert f"apical study run {tmp_path / 'study'}" in page
    assert "This runs the rest" in (tmp_path / "report" / "report.md").read_text(encoding="utf-8")


def test_a_study_that_has_not_begun_has_a_report(tmp_path: Path, make) -> None:
    results = make(studies.load("demo"), tmp_path / "study", lambda _: 0.9, keep=lambda _: False)
    assert "Unfinished." in write([results], tmp_path / "report").read_text(encoding="utf-8")


def test_diverged_trials_are_told(tmp_path: Path, make) -> None:
    study = studies.load("demo")
    results = make(study, tmp_path / "study", lambda _: 0.9, state=lambda t: "diverged" if "rbf" in t.row else "done")
    page = write([results], tmp_path / "report").read_text(encoding="utf-8")
    assert "3 diverged" in page
    assert "the loss is not finite" in page


def test_two_runs_of_a_study_stand_side_by_side(tmp_path: Path, make) -> None:
    study = studies.load("demo")
    runs = [make(study, tmp_path / name, lambda _: 0.9) for name in ("a", "b")]
    page = write(runs, tmp_path / "report", compare=True).read_text(encoding="utf-8")
    assert "A against B" in page
    assert "3, equal" in page  # the same trials, the same numbers
    assert "Both ran in the same environment." in page


def test_faults_are_said_in_a_sentence(fashion, evil, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="at least one study"):
        write([], tmp_path)
    with pytest.raises(InvalidArgumentError, match="a comparison needs two"):
        write([fashion], tmp_path, compare=True)
    with pytest.raises(StudyError, match="no row in common"):
        write([fashion, evil], tmp_path, compare=True)
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(InvalidArgumentError, match="cannot be written"):
        write([fashion], tmp_path / "file")


def test_the_page_is_the_first_that_stays_within_the_limit(
    fashion, fashion_folder: Path, tmp_path, monkeypatch
) -> None:
    whole = (fashion_folder / "index.html").stat().st_size
    monkeypatch.setattr(writing, "LIMIT", whole - 1)
    page = write([fashion], tmp_path)
    assert page.stat().st_size < whole
    assert "this page leaves tuning trials to tables/trials.csv." in page.read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_study_of_500_trials_reports(tmp_path: Path, make, record_property) -> None:
    """The seconds are recorded, not judged: `pytest -rP` shows them."""
    study = studies.load("table-fashion-mlp", sets=["trials=20"])
    results = make(study, tmp_path / "study", lambda row: 0.85 + 0.002 * len(row), samples=4_000)
    assert sum(results.states.values()) >= 500
    started = perf_counter()
    page = write([studies.read(results.directory)], tmp_path / "report")
    seconds = perf_counter() - started
    record_property("seconds", seconds)
    print(f"{sum(results.states.values())} trials reported in {seconds:.1f} s")
    assert page.stat().st_size < 3_000_000
    assert page.read_text(encoding="utf-8").count('id="t-') >= 500
