"""McNemar's test against statsmodels, scipy and published examples."""

from math import inf, isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as scipy_stats
from statsmodels.stats.contingency_tables import mcnemar as statsmodels_mcnemar

from apical.errors import InvalidArgumentError
from apical.stats import METHODS, PairedTable, mcnemar, mcnemar_table

CLOSE = {"rel": 1e-12, "abs": 1e-300}
counts = st.integers(0, 2000)
tables = st.builds(PairedTable, counts, counts, counts, counts)


def random_tables(n: int) -> list[PairedTable]:
    random = np.random.default_rng(8)
    sizes = random.choice([3, 20, 200, 3000], size=n)
    return [PairedTable(*(int(v) for v in random.integers(0, size, 4))) for size in sizes]


def p_value(found: PairedTable, method) -> float:
    return mcnemar_table(found, method=method).p_value


def test_a_thousand_random_tables_equal_statsmodels_and_scipy() -> None:
    compared = 0
    for found in random_tables(1000):
        b, c = found.only_a, found.only_b
        if b + c == 0:
            assert [p_value(found, method) for method in METHODS] == [1.0] * 4
            continue
        square = [[found.both, b], [c, found.neither]]
        assert p_value(found, "exact") == pytest.approx(statsmodels_mcnemar(square, exact=True).pvalue, **CLOSE)
        assert p_value(found, "exact") == pytest.approx(scipy_stats.binomtest(b, b + c).pvalue, **CLOSE)
        plain = statsmodels_mcnemar(square, exact=False, correction=False)
        assert mcnemar_table(found, method="chi2").statistic == pytest.approx(plain.statistic, **CLOSE)
        assert p_value(found, "chi2") == pytest.approx(plain.pvalue, **CLOSE)
        if b != c:  # statsmodels corrects a difference of 0 to 1, away from equality
            corrected = statsmodels_mcnemar(square, exact=False, correction=True)
            assert mcnemar_table(found, method="chi2-corrected").statistic == pytest.approx(
                corrected.statistic, **CLOSE
            )
            assert p_value(found, "chi2-corrected") == pytest.approx(corrected.pvalue, **CLOSE)
        assert p_value(found, "mid-p") == pytest.approx(mid_p_by_definition(b, c), **CLOSE)
        compared += 1
    assert compared > 950


def mid_p_by_definition(b: int, c: int) -> float:
    """The probability of what is less likely than (b, c), and half of that of what is as likely."""
    chances = scipy_stats.binom.pmf(np.arange(b + c + 1), b + c, 0.5)
    distance = np.abs(2 * np.arange(b + c + 1) - (b + c))
    seen = abs(b - c)
    return float(chances[distance > seen].sum() + chances[distance == seen].sum() / 2)


def test_airway_example_of_fagerland_lydersen_and_laake() -> None:
    """BMC Medical Research Methodology 13:91 (2013), Table 1 and its p-values: data of Bentur et al. (2009)."""
    found = PairedTable(both=1, only_a=1, only_b=7, neither=12)
    assert p_value(found, "chi2") == pytest.approx(0.034, abs=5e-4)
    assert p_value(found, "chi2-corrected") == pytest.approx(0.077, abs=5e-4)
    assert p_value(found, "exact") == pytest.approx(0.070, abs=5e-4)
    assert p_value(found, "mid-p") == pytest.approx(0.039, abs=5e-4)


def test_approval_example_of_agresti() -> None:
    """Categorical Data Analysis, 2nd edition (2002), section 10.1: chi-square 17.36 for 150 against 86 changes."""
    found = mcnemar_table(PairedTable(794, 150, 86, 570), method="chi2")
    assert found.statistic == pytest.approx(17.36, abs=5e-3)
    assert found.odds_ratio == pytest.approx(150 / 86)
    assert found.cohens_g == pytest.approx(150 / 236 - 0.5)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("rest", [(0, 0), (5, 7)])
def test_without_discordant_samples_the_models_are_not_told_apart(method, rest: tuple[int, int]) -> None:
    found = mcnemar_table(PairedTable(rest[0], 0, 0, rest[1]), method=method)
    assert (found.statistic, found.p_value, found.cohens_g) == (0.0, 1.0, 0.0)
    assert isnan(found.odds_ratio)
    assert found.odds_ratio_interval() == (0.0, inf)


def test_equal_numbers_of_discordant_samples_show_nothing() -> None:
    found = PairedTable(10, 6, 6, 10)
    assert [p_value(found, method) for method in ("exact", "chi2", "chi2-corrected")] == [1.0] * 3
    assert p_value(found, "mid-p") == pytest.approx(1 - scipy_stats.binom.pmf(6, 12, 0.5) / 2, **CLOSE)


@given(tables)
def test_p_values_are_probabilities_in_their_known_order(found: PairedTable) -> None:
    p = {method: p_value(found, method) for method in METHODS}
    assert all(0 <= value <= 1 for value in p.values())
    assert p["mid-p"] <= p["exact"]
    assert p["chi2"] <= p["chi2-corrected"]


@given(tables)
def test_swapping_the_models_keeps_p_and_turns_the_effect(found: PairedTable) -> None:
    swapped = PairedTable(found.both, found.only_b, found.only_a, found.neither)
    for method in METHODS:
        one, other = mcnemar_table(found, method=method), mcnemar_table(swapped, method=method)
        assert one.p_value == other.p_value
        assert one.cohens_g == pytest.approx(-other.cohens_g, abs=1e-15)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=200), st.randoms())
def test_only_the_counts_matter_not_the_order_of_samples(answers: list[tuple[bool, bool]], random) -> None:
    mixed = random.sample(answers, len(answers))
    one = mcnemar([a for a, _ in answers], [b for _, b in answers])
    other = mcnemar([a for a, _ in mixed], [b for _, b in mixed])
    assert one == other
    assert one.table.n == len(answers)


def test_odds_ratio_interval_is_that_of_the_binomial_share() -> None:
    found = mcnemar_table(PairedTable(0, 12, 5, 0))
    low, high = found.odds_ratio_interval(0.9)
    oracle = scipy_stats.binomtest(12, 17).proportion_ci(0.9, method="exact")
    assert low == pytest.approx(oracle.low / (1 - oracle.low), rel=1e-9)
    assert high == pytest.approx(oracle.high / (1 - oracle.high), rel=1e-9)
    assert mcnemar_table(PairedTable(0, 4, 0, 0)).odds_ratio == inf


def test_faults_are_said_in_a_sentence() -> None:
    with pytest.raises(InvalidArgumentError, match="exact, mid-p, chi2, chi2-corrected"):
        mcnemar_table(PairedTable(1, 1, 1, 1), method="yates")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError, match="only_a is -1"):
        PairedTable(1, -1, 1, 1)
    with pytest.raises(InvalidArgumentError, match="a has 2 samples and b has 3"):
        mcnemar([True, False], [True, False, True])
    with pytest.raises(InvalidArgumentError, match="right_a must be one row"):
        mcnemar([2, 0], [1, 0])  # type: ignore[list-item]
