"""The functions against the torch oracle. Runs where torch is the backend of Keras."""

from typing import Any

import numpy as np
import pytest
import torch

import apical
from apical import keras as ak
from apical.errors import ApicalError
from apical.keras.unit import KINDS, Unit
from apical.kernels import composite

X = np.concatenate([np.linspace(-50, 50, 2001), [0, 1e4, -1e4, 1e15, 1e17, 3e38, -3e38, np.inf, -np.inf]]).astype(
    "float32"
)


@pytest.mark.parametrize("leak", [0.0, 0.01])
@pytest.mark.parametrize("c", [-5.0, 0.0, 1.0])
@pytest.mark.parametrize("alpha", [0.01, 0.3, 1.0, 10.0, 1e4])
def test_values_and_gradients_are_the_oracles(gradients: Any, alpha: float, c: float, leak: float) -> None:
    tensors = [torch.tensor(values, requires_grad=True) for values in (X, np.full_like(X, alpha), np.full_like(X, c))]
    y = composite.ada(*tensors, leak)
    y.backward(torch.ones_like(y))
    found = gradients(lambda x, a, b: ak.ada(x, a, b, leak), *(t.detach().numpy() for t in tensors))
    for mine, oracle in zip(found, (y.detach(), *(t.grad for t in tensors)), strict=True):
        assert mine == pytest.approx(oracle.numpy(), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("name", ["rbf", "swish"])
def test_the_baselines_are_the_oracles(gradients: Any, name: str) -> None:
    x = torch.tensor(X[:-1], requires_grad=True)
    y = getattr(composite, name)(x, 0.7)
    y.backward(torch.ones_like(y))
    mine = gradients(lambda x: getattr(ak, name)(x, 0.7), X[:-1])
    assert mine[0] == pytest.approx(y.detach().numpy(), rel=1e-6, abs=1e-6)
    assert mine[1] == pytest.approx(x.grad.numpy(), rel=1e-6, abs=1e-6, nan_ok=True)


SHARED = ("kind", "alpha", "c", "leak", "scope", "alpha_init")


@pytest.mark.parametrize("text", [
    "relu", "leaky_relu(leak=0.2)", "tanh", "rbf", "swish", "swish(scope=layer)", "ada", "ada(alpha=0.3,c=1)",
    "ada(alpha=learn)", "leaky_ada(alpha=learn,c=-1,leak=0.1,scope=channel,alpha_init=0.5)", "pynrelu", "pynrbf",
    "pynswish(scope=channel)", "pynada(alpha=0.3,c=1)", "leaky_pynada(alpha=learn,scope=layer,alpha_init=0.7)",
])  # fmt: skip
def test_both_halves_read_one_vocabulary(text: str) -> None:
    mine, theirs = Unit.parse(text), apical.Unit.parse(text)
    assert str(mine) == str(theirs)
    assert {name: getattr(mine, name) for name in SHARED} == {name: getattr(theirs, name) for name in SHARED}
    assert apical.Unit.kinds()[: len(KINDS)] == KINDS


@pytest.mark.parametrize("text", [
    "rleu", "ada(", "ada(alpha)", "ada(alpha=)", "ada(beta=1)", "ada(alpha=-1)", "ada(alpha=x)", "ada(leak=0.1)",
    "relu(c=1)", "leaky_ada(leak=2)", "ada(scope=layer)", "ada(alpha=learn,scope=world)", "ada(alpha_init=0.5)",
    "ada(alpha=1,alpha=2)",
])  # fmt: skip
def test_both_halves_refuse_the_same(text: str) -> None:
    for vocabulary in (Unit, apical.Unit):
        with pytest.raises(ApicalError):
            vocabulary.parse(text)
