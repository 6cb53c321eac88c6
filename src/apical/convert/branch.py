"""The apical branch of a neuron whose basal branch stays as the network has it."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from apical.nn.layers import Neuron
from apical.nn.pyramidal import BranchNorm, branch_views, xavier_


class ApicalBranch(Neuron):
    """apical(norm''(w''x + b'')), to be added to the basal activation of the same neuron."""

    @classmethod
    def beside(cls, affine: nn.Module, norm: nn.Module | None, activation: nn.Module) -> "ApicalBranch":
        """A branch on the input of `affine`: layers of the same type and settings with first values of their own."""
        second = _fresh(_without_parametrizations(affine))
        xavier_(second)
        return cls(second, _fresh(norm) if norm is not None else None, activation)

    def called(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """The branch of a call of the layer that has more than an input, such as `output_size`."""
        z = self.affine(*args, **kwargs)
        return self.activation(z if self.norm is None else self.norm(z))  # type: ignore[no-any-return]


Arguments = tuple[tuple[Any, ...], dict[str, Any]]


class Wire:
    """Carries the input of an affine layer to the neuron that its output feeds, within one forward.

    `calls` are the layer's calls that no neuron has taken yet: its arguments, and the output or what a norm made of it.
    They last as long as the outermost of the forwards that hold both layer and neuron; `level` says which one runs.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Arguments, Any]] = []
        self.level: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"calls": [], "level": None}  # values live as long as a forward: copies and pickles start without

    def put(self, arguments: Arguments, output: Any) -> None:
        """The layer was called."""
        if self.level is None:  # nothing will clear the wire; two calls are enough to know that there are several
            self.calls = self.calls[-1:]
        self.calls.append((arguments, output))

    def made(self, value: Tensor) -> bool:
        """Whether a call that no neuron has taken yet made this very tensor."""
        return any(_is_same(value, made) for _, made in self.calls)

    def take(self, value: Tensor) -> Arguments:
        """What the layer was called with to make `value`: in its only call, or the one that made this very tensor."""
        calls = self.calls
        if len(calls) > 1:
            calls = [call for call in calls if _is_same(value, call[1])][-1:]
        if not calls:
            several, self.calls = len(self.calls), []
            raise RuntimeError(_ambiguous(several) if several else MISSED)
        arguments, output = calls[0]
        self.calls = [call for call in self.calls if call[1] is not output]
        return arguments


MISSED = (
    "a pyramidal neuron was called, but not the layer before it: forward took another path than the one that was "
    "converted, or torch.utils.checkpoint runs the two in different segments: leave the neuron out with filter_fn, or "
    "give checkpoint both"
)


def _ambiguous(several: int) -> str:
    return (
        f"a pyramidal neuron was called after {several} calls of the layer before it, and nothing tells which of them "
        "feeds it: call it right after its layer, or leave it out with filter_fn"
    )


def _is_same(value: Tensor, made: Any) -> bool:
    """Whether a value is what a layer made, or a view of it."""
    if value is made or not isinstance(made, Tensor):
        return value is made
    return value._base is not None and value._base is (made if made._base is None else made._base)


class Tap:
    """The hook that puts a call of a layer on a wire."""

    def __init__(self, wire: Wire) -> None:
        self.wire = wire

    def __call__(self, layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        self.wire.put((args, kwargs), output)


class NormTap(Tap):
    """The hook that notes what the norm between layer and neuron makes of a call on the wire."""

    def __call__(self, norm: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        normed = args[0] if args else next(iter(kwargs.values()))
        self.wire.calls = [(given, output if made is normed else made) for given, made in self.wire.calls]


class Begin:
    """The hook that clears wires when the outermost forward begins that holds both their ends.

    Each wire comes with the level of the hooked module, from the outermost, 0, inwards.
    """

    def __init__(self) -> None:
        self.wires: list[tuple[Wire, int]] = []

    def __call__(self, *called: Any) -> None:
        for wire, level in self.wires:
            if wire.level is None or level <= wire.level:
                wire.calls, wire.level = [], level


class End(Begin):
    """The hook that clears them when that forward ends, by an error too."""

    def __call__(self, *called: Any) -> None:  # one tuple, since torch.compile would look at an output of its own
        for wire, level in self.wires:
            if wire.level == level:
                wire.calls, wire.level = [], None


class InputAlone:
    """The hook that gives a module its input alone, by whatever name and with whatever else it is called.

    `others`: it gets the rest as well, for the original that a check puts back.
    """

    others = False

    def __call__(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
        name = "" if args else next(name for name, value in kwargs.items() if isinstance(value, Tensor))
        args = args or (kwargs[name],)
        return (args, {n: v for n, v in kwargs.items() if n != name}) if self.others else (args[:1], {})


class WiredNeuron(nn.Module):
    """basal(z) + apical(norm''(w''x + b'')), in the place of an activation; x comes over a wire from the layer before.

    The forward around it stays as it is, whatever it does between the layer and the activation.
    """

    def __init__(self, basal: nn.Module, apical: nn.Module, wire: Wire) -> None:
        super().__init__()
        self.basal, self.apical, self.wire = basal, apical, wire

    def forward(self, input: Tensor, copied: Tensor | None = None) -> Tensor:
        """`copied`: the value that `input` is a copy of."""
        args, kwargs = self.wire.take(input if copied is None else copied)
        apical: Any = self.apical
        return self.basal(input) + (apical.called(args, kwargs) if kwargs or args[1:] else apical(args[0]))  # type: ignore[no-any-return]


class WiredNeurons(nn.ModuleList):
    """The neurons of one call that runs for several layers in turn, as in a loop: the layer that ran decides."""

    def forward(self, input: Tensor, copied: Tensor | None = None) -> Tensor:
        waiting: list[Any] = [neuron for neuron in self if neuron.wire.calls]  # type: ignore[union-attr]
        value = input if copied is None else copied
        own = waiting if len(waiting) == 1 else [n for n in waiting if n.wire.made(value)]
        if len(own) == 1:
            return own[0](input, copied)  # type: ignore[no-any-return]
        calls = sum(len(neuron.wire.calls) for neuron in waiting)
        for neuron in waiting:
            neuron.wire.calls = []
        raise RuntimeError(_ambiguous(calls) if calls else MISSED)


class InPlace(nn.Module):
    """Writes what its activation computes over the input, as the activation did whose place it takes.

    Whoever reads the input later, under whatever name or through a view, reads the new values. The activation gets a
    copy, since it may need its input again for the gradient.
    """

    def __init__(self, activation: nn.Module) -> None:
        super().__init__()
        self.activation = activation

    def forward(self, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if isinstance(self.activation, (WiredNeuron, WiredNeurons)):
            kwargs["copied"] = input
        return input.copy_(self.activation(input.clone(), *args, **kwargs))


def _without_parametrizations(affine: nn.Module) -> nn.Module:
    """A copy with plain weights: what a parametrisation computes is a start, not a rule, for another branch."""
    computed = {name: value for name, value in vars(affine).items() if isinstance(value, Tensor)}  # by a hook
    copy = deepcopy(affine, {id(value): value.detach().clone() for value in computed.values()})
    for name in computed:  # nn.utils.weight_norm and spectral_norm, the older kind
        parts = [part for part in (*copy._parameters, *copy._buffers) if part.startswith(f"{name}_")]
        weight = nn.Parameter(getattr(copy, name))
        for part in (name, *parts):
            delattr(copy, part)
        copy.register_parameter(name, weight)
    if hasattr(copy, "parametrizations"):  # removing one changes its class, which the original has too
        own = {name: value for name, value in vars(type(copy)).items() if name not in ("__dict__", "__weakref__")}
        copy.__class__ = type(type(copy).__name__, type(copy).__bases__, own)
    for name in list(getattr(copy, "parametrizations", {})):
        parametrize.remove_parametrizations(copy, name)
    for hooks in (copy._forward_hooks, copy._forward_pre_hooks, copy._forward_pre_hooks_with_kwargs):
        hooks.clear()
    return copy


def _fresh(module: nn.Module) -> nn.Module:
    copy = deepcopy(module)
    for part in copy.modules():
        reset: Any = getattr(part, "reset_parameters", lambda: None)
        reset()
    return copy.requires_grad_()


def plain_norm(module: nn.Module) -> nn.Module:
    """A norm alone, from one whose class also applies an activation: torch's class, without children."""
    norm = deepcopy(module)
    norm.__class__ = next(kind for kind in type(module).__mro__ if kind.__module__.startswith("torch.nn.modules."))
    norm._modules.clear()
    return norm


def zero_apical_(neuron: Any) -> None:
    """Start the apical branch at zero: by the norm's gamma and beta where it has them, else by its weights."""
    with torch.no_grad():
        for tensor in _apical_scale(neuron):
            tensor.zero_()


def started_at_zero(affine: nn.Module | None, norm: nn.Module | None) -> nn.Module | None:
    """Of what makes a branch, the part that starts it at zero."""
    return norm if _scale(norm) else affine


def _apical_scale(neuron: Any) -> list[Tensor]:
    if isinstance(neuron, ApicalBranch):
        scaled = _scale(neuron.norm)
        return scaled or _scale(neuron.affine)
    if isinstance(neuron.norm, BranchNorm) and (scaled := _scale(neuron.norm.apical)):
        return scaled
    if neuron.norm is not None and not isinstance(neuron.norm, BranchNorm) and (scaled := _scale(neuron.norm)):
        return [branch_views(tensor, neuron.groups)[1] for tensor in scaled]
    return [tensor for tensor in (neuron.apical_weight, neuron.apical_bias) if tensor is not None]


def _scale(module: nn.Module | None) -> list[Tensor]:
    scales = (getattr(module, "weight", None), getattr(module, "bias", None))
    return [tensor for tensor in scales if isinstance(tensor, Tensor)]
