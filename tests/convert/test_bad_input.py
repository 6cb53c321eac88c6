"""What cannot be converted is one clear sentence, with the corrected call, and the model stays as it was."""

import copy
import inspect
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.errors import ApicalError, ConversionError


def refused(model: nn.Module, unit: Any, **options: object) -> str:
    """The sentence, after checking that it is one, and that nothing happened to the model."""
    before = repr(model), copy.deepcopy(model.state_dict()), type(model)
    with pytest.raises(ConversionError) as caught:
        apical.convert_(model, unit, **options)  # type: ignore[arg-type]
    assert (repr(model), type(model)) == (before[0], before[2])
    assert list(model.state_dict()) == list(before[1])
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


def test_nothing_to_convert() -> None:
    sentence = refused(nn.Sequential(nn.Linear(4, 4)), "ada")
    assert sentence == (
        "the model has no activation to convert (2 modules looked at): give the network that has them, "
        "e.g. convert_(model.backbone, 'ada')"
    )


def test_only_other_kinds() -> None:
    sentence = refused(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid(), nn.Tanh()), "ada")
    assert sentence.endswith("but 1 sigmoid, 1 tanh: convert_(model, 'ada', kinds=['sigmoid', 'tanh'])")


def test_the_corrected_call_for_other_kinds_works() -> None:
    apical.convert_(nn.Sequential(nn.Linear(4, 4), nn.Sigmoid()), "ada", kinds=["sigmoid", "tanh"])


def test_converted_already() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    apical.convert_(model, "ada")
    assert "every activation of the model is apical's already" in refused(model, "pynada")


def test_a_unit_that_needs_an_affine_layer_it_cannot_find() -> None:
    model = nn.Sequential(nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 4))
    sentence = refused(model, "pynada(alpha=0.3)")
    assert sentence == (
        "'pynada(alpha=0.3)' needs one affine layer that feeds the activation, which the one activation does not have "
        "(1: it is fed by a normalisation of the input of the model, not by an affine layer): use a standard unit, "
        "e.g. convert_(model, 'ada(alpha=0.3)')"
    )
    apical.convert_(model, "ada(alpha=0.3)")


def test_a_filter_that_accepts_nothing() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    sentence = refused(model, "ada", filter_fn=lambda name, module: name == "layer1")
    assert sentence == (
        "filter_fn accepts none of the activations (1): it is called as filter_fn(name, module), "
        "e.g. convert_(model, 'ada', filter_fn=lambda name, module: name.startswith('1'))"
    )
    apical.convert_(model, "ada", filter_fn=lambda name, module: name.startswith("1"))


@pytest.mark.parametrize("answer", [None, "yes", 1])
def test_a_filter_that_answers_something_else(answer: object) -> None:
    sentence = refused(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "ada", filter_fn=lambda name, module: answer)
    assert sentence.startswith(f"filter_fn returned {answer!r} for '1', but must return True or False")


@pytest.mark.parametrize("filter_fn", ["layer1", [nn.ReLU]])
def test_a_filter_that_is_no_function(filter_fn: object) -> None:
    sentence = refused(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "ada", filter_fn=filter_fn)
    assert "must be a function of a name and a module" in sentence


def test_a_filter_of_the_wrong_number_of_arguments() -> None:
    sentence = refused(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), "ada", filter_fn=lambda name: True)
    assert "must be a function of a name and a module" in sentence


class Untraceable(nn.Module):
    """Forward branches on values."""

    def __init__(self, *, module: bool) -> None:
        super().__init__()
        self.affine = nn.Linear(4, 4)
        if module:
            self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
            self.act = nn.GELU()

    def forward(self, x: Tensor) -> Tensor:
        x = self.affine(x)
        if x.sum() > 0:
            x = F.relu(x)
        return self.block(self.act(x)) if hasattr(self, "block") else x


def test_an_untraceable_model_needs_a_forward_to_be_observed_for_pyramidal_neurons() -> None:
    sentence = refused(Untraceable(module=False), "pynada(alpha=0.5)")
    assert sentence == (
        "the one activation is not known to have an affine layer before it (relu: the forward of Untraceable could "
        "not be traced; example_inputs would show what feeds it): let convert_ observe a forward, convert_(model, "
        "'pynada(alpha=0.5)', example_inputs=...), or use a standard unit, e.g. convert_(model, 'ada(alpha=0.5)')"
    )


@pytest.mark.parametrize(("unit", "converted"), [("ada", ["block.1", "act", "relu"]), ("pynada", ["block.1"])])
def test_an_untraceable_model_is_counted_beside_its_activations(unit: str, converted: list[str]) -> None:
    model = Untraceable(module=True)
    report = apical.convert_(model, unit)
    assert [row.name for row in report.converted] == converted
    assert str(report).startswith(f"{len(converted)} of 3 activations converted to {unit}; 1 forward could not be")
    assert list(report.details) == ["(the model)"]
    assert "control flow" in report.details["(the model)"]
    assert all(
        row.reason == "the forward of Untraceable could not be traced; example_inputs would show what feeds it"
        for row in report.kept
    )
    assert model(torch.randn(3, 4)).shape == (3, 4)


def test_an_unknown_kind_of_activation() -> None:
    assert refused(nn.ReLU(), "ada", kinds=["relu", "rleu"]).startswith("unknown kind 'rleu'; available: relu, relu6")


def test_also_takes_classes() -> None:
    assert "also names 'MyAct', but takes classes" in refused(nn.ReLU(), "ada", also=["MyAct"])


def test_lazy_layers() -> None:
    model = nn.Sequential(nn.LazyLinear(4), nn.ReLU())
    with pytest.raises(ConversionError, match="run it once on an input"):
        apical.convert_(model, "pynada")
    model(torch.randn(2, 3))
    assert len(apical.convert_(model, "pynada").converted) == 1


def test_a_forward_that_cannot_be_replaced_says_why() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return F.relu(x + 1)

    sentence = refused(torch.fx.symbolic_trace(Net()), "ada")
    assert "it is a GraphModule, whose forward torch generates" in sentence
    patched = Net()
    patched.forward = lambda x: F.relu(x - 1)  # type: ignore[method-assign]
    assert "its forward is set on the instance" in refused(patched, "ada")


class SharedAct(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(self.one(x)) + self.act(x)


def test_a_shared_activation_in_a_forward_that_cannot_be_replaced_is_kept() -> None:
    assert len(apical.convert_(SharedAct(), "pynada").converted) == 1
    sentence = refused(torch.fx.symbolic_trace(SharedAct()), "pynada")
    assert "its module has other callers, and it is a GraphModule" in sentence


class EveryForm(nn.Module):
    """Has what each form of conversion changes: modules, functions, code, hooks, held functions; and state."""

    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.ReLU())
        self.shared, self.held, self.cache = SharedAct(), F.gelu, dict[str, Tensor]()
        self.encoder = nn.TransformerEncoderLayer(4, 2, 8, batch_first=True)
        self.last = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor, skip: bool = False) -> Tensor:
        self.calls += 1
        self.cache["x"] = x
        z = self.shared(self.stem(x))
        if bool(z.isnan().any()) or skip:
            return z  # type: ignore[no-any-return]
        z = self.encoder(self.held(self.last(z)).unsqueeze(0))[0]
        return F.silu(self.last(z)) + z * torch.sigmoid(z)


def fingerprint(model: nn.Module) -> Any:
    """All that a conversion could change: classes, attributes, children, hooks and values."""
    return [
        (
            name,
            id(module),
            type(module),
            {
                key: repr(value) if isinstance(value, (dict, Tensor)) else id(value)
                for key, value in vars(module).items()
            },
            {key: id(child) for key, child in module._modules.items()},
        )
        for name, module in model.named_modules()
    ]


class Fault(BaseException):
    """What nobody catches by name."""


CHANGES = re.compile(r"convert\.(_[a-z_]+|multiply_adds|rows)$|Surgery\.[a-z]+$|Application\.[a-z]+$|__post_init__$")
"""The functions that change a model, and those that come after; each fails once, in its last call."""


def fail_at(number: int, calls: list[str]) -> Any:
    """A profile function that raises in the given call of a function of apical.convert, and notes all."""

    def profile(frame: Any, event: str, argument: Any) -> None:
        home = frame.f_globals.get("__name__", "")
        if event == "call" and home.startswith("apical.convert") and not frame.f_code.co_flags & inspect.CO_GENERATOR:
            calls.append(f"{home}.{frame.f_code.co_qualname}")
            if len(calls) == number:
                sys.setprofile(None)
                raise Fault

    return profile


@pytest.mark.parametrize("unit", ["ada(alpha=learn)", "pynada"])
def test_a_conversion_that_fails_anywhere_leaves_the_model_as_it_was(unit: str) -> None:
    torch.manual_seed(0)
    model, x = EveryForm().eval(), torch.randn(3, 4)
    calls: list[str] = []
    before, random = fingerprint(model), torch.get_rng_state()

    def convert(number: int) -> bool:
        """Whether the call of that number, and with it the conversion, failed."""
        calls.clear()
        torch.set_rng_state(random)
        sys.setprofile(fail_at(number, calls))
        try:
            report = apical.convert_(model, unit, example_inputs=x)
        except Fault:
            return True
        finally:
            sys.setprofile(None)
        report.undo()
        return False

    convert(0)  # what is read once is known from here on
    assert not convert(0)
    assert fingerprint(model) == before
    changes = {name: 1 + number for number, name in enumerate(calls) if CHANGES.search(name)}
    assert len(changes) > 8
    for number in sorted({*changes.values(), *range(1, len(calls), 1 + len(calls) // 8)}):
        failed = convert(number)
        assert failed or number > len(calls)
        assert fingerprint(model) == before, calls[-1]
    with pytest.raises(ConversionError, match="does not run on example_inputs"):
        apical.convert_(model, unit, example_inputs=torch.randn(3, 5))
    assert fingerprint(model) == before


def test_what_is_no_model_and_what_is_no_unit() -> None:
    with pytest.raises(ConversionError, match="needs a torch module, got function"):
        apical.convert_(F.relu, "ada")  # type: ignore[arg-type]
    with pytest.raises(ApicalError, match="did you mean 'pynada'"):
        apical.convert_(nn.ReLU(), "pynad")


@pytest.mark.parametrize("compiled", [torch.jit.script, torch.compile])
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_models_are_refused_with_what_to_do(compiled: object) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(ConversionError, match=r"is compiled already \(.*\): convert the original model"):
        apical.convert_(compiled(model), "ada")
    with pytest.raises(ConversionError, match=r"1 is compiled already \(.*\): convert the original model"):
        apical.convert_(nn.Sequential(nn.ReLU(), compiled(model)), "ada")


@pytest.mark.parametrize("unit", [nn.Softmax, nn.Softmax(-1), nn.GLU])
def test_a_unit_that_is_not_elementwise(unit: Any) -> None:
    assert "is not elementwise" in refused(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), unit)


@pytest.mark.parametrize("named", [nn.GLU, nn.Linear])
def test_also_names_no_activation(named: type[nn.Module]) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.GLU(), nn.Linear(4, 4), nn.ReLU())
    assert f"also names {named.__name__}, which is not elementwise" in refused(model, "ada", also=[named])


def test_a_list_of_libraries() -> None:
    with pytest.raises(ApicalError, match=r"names one by one, not \['timm'\]: e\.g\. apical\.register\('timm'\)"):
        apical.register(["timm"])  # type: ignore[arg-type]


@pytest.mark.parametrize("unit", [lambda x: x * torch.cos(x), type("Own", (nn.ReLU,), {})])
def test_a_unit_of_this_process_is_not_saved(unit: Any, tmp_path: Path) -> None:
    report = apical.convert_(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), unit)
    with pytest.raises(ConversionError, match=r"known to this process alone: name it with apical\.register_unit"):
        report.save(tmp_path / "conversion.json")
    assert not (tmp_path / "conversion.json").exists()


def gcu(x: Tensor) -> Tensor:
    return x * torch.cos(x)


class Helped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(gcu(self.affine(x)))


def test_the_report_says_what_to_pass_for_ones_own_functions() -> None:
    report = apical.convert_(Helped(), "ada")
    call = "kinds=[*apical.convert.DEFAULT_KINDS, 'gcu']"
    assert f"not asked for: 1 gcu; {call} adds them" in str(report)
    assert call in report.kept[0].reason
    assert apical.convert_(Helped(), "ada", kinds=[*apical.convert.DEFAULT_KINDS, "gcu"]).kept == []


def test_dropout_is_no_unit_and_the_identity_is() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    assert "is not elementwise" in refused(model, nn.Dropout)
    assert str(apical.convert_(model, nn.Identity)).startswith("1 of 1")


def test_a_model_that_needs_gradients_to_run_is_not_said_not_to_run() -> None:
    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.requires_grad_()
            return torch.autograd.grad(self.net(x).sum(), x, create_graph=True)[0]

    with pytest.raises(
        ConversionError, match=r"runs on example_inputs, but not .* without gradients .*: leave example_"
    ):
        apical.convert_(Field(), "ada", example_inputs=torch.randn(2, 4))
    assert len(apical.convert_(Field(), "ada").converted) == 1


def test_a_hook_with_a_default_of_any_kind_is_read() -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    model[1].register_forward_hook(lambda *_, n="1", f=lambda x: x: None)
    model[0].register_forward_pre_hook(lambda *_, n="0": None)
    assert len(apical.convert_(model, "ada").converted) == 1
