"""The functions: formulas against plain ones, and one clear sentence for every wrong argument."""

import math

import pytest
import torch

from apical.errors import ApicalError, DtypeError, InvalidArgumentError
from apical.functional import ada, dendrite, leaky_ada, pyramidal, rbf, swish

X = torch.linspace(-6, 9, 61, dtype=torch.float64)


def test_ada_is_equation_3() -> None:
    torch.testing.assert_close(ada(X, 0.7, 0.4), X.clamp(min=0) * torch.exp(0.4 - 0.7 * X.clamp(min=0)))


def test_leaky_ada_is_equation_6() -> None:
    torch.testing.assert_close(leaky_ada(X, 0.7, 0.4, 0.2), ada(X, 0.7, 0.4) + 0.2 * X.clamp(max=0))
    torch.testing.assert_close(leaky_ada(X), ada(X, leak=0.01))


def test_peak_lies_at_one_over_alpha() -> None:
    x = torch.linspace(0, 20, 200_001, dtype=torch.float64)
    for alpha, c in ((0.25, 0.0), (1.0, 1.0), (3.0, -1.0)):
        height, at = ada(x, alpha, c).max(0)
        assert x[at].item() == pytest.approx(1 / alpha, abs=1e-3)
        assert height.item() == pytest.approx(math.exp(c - 1) / alpha, rel=1e-6)


def test_dendrite_is_equation_2() -> None:
    torch.testing.assert_close(dendrite(X), torch.where(X < 0, 0.0, torch.exp(-X)))


def test_rbf_and_swish() -> None:
    torch.testing.assert_close(rbf(X, 2.0), torch.exp(-(X**2) / 2))
    torch.testing.assert_close(swish(X, 1.7), X * torch.sigmoid(1.7 * X))
    torch.testing.assert_close(swish(X), torch.nn.functional.silu(X))


@pytest.mark.parametrize("function", [dendrite, rbf, lambda x: swish(x, 2.0)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_the_others_stay_finite_in_every_dtype(function: object, dtype: torch.dtype) -> None:
    largest = torch.finfo(dtype).max
    x = torch.tensor([-largest, -88.0, -11.0, 0.0, 11.0, 88.0, largest], dtype=dtype, requires_grad=True)
    y = function(x)
    assert y.dtype == dtype
    assert y.isfinite().all()
    assert torch.autograd.grad(y.sum(), x)[0].isfinite().all()


@pytest.mark.parametrize("function", [dendrite, lambda x: rbf(x, 0.7), lambda x: swish(x, 1.3)])
def test_gradcheck_of_the_others(function: object) -> None:
    x = torch.tensor([-2.0, -0.3, 0.4, 1.9], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(function, (x,))
    assert torch.autograd.gradgradcheck(function, (x,))


def test_learned_beta_per_channel() -> None:
    x = torch.randn(4, 3, dtype=torch.float64, requires_grad=True)
    beta = torch.tensor([0.5, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, b: swish(x, b, dim=-1), (x, beta))


def test_numbers_of_any_kind() -> None:
    import numpy

    wanted = ada(X, 2.0, 1.0)
    assert torch.equal(ada(X, 2, 1), wanted)
    assert torch.equal(ada(X, numpy.float32(2), numpy.int64(1)), wanted)
    assert torch.equal(ada(X, torch.tensor(2.0), torch.tensor([1.0])), wanted)


WRONG = {
    "integers": (lambda: ada(torch.arange(3)), "floating-point tensor is needed, got torch.int64: convert it first"),
    "integers in a module function": (lambda: rbf(torch.arange(3)), "got torch.int64"),
    "complex": (lambda: ada(torch.ones(3, dtype=torch.complex64)), "got torch.complex64"),
    "a list": (lambda: ada([1.0, 2.0]), "a tensor is needed, got list"),
    "alpha of zero": (lambda: ada(X, 0.0), "alpha is 0.0, but must be greater than 0 and finite"),
    "negative alpha": (lambda: ada(X, -1.0), "alpha is -1.0, but must be greater than 0"),
    "NaN alpha": (lambda: ada(X, math.nan), "alpha is nan, but must be greater than 0"),
    "infinite alpha": (lambda: ada(X, math.inf), "alpha is inf"),
    "infinite c": (lambda: ada(X, 1.0, math.inf), "c is inf, but must be finite"),
    "text": (lambda: ada(X, "learn"), "alpha is 'learn', but must be a number or a tensor"),
    "leak": (lambda: ada(X, leak=-0.1), r"leak is -0.1, but must lie in \[0, 1\]"),
    "alpha tensor of zero": (lambda: ada(X, torch.tensor(0.0)), "alpha is 0.0, but must be greater than 0"),
    "NaN in a tensor": (lambda: ada(torch.ones(2, 3), torch.tensor([1.0, math.nan, 1.0])), "alpha is nan"),
    "negative in a tensor": (lambda: ada(torch.ones(2, 3), torch.tensor([1.0, -2.0, 1.0])), "smallest alpha is -2.0"),
    "integer alpha tensor": (lambda: ada(X, torch.tensor([1])), "alpha is a tensor of torch.int64"),
    "wrong length": (
        lambda: ada(torch.ones(2, 5), torch.ones(3)),
        r"alpha has shape \(3,\), but dimension 1 of the input has size 5: give one value, or 5 in one row",
    ),
    "wrong length of c": (lambda: ada(torch.ones(2, 5), 1.0, torch.ones(4)), r"c has shape \(4,\)"),
    "no such dimension": (lambda: ada(torch.ones(5), torch.ones(3)), "input has only 1 dimensions: give one value"),
    "a matrix": (lambda: ada(torch.ones(2, 4), torch.ones(2, 2)), r"alpha has shape \(2, 2\)"),
    "odd channels": (lambda: pyramidal(torch.ones(2, 5)), "size 5, but must be a multiple of 2: a basal and an apical"),
    "too many groups": (lambda: pyramidal(torch.ones(2, 6), groups=2), "must be a multiple of 4"),
    "no groups": (lambda: pyramidal(torch.ones(2, 6), groups=0), "groups"),
    "pyramidal dim": (lambda: pyramidal(torch.ones(6)), "dim is 1, but must lie between -1 and 0"),
    "pyramidal alpha": (lambda: pyramidal(torch.ones(2, 6), torch.ones(6)), "has size 3: give one value, or 3"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_get_one_sentence(case: str) -> None:
    call, sentence = WRONG[case]
    with pytest.raises(ApicalError, match=sentence) as caught:
        call()
    assert isinstance(caught.value, (InvalidArgumentError, DtypeError))
    assert "\n" not in str(caught.value)
