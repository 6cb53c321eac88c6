"""A conversion checked by what it does, on the example inputs.

The idea. Converting changes activations and nothing else. So, with the original activations put back into the new
places, and apical branches silent, the network has to compute what it did before, to rounding. If it does not, the
network was rewritten wrongly, for a reason that nobody thought of: the modules whose conversion alone does it keep
their own, and the rest is converted. A network may amplify rounding itself (a choice by score, an unstable recurrence):
a difference counts only where it is far above the one that parameters moved by rounding make.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from apical.convert.application import Application
from apical.convert.branch import ApicalBranch, InputAlone, WiredNeuron
from apical.convert.observation import seed, tried
from apical.convert.plan import has_extras
from apical.errors import ConversionError

AMPLIFIED = 100.0
"""A difference this many times the one that rounding the parameters makes is more than rounding."""

IN_TRAINING = " in training mode"
Outputs = list[Tensor]


class MismatchError(ConversionError):
    """A conversion after which the network, with its activations put back, computes something else.

    `owners` are the modules that call what was converted, by name, each with the first that it calls.
    """

    def __init__(self, model: nn.Module, fault: str, owners: dict[str, str]) -> None:
        self.owners, self.reason = owners, f"with the original activations in their new places {fault}"
        owner, activation = next(iter(owners.items()))
        others = f"not name.startswith({owner!r})" if owner else f"name != {activation!r}"
        super().__init__(
            f"the conversion of {type(model).__name__} was undone: {self.reason}, because of what was converted in "
            f"{', '.join(name or 'its own forward' for name in owners)}; exclude that, e.g. "
            f"filter_fn=lambda name, module: {others}"
        )

    def without(self, owners: list[str]) -> dict[str, str]:
        """The reasons why modules keep what they have, for all but `owners`."""
        return {name: f"its conversion was undone: {self.reason}" for name in self.owners if name not in owners}


def at_fault(owners: list[str], fails: Callable[[list[str]], bool]) -> list[str]:
    """Of modules whose conversion together fails, those that fail alone; all of them where it takes several."""
    middle = len(owners) // 2
    halves = [half for half in (owners[:middle], owners[middle:]) if half and len(owners) > 1 and fails(half)]
    return [name for half in halves for name in at_fault(half, fails)] or owners


class Verification:
    """What a model computes on the example inputs before it is converted, in evaluation mode and as it is."""

    def __init__(self, model: nn.Module, example_inputs: Any) -> None:
        self.inputs = example_inputs
        self.before: dict[bool, Outputs] = {}
        if example_inputs is not None:
            self.before[False] = self._run(model, training=False)
            if any(module.training for module in model.modules()):
                with suppress(Exception):  # it may want more in training: targets, or a larger batch
                    self.before[True] = self._run(model, training=True)

    def check(self, application: Application) -> list[str]:
        """Refuse a conversion after which the model, with its activations put back, computes something else.

        An activation that other values of the forward decide about cannot be put back: the names of those which
        therefore keep the model from being checked.
        """
        model = application.surgery.model
        varying = [decision.site.label for decision, original in application.originals.items() if original is None]
        if varying:
            return varying if self.before else []
        for training, before in self.before.items():
            with originals(application), called_still(application) as called:
                error = self._error(model, before, training=training)
            if called and not error:
                error = f"{called[0]} still calls the old activation, which something beside the modules holds"
            if application.at_zero and not error and (kept := self._error(model, before, training=training)):
                raise ConversionError(
                    f"keep_function=True is impossible: on example_inputs {kept} than before{IN_TRAINING * training}, "
                    "and the conversion was undone; an activation differs from the basal one there: leave "
                    "keep_function out"
                )
            if error:
                sites = [decision.site for decision in reversed(application.decisions)]
                owners = {site.owner.name: site.name for site in sites}
                raise MismatchError(model, error + IN_TRAINING * training, dict(reversed(owners.items())))
        return []

    def _error(self, model: nn.Module, before: Outputs, *, training: bool) -> str:
        """What is wrong with what a model computes; empty where nothing is."""
        try:
            after = self._run(model, training=training)
        except Exception as error:  # whatever a forward raises now and did not raise before
            return f"the network does not run ({str(error).strip().partition(chr(10))[0]})"
        difference = _difference(before, after)
        if difference <= 1.0 or difference <= AMPLIFIED * _difference(after, self._run(model, training, nudged=True)):
            return ""
        return "the network computes something else"

    def _run(self, model: nn.Module, training: bool, *, nudged: bool = False) -> Outputs:
        with tried(model, self.inputs, mode=None if training else False) as forward:
            if nudged:
                for parameter in model.parameters():
                    if parameter.is_floating_point():
                        parameter.mul_(1 + torch.finfo(parameter.dtype).eps * torch.randn_like(parameter).sign())
            seed(model)
            return [value.detach().clone() for value in _numbers(forward())]


@contextmanager
def called_still(application: Application) -> Iterator[list[str]]:
    """The names of activations whose old modules, no parts of the model any more, are called meanwhile."""
    called, there = list[str](), {id(module) for module in application.surgery.model.modules()}
    sites = {d.site.module: d.site.name for d in application.decisions if d.site.module is not None}
    with ExitStack() as stack:
        for module, name in sites.items():
            if id(module) not in there and not has_extras(module):  # their hooks are the new module's too
                stack.callback(module.register_forward_pre_hook(partial(_note_call, called, name)).remove)
        yield called


def _note_call(called: list[str], name: str, *_: Any) -> None:
    called.append(name)


@contextmanager
def originals(application: Application) -> Iterator[None]:
    """While it lasts, what was put in computes what was there before: the old activation, and no apical branch."""
    with ExitStack() as stack:
        for decision in application.decisions:
            new, original = application.made[decision], application.originals[decision]
            assert original is not None
            called = new if decision.form == "swap" else application.basal.get(decision)
            if decision.form == "swap" and decision.site.module is not None:  # each call with what else it passes
                original = decision.site.module.forward
                for hook in application.placed(decision)._forward_pre_hooks.values():
                    if isinstance(hook, InputAlone):
                        stack.enter_context(patch.object(hook, "others", True))
            if called is not None:
                stack.enter_context(patch.dict(vars(called), forward=_Function(original).forward))
            for holder, name in _branches(new) if decision.form != "swap" else ():
                stack.callback(holder._modules.__setitem__, name, holder._modules[name])
                holder._modules[name] = _Function(original if name == "basal" else torch.zeros_like)
        yield


class _Function(nn.Module):
    """A function of a copy of its input, so that one that writes in place has no effect beside its result."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Any:
        return self.function(input.clone(), *args, **kwargs)


def _branches(new: nn.Module) -> list[tuple[nn.Module, str]]:
    """Where the basal and the apical activation of a pyramidal neuron are."""
    if isinstance(new, ApicalBranch):
        return [(new, "activation")]
    if isinstance(new, WiredNeuron):
        return [(new, "basal"), (new.apical, "activation")]
    return [(new, "basal"), (new, "apical")]


def _numbers(value: Any, depth: int = 3) -> Iterator[Tensor]:
    """The tensors and numbers in what a forward returns, those in objects of other classes included."""
    for leaf in tree_leaves(value):
        if isinstance(leaf, Tensor):
            yield leaf
        elif isinstance(leaf, (int, float)):
            yield torch.tensor(leaf)
        elif hasattr(leaf, "__dict__") and depth and not callable(leaf):
            yield from _numbers(vars(leaf), depth - 1)


def _difference(before: Outputs, after: Outputs) -> float:
    """The largest difference, relative to the size of the output and to the square root of its precision."""
    if [value.shape for value in before] != [value.shape for value in after]:
        return math.inf
    return max((_distance(a, b) for a, b in zip(before, after, strict=True)), default=0.0)


def _distance(a: Tensor, b: Tensor) -> float:
    if a.is_sparse or a.is_nested or a.is_quantized or not a.numel():
        return 0.0
    if not (a.is_floating_point() or a.is_complex()):
        return 0.0 if torch.equal(a, b) else math.inf
    precision = math.sqrt(torch.finfo(a.dtype).eps)
    a, b = (torch.view_as_real(t.resolve_conj()) if t.is_complex() else t for t in (a, b))
    a, b = a.double(), b.double()
    finite = a.isfinite()
    if not torch.equal(a[~finite].nan_to_num(), b[~finite].nan_to_num()) or not bool(b[finite].isfinite().all()):
        return math.inf
    if not bool(finite.any()):
        return 0.0
    size = float(a[finite].abs().max()) or 1.0
    return float((a[finite] - b[finite]).abs().max()) / (size * precision)
