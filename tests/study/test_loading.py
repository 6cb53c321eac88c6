"""Study files: what they may say, how they vary each other, and what is said of their faults."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from apical import trust
from apical.errors import StudyError
from apical.study import Study, load
from apical.study.plan import plan, spec_of

from .conftest import SMALL

Write = Callable[..., Path]

FAULTY = """\
titel = "no such field"
trials = "five"
tune.alpha = [0.1, "lern", true]
training = { epochs = 0, epoch = 3, model = "lenet" }
groups = [{ name = "own", title = "My own", baseline = "nobody" }]

[[parts]]
name = "not a slug"
data = "fashion-mnst"
model = "mlp-3"

[[parts]]
name = "good"
data = "crema-d"
model = "mlp-1"
split = "actress"
dims = { hiden = 3 }
corruptions = ["noise(sigma=1)"]

[[parts]]
name = "good"
data = "digits"
model = "mlp-1"
training.batch = 0

[[rows]]
unit = "adda"
paper.nowhere = { accuracy = "much", mark = "star" }

[[rows]]
unit = "ada(alpha=0.3)"
parts = ["elsewhere*"]
tune.alpha = [1]
group = "leakyy"

[[rows]]
unit = "leaky_ada"
tune.alpha = [-1]

[[rows]]
unit = "leaky_ada"

[quick]
training.epochs = 1.5
"""
FAULTS = """\
mine.toml: title: it is missing
mine.toml:1: titel: there is no such field: did you mean 'title'?
mine.toml:2: trials: input should be a valid integer, not 'five'
mine.toml:3: tune.alpha[3]: True is neither a finite number nor a word
mine.toml:3: tune.alpha[2]: alpha is 'lern', but must be a number or 'learn'
mine.toml:4: training.epochs: epochs is 0, but must be at least 1
mine.toml:4: training.epoch: unknown training setting 'epoch'; did you mean 'epochs'?
mine.toml:4: training.model: not a training setting: set it in the part or the row
mine.toml:5: groups[1].baseline: no row is called 'nobody'
mine.toml:8: parts[1].name: 'not a slug' is not a name: use lower-case letters, digits, '.', '_' and '-', with
mine.toml:9: parts[1].data: unknown data set 'fashion-mnst'; did you mean 'fashion-mnist'?
mine.toml:10: parts[1].model: unknown network 'mlp-3'; did you mean 'mlp-
mine.toml:16: parts[2].split: crema-d has no split 'actress': it has 'paper', 'actor'
mine.toml:17: parts[2].dims.hiden: network 'mlp-1' has no such argument: it has inputs, hidden, outputs
mine.toml:18: parts[2].corruptions[1]: unknown corruption 'noise(sigma=1)'; available: input-noise
mine.toml:21: parts[3].name: there is a part 'good' already
mine.toml:24: parts[3].training.batch: batch is 0, but must be at least 1
mine.toml:27: rows[1].unit: unknown unit 'adda'; did you mean 'ada'?
mine.toml:28: rows[1].paper.nowhere.mark: input should be '', 'dagger' or 'ddagger', not 'star'
mine.toml:28: rows[1].paper.nowhere.accuracy: input should be a valid number, not 'much'
mine.toml:32: rows[2].parts[1]: no part is called 'elsewhere*'
mine.toml:33: rows[2].tune.alpha: unit 'ada(alpha=0.3)' has no alpha to tune, or fixes it itself
mine.toml:34: rows[2].group: no group is called 'leakyy': there are own
mine.toml:36: rows[3]: in no group, and compared with nothing: leaky-ada; write group = "own" in each of these
mine.toml:38: rows[3].tune.alpha[1]: alpha is -1
mine.toml:40: rows[4]: there is a row 'good/leaky-ada' already
mine.toml:44: quick.training.epochs: epochs is 1.5, but must be a whole number"""


def test_parameters_and_values_that_no_unit_takes_are_said(write: Write) -> None:
    said = refusal(write(SMALL.replace('"small"', '"small"\ntune = { alfa = [1], leak = [2], c = ["learn"] }')))
    assert "tune.alfa: unknown parameter 'alfa'; did you mean 'alpha'?" in said
    assert "tune.leak[1]: leak is 2.0, but must lie in [0, 1]" in said
    assert "tune.c[1]: c is 'learn', but must be a number" in said
    said = refusal(write(SMALL.replace('"small"', '"small"\ntune = { learning_rate = [0.1, -1] }')))
    assert "tune.learning_rate[2]: learning_rate is -1" in said


def refusal(path: Path | str, **how: object) -> str:
    with pytest.raises(StudyError) as caught:
        load(path, **how)  # type: ignore[arg-type]
    return str(caught.value)


def test_all_faults_are_reported_at_once_with_file_line_and_field(write: Write) -> None:
    path = write(FAULTY)
    first, *said = refusal(path).replace(str(path), "mine.toml").split("\n")
    wanted = FAULTS.split("\n")
    assert first == f"{len(wanted)} faults in the study:"
    assert [line.strip()[: len(fault)] for line, fault in zip(said, wanted, strict=True)] == wanted


def test_a_wrong_unit_is_one_fault_beside_a_relu_row(write: Write) -> None:
    path = write(SMALL.replace('unit = "ada"', 'unit = "adda"'))
    said = refusal(path)
    assert said.startswith(f"{path}:13: rows[2].unit: unknown unit 'adda'; did you mean 'ada'?")
    assert "already" not in said


def test_data_of_ones_own_that_is_not_there_is_said_with_line_and_field(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = write(SMALL.replace('data = "digits"', 'data = "mine.npz"'))
    assert refusal(path).startswith(f"{path}:6: parts[1].data: there is no mine.npz in {tmp_path}: give a path")
    (tmp_path / "photos").mkdir()  # a folder needs no slash, as in apical.data.load
    assert load(write(SMALL.replace('data = "digits"', 'data = "photos"'))).parts[0].data == "photos"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("title = ", r"mine.toml:1: not TOML: Invalid value"),
        ("a = 1\na = 2", r"mine.toml:2: not TOML: .*overwrite"),
        ("x = " + "[" * 20_000, "not TOML"),
        ("", "3 faults(.|\n)*title: it is missing"),
        ("extends = 'nowhere'", "mine.toml:1: extends: there is no study 'nowhere': give the path"),
        ("extends = 'mine.toml'", "extends itself"),
        ("extends = 3", "mine.toml:1: extends: input should be a valid string"),
        ("format = 2", r"mine.toml:1: format: input should be 1, not 2"),
        ("extends = 'demo'\nonly_rows = ['nothing']", "no row is left to train"),
        ("extends = 'demo'\nform = 'curve'", "a curve needs a position for each part or row"),
        (
            "extends = 'demo'\nimports = ['no.such.module']",
            r"toml:2: imports\[1\]: 'no.such.module': there is no mod",
        ),
        ("extends = 'demo'\nimports = ['']", r"mine.toml:2: imports\[1\]: '': there is no module of that name"),
        ("extends = 'demo'\ntraining.loss = 'mse'", "demo:.*: parts.1.: loss is 'mse', but digits is a classification"),
    ],
)
def test_one_sentence_says_what_is_wrong(write: Write, text: str, said: str) -> None:
    assert re.search(said, refusal(write(text)))


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("\n\ndef f():\n    return 1 + ''\n\n\nf()\n", r"\(TypeError: unsupported operand .*, fails_in_a_study.py:4\)"),
        ("import no_such_module_at_all", r"\(ModuleNotFoundError: No module named 'no_.*, fails_in_a_study.py:1\)"),
        ("import json\n\njson.loads('{')", r"\(JSONDecodeError: .*, fails_in_a_study.py:3\)"),
        ("import apical\napical.register_unit('ada')", r"\(InvalidArgumentError: .*, fails_in_a_study.py:2\)"),
        ("1 +", r"\(SyntaxError: invalid syntax \(fails_in_a_study.py, line 1\)\)"),
    ],
)
def test_a_module_that_fails_says_where_and_nothing_follows_from_it(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, cause: str
) -> None:
    (tmp_path / "fails_in_a_study.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    study = "title = 'x'\nimports = ['fails_in_a_study']\n[[parts]]\nname = 'p'\ndata = 'digits'\nmodel = 'mlp-1'\n"
    trust.grant("fails_in_a_study")
    said = refusal(write(f"{study}[[rows]]\nunit = 'registered_there'\n"))
    sentence = rf"mine.toml:2: imports\[1\]: 'fails_in_a_study': the module was found but failed .*{cause}"
    assert re.fullmatch(f".*{sentence}", said)


def test_files_that_are_none() -> None:
    assert "there is no study 'nowhere'" in refusal("nowhere")
    assert "`apical study new`" in refusal("no\0name")


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_bytes(b"title = '\xff'")
    assert "it is not UTF-8" in refusal(path)


# --- groups ----------------------------------------------------------------------------------------------------------

GROUPED = """
title = "grouped"

[[groups]]
name = "modern"
title = "Modern"
baseline = "gelu"

[[parts]]
name = "digits"
data = "digits"
model = "mlp-1"

[[rows]]
unit = "gelu"
group = "modern"

[[rows]]
unit = "silu"
group = "modern"
"""


def pairs(study: Study) -> list[tuple[str, str]]:
    return [(row.name, base.name) for row, base in study.pairs]


def test_rows_are_compared_in_the_groups_that_they_name(write: Write) -> None:
    assert pairs(load(write(GROUPED))) == [("silu", "gelu")]
    standard = GROUPED.replace('group = "modern"', "").replace('"modern"', '"standard"')  # the group of their kind
    assert pairs(load(write(standard))) == [("silu", "gelu")]


def test_rows_in_no_group_are_refused_where_a_study_has_groups_of_its_own(write: Write) -> None:
    path = write(GROUPED.replace('group = "modern"', ""))
    said = 'in no group, and compared with nothing: gelu, silu; write group = "modern" in each of these'
    assert refusal(path) == f"{path}:14: rows[1]: {said}"
    path = write(f'{GROUPED}[[rows]]\nunit = "ada"\n')
    assert ":21: rows[3]: in no group, and compared with nothing: ada; write" in refusal(path)
    assert pairs(load(path, sets=["only_rows=['gelu', 'silu']"])) == [("silu", "gelu")], "it is not kept"


def test_a_group_without_a_row_is_refused(write: Write) -> None:
    path = write(f'{GROUPED}[[groups]]\nname = "old"\ntitle = "Old"\nbaseline = "silu"\n')
    said = "no row is in group 'old': write group = \"old\" in those that it compares, or remove it"
    assert refusal(path) == f"{path}:21: groups[2]: {said}; there are gelu, silu"
    quoted = write(f'{path.read_text()}[[rows]]\nunit = "relu"\ngroup = "old"\nquoted = true\n')
    assert said in refusal(quoted), "a quoted row is not trained"
    filled = write(quoted.read_text().replace("quoted = true", ""))
    assert [group.name for group in load(filled).groups] == ["modern", "old"]
    assert [group.name for group in load(filled, sets=["only_rows=['gelu', 'silu']"]).groups] == ["modern"]


def test_no_group_at_all_compares_nothing(write: Write) -> None:
    assert load(write(SMALL.replace('"small"', '"small"\ngroups = []'))).pairs == ()


def test_the_first_row_of_a_group_is_its_baseline_where_the_usual_one_is_not_trained(write: Write) -> None:
    assert pairs(load(write(SMALL.replace('"relu"', '"silu"')))) == [("ada", "silu")]
    assert pairs(load(write(SMALL), sets=["only_rows=['ada']"])) == []
    quoted = f'{SMALL}[[rows]]\nunit = "gelu"\n'.replace('"relu"', '"relu"\nquoted = true\ngroup = "standard"')
    assert pairs(load(write(quoted))) == [("gelu", "ada")]


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ('baseline = "GELU"', "groups[1].baseline: 'GELU' is not a name: {}; did you mean 'gelu'?"),
        ('baseline = "ReLU"', "groups[1].baseline: 'ReLU' is not a name: {}"),
        (
            'baseline = "gelu"\n[[parts]]\nname = "My part"\n',
            "parts[1].name: 'My part' is not a name: {}; did you mean",
        ),
    ],
)
def test_what_a_name_may_be_is_said_in_words(write: Write, written: str, said: str) -> None:
    words = "use lower-case letters, digits, '.', '_' and '-', with a letter or digit first"
    answer = refusal(write(GROUPED.replace('baseline = "gelu"', written)))
    assert said.format(words) in answer
    assert "pattern" not in answer
    assert "relu" not in answer.replace("ReLU", ""), "no row is called so"


# --- extends ---------------------------------------------------------------------------------------------------------


def test_own_rows_join_a_shipped_study(write: Write) -> None:
    mine = load(write('extends = "table-fashion-mlp"\n[[rows]]\nunit = "ada(c=1)"\nlabel = "tall ADA"\n'))
    base = load("table-fashion-mlp")
    assert mine.name == "mine"
    assert mine.base == "table-fashion-mlp"
    assert "a variant of table-fashion-mlp" in mine.notes
    assert {row.key for row in mine.rows} - {row.key for row in base.rows} == {"mlp-1/ada-c-1", "mlp-2/ada-c-1"}
    added = mine.row("mlp-1/ada-c-1")
    assert (added.label, added.group, added.tune) == ("tall ADA", "standard", base.row("mlp-1/ada").tune)
    assert mine.row("mlp-2/ada").paper == base.row("mlp-2/ada").paper


def test_parts_and_rows_are_merged_by_name(write: Write) -> None:
    text = """
extends = "table-fashion-mlp"
only_parts = ["mlp-1"]
only_rows = ["relu", "ada"]
training.epochs = 4

[[parts]]
name = "mlp-1"
training.batch = 32

[[rows]]
unit = "ada"
tune.alpha = [0.5]
"""
    mine = load(write(text))
    assert [row.key for row in mine.rows] == ["mlp-1/relu", "mlp-1/ada"]
    assert mine.part("mlp-1").data == "fashion-mnist"
    assert (spec_of(mine.part("mlp-1")).epochs, spec_of(mine.part("mlp-1")).batch) == (4, 32)
    assert mine.row("mlp-1/ada").tune == {"alpha": (0.5,)}
    assert mine.row("mlp-1/ada").paper["accuracy"].value == 88.98


def test_faults_of_a_variant_lie_in_the_file_that_holds_them(write: Write) -> None:
    write(
        'title = "below"\n[[parts]]\nname = "a"\ndata = "digits"\nmodel = "nix"\n[[rows]]\nunit = "relu"', "below.toml"
    )
    above = write('extends = "below.toml"\n\n[[rows]]\nunit = "swish"\n\n[[rows]]\nunit = "nix"\n', "above.toml")
    said = refusal(above)
    assert re.search(r"below.toml:5: parts\[1\].model: unknown network 'nix'", said)
    assert re.search(r"above.toml:7: rows\[3\].unit: unknown unit 'nix'", said)


def test_a_shipped_variant_is_a_study_of_its_own() -> None:
    study = load("imbalance-train-only")
    assert study.base == "imbalance-train-only"
    assert study.part("vgg-9").corruptions[0].endswith("train_only=True)")
    assert load("imbalance").part("vgg-9").corruptions[0].endswith("train_only=False)")


# --- --set ------------------------------------------------------------------------------------------------------------


def test_values_set_on_the_command_line_are_those_of_the_quick_variant_too() -> None:
    study = load("table-fashion-mlp", quick=True, sets=["trials=3", "training.epochs=4"])
    assert (study.trials, spec_of(study.part("mlp-1")).epochs) == (3, 4)
    assert study.notes[0].startswith("quick: 3 of 5 trials, 4 of 30 epochs")
    assert load("demo", quick=True, sets=["trials=1"]).trials == 1


def test_a_quick_variant_may_take_few_samples_and_says_so() -> None:
    study = load("input-noise", quick=True, sets=["samples=50"])
    assert "at most 50 samples of each split" in study.notes[0]
    assert {part.corruptions[0] for part in study.parts} == {"subset(samples=50)"}
    assert study.parts[0].corruptions[1].startswith("input-noise")
    assert load("input-noise").parts[0].corruptions[0].startswith("input-noise")


def test_a_part_that_is_not_there_is_said_with_those_that_are() -> None:
    with pytest.raises(StudyError, match="no part is called lenet: it has mlp-1, mlp-2"):
        load("table-fashion-mlp", sets=['only_parts=["lenet"]'])


def test_values_set_on_the_command_line() -> None:
    sets = ["trials=3", "parts.mlp-1.training.epochs=2", "rows.ada.tune.alpha=[1]", "title=my own words", "stack = 1"]
    study = load("table-fashion-mlp", sets=sets)
    assert (study.trials, study.title, study.stack) == (3, "my own words", 1)
    assert spec_of(study.part("mlp-1")).epochs == 2
    assert spec_of(study.part("mlp-2")).epochs == 30
    assert study.row("mlp-1/ada").tune == {"alpha": (1.0,)}
    assert "changed on the command line: trials=3" in study.notes
    points = load("input-noise", sets=["parts.mlp-2-sigma-0.1.training.epochs=2"])
    assert spec_of(points.part("mlp-2-sigma-0.1")).epochs == 2


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("trials", "--set trials: write key=value"),
        ("=3", "--set =3: write key=value"),
        ("trials=many", "--set trials=many: trials: input should be a valid integer, not 'many'"),
        ("training.epochs=0", "--set training.epochs=0: training.epochs: epochs is 0"),
        ("tirals=3", "--set tirals=3: tirals: there is no such field: did you mean 'trials'?"),
        ("lr=1", "--set lr=1: lr: there is no such field: did you mean 'training.learning_rate'?"),
        ("training.lr=1", "training.lr: unknown training setting 'lr'; did you mean 'learning_rate'?"),
        ("parts.mlp-9.model=lenet", "parts has no 'mlp-9.model'; available: mlp-1, mlp-2"),
        ("rows.ada=3", "--set rows.ada=3: rows[6] is a table: name one of its fields"),
        ("trials.more=1", "--set trials.more=1: trials: input should be a valid integer"),
    ],
)
def test_faults_on_the_command_line(change: str, said: str) -> None:
    assert said in refusal("table-fashion-mlp", sets=[change])


# --- what a study is ------------------------------------------------------------------------------------------------


def test_a_study_of_own_units_and_networks(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine_for_a_study.py").write_text(
        "import torch, apical\n"
        "apical.register_unit('mish_of_a_study', activation=torch.nn.Mish)\n"
        "def network(unit, *, inputs, outputs=10, width=7):\n"
        "    return torch.nn.Sequential(torch.nn.Flatten(), unit.layers().linear(inputs, width),\n"
        "                               torch.nn.Linear(width, outputs))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "data.npz").touch()
    text = """
title = "mine"
imports = ["mine_for_a_study"]

[[parts]]
name = "own"
data = "my/data.npz"
model = "mine_for_a_study:network"
dims.width = 5
training.epochs = 2

[[rows]]
unit = "relu"

[[rows]]
unit = "mish_of_a_study"
"""
    study = load(write(text), trust=True)
    assert study.imports == ("mine_for_a_study",)
    assert [trial.setting for trial in plan(study).tuning] == ["relu", "mish_of_a_study"]
    assert plan(study).tuning[0].spec.dims == {"width": 5}
    wrong = text.replace("dims.width", "dims.depth")
    assert "has no such argument: it has inputs, outputs, width" in refusal(write(wrong))


def test_partial_marks_enter_the_trials(write: Write) -> None:
    whole = load("table-utkface", sets=["only_parts=['age']"])
    some = load("table-utkface", sets=["only_parts=['age']", "parts.age.partial=partial (600 of 23,708)"])
    first, marked = plan(whole).tuning[0], plan(some).tuning[0]
    assert marked.spec.partial == "partial (600 of 23,708)"
    assert first.digest != marked.digest


def test_a_study_from_a_newer_version_is_refused() -> None:
    newer = load("demo").to_dict() | {"format": 2}
    with pytest.raises(StudyError, match="format 2, but this apical reads up to 1: update apical"):
        Study.from_dict(newer)
    with pytest.raises(StudyError, match="is not a valid study: rows"):
        Study.from_dict(load("demo").to_dict() | {"rows": 3})


def test_equal_studies_have_equal_digests() -> None:
    assert load("demo").digest == load("demo").digest != load("demo", sets=["trials=4"]).digest


def test_a_misspelt_study_is_suggested_and_a_missing_file_is_named() -> None:
    assert "did you mean 'table-fashion-mlp'?" in refusal("table-fashon-mlp")
    assert "there is no file nowhere.toml" in refusal("nowhere.toml")
