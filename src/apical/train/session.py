"""A trial in training: its network, batches, optimizer and random state, and its checkpoint."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from math import isfinite, prod
from pathlib import Path
from time import perf_counter
from types import MethodType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from apical import models
from apical.data import Batches, DataSet, Split
from apical.data.randomness import number
from apical.errors import ApicalError, CheckpointError, InvalidArgumentError, TrainingError
from apical.files import one_line
from apical.kernels import backend, winograd
from apical.models.registry import find
from apical.nn import initialise_, scale_to_data_
from apical.train import checkpoint, losses, metrics
from apical.train.checkpoint import check_fit, copy_into
from apical.train.devices import SingleDevice
from apical.train.dynamics import learned_values
from apical.train.evolution import evolution_of
from apical.train.optimisation import load_state, optimiser_of, set_rate, state_of
from apical.train.result import LAST, Position, State, check, timing
from apical.train.spec import Execution, TrialSpec


class Session:
    """Network, optimiser, batches and position of one trial in one process."""

    def __init__(
        self, spec: TrialSpec, execution: Execution, runtime: SingleDevice, data: DataSet, folder: Path
    ) -> None:
        self.spec, self.runtime, self.folder = spec, runtime, folder
        self.dims = dims_for(spec, data)
        self.network = build(spec, self.dims, data.train).to(runtime.device)
        if wants_winograd(spec, execution, runtime.device) and use_winograd_(self.network, execution):
            execution = replace(execution, winograd=True)
        last = len(data.shape) == 3 and wants_channels_last(spec, execution, runtime.device, self.network)
        self.execution = execution = replace(execution, channels_last=True) if last else execution
        self.identity = data.identity
        self.classes = None if data.class_names is None else len(data.class_names)
        where: dict[str, Any] = {"device": runtime.device, "channels_last": last}
        self.train = Feed(
            data.train, spec.batch, passes=spec.passes, seed=spec.seed, shuffle=True, augment=spec.augment,
            rank=runtime.rank, world=runtime.world, **where,
        )  # fmt: skip
        self.validation = Feed(data.validation, evaluation_batch(data.validation, spec.batch), **where)
        if last:
            self.network = self.network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        self.forward: Any = torch.compile(self.network) if execution.compile else self.network
        self.loss_function = losses.find(spec.loss)
        self.criterion = self.loss_function.compute
        self.torch_optimiser = optimiser_of(spec, self.network)
        self.evolution = evolution_of(spec, self.network)
        if self.evolution is not None and runtime.world > 1:
            raise InvalidArgumentError(
                f"devices is {execution.devices}, but {spec.optimiser} evaluates its population in one process: "
                "leave devices out"
            )
        self.model, self.optimiser = runtime.setup(self.forward, self.torch_optimiser)
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
        refuse_misfit(self.spec, self.network, inputs[:2], labels[:2], self.classes)

    # --- where it stands -----------------------------------------------------------------------------------------

    def begin_epoch(self) -> None:
        """The epoch's learning rate and, at its first batch, its random state."""
        self.network.train()
        set_rate(self.torch_optimiser, self.spec.rate(self.epoch))
        if self.batch == 0:
            start_epoch(self.spec.seed, self.epoch, self.runtime.rank)

    def differentiate(self, loss: Tensor, inputs: Tensor, labels: Tensor) -> None:
        """Fill the gradients: of this loss or, without gradients, with the direction that a population gives."""
        if self.evolution is not None:
            self.evolution.propose(inputs, labels, epoch=self.epoch, batch=self.batch)
        else:
            self.runtime.backward(self.runtime.scale(loss, len(labels), self.train.samples(self.batch)))

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
        self.timings.append(timing(self.seconds, validate_seconds))
        value = scores[self.spec.metric]
        if metrics.find(self.spec.metric).better(value, self.best["value"]):
            self.best = {"epoch": self.epoch + 1, "value": json_number(value)}
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
        random = {name: self.runtime.gather(t) for name, t in rng_state(self.runtime.device).items()}
        if self.runtime.rank == 0:
            tensors = {f"model:{name}": t for name, t in self.state().items()}
            tensors |= {f"optimiser:{name}": t for name, t in state_of(self.torch_optimiser).items()}
            tensors |= {f"random:{name}": t for name, t in random.items()}
            if self.evolution is not None:
                tensors |= {f"evolution:{name}": t for name, t in self.evolution.tensors().items()}
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
        with checkpoint.reading(path):
            self._restore(path, stored)
        return True

    def _restore(self, path: Path, stored: checkpoint.Checkpoint) -> None:
        facts = self._checked(path, stored.facts)
        copy_into(self.state(), stored.part("model"), what=str(path))
        load_state(self.torch_optimiser, stored.part("optimiser"))
        if self.evolution is not None:
            self.evolution.load(stored.part("evolution"))
        self.epoch, self.batch, self.samples = facts["epoch"], facts["batch"], facts["samples"]
        self.loss_sum, self.seconds = facts["loss_sum"], facts["seconds"]
        self.history, self.timings, self.dynamics = facts["history"], facts["timings"], facts["dynamics"]
        self.best = facts["best"]
        self.best_weights = stored.part("model" if self._best_is_now() else "best")
        if self.best_weights or self.best["epoch"]:
            check_fit(self.state(), self.best_weights, what=str(path))
        self.runtime.load_state(facts["precision"])
        states = stored.part("random")
        if states["cpu"].shape[0] == self.runtime.world:
            restore_rng({name: t[self.runtime.rank] for name, t in states.items()}, self.runtime.device)

    def _best_is_now(self) -> bool:
        return bool(self.batch == 0 and self.best["epoch"] == self.epoch and self.epoch > 0)

    def _facts(self) -> dict[str, Any]:
        names = ("epoch", "batch", "samples", "loss_sum", "seconds", "history", "timings", "dynamics", "best")
        own = {name: getattr(self, name) for name in names}
        return own | {"spec": self.spec.digest, "data": self.identity, "precision": self.runtime.state()}

    def _checked(self, path: Path, facts: dict[str, Any]) -> dict[str, Any]:
        if facts.get("spec") != self.spec.digest:
            raise CheckpointError(f"{path} belongs to another trial: choose another folder, or delete this one")
        if facts.get("data") != self.identity:
            raise CheckpointError(f"{self.spec.data} has changed since {path} was written: choose another folder")
        missing = self._facts().keys() - facts.keys()
        if missing:
            raise checkpoint.damaged(path, f"it lacks {', '.join(sorted(missing))}")
        check(Position, facts, self.spec.epochs)
        if facts["batch"] > len(self.train) or len(facts["history"]) != facts["epoch"]:
            raise checkpoint.damaged(path, f"it stands at epoch {facts['epoch']:,}, batch {facts['batch']:,}")
        return facts


def epoch_record(
    spec: TrialSpec, epoch: int, loss: float, scores: Mapping[str, float], network: nn.Module, dynamics: dict[str, Any]
) -> dict[str, Any]:
    """The entry of an epoch, counted from 0, in the history."""
    return {
        "epoch": epoch + 1,
        "learning_rate": spec.rate(epoch),
        "loss": loss,
        "validation": {name: json_number(value) for name, value in scores.items()},
        "learned": learned_values(network),
        "dynamics": dynamics,
    }


def wants_channels_last(spec: TrialSpec, execution: Execution, device: torch.device, network: nn.Module) -> bool:
    """Asked for; by default in half precision and with Winograd's convolutions, which are written for it, and where the
    network says so."""
    cpu, half = device.type == "cpu", spec.precision != "32"
    wanted = execution.channels_last
    if wanted is None and execution.winograd:
        wanted = True
    if wanted is None:
        wanted = device.type in ("cuda", "cpu") if half else cpu and find(spec.model).channels_last(spec.dims)
    unsafe = unsafe_with_channels_last(network) if wanted and cpu else None
    if unsafe is not None and execution.channels_last:
        raise InvalidArgumentError(
            f"channels_last is True, but on this CPU torch's gradient of {unsafe}, a 1x1 convolution with a stride, "
            "writes past its memory in that layout: leave channels_last out"
        )
    return wanted and unsafe is None


def wants_winograd(spec: TrialSpec, execution: Execution, device: torch.device) -> bool:
    """Asked for; by default where the network says so, unless torch's own layout is asked for."""
    obstacle = None
    if device.type != "cpu" or spec.precision != "32" or execution.compile:
        obstacle = "it computes in float32 on a CPU, and is not compiled"
    elif not winograd.available():
        obstacle = f"its C code does not serve here ({backend()})"
    if execution.winograd and obstacle:
        raise InvalidArgumentError(f"winograd is True, but {obstacle}: leave winograd out")
    wanted = execution.winograd
    if wanted is None:
        wanted = execution.channels_last is not False and find(spec.model).winograd
    return wanted and obstacle is None


def use_winograd_(network: nn.Module, execution: Execution) -> bool:
    """Let the network's convolutions use it; True where there are any that suit.

    They make images channels-last, whose values torch's dropout draws in another order: it draws as in torch's layout.
    """
    used = bool(winograd.use_(network))
    for layer in network.modules() if used else ():
        if type(layer) is nn.Dropout:
            layer.forward = MethodType(_dropout, layer)  # type: ignore[method-assign]
    if execution.winograd and not used:
        raise InvalidArgumentError(
            f"winograd is True, but the network has no convolution of 3x3 pixels, {winograd.FEWEST} channels or more, "
            "stride 1 and padding 1: leave winograd out"
        )
    return used


def _dropout(layer: nn.Dropout, x: Tensor) -> Tensor:
    """torch's dropout with one mask for a seed, whatever the layout of x."""
    if not layer.training or layer.p in (0, 1) or x.is_contiguous():
        return nn.functional.dropout(x, layer.p, layer.training)
    keep = 1 - layer.p
    mask = torch.empty(x.shape, dtype=x.dtype, device=x.device).bernoulli_(keep).div_(keep)
    return x * torch.empty_like(x).copy_(mask)


def unsafe_with_channels_last(network: nn.Module) -> str | None:
    """The first 1x1 convolution with a stride and fewer inputs than a vector has places: oneDNN's issue 6035."""
    fewest = 16 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 8
    layers = ((name, m) for name, m in network.named_modules() if isinstance(m, nn.Conv2d))
    strided = ((name, m) for name, m in layers if set(m.kernel_size) == {1} and max(m.stride) > 1)
    return next((name for name, m in strided if m.in_channels // m.groups < fewest), None)


def json_number(value: float) -> float | None:
    """A value for JSON, which knows no NaN and no infinity."""
    return value if isfinite(value) else None


def refuse_misfit(spec: TrialSpec, network: nn.Module, inputs: Tensor, labels: Tensor, classes: int | None) -> None:
    """Refuse a network that does not take the inputs, or whose outputs do not fit the loss."""
    network.eval()
    try:
        with torch.no_grad():
            outputs = network(inputs)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, ApicalError):
            raise
        raise TrainingError(
            f"network {spec.model!r} does not take inputs of shape {tuple(inputs.shape[1:])}: {one_line(error)}"
        ) from error
    losses.find(spec.loss).check_outputs(outputs, labels, classes)


# The network of a trial: built by its name, made to fit the data, drawn from the trial's seed.


BATCH = 256
"""Training samples that scale initial weights, where a network asks for that."""


def build(spec: TrialSpec, dims: Mapping[str, Any], train: Split | None = None) -> nn.Module:
    """The network with its initial weights; equal for equal specs, and paired with those of other units.

    Networks that take no unit, and all with `convert`, are built with ReLU and rewritten by `convert_`. Weights that
    depend on data look at the first samples of `train`; without it they are not scaled.
    """
    find(spec.model)  # a spec may come from a file: its network must be allowed
    with _size_of_data(spec):
        return _built(spec, dims, train)


def _built(spec: TrialSpec, dims: Mapping[str, Any], train: Split | None) -> nn.Module:
    if not spec.convert and models.takes_unit(spec.model):
        network = models.create(spec.model, spec.unit, seed=spec.seed, **dims)
        if train is not None and getattr(network, "initial_weights", "") == "data":
            scale_to_data_(network, train.inputs(range(min(BATCH, len(train)))))
        return network
    from apical.convert import convert_  # noqa: PLC0415  it loads torch.fx

    plain = models.create(spec.model, "relu" if models.takes_unit(spec.model) else None, seed=spec.seed, **dims)
    if spec.unit == "relu":
        return plain
    model = convert_(plain, models.unit_for(spec.model, spec.unit)).model
    initialise_(model, seed=spec.seed)
    return model


@contextmanager
def _size_of_data(spec: TrialSpec) -> Iterator[None]:
    """What to do where a network refuses the size of the data's images, which the spec does not give."""
    try:
        yield
    except InvalidArgumentError as error:
        if "image_size" in spec.dims or not str(error).startswith("image_size"):
            raise
        raise InvalidArgumentError(
            f"{error}, and those of {spec.data} are smaller: pad=N adds N pixels on each side (--set pad=N, or "
            "training.pad = N in a study file)"
        ) from error


def dims_for(spec: TrialSpec, data: DataSet) -> dict[str, Any]:
    """The spec's dimensions, and what the data says about others that the network's factory has."""
    known: dict[str, Any] = {"inputs": prod(data.shape), "outputs": _outputs(data)}
    if len(data.shape) == 3:
        size = max(data.shape[1:])
        known |= {"in_channels": data.shape[0], "image_size": size, "stem": 64 if size <= 64 else 224}
    if data.vocabulary is not None:
        known |= {"length": data.shape[0], "vocabulary": data.vocabulary}
    return {key: value for key, value in known.items() if key in find(spec.model).parameters} | spec.dims


def _outputs(data: DataSet) -> int:
    if data.class_names is not None:
        return len(data.class_names)
    return prod(data.train.labels.shape[1:])


# Batches for the loop: gathered from one tensor where the split fits into memory, else made by `apical.data`.

IN_MEMORY = 1 << 29
"""Bytes that the inputs of a split may take to be held as one float32 tensor."""
AT_ONCE = 1 << 20
"""Values in the inputs of one batch where nothing is trained."""


class Feed:
    """The batches of a split for one rank; `how` are the arguments of `apical.data.Batches`.

    Where nothing is augmented, inputs are a pure function of the sample, so that they can be made once and gathered.
    """

    def __init__(
        self,
        split: Split,
        size: int,
        *,
        device: torch.device,
        channels_last: bool = False,
        passes: int = 1,
        **how: Any,
    ) -> None:
        self.split, self.size, self.device, self.passes = split, size, device, passes
        self.batches = Batches(split, size, **how)
        self.format = torch.channels_last if channels_last and len(split.shape) == 3 else torch.preserve_format
        self._samples, self._per_pass = len(split), len(self.batches)
        self.in_memory = not self.batches.augment and 4 * len(split) * prod(split.shape) <= IN_MEMORY

    def __len__(self) -> int:
        return self.passes * len(self.batches)

    @property
    def whole(self) -> bool:
        """True where one batch is the whole split: it comes in its own order, for a mean over all knows none."""
        return self.in_memory and len(self.batches) == self.batches.world == 1

    def samples(self, batch: int) -> int:
        """Samples of batch number `batch`, of all ranks together."""
        return min(self.size, self._samples - batch % self._per_pass * self.size)

    def epoch(self, epoch: int = 0, start: int = 0) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs and labels of the batches from number `start` on; each pass has an order of its own."""
        first, start = divmod(start, len(self.batches))
        for one in range(first, self.passes):
            make = self._gathered if self.in_memory else self._made
            yield from make(epoch * self.passes + one, start)
            start = 0

    def _gathered(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        inputs, labels = self.split.tensors(self.device)
        if self.whole:
            yield inputs.to(memory_format=self.format), labels
            return
        for rows in self.rows(epoch)[start:]:
            batch = inputs.index_select(0, rows)
            if self.format is not torch.preserve_format:
                batch = batch.to(memory_format=self.format)
            yield batch, labels.index_select(0, rows)

    def rows(self, epoch: int) -> tuple[Tensor, ...]:
        """The positions of each batch of a pass, on the device."""
        positions = self.batches.positions(epoch)
        whole = torch.from_numpy(np.concatenate(positions)).to(self.device)
        return whole.split([len(p) for p in positions])  # type: ignore[no-untyped-call, no-any-return]

    def _made(self, epoch: int, start: int) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in islice(self.batches.epoch(epoch), start, None):
            yield self._moved(batch.inputs, self.format), self._moved(batch.labels, torch.preserve_format)

    def _moved(self, tensor: Tensor, layout: torch.memory_format) -> Tensor:
        """On the device; to a GPU from pinned memory, so that the copy runs while the next batch is made."""
        pinned = tensor.pin_memory() if self.device.type == "cuda" else tensor
        return pinned.to(self.device, memory_format=layout, non_blocking=self.device.type == "cuda")


def evaluation_batch(split: Split, batch: int) -> int:
    """Samples evaluated at once: as many as fill AT_ONCE, but no fewer than a training batch holds.

    A function of spec and data alone, so that sums round alike wherever a trial runs.
    """
    return max(batch, min(1024, AT_ONCE // max(1, prod(split.shape))))


# Randomness of a trial: order and augmentation belong to the data, initial weights to their names, dropout to this.
#
# Dropout starts anew in each epoch from (seed, epoch, rank), so that an epoch does not depend on how the ones before it
# were cut into processes.


def start_epoch(seed: int, epoch: int, rank: int) -> None:
    """Seed torch's generators for one epoch of one process."""
    torch.manual_seed(number("dropout", seed, epoch, rank) >> 1)


@contextmanager
def preserve_rng(device: torch.device) -> Iterator[None]:
    """Give the caller's random state back at the end."""
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices):
        yield


def rng_state(device: torch.device) -> dict[str, Tensor]:
    """The generators' states, to be stored."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states


def restore_rng(states: dict[str, Tensor], device: torch.device) -> None:
    """Continue where `state` was taken; a state of another kind of device is left out."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
