"""ResNet-18 and ResNet-50, with identity skips or with longer apical dendrites in their place.

The neuron that closes a block, with its input x', the block's input x, and identity skips:
    standard                  activation(norm(w x') + x)
    pyramidal                 basal(norm'(w' x') + x) + apical(norm''(w'' x'))
With `skip="apical"` there is no addition of x; the apical dendrite is a 1x1 convolution that starts at x instead:
    longer apical dendrite    basal(norm'(w' x')) + apical(norm''(w'' x))
and all other neurons of the network are the unit's basal ones.
"""

import re
from collections.abc import Iterator
from math import prod
from typing import Any, Literal, NamedTuple

from torch import Tensor, nn

from apical.errors import InvalidArgumentError
from apical.models.registry import built_in
from apical.nn import Layers, Unit

WIDTHS = (64, 128, 256, 512)
NARROW = 16
"""Channels in the first stage up to which a CPU trains a ResNet-18 faster with channels last."""
Stem = Literal[64, 224]
Skip = Literal["identity", "apical"]
Inputs = tuple[Tensor, ...]
"""The inputs of the last convolutions, newest last: where longer dendrites may start."""


class Conv(NamedTuple):
    """The shape of a convolution."""

    in_channels: int
    out_channels: int
    kernel: int
    stride: int = 1

    def neurons(self, layers: Layers, **dendrite: Any) -> nn.Module:
        """These neurons, with batch norm; `dendrite` describes a longer apical one."""
        return layers.conv(
            2, self.in_channels, self.out_channels, self.kernel, stride=self.stride, padding=self.kernel // 2,
            bias=False, norm=nn.BatchNorm2d, **dendrite,
        )  # fmt: skip


class BlockShape(NamedTuple):
    """A kind of block: how many channels it has for each of its width, and its convolutions."""

    expansion: int
    kernels: tuple[int, ...]

    def convs(self, in_channels: int, width: int, stride: int) -> list[Conv]:
        """The convolutions of one block; the first 3x3 one has the stride."""
        widths = [*(width for _ in self.kernels[1:]), width * self.expansion]
        strided = self.kernels.index(3)
        return [
            Conv(before, after, kernel, stride if place == strided else 1)
            for place, (before, after, kernel) in enumerate(
                zip([in_channels, *widths], widths, self.kernels, strict=False)
            )
        ]


BASIC = BlockShape(1, (3, 3))
BOTTLENECK = BlockShape(4, (1, 3, 1))


class Block(nn.Module):
    """Convolutions of neurons `conv1`, `conv2`, ...; the block's input joins the last before its (basal) activation."""

    def __init__(self, layers: Layers, convs: list[Conv]) -> None:
        super().__init__()
        for place, conv in enumerate(convs, start=1):
            self.add_module(f"conv{place}", conv.neurons(layers))
        self.inner = [f"conv{place}" for place in range(1, len(convs))]
        self.last = f"conv{len(convs)}"
        self.downsample = _projection(convs)

    def forward(self, x: Tensor) -> Tensor:
        skip = x if self.downsample is None else self.downsample(x)
        for name in self.inner:
            x = getattr(self, name)(x)
        return getattr(self, self.last)(x, residual=skip)  # type: ignore[no-any-return]


def _projection(convs: list[Conv]) -> nn.Module | None:
    """What makes the block's input fit its output, where it does not: a 1x1 convolution and a norm, no neurons."""
    stride, before, after = prod(conv.stride for conv in convs), convs[0].in_channels, convs[-1].out_channels
    if stride == 1 and before == after:
        return None
    return nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))


class ApicalBlock(nn.Module):
    """Convolutions of basal neurons; the last are pyramidal, and their apical dendrite reaches back `reach` layers."""

    def __init__(self, layers: Layers, convs: list[Conv], before: list[Conv], *, reach: int) -> None:
        super().__init__()
        for place, conv in enumerate(convs[:-1], start=1):
            self.add_module(f"conv{place}", conv.neurons(layers.basal))
        self.inner = [f"conv{place}" for place in range(1, len(convs))]
        self.last = f"conv{len(convs)}"
        self.reach = reach
        passed = [*before, *convs][-reach:]
        dendrite = {"apical_in_channels": passed[0].in_channels, "apical_stride": prod(c.stride for c in passed)}
        self.add_module(self.last, convs[-1].neurons(layers, **dendrite))

    def forward(self, inputs: Inputs) -> Inputs:
        for name in self.inner:
            inputs = (*inputs, getattr(self, name)(inputs[-1]))
        y = getattr(self, self.last)(inputs[-1], inputs[-min(self.reach, len(inputs))])
        return (*inputs, y)[-self.reach :]


class ResNet(nn.Module):
    """A stem, four stages of blocks, the mean over the image, a linear layer: (N, C, H, W) -> (N, outputs).

    `stem=224`: a 7x7 convolution of stride 2 and max-pooling; `stem=64`: a 3x3 convolution. Loads the `state_dict` of
    torchvision's ResNets, and writes it: see `torchvision_state_dict`.
    """

    def __init__(
        self,
        unit: Unit,
        kind: BlockShape,
        depths: tuple[int, ...],
        *,
        in_channels: int = 3,
        outputs: int = 1000,
        stem: Stem = 224,
        widths: tuple[int, ...] = WIDTHS,
    ) -> None:
        super().__init__()
        layers = unit.layers()
        first = _stem(in_channels, widths[0], stem)
        self.input_size = (in_channels, stem, stem)
        self.conv1 = self._stem_neurons(first, layers)
        self.maxpool = nn.MaxPool2d(3, 2, 1) if stem == 224 else nn.Identity()
        self.stages = [f"layer{place}" for place in range(1, len(depths) + 1)]
        blocks = self._blocks(layers, kind, depths, widths)
        for name, depth in zip(self.stages, depths, strict=True):
            self.add_module(name, nn.Sequential(*(next(blocks) for _ in range(depth))))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(widths[len(depths) - 1] * kind.expansion, outputs)
        self.register_load_state_dict_pre_hook(_accept_torchvision)  # type: ignore[no-untyped-call]

    def _stem_neurons(self, conv: Conv, layers: Layers) -> nn.Module:
        return conv.neurons(layers)

    def _blocks(
        self, layers: Layers, kind: BlockShape, depths: tuple[int, ...], widths: tuple[int, ...]
    ) -> Iterator[nn.Module]:
        return (Block(layers, convs) for convs in _plan(kind, depths, widths))

    def _body(self, x: Any) -> Any:
        for name in self.stages:
            x = getattr(self, name)(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        x = self._body(self.maxpool(self.conv1(x)))
        return self.fc(self.avgpool(x).flatten(1))  # type: ignore[no-any-return]

    def torchvision_state_dict(self) -> dict[str, Tensor]:
        """The `state_dict` under the names of torchvision's ResNet; of a standard unit it fits there."""
        return {_torchvision_name(name): tensor for name, tensor in self.state_dict().items()}


class ApicalResNet(ResNet):
    """A ResNet whose skips are longer apical dendrites; `reach` counts the convolutions that they pass over.

    By default they start where the identity skip did. A dendrite that would start before the first block starts there.
    """

    def __init__(self, unit: Unit, kind: BlockShape, depths: tuple[int, ...], *, reach: int | None = None, **dims: Any):
        self._reach = len(kind.kernels) if reach is None else reach
        if not isinstance(self._reach, int) or self._reach < 1:
            raise InvalidArgumentError(f"reach is {reach!r}, but must be a number of layers of at least 1")
        super().__init__(unit, kind, depths, **dims)

    def _stem_neurons(self, conv: Conv, layers: Layers) -> nn.Module:
        return conv.neurons(layers.basal)

    def _blocks(
        self, layers: Layers, kind: BlockShape, depths: tuple[int, ...], widths: tuple[int, ...]
    ) -> Iterator[nn.Module]:
        before: list[Conv] = []
        for convs in _plan(kind, depths, widths):
            yield ApicalBlock(layers, convs, before, reach=self._reach)
            before += convs

    def _body(self, x: Any) -> Any:
        return super()._body((x,))[-1]


def _stem(in_channels: int, width: int, stem: Stem) -> Conv:
    if stem not in (64, 224):
        raise InvalidArgumentError(f"stem is {stem!r}, but must be 224 (7x7 and pooling) or 64 (3x3)")
    return Conv(in_channels, width, 7, 2) if stem == 224 else Conv(in_channels, width, 3)


def _plan(kind: BlockShape, depths: tuple[int, ...], widths: tuple[int, ...]) -> Iterator[list[Conv]]:
    """The convolutions of every block; each stage but the first begins with a stride of 2."""
    channels = widths[0]
    for stage, (depth, width) in enumerate(zip(depths, widths, strict=False)):
        for place in range(depth):
            yield kind.convs(channels, width, 2 if stage and not place else 1)
            channels = width * kind.expansion


def _torchvision_name(name: str) -> str:
    """`layer1.0.conv1.affine.weight` -> `layer1.0.conv1.weight`, `layer1.0.conv1.norm.bias` -> `layer1.0.bn1.bias`."""
    return re.sub(r"\bconv(\d+)\.norm\.", r"bn\1.", re.sub(r"\b(conv\d+)\.affine\.", r"\1.", name))


def _accept_torchvision(model: nn.Module, state: dict[str, Any], prefix: str, *_: Any) -> None:
    """Rename, before loading, what torchvision names otherwise."""
    for own in model.state_dict():
        theirs = prefix + _torchvision_name(own)
        if prefix + own not in state and theirs in state:
            state[prefix + own] = state.pop(theirs)


def _create(
    unit: Unit, kind: BlockShape, depths: tuple[int, ...], skip: Skip, reach: int | None, **dims: Any
) -> ResNet:
    if skip == "apical":
        return ApicalResNet(unit, kind, depths, reach=reach, **dims)
    if skip != "identity":
        raise InvalidArgumentError(f"skip is {skip!r}, but must be 'identity' or 'apical'")
    if reach is not None:
        raise InvalidArgumentError(f"reach is {reach!r}, but only longer apical dendrites have one: add skip='apical'")
    return ResNet(unit, kind, depths, **dims)


@built_in("resnet-18", alpha_start=(0.5, 0.5), channels_last=lambda dims: dims.get("width", WIDTHS[0]) <= NARROW)
def resnet_18(
    unit: Unit,
    *,
    in_channels: int = 3,
    outputs: int = 1000,
    stem: Stem = 224,
    skip: Skip = "identity",
    reach: int | None = None,
    width: int = WIDTHS[0],
) -> ResNet:
    """Eight blocks of two 3x3 convolutions; `width` channels in the first stage, twice as many in each further one."""
    if not isinstance(width, int) or width < 1:
        raise InvalidArgumentError(f"width is {width!r}, but must be a whole number of at least 1; ResNet-18 has 64")
    widths = tuple(width * 2**stage for stage in range(4))
    return _create(
        unit, BASIC, (2, 2, 2, 2), skip, reach, in_channels=in_channels, outputs=outputs, stem=stem, widths=widths
    )


@built_in("resnet-50", alpha_start=(0.5, 0.5))
def resnet_50(
    unit: Unit,
    *,
    in_channels: int = 3,
    outputs: int = 1000,
    stem: Stem = 224,
    skip: Skip = "identity",
    reach: int | None = None,
) -> ResNet:
    """Sixteen blocks of a 1x1, a 3x3 and a 1x1 convolution."""
    return _create(unit, BOTTLENECK, (3, 4, 6, 3), skip, reach, in_channels=in_channels, outputs=outputs, stem=stem)
