"""Names, dimensions, and networks that users bring."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from apical import Unit, models
from apical.errors import InvalidArgumentError
from apical.models import registry


class Own(nn.Module):
    """A user's network."""

    def __init__(self, unit: Unit, *, width: int = 3) -> None:
        super().__init__()
        self.unit = unit
        self.hidden = unit.layers().linear(2, width)
        self.head = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x))


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    models.register("own-net", Own)
    return "own-net"


def test_the_names_of_the_networks() -> None:
    expected = "mlp-1 mlp-2 mlp-approx mlp-deep lenet vgg-9 resnet-18 resnet-50 char-cnn char-cnn-se neuron coordinates"
    assert list(models.list())[:12] == expected.split()


def test_users_register_networks(registered: str) -> None:
    assert models.list()[-1] == registered
    model = models.create(registered, "pynada(alpha=learn)", width=5)
    assert model(torch.randn(4, 2)).shape == (4, 1)
    assert model.hidden.apical.alpha.item() == 1
    assert str(model.unit) == "pynada(alpha=learn,alpha_init=1)"


def test_a_network_says_where_alpha_starts_and_whether_it_stacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "_REGISTERED", {})
    models.register("own-net", Own, alpha_start=(0.2, 0.3), stacks=True)
    assert str(models.unit_for("own-net", "ada(alpha=learn)")) == "ada(alpha=learn,alpha_init=0.2)"
    assert str(models.unit_for("own-net", "pynada(alpha=learn)")) == "pynada(alpha=learn,alpha_init=0.3)"
    written_out = models.unit_for("own-net", "pyramidal(basal=gelu,apical=ada(alpha=learn))")
    assert str(written_out) == "pyramidal(basal=gelu,apical=ada(alpha=learn,alpha_init=0.3))"
    assert str(models.unit_for("own-net", "elu")) == "elu"
    assert models.stacks("own-net")
    assert [name for name in models.list()[:12] if models.stacks(name)] == [
        "mlp-1", "mlp-2", "mlp-approx", "mlp-deep", "lenet", "neuron", "coordinates"
    ]  # fmt: skip
    assert not models.stacks("package.that.is:nowhere")


@pytest.mark.parametrize("unit", ["gelu", "prelu", "pyramidal(basal=silu,apical=ada)", "rbf(s=learn)"])
def test_networks_take_any_unit(unit: str) -> None:
    one, same = (models.create("mlp-1", unit, seed=3, inputs=4, hidden=3, outputs=2) for _ in range(2))
    relu = models.create("mlp-1", "relu", seed=3, inputs=4, hidden=3, outputs=2)
    x = torch.randn(5, 4)
    assert torch.equal(one(x), same(x))
    assert torch.equal(one.head.weight, relu.head.weight)
    one(x).sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in one.parameters())


def test_a_users_network_keeps_its_own_weights_and_the_seed_draws_them(registered: str) -> None:
    one, same = (models.create(registered, "ada", seed=4) for _ in range(2))
    other = models.create(registered, "ada", seed=5)
    assert torch.equal(one.head.weight, same.head.weight)
    assert not torch.equal(one.head.weight, other.head.weight)
    assert one.head.bias.abs() > 0  # torch's own initialisation, not ours


def write_package(folder: Path) -> None:
    (folder / "my_networks.py").write_text(
        "from torch import nn\n"
        "from apical.models.mlp import MLP\n"
        "def with_unit(unit, *, hidden=4):\n"
        "    return MLP(unit, inputs=2, hidden=(hidden,), outputs=1)\n"
        "def plain(width=3):\n"
        "    return nn.Sequential(nn.Linear(2, width), nn.ReLU(), nn.Linear(width, 1))\n"
        "def anything(unit, **dims):\n"
        "    return MLP(unit, inputs=2, outputs=1, **dims)\n"
        "class Nested:\n"
        "    factory = staticmethod(with_unit)\n"
        "number = 3\n",
        encoding="utf-8",
    )


def test_a_factory_by_its_path_works_wherever_a_name_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    x = torch.randn(5, 2)
    assert models.create("my_networks:with_unit", "leaky_pynada", seed=1, hidden=6)(x).shape == (5, 1)
    assert models.create("my_networks:Nested.factory", "ada")(x).shape == (5, 1)
    assert models.create("my_networks:anything", "ada", hidden=(3, 2))(x).shape == (5, 1)
    assert models.create("my_networks:plain", None, width=7)[0].out_features == 7
    assert models.takes_unit("my_networks:with_unit")
    assert not models.takes_unit("my_networks:plain")
    for name, unit, sentence in (
        ("my_networks:plain", "ada", r"takes no unit: call apical.convert_\(.*:plain', None\), 'ada'\)"),
        ("my_networks:absent", "ada", "module my_networks has no function or class 'absent'"),
        ("my_networks:number", "ada", "has no function or class 'number'"),
        ("no_such_package:f", "ada", "cannot be imported .*write package.module:factory"),
    ):
        with pytest.raises(InvalidArgumentError, match=sentence):
            models.create(name, unit)


@pytest.mark.parametrize(
    ("name", "unit", "dims", "sentence"),
    [
        (
            "lenet-5",
            "ada",
            {},
            "unknown network 'lenet-5'; did you mean 'lenet'\\? available: mlp-1, .*char-cnn-se, neuron, coordinates; ",
        ),
        ("xyz", "ada", {}, "unknown network 'xyz'; available: mlp-1"),
        ("xyz(a=1)", "ada", {}, r"unknown network 'xyz\(a=1\)'; available: mlp-1"),
        (
            "mlp-1(hidden=6)",
            "ada",
            {},
            r"'mlp-1\(hidden=6\)': name 'mlp-1' alone, .*dims = { hidden = 6 } in the",
        ),
        ("lenet", "ada", {"classes": 3}, "'lenet' has no dimension 'classes'; available: in_channels=1, image_size=32"),
        ("lenet", "aad", {}, "unknown unit 'aad'; did you mean 'ada'"),
        ("lenet", None, {}, "invalid unit None"),
        ("lenet", "ada", {"image_size": 15}, "image_size is 15, but lenet needs images of 16 pixels or more"),
        ("vgg-9", "ada", {"image_size": 31}, "image_size is 31, but the pools need 32 pixels or more"),
        ("mlp-1", "ada", {"hidden": (3, 4)}, "hidden is \\(3, 4\\), but mlp-1 needs the size of 1 hidden layer"),
        ("mlp-2", "ada", {"hidden": (3, 0)}, "mlp-2 needs the size of 2 hidden layer"),
        ("char-cnn", "ada", {"length": 68}, "length is 68, but the three pools need texts of 69 characters or more"),
        ("char-cnn-se", "ada", {"ratio": 129}, "ratio is 129, but must lie between 1 and the 128 channels"),
        ("resnet-18", "ada", {"stem": 32}, "stem is 32, but must be 224 .* or 64"),
        ("resnet-18", "ada", {"skip": "none"}, "skip is 'none', but must be 'identity' or 'apical'"),
        ("resnet-18", "ada", {"skip": "apical"}, "no apical dendrite to lengthen: use a pyramidal unit"),
        ("resnet-18", "pynada", {"reach": 3}, "reach is 3, but only longer apical dendrites have one"),
        (
            "resnet-18",
            "pynada",
            {"skip": "apical", "reach": 0},
            "reach is 0, but must be a number of layers of at least 1",
        ),
        ("resnet-18", "ada", {"width": 0}, "width is 0, but must be a whole number of at least 1; ResNet-18 has 64"),
        ("lenet", "ada", {"seed": -1}, "seed is -1"),
    ],
)
def test_bad_input_is_one_sentence(name: str, unit: Any, dims: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        models.create(name, unit, **dims)


@pytest.mark.parametrize(
    ("name", "factory", "sentence"),
    [
        ("lenet", Own, "there is a network 'lenet' already"),
        ("a:b", Own, "'a:b' cannot name a network"),
        ("", Own, "'' cannot name a network"),
        ("mine", 3, "the factory of network 'mine' is 3, but must be a function"),
    ],
)
def test_bad_registrations_are_one_sentence(name: str, factory: Any, sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        models.register(name, factory)


@pytest.mark.parametrize(
    ("name", "dims", "shape", "outputs"),
    [
        ("mlp-1", {"inputs": 6, "hidden": 5, "outputs": 3}, (6,), 3),
        ("mlp-2", {"inputs": 6, "hidden": [5, 4], "outputs": 3}, (2, 3), 3),
        ("mlp-approx", {}, (1,), 1),
        ("mlp-deep", {"inputs": 6, "depth": 3, "width": 4, "outputs": 3, "initial": "he"}, (2, 3), 3),
        ("coordinates", {"width": 4, "depth": 2, "outputs": 1}, (2,), 1),
        ("coordinates", {"inputs": 1, "features": 5, "scale": 3.0}, (1,), 3),
        ("neuron", {"inputs": 6}, (2, 3), 1),
        ("neuron", {"inputs": 6, "width": 4}, (6,), 1),
        ("lenet", {"in_channels": 3, "image_size": 20, "outputs": 4}, (3, 20, 20), 4),
        ("vgg-9", {"in_channels": 3, "image_size": 64, "outputs": 1}, (3, 64, 64), 1),
        ("resnet-18", {"in_channels": 2, "outputs": 6}, (2, 65, 94), 6),
        ("resnet-50", {"outputs": 1}, (3, 50, 50), 1),
        ("char-cnn-se", {"length": 120, "vocabulary": 104, "embedding": 8, "outputs": 5, "ratio": 16}, (120,), 5),
    ],
)
def test_dimensions(name: str, dims: dict[str, Any], shape: tuple[int, ...], outputs: int) -> None:
    model = models.create(name, "pynada", **dims).eval()
    x = torch.randint(104, (2, *shape)) if name.startswith("char") else torch.randn(2, *shape)
    assert model(x).shape == (2, outputs)
