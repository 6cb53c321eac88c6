"""Networks that reach their activations by unusual paths: each has one row, and the row is true."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.errors import ConversionError


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.act = nn.Linear(4, 4), nn.Linear(4, 4), nn.GELU()

    def forward(self, x: Tensor) -> Any:
        raise NotImplementedError


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.glu, self.unused, self.act = nn.RNN(4, 8), nn.GLU(), nn.GLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Any:
        return self.act(self.glu(self.rnn(x)[0]))


def test_a_layer_of_torch_that_ran_is_not_said_not_to_have_run() -> None:
    report = apical.convert_(Recurrent(), "ada", example_inputs=torch.randn(3, 2, 4))
    assert {row.name: row.inputs for row in report.kept} == {"rnn": "", "glu": "", "unused": "did not run"}


def test_a_forward_that_is_set_on_an_activation_is_what_counts() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
    model[1].forward = torch.tanh  # type: ignore[method-assign]
    model[3].forward = lambda x: x.cumsum(-1)  # type: ignore[method-assign]
    report = apical.convert_(model, "ada")
    assert [row.name for row in report.converted] == ["5"]
    assert ("1", "tanh") in [(row.name, row.kind) for row in report.kept]


class Child(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.affine = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Any:
        return x if x.isnan().any() else F.relu(self.affine(x))


class Direct(Network):
    def __init__(self) -> None:
        super().__init__()
        self.child = Child()

    def forward(self, x: Tensor) -> Any:
        return self.act(self.second(self.child.forward(x)))


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_forward_that_is_called_directly_is_listed_once(unit: str) -> None:
    report = apical.convert_(Direct(), unit, example_inputs=torch.randn(3, 4))
    assert [(row.name, row.converted) for row in report.rows] == [("act", True), ("child.relu", True)]
    assert "inactive" in report.rows[1].inputs


class SmallELU(Network):
    def forward(self, x: Tensor) -> Any:
        h = self.first(x)
        return self.act(self.second(torch.where(h > 0, h, 0.5 * (torch.exp(h) - 1))))


@pytest.mark.parametrize("shown", [False, True])
def test_an_elu_of_another_alpha_is_converted(shown: bool) -> None:
    model, x = SmallELU(), torch.randn(3, 4)
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    assert not report.kept
    ada = apical.ADA()
    assert torch.allclose(model(x), ada(model.second(ada(model.first(x)))), atol=1e-6)


LOG: list[Any] = []
TABLE: dict[str, Any] = {}


def note(value: Any) -> None:
    TABLE["last"] = value


class Logging(Network):
    def forward(self, x: Tensor) -> Any:
        h = F.relu(self.first(x))
        LOG.append(h)
        note(h)
        return self.act(self.second(h))


@pytest.mark.parametrize("shown", [False, True])
def test_nothing_of_a_conversion_stays_in_global_lists(shown: bool) -> None:
    LOG[:], x = ["before"], torch.randn(3, 4)
    TABLE.clear()
    model = Logging()
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    assert LOG == ["before"]
    assert not TABLE
    assert len(report.converted) == 2
    model(x)
    assert torch.equal(LOG[1], apical.ADA()(model.first(x)))


ACTS = {"relu": F.relu, "tanh": torch.tanh}


class Picks(Network):
    """An attribute picks the function in a forward that keeps its code, since it may take a mask."""

    name = "relu"

    def __init__(self) -> None:
        super().__init__()
        self.name = "relu"

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        h = ACTS[self.name](self.first(x))
        return self.act(self.second(h if mask is None else h * mask))


class PicksByName(Picks):
    def forward(self, x: Tensor, mask: Tensor | None = None) -> Any:
        act = ACTS[self.name]
        h = act(self.first(x))
        return self.act(self.second(h if mask is None else h * mask))


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("kind", [Picks, PicksByName])
def test_what_an_attribute_picks_in_kept_code_is_converted_for_its_value_alone(kind: type[Picks], shown: bool) -> None:
    model, x, ada = kind(), torch.randn(3, 4), apical.ADA()
    report = apical.convert_(model, "ada", example_inputs=x if shown else None)
    assert len(report.converted) == 2
    assert torch.equal(model(x), ada(model.second(ada(model.first(x)))))
    model.name = "tanh"
    assert torch.equal(model(x), ada(model.second(torch.tanh(model.first(x)))))


class Made(Network):
    def forward(self, x: Tensor) -> Any:
        normal = torch.distributions.Normal(0.0, 1.0)  # type: ignore[no-untyped-call]
        h = self.first(x)
        if h.isnan().any():
            return h
        return self.act(self.second(h * normal.cdf(h)))  # type: ignore[no-untyped-call]


def test_a_method_of_an_object_that_a_forward_makes_is_listed() -> None:
    report = apical.convert_(Made(), "ada")
    assert [row.reason.partition(" (")[0] for row in report.kept] == ["what it calls is not known before it runs"]
    assert "example_inputs show what else runs there" in str(report)
    (row,) = apical.convert_(Made(), "ada", example_inputs=torch.randn(3, 4)).kept
    assert row.kind == "gelu"


def test_a_network_of_unknown_operators_alone_says_what_it_has() -> None:
    class Steps(Network):
        def forward(self, x: Tensor) -> Any:
            return self.second((self.first(x) > 0).float())

    model = Steps()
    del model.act
    with pytest.raises(ConversionError, match=r"gt: operator gt.Scalar is not linear"):
        apical.convert_(model, "ada", example_inputs=torch.randn(3, 4))


class WritesOut(nn.Module):
    """A forward that writes an activation into another tensor, beside one that can be replaced."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.act = nn.Linear(4, 8), nn.Linear(8, 3), nn.ReLU()
        self.register_buffer("room", torch.zeros(5, 8))


class ClampsIntoABuffer(WritesOut):
    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            torch.clamp(self.a(x), min=0, out=self.room)
            return self.b(self.act(self.room))


class ClampsIntoNewMemory(WritesOut):
    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).detach()
        room = torch.zeros_like(h)
        torch.clamp_min(h, 0.0, out=room)
        return self.b(self.act(room))


class ClampsAPartOfItself(WritesOut):
    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).detach()
        torch.clamp(h[:, :4], min=0, out=h[:, :4])
        return self.b(self.act(h))


class TakesTheLarger(WritesOut):
    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).detach()
        torch.maximum(h, torch.zeros(()), out=h)
        return self.b(self.act(h))


class Masks(WritesOut):
    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x).detach()
        torch.mul(h, h > 0, out=h)
        return self.b(self.act(h))


@pytest.mark.parametrize("with_inputs", [False, True])
@pytest.mark.parametrize("kind", [ClampsIntoABuffer, ClampsIntoNewMemory, ClampsAPartOfItself, TakesTheLarger, Masks])
def test_a_call_that_writes_into_out_stays_and_is_listed(kind: type[nn.Module], with_inputs: bool) -> None:
    model, x = kind(), torch.randn(5, 4)
    expected = model(x)
    report = apical.convert_(model, "relu", example_inputs=x if with_inputs else None)
    assert torch.equal(report.model(x), expected)
    assert [row.name for row in report.converted] == ["act"]
    assert report.kept, "what writes into out is listed"


@pytest.mark.parametrize("norm", [nn.utils.weight_norm, nn.utils.spectral_norm])
def test_layers_whose_weight_a_hook_computes_get_an_apical_branch_that_learns(norm: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch recommends the newer kind
        model = nn.Sequential(norm(nn.Linear(4, 8)), nn.ReLU(), nn.Linear(8, 2)).eval()
    x = torch.randn(5, 4)
    expected = model(x).detach()
    report = apical.convert_(model, "pynada", keep_function=True)
    torch.testing.assert_close(report.model(x), expected, rtol=1e-6, atol=1e-6)
    assert len(report.converted) == 1
    report.model(x).sum().backward()
    assert all(p.grad is not None for name, p in report.model.named_parameters() if "apical" in name)
    assert any("apical" in name and name.endswith("weight") for name, _ in report.model.named_parameters())


class Differentiates(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.act, self.b = nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(self.b(self.act(self.a(x))).sum(), x)
        return slope


def test_a_forward_that_differentiates_is_converted_with_inputs() -> None:
    model, x = Differentiates(), torch.randn(5, 4)
    report = apical.convert_(model, "ada", example_inputs=x)
    assert [row.name for row in report.converted] == ["act"]
    assert not torch.equal(report.model(x), Differentiates()(x))


class Config:
    scale = 1.0


CONFIG = Config()


class ReadsSettings(nn.Module):
    """A functional ReLU, which a graph holds, behind numbers that other objects hold."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.drop = nn.Linear(4, 8), nn.Linear(8, 2), nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        h = F.dropout(F.relu(self.a(x)), self.drop.p, self.training)
        return self.b(CONFIG.scale * h)


@pytest.mark.parametrize("owner", ["drop", "config"])
def test_numbers_of_a_dropout_and_of_a_configuration_are_checked_by_a_graph(
    owner: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, x = ReadsSettings().eval(), torch.randn(3, 4)
    expected = model(x)
    report = apical.convert_(model, "pynada", keep_function=True)
    assert torch.allclose(report.model(x), expected)
    if owner == "drop":
        model.drop.p = 0.1
    else:
        monkeypatch.setattr(CONFIG, "scale", 2.0)
    with pytest.raises(ValueError, match=r"drop\.p=0\.1" if owner == "drop" else r"CONFIG\.scale=2\.0"):
        report.model(x)


width = 3.0


class NamesItself(nn.Module):
    """A method that reads the name of its class, and a local name that the file has too."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 8), nn.Linear(8, 2)

    def title(self) -> str:
        return self.__class__.__name__

    def forward(self, x: Tensor) -> Tensor:
        width = 2.0
        return self.b(F.relu(self.a(x)) * width)


def test_a_graph_checks_neither_the_name_of_a_class_nor_local_names(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = NamesItself(), torch.randn(3, 4)
    expected = model(x)
    report = apical.convert_(model, "pynada", keep_function=True)
    monkeypatch.setattr(f"{__name__}.width", 1.0)
    report.model.__class__ = type("Wrapped", (type(report.model),), {})  # as FSDP does
    assert torch.allclose(report.model(x), expected)
