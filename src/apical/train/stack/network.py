"""One network in place of k networks of the same architecture: every layer holds the weights of all trials.

The first layers share their input and are one product; later ones are batched products and grouped convolutions.
Gradients of affine layers are computed by hand, into buffers that stay in place; autograd differentiates what lies
between two affine layers. Dense values have the layout (k * outputs, samples), trial by trial.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from apical.errors import TrainingError
from apical.nn.layers import Neuron
from apical.nn.pyramidal import _Pyramidal
from apical.train.stack.activations import BufferPool, Fused, Parameters, Stacked, StackedActivation, kind

Function = Callable[[Tensor], Tensor]


class StackedNetwork:
    """k networks that differ in nothing but parameters and activations; afterwards, theirs are views of this one's."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self.count = len(networks)
        self.parameters = Parameters()
        self.activations: list[tuple[str, StackedActivation]] = []
        self.parts: list[First | Affine | Fused | Graph] = []
        self._between: list[Any] = []
        self._kinds = [tuple(kind(a) for _, layer in chain(n) for a in _activations(layer)) for n in networks]
        for same in zip(*map(chain, networks), strict=True):
            name, layers = same[0][0], [layer for _, layer in same]
            self._add(name, layers)
        self._close()
        learned = [s for part in self.parts if isinstance(part, Fused | Graph) for s in part.learned]
        self._summed = {id(s): s.gradient for s in learned}  # a learned alpha is met in every layer

    def _add(self, name: str, layers: list[Any]) -> None:
        """The stacked form of one layer of every network."""
        one = layers[0]
        if isinstance(one, nn.MaxPool2d):
            self._between.append(_Pool(one))
            return
        affine: list[Any] = [layer.affine if isinstance(layer, Neuron) else layer for layer in layers]
        _check(name, one, affine[0])
        if isinstance(affine[0], nn.Linear):
            if self._between and getattr(self._between[-1], "dim", 1) == 1:  # images
                self._between.append(_Flatten(self.count))
            self._close()
            self.parts.append(self._affine(affine))
        else:
            self._between.append(_Conv(affine, self.parameters, first=not self.parameters.all))
        if isinstance(one, Neuron | _Pyramidal):
            outputs = len(affine[0].weight) // (2 if isinstance(one, _Pyramidal) else 1)
            dim = 0 if isinstance(affine[0], nn.Linear) else 1
            own = [a for layer in layers for a in _activations(layer)]
            activation = StackedActivation(own, self._kinds, self.parameters, outputs=outputs, dim=dim)
            self.activations.append((name, activation))
            self._between.append(activation)

    def _affine(self, layers: list[Any]) -> "First | Affine":
        if not self.parts:
            return First(layers, self.parameters)
        return Affine(layers, self.parameters, overwrites=isinstance(self.parts[-1], Fused))

    def _close(self) -> None:
        """End the graph in front of an affine layer."""
        if self._between:
            one = self._between[0]
            fused = len(self._between) == 1 and self.parts and Fused.serves(one)
            self.parts.append(Fused(one) if fused else Graph(self._between, first=not self.parts))
            self._between = []

    def forward(self, inputs: Tensor, *, keep: bool = False) -> Tensor:
        """(n, ...) inputs -> (k, outputs, n); with `keep`, `backward` may follow."""
        x = inputs
        for part in self.parts:
            x = part.forward(x, keep)
        return x.view(self.count, -1, x.shape[-1])

    def backward(self, gradient: Tensor) -> None:
        """Fill the gradients of all parameters from that of the outputs."""
        for summed in self._summed.values():
            summed.zero_()
        g: Any = gradient.reshape(-1, gradient.shape[-1])
        for part in reversed(self.parts):
            g = part.backward(g)


def chain(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The layers of a network that is nothing but one after the other, with their names."""
    for name, child in network.named_children():
        if isinstance(child, nn.Sequential):
            yield from ((f"{name}.{inner}", layer) for inner, layer in chain(child))
        else:
            yield name, child


def _check(name: str, layer: Any, affine: Any) -> None:
    """Refuse a layer that is computed in another way than stacks compute it."""
    plain = isinstance(affine, nn.Linear) or (
        isinstance(affine, nn.Conv2d) and affine.groups == 1 and affine.padding_mode == "zeros"
    )
    extra = getattr(layer, "norm", None) is not None or getattr(layer, "apical_affine", None) is not None
    if not plain or extra or affine.bias is None:
        raise TrainingError(
            f"layer {name!r} cannot be stacked ({type(layer).__name__}): a network registered with stacks=True has "
            "linear layers and convolutions with biases, neurons without norms, nn.MaxPool2d, and nothing else"
        )


def _activations(layer: nn.Module) -> list[nn.Module]:
    """What stands for the activation of a neuron; nothing of other layers."""
    if isinstance(layer, _Pyramidal):
        return [layer]
    return [layer.activation] if isinstance(layer, Neuron) else []


class First:
    """w x + b of every trial's first layer: the shared (n, ...) inputs -> (k * outputs, n), one product."""

    def __init__(self, layers: Sequence[Any], parameters: Parameters) -> None:
        weight, bias = _affine(layers, parameters)
        self._weight, self._bias = weight.model.flatten(0, 1), bias.model.view(-1, 1)
        self._gradients = weight.gradient.flatten(0, 1), bias.gradient.view(-1)
        self._buffers = BufferPool()
        self._input: Tensor | None = None

    def forward(self, inputs: Tensor, keep: bool) -> Tensor:
        x = inputs.flatten(1)
        if keep:
            self._input = x
        out = self._buffers("forward", (len(self._weight), len(x)), x) if keep else None
        return torch.addmm(self._bias, self._weight, x.t(), out=out)

    def backward(self, g: Tensor) -> None:
        assert self._input is not None
        weight, bias = self._gradients
        torch.mm(g, self._input, out=weight)
        torch.sum(g, 1, out=bias)


class Affine:
    """w x + b of every trial's later layer: (k * inputs, n) -> (k * outputs, n), a batched product.

    With `overwrites`, the gradient of x takes the place of x, which nobody below needs again.
    """

    def __init__(self, layers: Sequence[Any], parameters: Parameters, *, overwrites: bool) -> None:
        self.overwrites = overwrites
        self.weight, self.bias = _affine(layers, parameters)
        self.count, self.values = self.bias.model.shape
        self._bias, self._transposed = self.bias.model.unsqueeze(2), self.weight.model.transpose(1, 2)
        self._buffers = BufferPool()
        self._input = torch.empty(0)

    def forward(self, x: Tensor, keep: bool) -> Tensor:
        n = x.shape[1]
        x = x.view(self.count, -1, n)
        if not keep:
            return torch.baddbmm(self._bias, self.weight.model, x).flatten(0, 1)
        self._input = x
        torch.baddbmm(self._bias, self.weight.model, x, out=self._buffers("forward", (self.count, self.values, n), x))
        return self._buffers("forward", (self.count * self.values, n), x)

    def backward(self, g: Tensor) -> Tensor:
        x, n = self._input, g.shape[1]
        g = g.view(self.count, self.values, n)
        torch.bmm(g, x.transpose(1, 2), out=self.weight.gradient)
        torch.sum(g, 2, out=self.bias.gradient)
        below = torch.bmm(self._transposed, g, out=x if self.overwrites else self._buffers("backward", x.shape, x))
        return below.view(-1, n)


def _affine(layers: Sequence[Any], parameters: Parameters) -> tuple[Stacked, Stacked]:
    return parameters.stack([layer.weight for layer in layers]), parameters.stack([layer.bias for layer in layers])


class Graph:
    """What lies between two affine layers, as one graph of torch's autograd that lives for one step."""

    def __init__(self, functions: Sequence[Any], *, first: bool) -> None:
        self.functions, self.first = list(functions), first
        distinct = {id(s): s for f in functions for s in getattr(f, "learned", ())}
        self.learned: list[Stacked] = list(distinct.values())
        self._saved: tuple[Tensor, Tensor] | None = None

    def forward(self, x: Tensor, keep: bool) -> Tensor:
        leaf = x.detach().requires_grad_(keep and not self.first)
        with torch.set_grad_enabled(keep):
            y = self._run(leaf)
        if keep:
            self._saved = leaf, y
        return y.detach()

    def _run(self, x: Tensor) -> Tensor:
        for function in self.functions:
            x = function(x)
        return x

    def backward(self, g: Tensor | None) -> Tensor | None:
        saved, self._saved = self._saved, None
        assert saved is not None
        leaf, y = saved
        wanted = [*([] if self.first else [leaf]), *(s.model for s in self.learned)]
        gradients = list(torch.autograd.grad(y, wanted, g))
        below = None if self.first else gradients.pop(0)
        for stacked, gradient in zip(self.learned, gradients, strict=True):
            stacked.gradient.add_(gradient)
        return below


class _Conv:
    """The convolutions of every trial: shared (n, c, ...) inputs at first, (n, k * c, ...) in k groups later.

    Channels stand last in memory: with the channels of k trials side by side, convolutions and pooling fill whole
    vectors.
    """

    def __init__(self, layers: Sequence[Any], parameters: Parameters, *, first: bool) -> None:
        self.groups = 1 if first else len(layers)
        self.options = {"stride": layers[0].stride, "padding": layers[0].padding, "dilation": layers[0].dilation}
        self.learned = [parameters.stack([getattr(layer, name) for layer in layers]) for name in ("weight", "bias")]
        for stacked in self.learned:
            stacked.model.requires_grad_()

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = (s.model.flatten(0, 1) for s in self.learned)
        x = x.contiguous(memory_format=torch.channels_last)
        weight = weight.contiguous(memory_format=torch.channels_last)
        return functional.conv2d(x, weight, bias, groups=self.groups, **self.options)


class _Pool:
    """Max-pooling, the same for all trials."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        self.options = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode

    def __call__(self, x: Tensor) -> Tensor:
        return functional.max_pool2d(x, *self.options)


class _Flatten:
    """(n, k * c, h, w) -> (k * c * h * w, n), what the dense layers of each trial see."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), self.count, -1).permute(1, 2, 0).reshape(-1, len(x))
