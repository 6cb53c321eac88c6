"""Lemma 1 and Corollaries 2, 3 and 4 of the paper, with the paper's own weights: one neuron, outputs rounded."""

import torch
from torch import nn

from apical import ADA, PyramidalLinear

INPUTS = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])


def neuron(bias: float, alpha: float, c: float) -> nn.Module:
    affine = nn.Linear(2, 1)
    nn.init.constant_(affine.weight, 5.0)
    nn.init.constant_(affine.bias, bias)
    return nn.Sequential(affine, ADA(alpha=alpha, c=c))


def labels(model: nn.Module) -> list[float]:
    return model(INPUTS).round().flatten().tolist()


def test_lemma_1_a_neuron_with_ada_computes_xor() -> None:
    model = neuron(-4.0, alpha=1.0, c=1.0)
    expected = torch.tensor([0.0, 1.0, 1.0, 0.04])
    torch.testing.assert_close(model(INPUTS).flatten(), expected, atol=0.005, rtol=0)
    assert labels(model) == [0, 1, 1, 0]


def test_corollary_2_or() -> None:
    assert labels(neuron(-4.0, alpha=0.4, c=0.5)) == [0, 1, 1, 1]


def test_corollary_3_and() -> None:
    assert labels(neuron(-9.0, alpha=1.0, c=1.0)) == [0, 0, 0, 1]


def test_corollary_4_a_pyramidal_neuron_computes_xor() -> None:
    layer = PyramidalLinear(2, 1, apical="ada(alpha=1,c=1)")
    with torch.no_grad():
        layer.basal_weight.zero_()
        layer.basal_bias.zero_()
        layer.apical_weight.fill_(5.0)
        layer.apical_bias.fill_(-4.0)
    assert labels(layer) == [0, 1, 1, 0]
