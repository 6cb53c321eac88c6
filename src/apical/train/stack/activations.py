"""What k stacked networks share: parameters as one tensor each, their Adam, activations in one call, buffers."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import groupby
from math import inf, prod
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from apical import torch_private
from apical.errors import TrainingError
from apical.kernels import choice, composite, eager, images, neurons
from apical.nn import activations as own_activations
from apical.nn.activations import ADA, RBF, LeakyADA, Shared, Swish
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
    """The same without a graph around all: kinds that have a kernel by it, others each by its own graph.

    With `window`, the max-pooling behind it too. Only the pixel that wins its window of window x window counts from
    there on, so the values that are kept and differentiated are those in front of the activation in these pixels.
    """

    def __init__(self, activation: StackedActivation, window: int = 1) -> None:
        self.activation, self.learned, self.window = activation, activation.learned, window
        self._groups: list[_Kind] = [
            _ByKernel(group) if group.kernel else _ByGraph(group) for group in activation.groups
        ]
        self._buffers = BufferPool()
        self._saved: tuple[Tensor, ...] = ()

    @staticmethod
    def serves(function: object) -> bool:
        """True where a kernel can be called for some trials of this part of a network."""
        if not isinstance(function, StackedActivation) or not any(group.kernel for group in function.groups):
            return False
        return choice.path(torch.empty(1)) == "native"

    def forward(self, z: Tensor, keep: bool) -> Tensor:
        if self.window > 1:
            return self._pool(z, keep)
        self.activation.note(z)
        shape = sum(self.activation.results), *z.shape[1:]
        y = self._buffers("forward", shape, z) if keep else z.new_empty(shape)
        for group, own, to in self._parted(z, y):
            group.forward(own, keep, to)
        self._saved = (z,) if keep else ()
        return y

    def _pool(self, z: Tensor, keep: bool) -> Tensor:
        self.activation.note(z.clone() if self.activation.seen is not None else z)  # its gradient will overwrite z
        high, wide = (size // self.window for size in z.shape[1:3])
        best = self._buffers("best", (len(z), high, wide, z.shape[3]), z)
        shape = sum(self.activation.results), *best.shape[1:]
        winner = self._buffers("winner", shape, _BYTES)
        y = self._buffers("forward", shape, z) if keep else z.new_empty(shape)
        parts = self._parted(z, y), self._parted(best, winner)
        for (group, own, to), (_, own_best, own_winner) in zip(*parts, strict=True):
            group.pool(own, keep, to, own_best, own_winner, self.window)
        self._saved = (z, best, winner) if keep else ()
        return y

    def backward(self, g: Tensor) -> Tensor:
        """The gradient of z: in the place of z behind pooling, of g where that has its size, for less memory."""
        z, *pooled = self._saved
        self._saved, g = (), g.contiguous()
        if pooled:
            parts = self._parted(z, g), self._parted(*pooled)
            for (group, to, own), (_, own_best, own_winner) in zip(*parts, strict=True):
                group.unpool(own, own_best, own_winner, to, self.window)
            return z
        below = g if len(g) == len(z) else self._buffers("backward", z.shape, g)
        for group, to, own in self._parted(below, g):
            group.backward(own, to)
        return below

    def _parted(self, z: Tensor, y: Tensor) -> Iterator[tuple["_Kind", Tensor, Tensor]]:
        """Each group with its channels of z and of y."""
        if len(self._groups) == 1:
            return iter([(self._groups[0], z, y)])
        activation = self.activation
        return zip(self._groups, z.split(activation.values), y.split(activation.results), strict=True)  # type: ignore[no-untyped-call]


_BYTES = torch.empty(0, dtype=torch.uint8)


class _Kind:
    """Trials of one kind: z to y and back, alone or with the pooling behind; `to` is where a result goes."""

    def __init__(self, group: "_Maker") -> None:
        self.learned, self._count, self._outputs = group.learned, group.count, group.outputs
        self._saved: tuple[Tensor, ...] = ()

    def forward(self, z: Tensor, keep: bool, to: Tensor) -> None:
        raise NotImplementedError

    def backward(self, g: Tensor, to: Tensor) -> None:
        raise NotImplementedError

    def pool(self, z: Tensor, keep: bool, to: Tensor, best: Tensor, winner: Tensor, window: int) -> None:
        a = z.new_empty(self._count * self._outputs, *z.shape[1:])
        self.forward(z, False, a)
        self._pooling(z, window).forward(a, z, best, winner)
        self.forward(best, keep, to)

    def unpool(self, g: Tensor, best: Tensor, winner: Tensor, to: Tensor, window: int) -> None:
        """The gradient of z; a kernel needs no more of `best` and overwrites it."""
        below = torch.empty_like(best)  # other kinds' graphs have saved their part of `best`
        self.backward(g, below)
        self._pooling(to, window).backward(below, winner, to)

    def _pooling(self, z: Tensor, window: int) -> images.Pooling:
        return images.Pooling(self._count, len(z) // (self._count * self._outputs), window)


class _ByKernel(_Kind):
    """Trials of one kind that has a kernel."""

    def __init__(self, group: "_Maker") -> None:
        super().__init__(group)
        assert group.kernel is not None
        self.kernel = group.kernel
        self._fixed: dict[torch.Size, neurons.Bound] = {}
        self._bound: neurons.Bound

    def forward(self, z: Tensor, keep: bool, to: Tensor) -> None:
        self._bind(z)
        neurons.forward(z, self._bound, to)
        self._saved = (z,) if keep else ()

    def backward(self, g: Tensor, to: Tensor) -> None:
        (z,), self._saved = self._saved, ()
        with self._gradient(g) as alpha:
            neurons.backward(z, g, self._bound, to, alpha)

    def pool(self, z: Tensor, keep: bool, to: Tensor, best: Tensor, winner: Tensor, window: int) -> None:
        if window == neurons.WINDOW:
            self._bind(z)
            neurons.pool_forward(z, self._bound, to, best, winner)
        else:
            super().pool(z, keep, to, best, winner, window)

    def unpool(self, g: Tensor, best: Tensor, winner: Tensor, to: Tensor, window: int) -> None:
        if window == neurons.WINDOW:
            with self._gradient(g) as alpha:
                neurons.pool_backward(g, self._bound, best, winner, to, alpha)
        else:
            super().unpool(g, best, winner, to, window)

    def _bind(self, z: Tensor) -> None:
        """The kernel's view of alpha and c for values of this shape, made anew where alpha changes."""
        if self.learned or z.shape not in self._fixed:
            kernel, alpha, c = self.kernel
            self._fixed[z.shape] = kernel.bind(z.shape, alpha().detach().contiguous(), c())
        self._bound = self._fixed[z.shape]

    @contextmanager
    def _gradient(self, g: Tensor) -> Iterator[Tensor | None]:
        """Room for the gradient of alpha, which is added to that of what is learned."""
        room = g.new_empty(self._count * self._outputs) if self.learned else None
        yield room
        for stacked in self.learned:
            assert room is not None
            stacked.gradient.add_(room.view(self._count, self._outputs).sum_to_size(stacked.gradient.shape))


class _ByGraph(_Kind):
    """Trials of one kind that has none, by a graph of torch's autograd that lives for one step."""

    def __init__(self, group: "_Maker") -> None:
        super().__init__(group)
        self.function = group.function

    def forward(self, z: Tensor, keep: bool, to: Tensor) -> None:
        leaf = z.detach().requires_grad_(keep)
        with torch.set_grad_enabled(keep):
            y = self.function(leaf)
        self._saved = (leaf, y) if keep else ()
        to.copy_(y.detach())

    def backward(self, g: Tensor, to: Tensor) -> None:
        (leaf, y), self._saved = self._saved, ()
        below, *gradients = torch.autograd.grad(y, [leaf, *(s.model for s in self.learned)], g)
        for stacked, gradient in zip(self.learned, gradients, strict=True):
            stacked.gradient.add_(gradient)
        to.copy_(below)


class _Kernel(NamedTuple):
    """A kernel with one alpha (RBF's s, Swish's beta) and one c for each channel; c is never learned."""

    neurons: neurons.Neurons
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
        """As the descriptors of kinds say: one call for ADA, a function with values, or one module for all."""
        own = [_owner(m) for m in modules]
        self.kernel = self._kernel(own)
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
        leak = _slope(basal[0])
        if isinstance(one, ADA) and leak is not None:
            self.alphas.append(None)
            self.kernel = self._kernel(apical, leak)
            return self._one_call(eager.Pyramidal(one.leak, _floor(one), 0, leak, self.count), apical)
        first, second = self.standard(basal), self.standard(apical)
        self.kernel = None if leak is None else self._kernel(apical, leak)

        def both(z: Tensor) -> Tensor:
            halves = composite.branches(z, self.count, 0)
            return first(halves[0]) + second(halves[1])

        return both

    def _kernel(self, modules: Sequence[nn.Module], basal_leak: float | None = None) -> _Kernel | None:
        """What computes these activations, beside a basal branch where there is one, if a kernel does."""
        one: Any = modules[0]
        leak, function = _slope(one), _FUNCTIONS.get(type(one))
        if function is None or not neurons.serves(self.parameters.all[0].model.dtype):
            return None
        alpha = self._values(modules, one.learned) if leak is None else self._fixed([1.0] * self.count)
        c = self._values(modules, "c") if function == "ada" else self._fixed([0.0] * self.count)
        leaks = getattr(one, "leak", 0.0) if leak is None else leak, _floor(one), basal_leak or 0.0
        return _Kernel(neurons.Neurons(function, self.count, 1 if basal_leak is None else 2, *leaks), alpha, c)

    def _one_call(self, operation: eager.Ada | eager.Pyramidal, modules: Sequence[nn.Module]) -> Function:
        alpha, c = self._values(modules, "alpha"), self._values(modules, "c")
        lowest = operation.floor
        self.alphas.append(lambda: alpha().clamp_min(lowest))
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
        if not isinstance(own[0], nn.Parameter):
            return self._fixed(own)
        learned, shape = self.parameters.stack(own), (self.count, self.outputs)
        learned.model.requires_grad_()
        if not any(each is learned for each in self.learned):
            self.learned.append(learned)
        return lambda: learned.model.expand(shape).reshape(-1)

    def _fixed(self, own: Sequence[float]) -> Callable[[], Tensor]:
        fixed = torch.tensor(own, dtype=self.parameters.all[0].model.dtype)[:, None].repeat(1, self.outputs).reshape(-1)
        return lambda: fixed


_FUNCTIONS = {nn.ReLU: "relu", nn.LeakyReLU: "relu", RBF: "rbf", Swish: "swish", ADA: "ada", LeakyADA: "ada"}
"""What the kernel calls these activations."""


def _slope(activation: Any) -> float | None:
    """The slope below zero of a (leaky) ReLU; None of anything else."""
    if type(activation) is nn.LeakyReLU:
        return activation.negative_slope
    return 0.0 if type(activation) is nn.ReLU else None


def _floor(activation: Any) -> float:
    """What a learned value of an activation is held at from below."""
    learned = getattr(activation, "learned", None) in activation._parameters
    return own_activations.lowest(activation.floor) if learned and hasattr(activation, "floor") else -inf


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
