"""How many trials may share a program: what the study says, and what fits into memory."""

from math import prod
from typing import Any

from torch import nn

from apical.data import DataSet
from apical.errors import InvalidArgumentError
from apical.study.file import Study
from apical.study.plan import spec_of
from apical.train import Execution, TrialSpec, devices, stack_bytes, why_alone
from apical.train.feed import evaluation_batch
from apical.train.network import build, dims_for
from apical.train.trial import open_data


def stack_size(study: Study, how: Execution, *, stack: bool, memory: float | None) -> int:
    """Trials in a stack: 1 where none is wanted or nothing can be stacked here; `memory` is in bytes, of one worker."""
    specs = [spec_of(part, "pynrelu") for part in study.parts]
    able = [spec for spec in specs if why_alone(spec, how) is None and type(devices.engine(spec, how)) is devices.Plain]
    if not stack or study.stack == 1 or not able:
        return 1
    if memory is None:
        return study.stack
    need = max(trial_bytes(spec, open_data(spec, how)) for spec in able)
    if memory < need:
        raise InvalidArgumentError(
            f"--memory allows {memory / 1e9:.3g} GB for a worker, but one trial needs {need / 1e9:.3g} GB"
        )
    return min(study.stack, int(memory // need))


def trial_bytes(spec: TrialSpec, data: DataSet) -> int:
    """Bytes that a trial adds to a stack."""
    network = build(spec, dims_for(spec, data))
    shapes: list[tuple[int, ...]] = []

    def note(_: nn.Module, __: Any, output: Any) -> None:
        shapes.append(tuple(output.shape[1:]))

    hooks = [m.register_forward_hook(note) for m in network.modules() if not list(m.children())]
    outputs = network.eval()(data.validation.inputs([0, 1]))
    for hook in hooks:
        hook.remove()
    return stack_bytes(
        parameters=sum(p.numel() for p in network.parameters()), units=sum(map(prod, shapes)),
        outputs=outputs.shape[1], batch=spec.batch, evaluated=evaluation_batch(data.validation, spec.batch),
        validation=len(data.validation),
    )  # fmt: skip
