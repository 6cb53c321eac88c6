"""Batches: the order is that of (seed, epoch); bytes do not depend on ranks, workers, prefetching or processes."""

import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from apical import data
from apical.data.dataset import order
from apical.errors import DataError, InvalidArgumentError

DIGITS = data.load("digits").validation


def joined(batches, field):
    parts = [getattr(b, field) for b in batches]
    return torch.cat(parts) if parts else torch.empty(0)


@given(st.integers(0, 500), st.integers(0, 2**40), st.integers(0, 10_000))
def test_an_epoch_s_order_is_a_permutation_known_alone(n, seed, epoch):
    first = order(n, seed=seed, epoch=epoch)
    assert sorted(first.tolist()) == list(range(n))
    assert np.array_equal(first, order(n, seed=seed, epoch=epoch))


def test_epochs_and_seeds_differ():
    orders = {tuple(order(50, seed=s, epoch=e)) for s in range(5) for e in range(5)}
    assert len(orders) == 25


@settings(max_examples=40)
@given(st.integers(1, 120), st.integers(1, 6), st.integers(0, 99), st.integers(0, 99), st.booleans(), st.booleans())
def test_ranks_side_by_side_are_one_process(size, world, seed, epoch, shuffle, drop_last):
    how = {"seed": seed, "shuffle": shuffle, "drop_last": drop_last}
    whole = list(DIGITS.batches(size, **how).epoch(epoch))
    assert len(whole) == len(DIGITS.batches(size, **how))
    ranks = [list(DIGITS.batches(size, rank=r, world=world, **how).epoch(epoch)) for r in range(world)]
    for k, batch in enumerate(whole):
        shards = [rank[k] for rank in ranks]
        assert max(len(s.labels) for s in shards) - min(len(s.labels) for s in shards) <= 1
        for field in ("inputs", "labels", "positions"):
            assert torch.equal(joined(shards, field), getattr(batch, field))
    if not drop_last:
        assert sorted(joined(whole, "positions").tolist()) == list(range(len(DIGITS)))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", ["tiny-imagenet", "crema-d"])
def test_the_number_of_threads_changes_nothing(name, threads, home, fabricate):
    part = data.load(name, fabricate.by_name(name), partial=True).train
    alone = torch.cat([part.inputs([i]) for i in range(11)])
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        assert torch.equal(part.inputs(np.arange(11)), alone)
    finally:
        torch.set_num_threads(before)


@settings(max_examples=15)
@given(st.integers(1, 120), st.integers(0, 9), st.integers(1, 4))
def test_prefetching_changes_nothing(size, epoch, ahead):
    plain = list(DIGITS.batches(size, shuffle=True, prefetch=0).epoch(epoch))
    ahead_ = list(DIGITS.batches(size, shuffle=True, prefetch=ahead).epoch(epoch))
    assert all(torch.equal(a, b) for one, two in zip(plain, ahead_, strict=True) for a, b in zip(one, two, strict=True))


def test_leaving_an_epoch_early_ends_its_thread():
    batches = DIGITS.batches(4, prefetch=2).epoch()
    next(batches)
    batches.close()
    assert not [t for t in threading.enumerate() if t.name == "apical-prefetch"]


def test_an_error_in_the_background_arrives(home, fabricate):
    root = fabricate.imagenet()
    loaded = data.load("imagenet", root, partial=True)
    next(root.glob("train/*/*_5.JPEG")).write_bytes(b"junk")
    broken = next(s for s in loaded.splits.values() if any(i.endswith("_5") for i in s.ids))
    with pytest.raises(DataError, match="is a damaged image"):
        list(broken.batches(8).epoch())
    assert not [t for t in threading.enumerate() if t.name == "apical-prefetch"]


@pytest.mark.parametrize("wrong", [{"size": 0}, {"size": 4, "rank": 2, "world": 2}, {"size": 4, "rank": -1}])
def test_wrong_sizes_and_ranks_are_refused(wrong):
    with pytest.raises(InvalidArgumentError, match="rank one of 0 to world - 1"):
        DIGITS.batches(**wrong)


@pytest.mark.parametrize("name", ["tiny-imagenet", "crema-d", "imagenet", "moroco"])
def test_augmented_batches_are_the_same_for_every_shard(name, home, fabricate):
    part = data.load(name, fabricate.by_name(name), partial=True).train
    how = {"seed": 3, "shuffle": True, "augment": True}
    whole = next(part.batches(12, **how).epoch(5))
    shards = [next(part.batches(12, rank=r, world=3, **how).epoch(5)) for r in range(3)]
    assert torch.equal(joined(shards, "inputs"), whole.inputs)
    other = next(part.batches(12, **how).epoch(6))
    assert not torch.equal(other.inputs, whole.inputs)


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("name", ["tiny-imagenet", "moroco"])
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_torch_s_loader_gives_the_same_ids_and_bytes_with_any_number_of_workers(name, workers, home, fabricate):
    part = data.load(name, fabricate.by_name(name), partial=True).train
    loader = DataLoader(part, batch_size=7, num_workers=workers)
    inputs, labels, ids = zip(*loader, strict=True)
    assert [i for batch in ids for i in batch] == part.ids.tolist()
    assert torch.equal(torch.cat(inputs), part.inputs(np.arange(len(part))))
    assert torch.cat(labels).tolist() == part.labels.tolist()


def test_another_process_reads_the_same_ids_and_bytes(home, fabricate):
    root = fabricate.tiny_imagenet()
    part = data.load("tiny-imagenet", root, partial=True).train
    code = f"""
import hashlib, sys
from apical import data
part = data.load("tiny-imagenet", {str(root)!r}, partial=True).train
batch = next(part.batches(16, seed=4, shuffle=True).epoch(9))
print(hashlib.sha256(batch.inputs.numpy().tobytes() + "".join(part.ids[batch.positions]).encode()).hexdigest())
"""
    import hashlib

    batch = next(part.batches(16, seed=4, shuffle=True).epoch(9))
    expected = hashlib.sha256(batch.inputs.numpy().tobytes() + "".join(part.ids[batch.positions]).encode()).hexdigest()
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [p.communicate()[0].strip() for p in processes] == [expected] * 2


def test_resident_pages_are_given_back(home, fabricate, monkeypatch):
    """With a tiny limit every gather hands the pages back, and the bytes are the same."""
    part = data.load("tiny-imagenet", fabricate.tiny_imagenet(), partial=True).train
    expected = part.inputs(np.arange(len(part)))
    monkeypatch.setattr("apical.data.inputs.RESIDENT_LIMIT", 1 << 16)
    again = data.load("tiny-imagenet", next(fabricate.root.iterdir()), partial=True).train
    assert again.source._bounded
    assert torch.equal(torch.cat([b.inputs for b in again.batches(5).epoch()]), expected)
    assert again.source._touched == 0


def test_batches_without_an_epoch_say_what_to_write():
    with pytest.raises(InvalidArgumentError, match=r"write `for batch in batches.epoch\(k\)`"):
        list(DIGITS.batches(8))
