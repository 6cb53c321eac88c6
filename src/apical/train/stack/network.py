"""One network in place of k networks of the same architecture: every layer holds the weights of all trials.

Values have the layout (k * outputs, samples), images (k * channels, height, width, samples), trial by trial. The first
layers share their input and are one product; later ones are batched products. Convolutions and pooling are kernels of
our own (`apical.kernels.images`): with samples last they fill whole vectors, and dense layers take their result as it
is. Gradients of affine layers and convolutions are computed by hand, into buffers that stay in place; autograd
differentiates what lies between them, and convolutions that the kernels do not serve.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from apical.errors import TrainingError
from apical.kernels import choice, images
from apical.models.coordinates import FourierFeatures
from apical.models.neuron import Sum
from apical.nn.layers import Neuron
from apical.nn.pyramidal import _Pyramidal
from apical.train.stack.activations import BufferPool, Fused, Parameters, Stacked, StackedActivation, kind

Function = Callable[[Tensor], Tensor]
SAMPLES = 64
"""Images that are evaluated at once: with more of them, neighbouring pixels lie too far apart for the caches."""


class StackedNetwork:
    """k networks that differ in nothing but parameters and activations; afterwards, theirs are views of this one's."""

    def __init__(self, networks: Sequence[nn.Module]) -> None:
        self.count = len(networks)
        self.parameters = Parameters()
        self.activations: list[tuple[str, StackedActivation]] = []
        self.parts: list[Part] = []
        self._between: list[Any] = []
        self._kinds = [tuple(kind(a) for _, layer in chain(n) for a in _activations(layer)) for n in networks]
        for same in zip(*map(chain, networks), strict=True):
            name, layers = same[0][0], [layer for _, layer in same]
            self._add(name, layers)
        self._close()
        learned = [s for part in self.parts for s in getattr(part, "learned", ())]
        self._summed = {id(s): s.gradient for s in learned}  # a learned alpha is met in every layer

    def _add(self, name: str, layers: list[Any]) -> None:
        """The stacked form of one layer of every network."""
        one = layers[0]
        if isinstance(one, nn.MaxPool2d):
            self._pool(one)
            return
        if isinstance(one, Sum):
            self._between.append(_Sum(self.count))
            return
        if isinstance(one, FourierFeatures):
            self.parts.append(Encoded(name, layers))
            return
        affine: list[Any] = [layer.affine if isinstance(layer, Neuron) else layer for layer in layers]
        _check(name, one, affine[0])
        if isinstance(affine[0], nn.Linear):
            self._close()
            self.parts.append(self._affine(affine))
        else:
            self._convolve(affine)
        if isinstance(one, Neuron | _Pyramidal):
            outputs = len(affine[0].weight) // (2 if isinstance(one, _Pyramidal) else 1)
            own = [a for layer in layers for a in _activations(layer)]
            activation = StackedActivation(own, self._kinds, self.parameters, outputs=outputs)
            self.activations.append((name, activation))
            self._between.append(activation)

    def _affine(self, layers: list[Any]) -> "First | Affine":
        if all(isinstance(part, Encoded) for part in self.parts):
            return First(layers, self.parameters)
        return Affine(layers, self.parameters, overwrites=isinstance(self.parts[-1], Fused))

    def _convolve(self, layers: list[Any]) -> None:
        first = not self.parameters.all
        if first:
            self.parts.append(SamplesLast())
        if Conv.serves(layers[0]):
            self._close()
            self.parts.append(Conv(layers, self.parameters, first=first))
        else:
            self._between.append(_TorchConv(layers, self.parameters, first=first))

    def _pool(self, layer: nn.MaxPool2d) -> None:
        """Behind an activation of our own convolution, one part with it."""
        activation = self._between[-1] if len(self._between) == 1 else None
        if isinstance(activation, StackedActivation) and isinstance(self.parts[-1], Conv) and _is_plain(layer):
            self.parts.append(Fused(activation, int(layer.kernel_size)))  # type: ignore[arg-type]
            self._between = []
        else:
            self._between.append(_TorchPool(layer))

    def _close(self) -> None:
        """End the graph in front of an affine layer."""
        if self._between:
            one = self._between[0]
            fused = len(self._between) == 1 and Fused.serves(one)
            first = all(isinstance(part, SamplesLast) for part in self.parts)
            self.parts.append(Fused(one) if fused and not first else Graph(self._between, first=first))
            self._between = []

    def forward(self, inputs: Tensor, *, keep: bool = False) -> Tensor:
        """(n, ...) inputs -> (k, outputs, n); with `keep`, `backward` may follow."""
        if not keep and len(inputs) > SAMPLES and isinstance(self.parts[0], SamplesLast):
            return torch.cat([self.forward(some) for some in torch.split(inputs, SAMPLES)], 2)
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
    """w x + b of every trial's later layer: (k * inputs, n), or images, -> (k * outputs, n), a batched product.

    With `overwrites`, the gradient of x takes the place of x, which nobody below needs again.
    """

    def __init__(self, layers: Sequence[Any], parameters: Parameters, *, overwrites: bool) -> None:
        self.overwrites = overwrites
        self.weight, self.bias = _affine(layers, parameters)
        self.count, self.values = self.bias.model.shape
        self._bias, self._transposed = self.bias.model.unsqueeze(2), self.weight.model.transpose(1, 2)
        self._buffers = BufferPool()
        self._input, self._shape = torch.empty(0), torch.Size()

    def forward(self, x: Tensor, keep: bool) -> Tensor:
        self._shape, n = x.shape, x.shape[-1]
        x = x.reshape(self.count, -1, n)
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
        return below.view(self._shape)


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


class Encoded:
    """Random Fourier features in front of the first layers, which share them: (n, inputs) -> (n, 2 features)."""

    def __init__(self, name: str, layers: Sequence[FourierFeatures]) -> None:
        self.encoding = layers[0]
        if not all(torch.equal(layer.frequencies, self.encoding.frequencies) for layer in layers):
            raise TrainingError(f"layer {name!r} cannot be stacked: its frequencies differ from trial to trial")

    def forward(self, inputs: Tensor, keep: bool) -> Tensor:
        with torch.no_grad():
            return self.encoding(inputs.flatten(1))  # type: ignore[no-any-return]

    def backward(self, g: None) -> None:
        """Nobody asks for the gradient of the inputs."""


class SamplesLast:
    """Images as a data set has them, (n, c, h, w) -> (c, h, w, n)."""

    def forward(self, inputs: Tensor, keep: bool) -> Tensor:
        return inputs.permute(1, 2, 3, 0).contiguous()

    def backward(self, g: None) -> None:
        """Nobody asks for the gradient of the inputs."""


class Conv:
    """The convolutions of every trial: shared (c, h, w, n) inputs at first, (k * c, h, w, n) later."""

    def __init__(self, layers: Sequence[Any], parameters: Parameters, *, first: bool) -> None:
        self.weight, self.bias = _affine(layers, parameters)
        networks, outputs, inputs, rows, columns = self.weight.model.shape
        self.convolution = images.Convolution(networks, inputs, outputs, rows, columns, shared=first)
        self._buffers = BufferPool()
        self._input = torch.empty(0)

    @staticmethod
    def serves(layer: nn.Conv2d) -> bool:
        """True where the kernels compute such a convolution."""
        plain = (layer.stride, layer.padding, layer.dilation) == ((1, 1), (0, 0), (1, 1))
        return plain and choice.path(torch.empty(1)) == "native" and images.serves()

    def forward(self, x: Tensor, keep: bool) -> Tensor:
        self._input = x = x.contiguous()
        out = self._buffers("forward", self.convolution.shape(x), x)
        return self.convolution.forward(x, self.weight.model, self.bias.model, out)

    def backward(self, g: Tensor) -> Tensor | None:
        x, g = self._input, g.contiguous()
        self.convolution.weight_gradients(g, x, self.weight.gradient, self.bias.gradient)
        if self.convolution.shared:
            return None
        return self.convolution.input_gradient(g, self.weight.model, self._buffers("backward", x.shape, x))


def _is_plain(layer: nn.MaxPool2d) -> bool:
    """True where the kernels compute such a pooling: square windows side by side."""
    plain = (layer.padding, layer.dilation, layer.ceil_mode, layer.stride) == (0, 1, False, layer.kernel_size)
    return plain and isinstance(layer.kernel_size, int) and layer.kernel_size <= 16


class _TorchConv:
    """The convolutions of every trial where `Conv` does not serve; in memory, the channels of all stand last."""

    def __init__(self, layers: Sequence[Any], parameters: Parameters, *, first: bool) -> None:
        self.groups = 1 if first else len(layers)
        self.options = {"stride": layers[0].stride, "padding": layers[0].padding, "dilation": layers[0].dilation}
        self.learned = list(_affine(layers, parameters))
        for stacked in self.learned:
            stacked.model.requires_grad_()

    def __call__(self, x: Tensor) -> Tensor:
        weight, bias = (s.model.flatten(0, 1) for s in self.learned)
        x = x.permute(3, 0, 1, 2).contiguous(memory_format=torch.channels_last)
        weight = weight.contiguous(memory_format=torch.channels_last)
        return functional.conv2d(x, weight, bias, groups=self.groups, **self.options).permute(1, 2, 3, 0)


class _TorchPool:
    """Max-pooling where the kernels do not serve."""

    def __init__(self, layer: nn.MaxPool2d) -> None:
        self.options = layer.kernel_size, layer.stride, layer.padding, layer.dilation, layer.ceil_mode

    def __call__(self, x: Tensor) -> Tensor:
        return functional.max_pool2d(x.permute(3, 0, 1, 2), *self.options).permute(1, 2, 3, 0)


class _Sum:
    """(k * width, n) -> (k, n): the neurons of each trial, added."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __call__(self, x: Tensor) -> Tensor:
        return x.unflatten(0, (self.count, -1)).sum(1)  # type: ignore[no-untyped-call, no-any-return]


Part = Encoded | First | Affine | Fused | Graph | SamplesLast | Conv
