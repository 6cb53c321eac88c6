"""One neuron and nothing else, which has to compute XOR."""

from torch import Tensor, nn

from apical.models.registry import built_in
from apical.nn import Unit


class Neuron(nn.Module):
    """One neuron and nothing else: (N, ...) with `inputs` values each -> (N, 1), the output of its activation."""

    def __init__(self, unit: Unit, *, inputs: int) -> None:
        super().__init__()
        self.input_size = (inputs,)
        self.unit = unit.layers().linear(inputs, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.unit(x.flatten(1))  # type: ignore[no-any-return]


@built_in("neuron", alpha_start=(1.0, 1.0), stacks=True)
def neuron(unit: Unit, *, inputs: int = 2) -> Neuron:
    """The neuron of Lemma 1, which has to compute XOR."""
    return Neuron(unit, inputs=inputs)
