"""Changes of data sets: the corruptions of the paper's ablation study, fewer samples, other splits.

They are seeded, composable, and written as text that parses back:
`corrupt(data, "input-noise(sigma=0.2)", LabelNoise(fraction=0.1, seed=3))`; the order given is the order applied.
"""

import ast
import re
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apical import files
from apical.data.dataset import Corruption, DataSet, Split
from apical.data.inputs import Images, Numbers
from apical.data.randomness import generator
from apical.data.split import cut
from apical.errors import InvalidArgumentError, unknown


@dataclass(frozen=True, kw_only=True)
class InputNoise(Corruption):
    """N(0, sigma) on pixels scaled to [0, 1], not clipped, once for each image by (seed, id), in all three splits."""

    kind = "input-noise"
    sigma: float = 0.1

    def __post_init__(self) -> None:
        _check(self.sigma > 0, f"sigma is {self.sigma}, but it must be above 0")

    def apply(self, data: DataSet) -> DataSet:
        old = data.train.input
        _check(
            isinstance(old, Images | Numbers) and not old.sigma,
            f"{data.name} cannot take input noise: only images and numbers without such noise can",
        )
        assert isinstance(old, Images | Numbers)
        new = replace(old, sigma=self.sigma, noise_seed=self.seed)
        return data.map(lambda split: replace(split, input=new))


@dataclass(frozen=True, kw_only=True)
class LabelNoise(Corruption):
    """Exactly round(fraction * n) training labels become another class, uniformly; validation and test stay clean."""

    kind = "label-noise"
    fraction: float = 0.1

    def __post_init__(self) -> None:
        _check(0 < self.fraction <= 1, f"fraction is {self.fraction}, but it must be above 0 and at most 1")

    def apply(self, data: DataSet) -> DataSet:
        classes = _class_count(data, "label noise")
        draws = generator(self.kind, self.seed)
        labels = data.train.labels.copy()
        chosen = draws.permutation(len(labels))[: round(self.fraction * len(labels))]
        labels[chosen] = (labels[chosen] + draws.randint(1, classes, len(chosen))) % classes
        return replace(data, train=replace(data.train, changed_labels=labels))


@dataclass(frozen=True, kw_only=True)
class Imbalance(Corruption):
    """`classes` seeded classes keep round(keep * n) samples each, in all three splits or, `train_only`, in one."""

    kind = "imbalance"
    keep: float = 0.1
    classes: int = 5
    train_only: bool = False

    def __post_init__(self) -> None:
        _check(0 < self.keep < 1, f"keep is {self.keep}, but it must lie between 0 and 1")

    def thinned(self, count: int) -> list[int]:
        """Which of `count` classes are thinned."""
        _check(0 < self.classes < count, f"classes is {self.classes}, but it must lie between 1 and {count - 1}")
        return sorted(generator(self.kind, self.seed).permutation(count)[: self.classes].tolist())

    def apply(self, data: DataSet) -> DataSet:
        thin = self.thinned(_class_count(data, "imbalance"))
        if self.train_only:
            return replace(data, train=data.train.only(self._kept(data.train, thin)))
        return data.map(lambda split: split.only(self._kept(split, thin)))

    def _kept(self, split: Split, thin: list[int]) -> NDArray[np.int64]:
        keep = np.ones(len(split), bool)
        for label in thin:
            members = np.flatnonzero(split.labels == label)
            members = members[generator(self.kind, self.seed, split.name, label).permutation(len(members))]
            keep[members[round(self.keep * len(members)) :]] = False
        return np.flatnonzero(keep)


@dataclass(frozen=True, kw_only=True)
class Subset(Corruption):
    """At most `samples` seeded samples of each split, in their old order: for quick runs."""

    kind = "subset"
    samples: int = 1000

    def __post_init__(self) -> None:
        _check(self.samples > 0, f"samples is {self.samples}, but it must be at least 1")

    def apply(self, data: DataSet) -> DataSet:
        return data.map(lambda split: split.only(self._kept(split)))

    def _kept(self, split: Split) -> NDArray[np.int64]:
        return np.sort(generator(self.kind, self.seed, split.name).permutation(len(split))[: self.samples])


@dataclass(frozen=True, kw_only=True)
class Few(Corruption):
    """`per_class` seeded samples of each class for training, and as many for validation; the test split stays.

    With `by_trial` each trial of a study draws its own, by its seed.
    """

    kind = "few"
    per_class: int = 100
    by_trial: bool = True

    def __post_init__(self) -> None:
        _check(self.per_class > 0, f"per_class is {self.per_class}, but it must be at least 1")

    def apply(self, data: DataSet) -> DataSet:
        _class_count(data, "few samples of each class")
        train, validation = (split.only(self._kept(split)) for split in (data.train, data.validation))
        return replace(data, train=train, validation=validation)

    def _kept(self, split: Split) -> NDArray[np.int64]:
        classes = [np.flatnonzero(split.labels == label) for label in np.unique(split.labels)]
        draws = [generator(self.kind, self.seed, split.name, label) for label in range(len(classes))]
        kept = [rows[draw.permutation(len(rows))[: self.per_class]] for rows, draw in zip(classes, draws, strict=True)]
        return np.sort(np.concatenate(kept))


@dataclass(frozen=True, kw_only=True)
class Resplit(Corruption):
    """All samples split anew, 70/15/15, by the seed; with `by_trial` by that of each trial of a study."""

    kind = "resplit"
    by_trial: bool = True

    def apply(self, data: DataSet) -> DataSet:
        _check(
            all(split.changed_labels is None for split in data.splits.values()),
            f"the labels of {data.name} were changed in one split: write resplit in front of label-noise",
        )
        rows = np.sort(np.concatenate([split.rows for split in data.splits.values()]))
        order = rows[generator(self.kind, self.seed).permutation(len(rows))]
        parts = np.split(order, cut(len(rows)))
        train, validation, test = (
            replace(split, rows=np.sort(own)) for split, own in zip(data.splits.values(), parts, strict=True)
        )
        return replace(data, train=train, validation=validation, test=test)


KINDS: dict[str, type[Corruption]] = {c.kind: c for c in (InputNoise, LabelNoise, Imbalance, Subset, Few, Resplit)}


def corrupt(data: DataSet, *corruptions: Corruption | str) -> DataSet:
    """The data set with the corruptions applied in order, and recorded in `corruptions`."""
    for given in corruptions:
        corruption = parse(given) if isinstance(given, str) else given
        data = replace(corruption.apply(data), corruptions=(*data.corruptions, corruption))
    return data


def parse(text: str) -> Corruption:
    """`input-noise(sigma=0.2,seed=1)` and the like; values left out take their defaults."""
    match = re.fullmatch(r"\s*([a-z-]+)\s*(?:\((.*)\))?\s*", text)
    if match is None or match[1] not in KINDS:
        raise InvalidArgumentError(unknown("corruption", text, KINDS, "write it like input-noise(sigma=0.2)"))
    kind = KINDS[match[1]]
    return kind(**_values(text, match[2] or "", {f.name: type(f.default) for f in fields(kind)}))


def _values(text: str, inside: str, types: dict[str, type]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for item in filter(None, (part.strip() for part in inside.split(","))):
        name, _, literal = (part.strip() for part in item.partition("="))
        try:
            value = ast.literal_eval(literal)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            value = None
        wanted = types.get(name)
        if wanted is float and type(value) is int and abs(value) < files.WHOLE:
            value = float(value)
        if wanted is None or type(value) is not wanted or name in values:
            allowed = ", ".join(f"{n}=<{t.__name__}>" for n, t in types.items())
            raise InvalidArgumentError(f"{text!r}: {item!r} is not understood; it takes {allowed}")
        values[name] = value
    return values


def _class_count(data: DataSet, what: str) -> int:
    _check(data.class_names is not None, f"{data.name} has no classes, so it cannot take {what}")
    assert data.class_names is not None
    return len(data.class_names)


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise InvalidArgumentError(message)
