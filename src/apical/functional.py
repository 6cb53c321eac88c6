"""The activations as functions: arguments checked here, computed in `apical.kernels`. Stateless.

`alpha`, `c`, `beta` and `s` are numbers, tensors of one value, or tensors with one value per channel along `dim`.
The output has the dtype of the input; half types compute in float32 inside.
"""

from math import inf, isfinite, isnan
from typing import Any

import torch
from torch import Tensor

from apical.errors import DtypeError, InvalidArgumentError
from apical.kernels import eager
from apical.kernels.choice import check_input, observed

__all__ = ["ada", "dendrite", "leaky_ada", "pyramidal", "rbf", "swish"]

Value = float | Tensor


def ada(x: Tensor, alpha: Value = 1.0, c: Value = 0.0, leak: float = 0.0, *, dim: int = 1) -> Tensor:
    """Apical dendrite activation: `leak*min(0,x) + max(0,x)*exp(c - alpha*max(0,x))`, Eqs. 3 and 6 of the paper.

    It peaks at x = 1/alpha with height e^(c-1)/alpha. The derivative at 0 is the right-hand one, e^c.

    Examples:
        >>> ada(torch.tensor([-1.0, 0.0, 1.0]), alpha=1.0, c=1.0)
        tensor([0., 0., 1.])
    """
    check_leak("leak", leak)
    alpha = checked("alpha", alpha, x, dim, above=0.0)
    c = checked("c", c, x, dim)
    return eager.run(eager.Ada(leak=float(leak), dim=dim), x, alpha, c)


def leaky_ada(x: Tensor, alpha: Value = 1.0, c: Value = 0.0, leak: float = 0.01, *, dim: int = 1) -> Tensor:
    """Leaky apical dendrite activation, Eq. 6 of the paper: `ada` with a slope of `leak` below zero."""
    return ada(x, alpha, c, leak, dim=dim)


def pyramidal(
    z: Tensor,
    alpha: Value = 1.0,
    c: Value = 0.0,
    leak: float = 0.0,
    *,
    basal_leak: float = 0.0,
    groups: int = 1,
    dim: int = 1,
) -> Tensor:
    """The sum of a pyramidal neuron's branches: basal(z') + ada(z''), Eq. 12 of the paper, in one pass.

    `z` holds 2 * outputs channels along `dim`, ordered by group, within a group basal then apical. The basal branch is
    ReLU, or leaky ReLU with `basal_leak`; the apical branch is ADA with `alpha`, `c` and `leak`.
    """
    check_input(z)
    check_leak("leak", leak)
    check_leak("basal_leak", basal_leak)
    check_branches(z, groups, dim)
    half = z.narrow(dim, 0, z.size(dim) // 2)
    alpha = checked("alpha", alpha, half, dim, above=0.0)
    c = checked("c", c, half, dim)
    operation = eager.Pyramidal(float(leak), 0.0, dim, float(basal_leak), groups)
    return eager.run(operation, z, alpha, c)


def dendrite(x: Tensor) -> Tensor:
    """The activation observed in human dendrites: 0 below zero, exp(-x) from zero on, Eq. 2 of the paper."""
    check_input(x)
    return eager.dendrite(x)


def rbf(x: Tensor, s: Value = 1.0, *, dim: int = 1) -> Tensor:
    """Gaussian radial basis function: exp(-x^2 / s)."""
    check_input(x)
    s = checked("s", s, x, dim, above=0.0)
    return eager.rbf(x, s, dim)


def swish(x: Tensor, beta: Value = 1.0, *, dim: int = 1) -> Tensor:
    """Swish: `x * sigmoid(beta * x)`."""
    check_input(x)
    beta = checked("beta", beta, x, dim)
    return eager.swish(x, beta, dim)


def check_leak(name: str, leak: float) -> None:
    """Refuse a leak outside [0, 1]."""
    if not 0.0 <= leak <= 1.0:
        raise InvalidArgumentError(f"{name} is {leak}, but must lie in [0, 1]: 0 gives ADA, 0.01 the paper's leaky ADA")


def check_branches(z: Tensor, groups: int, dim: int) -> None:
    """Refuse a size along `dim` that does not hold two branches for every group."""
    if not -z.dim() <= dim < z.dim():
        raise InvalidArgumentError(f"dim is {dim}, but must lie between {-z.dim()} and {z.dim() - 1} for this input")
    if groups < 1 or z.size(dim) % (2 * groups):
        raise InvalidArgumentError(
            f"dimension {dim} of the input has size {z.size(dim)}, but must be a multiple of {2 * max(groups, 1)}: "
            f"a basal and an apical half for each of {groups} groups"
        )


def check_number(name: str, value: Any, *, above: float = -inf) -> float:
    """`value` as a finite float greater than `above`, or the sentence that says why not."""
    try:
        number = float(value)
    except (TypeError, ValueError):
        raise DtypeError(f"{name} is {value!r}, but must be a number or a tensor of numbers") from None
    if isnan(number) or not isfinite(number) or number <= above:
        allowed = f"greater than {above:g} and finite" if above > -inf else "finite"
        raise InvalidArgumentError(f"{name} is {number}, but must be {allowed}")
    return number


def checked(name: str, value: Any, x: Tensor, dim: int, *, above: float = -inf) -> Value:
    """A parameter that fits `x` along `dim`; the values of tensors are looked at only in eager mode on the CPU."""
    if not isinstance(value, Tensor):
        # A proxy of a symbolic trace stands for a tensor whose values nobody knows yet.
        return value if hasattr(value, "__torch_function__") else check_number(name, value, above=above)
    if not value.dtype.is_floating_point:
        raise DtypeError(f"{name} is a tensor of {value.dtype}, but must be floating-point: use {name}.float()")
    if value.numel() != 1:
        check_channels(name, value, x, dim)
    if value.device.type == "cpu" and not observed() and type(value) in (Tensor, torch.nn.Parameter):
        if value.numel() == 1:
            check_number(name, value.item(), above=above)
        elif value.numel():
            low, high = value.detach().aminmax()
            check_number(f"the largest {name}", high.item(), above=above)
            check_number(f"the smallest {name}", low.item(), above=above)
    return value


def check_channels(name: str, value: Tensor, x: Tensor, dim: int) -> None:
    """Refuse a per-channel parameter whose length is not the size of `x` along `dim`."""
    check_input(x)
    if not -x.dim() <= dim < x.dim():
        raise InvalidArgumentError(
            f"{name} has {value.numel()} values for dimension {dim}, but the input has only {x.dim()} dimensions: "
            f"give one value, or a dim between {-x.dim()} and {x.dim() - 1}"
        )
    if value.dim() != 1 or value.numel() != x.size(dim):
        raise InvalidArgumentError(
            f"{name} has shape {tuple(value.shape)}, but dimension {dim} of the input has size {x.size(dim)}: "
            f"give one value, or {x.size(dim)} in one row"
        )
