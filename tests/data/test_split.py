"""Splits: pure functions of sorted ids and a seed, frozen by hash on lists of the official sizes."""

import hashlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apical.data.sets import fashion_mnist
from apical.data.split import cut, grouped_split, hold_out_per_class, random_split, split_hash

ids_of = st.lists(st.text("abcxyz0189_", min_size=1), min_size=1, max_size=60, unique=True)


def hashed(ids, parts):
    return split_hash([ids[i] for i in rows] for rows in parts)


@pytest.mark.parametrize(
    ("n", "counts"), [(23_708, (16_595, 3_556, 3_557)), (7_442, (5_209, 1_116, 1_117)), (91, (63, 13, 15))]
)
def test_seventy_fifteen_fifteen_is_floor_floor_rest(n, counts):
    a, b = cut(n)
    assert (a, b - a, n - b) == counts


@pytest.mark.parametrize(
    ("n", "sha256"),
    [
        (23_708, "9047c43f5de5aa8d2adfcb511fee505b7de993030779224aef5f66ea49a2f00d"),
        (7_442, "a2099f0c62aa4cf596c63722df588739fba8631270f8d30bdecbcd0a8d751a4c"),
    ],
)
def test_random_splits_of_official_size_never_change(n, sha256):
    ids = [f"sample-{i:05d}" for i in range(n)]
    assert hashed(ids, random_split(ids)) == sha256


def test_the_split_of_fashion_mnist_never_changes():
    ids = [f"train-{i:05d}" for i in range(60_000)] + [f"test-{i:05d}" for i in range(10_000)]
    parts = fashion_mnist.split(60_000, 10_000)
    assert hashed(ids, parts) == fashion_mnist.SPLIT_SHA256
    assert np.array_equal(parts.validation, np.random.RandomState(357).permutation(60_000)[:10_000])


def test_held_out_images_of_official_size_never_change():
    ids = [f"n{c:08d}_{i}" for c in range(200) for i in range(500)]
    stays, held = hold_out_per_class(ids, np.repeat(np.arange(200), 500), per_class=50)
    assert (len(stays), len(held)) == (90_000, 10_000)
    assert np.bincount(held // 500).tolist() == [50] * 200
    digest = hashlib.sha256("\n".join(ids[i] for i in held).encode()).hexdigest()
    assert digest == "c517dff2aa2f730f3c23ffcdcfe2adc717dc548019af899c1b6936efd06fb036"


def test_a_class_holds_out_the_same_images_without_the_others():
    ids = [f"n{c}_{i}" for c in range(4) for i in range(40)]
    labels = np.repeat(np.arange(4), 40)
    _, held = hold_out_per_class(ids, labels, per_class=3)
    _, alone = hold_out_per_class(ids[80:120], labels[80:120], per_class=3)
    assert {ids[i] for i in held if labels[i] == 2} == {ids[80 + i] for i in alone}


@given(ids_of, st.randoms(use_true_random=False), st.integers(0, 2**31))
def test_the_order_of_listing_does_not_matter(ids, random, seed):
    shuffled = ids.copy()
    random.shuffle(shuffled)
    assert hashed(ids, random_split(ids, seed=seed)) == hashed(shuffled, random_split(shuffled, seed=seed))


@given(ids_of, st.integers(0, 2**31))
def test_every_sample_is_on_exactly_one_side(ids, seed):
    parts = random_split(ids, seed=seed)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(ids)))


@given(ids_of, st.integers(1, 9), st.randoms(use_true_random=False))
def test_no_group_is_on_two_sides(ids, count, random):
    groups = [f"g{random.randrange(count)}" for _ in ids]
    parts = grouped_split(ids, groups)
    assert sorted(np.concatenate(parts).tolist()) == list(range(len(ids)))
    sides = [{groups[i] for i in rows} for rows in parts]
    assert sum(map(len, sides)) == len(set(groups))


def test_a_handful_of_images_still_has_a_validation_set():
    stays, held = hold_out_per_class([f"x{i}" for i in range(30)], np.arange(30), per_class=10)
    assert (len(stays), len(held)) == (27, 3)
