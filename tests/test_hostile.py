"""Files whose bytes are sound and whose values make no sense: one sentence, before anything is allocated or listed.

`test_untrusted.py` is about bytes; here every file can be decoded.
"""

import ast
import copy
import csv
import io
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import apical
from apical import cli, data, files, limits, models, study
from apical.errors import ApicalError, CheckpointError, DataError, InvalidArgumentError, StudyError, visible
from apical.report import writing
from apical.study.config.loading import load
from apical.study.cost import step_alone
from apical.study.directory import Header, Store
from apical.study.plan import plan
from apical.study.state import DAMAGED, read_facts, scores
from apical.train import Execution, TestResult, TrialResult, TrialSpec, checkpoint, run
from apical.train.result import LAST, RESULT, stored_spec

ESCAPES = "red\x1b[31m\u202eevil\x07\n=cmd()|' <script>alert(1)</script> $x$ \\input{/etc/passwd}"

SMALL = """
title = "Theirs"
trials = 3
[[parts]]
name = "digits"
data = "digits"
model = "mlp-deep"
dims = {{ width = 2 }}
[[rows]]
unit = "relu"
[[rows]]
unit = "ada"
{more}
"""


def load_text(tmp_path, text):
    path = tmp_path / "theirs.toml"
    path.write_text(text)
    return load(path)


# --- numbers have bounds ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [n for n in limits.BOUNDS if n in TrialSpec.__dataclass_fields__ and n != "dims"])
def test_every_number_of_a_trial_has_its_bounds(name):
    least, largest = limits.BOUNDS[name]
    whole, needed = isinstance(largest, int), {"optimiser": "es"} if name in ("population", "sigma") else {}
    for value, words in ((largest * 2, "at most"), (-1 if whole or not least else least / 2, "at least")):
        given = [value] if name == "milestones" else value
        with pytest.raises(InvalidArgumentError, match=rf"{name} is .*must be {words}"):
            TrialSpec(data="digits", model="mlp-1", **needed, **{name: given})
    TrialSpec(data="digits", model="mlp-1", **needed, **{name: [largest] if name == "milestones" else largest})


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"dims": {"width": 10**7}}, "dims.width is 10000000, but must be .* from -1,000,000 to 1,000,000"),
        ({"dims": {"width": [1] * 101}}, "a list of at most 100"),
        ({"dims": {f"d{i}": 1 for i in range(101)}}, "dims is .*of at most 100 entries"),
        ({"milestones": list(range(1001))}, "milestones is .*of at most 1000 entries"),
        ({"corruptions": ["subset"] * 33}, "corruptions is .*of at most 32 entries"),
        ({"data": "x" * 10_001}, "data is .*a text of at most 10000 characters"),
    ],
)
def test_lists_and_texts_of_a_trial_have_their_bounds(fields, words):
    with pytest.raises(InvalidArgumentError, match=words) as error:
        TrialSpec(**{"data": "digits", "model": "mlp-1"} | fields)
    assert len(str(error.value)) < 500


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (("trials = 3", "trials = 1000000"), "trials: input should be less than or equal to 10000"),
        (("trials = 3", "trials = 3\nstack = 100000"), "stack: input should be less than or equal to 1024"),
        (("trials = 3", "trials = 3\nfirst_seed = 10000000000"), "first_seed: input should be less than"),
        (
            ("trials = 3", "trials = 3\n[training]\nepochs = 10000000"),
            "epochs is 10000000, but must be at most 1000000",
        ),
        (("trials = 3", "trials = 3\n[training]\npad = 100000"), "pad is 100000, but must be at most 256"),
        (("width = 2", "width = 5000000"), "dims.width is 5000000, but must be"),
        (("{more}", "x = 1e300"), r"rows\[2\].x: input should be less than or equal to"),
        (("{more}", "tune.alpha = [1e300]"), r"tune.alpha\[1\]: 1e\+300 is a number that must lie between"),
        (("{more}", f"tune.alpha = {list(range(1, 1002))}"), "tune.alpha: list should have at most 1000 items"),
        (("{more}", "\n".join(f"tune.d{k} = [1]" for k in range(17))), "tune: dictionary should have at most 16 items"),
    ],
)
def test_numbers_of_a_study_file_have_their_bounds(change, words, tmp_path):
    with pytest.raises(StudyError, match=words):
        load_text(tmp_path, SMALL.replace(*change).replace("{more}", "").replace("{{", "{").replace("}}", "}"))


MANY = {
    "notes": ["x"] * 1_001,
    "imports": ["x"] * 101,
    "parts": [{"name": f"p{k}", "title": "", "data": "digits", "model": "mlp-1"} for k in range(1_001)],
    "rows": [{"key": f"digits/r{k}", "part": "digits", "label": "", "unit": "relu"} for k in range(10_001)],
    "groups": [{"name": f"g{k}", "title": "", "baseline": "relu", "rows": []} for k in range(1_001)],
    "metrics": [{"name": f"m{k}", "title": "", "larger_is_better": True} for k in range(1_001)],
    "colors": {f"c{k}": ["#000000", "#000000"] for k in range(1_001)},
    "title": "x" * 10_001,
    "name": "x" * 81,
}


@pytest.mark.parametrize("field", MANY)
def test_lists_and_texts_of_a_study_json_have_their_bounds(field):
    values = study.load("demo").to_dict()
    study.Study.from_dict(values)
    with pytest.raises(StudyError, match=rf"not a valid study: {field}: .*at most [\d]+ (items|characters)"):
        study.Study.from_dict(values | {field: MANY[field]})


@pytest.mark.parametrize(("effect", "deviation"), [(1e-300, 0.1), (1e-9, 1e9), (0.01, 1e300)])
def test_a_question_that_nobody_can_answer_is_refused(effect, deviation, tmp_path):
    asked = f"""[question]
asks = "?"
hypothesis = "?"
row = "ada"
against = ["relu"]
effect = {effect}
deviation = {deviation}
yes = "a"
no = "b"
undecided = "c"
"""
    with pytest.raises(StudyError, match="question"):
        load_text(tmp_path, SMALL.format(more=asked))


def test_a_grid_is_counted_before_it_is_listed(tmp_path, monkeypatch):
    values = [v / 1000 for v in range(1, 1001)]
    grid = f"tune.alpha = {values}\ntune.c = {values}\ntune.learning_rate = {values}\ntune.depth = {[*range(1, 11)]}"
    huge = load_text(tmp_path, SMALL.format(more=grid))
    with pytest.raises(
        StudyError, match=r"has 10,000,000,00\d trials.* at most 50,000 are allowed: .*--limits trials="
    ):
        plan(huge)
    small = load_text(tmp_path, SMALL.format(more="tune.alpha = [0.1, 0.2, 0.3]"))
    assert plan(small).count == len({t.digest for t in plan(small).tuning}) + 2 + 2
    monkeypatch.setenv("APICAL_LIMITS", "trials=7")
    with pytest.raises(StudyError, match="has 8 trials"):
        plan(small)


def test_a_network_is_refused_before_it_is_made(monkeypatch):
    with pytest.raises(InvalidArgumentError, match=r"more than 2,000,000,000 parameters .*--limits parameters="):
        models.create("mlp-deep", "pynada", width=1_000_000, depth=3)
    monkeypatch.setenv("APICAL_LIMITS", "tensors=50,parameters=100000")
    with pytest.raises(InvalidArgumentError, match=r"more than 50 tensors .*--limits tensors=500"):
        models.create("mlp-deep", "relu", width=2, depth=1_000_000)
    models.create("mlp-1", "relu")


@pytest.mark.parametrize(
    ("dims", "words"),
    [
        ({"inputs": 3}, r"network 'mlp-1' does not take inputs of shape \(1, 8, 8\)"),
        ({"outputs": 2}, r"gives outputs of shape \(2, 2\), but the loss"),
        ({"outputs": -1}, r"network 'mlp-1' cannot be built with .*outputs=-1"),
        ({"outputs": 1.5}, "cannot be built with .*outputs=1.5"),
        ({"inputs": "x"}, "cannot be built with .*inputs='x'"),
    ],
)
def test_dimensions_that_do_not_fit_are_one_sentence(dims, words, tmp_path):
    spec = TrialSpec(data="digits", model="mlp-1", dims=dims, epochs=1)
    with pytest.raises(ApicalError, match=words):
        run(spec, Execution(threads=1), tmp_path / "run")
    with pytest.raises(ApicalError, match=words):
        step_alone(spec, data.load("digits"))


def test_padding_makes_no_giant_samples(tmp_path, monkeypatch):
    monkeypatch.setenv("APICAL_LIMITS", "pixels=1000")
    spec = TrialSpec(data="digits", model="mlp-1", pad=100, epochs=1)
    with pytest.raises(
        InvalidArgumentError, match=r"pad is 100, which makes samples of 43,264 pixels.*--limits pixels="
    ):
        run(spec, Execution(threads=1), tmp_path / "run")


def test_the_page_has_every_bound():
    page = (Path(__file__).parents[1] / "docs" / "security.md").read_text()
    for name, (least, largest) in limits.BOUNDS.items():
        row = next(line for line in page.splitlines() if line.startswith("|") and f"`{name}`" in line)
        for number in (least, largest):
            assert (f"{number:,}" if isinstance(number, int) else f"{number:g}") in row, (name, number, row)
    for name, most in limits.COUNTS.items():
        assert any(f"`{name}`" in line and f"{most:,}" in line for line in page.splitlines()), name
    for name, most in limits.RAISABLE.items():
        assert any(f"`{name}`" in line and f"{most:,}" in line for line in page.splitlines()), name


# --- a study directory of somebody else -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """A study directory with one finished and tested trial, and the trial's digest."""
    place = tmp_path_factory.mktemp("theirs")
    part = study.Part(
        name="digits", title="digits", data="digits", model="mlp-1", dims={"hidden": 2}, training={"epochs": 1}
    )
    rows = (study.Row(key="digits/relu", part="digits", label="ReLU", unit="relu"),)
    made = study.Study(name="theirs", title="theirs", parts=(part,), rows=rows, trials=1)
    store = Store.create(place / "study", Header(made.to_dict(), 1))
    study.run(made, place / "study", options=study.Options(workers=1))
    (digest,) = store.finished()
    return place / "study", digest


@pytest.fixture
def directory(theirs, tmp_path, monkeypatch):
    monkeypatch.setenv("APICAL_HOME", str(tmp_path / "home"))
    return shutil.copytree(theirs[0], tmp_path / "study"), theirs[1]


def rewrite(path, *steps, to):
    """Change one value of a JSON file."""
    values = json.loads(path.read_text())
    target = values
    for step in steps[:-1]:
        target = target[step]
    target[steps[-1]] = to
    path.write_text(json.dumps(values))


@pytest.mark.parametrize(
    ("steps", "to"),
    [
        (("tune_trials",), 10**6),
        (("tune_trials",), True),
        (("study", "trials"), 10**6),
        (("study", "stack"), 10**9),
        (("study", "name"), "../elsewhere"),
        (("study", "colors"), {"relu": ["url(x)", "red"]}),
        (("study", "parts", 0, "name"), "a\nb"),
        (("study", "rows", 0, "part"), "absent"),
        (("study", "rows", 0, "key"), "digits/../x"),
        (("study", "rows", 0, "group"), "absent"),
        (("study", "rows", 0, "tune"), {"alpha": []}),
        (("study", "rows", 0, "x"), 1e300),
        (("study", "parts", 0, "tuned_on"), "digits"),
        (("study", "parts", 0, "training"), {"epochs": 10**9}),
        (("study", "parts", 0, "dims"), {"hidden": 10**9}),
        (("study", "metrics"), [{"name": "m", "title": "m", "larger_is_better": True, "format": ">999999999.3f"}]),
        (("study", "metrics"), [{"name": "m", "title": "m", "larger_is_better": True, "format": "|>9.3f"}]),
        (("study", "metrics"), [{"name": "m", "title": "m", "larger_is_better": True, "format": "\u202e>9.3f"}]),
    ],
)
def test_a_study_json_that_makes_no_sense_is_one_sentence(steps, to, directory, capsys):
    folder, _ = directory
    rewrite(folder / "study.json", *steps, to=to)
    for command in ("status", "show", "retry"):
        assert cli.run(["study", command, str(folder)]) == 1
        said = capsys.readouterr().err
        assert said.startswith("apical: ")
        assert said.count("\n") == 1


RESULTS = [
    (("best_epoch",), -1),
    (("best_epoch",), 2),
    (("validation",), []),
    (("validation", "accuracy"), "high"),
    (("history",), {}),
    (("history", 0), {}),
    (("history", 0, "loss"), None),
    (("history", 0, "epoch"), 7),
    (("history", 0, "validation"), [1]),
    (("history", 0, "dynamics"), {"gradient": 3}),
    (("timings", 0, "train"), -1.0),
    (("timings", 0), {}),
    (("parameters",), "many"),
    (("environment",), {"python": 3}),
    (("input",), None),
    (("input", "classes"), -1),
]


@pytest.mark.parametrize(("steps", "to"), RESULTS)
def test_a_result_that_makes_no_sense_is_a_damaged_trial(steps, to, directory, capsys):
    """It is named as failed, not counted as done, and `retry` lets it run again."""
    folder, digest = directory
    path = folder / "trials" / digest / RESULT
    rewrite(path, *steps, to=to)
    assert read_facts(path.parent).state == DAMAGED
    with pytest.raises(CheckpointError, match=re.escape(str(path))):
        TrialResult.load(path.parent)
    assert study.status(folder).states["failed"] == 1
    assert cli.run(["study", "status", str(folder)]) == 0
    assert f"{path.parent} is damaged" in capsys.readouterr().out
    assert study.retry(folder) == (digest,)
    assert not path.exists()


def test_scores_that_are_no_numbers_are_not_shown(directory):
    folder, digest = directory
    (folder / "trials" / digest / "scores.json").write_text('{"accuracy": true}')
    assert scores(folder / "trials" / digest) is None
    assert study.read(folder).rows[0].trials[0].test is None


def arrays(n=6, classes=3):
    return {"ids": np.array([f"i{k}" for k in range(n)]), "labels": np.arange(n) % classes,
            "outputs": np.zeros((n, classes), np.float32)}  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"outputs": np.zeros((5, 3), np.float32)},
        {"outputs": np.zeros((6, 3, 1), np.float32)},
        {"outputs": np.zeros(6, np.float32)},
        {"outputs": np.zeros((6, 2), np.float32)},
        {"outputs": np.zeros((6, 3), np.int64)},
        {"labels": np.arange(6) - 1},
        {"labels": np.array(list("abcdef"))},
        {"labels": np.zeros((), np.int64)},
        {"ids": np.arange(6)},
        {"ids": np.array([], np.str_), "labels": np.zeros(0, np.int64), "outputs": np.zeros((0, 3), np.float32)},
    ],
)
def test_answers_that_do_not_fit_are_one_sentence(change, tmp_path):
    np.savez(tmp_path / "test.npz", **arrays() | change)
    with pytest.raises(CheckpointError, match=r"test\.npz was not written by `evaluate`"):
        TestResult.load(tmp_path)
    with pytest.raises(StudyError, match=r"test\.npz is missing or damaged"):
        study.results.read_outputs(tmp_path / "test.npz")
    np.savez(tmp_path / "test.npz", **arrays())
    assert (
        TestResult.load(tmp_path).scores["accuracy"]
        == study.results.read_outputs(tmp_path / "test.npz").labels[0] + 2 / 6
    )


# --- checkpoints ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A trial that was stopped after its first epoch, with its checkpoint."""
    spec = TrialSpec(data="digits", model="mlp-1", dims={"hidden": 2}, epochs=3, batch=512)
    folder = tmp_path_factory.mktemp("stopped") / "run"

    def stop(event):
        if event.epoch == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(spec, Execution(threads=1), folder, [stop])
    return spec, folder


FACTS = [
    ("epoch", -1), ("epoch", 9), ("epoch", "1"), ("batch", 10**9), ("history", []), ("history", [{}]),
    ("timings", 3), ("best", []), ("best", {"epoch": 2}), ("seconds", -1.0), ("dynamics", []), ("precision", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), FACTS)
def test_a_checkpoint_that_makes_no_sense_is_one_sentence(name, value, stopped, tmp_path):
    spec, folder = stopped
    here = shutil.copytree(folder, tmp_path / "run")
    stored = checkpoint.load(here / LAST)
    checkpoint.save(here / LAST, stored.tensors, copy.deepcopy(stored.facts) | {name: value})
    with pytest.raises(CheckpointError, match=re.escape(str(here / LAST))):
        run(spec, Execution(threads=1), here)


WRONG = [
    (start, how)
    for start in ("model:", "optimiser:", "random:", "best:")
    for how in ("gone", "another type", "another shape")
    if (start, how) != ("optimiser:", "gone")
]  # an optimizer starts a state that is not there


@pytest.mark.parametrize(("start", "how"), WRONG)
def test_tensors_of_a_checkpoint_that_do_not_fit_are_one_sentence(start, how, stopped, tmp_path):
    spec, folder = stopped
    here = shutil.copytree(folder, tmp_path / "run")
    stored = checkpoint.load(here / LAST)
    best = {f"best:{name}": t for name, t in stored.part("model").items()}
    facts = stored.facts | {"best": stored.facts["best"] | {"epoch": 0}} if start == "best:" else stored.facts
    tensors = dict(stored.tensors) | (best if start == "best:" else {})
    name = next(name for name in tensors if name.startswith(start) and tensors[name].numel() > 1)
    if how == "gone":
        del tensors[name]
    else:
        tensors[name] = torch.zeros(1, 3, dtype=torch.int16) if how == "another type" else torch.zeros(1, 2, 2)
    checkpoint.save(here / LAST, tensors, facts)
    with pytest.raises(CheckpointError, match=r"last\.safetensors|the optimiser"):
        run(spec, Execution(threads=1), here)


def test_a_spec_that_makes_no_sense_names_its_file(stopped, tmp_path):
    here = shutil.copytree(stopped[1], tmp_path / "run")
    rewrite(here / "spec.json", "epochs", to=-3)
    with pytest.raises(CheckpointError, match=r"spec\.json is not the spec of a trial: epochs is -3"):
        stored_spec(here)


# --- data -------------------------------------------------------------------------------------------------------------

INPUTS, CLASSES = np.random.RandomState(0).rand(40, 4).astype(np.float32), np.arange(40) % 3
SETS = {
    "three samples": ({"x": INPUTS[:3], "y": CLASSES[:3]}, "too few samples .2 for train, 0 for validation"),
    "no samples": ({"x": INPUTS[:0], "y": CLASSES[:0]}, "do not fit"),
    "no features": ({"x": INPUTS[:, :0], "y": CLASSES}, "do not fit"),
    "one class": ({"x": INPUTS, "y": 0 * CLASSES}, "only the class '0'"),
    "a negative class": ({"x": INPUTS, "y": CLASSES - 1}, "has the class -1"),
    "a giant class": ({"x": INPUTS, "y": CLASSES * 10**12}, "classes are numbered"),
    "inputs that are no numbers": ({"x": np.where(INPUTS > 0.9, np.nan, INPUTS), "y": CLASSES}, "not finite numbers"),
    "inputs beyond float32": ({"x": INPUTS.astype(np.float64) * 1e200, "y": CLASSES}, "too large for float32"),
    "targets that are no numbers": ({"x": INPUTS, "y": np.full(40, np.inf)}, "targets that are not finite"),
    "fewer labels": ({"x": INPUTS, "y": CLASSES[:9]}, "do not fit"),
}


@pytest.mark.parametrize("name", SETS)
def test_data_that_cannot_be_learned_is_one_sentence(name, tmp_path):
    made, words = SETS[name]
    np.savez(tmp_path / "x.npz", **made)
    regression = {"loss": "l1", "metric": "mae"} if made["y"].dtype.kind == "f" else {}
    spec = TrialSpec(data=str(tmp_path / "x.npz"), model="mlp-1", epochs=1, **regression)
    with pytest.raises(DataError, match=words):
        run(spec, Execution(threads=1), tmp_path / "run")


# --- what is shown ----------------------------------------------------------------------------------------------------


def test_hidden_characters_are_shown_and_nothing_else_changes():
    assert visible("naïve ∑ 漢字\t👩‍🔬") == "naïve ∑ 漢字\t👩‍🔬"
    assert visible("a\x1b[2J\u202eb\nc\ud800") == "a\\x1b[2J\\u202eb\\nc\\ud800"
    assert visible("a\nb\r", lines=True) == "a\nb\\r"


def test_commands_write_to_the_terminal_through_the_filter():
    """No `print` and no console of rich's own in a command; `echo` and `Screen` are the only ones."""
    for path in sorted(Path(cli.__file__).parent.glob("*.py")):
        tree = ast.parse(path.read_text())
        defined = {
            node for top in tree.body if getattr(top, "name", "") in ("echo", "Screen") for node in ast.walk(top)
        }
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node not in defined:
                assert node.func.id not in ("print", "Console"), f"{path}:{node.lineno}"


def test_csv_is_written_in_one_place():
    for path in sorted(Path(apical.__file__).parent.rglob("*.py")):
        if path.name != "files.py":
            assert not re.search(r"csv\.(writer|DictWriter)", path.read_text()), path


def test_a_cell_is_no_formula():
    rows = [
        ["=cmd()", "+1+1", "-2", "@x", "\tx", "-0.5", "1e-3", "-inf", np.float64(-0.5), None, "a\x1b", "plain, text"]
    ]
    written = files.csv_text([f"={k}" for k in range(12)], rows)
    head, line = csv.reader(io.StringIO(written))
    assert head[0] == "'=0"
    assert line == [
        "'=cmd()",
        "'+1+1",
        "-2",
        "'@x",
        "'\tx",
        "-0.5",
        "1e-3",
        "-inf",
        "-0.5",
        "",
        "a\\x1b",
        "plain, text",
    ]


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("x;=cmd()", "x;'=cmd()"),  # where the comma is for decimals, spreadsheets cut at semicolons
        ("x\t@cmd()", "x\t'@cmd()"),
        ("＝cmd()", "'＝cmd()"),
        ("－1＋1", "'－1＋1"),
        ("a = b; c -1", "a = b; c -1"),
    ],
)
def test_a_part_of_a_cell_is_no_formula(text, written):
    assert list(csv.reader(io.StringIO(files.csv_text(["x"], [[text]])))) == [["x"], [written]]


@pytest.fixture
def disguised(directory):
    """The study with hostile texts wherever a text may stand."""
    folder, digest = directory
    for steps in (("title",), ("source",), ("axis",), ("parts", 0, "title"), ("rows", 0, "label")):
        rewrite(folder / "study.json", "study", *steps, to=ESCAPES)
    rewrite(folder / "study.json", "study", "notes", to=[ESCAPES])
    rewrite(folder / "trials" / digest / RESULT, "reason", to=ESCAPES)
    rewrite(folder / "trials" / digest / RESULT, "environment", "processor", to=ESCAPES)
    rewrite(folder / "trials" / digest / RESULT, "input", "classes", to=[f"{ESCAPES}{k}" for k in range(10)])
    return folder, digest


HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e]")


def test_names_do_nothing_to_the_terminal(disguised, capsys, tmp_path):
    folder, digest = disguised
    sample = tmp_path / "x.npz"
    np.savez(sample, x=np.zeros((1, 64)))
    for command in (["study", "status", folder], ["study", "show", folder], ["study", "show", folder, digest[:8]],
                    ["study", "dataframe", folder], ["study", "run", folder, "--workers", "1"],
                    ["predict", folder / "trials" / digest, sample],
                    ["predict", folder / "trials" / digest, sample, "--csv", "-"]):  # fmt: skip
        assert cli.run([str(word) for word in command]) == 0, command
        said = capsys.readouterr()
        assert not HIDDEN.search(said.out + said.err), command
        assert "\n=cmd" not in said.out


def test_names_do_nothing_to_reports_and_tables(disguised, tmp_path):
    folder, _ = disguised
    study.export(folder, tmp_path / "x.csv")
    writing.write([study.read(folder)], tmp_path / "report")
    texts = {p: p.read_text() for p in tmp_path.glob("report/**/*") if p.suffix in (".html", ".md", ".tex", ".csv")}
    texts[tmp_path / "x.csv"] = (tmp_path / "x.csv").read_text()
    assert len(texts) > 5
    for path, text in texts.items():
        assert not HIDDEN.search(text), path
        if path.suffix == ".csv":
            assert not [cell for row in csv.reader(io.StringIO(text)) for cell in row if cell.startswith("=")]
        elif path.suffix == ".tex":
            assert r"\input{/etc" not in text
        else:
            assert "<script>alert(1)" not in text, path


# --- factories --------------------------------------------------------------------------------------------------------

FACTORIES = {
    "needs": ("def needs(size): return nn.Linear(size, 2)", "cannot be called without arguments .TypeError"),
    "fails": ("def fails(): raise KeyError('x')", "failed when it was called without arguments .KeyError"),
    "number": ("def number(): return 3", "returns int, but must return an nn.Module"),
    "other": ("def other(): return nn.Linear(3, 2)", "does not take the images of digits"),
    "flat": ("def flat(): return nn.Flatten(0)", "but must return .n, classes"),
}


@pytest.mark.parametrize("name", FACTORIES)
def test_a_factory_that_makes_no_classifier_is_one_sentence(name, tmp_path, monkeypatch, capsys):
    _, words = FACTORIES[name]
    (tmp_path / "hostile_factories.py").write_text(
        "from torch import nn\n\n\n" + "\n\n\n".join(c for c, _ in FACTORIES.values())
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    made = {"other": torch.nn.Linear(3, 2)}.get(name, torch.nn.Flatten(0)).state_dict()
    from safetensors.torch import save_file

    save_file(made, "w.safetensors")
    assert cli.run(["attack", f"hostile_factories:{name}", "--weights", "w.safetensors", "--data", "digits"]) == 1
    assert re.search(words, capsys.readouterr().err)
