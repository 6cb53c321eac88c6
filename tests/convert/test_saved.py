"""A saved conversion: carried out again on a fresh network, before its weights are loaded."""

import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.errors import ApicalError, ConversionError


class Gated(nn.Module):
    """Looks at values, shares its activation, and writes one out."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.GELU()
        self.norm = nn.LayerNorm(4)

    def forward(self, x: Tensor, gate: bool = True) -> Tensor:
        if x.isnan().any():
            return x
        y = self.act(self.one(x))
        y = self.act(self.norm(self.two(y)) + x)
        return y * F.relu(self.one(y)) if gate else y


def network() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), Gated(), nn.Linear(4, 2))


X = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
UNITS = ["ada(alpha=0.5)", "pynada(alpha=learn)", "mish", "pyramidal(basal=gelu,apical=ada)"]


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("shown", [True, False])
def test_a_fresh_network_becomes_the_same(unit: str, shown: bool, tmp_path: Path) -> None:
    model, fresh = network(), network()
    report = apical.convert_(model, unit, example_inputs=X if shown else None)
    assert (report.kept == []) == (shown or not apical.Unit.parse(unit).pyramidal)
    report.save(tmp_path / "conversion.json")
    again = apical.convert.load(fresh, tmp_path / "conversion.json")
    assert [row.name for row in again.converted] == [row.name for row in report.converted]
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(X), model(X))
    assert torch.equal(fresh[2](X, gate=False), model[2](X, gate=False))
    again.undo(discard=True)
    assert [type(part) for part in fresh.modules()] == [type(part) for part in network().modules()]


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_copies_pickles_and_gradients_of_what_keeps_its_code(unit: str) -> None:
    model = network()
    apical.convert_(model, unit, example_inputs=X)
    expected = model(X)
    expected.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(X), expected)
        with torch.no_grad():
            other[3].bias.add_(1)
        assert not torch.equal(other(X), model(X))


class Options(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        y = F.relu(self.one(x) + x)
        y = F.gelu(self.two(y))
        return y if mask is None else y * mask


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_wired_neuron_compiles_and_exports(unit: str) -> None:
    model = Options()
    report = apical.convert_(model, unit)
    assert report.kept == []
    model.eval()
    expected = model(X)
    assert torch.allclose(torch.compile(model, backend="aot_eager", fullgraph=True)(X), expected, atol=1e-6)
    assert torch.allclose(torch.export.export(model, (X,)).module()(X), expected, atol=1e-6)
    assert torch.equal(model(X, torch.ones(4)), expected)


def test_several_conversions_are_saved_in_order(tmp_path: Path) -> None:
    model, fresh = network(), network()
    apical.convert_(model, "ada", kinds=["relu"])
    report = apical.convert_(model, "mish", kinds=["gelu"])
    report.save(tmp_path / "conversion.json")
    assert [each["unit"] for each in json.loads((tmp_path / "conversion.json").read_text())["conversions"]] == [
        "ada", "mish"
    ]  # fmt: skip
    apical.convert.load(fresh, report.record)
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(fresh(X), model(X))


def test_another_network_is_refused_and_stays_as_it_was() -> None:
    report = apical.convert_(network(), "pynada", example_inputs=X)
    other = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4))
    with pytest.raises(ConversionError, match=r"is not the network that was converted: it has no activation '2.act'"):
        apical.convert.load(other, report.record)
    normed = network()
    normed[0] = nn.BatchNorm1d(4)
    with pytest.raises(
        ConversionError, match=r"1 would stay .no layer is recorded to feed it., but was to become one layer"
    ):
        apical.convert.load(normed, report.record)
    assert [type(part) for part in other] == [nn.Linear, nn.ReLU, nn.Linear]


@pytest.mark.parametrize(
    ("layers", "reason"),
    [
        ((nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2), nn.ReLU()), "it has an activation '3' more"),
        ((nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2)), "1 is gelu, not relu"),
    ],
)
def test_a_network_with_other_activations_is_refused(
    layers: tuple[nn.Module, ...], reason: str, tmp_path: Path
) -> None:
    apical.convert_(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), "ada").save(
        tmp_path / "conversion.json"
    )
    with pytest.raises(ConversionError, match=reason):
        apical.convert.load(nn.Sequential(*layers), tmp_path / "conversion.json")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": 99, "conversions": []}'])
def test_what_is_no_saved_conversion(content: str, tmp_path: Path) -> None:
    file = tmp_path / "conversion.json"
    file.write_text(content)
    with pytest.raises(ConversionError, match=r"give what report.save wrote"):
        apical.convert.load(network(), file)


@pytest.mark.parametrize("part", ["unit", "root", "kinds", "also", "activations", "kept", "entry", "name", "place"])
@pytest.mark.parametrize("value", [5, {}, [5], [["nonsense"]], 1.5])
def test_a_saved_conversion_of_another_form_is_refused_in_one_sentence(part: str, value: Any, tmp_path: Path) -> None:
    apical.convert_(network(), "ada").save(tmp_path / "conversion.json")
    document = json.loads((tmp_path / "conversion.json").read_text())
    (record,) = document["conversions"]
    if part == "entry":
        record["activations"][0] = value
    elif part in ("name", "place"):
        record["activations"][0][part] = value
    else:
        record[part] = value
    with pytest.raises(ApicalError) as refused:
        apical.convert.load(network(), document)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"affine": ""}, "there is no layer ''"),
        ({"affine": "2"}, "there is no layer '2'"),
        ({"affine": "1"}, "there is no layer '1'"),
        ({"affine": "2.__class__"}, "there is no layer '2.__class__'"),
        ({"norm": ""}, "there is no norm ''"),
        ({"norm": "2.one"}, "there is no norm '2.one'"),
        ({"norm": "2.nothing"}, "there is no norm '2.nothing'"),
        ({"sums": 1 << 40}, "not a saved conversion"),
        ({"sums": -1}, "not a saved conversion"),
    ],
)
def test_a_saved_conversion_names_layers_and_norms_alone(change: dict[str, Any], reason: str) -> None:
    """A norm is copied for each branch: a copy of the whole network for each activation would fill the memory."""
    record = apical.convert_(network(), "pynada", example_inputs=X).record
    record["conversions"][0]["activations"][1] |= change
    with pytest.raises(ConversionError, match=re.escape(reason)):
        apical.convert.load(network(), record)


def test_a_lightning_checkpoint_loads_with_its_conversion(tmp_path: Path) -> None:
    """The recipe of the docs, with the two hooks that Lightning calls around a checkpoint."""

    class Module(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = network()

        def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            checkpoint["conversion"] = self.report.record

        def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
            self.report = apical.convert.load(self.net, checkpoint["conversion"])

    module, fresh = Module(), Module()
    module.report = apical.convert_(module.net, "pynada", example_inputs=X)
    checkpoint = {"state_dict": module.state_dict()}
    module.on_save_checkpoint(checkpoint)
    torch.save(checkpoint, tmp_path / "last.ckpt")
    loaded = torch.load(tmp_path / "last.ckpt", weights_only=True)
    fresh.on_load_checkpoint(loaded)
    fresh.load_state_dict(loaded["state_dict"])
    assert torch.equal(fresh.net(X), module.net(X))
