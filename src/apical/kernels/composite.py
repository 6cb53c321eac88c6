"""The formulas in plain torch: the oracle of the tests, and what compilers, exporters and transforms see.

Kept naive on purpose. Parameters come as numbers, or as tensors that already broadcast against `x`.

NaN in, NaN out. The gradient at NaN is torch's for a clamp, 0 (and the leak's, where there is one); the eager paths,
which own their backward pass, give NaN there.
"""

import torch
from torch import Tensor

Number = float | Tensor

# Where e^(c - alpha*x) has long been zero, x is held here: neither inf nor x * gradient can turn that zero into NaN.
_FLAT = {torch.float32: 1e16, torch.float64: 1e150}


def wide(x: Tensor) -> Tensor:
    """`x` in the dtype that the formulas compute in: float32 for half types, its own otherwise."""
    return x if x.dtype == torch.float64 else x.to(torch.float32)


def _positive_part(x: Tensor) -> Tensor:
    """max(0, x): one clamp, which is one node of an exported graph. Its derivative is 1 at 0, 0 at +inf and at NaN."""
    return torch.clamp(x, 0.0, _FLAT[x.dtype])


def ada(x: Tensor, alpha: Number, c: Number, leak: float) -> Tensor:
    """leak*min(0,x) + max(0,x)*exp(c - alpha*max(0,x)), Eqs. 3 and 6 of the paper."""
    value = wide(x)
    p = _positive_part(value)
    y = p * torch.exp(c - alpha * p)
    if leak:
        y = y - torch.relu(-leak * value)  # the derivative of ReLU at 0 is 0, so that at 0 the right-hand side decides
    return y.to(x.dtype)


def dendrite(x: Tensor) -> Tensor:
    """0 below zero, exp(-x) from zero on, Eq. 2 of the paper."""
    value = wide(x)
    y = torch.where(value < 0, 0.0, torch.exp(-_positive_part(value)))
    return y.to(x.dtype)


def rbf(x: Tensor, s: Number) -> Tensor:
    """exp(-x^2 / s)."""
    value = wide(x)
    bound = _FLAT[value.dtype]
    value = torch.clamp(value, -bound, bound)
    return torch.exp(-(value * value) / s).to(x.dtype)


def swish(x: Tensor, beta: Number) -> Tensor:
    """x * sigmoid(beta * x)."""
    value = wide(x)
    return (value * torch.sigmoid(beta * value)).to(x.dtype)


def branches(z: Tensor, groups: int, dim: int) -> tuple[Tensor, Tensor]:
    """The basal and the apical half of `z` along `dim`, where each group holds its basal, then its apical channels."""
    dim = dim % z.dim()
    halves = z.unflatten(dim, (groups, 2, -1))  # type: ignore[no-untyped-call]
    return halves.select(dim + 1, 0).flatten(dim, dim + 1), halves.select(dim + 1, 1).flatten(dim, dim + 1)


def pyramidal(basal: Tensor, apical: Tensor, alpha: Number, c: Number, leak: float, basal_leak: float) -> Tensor:
    """basal(x') + ADA(x''), Eq. 12 of the paper; the basal branch is ReLU, or leaky ReLU with `basal_leak`."""
    value = wide(basal)
    value = torch.nn.functional.leaky_relu(value, basal_leak) if basal_leak else torch.relu(value)
    return (value + ada(wide(apical), alpha, c, leak)).to(basal.dtype)
