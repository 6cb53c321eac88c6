"""Forward and backward of the activations, against torch's own and the formula as the paper prints it."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from apical.bench.measure import Progress, Timing, Work, compare, nothing
from apical.errors import InvalidArgumentError
from apical.nn import ADA, LeakyADA, Unit
from apical.nn.building import build

SHAPES = ((64, 100), (64, 64, 32, 32), (64, 128, 56, 56))
DTYPES = (torch.float32, torch.bfloat16)
LEAST = 2.5
"""A copy reads and writes a tensor; forward and backward of an activation read x, x and g, and write y and gx."""


def printed_formula(x: Tensor) -> Tensor:
    """ADA exactly as printed in Eq. 3, alpha = 1, c = 0: NaN where exp(-x) overflows."""
    return torch.clamp(x, min=0) * torch.exp(-x)


def candidates(
    channels: int, units: Sequence[str] = (), device: torch.device | str = "cpu"
) -> dict[str, Callable[[Tensor], Tensor]]:
    """What is compared, by the name it has in the table."""
    more = {text: build(Unit.parse(text), channels, 1).to(device) for text in units}
    return {
        "SiLU": nn.SiLU(),
        "ReLU": nn.ReLU(),
        "ADA": ADA(),
        "LeakyADA": LeakyADA(),
        "ADA learned": ADA(learnable=True).to(device),
        "ADA per channel": ADA(learnable=True, num_parameters=channels).to(device),
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
    device: str = "cpu",
) -> list[Timing]:
    """Forward and backward of every candidate, and of `units`, at every shape and dtype, as ratios to torch's SiLU.

    On another device than the CPU also as shares of the memory bandwidth that a copy reaches there.
    """
    place = available(device)
    copied = None if place.type == "cpu" else "copy"
    timings = []
    for dtype in dtypes or DTYPES:
        for shape in shapes or SHAPES:
            case = f"{'x'.join(map(str, shape))} {str(dtype).removeprefix('torch.')}"
            work = steps(shape, dtype, units, place)
            if copied is not None:
                work[copied] = copy(shape, dtype, place)
            timings += compare(
                case,
                work,
                reference="SiLU",
                rounds=rounds,
                progress=progress,
                synchronise=waiting(place),
                copy=copied,
                least=LEAST,
            )
    return timings


def available(device: str) -> torch.device:
    """The device of that name, if torch can compute on it."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # they differ from device to device
        sees = [name for name in ("cuda", "xpu", "mps") if getattr(torch, name).is_available()]
        raise InvalidArgumentError(
            f"device is {device!r}, but torch sees no such device here: use one of {', '.join(['cpu', *sees])}"
        ) from error


def waiting(device: torch.device) -> Work:
    """What waits until the device has done its work."""
    return nothing if device.type in {"cpu", "meta"} else lambda: torch.accelerator.synchronize(device)


def copy(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Work:
    """A copy of a tensor into another one."""
    x, y = (torch.zeros(shape, dtype=dtype, device=device) for _ in range(2))
    return lambda: y.copy_(x)


def steps(
    shape: tuple[int, ...], dtype: torch.dtype, units: Sequence[str] = (), device: torch.device | str = "cpu"
) -> dict[str, Work]:
    """One forward and backward pass of every candidate on the same input and upstream gradient."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(shape, generator=generator).to(device, dtype).requires_grad_()
    g = torch.randn(shape, generator=generator).to(device, dtype)

    def step(function: Callable[[Tensor], Tensor]) -> Work:
        inputs = [x, *(function.parameters() if isinstance(function, nn.Module) else ())]
        return lambda: torch.autograd.grad(function(x), inputs, g)

    return {name: step(function) for name, function in candidates(shape[1], units, device).items()}
