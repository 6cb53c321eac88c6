"""The reduced variant of a study: fewer epochs, trials and samples, a smaller grid. Its name and its notes say so."""

from math import ceil

from apical.study.file import Part, Row, Study, Value
from apical.study.plan import spec_of
from apical.study.written import QuickTable

TRIALS = 2
SHARE = 0.1
"""Of the epochs, rounded up."""


def reduced(study: Study, quick: QuickTable) -> Study:
    """The quick variant: what `quick` says, and where it says nothing, 2 trials, a tenth of the epochs, two values."""
    trials = quick.trials or min(study.trials, TRIALS)
    parts = tuple(_part(part, quick) for part in study.parts)
    rows = tuple(_row(row, quick.tune.grids()) for row in study.rows)
    pairs = zip(study.parts, parts, strict=True)
    epochs = ", ".join(dict.fromkeys(f"{spec_of(new).epochs} of {spec_of(old).epochs}" for old, new in pairs))
    grid = ", a smaller grid" if rows != study.rows else ""
    samples = f", at most {quick.samples} samples of each split" if quick.samples else ""
    note = f"quick: {trials} of {study.trials} trials, {epochs} epochs{grid}{samples}: no replication"
    changes = {"name": f"{study.name}-quick", "title": f"{study.title} (quick)", "notes": (note, *study.notes)}
    return study.model_copy(update={**changes, "quick": True, "trials": trials, "parts": parts, "rows": rows})


def _part(part: Part, quick: QuickTable) -> Part:
    full, changes = spec_of(part), quick.training
    epochs = changes.get("epochs", ceil(SHARE * full.epochs))
    milestones = [max(1, round(m * epochs / full.epochs)) for m in full.milestones]
    training = {**part.training, "epochs": epochs, "milestones": milestones, **changes}
    if not training["milestones"]:
        del training["milestones"]
    fewer = (f"subset(samples={quick.samples})",) if quick.samples else ()
    return part.model_copy(update={"training": training, "corruptions": (*fewer, *part.corruptions)})


def _row(row: Row, grids: dict[str, tuple[Value, ...]]) -> Row:
    tune = {name: grids.get(name, _fewer(values)) for name, values in row.tune.items()}
    return row.model_copy(update={"tune": tune})


def _fewer(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """At most two: one from the first half, and the last, which may be "learn"."""
    return values if len(values) <= 2 else (values[len(values) // 4], values[-1])
