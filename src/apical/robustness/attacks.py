"""Adversarial inputs within a distance of eps in every value (L-infinity), and the accuracy that is left.

White-box attacks follow the gradient: `fgsm` one step, `pgd` many steps from several starts. Black-box attacks do
without it: `square` asks the model for answers alone, `transfer` uses inputs made for another model. **A model whose
gradient is flat looks strong to white-box attacks and is not** (Athalye et al. 2018): so `attack` runs several, takes
for each sample whether any of them succeeds, and says where a black-box attack does better than the white-box ones.

A model is a function of inputs (n, ...) that gives logits, or log-probabilities, (n, classes).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import ceil
from typing import Any

import torch
from torch import Tensor, nn

from apical.errors import InvalidArgumentError, unknown

Model = Callable[[Tensor], Tensor]
Objective = Callable[[Tensor, Tensor], Tensor]

AT_ONCE = 500
"""Samples that `attack` attacks together."""
WHITE, BLACK = ("fgsm", "pgd"), ("transfer", "square")
ATTACKS = (*WHITE, *BLACK)


@dataclass(frozen=True)
class Threat:
    """What an attacker may do: change every value by at most `eps`, within [`low`, `high`].

    `steps` and `restarts` are those of PGD, of which each step goes `step` far (eps / 4 if left out); `queries` those
    of the square attack. All randomness follows `seed`.
    """

    eps: float
    low: float = 0.0
    high: float = 1.0
    steps: int = 20
    restarts: int = 2
    step: float | None = None
    queries: int = 500
    seed: int = 0

    def __post_init__(self) -> None:
        if not (self.eps > 0 and self.low < self.high):
            raise InvalidArgumentError(
                f"eps is {self.eps} and values lie in [{self.low}, {self.high}], but eps must be above 0 and the range "
                "not empty"
            )
        for name in ("steps", "restarts", "queries"):
            if getattr(self, name) < 1:
                raise InvalidArgumentError(f"{name} is {getattr(self, name)}, but must be at least 1")

    def within(self, moved: Tensor, x: Tensor) -> Tensor:
        """The nearest inputs that are allowed."""
        return torch.minimum(torch.maximum(moved, x - self.eps), x + self.eps).clamp(self.low, self.high)

    def generator(self, *, more: int = 0) -> torch.Generator:
        """A generator of this threat's seed; on the CPU, so that devices agree."""
        return torch.Generator().manual_seed(self.seed * 1_000_003 + more)


def margin(logits: Tensor, labels: Tensor) -> Tensor:
    """The largest wrong logit minus the right one: above 0 where a sample is misclassified. It never saturates."""
    right = logits.gather(1, labels[:, None])[:, 0]
    wrong = logits.scatter(1, labels[:, None], -torch.inf).amax(1)
    return wrong - right


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Minus the log-probability of the right class, of each sample."""
    return nn.functional.cross_entropy(logits, labels, reduction="none")


def fgsm(model: Model, x: Tensor, labels: Tensor, threat: Threat) -> Tensor:
    """One step of eps along the sign of the gradient of the cross-entropy (Goodfellow et al. 2015)."""
    with _frozen(model):
        _, gradient = _gradient(model, x, labels, cross_entropy)
    return threat.within(x + threat.eps * gradient.sign(), x)


def pgd(model: Model, x: Tensor, labels: Tensor, threat: Threat) -> Tensor:
    """Projected gradient descent (Madry et al. 2018): the strongest inputs over all steps and restarts.

    The first start is the input itself, the others are random within reach. Starts follow the cross-entropy and the
    margin in turn: where a model is so sure that its cross-entropy is flat, the margin is not.
    """
    generator, step = threat.generator(), threat.step or threat.eps / 4
    best, strongest = x.clone(), torch.full((len(x),), -torch.inf, device=x.device)
    with _frozen(model):
        for restart in range(threat.restarts):
            objective = (cross_entropy, margin)[restart % 2]
            start = (2 * torch.rand(x.shape, generator=generator) - 1).to(x) * threat.eps
            moved = threat.within(x + start, x) if restart else x
            for _ in range(threat.steps):
                logits, gradient = _gradient(model, moved, labels, objective)
                best, strongest = _stronger(best, strongest, moved, margin(logits, labels))
                moved = threat.within(moved + step * gradient.sign(), x)
            best, strongest = _stronger(best, strongest, moved, margin(_logits(model, moved), labels))
    return best


def square(model: Model, x: Tensor, labels: Tensor, threat: Threat, *, share: float = 0.8) -> Tensor:
    """The square attack (Andriushchenko et al. 2020): random squares that are kept where they help; no gradients.

    Images (n, channels, height, width) get squares, other inputs stretches. It begins with stripes, of squares that
    cover a `share` of the input, and shrinks them as queries are used up.
    """
    shape = x.shape[1:] if x.ndim == 4 else (1, 1, x[0].numel())
    channels, height, width = shape
    images, generator = x.reshape(len(x), *shape), threat.generator(more=1)

    def signs(*size: int) -> Tensor:
        return (torch.randint(0, 2, size, generator=generator) * 2 - 1).to(x)

    with _frozen(model):
        best = threat.within(images + threat.eps * signs(len(x), channels, 1, width), images)
        strongest = margin(_logits(model, best.view_as(x)), labels)
        for query in range(1, threat.queries):
            todo = (strongest <= 0).nonzero()[:, 0]  # what is misclassified already is left alone
            if not len(todo):
                break
            own, current = images[todo], best[todo]
            part = share * _shrinking(query / threat.queries)
            down, across = (max(1, min(side, ceil(part**0.5 * side))) for side in (height, width))
            if height == 1:
                across = max(1, min(width, ceil(part * width)))
            rows = torch.randint(0, height - down + 1, (len(todo), 1), generator=generator)
            columns = torch.randint(0, width - across + 1, (len(todo), 1), generator=generator)
            inside = (_run(rows, down, height)[:, :, None] & _run(columns, across, width)[:, None]).to(x.device)
            new = own + threat.eps * signs(len(todo), channels, 1, 1)
            moved = threat.within(torch.where(inside[:, None], new, current), own)
            value = margin(_logits(model, moved.view(len(todo), *x.shape[1:])), labels[todo])
            best[todo], strongest[todo] = _stronger(current, strongest[todo], moved, value)
    return best.view_as(x)


def transfer(source: Model, x: Tensor, labels: Tensor, threat: Threat) -> Tensor:
    """Inputs that PGD makes for another model, `source`."""
    return pgd(source, x, labels, threat)


def _run(first: Tensor, count: int, size: int) -> Tensor:
    """(n, size): True at `count` places from `first` (n, 1) on."""
    places = torch.arange(size)
    return (places >= first) & (places < first + count)


def _shrinking(used: float) -> float:
    """The share of a square after a share of the queries, as the authors' schedule has it for 10,000 of them."""
    bounds = (0.001, 0.005, 0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
    return float(0.5 ** sum(used > bound for bound in bounds))


def _stronger(best: Tensor, strongest: Tensor, moved: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    better = value > strongest
    return torch.where(better.view(-1, *[1] * (best.ndim - 1)), moved, best), torch.where(better, value, strongest)


def _gradient(model: Model, x: Tensor, labels: Tensor, objective: Objective) -> tuple[Tensor, Tensor]:
    """The logits at x, and the gradient of the objective of each sample there."""
    with torch.enable_grad():
        inputs = x.detach().requires_grad_()
        logits = model(inputs).float()
        (gradient,) = torch.autograd.grad(objective(logits, labels).sum(), inputs)
    return logits.detach(), torch.nan_to_num(gradient)


def _logits(model: Model, x: Tensor) -> Tensor:
    with torch.no_grad():
        return model(x).float()


@contextmanager
def _frozen(model: Model) -> Iterator[None]:
    """A module in evaluation mode, without gradients of its weights; as it was afterwards."""
    if not isinstance(model, nn.Module):
        yield
        return
    modes = {module: module.training for module in model.modules()}
    wanted = {p: p.requires_grad for p in model.parameters()}
    try:
        model.eval().requires_grad_(False)
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode
        for parameter, own in wanted.items():
            parameter.requires_grad_(own)


# --- several attacks on one model -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class AttackResult:
    """What is left after attacks: of each sample, whether it was right (`clean`) and stays right under each attack."""

    threat: Threat
    clean: Tensor
    survived: Mapping[str, Tensor] = field(default_factory=dict)

    @property
    def clean_accuracy(self) -> float:
        """The share of samples that are right without an attack."""
        return _share(self.clean)

    def accuracy(self, *names: str) -> float:
        """The share of samples that stay right under each of these attacks; all of them, if none is named."""
        return _share(self._under(names or tuple(self.survived)))

    @property
    def weakest(self) -> float:
        """The accuracy that counts, the worst case: a sample is right if no attack succeeds."""
        return self.accuracy()

    @property
    def masked(self) -> float | None:
        """The share of samples that the white-box attacks leave right and a black-box attack does not.

        A black-box attack knows less. Where it succeeds nevertheless the gradient has hidden something, so this is a
        lower bound of what gradient masking hides. None where attacks of one kind alone were run.
        """
        white, black = ([name for name in names if name in self.survived] for names in (WHITE, BLACK))
        if not white or not black:
            return None
        return _share(self._under(white) & ~self._under(black))

    @property
    def summary(self) -> str:
        """One sentence, and a second one where white-box attacks look worse than black-box ones."""
        each = ", ".join(f"{name} {100 * self.accuracy(name):.1f} %" for name in self.survived)
        many = f"{len(self.survived)} attack{'' if len(self.survived) == 1 else 's'}"
        said = (
            f"accuracy {100 * self.clean_accuracy:.1f} %, and {100 * self.weakest:.1f} % in the worst case of "
            f"{many} with eps = {self.threat.eps:g} ({each}; {len(self.clean)} samples)"
        )
        if self.suspicious:
            said += (
                f". A black-box attack succeeds on {100 * (self.masked or 0):.1f} % of the samples where the white-box "
                "ones fail: the gradient misleads them, and their accuracies flatter the model"
            )
        return said

    @property
    def suspicious(self) -> bool:
        """True where a black-box attack leaves a lower accuracy than all white-box ones together, or masks 1 %."""
        if self.masked is None:
            return False
        white = self.accuracy(*(name for name in WHITE if name in self.survived))
        return self.masked >= 0.01 or any(self.accuracy(name) < white for name in BLACK if name in self.survived)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        threat = {name: getattr(self.threat, name) for name in Threat.__dataclass_fields__}
        return {
            "samples": len(self.clean), "accuracy": self.clean_accuracy, "weakest": self.weakest,
            "attacks": {name: self.accuracy(name) for name in self.survived}, "masked": self.masked,
            "suspicious": self.suspicious, "threat": threat,
        }  # fmt: skip

    def _under(self, names: Sequence[str]) -> Tensor:
        right = self.clean
        for name in names:
            right = right & self.survived[name]
        return right


def _share(right: Tensor) -> float:
    return float(right.double().mean()) if len(right) else float("nan")


def attack(
    model: Model,
    x: Tensor,
    labels: Tensor,
    *,
    eps: float,
    attacks: Sequence[str] = (),
    source: Model | None = None,
    progress: Callable[[str, int, int], object] | None = None,
    **settings: Any,
) -> AttackResult:
    """Attack a classifier: `fgsm`, `pgd`, `square` and, from the model `source`, `transfer`; those named, or all.

    `settings` are further fields of `Threat`: `low` and `high` (0 and 1 if left out) are the range of inputs. The model
    is evaluated, and left, as it is. `progress` is told the attack, the samples done, and all samples.

    Examples:
        >>> model = nn.Linear(2, 2)
        >>> x, labels = torch.rand(100, 2), torch.randint(2, (100,))
        >>> result = attack(model, x, labels, eps=0.1)
        >>> list(result.survived), result.weakest <= result.clean_accuracy
        (['fgsm', 'pgd', 'square'], True)
    """
    for name in attacks:
        if name not in ATTACKS:
            raise InvalidArgumentError(unknown("attack", name, ATTACKS))
    if "transfer" in attacks and source is None:
        raise InvalidArgumentError("the attack 'transfer' needs source=, the model that its inputs are made for")
    if len(x) != len(labels) or labels.is_floating_point():
        raise InvalidArgumentError(
            f"there are {len(x)} inputs and {len(labels)} labels of {labels.dtype}, but one class for each is needed"
        )
    unfit = sorted(settings.keys() - Threat.__dataclass_fields__.keys())
    if unfit:
        raise InvalidArgumentError(unknown("setting of attacks", unfit[0], Threat.__dataclass_fields__))
    threat = Threat(eps=eps, **settings)
    if len(x) and not (x.amin() >= threat.low - 1e-6 and x.amax() <= threat.high + 1e-6):
        raise InvalidArgumentError(
            f"inputs lie in [{x.amin():g}, {x.amax():g}], but low and high are {threat.low:g} and {threat.high:g}: "
            "give the range that inputs may have"
        )
    names = attacks or [name for name in ATTACKS if name != "transfer" or source is not None]
    functions: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
        "fgsm": lambda a, b: fgsm(model, a, b, threat),
        "pgd": lambda a, b: pgd(model, a, b, threat),
        "transfer": lambda a, b: transfer(source or model, a, b, threat),
        "square": lambda a, b: square(model, a, b, threat),
    }
    pieces = [(x[i : i + AT_ONCE], labels[i : i + AT_ONCE]) for i in range(0, len(x), AT_ONCE)]
    with _frozen(model):
        clean = _right(model, pieces)
        survived: dict[str, Tensor] = {}
        for name in names:
            right = [torch.zeros(0, dtype=torch.bool)]
            for inputs, own in pieces:
                right.append(_right(model, [(functions[name](inputs, own), own)]))
                if progress is not None:
                    progress(name, sum(map(len, right)), len(x))
            survived[name] = torch.cat(right) & clean
    return AttackResult(threat=threat, clean=clean, survived=survived)


def _right(model: Model, pieces: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    answers = [(_logits(model, inputs).argmax(1) == own).cpu() for inputs, own in pieces]
    return torch.cat([torch.zeros(0, dtype=torch.bool), *answers])
