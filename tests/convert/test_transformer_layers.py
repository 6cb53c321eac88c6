"""Subclasses of torch's transformer layers: what they write anew is converted too, or listed."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import apical
from apical.errors import ConversionError


class WrittenOut(nn.TransformerEncoderLayer):
    """The feed-forward part with another activation than `self.activation`."""

    def forward(self, src: Tensor, *_: Any, **__: Any) -> Tensor:
        src = self.norm1(src + self.dropout1(self.self_attn(src, src, src)[0]))
        return self.norm2(src + self.dropout2(self.linear2(self.dropout(F.gelu(self.linear1(src))))))


class Gated(nn.TransformerEncoderLayer):
    """`self.activation` twice."""

    def __init__(self, width: int, heads: int, hidden: int, **how: Any) -> None:
        super().__init__(width, heads, hidden, **how)
        self.gate = nn.Linear(width, hidden)

    def forward(
        self, src: Tensor, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False
    ) -> Any:
        x = self.norm1(src + self._sa_block(src, src_mask, src_key_padding_mask))
        return self.norm2(x + self.linear2(self.activation(self.linear1(x)) * self.activation(self.gate(x))))


class OwnFeedForward(Gated):
    """torch's forward, with a feed-forward part of its own."""

    forward = nn.TransformerEncoderLayer.forward

    def _ff_block(self, x: Tensor) -> Tensor:
        return self.dropout2(self.linear2(F.silu(self.linear1(x)) * self.gate(x)))


class Around(nn.TransformerEncoderLayer):
    """An activation behind torch's forward."""

    def forward(self, src: Tensor, *rest: Any, **how: Any) -> Tensor:
        return F.elu(super().forward(src, *rest, **how))


class Decoder(nn.TransformerDecoderLayer):
    """A decoder whose feed-forward part is written out."""

    def forward(self, tgt: Tensor, memory: Tensor) -> Tensor:  # type: ignore[override]
        x = self.norm2(tgt + self.multihead_attn(tgt, memory, memory)[0])
        return self.norm3(x + self.linear2(F.silu(self.linear1(x))))


class Running(TorchFunctionMode):
    """The activations of torch that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(function, "__name__", "") in ("relu", "gelu", "silu", "elu"):
            self.names.add(function.__name__)
        return function(*args, **(kwargs or {}))


def made(kind: Any) -> tuple[nn.Module, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    layer = kind(8, 2, 16, dropout=0.0, batch_first=True).eval()
    return layer, (torch.randn(2, 5, 8),) * (2 if kind is Decoder else 1)


@pytest.mark.parametrize("kind", [WrittenOut, Gated, OwnFeedForward, Around, Decoder])
@pytest.mark.parametrize("shown", [True, False])
def test_no_activation_of_torch_runs_after_a_whole_conversion(kind: Any, shown: bool) -> None:
    layer, inputs = made(kind)
    report = apical.convert_(layer, "ada", example_inputs=inputs if shown else None)
    assert not [row for row in report.kept if row.asked]
    with Running() as running:
        layer(*inputs)
    assert not running.names


@pytest.mark.parametrize("kind", [WrittenOut, Gated, OwnFeedForward, Around, Decoder])
@pytest.mark.parametrize("unit", ["ada", "pynada"])
@pytest.mark.parametrize("shown", [True, False])
def test_what_runs_unchanged_is_listed(kind: Any, unit: str, shown: bool) -> None:
    layer, inputs = made(kind)
    before = layer(*inputs)
    if kind is OwnFeedForward and unit == "pynada" and not shown:
        with pytest.raises(ConversionError, match="example_inputs would show what feeds it"):
            apical.convert_(layer, unit)
        assert torch.equal(layer(*inputs), before)
        return
    report = apical.convert_(layer, unit, example_inputs=inputs if shown else None)
    with Running() as running:
        layer(*inputs)
    left = {row.kind for row in report.kept} | ({"relu"} if unit == "pynada" else set())
    assert running.names <= left
    assert not torch.equal(layer(*inputs), before)
    report.undo()
    assert torch.equal(layer(*inputs), before)


def test_an_activation_that_is_called_twice_keeps_the_function_with_a_branch_for_each_call() -> None:
    layer, inputs = made(Gated)
    before = layer(*inputs)
    report = apical.convert_(layer, "pynada", keep_function=True)
    assert [row.name for row in report.converted] == ["activation", "activation (call 2)"]
    assert torch.allclose(layer(*inputs), before, rtol=1e-6, atol=1e-6)


def test_torchs_fused_code_is_left_where_a_subclass_was_changed() -> None:
    layer, inputs = made(Around)
    apical.convert_(layer, "ada")
    expected = layer(*inputs)
    with torch.no_grad():
        assert torch.allclose(layer(*inputs), expected, atol=1e-6)
