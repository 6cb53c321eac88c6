"""Preparing a data set once, and finding what is prepared."""

import hashlib
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from apical.data.archives import Progress, silent
from apical.data.recipe import Recipe, layout_for, locate, present, usual_places
from apical.data.registry import RECIPES, get
from apical.data.store import MANIFEST, Draft, Store, prepared_folder, publish
from apical.errors import DataError, InvalidArgumentError


@dataclass(frozen=True)
class Status:
    """What `apical data list` says about one data set; `files`: where those lie that are not prepared yet."""

    recipe: Recipe
    state: str
    size: int = 0
    where: Path | None = None
    files: Path | None = None


def prepare(
    name: str,
    root: str | Path | None = None,
    *,
    partial: bool = False,
    size: int | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> Path | None:
    """Prepare a data set, unless that is done, and give its folder; None for one that is made in memory.

    Without `root` the files are looked for in `APICAL_HOME`/raw/<name> and the system's folders, and downloaded where
    that is free. With `partial`, a subset in the official layout is accepted and marked. `size` brings the images of
    utkface-gender and utkface-age to another size.
    """
    recipe = get(name).at(size)
    if recipe.make is not None:
        return None
    if workers is not None and workers < 1:
        raise InvalidArgumentError(f"workers is {workers}, but at least one process must decode: give 1 or more")
    place = None if root is None else Path(root).expanduser()
    folder = folder_of(recipe, place, partial=partial)
    if folder is not None and (folder / MANIFEST).is_file():
        return folder
    place = locate(recipe, place, progress)
    folder = partial_folder(recipe, place) if partial else full_folder(recipe)
    publish(folder, lambda d: _build(recipe, place, d), partial=partial, progress=progress, workers=workers)
    return folder


def _build(recipe: Recipe, place: Path, draft: Draft) -> None:
    assert recipe.build is not None
    recipe.build(layout_for(recipe, place, draft), draft)
    draft.facts |= {"name": recipe.store, "source": str(place.resolve()), "official": recipe.total}
    if not recipe.streams:
        shutil.rmtree(draft.folder / "files", ignore_errors=True)


def full_folder(recipe: Recipe) -> Path:
    """Where the whole data set is prepared: its files are known, so there is one."""
    return prepared_folder() / recipe.store


def partial_folder(recipe: Recipe, place: Path) -> Path:
    """Each root has its own: two subsets are two data sets."""
    mark = hashlib.sha256(str(place.resolve()).encode()).hexdigest()[:12]
    return prepared_folder() / f"{recipe.store}.partial-{mark}"


def partial_folders(recipe: Recipe) -> list[Path]:
    """The subsets that are prepared."""
    folders = prepared_folder().glob(f"{recipe.store}.partial-*")
    return sorted(p for p in folders if (p / MANIFEST).is_file())


def folder_of(recipe: Recipe, root: Path | None, *, partial: bool) -> Path | None:
    """Where the prepared data is or will be; None where that depends on which files are found."""
    if not partial:
        return full_folder(recipe)
    if root is not None:
        return partial_folder(recipe, root)
    there = partial_folders(recipe)
    if len(there) > 1:
        roots = " or ".join(Store(p).manifest["source"] for p in there)
        raise DataError(f"several subsets of {recipe.name} are prepared: name the root of one, {roots}")
    return there[0] if there else None


def verify(
    name: str, root: str | Path | None = None, *, partial: bool = False, progress: Progress = silent
) -> Path | None:
    """Compare a prepared data set with the hashes taken when it was made; its folder if all is well."""
    recipe = get(name)
    if recipe.make is not None:
        return None
    folder = folder_of(recipe, None if root is None else Path(root).expanduser(), partial=partial)
    if folder is None or not (folder / MANIFEST).is_file():
        option = " --partial" if partial else ""
        raise DataError(f"{name} is not prepared: run apical data prepare {name}{option}")
    Store(folder).verify(progress=progress)
    return folder


def statuses() -> Iterator[Status]:
    """Every data set: made in memory, ready (whole or partial, how large, where), or not prepared."""
    for recipe in RECIPES.values():
        if recipe.make is not None:
            yield Status(recipe, "built in")
            continue
        sized = sorted(prepared_folder().glob(f"{recipe.store}-[0-9]*")) if recipe.resize else []
        folders = [p for p in (full_folder(recipe), *partial_folders(recipe), *sized) if (p / MANIFEST).is_file()]
        if not folders:
            yield Status(recipe, "not prepared", files=present(recipe, usual_places(recipe)))
        for folder in folders:
            store = Store(folder)
            pixels = f", {store.array('inputs').shape[-1]} px" if folder in sized else ""
            yield Status(recipe, (partial_mark(store) or "ready") + pixels, store.size, folder)


def partial_mark(store: Store) -> str | None:
    """`partial (n of N)` for a subset."""
    if not store.manifest["partial"]:
        return None
    return f"partial ({store.manifest['rows']:,} of {store.manifest['official']:,})"
