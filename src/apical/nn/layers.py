"""The factory that networks ask for layers: it knows the unit, so that they never branch on its name."""

from typing import Any, ClassVar

from torch import Tensor, nn

from apical.errors import InvalidArgumentError
from apical.kernels import norm as normed
from apical.nn.activations import Shared
from apical.nn.building import build
from apical.nn.pyramidal import (
    Norm,
    PyramidalConv1d,
    PyramidalConv2d,
    PyramidalConv3d,
    PyramidalLinear,
    formula,
    pyramidal_layer,
    xavier_,
)
from apical.nn.unit import Unit

_CONV: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_PYRAMIDAL_CONV: dict[int, type[nn.Module]] = {1: PyramidalConv1d, 2: PyramidalConv2d, 3: PyramidalConv3d}


class Neuron(nn.Module):
    """A standard neuron: activation(norm(affine(x)) + residual), the norm and the residual where there are any."""

    logical_names: ClassVar = {"affine": ""}  # the weights bear the neuron's name, as a pyramidal layer's do

    def __init__(self, affine: nn.Module, norm: nn.Module | None, activation: nn.Module) -> None:
        super().__init__()
        self.affine, self.norm, self.activation = affine, norm, activation

    def forward(self, input: Tensor, *, residual: Tensor | None = None) -> Tensor:
        z = self.affine(input)
        if self.norm is not None:
            fused = self._fused_with_norm(self.norm, z, residual)
            if fused is not None:
                return fused
            z = self.norm(z)
        if residual is not None:
            z = z + residual
        return self.activation(z)  # type: ignore[no-any-return]

    def _fused_with_norm(self, norm: nn.Module, z: Tensor, residual: Tensor | None) -> Tensor | None:
        """The norm and the activation in one kernel, where it serves; else None."""
        known = formula(self.activation)
        return None if known is None else normed.run(norm, z, known, None, 1, residual)


class Layers:
    """The layers of one network; see `Unit.layers`.

    Every layer it makes takes `layer(x, residual=...)`, added before the (basal) activation; those made with a longer
    apical dendrite take `layer(x, apical_input)` too. A learned value of network scope is registered by the first
    activation made; the others refer to it.
    """

    def __init__(self, unit: str | Unit, apical: str | Unit | None = None) -> None:
        self._units = {"basal": Unit.parse(unit)}
        if apical is not None:
            self._units["apical"] = Unit.parse(apical)
        self._owners: dict[str, nn.Module] = {}

    @property
    def pyramidal(self) -> bool:
        """True where the neurons have an apical branch."""
        return "apical" in self._units

    @property
    def owners(self) -> list[nn.Module]:
        """The activations that hold a learned value for the whole network."""
        return [*self._owners.values()]

    @property
    def basal(self) -> "Layers":
        """The factory of the same network's neurons that have no apical branch; shared values stay shared."""
        factory = Layers.__new__(Layers)
        factory._units, factory._owners = {"basal": self._units["basal"]}, self._owners
        return factory

    def activation(self, channels: int | None = None, *, dim: int = 1) -> nn.Module:
        """The activation alone; `channels` are along `dim` (-1 after Linear). Pyramidal units have two: `branches`."""
        if self.pyramidal:
            raise InvalidArgumentError(
                "a pyramidal neuron has two activations: ask for linear() or conv(), or unit.basal.layers()"
            )
        return self._activation("basal", channels, dim)

    def branches(self, channels: int | None = None, *, dim: int = 1) -> tuple[nn.Module, nn.Module]:
        """The basal and the apical activation of a pyramidal neuron."""
        if not self.pyramidal:
            raise InvalidArgumentError("a standard neuron has no apical branch: ask for activation()")
        return self._activation("basal", channels, dim), self._activation("apical", channels, dim)

    def _activation(self, branch: str, channels: int | None, dim: int) -> nn.Module:
        if branch in self._owners:
            return Shared(self._owners[branch])
        unit = self._units[branch]
        activation = build(unit, channels, dim)
        if unit.learned and unit.settings["scope"] == "network":
            self._owners[branch] = activation
        return activation

    def linear(
        self,
        in_features: int,
        out_features: int,
        *,
        bias: bool = True,
        norm: Norm | None = None,
        apical_in_features: int | None = None,
    ) -> nn.Module:
        """A fully connected layer of neurons: (..., in_features) -> (..., out_features)."""
        if self.pyramidal:
            basal, apical = self.branches(out_features, dim=-1)
            return PyramidalLinear(
                in_features,
                out_features,
                bias,
                basal=basal,
                apical=apical,
                norm=norm,
                apical_in_features=apical_in_features,
            )
        self._refuse_dendrite(apical_in_features)
        return self._neuron(nn.Linear(in_features, out_features, bias), norm, out_features, dim=-1)

    def conv(
        self,
        dimensions: int,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        *,
        norm: Norm | None = None,
        apical_in_channels: int | None = None,
        apical_kernel_size: Any = 1,
        apical_stride: Any = 1,
        apical_padding: Any = 0,
        **options: Any,
    ) -> nn.Module:
        """A convolution of neurons along 1, 2 or 3 dimensions; `options` are those of torch's convolution."""
        if dimensions not in _CONV:
            raise InvalidArgumentError(f"there is no convolution along {dimensions} dimensions; available: 1, 2, 3")
        dim = -1 - dimensions
        if self.pyramidal:
            basal, apical = self.branches(out_channels, dim=dim)
            return _PYRAMIDAL_CONV[dimensions](
                in_channels,
                out_channels,
                kernel_size,
                basal=basal,
                apical=apical,
                norm=norm,
                apical_in_channels=apical_in_channels,
                apical_kernel_size=apical_kernel_size,
                apical_stride=apical_stride,
                apical_padding=apical_padding,
                **options,
            )
        self._refuse_dendrite(apical_in_channels)
        affine = _CONV[dimensions](in_channels, out_channels, kernel_size, **options)
        return self._neuron(affine, norm, out_channels, dim=dim)

    def _neuron(self, affine: nn.Module, norm: Norm | None, channels: int, *, dim: int) -> Neuron:
        xavier_(affine)
        return Neuron(affine, norm(channels) if norm is not None else None, self.activation(channels, dim=dim))

    def from_standard(self, layer: nn.Module, norm: nn.Module | None = None) -> nn.Module:
        """The neuron that continues a trained affine layer and the norm behind it, if any."""
        pyramidal: Any = pyramidal_layer(layer)
        channels, dim = len(layer.weight), pyramidal.channel_dim  # type: ignore[arg-type]
        if not self.pyramidal:
            return Neuron(layer, norm, self.activation(channels, dim=dim))
        basal, apical = self.branches(channels, dim=dim)
        return pyramidal.from_standard(layer, norm=norm, basal=basal, apical=apical)  # type: ignore[no-any-return]

    def _refuse_dendrite(self, size: int | None) -> None:
        if size is not None:
            raise InvalidArgumentError("a standard neuron has no apical dendrite to lengthen: use a pyramidal unit")
