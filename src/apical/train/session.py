"""A trial in progress: everything that changes while it trains, and its way to a file and back."""

from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from apical.data import DataSet
from apical.errors import CheckpointError
from apical.train import checkpoint, losses, metrics, seeds
from apical.train.checkpoint import copy_into
from apical.train.devices import Plain
from apical.train.dynamics import learned_values
from apical.train.feed import Feed, evaluation_batch
from apical.train.network import build, dims_for
from apical.train.optimisation import load_state, optimiser_of, set_rate, state_of
from apical.train.result import LAST, State
from apical.train.spec import Execution, TrialSpec


class Session:
    """Network, optimiser, batches and position of one trial in one process."""

    def __init__(self, spec: TrialSpec, execution: Execution, engine: Plain, data: DataSet, folder: Path) -> None:
        self.spec, self.execution, self.engine, self.folder = spec, execution, engine, folder
        self.identity = data.identity
        self.classes = None if data.class_names is None else len(data.class_names)
        last = wants_channels_last(spec, execution, engine.device)
        where: dict[str, Any] = {"device": engine.device, "channels_last": last}
        self.train = Feed(
            data.train, spec.batch, passes=spec.passes, seed=spec.seed, shuffle=True, augment=spec.augment,
            rank=engine.rank, world=engine.world, **where,
        )  # fmt: skip
        self.validation = Feed(data.validation, evaluation_batch(data.validation, spec.batch), **where)
        self.dims = dims_for(spec, data)
        self.network = build(spec, self.dims).to(engine.device)
        if last:
            self.network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.forward: Any = torch.compile(self.network) if execution.compile else self.network
        self.loss_function = losses.find(spec.loss)
        self.criterion = self.loss_function.compute
        self.memory = optimiser_of(spec, self.network)
        self.model, self.optimiser = engine.setup(self.forward, self.memory)
        self.epoch = self.batch = self.samples = 0
        self.loss_sum = self.seconds = 0.0
        self.history: list[dict[str, Any]] = []
        self.timings: list[dict[str, float]] = []
        self.dynamics: dict[str, Any] = {}
        self.best: dict[str, Any] = {"epoch": 0, "value": None}
        self.best_weights: dict[str, Tensor] = {}
        self._saved = perf_counter()

    def check(self) -> None:
        """Refuse a network that does not fit its loss, before the first step; dropout and norms see nothing of it."""
        inputs, labels = next(self.validation.epoch())
        self.network.eval()
        with torch.no_grad():
            self.loss_function.check_outputs(self.network(inputs[:2]), labels[:2], self.classes)

    # --- where it stands -----------------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """The epoch's learning rate and, at its first batch, its random state."""
        self.network.train()
        set_rate(self.memory, self.spec.rate(self.epoch))
        if self.batch == 0:
            seeds.start_epoch(self.spec.seed, self.epoch, self.engine.rank)

    def advance(self, loss: float) -> None:
        """A batch was trained with this mean loss."""
        count = self.train.samples(self.batch)
        self.loss_sum += loss * count
        self.samples += count
        self.batch += 1

    @property
    def loss(self) -> float:
        """The mean training loss of the epoch so far."""
        return self.loss_sum / max(1, self.samples)

    def end_epoch(self, scores: Mapping[str, float], validate_seconds: float) -> dict[str, Any]:
        """Record the epoch, remember its model if it is the best so far, and go on to the next."""
        record = epoch_record(self.spec, self.epoch, self.loss, scores, self.network, self.dynamics)
        self.history.append(record)
        self.timings.append({"train": self.seconds, "validate": validate_seconds})
        value = scores[self.spec.metric]
        if metrics.find(self.spec.metric).better(value, self.best["value"]):
            self.best = {"epoch": self.epoch + 1, "value": number(value)}
            self.best_weights = {name: t.detach().cpu().clone() for name, t in self.state().items()}
        self.epoch += 1
        self.batch = self.samples = 0
        self.loss_sum = self.seconds = 0.0
        self.dynamics = {}
        return record

    def state(self) -> dict[str, Tensor]:
        """The network's tensors, not copied."""
        return {name: t for name, t in self.network.state_dict().items() if isinstance(t, Tensor)}

    def finite(self) -> bool:
        """True where every weight is a number."""
        return all(bool(torch.isfinite(p).all()) for p in self.network.parameters())

    # --- to a file and back --------------------------------------------------------------------------------------

    def due(self) -> bool:
        """True where a checkpoint is to be written after an epoch."""
        last = self.epoch == self.spec.epochs
        return last or perf_counter() - self._saved >= self.execution.checkpoint_every

    def save(self) -> None:
        """Write the checkpoint (the first process does)."""
        random = {name: self.engine.gather(t) for name, t in seeds.state(self.engine.device).items()}
        if self.engine.rank == 0:
            tensors = {f"model:{name}": t for name, t in self.state().items()}
            tensors |= {f"optimiser:{name}": t for name, t in state_of(self.memory).items()}
            tensors |= {f"random:{name}": t for name, t in random.items()}
            if not self._best_is_now():
                tensors |= {f"best:{name}": t for name, t in self.best_weights.items()}
            checkpoint.save(self.folder / LAST, tensors, self._facts())
        self._saved = perf_counter()

    def leave(self, seconds: float) -> State:
        """Save in the middle of an epoch."""
        self.seconds = seconds
        self.save()
        return "stopped"

    def resume(self) -> bool:
        """Continue from the checkpoint, if there is one."""
        path = self.folder / LAST
        if not path.exists():
            return False
        stored = checkpoint.load(path)
        facts = self._checked(path, stored.facts)
        copy_into(self.state(), stored.part("model"), what=str(path))
        load_state(self.memory, stored.part("optimiser"))
        self.epoch, self.batch, self.samples = facts["epoch"], facts["batch"], facts["samples"]
        self.loss_sum, self.seconds = facts["loss_sum"], facts["seconds"]
        self.history, self.timings, self.dynamics = facts["history"], facts["timings"], facts["dynamics"]
        self.best = facts["best"]
        self.best_weights = stored.part("model" if self._best_is_now() else "best")
        self.engine.load_state(facts["precision"])
        states = stored.part("random")
        if states["cpu"].shape[0] == self.engine.world:
            seeds.restore({name: t[self.engine.rank] for name, t in states.items()}, self.engine.device)
        return True

    def _best_is_now(self) -> bool:
        return bool(self.batch == 0 and self.best["epoch"] == self.epoch and self.epoch > 0)

    def _facts(self) -> dict[str, Any]:
        names = ("epoch", "batch", "samples", "loss_sum", "seconds", "history", "timings", "dynamics", "best")
        own = {name: getattr(self, name) for name in names}
        return own | {"spec": self.spec.digest, "data": self.identity, "precision": self.engine.state()}

    def _checked(self, path: Path, facts: dict[str, Any]) -> dict[str, Any]:
        if facts.get("spec") != self.spec.digest:
            raise CheckpointError(f"{path} belongs to another trial: choose another folder, or delete this one")
        if facts.get("data") != self.identity:
            raise CheckpointError(f"{path} saw other data than {self.spec.data} holds now: choose another folder")
        missing = self._facts().keys() - facts.keys()
        if missing:
            raise checkpoint.damaged(path, f"it lacks {', '.join(sorted(missing))}")
        return facts


def epoch_record(
    spec: TrialSpec, epoch: int, loss: float, scores: Mapping[str, float], network: nn.Module, dynamics: dict[str, Any]
) -> dict[str, Any]:
    """The entry of an epoch, counted from 0, in the history."""
    return {
        "epoch": epoch + 1,
        "learning_rate": spec.rate(epoch),
        "loss": loss,
        "validation": {name: number(value) for name, value in scores.items()},
        "learned": learned_values(network),
        "dynamics": dynamics,
    }


def wants_channels_last(spec: TrialSpec, execution: Execution, device: torch.device) -> bool:
    """Asked for, or by default on GPUs in half precision, whose convolutions are written for it."""
    if execution.channels_last is not None:
        return execution.channels_last
    return device.type == "cuda" and spec.precision != "32"


def number(value: float) -> float | None:
    """A value for JSON, which knows no NaN and no infinity."""
    return value if isfinite(value) else None
