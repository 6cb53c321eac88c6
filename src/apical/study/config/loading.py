"""`load`: turn a study file into a `Study`; one error lists everything that is wrong in the file."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import ceil
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from apical import imports
from apical.errors import InvalidArgumentError, StudyError, near, unknown
from apical.nn import Unit, kinds
from apical.study.config import toml
from apical.study.config.schema import (
    GROUPS,
    SECONDS,
    GroupTable,
    PartTable,
    Printed,
    QuickTable,
    RowTable,
    StudyTable,
    Tune,
    arguments,
    check_dims,
    check_split,
    check_task,
    check_training,
    check_tuning,
    fields_at,
    printable,
)
from apical.study.config.toml import Document, Fault, KeyPath, refuse, row_name, slug
from apical.study.model import Group, PaperNumber, Part, Question, Row, Study, Value
from apical.study.plan import RATE, spec_of
from apical.train import metrics
from apical.trust import Trust, decide, named


def names() -> tuple[str, ...]:
    """The studies that come with apical."""
    return tuple(toml.shipped())


QUICK = ("trials", "training.", "samples")
"""What a quick variant reduces, and `--set` may say too."""


def load(
    name: str | Path, *, quick: bool = False, sets: Sequence[str] = (), tune_c: bool = False, trust: Trust = False
) -> Study:
    """The study of a shipped name or in a file, with `key=value` changes; `quick` gives its reduced variant.

    `tune_c` also tries c = 0 and c = 1 in every row that tunes alpha. `trust` allows the modules that the file names;
    "ask" asks on a terminal. Without it they are imported only where `apical.trust.allow` allowed them.
    """
    document = toml.read(name)
    quick = quick and _table(document.values.get("quick")).get("always") is not True
    document = toml.changed(document, [f"quick.{text}" if quick and text.startswith(QUICK) else text for text in sets])
    decide(document.path, _modules(document), trust=trust)
    table = checked(document)
    study = _study(table, document, sets)
    if tune_c:
        study = with_c_tuned(study)
    return reduced(study, table.quick) if quick else study


def with_c_tuned(study: Study) -> Study:
    """The study with c over {0, 1} in every row that tunes alpha, its own c first, so that it wins ties."""
    rows = []
    for row in study.rows:
        own = row.tune.get("c", (Unit.parse(row.unit).c,))
        values = tuple(dict.fromkeys((*own, 0.0, 1.0)))
        tunes = "alpha" in row.tune and None not in own
        rows.append(row.model_copy(update={"tune": row.tune | {"c": values}}) if tunes else row)
    note = "c was tuned over 0 and 1 too (--tune-c)"
    return study.model_copy(update={"rows": tuple(rows), "notes": (*study.notes, note)})


def _study(table: StudyTable, document: Document, sets: Sequence[str]) -> Study:
    chosen = [part for part in table.parts if _kept(part.name, table.only_parts)]
    if not chosen:
        there = ", ".join(part.name for part in table.parts)
        raise StudyError(f"{document.origin}: no part is called {' or '.join(table.only_parts or ())}: it has {there}")
    parts = tuple(_part(part, table) for part in chosen)
    for part in parts:
        if part.tuned_on is not None and part.tuned_on not in {other.name for other in parts}:
            raise StudyError(
                f"{document.origin}: part {part.name!r} is tuned on {part.tuned_on!r}, which only_parts leaves out: "
                "keep both"
            )
    written = [row for row in table.rows if _kept(row.called, table.only_rows)]
    groups = {group.name: group for group in (GROUPS if table.groups is None else table.groups)}
    rows = tuple(_row(row, part, table, groups) for part in parts for row in written if row.stands_in(part.name))
    if all(row.quoted for row in rows):
        raise StudyError(f"{document.origin}: no row is left to train: see only_parts, only_rows and quoted")
    if table.form == "curve" and any(row.x is None and part.x is None for part in parts for row in written):
        raise StudyError(f"{document.origin}: a curve needs a position for each part or row: give each one x")
    changes = [f"changed on the command line: {text}" for text in sets]
    extended = [f"a variant of {table.extends}"] if table.extends else []
    name = table.name or toml.slug(document.name)
    study = Study(
        name=name,
        title=table.title,
        source=table.source,
        notes=(*table.notes, *extended, *changes),
        base=document.shipped,
        quick=table.quick.always,
        form=table.form,
        axis=table.axis,
        trials=table.trials,
        first_seed=table.first_seed,
        tune_trials=table.tune_trials,
        stack=table.stack,
        imports=tuple(table.imports),
        parts=parts,
        rows=rows,
        groups=tuple(_group(group, rows) for group in groups.values() if any(r.group == group.name for r in rows)),
        question=_question(table),
    )
    return study.described()


def _kept(name: str, only: Sequence[str] | None) -> bool:
    return only is None or any(fnmatchcase(name, pattern) for pattern in only)


def _part(part: PartTable, table: StudyTable) -> Part:
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
        tuned_on=part.tuned_on,
    )
    return made.model_copy(update={"metric": spec_of(made).metric})


def _row(row: RowTable, part: Part, table: StudyTable, groups: dict[str, GroupTable]) -> Row:
    unit = Unit.parse(row.unit)
    group = unit.descriptor.group
    return Row(
        key=f"{part.name}/{row.called}",
        part=part.name,
        label=row.label or kinds.label(row.unit),
        unit=str(unit),
        tune={} if row.quoted else tuned(row.unit, row.tune, table.tune, part.model),
        group=row.group if row.quoted or row.group else group if group in groups else None,
        paper=_paper(row.paper.get(part.name)),
        quoted=row.quoted,
        x=row.x,
    )


def tuned(unit: str, own: Tune | None, common: Tune, network: str) -> dict[str, tuple[Any, ...]]:
    """The grids of a row, of the parameters that its unit leaves open, in the order in which the unit declares them.

    They are the row's own, if it has a table `tune`; else those common to all rows, and what the unit's kind declares.
    The row's own dimensions of the network follow, and the learning rates: the row's own, or else those of all rows, so
    that no row is left at one rate by mistake.
    """
    declared = {name: parameter.tune for name, parameter in kinds.open_parameters(unit).items()}
    dims = {name: tuple(values) for name, values in (own or {}).items() if name != RATE and name not in declared}
    beside = own is None or (own and {*own} <= {RATE, *dims})
    given: dict[str, Any] = declared | common if beside or own is None else own
    rates = (own or {}).get(RATE, common.get(RATE))
    grids = {name: tuple(given[name]) for name in declared if given.get(name)}
    return grids | dims | ({RATE: tuple(rates)} if rates else {})


def _paper(printed: Printed | None) -> dict[str, PaperNumber]:
    if printed is None:
        return {}
    values, mark = printed.__pydantic_extra__ or {}, printed.mark
    return {
        name: PaperNumber(value=values[name], mark="" if name == SECONDS else mark, alpha=printed.alpha, c=printed.c)
        for name in printable()
        if name in values
    }


def _group(group: GroupTable, rows: Sequence[Row]) -> Group:
    members = tuple(dict.fromkeys(row.name for row in rows if row.group == group.name))
    return Group(name=group.name, title=group.title, baseline=group.baseline, rows=members)


def _question(table: StudyTable) -> Question | None:
    """The whole question, also where `only_parts` and `only_rows` leave too little to answer it."""
    asked = table.question
    if asked is None:
        return None
    parts = [part for part in table.parts if _kept(part.name, asked.parts)]
    return Question(
        **asked.model_dump(exclude={"parts", "against", "metric"}),
        against=tuple(asked.against),
        parts=tuple(part.name for part in parts),
        metric=asked.metric or _part(parts[0], table).metric,
        seeds=int(_seeds(asked.effect, asked.deviation, asked.power)),
    )


def _seeds(effect: float, deviation: float, power: float) -> float:
    """The seeds that a question needs, which may be infinitely many."""
    from apical.stats import seeds_needed  # noqa: PLC0415  scipy, which only a study with a question needs

    return seeds_needed(effect, deviation, power=power)


# All that is wrong in a study file, found at once: within fields by pydantic, then between those that are sound.


def checked(document: Document) -> StudyTable:
    """The table that a document holds, or a StudyError with every fault in it."""
    faults = list(_import_faults(document))
    if faults:  # what these modules register would seem unknown below
        raise refuse(faults)
    table, errors = None, []
    try:
        table = StudyTable.model_validate(document.values)
    except ValidationError as error:
        errors = error.errors(include_url=False)
    faults += [_field_fault(document, item) for item in errors]
    sound = _Sound(document.values, [item["loc"] for item in errors])
    for find in (_training_faults, _tuning_faults, _part_faults, _row_faults, _group_faults, _question_faults):
        faults += [Fault(document.where(path), message) for path, message in find(sound)]
    if faults or table is None:
        raise refuse(faults)
    return table


def _modules(document: Document) -> list[str]:
    """The modules whose code a study file names, but for units that are classes of modules imported already."""
    listed = [name for name in _list(document.values.get("imports")) if isinstance(name, str)]
    tables = [_table(item) for key in ("parts", "rows") for item in _list(document.values.get(key))]
    units = kinds.foreign(*(str(table.get("unit", "")) for table in tables))
    places = (*named(*(str(table.get("model", "")) for table in tables)), *units)
    return list(dict.fromkeys([*listed, *(place.partition(":")[0] for place in places)]))


def _import_faults(document: Document) -> Iterator[Fault]:
    """Import the user's modules first: what they register is looked for below."""
    for i, name in enumerate(_list(document.values.get("imports"))):
        try:
            if isinstance(name, str):
                imports.of_user(name)
        except InvalidArgumentError as error:
            yield Fault(document.where(("imports", i)), f"{name!r}: {error}")


def _field_fault(document: Document, item: Any) -> Fault:
    """A fault that pydantic found, at the field it is about."""
    path, message = item["loc"], item["msg"].removeprefix("Value error, ")
    if item["type"] == "extra_forbidden":
        inner = [] if path[:-1] else [f"training.{name}" for name in near(str(path[-1]), fields_at(("training",)))]
        close = near(str(path[-1]), fields_at(path[:-1])) or inner
        message = "there is no such field" + (f": did you mean {close[0]!r}?" if close else "")
    elif item["type"] == "missing":
        message = "it is missing"
    elif item["type"] == "string_pattern_mismatch":  # all patterns are those of names
        message = f"{item['input']!r:.60} is not a name: {_SLUGS}{_meant(document, path, item['input'])}"
    elif item["type"] != "value_error":
        message = f"{message[0].lower()}{message[1:]}, not {item['input']!r:.60}"
    return Fault(document.where(path), message)


_SLUGS = "use lower-case letters, digits, '.', '_' and '-', with a letter or digit first"


def _meant(document: Document, path: KeyPath, given: str) -> str:
    """A new name as it may be written, or the part, row or group that a reference may mean; "" if there is none."""
    there = [str(_table(i).get("name")) for key in ("parts", "groups") for i in _list(document.values.get(key))]
    there += map(row_name, _list(document.values.get("rows")))
    close = slug(given)
    return f"; did you mean {close!r}?" if close in there or (close and path[-1] == "name") else ""


@dataclass(frozen=True)
class _Sound:
    """The values of a document in which pydantic found nothing wrong: a check is made where all that it needs is."""

    values: dict[str, Any]
    wrong: Sequence[KeyPath]

    def __call__(self, *path: str | int, default: Any = None) -> Any:
        """The value at a path; `default` where there is none, None where it, or something around or in it, is wrong."""
        if any(path[: len(loc)] == loc[: len(path)] for loc in self.wrong):
            return None
        value = self._at(path)
        return default if value is None else value

    def steps(self, *path: str | int) -> list[Any]:
        """The names in the table at a path, or the positions in the list there, wrong or not."""
        value = self._at(path)
        return [*value] if isinstance(value, dict) else [*range(len(_list(value)))]

    def _at(self, path: KeyPath) -> Any:
        value: Any = self.values
        for step in path:
            value = _table(value).get(step) if isinstance(step, str) else _list(value)[step]
        return value

    def named(self, field: str) -> list[str]:
        """What the tables of a list are called."""
        return [str(_table(item).get("name")) for item in _list(self.values.get(field))]


Messages = Iterator[tuple[KeyPath, str]]


def _training_faults(sound: _Sound) -> Messages:
    parts: list[KeyPath] = [("parts", i, "training") for i in sound.steps("parts")]
    for path in [("training",), *parts, ("quick", "training")]:
        for key, message in check_training(sound(*path, default={}) or {}).items():
            yield (*path, key), message


def _tuning_faults(sound: _Sound) -> Messages:
    """Grids for all rows: each value must suit every row that takes it or, where none does, some kind of unit."""
    rows = [i for i in sound.steps("rows") if sound("rows", i, "tune", default="common") == "common"]
    units = dict.fromkeys(unit for i in rows if (unit := sound("rows", i, "unit")) and not sound("rows", i, "quoted"))
    for path in [("tune",), ("quick", "tune")]:
        for name in sound.steps(*path):
            if name == RATE:
                yield from _rate_faults(sound, (*path, name))
                continue
            takers = [unit for unit in units if name in kinds.open_parameters(unit)]
            others = [kind for kind in kinds.names() if name in kinds.open_parameters(kind)]
            for unit in takers or others[:1]:
                yield from _grid_faults(sound, (*path, name), unit)
            if not takers and not others:
                known = (name for kind in kinds.names() for name in kinds.open_parameters(kind))
                yield (*path, name), unknown("parameter", name, dict.fromkeys([*known, RATE]))


def _part_faults(sound: _Sound) -> Messages:
    names: set[str] = set()
    common = sound("training", default={}) or {}
    for i in sound.steps("parts"):
        name, data, model = (sound("parts", i, field) for field in ("name", "data", "model"))
        if name in names:
            yield ("parts", i, "name"), f"there is a part {name!r} already"
        names |= {name} if name else set()
        for key, message in check_dims(model, sound("parts", i, "dims", default={}) or {}).items() if model else ():
            yield ("parts", i, "dims", key), message
        split = sound("parts", i, "split", default="paper")
        if data and split and (message := check_split(data, split)):
            yield ("parts", i, "split"), message
        source = sound("parts", i, "tuned_on")
        if source is not None and (message := _source_fault(sound, name, source)):
            yield ("parts", i, "tuned_on"), message
        settings = {**common, **(sound("parts", i, "training", default={}) or {})}
        if data and model and not check_training(settings) and (message := check_task(data, model, settings)):
            yield ("parts", i), message


def _source_fault(sound: _Sound, name: str, source: str) -> str:
    """What is wrong with a part that another one is tuned on; "" if nothing is."""
    tables = {table.get("name"): table for table in map(_table, _list(sound.values.get("parts")))}
    if source not in tables or source == name:
        return f"no other part is called {source!r}: {_there([key for key in sound.named('parts') if key != name])}"
    if tables[source].get("tuned_on") is not None:
        return f"part {source!r} is itself tuned on another one: name that one"
    rows = map(_table, _list(sound.values.get("rows")))
    patterns = {row_name(row): [*map(str, _list(row.get("parts")))] or ["*"] for row in rows}
    alone = [row for row, own in patterns.items() if _kept(name, own) and not _kept(source, own)]
    return f"the row {alone[0]!r} is not in part {source!r}, which should tune it" if alone else ""


def _row_faults(sound: _Sound) -> Messages:
    parts = sound.named("parts")
    groups = [group.name for group in GROUPS] if "groups" not in sound.values else sound.named("groups")
    keys: set[str] = set()
    for i in sound.steps("rows"):
        unit, patterns = sound("rows", i, "unit"), sound("rows", i, "parts", default=["*"]) or []
        for j, pattern in enumerate(patterns):
            if not any(fnmatchcase(name, pattern) for name in parts):
                yield ("rows", i, "parts", j), f"no part is called {pattern!r}: {_there(parts)}"
        for name in sound("rows", i, "paper", default={}) or ():
            if name not in parts:
                yield ("rows", i, "paper", name), f"no part is called {name!r}: {_there(parts)}"
        for path in (("rows", i, "paper", name) for name in sound.steps("rows", i, "paper")):
            for metric in sound.steps(*path):
                if metric not in (*Printed.model_fields, *printable()):
                    yield (*path, metric), unknown("metric", metric, printable())
        group = sound("rows", i, "group")
        if group is not None and group not in groups:
            yield ("rows", i, "group"), f"no group is called {group!r}: {_there(groups)}"
        networks = [sound("parts", j, "model") for j, name in enumerate(parts) if _kept(name, patterns)]
        for name in sound.steps("rows", i, "tune") if unit else ():
            if not _dimension(name, unit, networks):
                yield from _grid_faults(sound, ("rows", i, "tune", name), unit)
        called = sound("rows", i, "name", default=unit and slug(unit))
        own = {f"{part}/{called}" for part in parts if called and any(fnmatchcase(part, p) for p in patterns)}
        if own & keys:
            yield ("rows", i), f"there is a row {min(own & keys)!r} already: give this one another name"
        keys |= own


def _dimension(name: str, unit: str, networks: Sequence[str | None]) -> bool:
    """True where a row tunes an argument of all its networks."""
    takes = [arguments(network) for network in networks if network]
    other = name not in (RATE, *kinds.open_parameters(unit))
    return other and bool(takes) and all(own is None or name in own for own in takes)


def _grid_faults(sound: _Sound, path: KeyPath, unit: str) -> Messages:
    """What is wrong with the values of a grid for a unit that takes them."""
    if path[-1] == RATE:
        yield from _rate_faults(sound, path)
        return
    if path[-1] not in kinds.open_parameters(unit):
        yield path, f"unit {unit!r} has no {path[-1]} to tune, or fixes it itself"
        return
    for j in sound.steps(*path):
        value = sound(*path, j)
        if value is not None and (message := check_tuning(unit, str(path[-1]), value)):
            yield (*path, j), message


def _rate_faults(sound: _Sound, path: KeyPath) -> Messages:
    for j in sound.steps(*path):
        value = sound(*path, j)
        for message in check_training({RATE: value}).values() if value is not None else ():
            yield (*path, j), message


def _group_faults(sound: _Sound) -> Messages:
    """A group of the study's own needs its baseline and rows; each row that is kept is in a group, if there are any."""
    rows = [row_name(row) for row in _list(sound.values.get("rows"))]
    for i in sound.steps("groups"):
        baseline = sound("groups", i, "baseline")
        if baseline and baseline not in rows:
            yield ("groups", i, "baseline"), f"no row is called {baseline!r}: {_there(rows)}"
    groups = [sound("groups", i, "name") for i in sound.steps("groups")]
    if all(groups):
        yield from _member_faults(sound, rows, groups)


def _member_faults(sound: _Sound, rows: Sequence[str], groups: Sequence[str]) -> Messages:
    """Where a study has groups of its own, each row that is kept is in one, and each has a row that is trained."""
    only = sound("only_rows", default=["*"]) or ["*"]
    trained = [i for i in sound.steps("rows") if groups and not sound("rows", i, "quoted")]
    members = {i: _group_of(sound, i, groups) for i in trained}
    loose = [i for i in trained if members[i] == "" and _kept(rows[i], only)]
    if loose:
        names, write = ", ".join(dict.fromkeys(rows[i] for i in loose)), " or ".join(f'group = "{g}"' for g in groups)
        yield ("rows", loose[0]), f"in no group, and compared with nothing: {names}; write {write} in each of these"
    elif None not in members.values():
        for i, group in enumerate(groups):
            if group not in members.values():
                said = f'no row is in group {group!r}: write group = "{group}" in those that it compares'
                yield ("groups", i), f"{said}, or remove it; {_there([rows[k] for k in trained])}"


def _group_of(sound: _Sound, i: int, groups: Sequence[str]) -> str | None:
    """The group that a row names, or that of its kind; "" if the study has none such, None where the row is wrong."""
    unit, given = sound("rows", i, "unit"), sound("rows", i, "group", default="")
    if not unit or given is None or (given and given not in groups):
        return None
    own = given or Unit.parse(unit).descriptor.group
    return own if own in groups else ""


def _metric_faults(sound: _Sound, name: str, patterns: Sequence[str]) -> Messages:
    """The metric of a question is one of outputs, or measured by the robustness of each of its parts."""
    metric, path = metrics.get(name), ("question", "metric")
    if metric is None or (metric.compute is None and not metric.measured_by):
        yield path, unknown("metric", name, (*metrics.names(), *metrics.measured()))
    elif metric.measured_by:
        common = sound("training", default={}) or {}
        for i, part in enumerate(sound.named("parts")):
            asked = (common | (sound("parts", i, "training", default={}) or {})).get("robustness", ())
            if _kept(part, patterns) and not any(str(text).startswith(metric.measured_by) for text in asked):
                yield path, f"{name!r} is measured by {metric.measured_by!r}: add it to training.robustness"
                return


def _question_faults(sound: _Sound) -> Messages:
    """A question needs its rows in its parts, a metric, and as many trials as its power asks for."""
    if not sound.steps("question"):
        return
    parts, patterns = sound.named("parts"), sound("question", "parts", default=["*"]) or []
    for i, pattern in enumerate(patterns):
        if not any(fnmatchcase(name, pattern) for name in parts):
            yield ("question", "parts", i), f"no part is called {pattern!r}: {_there(parts)}"
    rows: dict[str, list[str]] = {}
    for row in map(_table, _list(sound.values.get("rows"))):
        rows.setdefault(row_name(row), []).extend(map(str, _list(row.get("parts")) or ["*"]))
    asked, against = sound("question", "row"), sound("question", "against", default=[]) or []
    for path, name in [(("row",), asked), *((("against", i), name) for i, name in enumerate(against))]:
        absent = [part for part in parts if _kept(part, patterns) and not _kept(part, rows.get(name, []))]
        if name and name not in rows:
            yield ("question", *path), f"no row is called {name!r}: {_there([*rows])}"
        elif name and absent:
            yield ("question", *path), f"the row {name!r} is not in part {absent[0]!r}: leave that part out"
        elif path != ("row",) and name == asked:
            yield ("question", *path), f"{name!r} cannot be compared with itself: name another row"
    metric = sound("question", "metric")
    if metric:
        yield from _metric_faults(sound, metric, patterns)
    effect, deviation = sound("question", "effect"), sound("question", "deviation")
    power, trials = sound("question", "power", default=0.8), sound("trials", default=5)
    if effect and deviation and power and trials and (needed := _seeds(effect, deviation, power)) > trials:
        yield (
            ("question",),
            f"trials is {trials}, but an effect of {effect:g} with a deviation of {deviation:g} needs {needed:,.0f} to "
            f"be shown with a probability of {power:g}: train more trials, or ask for a larger effect",
        )


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _there(known: Sequence[str]) -> str:
    return f"there are {', '.join(known)}" if known else "there are none"


# The reduced variant of a study: fewer epochs, trials and samples, a smaller grid. Its name and its notes say so.

TRIALS = 2
SHARE = 0.1
"""Of the epochs, rounded up."""


def reduced(study: Study, quick: QuickTable) -> Study:
    """The quick variant: what `quick` says, and where it says nothing, 2 trials, a tenth of the epochs, two values."""
    trials = quick.trials or min(study.trials, TRIALS)
    parts = tuple(_reduced_part(part, quick) for part in study.parts)
    rows = tuple(_reduced_row(row, quick.tune) for row in study.rows)
    pairs = zip(study.parts, parts, strict=True)
    epochs = ", ".join(dict.fromkeys(f"{spec_of(new).epochs} of {spec_of(old).epochs}" for old, new in pairs))
    grid = ", a smaller grid" if rows != study.rows else ""
    samples = f", at most {quick.samples} samples of each split" if quick.samples else ""
    note = f"quick: {trials} of {study.trials} trials, {epochs} epochs{grid}{samples}: no replication"
    changes = {"name": f"{study.name}-quick", "title": f"{study.title} (quick)", "notes": (note, *study.notes)}
    fewer = {"trials": trials, "tune_trials": min(study.tune_trials, trials), "parts": parts, "rows": rows}
    return study.model_copy(update={**changes, **fewer, "quick": True})


def _reduced_part(part: Part, quick: QuickTable) -> Part:
    full, changes = spec_of(part), quick.training
    epochs = changes.get("epochs", ceil(SHARE * full.epochs))
    milestones = [max(1, round(m * epochs / full.epochs)) for m in full.milestones]
    training = {**part.training, "epochs": epochs, "milestones": milestones, **changes}
    if not training["milestones"] and "milestones" not in part.training:
        del training["milestones"]
    fewer = (f"subset(samples={quick.samples})",) if quick.samples else ()
    return part.model_copy(update={"training": training, "corruptions": (*fewer, *part.corruptions)})


def _reduced_row(row: Row, grids: Tune) -> Row:
    tune = {name: tuple(grids.get(name, _fewer(values))) for name, values in row.tune.items()}
    return row.model_copy(update={"tune": tune})


def _fewer(values: tuple[Value, ...]) -> tuple[Value, ...]:
    """At most two: one from the first half, and the last, which may be "learn"."""
    return values if len(values) <= 2 else (values[len(values) // 4], values[-1])
