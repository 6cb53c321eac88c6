"""Trial k of every row sees the same data in the same order, and starts from the same weights where shapes agree."""

from dataclasses import replace

import pytest
import torch

from apical import data
from apical.nn import PyramidalLinear
from apical.train import TrialSpec
from apical.train.devices import SingleDevice
from apical.train.session import Feed, Session, build, dims_for
from apical.train.spec import Execution

SPEC = TrialSpec(data="digits", model="mlp-2", unit="relu", dims={"hidden": (9, 7)}, seed=3)


def built(**changes):
    spec = replace(SPEC, **changes)
    return build(spec, dims_for(spec, data.load("digits")))


def affine_weights(network):
    """Weights by place: the basal branch of pyramidal layers, the weight of the others."""
    layers = [m for m in network.modules() if isinstance(m, torch.nn.Linear)]
    return [m.basal_weight if isinstance(m, PyramidalLinear) else m.weight for m in layers]


@pytest.mark.parametrize("unit", ["ada(alpha=0.3)", "swish", "pynada", "pynrelu", "leaky_pynada(alpha=learn)"])
@pytest.mark.parametrize("convert", [False, True], ids=["created", "converted"])
def test_rows_start_from_the_same_weights_however_they_are_built(unit, convert):
    reference = affine_weights(built())
    found = affine_weights(built(unit=unit, convert=convert))
    assert len(found) == len(reference) == 3
    assert all(torch.equal(a, b) for a, b in zip(found, reference, strict=True))


def test_created_and_converted_pyramidal_networks_share_their_apical_weights_too():
    made, converted = built(unit="pynada"), built(unit="pynada", convert=True)
    apical = [[m.apical_weight for m in n.modules() if isinstance(m, PyramidalLinear)] for n in (made, converted)]
    assert all(torch.equal(a, b) for a, b in zip(*apical, strict=True))


def test_seeds_differ():
    assert not torch.equal(affine_weights(built())[0], affine_weights(built(seed=4))[0])


def order(session, epoch):
    return torch.cat([labels for _, labels in session.train.epoch(epoch)])


def test_the_order_depends_on_seed_and_epoch_alone(tmp_path):
    def session(**changes):
        return Session(replace(SPEC, **changes), Execution(), SingleDevice(), data.load("digits"), tmp_path)

    one, other = session(), session(unit="pynada", model="mlp-1", dims={}, learning_rate=0.5, epochs=99)
    assert torch.equal(order(one, 0), order(other, 0))
    assert not torch.equal(order(one, 0), order(one, 1))
    assert not torch.equal(order(one, 0), order(session(seed=4), 0))


@pytest.mark.parametrize("world", [1, 2, 3])
def test_the_ranks_of_a_batch_together_are_the_batch_of_one_process(world):
    split = data.load("digits").train
    whole = list(Feed(split, 100, device=torch.device("cpu"), seed=1, shuffle=True).epoch(2))
    parts = [
        list(Feed(split, 100, device=torch.device("cpu"), seed=1, shuffle=True, rank=r, world=world).epoch(2))
        for r in range(world)
    ]
    for k, (inputs, labels) in enumerate(whole):
        assert torch.equal(torch.cat([p[k][0] for p in parts]), inputs)
        assert torch.equal(torch.cat([p[k][1] for p in parts]), labels)


@pytest.mark.parametrize("start", [0, 4, 13, 20])
def test_a_feed_starts_in_the_middle_and_in_memory_or_not_is_the_same(start, monkeypatch):
    split = data.load("digits").train
    held = Feed(split, 100, device=torch.device("cpu"), seed=1, shuffle=True, passes=2)
    made = Feed(split, 100, device=torch.device("cpu"), seed=1, shuffle=True, passes=2)
    made.in_memory = False
    assert held.in_memory
    assert len(held) == 26
    whole = list(held.epoch(1))
    assert [len(y) for _, y in whole] == [held.samples(k) for k in range(26)]
    for feed in (held, made):
        rest = list(feed.epoch(1, start=start))
        assert len(rest) == 26 - start
        for (a, b), (c, d) in zip(rest, whole[start:], strict=True):
            assert torch.equal(a, c)
            assert torch.equal(b, d)
