"""`apical report` and `apical study watch`."""

from pathlib import Path
from typing import Any

import pytest

from apical.cli import run
from apical.report import figures
from apical.report.charts import Gallery


@pytest.fixture(scope="module")
def study(engine_here: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small study that really ran."""
    from apical import study as studies
    from apical.study.engines.base import ENGINES

    folder = tmp_path_factory.mktemp("cli")
    (folder / "own.toml").write_text(OWN, encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APICAL_HOME", str(folder / "home"))
        patch.setitem(ENGINES, "here", engine_here)
        studies.run(studies.load(folder / "own.toml"), folder / "studies" / "own", engine="here")
    return folder


OWN = """
title = "Two units on digits"
trials = 2
training = { epochs = 2 }
[[parts]]
name = "digits"
title = "MLP-1"
data = "digits"
model = "mlp-1"
[[rows]]
unit = "relu"
[[rows]]
unit = "ada(alpha=0.3)"
"""


@pytest.fixture(autouse=True)
def there(study: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(study)
    monkeypatch.setenv("APICAL_HOME", str(study / "home"))


@pytest.mark.parametrize("name", ["own", "studies/own"])
def test_a_study_is_reported_by_name_or_folder(name: str, tmp_path: Path, capsys) -> None:
    assert run(["report", name, "-o", str(tmp_path)]) == 0
    assert f"wrote {tmp_path / 'index.html'}" in capsys.readouterr().out
    assert "Two units on digits" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_the_page_can_be_opened(tmp_path: Path, monkeypatch) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    assert run(["report", "own", "-o", str(tmp_path), "--open"]) == 0
    assert opened == [(tmp_path / "index.html").as_uri()]


def test_two_studies_are_compared(tmp_path: Path) -> None:
    assert run(["report", "own", "studies/own", "--compare", "-o", str(tmp_path)]) == 0
    assert "A against B" in (tmp_path / "index.html").read_text(encoding="utf-8")


def test_a_study_that_is_not_there_is_named(tmp_path: Path, capsys) -> None:
    assert run(["report", "nothing", "-o", str(tmp_path)]) == 1
    fault = "there is no study directory 'nothing' or 'studies/nothing': `apical study list` shows"
    assert fault in capsys.readouterr().err
    assert run(["report", "logik", "-o", str(tmp_path)]) == 1
    assert "did you mean 'logic'?" in capsys.readouterr().err
    assert run(["report", "logic", "-o", str(tmp_path)]) == 1
    assert "run it with `apical study run logic`" in capsys.readouterr().err


def test_a_quick_study_that_is_there_is_suggested(tmp_path: Path, capsys, monkeypatch) -> None:
    (tmp_path / "studies" / "digits-quick").mkdir(parents=True)
    (tmp_path / "studies" / "digits-quick" / "study.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert run(["report", "digits"]) == 1
    assert "did you mean 'digits-quick'?" in capsys.readouterr().err


def test_comparing_needs_two(tmp_path: Path, capsys) -> None:
    assert run(["report", "own", "--compare", "-o", str(tmp_path)]) == 1
    assert "a comparison needs two: apical report A B --compare" in capsys.readouterr().err


def test_watching_tells_where_and_ends_with_ctrl_c(monkeypatch, capsys) -> None:
    from http.server import ThreadingHTTPServer

    def interrupted(self, poll_interval: float = 0.5) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadingHTTPServer, "serve_forever", interrupted)
    assert run(["study", "watch", "own", "--refresh", "3"]) == 0
    assert "the report of own, as it grows: http://127.0.0.1:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("figure", "sentence"),
    [
        (
            lambda results: results.nothing,
            "'mine' cannot be drawn for study 'own' (AttributeError: 'StudyResults' obj",
        ),
        (lambda results: "bars", "figure 'mine' returns str, but must return a chart of apical.report.charts, a Gal"),
        (lambda results: Gallery("Mine", "", (3,)), "figure 'mine' returns a gallery of int, but must return a chart"),
    ],
)
def test_a_figure_of_ones_own_that_fails_is_named_and_nothing_is_written(
    figure, sentence: str, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(figures, "_REGISTERED", {"mine": figure})
    assert run(["report", "own", "-o", str(tmp_path / "page")]) == 1
    err = capsys.readouterr().err
    assert sentence in err
    assert err.count("\n") == 1
    assert not (tmp_path / "page").exists()
