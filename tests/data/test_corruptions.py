"""The corruptions of the ablation study."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from apical import data
from apical.data.corruptions import KINDS, Few, Imbalance, InputNoise, LabelNoise, Resplit, Subset, corrupt, parse
from apical.errors import InvalidArgumentError
from apical.train import Execution, TrialSpec, stack_key
from apical.train.trial import open_data

DIGITS = data.load("digits")


@pytest.mark.parametrize("sigma", [0.1, 0.2, 0.3])
def test_input_noise_is_normal_on_scaled_pixels_in_all_splits(sigma):
    noisy = corrupt(DIGITS, InputNoise(sigma=sigma))
    for clean, dirty in zip(DIGITS.splits.values(), noisy.splits.values(), strict=True):
        everything = np.arange(len(clean))
        noise = (dirty.inputs(everything) - clean.inputs(everything)).numpy()
        assert abs(noise.std() - sigma) < 0.02 * sigma
        assert abs(noise.mean()) < 0.02 * sigma
        assert (dirty.inputs(everything) + DIGITS.train.input.mean).min() < 0  # not clipped
        assert np.array_equal(clean.labels, dirty.labels)


def test_noise_is_drawn_once_for_an_image():
    noisy = corrupt(DIGITS, "input-noise(sigma=0.2,seed=5)").train
    batches = noisy.batches(32, shuffle=True, seed=1)
    seen = {}
    for epoch in range(2):
        for batch in batches.epoch(epoch):
            for position, image in zip(batch.positions.tolist(), batch.inputs, strict=True):
                assert torch.equal(seen.setdefault(position, image), image)
    assert not torch.equal(noisy[0].input, corrupt(DIGITS, InputNoise(sigma=0.2, seed=6)).train[0].input)


def test_noise_leaves_the_padding_alone():
    padded = corrupt(DIGITS, InputNoise(sigma=0.3)).padded(2)
    assert padded.shape == (1, 12, 12)
    border = padded.train[0].input[0, :2]
    assert torch.equal(border, torch.full((2, 12), -padded.train.input.mean))


@pytest.mark.parametrize("fraction", [0.1, 0.2, 0.3])
def test_label_noise_changes_exactly_the_fraction_of_training_labels(fraction):
    noisy = corrupt(DIGITS, LabelNoise(fraction=fraction))
    changed = noisy.train.labels != DIGITS.train.labels
    assert changed.sum() == round(fraction * len(DIGITS.train))
    assert set(noisy.train.labels) <= set(range(10))
    assert np.array_equal(noisy.validation.labels, DIGITS.validation.labels)
    assert np.array_equal(noisy.test.labels, DIGITS.test.labels)


def test_wrong_labels_are_uniform_over_the_other_classes():
    jumps = np.zeros(10)
    for seed in range(40):
        noisy = corrupt(DIGITS, LabelNoise(fraction=0.3, seed=seed))
        jumps += np.bincount((noisy.train.labels - DIGITS.train.labels) % 10, minlength=10)
    others = jumps[1:]
    assert (np.abs(others - others.mean()) < 5 * np.sqrt(others.mean())).all()


def test_imbalance_keeps_a_tenth_of_five_classes_everywhere():
    imbalance = Imbalance(seed=2)
    thin = imbalance.thinned(10)
    assert len(thin) == 5
    thinned = corrupt(DIGITS, imbalance)
    for clean, rest in zip(DIGITS.splits.values(), thinned.splits.values(), strict=True):
        before, after = np.bincount(clean.labels, minlength=10), np.bincount(rest.labels, minlength=10)
        for label in range(10):
            assert after[label] == (round(0.1 * before[label]) if label in thin else before[label])
        assert set(rest.ids) <= set(clean.ids)
    train_only = corrupt(DIGITS, Imbalance(seed=2, train_only=True))
    assert list(train_only.train.ids) == list(thinned.train.ids)
    assert len(train_only.test) == len(DIGITS.test)


def test_corruptions_compose_and_are_recorded():
    texts = [
        "input-noise(seed=0,sigma=0.1)",
        "label-noise(seed=3,fraction=0.2)",
        "imbalance(seed=0,keep=0.1,classes=5,train_only=False)",
    ]
    all_three = corrupt(DIGITS, *texts)
    assert all_three.identity["corruptions"] == texts
    assert DIGITS.identity["corruptions"] == []
    assert len(all_three.train) < len(DIGITS.train)
    assert corrupt(corrupt(DIGITS, texts[0]), *texts[1:]).identity == all_three.identity


@pytest.mark.parametrize("kind", KINDS)
def test_text_and_corruption_are_inverse(kind):
    default = KINDS[kind]()
    assert parse(str(default)) == parse(kind) == default


@given(st.floats(1e-3, 10), st.integers(-5, 2**40))
def test_any_value_survives_the_text(sigma, seed):
    assert parse(str(InputNoise(sigma=sigma, seed=seed))) == InputNoise(sigma=sigma, seed=seed)


@pytest.mark.parametrize(
    "text",
    ["", "noise", "input-noise(", "input-noise(sigma=x)", "input-noise(sigma=-1)", "label-noise(fraction=2)",
     "imbalance(keep=1)", "input-noise(sigma=0.1,sigma=0.2)", "input-noise(seed=1.5)", "label-noise(sigma=0.1)",
     "imbalance(train_only=1)", "input-noise(0.1)"],
)  # fmt: skip
def test_wrong_text_says_what_is_allowed(text):
    with pytest.raises(InvalidArgumentError) as caught:
        parse(text)
    assert "\n" not in str(caught.value)


def test_what_cannot_be_corrupted_says_so(home, fabricate):
    with pytest.raises(InvalidArgumentError, match="no classes"):
        corrupt(data.load("sin"), "label-noise")
    with pytest.raises(InvalidArgumentError, match="cannot take input noise"):
        corrupt(data.load("moroco", fabricate.moroco(), partial=True), "input-noise")
    with pytest.raises(InvalidArgumentError, match="cannot take input noise"):
        corrupt(DIGITS, "input-noise", "input-noise")
    with pytest.raises(InvalidArgumentError, match="classes is 5"):
        corrupt(data.load("xor"), "imbalance")


def test_a_subset_keeps_seeded_samples_of_each_split_in_order():
    few = corrupt(DIGITS, Subset(samples=300))
    for whole, kept in zip(DIGITS.splits.values(), few.splits.values(), strict=True):
        assert len(kept) == min(300, len(whole))
        assert np.array_equal(kept.rows, [row for row in whole.rows if row in set(kept.rows)])
    assert not np.array_equal(few.train.rows, corrupt(DIGITS, Subset(samples=300, seed=1)).train.rows)
    assert len(np.unique(few.train.labels)) == 10


def test_a_subset_of_no_samples_is_refused():
    with pytest.raises(InvalidArgumentError, match="samples is 0, but it must be at least 1"):
        parse("subset(samples=0)")


@pytest.mark.parametrize("per_class", [1, 10, 30])
def test_few_keeps_so_many_of_each_class_for_training_and_validation(per_class):
    few = corrupt(DIGITS, Few(per_class=per_class, seed=3))
    assert np.bincount(few.train.labels).tolist() == [per_class] * 10
    most = np.bincount(DIGITS.validation.labels)
    assert np.bincount(few.validation.labels).tolist() == np.minimum(per_class, most).tolist()
    assert set(few.train.ids) <= set(DIGITS.train.ids)
    assert set(few.validation.ids) <= set(DIGITS.validation.ids)
    assert np.array_equal(few.test.ids, DIGITS.test.ids)
    other = corrupt(DIGITS, Few(per_class=per_class, seed=4))
    assert set(few.train.ids) != set(other.train.ids)
    with pytest.raises(InvalidArgumentError, match="has no classes"):
        corrupt(data.load("sin"), Few())
    with pytest.raises(InvalidArgumentError, match="per_class is 0, but it must be at least 1"):
        Few(per_class=0)


@pytest.mark.parametrize("name", ["digits", "iris", "wine", "breast-cancer", "diabetes"])
def test_resplit_has_every_sample_in_one_split(name):
    whole = data.load(name)
    one, other = (corrupt(whole, Resplit(seed=seed)) for seed in (1, 2))
    for new in (one, other):
        ids = [i for split in new.splits.values() for i in split.ids]
        assert sorted(ids) == sorted(i for split in whole.splits.values() for i in split.ids)
        assert [len(s) for s in new.splits.values()] == [len(s) for s in whole.splits.values()]
        labels = {i: y for s in whole.splits.values() for i, y in zip(s.ids, s.labels.tolist(), strict=True)}
        assert all(labels[i] == y for s in new.splits.values() for i, y in zip(s.ids, s.labels.tolist(), strict=True))
    assert set(one.test.ids) != set(other.test.ids)


def test_resplit_stands_in_front_of_label_noise():
    with pytest.raises(InvalidArgumentError, match="write resplit in front of label-noise"):
        corrupt(DIGITS, "label-noise(fraction=0.1)", "resplit()")
    corrupt(DIGITS, "resplit()", "label-noise(fraction=0.1)")


def test_by_trial_the_seed_of_the_trial_draws():
    assert Few(per_class=5).for_trial(9) == Few(per_class=5, seed=9)
    assert Few(per_class=5, by_trial=False).for_trial(9) == Few(per_class=5, by_trial=False)
    assert LabelNoise(fraction=0.1).for_trial(9) == LabelNoise(fraction=0.1)
    spec = TrialSpec(data="digits", model="mlp-1", corruptions=("few(per_class=5)",), batch=2000)
    first, second = (open_data(replace(spec, seed=seed), Execution()) for seed in (1, 2))
    assert set(first.train.ids) != set(second.train.ids)
    assert stack_key(replace(spec, seed=1)) != stack_key(replace(spec, seed=2))
    toy = replace(spec, data="xor", model="neuron", loss="squared", corruptions=())
    assert stack_key(replace(toy, seed=1)) == stack_key(replace(toy, seed=2))
    drawn = replace(toy, corruptions=("few(per_class=1)",))
    assert stack_key(replace(drawn, seed=1)) != stack_key(replace(drawn, seed=2))


@pytest.mark.parametrize("name", ["iris", "wine", "breast-cancer", "diabetes"])
def test_columns_of_tables_are_standard(name):
    loaded = data.load(name)
    table = torch.cat([split.inputs(range(len(split))) for split in loaded.splits.values()])
    torch.testing.assert_close(table.mean(0), torch.zeros(table.shape[1]), atol=1e-5, rtol=0)
    torch.testing.assert_close(table.std(0, correction=0), torch.ones(table.shape[1]), atol=1e-4, rtol=0)
