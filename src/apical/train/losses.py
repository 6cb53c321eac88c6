"""Losses by name, each with its gradient for stacks. Importing this needs no torch.

A loss is the mean over the samples, computed in float32 or wider. `binary` is the binary cross-entropy: one output is a
logit, two outputs are a softmax. `squared` is the mean squared error between one output and the class, 0 or 1; the
answer is the rounded output.
"""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from apical import imports
from apical.errors import InvalidArgumentError, TrainingError, unknown
from apical.train.metrics import Task, check_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

_SURE = 1e-6  # nobody is surer of an answer than this


@dataclass(frozen=True, kw_only=True)
class Loss:
    """How a loss is computed, and what the outputs say of a network trained with it.

    `compute(outputs, labels)` is the mean over n samples. A stack of k trials needs `gradient_of_each`: from outputs
    (k, values, n) and n labels it gives the losses (k,) and the gradient of each in its outputs. Without it, trials
    are trained alone. `of_each` gives the losses alone, if there is a shorter way.
    `answers` makes log-probabilities of outputs (n, values), or predictions; by default as the task says.
    `values`: how many outputs a classification may have; by default as many as classes.
    """

    name: str
    task: Task
    compute: "Callable[[Tensor, Tensor], Tensor]"
    gradient_of_each: "Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None" = None
    of_each: "Callable[[Tensor, Tensor], Tensor] | None" = None
    answers: "Callable[[Tensor], Tensor] | None" = None
    values: tuple[int, ...] | None = None

    @property
    def stacks(self) -> bool:
        """True where trials with this loss can be trained as one stack."""
        return self.gradient_of_each is not None

    def losses(self, outputs: "Tensor", labels: "Tensor") -> "Tensor":
        """The loss of each of k trials, (k,), from their outputs (k, values, n) for the same n samples."""
        if self.of_each is not None:
            return self.of_each(outputs, labels)
        return self.gradients(outputs, labels)[0]

    def gradients(self, outputs: "Tensor", labels: "Tensor") -> "tuple[Tensor, Tensor]":
        """The losses, and the gradient of each in its outputs, written out: a graph takes longer than it."""
        if self.gradient_of_each is None:
            raise TrainingError(f"loss {self.name!r} has no gradient_of_each and cannot be stacked: train alone")
        return self.gradient_of_each(outputs, labels)

    def answer(self, outputs: "Tensor") -> "Tensor":
        """What outputs (n, ...) say: log-probabilities of classes, or predictions as they are."""
        if self.answers is not None:
            return self.answers(outputs)
        return outputs if self.task == "regression" else log_probabilities(outputs)

    def answer_of_each(self, outputs: "Tensor") -> "Tensor":
        """`answer` of k trials: (k, n, values) outputs."""
        return self.answer(outputs.flatten(0, 1)).unflatten(0, outputs.shape[:2])  # type: ignore[no-untyped-call, no-any-return]

    def check_outputs(self, outputs: "Tensor", labels: "Tensor", classes: int | None) -> None:
        """Refuse a network whose outputs do not fit the loss and the data, before anything is trained."""
        shape = tuple(outputs.shape)
        if self.task == "regression":
            fits = outputs.numel() == labels.numel()
            wanted = f"as many values as the targets {tuple(labels.shape)}"
        else:
            allowed = self.values or (classes,)
            fits = outputs.dim() == 2 and shape[1] in allowed
            wanted = f"{len(labels)} rows of {' or '.join(map(str, allowed))} values"
        if not fits:
            raise TrainingError(
                f"the network gives outputs of shape {shape}, but the loss {self.name!r} needs {wanted}"
            )


def log_probabilities(outputs: "Tensor") -> "Tensor":
    """(n, classes) log-probabilities in float32 from outputs, or from one logit the two of a binary task."""
    import torch  # noqa: PLC0415

    outputs = outputs.float()
    if outputs.shape[1] == 1:
        log = torch.nn.functional.logsigmoid
        return torch.cat([log(-outputs), log(outputs)], dim=1)
    return outputs.log_softmax(dim=1)


def _full(outputs: "Tensor") -> "Tensor":
    """Half precision widened to float32, in which losses are computed; double precision stays."""
    return outputs if outputs.element_size() == 8 else outputs.float()


def cross_entropy(outputs: "Tensor", labels: "Tensor") -> "Tensor":
    """(n, classes) outputs and (n,) classes."""
    return _functional().cross_entropy(_full(outputs), labels)  # type: ignore[no-any-return]


def _cross_entropies(outputs: "Tensor", labels: "Tensor") -> "Tensor":
    own = labels.expand(len(outputs), len(labels))
    return _functional().cross_entropy(outputs, own, reduction="none").mean(1)  # type: ignore[no-any-return]


def _cross_entropy_gradients(outputs: "Tensor", labels: "Tensor") -> "tuple[Tensor, Tensor]":
    k, _, n = outputs.shape
    right, log = labels.expand(k, 1, n), outputs.log_softmax(1)
    losses = -log.gather(1, right).mean((1, 2))
    return losses, log.exp_().scatter_add_(1, right, -log.new_ones(()).expand(k, 1, n)).div_(n)


def binary(outputs: "Tensor", labels: "Tensor") -> "Tensor":
    """(n, 1) logits of class 1, or (n, 2) outputs, and (n,) classes 0 or 1."""
    if outputs.shape[1] == 2:
        return cross_entropy(outputs, labels)
    logits = _full(outputs).squeeze(1)
    return _functional().binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))  # type: ignore[no-any-return]


def _binaries(outputs: "Tensor", labels: "Tensor") -> "Tensor":
    if outputs.shape[1] == 2:
        return _cross_entropies(outputs, labels)
    each = _functional().binary_cross_entropy_with_logits
    return each(outputs, _targets(outputs, labels), reduction="none").mean((1, 2))  # type: ignore[no-any-return]


def _binary_gradients(outputs: "Tensor", labels: "Tensor") -> "tuple[Tensor, Tensor]":
    if outputs.shape[1] == 2:
        return _cross_entropy_gradients(outputs, labels)
    targets = labels.to(outputs.dtype).expand(len(outputs), 1, len(labels))
    return _binaries(outputs, labels), outputs.sigmoid().sub_(targets).div_(len(labels))


def l1(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Mean absolute error; outputs take the shape of the targets."""
    return _functional().l1_loss(_full(outputs).reshape(targets.shape), targets)  # type: ignore[no-any-return]


def _l1s(outputs: "Tensor", labels: "Tensor") -> "Tensor":
    return (outputs - _targets(outputs, labels)).abs().mean((1, 2))


def _l1_gradients(outputs: "Tensor", labels: "Tensor") -> "tuple[Tensor, Tensor]":
    error = outputs - labels.view(outputs.shape[2], -1).t()
    return error.abs().mean((1, 2)), error.sign_().div_(error.shape[1] * error.shape[2])


def mse(outputs: "Tensor", targets: "Tensor") -> "Tensor":
    """Mean squared error; outputs take the shape of the targets."""
    return _functional().mse_loss(_full(outputs).reshape(targets.shape), targets)  # type: ignore[no-any-return]


def squared(outputs: "Tensor", labels: "Tensor") -> "Tensor":
    """(n, 1) outputs and (n,) classes 0 or 1."""
    return mse(outputs, labels.to(_full(outputs).dtype)[:, None])


def _squares(outputs: "Tensor", labels: "Tensor") -> "Tensor":
    return (outputs - _targets(outputs, labels)).square().mean((1, 2))


def _square_gradients(outputs: "Tensor", labels: "Tensor") -> "tuple[Tensor, Tensor]":
    error = outputs - labels.view(outputs.shape[2], -1).t()
    return error.square().mean((1, 2)), error.mul_(2 / (error.shape[1] * error.shape[2]))


def _targets(outputs: "Tensor", labels: "Tensor") -> "Tensor":
    """(n, values) targets in the place of (k, values, n) outputs."""
    k, values, n = outputs.shape
    return labels.to(outputs.dtype).reshape(n, values).t().expand(k, values, n)


def _logits_of_squared(outputs: "Tensor") -> "Tensor":
    return log_probabilities(outputs.float().clamp(_SURE, 1 - _SURE).logit())


@cache
def _functional() -> Any:
    from torch.nn import functional  # noqa: PLC0415

    return functional


_BUILT_IN = {
    loss.name: loss
    for loss in (
        Loss(
            name="cross-entropy", task="classification", compute=cross_entropy, of_each=_cross_entropies,
            gradient_of_each=_cross_entropy_gradients,
        ),
        Loss(
            name="binary", task="classification", compute=binary, of_each=_binaries,
            gradient_of_each=_binary_gradients, values=(1, 2),
        ),
        Loss(
            name="squared", task="classification", compute=squared, of_each=_squares,
            gradient_of_each=_square_gradients, answers=_logits_of_squared, values=(1,),
        ),
        Loss(name="l1", task="regression", compute=l1, of_each=_l1s, gradient_of_each=_l1_gradients),
        Loss(name="mse", task="regression", compute=mse, of_each=_squares, gradient_of_each=_square_gradients),
    )
}  # fmt: skip
_REGISTERED: dict[str, Loss] = {}


def find(name: str) -> Loss:
    """The loss of that name."""
    loss = _BUILT_IN.get(name) or _REGISTERED.get(name)
    if loss is None:
        raise InvalidArgumentError(unknown("loss", name, names(), imports.adding("register_loss")))
    return loss


def names(task: Task | None = None) -> tuple[str, ...]:
    """The losses of one task or of all: the built-in ones, then the registered ones."""
    return tuple(loss.name for loss in (*_BUILT_IN.values(), *_REGISTERED.values()) if task in (None, loss.task))


def register_loss(
    name: str, *, compute: "Callable[[Tensor, Tensor], Tensor]", task: Task = "classification", **facts: Any
) -> None:
    """Add a loss: `compute(outputs, labels)` is its mean over the samples; `facts` are further fields of `Loss`.

    With `gradient_of_each` trials are stacked; its first batch is compared with `compute`.

    Examples:
        >>> def smooth(outputs, labels):
        ...     return torch.nn.functional.cross_entropy(outputs, labels, label_smoothing=0.1)
        >>> register_loss("smooth", compute=smooth)
    """
    check_name("loss", name, (*_BUILT_IN, *_REGISTERED))
    if task not in ("classification", "regression") or not callable(compute):
        raise InvalidArgumentError(
            f"loss {name!r} has task={task!r} and compute={compute!r:.50}, but needs the task 'classification' or "
            "'regression' and a function of outputs and labels"
        )
    unfit = sorted(facts.keys() - Loss.__dataclass_fields__.keys())
    if unfit:
        raise InvalidArgumentError(unknown(f"setting of loss {name!r}:", unfit[0], Loss.__dataclass_fields__))
    _REGISTERED[name] = Loss(name=name, compute=compute, task=task, **facts)
