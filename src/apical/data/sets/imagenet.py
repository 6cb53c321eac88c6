"""ImageNet (ILSVRC 2012): 1,000 classes, 1.28 million images, read from their folders while training."""

import hashlib
import re
from pathlib import Path

import numpy as np

from apical.data.archives import Budget, unpack
from apical.data.recipe import Recipe, expect
from apical.data.split import Parts, hold_out_per_class
from apical.data.store import Draft
from apical.errors import DataError
from apical.files import read_file, read_mat, refuse_links_out, refuse_placeholder
from apical.limits import limit

CLASSES, TRAIN, VALIDATION = 1_000, 1_281_167, 50_000
HELD_OUT_PER_CLASS = 10
LIMIT = 1 << 26
META, TRUTH = "meta.mat", "ILSVRC2012_validation_ground_truth.txt"
META_SHA256 = "e159ee2fe4bcc4d03e7429e7ff35e6ec553b2a901018b559f400a2b0ae117a30"
NAME = re.compile(r"ILSVRC2012_val_(\d{8})\.JPEG")


def find(folder: Path) -> Path | None:
    """The folder that holds train/ and val/ with the devkit beside them."""
    here = (folder / "train").is_dir() and (folder / "val").is_dir() and devkit(folder) is not None
    official = (folder / "ILSVRC2012_img_train.tar").is_file()
    return folder if here and not official else None


def devkit(folder: Path) -> Path | None:
    """The devkit's folder data/, wherever it was unpacked beside the images."""
    places = (folder / "ILSVRC2012_devkit_t12" / "data", folder / "devkit" / "data", folder / "data", folder)
    return next((p for p in places if (p / META).is_file() and (p / TRUTH).is_file()), None)


def build(folder: Path, draft: Draft) -> None:
    """An index of the files. Test: the official validation images. Validation: 10 training images a class."""
    kit = devkit(folder)
    assert kit is not None
    wnids, names = classes(read_file(kit / META, limit=LIMIT), origin=kit / META)
    rank = {wnid: k for k, wnid in enumerate(sorted(wnids.values()))}
    train = train_files(folder, rank)
    test = validation_files(folder, truth(kit / TRUTH), wnids, rank)
    expect(len(train), TRAIN, what="training images", partial=draft.partial)
    expect(len(test), VALIDATION, what="validation images", partial=draft.partial)
    refuse_links_out(folder, (path for path, _ in train + test))
    files = [path.relative_to(folder).as_posix() for path, _ in train + test]
    labels = np.array([label for _, label in train + test], np.int64)
    draft.save("files", np.char.encode(np.array(files), "utf-8"))
    draft.save("labels", labels)
    draft.identify([Path(f).stem for f in files])
    unpacked = folder.is_relative_to(draft.folder)
    draft.facts["root"] = None if unpacked else str(folder.resolve())
    draft.facts["inside"] = folder.relative_to(draft.folder).as_posix() if unpacked else None
    draft.facts["class_names"] = [names[wnid] for wnid in rank]
    stays, held = hold_out_per_class(draft.ids[: len(train)], labels[: len(train)], per_class=HELD_OUT_PER_CLASS)
    draft.split("paper", Parts(stays, held, np.arange(len(train), len(files))))


def classes(data: bytes, *, origin: object) -> tuple[dict[int, str], dict[str, str]]:
    """ILSVRC2012_ID -> wnid and wnid -> name of the 1,000 classes, from the devkit's meta.mat and no other file.

    The ID is not the rank of the sorted wnid, which is the index that networks use: ID 490 is n01751748, index 65.
    """
    refuse_placeholder(data, origin)
    if (digest := hashlib.sha256(data).hexdigest()) != META_SHA256:
        raise DataError(
            f"{origin} is not the meta.mat of ImageNet's devkit (sha256 {digest[:12]}..., expected "
            f"{META_SHA256[:12]}...): take it from ILSVRC2012_devkit_t12.tar.gz"
        )
    synsets = read_mat(data, "synsets", sha256=META_SHA256, origin=origin)
    rows = [(int(s["ILSVRC2012_ID"]), str(s["WNID"]), str(s["words"])) for s in synsets]
    wnids = {number: wnid for number, wnid, _ in rows if number <= CLASSES}
    return wnids, {wnid: words.split(",")[0] for _, wnid, words in rows}


def truth(path: Path) -> list[int]:
    """The ILSVRC2012_ID of validation image 1, 2, 3, ..."""
    data = read_file(path, limit=LIMIT)
    refuse_placeholder(data, path)
    fields = data.split()
    if not fields or not all(f.isdigit() and len(f) <= 4 and 1 <= int(f) <= CLASSES for f in fields):
        raise DataError(f"{path} must hold one number from 1 to {CLASSES} per line: it is damaged")
    return [int(f) for f in fields]


def train_files(folder: Path, rank: dict[str, int]) -> list[tuple[Path, int]]:
    """Every training image and its class; a folder that is no class is an error."""
    folders = sorted(p for p in (folder / "train").iterdir() if p.is_dir())
    if strange := next((p.name for p in folders if p.name not in rank), None):
        raise DataError(f"{folder / 'train'} holds the folder {strange!r}, which is not a class of ImageNet")
    return [(path, rank[p.name]) for p in folders for path in sorted(p.glob("[!.]*.JPEG"))]


def validation_files(
    folder: Path, ids: list[int], wnids: dict[int, str], rank: dict[str, int]
) -> list[tuple[Path, int]]:
    """Every validation image and its class by the devkit's ground truth; val/ may be flat or hold class folders."""
    images = []
    for path in sorted((folder / "val").rglob("[!.]*.JPEG"), key=lambda p: p.name):
        match = NAME.fullmatch(path.name)
        if match is None or not 1 <= int(match[1]) <= len(ids):
            raise DataError(
                f"{path} is not the name of an ImageNet validation image, such as ILSVRC2012_val_00000001.JPEG"
            )
        wnid = wnids[ids[int(match[1]) - 1]]
        if path.parent.name in rank and path.parent.name != wnid:
            raise DataError(f"{path} is in {path.parent.name}, but the devkit labels it {wnid}")
        images.append((path, rank[wnid]))
    return images


def large() -> Budget:
    """ImageNet's archives: 1.4 million files in about 150 GB."""
    return Budget(bytes=limit("unpacked", 200 << 30), files=limit("files", 1_500_000))


def arrange(files: Path, budget: Budget) -> None:
    """Bring the three official archives, once unpacked, into one layout: train/<wnid>/, val/, devkit."""
    for tar in sorted((files / "ILSVRC2012_img_train").glob("n*.tar")):
        unpack(tar, files / "train" / tar.stem, budget=budget)
        tar.unlink()
    if (files / "ILSVRC2012_img_val").is_dir():
        (files / "ILSVRC2012_img_val").rename(files / "val")
    for kit in files.glob("ILSVRC2012_devkit_t12/ILSVRC2012_devkit_t12"):
        kit.rename(files / "devkit")


RECIPE = Recipe(
    name="imagenet",
    store="imagenet",
    kind="files",
    task="classification",
    shape=(3, 224, 224),
    description="colour images in 1,000 classes, a 224 x 224 square of each",
    licence="ImageNet terms: registration, non-commercial research and education",
    citation="O. Russakovsky et al.: ImageNet Large Scale Visual Recognition Challenge, IJCV 115, 2015",
    counts=(1_271_167, 10_000, 50_000),
    classes=CLASSES,
    space="150 MB beside the images' own 150 GB",
    fetch_by_hand="register at https://image-net.org and get ILSVRC2012_img_train.tar, ILSVRC2012_img_val.tar and "
    "ILSVRC2012_devkit_t12.tar.gz, or bring a folder that holds train/<wnid>/, val/ and the devkit",
    archives=("ILSVRC2012*",),
    budget=large,
    streams=True,
    arrange=arrange,
    find=find,
    build=build,
)
