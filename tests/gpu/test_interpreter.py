"""The Triton kernels in Triton's interpreter: the whole eager path on CPU tensors, against the composite in float64."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.autograd import forward_ad

pytest.importorskip("triton", reason="needs Triton: run `make test-triton`")

import apical
from apical.errors import BackendError
from apical.functional import ada, pyramidal
from apical.kernels import choice, eager
from apical.kernels import triton as kernels

if not kernels.INTERPRETED:
    pytest.skip("needs the interpreter: run `make test-triton`", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning:triton.*")  # numpy's, where an exponential underflows

TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-10}


@pytest.fixture(autouse=True)
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APICAL_BACKEND", "triton")
    monkeypatch.setattr(choice, "_failure", None)


@st.composite
def strided(draw: st.DrawFn, *, even: bool = False) -> tuple[Tensor, int]:
    """A tensor of any dtype, rank, size (zero included) and memory layout, and the dimension of its channels."""
    shape = draw(
        st.lists(st.sampled_from([0, 1, 2, 3, 5, 17, 40]), min_size=1, max_size=4).filter(
            lambda s: math.prod(s) < 20_000
        )
    )
    dim = draw(st.integers(0, len(shape) - 1))
    if even:
        shape[dim] *= 4
    dtype = draw(st.sampled_from(list(TOLERANCE)))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    order = draw(st.permutations(range(len(shape))))
    gaps = draw(st.booleans())
    base = torch.randn([shape[i] * (1 + gaps) for i in order], generator=generator) * 4
    x = base.permute([order.index(i) for i in range(len(shape))])[tuple(slice(0, size) for size in shape)]
    if draw(st.booleans()) and shape[dim]:
        axis = draw(st.integers(0, len(shape) - 1))
        x = x.narrow(axis, 0, min(1, shape[axis])).expand(shape)
    return x.to(dtype), dim - draw(st.sampled_from([0, len(shape)]))


@st.composite
def parameters(draw: st.DrawFn, channels: int) -> list[float | Tensor]:
    """alpha and c: numbers, tensors of one value in any float dtype, or of one for each channel."""
    values: list[float | Tensor] = []
    for low, high in ((0.1, 3.0), (-2.0, 2.0)):
        kind = draw(st.sampled_from(["number", "one", "each"] if channels else ["number", "one"]))
        dtype = draw(st.sampled_from([torch.float32, torch.float64]))
        values.append(
            low if kind == "number" else torch.linspace(low, high, channels if kind == "each" else 1, dtype=dtype)
        )
    return values


def graded(operation: eager.Operation, x: Tensor, values: list[float | Tensor], exact: bool) -> list[Tensor]:
    leaves = [v.detach().requires_grad_() if isinstance(v, Tensor) else v for v in (x, *values)]
    if exact:
        y = operation.composite(leaves[0].double(), *leaves[1:])
    else:
        assert choice.path(x) == "triton"
        y = eager.run(operation, *leaves)
        assert y.dtype == x.dtype
    g = torch.linspace(0.25, 1, y.numel()).view(y.shape).to(x.dtype).to(y.dtype)
    return [y.detach(), *torch.autograd.grad(y, [v for v in leaves if isinstance(v, Tensor)], g)]


def agree(operation: eager.Operation, x: Tensor, values: list[float | Tensor]) -> None:
    ours, exact = graded(operation, x, values, exact=False), graded(operation, x, values, exact=True)
    for i, (a, b) in enumerate(zip(ours, exact, strict=True)):
        assert a.shape == b.shape
        bound = TOLERANCE[x.dtype] if i < 2 else 1e-5
        largest = float(b.nan_to_num(0.0, 0.0, 0.0).abs().max()) if b.numel() else 0.0
        torch.testing.assert_close(a.double(), b.double(), rtol=bound, atol=bound * largest, equal_nan=True)


@settings(max_examples=120, deadline=None)
@given(case=strided(), leak=st.sampled_from([0.0, 0.01]), data=st.data())
def test_ada(case: tuple[Tensor, int], leak: float, data: st.DataObject) -> None:
    x, dim = case
    agree(eager.Ada(leak, dim=dim), x, data.draw(parameters(x.shape[dim])))


@settings(max_examples=120, deadline=None)
@given(case=strided(even=True), leaks=st.sampled_from([(0.0, 0.0), (0.01, 0.0), (0.0, 0.2)]), data=st.data())
def test_pyramidal(case: tuple[Tensor, int], leaks: tuple[float, float], data: st.DataObject) -> None:
    z, dim = case
    groups = data.draw(st.sampled_from([1, 2]))
    agree(eager.Pyramidal(leaks[0], 0.0, dim, leaks[1], groups), z, data.draw(parameters(z.shape[dim] // 2)))


@settings(max_examples=60, deadline=None)
@given(
    given_values=st.lists(st.floats(width=32), min_size=1, max_size=20),
    alpha=st.floats(1e-4, 1e4),
    c=st.floats(-20, 20),
    leak=st.sampled_from([0.0, 0.01]),
)
def test_any_value(given_values: list[float], alpha: float, c: float, leak: float) -> None:
    """Special values included; where the exponential is not a normal number, an error of its size is allowed."""
    x = torch.tensor(given_values).requires_grad_()
    a = torch.tensor([alpha], requires_grad=True)
    y = ada(x, a, c, leak)
    gx, ga = torch.autograd.grad(y, (x, a), torch.ones_like(x))
    wide = x.detach().double()
    p = wide.clamp(0, 1e16)
    alpha = a.item()
    e = torch.exp(c - alpha * p)
    tolerance = 1e-5 * e * (1 + alpha * p) + 1e-37
    values = torch.where(wide < 0, leak * wide if leak else 0.0, p * e)
    slopes = torch.where(wide < 0, leak, e * (1 - alpha * p)).where(~wide.isnan(), torch.nan)
    for ours, exact, error in ((y.detach(), values, p * tolerance), (gx, slopes, tolerance)):
        close = (ours - exact).abs() <= error + 2e-7 * exact.abs() + 1e-44
        assert (close | (ours == exact) | (ours.isnan() & exact.isnan())).all()
    assert ga.isnan() == wide.isnan().any()
    if not wide.isnan().any():
        assert ga.isfinite()


def test_a_learned_alpha_below_its_floor_is_held_and_comes_back() -> None:
    module = apical.ADA(alpha=0.5, learnable=True, num_parameters=3)
    with torch.no_grad():
        module.alpha.copy_(torch.tensor([-1.0, 1e-5, 0.7]))
    x = torch.randn(4, 3, 2).abs()
    with pytest.MonkeyPatch.context() as patch:
        ours = [module(x), *torch.autograd.grad(module(x).sum(), module.parameters())]
        patch.setenv("APICAL_BACKEND", "composite")
        exact = [module(x), *torch.autograd.grad(module(x).sum(), module.parameters())]
    for a, b in zip(ours, exact, strict=True):
        torch.testing.assert_close(a, b)
    assert (ours[1] != 0).all()


def test_channels_last_needs_no_copy_and_one_tensor_is_saved() -> None:
    saved: list[Tensor] = []
    x = torch.randn(2, 6, 3, 4).to(memory_format=torch.channels_last).requires_grad_()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t):
        y = ada(x)
        z = pyramidal(x, groups=3)
    assert [t.data_ptr() for t in saved] == [x.data_ptr()] * 2
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert z.is_contiguous(memory_format=torch.channels_last)
    (gx,) = torch.autograd.grad(y.sum() + z.sum(), x)
    assert gx.is_contiguous(memory_format=torch.channels_last)


def test_everything_that_looks_at_operations_sees_the_composite() -> None:
    x = torch.rand(4, 3)
    exact = ada(x, 0.5)
    torch.testing.assert_close(torch.func.vmap(lambda row: ada(row, 0.5))(x), exact)
    torch.testing.assert_close(torch.compile(ada, fullgraph=True, backend="aot_eager")(x, 0.5), exact)
    torch.testing.assert_close(torch.export.export(apical.ADA(alpha=0.5), (x,)).module()(x), exact)
    with forward_ad.dual_level():
        tangent = forward_ad.unpack_dual(ada(forward_ad.make_dual(x, torch.ones_like(x)), 0.5)).tangent
    leaf = x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(ada(leaf, 0.5).sum(), leaf, create_graph=True)
    torch.testing.assert_close(tangent, slope)
    (curvature,) = torch.autograd.grad(slope.sum(), leaf)
    torch.testing.assert_close(curvature, torch.exp(-0.5 * x) * (0.25 * x - 1.0))


def test_what_the_kernels_do_not_serve() -> None:
    assert choice.path(torch.ones(3, dtype=torch.float64)) == "lean"
    assert ada(torch.ones(3, dtype=torch.float64)).dtype == torch.float64
    with pytest.raises(BackendError, match="APICAL_BACKEND=triton cannot run this call: the input is on meta"):
        ada(torch.ones(3, device="meta"))


@pytest.mark.parametrize("kernel", ["_forward", "_backward"])
def test_a_launch_that_fails_warns_once_and_plain_torch_serves(monkeypatch: pytest.MonkeyPatch, kernel: str) -> None:
    class Broken:
        def __getitem__(self, grid: object) -> object:
            raise RuntimeError("Failed to find C compiler.\nPlease specify via CC environment variable.")

    x = torch.rand(5, requires_grad=True)
    exact = torch.autograd.grad(ada(x).sum(), x)[0]
    monkeypatch.setattr(kernels, kernel, Broken())
    with pytest.raises(BackendError, match="cannot run this call: RuntimeError: Failed to find C compiler"):
        torch.autograd.grad(ada(x).sum(), x)
    # Without APICAL_BACKEND a CPU tensor never comes here: let this one pass for a GPU's.
    monkeypatch.delenv("APICAL_BACKEND")
    monkeypatch.setattr(choice, "path", lambda x: "triton" if choice.triton().module else "lean")
    with pytest.warns(
        RuntimeWarning, match="a Triton kernel could not be launched, so plain torch computes it"
    ) as caught:
        torch.testing.assert_close(torch.autograd.grad(ada(x).sum(), x)[0], exact)
    assert len(caught) == 1
    assert "\n" not in str(caught[0].message)
    torch.testing.assert_close(torch.autograd.grad(ada(x).sum(), x)[0], exact)  # no warning: it would be an error
    assert choice.backend("cuda").name == "composite"
    assert "Failed to find C compiler" in choice.backend("cuda").reason
