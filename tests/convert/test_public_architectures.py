"""Conversion of public networks as their libraries ship them, with random weights.

What is left of the old activations is found by watching the converted network run, not by reading the report.
"""

import copy
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import apical
from apical.convert.branch import ApicalBranch
from apical.nn.pyramidal import _Pyramidal

pytestmark = pytest.mark.slow

# name -> the kinds of its hidden activations, and the parameters that no such activation reads through an affine layer
NETWORKS = {
    "torchvision:resnet18": ("relu", r"downsample|^fc"),
    "torchvision:resnet50": ("relu", r"downsample|^fc"),
    "torchvision:vgg11_bn": ("relu", r"^classifier\.6"),
    "torchvision:mobilenet_v3_small": (
        "relu hardswish",
        r"^features\.1\.block\.2|block\.[23]\.[01]\.|fc2|^classifier\.3",
    ),
    "torchvision:densenet121": ("relu", r"norm1|conv2|transition|norm5|^classifier"),
    "torchvision:googlenet": ("relu", r"^fc|aux.\.fc2"),
    "torchvision:convnext_tiny": ("gelu", r"^features\.[0246]|block\.[025]|layer_scale|^classifier"),
    "timm:resnet18": ("relu", r"downsample|^fc"),
    "timm:efficientnet_b0": ("silu", r"conv_pwl|bn3|blocks\.0\.0\.(conv_pw|bn2)|conv_expand|^classifier"),
    "timm:regnety_002": ("relu", r"downsample|fc2|^head"),
    "timm:resnext50_32x4d": ("relu", r"downsample|^fc"),
    "timm:vit_tiny_patch16_224": ("gelu", r"^(?!.*mlp\.fc1)"),
}
OPTIONS: dict[str, dict[str, Any]] = {
    "torchvision:resnet50": {"width_per_group": 16},
    "torchvision:googlenet": {"init_weights": False},
    "timm:vit_tiny_patch16_224": {"img_size": 32},
}
FUNCTIONS = (
    F.relu, F.relu_, F.relu6, F.silu, F.gelu, F.hardswish, F.leaky_relu, F.elu, F.selu, F.celu, F.mish, F.prelu,
    torch.relu, torch.relu_, torch.prelu, Tensor.relu, Tensor.relu_,
)  # fmt: skip


@dataclass(frozen=True)
class Network:
    """A public network as built; every test works on a copy."""

    name: str
    built: nn.Module

    @property
    def kinds(self) -> list[str]:
        return NETWORKS[self.name][0].split()

    def copy(self) -> nn.Module:
        return copy.deepcopy(self.built)

    def reads(self, parameter: str) -> bool:
        """Whether an activation reads this parameter through its affine layer."""
        return re.search(NETWORKS[self.name][1], parameter) is None


@pytest.fixture(scope="module", params=NETWORKS)
def network(request: pytest.FixtureRequest) -> Iterator[Network]:
    """torchvision loads beside the CPU build of torch once these two operators exist, and as long as they do."""
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    torch.manual_seed(0)
    library, _, architecture = request.param.partition(":")
    make = __import__("timm").create_model if library == "timm" else __import__("torchvision").models.get_model
    built = make(architecture, num_classes=10, **OPTIONS.get(request.param, {}))
    if architecture.startswith("vgg"):
        narrow(built.classifier)
    yield Network(request.param, built)
    del operators


def narrow(classifier: nn.Sequential) -> None:
    """The classifier of VGG with 64 units instead of 4,096: its layers are there, without their 120 million weights."""
    sizes = [512 * 7 * 7, 64, 64, 10]
    linear = [index for index, layer in enumerate(classifier) if isinstance(layer, nn.Linear)]
    for index, (inputs, outputs) in zip(linear, pairwise(sizes), strict=True):
        classifier[index] = nn.Linear(inputs, outputs)


X = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


def run(model: nn.Module, x: Tensor = X) -> Tensor:
    """One output, of the networks that give several in training too."""
    torch.manual_seed(7)  # dropout
    y = model(x)
    return y if isinstance(y, Tensor) else torch.stack(tuple(y)).sum(0)


@dataclass
class Call:
    """An activation function that ran: where, and whether its result was added to an apical branch."""

    name: str
    modules: tuple[nn.Module, ...]
    result: Tensor
    in_neuron: bool = False


class Watch(TorchFunctionMode):
    """Every activation function that a network calls."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names = {module: name for name, module in model.named_modules()}
        self.stack: list[nn.Module] = []
        self.calls: list[Call] = []
        self.branches: list[Tensor] = []
        for module in self.names:
            module.register_forward_pre_hook(lambda module, args: self.stack.append(module))
            module.register_forward_hook(self.leave)

    def leave(self, module: nn.Module, args: Any, result: Any) -> None:
        self.stack.pop()
        if isinstance(module, ApicalBranch):
            self.branches.append(result)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in FUNCTIONS:
            self.calls.append(Call(self.place(func), tuple(self.stack), result))
        elif func in (Tensor.add, Tensor.__add__, torch.add) and any(args[1] is branch for branch in self.branches):
            for call in self.calls:
                call.in_neuron = call.in_neuron or call.result is args[0]
        return result

    def place(self, func: Any) -> str:
        """The name of the activation module, or of the module whose forward calls the function, and the function."""
        name = self.names[self.stack[-1]]
        is_activation = type(self.stack[-1]).__module__ == "torch.nn.modules.activation"
        return name if is_activation else f"{name}.{func.__name__}".lstrip(".")


def watch(model: nn.Module, mode: bool) -> list[Call]:
    model = copy.deepcopy(model).train(mode)
    with Watch(model) as seen, torch.no_grad():
        model(X)
    return seen.calls


def test_no_activation_survives_a_standard_unit(network: Network) -> None:
    model = network.copy()
    parameters, keys = sum(p.numel() for p in model.parameters()), list(model.state_dict())
    assert watch(model, mode=False) != []
    report = apical.convert_(model, "ada(alpha=0.5)")
    assert [row for row in report.kept if row.asked] == []
    assert [watch(model, mode) for mode in (True, False)] == [[], []]
    assert sum(p.numel() for p in model.parameters()) == parameters
    assert list(model.state_dict()) == keys


def test_every_activation_is_a_neurons_or_listed_with_its_reason(network: Network) -> None:
    model = network.copy()
    report = apical.convert_(model, "pynada")
    kept = [row for row in report.kept if row.asked]
    listed = sorted(re.sub(r"(relu)_\d+$", r"\1", row.name) for row in kept)
    for mode in (True, False):
        free = [call.name for call in watch(model, mode) if not call.in_neuron and not inside_neuron(call)]
        assert sorted(free) == listed
    assert all(row.reason for row in report.kept)
    assert (kept == []) == (network.name != "torchvision:densenet121")


def inside_neuron(call: Call) -> bool:
    return any(isinstance(module, _Pyramidal | ApicalBranch) for module in call.modules)


def test_parameters_are_those_of_two_branches_and_other_layers_keep_their_keys(network: Network) -> None:
    model = network.copy()
    sizes = {key: p.numel() for key, p in model.named_parameters()}
    apical.convert_(model, "pynada")
    doubled = sum(size for key, size in sizes.items() if network.reads(key))
    assert sum(p.numel() for p in model.parameters()) == sum(sizes.values()) + doubled
    after = model.state_dict()
    for key, value in network.built.state_dict().items():
        assert network.reads(key) or torch.equal(after[key], value)


def units(network: Network, *, pyramidal: bool) -> dict[str, str]:
    """For each kind of activation of the network, a unit with that (basal) activation."""
    modules = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "hardswish": nn.Hardswish}
    for kind in network.kinds:
        if f"same_{kind}" not in apical.Unit.kinds():
            apical.register_unit(f"same_{kind}", activation=modules[kind])
            apical.register_unit(f"same_{kind}_and_ada", basal=f"same_{kind}", apical="ada")
    return {kind: f"same_{kind}_and_ada" if pyramidal else f"same_{kind}" for kind in network.kinds}


@pytest.mark.parametrize("pyramidal", [False, True])
def test_the_same_function_is_kept_in_both_modes_and_when_switching(network: Network, pyramidal: bool) -> None:
    """Every call rewritten, nothing changed: in float64, so that only the rewriting could make a difference."""
    original, model = network.copy().double(), network.copy().double()
    x = torch.cat([X, X.flip(3), X.flip(2), 1 - X]).double()  # batch norm over two values would blow rounding up
    for kind, unit in units(network, pyramidal=pyramidal).items():
        apical.convert_(model, unit, kinds=kind, keep_function=True)
    for mode in (True, False, True, False):
        with torch.no_grad():
            expected, got = run(original.train(mode), x), run(model.train(mode), x)
        assert torch.allclose(got, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_undo_restores_bit_equal_outputs(network: Network, unit: str) -> None:
    model = network.copy().eval()
    with torch.no_grad():
        expected, keys = run(model), list(model.state_dict())
        report = apical.convert_(model, unit)
        assert not torch.equal(run(report.model), expected)
        assert report.undo() is model
        assert torch.equal(run(model), expected)
    assert list(model.state_dict()) == keys


@pytest.fixture(scope="module")
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    file = tmp_path_factory.mktemp("group") / "store"
    torch.distributed.init_process_group("gloo", init_method=file.as_uri(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.filterwarnings(
    "ignore:Grad strides do not match bucket view strides"
)  # depthwise layers, converted or not
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_training_copies_pickles_and_data_parallel_work(network: Network, unit: str, process_group: None) -> None:
    model = network.copy()
    apical.convert_(model, unit)
    loaded = pickle.loads(pickle.dumps(model))
    parallel = nn.parallel.DistributedDataParallel(copy.deepcopy(model))
    gradients = []
    for net in (model, loaded, parallel):
        run(net.train()).square().mean().backward()
        gradients.append({key.removeprefix("module."): p.grad for key, p in net.named_parameters()})
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients[0].values())
    for other in gradients[1:]:
        assert all(torch.allclose(other[key], value, atol=1e-6) for key, value in gradients[0].items())


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_the_result_compiles(network: Network, unit: str) -> None:
    model = network.copy().eval()
    apical.convert_(model, unit)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, backend="eager", fullgraph=True)(X)
        assert torch.allclose(compiled, model(X), rtol=1e-4, atol=1e-5)
