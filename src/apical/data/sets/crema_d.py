"""CREMA-D: 7,442 spoken clips by 91 actors, six emotions."""

import re
from pathlib import Path

import numpy as np

from apical.data.audio import SAMPLES
from apical.data.recipe import Recipe, expect
from apical.data.split import grouped_split, random_split
from apical.data.store import Draft
from apical.data.workers import Decoding, decode_files
from apical.errors import DataError
from apical.files import refuse_links_out

EMOTIONS = {"ANG": "anger", "DIS": "disgust", "FEA": "fear", "HAP": "happy", "NEU": "neutral", "SAD": "sad"}
CLIPS = 7_442
# 1040_ITH_SAD_X.wav is an old official misspelling of _XX.
NAME = re.compile(r"(\d{4})_([A-Z]{3})_(ANG|DIS|FEA|HAP|NEU|SAD)_(XX|X|LO|MD|HI)\.wav")


def find(folder: Path) -> Path | None:
    """The folder AudioWAV."""
    for place in (folder / "AudioWAV", folder):
        if place.is_dir() and next(place.glob("[0-9]*_*_*_*.wav"), None) is not None:
            return place
    return None


def parse_name(name: str) -> tuple[str, str]:
    """(actor, emotion) from actor_sentence_emotion_level.wav."""
    match = NAME.fullmatch(name)
    if match is None:
        raise DataError(f"{name!r} is not the name of a CREMA-D clip, such as 1001_DFA_ANG_XX.wav")
    return match[1], match[3]


def build(folder: Path, draft: Draft) -> None:
    """3-second clips; random 70/15/15 by clip, as in the paper, and by actor beside it."""
    paths = sorted(folder.glob("[!.]*.wav"))
    refuse_links_out(folder, paths)
    names = [parse_name(p.name) for p in paths]
    expect(len(paths), CLIPS, what="clips", partial=draft.partial)
    draft.array("inputs", (len(paths), SAMPLES), np.int16)
    decode_files(
        paths, draft.path("inputs"), Decoding("audio", (SAMPLES,)), workers=draft.workers, progress=draft.progress
    )
    ids = [p.stem.removesuffix("_X") + "_XX" if p.stem.endswith("_X") else p.stem for p in paths]
    draft.save("labels", np.array([list(EMOTIONS).index(e) for _, e in names], np.int64))
    draft.identify(ids)
    draft.split("paper", random_split(ids))
    draft.split("actor", grouped_split(ids, [actor for actor, _ in names]))


RECIPE = Recipe(
    name="crema-d",
    store="crema-d",
    kind="audio",
    task="classification",
    shape=(2, 257, 376),
    description="acted speech in 6 emotions, 3 seconds at 16 kHz, seen as a spectrogram (real and imaginary part)",
    licence="ODbL 1.0",
    citation="H. Cao et al.: CREMA-D, IEEE Transactions on Affective Computing 5(4), 2014",
    counts=(5_209, 1_116, 1_117),
    class_names=tuple(EMOTIONS.values()),
    splits=("paper", "actor"),
    space="720 MB",
    fetch_by_hand="clone https://github.com/CheyneyComputerScience/CREMA-D with Git LFS (a zip download of the "
    "repository holds pointer files instead of sound) and take its folder AudioWAV",
    archives=("*CREMA*", "*crema*", "AudioWAV*"),
    find=find,
    build=build,
)
