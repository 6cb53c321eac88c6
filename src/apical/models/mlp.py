"""Multi-layer perceptrons: 784-100-10 and 784-100-10-10 for Fashion-MNIST, 1-20-1 for curves, and of any depth."""

from collections.abc import Sequence
from itertools import pairwise

from torch import Tensor, nn

from apical.errors import InvalidArgumentError
from apical.models.registry import built_in
from apical.nn import Unit


class MLP(nn.Module):
    """Hidden layers of neurons, then a linear layer: (N, ...) with `inputs` values each -> (N, outputs)."""

    def __init__(
        self,
        unit: Unit,
        *,
        inputs: int,
        hidden: Sequence[int],
        outputs: int,
        initial_biases: str = "zero",
        initial_weights: str = "xavier",
    ) -> None:
        super().__init__()
        self.initial_biases, self.initial_weights = initial_biases, initial_weights
        layers = unit.layers()
        self.input_size = (inputs,)
        self.hidden = nn.Sequential(*(layers.linear(a, b) for a, b in pairwise((inputs, *hidden))))
        self.head = nn.Linear(hidden[-1], outputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.hidden(x.flatten(1)))  # type: ignore[no-any-return]


@built_in("mlp-1", alpha_start=(1.0, 0.1), stacks=True)
def mlp_1(unit: Unit, *, inputs: int = 784, hidden: int | Sequence[int] = 100, outputs: int = 10) -> MLP:
    """One hidden layer."""
    return MLP(unit, inputs=inputs, hidden=_sizes("mlp-1", hidden, count=1), outputs=outputs)


@built_in("mlp-2", alpha_start=(1.0, 1.0), stacks=True)
def mlp_2(unit: Unit, *, inputs: int = 784, hidden: Sequence[int] = (100, 10), outputs: int = 10) -> MLP:
    """Two hidden layers."""
    return MLP(unit, inputs=inputs, hidden=_sizes("mlp-2", hidden, count=2), outputs=outputs)


@built_in("mlp-approx", alpha_start=(1.0, 1.0), stacks=True)
def mlp_approx(
    unit: Unit, *, inputs: int = 1, hidden: int | Sequence[int] = 20, outputs: int = 1, biases: str = "zero"
) -> MLP:
    """The network that approximates a function of one variable.

    Its initial `biases` are "zero" or "uniform", as torch's layers have them.
    """
    sizes = _sizes("mlp-approx", hidden, count=1)
    return MLP(unit, inputs=inputs, hidden=sizes, outputs=outputs, initial_biases=biases)


@built_in("mlp-deep", alpha_start=(1.0, 1.0), stacks=True)
def mlp_deep(
    unit: Unit, *, inputs: int = 784, depth: int = 4, width: int = 100, outputs: int = 10, initial: str = "xavier"
) -> MLP:
    """`depth` hidden layers of `width` units, without norms.

    The `initial` weights are "xavier"; "he", with the gain of the activation; or "data", scaled so that what stands in
    front of each activation has the variance 1 on training data.
    """
    check_size("mlp-deep", depth=depth, width=width)
    return MLP(unit, inputs=inputs, hidden=(width,) * depth, outputs=outputs, initial_weights=initial)


def check_size(name: str, **sizes: int) -> None:
    """Refuse what is not a whole number from 1 on."""
    for what, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise InvalidArgumentError(f"{what} is {size!r}, but {name} needs a whole number of at least 1")


def _sizes(name: str, hidden: int | Sequence[int], *, count: int) -> tuple[int, ...]:
    """The sizes of the hidden layers, as many as the network has."""
    sizes = (hidden,) if isinstance(hidden, int) else tuple(hidden)
    if len(sizes) != count or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise InvalidArgumentError(f"hidden is {hidden!r}, but {name} needs the size of {count} hidden layer(s)")
    return sizes
