"""Tiny ImageNet: 200 classes, 64 x 64 pixels."""

from pathlib import Path

import numpy as np

from apical.data.recipe import Recipe, expect
from apical.data.sets.tiny_imagenet_classes import WNIDS
from apical.data.split import Parts, hold_out_per_class
from apical.data.store import Draft
from apical.data.workers import Decoding, decode_files
from apical.errors import DataError
from apical.files import read_file, refuse_links_out, refuse_placeholder

SHAPE = (3, 64, 64)
TRAIN, VALIDATION = 100_000, 10_000
HELD_OUT_PER_CLASS = 50
LIMIT = 1 << 26


def find(folder: Path) -> Path | None:
    """The folder that holds wnids.txt and train/."""
    for place in (folder / "tiny-imagenet-200", folder):
        if (place / "wnids.txt").is_file() and (place / "train").is_dir():
            return place
    return None


def build(folder: Path, draft: Draft) -> None:
    """Test: the official validation images (test labels are not public). Validation: 50 training images a class."""
    listed = check_classes(read_text(folder / "wnids.txt").split(), partial=draft.partial)
    train = [
        (p, wnid) for wnid in sorted(listed) for p in sorted((folder / "train" / wnid / "images").glob("[!.]*.JPEG"))
    ]
    test = sorted((folder / "val" / "images" / name, w) for name, w in annotations(folder / "val/val_annotations.txt"))
    expect(len(train), TRAIN, what="training images", partial=draft.partial)
    expect(len(test), VALIDATION, what="validation images", partial=draft.partial)
    paths = [p for p, _ in train + test]
    refuse_links_out(folder, paths)
    labels = np.array([index_of(wnid) for _, wnid in train + test], np.int64)
    draft.array("inputs", (len(paths), *SHAPE), np.uint8)
    decoded = decode_files(
        paths, draft.path("inputs"), Decoding("image", SHAPE), workers=draft.workers, progress=draft.progress
    )
    draft.save("labels", labels)
    draft.row_means = decoded.means
    draft.identify([p.stem for p in paths])
    draft.facts["class_names"] = class_names(folder)
    n = len(train)
    stays, held = hold_out_per_class(draft.ids[:n], labels[:n], per_class=HELD_OUT_PER_CLASS)
    draft.split("paper", Parts(stays, held, np.arange(n, len(paths))))


def check_classes(listed: list[str], *, partial: bool) -> list[str]:
    """wnids.txt must be the official list or, if partial, classes of it."""
    strange = sorted(set(listed) - set(WNIDS))
    if strange:
        raise DataError(f"wnids.txt names {strange[0][:20]!r}, which is not a class of Tiny ImageNet")
    expect(len(set(listed)), len(WNIDS), what="classes in wnids.txt", partial=partial)
    return sorted(set(listed))


def index_of(wnid: str) -> int:
    """The index of a class: its line in the official wnids.txt, whichever classes are at hand."""
    if wnid not in WNIDS:
        raise DataError(f"{wnid[:20]!r} is not a class of Tiny ImageNet")
    return WNIDS.index(wnid)


def annotations(path: Path) -> list[tuple[str, str]]:
    """(file name, class) of every validation image."""
    pairs = []
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        name, _, rest = line.partition("\t")
        if not line:
            continue
        if not rest or "/" in name or "\\" in name or name in ("..", "."):
            raise DataError(f"line {number:,} of {path} is not `file<TAB>class...`: the file is damaged")
        pairs.append((name, rest.split("\t")[0]))
    return pairs


def class_names(folder: Path) -> list[str]:
    """The first word of each class in words.txt, or its wnid where it is not listed."""
    words = dict(line.partition("\t")[::2] for line in read_text(folder / "words.txt").split("\n"))
    return [words.get(wnid, wnid).split(",")[0].strip() or wnid for wnid in WNIDS]


def read_text(path: Path) -> str:
    """A small UTF-8 text file."""
    data = read_file(path, limit=LIMIT)
    refuse_placeholder(data, path)
    try:
        return data.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{path} is not UTF-8 text: fetch it again") from error


RECIPE = Recipe(
    name="tiny-imagenet",
    store="tiny-imagenet",
    kind="image",
    task="classification",
    shape=SHAPE,
    description="colour images in 200 classes, 64 x 64 pixels",
    licence="ImageNet terms: non-commercial research and education",
    citation="Tiny ImageNet, Stanford CS231n; O. Russakovsky et al.: ImageNet, IJCV 115, 2015",
    counts=(90_000, 10_000, 10_000),
    classes=len(WNIDS),
    space="1.4 GB",
    fetch_by_hand="get tiny-imagenet-200.zip from http://cs231n.stanford.edu/tiny-imagenet-200.zip",
    archives=("*tiny-imagenet*",),
    find=find,
    build=build,
)
