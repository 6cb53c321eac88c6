"""ADA against oracles that share no code with it: mpmath, long doubles, and float64 for all half patterns."""

import math

import mpmath
import numpy as np
import pytest
import torch

from apical.functional import ada, pyramidal

BACKENDS = ["native", "composite"]
HALVES = [torch.float16, torch.bfloat16]
# |c - alpha*x| <= 8, and as long as exp(c - alpha*x) is a normal number
BOUNDS = {torch.float32: (1e-6, 1e-5), torch.float64: (1e-14, 1e-12)}


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("APICAL_BACKEND", request.param)
    return request.param


def exact(x: torch.Tensor, alpha: float, c: float, leak: float = 0.0) -> np.ndarray:
    """Eqs. 3 and 6 in 80-bit arithmetic; alpha and c as the input's dtype holds them."""
    alpha, c = (np.longdouble(torch.tensor(v, dtype=x.dtype).item()) for v in (alpha, c))
    value = x.double().numpy().astype(np.longdouble)
    p = np.maximum(value, 0)
    return p * np.exp(c - alpha * p) + leak * np.minimum(value, 0)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("alpha", [0.01, 0.1, 0.3, 1.0, 3.3, 10.0])
@pytest.mark.parametrize("c", [-5.0, -0.7, 0.0, 1.0, 5.0])
def test_relative_error_is_bounded(dtype: torch.dtype, alpha: float, c: float) -> None:
    near, far = BOUNDS[dtype]
    lowest = math.log(torch.finfo(dtype).tiny)
    generator = torch.Generator().manual_seed(1)
    spread = torch.rand(20000, generator=generator, dtype=torch.float64)
    x = torch.cat([spread * 1e4, spread * 30 / alpha, 10 ** (spread * 34 - 30)]).to(dtype)
    exponent = exact_exponent(x, alpha, c)
    wanted = exact(x, alpha, c)
    error = np.abs(ada(x, alpha, c).double().numpy() - wanted) / np.maximum(wanted, np.finfo(np.longdouble).tiny)
    assert error[np.abs(exponent) <= 8].max() <= near
    assert error[exponent > lowest].max() <= far


def exact_exponent(x: torch.Tensor, alpha: float, c: float) -> np.ndarray:
    alpha, c = (np.longdouble(torch.tensor(v, dtype=x.dtype).item()) for v in (alpha, c))
    return c - alpha * x.double().numpy().astype(np.longdouble)


@pytest.mark.usefixtures("backend")
def test_values_and_slopes_match_mpmath() -> None:
    points = [1e-30, 0.001, 0.5, 1.0, 2.0, 7.3, 50.0, 300.0]
    with mpmath.workdps(40):
        for alpha, c in ((1.0, 0.0), (0.3, 1.0), (2.5, -3.0)):
            x = torch.tensor(points, dtype=torch.float64, requires_grad=True)
            y = ada(x, alpha, c)
            (slope,) = torch.autograd.grad(y.sum(), x)
            for point, value, gradient in zip(points, y.tolist(), slope.tolist(), strict=True):
                e = mpmath.exp(mpmath.mpf(c) - mpmath.mpf(alpha) * mpmath.mpf(point))
                assert value == pytest.approx(float(mpmath.mpf(point) * e), rel=1e-13, abs=0)
                assert gradient == pytest.approx(float(e * (1 - mpmath.mpf(alpha) * mpmath.mpf(point))), rel=1e-12)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("leak", [0.0, 0.01])
def test_negative_inputs_give_the_leak_alone(dtype: torch.dtype, leak: float) -> None:
    x = -torch.logspace(-30, 30, 500, dtype=torch.float64).to(dtype)
    assert torch.equal(ada(x, 0.5, 1.0, leak), x * leak if leak else torch.zeros_like(x))


def all_patterns(dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)


def steps_apart(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """How many representable numbers lie between two half tensors; 0 and -0 are one number."""
    ordered = [torch.where(v < 0, -(v & 0x7FFF), v) for v in (t.view(torch.int16).int() for t in (a, b))]
    return (ordered[0] - ordered[1]).abs()


@pytest.mark.usefixtures("backend", "all_cores")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("leak", [0.0, 0.01])
@pytest.mark.parametrize(("alpha", "c"), [(1.0, 0.0), (1.0, 1.0), (0.0625, -2.0), (8.0, 5.0)])
def test_all_half_patterns_forward(dtype: torch.dtype, alpha: float, c: float, leak: float) -> None:
    x = all_patterns(dtype)
    y = ada(x, alpha, c, leak)
    assert y.dtype == dtype
    finite = x.isfinite()
    wide = x[finite].double()
    p = wide.clamp(min=0)
    wanted = (p * torch.exp(c - alpha * p) + float(np.float32(leak)) * wide.clamp(max=0)).to(dtype)
    assert steps_apart(y[finite], wanted).max() <= 1
    assert y[x.isnan()].isnan().all()
    assert (y[x == torch.inf] == 0).all()
    assert (y[x == -torch.inf] == (-torch.inf if leak else 0)).all()


@pytest.mark.usefixtures("backend", "all_cores")
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("leak", [0.0, 0.01])
@pytest.mark.parametrize(("alpha", "c"), [(1.0, 0.0), (0.0625, -2.0), (8.0, 5.0)])
def test_all_half_patterns_backward(dtype: torch.dtype, alpha: float, c: float, leak: float) -> None:
    x = all_patterns(dtype).requires_grad_()
    a = torch.tensor(alpha, requires_grad=True)
    gx, ga = torch.autograd.grad(ada(x, a, c, leak), (x, a), torch.ones_like(x))
    x = x.detach()
    finite = x.isfinite()
    wide = x[finite].double()
    slope = torch.where(wide < 0, float(np.float32(leak)), torch.exp(c - alpha * wide) * (1 - alpha * wide)).nan_to_num(
        nan=0.0
    )
    # 1 - alpha*x cancels near the peak: one rounding of alpha*x in float32 is what remains there
    tolerance = torch.finfo(dtype).eps * slope.abs() + 4e-7 * math.exp(c) + torch.finfo(dtype).smallest_normal
    assert ((gx[finite].double() - slope).abs() <= tolerance).all()
    assert gx[x.isnan()].isnan().all()
    assert (gx[x == torch.inf] == 0).all()
    assert (gx[x == -torch.inf].double() - leak).abs().max() < 1e-4
    assert ga.isnan()  # the NaN inputs reach it, and nothing else may: next line
    a = torch.tensor(alpha, requires_grad=True)
    number = x[~x.isnan()]
    (ga,) = torch.autograd.grad(ada(number, a, c, leak), a, torch.ones_like(number))
    p = number[number.isfinite()].double().clamp(min=0)
    assert ga.item() == pytest.approx(-(p * p * torch.exp(c - alpha * p)).sum().item(), rel=1e-4)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", [*BOUNDS, *HALVES])
@pytest.mark.parametrize("alpha", [1e-4, 1.0, 1e4])
@pytest.mark.parametrize("c", [-20.0, 0.0, 20.0])
def test_finite_inputs_never_give_nan(dtype: torch.dtype, alpha: float, c: float) -> None:
    largest = torch.finfo(dtype).max
    x = torch.logspace(-30, math.log10(largest), 4001, dtype=torch.float64).clamp(max=largest).to(dtype)
    x = torch.cat([x, -x]).requires_grad_()
    a, b = (torch.tensor(v, dtype=torch.float64, requires_grad=True) for v in (alpha, c))
    y = ada(x, a, b, 0.01)
    gx, ga, gb = torch.autograd.grad(y, (x, a, b), torch.full_like(x, 3.0))
    peak = math.exp(c - 1) / alpha
    assert not y.isnan().any()
    assert peak > largest or y.isfinite().all()
    assert not gx.isnan().any()
    assert ga.isfinite()
    assert gb.isfinite()


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("dtype", [*BOUNDS, *HALVES])
def test_derivative_at_zero_is_the_right_hand_one(dtype: torch.dtype) -> None:
    for leak in (0.0, 0.01):
        x = torch.tensor([0.0, -0.0], dtype=dtype, requires_grad=True)
        (slope,) = torch.autograd.grad(ada(x, 0.7, 1.0, leak).sum(), x)
        assert slope.double().tolist() == pytest.approx([math.e] * 2, rel=4 * torch.finfo(dtype).eps)


@pytest.mark.usefixtures("backend", "all_cores")
def test_sums_for_alpha_keep_their_digits() -> None:
    x = torch.full((3_000_000,), 0.1)
    a, c = torch.tensor([1.0], requires_grad=True), torch.tensor([0.0], requires_grad=True)
    ga, gc = torch.autograd.grad(ada(x, a, c).sum(), (a, c))
    tenth = x[0].double().item()
    assert ga.item() == pytest.approx(-len(x) * tenth**2 * math.exp(-tenth), rel=1e-5)
    assert gc.item() == pytest.approx(len(x) * tenth * math.exp(-tenth), rel=1e-5)


@pytest.mark.parametrize("leak", [0.0, 0.01])
def test_gradient_at_nan_is_nan_in_eager_mode_and_that_of_a_clamp_elsewhere(
    monkeypatch: pytest.MonkeyPatch, leak: float
) -> None:
    x = torch.tensor([math.nan, 0.5])
    for name in BACKENDS:
        monkeypatch.setenv("APICAL_BACKEND", name)
        z = torch.tensor([[math.nan, 0.5, math.nan, 0.5]], requires_grad=True)
        y = pyramidal(z, 1.0, 0.0, leak)
        (gz,) = torch.autograd.grad(y, z, torch.full((1, 2), 3.0))
        assert gz[0, 0] == 3.0  # torch's ReLU
        assert gz[0, 2].isnan()
        assert gz[0, [1, 3]].isfinite().all()
        assert y[0, 0].isnan()
    through = torch.func.grad(lambda t: ada(t, 1.0, 0.0, leak).sum())(x)
    assert through[0].item() == pytest.approx(leak)
    assert ada(x)[0].isnan()
