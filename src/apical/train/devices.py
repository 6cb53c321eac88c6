"""The device of a trial. `SingleDevice` is one float32 CPU process, torch alone; `Parallel` uses Lightning Fabric.

Both have the same methods, so that there is one training loop. `SingleDevice` exists because Fabric's wrappers cost
tens of microseconds a step, which is much of the step of a small network.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from math import isfinite
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from apical import imports, torch_private, trust
from apical.errors import InvalidArgumentError
from apical.train.optimisation import FastStep
from apical.train.spec import Execution, TrialSpec

_ONE = torch.ones(())
_run_backward: Any = torch_private.run_backward
FABRIC_PRECISION: dict[str, Any] = {"32": "32-true", "bf16-mixed": "bf16-mixed", "16-mixed": "16-mixed"}


class Agreed(NamedTuple):
    """What all processes know after a batch: its mean loss, and whether anyone was asked to stop."""

    loss: float
    stop: bool


class SingleDevice:
    """One process on the CPU, in float32."""

    rank, world = 0, 1
    device = torch.device("cpu")

    def launch(self, work: Callable[..., Any], *arguments: Any) -> Any:
        """Call `work(self, *arguments)` in every process; the first one's answer."""
        return work(self, *arguments)

    def setup(self, network: Any, optimiser: Optimizer) -> tuple[Any, Any]:
        """What to call for training, and the optimiser to step."""
        return network, FastStep(optimiser)

    def backward(self, loss: Tensor) -> None:
        """Gradients of the loss, averaged over the processes."""
        _run_backward((loss,), (_ONE,), False, False, (), allow_unreachable=True, accumulate_grad=True)

    def autocast(self) -> AbstractContextManager[Any]:
        """The precision of the trial, for passes that do not go through `setup`'s model."""
        return nullcontext()

    def wait(self) -> None:
        """Until the device has done what it was asked, before a clock is read."""

    def scale(self, loss: Tensor, own: int, all_: int) -> Tensor:
        """The share of this process in the mean over all samples of the batch."""
        return loss

    def agree(self, loss: float, own: int, stop: bool) -> Agreed:
        """The loss over all processes, and whether any of them was asked to stop."""
        return Agreed(loss, stop)

    def clip(self, network: Any, optimiser: Any, norm: float) -> None:
        """Shorten the gradient to `norm`."""
        nn.utils.clip_grad_norm_(network.parameters(), norm)

    def gather(self, tensor: Tensor) -> Tensor:
        """The tensors of all processes, stacked."""
        return tensor[None]

    def state(self) -> dict[str, float]:
        """What the precision keeps between steps."""
        return {}

    def load_state(self, state: dict[str, float]) -> None:
        """Continue from `state`."""


class Parallel(SingleDevice):
    """Any devices, precision and strategy that Fabric knows."""

    def __init__(self, spec: TrialSpec, execution: Execution) -> None:
        fabric = imports.optional("lightning_fabric", extra="lab").Fabric
        try:
            self.fabric = fabric(
                accelerator=execution.device,
                devices=execution.devices,
                strategy=execution.strategy,
                precision=FABRIC_PRECISION[spec.precision],
            )
        except (ValueError, RuntimeError, ImportError) as error:
            raise InvalidArgumentError(f"this machine cannot run {describe(spec, execution)}: {error}") from error

    def launch(self, work: Callable[..., Any], *arguments: Any) -> Any:
        given = trust.allowed()

        def begin(_: Any, *arguments: Any) -> Any:
            trust.grant(*given)
            self.rank, self.world, self.device = self.fabric.global_rank, self.fabric.world_size, self.fabric.device
            return work(self, *arguments)

        return self.fabric.launch(begin, *arguments)

    def setup(self, network: Any, optimiser: Optimizer) -> tuple[Any, Any]:
        return self.fabric.setup(network, optimiser)  # type: ignore[no-any-return]

    def backward(self, loss: Tensor) -> None:
        self.fabric.backward(loss)

    def autocast(self) -> AbstractContextManager[Any]:
        return self.fabric.autocast()  # type: ignore[no-any-return]

    def wait(self) -> None:
        if self.device.type != "cpu":
            torch.accelerator.synchronize(self.device)

    def scale(self, loss: Tensor, own: int, all_: int) -> Tensor:
        # Gradients are averaged over processes; their shards of a last, short batch may differ by one sample.
        return loss if self.world == 1 else loss * (own * self.world / all_)

    def agree(self, loss: float, own: int, stop: bool) -> Agreed:
        if self.world == 1:
            return Agreed(loss, stop)
        mine = torch.tensor([loss * own if isfinite(loss) or own else 0.0, own, stop], dtype=torch.float64)
        total = self.fabric.all_reduce(mine.to(self.device), reduce_op="sum").tolist()
        return Agreed(total[0] / total[1], total[2] > 0)

    def clip(self, network: Any, optimiser: Any, norm: float) -> None:
        self.fabric.clip_gradients(network, optimiser, max_norm=norm)

    def gather(self, tensor: Tensor) -> Tensor:
        return self.fabric.all_gather(tensor).reshape(self.world, *tensor.shape)  # type: ignore[no-any-return]

    def state(self) -> dict[str, float]:
        return dict(self.fabric._precision.state_dict())

    def load_state(self, state: dict[str, float]) -> None:
        if state:
            self.fabric._precision.load_state_dict(state)


def runtime(spec: TrialSpec, execution: Execution) -> SingleDevice:
    """The side that can do what is asked."""
    if _on_cpu(execution) and spec.precision == "16-mixed":  # Fabric would quietly take bf16, which is another trial
        raise InvalidArgumentError("precision is '16-mixed', but the CPU has no such mode: use bf16-mixed or 32")
    return SingleDevice() if on_one_cpu(spec, execution) else Parallel(spec, execution)


def on_one_cpu(spec: TrialSpec, execution: Execution) -> bool:
    """True where a trial needs no Fabric; nothing is asked of this machine, since a node may have the device."""
    return _on_cpu(execution) and execution.devices == 1 and execution.strategy == "auto" and spec.precision == "32"


def _on_cpu(execution: Execution) -> bool:
    return execution.device == "cpu" or (execution.device == "auto" and not _accelerator())


def describe(spec: TrialSpec, execution: Execution) -> str:
    """Devices, strategy and precision in words."""
    return (
        f"devices={execution.devices} of {execution.device!r} with strategy={execution.strategy!r} "
        f"and precision={spec.precision!r}"
    )


def _accelerator() -> bool:
    return torch.cuda.is_available() or torch.backends.mps.is_available()
