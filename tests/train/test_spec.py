import json
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apical.errors import InvalidArgumentError
from apical.train import Execution, TrialSpec
from apical.train import spec as spec_module
from apical.train.spec import PROTOCOLS

values = st.one_of(st.booleans(), st.integers(-(10**6), 10**6), st.floats(-1e6, 1e6), st.text())
specs = st.builds(
    TrialSpec,
    data=st.text(),
    model=st.text(),
    unit=st.sampled_from(["relu", "ada(alpha=0.3)", "pynada(alpha=learn,c=1)"]),
    dims=st.dictionaries(st.text(), st.one_of(values, st.lists(values, max_size=3)), max_size=3),
    corruptions=st.lists(st.sampled_from(["input-noise(sigma=0.2)", "imbalance"]), max_size=2),
    milestones=st.lists(st.integers(0, 99), max_size=3),
    learning_rate=st.floats(1e-9, 1e3),
    clip=st.none() | st.floats(1e-3, 1e3),
    partial=st.none() | st.text(),
    seed=st.integers(0, 2**40),
)


@given(specs)
def test_json_and_toml_give_the_same_trial_back(spec):
    for again in (TrialSpec.from_json(spec.to_json()), TrialSpec.from_toml(spec.to_toml())):
        assert again == spec
        assert again.digest == spec.digest
        assert hash(again) == hash(spec)


def test_executions_survive_json_and_toml():
    how = Execution(devices=2, strategy="ddp", threads=3, compile=True, root="here", checkpoint_every=1.5)
    assert Execution.from_json(how.to_json()) == how == Execution.from_toml(how.to_toml())


def test_every_field_changes_the_digest():
    spec = TrialSpec(data="digits", model="mlp-1")
    listed = {
        "data": "xor", "model": "mlp-2", "unit": "tanh", "dims": {"hidden": 3}, "split": "actor",
        "corruptions": ("imbalance",), "loss": "binary", "metric": "top-5", "milestones": (3,), "optimiser": "sgd",
        "precision": "bf16-mixed", "robustness": ("calibration",), "population": 50,
    }  # fmt: skip
    hints = get_type_hints(TrialSpec)
    names = [f.name for f in fields(TrialSpec)]
    others = {n: listed[n] if n in listed else another(getattr(spec, n), hints[n]) for n in names}
    evolved = replace(spec, optimiser="es")  # gradients have no population
    specs = [replace(evolved if k in ("population", "sigma") else spec, **{k: v}) for k, v in others.items()]
    assert len({s.digest for s in (spec, evolved, *specs)}) == len(others) + 2


def another(value, hint):
    """Another value of a field's type, where that is enough to make a sound one."""
    if get_origin(hint) is Literal:
        return next(choice for choice in get_args(hint) if choice != value)
    if value is None:
        return another(next(t for t in get_args(hint) if t is not type(None))(), None)
    if isinstance(value, bool):
        return not value
    return f"{value} other" if isinstance(value, str) else value + 1 if isinstance(value, int) else value / 2 + 0.01


def test_the_digest_of_a_trial_is_the_same_for_ever():
    spec = TrialSpec.paper("fashion-mnist", "lenet", unit="ada(alpha=0.3)")
    assert spec.digest.startswith(DIGEST), "the meaning of old results changed: raise RESULTS_VERSION"


DIGEST = "6db7710f2bd1b2f5"


def test_a_field_added_later_changes_no_digest_while_it_has_its_default(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Later(TrialSpec):
        warmup: int = 0

        __hash__ = TrialSpec.__hash__

    monkeypatch.setitem(spec_module.LATER_DEFAULTS, "warmup", 0)
    old, new = (cls.paper("fashion-mnist", "lenet", unit="ada(alpha=0.3)") for cls in (TrialSpec, Later))
    assert new.digest == old.digest
    assert new.to_json() == old.to_json()
    assert spec_module.digest(old.as_dict() | {"warmup": 0}) == old.digest
    warm = replace(new, warmup=3)
    assert warm.digest != old.digest
    assert Later.from_json(warm.to_json()) == warm
    assert Later.from_json(old.to_json()) == new
    assert frozenset(old.as_dict()) == spec_module.VERSION_1


def test_spellings_of_one_trial_are_one_trial():
    a = TrialSpec(data="digits", model="mlp-1", unit="ada( alpha=0.30 )", learning_rate=1, corruptions=["imbalance"])
    b = TrialSpec(data="digits", model="mlp-1", unit="ada(alpha=0.3)", learning_rate=1.0, corruptions=("imbalance()",))
    assert a == b
    assert a.digest == b.digest


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("epochs", 0, "epochs is 0, but must be at least 1"),
        ("epochs", 1.5, "epochs is 1.5, but must be a whole number"),
        ("epochs", True, "must be a whole number"),
        ("learning_rate", 0.0, "learning_rate is 0.0, but must be at least 1e-12"),
        ("learning_rate", float("inf"), "must be a finite number"),
        ("loss", "hinge", "unknown loss 'hinge'; available: cross-entropy, binary, squared, l1, mse"),
        ("metric", "f1", "unknown metric 'f1'; available: accuracy"),
        ("precision", "8", "precision is '8'"),
        ("unit", "adda", "unknown unit 'adda'"),
        ("corruptions", "imbalance", "must be a list"),
        ("dims", {"hidden": None}, "dims.hidden is None"),
    ],
)
def test_values_that_make_no_sense_are_refused_in_one_sentence(field, value, words):
    with pytest.raises(InvalidArgumentError, match=words.replace("(", r"\(")):
        TrialSpec(**({"data": "digits", "model": "mlp-1"} | {field: value}))


def test_a_mistyped_or_missing_field_is_named():
    with pytest.raises(InvalidArgumentError, match="no field 'epoch'; did you mean 'epochs'"):
        TrialSpec.from_dict({"data": "digits", "model": "mlp-1", "epoch": 3})
    with pytest.raises(InvalidArgumentError, match="model"):
        TrialSpec.from_dict({"data": "digits"})
    for text in ("[1]", "{", "[" * 100_000):
        with pytest.raises(InvalidArgumentError, match="TrialSpec"):
            TrialSpec.from_json(text)
    with pytest.raises(InvalidArgumentError, match="not the TOML"):
        TrialSpec.from_toml("data = ")


def test_the_learning_rate_falls_at_each_milestone():
    spec = TrialSpec(data="digits", model="mlp-1", learning_rate=1.0, milestones=(2, 4), decay=0.5, epochs=6)
    assert [spec.rate(e) for e in range(6)] == [1.0, 1.0, 0.5, 0.5, 0.25, 0.25]


def test_the_papers_protocols():
    lenet, vgg = (TrialSpec.paper("fashion-mnist", m) for m in ("lenet", "vgg-9"))
    assert (lenet.epochs, lenet.batch, lenet.rate(14), lenet.rate(15)) == (30, 64, 1e-3, pytest.approx(1e-4))
    assert (vgg.epochs, vgg.rate(49), vgg.rate(50), vgg.l2) == (100, 1e-4, pytest.approx(1e-5), 5e-4)
    assert (lenet.pad, TrialSpec.paper("fashion-mnist", "mlp-1").pad) == (2, 0)
    age = TrialSpec.paper("utkface-age", "resnet-50")
    assert (age.loss, age.metric, age.batch, age.epochs) == ("l1", "mae", 10, 100)
    crema = TrialSpec.paper("crema-d", "resnet-18")
    assert (crema.augment, crema.batch, crema.learning_rate, crema.epochs) == (True, 16, 5e-4, 70)
    sine = TrialSpec.paper("sin", "mlp-approx")
    assert sine.epochs * sine.passes == 5000


@pytest.mark.parametrize(("data", "model"), PROTOCOLS)
def test_every_protocol_makes_a_spec_and_takes_changes(data, model):
    spec = TrialSpec.paper(data, model, unit="pynada", epochs=2, seed=7)
    assert (spec.epochs, spec.seed, json.loads(spec.to_json())["unit"]) == (2, 7, "pynada")
    assert "/" not in spec.name
