"""Seeded first weights: the same for the same name, however the network was built."""

import itertools
import math

import pytest
import torch
from torch import nn

from apical import PyramidalConv2d, PyramidalLinear, Unit
from apical.errors import InvalidArgumentError
from apical.nn import calculate_gain, initialise_, kinds, scale_to_data_
from apical.nn.kinds import OTHERS, PAPER


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
    with pytest.raises(InvalidArgumentError, match="must be an integer of at least 0"):
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


class Deep(nn.Module):
    def __init__(self, unit: str, sizes: tuple[int, ...] = (300, 400, 500)) -> None:
        super().__init__()
        layers = Unit.parse(unit).layers()
        self.hidden = nn.Sequential(*(layers.linear(a, b) for a, b in itertools.pairwise(sizes)))
        self.head = nn.Linear(sizes[-1], 7)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.hidden(x))


def uniform_bound(weight: torch.Tensor) -> float:
    """The bound of uniform weights, from their deviation; none of them lies beyond."""
    bound = weight.std().item() * math.sqrt(3)
    assert weight.abs().max() <= bound * 1.02
    return bound


def test_sirens_weights_have_its_bounds() -> None:
    model = Deep("sine(omega=30)")
    initialise_(model, seed=0, weights="siren")
    first, second = (neuron.affine.weight for neuron in model.hidden)
    assert uniform_bound(first) == pytest.approx(1 / 300, rel=0.02)
    assert uniform_bound(second) == pytest.approx(math.sqrt(6 / 400) / 30, rel=0.02)
    assert uniform_bound(model.head.weight) == pytest.approx(math.sqrt(6 / 500) / 30, rel=0.03)


def test_values_in_front_of_sirens_sines_are_standard_normal() -> None:
    model = Deep("sine(omega=30)", (2, 512, 512, 512))
    initialise_(model, seed=1, weights="siren")
    x = torch.rand(2000, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        z = 30 * model.hidden[2].affine(model.hidden[1](model.hidden[0](x)))
    assert z.std().item() == pytest.approx(1.0, rel=0.15)


def test_siren_needs_sines() -> None:
    with pytest.raises(InvalidArgumentError, match=r"weights is 'siren', but hidden.1.affine has no omega"):
        initialise_(Deep("tanh"), seed=0, weights="siren")
    with pytest.raises(InvalidArgumentError, match="one of xavier, he, siren, data"):
        initialise_(Deep("tanh"), seed=0, weights="kaiming")


@pytest.mark.parametrize(
    ("unit", "moment"),
    [
        ("relu", 0.5),
        ("sine(omega=2)", (1 - math.exp(-8)) / 2),
        ("gaussian(sigma=2)", math.sqrt(1 / (1 + 2 / 4))),
        ("ada(alpha=0.7,c=unit)", 0.5),
        ("ada(alpha=learn,c=0.3,scope=channel)", None),
        ("pynrelu", 0.5 + 0.5 + 2 / (2 * math.pi)),
        ("prelu(weight=0.5)", 0.5 * 1.25),
    ],
)
def test_a_gain_is_one_over_the_root_of_the_second_moment(unit: str, moment: float | None) -> None:
    if moment is None:
        assert calculate_gain(unit) == pytest.approx(calculate_gain("ada(c=0.3)"))
    else:
        assert calculate_gain(unit) == pytest.approx(moment**-0.5, rel=1e-5)


@pytest.mark.parametrize("name", [*PAPER, *OTHERS])
def test_every_kind_has_a_gain(name: str) -> None:
    if kinds.get(name).name != "rrelu":  # random while it trains
        assert 0.1 < calculate_gain(name) < 1e4


@pytest.mark.parametrize("unit", ["relu", "ada(alpha=0.5)", "ada", "ada(c=peak)", "silu", "pynada"])
def test_he_keeps_the_variance_in_front_of_each_activation(unit: str) -> None:
    model = Deep(unit, (400, 400, 400, 400))
    initialise_(model, seed=0, weights="he")
    x = torch.randn(1000, 400, generator=torch.Generator().manual_seed(0))
    for deviation in deviations(model, x):
        assert deviation == pytest.approx(1.0, rel=0.15)


def deviations(model: Deep, x: torch.Tensor) -> list[float]:
    """Of w x in every layer."""
    products: list[torch.Tensor] = []
    for layer in (*model.hidden, model.head):
        affine = getattr(layer, "affine", layer)
        affine.register_forward_pre_hook(lambda m, x: products.append(nn.functional.linear(x[0], m.weight)))
    with torch.no_grad():
        model(x)
    return [p.std().item() for p in products]


@pytest.mark.parametrize("unit", ["relu", "ada(alpha=0.1)", "pynada"])
def test_scaling_to_data_gives_each_product_the_variance_1(unit: str) -> None:
    model = Deep(unit)
    initialise_(model, seed=0, weights="data")
    x = 7 * torch.randn(256, 300, generator=torch.Generator().manual_seed(0)) + 3
    before = model.head.weight.clone()
    scale_to_data_(model, x)
    assert deviations(model, x) == pytest.approx([1.0] * 3, rel=1e-4)
    assert torch.allclose(model.head.weight / before, (model.head.weight / before)[0, 0])  # scaled, nothing else
    assert model.training
