"""`load`: a prepared store opened as a data set."""

from pathlib import Path

from apical.data.archives import Progress, silent
from apical.data.dataset import DataSet, three_splits
from apical.data.inputs import Codes, Images, Input, Spectrograms
from apical.data.preparation import partial_mark, prepare
from apical.data.recipe import Recipe
from apical.data.registry import RECIPES, get
from apical.data.sources import ImageFiles, Mapped, Source
from apical.data.store import Store
from apical.errors import DataError, InvalidArgumentError

IMAGENET_MEAN = 0.449
"""The mean over channels of the customary ImageNet means, 0.485, 0.456 and 0.406."""


def load(
    name: str | Path,
    root: str | Path | None = None,
    partial: bool = False,
    *,
    split: str = "paper",
    size: int | None = None,
    workers: int | None = None,
    progress: Progress = silent,
) -> DataSet:
    """A data set by name, or the user's own by its path (a folder of class folders, a .csv, an .npz).

    What is not prepared yet is prepared first. `split` names another split where the data set has one: "actor" for
    crema-d, "no-duplicates" for utkface-gender and utkface-age. `size` resizes the user's own images.
    """
    if str(name) not in RECIPES and _is_path(name):
        from apical.data import own  # noqa: PLC0415  it stands on this module

        return own.load_own(Path(name).expanduser(), size=size, workers=workers, progress=progress)
    recipe = get(str(name))
    if split not in recipe.splits:
        raise InvalidArgumentError(f"{name} has no split {split!r}; it has {', '.join(map(repr, recipe.splits))}")
    folder = prepare(recipe.name, root, partial=partial, workers=workers, progress=progress)
    if folder is None:
        assert recipe.make is not None
        return recipe.make(recipe)
    return assemble(recipe, Store(folder), split)


def _is_path(name: str | Path) -> bool:
    return (
        isinstance(name, Path) or "/" in name or "\\" in name or name.endswith((".csv", ".npz")) or Path(name).exists()
    )


def assemble(recipe: Recipe, store: Store, split: str) -> DataSet:
    """The three splits of a store."""
    parts = store.parts(split)
    names = store.manifest.get("class_names")
    class_names = recipe.class_names if names is None else tuple(names)
    train, validation, test = three_splits(
        parts,
        all_labels=store.array(recipe.label),
        source=source_of(recipe, store),
        input=input_of(recipe, store, split),
        all_keys=store.array("keys"),
        all_ids=store.array("ids"),
        class_names=class_names,
    )
    return DataSet(
        name=recipe.name,
        task=recipe.task,
        train=train,
        validation=validation,
        test=test,
        description=recipe.description,
        licence=recipe.licence,
        citation=recipe.citation,
        class_names=class_names,
        split=split,
        partial=partial_mark(store),
        fingerprint=store.fingerprint(split),
        vocabulary=recipe.vocabulary,
        notes=tuple(store.manifest.get("notes", ())),
    )


def source_of(recipe: Recipe, store: Store) -> Source:
    """Where the rows are read: the prepared array, or the image files themselves."""
    if recipe.kind != "files":
        return Mapped(store.folder, "inputs")
    inside = store.manifest["inside"]
    root = Path(store.manifest["root"]) if inside is None else store.folder / inside
    if not root.is_dir():
        raise DataError(f"the images of {recipe.name} were in {root} and are gone: bring them back or prepare it again")
    return ImageFiles(root, store.array("files"))


def input_of(recipe: Recipe, store: Store, split: str) -> Input:
    """How the rows become inputs; images lose ONE scalar, the mean over all pixels of the training images."""
    if recipe.kind == "audio":
        return Spectrograms()
    if recipe.kind == "text":
        return Codes()
    if recipe.kind == "files":
        return Images(mean=IMAGENET_MEAN, heavy=True)
    return Images(mean=store.manifest["splits"][split].get("train_mean", 0.0) / 255)


def describe(name: str) -> str:
    """What a data set holds, its licence, citation and size, and what a user must fetch for it."""
    recipe = get(name)
    counts = " / ".join(f"{n:,}" for n in recipe.counts)
    lines = [
        f"{recipe.name}: {recipe.description}",
        f"train / validation / test: {counts}",
        f"task: {recipe.task}" + (f", {len(recipe.class_names)} classes" if recipe.class_names else ""),
        f"splits: {', '.join(recipe.splits)}",
        f"licence: {recipe.licence}",
        f"citation: {recipe.citation}",
        f"prepared: {recipe.space}",
    ]
    if recipe.make is None:
        free = "downloaded when needed" if recipe.download else recipe.fetch_by_hand
        lines.append(f"files: {free}")
    return "\n".join(lines)
