"""Forward and backward of the activations, against torch's own and the formula as the paper prints it."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from apical.bench.measure import Progress, Timing, Work, compare
from apical.nn import ADA, LeakyADA, Unit
from apical.nn.building import build

SHAPES = ((64, 100), (64, 64, 32, 32), (64, 128, 56, 56))
DTYPES = (torch.float32, torch.bfloat16)


def printed_formula(x: Tensor) -> Tensor:
    """ADA exactly as printed in Eq. 3, alpha = 1, c = 0: NaN where exp(-x) overflows."""
    return torch.clamp(x, min=0) * torch.exp(-x)


def candidates(channels: int, units: Sequence[str] = ()) -> dict[str, Callable[[Tensor], Tensor]]:
    """What is compared, by the name it has in the table."""
    more = {text: build(Unit.parse(text), channels, 1) for text in units}
    return {
        "SiLU": nn.SiLU(),
        "ReLU": nn.ReLU(),
        "ADA": ADA(),
        "LeakyADA": LeakyADA(),
        "ADA learned": ADA(learnable=True),
        "ADA per channel": ADA(learnable=True, num_parameters=channels),
        "printed formula": printed_formula,
        **more,
    }


def activations(
    *,
    shapes: tuple[tuple[int, ...], ...] | None = None,
    dtypes: tuple[torch.dtype, ...] | None = None,
    rounds: int = 15,
    units: Sequence[str] = (),
    progress: Progress | None = None,
) -> list[Timing]:
    """Forward and backward of every candidate, and of `units`, at every shape and dtype, as ratios to torch's SiLU."""
    found = []
    for dtype in dtypes or DTYPES:
        for shape in shapes or SHAPES:
            case = f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
            found += compare(case, steps(shape, dtype, units), reference="SiLU", rounds=rounds, progress=progress)
    return found


def steps(shape: tuple[int, ...], dtype: torch.dtype, units: Sequence[str] = ()) -> dict[str, Work]:
    """One forward and backward pass of every candidate on the same input and upstream gradient."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(dtype).requires_grad_()
    g = torch.randn(shape, generator=generator).to(dtype)

    def step(function: Callable[[Tensor], Tensor]) -> Work:
        inputs = [x, *(function.parameters() if isinstance(function, nn.Module) else ())]
        return lambda: torch.autograd.grad(function(x), inputs, g)

    return {name: step(function) for name, function in candidates(shape[1], units).items()}
