"""Far-away inputs: AUROC is the share of pairs in the right order; scores are in the order of their definition."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apical.errors import InvalidArgumentError
from apical.robustness import auroc, largest_softmax, logit_norm
from apical.robustness.detection import noise, upscaled

scores = st.lists(st.integers(-3, 3), min_size=1, max_size=20)


@given(scores, scores)
def test_auroc_counts_pairs(own: list[int], far: list[int]) -> None:
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in own for b in far]
    assert auroc(torch.tensor(own), torch.tensor(far)) == pytest.approx(sum(pairs) / len(pairs))


def test_auroc_needs_both() -> None:
    with pytest.raises(InvalidArgumentError, match="there are 3 and 0 scores"):
        auroc(torch.rand(3), torch.rand(0))


def test_the_largest_softmax_orders_also_where_it_rounds_to_one() -> None:
    logits = torch.randn(200, 5) * 3
    by_score, by_share = largest_softmax(logits).argsort(), logits.double().softmax(1).amax(1).argsort()
    assert torch.equal(by_score, by_share)
    torch.testing.assert_close(1 - torch.exp(-largest_softmax(logits)), logits.double().softmax(1).amax(1))
    sure = torch.tensor([[40.0, 0.0], [60.0, 0.0]])
    assert (sure.softmax(1).amax(1) == 1).all()
    assert largest_softmax(sure)[0] < largest_softmax(sure)[1]
    assert logit_norm(torch.tensor([[3.0, 4.0]])).tolist() == [5.0]


def test_noise_and_sizes() -> None:
    values = noise((1, 28, 28), 50)
    assert values.shape == (50, 1, 28, 28)
    assert values.mean() == pytest.approx(0.5, abs=0.01)
    assert torch.equal(values, noise((1, 28, 28), 50))
    assert torch.equal(values[:10], noise((1, 28, 28), 10))
    assert not torch.equal(values, noise((1, 28, 28), 50, seed=1))
    assert upscaled(torch.rand(2, 1, 8, 8), 28, 28, 3).shape == (2, 3, 28, 28)
    with pytest.raises(InvalidArgumentError, match="images have 3 channels, but the network takes 1"):
        upscaled(torch.rand(2, 3, 8, 8), 28, 28, 1)
