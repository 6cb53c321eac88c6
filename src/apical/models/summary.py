"""A network as a table: its layers in the order they run, their shapes, parameters and multiply-adds."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from apical import notation
from apical.errors import InvalidArgumentError
from apical.nn import Neuron, PyramidalConv1d, PyramidalConv2d, PyramidalConv3d, PyramidalLinear

_NEURONS = (Neuron, PyramidalLinear, PyramidalConv1d, PyramidalConv2d, PyramidalConv3d)


@dataclass
class LayerSummary:
    """One call of a layer: the shape is without the batch, shared parameters count where they come first."""

    name: str
    layer: str
    shape: tuple[int, ...]
    parameters: int
    multiply_adds: int = 0


@dataclass
class Summary:
    """The layers and the totals; printing it shows the table."""

    input_size: tuple[int, ...]
    rows: list[LayerSummary] = field(default_factory=list)
    parameters: int = 0
    multiply_adds: int = 0

    def __str__(self) -> str:
        lines = [HEAD, *self._lines()]
        widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
        return "\n".join(_line(line, widths) for line in lines)

    def _repr_html_(self) -> str:
        """For notebooks: the same table."""
        return notation.html_table(HEAD, self._lines())

    def _lines(self) -> list[tuple[str, ...]]:
        cells = [_cells(row.name, row.layer, row.shape, row.parameters, row.multiply_adds) for row in self.rows]
        total = _cells("total", "", self.input_size, self.parameters, self.multiply_adds)
        return [_cells("input", "", self.input_size, 0, 0), *cells, (*total[:2], "", *total[3:])]


HEAD = ("name", "layer", "output", "parameters", "multiply-adds")


def _cells(name: str, layer: str, shape: tuple[int, ...], *numbers: int) -> tuple[str, ...]:
    return (name, layer, " x ".join(map(str, shape)), *(f"{n:,}" if n else "" for n in numbers))


def _line(cells: Sequence[str], widths: list[int]) -> str:
    """Names to the left, numbers to the right."""
    padded = [c.ljust(w) if i < 3 else c.rjust(w) for i, (c, w) in enumerate(zip(cells, widths, strict=True))]
    return "  ".join(padded).rstrip()


def summary(
    model: nn.Module, *, input_size: Sequence[int] | None = None, input_dtype: torch.dtype | None = None
) -> Summary:
    """Run one input of `input_size` (without the batch) through the model and describe its layers.

    Networks of `apical.models` know their own input. Multiply-adds are those of the products and convolutions of
    layers: one for each use of a weight. Norms, activations, pools and products between activations are not counted.
    """
    size = input_size if input_size is not None else getattr(model, "input_size", None)
    if size is None:
        raise InvalidArgumentError(
            f"{type(model).__name__} does not declare its input size: call summary(model, input_size=(3, 224, 224)) "
            "with the shape of one input, without the batch"
        )
    dtype = input_dtype or getattr(model, "input_dtype", None) or _dtype(model)
    result = Summary(tuple(size), parameters=sum(p.numel() for p in model.parameters()))
    parameter = next(model.parameters(), None)
    x = torch.zeros(1, *size, dtype=dtype, device=parameter.device if parameter is not None else None)
    with _recording(model, result), torch.no_grad():
        model(x)
    result.multiply_adds = sum(row.multiply_adds for row in result.rows)
    return result


def _dtype(model: nn.Module) -> torch.dtype:
    floating = (p.dtype for p in model.parameters() if p.is_floating_point())
    return next(floating, torch.get_default_dtype())


@contextmanager
def _recording(model: nn.Module, result: Summary) -> Iterator[None]:
    """Evaluation mode with hooks that fill the rows; both are taken back."""
    training = [module for module in model.modules() if module.training]
    recorder = _Recorder(result)
    hooks = [hook for name, module in _listed(model) for hook in recorder.watch(name, module)]
    model.eval()
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
        for module in training:
            module.training = True


def _listed(module: nn.Module, name: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The modules that have a row: neurons, what has no children, what has parameters of its own."""
    neuron = isinstance(module, _NEURONS)
    children = [] if neuron else list(module.named_children())
    if not children or next(module.parameters(recurse=False), None) is not None:
        yield name or type(module).__name__, module
    for key, child in children:
        yield from _listed(child, f"{name}.{key}" if name else key)


class _Recorder:
    """Hooks for the listed modules: one that writes a row, and one for each product inside."""

    def __init__(self, result: Summary) -> None:
        self._result = result
        self._counted: set[int] = set()
        self._pending: dict[int, int] = {}

    def watch(self, name: str, module: nn.Module) -> list[Any]:
        parts = list(module.modules()) if isinstance(module, _NEURONS) else [module]
        products = [part for part in parts if isinstance(part, (nn.Linear, _ConvNd))]

        def multiply(part: nn.Module, _: Any, output: Tensor) -> None:
            self._pending[id(module)] = self._pending.get(id(module), 0) + _multiply_adds(part, output)

        def write(_: nn.Module, __: Any, output: Any) -> None:
            shape = tuple(output.shape[1:]) if isinstance(output, Tensor) else ()
            count = self._parameters(parts)
            self._result.rows.append(
                LayerSummary(name, _describe(module), shape, count, self._pending.pop(id(module), 0))
            )

        return [*(part.register_forward_hook(multiply) for part in products), module.register_forward_hook(write)]

    def _parameters(self, parts: list[nn.Module]) -> int:
        own = {id(p): p.numel() for part in parts for p in part.parameters(recurse=False) if id(p) not in self._counted}
        self._counted |= own.keys()
        return sum(own.values())


def _multiply_adds(part: nn.Module, output: Tensor) -> int:
    """One for each weight and each place where it is used."""
    places = output.shape[:-1] if isinstance(part, nn.Linear) else output.shape[2:]
    return prod(places) * part.weight.numel()  # type: ignore[operator]


def _describe(module: nn.Module) -> str:
    """The type of a layer; of a neuron, of its parts."""
    if isinstance(module, Neuron):
        return " ".join(type(part).__name__ for part in module.children())
    if isinstance(module, _NEURONS):
        branches: Any = module
        return f"{type(module).__name__} {_activation(branches.basal)}+{_activation(branches.apical)}"
    return type(module).__name__


def _activation(module: nn.Module) -> str:
    """The type of an activation; a reference to a shared one counts as that."""
    return type(getattr(module, "owner", module)).__name__
