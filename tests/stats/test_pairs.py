"""Samples are paired by their ids, or not at all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apical.errors import InvalidArgumentError
from apical.stats import align, table


@given(st.lists(st.text(max_size=5), unique=True, max_size=50), st.randoms())
def test_alignment_puts_the_second_in_the_order_of_the_first(ids: list[str], random) -> None:
    a = np.array(ids, dtype=object)
    b = np.array(random.sample(ids, len(ids)), dtype=object)
    assert (b[align(a, b)] == a).all()


def test_different_samples_are_refused_with_an_example() -> None:
    with pytest.raises(InvalidArgumentError, match=r"1 are only in a, 2 only in b, e\.g\. test/3"):
        align(["test/1", "test/3"], ["test/1", "test/2", "test/4"])


def test_an_id_that_occurs_twice_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="ids_b must be one row of ids that occur once: x occurs 2 times"):
        align(["x", "y"], ["x", "x"])


def test_the_table_counts() -> None:
    found = table([True, True, False, False, True], [True, False, True, False, False])
    assert (found.both, found.only_a, found.only_b, found.neither) == (1, 2, 1, 1)
    assert (found.n, found.discordant) == (5, 3)
    assert found.difference == pytest.approx(0.2)
