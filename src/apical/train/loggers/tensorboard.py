"""TensorBoard: event files in folder/tensorboard."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from apical import imports
from apical.train.loop import Callback, Event, scalars
from apical.train.spec import TrialSpec


@contextmanager
def log(_: TrialSpec, folder: Path) -> Iterator[Callback]:
    """A callback that writes the scalars of each epoch."""
    imports.optional("tensorboard", extra="tensorboard")
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415  it needs the package above

    writer: Any = SummaryWriter(str(folder / "tensorboard"))

    def write(event: Event) -> None:
        if event.record is not None:
            for name, value in scalars(event.record).items():
                writer.add_scalar(name, value, event.epoch)

    try:
        yield write
    finally:
        writer.close()
