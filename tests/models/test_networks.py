"""Every network with every kind of neuron."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from apical import ADA, Unit, models
from apical.errors import InvalidArgumentError
from apical.models.resnet import BASIC, ApicalResNet, ResNet
from apical.nn.kinds import PAPER

Make = Callable[..., Any]
KINDS = tuple(PAPER)
PYRAMIDAL = [kind for kind in KINDS if Unit(kind).pyramidal]


def check_gradients(model: nn.Module, x: Tensor) -> None:
    """Forward and backward in training mode: finite outputs, and a finite gradient in every parameter."""
    torch.manual_seed(0)
    y = model.train()(x)
    assert y.shape[0] == len(x)
    assert y.isfinite().all()
    y.square().sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", models.list())
def test_every_parameter_has_a_finite_gradient(name: str, kind: str, small: Make, inputs: Make) -> None:
    model = small(name, kind)
    check_gradients(model, inputs(model))


@pytest.mark.parametrize("kind", ["ada", "leaky_pynada"])
@pytest.mark.parametrize("name", models.list())
def test_a_learned_alpha_is_one_parameter_of_the_network(name: str, kind: str, small: Make, inputs: Make) -> None:
    model = small(name, f"{kind}(alpha=learn)")
    learned = [key for key in model.state_dict() if key.endswith(".alpha")]
    assert len(learned) == 1
    check_gradients(model, inputs(model, 8))
    assert dict(model.named_parameters())[learned[0]].grad.abs() > 0


@pytest.mark.parametrize("kind", PYRAMIDAL)
@pytest.mark.parametrize("name", ["resnet-18", "resnet-50"])
def test_longer_dendrites_for_every_pyramidal_kind(name: str, kind: str, small: Make, inputs: Make) -> None:
    model = small(name, kind, skip="apical")
    check_gradients(model, inputs(model))


# The starts of a learned alpha that the paper's authors use: standard, then pyramidal neurons.
STARTS = {
    "mlp-1": (1.0, 0.1), "mlp-2": (1.0, 1.0), "mlp-approx": (1.0, 1.0), "lenet": (0.1, 0.7), "vgg-9": (0.5, 1.0),
    "resnet-18": (0.5, 0.5), "resnet-50": (0.5, 0.5), "char-cnn": (0.5, 0.5), "char-cnn-se": (0.5, 0.5),
    "neuron": (1.0, 1.0), "mlp-deep": (1.0, 1.0), "coordinates": (1.0, 1.0),
}  # fmt: skip


@pytest.mark.parametrize("name", models.list())
def test_a_learned_alpha_starts_where_the_authors_start_it(name: str, small: Make) -> None:
    for kind, start in zip(("ada", "pynada"), STARTS[name], strict=True):
        for text, expected in ((f"{kind}(alpha=learn)", start), (f"{kind}(alpha=learn,alpha_init=1)", 1.0)):
            (alpha,) = (p for key, p in small(name, text).named_parameters() if key.endswith(".alpha"))
            assert alpha.item() == pytest.approx(expected), text
            assert models.unit_for(name, text).alpha_init == expected


@pytest.mark.parametrize("name", models.list())
def test_weights_are_xavier_uniform_and_biases_zero(name: str, small: Make) -> None:
    for key, module in small(name, "pynada").named_modules():
        if not isinstance(module, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Embedding)):
            continue
        layer: Any = module
        zero = getattr(layer, "bias", None) is None or layer.bias.eq(0).all()
        assert zero != (name == "coordinates"), key
        branches = [layer.basal_weight, layer.apical_weight] if hasattr(layer, "basal_weight") else [layer.weight]
        for weight in branches:  # fans are counted per branch
            fans = (weight.shape[0] + weight.shape[1]) * weight[0, 0].numel()
            bound = (6 / fans) ** 0.5
            assert weight.abs().max() <= bound * 1.0001, key
            if weight.numel() > 1000:
                assert weight.abs().max() > 0.98 * bound, key
                assert weight.std().item() == pytest.approx(bound / 3**0.5, rel=0.1), key


@pytest.mark.parametrize("name", models.list())
def test_rows_of_a_study_start_from_the_same_weights(name: str, small: Make) -> None:
    relu, ada, pynada = (small(name, unit).state_dict() for unit in ("relu", "ada", "pynada"))
    assert all(torch.equal(relu[key], ada[key]) for key in relu)
    for key, weight in relu.items():
        own = key.replace(".affine", "") if key.replace(".affine", "") in pynada else key
        if pynada[own].shape == weight.shape:
            assert torch.equal(pynada[own], weight), key
        else:
            assert torch.equal(pynada[own][: len(weight)], weight), key


def test_fourier_features_are_sines_and_cosines_of_seeded_frequencies() -> None:
    one, same, other = (models.create("coordinates", "relu", seed=s, features=400, scale=3.0) for s in (1, 1, 2))
    assert torch.equal(one.encoding.frequencies, same.encoding.frequencies)
    assert not torch.equal(one.encoding.frequencies, other.encoding.frequencies)
    assert one.encoding.frequencies.std().item() == pytest.approx(3.0, rel=0.1)
    x = torch.rand(6, 2) * 2 - 1
    angle = 2 * torch.pi * x @ one.encoding.frequencies.t()
    torch.testing.assert_close(one.encoding(x), torch.cat([angle.sin(), angle.cos()], 1))
    assert "encoding.frequencies" in one.state_dict()
    assert not any(p is one.encoding.frequencies for p in one.parameters())


@pytest.mark.parametrize(
    ("dims", "sentence"),
    [
        ({"features": -1}, "features is -1, but coordinates needs a whole number of at least 0"),
        ({"scale": 0.0}, "scale is 0.0, but coordinates needs a number above 0"),
        ({"depth": 0}, "depth is 0, but coordinates needs a whole number of at least 1"),
        ({"width": 2.5}, "width is 2.5, but coordinates needs a whole number of at least 1"),
        ({"initial": "kaiming"}, "weights is 'kaiming', but must be one of xavier, he, siren, data"),
    ],
)
def test_coordinates_say_what_they_need(dims: dict[str, Any], sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence):
        models.create("coordinates", "relu", **dims)


def test_lenet_may_have_another_unit_in_its_dense_layers() -> None:
    network = models.create("lenet", "ada(alpha=learn)", seed=0, dense_unit="relu")
    kinds = [type(network.get_submodule(f"{name}.activation")) for name in ("conv1", "dense1", "dense2")]
    assert kinds == [ADA, nn.ReLU, nn.ReLU]


def test_a_seed_leaves_the_global_generator_alone_and_no_seed_follows_it() -> None:
    torch.manual_seed(3)
    state = torch.get_rng_state()
    one = models.create("mlp-1", "ada", seed=1).state_dict()
    assert torch.equal(torch.get_rng_state(), state)
    two, other = models.create("mlp-1", "ada", seed=1).state_dict(), models.create("mlp-1", "ada", seed=2).state_dict()
    assert torch.equal(one["head.weight"], two["head.weight"])
    assert not torch.equal(one["head.weight"], other["head.weight"])
    free = models.create("mlp-1", "ada").state_dict()
    torch.manual_seed(3)
    assert torch.equal(models.create("mlp-1", "ada").state_dict()["head.weight"], free["head.weight"])
    assert not torch.equal(models.create("mlp-1", "ada").state_dict()["head.weight"], free["head.weight"])


@pytest.mark.parametrize("name", models.list())
def test_copies_compute_the_same(name: str, small: Make, inputs: Make) -> None:
    unit = "pynada(alpha=learn)"
    model = small(name, unit).eval()
    x = inputs(model)
    twin = copy.deepcopy(model)
    fresh = small(name, unit).eval()
    fresh.load_state_dict(model.state_dict())
    assert torch.equal(twin(x), model(x))
    assert torch.equal(fresh(x), model(x))


def one_block(kind: str) -> nn.Module:
    """A ResNet of one block; with longer dendrites where the kind has any."""
    torch.manual_seed(0)
    made = ApicalResNet if Unit(kind).pyramidal else ResNet
    return made(Unit(kind), BASIC, (1,), widths=(8,), outputs=5, stem=64)


def check_compiled_and_exported(model: nn.Module, x: Tensor, *, backend: str = "aot_eager") -> None:
    """Both compute what the model does, forward and, compiled, backward.

    In double precision: in float32, rounding moves single pre-activations across 0, where derivatives jump.
    """
    torch.compiler.reset()
    model.double().eval()
    x = x.double() if x.is_floating_point() else x
    expected = model(x)
    y = torch.compile(model, fullgraph=True, backend=backend)(x)
    torch.testing.assert_close(y, expected, rtol=1e-9, atol=1e-9)
    wanted = torch.autograd.grad(expected.square().sum(), list(model.parameters()))
    found = torch.autograd.grad(y.square().sum(), list(model.parameters()))
    for (name, _), a, b in zip(model.named_parameters(), found, wanted, strict=True):
        scale = float(b.abs().max()) + 1e-12
        torch.testing.assert_close(a / scale, b / scale, rtol=0, atol=1e-8, msg=lambda m, name=name: f"{name}: {m}")
    exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(exported(x), expected, rtol=1e-9, atol=1e-9)


# In `make test` the three kinds that stand for the three paths; the others in `make test-slow`.
SAMPLED = [kind if kind in ("relu", "ada", "pynada") else pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS]


@pytest.mark.parametrize("kind", SAMPLED)
@pytest.mark.parametrize("name", ["mlp-2", "lenet"])
def test_small_networks_compile_and_export(name: str, kind: str, small: Make, inputs: Make) -> None:
    model = small(name, kind)
    check_compiled_and_exported(model, inputs(model))


@pytest.mark.parametrize("kind", SAMPLED)
def test_a_residual_block_compiles_and_exports(kind: str, inputs: Make) -> None:
    model = one_block(kind)
    check_compiled_and_exported(model, inputs(model))
    if Unit(kind).pyramidal:
        identity = ResNet(Unit(kind), BASIC, (1,), widths=(8,), outputs=5, stem=64)
        check_compiled_and_exported(identity, inputs(identity))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ada", "pynada"])
def test_lenet_through_inductor(kind: str, small: Make, inputs: Make) -> None:
    model = small("lenet", kind)
    check_compiled_and_exported(model, inputs(model), backend="inductor")


@pytest.mark.matrix
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", models.list())
def test_every_network_of_every_kind_compiles_and_exports(name: str, kind: str, small: Make, inputs: Make) -> None:
    model = small(name, kind)
    check_compiled_and_exported(model, inputs(model))


@pytest.mark.matrix
@pytest.mark.parametrize("kind", PYRAMIDAL)
@pytest.mark.parametrize("name", ["resnet-18", "resnet-50"])
def test_longer_dendrites_compile_and_export(name: str, kind: str, small: Make, inputs: Make) -> None:
    model = small(name, kind, skip="apical")
    check_compiled_and_exported(model, inputs(model))
