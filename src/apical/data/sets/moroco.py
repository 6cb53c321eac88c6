"""MOROCO: 33,564 Moldavian and Romanian news texts."""

import hashlib
from itertools import pairwise
from pathlib import Path

import numpy as np

from apical.data.recipe import Recipe, expect
from apical.data.split import Parts
from apical.data.store import Draft
from apical.data.text import LENGTH, VOCABULARY, encode
from apical.errors import DataError
from apical.files import read_file, refuse_placeholder

SAMPLES_SHA256 = {
    "train": "633fa23f51771d06baecde648f045bbfeb43ff561bb3143a5c86c87d6b9b9232",
    "validation": "e3bacccf536882cb8defe0b59c6a8b7a63ce373f6be5b3dd61449cd5cbb0ee14",
    "test": "a4a1e4e4303772bcbc8d72cc7475cf73ab1bdb1487f1c8e50f5771aecdef9eb1",
}
COUNTS = {"train": 21_719, "validation": 5_921, "test": 5_924}
CLASSES = ("Moldavian", "Romanian")
LIMIT = 1 << 29


def find(folder: Path) -> Path | None:
    """The folder that holds train/samples.txt, validation/samples.txt and test/samples.txt."""
    for place in (folder / "preprocessed", folder):
        if all((place / part / "samples.txt").is_file() for part in COUNTS):
            return place
    return None


def build(folder: Path, draft: Draft) -> None:
    """Character codes of every text; the split is the official one."""
    texts, labels, ids, bounds = [], [], [], [0]
    for part, official in COUNTS.items():
        rows = read_part(folder / part, sha256=None if draft.partial else SAMPLES_SHA256[part])
        expect(len(rows), official, what=f"{part} texts", partial=draft.partial)
        for sample, text, dialect in rows:
            ids.append(f"{part}-{sample}")
            texts.append(text)
            labels.append(dialect - 1)
        bounds.append(len(ids))
    codes = draft.array("inputs", (len(texts), LENGTH), np.uint8)
    for row, text in enumerate(texts):
        codes[row] = encode(text)
        if row % 512 == 0:
            draft.progress("encoding", row, len(texts))
    draft.save("labels", np.array(labels, np.int64))
    draft.identify(ids)
    draft.split("paper", Parts(*(np.arange(a, b) for a, b in pairwise(bounds))))


def read_part(folder: Path, *, sha256: str | None = None) -> list[tuple[str, str, int]]:
    """(id, text, dialect) of one split: samples.txt and dialect_labels.txt agree line by line."""
    path = folder / "samples.txt"
    data = read_file(path, limit=LIMIT)
    samples = parse_lines(data, origin=path)
    digest = hashlib.sha256(data).hexdigest()
    if sha256 is not None and digest != sha256:
        raise DataError(
            f"{path} is not MOROCO's: sha256 {digest[:12]}..., expected {sha256[:12]}...; fetch it again, "
            "or add --partial to use a subset"
        )
    label_path = folder / "dialect_labels.txt"
    dialects = parse_lines(read_file(label_path, limit=LIMIT), origin=label_path)
    if [i for i, _ in samples] != [i for i, _ in dialects]:
        raise DataError(f"{path} and {label_path} do not list the same ids in the same order: fetch both again")
    if strange := next((d for _, d in dialects if d.strip() not in ("1", "2")), None):
        raise DataError(
            f"{label_path} holds the dialect {strange[:20]!r} where 1 (Moldavian) or 2 (Romanian) is expected"
        )
    return [(i, text, int(d)) for (i, text), (_, d) in zip(samples, dialects, strict=True)]


def parse_lines(data: bytes, *, origin: object) -> list[tuple[str, str]]:
    """(id, value) of each `ID<TAB>value` line. Lines end with a line feed alone: texts hold other separators."""
    refuse_placeholder(data, origin)
    try:
        lines = data.decode("utf-8").split("\n")
    except UnicodeDecodeError as error:
        raise DataError(f"{origin} is not UTF-8 text (byte {error.start:,}): fetch it again") from error
    if lines[-1] == "":
        lines.pop()
    rows = []
    for number, line in enumerate(lines, start=1):
        sample, tab, value = line.partition("\t")
        if not tab or not sample.isascii() or not sample.strip().isdigit():
            raise DataError(f"line {number:,} of {origin} is not `ID<TAB>value`: the file is damaged")
        rows.append((sample.strip(), value))
    return rows


RECIPE = Recipe(
    name="moroco",
    store="moroco",
    kind="text",
    task="classification",
    shape=(LENGTH,),
    description="Moldavian and Romanian news texts, 5,000 characters each, read from the end",
    licence="CC BY-NC-SA 4.0",
    citation="A. Butnaru, R. T. Ionescu: MOROCO, ACL 2019",
    counts=(21_719, 5_921, 5_924),
    class_names=CLASSES,
    vocabulary=VOCABULARY,
    space="170 MB",
    fetch_by_hand="get the folder MOROCO of the repository https://github.com/butnaruandrei/MOROCO",
    archives=("*MOROCO*", "*moroco*"),
    find=find,
    build=build,
)
