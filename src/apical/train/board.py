"""TensorBoard: losses, metrics, learned values and dynamics of each epoch as scalars."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apical import extras
from apical.train.reporting import Callback, Event


@contextmanager
def board(folder: Path) -> Iterator[tuple[Callback, ...]]:
    """A callback that writes event files into folder/tensorboard."""
    extras.load("tensorboard", extra="tensorboard")
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  it needs the package above

    writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def write(event: Event) -> None:
        if event.record is not None:
            for name, value in scalars(event.record).items():
                writer.add_scalar(name, value, event.epoch)

    try:
        yield (write,)
    finally:
        writer.close()


def scalars(record: dict[str, Any], prefix: str = "") -> dict[str, float]:
    """The numbers of a record by their path in it; what is not finite was stored as None and is left out."""
    found: dict[str, float] = {}
    for key, value in record.items():
        name = f"{prefix}/{key}" if prefix else key
        if isinstance(value, dict):
            found |= scalars(value, name)
        elif isinstance(value, int | float) and name != "epoch":
            found[name] = float(value)
    return found
