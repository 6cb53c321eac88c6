"""The sentence about an unknown name."""

import pytest

from apical.errors import unknown


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("network", "mlp", ("mlp-1", "lenet")),
            "unknown network 'mlp'; did you mean 'mlp-1'? available: mlp-1, lenet",
        ),
        (("network", "LeNet", ("lenet",)), "unknown network 'LeNet'; did you mean 'lenet'? available: lenet"),
        (("unit", "x\ny", ("ada",), "see the docs"), "unknown unit 'x\\ny'; available: ada; see the docs"),
        (("unit", None, ()), "unknown unit None; available: none"),
    ],
)
def test_it_names_what_comes_nearest_and_all_there_are(arguments: tuple, sentence: str) -> None:
    assert unknown(*arguments) == sentence


def test_a_long_name_is_cut() -> None:
    assert len(unknown("unit", "x" * 10_000, ["ada"])) < 200
