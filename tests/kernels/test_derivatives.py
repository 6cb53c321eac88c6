"""First and higher derivatives, in every mode that torch has for them."""

import pytest
import torch
from torch.autograd import forward_ad, gradcheck, gradgradcheck
from torch.func import grad, hessian, jacrev, jvp, vmap

from apical.functional import ada, leaky_ada
from apical.kernels import eager

SHAPES = {"scalar": (), "one": (1,), "per channel": (3,)}


def inputs(kind: str) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4, 3, 2, generator=generator, dtype=torch.float64) * 2
    alpha = torch.rand(SHAPES[kind], generator=generator, dtype=torch.float64) + 0.3
    c = torch.randn(SHAPES[kind], generator=generator, dtype=torch.float64)
    return x.requires_grad_(), alpha.requires_grad_(), c.requires_grad_()


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("leak", [0.0, 0.01])
def test_gradcheck(kind: str, leak: float) -> None:
    def function(x: torch.Tensor, alpha: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return ada(x, alpha, c, leak)

    assert gradcheck(function, inputs(kind), check_forward_ad=True, check_batched_grad=True)
    assert gradgradcheck(function, inputs(kind), check_fwd_over_rev=True, check_rev_over_rev=True)


@pytest.mark.parametrize("mixed", [(1.3, "tensor"), ("tensor", 0.4), (1.3, 0.4)])
def test_gradcheck_with_numbers(mixed: tuple[object, object]) -> None:
    x, alpha, c = inputs("per channel")
    values = [v if isinstance(v, float) else tensor for v, tensor in zip(mixed, (alpha, c), strict=True)]
    tensors = [v for v in values if isinstance(v, torch.Tensor)]

    def function(x: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        rest = list(given)
        return ada(x, *(v if isinstance(v, float) else rest.pop(0) for v in values), 0.01)

    assert gradcheck(function, (x, *tensors))
    assert gradgradcheck(function, (x, *tensors))


def test_channels_of_different_count_for_alpha_and_c() -> None:
    x, alpha, _ = inputs("per channel")
    c = torch.tensor([0.2], dtype=torch.float64, requires_grad=True)
    assert gradcheck(ada, (x, alpha, c))
    assert gradcheck(
        ada, (x, alpha.detach()[:1].requires_grad_(), torch.zeros(3, dtype=torch.float64).requires_grad_())
    )


def test_only_alpha_needs_a_gradient() -> None:
    x, alpha, c = inputs("scalar")
    assert gradcheck(lambda a: ada(x.detach(), a, c.detach()), (alpha,))


def test_forward_mode_equals_reverse_mode() -> None:
    x, alpha, c = (v.detach() for v in inputs("per channel"))
    tangent = torch.ones_like(x)
    with forward_ad.dual_level():
        dual = forward_ad.unpack_dual(ada(forward_ad.make_dual(x, tangent), alpha, c, 0.01))
    jacobian = torch.autograd.grad(ada(x.requires_grad_(), alpha, c, 0.01).sum(), x)[0]
    torch.testing.assert_close(dual.tangent, jacobian)
    value, pushed = jvp(lambda t: leaky_ada(t, alpha, c), (x.detach(),), (tangent,))
    torch.testing.assert_close(pushed, jacobian)
    torch.testing.assert_close(value, ada(x.detach(), alpha, c, 0.01))


def test_reverse_over_forward() -> None:
    x, alpha, c = (v.detach() for v in inputs("scalar"))

    def pushed(t: torch.Tensor) -> torch.Tensor:
        return jvp(lambda u: ada(u, alpha, c), (t,), (torch.ones_like(t),))[1].sum()

    second = torch.autograd.grad(
        torch.autograd.grad(ada(x.requires_grad_(), alpha, c).sum(), x, create_graph=True)[0].sum(), x
    )[0]
    torch.testing.assert_close(grad(pushed)(x.detach()), second)


def test_vmap_and_hessian() -> None:
    x, alpha, c = (v.detach() for v in inputs("scalar"))
    torch.testing.assert_close(vmap(lambda row: ada(row, alpha, c))(x), ada(x, alpha, c))
    torch.testing.assert_close(
        vmap(lambda a: ada(x, a, c))(torch.stack([alpha, alpha])), ada(x, alpha, c).expand(2, -1, -1, -1)
    )
    flat = x.flatten()[:5]
    table = hessian(lambda t: ada(t, alpha, c, 0.01).sum())(flat)
    p = flat.clamp(min=0)
    curvature = torch.where(flat < 0, 0.0, torch.exp(c - alpha * p) * (alpha * alpha * p - 2 * alpha))
    torch.testing.assert_close(table, torch.diag(curvature))
    assert jacrev(lambda t: ada(t, alpha, c))(flat).shape == (5, 5)


def test_saves_one_tensor_of_the_size_of_its_input() -> None:
    sizes: list[int] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        sizes.append(tensor.numel())
        return tensor

    x = torch.randn(8, 5, 7, requires_grad=True)
    alpha = torch.ones(5, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = ada(x, alpha, 0.5)
    assert sorted(sizes) == [5, x.numel()]
    torch.autograd.grad(y.sum(), (x, alpha))


def test_the_saved_tensor_is_the_input_itself() -> None:
    kept: list[torch.Tensor] = []
    x = torch.randn(64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        ada(x)
    assert [t.data_ptr() for t in kept] == [x.data_ptr()]


def test_change_in_place_is_noticed() -> None:
    x = torch.randn(5, requires_grad=True).clone()
    y = ada(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "expanded"])
def test_upstream_gradients_of_any_layout(layout: str) -> None:
    x = torch.randn(6, 4, 5, dtype=torch.float64, requires_grad=True)
    g = {
        "contiguous": torch.randn(6, 4, 5, dtype=torch.float64),
        "transposed": torch.randn(5, 4, 6, dtype=torch.float64).transpose(0, 2),
        "expanded": torch.randn(1, dtype=torch.float64).expand(6, 4, 5),
    }[layout]
    (found,) = torch.autograd.grad(ada(x, 0.7, 0.2), x, g)
    value = x.detach()
    p = value.clamp(min=0)
    slope = torch.where(value < 0, 0.0, torch.exp(0.2 - 0.7 * p) * (1 - 0.7 * p))
    torch.testing.assert_close(found, g * slope)


@pytest.mark.parametrize("shape", [(6, 50), (6, 1), (3, 7000)], ids=["runs", "across", "pieces"])
@pytest.mark.parametrize("wanted", [(False, False), (True, True)])
def test_the_gradient_may_take_the_place_of_the_upstream_one(shape: tuple[int, int], wanted: tuple[bool, bool]) -> None:
    generator = torch.Generator().manual_seed(0)
    x, g = torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)
    alpha, c = torch.rand(shape[0], generator=generator) + 0.3, torch.randn(shape[0], generator=generator)
    operation = eager.Ada(leak=0.1, dim=0)
    bound = operation.bind(x, alpha, c)
    expected = operation.backward(x, g, bound, wanted)
    found = operation.backward(x, g, bound, wanted, g)
    assert found[0] is g
    for one, other in zip(expected, found, strict=True):
        assert (one is None and other is None) or torch.equal(one, other)  # type: ignore[arg-type]
