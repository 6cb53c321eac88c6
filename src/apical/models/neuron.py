"""One neuron and nothing else, which has to compute XOR; or a few of them, whose outputs are added."""

from torch import Tensor, nn

from apical.errors import InvalidArgumentError
from apical.models.registry import built_in
from apical.nn import Unit


class Sum(nn.Module):
    """(N, width) -> (N, 1): the outputs of all neurons, added."""

    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1, keepdim=True)


class Neuron(nn.Module):
    """Neurons and nothing else: (N, ...) with `inputs` values each -> (N, 1), the sum of their activations."""

    def __init__(self, unit: Unit, *, inputs: int, width: int) -> None:
        super().__init__()
        self.input_size = (inputs,)
        self.unit = unit.layers().linear(inputs, width)
        self.sum = Sum() if width > 1 else None

    def forward(self, x: Tensor) -> Tensor:
        x = self.unit(x.flatten(1))
        return x if self.sum is None else self.sum(x)


@built_in("neuron", alpha_start=(1.0, 1.0), stacks=True)
def neuron(unit: Unit, *, inputs: int = 2, width: int = 1) -> Neuron:
    """The neuron of Lemma 1, which has to compute XOR; with a `width` above 1, that many, added."""
    if not isinstance(width, int) or width < 1:
        raise InvalidArgumentError(f"width is {width!r}, but neuron needs a whole number of at least 1")
    return Neuron(unit, inputs=inputs, width=width)
