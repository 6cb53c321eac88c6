"""Conversion of public networks as their libraries ship them, with random weights.

What is left of the old activations is found by watching the converted network run, not by reading the report.
"""

import copy
import pickle
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
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

# name -> the activation of its hidden layers, and the parameters that no such activation reads through its affine layer
NETWORKS = {
    "torchvision:resnet18": ("relu", r"downsample|^fc"),
    "torchvision:resnet50": ("relu", r"downsample|^fc"),
    "torchvision:vgg11_bn": ("relu", r"^classifier\.6"),
    "torchvision:mobilenet_v3_small": ("hardswish", r"^features\.1\.block\.2|block\.[23]\.[01]\.|fc2|^classifier\.3"),
    "torchvision:densenet121": ("relu", r"norm1|conv2|transition|norm5|^classifier"),
    "torchvision:googlenet": ("relu", r"^fc|aux.\.fc2"),
    "torchvision:convnext_tiny": ("gelu", r"^features\.[0246]|block\.[025]|layer_scale|^classifier"),
    "timm:resnet18": ("relu", r"downsample|^fc"),
    "timm:efficientnet_b0": ("silu", r"conv_pwl|bn3|blocks\.0\.0\.(conv_pw|bn2)|conv_expand|^classifier"),
    "timm:regnety_002": ("relu", r"downsample|fc2|^head"),
    "timm:resnext50_32x4d": ("relu", r"downsample|^fc"),
    "timm:vit_tiny_patch16_224": ("gelu", r"^(?!.*mlp\.fc1)"),
}
RELU_NETWORKS = [name for name, (kind, _) in NETWORKS.items() if kind == "relu"]
OPTIONS: dict[str, dict[str, Any]] = {
    "torchvision:googlenet": {"init_weights": False},
    "timm:vit_tiny_patch16_224": {"img_size": 64},
}
FUNCTIONS = (
    F.relu, F.relu_, F.relu6, F.silu, F.gelu, F.hardswish, F.leaky_relu, F.elu, F.selu, F.celu, F.mish, F.prelu,
    torch.relu, torch.relu_, torch.prelu, Tensor.relu, Tensor.relu_,
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def operators() -> None:
    """torchvision loads beside the CPU build of torch once these two operators exist."""
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")


def build(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    library, _, architecture = name.partition(":")
    if library == "timm":
        import timm

        return timm.create_model(architecture, num_classes=10, **OPTIONS.get(name, {}))
    import torchvision

    return getattr(torchvision.models, architecture)(num_classes=10, **OPTIONS.get(name, {}))


def images(count: int = 2) -> Tensor:
    return torch.randn(count, 3, 64, 64, generator=torch.Generator().manual_seed(1))


def run(model: nn.Module, x: Tensor) -> Tensor:
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


def watch(model: nn.Module) -> list[Call]:
    model = copy.deepcopy(model)
    with Watch(model) as seen, torch.no_grad():
        model(images())
    return seen.calls


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("mode", [True, False])
def test_no_activation_survives_a_standard_unit(name: str, mode: bool) -> None:
    model = build(name).train(mode)
    assert watch(model) != []
    before = sum(p.numel() for p in model.parameters())
    keys = list(model.state_dict())
    report = apical.convert_(model, "ada(alpha=0.5)")
    assert report.kept == []
    assert watch(model) == []
    assert sum(p.numel() for p in model.parameters()) == before
    assert list(model.state_dict()) == keys


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("mode", [True, False])
def test_every_activation_is_a_neurons_or_listed_with_its_reason(name: str, mode: bool) -> None:
    model = build(name).train(mode)
    report = apical.convert_(model, "pynada")
    free = [
        call.name
        for call in watch(model)
        if not call.in_neuron and not any(isinstance(module, _Pyramidal | ApicalBranch) for module in call.modules)
    ]
    listed = [re.sub(r"(relu)_\d+$", r"\1", row.name) for row in report.kept]
    assert sorted(free) == sorted(listed)
    assert all(row.reason for row in report.kept)
    assert (report.kept == []) == (name != "torchvision:densenet121")


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters_are_those_of_two_branches_and_other_layers_keep_their_keys(name: str) -> None:
    model = build(name)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    sizes = {key: p.numel() for key, p in model.named_parameters()}
    rest = re.compile(NETWORKS[name][1])
    apical.convert_(model, "pynada")
    doubled = sum(size for key, size in sizes.items() if not rest.search(key))
    assert sum(p.numel() for p in model.parameters()) == sum(sizes.values()) + doubled
    after = model.state_dict()
    for key in filter(rest.search, before):
        assert torch.equal(after[key], before[key])


@pytest.mark.parametrize("name", RELU_NETWORKS)
@pytest.mark.parametrize("unit", ["relu", "pynada"])
def test_the_same_function_is_kept_in_both_modes_and_when_switching(name: str, unit: str) -> None:
    """Every call rewritten, nothing changed: in float64, so that only the rewriting could make a difference."""
    original, model, x = build(name).double(), build(name).double(), images(4).double()
    apical.convert_(model, unit, keep_function=True)
    for mode in (True, False, True, False):
        with torch.no_grad():
            expected, got = run(original.train(mode), x), run(model.train(mode), x)
        assert torch.allclose(got, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_undo_restores_bit_equal_outputs(name: str, unit: str) -> None:
    model, x = build(name).eval(), images()
    expected, keys = run(model, x), list(model.state_dict())
    report = apical.convert_(model, unit)
    assert not torch.equal(run(report.model, x), expected)
    assert report.undo() is model
    assert torch.equal(run(model, x), expected)
    assert list(model.state_dict()) == keys


@pytest.fixture(scope="module")
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    file: Path = tmp_path_factory.mktemp("group") / "store"
    torch.distributed.init_process_group("gloo", init_method=file.as_uri(), rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_training_copies_pickles_and_data_parallel_work(name: str, unit: str, process_group: None) -> None:
    model, x = build(name), images()
    apical.convert_(model, unit)
    loaded = pickle.loads(pickle.dumps(model))
    parallel = nn.parallel.DistributedDataParallel(copy.deepcopy(model))
    gradients = []
    for net in (model, loaded, parallel):
        run(net.train(), x).square().mean().backward()
        gradients.append({key.removeprefix("module."): p.grad for key, p in net.named_parameters()})
    assert all(gradient is not None and gradient.isfinite().all() for gradient in gradients[0].values())
    for other in gradients[1:]:
        assert all(torch.allclose(other[key], value, atol=1e-6) for key, value in gradients[0].items())


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_the_result_compiles(name: str, unit: str) -> None:
    model, x = build(name).eval(), images()
    apical.convert_(model, unit)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled = torch.compile(model, backend="eager", fullgraph=True)(x)
        assert torch.allclose(compiled, model(x), rtol=1e-4, atol=1e-5)
