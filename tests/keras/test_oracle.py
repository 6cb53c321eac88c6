"""The functions against the torch oracle. Runs where torch is the backend of Keras."""

from typing import Any

import numpy as np
import pytest
import torch
from keras import ops

import apical
from apical import keras as ak
from apical.errors import ApicalError
from apical.keras.unit import KINDS, layer, parse
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


@pytest.mark.parametrize("kind", KINDS)
def test_the_kinds_of_the_paper_have_keras_layers(kind: str) -> None:
    for branch in (parse(kind).basal, *([parse(kind).apical] if parse(kind).pyramidal else [])):
        assert layer(branch) is not None
    assert apical.Unit.kinds()[: len(KINDS)] == KINDS


@pytest.mark.parametrize("text", ["rbf(s=2)", "swish(beta=0.5)", "swish(beta_init=0.5)", "ada(alpha=0.3,c=1)"])
def test_a_unit_computes_the_same_in_both_halves(text: str) -> None:
    x = X[:-1].astype("float32")
    mine = layer(parse(text))(x)
    theirs = apical.Unit.parse(text).layers().activation()(torch.from_numpy(x))
    assert ops.convert_to_numpy(mine) == pytest.approx(theirs.detach().numpy(), rel=1e-6, abs=1e-6)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("rleu", "unknown unit 'rleu'; did you mean 'relu'"),
        ("ada(beta=1)", "unknown setting 'beta'"),
        ("gelu", "unknown unit for Keras 'gelu'; .*available: relu, leaky_relu"),
        ("pyramidal(basal=relu,apical=mish)", "unknown unit for Keras 'mish'"),
        ("pynrbf(s=learn)", "unit 'pynrbf\\(s=learn\\)' learns s, but RBF for Keras has a fixed one"),
    ],
)
def test_what_has_no_keras_layer_is_one_sentence(text: str, sentence: str) -> None:
    with pytest.raises(ApicalError, match=sentence):
        parse(text)
