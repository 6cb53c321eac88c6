"""Activation modules: what a drop-in for nn.ReLU must do."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize

import apical
from apical import ADA, RBF, Dendrite, LeakyADA, PyramidalLinear, Swish, no_weight_decay
from apical.errors import ApicalError, InvalidArgumentError

MODULES = [
    ADA(),
    ADA(alpha=0.3, c=1.0),
    ADA(alpha=0.5, learnable=True),
    ADA(learnable=True, num_parameters=4, dim=-1),
    LeakyADA(),
    LeakyADA(leak=0.1, alpha=2.0, learnable=True),
    RBF(s=2.0),
    RBF(s=0.5, learnable=True),
    RBF(learnable=True, num_parameters=4, dim=-1),
    Swish(),
    Swish(beta=0.5, learnable=False),
    Dendrite(),
]
NAMES = [repr(module) for module in MODULES]


@pytest.fixture(params=MODULES, ids=NAMES)
def module(request: pytest.FixtureRequest) -> nn.Module:
    return copy.deepcopy(request.param)


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def test_repr_is_the_constructor_call(module: nn.Module) -> None:
    again = eval(repr(module), vars(apical))
    assert repr(again) == repr(module)
    torch.testing.assert_close(again(X), module(X))


def test_copies_are_equal_and_independent(module: nn.Module) -> None:
    for twin in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(twin(X), module(X))
        for mine, theirs in zip(module.parameters(), twin.parameters(), strict=True):
            assert mine is not theirs


def test_state_dict_round_trip(module: nn.Module) -> None:
    fresh = eval(repr(module), vars(apical))
    for parameter in module.parameters():
        nn.init.uniform_(parameter, 0.5, 2.0)
    file = io.BytesIO()
    torch.save(module.state_dict(), file)
    file.seek(0)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(fresh(X), module(X))


def test_parameters_are_never_zero_dimensional(module: nn.Module) -> None:
    assert all(parameter.dim() == 1 for parameter in module.parameters())


def test_meta_device_and_materialising(module: nn.Module) -> None:
    with torch.device("meta"):
        shadow = eval(repr(module), vars(apical))
    assert shadow(X.to("meta")).shape == X.shape
    real = shadow.to_empty(device="cpu")
    real.load_state_dict(module.state_dict())
    assert torch.equal(real(X), module(X))


def test_inplace_is_accepted_and_ignored() -> None:
    x = X.clone()
    for kind in (ADA, LeakyADA, RBF, Swish, Dendrite):
        kind(inplace=True)(x)
    assert torch.equal(x, X)


@pytest.mark.parametrize("kind", [ADA, LeakyADA, RBF, Swish, Dendrite])
def test_inplace_may_come_first_as_in_torch_and_nothing_else_may(kind) -> None:
    torch.testing.assert_close(kind(True)(X.clone()), kind()(X))
    assert repr(kind(True)) == repr(kind(inplace=True)) == repr(kind())
    with pytest.raises(TypeError, match="the only positional argument is inplace"):
        kind(1.0)
    with pytest.raises(TypeError):
        kind(True, 1.0)


@pytest.mark.parametrize("kind", [ADA, LeakyADA])
def test_without_a_floor_a_learned_alpha_may_be_negative(kind: type[ADA]) -> None:
    module = kind(alpha=0.01, learnable=True, floor="off")
    with torch.no_grad():
        module.alpha.fill_(-0.5)
    x = X.clamp(-3.0, 3.0)
    expected = torch.where(x > 0, x * torch.exp(0.5 * x), module.leak * x)
    torch.testing.assert_close(module(x), expected)
    layer = PyramidalLinear(4, 3, basal="relu", apical=module)
    z = layer._affine(x[:, :4])
    torch.testing.assert_close(layer(x[:, :4]), z[..., :3].relu() + module(z[..., 3:]))
    assert module.effective_alpha.item() == -0.5
    with pytest.raises(InvalidArgumentError, match="floor is 'none', but must be one of on, off"):
        kind(floor="none")


def test_learned_alpha_is_held_at_the_floor_and_comes_back() -> None:
    module = ADA(alpha=0.01, learnable=True)
    with torch.no_grad():
        module.alpha.fill_(-3.0)
    assert module.effective_alpha.item() == pytest.approx(1e-4)
    torch.testing.assert_close(module(X), apical.functional.ada(X, 1e-4))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.5)
    for _ in range(20):
        optimiser.zero_grad()
        module(torch.full((8, 4), 2.0)).sum().backward()  # less output wants a larger alpha
        optimiser.step()
    assert module.alpha.item() > 1e-4


@pytest.mark.parametrize("backend", ["native", "composite"])
def test_floor_passes_the_gradient_straight_through(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APICAL_BACKEND", backend)
    module = ADA(learnable=True)
    gradients = []
    for value in (-5.0, 1e-4):
        with torch.no_grad():
            module.alpha.fill_(value)
        gradients.append(torch.autograd.grad(module(X).sum(), module.alpha)[0])
    torch.testing.assert_close(*gradients)


def test_a_diverged_alpha_shows() -> None:
    module = ADA(learnable=True)
    with torch.no_grad():
        module.alpha.fill_(float("nan"))
    assert module(torch.ones(2, 3)).isnan().all()


def test_per_channel_alpha_after_convolution_and_linear() -> None:
    values = torch.tensor([0.5, 1.0, 2.0])
    for dim, shape in ((1, (2, 3, 5, 5)), (-1, (2, 7, 3))):
        module = ADA(learnable=True, num_parameters=3, dim=dim)
        with torch.no_grad():
            module.alpha.copy_(values)
        x = torch.randn(shape)
        for channel, alpha in enumerate(values.tolist()):
            torch.testing.assert_close(
                module(x).select(dim, channel), apical.functional.ada(x.select(dim, channel), alpha)
            )


def test_parametrization() -> None:
    class Positive(nn.Module):
        def forward(self, raw: torch.Tensor) -> torch.Tensor:
            return nn.functional.softplus(raw)

    module = ADA(alpha=0.7, learnable=True)
    parametrize.register_parametrization(module, "alpha", Positive())
    expected = apical.functional.ada(X, nn.functional.softplus(torch.tensor(0.7)))
    torch.testing.assert_close(module(X), expected)
    module(X).sum().backward()
    groups = no_weight_decay(nn.Sequential(nn.Linear(4, 4), module))
    assert [p.shape for p in groups[1]["params"]] == [(1,)]


def test_no_weight_decay_splits_every_parameter_once() -> None:
    shared = ADA(learnable=True)
    model = nn.Sequential(nn.Linear(4, 4), shared, nn.Linear(4, 4), shared, Swish(), RBF())
    decayed, spared = no_weight_decay(model)
    assert {id(p) for p in spared["params"]} == {id(shared.alpha), id(model[4].beta)}
    assert spared["weight_decay"] == 0.0
    assert len(decayed["params"]) == 4
    optimiser = torch.optim.AdamW([decayed, spared], lr=1e-3, weight_decay=0.5)
    assert [group["weight_decay"] for group in optimiser.param_groups] == [0.5, 0.0]


def test_shared_module_shares_its_alpha() -> None:
    shared = ADA(alpha=0.5, learnable=True)
    model = nn.Sequential(nn.Linear(4, 4), shared, nn.Linear(4, 4), shared)
    assert sum(p.numel() for p in model.parameters()) == 41
    twin = copy.deepcopy(model)
    assert twin[1] is twin[3]


WRONG = {
    "alpha": (lambda: ADA(alpha=0.0), "alpha is 0.0"),
    "c": (lambda: ADA(c=float("nan")), "c is nan"),
    "leak": (lambda: LeakyADA(leak=2.0), "leak is 2.0"),
    "s": (lambda: RBF(s=-1.0), "s is -1.0"),
    "no parameters": (lambda: ADA(learnable=True, num_parameters=0), "num_parameters is 0, but must be 1"),
    "several fixed": (lambda: ADA(num_parameters=3), "num_parameters is 3, but a fixed alpha is one number: add"),
    "channels": (
        lambda: ADA(learnable=True, num_parameters=3)(torch.ones(2, 4)),
        r"alpha has shape \(3,\), but dimension 1 of the input has size 4",
    ),
    "integers": (lambda: ADA()(torch.arange(3)), "got torch.int64"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_arguments_get_one_sentence(case: str) -> None:
    call, sentence = WRONG[case]
    with pytest.raises(ApicalError, match=sentence):
        call()


def test_one_ada_neuron_computes_xor() -> None:
    """Lemma 1 of the paper, with its weights."""
    inputs = torch.tensor([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])
    neuron = nn.Sequential(nn.Linear(2, 1), ADA(alpha=1.0, c=1.0))
    with torch.no_grad():
        neuron[0].weight.fill_(5.0)
        neuron[0].bias.fill_(-4.0)
    assert neuron(inputs).round().flatten().tolist() == [0, 1, 1, 0]
