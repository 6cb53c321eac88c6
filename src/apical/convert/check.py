"""What conversion looks at before it changes anything: functions that agree, weights that look trained."""

from collections.abc import Callable
from math import sqrt

import torch
from torch import Tensor, nn

from apical.convert.flow import Site
from apical.convert.kinds import NORMS, call_as_function, is_affine
from apical.nn.unit import Unit

POINTS = torch.linspace(-8.0, 8.0, 161, dtype=torch.float64)


def probe(unit: Unit) -> nn.Module:
    """The activation of a standard unit by itself, in float64, to ask it what it computes."""
    return unit.with_(scope="network").layers().activation().double()


def function_of(site: Site) -> Callable[[Tensor], Tensor] | None:
    """What the activation computes, or None where that is learned, random, or depends on other tensors."""
    if site.kind == "rrelu":
        return None
    if site.module is None and not site.nodes:
        function: Callable[[Tensor], Tensor] = getattr(site.owner.module, site.target)
        return function
    if site.module is None:
        return call_as_function(next(iter(site.nodes.values())))
    module = site.module
    return None if any(True for _ in module.parameters()) else lambda x: module(x.clone())


def same_function(site: Site, activation: nn.Module) -> bool:
    """Whether the activation at `site` and a probe of a unit agree, to 1e-6, on a grid of points."""
    old = function_of(site)
    if old is None:
        return False
    with torch.no_grad():
        return bool(torch.allclose(old(POINTS), activation(POINTS), rtol=1e-6, atol=1e-9))


def starts_at_zero(activation: nn.Module) -> bool:
    """Whether an activation is 0 at 0 and has a derivative there, so that a branch that starts at 0 can learn."""
    x = torch.zeros(1, dtype=torch.float64, requires_grad=True)
    y = activation(x)
    (slope,) = torch.autograd.grad(y.sum(), x)
    return y.item() == 0.0 and slope.item() != 0.0


MANY = 20
"""Batches: nobody shows a network so many without training it."""


def looks_trained(model: nn.Module) -> bool:
    """Whether norms have moved from where they start, or weights are no longer independent draws."""
    norms = [module for module in model.modules() if isinstance(module, NORMS)]
    weights = [module.weight for module in model.modules() if is_affine(module)]
    large = [weight for weight in weights if isinstance(weight, Tensor) and weight.numel() >= 512]
    return any(_has_moved(norm) for norm in norms) or any(_rows_differ(weight) for weight in large)


def _has_moved(norm: nn.Module) -> bool:
    """Whether scale or shift differ between channels; a norm that has neither tells by the batches it has seen.

    Batches alone tell nothing where there is a scale: a look at the shapes counts as one.
    """
    own = [value for name in ("weight", "bias") if isinstance(value := getattr(norm, name, None), Tensor)]
    seen = getattr(norm, "num_batches_tracked", None)
    if not own:
        return isinstance(seen, Tensor) and seen.item() >= MANY
    return any(bool((value != value.flatten()[0]).any()) for value in own)


def _rows_differ(weight: Tensor) -> bool:
    """Whether the mean squares of rows or of columns differ more than those of independent draws would.

    For n draws a mean square has the variance of one square over n. The ratio of what is seen to that is near 1 at
    the start, whatever the distribution; 10 of its standard deviations above 1 are taken for training.
    """
    squares = weight.detach().double().flatten(1).square()
    variance = squares.var()
    if min(squares.shape) < 2 or variance == 0:
        return False
    for dim in (0, 1):
        means = squares.mean(dim)
        ratio = means.var() / (variance / squares.size(dim))
        if ratio - 1 > 10 * sqrt((2 + 8 / squares.size(dim)) / (means.numel() - 1)):
            return True
    return False
