"""A network made of pyramidal neurons is the standard one converted."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from apical import Unit, convert_, models

Make = Callable[..., Any]
PYRAMIDAL = [kind for kind in Unit.kinds() if Unit(kind).pyramidal]


def check(name: str, unit: str, small: Make, inputs: Make) -> None:
    created = small(name, unit)
    standard = small(name, str(Unit.parse(unit).basal))
    x = inputs(created)
    converted = convert_(standard, unit).model
    converted.load_state_dict(created.state_dict())
    for mode in (True, False):
        torch.manual_seed(0)
        expected = created.train(mode)(x)
        torch.manual_seed(0)
        assert torch.equal(converted.train(mode)(x), expected)


@pytest.mark.parametrize("name", models.list())
def test_pynada(name: str, small: Make, inputs: Make) -> None:
    check(name, "pynada", small, inputs)


@pytest.mark.parametrize("unit", [*PYRAMIDAL, "pynada(alpha=learn)", "leaky_pynada(alpha=0.3,c=1,leak=0.1)"])
@pytest.mark.parametrize("name", ["mlp-2", "lenet", "char-cnn-se"])
def test_every_pyramidal_kind(name: str, unit: str, small: Make, inputs: Make) -> None:
    check(name, unit, small, inputs)


@pytest.mark.parametrize("unit", ["ada(alpha=0.3)", "swish"])
@pytest.mark.parametrize("name", ["mlp-2", "lenet", "resnet-18", "char-cnn-se"])
def test_standard_units(name: str, unit: str, small: Make, inputs: Make) -> None:
    created = small(name, unit).eval()
    converted = convert_(small(name, "relu"), unit).model.eval()
    x = inputs(created)
    assert torch.equal(converted(x), created(x))  # the same seed gives both the same weights


def test_a_converted_network_starts_from_the_same_seeded_weights(small: Make) -> None:
    from apical.nn import initialise_

    created = small("resnet-18", "pynada")
    converted = convert_(models.create("resnet-18", "relu", stem=64, outputs=10), "pynada").model
    initialise_(converted, seed=0)
    for name, tensor in created.state_dict().items():
        assert torch.equal(converted.state_dict()[name], tensor), name
