"""Spellings of published code: slices of a Sequential, fused biases, densities, functional settings."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.swa_utils import AveragedModel

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


class Fusion(nn.Module):
    """As in EfficientDet: weights of a sum that are kept positive."""

    def __init__(self) -> None:
        super().__init__()
        self.w, self.act, self.affine = nn.Parameter(torch.tensor([0.5, 3.0])), nn.SiLU(), nn.Linear(4, 4)

    def weights(self) -> Tensor:
        return F.relu(self.w)

    def forward(self, x: Tensor) -> Tensor:
        w = self.weights()
        return self.act(self.affine(x) * w[0] / w.sum())  # type: ignore[no-any-return]


class FusionOfParts(Fusion):
    def weights(self) -> Tensor:
        return torch.stack([F.relu(self.w[0]), F.relu(self.w[1])])


class FusionByModule(Fusion):
    def __init__(self) -> None:
        super().__init__()
        self.w_relu = nn.ReLU()

    def weights(self) -> Tensor:
        return self.w_relu(self.w)  # type: ignore[no-any-return]


@pytest.mark.parametrize("inputs", [None, torch.randn(5, 4)])
@pytest.mark.parametrize("kind", [Fusion, FusionOfParts, FusionByModule])
def test_a_function_of_a_parameter_stays_and_hides_nothing(kind: type[Fusion], inputs: Tensor | None) -> None:
    model = kind()
    report = apical.convert_(model, "ada", example_inputs=inputs)
    assert [row.name for row in report.converted] == ["act"]
    assert "did not run" not in str(report)
    assert torch.equal(model.weights(), torch.tensor([0.5, 3.0]))
    assert [row.name for row in report.kept] == ["w_relu"] * (kind is FusionByModule)


@pytest.mark.parametrize("unit", ["pynada(alpha=learn)", "pynada(alpha=learn,scope=layer)"])
@pytest.mark.parametrize("copy_first", [False, True])
def test_a_frozen_copy_with_a_learned_alpha_stays_a_copy(unit: str, copy_first: bool) -> None:
    online = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    target = copy.deepcopy(online).requires_grad_(False)

    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            if copy_first:
                self.target = target
            self.online = online
            if not copy_first:
                self.target = target

        def forward(self, x: Tensor) -> Tensor:
            return self.online(x) - self.target(x)  # type: ignore[no-any-return]

    model = Both()
    apical.convert_(model, unit)
    assert not model(torch.randn(5, 4)).any()
    learning = [name for name, parameter in model.named_parameters() if "alpha" in name and parameter.requires_grad]
    assert len(learning) == 1
    weights = [parameter for name, parameter in model.target.named_parameters() if "alpha" not in name]
    assert weights
    assert not any(parameter.requires_grad for parameter in weights)


def test_a_full_backward_hook_goes_to_what_replaces_an_activation() -> None:
    model, seen = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), []
    model[1].register_full_backward_hook(lambda module, given, got: seen.append(type(module).__name__))
    apical.convert_(model, "ada")
    model(torch.randn(3, 4)).sum().backward()
    assert seen == ["ADA"]


def test_a_wrapper_inside_of_a_model_is_named() -> None:
    class DistributedDataParallel(nn.Module):  # a real one needs a process group
        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

    model = nn.ModuleDict({"generator": DistributedDataParallel(nn.Sequential(nn.Linear(4, 8), nn.ReLU()))})
    with pytest.raises(ConversionError, match="generator is wrapped in DistributedDataParallel"):
        apical.convert_(model, "pynada")


def test_complex_values_keep_their_activation() -> None:
    class Complex(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.tanh, self.relu, self.affine = nn.Tanh(), nn.ReLU(), nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.affine(self.relu(self.affine(self.tanh(torch.complex(x, x)).real)))  # type: ignore[no-any-return]

    report = apical.convert_(Complex(), "ada", example_inputs=torch.randn(3, 4), kinds=["tanh", "relu"])
    assert [row.name for row in report.converted] == ["relu"]
    assert [(row.name, row.reason) for row in report.kept] == [("tanh", "it is called with complex numbers")]


def test_a_model_of_inference_mode_is_converted() -> None:
    x = torch.randn(3, 4)
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        report = apical.convert_(model, "ada", example_inputs=x)
        assert len(report.converted) == 1
        assert model(x).shape == (3, 2)


@pytest.mark.parametrize("act", [nn.SiLU(), nn.ReLU(), nn.GELU()])
def test_derivatives_inside_of_a_forward_have_no_rows(act: nn.Module) -> None:
    class Physics(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), act, nn.Linear(8, 1))

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            with torch.enable_grad():
                x = x.detach().requires_grad_()
                u = self.net(x)
                return u, torch.autograd.grad(u.sum(), x, create_graph=True)[0].square().sum()

    report = apical.convert_(Physics(), "ada", example_inputs=torch.randn(3, 4))
    assert [row.name for row in report.converted] == ["net.1"]
    assert not report.kept


SILU_TWICE = {"silu2": lambda x: F.silu(x) * 2.0}


@pytest.mark.parametrize("inputs", [None, torch.randn(5, 4)])
def test_a_lambda_of_a_table_is_converted_by_a_name_that_can_be_written(inputs: Tensor | None) -> None:
    class Table(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act, self.first, self.last = "silu2", nn.Linear(4, 8), nn.Linear(8, 1)

        def forward(self, x: Tensor) -> Tensor:
            function = SILU_TWICE[self.act]
            h = self.first(x)
            if h.sum() > 1e9:
                return h  # type: ignore[no-any-return]
            return self.last(sum(function(r) for r in h.unbind(0)))  # type: ignore[no-any-return]

    model = Table()
    before = model(torch.ones(5, 4))
    report = apical.convert_(model, "ada", example_inputs=inputs)
    assert len(report.converted) == 1
    assert not torch.equal(model(torch.ones(5, 4)), before)


def test_an_average_inside_of_a_wrapper_stays_one() -> None:
    class Averaged(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
            self.average = AveragedModel(self.net).requires_grad_(False)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x) - self.average(x)  # type: ignore[no-any-return]

    model = Averaged()
    apical.convert_(model, "pynada")
    assert not model(torch.randn(5, 4)).any()
    model.average.update_parameters(model.net)


@pytest.mark.parametrize("inputs", [None, torch.randn(3, 8)])
@pytest.mark.parametrize("weight", [torch.tensor(2), torch.zeros(1).expand(8), torch.arange(8)])
def test_weights_of_any_sort_inside_of_an_activation_are_looked_at(weight: Tensor, inputs: Tensor | None) -> None:
    def scaled(x: Tensor, w: Tensor) -> Tensor:
        return F.silu(x) * (1 + w)

    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.affine = nn.Linear(8, 8)
            self.register_buffer("scale", weight)

        def forward(self, x: Tensor) -> Tensor:
            return scaled(self.affine(x), self.scale)

    model = Scaled()
    report = apical.convert_(model, "ada", example_inputs=inputs)
    assert len(report.converted) == 1
    assert torch.equal(model.scale, weight)


def test_a_function_of_channels_is_refused_in_a_sentence() -> None:
    class Channels(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("bounds", torch.arange(1.0, 9.0))

        def forward(self, x: Tensor) -> Tensor:
            return torch.where(x > 0, x, torch.tanh(x) * self.bounds)

    model = nn.Sequential(nn.Linear(4, 8), Channels(), nn.Linear(8, 2))
    with pytest.raises(ConversionError):
        apical.convert_(model, "pynada", keep_function=True, also=[Channels])
