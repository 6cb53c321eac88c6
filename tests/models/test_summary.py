"""The table of layers, against numbers derived by hand."""

import pytest
import torch
from torch import nn

from apical import models
from apical.errors import InvalidArgumentError

LENET = [  # name, shape, parameters, multiply-adds
    ("conv1", (6, 28, 28), 6 * 25 + 6, 28 * 28 * 6 * 25),
    ("pool1", (6, 14, 14), 0, 0),
    ("conv2", (16, 10, 10), 16 * 6 * 25 + 16, 10 * 10 * 16 * 6 * 25),
    ("pool2", (16, 5, 5), 0, 0),
    ("dense1", (120,), 400 * 120 + 120, 400 * 120),
    ("dense2", (84,), 120 * 84 + 84, 120 * 84),
    ("head", (10,), 84 * 10 + 10, 84 * 10),
]


@pytest.mark.parametrize(("unit", "branches"), [("relu", 1), ("ada", 1), ("pynada", 2), ("leaky_pynada", 2)])
def test_lenet(unit: str, branches: int) -> None:
    found = models.summary(models.create("lenet", unit))
    for row, (name, shape, parameters, multiply_adds) in zip(found.rows, LENET, strict=True):
        times = 1 if name == "head" else branches
        assert (row.name, row.shape) == (name, shape)
        assert (row.parameters, row.multiply_adds) == (times * parameters, times * multiply_adds)
    assert found.parameters == sum(row.parameters for row in found.rows)
    assert found.multiply_adds == sum(row.multiply_adds for row in found.rows)


def test_mlp_1() -> None:
    found = models.summary(models.create("mlp-1", "relu"))
    assert [(r.name, r.layer, r.shape, r.parameters, r.multiply_adds) for r in found.rows] == [
        ("hidden.0", "Linear ReLU", (100,), 78_500, 78_400),
        ("head", "Linear", (10,), 1_010, 1_000),
    ]
    assert (found.parameters, found.multiply_adds) == (79_510, 79_400)


def test_it_prints_as_a_table() -> None:
    assert str(models.summary(models.create("mlp-1", "pynada"))).splitlines() == [
        "name      layer                     output  parameters  multiply-adds",
        "input                               784",
        "hidden.0  PyramidalLinear ReLU+ADA  100        157,000        156,800",
        "head      Linear                    10           1,010          1,000",
        "total                                          158,010        157,800",
    ]


@pytest.mark.parametrize("name", models.list())
def test_the_rows_hold_all_parameters(name: str) -> None:
    with torch.device("meta"):
        model = models.create(name, "pynswish")
    found = models.summary(model)
    assert found.parameters == sum(p.numel() for p in model.parameters()) == sum(row.parameters for row in found.rows)
    assert found.rows[-1].shape == (model.get_submodule(found.rows[-1].name).out_features,)


def test_longer_dendrites_count_as_part_of_their_neuron() -> None:
    rows = {r.name: r for r in models.summary(models.create("resnet-18", "pynada", skip="apical", stem=64)).rows}
    row = rows["layer2.0.conv2"]
    assert row.parameters == 128 * 128 * 9 + 64 * 128 + 2 * 2 * 128
    assert row.multiply_adds == 32 * 32 * (128 * 128 * 9 + 64 * 128)


def test_any_module_groups_reuse_and_modes() -> None:
    shared = nn.Linear(4, 4)
    model = nn.Sequential(nn.Conv1d(2, 4, 3, groups=2), nn.Flatten(), nn.Linear(12, 4), shared, nn.ReLU(), shared)
    model[4].eval()
    found = models.summary(model, input_size=(2, 5))
    assert [row.multiply_adds for row in found.rows] == [3 * 4 * 1 * 3, 0, 48, 16, 0, 16]
    assert [row.parameters for row in found.rows] == [16, 0, 52, 20, 0, 0]
    assert [module.training for module in model] == [True, True, True, True, False, True]
    assert not any(module._forward_hooks for module in model.modules())
    with pytest.raises(InvalidArgumentError, match=r"call summary\(model, input_size="):
        models.summary(model)
