"""`load`: a data set by its name, or the user's own by its path."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from apical import files
from apical.data.archives import Progress, silent
from apical.data.audio import SAMPLES
from apical.data.dataset import DataSet, three_splits
from apical.data.images import SUFFIXES
from apical.data.inputs import Codes, ImageFiles, Images, Input, Mapped, Memory, Numbers, Source, Spectrograms
from apical.data.preparation import partial_mark, prepare
from apical.data.randomness import keys_of
from apical.data.recipe import Arrays, Recipe, Task
from apical.data.registry import RECIPES, get
from apical.data.sets import coordinates
from apical.data.split import Parts, cut, random_split, split_hash
from apical.data.store import Draft, Store, prepared_folder, publish
from apical.data.workers import FILE_LIMIT, Decoding, decode_files
from apical.errors import DataError, InvalidArgumentError
from apical.files import is_text, open_image, read_file, reading, refuse_links_out

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
    """A data set by name, or the user's own by its path (a folder of class folders, a .csv, an .npz, a .wav).

    What is not prepared yet is prepared first. `split` names another split where the data set has one: "actor" for
    crema-d, "no-duplicates" for utkface-gender and utkface-age. `size` resizes the user's own images, and UTKFace's.
    """
    if str(name) not in RECIPES and _is_path(name):
        return load_own(Path(name).expanduser(), size=size, workers=workers, progress=progress)
    recipe = get(str(name)).at(size)
    if split not in recipe.splits:
        raise InvalidArgumentError(f"{name} has no split {split!r}; available: {', '.join(map(repr, recipe.splits))}")
    folder = prepare(recipe.name, root, partial=partial, size=size, workers=workers, progress=progress)
    if recipe.make is not None:
        made = recipe.make(recipe)
        return in_memory(recipe, made) if isinstance(made, Arrays) else registered(recipe, made)
    assert folder is not None
    return assemble(recipe, Store(folder), split)


def _is_path(name: str | Path) -> bool:
    return (
        isinstance(name, Path)
        or "/" in name
        or "\\" in name
        or name.endswith((".csv", ".npz", ".wav"))
        or Path(name).exists()
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


def in_memory(recipe: Recipe, arrays: Arrays) -> DataSet:
    """A data set from arrays; images lose ONE scalar, the mean over all pixels of the training images."""
    inputs, labels, parts = arrays.inputs, arrays.labels, arrays.parts
    names = arrays.class_names or recipe.class_names
    how: Input = Codes() if recipe.kind == "text" else Numbers()
    if recipe.kind in ("image", "files"):
        how = Images(divisor=arrays.white, mean=float(inputs[parts.train].mean() / arrays.white))
    train, validation, test = three_splits(
        parts,
        all_labels=labels,
        source=Memory(inputs),
        input=how,
        all_keys=keys_of(arrays.ids),
        all_ids=np.array(arrays.ids),
        class_names=names,
    )
    digest = hashlib.sha256(inputs.tobytes() + labels.tobytes())
    digest.update(split_hash([arrays.ids[i] for i in rows] for rows in parts).encode())
    return DataSet(
        name=recipe.name,
        task=recipe.task,
        train=train,
        validation=validation,
        test=test,
        description=recipe.description,
        licence=recipe.licence,
        citation=recipe.citation,
        class_names=names,
        fingerprint=digest.hexdigest(),
        vocabulary=recipe.vocabulary,
    )


def source_of(recipe: Recipe, store: Store) -> Source:
    """Where the rows are read: the prepared array, or the image files themselves."""
    if recipe.kind != "files":
        return Mapped(store.folder, "inputs")
    inside = store.manifest["inside"]
    root = Path(store.manifest["root"]) if inside is None else store.folder / inside
    if not root.is_dir():
        raise DataError(f"the images of {recipe.name} are no longer in {root}: restore them or prepare it again")
    return ImageFiles(root, store.array("files"))


def input_of(recipe: Recipe, store: Store, split: str) -> Input:
    """How the rows become inputs; images lose ONE scalar, the mean over all pixels of the training images."""
    if recipe.kind == "audio":
        return Spectrograms()
    if recipe.kind == "numbers":
        return Numbers()
    if recipe.kind == "text":
        return Codes()
    if recipe.kind == "files":
        return Images(mean=IMAGENET_MEAN, heavy=True)
    return Images(mean=store.manifest["splits"][split].get("train_mean", 0.0) / 255)


def describe(name: str) -> str:
    """What a data set holds, its licence, citation and size, and what a user must fetch for it."""
    recipe = get(name)
    counts = " / ".join(f"{n:,}" for n in recipe.counts) if recipe.counts else "known when it is loaded"
    lines = [
        f"{recipe.name}: {recipe.description}",
        f"train / validation / test: {counts}",
        f"task: {recipe.task}" + (f", {recipe.class_count} classes" if recipe.class_count else ""),
        f"input: {' x '.join(map(str, recipe.shape))}",
        f"splits: {', '.join(recipe.splits)}",
        f"licence: {recipe.licence}",
        f"citation: {recipe.citation}",
        f"prepared: {recipe.space}",
    ]
    if recipe.make is None:
        free = "downloaded when needed" if recipe.download else recipe.fetch_by_hand
        lines.append(f"files: {free}")
    return "\n".join(lines)


# The user's own data: a folder of class folders, a CSV of paths and labels, or an .npz of arrays.

PART_NUMBERS = {"train": 0, "training": 0, "validation": 1, "val": 1, "valid": 1, "test": 2, "testing": 2}
CSV_LIMIT = 1 << 28
MOST_CLASSES = 1_000_000
NAMED = "x and y, or x_train, y_train, x_test and y_test (x_validation and y_validation too, if you like)"
"""How arrays that are a data set are called."""

OWN = Recipe(
    name="own",
    store="own",
    kind="image",
    task="classification",
    shape=(),
    description="your own data",
    licence="yours to know",
    citation="yours to give",
)


@dataclass(frozen=True)
class Listing:
    """Files with a label each and, where the user said so, the part (0 train, 1 validation, 2 test) they belong to."""

    root: Path
    paths: list[str]
    labels: list[str]
    parts: list[int] | None = None
    regression: bool = False

    def __post_init__(self) -> None:
        if not self.paths:
            raise DataError(f"{self.root} lists no images (like .jpg or .png) and no .wav files")
        kinds = {Path(p).suffix.lower() == ".wav" for p in self.paths}
        if len(kinds) > 1:
            raise DataError(f"{self.root} mixes images and sound: a data set holds one of them")
        if strange := next((t for t in (*self.paths, *self.labels) if not is_text(t)), None):
            raise DataError(f"{self.root} holds the name {strange!r}, which is not valid Unicode: rename it")

    @property
    def is_audio(self) -> bool:
        return self.paths[0].lower().endswith(".wav")

    def fingerprint(self, size: int | None) -> str:
        """Changes with any file's name, label, size or time of change."""
        refuse_links_out(self.root, (self.root / path for path in self.paths))
        digest = hashlib.sha256(f"{self.root.resolve()} {size} {self.regression}".encode())
        for i, path in enumerate(self.paths):
            with reading(self.root / path):
                stat = (self.root / path).stat()
            part = self.parts[i] if self.parts else ""
            digest.update(f"\n{path}\t{self.labels[i]}\t{part}\t{stat.st_size}\t{stat.st_mtime_ns}".encode())
        return digest.hexdigest()


def load_own(path: Path, *, size: int | None, workers: int | None, progress: Progress) -> DataSet:
    """The data set at `path`; images of several sizes need `size`, to which all are resized."""
    if path.suffix.lower() == ".npz":
        return from_npz(path)
    if path.suffix.lower() == ".wav":
        return from_wav(path)
    if path.is_dir():
        listing = list_folder(path)
    elif path.suffix.lower() == ".csv":
        listing = list_csv(path)
    else:
        raise DataError(
            f"{path} is not a folder of class folders, a .csv of paths and labels, an .npz of arrays, or a .wav"
        )
    folder = prepared_folder() / f"own-{listing.fingerprint(size)[:16]}"
    publish(folder, lambda d: _build_own(listing, d, size), partial=False, progress=progress, workers=workers)
    kind = "audio" if listing.is_audio else "image"
    task = "regression" if listing.regression else "classification"
    return assemble(replace(OWN, name=str(path), kind=kind, task=task), Store(folder), "paper")  # type: ignore[arg-type]


def list_folder(root: Path) -> Listing:
    """root/<class>/files, or root/train/<class>/files with test (and validation) beside it."""
    with reading(root):
        children = sorted(p for p in root.iterdir() if p.is_dir() and not p.name.startswith("."))
    known = [c for c in children if c.name.lower() in PART_NUMBERS]
    if {PART_NUMBERS[c.name.lower()] for c in known} >= {0, 2}:
        rows = [(f, c.name, PART_NUMBERS[k.name.lower()]) for k in known for c, f in _class_files(k)]
        return Listing(
            root, [str(f.relative_to(root)) for f, _, _ in rows], [c for _, c, _ in rows], [p for *_, p in rows]
        )
    pairs = _class_files(root)
    return Listing(root, [str(f.relative_to(root)) for _, f in pairs], [c.name for c, _ in pairs])


def _class_files(folder: Path) -> list[tuple[Path, Path]]:
    classes = sorted(p for p in folder.iterdir() if p.is_dir() and not p.name.startswith("."))
    return [(c, f) for c in classes for f in sorted(c.rglob("[!.]*")) if f.suffix.lower() in (*SUFFIXES, ".wav")]


def list_csv(path: Path) -> Listing:
    """Columns `path` and `label` (or `target`, a number), and `split` if you like; paths are relative to the file."""
    rows = parse_csv(read_file(path, limit=CSV_LIMIT), origin=path)
    regression = "target" in rows[0]
    parts = None
    if "split" in rows[0]:
        strange = next((r["split"] for r in rows if r["split"].lower() not in PART_NUMBERS), None)
        if strange is not None:
            raise DataError(f"{path} names the split {strange[:40]!r} where train, validation or test is expected")
        parts = [PART_NUMBERS[r["split"].lower()] for r in rows]
    for row in rows:
        given = Path(row["path"])
        if given.is_absolute() or ".." in given.parts or given.suffix.lower() not in (*SUFFIXES, ".wav"):
            raise DataError(f"{path} lists {row['path'][:100]!r}, which is not an image or .wav beside or below it")
    labels = [r["target" if regression else "label"] for r in rows]
    return Listing(path.parent, [r["path"] for r in rows], labels, parts, regression)


def parse_csv(data: bytes, *, origin: object) -> list[dict[str, str]]:
    """The rows of a CSV that has the columns it needs and a value in each of them."""
    try:
        table = files.parse_csv(data.decode("utf-8-sig"))
    except ValueError as error:
        raise DataError(f"{origin} is not a CSV file in UTF-8 ({error})") from error
    head = [name.strip().lower() for name in table[0]] if table else []
    if "path" not in head or ("label" in head) == ("target" in head) or len(set(head)) != len(head):
        raise DataError(f"{origin} needs a first line with the columns path and label (or target, a number)")
    if len(table) < 2 or any(len(row) != len(head) for row in table):
        raise DataError(f"{origin} needs at least one row, and {len(head)} fields in each")
    rows = [dict(zip(head, row, strict=True)) for row in table[1:]]
    if "target" in head:
        _numbers([r["target"] for r in rows], origin)
    if any("\0" in r["path"] or not r["path"].strip() for r in rows):
        raise DataError(f"{origin} has a row without a usable path")
    return rows


def _numbers(texts: list[str], origin: object) -> NDArray[np.float32]:
    try:
        values = np.array([float(t) for t in texts], np.float64)
    except ValueError as error:
        raise DataError(f"{origin} has a target that is not a number ({error})") from error
    if not np.isfinite(values).all() or np.abs(values).max() > 1e30:
        raise DataError(f"{origin} has a target that is not finite")
    return values.astype(np.float32)


def _build_own(listing: Listing, draft: Draft, size: int | None) -> None:
    decoding = Decoding("audio", (SAMPLES,)) if listing.is_audio else _image_decoding(listing, size)
    order = np.argsort(np.array(listing.paths), kind="stable")
    files = [listing.root / listing.paths[i] for i in order]
    draft.array("inputs", (len(files), *decoding.shape), np.int16 if listing.is_audio else np.uint8)
    decoded = decode_files(files, draft.path("inputs"), decoding, workers=draft.workers, progress=draft.progress)
    labels = [listing.labels[i] for i in order]
    if listing.regression:
        draft.save("labels", _numbers(labels, listing.root))
    else:
        names, codes = np.unique(np.array(labels), return_inverse=True)
        draft.save("labels", codes.astype(np.int64))
        draft.facts["class_names"] = names.tolist()
    draft.row_means = decoded.means
    draft.identify([Path(listing.paths[i]).as_posix() for i in order])
    given = None if listing.parts is None else np.array(listing.parts)[order]
    draft.split("paper", parts_of(draft.ids, given))
    draft.facts |= {"name": "own", "source": str(listing.root.resolve()), "official": len(files)}


def _image_decoding(listing: Listing, size: int | None) -> Decoding:
    sizes, grey = set(), True
    for path in listing.paths:
        width, height, mode = _header(listing.root / path)
        sizes.add((height, width))
        grey &= mode in ("1", "L", "LA", "I", "I;16")
    if size is None and len(sizes) > 1:
        (a, b), (c, d) = sorted(sizes)[:2]
        raise DataError(f"the images of {listing.root} differ in size ({a} x {b}, {c} x {d}, ...): give e.g. size=64")
    height, width = (size, size) if size is not None else next(iter(sizes))
    return Decoding("image", (1 if grey else 3, height, width), resize=size is not None)


def _header(path: Path) -> tuple[int, int, str]:
    image = open_image(read_file(path, limit=FILE_LIMIT), origin=path, mode=None)
    return image.width, image.height, image.mode


def parts_of(ids: list[str], given: NDArray[np.int64] | None) -> Parts:
    """The user's parts, validation taken from train (15 of 85) where there is none; or 70/15/15."""
    if given is None:
        return random_split(ids)
    train, validation, test = (np.flatnonzero(given == k) for k in range(3))
    if not len(train) or not len(test):
        raise DataError("a split of your own needs samples in train and in test")
    if not len(validation):
        shuffled = random_split([ids[i] for i in train])
        order = np.concatenate(shuffled)
        a, b = cut(len(train))
        held = max(1, b - a)
        train, validation = np.sort(train[order[held:]]), np.sort(train[order[:held]])
    return Parts(train, validation, test)


def from_npz(path: Path) -> DataSet:
    """The arrays of an .npz as a data set; nothing is unpickled. Whole numbers in y are classes."""
    arrays = files.read_npz(path)
    y = next((array for name, array in arrays.items() if name in ("y", "y_train")), np.empty(0))
    task: Task = "classification" if y.dtype.kind in "iub" and y.ndim == 1 else "regression"
    return _from_named(replace(OWN, name=str(path), task=task), arrays, origin=path)


def from_wav(path: Path) -> DataSet:
    """A recording as a function of time, for coordinate networks."""
    made = coordinates.places_in_time(
        coordinates.balanced(coordinates.sound(read_file(path, limit=FILE_LIMIT), origin=path))
    )
    about = f"the first {coordinates.SECONDS} seconds of your recording at most: time to value"
    return in_memory(replace(OWN, name=str(path), kind="numbers", task="regression", description=about), made)


def registered(recipe: Recipe, made: object) -> DataSet:
    """What the function given to `register` made, if it is what was registered."""
    origin = f"data set {recipe.name!r}"
    if not isinstance(made, Mapping):
        raise DataError(f"{origin} is a {type(made).__name__}, but must be a mapping of arrays: {NAMED}")
    dtype = np.float32 if recipe.task == "regression" else None
    arrays = {str(k): np.asarray(v, dtype if str(k).startswith("y") else None) for k, v in made.items()}
    data = _from_named(recipe, arrays, origin=origin)
    if data.shape != recipe.shape:
        raise DataError(f"{origin} has inputs of shape {data.shape}, but is registered with shape {recipe.shape}")
    return data


def _from_named(recipe: Recipe, arrays: Mapping[str, NDArray[Any]], *, origin: object) -> DataSet:
    """Arrays named as NAMED says; uint8 arrays of 3 or 4 dimensions are images."""
    x, y, given = _join(arrays, origin)
    ids = [f"row-{i:07d}" for i in range(len(x))]
    names = None
    if recipe.task == "classification":
        names = _class_names(recipe, y, origin)
        y = y.astype(np.int64)
    images = x.dtype == np.uint8 and x.ndim in (3, 4)
    if not images:
        x = _finite(x, "inputs", origin)
    if not names:
        y = _finite(y, "targets", origin)
    if images:
        x = np.ascontiguousarray(x[:, None] if x.ndim == 3 else np.moveaxis(x, -1, 1) if x.shape[-1] in (1, 3) else x)
    made = Arrays(
        inputs=x,
        labels=y,
        ids=ids,
        parts=parts_of(ids, given),
        class_names=names,
    )
    return in_memory(replace(recipe, kind="image" if images else "numbers"), made)


def _finite(values: NDArray[Any], what: str, origin: object) -> NDArray[np.float32]:
    """The values as float32, which must hold them all."""
    with np.errstate(over="ignore"):
        narrow = values.astype(np.float32)
    if not np.isfinite(narrow).all():
        raise DataError(f"{origin} has {what} that are not finite numbers, or too large for float32: remove them")
    return narrow


def _class_names(recipe: Recipe, y: NDArray[Any], origin: object) -> tuple[str, ...]:
    """The names of the classes 0, 1, 2, ...: their numbers, where they have no others."""
    if y.dtype.kind not in "iub" or y.ndim != 1:
        raise DataError(f"{origin} has labels of type {y.dtype} and shape {y.shape}: classes are whole numbers")
    if (largest := int(y.max())) >= (recipe.class_count or MOST_CLASSES):
        rule = f"there are {recipe.class_count}" if recipe.class_count else "as a target it must be a float"
        raise DataError(f"{origin} has the class {largest}: classes are numbered 0, 1, 2, ...; {rule}")
    return recipe.class_names or tuple(map(str, range(recipe.class_count or largest + 1)))


def _join(
    arrays: Mapping[str, NDArray[Any]], origin: object
) -> tuple[NDArray[Any], NDArray[Any], NDArray[np.int64] | None]:
    """Inputs, labels and part numbers of all rows."""
    if "x" in arrays and "y" in arrays:
        pieces = [(arrays["x"], arrays["y"], -1)]
    else:
        pieces = [
            (arrays[f"x_{part}"], arrays[f"y_{part}"], number)
            for part, number in PART_NUMBERS.items()
            if f"x_{part}" in arrays and f"y_{part}" in arrays
        ]
    if not pieces:
        raise DataError(f"{origin} needs arrays {NAMED}; it has {', '.join(arrays) or 'none'}")
    for x, y, _ in pieces:
        if x.ndim < 2 or y.ndim < 1 or len(x) != len(y) or not x.size or x.shape[1:] != pieces[0][0].shape[1:]:
            raise DataError(f"{origin} has inputs of shape {x.shape} and labels of shape {y.shape}: they do not fit")
        if x.dtype.kind not in "iufb" or y.dtype.kind not in "iufb":
            raise DataError(f"{origin} has inputs of type {x.dtype} and labels of type {y.dtype}: numbers are needed")
        if y.dtype.kind == "i" and y.min() < 0:
            raise DataError(f"{origin} has the class {y.min()}: classes are numbered 0, 1, 2, ...; a target is a float")
    x, y = (np.concatenate([p[k] for p in pieces]) for k in (0, 1))
    given = None if pieces[0][2] < 0 else np.concatenate([np.full(len(p[0]), p[2]) for p in pieces])
    return x, y, given
