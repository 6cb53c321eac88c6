"""keep_function=True: the same outputs at first, and a branch that learns from the first step on."""

import copy
import math
from typing import Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.convert.branch import ApicalBranch
from apical.errors import ConversionError
from apical.nn.pyramidal import _Pyramidal


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.conv2(F.relu(self.bn1(self.conv1(x)))))


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), Block(),
        nn.AvgPool2d(2), nn.Flatten(), nn.Linear(128, 32), nn.ReLU(), nn.Linear(32, 10),
    )  # fmt: skip


@pytest.fixture(scope="module")
def digits() -> tuple[Tensor, Tensor]:
    images, labels = load_digits(return_X_y=True)
    return torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)


def train(model: nn.Module, x: Tensor, y: Tensor, steps: int, rate: float = 1e-2) -> Tensor:
    optimiser = torch.optim.Adam(model.parameters(), lr=rate)
    for step in range(steps):
        part = slice(64 * step % 1024, 64 * step % 1024 + 64)
        optimiser.zero_grad()
        loss = F.cross_entropy(model(x[part]), y[part])
        loss.backward()
        optimiser.step()
    return loss.detach()


def apical_scales(model: nn.Module) -> list[Tensor]:
    """What the apical branches start from: their norm's gamma, or their weight."""
    found = []
    for module in model.modules():
        if isinstance(module, ApicalBranch):
            found.append(module.affine.weight if module.norm is None else module.norm.weight)
        elif isinstance(module, _Pyramidal):
            found.append(module.apical_weight if module.norm is None else module.norm.weight[module.outputs :])
    return found


@pytest.mark.parametrize("unit", ["pynada(alpha=0.3,c=1)", "pynada(alpha=learn)", "pynswish"])
@pytest.mark.parametrize("mode", [True, False])
def test_the_output_is_the_originals_within_a_millionth(unit: str, mode: bool, digits: tuple[Tensor, Tensor]) -> None:
    model = network()
    train(model, *digits, steps=10)  # trained weights: no warning, as the function stays
    original = copy.deepcopy(model)
    report = apical.convert_(model, unit, keep_function=True)
    assert len(report.converted) == 4
    expected, got = (net.train(mode)(digits[0][:200]).detach().double() for net in (original, model))
    assert float((got - expected).abs().max() / expected.abs().max()) <= 1e-6


def test_the_gradient_reaches_every_apical_branch_at_the_first_step(digits: tuple[Tensor, Tensor]) -> None:
    model = network()
    apical.convert_(model, "pynada(c=1)", keep_function=True)
    F.cross_entropy(model(digits[0][:64]), digits[1][:64]).backward()
    for module in model.modules():
        if isinstance(module, ApicalBranch):
            assert module.affine.weight.grad.abs().max() > 0
        elif isinstance(module, _Pyramidal):
            gradient = module.weight.grad if module.norm is None else module.norm.weight.grad
            assert gradient[module.outputs :].abs().max() > 0


def test_the_gradient_of_a_branch_at_zero_is_e_to_the_c_times_upstream() -> None:
    model = nn.Sequential(nn.Linear(1, 1, bias=False), nn.ReLU())
    apical.convert_(model, "pynada(c=1)", keep_function=True)
    model(torch.tensor([[2.0]])).backward()
    assert model[0].weight.grad[1].item() == pytest.approx(2 * math.e)


def test_a_short_training_on_real_digits_moves_the_branches(digits: tuple[Tensor, Tensor]) -> None:
    model = network()
    train(model, *digits, steps=30)
    before = copy.deepcopy(model)
    apical.convert_(model, "pynada", keep_function=True)
    scales = apical_scales(model)
    assert len(scales) == 4
    assert all(scale.abs().max() == 0 for scale in scales)
    loss = train(model, *digits, steps=48)
    assert all(scale.abs().max() > 1e-3 for scale in apical_scales(model))
    assert loss < F.cross_entropy(before(digits[0][960:1024]), digits[1][960:1024])
    model.eval()
    held_out = (model(digits[0][1024:]).argmax(1) == digits[1][1024:]).float().mean()
    assert held_out > 0.85


def test_it_is_refused_where_the_original_is_not_the_basal_activation() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.GELU())
    with pytest.raises(ConversionError, match="3 is gelu, but the basal activation of 'pynada' is 'relu'"):
        apical.convert_(model, "pynada", keep_function=True)
    assert type(model[0]) is nn.Linear
    apical.convert_(model, "pynada", keep_function=True, filter_fn=lambda name, module: isinstance(module, nn.ReLU))
    assert type(model[0]) is apical.PyramidalLinear


def test_equal_functions_count_as_equal_whatever_they_are_called() -> None:
    leaky = nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.01))
    apical.convert_(leaky, "leaky_pynada", keep_function=True)
    with pytest.raises(ConversionError, match="leaky_relu"):
        apical.convert_(nn.Sequential(nn.Linear(4, 4), nn.LeakyReLU(0.2)), "leaky_pynada", keep_function=True)
    same = nn.Sequential(nn.Linear(4, 4), nn.SiLU())
    apical.convert_(same, "swish", keep_function=True)
    assert isinstance(same[1], apical.Swish)


@pytest.mark.parametrize("unit", ["pynrelu", "pynrbf"])
def test_it_is_refused_where_a_branch_at_zero_would_not_learn_or_not_be_zero(unit: str) -> None:
    with pytest.raises(ConversionError, match="must be 0 at 0 with a nonzero derivative"):
        apical.convert_(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), unit, keep_function=True)


class TanhGELU(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


SOURCES = [
    nn.GELU(), nn.GELU("tanh"), nn.SiLU(), nn.Mish(), nn.ELU(0.5), nn.Hardswish(), nn.LeakyReLU(0.3), nn.Softplus(),
    nn.CELU(0.7), TanhGELU(),
]  # fmt: skip


@pytest.mark.parametrize("source", SOURCES, ids=str)
@pytest.mark.parametrize("unit", ["pynada(alpha=0.5)", "ada"])
def test_the_call_in_the_refusal_keeps_the_function_of_any_activation(source: nn.Module, unit: str) -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), source, nn.Linear(8, 2)), torch.randn(6, 4)
    before = model(x)
    kinds = None if isinstance(source, TanhGELU) else type(source).__name__.lower().replace("leakyrelu", "leaky_relu")
    with pytest.raises(ConversionError, match=r"convert_\(model, '[^']+', keep_function=True\)$") as caught:
        apical.convert_(model, unit, keep_function=True, kinds=kinds)
    call = str(caught.value).partition(": ")[2].rpartition(": ")[2]
    call = call.replace("keep_function=True", f"keep_function=True, kinds={kinds!r}")
    report = eval(call, {"convert_": apical.convert_, "model": model})
    assert len(report.converted) == 1
    assert torch.allclose(model(x), before, rtol=1e-5, atol=1e-6)


def test_a_network_of_several_kinds_is_converted_kind_by_kind() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 2))
    x = torch.randn(6, 4)
    before = model(x)
    with pytest.raises(ConversionError) as caught:
        apical.convert_(model, "pynada", keep_function=True)
    assert "convert_(model, 'pyramidal(basal=gelu,apical=ada)', kinds=['gelu'], keep_function=True)" in str(
        caught.value
    )
    apical.convert_(model, "pynada", kinds=["relu"], keep_function=True)
    apical.convert_(model, "pyramidal(basal=gelu,apical=ada)", kinds=["gelu"], keep_function=True)
    assert torch.allclose(model(x), before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("unit", [nn.Mish, nn.ELU(0.5), F.silu, lambda: nn.GELU("tanh"), "mish"])
def test_an_activation_is_a_unit(unit: object) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    report = apical.convert_(model, unit)  # type: ignore[arg-type]
    assert len(report.converted) == 1
    assert not isinstance(model[1], nn.ReLU)
    assert model(torch.randn(2, 4)).shape == (2, 4)


def test_two_functions_of_one_kind_are_told_apart_by_name() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 8), nn.GELU("tanh"), nn.Linear(8, 2))
    x = torch.randn(6, 4)
    before = model(x)
    for unit in ("pynada", "pynada", "ada"):  # each call as the refusal before it says
        with pytest.raises(ConversionError) as caught:
            apical.convert_(model, unit, keep_function=True)
        call = str(caught.value).rpartition("': ")[2].partition(", and the others")[0]
        eval(call, {"convert_": apical.convert_, "model": model})
        if not any(isinstance(part, nn.GELU) for part in model):
            break
    assert [type(model[i]) for i in (0, 2)] == [apical.PyramidalLinear] * 2
    assert torch.allclose(model(x), before, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_what_is_made_without_gradients_learns(mode: Any) -> None:
    model, x = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), torch.randn(6, 4)
    before = model(x)
    with mode():
        apical.convert_(model, "pynada(alpha=learn)", keep_function=True, example_inputs=x)
    assert torch.allclose(model(x), before, rtol=1e-5, atol=1e-6)
    model(x).sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


class TwoWays(nn.Module):
    """Where a graph shows one way, the other calls the same activation on something else."""

    def __init__(self, *, module: bool) -> None:
        super().__init__()
        self.affine, self.act, self.module = nn.Linear(4, 4), nn.ReLU() if module else None, module

    def forward(self, x: Tensor, again: bool | None = None) -> Tensor:
        z = self.affine(x)
        if self.module:
            if again is not None:
                z = self.act(z) - 1
            return self.act(z)  # type: ignore[no-any-return]
        if again is not None:
            z = F.relu(z) - 1
        return F.relu(z)


@pytest.mark.parametrize("module", [True, False])
def test_the_way_that_no_graph_shows_keeps_its_function_too(module: bool) -> None:
    model, x = TwoWays(module=module), torch.randn(6, 4)
    before = model(x), model(x, again=True)
    report = apical.convert_(model, "pynada", keep_function=True)
    assert torch.allclose(model(x), before[0], rtol=1e-6, atol=1e-6)
    assert torch.allclose(model(x, again=True), before[1], rtol=1e-6, atol=1e-6)
    rows = [row for row in report.rows if "as the model is set" not in row.reason]
    assert len({row.name for row in rows}) == len(rows) == 2
    assert len([row for row in rows if not row.converted]) == 1


class LoRA(nn.Linear):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.down, self.up = nn.Parameter(torch.randn(2, inputs)), nn.Parameter(torch.randn(outputs, 2))

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + x @ self.down.T @ self.up.T


class Noisy(nn.Linear):
    """Of Rainbow's Q-networks: noise in training alone."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.sigma = nn.Parameter(torch.full((outputs, inputs), 0.1))
        self.register_buffer("noise", torch.randn(outputs, inputs))

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.weight + self.training * self.sigma * self.noise, self.bias)


class Standardised(nn.Conv2d):
    def forward(self, x: Tensor) -> Tensor:
        variance, mean = torch.var_mean(self.weight, dim=(1, 2, 3), keepdim=True)
        return F.conv2d(x, (self.weight - mean) / variance.sqrt(), self.bias)


class OnePlus(nn.RMSNorm):
    """Gemma's norm."""

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, 1 + self.weight, 1e-6)


class Scaled(nn.Linear):
    """A subclass whose weight is all it has."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Fed(nn.Module):
    def __init__(self, layer: nn.Module, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layer, self.norm = layer, norm or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm(self.layer(x)))


ODD = {
    "LoRA": lambda: Fed(LoRA(6, 8)),
    "Noisy": lambda: Fed(Noisy(6, 8)),
    "OnePlus": lambda: Fed(nn.Linear(6, 8), OnePlus(8)),
    "Standardised": lambda: Fed(Standardised(6, 8, 1)),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("shown", [False, True])
def test_a_layer_that_is_not_zero_with_a_weight_of_zero_is_refused(name: str, shown: bool) -> None:
    model, x = ODD[name](), torch.randn(3, 6, *[4, 4] * (name == "Standardised"))
    before = model(x)
    with pytest.raises(ConversionError, match=f"relu is fed by {name}, which does not give 0 with a weight and bias"):
        apical.convert_(model, "pynada", keep_function=True, example_inputs=x if shown else None)
    assert torch.equal(model(x), before)
    assert len(apical.convert_(model, "pynada").converted) == 1


def test_a_subclass_that_is_zero_with_a_weight_of_zero_keeps_its_function() -> None:
    model, x = Fed(Scaled(6, 8), nn.LayerNorm(8)), torch.randn(3, 6)
    before = model(x)
    apical.convert_(model, "pynada", keep_function=True)
    assert torch.allclose(model(x), before, rtol=1e-6, atol=1e-6)
    model = Fed(Scaled(6, 8))
    before = model(x)
    apical.convert_(model, "pynada", keep_function=True)
    assert torch.allclose(model(x), before, rtol=1e-6, atol=1e-6)


class Capped(nn.Module):
    """A ReLU that is cut off far out."""

    def __init__(self, bound: float) -> None:
        super().__init__()
        self.bound = bound

    def forward(self, x: Tensor) -> Tensor:
        return x.clamp(0, self.bound)


@pytest.mark.parametrize("bound", [8.0, 20.0, 1e4, 65504.0])
@pytest.mark.parametrize("inputs", [None, torch.zeros(1, 1)])
def test_what_differs_far_out_alone_is_another_function(bound: float, inputs: Tensor | None) -> None:
    model = nn.Sequential(nn.Linear(1, 1), Capped(bound))
    with pytest.raises(ConversionError, match=rf"1 is hardtanh\(min_val=0,max_val={bound:g}\), but the"):
        apical.convert_(model, "pynada", keep_function=True, example_inputs=inputs)
    assert type(model[0]) is nn.Linear
    apical.convert_(model, "ada")  # it is an activation like any other


@pytest.mark.parametrize("text", ["mish", "silu", "gelu(approximate=tanh)", "softplus"])
def test_formulas_that_overflow_far_out_are_what_they_are_meant_to_be(text: str) -> None:
    class Written(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if text == "mish":
                e = (x.exp() + 1) ** 2
                return x * (e - 1) / (e + 1)
            if text == "silu":
                return x * x.exp() / (1 + x.exp())
            if text == "softplus":
                return torch.log1p(x.exp())
            return 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3)))

    model = nn.Sequential(nn.Linear(3, 4), Written(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    before = model(x)
    apical.convert_(model, f"pyramidal(basal={text},apical=ada)", keep_function=True, also=[Written])
    torch.testing.assert_close(model(x), before)


@pytest.mark.parametrize("slopes", [1, 4])
@pytest.mark.parametrize("form", ["merged", "branch", "wire"])
def test_learned_slopes_are_taken_over(slopes: int, form: str) -> None:
    class Summed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.affine, self.act, self.last = nn.Linear(3, 4), nn.PReLU(slopes), nn.Linear(4, 2)

        def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
            h = self.affine(x)
            if form == "wire" and bias is not None:
                h = h + bias
            return self.last(self.act(h) + (h if form == "branch" else 0.0))

    model, x = Summed(), torch.randn(5, 3)
    model.act.weight.data = torch.rand(slopes)
    before = model(x)
    with pytest.raises(ConversionError, match=r"act is prelu(\(scope=channel\))?, but the basal"):
        apical.convert_(model, "pynada", keep_function=True, example_inputs=x)
    scope = "channel" if slopes > 1 else "layer"
    report = apical.convert_(
        model, f"pyramidal(basal=prelu(scope={scope}),apical=ada)", keep_function=True, example_inputs=x
    )
    torch.testing.assert_close(model(x), before)
    report.undo()
    assert torch.equal(model(x), before)


def test_one_slope_for_all_layers_cannot_take_over_several() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Linear(4, 4), nn.PReLU(), nn.Linear(4, 2))
    with pytest.raises(ConversionError, match="1 is prelu, but"):
        apical.convert_(model, "pyramidal(basal=prelu(scope=network),apical=ada)", keep_function=True)
    with pytest.raises(ConversionError, match=r"1 is prelu, but .*'pyramidal\(basal=prelu,apical=ada\)'"):
        apical.convert_(model, "pyramidal(basal=prelu(weight=0.25),apical=ada)", keep_function=True)
