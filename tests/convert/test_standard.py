"""Standard units: every activation of the chosen kinds gives way, whatever way it is written."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.convert import ALL_KINDS, DEFAULT_KINDS
from apical.convert.branch import WiredNeuron
from apical.convert.kinds import _MODULES
from apical.errors import ConversionError

ADA = apical.ADA(alpha=0.5)
UNIT = "ada(alpha=0.5)"


def test_a_module_is_replaced_in_place() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Linear(8, 2))
    x = torch.randn(3, 4)
    expected = model[2](ADA(model[0](x)))
    report = apical.convert_(model, UNIT)
    assert report.model is model
    assert torch.equal(model(x), expected)
    assert [(row.name, row.before, row.after) for row in report.rows] == [("1", "ReLU", UNIT)]


@pytest.mark.parametrize("kind", ALL_KINDS)
def test_every_kind_of_torch_can_be_chosen_as_a_module(kind: str) -> None:
    settings = {"threshold": (0.1, 0.0)}.get(kind, ())
    model = nn.Sequential(nn.Linear(4, 4), _MODULES[kind](*settings))
    apical.convert_(model, UNIT, kinds=kind)
    assert isinstance(model[1], apical.ADA)


@pytest.mark.parametrize("kind", ["sigmoid", "tanh", "hardsigmoid", "softplus"])
def test_gates_and_outputs_are_left_unless_asked_for(kind: str) -> None:
    model = nn.Sequential(nn.ReLU(), _MODULES[kind]())
    apical.convert_(model, UNIT)
    assert type(model[1]) is _MODULES[kind]
    assert kind not in DEFAULT_KINDS


class Functional(nn.Module):
    """An activation called in one of many ways, by name."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.way, self.affine = way, nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = self.affine(x)
        if self.way == "method":
            return x.relu()
        if self.way == "method in place":
            return x.relu_()
        if self.way == "result not used":
            x.relu_()
            return x
        if self.way == "function in place, input read later":
            y = F.relu(x, inplace=True)
            return x + y
        if self.way == "keyword":
            return F.leaky_relu(input=x, negative_slope=0.3)
        return FUNCTIONS[self.way](x)


FUNCTIONS = {
    "F.relu": F.relu,
    "torch.relu": torch.relu,
    "torch.relu_": torch.relu_,
    "torch.selu": torch.selu,
    "F.gelu": F.gelu,
    "F.silu": F.silu,
    "F.elu_": F.elu_,
    "F.hardswish": F.hardswish,
}
WAYS = ["method", "method in place", "result not used", "keyword", *FUNCTIONS]


@pytest.mark.parametrize("way", WAYS)
def test_a_functional_call_is_replaced(way: str) -> None:
    model = Functional(way)
    x = torch.randn(3, 4)
    apical.convert_(model, UNIT)
    assert torch.equal(model(x), ADA(model.affine(x)))


def test_who_read_an_input_that_was_overwritten_reads_the_new_activation() -> None:
    model = Functional("function in place, input read later")
    x = torch.randn(3, 4)
    apical.convert_(model, UNIT)
    assert torch.equal(model(x), 2 * ADA(model.affine(x)))


class OverwritingModule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine, self.act = nn.Linear(4, 4), nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.affine(x)
        self.act(x)
        return x


def test_a_module_that_overwrites_its_input_is_replaced_with_effect() -> None:
    model = OverwritingModule()
    x = torch.randn(3, 4)
    apical.convert_(model, UNIT)
    assert torch.equal(model(x), ADA(model.affine(x)))


class SharedActivation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(4, 4), nn.Linear(4, 4)
        self.act = nn.ReLU()
        self.same = self.act
        self.block = nn.Sequential(nn.Linear(4, 4), self.act)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.same(self.two(self.act(self.one(x)))))


def test_a_shared_module_stays_one_module_under_all_its_names() -> None:
    model = SharedActivation()
    report = apical.convert_(model, "ada(alpha=learn,scope=layer)")
    assert model.act is model.same is model.block[1]
    assert {"act", "same", "block.1"} <= {row.name for row in report.converted}
    assert [name for name, _ in model.named_parameters() if "alpha" in name] == ["act.alpha"]


def test_a_filter_may_choose_one_name_of_a_shared_module() -> None:
    model = SharedActivation()
    apical.convert_(model, UNIT, filter_fn=lambda name, module: name == "block.1" and isinstance(module, nn.ReLU))
    assert isinstance(model.block[1], apical.ADA)
    assert isinstance(model.act, nn.ReLU)


def test_a_filter_chooses_functional_calls_by_the_module_that_makes_them() -> None:
    model = nn.Sequential(Functional("F.relu"), Functional("F.relu"))
    report = apical.convert_(model, UNIT, filter_fn=lambda name, module: name.startswith("1."))
    assert [row.name for row in report.converted] == ["1.relu"]
    kept = [row for row in report.kept if "as the model is set" not in row.reason]
    assert [(row.name, row.reason, row.asked) for row in kept] == [("0.relu", "filter_fn leaves it out", False)]
    x = torch.randn(3, 4)
    assert torch.equal(model(x), ADA(model[1].affine(F.relu(model[0].affine(x)))))


@pytest.mark.parametrize(("scope", "count"), [("network", 1), ("layer", 2), ("channel", 2)])
def test_a_learned_alpha_has_its_scope(scope: str, count: int) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6), nn.ReLU())
    apical.convert_(model, f"ada(alpha=learn,scope={scope})")
    alphas = [p for name, p in model.named_parameters() if "alpha" in name]
    assert len(alphas) == count
    assert [p.numel() for p in alphas] == ([8, 6] if scope == "channel" else [1] * count)
    model(torch.randn(2, 4)).sum().backward()
    assert all(p.grad is not None for p in alphas)


def test_channels_of_a_convolution_are_counted_behind_it() -> None:
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU())
    apical.convert_(model, "ada(alpha=learn,scope=channel)")
    assert model(torch.randn(2, 3, 5, 7)).shape == (2, 8, 3, 5)
    assert model(torch.randn(2, 3, 8, 8)).shape == (2, 8, 6, 6)


def test_where_the_width_is_not_known_an_alpha_per_channel_says_so() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.MaxPool1d(2), nn.ReLU())
    report = apical.convert_(model, "ada(alpha=learn,scope=channel)")
    assert [row.name for row in report.kept] == ["3"]
    assert "needs the layer's width, but it is fed by 1 (ReLU)" in report.kept[0].reason


def test_a_model_that_is_an_activation_is_replaced_as_a_whole() -> None:
    model = nn.ReLU()
    report = apical.convert_(model, UNIT)
    assert isinstance(report.model, apical.ADA)
    assert report.undo() is model


class OwnGELU(nn.Module):
    """An activation class as libraries write them around a function."""

    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x)


def test_a_class_around_one_activation_call_is_an_activation() -> None:
    model = nn.Sequential(nn.Linear(4, 4), OwnGELU())
    report = apical.convert_(model, UNIT)
    assert isinstance(model[1], apical.ADA)
    assert [row.name for row in report.rows] == ["1"]


@pytest.mark.parametrize("activation", ["relu", "gelu", nn.ReLU()])
@pytest.mark.parametrize("unit", [UNIT, "pynada"])
def test_torchs_transformer_layers_run_the_new_activation_in_both_modes(activation: object, unit: str) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation=activation, batch_first=True)
    model = nn.TransformerEncoder(layer, 2)
    before, x = model.eval()(torch.ones(2, 3, 8)), torch.randn(2, 3, 8)
    report = apical.convert_(model, unit)
    assert len(report.converted) == 2
    with torch.no_grad():
        in_evaluation = model.eval()(x)
        assert torch.allclose(in_evaluation, model.train()(x), atol=1e-5)
        hidden = model.eval().layers[0].linear1(x)
    assert isinstance(
        model.layers[0].activation if unit == UNIT else model.layers[0].linear1, (apical.ADA, apical.PyramidalLinear)
    )
    assert hidden.shape == (2, 3, 16)
    masked = model(x, src_key_padding_mask=torch.tensor([[False, False, True]] * 2))
    assert masked.isfinite().all()
    report.undo()
    assert torch.equal(model.eval()(torch.ones(2, 3, 8)), before)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_a_learned_alpha_has_the_dtype_of_the_model(dtype: torch.dtype) -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU()).to(dtype)
    apical.convert_(model, "ada(alpha=learn)")
    assert model[1].alpha.dtype == dtype


class Squared(nn.Module):
    def forward(self, hidden: Tensor) -> Tensor:
        return F.relu(hidden) ** 2


class Doubled(nn.Module):
    def forward(self, z: Tensor) -> Tensor:
        return 2 * F.relu(z)


def squared(hidden: Tensor) -> Tensor:
    return F.relu(hidden) ** 2


class ByName(nn.Module):
    """Passes the inputs of its layers by their names; where it decides by values, no graph shows that."""

    def __init__(self, activation: Any, decides: bool) -> None:
        super().__init__()
        self.affine, self.act, self.last, self.decides = nn.Linear(4, 4), activation, nn.Linear(4, 2), decides
        self.by_input = isinstance(activation, nn.ReLU)

    def forward(self, x: Tensor) -> Tensor:
        h = self.affine(input=x)
        if self.decides and bool(h.isnan().any()):
            return h
        return self.last(input=self.act(input=h) if self.by_input else self.act(hidden=h))


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("decides", [False, True])
@pytest.mark.parametrize("unit", ["ada", "gelu", "swish", "gaussian", "pynada", Doubled()])
@pytest.mark.parametrize("activation", [nn.ReLU, Squared, lambda: squared])
def test_a_forward_may_pass_the_input_by_its_name(activation: Any, unit: Any, decides: bool, shown: bool) -> None:
    if unit == "pynada" and decides and not shown:
        return  # nothing tells what feeds the activation
    model, x = ByName(activation(), decides), torch.randn(3, 4)
    before = model(x)
    report = apical.convert_(model, unit, example_inputs=x if shown else None)
    assert len(report.converted) == 1
    fresh = copy.deepcopy(model)
    assert torch.equal(fresh(x), model(x))
    assert not torch.equal(model(x), before)
    assert torch.equal(report.undo()(x), before)
    assert not getattr(model.act, "_forward_pre_hooks", {})


@pytest.mark.parametrize("module", [apical.ADA(), apical.PyramidalLinear(4, 4), nn.ReLU()])
def test_modules_name_their_argument_as_torch_does(module: nn.Module) -> None:
    x = torch.randn(3, 4)
    assert torch.equal(module(input=x), module(x))


class TwoNames(nn.Module):
    """One activation with two names, called twice; where it decides by values, no graph shows that."""

    def __init__(self, way: str, decides: bool) -> None:
        super().__init__()
        self.one, self.two, self.act, self.way, self.decides = nn.Linear(4, 4), nn.Linear(4, 4), nn.ReLU(), way, decides
        if way == "list":
            self.both = nn.ModuleList([self.act, self.act])
        else:
            self.same = self.act

    def forward(self, x: Tensor) -> Tensor:
        if self.decides and bool(x.isnan().any()):
            return x
        if self.way == "names":
            return self.same(self.two(self.act(self.one(x))))
        if self.way == "first alone":
            return self.act(self.two(self.act(self.one(x))))
        if self.way == "variables":
            first, second = self.act, self.same
            return second(self.two(first(self.one(x))))
        for layer, act in zip((self.one, self.two), self.both, strict=True):
            x = act(layer(x))
        return x


class Decides(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        for part in self if bool(x.isfinite().all()) else ():
            x = part(x)
        return x


def shared(block: type[nn.Sequential]) -> nn.Module:
    act = nn.ReLU()
    parts = [nn.Linear(4, 4), act], [nn.Linear(4, 4), act]
    return nn.Sequential(*(block(*each) for each in parts)) if block is Decides else block(*parts[0], *parts[1])


TWO_CALLS: dict[str, Any] = {
    way: partial(TwoNames, way, False) for way in ("names", "first alone", "variables", "list")
}
TWO_CALLS |= {
    "names, decides": partial(TwoNames, "names", True),
    "row": partial(shared, nn.Sequential),
    "blocks": partial(shared, Decides),
}


@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("way", TWO_CALLS)
def test_a_module_with_two_names_has_a_row_for_each_call(way: str, shown: bool, unit: str) -> None:
    model, x = TWO_CALLS[way](), torch.randn(3, 4)
    if unit == "pynada" and (way == "blocks" or (way == "names, decides" and not shown)):
        with pytest.raises(ConversionError, match="is not written out in the source" if shown else "example_inputs"):
            apical.convert_(model, unit, example_inputs=x if shown else None)
        return
    before, ran = model(x), list[nn.Module]()
    report = apical.convert_(model, unit, example_inputs=x if shown else None)
    handle = nn.modules.module.register_module_forward_hook(lambda module, *_: ran.append(module))
    model(x)
    handle.remove()
    kinds = apical.ADA if unit == "ada" else (apical.PyramidalLinear, WiredNeuron)
    assert sum(isinstance(module, kinds) for module in ran) == len(report.rows) == 2
    assert all(row.converted and bool(row.inputs) == shown for row in report.rows)
    expected = {"first alone": {"act", "act (call 2)"}, "list": {"both.0", "both.1"}, "row": {"1", "3"}}
    expected["blocks"] = {"0.1", "1.1"}
    assert {row.name for row in report.rows} == expected.get(way, {"act", "same"})
    assert torch.equal(report.undo()(x), before)


class Joined(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine = nn.Linear(4, 4)

    def forward(self, x: Tensor, others: Any = None) -> Tensor:
        h = F.relu(self.affine(x))
        return h + sum(others) if others else h


class Joining(nn.Module):
    """Calls a part with its input twice: by itself and in a list, as DLA and VoVNet do."""

    def __init__(self, by_name: bool) -> None:
        super().__init__()
        self.part, self.by_name = Joined(), by_name

    def forward(self, x: Tensor) -> Tensor:
        return self.part(x, others=(x, x)) if self.by_name else self.part(x, [x])


@pytest.mark.parametrize("by_name", [True, False])
@pytest.mark.parametrize("shown", [True, False])
def test_a_part_may_be_called_with_its_input_in_a_list_too(by_name: bool, shown: bool) -> None:
    model, x = Joining(by_name), torch.randn(3, 4)
    expected = ADA(model.part.affine(x)) + (2 if by_name else 1) * x
    assert len(apical.convert_(model, UNIT, example_inputs=x if shown else None).converted) == 1
    assert torch.allclose(model(x), expected)
