"""The factory that networks ask: one code for every kind of neuron."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from apical import Unit, register_unit
from apical.errors import InvalidArgumentError
from apical.nn import kinds
from apical.nn.kinds import PAPER


class Block(nn.Module):
    """A residual block as networks write it, without a word about the unit."""

    def __init__(self, unit: str) -> None:
        super().__init__()
        layers = Unit.parse(unit).layers()
        self.first = layers.conv(2, 4, 4, 3, padding=1, bias=False, norm=nn.BatchNorm2d)
        self.second = layers.conv(2, 4, 4, 3, padding=1, bias=False, norm=nn.BatchNorm2d)
        self.squeeze = layers.linear(4, 2)
        self.excite = nn.Linear(2, 4)

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x), residual=x)
        return y * self.excite(self.squeeze(y.mean((2, 3)))).sigmoid()[:, :, None, None]


@pytest.mark.parametrize("unit", Unit.kinds())
def test_one_block_for_every_kind(unit: str) -> None:
    torch.manual_seed(0)
    block = Block(unit)
    y = block(torch.randn(3, 4, 5, 5))
    assert y.shape == (3, 4, 5, 5)
    y.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in block.parameters())
    weights = sum(p.numel() for name, p in block.named_parameters() if name.endswith("weight") and p.dim() == 4)
    assert weights == 2 * 4 * 4 * 9 * (2 if Unit(unit).pyramidal else 1)


@pytest.mark.parametrize("unit", PAPER)
def test_blocks_compile_and_export(unit: str) -> None:
    torch.compiler.reset()
    block = Block(unit).eval()
    x = torch.randn(2, 4, 5, 5)
    torch.testing.assert_close(torch.compile(block, fullgraph=True, backend="aot_eager")(x), block(x))
    torch.testing.assert_close(torch.export.export(block, (x,)).module()(x), block(x))


@pytest.mark.parametrize("unit", Unit.kinds())
def test_a_neuron_adds_the_residual_before_its_basal_activation(unit: str) -> None:
    torch.manual_seed(0)
    layers = Unit(unit).layers()
    layer = layers.linear(3, 2).eval()  # rrelu draws while training
    x, residual = torch.randn(5, 3), torch.randn(5, 2)
    if layers.pyramidal:
        basal, apical = nn.functional.linear(x, layer.weight).chunk(2, -1)
        expected = layer.basal(basal + residual) + layer.apical(apical)
    else:
        expected = layer.activation(layer.affine(x) + residual)
    torch.testing.assert_close(layer(x, residual=residual), expected)


@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("layer", [nn.Linear(4, 3), nn.Conv1d(4, 3, 1), nn.Conv2d(4, 3, 1), nn.Conv3d(4, 3, 1)])
def test_from_standard_continues_a_trained_layer(unit: str, layer: nn.Module) -> None:
    neuron = Unit(unit).layers().from_standard(layer)
    x = torch.randn(2, 4) if isinstance(layer, nn.Linear) else torch.randn(2, 4, *[2] * (layer.weight.dim() - 2))
    if unit == "ada":
        expected = neuron.activation(layer(x))
    else:
        with torch.no_grad():
            neuron.apical_weight.zero_()
        expected = torch.relu(layer(x))
    torch.testing.assert_close(neuron(x), expected)


def test_a_longer_dendrite_through_the_factory() -> None:
    neuron = Unit("pynrbf").layers().conv(
        2, 4, 8, 3, padding=1, norm=nn.BatchNorm2d, apical_in_channels=2, apical_stride=2
    )  # fmt: skip
    assert neuron(torch.randn(2, 4, 5, 5), torch.randn(2, 2, 10, 10)).shape == (2, 8, 5, 5)


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: Unit("pynada").layers().activation(), "ask for linear\\(\\) or conv\\(\\), or unit.basal.layers"),
        (lambda: Unit("ada").layers().branches(), "a standard neuron has no apical branch"),
        (lambda: Unit("ada").layers().linear(2, 2, apical_in_features=3), "no apical dendrite to lengthen"),
        (lambda: Unit("ada").layers().conv(2, 2, 2, 1, apical_in_channels=3), "no apical dendrite to lengthen"),
        (lambda: Unit("ada").layers().conv(4, 2, 2, 1), "available: 1, 2, 3"),
        (lambda: Unit("ada").layers().from_standard(nn.ReLU()), "no pyramidal neuron can be made from ReLU"),
    ],
)
def test_bad_input_is_one_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        call()


def test_basal_layers_share_the_values_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kinds, "_REGISTERED", {})
    register_unit("test_swish_ada", basal="swish", apical="ada")
    layers = Unit.parse("test_swish_ada").layers()
    standard, pyramidal, last = layers.basal.linear(3, 3), layers.linear(3, 3), layers.basal.linear(3, 3)
    assert not layers.basal.pyramidal
    assert pyramidal.basal.owner is standard.activation
    assert last.activation.owner is standard.activation
    model = nn.Sequential(standard, pyramidal, last)
    assert [name for name in model.state_dict() if name.endswith("beta")] == ["0.activation.beta"]
