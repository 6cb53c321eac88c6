"""Scores of probabilities against closed forms."""

import numpy as np
import pytest

from apical.errors import InvalidArgumentError
from apical.stats import calibration


def logs(p: float, n: int) -> np.ndarray:
    """n samples of two classes, the first with probability p."""
    return np.log(np.tile([p, 1 - p], (n, 1)))


def test_a_constant_answer_has_closed_forms() -> None:
    answers, labels = logs(0.8, 10), np.array([0] * 6 + [1] * 4)
    assert calibration.cross_entropy(answers, labels) == pytest.approx(-0.6 * np.log(0.8) - 0.4 * np.log(0.2))
    assert calibration.brier(answers, labels) == pytest.approx(0.6 * 2 * 0.2**2 + 0.4 * 2 * 0.8**2)
    assert calibration.calibration_error(answers, labels) == pytest.approx(0.8 - 0.6)


def test_bins_do_not_cancel_each_other() -> None:
    answers = np.concatenate([logs(0.9, 10), logs(0.6, 10)])
    labels = np.array([0] * 8 + [1] * 2 + [0] * 7 + [1] * 3)  # 0.1 too sure, 0.1 not sure enough
    assert calibration.calibration_error(answers, labels) == pytest.approx(0.1)
    assert calibration.calibration_error(answers, labels, bins=1) == pytest.approx(0.0, abs=1e-12)


def test_the_temperature_of_a_constant_answer_makes_it_the_share() -> None:
    answers, labels = logs(0.8, 10), np.array([0] * 6 + [1] * 4)
    temperature = calibration.fit_temperature(answers, labels)
    assert temperature == pytest.approx(np.log(4) / np.log(1.5), rel=1e-3)
    assert np.exp(calibration.at_temperature(answers, temperature))[0, 0] == pytest.approx(0.6, abs=1e-3)


def test_logits_that_were_multiplied_are_divided_again() -> None:
    random = np.random.default_rng(0)
    true = calibration.at_temperature(random.normal(size=(20_000, 4)) * 2, 1.0)
    labels = (random.random((20_000, 1)) > np.exp(true).cumsum(1)).sum(1)
    sure = calibration.at_temperature(true, 1 / 3)
    assert calibration.fit_temperature(sure, labels) == pytest.approx(3.0, rel=0.05)
    mended = calibration.cross_fitted(sure, labels)
    assert calibration.cross_entropy(mended, labels) == pytest.approx(calibration.cross_entropy(true, labels), abs=1e-3)
    assert calibration.calibration_error(mended, labels) < 0.02 < calibration.calibration_error(sure, labels)
    assert (mended.argmax(1) == sure.argmax(1)).all()


def test_shapes_that_do_not_fit_are_one_sentence() -> None:
    with pytest.raises(InvalidArgumentError, match=r"log_probabilities are \(2, 2\) and labels \(3,\)"):
        calibration.brier(logs(0.5, 2), np.zeros(3))
