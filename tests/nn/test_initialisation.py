"""Seeded first weights: the same for the same name, however the network was built."""

import math

import pytest
import torch
from torch import nn

from apical import PyramidalConv2d, PyramidalLinear, Unit
from apical.errors import InvalidArgumentError
from apical.nn import initialise_
from apical.nn.kinds import PAPER


class Network(nn.Module):
    def __init__(self, unit: str, groups: int = 1) -> None:
        super().__init__()
        layers = Unit.parse(unit).layers()
        self.conv = layers.conv(2, 4, 6, 3, groups=groups, norm=nn.BatchNorm2d)
        self.hidden = layers.linear(6, 5)
        self.head = nn.Linear(5, 3)


def standard_weights(model: Network) -> dict[str, torch.Tensor]:
    """The weights of the standard, or of the basal, branches."""
    pyramidal = isinstance(model.conv, PyramidalConv2d)
    conv = model.conv.basal_weight.reshape(model.conv.outputs, -1, 3, 3) if pyramidal else model.conv.affine.weight
    hidden = model.hidden.basal_weight if pyramidal else model.hidden.affine.weight
    return {"conv": conv, "hidden": hidden, "head": model.head.weight}


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("unit", [*PAPER, "prelu", "pyramidal(basal=gelu,apical=sine)"])
def test_pyramidal_and_standard_networks_share_their_basal_weights_bit_for_bit(unit: str, groups: int) -> None:
    reference, model = Network("relu", groups), Network(unit, groups)
    initialise_(reference, seed=3)
    initialise_(model, seed=3)
    for name, weight in standard_weights(reference).items():
        assert torch.equal(standard_weights(model)[name], weight), name


def test_the_branches_differ_and_seeds_differ() -> None:
    one, other = Network("pynada"), Network("pynada")
    initialise_(one, seed=1)
    initialise_(other, seed=2)
    assert not torch.equal(one.hidden.basal_weight, one.hidden.apical_weight)
    assert not torch.equal(one.hidden.weight, other.hidden.weight)
    initialise_(other, seed=1)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_the_global_generator_is_left_alone() -> None:
    model = Network("pynada")
    before = torch.get_rng_state()
    initialise_(model, seed=1)
    assert torch.equal(torch.get_rng_state(), before)


def test_bounds_are_xaviers_with_fans_per_branch() -> None:
    layer = PyramidalLinear(300, 200)
    initialise_(layer, seed=0)
    bound = math.sqrt(6 / 500)
    for weight in (layer.basal_weight, layer.apical_weight):
        assert weight.abs().max() <= bound
        assert weight.std().item() == pytest.approx(bound / math.sqrt(3), rel=0.02)
    assert not layer.bias.any()


def test_everything_else_starts_as_new() -> None:
    model = Network("pynada(alpha=learn,alpha_init=0.5)")
    fresh = Network("pynada(alpha=learn,alpha_init=0.5)").state_dict()
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.add_(7)
    initialise_(model, seed=0)
    random = ("conv.weight", "hidden.weight", "head.weight", "head.bias")
    for name, tensor in model.state_dict().items():
        if name not in random:
            assert torch.equal(tensor, fresh[name]), name
    assert not model.head.bias.any()


def test_a_longer_dendrite_is_drawn_too() -> None:
    layer = PyramidalConv2d(4, 6, 3, apical_in_channels=2)
    nn.init.zeros_(layer.apical_weight)
    initialise_(layer, seed=0)
    assert layer.apical_weight.any()
    standard = nn.Conv2d(4, 6, 3)
    initialise_(standard, seed=0)
    assert torch.equal(layer.basal_weight, standard.weight)


def test_modules_state_logical_names() -> None:
    plain = nn.Sequential(nn.Linear(2, 3))
    wrapped = nn.Sequential(nn.Sequential(nn.Linear(2, 3)))
    wrapped[0].logical_names = {"0": ""}
    renamed = nn.Sequential(nn.Linear(2, 3))
    renamed[0].logical_names = {"weight": "apical_weight"}
    pyramidal = nn.Sequential(PyramidalLinear(2, 3))
    for model in (plain, wrapped, renamed, pyramidal):
        initialise_(model, seed=5)
    assert torch.equal(plain[0].weight, wrapped[0][0].weight)
    assert torch.equal(renamed[0].weight, pyramidal[0].apical_weight)


def test_dtype_and_sharing() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)).double()
    single = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    initialise_(model, seed=0)
    initialise_(single, seed=0)
    assert torch.equal(model[0].weight.float(), single[0].weight)
    assert not torch.equal(model[0].weight, model[1].weight)


def test_embeddings_keep_their_padding_at_zero() -> None:
    embedding = nn.Embedding(7, 3, padding_idx=0)
    initialise_(embedding, seed=0)
    assert not embedding.weight[0].any()
    assert embedding.weight[1:].all()


def test_parameters_it_does_not_know_are_left_and_named() -> None:
    class Scale(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gamma = nn.Parameter(torch.full((3,), 1e-6))

    model = nn.Sequential(nn.Linear(2, 3), Scale())
    assert initialise_(model, seed=0) == ["1.gamma"]
    assert model[1].gamma.eq(1e-6).all()
    assert initialise_(Network("pynada(alpha=learn)"), seed=0) == []


@pytest.mark.parametrize("seed", [-1, 1.5, None])
def test_a_bad_seed_is_one_sentence(seed: object) -> None:
    with pytest.raises(InvalidArgumentError, match="must be an integer from 0 on"):
        initialise_(nn.Linear(1, 1), seed=seed)  # type: ignore[arg-type]


def test_uniform_biases_are_within_those_of_torch_and_leave_the_weights_alone() -> None:
    zero, uniform = (nn.Sequential(nn.Linear(16, 64), nn.Linear(64, 2)) for _ in range(2))
    initialise_(zero, seed=3)
    initialise_(uniform, seed=3, biases="uniform")
    assert torch.equal(zero[0].weight, uniform[0].weight)
    assert not zero[0].bias.any()
    assert 0.2 < uniform[0].bias.abs().max() <= 0.25
    with pytest.raises(InvalidArgumentError, match="biases is 'none', but must be one of zero, uniform"):
        initialise_(zero, seed=3, biases="none")
