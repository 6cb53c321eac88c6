"""ConversionReport: what became of each activation, as data, as a table, and the way back."""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from apical.errors import ConversionError

COLUMNS = ("name", "before", "after", "inputs", "reason")


@dataclass(frozen=True)
class Row:
    """One activation: its name, what it was, what it is, the inputs it saw, and why it was kept, where it was."""

    name: str
    before: str
    after: str
    reason: str = ""
    inputs: str = ""

    @property
    def converted(self) -> bool:
        return not self.reason


@dataclass
class ConversionReport:
    """What `convert_` did. `model` is the model to use; `print(report)` shows the table; `undo()` takes it back."""

    model: nn.Module
    unit: str
    rows: list[Row]
    _restore: Callable[[], nn.Module] = field(repr=False)
    _values: dict[str, Tensor] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._remember()

    def _remember(self) -> None:
        self._values = {name: value.detach().cpu().clone() for name, value in _state(self.model).items()}

    @property
    def converted(self) -> list[Row]:
        """The rows of what was converted."""
        return [row for row in self.rows if row.converted]

    @property
    def kept(self) -> list[Row]:
        """The rows of what was not, each with its reason."""
        return [row for row in self.rows if not row.converted]

    def undo(self, *, discard: bool = False) -> nn.Module:
        """Put the model back as it was, and return it; values that changed since need `discard=True`."""
        changed = self._changed()
        if changed and not discard:
            raise ConversionError(
                f"{len(changed)} values of the model have changed since its conversion (e.g. {changed[0]}), "
                "and undo would lose that: call report.undo(discard=True)"
            )
        state = _state(self.model)
        with torch.no_grad():
            for name in changed:
                if name in state:
                    state[name].copy_(self._values[name])
        device = next((value.device for value in state.values()), None)
        self.model = self._restore()
        if device is not None:
            self.model.to(device)
        self._remember()
        return self.model

    def _changed(self) -> list[str]:
        state = _state(self.model)
        differs = [
            name for name, value in state.items() if name not in self._values or not _equal(value, self._values[name])
        ]
        return differs + [name for name in self._values if name not in state]

    def __str__(self) -> str:
        head = f"{len(self.converted)} of {len(self.rows)} converted to {self.unit}"
        columns = [name for name in COLUMNS if any(getattr(row, name) for row in self.rows)]
        lines = [columns, *([str(getattr(row, name)) for name in columns] for row in self.rows)]
        widths = [max(len(line[i]) for line in lines) for i in range(len(columns))]
        table = [
            "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines
        ]
        return "\n".join([head, "", table[0], "  ".join("-" * width for width in widths), *table[1:]])


def _state(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, those that state_dict leaves out included."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _equal(value: Tensor, before: Tensor) -> bool:
    value = value.detach().to(device=before.device, dtype=before.dtype)
    return value.shape == before.shape and bool(((value == before) | (value.isnan() & before.isnan())).all())
