"""The fused sum of a pyramidal neuron against the two-branch formula written plainly."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from apical import functional as F
from apical.errors import ApicalError, DtypeError, InvalidArgumentError

DTYPES = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 1e-2, torch.float16: 2e-3}


def plainly(z: Tensor, alpha: Tensor, c: Tensor, leak: float, basal_leak: float, groups: int, dim: int) -> Tensor:
    """Group by group: leaky ReLU of the first half plus the printed ADA of the second, on values where exp is safe."""
    parts = []
    outputs = z.shape[dim] // (2 * groups)
    for i, group in enumerate(z.split(2 * outputs, dim)):
        basal, apical = group.split(outputs, dim)
        shape = [1] * z.dim()
        shape[dim] = -1
        own = slice(i * outputs, (i + 1) * outputs)
        a, k = (v[own].reshape(shape) if v.numel() > 1 else v for v in (alpha, c))
        ada = torch.where(apical >= 0, apical * torch.exp(k - a * apical), leak * apical)
        parts.append(torch.where(basal > 0, basal, basal_leak * basal) + ada)
    return torch.cat(parts, dim)


def graded(function: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> list[Tensor]:
    """The output, and the gradients of a weighted sum of it."""
    inputs = tuple(v.clone().requires_grad_() for v in inputs)
    y = function(*inputs)
    weights = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).reshape(y.shape)
    return [y.detach(), *torch.autograd.grad((y.double() * weights).sum(), inputs)]


def values(dtype: torch.dtype, shape: tuple[int, ...] = (3, 12, 5)) -> Tensor:
    return (2 * torch.randn(shape, generator=torch.Generator().manual_seed(3))).to(dtype)


@pytest.mark.parametrize("backend", ["native", "composite"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("groups", "dim"), [(1, 1), (3, 1), (6, 1), (2, -2), (1, 0)])
@pytest.mark.parametrize(("leak", "basal_leak"), [(0.0, 0.0), (0.01, 0.01), (0.0, 0.2)])
@pytest.mark.parametrize("per_channel", [False, True])
def test_equals_the_two_branch_formula_forward_and_backward(
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
    dtype: torch.dtype,
    groups: int,
    dim: int,
    leak: float,
    basal_leak: float,
    per_channel: bool,
) -> None:
    monkeypatch.setenv("APICAL_BACKEND", backend)
    z = values(dtype, (12, 3, 5) if dim == 0 else (3, 12, 5))
    count = 6 if per_channel else 1
    alpha, c = torch.linspace(0.3, 1.5, count, dtype=torch.float64), torch.linspace(0.5, -0.5, count).double()
    wide = torch.float64 if dtype == torch.float64 else torch.float32
    fused = graded(
        lambda z, a, c: F.pyramidal(z, a.to(wide), c.to(wide), leak, basal_leak=basal_leak, groups=groups, dim=dim),
        (z, alpha, c),
    )
    plain = graded(lambda z, a, c: plainly(z, a, c, leak, basal_leak, groups, dim), (z.double(), alpha, c))
    assert fused[0].dtype == dtype
    for ours, exact in zip(fused, plain, strict=True):
        torch.testing.assert_close(ours.double(), exact, atol=DTYPES[dtype] * 4, rtol=DTYPES[dtype] * 4)


@pytest.mark.parametrize("groups", [1, 2])
def test_gradcheck_and_second_derivatives(groups: int) -> None:
    z = values(torch.float64, (2, 8, 2)).requires_grad_()
    alpha = torch.tensor([0.4, 0.8, 1.2, 1.6], dtype=torch.float64, requires_grad=True)
    c = torch.tensor([0.3], dtype=torch.float64, requires_grad=True)

    def function(z: Tensor, alpha: Tensor, c: Tensor) -> Tensor:
        return F.pyramidal(z, alpha, c, 0.01, basal_leak=0.02, groups=groups)

    assert torch.autograd.gradcheck(function, (z, alpha, c))
    assert torch.autograd.gradgradcheck(function, (z, alpha, c))


@pytest.mark.parametrize("basal_leak", [0.0, 0.01])
def test_special_values_follow_relu_and_ada(basal_leak: float) -> None:
    edge = torch.tensor([0.0, -0.0, float("inf"), float("-inf"), float("nan"), 1e30, -1e30])
    z = torch.stack([torch.cat([edge, torch.zeros(7)]), torch.cat([torch.zeros(7), edge])])[:, :, None]
    z.requires_grad_()
    y = F.pyramidal(z, basal_leak=basal_leak)
    expected = torch.nn.functional.leaky_relu(edge, basal_leak) if basal_leak else torch.relu(edge)
    assert torch.equal(torch.nan_to_num(y[0, :, 0], nan=7.0), torch.nan_to_num(expected, nan=7.0))
    assert torch.equal(torch.nan_to_num(y[1, :, 0], nan=7.0), torch.nan_to_num(F.ada(edge), nan=7.0))
    (gradient,) = torch.autograd.grad(y[:, [0, 1]].sum(), z)
    assert gradient[0, 0, 0] == basal_leak  # torch's derivative of the basal branch at 0
    assert gradient[1, 7, 0] == 1.0  # ADA's is e^c


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "strided", "empty"])
def test_any_memory_layout(layout: str) -> None:
    z = values(torch.float32, (2, 8, 4, 6))
    z = {
        "channels_last": z.to(memory_format=torch.channels_last),
        "transposed": z.transpose(2, 3),
        "strided": z[:, :, ::2],
        "empty": z[:0],
    }[layout].requires_grad_()
    alpha = torch.linspace(0.5, 1.0, 4)
    y = F.pyramidal(z, alpha, groups=2)
    exact = plainly(z, alpha, torch.zeros(1), 0.0, 0.0, 2, 1)
    torch.testing.assert_close(y, exact)
    weights = torch.randn_like(y)
    ours, plain = (torch.autograd.grad((out * weights).sum(), z, retain_graph=True)[0] for out in (y, exact))
    torch.testing.assert_close(ours, plain)


def test_saves_one_tensor() -> None:
    saved: list[Tensor] = []
    z = values(torch.float32).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        F.pyramidal(z)
    assert [t.data_ptr() for t in saved] == [z.data_ptr()]


@pytest.mark.parametrize(
    ("call", "error", "sentence"),
    [
        (lambda: F.pyramidal(torch.zeros(2, 5)), InvalidArgumentError, "must be a multiple of 2"),
        (lambda: F.pyramidal(torch.zeros(2, 6), groups=2), InvalidArgumentError, "must be a multiple of 4"),
        (lambda: F.pyramidal(torch.zeros(4), dim=1), InvalidArgumentError, "dim is 1, but must lie between"),
        (
            lambda: F.pyramidal(torch.zeros(2, 6), torch.ones(6)),
            InvalidArgumentError,
            "give one value, or 3 in one row",
        ),
        (lambda: F.pyramidal(torch.zeros(2, 6), basal_leak=2.0), InvalidArgumentError, "basal_leak is 2.0"),
        (lambda: F.pyramidal(torch.zeros(2, 6, dtype=torch.int64)), DtypeError, "floating-point tensor is needed"),
    ],
)
def test_bad_input_is_one_sentence(call, error: type[ApicalError], sentence: str) -> None:
    with pytest.raises(error, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
