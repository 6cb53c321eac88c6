"""Values that a trace would freeze, and layers that are called with more than an input."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import apical

SCALE = torch.ones(8)


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.table = nn.Linear(8, 8), nn.Linear(8, 8), torch.ones(8)
        self.register_buffer("u", torch.ones(8))


class Penalty(Two):
    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x)))) + sum(p.pow(2).sum() for p in self.parameters())


class Attribute(Two):
    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x)))) * (self.table * 2)


class Buffers(Two):
    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x)))) * (dict(self.named_buffers())["u"] * 2)


class Global(Two):
    def forward(self, x):
        return F.relu(self.b(F.relu(self.a(x)))) * SCALE


@pytest.mark.parametrize("kind", [Penalty, Attribute, Buffers, Global])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_forward_that_computes_with_tensors_of_others_reads_them_anew(kind, unit, with_inputs, monkeypatch):
    torch.manual_seed(0)
    model, x = kind(), torch.randn(3, 8)
    if (kind, unit, with_inputs) == (Penalty, "pynada", True):  # new weights are penalised too: another function
        with pytest.raises(apical.errors.ApicalError, match="computes something else"):
            apical.convert_(model, unit, example_inputs=x)
        return
    report = apical.convert_(model, unit, example_inputs=x if with_inputs else None)
    assert len(report.converted) == 2
    before = model(x)
    with torch.no_grad():
        for tensor in (model.table, model.u):
            tensor.mul_(5)
    monkeypatch.setitem(globals(), "SCALE", 5 * SCALE)
    if kind is Penalty:
        penalty = sum(p.pow(2).sum() for p in model.parameters())
        hidden = before - penalty
        with torch.no_grad():
            extra = nn.Parameter(torch.full((3,), 2.0))
            model.extra = extra
        torch.testing.assert_close(model(x) - hidden, (penalty + extra.pow(2).sum()).expand(3, 8))
        model(x).sum().backward()
        assert extra.grad is not None
    else:
        torch.testing.assert_close(model(x), 5 * before)
    copy.deepcopy(model)(x)


class Made(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        places = torch.arange(8)[None] * 2
        return self.b(F.relu(self.a(x))) + places + torch.tensor(0.5)


def test_tensors_that_a_forward_makes_are_no_hindrance():
    model, x = Made(), torch.randn(3, 8)
    before = model(x)
    report = apical.convert_(model, "pynada", keep_function=True)
    assert [row.after for row in report.converted] == ["PyramidalLinear"]
    torch.testing.assert_close(model(x), before)


class Up(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.c = nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 1)

    def forward(self, x, skip):
        return F.relu(self.c(F.relu(self.up(x, output_size=skip.shape[-2:])) + skip))


@pytest.mark.parametrize("with_inputs", [True, False])
def test_a_layer_that_is_called_with_an_output_size_passes_it_on(with_inputs):
    torch.manual_seed(0)
    model, inputs = Up(), (torch.randn(1, 3, 4, 4), torch.randn(1, 4, 8, 8))
    before = model(*inputs)
    report = apical.convert_(model, "pynada", keep_function=True, example_inputs=inputs if with_inputs else None)
    assert len(report.converted) == 2
    torch.testing.assert_close(model(*inputs), before)
    odd = torch.randn(1, 4, 7, 7)
    assert model(inputs[0], odd).shape == odd.shape
