"""What is neither linear nor an activation that is known has a row: nothing stays unconverted and unlisted."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import apical
from apical.convert import ConversionReport


def step(h: Tensor) -> Tensor:
    return (h > 0).float()


def einsum(h: Tensor) -> Tensor:
    return torch.einsum("ij,ij->ij", h, (h > 0).to(h.dtype))


def masked_scatter(h: Tensor) -> Tensor:
    return torch.zeros_like(h).masked_scatter(h > 0, h[h > 0])


def lerp(h: Tensor) -> Tensor:
    return torch.lerp(torch.zeros_like(h), h, (h > 0).float())


def index_put(h: Tensor) -> Tensor:
    h = h.clone()
    h.index_put_((h < 0,), torch.tensor(0.0))
    return h


def places(h: Tensor) -> Tensor:
    h = h.clone()
    h[(h < 0).nonzero(as_tuple=True)] = 0
    return h


def table(h: Tensor) -> Tensor:
    return torch.tensor([0.0, 1.0])[(h > 0).long()]


def cdf(h: Tensor) -> Tensor:
    return h * torch.distributions.Normal(0, 1).cdf(h)  # type: ignore[no-untyped-call]


def ndtr(h: Tensor) -> Tensor:
    return h * torch.special.ndtr(h)


def glu(h: Tensor) -> Tensor:
    return F.glu(h).repeat(1, 2)


def relu_cell(h: Tensor) -> Tensor:
    return torch.rnn_relu_cell(h, torch.zeros_like(h), torch.eye(4), torch.eye(4))


def tanh_cell(h: Tensor) -> Tensor:
    return torch.rnn_tanh_cell(h, torch.zeros_like(h), torch.eye(4), torch.eye(4))


def pooled(h: Tensor) -> Tensor:
    return h.abs().mean(-1, keepdim=True).expand(-1, 4).contiguous()


def statistic(h: Tensor) -> Tensor:
    h = h.mean(0, keepdim=True).expand(3, 4)
    return torch.atan(h)


def largest(h: Tensor) -> Tensor:
    return torch.maximum(h, h.flip(-1))


def larger(h: Tensor) -> Tensor:
    return torch.cat([h.unsqueeze(-1), torch.zeros(3, 4, 1)], -1).amax(-1)


def loss(h: Tensor) -> Tensor:
    return F.smooth_l1_loss(h, torch.zeros(3, 4), reduction="none")


def softplus(h: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(h, torch.zeros(3, 4), reduction="none")


WRITTEN = [
    step, einsum, masked_scatter, lerp, index_put, places, table, cdf, ndtr, glu, relu_cell, tanh_cell, statistic,
    largest, larger,
]  # fmt: skip


class Middle(nn.Module):
    """A function between two layers, in a forward that is traced, or keeps its code."""

    function: Any

    def __init__(self, *, blind: bool) -> None:
        super().__init__()
        self.first, self.second, self.act, self.blind = nn.Linear(4, 4), nn.Linear(4, 2), nn.ReLU(), blind

    def forward(self, x: Tensor) -> Tensor:
        if self.blind and x.isnan().any():
            return x
        return self.act(self.second(self.function(self.first(x))))  # type: ignore[no-any-return]


def convert(function: Any, *, blind: bool, shown: bool) -> ConversionReport:
    model = type("Own", (Middle,), {"function": staticmethod(function)})(blind=blind)
    return apical.convert_(model, "ada", example_inputs=torch.randn(3, 4) if shown else None)


@pytest.mark.parametrize("shown", [False, True], ids=["code", "inputs"])
@pytest.mark.parametrize("blind", [False, True], ids=["traced", "blind"])
@pytest.mark.parametrize("function", WRITTEN, ids=lambda function: function.__name__)
def test_what_is_not_linear_has_one_row(function: Any, blind: bool, shown: bool) -> None:
    report = convert(function, blind=blind, shown=shown)
    others = [row for row in report.rows if row.name != "act"]
    assert len(others) == 1, [(row.name, row.reason) for row in others]
    assert [row.name for row in report.converted if row not in others] == ["act"]


@pytest.mark.parametrize("blind", [False, True])
@pytest.mark.parametrize(
    ("function", "kind"),
    [(pooled, "abs"), (loss, "smooth_l1_loss"), (softplus, "binary_cross_entropy_with_logits")],
)
def test_a_mean_or_a_loss_that_the_next_layer_reads_is_none(function: Any, kind: str, blind: bool) -> None:
    assert [row.kind for row in convert(function, blind=blind, shown=True).kept] == [kind]


def root_mean_square(h: Tensor) -> Tensor:
    return h * torch.rsqrt(h.pow(2).mean(-1, keepdim=True) + 1e-6)


def standardised(h: Tensor) -> Tensor:
    centred = h - h.mean(-1, keepdim=True)
    return centred / ((centred * centred).mean(-1, keepdim=True) + 1e-5).sqrt()


def unit_length(h: Tensor) -> Tensor:
    return F.normalize(h, dim=-1) + h / h.norm(dim=-1, keepdim=True).clamp_min(1e-6)


def softmax(h: Tensor) -> Tensor:
    e = torch.exp(h - h.amax(-1, keepdim=True))
    return e / e.sum(-1, keepdim=True)


def log_softmax(h: Tensor) -> Tensor:
    return h - h.exp().sum(-1, keepdim=True).log()


def global_response(h: Tensor) -> Tensor:
    size = h.norm(p=2, dim=0, keepdim=True)
    return h * (size / (size.mean(dim=-1, keepdim=True) + 1e-6)) + h


def attention(h: Tensor) -> Tensor:
    weights = torch.softmax((h @ h.t()).clamp(min=-1e4) / 2, -1)
    return weights @ h + F.scaled_dot_product_attention(h, h, h)


def gated(h: Tensor) -> Tensor:
    first, second = h.chunk(2, -1)
    return torch.cat([first * second, first], -1)


def winner(h: Tensor) -> Tensor:
    return h.gather(1, h.topk(4, dim=-1).indices) * F.one_hot(h.argmax(-1), 4)


def positions(h: Tensor) -> Tensor:
    angle = torch.arange(4.0) / 10.0 + torch.zeros_like(h)
    return h * angle.cos() + h.flip(-1) * angle.sin()


def guarded(h: Tensor) -> Tensor:
    if not bool(torch.isfinite(h).all()) or h.abs().max() > 1e9:
        raise ValueError
    return h


def pooling(h: Tensor) -> Tensor:
    h = F.max_pool1d(F.pad(h.unsqueeze(0), (1, 1)), 3, 1).squeeze(0) + F.interpolate(h[None], 4)[0]
    return torch.nan_to_num(h).contiguous().double().float()


HARMLESS = [
    root_mean_square, standardised, unit_length, softmax, log_softmax, global_response, attention, gated, winner,
    positions, guarded, pooling,
]  # fmt: skip


@pytest.mark.parametrize("shown", [False, True], ids=["code", "inputs"])
@pytest.mark.parametrize("blind", [False, True], ids=["traced", "blind"])
@pytest.mark.parametrize("function", HARMLESS, ids=lambda function: function.__name__)
def test_norms_softmaxes_and_pools_have_no_row(function: Any, blind: bool, shown: bool) -> None:
    report = convert(function, blind=blind, shown=shown)
    assert [(row.name, row.reason) for row in report.rows] == [("act", "")]


class Tokens(nn.Module):
    """Masks of token ids, a rotary encoding and a penalty."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.first, self.last = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.register_buffer("frequencies", torch.tensor([1.0, 0.1]))

    def forward(self, tokens: Tensor) -> Any:
        mask = (tokens != 0).unsqueeze(-1)
        h = self.first(self.embedding(tokens)).masked_fill(~mask, 0.0) * mask
        angle = tokens.float().unsqueeze(-1) @ self.frequencies.view(1, 2)  # type: ignore[operator]
        h = h * torch.cat([angle.cos(), angle.sin()], -1)
        h = F.relu(h).sum(1) / mask.sum(1).clamp(min=1)
        h = self.last(h)
        loss = F.binary_cross_entropy_with_logits(h, torch.ones_like(h)) + F.cross_entropy(h, h.argmax(-1))
        loss = (
            loss
            + F.kl_div(h.log_softmax(-1), h.softmax(-1), reduction="batchmean")
            + F.multilabel_soft_margin_loss(h, torch.ones_like(h))
        )
        return h, loss + (h**2).mean() + h.abs().sum(-1).mean(), F.mse_loss(h, 2 * h, reduction="none")


@pytest.mark.parametrize("shown", [False, True])
def test_masks_of_token_ids_positions_and_penalties_have_no_row(shown: bool) -> None:
    tokens = torch.randint(0, 9, (2, 5))
    report = apical.convert_(Tokens(), "ada", example_inputs=tokens if shown else None)
    assert [(row.kind, row.reason) for row in report.rows] == [("relu", "")]


def test_the_row_names_the_operator_and_its_line() -> None:
    report = convert(step, blind=False, shown=True)
    (row,) = report.kept
    assert (row.kind, row.asked) == ("gt", False)
    assert row.reason.startswith("operator gt.Scalar is not linear (line ")
    assert "operators that are not linear: 1 gt (report.kept says where)" in str(report)


def test_norms_and_pools_of_torch_are_harmless_whatever_they_consist_of() -> None:
    parts = [nn.LocalResponseNorm(2), nn.LPPool1d(2, 1), nn.GroupNorm(2, 4), nn.CosineSimilarity(), nn.Softmin(-1)]

    class Parts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.parts, self.first, self.act = nn.ModuleList(parts), nn.Conv1d(3, 4, 1), nn.ReLU()

        def forward(self, x: Tensor) -> Tensor:
            norm, pool, group, cosine, softmin = self.parts
            h = group(pool(norm(self.first(x))))
            return self.act(softmin(h + cosine(h, h.flip(1)).unsqueeze(1)))  # type: ignore[no-any-return]

    report = apical.convert_(Parts(), "ada", example_inputs=torch.randn(2, 3, 5))
    assert [(row.name, row.reason) for row in report.rows] == [("act", "")]


class OnlyInTraining(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if self.training:
            h = torch.atan(h)
        return self.act(h)  # type: ignore[no-any-return]


def test_an_operator_that_did_not_run_on_the_inputs_is_listed_by_the_code() -> None:
    report = apical.convert_(OnlyInTraining(), "ada", example_inputs=torch.randn(3, 4))
    assert [row.kind for row in report.kept] == ["atan"]


class Decoder(nn.Module):
    """Sizes, a causal mask and a list, in a forward that is known by its source."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.first, self.last = nn.Embedding(9, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, tokens: Tensor, mask: Tensor | None = None) -> Any:
        if tokens.sum() < 0:
            return tokens
        positions, states = torch.arange(tokens.shape[1]), []
        causal = torch.full((tokens.shape[1],) * 2, float("-inf")).triu(1)
        if mask is not None:
            causal = causal + (1.0 - mask[:, None].to(causal.dtype)) * -1e9
        h = F.relu(self.first(self.embedding(tokens) + self.embedding(positions)))
        states.append(h)
        return self.last(torch.softmax(h @ h.mT + causal, -1) @ h), states


@pytest.mark.parametrize("shown", [False, True])
def test_sizes_masks_and_lists_in_source_have_no_row(shown: bool) -> None:
    tokens = torch.randint(0, 9, (2, 5))
    report = apical.convert_(Decoder(), "ada", example_inputs=(tokens, torch.ones(2, 5)) if shown else None)
    assert [(row.kind, row.reason) for row in report.rows] == [("relu", "")]
