"""UTKFace: 23,708 faces, aligned and cropped to 200 x 200, with age and gender."""

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np

from apical.data.recipe import Recipe, expect
from apical.data.split import Parts, grouped_split, random_split
from apical.data.store import Draft
from apical.data.workers import Decoding, decode_files
from apical.errors import DataError
from apical.files import refuse_links_out

IMAGES = 23_708
SHAPE = (3, 200, 200)
# Eight official names lack a field or a dot: age and gender, the first two fields, stand in all of them.
NAME = re.compile(r"(\d{1,3})_([01])_.*\.chip\.jpg")


def find(folder: Path) -> Path | None:
    """The flat folder of *.chip.jpg files."""
    for place in (folder / "UTKFace", folder):
        if place.is_dir() and next(place.glob("*_*.chip.jpg"), None) is not None:
            return place
    return None


def parse_name(name: str) -> tuple[int, int]:
    """(age, gender) from age_gender_race_timestamp.jpg.chip.jpg; gender 0 is male, 1 is female."""
    match = NAME.fullmatch(name)
    if match is None or not 1 <= int(match[1]) <= 116:
        raise DataError(f"{name!r} is not the name of a UTKFace image, such as 26_1_2_20170116184024662.jpg.chip.jpg")
    return int(match[1]), int(match[2])


def build(folder: Path, draft: Draft, *, size: int | None = None) -> None:
    """Random 70/15/15 as in the paper, and a split in which identical files stay on one side.

    With `size` images of any size are accepted and brought to it, the files of a smaller copy too; the splits are the
    same.
    """
    shape = SHAPE if size is None else (SHAPE[0], size, size)
    paths = sorted(folder.glob("[!.]*.jpg"))
    refuse_links_out(folder, paths)
    labels = np.array([parse_name(p.name) for p in paths], np.int64).reshape(-1, 2)
    expect(len(paths), IMAGES, what="images", partial=draft.partial)
    draft.array("inputs", (len(paths), *shape), np.uint8)
    decoding = Decoding("image", shape, resize=size is not None)
    decoded = decode_files(paths, draft.path("inputs"), decoding, workers=draft.workers, progress=draft.progress)
    ids = [p.name.removesuffix(".chip.jpg") for p in paths]
    draft.save("age", labels[:, 0].astype(np.float32))
    draft.save("gender", labels[:, 1])
    draft.row_means = decoded.means
    draft.identify(ids)
    paper = random_split(ids)
    draft.split("paper", paper)
    draft.split("no-duplicates", grouped_split(ids, decoded.digests))
    draft.facts["notes"] = [leak(decoded.digests, paper)]


def leak(digests: list[str], parts: Parts) -> str:
    """A sentence about identical files and how many of them the random split puts on both sides."""
    copies = sum(n - 1 for n in Counter(digests).values())
    train = {digests[i] for i in parts.train}
    leaked = sum(digests[i] in train for i in [*parts.validation, *parts.test])
    return (
        f"{copies} images are exact copies of others; the paper's random split has {leaked} validation and test images "
        'that also train; split="no-duplicates" has none'
    )


GENDER = Recipe(
    name="utkface-gender",
    store="utkface",
    kind="image",
    task="classification",
    shape=SHAPE,
    description="faces, 200 x 200 pixels in colour, male or female",
    licence="non-commercial research only",
    citation="Z. Zhang, Y. Song, H. Qi: Age progression/regression by conditional adversarial autoencoder, CVPR 2017",
    counts=(16_595, 3_556, 3_557),
    class_names=("male", "female"),
    splits=("paper", "no-duplicates"),
    label="gender",
    space="2.9 GB",
    fetch_by_hand='get "Aligned&Cropped Faces" (UTKFace.tar.gz) from https://susanqq.github.io/UTKFace/',
    archives=("*UTKFace*", "*utkface*"),
    resize=True,
    find=find,
    build=build,
)
AGE = replace(
    GENDER,
    name="utkface-age",
    task="regression",
    description="faces, 200 x 200 pixels in colour, age in years",
    label="age",
    class_names=None,
)
