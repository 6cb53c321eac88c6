"""Every number that the paper prints stands in the shipped studies: compared with its tables, typed in once more here.

Rows in the order of print; † and ‡ are the marks, "-" means that no alpha is printed.
"""

from decimal import Decimal
from typing import NamedTuple

import pytest

from apical.study import PaperNumber, Study, load, names

STANDARD = "relu rbf swish ada leaky-relu leaky-ada pynrelu pynrbf pynswish pynada leaky-pynada"
ORDER = {
    "table-moroco": STANDARD,
    "table-utkface": STANDARD,
    "table-crema-d": f"shukla-relu he-leaky-relu {STANDARD}",
    "table-fashion-mlp": f"xiao-relu xiao-tanh {STANDARD}",
    "table-fashion-cnn": STANDARD,
    "table-tiny-imagenet": "pynrelu pynrbf pynswish pynada",
    "table-imagenet": "relu ada pynrelu pynada",
}
MARKS = {"†": "dagger", "‡": "ddagger"}


class Printed(NamedTuple):
    study: str
    part: str
    metric: str
    values: str
    alphas: str
    seconds: str = ""


# fmt: off
TABLES = [
    Printed(
        "table-moroco", "cnn", "accuracy",
        "92.79 54.10 86.96 93.68† 92.90 93.55† 92.79 86.44 91.20 93.61† 93.53†",
        "- - - learn - 0.4 - - - learn learn",
        "27 34 33 33 30 37 52 58 55 52 57",
    ),
    Printed(
        "table-moroco", "cnn-se", "accuracy",
        "92.99 54.10 87.99 93.99‡ 93.06 93.49† 92.97 86.23 91.39 93.72† 93.61†",
        "- - - learn - learn - - - 0.5 learn",
        "42 48 47 47 45 51 52 65 61 63 60",
    ),
    Printed(
        "table-utkface", "gender", "accuracy",
        "88.56 50.12 87.97 88.49 88.91 89.12 88.50 90.77 50.44 91.65‡ 91.53‡",
        "- - - 0.1 - 0.1 - - - 0.5 0.5",
    ),
    Printed(
        "table-utkface", "age", "mae",
        "6.39 14.76 6.59 5.91‡ 6.01 5.88‡ 7.35 6.61 15.12 5.74‡ 5.77‡",
        "- - - learn - learn - - - 0.5 0.5",
    ),
    Printed(
        "table-crema-d", "resnet-18", "accuracy",
        "55.01 58.71 62.28 57.66 16.66 64.53‡ 63.13 65.37‡ 63.39 58.72 16.66 65.15‡ 65.10‡",
        "- - - - - 0.1 - 0.1 - - - 0.1 0.1",
    ),
    Printed(
        "table-fashion-mlp", "mlp-1", "accuracy",
        "87.10 86.80 88.88 88.38 88.85 88.98 88.40 88.97‡ 89.00 88.89 89.03 89.45‡ 89.34†",
        "- - - - - 0.3 - 0.3 - - - learn learn",
    ),
    Printed(
        "table-fashion-mlp", "mlp-2", "accuracy",
        "87.00 86.30 88.71 87.84 88.92 88.99 88.18 88.93‡ 88.98 88.43 88.88 89.40‡ 89.42‡",
        "- - - - - learn - 0.1 - - - learn learn",
    ),
    Printed(
        "table-fashion-cnn", "lenet", "accuracy",
        "90.84 88.94 90.47 91.49† 90.88 91.38† 90.87 90.43 91.04 91.27 91.60‡",
        "- - - 0.3 - 0.9 - - - 0.3 learn",
    ),
    Printed(
        "table-fashion-cnn", "vgg-9", "accuracy",
        "93.39 10.00 91.96 93.84‡ 93.26 93.63† 93.49 10.00 93.70 93.73 93.70",
        "- - - 1.0 - 0.3 - - - 1.0 1.0",
    ),
    Printed(
        "table-tiny-imagenet", "resnet-18", "accuracy",
        "51.54 51.99 52.93 53.86‡",
        "- - - 0.1",
    ),
    Printed(
        "table-imagenet", "standard", "top-5",
        "79.31 79.52‡",
        "- 0.2",
    ),
    Printed(
        "table-imagenet", "apical", "top-5",
        "79.88 80.07‡",
        "- 0.2",
    ),
]
# fmt: on

TOTALS = {  # study: (rows, sum of the values, how many †, how many ‡, sum of the seconds)
    "table-moroco": (22, Decimal("1945.09"), 7, 1, 1049),
    "table-utkface": (22, Decimal("992.19"), 0, 6, 0),
    "table-crema-d": (13, Decimal("712.37"), 0, 4, 0),
    "table-fashion-mlp": (26, Decimal("2302.05"), 1, 5, 0),
    "table-fashion-cnn": (22, Decimal("1859.91"), 3, 2, 0),
    "table-tiny-imagenet": (4, Decimal("210.32"), 0, 1, 0),
    "table-imagenet": (4, Decimal("318.78"), 0, 2, 0),
}


def number(printed: Printed, i: int) -> PaperNumber:
    value, alpha = printed.values.split()[i], printed.alphas.split()[i]
    tuned = {} if alpha == "-" else {"alpha": alpha if alpha == "learn" else float(alpha), "c": chosen_c(printed.study)}
    return PaperNumber(value=float(value.rstrip("†‡")), mark=MARKS.get(value[-1], ""), **tuned)


def chosen_c(study: str) -> float:
    return 1.0 if study == "table-moroco" else 0.0


@pytest.mark.parametrize("printed", TABLES, ids=lambda p: f"{p.study}/{p.part}")
def test_each_number_is_beside_its_row(printed: Printed) -> None:
    rows = [row for row in load(printed.study).rows if row.part == printed.part]
    assert [row.paper[printed.metric] for row in rows] == [number(printed, i) for i in range(len(rows))]
    assert len(rows) == len(printed.values.split()) == len(printed.alphas.split())
    order = [name for name in ORDER[printed.study].split() if printed.study != "table-imagenet" or
             ("pyn" in name) == (printed.part == "apical")]  # fmt: skip
    assert [row.name for row in rows] == order
    assert [row.paper["seconds"].value for row in rows if "seconds" in row.paper] == [
        float(s) for s in printed.seconds.split()
    ]
    assert all(row.paper.keys() <= {printed.metric, "seconds"} for row in rows)


def values_of(study: Study) -> list[PaperNumber]:
    return [n for row in study.rows for metric, n in row.paper.items() if metric != "seconds"]


@pytest.mark.parametrize("name", TOTALS)
def test_counts_and_sums_of_each_table(name: str) -> None:
    study = load(name)
    numbers = values_of(study)
    marks = [n.mark for n in numbers]
    seconds = sum(row.paper["seconds"].value for row in study.rows if "seconds" in row.paper)
    total = sum(Decimal(str(n.value)) for n in numbers)
    assert (len(numbers), total, marks.count("dagger"), marks.count("ddagger"), seconds) == TOTALS[name]


def test_every_table_of_the_paper_is_shipped_and_no_other_study_has_numbers() -> None:
    assert {p.study for p in TABLES} == set(TOTALS) == {name for name in names() if name.startswith("table-")}
    others = {name: values_of(load(name)) for name in names() if name not in TOTALS}
    assert {name: [n.value for n in found] for name, found in others.items() if found} == {"logic": [100.0]}


def test_quoted_rows_are_the_state_of_the_art_that_the_paper_quotes() -> None:
    quoted = {row.key for name in names() for row in load(name).rows if row.quoted}
    assert quoted == {
        "mlp-1/xiao-relu", "mlp-1/xiao-tanh", "mlp-2/xiao-relu", "mlp-2/xiao-tanh",
        "resnet-18/shukla-relu", "resnet-18/he-leaky-relu",
    }  # fmt: skip
