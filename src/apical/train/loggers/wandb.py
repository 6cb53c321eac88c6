"""Weights & Biases: one run for a trial, with the spec as its config.

WANDB_MODE, WANDB_PROJECT and WANDB_ENTITY decide where it goes, as everywhere; with WANDB_MODE=offline it stays in
folder/wandb, and `wandb sync` sends it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apical import files, imports
from apical.train.loop import Callback, Event, scalars
from apical.train.spec import TrialSpec

PROJECT = "apical"


@contextmanager
def log(spec: TrialSpec, folder: Path) -> Iterator[Callback]:
    """A callback that writes the scalars of each epoch; a trial that is continued continues its run."""
    wandb = imports.optional("wandb", extra="wandb")
    stored = folder / "wandb-run.txt"
    known = files.read_text(stored, limit=4096).strip() if stored.is_file() else None
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT", PROJECT), name=spec.name, config=spec.as_dict(), dir=str(folder),
        id=known, resume="allow", reinit="create_new",
        settings=wandb.Settings(console="off"),
    )  # fmt: skip
    files.write(stored, run.id.encode())

    def write(event: Event) -> None:
        if event.record is not None:
            run.log({"epoch": event.epoch, **scalars(event.record)}, step=event.epoch)

    ended = 1
    try:
        yield write
        ended = 0
    finally:
        run.finish(exit_code=ended)
