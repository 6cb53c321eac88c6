"""What a conversion did: one row for each activation that was met."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Change:
    """One activation: where, what it was, what it became, and why where it stayed."""

    name: str
    before: str
    after: str
    reason: str = ""

    @property
    def converted(self) -> bool:
        """True where the activation was replaced."""
        return not self.reason


@dataclass
class ConversionReport:
    """The converted model, and every activation with what became of it. Prints as a table."""

    model: Any
    unit: str
    rows: list[Change] = field(default_factory=list)

    @property
    def converted(self) -> list[Change]:
        """The activations that were replaced."""
        return [row for row in self.rows if row.converted]

    @property
    def kept(self) -> list[Change]:
        """The activations that stayed, each with its reason."""
        return [row for row in self.rows if not row.converted]

    def __str__(self) -> str:
        lines = [("layer", "before", "after", "reason")]
        lines += [(row.name, row.before, row.after, row.reason) for row in self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(4)]
        table = ["  ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)).rstrip() for line in lines]
        summary = f"{len(self.converted)} of {len(self.rows)} activations became {self.unit}"
        return "\n".join([*table, summary])
