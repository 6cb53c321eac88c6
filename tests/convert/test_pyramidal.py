"""Pyramidal units: what becomes a neuron, and that it is Eq. 12 with the original path as its basal branch."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.convert.branch import ApicalBranch
from apical.errors import ConversionError
from apical.nn.layers import Neuron

UNIT = "pynada(alpha=0.5)"
apical_ada = apical.ADA(alpha=0.5)


def parameters(model: nn.Module) -> int:
    return sum(p.numel() for p in model.parameters())


def test_a_plain_chain_becomes_one_layer_of_twice_the_outputs() -> None:
    model = nn.Sequential(nn.Conv2d(4, 6, 3, groups=2, bias=False), nn.BatchNorm2d(6), nn.ReLU(inplace=True))
    convolution, norm = model[0], model[1]
    before = parameters(model)
    x = torch.randn(5, 4, 8, 8)
    report = apical.convert_(model, UNIT)
    neuron = model[0]
    assert isinstance(neuron, apical.PyramidalConv2d)
    assert type(model[1]) is type(model[2]) is nn.Identity
    assert parameters(model) == 2 * before
    basal = F.relu(norm(convolution(x)))
    apical_weight = neuron.apical_weight.reshape_as(convolution.weight)
    branch = F.batch_norm(F.conv2d(x, apical_weight, groups=2), None, None, training=True)
    assert torch.allclose(model(x), basal + apical_ada(branch), atol=1e-5)
    assert [(row.before, row.after) for row in report.rows] == [("Conv2d + BatchNorm2d + ReLU", "PyramidalConv2d")]


@pytest.mark.parametrize(
    ("layer", "norm", "shape"),
    [
        (nn.Linear(4, 6), nn.LayerNorm(6), (5, 4)),
        (nn.Linear(4, 6), nn.BatchNorm1d(6), (5, 4)),
        (nn.Conv1d(4, 6, 3), nn.GroupNorm(2, 6), (5, 4, 9)),
        (nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), nn.InstanceNorm2d(6), (5, 4, 6, 6)),
        (nn.Conv3d(4, 6, 2, stride=2), nn.BatchNorm3d(6, affine=False), (5, 4, 4, 4, 4)),
    ],
)
@pytest.mark.parametrize("mode", [True, False])
def test_every_affine_layer_and_norm_can_be_a_neuron(
    layer: nn.Module, norm: nn.Module, shape: tuple[int, ...], mode: bool
) -> None:
    model = nn.Sequential(layer, norm, nn.ReLU()).train(mode)
    x = torch.randn(shape)
    expected = model(x)
    report = apical.convert_(model, UNIT, keep_function=True)
    assert [row.converted for row in report.rows] == [True]
    assert torch.allclose(model(x), expected, rtol=1e-6, atol=1e-6)


class Residual(nn.Module):
    """A block as ResNets have it: one activation module, called after the first layer and after the sum."""

    def __init__(self, width: int = 4, project: bool = False) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.bn2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.act = nn.ReLU(inplace=True)
        self.project = nn.Sequential(nn.Conv2d(width, width, 1), nn.BatchNorm2d(width)) if project else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.act(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        if self.project is not None:
            x = self.project(x)
        y += x
        return self.act(y)


@pytest.mark.parametrize("project", [False, True])
def test_the_activation_behind_a_residual_sum_gets_an_apical_branch(project: bool) -> None:
    model = Residual(project=project)
    x = torch.randn(2, 4, 6, 6)
    keys = [key for key in model.state_dict() if not key.startswith(("conv1", "bn1"))]
    report = apical.convert_(model, UNIT)
    assert [row.before for row in report.rows] == ["Conv2d + BatchNorm2d + ReLU", "Conv2d + BatchNorm2d + sum + ReLU"]
    branch = model.conv2_apical
    assert isinstance(branch, ApicalBranch)
    assert (branch.affine.weight.shape, type(branch.norm)) == (model.conv2.weight.shape, nn.BatchNorm2d)
    model.eval()
    hidden = model.conv1(x)
    skip = x if model.project is None else model.project(x)
    basal = F.relu(model.bn2(model.conv2(hidden)) + skip)
    expected = basal + apical_ada(branch.norm(branch.affine(hidden)))
    assert torch.allclose(model(x), expected, atol=1e-6)
    assert set(keys) <= set(model.state_dict())


class Nested(nn.Module):
    """The affine layer of the residual sum lies two modules deeper than its activation."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Sequential(nn.Linear(4, 4), nn.ReLU()), nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        )
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x + self.body(x))


def test_a_branch_reaches_into_nested_modules() -> None:
    model = Nested()
    x = torch.randn(3, 4)
    keys = [key for key in model.state_dict() if not key.startswith("body.0.0")]
    apical.convert_(model, UNIT)
    hidden = model.body[0](x)
    expected = F.relu(x + model.body[1](hidden)) + model.body_1_0_apical(hidden)
    assert torch.allclose(model(x), expected, atol=1e-6)
    assert set(keys) <= set(model.state_dict())


class Crossing(nn.Module):
    """Affine layer, norm and activation each in another module."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.Linear(4, 6))
        self.second = nn.Sequential(nn.BatchNorm1d(6), nn.Sequential(nn.Identity(), nn.SiLU()))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.first(x))


def test_a_chain_is_followed_across_modules() -> None:
    model = Crossing()
    report = apical.convert_(model, UNIT)
    assert isinstance(model.first[0], apical.PyramidalLinear)
    assert [type(part) for part in (model.second[0], model.second[1][1])] == [nn.Identity, nn.Identity]
    assert report.rows[0].name == "second.1.1"


class NormAct(nn.BatchNorm2d):
    """A norm whose class applies the activation too."""

    def __init__(self, channels: int, *, act: bool = True) -> None:
        super().__init__(channels)
        self.act = nn.ReLU() if act else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        track = self.training
        if track:
            self.num_batches_tracked.add_(1)
        x = F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, track, self.momentum, self.eps)
        return self.act(x)


def test_a_norm_that_applies_the_activation_becomes_part_of_the_neuron() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), NormAct(4))
    x = torch.randn(2, 3, 5, 5)
    expected = model.eval()(x)
    apical.convert_(model, UNIT, keep_function=True)
    assert type(model[0].norm) is nn.BatchNorm2d
    assert type(model[1]) is nn.Identity
    assert torch.allclose(model(x), expected, rtol=1e-6, atol=1e-6)


class Twice(nn.Module):
    """The value before the activation is used elsewhere, so that nothing can be fused."""

    def __init__(self) -> None:
        super().__init__()
        self.affine = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self.affine(x)
        return F.relu(y), y


def test_values_used_elsewhere_stay_as_they_are() -> None:
    model = Twice()
    x = torch.randn(3, 4)
    _, before = model(x)
    apical.convert_(model, UNIT)
    after, same = model(x)
    assert torch.equal(same, before)
    assert torch.allclose(after, F.relu(before) + model.affine_apical(x))


def test_frozen_layers_stay_frozen_and_get_a_branch_that_learns() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0].requires_grad_(False)
    apical.convert_(model, UNIT)
    assert type(model[0]) is nn.Linear
    assert not model[0].weight.requires_grad
    model(torch.randn(3, 4)).sum().backward()
    assert model.get_submodule("0_apical").affine.weight.grad is not None


def test_a_norm_that_is_kept_in_evaluation_stays_so() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU())
    model[1].eval()
    apical.convert_(model, UNIT)
    before = model[1].running_mean.clone()
    model(torch.randn(3, 4))
    assert torch.equal(model[1].running_mean, before)


def test_a_layer_that_is_more_than_torchs_own_keeps_what_it_is() -> None:
    class Scaled(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    model = nn.Sequential(Scaled(4, 4), nn.ReLU())
    x = torch.randn(3, 4)
    apical.convert_(model, UNIT)
    branch = model.get_submodule("0_apical")
    assert type(branch.affine) is Scaled
    assert torch.allclose(model(x), F.relu(model[0](x)) + branch(x))


class PreActivation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)
        self.norm2, self.conv2 = nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv1(F.relu(self.norm1(x)))
        return x + self.conv2(F.relu(self.norm2(y)))


def test_pre_activation_is_converted_where_one_layer_feeds_it_and_else_listed_with_its_reason() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), PreActivation(), PreActivation()).eval()
    x, stem = torch.randn(2, 3, 8, 8), model[0]
    report = apical.convert_(model, UNIT)
    assert {row.name: row.converted for row in report.rows} == {
        "1.relu": True, "1.relu_1": True, "2.relu": False, "2.relu_1": True
    }  # fmt: skip
    assert [row.reason for row in report.kept] == [
        "it is fed by a normalisation of a sum (add), not by an affine layer",
    ]
    assert isinstance(model[1].conv1, apical.PyramidalConv2d)
    neuron = model[1].relu_neuron  # the stem stays outside; its input comes to the neuron over a wire
    block = F.relu(model[1].norm1(stem(x))) + neuron.apical(x)
    assert torch.allclose(model[:2](x), stem(x) + model[1].conv2(model[1].conv1(block)), atol=1e-6)


class Alike(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return F.relu(self.one(x) + self.two(y)) + F.relu(self.one(x))


def test_two_layers_that_feed_an_activation_alike_are_listed() -> None:
    report = apical.convert_(Alike(), UNIT)
    assert [row.reason for row in report.kept] == ["several affine layers feed it alike (one, two)"]
    assert [row.after for row in report.converted] == ["pyramidal neuron: apical branch added"]


class Branches(nn.Module):
    """As RepVGG trains: convolutions beside one another on the same input, summed."""

    def __init__(self) -> None:
        super().__init__()
        self.small, self.large = nn.Conv2d(4, 4, 1), nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.small(x) + self.large(x))


def test_of_layers_beside_one_another_the_widest_gets_the_apical_branch() -> None:
    model, x = Branches(), torch.randn(2, 4, 5, 5)
    report = apical.convert_(model, UNIT)
    assert report.kept == []
    expected = F.relu(model.small(x) + model.large(x)) + model.large_apical(x)
    assert torch.allclose(model(x), expected, atol=1e-6)


def test_what_feeds_an_activation_goes_by_data_flow_not_by_the_order_of_attributes() -> None:
    class Reversed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()
            self.last = nn.Linear(6, 2)
            self.norm = nn.BatchNorm1d(6)
            self.first = nn.Linear(4, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(self.act(self.norm(self.first(x))))

    model = Reversed()
    apical.convert_(model, UNIT)
    assert isinstance(model.first, apical.PyramidalLinear)
    assert type(model.last) is nn.Linear


@pytest.mark.parametrize("unit", ["pynada", "pynrelu", "pynrbf", "pynswish", "leaky_pynada", "pynada(alpha=learn)"])
def test_every_pyramidal_unit_converts_and_learns(unit: str) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), Residual2())
    apical.convert_(model, unit)
    model(torch.randn(5, 4)).square().sum().backward()
    assert all(p.grad is not None for p in model.parameters())


class Residual2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(self.affine(x) + x)


def test_the_basal_activation_of_a_branch_is_the_units() -> None:
    model = Residual2()
    x = torch.randn(3, 8)
    apical.convert_(model, UNIT)
    assert torch.allclose(model(x), F.relu(model.affine(x) + x) + model.affine_apical(x))


@pytest.mark.parametrize("scope", ["network", "layer", "channel"])
def test_a_learned_alpha_has_its_scope_over_all_forms(scope: str) -> None:
    model = nn.Sequential(Residual(), Residual())
    apical.convert_(model, f"pynada(alpha=learn,scope={scope})")
    alphas = [p.numel() for name, p in model.named_parameters() if name.endswith("alpha")]
    assert alphas == {"network": [1], "layer": [1] * 4, "channel": [4] * 4}[scope]


@pytest.mark.parametrize("residual", [False, True])
def test_neurons_of_apical_become_what_the_unit_would_have_built(residual: bool) -> None:
    class Net(nn.Module):
        def __init__(self, unit: str) -> None:
            super().__init__()
            layers = apical.Unit.parse(unit).layers()
            self.one = layers.conv(2, 4, 4, 3, padding=1, norm=nn.BatchNorm2d, bias=False)
            self.two = layers.conv(2, 4, 4, 3, padding=1, norm=nn.BatchNorm2d, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.two(self.one(x), residual=x if residual else None)

    model, built = Net("relu"), Net(UNIT)
    assert type(model.one) is Neuron
    report = apical.convert_(model, UNIT)
    assert [row.name for row in report.rows] == ["one.activation", "two.activation"]
    built.load_state_dict(model.state_dict())
    x = torch.randn(2, 4, 5, 5)
    assert torch.equal(model(x), built(x))


def test_a_second_conversion_leaves_neurons_alone_and_converts_the_rest() -> None:
    model = nn.Sequential(Residual(), Residual())
    apical.convert_(model, UNIT, filter_fn=lambda name, module: name.startswith("0."))
    first = {name for name, _ in model.named_parameters()}
    report = apical.convert_(model, UNIT, filter_fn=lambda name, module: name.startswith("1."))
    assert len(report.converted) == 2
    with pytest.raises(apical.errors.ConversionError, match="every activation of the model is apical's already"):
        apical.convert_(model, UNIT)
    assert {name for name in first if name.startswith("0.")} <= {name for name, _ in model.named_parameters()}
    assert model(torch.randn(2, 4, 5, 5)).shape == (2, 4, 5, 5)


class PooledShortcut(nn.Module):
    """The shortcut pools before its convolution: the last layer of the other way is the neuron's all the same."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 3, padding=1)
        self.shortcut = nn.Sequential(nn.AvgPool2d(2), nn.Conv2d(3, 4, 1))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.conv2(F.relu(self.conv1(x))) + self.shortcut(x))


@pytest.mark.parametrize("shown", [False, True])
def test_a_shortcut_that_pools_first_does_not_feed_the_neuron(shown: bool) -> None:
    model, x = PooledShortcut(), torch.randn(2, 3, 8, 8)
    before = model(x)
    report = apical.convert_(model, "pynada", keep_function=True, example_inputs=x if shown else None)
    assert [row.converted for row in report.rows] == [True, True]
    assert torch.equal(model(x), before)
    assert model.conv2_apical.affine.in_channels == 4  # type: ignore[union-attr, operator]


MOVES: dict[str, Callable[[Tensor, nn.Module], Tensor]] = {
    "view": lambda z, norm: norm(z).view(z.size(0), -1),
    "permute": lambda z, norm: z.permute(0, 2, 3, 1).flatten(1, 2),
    "pool": lambda z, norm: F.max_pool2d(norm(z), 2).mean((2, 3)),
    "select": lambda z, norm: norm(z)[:, :, 1:-1].transpose(1, 2),
    "norm between": lambda z, norm: norm(z.flatten(0, 1)).view(z.shape),
    "chunk": lambda z, norm: z.chunk(2, 1)[0],
    "split": lambda z, norm: torch.split(norm(z), [2, 4], 1)[1],
}


class Rearranged(nn.Module):
    """An affine layer, something that moves its values, and an activation."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way = way
        between = way == "norm between"  # as in LeViT
        self.layer: nn.Module = nn.Linear(6, 6) if between else nn.Conv2d(3, 6, 3)
        self.norm: nn.Module = nn.BatchNorm1d(6) if between else nn.BatchNorm2d(6)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(MOVES[self.way](self.layer(x), self.norm))


@pytest.mark.parametrize("way", list(MOVES))
@pytest.mark.parametrize("shown", [False, True])
def test_values_that_are_moved_between_the_layer_and_the_activation(way: str, shown: bool) -> None:
    model, x = Rearranged(way).eval(), torch.randn(2, 3, 6, 6)
    before = model(x)
    report = apical.convert_(model, UNIT, keep_function=True, example_inputs=x if shown else None)
    assert str(report).startswith("1 of 1 activation converted")
    assert torch.equal(model(x), before)
    branch = next(module for module in model.modules() if isinstance(module, ApicalBranch))
    with torch.no_grad():
        for parameter in branch.parameters():
            parameter.normal_()
    moved = MOVES[way](branch.affine(x), branch.norm if branch.norm is not None else nn.Identity())
    assert torch.allclose(model(x), before + apical_ada(moved), atol=1e-5)
    report.undo(discard=True)
    assert torch.equal(model(x), before)


def test_one_value_per_channel_is_refused_where_channels_are_moved() -> None:
    with pytest.raises(ConversionError, match="one value per channel needs the layer's channels, but values are"):
        apical.convert_(Rearranged("permute"), "pynada(alpha=learn,scope=channel)")


class Bent(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(super().forward(x))


class BentByCall(nn.Linear):
    def __call__(self, *args: Tensor) -> Tensor:
        return F.relu(super().__call__(*args))


class Scaled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 0.5 * super().forward(x)


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("kind", [Bent, BentByCall, Scaled])
def test_a_layer_that_activates_itself_feeds_no_neuron(kind: type[nn.Linear], shown: bool) -> None:
    model, x = nn.Sequential(kind(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)
    report = apical.convert_(model, UNIT, example_inputs=x if shown else None)
    (second,) = [row for row in report.rows if row.name == "1"]
    assert second.converted == (kind is Scaled)
    assert second.converted or kind.__name__ in second.reason


class MaskedInPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        z = self.first(x)
        z[z < -1] = -1
        return F.relu(self.second(F.gelu(z)))


def test_what_is_assigned_in_place_lies_between_the_layer_and_the_activation() -> None:
    report = apical.convert_(MaskedInPlace(), UNIT, example_inputs=torch.randn(3, 4))
    (gelu,) = [row for row in report.kept if row.kind == "gelu"]
    assert gelu.reason == "it is fed by an assignment in place, not by an affine layer"
    assert [row.kind for row in report.converted] == ["relu"]


class SharedEncoder(nn.Module):
    """The encoder's layer feeds the head's activation, and its raw output is a result too."""

    def __init__(self, *, raw_first: bool) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(4, 4))
        self.head, self.raw_first = nn.Sequential(nn.ReLU(), nn.Linear(4, 2)), raw_first

    def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        if self.raw_first:
            raw = self.encoder(y)
            return self.head(self.encoder(x)), raw
        return self.head(self.encoder(x)), self.encoder(y)


@pytest.mark.parametrize("raw_first", [False, True])
def test_a_layer_whose_container_is_called_again_is_not_merged(raw_first: bool) -> None:
    model, x, y = SharedEncoder(raw_first=raw_first), torch.randn(3, 4), torch.randn(3, 4)
    before = model(x, y)
    report = apical.convert_(model, UNIT, keep_function=True)
    assert [row.after for row in report.rows] == ["pyramidal neuron: apical branch added"]
    assert all(torch.allclose(*pair) for pair in zip(model(x, y), before, strict=True))
    with torch.no_grad():
        model.head[0].apical.affine.weight.normal_()
    hidden = F.relu(model.encoder(x)) + model.head[0].apical(x)
    assert torch.allclose(model(x, y)[0], model.head[1](hidden), atol=1e-6)


class Coder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.norm, self.decoder = nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.decoder(F.relu(self.norm(self.encoder(x))))


BOUND: dict[str, Callable[[Any], Any]] = {
    "tied": lambda model: setattr(model.decoder, "weight", model.encoder.weight),
    "tied norm": lambda model: setattr(model.decoder, "bias", model.norm.bias),
    "listed": lambda model: setattr(model, "decayed", [model.encoder.weight]),
    "hook": lambda model: model.encoder.weight.register_hook(lambda gradient: gradient),
    "hook after": lambda model: model.encoder.weight.register_post_accumulate_grad_hook(lambda parameter: None),
    "parameter's attribute": lambda model: setattr(model.encoder.weight, "lr_scale", 0.1),
    "layer's attribute": lambda model: setattr(model.encoder, "lr_scale", 0.1),
}


@pytest.mark.parametrize("how", BOUND)
def test_layers_whose_parameters_mean_more_than_their_values_stay(how: str) -> None:
    model, x = Coder(), torch.randn(5, 4)
    BOUND[how](model)
    layers, weight = (model.encoder, model.norm), model.encoder.weight
    before = model(x)
    report = apical.convert_(model, UNIT, keep_function=True)
    assert [row.after for row in report.rows] == ["pyramidal neuron: apical branch added"]
    assert (model.encoder, model.norm) == layers
    assert model.encoder.weight is weight
    assert torch.allclose(model(x), before, atol=1e-6)


def test_a_transformer_layer_with_a_tied_weight_stays() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 4)
    layer.linear2.weight = layer.linear1.weight
    with pytest.raises(ConversionError, match="its Linear shares a parameter with another"):
        apical.convert_(layer, UNIT)


class Dropped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(F.dropout(self.affine(x), 0.5, self.training))


@pytest.mark.parametrize("with_inputs", [False, True])
def test_a_call_of_dropout_may_lie_between(with_inputs: bool) -> None:
    model, x = Dropped(), torch.randn(64, 4)
    report = apical.convert_(model, UNIT, example_inputs=x if with_inputs else None)
    assert report.kept == []
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.allclose(model(x), F.relu(model.affine(x)) + model.affine_apical(x))


class AddedInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return x + self.act(self.affine(x))


@pytest.mark.parametrize("with_inputs", [False, True])
def test_an_activation_of_a_sum_without_layers_is_said_to_be_fed_by_a_sum(with_inputs: bool) -> None:
    model = nn.Sequential(AddedInside(), nn.ReLU(), nn.Linear(4, 2))
    report = apical.convert_(model, UNIT, example_inputs=torch.randn(3, 4) if with_inputs else None)
    assert [row.name for row in report.kept] == ["1"]
    assert report.kept[0].reason.startswith("it is fed by a sum")


class Followed(nn.Module):
    """A network and a frozen copy that follows it, as targets and moving averages do."""

    def __init__(self) -> None:
        super().__init__()
        self.online = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU())
        self.target = copy.deepcopy(self.online).requires_grad_(False)

    def follow(self) -> None:
        with torch.no_grad():
            for own, other in zip(self.online.parameters(), self.target.parameters(), strict=True):
                other.lerp_(own, 0.5)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return self.online(x), self.target(x)


@pytest.mark.parametrize("keep_function", [True, False])
@pytest.mark.parametrize("shown", [True, False])
def test_a_frozen_copy_stays_a_copy(keep_function: bool, shown: bool) -> None:
    model, x = Followed(), torch.randn(3, 4)
    report = apical.convert_(model, "pynada", keep_function=keep_function, example_inputs=x if shown else None)
    assert [row.after for row in report.rows] == ["PyramidalLinear"] * 4
    assert not any(parameter.requires_grad for parameter in model.target.parameters())
    assert all(parameter.requires_grad for parameter in model.online.parameters())
    assert torch.equal(*model.eval()(x))
    model.follow()
    model.target.load_state_dict(model.online.state_dict())


def test_a_frozen_layer_of_its_own_gets_a_branch_that_learns() -> None:
    model = Followed()
    with torch.no_grad():
        model.target[0].weight.mul_(2)
    report = apical.convert_(model, "pynada")
    assert [row.after for row in report.rows[2:]] == ["pyramidal neuron: apical branch added"] * 2
    assert any(parameter.requires_grad for parameter in model.target.parameters())
