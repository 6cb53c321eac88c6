"""What users add in a module of their own, which a study imports: it is planned, run and read as what is built in."""

from collections.abc import Callable
from pathlib import Path

import pytest

from apical import cli
from apical.errors import InvalidArgumentError, StudyError
from apical.study import Options, Study, load, read, register_engine, run
from apical.study.engines.base import Context, Done, Job, Outcome
from apical.study.plan import plan
from apical.study.worker import work
from apical.train import Execution

Write = Callable[..., Path]


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str, str], None]:
    """Write a module that the study can import. Names are registered for good: each test takes its own."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name: str, text: str) -> None:
        (tmp_path / f"{name}.py").write_text(text)

    return write


SWELL = """
import torch
from apical import register_unit
from apical.nn import kinds

def swell(x, beta, shape):
    return torch.nn.functional.softplus(x * beta) if shape == "soft" else torch.relu(x * beta)

register_unit(
    "swell", function=swell, label="Swell", group="leaky",
    parameters={
        "beta": kinds.Parameter(0.5, above=0.0, learnable=True, tune=(0.5, 2.0)),
        "shape": kinds.Parameter("soft", choices=("soft", "hard")),
    },
)
"""
SWELLING = """
title = "swelling"
imports = ["swelling_units"]

[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"

[[rows]]
unit = "relu"

[[rows]]
unit = "swell"

[[rows]]
unit = "swell(beta=1)"

[[rows]]
unit = "swell"
name = "tuned"
tune = { shape = ["soft", "hard"], beta = [1, "learn"] }
"""


def test_parameters_of_ones_own_units_are_tuned(write: Write, module: Callable[[str, str], None]) -> None:
    module("swelling_units", SWELL)
    study = load(write(SWELLING), trust=True)
    settings = {row.name: plan(study).settings(row) for row in study.rows}
    assert settings["swell"] == ("swell", "swell(beta=2)"), "the values that its kind declares"
    assert settings["swell-beta-1"] == ("swell(beta=1)",)
    assert settings["tuned"] == (
        "swell(beta=1)", "swell(beta=1,shape=hard)", "swell(beta=learn)", "swell(beta=learn,shape=hard)"
    )  # fmt: skip
    assert [(row.label, row.group) for row in study.rows[:3]] == [
        ("ReLU", "standard"), ("Swell", "leaky"), ("Swell (beta=1)", "leaky")
    ]  # fmt: skip
    common = load(write(SWELLING.replace('"swelling"', '"swelling"\ntune.beta = [3]', 1)))
    assert plan(common).settings("digits/swell") == ("swell(beta=3)",)
    for good, wrong, said in (("hard", "wide", "one of soft, hard"), ("[1, ", "[0, ", "must be greater than 0")):
        with pytest.raises(StudyError, match=said):
            load(write(SWELLING.replace(good, wrong)))


ENGINE = """
from apical.study import register_engine
from apical.study.engines.base import Done
from apical.study.worker import work

class InTurn:
    workers = 1

    def __init__(self, context, log):
        self.context, self.log, self.jobs = context, log, []

    @property
    def room(self):
        return 1 - len(self.jobs)

    def submit(self, job):
        self.jobs.append(job)

    def wait(self, seconds):
        jobs, self.jobs = self.jobs, []
        with open(self.log, "a") as file:
            file.writelines(f"{job.kind} {len(job.trials)}\\n" for job in jobs)
        return [Done(job, tuple(work(job, self.context))) for job in jobs]

    def close(self, *, stop):
        pass

register_engine("in-turn", lambda context, options: InTurn(context, options.own["log"]), options=["log"])
"""
TURNS = """
title = "in turn"
imports = ["engine_in_turn"]
trials = 1
training = { epochs = 1, batch = 256 }

[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"
dims = { hidden = 4 }

[[rows]]
unit = "relu"

[[rows]]
unit = "ada"
"""


def test_an_engine_of_ones_own_runs_a_study(
    write: Write, module: Callable[[str, str], None], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module("engine_in_turn", ENGINE)
    command = ["study", "run", str(write(TURNS)), "-d", str(tmp_path / "s"), "--engine", "in-turn"]
    command += ["--import", "engine_in_turn"]
    assert cli.run([*command, "--engine-option", f"log={tmp_path / 'log'}"]) == 0
    assert read(tmp_path / "s").finished
    assert (tmp_path / "log").read_text().splitlines() == ["train 2", "test 1", "test 1"]
    assert cli.run([*command, "--engine-option", "queue=long"]) != 0
    assert "engine 'in-turn' has no option 'queue'; it has workers, cpus, log" in capsys.readouterr().err
    with pytest.raises(InvalidArgumentError, match="has no option 'gpus'"):
        run(load(write(TURNS)), tmp_path / "s", engine="in-turn", options=Options(gpus=1))


def test_a_process_does_one_job_at_a_time(module: Callable[[str, str], None], tmp_path: Path) -> None:
    module("works_at_once", "from apical.study.worker import work\nwork(None, None)\n")
    job = Job("train", ())
    context = Context(directory=tmp_path, execution=Execution(), imports=("works_at_once",))
    for _ in range(2):  # the first job does not stay in the way of the next
        with pytest.raises(
            StudyError, match=r"this process runs another job, .* an engine runs one job at a time per process"
        ):
            work(job, context)


def test_outcomes_may_come_in_a_list() -> None:
    outcome = Outcome("digest", "done")
    done = Done(Job("train", ()), [outcome])
    assert done == Done(Job("train", ()), (outcome,))
    assert not done.died
    assert Done(Job("train", ()), []).died


@pytest.mark.parametrize("name", ["local", "in turn", ""])
def test_a_name_that_no_engine_can_have(name: str) -> None:
    with pytest.raises(InvalidArgumentError, match=r"there is an engine 'local' already|cannot name an engine"):
        register_engine(name, lambda context, options: None)  # type: ignore[arg-type,return-value]


METRIC = """
import torch
from apical import register_unit
from apical.train import register_metric

def sureness(log_probabilities, labels):
    return float(log_probabilities.exp().amax(1).mean())

register_metric("sureness", compute=sureness, larger_is_better=False, title="mean sureness", percent=True)
register_metric("doubt", compute=lambda o, y: 1 - sureness(o, y), larger_is_better=True)
register_unit("wave", function=torch.sin, label="Wave", color=("#102030", "#a0b0c0"))
"""
SURE = """
title = "sure"
imports = ["metric_of_sureness"]
trials = 1
training = { epochs = 1, batch = 256, metric = "sureness" }

[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"
dims = { hidden = 4 }

[[rows]]
unit = "wave"
paper.digits = { sureness = 12.5, accuracy = 90, seconds = 1, mark = "dagger" }

[[rows]]
unit = "ada"
tune.alpha = [0.1, 1]
"""


@pytest.mark.usefixtures("here")
def test_a_study_carries_the_facts_of_ones_own_metrics_and_the_colours_of_ones_own_kinds(
    write: Write, module: Callable[[str, str], None], tmp_path: Path
) -> None:
    module("metric_of_sureness", METRIC)
    study = load(write(SURE), trust=True)
    assert study.colors == {"wave": ("#102030", "#a0b0c0")}
    assert [facts.name for facts in study.metrics] == ["sureness", "doubt"], "used, or registered by what it imports"
    assert list(study.rows[0].paper) == ["accuracy", "sureness", "seconds"]
    run(study, tmp_path / "s", engine="here")
    results = read(tmp_path / "s")
    row = results.row("digits/ada")
    values = {setting.setting: setting.validation for setting in row.settings}
    assert row.chosen == min(values, key=lambda setting: values[setting]), "the smaller sureness is chosen"
    assert results.study.metric("sureness").heading == "mean sureness (%)"
    with pytest.raises(StudyError, match=r"paper.digits.sureles: unknown metric 'sureles'; did you mean 'sureness'\?"):
        load(write(SURE.replace("sureness = 12.5", "sureles = 12.5")))


def test_a_study_tells_the_facts_of_a_metric_where_nobody_registers_it() -> None:
    facts = {"name": "unheard-of", "title": "rumours", "larger_is_better": True, "unit": "per day"}
    study = Study.from_dict(load("demo").to_dict() | {"metrics": [facts]})
    assert study.metric("unheard-of").heading == "rumours (per day)"
    assert Study.from_dict(study.to_dict()) == study
    with pytest.raises(InvalidArgumentError, match="unknown metric 'nobody'"):
        study.metric("nobody")


def test_fields_of_later_versions_are_absent_while_they_have_their_default() -> None:
    demo = load("demo")
    assert not {"metrics", "colors"} & demo.to_dict().keys()
    assert demo.digest != demo.model_copy(update={"colors": {"x": ("#000000", "#ffffff")}}).digest
