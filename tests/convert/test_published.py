"""Spellings of published code: slices of a Sequential, fused biases, densities, functional settings."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.errors import ConversionError


class Sliced(nn.Module):
    """As in guided diffusion and in heads that leave out the last layer."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 2))

    def forward(self, x: Tensor, shift: Tensor | None = None) -> Tensor:
        h = self.features[:3](x)
        if shift is not None:
            h = h + shift
        return self.features[3:](h)


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_what_a_slice_of_a_sequential_runs_has_run(unit: str) -> None:
    model, x = Sliced(), torch.randn(3, 4)
    report = apical.convert_(model, unit, example_inputs=x)
    assert "did not run" not in str(report)
    assert {row.name for row in report.converted} >= {"features.1"}
    assert all("% inactive" in row.inputs for row in report.rows)
    model(x, torch.randn(8)).sum().backward()


class FusedLeakyReLU(nn.Module):
    """As in StyleGAN: the bias of the layer before it is here."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        return F.leaky_relu(x + self.bias, 0.2) * 2**0.5


def bias_gelu(y: Tensor, bias: Tensor) -> Tensor:
    x = y + bias
    return x * 0.5 * (1.0 + torch.tanh(0.79788456 * x * (1 + 0.044715 * x * x)))


def bias_first(bias: Tensor, y: Tensor) -> Tensor:
    return bias_gelu(y, bias)


class Fused(nn.Module):
    """As in Megatron."""

    def __init__(self, function: Callable[..., Tensor], *, first: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8, bias=False), nn.Linear(8, 2)
        self.bias, self.function, self.first = nn.Parameter(torch.zeros(8)), function, first

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x)
        return self.down(self.function(self.bias, y) if self.first else self.function(y, self.bias))


def check_bias(model: nn.Module, bias: nn.Parameter) -> None:
    x = torch.randn(3, 4)
    before = model(x)
    before.sum().backward()
    assert bias.grad is not None
    with torch.no_grad():
        bias.add_(1.0)
    assert not torch.equal(model(x), before)


@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("inputs", [None, torch.randn(3, 4)])
@pytest.mark.parametrize("way", ["module", "function", "bias first"])
def test_a_bias_inside_of_an_activation_stays(unit: str, inputs: Tensor | None, way: str) -> None:
    if way == "module":
        model: nn.Module = nn.Sequential(nn.Linear(4, 8, bias=False), FusedLeakyReLU(8), nn.Linear(8, 2))
        bias = model[1].bias  # type: ignore[index]
    else:
        first = way == "bias first"
        model = Fused(bias_first if first else bias_gelu, first=first)
        bias = model.bias
    report = apical.convert_(model, unit, example_inputs=inputs)
    assert len(report.converted) == 1
    check_bias(model, bias)  # type: ignore[arg-type]


@pytest.mark.parametrize("inputs", [None, torch.randn(3, 4)])
@pytest.mark.parametrize("first", [False, True])
def test_torchscript_with_a_bias_is_refused(inputs: Tensor | None, first: bool) -> None:
    scripted = torch.jit.script(bias_first if first else bias_gelu)
    reason = "what it calls is not known before it runs" if inputs is None else "inside of TorchScript"
    with pytest.raises(ConversionError, match=reason):
        apical.convert_(Fused(scripted, first=first), "ada", example_inputs=inputs)


class Density(nn.Module):
    """Of a volume renderer: from 0 to 1, with a ReLU inside."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(4, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        return 1.0 - torch.exp(-F.relu(self.outer(F.silu(self.inner(x)))) * 0.1)


@pytest.mark.parametrize("inputs", [None, torch.randn(3, 4)])
def test_what_saturates_slowly_is_a_gate(inputs: Tensor | None) -> None:
    report = apical.convert_(Density(), "ada", example_inputs=inputs)
    assert [row.kind for row in report.converted] == ["silu"]
    assert report.kept


class Functional(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.function = nn.Linear(4, 8), nn.Linear(8, 2), function

    def forward(self, x: Tensor) -> Tensor:
        return self.last(self.function(self.first(x)))


@pytest.mark.parametrize(
    ("function", "basal"),
    [
        (lambda x: F.elu(x, alpha=0.5), "elu(alpha=0.5)"),
        (lambda x: F.celu(x, 0.3), "celu(alpha=0.3)"),
        (lambda x: F.hardtanh(x, 0.0, 20.0), "hardtanh(min_val=0,max_val=20)"),
        (lambda x: F.leaky_relu(x, 0.3), "leaky_relu(leak=0.3)"),
        (lambda x: x * torch.sigmoid(1.702 * x), "swish(beta=1.702)"),
        (lambda x: F.softplus(x, beta=2.0), "softplus(beta=2)"),
    ],
)
def test_the_call_that_keeps_a_function_is_named_and_works(function: Callable[[Tensor], Tensor], basal: str) -> None:
    model, x = Functional(function), torch.randn(5, 4)
    before = model(x)
    unit, wanted = "pyramidal(basal=tanh,apical=ada)", f"pyramidal(basal={basal},apical=ada)"
    with pytest.raises(ConversionError) as error:
        apical.convert_(model, unit, keep_function=True)
    assert f"convert_(model, {wanted!r}, keep_function=True)" in str(error.value)
    apical.convert_(model, wanted, keep_function=True)
    torch.testing.assert_close(model(x), before)


def test_a_function_that_no_unit_has_is_told_apart_by_a_value() -> None:
    class Capped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.gelu(x).clamp(max=9.0)

    model = nn.Sequential(nn.Linear(4, 8), Capped(), nn.Linear(8, 2))
    with pytest.raises(
        ConversionError, match=r"is gelu \(written as Capped, 9 at 1\d\.\d*, where the unit's is 1\d\.\d*\)"
    ):
        apical.convert_(model, "pyramidal(basal=gelu,apical=ada)", keep_function=True)


def test_keep_function_is_checked_on_the_example_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Stepped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x > 5e6, 0.0, F.relu(x))

    model, x = nn.Sequential(nn.Linear(1, 1), Stepped()), torch.full((2, 1), 1e7)
    nn.init.ones_(model[0].weight)
    with pytest.raises(ConversionError, match="on example_inputs the network computes something else than before"):
        apical.convert_(model, "pynada", keep_function=True, example_inputs=x)
    assert type(model[0]) is nn.Linear
    assert type(model[1]) is Stepped
