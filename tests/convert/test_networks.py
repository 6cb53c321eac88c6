"""Networks that other people wrote, converted: what runs afterwards is what the report and the table in the docs say.

What runs is seen by hooks on a real forward, and by nothing that conversion itself uses.
"""

import copy
import os
import re
import sys
import tempfile
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

import apical
from apical.convert import ConversionReport, Row
from apical.convert.branch import ApicalBranch

pytestmark = pytest.mark.slow

pytest.importorskip("transformers", reason="make test-slow installs the libraries")
from networks import NETWORKS, Network  # noqa: E402 - it defines operators that need the libraries

PAGE = (Path(__file__).parents[2] / "docs" / "convert.md").read_text(encoding="utf-8")
HIDDEN = ("relu", "relu6", "leaky_relu", "prelu", "rrelu", "elu", "celu", "selu", "gelu", "silu", "mish", "hardswish")
GATES = ("sigmoid", "tanh", "hardsigmoid", "softplus", "hardtanh", "logsigmoid", "softsign")


def _functions() -> dict[Any, str]:
    known: dict[Any, str] = {}
    for kind in (*HIDDEN, *GATES):
        for home in (F, torch, Tensor):
            for name in (kind, f"{kind}_"):
                if callable(function := getattr(home, name, None)):
                    known[function] = kind
    return known


FUNCTIONS = _functions()


@dataclass
class Event:
    """An activation that ran: the name of its module, or of the module that calls it with the function's name."""

    owner: str
    kind: str
    is_module: bool
    result: Tensor
    in_neuron: bool = False

    @property
    def name(self) -> str:
        return self.owner if self.is_module else f"{self.owner}.{self.kind}".lstrip(".")


def is_activation(module: nn.Module) -> bool:
    """By the library that wrote its class."""
    home = type(module).__module__
    libraries = ("torch.nn.modules.activation", "transformers.activations", "timm.layers.activations")
    return home.startswith(libraries) and type(module).__name__ not in ("MultiheadAttention", "Softmax", "GLU")


class Watch(TorchFunctionMode):
    """Every activation that a network runs outside of apical's own modules."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.names = {module: name for name, module in model.named_modules()}
        self.stack: list[nn.Module] = []
        self.events: list[Event] = []
        self.branches: list[Tensor] = []
        self.ends = {id(branch.activation) for branch in model.modules() if isinstance(branch, ApicalBranch)}
        for module in self.names:
            module.register_forward_pre_hook(lambda module, args: self.stack.append(module))
            module.register_forward_hook(self.leave)

    def leave(self, module: nn.Module, args: Any, result: Any) -> None:
        self.stack.pop()
        if isinstance(module, ApicalBranch) or id(module) in self.ends:
            self.branches.append(result)
        outer = any(is_activation(each) or is_ours(each) for each in self.stack)
        if is_activation(module) and not outer and isinstance(result, Tensor):
            self.events.append(Event(self.names[module], type(module).__name__, True, result))

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func in FUNCTIONS and self.stack and not any(is_activation(m) or is_ours(m) for m in self.stack):
            self.events.append(Event(self.names[self.stack[-1]], FUNCTIONS[func], False, result))
        elif func in (Tensor.add, Tensor.__add__, torch.add) and any(args[1] is branch for branch in self.branches):
            for event in self.events:
                event.in_neuron = event.in_neuron or event.result is args[0]
        return result


def is_ours(module: nn.Module) -> bool:
    return type(module).__module__.startswith("apical.")


def call(model: nn.Module, inputs: Any) -> list[Tensor]:
    """All tensors that the model returns."""
    torch.manual_seed(7)
    with torch.no_grad():
        result = (
            model(**inputs) if isinstance(inputs, dict) else model(*inputs if isinstance(inputs, tuple) else (inputs,))
        )
    return tensors(result)


def tensors(value: Any) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    parts = value.values() if hasattr(value, "values") else value if isinstance(value, (list, tuple)) else ()
    return [each for part in parts for each in tensors(part)]


def equal(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) == len(other) > 0 and all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def events(model: nn.Module, inputs: Any) -> list[Event]:
    model = copy.deepcopy(model)
    with Watch(model) as watch:
        call(model, inputs)
    return [event for event in watch.events if not event.in_neuron]


def plain(name: str) -> str:
    """A name without the number of the call."""
    return re.sub(r"( \(call \d+\)|_\d+)$", "", name)


def names(row: Row) -> set[str]:
    """What an activation is called where it runs: a function that is kept as an attribute by the function's name."""
    own = plain(row.name)
    return {own, f"{own.rpartition('.')[0]}.{row.kind}".lstrip(".")} if row.before.endswith("()") else {own}


def check_agrees(report: ConversionReport, before: list[Event], after: list[Event]) -> None:
    """The report lists all that ran before, and as kept what still runs."""
    kept = {name for row in report.kept for name in names(row)}
    converted = {name for row in report.converted for name in names(row)}
    unasked = [
        row for row in report.kept if not row.asked and not row.reason.startswith(("a value leaves", "operator"))
    ]
    owners = {plain(row.name).rpartition(".")[0] for row in unasked}
    inside = kept | converted | owners  # an event of a class that is_activation does not know has it as its owner
    assert all(plain(event.name) in kept | converted or event.owner in inside for event in before)
    still = {plain(event.name) for event in after}
    hidden = {plain(event.name) for event in after if event.is_module or event.kind in HIDDEN}
    assert hidden <= kept | {name for name in hidden if name.rpartition(".")[0] in owners}
    assert still <= kept | {name for name in still if name.rpartition(".")[0] in owners}
    ran = {plain(event.name) for event in before}
    assert (kept & ran) <= still
    assert not (converted & still) or all(name in kept for name in converted & still)


def line(network: Network, counts: dict[tuple[str, bool], str], report: ConversionReport, refused: str) -> str:
    """The network's line of the table, with the most frequent reason for which an activation stays."""
    reasons = [row.reason for row in report.kept if row.asked]
    if counts["pynada", True] == "refused":
        reasons = [refused.partition(": ")[2].partition("): ")[0]]
    why = max(set(reasons), key=lambda reason: (reasons.count(reason), reason)) if reasons else ""
    why = re.sub(r"\(.*?\)", "", why).replace("  ", " ").replace("|", "/")
    cells = [network.name, network.library, counts["ada", False], counts["pynada", False], counts["pynada", True], why]
    return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def convert(model: nn.Module, unit: str, inputs: Any) -> ConversionReport | str:
    """The report, or the sentence that refuses a pyramidal unit: no layer feeds any activation, or none is known to."""
    try:
        return apical.convert_(model, unit, example_inputs=inputs)
    except apical.errors.ConversionError as error:
        refusal = str(error)
    assert unit == "pynada"
    assert "needs one affine layer" in refusal or (inputs is None and "example_inputs=..." in refusal)
    return refusal


def outcome(network: Network, tmp_path: Path) -> str:
    """Convert in four ways, check each by what runs, and return the line of the table."""
    inputs, model = network.inputs(), network.build()
    original, before = call(model, inputs), events(model, inputs)
    counts: dict[tuple[str, bool], str] = {}
    refused = ""
    for unit in ("ada", "pynada"):
        for shown in (False, True):
            report = convert(model, unit, inputs if shown else None)
            if isinstance(report, str):
                counts[unit, shown], refused = "refused", report
                assert equal(call(model, inputs), original)
                continue
            last = report
            asked = [row for row in report.rows if row.asked]
            counts[unit, shown] = f"{len(report.converted)} of {len(asked)}"
            check_agrees(report, before, events(report.model, inputs))
            converted = call(report.model, inputs)
            if shown == (unit == "pynada"):
                report.save(tmp_path / "conversion.json")
                fresh = network.build()
                apical.convert.load(fresh, tmp_path / "conversion.json")
                fresh.load_state_dict(report.model.state_dict())
                assert equal(call(fresh, inputs), converted)
            report.undo()
            assert equal(call(model, inputs), original)
    assert counts["ada", False] == counts["ada", True]
    return line(network, counts, last, refused)


@pytest.mark.filterwarnings("default")  # those of other people's networks
@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.name)
def test_network(network: Network, tmp_path: Path) -> None:
    assert outcome(network, tmp_path) in PAGE


def test_a_library_that_changes_others_leaves_no_trace() -> None:
    next(network for network in NETWORKS if network.library == "ultralytics").build()
    assert [Image.open.__module__, torch.save.__module__] == ["PIL.Image", "torch.serialization"]
    assert "NUMEXPR_MAX_THREADS" not in os.environ
    assert torch._tensor_str.PRINT_OPTS.linewidth == 80
    assert np.get_printoptions()["formatter"] is None


def test_the_table_has_no_other_networks() -> None:
    table = [row for row in PAGE.splitlines() if row.count("|") == 7 and " of " in row]
    assert len(table) == len(NETWORKS) >= 60


if __name__ == "__main__":  # prints the table, or the lines of the networks that are named
    warnings.simplefilter("ignore")
    for each in NETWORKS:
        if len(sys.argv) == 1 or each.name in sys.argv:
            print(outcome(each, Path(tempfile.mkdtemp())), flush=True)
