"""Values that leave torch: what Python makes of them cannot be seen, so the report lists where they leave."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import apical
from apical.convert import ConversionReport
from apical.errors import ConversionError


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine, self.act, self.last = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)
        self.scale = nn.Parameter(torch.ones(()))
        self.register_buffer("strides", torch.ones(2))

    def python(self, h: Tensor) -> Any:
        """What Python makes of the hidden layer."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        h = self.affine(x)
        return self.last(self.act(h)) * self.python(h)  # type: ignore[no-any-return]


def outside(h: Tensor) -> float:
    return math.tanh(h.mean().item())


def squashed(value: Any, slope: Any) -> Any:
    return math.tanh(value) * math.sqrt(slope)


def root(count: Any) -> Any:
    def doubled(length: Any) -> Any:
        return 2 * length

    return sum(math.sqrt(doubled(length)) for length in [count] for _ in range(len([length])))


def halved(h: Tensor) -> Tensor:
    if h.max().item() > 1e4:
        h = h * 0.5
    return h.sum()


class Item(Network):
    def python(self, h: Tensor) -> Any:
        return math.tanh(h.mean().item())


class Rebound(Network):
    def python(self, h: Tensor) -> Any:
        h = h.relu().mean()
        h = h.item()  # type: ignore[assignment]
        return h + 1


class Listed(Network):
    def python(self, h: Tensor) -> Any:
        return max(0.0, *[max(0.0, value) for value in h[0].tolist()])


class Array(Network):
    def python(self, h: Tensor) -> Any:
        numbers = h[0, :2].detach().numpy()
        return torch.from_numpy(numbers.clip(0.1))


class Helper(Network):
    def python(self, h: Tensor) -> Any:
        return outside(h)


class InTraining(Network):
    def python(self, h: Tensor) -> Any:
        return math.tanh(h.mean().item()) if self.training else 1.0


class Float(Network):
    def python(self, h: Tensor) -> Any:
        return float(h.mean())


class Mathematics(Network):
    def python(self, h: Tensor) -> Any:
        return math.tanh(torch.ops.aten.mean(h))


class Numpy(Network):
    def python(self, h: Tensor) -> Any:
        return torch.tensor(np.asarray(h.mean().detach()).clip(0.1))


class Ufunc(Network):
    def python(self, h: Tensor) -> Any:
        return torch.tensor(np.tanh(h.detach().mean().numpy())) + np.float64(h.mean().detach())


class Stored(Network):
    def python(self, h: Tensor) -> Any:
        self.hidden = h.mean()
        return math.tanh(self.hidden)


class Passed(Network):
    def python(self, h: Tensor) -> Any:
        return self.scaled(h.mean(), len(h))

    def scaled(self, value: Any, count: Any) -> Any:
        return math.tanh(value) / math.sqrt(count)


class HelperOfNumbers(Network):
    def python(self, h: Tensor) -> Any:
        return squashed(h.mean(), 2.0)


class Share(Network):
    def python(self, h: Tensor) -> Any:
        self.sparsity = (torch.relu(h) == 0).float().mean().item()
        return 1.0


class ShareInSteps(Network):
    def python(self, h: Tensor) -> Any:
        zero = (h > 0) & ~(h > 1)
        return (zero.sum() / h.numel()).item()


class Jump(Network):
    def python(self, h: Tensor) -> Any:
        return torch.where(h > 0, 1.0, 0.1).sum().item()


class MaskOfNumbers(Network):
    def python(self, h: Tensor) -> Any:
        return torch.from_numpy((h[:, :2] > 0).numpy())


class MeanIndex(Network):
    def python(self, h: Tensor) -> Any:
        return h.argmax(-1).to(h.dtype).mean().item()


class Sizes(Network):
    def python(self, h: Tensor) -> Any:
        batch, channels = h.shape
        scale = 1 / math.sqrt(h.size(-1)) * float(batch) * math.prod(h.shape[1:]) * math.log(2)
        largest = float(max(part.shape[0] for part in h)) + np.sqrt(channels)
        return scale * largest * int(h.shape[0]) * math.floor(h.numel() / 3) * root(channels) * self.half(h, len(h))

    def half(self, h: Tensor, count: int, rate: float = 0.5, power: Any = 2.0) -> Any:
        return math.exp(-rate) * count / math.pow(h.dim(), power)


class Settings(Network):
    def python(self, h: Tensor) -> Any:
        least = float("-inf") if self.training else torch.finfo(h.dtype).min
        return max(float(self.scale) + math.tanh(self.scale), least) + math.sqrt(self.last.in_features)


class Count(Network):
    def python(self, h: Tensor) -> Any:
        whole = (h > 0).int().sum().cpu().item() + h.sum().long().item() + float(h is not None)
        return max((h > 0).sum().item(), len(h.argmax(-1).tolist()), whole, 1)


class Control(Network):
    def python(self, h: Tensor) -> Any:
        assert h.sum().item() < 1e9, f"{h.sum().item()}"
        return 2.0 if h.sum().item() > 0 and h.sum() else 1.0


class Guarded(Network):
    def python(self, h: Tensor) -> Any:
        return halved(h)


class Whole(Network):
    def python(self, h: Tensor) -> Any:
        return int(h.sum().item()) + int(h.sum()) + h.shape[0]


class Weights(Network):
    def python(self, h: Tensor) -> Any:
        return math.tanh(self.scale.exp().item()) + sum(self.strides.tolist())


class OwnActivation(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.from_numpy(np.maximum(x.detach().numpy(), 0))


class Replaced(Network):
    def __init__(self) -> None:
        super().__init__()
        self.act = OwnActivation()  # type: ignore[assignment]

    def python(self, h: Tensor) -> Any:
        return 1.0


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def convert(network: type[Network], inputs: bool, unit: str = "ada") -> tuple[Network, ConversionReport]:
    model = network().eval()
    return model, apical.convert_(model, unit, example_inputs=X if inputs else None)


def leaving(report: ConversionReport) -> list[str]:
    return [row.before for row in report.kept if row.reason.startswith("a value leaves torch by ")]


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize(
    ("network", "how"),
    [
        (Item, "item()"),
        (Rebound, "item()"),
        (Listed, "tolist()"),
        (Array, "numpy()"),
        (Helper, "item()"),
        (InTraining, "item()"),
        (Float, "float()"),
        (Mathematics, "math.tanh()"),
        (Stored, "math.tanh()"),
        (Passed, "math.tanh()"),
        (HelperOfNumbers, "math.tanh()"),
        (Numpy, "np.asarray()"),
        (Share, "item()"),
        (ShareInSteps, "item()"),
        (Jump, "item()"),
        (MaskOfNumbers, "numpy()"),
        (MeanIndex, "item()"),
    ],
)
def test_a_value_that_leaves_torch_is_listed_and_not_counted(network: type[Network], how: str, inputs: bool) -> None:
    model, report = convert(network, inputs)
    assert leaving(report) == [how]
    row = next(row for row in report.kept if row.before == how)
    assert not row.asked
    where = {Helper: "outside", Passed: "scaled", HelperOfNumbers: "squashed"}.get(network, "python")
    assert f"of {where})" in row.reason
    activations = 2 if network in (Rebound, Share) else 1
    assert str(report).startswith(f"{activations} of {activations} activation")
    assert f"values that leave torch: 1 {how[:-2]} (report.kept says where)" in str(report)
    with torch.no_grad():
        assert model(X).shape == (3, 2)  # what had left is no tensor: nothing was put in its place


@pytest.mark.parametrize("inputs", [False, True])
def test_a_function_of_numpy_is_no_activation_and_listed_once_where_the_value_leaves(inputs: bool) -> None:
    report = convert(Ufunc, inputs)[1]
    assert leaving(report) == ["numpy()", "np.float64()"]
    assert len(report.kept) == 2


class Unnamed(Network):
    def python(self, h: Tensor) -> Any:
        return "{:.3f}".format(h.mean()) and sum(map(float, h.mean(1)))  # noqa: UP032 - what f-strings do not show


def test_with_example_inputs_so_is_one_that_no_call_names() -> None:
    assert leaving(convert(Unnamed, inputs=True)[1]) == ["float()"]


@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("network", [Count, Control, Guarded, Whole, Weights, Sizes, Settings, Replaced])
def test_counts_conditions_and_weights_are_not(network: type[Network], inputs: bool) -> None:
    assert leaving(convert(network, inputs)[1]) == []


class Lengths(Network):
    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        return self.last(self.act(self.affine(x))) * sum(lengths.tolist())  # type: ignore[no-any-return]


def test_example_inputs_tell_that_a_value_is_an_integer() -> None:
    assert leaving(apical.convert_(Lengths(), "ada")) == ["tolist()"]
    assert leaving(apical.convert_(Lengths(), "ada", example_inputs=(X, torch.tensor([1, 2])))) == []
    assert leaving(apical.convert_(Lengths(), "ada", example_inputs=(X, torch.tensor([1.0, 2.0])))) == ["tolist()"]


@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("network", [Item, Float, Array])
def test_such_a_network_is_saved_loaded_and_undone(network: type[Network], unit: str) -> None:
    model, report = convert(network, inputs=True, unit=unit)
    fresh = network().eval()
    apical.convert.load(fresh, report.record)
    fresh.load_state_dict(model.state_dict())
    with torch.no_grad():
        assert torch.equal(fresh(X), model(X))
    assert type(report.undo().act) is nn.ReLU


class Nothing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * math.tanh(x.mean().item())


def test_a_network_that_computes_in_python_alone_is_refused_with_the_line() -> None:
    with pytest.raises(ConversionError, match=r"no activation .* leaves torch by item\(\) \(line \d+ of forward\)"):
        apical.convert_(nn.Sequential(nn.Linear(4, 4), Nothing()), "ada", example_inputs=X)


def test_a_hook_that_takes_a_value_out_is_listed() -> None:
    for inputs in (None, X):
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        model[0].register_forward_hook(lambda module, args, result: result * math.tanh(result.mean().item()))
        assert leaving(apical.convert_(model, "ada", example_inputs=inputs)) == ["item()"]
