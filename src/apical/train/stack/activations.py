"""What k stacked networks share: parameters as one tensor each, their Adam, activations in one call, buffers."""

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from apical import torch_private
from apical.errors import TrainingError
from apical.kernels import choice, composite, eager
from apical.nn import activations as own_activations
from apical.nn.activations import ADA, Shared
from apical.nn.pyramidal import _Pyramidal
from apical.train.spec import TrialSpec

_KERNELS: dict[str, Any] = {"adam": torch_private.fused_adam, "adamw": torch_private.fused_adamw}
BETAS, EPSILON = (0.9, 0.999), 1e-8  # torch's defaults, which a trial alone has too
PARTS = ("model", "best", "first", "second")


class Stacked(NamedTuple):
    """One parameter of k trials: values, gradient, both moments of Adam, and the values of each trial's best epoch."""

    model: Tensor
    gradient: Tensor
    first: Tensor
    second: Tensor
    best: Tensor


class Parameters:
    """Stacks what the networks have in the same place: (k, *shape); each network's own becomes a view of its row."""

    def __init__(self) -> None:
        self.all: list[Stacked] = []
        self._known: dict[tuple[int, ...], Stacked] = {}
        self._places: dict[int, tuple[Stacked, int]] = {}

    def stack(self, own: Sequence[nn.Parameter]) -> Stacked:
        """The stacked parameter of these; the same one for the same parameters, which a shared alpha is."""
        key = tuple(map(id, own))
        if key not in self._known:
            assert not any(i in self._places for i in key), "a parameter belongs to one stacked tensor"
            values = torch.stack([p.detach() for p in own])
            gradient, first, second = (torch.zeros_like(values) for _ in range(3))
            made = Stacked(values, gradient, first, second, best=values.clone())
            for row, p in enumerate(own):
                p.requires_grad_(False)
                p.data, p.grad = made.model[row], made.gradient[row]
                self._places[id(p)] = made, row
            self._known[key] = made
            self.all.append(made)
        return self._known[key]

    def place(self, parameter: nn.Parameter) -> tuple[Stacked, int]:
        """The stacked parameter and the row in which a network's own lies."""
        return self._places[id(parameter)]

    def best_of(self, network: nn.Module) -> dict[str, Tensor]:
        """The weights of one network's best epoch, by name."""
        places = {name: self._places[id(p)] for name, p in network.named_parameters()}
        return {name: stacked.best[row].clone() for name, (stacked, row) in places.items()}

    def rows_of(self, network: nn.Module) -> list[tuple[Stacked, int]]:
        """Where the parameters of one network lie."""
        return [self._places[id(p)] for p in network.parameters()]

    def remember(self, network: nn.Module) -> None:
        """The present weights of this network are its best."""
        for stacked, row in self.rows_of(network):
            stacked.best[row] = stacked.model[row]

    def park(self, network: nn.Module) -> None:
        """Make everything of one network zero: without a gradient it stays so, finite and out of the others' way."""
        for stacked, row in self.rows_of(network):
            for tensor in (stacked.model, stacked.gradient, stacked.first, stacked.second):
                tensor.detach()[row] = 0.0

    def tensors(self) -> dict[str, Tensor]:
        """All that a checkpoint holds, by part and number."""
        return {f"{part}:{i}": getattr(s, part).detach() for i, s in enumerate(self.all) for part in PARTS}


class StackedAdam:
    """One fused step for all trials of a stack; where learning rates differ, one for each rate."""

    def __init__(self, specs: Sequence[TrialSpec], networks: Sequence[nn.Module], parameters: Parameters) -> None:
        self.kernel = _KERNELS[specs[0].optimiser]
        self.steps = torch.zeros(())
        together = len({spec.learning_rate for spec in specs}) == 1
        rows: list[_Row] = [(specs[0], s, None) for s in parameters.all]
        if not together:
            rows = [(spec, *place) for spec, n in zip(specs, networks, strict=True) for place in parameters.rows_of(n)]
        rows.sort(key=_alike)
        groups = (list(alike) for _, alike in groupby(rows, _alike))
        self._groups = [_Group(group[0][0], _lists(group), _alike(group[0])[1]) for group in groups]

    def step(self, epoch: int) -> None:
        """One step of every trial, with the learning rate of the epoch."""
        self.steps.add_(_ONE)
        for spec, (model, gradient, first, second), decay in self._groups:
            self.kernel(
                model, gradient, first, second, [], [self.steps] * len(model), lr=spec.rate(epoch), beta1=BETAS[0],
                beta2=BETAS[1], weight_decay=decay, eps=EPSILON, amsgrad=False, maximize=False,
            )  # fmt: skip


_ONE = torch.ones(())  # a number would be made a tensor first
_Row = tuple[TrialSpec, Stacked, int | None]


def _alike(row: _Row) -> tuple[float, float]:
    """The learning rate and the L2 penalty, which is for weights alone: rows that agree in both share a call."""
    spec, stacked, _ = row
    return spec.learning_rate, spec.l2 if stacked.model.dim() > 2 else 0.0


class _Group(NamedTuple):
    spec: TrialSpec
    lists: tuple[list[Tensor], ...]
    decay: float


def _lists(rows: Sequence[_Row]) -> tuple[list[Tensor], ...]:
    """Values, gradients and both moments of whole parameters, or of one trial's rows of them."""
    names = ("model", "gradient", "first", "second")
    own = [[getattr(s, name).detach() for name in names] for _, s, _ in rows]
    picked = [[t if row is None else t[row] for t in four] for four, (_, _, row) in zip(own, rows, strict=True)]
    return tuple(list(column) for column in zip(*picked, strict=True))


# The activations of one layer of k stacked networks: trials of one kind in one call.
#
# Channels stand first, trial by trial: (k * outputs, samples) after affine layers, (k * outputs, height, width,
# samples) after convolutions. Alpha, c and beta are one value for each channel.

Function = Callable[[Tensor], Tensor]


class StackedActivation:
    """`layers[i]` says what trial i has behind its affine part: an activation, or a pyramidal layer with two.

    Neighbours of the same `kinds[i]` (what `kind` says of all activations of a network) share a call.
    While `seen` is a list, the inputs of every call are added to it.
    """

    def __init__(
        self, layers: Sequence[nn.Module], kinds: Sequence[object], parameters: Parameters, *, outputs: int
    ) -> None:
        self.count = len(layers)
        self.learned: list[Stacked] = []
        self.pyramidal = isinstance(layers[0], _Pyramidal)
        self.seen: list[Tensor] | None = None
        self.groups: list[_Maker] = []
        for _, same in groupby(zip(kinds, layers, strict=True), lambda pair: pair[0]):
            group = [layer for _, layer in same]
            maker = _Maker(parameters, len(group), outputs)
            maker.function = maker.pyramidal(group) if self.pyramidal else maker.standard(group)
            self.groups.append(maker)
            self.learned += maker.learned
        self.results = [group.count * outputs for group in self.groups]
        """The channels that each group makes; pyramidal layers take twice as many."""
        self.values = [(1 + self.pyramidal) * count for count in self.results]

    def note(self, z: Tensor) -> None:
        """Note the input of a call, while somebody watches."""
        if self.seen is not None:
            self.seen.append(z.detach())

    def __call__(self, z: Tensor) -> Tensor:
        self.note(z)
        if len(self.groups) == 1:
            return self.groups[0].function(z)
        return torch.cat([group.function(part) for group, part in self.parts(z)])

    def parts(self, z: Tensor) -> Iterator[tuple["_Maker", Tensor]]:
        """The groups of trials of one kind, each with its channels."""
        yield from zip(self.groups, torch.split(z, self.values), strict=True)


class Fused:
    """The same where some kinds have kernels: these without a graph around them, others each by its own graph."""

    def __init__(self, activation: StackedActivation) -> None:
        self.activation, self.learned = activation, activation.learned
        self._groups = [_ByKernel(group) if group.kernel else _ByGraph(group) for group in activation.groups]
        self._buffers = BufferPool()
        self._shape = torch.Size()

    @staticmethod
    def serves(function: object) -> bool:
        """True where a kernel can be called for some trials of this part of a network."""
        if not isinstance(function, StackedActivation) or not any(group.kernel for group in function.groups):
            return False
        return choice.path(torch.empty(1)) == "native"

    def forward(self, z: Tensor, keep: bool) -> Tensor:
        self.activation.note(z)
        self._shape, shape = z.shape, (sum(self.activation.results), *z.shape[1:])
        out = self._buffers("forward", shape, z) if keep else z.new_empty(shape)
        for group, own, to in self._parted(z, out):
            group.forward(own, keep, to)
        return out

    def backward(self, g: Tensor) -> Tensor:
        """The gradient of z, in the place of g where it has its size: less memory, fewer misses of the cache."""
        below = g if len(g) == self._shape[0] else self._buffers("backward", self._shape, g)
        for group, to, own in self._parted(below, g):
            group.backward(own, to)
        return below

    def _parted(self, z: Tensor, y: Tensor) -> Iterator[tuple["_ByKernel | _ByGraph", Tensor, Tensor]]:
        """Each group with its channels of z and of y."""
        if len(self._groups) == 1:
            return iter([(self._groups[0], z, y)])
        activation = self.activation
        return zip(self._groups, z.split(activation.values), y.split(activation.results), strict=True)  # type: ignore[no-untyped-call]


class _ByKernel:
    """Trials of one kind that has a kernel."""

    def __init__(self, group: "_Maker") -> None:
        assert group.kernel is not None
        self.kernel, self.learned, self._shape = group.kernel, group.learned, (group.count, group.outputs)
        self._bound: dict[int, Any] = {}
        self._saved: tuple[Tensor, Any] | None = None

    def forward(self, z: Tensor, keep: bool, to: Tensor) -> None:
        bound = self._bind(z)
        if keep:
            self._saved = z, bound
        self.kernel.operation.forward(z, bound, to)

    def backward(self, g: Tensor, to: Tensor) -> None:
        saved, self._saved = self._saved, None
        assert saved is not None
        z, bound = saved
        _, alpha, _ = self.kernel.operation.backward(z, g, bound, (bool(self.learned), False), to)
        for stacked in self.learned:
            assert alpha is not None
            stacked.gradient.add_(alpha.view(self._shape).sum_to_size(stacked.gradient.shape))

    def _bind(self, z: Tensor) -> Any:
        """The kernel's view of alpha and c for values of this shape, made anew where alpha changes."""
        inner = prod(z.shape[1:])
        if self.learned or inner not in self._bound:
            self._bound[inner] = self.kernel.operation.bind(z, self.kernel.alpha(), self.kernel.c())
        return self._bound[inner]


class _ByGraph:
    """Trials of one kind that has none, by a graph of torch's autograd that lives for one step."""

    def __init__(self, group: "_Maker") -> None:
        self.function, self.learned = group.function, group.learned
        self._saved: tuple[Tensor, Tensor] | None = None

    def forward(self, z: Tensor, keep: bool, to: Tensor) -> None:
        leaf = z.detach().requires_grad_(keep)
        with torch.set_grad_enabled(keep):
            y = self.function(leaf)
        if keep:
            self._saved = leaf, y
        to.copy_(y.detach())

    def backward(self, g: Tensor, to: Tensor) -> None:
        saved, self._saved = self._saved, None
        assert saved is not None
        leaf, y = saved
        below, *gradients = torch.autograd.grad(y, [leaf, *(s.model for s in self.learned)], g)
        for stacked, gradient in zip(self.learned, gradients, strict=True):
            stacked.gradient.add_(gradient)
        to.copy_(below)


class _Kernel(NamedTuple):
    """A call of a kernel with one alpha and one c for each channel; c is never learned."""

    operation: eager.Operation
    alpha: Callable[[], Tensor]
    c: Callable[[], Tensor]


class _Maker:
    """Makes the function of `count` neighbouring trials whose activations are of one kind."""

    def __init__(self, parameters: Parameters, count: int, outputs: int) -> None:
        self.parameters, self.count, self.outputs = parameters, count, outputs
        self.learned: list[Stacked] = []
        self.function: Function
        self.alphas: list[Callable[[], Tensor] | None] = []
        """Of each branch one alpha for each channel, where its kind is ADA's."""
        self.kernel: _Kernel | None = None
        """What the function calls, where it is nothing but one call."""

    def standard(self, modules: Sequence[nn.Module]) -> Function:
        """As the descriptors of kinds say: the fused kernel, a function with values, or one module for all."""
        own = [_owner(m) for m in modules]
        one: Any = own[0]
        if isinstance(one, ADA):
            return self._one_call(eager.Ada(one.leak, _floor(one), dim=0), own)
        self.alphas.append(None)
        if isinstance(one, own_activations.Activation):
            values = {name: self._shared_or_each(own, name) for name in settings(one)}
            return lambda x: one.compute(x, 0, **{name: value() for name, value in values.items()})
        if any(True for _ in one.parameters()):
            raise TrainingError(
                f"{type(one).__name__} learns parameters that a stack cannot tell apart: derive it from "
                "apical.nn.activations.Activation with a `compute`, or register its unit without stack=True"
            )
        return one  # type: ignore[no-any-return]

    def pyramidal(self, layers: Sequence[Any]) -> Function:
        basal, apical = [layer.basal for layer in layers], [_owner(layer.apical) for layer in layers]
        one: Any = apical[0]
        if isinstance(one, ADA) and type(basal[0]) in (nn.ReLU, nn.LeakyReLU):
            self.alphas.append(None)
            leak = getattr(basal[0], "negative_slope", 0.0)
            return self._one_call(eager.Pyramidal(one.leak, _floor(one), 0, leak, self.count), apical)
        first, second = self.standard(basal), self.standard(apical)
        self.kernel = None  # two calls

        def both(z: Tensor) -> Tensor:
            halves = composite.branches(z, self.count, 0)
            return first(halves[0]) + second(halves[1])

        return both

    def _one_call(self, operation: eager.Ada | eager.Pyramidal, modules: Sequence[nn.Module]) -> Function:
        alpha, c = self._values(modules, "alpha"), self._values(modules, "c")
        lowest = operation.floor
        self.alphas.append(lambda: alpha().clamp_min(lowest))
        self.kernel = _Kernel(operation, alpha, c)
        return lambda z: eager.run(operation, z, alpha(), c())

    def _shared_or_each(self, modules: Sequence[nn.Module], name: str) -> Callable[[], Any]:
        """The number or word that all trials have, or one value for each channel."""
        own: list[Any] = [getattr(m, name) for m in modules]
        if isinstance(own[0], nn.Parameter) or len(set(own)) > 1:
            return self._values(modules, name)
        return lambda: own[0]

    def _values(self, modules: Sequence[nn.Module], name: str) -> Callable[[], Tensor]:
        """One value for each channel: fixed, or spread from what each trial learns."""
        own: list[Any] = [getattr(m, name) for m in modules]
        shape = self.count, self.outputs
        if not isinstance(own[0], nn.Parameter):
            fixed = torch.tensor(own, dtype=self.parameters.all[0].model.dtype)[:, None].expand(shape).reshape(-1)
            return lambda: fixed
        learned = self.parameters.stack(own)
        learned.model.requires_grad_()
        self.learned.append(learned)
        return lambda: learned.model.expand(shape).reshape(-1)


def _floor(activation: ADA) -> float:
    return activation.lowest if activation.learned in activation._parameters else 0.0


def _owner(module: nn.Module) -> nn.Module:
    return module.owner if isinstance(module, Shared) else module


def settings(activation: own_activations.Activation) -> tuple[str, ...]:
    """The names of the values that its `compute` takes."""
    return tuple(name for name in activation._settings if name not in ("learnable", "num_parameters", "dim"))


def kind(layer: Any) -> tuple[object, ...]:
    """What the activations of two trials must agree in to share a call."""
    if isinstance(layer, _Pyramidal):
        return kind(layer.basal), kind(layer.apical)
    own: Any = _owner(layer)
    learned = tuple((name, p.shape) for name, p in own.named_parameters())
    if isinstance(own, ADA):
        return type(own), own.leak, own.lowest, own is layer, learned
    if isinstance(own, own_activations.Activation):
        words = tuple(v for v in own._settings.values() if isinstance(v, str))
        return type(own), getattr(own, "function", None), words, own is layer, learned
    return tuple((type(m), _plain(m)) for m in own.modules())


def _plain(module: nn.Module) -> tuple[object, ...]:
    """The state of a module without parameters, for comparison."""
    public = tuple((name, repr(value)) for name, value in vars(module).items() if not name.startswith("_"))
    return public, tuple((name, tuple(b.flatten().tolist())) for name, b in module.named_buffers(recurse=False))


# Memory that one step after the other uses.
#
# What a step of a stack computes is large, and the system clears such memory each time it hands it out, which takes as
# long as filling it.


class BufferPool:
    """Tensors by name. Those of one name share their memory, whatever their shapes."""

    def __init__(self) -> None:
        self._memory: dict[str, Tensor] = {}
        self._views: dict[tuple[str, tuple[int, ...]], Tensor] = {}

    def __call__(self, name: str, shape: tuple[int, ...], like: Tensor) -> Tensor:
        """A tensor of this shape and of the dtype of `like`, which holds whatever was written there last."""
        view = self._views.get((name, shape))
        if view is None:
            view = self._views[name, shape] = self._memory_of(name, prod(shape), like.dtype).view(shape)
        return view

    def _memory_of(self, name: str, size: int, dtype: torch.dtype) -> Tensor:
        if name not in self._memory or len(self._memory[name]) < size:
            self._memory[name] = torch.empty(size, dtype=dtype)
            self._views = {key: view for key, view in self._views.items() if key[0] != name}
        return self._memory[name][:size]
