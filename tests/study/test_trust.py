"""Code that files name: nothing runs that the user did not allow."""

import importlib
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from torch import nn

from apical import cli, models, study, train, trust
from apical.convert import convert_, load
from apical.errors import InvalidArgumentError, UntrustedError
from apical.nn import Unit, kinds
from apical.study.directory import open_for
from apical.study.engines.base import Context, Job
from apical.study.plan import plan
from apical.study.worker import work

TRACE = "from pathlib import Path\nPath(__file__).with_name('ran').touch()\n"
"""The first lines of a hostile module: it leaves a trace where it was imported."""
NETWORK = """
import apical
from torch import nn
from subprocess import call

def network(unit, inputs=64, outputs=10):
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))

def nothing(unit, inputs=64, outputs=10):
    return "no network"

def bump(x):
    return x * 2
"""
STUDY = """
title = "theirs"
trials = 1
training = { epochs = 1, batch = 512 }
[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"
dims = { hidden = 2 }
[[rows]]
unit = "relu"
"""
WAYS = {
    "imports": STUDY.replace("trials", 'imports = ["theirs"]\ntrials'),
    "a network": STUDY.replace('"mlp-1"\ndims = { hidden = 2 }', '"theirs:network"'),
    "a unit": STUDY.replace('"relu"', '"theirs:bump"'),
    "a branch": STUDY.replace('"relu"', '"pyramidal(basal=relu,apical=theirs:bump)"'),
}
Attack = tuple[Path, Callable[[], bool]]


@pytest.fixture
def theirs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Attack:
    """The folder of somebody's module, where the user works, and whether the module ran."""
    (tmp_path / "theirs.py").write_text(TRACE + NETWORK, encoding="utf-8")
    monkeypatch.setenv("APICAL_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(trust, "_allowed", set())
    kinds._imported.cache_clear()
    return tmp_path, (tmp_path / "ran").exists


@pytest.fixture
def trial(tmp_path: Path) -> Callable[..., Path]:
    """A finished trial whose files say something else than was trained."""

    def make(**changes: object) -> Path:
        spec = train.TrialSpec(data="digits", model="mlp-1", dims={"hidden": 2}, epochs=1, batch=512)
        folder = train.run(spec, train.Execution(threads=1), tmp_path / "trial").directory
        for name in ("spec.json", "result.json"):
            values = json.loads((folder / name).read_text())
            values.get("spec", values).update(changes)
            if "dims" in changes and "input" in values:
                values["input"]["dims"] = changes["dims"]
            (folder / name).write_text(json.dumps(values))
        np.savez(tmp_path / "new.npz", x=np.zeros((1, 64)))
        return folder

    return make


# --- trial folders and checkpoints -----------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["predict {} new.npz", "train --resume {}"])
@pytest.mark.parametrize("flags", ["", "--trust"])
def test_a_trial_folder_cannot_run_a_command(
    theirs: Attack, trial: Callable[..., Path], capsys: pytest.CaptureFixture[str], command: str, flags: str
) -> None:
    folder, _ = theirs
    place = trial(model="os:system", dims={"command": f"touch {folder / 'ran'}"})
    (place / "result.json").unlink() if "resume" in command else None
    assert cli.run([*command.format(place).split(), *flags.split()]) == 1
    said = capsys.readouterr().err.strip()
    assert "standard library" in said if flags else said.endswith("trust.allow('os') or trust=True)")
    assert said.count("\n") == 0
    assert not (folder / "ran").exists()


@pytest.mark.parametrize("change", [{"model": "theirs:network", "dims": {}}, {"unit": "theirs:bump"}])
def test_a_trial_folder_brings_no_code_unless_the_user_says_so(
    theirs: Attack, trial: Callable[..., Path], capsys: pytest.CaptureFixture[str], change: dict[str, object]
) -> None:
    _, ran = theirs
    place = trial(**change)
    assert cli.run(["predict", str(place), "new.npz"]) == 1
    assert "allow it with --import theirs or --trust" in capsys.readouterr().err
    with pytest.raises(UntrustedError):
        train.predict(place, ["new.npz"])
    with pytest.raises(UntrustedError):
        train.TrialResult.load(place).network()
    assert not ran()
    with pytest.raises(Exception, match=r"belongs to another trial|does not fit"):
        train.predict(place, ["new.npz"], trust=True)
    assert ran()


def test_a_spec_needs_an_allowed_module(theirs: Attack) -> None:
    folder, ran = theirs
    spec = train.TrialSpec(data="digits", model="theirs:network", epochs=1, batch=512)
    for call in (train.run, lambda s, e, f: train.run_many([s], e, [f])):
        with pytest.raises(UntrustedError):
            call(spec, train.Execution(threads=1), folder / "t")
    assert not ran()
    trust.allow("theirs")
    assert train.run(spec, train.Execution(threads=1), folder / "t").state == "done"


# --- what a factory may be -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("os:system", "standard library"),
        ("subprocess:call", "standard library"),
        ("theirs:call", "is not defined there but in subprocess: name it as subprocess:call"),
        ("theirs:nn.Linear", r"is not defined there but in torch"),
        ("theirs:nothing", "returns str, but must return an nn.Module"),
        ("theirs:__file__", "has no function or class '__file__'"),
    ],
)
def test_a_factory_is_a_function_or_class_of_that_package_that_returns_a_module(
    theirs: Attack, name: str, sentence: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        models.create(name, "relu")


# --- study files and directories -------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS)
def test_a_study_file_is_refused_in_one_sentence_with_the_flag_that_allows_it(
    theirs: Attack, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    folder, ran = theirs
    (folder / "study.toml").write_text(text, encoding="utf-8")
    assert cli.run(["study", "run", "study.toml"]) == 1
    said = capsys.readouterr().err.strip()
    assert "study.toml names code in theirs" in said
    assert "allow it with --import theirs or --trust" in said
    assert said.count("\n") == 0
    assert not ran()
    study.load("study.toml", trust=True)
    assert ran()


@pytest.mark.parametrize("text", WAYS.values(), ids=WAYS)
@pytest.mark.parametrize("command", ["study run {}", "study status {}", "report {}", "study export {} -o all.csv"])
def test_a_study_directory_brings_no_code(theirs: Attack, text: str, command: str) -> None:
    folder, ran = theirs
    (folder / "study.toml").write_text(text, encoding="utf-8")
    from apical.study.directory import open_for

    open_for(study.load("study.toml", trust=True), folder / "s", None)
    (folder / "ran").unlink()
    sys.modules.pop("theirs")
    trust._allowed.clear()
    reads_only_names = "theirs:network" in text and "run" not in command
    assert cli.run(command.format("s").split()) == (0 if reads_only_names else 1)
    assert not ran()


@pytest.mark.usefixtures("here")
def test_what_was_run_here_is_read_here_without_asking_again(theirs: Attack) -> None:
    folder, _ = theirs
    (folder / "study.toml").write_text(WAYS["imports"], encoding="utf-8")

    def apical(*words: str) -> int:
        trust._allowed.clear()
        return cli.run(["study", *words])

    assert apical("run", "study.toml", "-d", "s", "--engine", "here", "--import", "theirs") == 0
    assert apical("status", "s") == 0
    (folder / "copied").mkdir()
    (folder / "copied" / "study.json").write_bytes((folder / "s" / "study.json").read_bytes())
    assert apical("status", "copied") == 1, "another place"
    changed = json.loads((folder / "s" / "study.json").read_text())
    changed["study"]["notes"] = ["changed"]
    (folder / "s" / "study.json").write_text(json.dumps(changed))
    assert apical("status", "s") == 1, "another checksum"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("answer", ["y", "n", ""])
def test_a_terminal_is_asked_once_and_the_answer_is_remembered(
    theirs: Attack, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    folder, ran = theirs
    (folder / "study.toml").write_text(WAYS["imports"], encoding="utf-8")
    said = Terminal()
    monkeypatch.setattr(sys, "stderr", said)
    monkeypatch.setattr(sys, "stdin", Terminal(f"{answer}\nn\n"))

    def loaded() -> bool:
        monkeypatch.setattr(trust, "_allowed", set())
        try:
            study.load("study.toml", trust="ask")
        except UntrustedError:
            return False
        return True

    assert loaded() == (answer == "y") == ran()
    assert said.getvalue().count("[y/N]") == 1
    assert str(folder / "theirs.py") in said.getvalue()
    assert loaded() == (answer == "y")
    assert said.getvalue().count("[y/N]") == 1, "it is not asked again"
    (folder / "study.toml").write_text(WAYS["imports"].replace('theirs"\n', 'others"\n'), encoding="utf-8")
    assert not loaded(), "the file has changed, and the second answer is no"
    assert said.getvalue().count("[y/N]") == 2


def test_nobody_is_asked_about_files_and_modules_that_lie_elsewhere(
    theirs: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ran = theirs
    (folder / "below").mkdir()
    (folder / "below" / "study.toml").write_text(WAYS["imports"], encoding="utf-8")
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdin", Terminal("y\ny\n"))
    with pytest.raises(UntrustedError):
        study.load("below/study.toml", trust="ask")
    monkeypatch.chdir(folder / "below")
    with pytest.raises(UntrustedError):
        study.load("study.toml", trust="ask")
    assert not ran()


def test_a_file_that_a_study_extends_brings_no_code_unasked(theirs: Attack) -> None:
    folder, ran = theirs
    (folder / "others.py").write_text(TRACE, encoding="utf-8")
    (folder / "base.toml").write_text(STUDY, encoding="utf-8")
    (folder / "study.toml").write_text('extends = "base.toml"\n', encoding="utf-8")
    trust.remember(folder / "study.toml", ["theirs"])
    study.load("study.toml")
    (folder / "base.toml").write_text(WAYS["imports"].replace("theirs", "others"), encoding="utf-8")
    with pytest.raises(UntrustedError, match=r"study\.toml names code in others"):
        study.load("study.toml")
    assert not ran()


def test_a_file_that_is_swapped_during_the_question_has_only_what_was_shown(
    theirs: Attack, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, ran = theirs
    (folder / "others.py").write_text(TRACE, encoding="utf-8")
    (folder / "study.toml").write_text(WAYS["imports"], encoding="utf-8")

    class Swapping(Terminal):
        def readline(self, *_: object) -> str:
            text = WAYS["imports"].replace('["theirs"]', '["theirs", "others"]')
            (folder / "study.toml").write_text(text, encoding="utf-8")
            return "y\n"

    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setattr(sys, "stdin", Swapping())
    assert study.load("study.toml", trust="ask").imports == ("theirs",)
    (folder / "ran").unlink()
    with pytest.raises(UntrustedError, match="names code in others"):
        study.load("study.toml")
    assert not ran()


@pytest.mark.parametrize("trusted", [(), ("theirs",)])
def test_a_worker_imports_what_its_driver_allowed(theirs: Attack, trusted: tuple[str, ...]) -> None:
    folder, ran = theirs
    part = study.Part(name="digits", title="", data="digits", model="theirs:network", training={"epochs": 1})
    rows = (study.Row(key="digits/relu", part="digits", label="", unit="relu"),)
    named = study.Study(name="theirs", title="", parts=(part,), rows=rows, trials=1)
    open_for(named, folder / "s", None)
    context = Context(directory=folder / "s", execution=train.Execution(threads=1), trusted=trusted)
    (outcome,) = work(Job("train", plan(named).tuning), context)
    assert (outcome.status == "done") == ran() == bool(trusted), outcome


@pytest.mark.usefixtures("here")
def test_a_class_of_a_module_that_is_imported_already_is_a_unit_everywhere(theirs: Attack) -> None:
    folder, _ = theirs
    (folder / "acts.py").write_text("from torch import nn\nclass Twice(nn.ReLU): pass\n", encoding="utf-8")
    text = STUDY.replace('"relu"', '"torch.nn:Mish"\n[[rows]]\nunit = "torch.nn:Identity"')
    (folder / "study.toml").write_text(f'{text}[[rows]]\nunit = "acts:Twice"\n', encoding="utf-8")
    with pytest.raises(UntrustedError, match="names code in acts, which"):
        study.load("study.toml")
    importlib.import_module("acts")
    loaded = study.load("study.toml")
    assert [row.unit for row in loaded.rows] == ["mish", "torch.nn:Identity", "acts:Twice"]
    assert study.run(loaded, folder / "s", engine="here").finished
    assert not trust.permits("acts"), "no more than the class itself"
    sys.modules.pop("acts")
    trust._allowed.clear()
    kinds._imported.cache_clear()
    with pytest.raises(UntrustedError, match="names code in acts"):
        study.read(folder / "s")


def test_a_worker_may_use_what_its_driver_has_imported_itself(theirs: Attack, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = theirs
    (folder / "acts.py").write_text("from torch import nn\nclass Twice(nn.ReLU): pass\n", encoding="utf-8")
    (folder / "study.toml").write_text(STUDY.replace('"relu"', '"acts:Twice"'), encoding="utf-8")
    importlib.import_module("acts")
    monkeypatch.setenv("PYTHONPATH", str(folder))
    results = study.run(study.load("study.toml"), folder / "s", options=study.Options(workers=1))
    assert results.states["done"] == 1, [t.reason for row in results.rows for t in row.trials]


# --- units and saved conversions -------------------------------------------------------------------------------------


def test_a_saved_conversion_brings_no_code(theirs: Attack) -> None:
    folder, ran = theirs
    convert_(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), "ada").save(folder / "saved.json")
    values = json.loads((folder / "saved.json").read_text())
    values["conversions"][0]["unit"] = "theirs:bump"
    (folder / "saved.json").write_text(json.dumps(values))
    with pytest.raises(UntrustedError):
        load(nn.Sequential(nn.Linear(2, 2), nn.ReLU()), folder / "saved.json")
    assert not ran()


@pytest.mark.parametrize("name", ["theirs:call", "theirs:nn.functional.gelu", "theirs:nn.ReLU"])
def test_a_unit_of_an_allowed_module_is_defined_there(theirs: Attack, name: str) -> None:
    trust.grant("theirs")
    with pytest.raises(InvalidArgumentError, match=r"is not defined there but in (subprocess|torch)"):
        Unit.parse(name)


def test_a_unit_at_hand_is_known_by_its_name_afterwards(theirs: Attack) -> None:
    import theirs as module  # type: ignore[import-not-found]

    with pytest.raises(UntrustedError):
        Unit.parse("theirs:bump")
    unit = Unit.of(module.bump)
    assert Unit.parse(str(unit)) == unit
    assert Unit.parse("torch.nn.modules.activation:Softmax").kind.endswith("Softmax"), "a class of modules brings none"


def test_a_package_allows_its_modules_and_no_other() -> None:
    trust.grant("theirs", "mine.networks", "one:name")
    assert [trust.permits(n) for n in ("theirs", "theirs.units:x", "mine.networks:y", "one:name")] == [True] * 4
    assert not any(trust.permits(n) for n in ("theirs_too", "mine", "mine.network", "one", "one:other", "os:system"))
