"""A stack in training: the stacked network, each trial's records, and their common checkpoint."""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from math import hypot, isfinite
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor, nn

from apical import env, files
from apical.errors import CheckpointError, TrainingError
from apical.files import at_once
from apical.kernels import composite
from apical.train import checkpoint, losses, metrics
from apical.train.checkpoint import copy_into
from apical.train.devices import SingleDevice
from apical.train.dynamics import SATURATED
from apical.train.loop import Stop, collect, scores
from apical.train.result import RESULT, Position, State, TrialResult, check, timing
from apical.train.session import Feed, build, dims_for, epoch_record, evaluation_batch, json_number
from apical.train.spec import Execution, TrialSpec
from apical.train.stack.activations import StackedActivation, StackedAdam
from apical.train.stack.network import StackedNetwork
from apical.train.trial import finish, input_facts, open_data

FEW = 16
"""Samples on which a stack is compared with its networks."""


@dataclass(eq=False)
class Member:
    """One trial of a stack. Its network's parameters are views of the stack's."""

    spec: TrialSpec
    execution: Execution
    folder: Path
    network: nn.Module
    trial: int
    history: list[dict[str, Any]] = field(default_factory=list)
    timings: list[dict[str, float]] = field(default_factory=list)
    dynamics: dict[str, Any] = field(default_factory=dict)
    best: dict[str, Any] = field(default_factory=lambda: {"epoch": 0, "value": None})
    result: TrialResult | None = None

    def finite(self) -> bool:
        return all(bool(torch.isfinite(p).all()) for p in self.network.parameters())


class StackSession:
    """Trials of one `stack_key`, each in its folder; the checkpoint of all of them lies in the first trial's."""

    def __init__(
        self, specs: Sequence[TrialSpec], how: Execution, folders: Sequence[Path], trials: Sequence[int], path: Path
    ) -> None:
        self.spec, self.how, self.path = specs[0], how, path
        self.loss_function = losses.find(self.spec.loss)
        self.data = data = open_data(self.spec, how)
        self.identity, self.dims = data.identity, dims_for(specs[0], data)
        where: dict[str, Any] = {"device": SingleDevice.device}
        self.train = Feed(
            data.train, self.spec.batch, passes=self.spec.passes, seed=self.spec.seed, shuffle=True, **where
        )
        self.validation = Feed(data.validation, evaluation_batch(data.validation, self.spec.batch), **where)
        self._units = [spec.unit for spec in specs]
        networks = [build(spec, self.dims, data.train) for spec in specs]
        self._check(networks[0])
        self.network = StackedNetwork(networks)
        self._compare(networks)
        self.optimiser = StackedAdam(specs, networks, self.network.parameters)
        self.members = [
            Member(spec, replace(how, stacking=f"stacked({len(specs)}, {place})"), folder, network, trial)
            for place, (spec, folder, network, trial) in enumerate(
                zip(specs, folders, networks, trials, strict=True), start=1
            )
        ]
        self.alive = torch.ones(len(specs))
        self._parked = False
        self.loss_sum = torch.zeros(len(specs), dtype=torch.float64)
        self.epoch = self.batch = self.samples = 0
        self.seconds = 0.0
        self._told: list[str] = []  # an epoch of all trials as JSON: written once, though it is saved many times
        self._environment = env.facts()
        self._saved = perf_counter()

    def _check(self, network: nn.Module) -> None:
        inputs, labels = next(self.validation.epoch())
        classes = None if self.data.class_names is None else len(self.data.class_names)
        with torch.no_grad():
            self.loss_function.check_outputs(network(inputs[:2]), labels[:2], classes)

    def _compare(self, networks: Sequence[nn.Module]) -> None:
        """Refuse a stack that does not compute what its networks and the loss compute alone, on a first batch.

        What users register is stacked because they say so; this is where it shows.
        """
        inputs, labels = (t[:FEW] for t in next(self.validation.epoch()))
        outputs = self.network.forward(inputs)
        losses_, gradients = self.loss_function.gradients(outputs.clone(), labels)
        for i, network in enumerate(networks):
            with torch.no_grad():
                alone = network(inputs).reshape(len(inputs), -1)
            leaf = outputs[i].t().clone().requires_grad_()
            loss = self.loss_function.compute(leaf, labels)
            (slope,) = torch.autograd.grad(loss, leaf)
            for what, one, other in (
                ("outputs", outputs[i].t(), alone),
                ("loss", losses_[i], loss.detach()),
                ("gradient of the loss", gradients[i].t(), slope),
            ):
                if not torch.allclose(one, other, rtol=1e-3, atol=1e-4 * _scale(other), equal_nan=True):
                    raise TrainingError(
                        f"a stack of {self.spec.model!r} gives other values than the trial alone ({what}, unit "
                        f"{self._units[i]!r}, loss {self.spec.loss!r}): register your own parts of it without "
                        "stacks=True (a unit: stack=True, a loss: gradient_of_each), or fix it"
                    )

    # --- one step --------------------------------------------------------------------------------------------------

    def step(self, inputs: Tensor, labels: Tensor) -> None:
        """One step of every trial that is still trained; one whose loss is not finite ends before it."""
        each, gradient = self._losses(inputs, labels)
        while not isfinite(each.sum()) and not bool(torch.isfinite(each).all()):
            for i in (~torch.isfinite(each)).nonzero().flatten().tolist():
                self.diverge(self.members[i])
            each, gradient = self._losses(inputs, labels)
        self.network.backward(gradient)
        self.optimiser.step(self.epoch)
        count = self.train.samples(self.batch)
        self.loss_sum.add_(each, alpha=count)
        self.samples += count
        self.batch += 1

    def _losses(self, inputs: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """The loss of each trial, and its gradient in the outputs: zero for trials that ended."""
        each, gradient = self.loss_function.gradients(self.network.forward(inputs, keep=True), labels)
        return each, gradient.mul_(self.alive[:, None, None]) if self._parked else gradient

    def watched_step(self, inputs: Tensor, labels: Tensor) -> None:
        """A step that records the dynamics of every trial."""
        with watched(self.network, [m.network for m in self.members]) as seen:
            self.step(inputs, labels)
        for member, record in zip(self.members, seen, strict=True):
            member.dynamics = record

    @property
    def loss(self) -> float:
        """The mean loss of the epoch so far, over the trials that are still trained."""
        return float((self.loss_sum * self.alive).sum() / self.alive.sum().clamp_min(1)) / max(1, self.samples)

    @property
    def running(self) -> list[Member]:
        """The trials that are still trained."""
        return [m for m in self.members if m.result is None]

    # --- the end of an epoch ---------------------------------------------------------------------------------------

    def check_weights(self) -> None:
        """End the trials whose weights are not finite."""
        if all(bool(torch.isfinite(s.model).all()) for s in self.network.parameters.all):
            return
        for member in self.running:
            if not member.finite():
                self.diverge(member)

    def validate(self, stop: Stop) -> tuple[Tensor, Tensor] | None:
        """Outputs of every trial on the validation split, (k, n, values), and the labels; None if asked to stop."""
        outputs, labels = [], []
        for inputs, own in self.validation.epoch():
            outputs.append(self.network.forward(inputs))
            labels.append(own)
            if stop:
                return None
        return torch.cat(outputs, 2).transpose(1, 2).contiguous(), torch.cat(labels)

    def end_epoch(self, outputs: Tensor, labels: Tensor, validate_seconds: float) -> list[tuple[int, dict[str, Any]]]:
        """Record the epoch in every trial, and the model of those for which it is the best; times are shared out."""
        share = max(1, len(self.running))
        means = (self.loss_sum / max(1, self.samples)).tolist()
        own_scores = self._scores(outputs, labels)
        records = []
        for i, member in enumerate(self.members):
            if member.result is not None:
                continue
            member.history.append(
                epoch_record(member.spec, self.epoch, means[i], own_scores[i], member.network, member.dynamics)
            )
            member.timings.append(timing(self.seconds / share, validate_seconds / share))
            member.dynamics = {}
            value = own_scores[i][self.spec.metric]
            if metrics.find(self.spec.metric).better(value, member.best["value"]):
                member.best = {"epoch": self.epoch + 1, "value": json_number(value)}
                self.network.parameters.remember(member.network)
            records.append((member.trial, member.history[-1]))
        self._told.append(
            json.dumps([(m.history[-1], m.timings[-1]) if m.result is None else None for m in self.members])
        )
        self.epoch += 1
        self.batch = self.samples = 0
        self.loss_sum.zero_()
        self.seconds = 0.0
        return records

    def _scores(self, outputs: Tensor, labels: Tensor) -> list[dict[str, float]]:
        """Every metric of the task, and the loss, of each trial."""
        loss = self.loss_function
        own_metrics = metrics.scores_of_each(loss.answer_of_each(outputs), labels, task=loss.task)
        own = loss.losses(outputs.transpose(1, 2), labels).tolist()
        return [values | {"loss": value} for values, value in zip(own_metrics, own, strict=True)]

    # --- results -----------------------------------------------------------------------------------------------------

    def diverge(self, member: Member) -> None:
        """End a trial with its last finite model, and make its place in the stack one where nothing happens."""
        reason = f"loss or weights were not finite in epoch {self.epoch + 1}, after {self.batch} batches of it"
        epoch, weights = self._last_finite(member)
        weights |= dict(member.network.named_buffers())
        network = build(member.spec, self.dims)
        copy_into(network.state_dict(), weights, what="the last finite model")
        collected = collect(network.eval(), self.validation, SingleDevice())
        assert collected is not None
        validation = {name: json_number(value) for name, value in scores(self.spec.loss, *collected).items()}
        member.result = self._result(member, "diverged", reason, epoch, validation)
        finish(member.result, weights)
        self._park(member)

    def finish(self) -> None:
        """Write the results of all trials that came to their end."""
        ended = self.running
        self.end("done", "")
        weights = [self.network.parameters.best_of(m.network) | dict(m.network.named_buffers()) for m in ended]
        at_once(finish, [m.result for m in ended], weights)

    def end(self, state: State, reason: str) -> None:
        """The results of the trials that were trained to here; nothing is written."""
        for member in self.running:
            best = member.best["epoch"]
            validation = member.history[best - 1]["validation"] if best else {}
            member.result = self._result(member, state, reason, best, validation)

    def _result(
        self, member: Member, state: State, reason: str, best: int, validation: Mapping[str, float | None]
    ) -> TrialResult:
        return TrialResult(
            directory=member.folder, spec=member.spec, execution=member.execution, state=state, reason=reason,
            best_epoch=best, validation=validation, history=member.history, timings=member.timings,
            parameters=sum(p.numel() for p in member.network.parameters()), environment=self._environment,
            data=self.identity, input=input_facts(self.dims, self.data),
        )  # fmt: skip

    def _last_finite(self, member: Member) -> tuple[int, dict[str, Tensor]]:
        """The present weights, or those of the last checkpoint, or the first ones."""
        if member.finite():
            return self.epoch, {name: p.detach().clone() for name, p in member.network.named_parameters()}
        if self.path.exists():
            stored = checkpoint.load(self.path)
            if stored.facts["composition"] == self.composition:
                places = self.network.parameters.rows_of(member.network)
                numbers = {id(s): i for i, s in enumerate(self.network.parameters.all)}
                names = [name for name, _ in member.network.named_parameters()]
                rows = [stored.tensors[f"model:{numbers[id(s)]}"][row].clone() for s, row in places]
                return stored.facts["epoch"], dict(zip(names, rows, strict=True))
        return 0, {name: p.detach() for name, p in build(member.spec, self.dims, self.data.train).named_parameters()}

    def _park(self, member: Member) -> None:
        self.network.parameters.park(member.network)
        self.alive[self.members.index(member)] = 0.0
        self._parked = True

    # --- to a file and back --------------------------------------------------------------------------------------

    @property
    def composition(self) -> list[str]:
        """The digests of all trials, in the order of the stack."""
        return [m.spec.digest for m in self.members]

    def due(self) -> bool:
        """True where a checkpoint is to be written after an epoch."""
        return self.epoch == self.spec.epochs or perf_counter() - self._saved >= self.how.checkpoint_every

    def save(self) -> None:
        """Write the checkpoint of all trials: one file, so that they always stand at the same batch."""
        tensors = {**self.network.parameters.tensors(), "steps": self.optimiser.steps, "loss_sum": self.loss_sum}
        checkpoint.save(self.path, tensors, self._facts())
        self._saved = perf_counter()

    def leave(self, seconds: float) -> None:
        """Save in the middle of an epoch."""
        self.seconds = seconds
        self.save()

    def resume(self) -> None:
        """Continue from the checkpoint, if it is of this composition; trials that have a result take no part."""
        if stored_composition(self.path) == self.composition:
            stored = checkpoint.load(self.path)
            with checkpoint.reading(self.path):
                self._restore(stored)
        for member in self.members:
            if (member.folder / RESULT).exists():
                member.result = TrialResult.load(member.folder)
                self._park(member)

    def _restore(self, stored: checkpoint.Checkpoint) -> None:
        facts = stored.facts
        if facts["data"] != self.identity:
            raise CheckpointError(f"{self.spec.data} has changed since {self.path} was written: delete it")
        own = {**self.network.parameters.tensors(), "steps": self.optimiser.steps, "loss_sum": self.loss_sum}
        copy_into(own, stored.tensors, what=str(self.path))
        for member, best, dynamics in zip(self.members, facts["best"], facts["dynamics"], strict=True):
            member.best, member.dynamics = best, dynamics
        for records in map(files.parse_json, facts["told"]):
            for member, record in zip(self.members, records, strict=True):
                if record is not None:
                    member.history.append(record[0])
                    member.timings.append(record[1])
        common = {name: facts[name] for name in ("epoch", "batch", "samples", "seconds")}
        for m in self.members:
            own_records = {"history": m.history, "timings": m.timings, "best": m.best, "dynamics": m.dynamics}
            check(Position, {**common, **own_records, "loss_sum": 0.0, "precision": {}}, self.spec.epochs)
        self.epoch, self.batch, self.samples = facts["epoch"], facts["batch"], facts["samples"]
        self.seconds, self._told = facts["seconds"], facts["told"]

    def _facts(self) -> dict[str, Any]:
        names = ("composition", "epoch", "batch", "samples", "seconds")
        own = {name: getattr(self, name) for name in names}
        each = {name: [getattr(m, name) for m in self.members] for name in ("best", "dynamics")}
        return own | each | {"data": self.identity, "told": self._told}


def _scale(values: Tensor) -> float:
    """The size of the largest value, by which small ones round."""
    return float(values.abs().nan_to_num(0.0, 0.0).max()) if values.numel() else 0.0


def stored_composition(path: Path) -> list[str]:
    """The digests of the stack whose checkpoint this is; none where there is none."""
    return list(checkpoint.read_facts(path).get("composition", [])) if path.exists() else []


# What happens inside each trial, taken on one batch as `apical.train.dynamics` takes it of one network.

Shares = dict[str, list[float | None]]


@contextmanager
def watched(stack: StackedNetwork, networks: Sequence[nn.Module]) -> Iterator[list[dict[str, Any]]]:
    """Fills one record for each trial when the block ends: run one forward and one backward pass in it."""
    records: list[dict[str, Any]] = []
    for _, activation in stack.activations:
        activation.seen = []
    try:
        yield records
        inactive, saturated = _shares(stack)
        norms = _norms(stack)
        for i, network in enumerate(networks):
            own = [{name: v[i] for name, v in shares.items() if v[i] is not None} for shares in (inactive, saturated)]
            records.append({"inactive": own[0], "saturated": own[1], "gradient": _gradient(stack, network, norms)})
    finally:
        for _, activation in stack.activations:
            activation.seen = None


@torch.no_grad()
def _shares(stack: StackedNetwork) -> tuple[Shares, Shares]:
    """For each activation by name the shares of inactive and of saturated units of each trial."""
    inactive: Shares = {}
    saturated: Shares = {}
    for name, activation in stack.activations:
        assert activation.seen
        z = activation.seen[-1]  # a trial that diverged made the step begin anew
        branches = ["activation"]
        halves = [z]
        if activation.pyramidal:
            branches, halves = ["basal", "apical"], list(composite.branches(z, activation.count, 0))
        for i, (branch, half) in enumerate(zip(branches, halves, strict=True)):
            inactive[f"{name}.{branch}"] = _means(half < 0, activation)
            if any(group.alphas[i] for group in activation.groups):
                saturated[f"{name}.{branch}"] = _saturated(half, activation, i)
    return inactive, saturated


def _norms(stack: StackedNetwork) -> dict[int, list[float]]:
    """The norm of the gradient of each stacked parameter, for each trial, by the parameter's identity."""
    return {
        id(s): torch.linalg.vector_norm(s.gradient.flatten(1), dim=1).double().tolist() for s in stack.parameters.all
    }


def _gradient(stack: StackedNetwork, network: nn.Module, norms: dict[int, list[float]]) -> dict[str, float | None]:
    """What `gradient_norms` says of one network."""
    gradients: dict[str, float | None] = {}
    for name, module in network.named_modules():
        own = [stack.parameters.place(p) for p in module._parameters.values() if p is not None]
        if own:
            norm = hypot(*(norms[id(stacked)][row] for stacked, row in own))
            gradients[name] = norm if isfinite(norm) else None
    return gradients


def _means(mask: Tensor, activation: StackedActivation) -> list[float | None]:
    """The share of True for each trial."""
    each = mask.reshape(activation.count, -1)
    return (each.sum(1).double() / each.shape[1]).tolist()


def _saturated(x: Tensor, activation: StackedActivation, branch: int) -> list[float | None]:
    """The share of alpha*x > 5 for each trial whose activation has an alpha, None for the others."""
    own = [(group, group.alphas[branch]) for group in activation.groups]
    alphas = [alpha() if alpha else x.new_full((group.count * group.outputs,), float("nan")) for group, alpha in own]
    shares = _means(x * torch.cat(alphas).view(-1, *[1] * (x.dim() - 1)) > SATURATED, activation)
    has = [alpha is not None for group, alpha in own for _ in range(group.count)]
    return [share if known else None for share, known in zip(shares, has, strict=True)]
