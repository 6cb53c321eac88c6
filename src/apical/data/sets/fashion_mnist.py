"""Fashion-MNIST: 70,000 greyscale images of clothes, 28 x 28."""

import hashlib
from math import prod
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apical.data.archives import Progress, fetch
from apical.data.recipe import Recipe, expect
from apical.data.split import SEED, Parts
from apical.data.store import Draft
from apical.errors import DataError
from apical.files import gunzip, read_file, refuse_placeholder

# Hashes of the unpacked bytes: packagings differ in their gzip headers.
FILES = {
    "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
    "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
    "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
    "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
}
URL = "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion"
DEBIAN = Path("/usr/share/datasets/fashion-mnist")
CLASSES = (
    "T-shirt/top",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
VALIDATION = 10_000
SPLIT_SHA256 = "0b7d270d21dd21640cdbbaa7ff9e9a75f79e920f9aa72b8193d856348065985d"
"""`split_hash` of the ids of the authors' split."""


def find(folder: Path) -> Path | None:
    """All four files, gzipped or not."""
    return folder if all(_file(folder, name) for name in FILES) else None


def download(folder: Path, progress: Progress) -> None:
    """The four files, unpacked and checked."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, sha256 in FILES.items():
        if not (folder / name).exists():
            fetch(f"{URL}/{name}.gz", folder / name, sha256=sha256, progress=progress, gunzip=True)


def build(folder: Path, draft: Draft) -> None:
    """Images, labels, and the authors' split of the 60,000 training images."""
    arrays = [_read(folder, name, check=not draft.partial) for name in FILES]
    train_x, train_y, test_x, test_y = arrays
    for images, labels, official in ((train_x, train_y, 60_000), (test_x, test_y, 10_000)):
        expect(len(images), official, what="images", partial=draft.partial)
        if images.shape[1:] != (28, 28) or labels.shape != images.shape[:1] or labels.max(initial=0) > 9:
            raise DataError(f"{folder} holds images {images.shape} and labels {labels.shape} that do not fit together")
    n = len(train_x)
    draft.save("inputs", np.concatenate([train_x, test_x])[:, None])
    draft.save("labels", np.concatenate([train_y, test_y]).astype(np.int64))
    draft.row_means = np.concatenate([x.mean((1, 2)) for x in (train_x, test_x)])
    draft.identify([f"train-{i:05d}" for i in range(n)] + [f"test-{i:05d}" for i in range(len(test_x))])
    draft.split("paper", split(n, len(test_x)))


def split(train: int, test: int) -> Parts:
    """Validation: the first 10,000 of RandomState(357).permutation(60000); the rest trains, in that order."""
    shuffled = np.random.RandomState(SEED).permutation(train)
    held = min(VALIDATION, train // 6)
    return Parts(shuffled[held:], shuffled[:held], np.arange(train, train + test))


def _file(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / name, folder / f"{name}.gz") if p.is_file()), None)


def _read(folder: Path, name: str, *, check: bool) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    path = _file(folder, name)
    assert path is not None
    data = read_idx_bytes(path)
    array = parse_idx(data, origin=path)
    if check and (digest := hashlib.sha256(data).hexdigest()) != FILES[name]:
        raise DataError(
            f"{path} is not Fashion-MNIST's: its unpacked bytes have the sha256 {digest[:12]}..., "
            f"expected {FILES[name][:12]}...; fetch it again"
        )
    return array


RECIPE = Recipe(
    name="fashion-mnist",
    store="fashion-mnist",
    kind="image",
    task="classification",
    shape=(1, 28, 28),
    description="greyscale images of clothes in 10 classes, 28 x 28 pixels",
    licence="MIT",
    citation="H. Xiao, K. Rasul, R. Vollgraf: Fashion-MNIST, arXiv:1708.07747, 2017",
    counts=(50_000, 10_000, 10_000),
    class_names=CLASSES,
    space="55 MB",
    fetch_by_hand="install Debian's package dataset-fashion-mnist, or fetch the four files from " + URL,
    system_folders=(DEBIAN,),
    find=find,
    build=build,
    download=download,
)


# The IDX format of MNIST and its kin: a magic number, the sizes, then bytes.

UNSIGNED_BYTE = 0x08
LIMIT = 1 << 28
"""No IDX file read here is larger: Fashion-MNIST's largest has 47,040,016 bytes."""


def read_idx_bytes(path: Path) -> bytes:
    """The bytes of an IDX file, gzipped or not, unpacked to at most LIMIT bytes."""
    data = read_file(path, limit=LIMIT)
    refuse_placeholder(data, path)
    if not data.startswith(b"\x1f\x8b"):
        return data
    return gunzip(data, most=LIMIT, origin=path)


def parse_idx(data: bytes, *, origin: object = "IDX data") -> NDArray[np.uint8]:
    """The array in IDX bytes; the header must promise exactly what follows it."""
    if len(data) < 4 or data[0] or data[1] or data[2] != UNSIGNED_BYTE or not 1 <= data[3] <= 4:
        raise DataError(f"{origin} has no IDX header of unsigned bytes (got {data[:4].hex() or 'nothing'})")
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise DataError(f"{origin} ends within its IDX header: it is truncated")
    shape = tuple(int(n) for n in np.frombuffer(data, ">u4", count=data[3], offset=4))
    if prod(shape) != len(data) - start:
        raise DataError(f"{origin} declares {prod(shape):,} values but holds {len(data) - start:,}: fetch it again")
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)
