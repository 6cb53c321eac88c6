"""Places and what is there: pixels of photographs that come with scikit-learn and matplotlib, signals, and sound.

A sample is a coordinate, its target the colour or the value there, between 0 and 1. A quarter of the pixels (half of
the points in time) is for fitting, a quarter for validation, the rest for the test: a network has to fill them in.
"""

import hashlib
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from apical import imports
from apical.data.audio import refuse_truncated_wav
from apical.data.randomness import generator
from apical.data.recipe import Arrays, Recipe
from apical.data.split import SEED, Parts
from apical.data.store import Draft
from apical.errors import DataError
from apical.files import decode_sound, open_image, read_file, refuse_placeholder

PHOTOGRAPHS = {
    "china": ("sklearn", "datasets/images/china.jpg"),
    "flower": ("sklearn", "datasets/images/flower.jpg"),
    "portrait": ("matplotlib", "mpl-data/sample_data/grace_hopper.jpg"),
}
"""The library that brings each, and where in it."""
SIZES = (64, 128)
TONES = {"tones": (5, 10, 15, 20, 25, 30, 35, 40, 45, 50), "tones-other": (4, 9, 14, 19, 24, 29, 34, 39, 44, 49)}
"""Whole periods of the sines of each signal over its length; all have the same amplitude."""
POINTS = 1_024
FILE_LIMIT = 1 << 24
CLIPS = {
    "voice": ("Front_Right.wav", "1fdea4d7003f1f7d3e48d3521aaab0a112c4ac570b02ddf1813abacac3070f6f"),
    "voice-other": ("Side_Right.wav", "ecdd0329945f355960796a56f8126d5080ed93fdd2437c7eaddbbbd56137d7e9"),
}
"""The file of each clip, and its sha256."""
DEBIAN = Path("/usr/share/sounds/alsa")
RATE, SECONDS, FASTEST = 8_000, 10, 192_000
"""Of sound: samples a second, and the most seconds; the highest rate of a file that is read."""
VOICE_POINTS = 2_048


def photograph(name: str, size: int) -> NDArray[np.float32]:
    """(size, size, 3) values in [0, 1]: the largest square in the middle, resized."""
    library, inside = PHOTOGRAPHS[name]
    path = imports.file_of(library, inside, extra="lab")
    image = open_image(read_file(path, limit=FILE_LIMIT), origin=path)
    side = min(image.size)
    left, top = (image.width - side) // 2, (image.height - side) // 2
    square = image.crop((left, top, left + side, top + side)).resize((size, size), 1)  # Lanczos
    return np.asarray(square).astype(np.float32) / np.float32(255)


def tones(name: str) -> NDArray[np.float32]:
    """POINTS even samples of a sum of sines with seeded phases, moved and scaled to [0, 1]."""
    turns = np.arange(POINTS) / POINTS
    phases = generator("tones", name, SEED).uniform(0, 2 * np.pi, len(TONES[name]))
    values = sum(np.sin(2 * np.pi * k * turns + phase) for k, phase in zip(TONES[name], phases, strict=True))
    low, high = np.min(values), np.max(values)
    return np.asarray((values - low) / (high - low), np.float32)


def sound(data: bytes, *, origin: object) -> NDArray[np.float32]:
    """The first SECONDS of a WAV file: channels averaged, at RATE samples a second or fewer."""
    refuse_placeholder(data, origin)
    refuse_truncated_wav(data, origin)
    clip, rate, _ = decode_sound(data, origin=origin, samples=FASTEST * SECONDS)
    if not 1 <= rate <= FASTEST:
        raise DataError(f"{origin} has {rate:,} samples a second, but at most {FASTEST:,} are read")
    values = clip[: rate * SECONDS].astype(np.float64).mean(1)
    if rate > RATE:
        values = imports.optional("scipy.signal", extra="lab").resample_poly(values, RATE, rate)
    if len(values) < 8 or not np.abs(values).max() > 0:
        raise DataError(f"{origin} has {len(values)} samples or is silent: give a recording")
    return np.asarray(values, np.float32)


def balanced(values: NDArray[np.float32]) -> NDArray[np.float32]:
    """Scaled to [0, 1], with silence at 1/2."""
    return np.asarray(0.5 + values / (2 * np.abs(values).max()), np.float32)


def loudest(values: NDArray[np.float32], length: int) -> NDArray[np.float32]:
    """The part of this length with the largest sum of squares."""
    sums = np.concatenate([[0.0], np.cumsum(values.astype(np.float64) ** 2)])
    first = int(np.argmax(sums[length:] - sums[:-length])) if length < len(values) else 0
    return values[first : first + length]


def places_in_time(values: NDArray[np.float32]) -> Arrays:
    """Points of [-1, 1) and the values there: half of them for fitting, a quarter for validation, the rest to test."""
    n = len(values)
    inputs = (2 * np.arange(n, dtype=np.float32) / n - 1)[:, None]
    return Arrays(
        inputs=inputs, labels=values[:, None], ids=[f"point-{i:04d}" for i in range(n)], parts=_parts(n, n // 2)
    )


def _parts(n: int, fit: int) -> Parts:
    """`fit` of n places for fitting, a quarter for validation, the rest for the test, shuffled by the splits' seed."""
    order = generator("places", SEED).permutation(n)
    return Parts(*(np.sort(rows) for rows in np.split(order, [fit, fit + n // 4])))


def make_photograph(recipe: Recipe) -> Arrays:
    """Pixel centres in [-1, 1] x [-1, 1], row by row, and their colours."""
    name, _, size = recipe.name.rpartition("-")
    side = int(size)
    centres = (2 * np.arange(side, dtype=np.float32) + 1) / side - 1
    inputs = np.stack(np.meshgrid(centres, centres, indexing="ij"), axis=2).reshape(-1, 2)
    ids = [f"pixel-{y:03d}-{x:03d}" for y in range(side) for x in range(side)]
    parts = _parts(side * side, side * side // 4)
    return Arrays(inputs=inputs, labels=photograph(name, side).reshape(-1, 3), ids=ids, parts=parts)


def make_tones(recipe: Recipe) -> Arrays:
    """Points of [-1, 1) and the values of the signal there."""
    return places_in_time(tones(recipe.name))


def find_clip(name: str, folder: Path) -> Path | None:
    """The folder that holds the file of a clip."""
    return folder if (folder / CLIPS[name][0]).is_file() else None


def build_clip(name: str, folder: Path, draft: Draft) -> None:
    """The loudest VOICE_POINTS samples of the clip; without `partial`, of no other file than the one that is known."""
    file, sha256 = CLIPS[name]
    data = read_file(folder / file, limit=FILE_LIMIT)
    if not draft.partial and (digest := hashlib.sha256(data).hexdigest()) != sha256:
        raise DataError(
            f"{folder / file} is not alsa-utils' file: its sha256 is {digest[:12]}..., expected {sha256[:12]}...; "
            "fetch it again, or add --partial (partial=True) to use another recording"
        )
    made = places_in_time(balanced(loudest(sound(data, origin=folder / file), VOICE_POINTS)))
    draft.save("inputs", made.inputs)
    draft.save("labels", made.labels)
    draft.identify(made.ids)
    draft.split("paper", made.parts)


_PIXELS = Recipe(
    name="china-64",
    store="china-64",
    kind="numbers",
    task="regression",
    shape=(2,),
    description="",
    licence="CC BY 2.0",
    citation="danielbuechele, flickr.com/photos/danielbuechele/6061409035; comes with scikit-learn",
    counts=(1_024, 1_024, 2_048),
    make=make_photograph,
)
_OF = {
    "china": ("a temple in China", _PIXELS.licence, _PIXELS.citation),
    "flower": (
        "a flower",
        "CC BY 2.0",
        "vultilion, flickr.com/photos/vultilion/6056698931; comes with scikit-learn",
    ),
    "portrait": (
        "a portrait of Grace Hopper",
        "public domain (work of the US Navy)",
        "James S. Davis, US Navy, 1984; comes with matplotlib",
    ),
}
_TONES = replace(
    _PIXELS, shape=(1,), licence="none needed", citation="the signal of N. Rahaman et al.: On the spectral bias of "
    "neural networks, 2019", counts=(512, 256, 256), make=make_tones,
)  # fmt: skip
RECIPES = (
    *(
        replace(
            _PIXELS,
            name=f"{name}-{size}",
            store=f"{name}-{size}",
            description=f"the pixels of {what}, {size} x {size}: position to colour",
            licence=licence,
            citation=citation,
            counts=(size * size // 4, size * size // 4, size * size // 2),
        )
        for size in SIZES
        for name, (what, licence, citation) in _OF.items()
    ),
    *(
        replace(
            _TONES,
            name=name,
            store=name,
            description=f"a signal of ten sines, {turns[0]} to {turns[-1]} periods: position to value",
        )
        for name, turns in TONES.items()
    ),
    *(
        replace(
            _PIXELS,
            name=name,
            store=name,
            shape=(1,),
            description=f"the loudest quarter of a second of a voice, {file}: time to value",
            licence="GPL-2.0",
            citation="the ALSA developers: alsa-utils, samples of speaker-test",
            counts=(VOICE_POINTS // 2, VOICE_POINTS // 4, VOICE_POINTS // 4),
            fetch_by_hand=f"install Debian's package alsa-utils, or fetch {file} (speaker-test/samples) of "
            "https://github.com/alsa-project/alsa-utils",
            system_folders=(DEBIAN,),
            find=partial(find_clip, name),
            build=partial(build_clip, name),
            make=None,
        )
        for name, (file, _) in CLIPS.items()
    ),
)
