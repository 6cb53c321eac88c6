"""Randomness by sample id."""

import numpy as np
from scipy import stats

from apical.data.randomness import bits, generator, keys_of, mix, normal, number, uniform

KEYS = keys_of(f"id-{i}" for i in range(400))


def test_keys_depend_on_the_id_alone():
    assert keys_of(["b", "a"]).tolist() == keys_of(["a", "b"]).tolist()[::-1]
    assert len(set(KEYS.tolist())) == 400
    assert number("a", 1) != number("a", 2)


def test_the_numbers_are_frozen():
    assert keys_of(["train-00000"]).tolist() == [17832360087534637196]
    assert bits(keys_of(["x"]), 2, "noise", 0).tolist() == [[5305512203136636935, 15789172423514340050]]
    assert generator("order", 0, 1).permutation(6).tolist() == [1, 3, 5, 4, 0, 2]


def test_mix_is_splitmix64():
    # The first outputs of SplitMix64 seeded with 0, as published with the algorithm.
    golden = np.uint64(0x9E3779B97F4A7C15)
    states = golden * np.arange(1, 4, dtype=np.uint64)
    assert [hex(v) for v in mix(states)] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]


def test_a_sample_gets_the_same_numbers_in_any_company():
    together = normal(KEYS, (28, 28), "noise", 3)
    assert np.array_equal(normal(KEYS[7:9], (28, 28), "noise", 3), together[7:9])
    assert np.array_equal(uniform(KEYS[7:9], "shift"), uniform(KEYS, "shift")[7:9])
    assert not np.array_equal(together, normal(KEYS, (28, 28), "noise", 4))


def test_no_vector_lane_leaves_its_mark():
    """Odd lengths put a sample at every offset of the processor's vectors; its bits must not change."""
    for pixels in (1, 5, 9, 31):
        together = normal(KEYS[:67], (pixels,), "noise")
        assert all(np.array_equal(normal(KEYS[i : i + 1], (pixels,), "noise")[0], together[i]) for i in range(67))


def test_normal_numbers_are_normal_and_independent():
    values = normal(KEYS, (28, 28), "noise", 3).astype(np.float64)
    assert stats.kstest(values.ravel(), "norm").pvalue > 1e-3
    assert abs(values.mean()) < 0.01
    flat = values.reshape(400, -1)
    between_pixels = np.corrcoef(flat[:, :391].ravel(), flat[:, 392:783].ravel())[0, 1]
    between_samples = np.corrcoef(flat[:-1].ravel(), flat[1:].ravel())[0, 1]
    assert abs(between_pixels) < 0.01
    assert abs(between_samples) < 0.01


def test_uniform_numbers_fill_the_unit_interval():
    values = uniform(keys_of(range(5000)), "x")
    assert values.min() >= 0
    assert values.max() < 1
    assert stats.kstest(values, "uniform").pvalue > 1e-3
