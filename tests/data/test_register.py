"""A data set of the user's own by name: added from outside, in one file, and used by a study through `imports`."""

import numpy as np
import pytest

from apical import data
from apical.data import registry
from apical.errors import DataError, InvalidArgumentError

SPIRALS = """
import numpy as np
from apical import data

def spirals():
    draws = np.random.RandomState(0)
    y = np.arange(120) % 2
    angle = draws.rand(120) * 6
    x = np.stack([angle * np.cos(angle + np.pi * y), angle * np.sin(angle + np.pi * y)], axis=1)
    return {"x": x, "y": y}

data.register("spirals", spirals, shape=(2,), class_names=("left", "right"), description="two spirals")
"""
STUDY = """
title = "Two spirals"
imports = ["my_spirals"]
trials = 1
training.epochs = 2
training.batch = 16
[[parts]]
name = "spirals"
data = "spirals"
model = "mlp-1"
dims = {inputs = 2, hidden = 4, outputs = 2}
[[rows]]
unit = "relu"
[[rows]]
unit = "ada(alpha=0.3)"
"""


@pytest.fixture(autouse=True)
def only_here(monkeypatch):
    monkeypatch.setattr(registry, "RECIPES", dict(registry.RECIPES))
    from apical.data import loading, preparation

    for module in (loading, preparation):
        monkeypatch.setattr(module, "RECIPES", registry.RECIPES)


def pair(n=40, *, shape=(3,), classes=2, dtype=np.float32):
    return {"x": np.ones((n, *shape), dtype), "y": np.arange(n) % classes}


def test_a_registered_set_is_loaded_listed_and_described_as_the_others_are(home):
    data.register("ones", pair, shape=(3,), class_names=("no", "yes"), description="ones", licence="mine")
    loaded = data.load("ones")
    assert "ones" in data.list()
    assert (loaded.name, loaded.task, loaded.shape, loaded.class_names) == (
        "ones",
        "classification",
        (3,),
        ("no", "yes"),
    )
    assert [len(part) for part in loaded.splits.values()] == [28, 6, 6]
    assert loaded.identity == data.load("ones").identity
    for sentence in ("ones: ones", "classification, 2 classes", "input: 3", "licence: mine"):
        assert sentence in data.describe("ones")


def test_parts_of_the_users_own_and_images_and_regression(home):
    def images():
        x = np.random.RandomState(1).randint(0, 256, (30, 8, 9, 3)).astype(np.uint8)
        return {"x_train": x[:20], "y_train": np.arange(20), "x_test": x[20:], "y_test": np.arange(10)}

    data.register("ages", images, shape=(3, 8, 9), task="regression")
    loaded = data.load("ages")
    assert loaded.task == "regression"
    assert loaded.class_names is None
    assert loaded.train.labels.dtype == np.float32
    assert len(loaded.test) == 10
    assert abs(float(loaded.train.inputs(range(len(loaded.train))).mean())) < 1e-6


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ({"name": "digits"}, "there is a data set 'digits' already"),
        ({"name": "a/b"}, "'a/b' cannot name a data set"),
        ({"make": 3}, "make is 3, but must be a function"),
        ({"task": "ranking"}, "unknown task 'ranking'; available: classification, regression"),
        ({"shape": ()}, r"shape is \(\), but must be like"),
        ({"shape": 2}, r"shape is 2, but must be like \(2,\)"),
        ({"shape": (0, 3)}, r"shape is \(0, 3\)"),
        ({"task": "regression", "classes": 3}, "a regression task has no classes"),
    ],
)
def test_what_cannot_be_registered(how, sentence):
    with pytest.raises(InvalidArgumentError, match=sentence):
        data.register(**{"name": "mine", "make": pair, "shape": (3,)} | how)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: (1, 2), "is a tuple, but must be a mapping of arrays: x and y, or x_train"),
        (lambda: {"x": np.ones((3, 3))}, "needs arrays x and y, or x_train, .*; it has x"),
        (lambda: pair(shape=(4,)), r"has inputs of shape \(4,\), but is registered with shape \(3,\)"),
        (lambda: pair(classes=5), "has the class 4: classes are numbered 0, 1, 2, ...; there are 2"),
        (lambda: pair() | {"y": np.linspace(0, 1, 40)}, "labels of type float64 .*: classes are whole numbers"),
        (lambda: pair() | {"y": np.arange(3)}, "they do not fit"),
    ],
)
def test_what_is_made_must_be_what_was_registered(make, sentence, home):
    data.register("mine", make, shape=(3,), classes=2)
    with pytest.raises(DataError, match=f"data set 'mine' .*{sentence}"):
        data.load("mine")


def test_a_study_names_it_through_imports_and_the_report_shows_it(home, forked, tmp_path):
    (tmp_path / "my_spirals.py").write_text(SPIRALS)
    (tmp_path / "spirals.toml").write_text(STUDY)
    for command in (
        "study run spirals.toml -d out --workers 1 --import my_spirals",
        "report out -o page",
    ):
        done = forked("-m", "apical", *command.split(), cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    page = "".join(p.read_text() for p in (tmp_path / "page").rglob("*.html"))
    assert "Two spirals" in page
    assert "ADA" in page
