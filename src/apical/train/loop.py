"""The loop: a trial from where it stands to its end."""

from collections.abc import Callable
from math import isfinite
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from apical.train import losses, metrics
from apical.train.callbacks import Reporter
from apical.train.devices import Plain
from apical.train.dynamics import watched_if
from apical.train.feed import Feed
from apical.train.result import State
from apical.train.session import Session
from apical.train.signals import Stop


def fit(s: Session, *, stop: Stop, report: Reporter) -> State:
    """Train and validate, epoch by epoch; leave within a batch when asked to stop, and before a step that diverges."""
    engine, model, optimiser, criterion, how = s.engine, s.model, s.optimiser, s.criterion, s.execution
    while s.epoch < s.spec.epochs:
        s.begin_epoch()
        start = perf_counter() - s.seconds
        for inputs, labels in s.train.epoch(s.epoch, start=s.batch):
            with watched_if(how.dynamics and s.batch == 0, s.network, units=not how.compile) as seen:
                outputs = model(inputs)
                loss = criterion(outputs, labels) if len(labels) else 0.0 * outputs.sum()
                agreed = engine.agree(loss.item(), len(labels), bool(stop))
                if not isfinite(agreed.loss):
                    return "diverged"
                optimiser.zero_grad()
                engine.backward(engine.scale(loss, len(labels), s.train.samples(s.batch)))
            s.dynamics = seen or s.dynamics
            if s.spec.clip is not None:
                engine.clip(model, optimiser, s.spec.clip)
            optimiser.step()
            s.advance(agreed.loss)
            report.batch(s.epoch + 1, s.batch, s.loss)
            if agreed.stop:
                return s.leave(perf_counter() - start)
        s.seconds = perf_counter() - start
        if not s.finite():
            return "diverged"
        found = validate(s, stop)
        if found is None:
            return s.leave(s.seconds)
        record = s.end_epoch(found, perf_counter() - start - s.seconds)
        if s.due():
            s.save()
        report.epoch(s.epoch, record)
    return "done"


def validate(s: Session, stop: Stop | None = None) -> dict[str, float] | None:
    """Every metric of the task, and the loss, on the validation split; None where it was asked to stop."""
    s.network.eval()
    found = collect(s.forward, s.validation, s.engine, stop)
    if found is None:
        return None
    return scores(s.spec.loss, *found)


def scores(loss: str, outputs: Tensor, labels: Tensor) -> dict[str, float]:
    """Every metric of the task, and the loss, of a network's outputs (n, ...)."""
    how = losses.find(loss)
    own = metrics.scores(how.answer(outputs), labels, task=how.task)
    return own | {"loss": float(how.compute(outputs, labels))}


@torch.no_grad()
def collect(
    forward: Callable[[Tensor], Any], feed: Feed, engine: Plain, stop: Stop | None = None
) -> tuple[Tensor, Tensor] | None:
    """Outputs and labels of a whole split, in its order, on the CPU in float32; None where it was asked to stop."""
    pairs = []
    with engine.autocast():
        for inputs, labels in feed.epoch():
            pairs.append((forward(inputs).float(), labels))
            if stop is not None and engine.agree(0.0, 1, bool(stop)).stop:
                return None
    return torch.cat([o for o, _ in pairs]).cpu(), torch.cat([y for _, y in pairs]).cpu()
