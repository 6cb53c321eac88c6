"""Residual blocks as formulas, longer dendrites, and torchvision's networks."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from apical import Unit, functional, models
from apical.models.resnet import BASIC, BOTTLENECK, ApicalResNet, Block, ResNet

Make = Callable[..., Any]


def normed(norm: Any, z: Tensor) -> Tensor:
    return F.batch_norm(z, norm.running_mean, norm.running_var, norm.weight, norm.bias)


def stirred(model: nn.Module) -> nn.Module:
    """Norms with values of their own, so that mixing them up shows."""
    torch.manual_seed(2)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight.data, module.bias.data, module.running_mean):
                tensor.normal_()
            module.running_var.uniform_(0.5, 2)
    return model.eval()


def both(norm: Any, z: Tensor) -> tuple[Tensor, Tensor]:
    basal, apical = normed(norm, z).chunk(2, 1)
    return basal, apical


def test_the_closing_neuron_of_a_pyramidal_block_takes_the_skip_into_its_basal_branch() -> None:
    layers = Unit.parse("pynada(alpha=0.5,c=1)").layers()
    block: Any = stirred(Block(layers, BASIC.convs(4, 6, 2)))
    x = torch.randn(2, 4, 8, 8)
    basal, apical = both(block.conv1.norm, F.conv2d(x, block.conv1.weight, stride=2, padding=1))
    hidden = basal.relu() + functional.ada(apical, 0.5, 1)
    basal, apical = both(block.conv2.norm, F.conv2d(hidden, block.conv2.weight, padding=1))
    skip = normed(block.downsample[1], F.conv2d(x, block.downsample[0].weight, stride=2))
    torch.testing.assert_close(block(x), (basal + skip).relu() + functional.ada(apical, 0.5, 1))


def plain_apical_resnet(model: Any, x: Tensor, reach: int, strides: dict[str, int]) -> Tensor:
    """A ResNet of basic blocks with longer dendrites, as the formula says: every input of a convolution is kept."""

    def basal_neuron(neuron: Any, x: Tensor, stride: int) -> Tensor:
        return normed(neuron.norm, F.conv2d(x, neuron.affine.weight, stride=stride, padding=1)).relu()

    inputs, passed = [basal_neuron(model.conv1, x, 1)], []
    for stage in model.stages:
        for place, block in enumerate(getattr(model, stage)):
            stride = strides[stage] if place == 0 else 1
            inputs.append(basal_neuron(block.conv1, inputs[-1], stride))
            passed += [stride, 1]
            last, back = block.conv2, min(reach, len(passed))
            basal = normed(last.norm.basal, F.conv2d(inputs[-1], last.weight, padding=1))
            step = torch.tensor(passed[-back:]).prod().item()
            apical = normed(last.norm.apical, F.conv2d(inputs[-back], last.apical_affine.weight, stride=step))
            inputs.append(basal.relu() + functional.ada(apical))
    return model.fc(inputs[-1].mean((2, 3)))


@pytest.mark.parametrize("reach", [None, 1, 2, 3, 5, 99])
def test_longer_dendrites_start_reach_layers_back(reach: int | None) -> None:
    model = ApicalResNet(Unit("pynada"), BASIC, (1, 2), reach=reach, widths=(4, 6), outputs=3, stem=64)
    stirred(model)
    x = torch.randn(2, 3, 8, 8)
    expected = plain_apical_resnet(model, x, 2 if reach is None else reach, {"layer1": 1, "layer2": 2})
    torch.testing.assert_close(model(x), expected)


@pytest.mark.parametrize("unit", [kind for kind in Unit.kinds() if Unit(kind).pyramidal])
def test_with_longer_dendrites_all_other_neurons_are_the_basal_kind(unit: str) -> None:
    model: Any = ApicalResNet(Unit(unit), BOTTLENECK, (2,), widths=(4,), outputs=3, stem=64)
    basal, apical = Unit(unit).layers().branches()
    assert type(model.conv1.activation) is type(basal)
    for block in model.layer1:
        assert [type(block.conv1.activation), type(block.conv2.activation)] == [type(basal)] * 2
        assert (block.conv3.apical_affine.kernel_size, block.downsample if hasattr(block, "downsample") else None) == (
            (1, 1),
            None,
        )
        assert type(block.conv3.basal) is type(basal)
        assert type(getattr(block.conv3.apical, "owner", block.conv3.apical)) is type(apical)
    first, second = (block.conv3.apical_affine for block in model.layer1)
    assert (first.in_channels, second.in_channels) == (4, 16)  # reach 3: the inputs of the two blocks


def test_the_default_reach_is_the_block_in_both_resnets() -> None:
    for name, convs in (("resnet-18", 2), ("resnet-50", 3)):
        with torch.device("meta"):
            model: Any = models.create(name, "pynada", skip="apical", stem=64)
        first = getattr(model.layer2[0], f"conv{convs}").apical_affine
        expansion = 1 if convs == 2 else 4
        assert (first.in_channels, first.out_channels, first.stride) == (64 * expansion, 128 * expansion, (2, 2))


def test_the_stems() -> None:
    large, small = (models.create("resnet-18", "relu", stem=stem, outputs=2) for stem in (224, 64))
    shapes = {row.name: row.shape for row in models.summary(large).rows}
    assert (shapes["conv1"], shapes["maxpool"], shapes["layer4.1.conv2"]) == ((64, 112, 112), (64, 56, 56), (512, 7, 7))
    shapes = {row.name: row.shape for row in models.summary(small).rows}
    assert (shapes["conv1"], shapes["maxpool"], shapes["layer4.1.conv2"]) == ((64, 64, 64), (64, 64, 64), (512, 8, 8))


def test_torchvisions_names_load_and_are_written() -> None:
    one, other = (ResNet(Unit("relu"), BASIC, (1, 1), widths=(4, 6), outputs=3) for _ in range(2))
    state = stirred(one).torchvision_state_dict()
    assert "conv1.weight" in state
    assert {"bn1.running_var", "layer2.0.bn2.bias", "layer2.0.downsample.1.weight", "fc.bias"} <= set(state)
    assert not [name for name in state if "affine" in name or "norm" in name]
    nn.ModuleDict({"net": other}).load_state_dict({f"net.{name}": tensor for name, tensor in state.items()})
    x = torch.randn(2, 3, 32, 32)
    assert torch.equal(other.eval()(x), one(x))


@pytest.fixture
def torchvision() -> Any:
    """torchvision loads beside the CPU build of torch once these two operators exist."""
    operators = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, name):
            operators.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    import torchvision

    yield torchvision
    del operators


@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet-18", "resnet-50"])
def test_relu_resnets_are_torchvisions(name: str, torchvision: Any) -> None:
    torch.manual_seed(0)
    reference = stirred(torchvision.models.get_model(name.replace("-", "")))
    model = models.create(name, "relu").eval()
    model.load_state_dict(reference.state_dict())
    x = torch.randn(2, 3, 224, 224)
    with torch.no_grad():
        expected = reference(x)
        torch.testing.assert_close(model(x), expected, rtol=1e-5, atol=1e-5 * float(expected.abs().max()))
    back = torchvision.models.get_model(name.replace("-", ""))
    back.load_state_dict(model.torchvision_state_dict())
    written = back.state_dict()
    assert all(torch.equal(written[key], tensor) for key, tensor in reference.state_dict().items())
