"""What else is measured when a trial's test split is opened: corrupted, far-away and adversarial inputs, calibration.

`robustness = ["calibration", "corruptions(samples=1000)", "attacks(eps=0.1)"]` in a trial's spec asks for it. Each
assessment gives numbers by the names of metrics (`apical.train.metrics`); what stands behind a dot is a detail of one:
`corruption-accuracy.fog`, `adversarial-accuracy.pgd`. All of them see the same test samples in every trial.
"""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from statistics import mean
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from apical import data, notation, robustness
from apical.data import Split
from apical.data.inputs import Images
from apical.data.randomness import generator
from apical.errors import InvalidArgumentError, TrainingError, unknown
from apical.robustness import detection
from apical.train.spec import Execution, TrialSpec
from apical.train.trial import run

SURROGATE_SEED = 4_000_000
"""The seed of the network that transferred inputs are made for; no study begins there."""
AT_ONCE = 1000


@dataclass(frozen=True)
class Subject:
    """A network and the split that it is assessed on; `answer` makes log-probabilities of its outputs.

    `identity` says which data it is. `outputs` are its answers on the whole split, `source` is the network that inputs
    are transferred from: an assessment may ask for them.
    """

    network: Callable[[Tensor], Tensor]
    answer: Callable[[Tensor], Tensor]
    split: Split
    identity: str = ""
    device: torch.device | str = "cpu"
    outputs: Tensor | None = None
    source: Callable[[Tensor], Tensor] | None = None

    def positions(self, samples: int) -> NDArray[np.int64]:
        """The test samples that are used: the same in every trial."""
        n = len(self.split)
        return np.sort(generator("assessed", n).permutation(n)[:samples])

    def labels(self, samples: int) -> Tensor:
        return torch.from_numpy(self.split.labels[self.positions(samples)])

    def pixels(self, samples: int) -> Tensor:
        """The images that are used, (n, channels, height, width) in [0, 1]."""
        raw = self.split.raw(self.positions(samples))
        return torch.from_numpy(raw.astype(np.float32)) / self.images.divisor

    @property
    def images(self) -> Images:
        how = self.split.input
        if not isinstance(how, Images) or how.sigma:
            raise TrainingError(
                f"these samples are {type(how).__name__}, but robustness is measured only on images without "
                "noise: leave robustness out"
            )
        return how

    def see(self, pixels: Tensor) -> Tensor:
        """What the network sees of images in [0, 1]: padded, the mean taken off. It can be differentiated."""
        how = self.images
        return nn.functional.pad(pixels, (how.pad,) * 4) - how.mean

    def logits(self, pixels: Tensor) -> Tensor:
        """The outputs of the network for images in [0, 1], a part at a time."""
        pieces = (pixels[i : i + AT_ONCE].to(self.device) for i in range(0, len(pixels), AT_ONCE))
        with torch.no_grad():
            return torch.cat([self.network(self.see(piece)).float().cpu() for piece in pieces])


@dataclass(frozen=True, kw_only=True)
class Assessment:
    """One assessment; `str(a)` names it with all its values, and `parse(str(a)) == a`."""

    kind: ClassVar[str]

    def measure(self, subject: Subject) -> dict[str, float]:
        """The numbers by name."""
        raise NotImplementedError

    def __str__(self) -> str:
        return notation.write(self.kind, {f.name: getattr(self, f.name) for f in fields(self)})


@dataclass(frozen=True, kw_only=True)
class Calibration(Assessment):
    """The expected calibration error of the test split, in bins of equal width."""

    kind = "calibration"
    bins: int = 15

    def measure(self, subject: Subject) -> dict[str, float]:
        assert subject.outputs is not None
        return {"calibration-error": _calibration_error(subject.outputs, subject.split.labels, self.bins)}


@dataclass(frozen=True, kw_only=True)
class Corruptions(Assessment):
    """Accuracy and calibration error over all kinds and severities of `apical.robustness.corrupt`."""

    kind = "corruptions"
    samples: int = 1000
    seed: int = 0

    def measure(self, subject: Subject) -> dict[str, float]:
        labels, answers, shares = subject.labels(self.samples), [], {}
        for kind in robustness.CORRUPTIONS:
            own = [subject.answer(subject.logits(images)) for images in self._images(subject, kind)]
            shares[kind] = mean(float((a.argmax(1) == labels).double().mean()) for a in own)
            answers += own
        logs = torch.cat(answers)
        error = _calibration_error(logs, labels.repeat(len(answers)).numpy(), 15)
        return {
            "corruption-accuracy": mean(shares.values()),
            "corruption-calibration-error": error,
            **{f"corruption-accuracy.{kind}": share for kind, share in shares.items()},
        }

    def _images(self, subject: Subject, kind: str) -> list[Tensor]:
        """The corrupted images at each severity; kept as bytes for the next trial of this process."""
        made = _corrupted((subject.identity, self))
        if kind not in made:
            pixels, ids = subject.pixels(self.samples), subject.split.ids[subject.positions(self.samples)]
            changed = (robustness.corrupt(pixels, kind, s, ids=ids, seed=self.seed) for s in robustness.SEVERITIES)
            made[kind] = [(images * 255).round().to(torch.uint8) for images in changed]
        return [images.float() / 255 for images in made[kind]]


@lru_cache(maxsize=1)
def _corrupted(key: object) -> dict[str, list[Tensor]]:
    """Filled by who asks."""
    return {}


@dataclass(frozen=True, kw_only=True)
class FarAway(Assessment):
    """AUROC of the largest softmax and of the norm of the logits, test samples against inputs of another kind.

    `sets` names them with + between: a data set of images, at the size of the network's own (its test split), or
    `noise`, uniform in [0, 1].
    """

    kind = "far_away"
    sets: str = "digits+noise"
    samples: int = 1000
    seed: int = 0

    def __post_init__(self) -> None:
        if not all(self.sets.split("+")):
            raise InvalidArgumentError(f"sets is {self.sets!r}, but must name data sets with + between, or noise")

    def measure(self, subject: Subject) -> dict[str, float]:
        own = subject.logits(subject.pixels(self.samples))
        scores: dict[str, float] = {}
        for name in self.sets.split("+"):
            far = subject.logits(self._inputs(name, subject))
            scores[f"softmax-auroc.{name}"] = robustness.auroc(*map(robustness.largest_softmax, (own, far)))
            scores[f"norm-auroc.{name}"] = robustness.auroc(*map(robustness.logit_norm, (own, far)))
        both = ("softmax-auroc", "norm-auroc")
        return {base: mean(v for name, v in scores.items() if name.startswith(base)) for base in both} | scores

    def _inputs(self, name: str, subject: Subject) -> Tensor:
        channels, height, width = subject.split.source.shape
        if name == "noise":
            return detection.noise((channels, height, width), self.samples, seed=self.seed)
        split = data.load(name).test
        if not isinstance(split.input, Images):
            raise TrainingError(f"sets is {self.sets!r}, but {name} does not hold images: name one that does")
        pixels = split.raw(np.arange(len(split))[: self.samples]).astype(np.float32)
        return detection.upscaled(torch.from_numpy(pixels / pixels.max()), height, width, channels)


@dataclass(frozen=True, kw_only=True)
class Attacks(Assessment):
    """Accuracy under FGSM, PGD, the square attack and inputs transferred from a network with other units.

    `eps` is in shares of the range from black to white. `source` is the unit of the network that inputs are transferred
    from: it is trained as the trial was, with a seed of its own, when the first trial of a process is tested.
    """

    kind = "attacks"
    eps: float = 0.1
    samples: int = 500
    steps: int = 20
    restarts: int = 2
    queries: int = 500
    source: str = "relu"
    seed: int = 0

    def __post_init__(self) -> None:
        robustness.Threat(eps=self.eps, steps=self.steps, restarts=self.restarts, queries=self.queries)

    def measure(self, subject: Subject) -> dict[str, float]:
        settings = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in ("source", "samples")}
        result = attack_images(subject, samples=self.samples, **settings)
        return {
            "adversarial-accuracy": result.weakest,
            "masked": result.masked or 0.0,
            **{f"adversarial-accuracy.{name}": result.accuracy(name) for name in result.survived},
        }


def attack_images(subject: Subject, *, samples: int, **settings: Any) -> robustness.AttackResult:
    """`apical.robustness.attack` on images of a split; eps is a share of the range from black to white."""
    source = subject.source
    return robustness.attack(
        lambda x: subject.answer(subject.network(subject.see(x)).float()),
        subject.pixels(samples).to(subject.device),
        subject.labels(samples).to(subject.device),
        source=None if source is None else lambda x: subject.answer(source(subject.see(x)).float()),
        **settings,
    )


KINDS: dict[str, type[Assessment]] = {a.kind: a for a in (Calibration, Corruptions, FarAway, Attacks)}


MOST = {"bins": 10_000, "steps": 10_000, "restarts": 1_000, "queries": 1_000_000, "samples": 1_000_000, "seed": 2**62}
"""The largest whole numbers: a study file of somebody else does not fill the memory or run for ever."""


def parse(text: str) -> Assessment:
    """`attacks(eps=0.1,samples=500)` and the like; values left out take their defaults."""
    name, given = notation.read(text, what="assessment", example="attacks(eps=0.1)")
    if name not in KINDS:
        raise InvalidArgumentError(unknown("assessment", name, KINDS, "write it like attacks(eps=0.1)"))
    types = {f.name: type(f.default) for f in fields(KINDS[name])}
    for key, value in given.items():
        if key not in types:
            raise InvalidArgumentError(unknown(f"setting of {name}", key, types))
        if (
            types[key] is int
            and isinstance(value, float)
            and (0 if key == "seed" else 1) <= value <= MOST[key]
            and value.is_integer()
        ):
            given[key] = int(value)
        if type(given[key]) is not types[key]:
            whole = f"a whole number from {0 if key == 'seed' else 1} to {MOST.get(key, 0)}"
            words = {int: whole, float: "a number", str: "a name"}[types[key]]
            raise InvalidArgumentError(f"{text!r}: {key} is {value!r}, but must be {words}")
    return KINDS[name](**given)


def surrogate(spec: TrialSpec, how: Execution) -> nn.Module | None:
    """The network that inputs are transferred from, where an assessment of the trial asks for one."""
    sources = [a.source for a in map(parse, spec.robustness) if isinstance(a, Attacks)]
    if not sources:
        return None
    other = replace(spec, unit=sources[0], seed=SURROGATE_SEED, robustness=())
    return _trained(other, replace(how, stacking="alone", tensorboard=False, wandb=False, mlflow=False))


@lru_cache(maxsize=1)
def _trained(spec: TrialSpec, how: Execution) -> nn.Module:
    with tempfile.TemporaryDirectory() as folder:
        result = run(spec, how, folder)
        if result.state == "stopped":
            raise TrainingError(f"the source network of the transfer attack was stopped: {result.reason}")
        return result.network()


def measure(subject: Subject, texts: Sequence[str]) -> dict[str, float]:
    """Everything that a trial's `robustness` asks for."""
    numbers: dict[str, float] = {}
    for text in texts:
        numbers |= parse(text).measure(subject)
    return numbers


def _calibration_error(logs: Tensor, labels: NDArray[Any], bins: int) -> float:
    from apical.stats.calibration import calibration_error  # noqa: PLC0415  scipy

    return calibration_error(logs.numpy(), labels, bins=bins)
