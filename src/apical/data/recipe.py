"""What is known about a data set, and where its files are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial as filled_in
from pathlib import Path
from typing import Any, Literal

from numpy.typing import NDArray

from apical.data.archives import Budget, Progress, is_archive, unpack
from apical.data.split import Parts
from apical.data.store import Draft, raw_folder
from apical.errors import DataError, InvalidArgumentError, MissingDataError
from apical.files import reading

Task = Literal["classification", "regression"]


@dataclass(frozen=True, kw_only=True)
class Arrays:
    """A data set in memory: all rows, their ids, and which of them train, validate and test.

    `white` is the largest value of a pixel, by which images are divided.
    """

    inputs: NDArray[Any]
    labels: NDArray[Any]
    ids: list[str]
    parts: Parts
    class_names: tuple[str, ...] | None = None
    white: float = 255.0


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """The descriptor of a data set: its facts, and the functions that find, build and open it.

    `shape` is that of one input as a network sees it, unpadded; `kind` (image, audio, text, files, numbers) says how
    rows are read; `classes` is needed only where the class names are in the files. `find(folder)` gives the folder of
    the official layout, if it is there; `build(place, draft)` fills a draft from it, and takes `size` too where the
    images `resize`. Data sets small enough to be made in memory have `make` instead, which gives `Arrays`, or arrays
    named as in an .npz.
    """

    name: str
    store: str
    kind: str
    task: Task
    shape: tuple[int, ...]
    description: str
    licence: str
    citation: str
    counts: tuple[int, int, int] | None = None
    classes: int | None = None
    class_names: tuple[str, ...] | None = None
    splits: tuple[str, ...] = ("paper",)
    label: str = "labels"
    vocabulary: int | None = None
    space: str = "under 1 MB"
    fetch_by_hand: str = ""
    archives: tuple[str, ...] = ()
    system_folders: tuple[Path, ...] = ()
    budget: Callable[[], Budget] = Budget
    streams: bool = False
    resize: bool = False
    arrange: Callable[[Path, Budget], None] | None = None
    find: Callable[[Path], Path | None] | None = None
    build: Callable[..., None] | None = None
    download: Callable[[Path, Progress], None] | None = None
    make: "Callable[[Recipe], Arrays | Mapping[str, NDArray[Any]]] | None" = None

    @property
    def total(self) -> int:
        """Samples of the official data set."""
        return sum(self.counts or ())

    @property
    def class_count(self) -> int | None:
        """How many classes there are; None where that is unknown, or the task is regression."""
        return self.classes if self.class_names is None else len(self.class_names)

    def at(self, size: int | None) -> "Recipe":
        """The same images at `size` x `size` pixels, prepared in a folder of their own; None is the official size."""
        if size is None or self.shape[1:] == (size, size):
            return self
        if not self.resize or self.build is None:
            raise InvalidArgumentError(f"size is {size}, but {self.name} has one size only: leave size out")
        if not 8 <= size <= 1024:
            raise InvalidArgumentError(f"size is {size}, but {self.name} must have 8 to 1024 pixels")
        official = " x ".join(map(str, self.shape[1:]))
        return replace(
            self, store=f"{self.store}-{size}", shape=(self.shape[0], size, size), resize=False,
            description=self.description.replace(official, f"{size} x {size}"),
            system_folders=(raw_folder(self.store), *self.system_folders), build=filled_in(self.build, size=size),
        )  # fmt: skip


def missing(recipe: Recipe, looked: Sequence[Path]) -> MissingDataError:
    """The sentence that says what to fetch, from whom, under which licence, and where to put it."""
    return MissingDataError(
        f"{recipe.name} was not found in {' or '.join(map(str, looked))}: {recipe.fetch_by_hand} "
        f"(licence: {recipe.licence}), put it into {raw_folder(recipe.store)} or name its folder with --root, "
        f"then run: apical data prepare {recipe.name}"
    )


def locate(recipe: Recipe, root: Path | None, progress: Progress) -> Path:
    """The folder that holds the files or their archive; downloads what is free to download."""
    looked = [root] if root is not None else usual_places(recipe)
    if (place := present(recipe, looked)) is not None:
        return place
    if root is not None and not root.exists():
        raise MissingDataError(f"there is no {root}: --root names the folder (or archive) that holds {recipe.name}")
    if recipe.download is not None and root is None:
        recipe.download(looked[0], progress)
        return looked[0]
    raise missing(recipe, looked)


def usual_places(recipe: Recipe) -> list[Path]:
    """Where files are looked for that nobody named a folder of."""
    return [raw_folder(recipe.store), *recipe.system_folders]


def present(recipe: Recipe, places: list[Path]) -> Path | None:
    """The first of these places that holds the files or their archive."""
    return next((p for p in places if find_layout(recipe, p) is not None or find_archives(recipe, p)), None)


def find_layout(recipe: Recipe, place: Path) -> Path | None:
    """The official layout in `place` or up to two folders below."""
    assert recipe.find is not None
    return next((layout for folder in _folders(place) if (layout := recipe.find(folder)) is not None), None)


def _folders(place: Path) -> Iterator[Path]:
    if not place.is_dir():
        return
    yield place
    with reading(place):
        children = sorted(p for p in place.iterdir() if p.is_dir() and not p.name.startswith("."))
    if len(children) > 50:  # class folders, not packaging
        return
    yield from children
    for child in children:
        grandchildren = sorted(p for p in child.iterdir() if p.is_dir())
        yield from grandchildren if len(grandchildren) <= 50 else ()


def find_archives(recipe: Recipe, place: Path) -> list[Path]:
    """Archives of this data set: the file `place` itself, or files in it by their official names."""
    if is_archive(place):
        return [place]
    if not place.is_dir():
        return []
    matches = {p for pattern in recipe.archives for p in place.glob(pattern) if is_archive(p)}
    return sorted(matches)


def layout_for(recipe: Recipe, place: Path, draft: Draft) -> Path:
    """The layout folder; archives are unpacked into the draft first."""
    if (layout := find_layout(recipe, place)) is not None:
        return layout
    budget = recipe.budget()
    for archive in find_archives(recipe, place):
        unpack(archive, draft.folder / "files" / _stem(archive), budget=budget, progress=draft.progress)
    if recipe.arrange is not None:
        recipe.arrange(draft.folder / "files", budget)
    for folder in _folders(draft.folder / "files"):
        if (layout := find_layout(recipe, folder)) is not None:
            return layout
    raise DataError(f"the archive in {place} does not hold {recipe.name} in its official layout")


def _stem(archive: Path) -> str:
    return archive.name.split(".")[0] or "archive"


def expect(count: int, official: int, *, what: str, partial: bool) -> None:
    """Without `partial`, counts must be the official ones; nothing at all is never enough."""
    if count == 0:
        raise DataError(f"there are no {what}")
    if count != official and not partial:
        raise DataError(
            f"there are {count:,} {what} where the official data set has {official:,}: files are missing or "
            "unexpected; to use a subset, add --partial (partial=True)"
        )
