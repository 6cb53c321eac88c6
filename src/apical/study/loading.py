"""`load`: a study file made into a Study, with all that is wrong in it said at once."""

from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from apical.errors import StudyError
from apical.study import checks, source
from apical.study.faults import checked
from apical.study.file import Group, PaperNumber, Part, Row, Study
from apical.study.quick import reduced
from apical.study.source import Document
from apical.study.written import GROUPS, GroupTable, PartTable, Printed, RowTable, StudyTable, Tune

LABELS = {
    "relu": "ReLU",
    "leaky_relu": "leaky ReLU",
    "rbf": "RBF",
    "swish": "Swish",
    "ada": "ADA",
    "leaky_ada": "leaky ADA",
    "pynrelu": "PyNReLU",
    "pynrbf": "PyNRBF",
    "pynswish": "PyNSwish",
    "pynada": "PyNADA",
    "leaky_pynada": "leaky PyNADA",
}


def names() -> tuple[str, ...]:
    """The studies that come with apical."""
    return tuple(source.shipped())


QUICK = ("trials", "training.", "samples")
"""What a quick variant reduces, and `--set` may say too."""


def load(name: str | Path, *, quick: bool = False, sets: Sequence[str] = (), tune_c: bool = False) -> Study:
    """The study of a shipped name or in a file, with `key=value` changes; `quick` gives its reduced variant.

    `tune_c` also tries c = 0 and c = 1 in every row that tunes alpha.
    """
    document = source.read(name)
    quick = quick and not checked(document).quick.always
    said = [f"quick.{text}" if quick and text.startswith(QUICK) else text for text in sets]
    document = source.changed(document, said)
    table = checked(document)
    study = _study(table, document, sets)
    if tune_c:
        study = with_c_tuned(study)
    return reduced(study, table.quick) if quick else study


def with_c_tuned(study: Study) -> Study:
    """The study with c over {0, 1} in every row that tunes alpha, its own c first, so that it wins ties."""
    from apical.nn import Unit  # noqa: PLC0415  torch

    rows = []
    for row in study.rows:
        own = row.tune.get("c", (Unit.parse(row.unit).c,))
        values = tuple(dict.fromkeys((*own, 0.0, 1.0)))
        rows.append(row.model_copy(update={"tune": row.tune | {"c": values}}) if "alpha" in row.tune else row)
    note = "c was tuned over 0 and 1 too (--tune-c)"
    return study.model_copy(update={"rows": tuple(rows), "notes": (*study.notes, note)})


def _study(table: StudyTable, document: Document, sets: Sequence[str]) -> Study:
    chosen = [part for part in table.parts if _kept(part.name, table.only_parts)]
    if not chosen:
        there = ", ".join(part.name for part in table.parts)
        raise StudyError(f"{document.origin}: no part is called {' or '.join(table.only_parts or ())}: it has {there}")
    parts = tuple(_part(part, table) for part in chosen)
    written = [row for row in table.rows if _kept(row.called, table.only_rows)]
    groups = {group.name: group for group in (GROUPS if table.groups is None else table.groups)}
    rows = tuple(_row(row, part, table, groups) for part in parts for row in written if row.stands_in(part.name))
    if all(row.quoted for row in rows):
        raise StudyError(f"{document.origin}: no row is left to train: see only_parts, only_rows and quoted")
    if table.form == "curve" and any(row.x is None and part.x is None for part in parts for row in written):
        raise StudyError(f"{document.origin}: a curve needs the place of each part or row on its axis: give them x")
    changes = [f"changed on the command line: {text}" for text in sets]
    extended = [f"a variant of {table.extends}"] if table.extends else []
    name = table.name or source.slug(document.name)
    return Study(
        name=name,
        title=table.title,
        source=table.source,
        notes=(*table.notes, *extended, *changes),
        base=document.shipped,
        quick=table.quick.always,
        form=table.form,
        axis=table.axis,
        trials=table.trials,
        stack=table.stack,
        imports=tuple(table.imports),
        parts=parts,
        rows=rows,
        groups=tuple(_group(group, rows) for group in groups.values() if any(r.group == group.name for r in rows)),
    )


def _kept(name: str, only: Sequence[str] | None) -> bool:
    return only is None or any(fnmatchcase(name, pattern) for pattern in only)


def _part(part: PartTable, table: StudyTable) -> Part:
    from apical.study.plan import spec_of  # noqa: PLC0415  torch

    made = Part(
        name=part.name,
        title=part.title or part.name,
        data=part.data,
        model=part.model,
        dims=part.dims,
        corruptions=tuple(part.corruptions),
        split=part.split,
        partial=part.partial,
        x=part.x,
        training={**table.training, **part.training},
    )
    return made.model_copy(update={"metric": spec_of(made).metric})


def _row(row: RowTable, part: Part, table: StudyTable, groups: dict[str, GroupTable]) -> Row:
    from apical.nn import Unit  # noqa: PLC0415  torch

    unit = Unit.parse(row.unit)
    return Row(
        key=f"{part.name}/{row.called}",
        part=part.name,
        label=row.label or label(row.unit),
        unit=str(unit),
        tune={} if row.quoted else tuned(row.unit, row.tune, table.tune),
        group=row.group if row.quoted or row.group else default_group(unit, groups),
        paper=_paper(row.paper.get(part.name)),
        quoted=row.quoted,
        x=row.x,
    )


def tuned(unit: str, own: Tune | None, common: Tune) -> dict[str, tuple[Any, ...]]:
    """The grids of a row: its own, or else those common to all rows, of the parameters that its unit leaves open."""
    grids = (common if own is None else own).grids()
    return {name: values for name, values in grids.items() if checks.tunes(unit, name)}


def label(unit: str) -> str:
    """What tables call a unit."""
    kind, bracket, settings = unit.partition("(")
    return LABELS.get(kind.strip(), kind.strip()) + (f" ({settings.rstrip(' )')})" if bracket else "")


def default_group(unit: Any, groups: dict[str, GroupTable]) -> str | None:
    """The paper's group of a unit, where the study has that group."""
    name = "pyramidal" if unit.pyramidal else "leaky" if unit.kind.startswith("leaky_") else "standard"
    return name if name in groups else None


def _paper(printed: Printed | None) -> dict[str, PaperNumber]:
    if printed is None:
        return {}
    given = printed.model_dump(by_alias=True, exclude_none=True)
    beside = {"alpha": given.pop("alpha", None), "c": given.pop("c", None)}
    mark = given.pop("mark", "")
    return {
        metric: PaperNumber(value=value, mark="" if metric == "seconds" else mark, **beside)
        for metric, value in given.items()
    }


def _group(group: GroupTable, rows: Sequence[Row]) -> Group:
    members = tuple(dict.fromkeys(row.name for row in rows if row.group == group.name))
    return Group(name=group.name, title=group.title, baseline=group.baseline, rows=members)
