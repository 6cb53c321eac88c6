"""What works in place: whoever reads the overwritten value, under any name or through a view, reads the new one.

Every network is converted to the activation that it has, so that its outputs must not change at all, and to ADA, for
which the outputs are computed by hand.
"""

import copy
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.convert.branch import InPlace
from apical.errors import ConversionError

Activation = Callable[[Tensor], Tensor]


class Way(nn.Module):
    """Two layers, and between them an activation in place; `blind` makes the forward one that cannot be traced."""

    kind = "relu"

    def __init__(self, *, blind: bool) -> None:
        super().__init__()
        self.first, self.second, self.blind = nn.Linear(4, 4), nn.Linear(4, 4), blind
        self.build()

    def build(self) -> None:
        pass

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.blind and bool(h.isnan().any()):
            return x
        return self.between(h)

    def between(self, h: Tensor) -> Tensor:
        raise NotImplementedError

    def expected(self, h: Tensor, act: Activation) -> Tensor:
        """What `between` computes with another activation."""
        return self.second(act(h)) + act(h)  # type: ignore[no-any-return]


class Statement(Way):
    def build(self) -> None:
        self.act = nn.ReLU(inplace=True)

    def between(self, h: Tensor) -> Tensor:
        self.act(h)
        return self.second(h) + h  # type: ignore[no-any-return]


class OtherName(Statement):
    def between(self, h: Tensor) -> Tensor:
        identity = h
        h = self.act(h)
        return self.second(h) + identity  # type: ignore[no-any-return]


class Function(Way):
    def between(self, h: Tensor) -> Tensor:
        torch.relu_(h)
        return self.second(h) + h  # type: ignore[no-any-return]


class Method(Way):
    def between(self, h: Tensor) -> Tensor:
        h.relu_()
        return self.second(h) + h  # type: ignore[no-any-return]


class Positional(Way):
    def between(self, h: Tensor) -> Tensor:
        F.relu(h, True)
        return self.second(h) + h  # type: ignore[no-any-return]


class Clamped(Way):
    def between(self, h: Tensor) -> Tensor:
        h.clamp_(min=0)
        return self.second(h) + h  # type: ignore[no-any-return]


class Partial(Way):
    def build(self) -> None:
        self.act = partial(F.relu, inplace=True)

    def between(self, h: Tensor) -> Tensor:
        self.act(h)
        return self.second(h) + h  # type: ignore[no-any-return]


class OwnModule(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x, inplace=True)


class Own(OtherName):
    def build(self) -> None:
        self.act = OwnModule()


def rectify(x: Tensor) -> Tensor:
    x.relu_()
    return x


class Helper(Way):
    def between(self, h: Tensor) -> Tensor:
        rectify(h)
        return self.second(h) + h  # type: ignore[no-any-return]


class Part(Way):
    def between(self, h: Tensor) -> Tensor:
        h[:, 2:].relu_()
        return self.second(h)  # type: ignore[no-any-return]

    def expected(self, h: Tensor, act: Activation) -> Tensor:
        return self.second(torch.cat([h[:, :2], act(h[:, 2:])], 1))  # type: ignore[no-any-return]


class ThroughAView(Statement):
    def between(self, h: Tensor) -> Tensor:
        self.act(h.view(-1))
        return self.second(h) + h  # type: ignore[no-any-return]


class Silu(Way):
    kind = "silu"

    def between(self, h: Tensor) -> Tensor:
        identity = h
        h.mul_(torch.sigmoid(h))
        return self.second(h) + identity  # type: ignore[no-any-return]


class Augmented(Way):
    """Not torch.fx's `h = h + 1`, which would leave the other name alone."""

    def between(self, h: Tensor) -> Tensor:
        identity = h
        h += 1
        F.relu_(h)
        return self.second(h) + identity  # type: ignore[no-any-return]

    def expected(self, h: Tensor, act: Activation) -> Tensor:
        return super().expected(h + 1, act)


class PreActivation(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act, self.affine = nn.ReLU(inplace=True), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.affine(self.act(x))  # type: ignore[no-any-return]


class ByACaller(Way):
    """A module overwrites its argument, and the caller reads that."""

    def build(self) -> None:
        self.block = PreActivation()

    def between(self, h: Tensor) -> Tensor:
        return self.second(self.block(h) + h)  # type: ignore[no-any-return]

    def expected(self, h: Tensor, act: Activation) -> Tensor:
        return self.second(self.block.affine(act(h)) + act(h))  # type: ignore[no-any-return]


class ThroughIdentity(OtherName):
    def build(self) -> None:
        self.act, self.same = nn.ReLU(inplace=True), nn.Dropout(0.5)

    def between(self, h: Tensor) -> Tensor:
        identity = self.same(h)
        h = self.act(h)
        return self.second(h) + identity  # type: ignore[no-any-return]


WAYS: list[type[Way]] = [
    Statement, OtherName, Function, Method, Positional, Clamped, Partial, Own, Helper, Part, ThroughAView, Silu,
    Augmented, ByACaller, ThroughIdentity,
]  # fmt: skip


@pytest.mark.parametrize("shown", [False, True])
@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_new_activation_writes_where_the_old_one_did(way: type[Way], blind: bool, shown: bool) -> None:
    model, x = way(blind=blind).eval(), torch.randn(5, 4)
    before = model(x)
    inputs = x if shown else None
    report = apical.convert_(model, way.kind, example_inputs=inputs)
    assert torch.allclose(model(x), before, atol=1e-6)
    report.undo()
    report = apical.convert_(model, "ada", example_inputs=inputs)
    assert [row.kind for row in report.converted] == [way.kind]
    assert not report.kept
    after = model(x)
    assert torch.allclose(after, model.expected(model.first(x), apical.ADA()), atol=1e-6)
    after.sum().backward()
    assert model.first.weight.grad is not None
    assert torch.equal(copy.deepcopy(model)(x), after)
    report.undo()
    assert torch.equal(model(x), before)


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_an_apical_branch_beside_it_is_written_too(way: type[Way], blind: bool) -> None:
    model, x = way(blind=blind).eval(), torch.randn(5, 4)
    before, unit = model(x), f"pyramidal(basal={way.kind},apical=ada)"
    if blind and way in (Part, ThroughAView):
        with pytest.raises(ConversionError, match="rearranged where no graph shows it"):
            apical.convert_(model, unit, example_inputs=x)
        return
    apical.convert_(model, unit, example_inputs=x, keep_function=True)
    after = model(x)
    assert torch.allclose(after, before, atol=1e-6)
    after.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_nothing_is_written_where_nobody_reads_it() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(), nn.ReLU(True))
    apical.convert_(model, "ada")
    assert not any(isinstance(module, InPlace) for module in model.modules())


class InOneMode(Way):
    def between(self, h: Tensor) -> Tensor:
        y = F.relu(h, inplace=not self.training)
        return F.gelu(self.second(y)) + h


def test_what_is_in_place_in_one_mode_alone_stays() -> None:
    report = apical.convert_(InOneMode(blind=False), "ada")
    assert [row.kind for row in report.converted] == ["gelu"]
    assert [row.reason.partition(":")[0] for row in report.kept] == ["it is in place in one mode alone"]


class Remembers(nn.Module):
    """Does more than compute: a graph would lose that."""

    def __init__(self) -> None:
        super().__init__()
        self.affine, self.seen, self.table = nn.Linear(4, 4), 0, dict[str, Tensor]()
        self.values: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        h = self.affine(x)
        self.seen += 1
        self.values.append(h)
        self.table["h"] = h
        return F.relu(h)


@pytest.mark.parametrize("unit", ["ada", "pynada"])
def test_a_forward_that_stores_values_still_does(unit: str) -> None:
    model, x = Remembers(), torch.randn(3, 4)
    apical.convert_(model, unit, example_inputs=x)
    assert (model.seen, model.values, model.table) == (0, [], {})
    model(x)
    assert model.seen == len(model.values) == 1
    assert torch.equal(model.table["h"], model.affine(x))


def doubled(module: nn.Module, args: Any, result: Tensor) -> Tensor:
    return 2 * result


@pytest.mark.parametrize("unit", ["relu", "pynada"])
def test_hooks_of_an_activation_stay(unit: str) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)), torch.randn(3, 4)
    handle = model[1].register_forward_hook(doubled)
    before = model(x)
    report = apical.convert_(model, unit, keep_function=True)
    assert torch.allclose(model(x), before, atol=1e-6)
    handle.remove()
    report.undo()
    assert torch.allclose(model(x), model[2](model[0](x).relu()))
