"""Pyramidal neurons, Eq. 12 of the paper: y = basal(w'x + b') + apical(w''x + b'').

Both branches live in one weight of twice the outputs, so that one product or convolution serves both, and one fused
sum follows. Rows are ordered by group, within a group basal then apical: `weight.unflatten(0, (groups, 2, -1))`.
"""

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd

from apical.errors import InvalidArgumentError
from apical.kernels import choice, composite, eager
from apical.kernels import norm as normed
from apical.nn.activations import ADA, LeakyADA, Shared
from apical.nn.building import activation

# The two branches of a pyramidal layer: their rows in one tensor, their norms, their initial weights.

Norm = Callable[[int], nn.Module]
"""What makes a normalisation for a number of channels, e.g. `nn.BatchNorm2d`."""


class BranchNorm(nn.Module):
    """One normalisation for each branch."""

    def __init__(self, basal: nn.Module, apical: nn.Module) -> None:
        super().__init__()
        self.basal, self.apical = basal, apical

    def forward(self, basal: Tensor, apical: Tensor) -> tuple[Tensor, Tensor]:
        return self.basal(basal), self.apical(apical)


def branch_views(tensor: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """The basal and the apical rows of `tensor` as views; with several groups they have one dimension more."""
    halves = tensor.view(groups, 2, tensor.size(0) // (2 * groups), *tensor.shape[1:])
    basal, apical = halves[:, 0], halves[:, 1]
    return (basal[0], apical[0]) if groups == 1 else (basal, apical)


def xavier_(layer: nn.Module) -> None:
    """Xavier uniform weight, zero bias."""
    nn.init.xavier_uniform_(layer.weight)  # type: ignore[arg-type]
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)  # type: ignore[arg-type]


def both_norms(norm: Norm | None, outputs: int, *, together: bool) -> nn.Module | None:
    """One batch norm over both branches, where they come together; of any other norm one per branch."""
    if norm is None:
        return None
    if isinstance(norm, nn.Module) or not callable(norm):
        raise InvalidArgumentError(
            f"norm is {norm!r}, but must be a function of the number of channels that returns a norm, e.g. "
            "nn.BatchNorm2d or lambda channels: nn.GroupNorm(4, channels)"
        )
    basal = norm(outputs)
    if together and isinstance(basal, _BatchNorm):
        return norm(2 * outputs)
    return BranchNorm(basal, norm(outputs))


def widened(norm: nn.Module, groups: int) -> nn.Module:
    """A trained norm in the basal branch, a new one like it in the apical branch."""
    fresh = deepcopy(norm)
    for module in fresh.modules():
        reset: Any = getattr(module, "reset_parameters", lambda: None)
        reset()
    if not isinstance(norm, _BatchNorm):
        return BranchNorm(deepcopy(norm), fresh)
    wide = deepcopy(norm)
    wide.num_features *= 2
    for name, tensor in (*norm.named_parameters(), *norm.named_buffers()):
        if tensor.dim() == 1:
            both = _interleaved(tensor.detach(), getattr(fresh, name).detach(), groups)
            setattr(wide, name, nn.Parameter(both, tensor.requires_grad) if name in wide._parameters else both)
    return wide


def _interleaved(basal: Tensor, apical: Tensor, groups: int) -> Tensor:
    """One row of channels from two, in the order of a pyramidal layer's."""
    return torch.stack((basal.view(groups, -1), apical.view(groups, -1)), dim=1).flatten()


# A residual added to the basal half of a pre-activation in place, so that the fused kernel can follow.


class _AddToBasal(torch.autograd.Function):
    """z[basal] += residual. The gradient passes through whole to z and, its basal half, to the residual: no copies,
    of which torch's own in-place addition to a part of a tensor makes several."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, residual: Tensor, dim: int) -> Tensor:
        ctx.dim = dim
        z.chunk(2, dim)[0].add_(residual)
        ctx.mark_dirty(z)
        return z

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, None]:
        return g, g.chunk(2, ctx.dim)[0], None


def may_add_to_basal(z: Tensor, residual: Tensor, norm: nn.Module | None, dim: int) -> bool:
    """True where nobody else needs `z` as it is (not the layer it comes from, nor a hook), and the shapes agree."""
    if choice.path(z) != "native" or not (norm is None or (isinstance(norm, _BatchNorm) and not norm._forward_hooks)):
        return False
    shape = list(z.shape)
    shape[dim] //= 2
    return list(residual.shape) == shape and residual.dtype == z.dtype


def add_to_basal_(z: Tensor, residual: Tensor, dim: int) -> Tensor:
    """Add `residual` to the first half of `z` along `dim`, in place."""
    return _AddToBasal.apply(z, residual, dim)  # type: ignore[no-any-return, no-untyped-call]


# A norm and the activations behind it in one kernel.


def formula(activation: nn.Module) -> normed.Formula | None:
    """What the kernel knows of an activation; None where it does not know it, or a call does more than the formula."""
    owner: Any = activation.owner if type(activation) is Shared else activation
    if any(normed.is_attended(each) for each in {activation, owner}):
        return None
    activation = owner
    if type(activation) is nn.ReLU:
        return normed.Formula()
    if type(activation) is nn.LeakyReLU and activation.negative_slope >= 0:
        return normed.Formula(activation.negative_slope)
    if type(activation) not in (ADA, LeakyADA) or (owner.noise and owner.training):
        return None
    fixed = type(owner.alpha) is type(owner.c) is float
    return normed.Formula(owner.leak, owner.alpha, owner.c) if fixed else None


# The layers.

Device = torch.device | str | None


class _Pyramidal(nn.Module):
    """What the four layers share; each adds the torch layer that holds `weight` and `bias`.

    `apical_affine` is None where the apical branch lives in `weight`; else it is the longer dendrite's own layer.
    """

    weight: Tensor
    bias: Any
    groups: int
    outputs: int
    channel_dim: int  # counted from the right, so that unbatched inputs are right too
    _together: bool

    def _grow(
        self,
        basal: object,
        apical: object,
        norm: Norm | None,
        apical_affine: nn.Module | None,
        device: Device,
        dtype: Any,
    ) -> None:
        """Add to the affine layer what makes it a neuron."""
        self.apical_affine = apical_affine
        self.norm = both_norms(norm, self.outputs, together=apical_affine is None)
        self.basal = activation(basal, self.outputs, self.channel_dim)
        self.apical = activation(apical, self.outputs, self.channel_dim)
        if apical_affine is not None:
            xavier_(apical_affine)
        for part, given in ((self.norm, None), (self.basal, basal), (self.apical, apical)):
            if part is not None and part is not given:
                part.to(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Xavier uniform with fans counted per branch, zero biases."""
        with torch.no_grad():
            for view in branch_views(self.weight, self.groups) if self._together else (self.weight,):
                draw = torch.empty_like(view).flatten(0, view.dim() - self.weight.dim())
                view.copy_(nn.init.xavier_uniform_(draw).view_as(view))
            if self.bias is not None:
                nn.init.zeros_(self.bias)

    @property
    def basal_weight(self) -> Tensor:
        """The basal rows of `weight`, a view: (outputs, ...), or of several groups (groups, outputs/groups, ...)."""
        return branch_views(self.weight, self.groups)[0] if self._together else self.weight

    @property
    def apical_weight(self) -> Tensor:
        """The apical rows of `weight`, a view like `basal_weight`; or the weight of the longer dendrite."""
        return branch_views(self.weight, self.groups)[1] if self._together else self.apical_affine.weight  # type: ignore[union-attr, return-value]

    @property
    def basal_bias(self) -> Tensor | None:
        """The basal values of `bias`, a view."""
        return self.bias if self.bias is None or not self._together else branch_views(self.bias, self.groups)[0]

    @property
    def apical_bias(self) -> Tensor | None:
        """The apical values of `bias`, a view; or the bias of the longer dendrite."""
        if not self._together:
            return self.apical_affine.bias  # type: ignore[union-attr, return-value]
        return None if self.bias is None else branch_views(self.bias, self.groups)[1]

    def _affine(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, input: Tensor, apical_input: Tensor | None = None, *, residual: Tensor | None = None) -> Tensor:
        """basal(norm'(w'x + b') + residual) + apical(norm''(w''x + b'')); the second x is `apical_input` if given."""
        if (apical_input is None) != (self.apical_affine is None):
            raise InvalidArgumentError(self._wrong_input(apical_input is None))
        z = self._affine(input)
        norm = self.norm
        if apical_input is not None:
            basal, apical = z, self.apical_affine(apical_input)  # type: ignore[misc]
        else:
            if norm is not None and type(norm) is not BranchNorm:
                fused = self._fused_with_norm(norm, z, residual)
                if fused is not None:
                    return fused
                z = norm(z)
            if type(norm) is not BranchNorm:
                fused = self._fused(z, residual)
                if fused is not None:
                    return fused
            basal, apical = composite.branches(z, self.groups, self.channel_dim)
        if type(norm) is BranchNorm:
            basal, apical = norm(basal, apical)
        if residual is not None:
            basal = basal + residual
        return self.basal(basal) + self.apical(apical)  # type: ignore[no-any-return]

    def _fused_with_norm(self, norm: nn.Module, z: Tensor, residual: Tensor | None) -> Tensor | None:
        """The norm, both activations and their sum in one kernel, where it serves; else None."""
        basal, apical = formula(self.basal), formula(self.apical)
        if basal is None or basal.alpha is not None or apical is None:
            return None
        return normed.run(norm, z, basal, apical, self.groups, residual)

    def _fused(self, z: Tensor, residual: Tensor | None) -> Tensor | None:
        """Both activations and their sum in one kernel, for the pairs that have one; None for the others."""
        modules: dict[str, Any] = self._modules  # asked directly: every microsecond counts for small layers
        basal, apical = modules["basal"], modules["apical"]
        if type(apical) is Shared:
            apical = apical.owner
        if type(apical) not in (ADA, LeakyADA) or type(basal) not in (nn.ReLU, nn.LeakyReLU):
            return None
        if normed.is_attended(basal) or normed.is_attended(apical):
            return None
        if apical.noise and apical.training:
            return None
        alpha = apical.alpha
        if isinstance(alpha, Tensor) and alpha.numel() not in (1, self.outputs):
            return None  # the activation itself says what is wrong
        if residual is not None:
            if self.groups > 1 or not may_add_to_basal(z, residual, self.norm, self.channel_dim):
                return None
            z = add_to_basal_(z, residual, self.channel_dim)
        operation = eager.Pyramidal(
            apical.leak,
            0.0 if type(alpha) is float else apical.lowest,  # a learned alpha may also be what stands for it in a trace
            self.channel_dim,
            basal.negative_slope if type(basal) is nn.LeakyReLU else 0.0,
            self.groups,
        )
        return eager.run(operation, z, alpha, apical.c)

    def _wrong_input(self, missing: bool) -> str:
        name = type(self).__name__
        if missing:
            return f"this {name} has a longer apical dendrite and needs its input: call layer(x, apical_input)"
        return f"this {name} has no longer apical dendrite: build it with {self._declares}=, or leave apical_input out"

    _declares = "apical_in_channels"

    @classmethod
    def _copy(cls, layer: nn.Linear | _ConvNd, neuron: Self, norm: nn.Module | None) -> Self:
        """Put the trained `layer` (and the `norm` that follows it) into the basal branch of a new `neuron`."""
        with torch.no_grad():
            neuron.basal_weight.copy_(layer.weight.view_as(neuron.basal_weight))
            if layer.bias is not None and neuron.basal_bias is not None:
                neuron.basal_bias.copy_(layer.bias.view_as(neuron.basal_bias))
        if norm is not None:
            neuron.norm = widened(norm, neuron.groups)
        return neuron.train(layer.training)


class PyramidalLinear(_Pyramidal, nn.Linear):
    """A layer of pyramidal neurons: the arguments of nn.Linear, and the two activations and norms.

    `basal`, `apical`: a name (`"relu"`), a unit with settings (`"ada(alpha=0.3)"`) or a module. `norm`: a factory that
    takes the number of outputs. `apical_in_features`: the apical branch has an input of its own, of that many features.
    Shapes: (..., in_features) -> (..., out_features).
    """

    groups = 1
    channel_dim = -1
    _declares = "apical_in_features"

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        basal: object = "relu",
        apical: object = "ada",
        norm: Norm | None = None,
        apical_in_features: int | None = None,
    ) -> None:
        self._together = apical_in_features is None  # read by reset_parameters, which nn.Linear calls
        nn.Linear.__init__(self, in_features, out_features * (1 + self._together), bias, device, dtype)
        self.outputs = self.out_features = out_features
        longer = None
        if apical_in_features is not None:
            longer = nn.Linear(apical_in_features, out_features, bias, device, dtype)
        self._grow(basal, apical, norm, longer, device, dtype)

    def _affine(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight, self.bias)

    @classmethod
    def from_standard(
        cls, layer: nn.Linear, *, norm: nn.Module | None = None, basal: object = "relu", apical: object = "ada"
    ) -> Self:
        """A neuron whose basal branch is the trained `layer` and, if given, the trained `norm` that follows it."""
        check_standard(layer, nn.Linear, cls)
        w = layer.weight
        neuron = cls(
            layer.in_features, layer.out_features, layer.bias is not None, w.device, w.dtype, basal=basal, apical=apical
        )
        return cls._copy(layer, neuron, norm)


class _PyramidalConv(_Pyramidal):
    """What the convolutions share: the arguments of torch's namesake, and those of a longer apical dendrite."""

    torch_layer: type[_ConvNd]

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        device: Device = None,
        dtype: torch.dtype | None = None,
        *,
        basal: object = "relu",
        apical: object = "ada",
        norm: Norm | None = None,
        apical_in_channels: int | None = None,
        apical_kernel_size: Any = 1,
        apical_stride: Any = 1,
        apical_padding: Any = 0,
    ) -> None:
        self._together = apical_in_channels is None  # read by reset_parameters, which torch's layer calls
        make: Any = self.torch_layer
        rows = out_channels * (1 + self._together)
        make.__init__(
            self, in_channels, rows, kernel_size, stride, padding, dilation, groups, bias, padding_mode, device, dtype
        )
        self.outputs = self.out_channels = out_channels
        longer = None
        if apical_in_channels is not None:
            longer = make(
                apical_in_channels, out_channels, apical_kernel_size, apical_stride, apical_padding,
                bias=bias, padding_mode=padding_mode, device=device, dtype=dtype,
            )  # fmt: skip
        self._grow(basal, apical, norm, longer, device, dtype)

    def _affine(self, x: Tensor) -> Tensor:
        return self._conv_forward(x, self.weight, self.bias)  # type: ignore[operator, no-any-return]

    @classmethod
    def from_standard(
        cls, layer: _ConvNd, *, norm: nn.Module | None = None, basal: object = "relu", apical: object = "ada"
    ) -> Self:
        """A neuron whose basal branch is the trained `layer` and, if given, the trained `norm` that follows it."""
        check_standard(layer, cls.torch_layer, cls)
        w = layer.weight
        neuron = cls(
            layer.in_channels, layer.out_channels, layer.kernel_size, layer.stride, layer.padding, layer.dilation,
            layer.groups, layer.bias is not None, layer.padding_mode, w.device, w.dtype, basal=basal, apical=apical,
        )  # fmt: skip
        return cls._copy(layer, neuron, norm)


def check_standard(layer: nn.Module, expected: type[nn.Module], neuron: type[nn.Module]) -> None:
    """Refuse what `neuron` cannot take into its basal branch."""
    if isinstance(layer, _Pyramidal) or not isinstance(layer, expected):
        raise InvalidArgumentError(
            f"{neuron.__name__}.from_standard needs a standard {expected.__name__}, got {type(layer).__name__}"
        )


class PyramidalConv1d(_PyramidalConv, nn.Conv1d):
    """Pyramidal neurons with shared weights along one dimension: as nn.Conv1d, and see PyramidalConv2d."""

    torch_layer = nn.Conv1d
    channel_dim = -2


class PyramidalConv2d(_PyramidalConv, nn.Conv2d):
    """A convolution of pyramidal neurons: the arguments of nn.Conv2d, and the two activations and norms.

    `basal`, `apical`, `norm`: as for PyramidalLinear. `apical_in_channels`: the apical branch has an input of its own,
    through a convolution of `apical_kernel_size`, `apical_stride` and `apical_padding`.
    Shapes: (N, in_channels, H, W) -> (N, out_channels, H', W'), or both without N.
    """

    torch_layer = nn.Conv2d
    channel_dim = -3


class PyramidalConv3d(_PyramidalConv, nn.Conv3d):
    """Pyramidal neurons with shared weights along three dimensions: as nn.Conv3d, and see PyramidalConv2d."""

    torch_layer = nn.Conv3d
    channel_dim = -4


def pyramidal_layer(layer: nn.Module) -> type[PyramidalLinear | PyramidalConv1d | PyramidalConv2d | PyramidalConv3d]:
    """The pyramidal class whose `from_standard` takes this torch layer."""
    if not isinstance(layer, _Pyramidal):
        if isinstance(layer, nn.Linear):
            return PyramidalLinear
        for neuron in (PyramidalConv1d, PyramidalConv2d, PyramidalConv3d):
            if isinstance(layer, neuron.torch_layer):
                return neuron
    raise InvalidArgumentError(
        f"no pyramidal neuron can be made from {type(layer).__name__}: give an nn.Linear or an nn.Conv1d, 2d or 3d"
    )
