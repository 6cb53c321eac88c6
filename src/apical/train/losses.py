"""Losses by name: mean over the samples, in float32, and what their outputs say.

`binary` is the binary cross-entropy: of one output a logit, of two the mean over both softmax outputs, which is the
cross-entropy. `squared` is the mean squared error of one output against the class 0 or 1: the answer is its rounding.
"""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from apical.errors import TrainingError

Loss = Callable[[Tensor, Tensor], Tensor]

CLASSIFICATION = ("cross-entropy", "binary", "squared")
REGRESSION = ("l1", "mse")
NAMES = (*CLASSIFICATION, *REGRESSION)
_SURE = 1e-6  # nobody is surer of an answer than this


def _full(outputs: Tensor) -> Tensor:
    """Half precision widened to float32, in which losses are computed; double precision stays."""
    return outputs if outputs.dtype == torch.float64 else outputs.float()


def cross_entropy(outputs: Tensor, labels: Tensor) -> Tensor:
    """(n, classes) outputs and (n,) classes."""
    return functional.cross_entropy(_full(outputs), labels)


def binary(outputs: Tensor, labels: Tensor) -> Tensor:
    """(n, 1) logits of class 1, or (n, 2) outputs, and (n,) classes 0 or 1."""
    if outputs.shape[1] == 2:
        return cross_entropy(outputs, labels)
    logits = _full(outputs).squeeze(1)
    return functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))


def l1(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean absolute error; outputs take the shape of the targets."""
    return functional.l1_loss(_full(outputs).reshape(targets.shape), targets)


def mse(outputs: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error; outputs take the shape of the targets."""
    return functional.mse_loss(_full(outputs).reshape(targets.shape), targets)


def squared(outputs: Tensor, labels: Tensor) -> Tensor:
    """(n, 1) outputs and (n,) classes 0 or 1."""
    return mse(outputs, labels.float()[:, None])


BY_NAME: dict[str, Loss] = {"cross-entropy": cross_entropy, "binary": binary, "l1": l1, "mse": mse, "squared": squared}


def of_each(name: str, outputs: Tensor, labels: Tensor) -> Tensor:
    """The loss of each of k trials, (k,), from their outputs (k, values, n) for the same n samples."""
    k, values, n = outputs.shape
    if name == "cross-entropy" or (name == "binary" and values == 2):
        return functional.cross_entropy(outputs, labels.expand(k, n), reduction="none").mean(1)
    targets = labels.to(outputs.dtype).reshape(n, values).t().expand(k, values, n)
    return _OF_EACH[name](outputs, targets, reduction="none").mean((1, 2))


def answers_of_each(name: str, outputs: Tensor) -> Tensor:
    """`answers` of k trials: (k, n, values) outputs."""
    return answers(name, outputs.flatten(0, 1)).unflatten(0, outputs.shape[:2])  # type: ignore[no-untyped-call, no-any-return]


def gradient_of_each(name: str, outputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """`of_each`, and the gradient of each trial's loss in its outputs, written out: a graph takes longer than it."""
    k, values, n = outputs.shape
    if name == "cross-entropy" or (name == "binary" and values == 2):
        right, log = labels.expand(k, 1, n), functional.log_softmax(outputs, 1)
        loss = -log.gather(1, right).mean((1, 2))
        return loss, log.exp_().scatter_add_(1, right, -log.new_ones(()).expand(k, 1, n)).div_(n)
    if name == "binary":
        targets = labels.to(outputs.dtype).expand(k, 1, n)
        loss = functional.binary_cross_entropy_with_logits(outputs, targets, reduction="none").mean((1, 2))
        return loss, outputs.sigmoid().sub_(targets).div_(n)
    error = outputs - labels.view(n, values).t()
    if name == "l1":
        return error.abs().mean((1, 2)), error.sign_().div_(values * n)
    return error.square().mean((1, 2)), error.mul_(2 / (values * n))


_OF_EACH: dict[str, Callable[..., Tensor]] = {
    "binary": functional.binary_cross_entropy_with_logits,
    "l1": functional.l1_loss,
    "mse": functional.mse_loss,
    "squared": functional.mse_loss,
}


def log_probabilities(outputs: Tensor) -> Tensor:
    """(n, classes) log-probabilities in float32 from outputs, or from one logit the two of a binary task."""
    outputs = outputs.float()
    if outputs.shape[1] == 1:
        return torch.cat([functional.logsigmoid(-outputs), functional.logsigmoid(outputs)], dim=1)
    return functional.log_softmax(outputs, dim=1)


def answers(name: str, outputs: Tensor) -> Tensor:
    """What outputs trained with a loss say: log-probabilities of classes, or predictions as they are."""
    if name in REGRESSION:
        return outputs
    if name == "squared":
        outputs = outputs.float().clamp(_SURE, 1 - _SURE).logit()
    return log_probabilities(outputs)


def check_outputs(name: str, outputs: Tensor, labels: Tensor, classes: int | None) -> None:
    """Refuse a network whose outputs do not fit the loss and the data, before anything is trained."""
    shape = tuple(outputs.shape)
    if name in REGRESSION:
        fits = outputs.numel() == labels.numel()
        wanted = f"as many values as the targets {tuple(labels.shape)}"
    else:
        allowed = {"binary": (1, 2), "squared": (1,)}.get(name, (classes,))
        fits = outputs.dim() == 2 and shape[1] in allowed
        wanted = f"{len(labels)} rows of {' or '.join(map(str, allowed))} values"
    if not fits:
        raise TrainingError(f"the network gives outputs of shape {shape}, but the loss {name!r} needs {wanted}")
