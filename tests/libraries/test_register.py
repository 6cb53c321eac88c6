"""`apical.register` in timm, Transformers and MONAI as they are installed."""

import pickle
import re
import subprocess
import sys
from importlib import metadata

import pytest
import timm
import torch
import transformers
from monai.networks.layers import Act
from timm.layers import create_act_layer, get_act_layer
from torch import nn
from transformers.activations import ACT2FN

import apical
from apical.errors import InvalidArgumentError
from apical.libraries import LIBRARIES

X = torch.linspace(-3, 3, 25)
BEFORE = {"timm": get_act_layer("swish"), "transformers": type(ACT2FN["swish"]), "monai": Act["swish"]}


@pytest.fixture(autouse=True, scope="module")
def registered() -> None:
    assert apical.register() == tuple(f"{name} {metadata.version(name)}" for name in LIBRARIES)


@pytest.mark.parametrize("name", LIBRARIES)
def test_the_version_is_the_tested_one(name: str) -> None:
    assert metadata.version(name) == LIBRARIES[name].tested


@pytest.mark.parametrize("make", [create_act_layer, ACT2FN.__getitem__, lambda name: Act[name]()])
@pytest.mark.parametrize("kind", ["ada", "leaky_ada", "rbf", "gcu"])
def test_a_name_gives_the_activation_of_the_unit(make, kind: str) -> None:
    activation = make(kind)
    assert torch.equal(activation(X), apical.Unit.parse(kind).layers().activation()(X))
    assert torch.equal(pickle.loads(pickle.dumps(activation))(X), activation(X))


def test_names_of_the_library_keep_their_meaning() -> None:
    after = {"timm": get_act_layer("swish"), "transformers": type(ACT2FN["swish"]), "monai": Act["swish"]}
    assert after == BEFORE
    assert get_act_layer("relu") is nn.ReLU


def test_registering_again_changes_nothing() -> None:
    before = get_act_layer("ada")
    assert apical.register("timm") == (f"timm {timm.__version__}",)
    assert get_act_layer("ada") is before is apical.ADA


def test_settings_come_as_each_library_writes_them() -> None:
    apical.register(units=["ada(alpha=0.3)", "ada(alpha=learn,alpha_init=0.5)"])
    assert create_act_layer("ada(alpha=0.3)").alpha == 0.3
    assert create_act_layer("ada", alpha=0.3, inplace=True).alpha == 0.3
    assert ACT2FN["ada(alpha=0.3)"].alpha == 0.3
    assert Act["ada"](alpha=0.3).alpha == 0.3
    learned = ACT2FN["ada(alpha=learn,alpha_init=0.5)"], ACT2FN["ada(alpha=learn,alpha_init=0.5)"]
    assert [one.alpha.item() for one in learned] == [0.5, 0.5]
    assert learned[0].alpha is not learned[1].alpha


def test_units_of_ones_own() -> None:
    apical.register_unit("Bump", function=lambda x, width: torch.exp(-((x / width) ** 2)), parameters={"width": 1.0})
    apical.register()
    for activation in (create_act_layer("Bump", width=2.0), Act["Bump"](width=2.0)):
        assert torch.equal(activation(X), torch.exp(-((X / 2) ** 2)))
    assert torch.equal(ACT2FN["Bump"](X), torch.exp(-(X**2)))


def test_a_pyramidal_unit_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=r"apical.convert_\(model, 'pynada'\)"):
        apical.register(units=["pynada"])
    with pytest.raises(InvalidArgumentError, match="learns one value per channel"):
        apical.register(units=["ada(alpha=learn,scope=channel)"])


def test_an_unknown_library_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="unknown library 'tim'; did you mean 'timm'"):
        apical.register("tim")


def test_a_vision_transformer_trains_with_ada() -> None:
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, image_size=16, patch_size=8,
        hidden_act="ada",
    )  # fmt: skip
    model = transformers.ViTModel(config)
    assert sum(isinstance(module, apical.ADA) for module in model.modules()) == 1
    model(torch.randn(2, 3, 16, 16)).last_hidden_state.sum().backward()


CHANGED = {
    "module._ACT_LAYER_DEFAULT = None": "stores its activations in an unknown way",
    "module._ACT_LAYER_DEFAULT['ada'] = module.nn.ReLU": "has an activation 'ada' of its own",
    "module.create_act_layer = lambda name, inplace: module.nn.ReLU()": r"gives ReLU\(\) for ",
}


@pytest.mark.parametrize("change", CHANGED)
def test_a_changed_version_is_told_and_the_others_are_registered(change: str) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(__file__.rpartition("/")[0])!r})
import conftest, apical
import timm.layers.create_act as module
{change}
try:
    apical.register("timm", "transformers")
except apical.errors.LibraryError as error:
    print(error)
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert re.search(CHANGED[change], result.stdout)
    assert "tested with timm 1.0.30: use act_layer=apical.ADA instead (registered in transformers" in result.stdout
