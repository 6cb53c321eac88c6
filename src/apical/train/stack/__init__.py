"""Stacks: many trials of small networks trained as one program. Which trials can be stacked, and the memory they need.

In the step of a small network most time goes into Python and the calls of torch. So trials that see the same batches
are trained together. Every layer holds the weights of all k trials in one tensor (k, outputs, inputs), and the
parameters of each network are views of it. The first layers share their input and are one product, later ones are
batched products; images have their samples last, as our own convolutions and pooling want them (`network`);
activations of one kind are one call (`activations`). Gradients of affine layers, convolutions and losses are computed
by hand, in place; autograd differentiates what lies between. One fused Adam updates everything. Nothing is summed over
trials, so each trial's gradient is the one it has alone, up to rounding; a stack is compared with its networks before
it trains. A trial that diverges is parked: its weights and gradients become zero, its row stays (`session`). The
descriptors of the kind of unit, the network and the loss say what can be stacked. `trials` has the loop, folders and
checkpoints.
"""

from dataclasses import fields
from functools import cache

from apical.nn import Unit, kinds
from apical.train import losses
from apical.train.spec import Execution, TrialSpec

OPTIMISERS = ("adam", "adamw")
OWN = ("unit", "learning_rate", "seed")
"""Fields in which the trials of a stack may differ."""
OF_ONE = ("lenet",)
"""Networks of which a single trial is faster as a stack of one, with convolutions of our own instead of torch's."""


def stack_key(spec: TrialSpec) -> str | None:
    """Trials with the same key can be trained as one stack; None: alone (`unstackable_reason` says why).

    They agree in everything but the unit (its kind, alpha, c, leak; not in being pyramidal, which changes shapes) and
    the learning rate. They share their batches, so they agree in the seed too; where one batch holds a whole toy
    problem there is no order, and seeds may differ.
    """
    if unstackable_reason(spec) is not None:
        return None
    shared = [f"{name}={getattr(spec, name)!r}" for name in _SHARED]
    whole = spec.batch >= _toys().get(spec.data, spec.batch + 1)
    order = "any" if whole and not any("by_trial=True" in text for text in spec.corruptions) else spec.seed
    return "; ".join([*shared, f"pyramidal={_pyramidal(spec.unit)}", f"order={order}"])


_SHARED = tuple(f.name for f in fields(TrialSpec) if f.name not in OWN)


def unstackable_reason(spec: TrialSpec, execution: Execution | None = None) -> str | None:
    """Why a trial cannot be stacked, in one sentence; None where it can."""
    from apical import models  # noqa: PLC0415  torch

    how = execution or Execution()
    if spec.convert or not (models.stacks(spec.model) and models.takes_unit(spec.model)):
        what = f"{spec.model} with convert" if spec.convert else spec.model
        return f"network {what!r} cannot be stacked, only {', '.join(filter(models.stacks, models.list()))} can"
    if not kinds.stackable(spec.unit):
        return f"unit {spec.unit!r} cannot be stacked: it draws noise, or is not registered with stack=True"
    if not losses.find(spec.loss).stacks:
        return f"loss {spec.loss!r} has no gradient_of_each and cannot be stacked"
    if spec.optimiser not in OPTIMISERS or spec.clip is not None:
        return f"trials with optimiser={spec.optimiser!r}, clip={spec.clip} cannot be stacked, only Adam without clip"
    if spec.precision != "32" or spec.augment:
        return f"trials with precision {spec.precision!r} and augment={spec.augment} cannot be stacked"
    if how.device not in ("auto", "cpu") or how.devices > 1 or how.strategy != "auto" or how.compile:
        return "stacks are trained by one CPU process that compiles nothing"
    return None


def faster_as_stack(spec: TrialSpec, execution: Execution | None = None) -> bool:
    """True where `run` trains a single trial as a stack of one.

    `channels_last`, if given, and `winograd` ask for torch's layouts.
    """
    how = execution or Execution()
    asks_for_torch = how.channels_last is not None or bool(how.winograd)
    if spec.model not in OF_ONE or asks_for_torch or unstackable_reason(spec, how) is not None:
        return False
    import torch  # noqa: PLC0415  and what follows needs it

    from apical.kernels import choice, images  # noqa: PLC0415
    from apical.train.devices import on_one_cpu  # noqa: PLC0415

    return on_one_cpu(spec, how) and choice.path(torch.empty(1)) == "native" and images.serves()


@cache
def _toys() -> dict[str, int]:
    """Samples of the problems that one batch can hold."""
    from apical.data.sets.toy import RECIPES  # noqa: PLC0415  torch

    return {recipe.name: recipe.counts[0] for recipe in RECIPES if recipe.counts}


why_alone = unstackable_reason  # its first name


@cache
def _pyramidal(unit: str) -> bool:
    return Unit.parse(unit).pyramidal


def stack_bytes(*, parameters: int, units: int, outputs: int, batch: int, evaluated: int, validation: int) -> int:
    """Bytes that one more trial adds to the peak of a stack, as `run_many` says it; `memory_of` knows the numbers."""
    kept = 5 * parameters + 3 * outputs * validation  # values, gradients, two moments, best values; validation outputs
    rooms = 2 * units * batch  # what a step computed, where the next one will write
    passing = max(8 * parameters, 2 * units * batch, 2 * units * evaluated)  # a checkpoint twice, a step, or a pass
    return 4 * (kept + rooms + passing)


def memory_of(spec: TrialSpec, execution: Execution | None = None) -> int:
    """Bytes that one more trial like this one adds to the peak of a stack (`stack_bytes`)."""
    import torch  # noqa: PLC0415  and what follows needs it
    from torch import nn  # noqa: PLC0415

    from apical.train.session import build, dims_for, evaluation_batch  # noqa: PLC0415
    from apical.train.stack.network import SAMPLES  # noqa: PLC0415
    from apical.train.trial import open_data  # noqa: PLC0415

    data = open_data(spec, execution or Execution())
    network = build(spec, dims_for(spec, data))
    values: list[int] = []
    for module in network.modules():
        if isinstance(module, nn.Linear | nn.Conv2d):  # the weights of a pyramidal neuron count both branches
            module.register_forward_hook(lambda m, _, out: values.append(out.numel() * len(m.weight) // out.shape[1]))
    with torch.no_grad():
        outputs = network(data.validation.inputs([0]))
    images = any(isinstance(module, nn.Conv2d) for module in network.modules())
    evaluated = SAMPLES if images else evaluation_batch(data.validation, spec.batch)
    return stack_bytes(
        parameters=sum(p.numel() for p in network.parameters()),
        units=sum(values),
        outputs=outputs.numel(),
        batch=min(spec.batch, len(data.train)),
        evaluated=min(evaluated, len(data.validation)),
        validation=len(data.validation),
    )
