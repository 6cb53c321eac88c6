"""The real archives, named by APICAL_REAL_DATA, and Debian's Fashion-MNIST: counts, labels, shapes, known samples."""

import io
import os
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from apical import data
from apical.data import text
from apical.data.sets import crema_d, fashion_mnist, imagenet, moroco, utkface
from apical.data.sets.tiny_imagenet_classes import WNIDS
from apical.errors import DataError

REAL = os.environ.get("APICAL_REAL_DATA")
needs_samples = pytest.mark.skipif(not REAL, reason="APICAL_REAL_DATA is not set")
needs_fashion = pytest.mark.skipif(
    not (REAL and fashion_mnist.find(fashion_mnist.DEBIAN)), reason="APICAL_REAL_DATA is not set"
)
ARCHIVES = {
    "moroco": "MOROCO-derived.zip",
    "utkface-gender": "UTKFace-subset.tar.gz",
    "utkface-age": "UTKFace-subset.tar.gz",
    "crema-d": "CREMA-D-subset.zip",
    "tiny-imagenet": "tiny-imagenet-subset.zip",
    "imagenet": "ILSVRC2012-subset.tar.gz",
}
MALFORMED = {
    "14_0_0_2017011022340900.jpg": (14, 0),
    "24_0_1_20170116220224657 .jpg": (24, 0),
    "28_1_2_201701161846515488.jpg": (28, 1),
    "38_0_1_201701162330572788.jpg": (38, 0),
    "39_1_20170116174525125.jpg": (39, 1),
    "55_0_0_20170116232725357jpg": (55, 0),
    "61_1_20170109142408075.jpg": (61, 1),
    "61_1_20170109150557335.jpg": (61, 1),
}


@pytest.fixture(scope="module", autouse=True)
def shared_home(tmp_path_factory):
    """One home for all tests of this module: each archive is prepared once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("APICAL_HOME", str(tmp_path_factory.mktemp("home")))
        yield


def load(name, **how):
    return data.load(name, Path(REAL) / ARCHIVES[name], partial=True, **how)


def everything(loaded, what):
    return np.concatenate([getattr(part, what) for part in loaded.splits.values()])


@needs_fashion
def test_fashion_mnist_is_whole_and_split_as_the_authors_did():
    loaded = data.load("fashion-mnist")
    assert [len(s) for s in loaded.splits.values()] == [50_000, 10_000, 10_000]
    assert loaded.partial is None
    order = np.random.RandomState(357).permutation(60_000)
    assert list(loaded.validation.ids[:3]) == [f"train-{i:05d}" for i in order[:3]]
    assert loaded.train.ids[0] == f"train-{order[10_000]:05d}"
    assert [loaded.class_names[i] for i in loaded.test.labels[:3]] == ["ankle boot", "pullover", "trouser"]
    assert np.bincount(loaded.test.labels).tolist() == [1_000] * 10
    assert np.bincount(everything(loaded, "labels")).tolist() == [7_000] * 10


@needs_fashion
def test_fashion_mnist_loses_one_scalar_that_counts_the_padding():
    loaded = data.load("fashion-mnist")
    pixels = loaded.train.raw(np.arange(50_000)) / 255
    assert loaded.train.input.mean == pytest.approx(pixels.mean(), rel=1e-12)
    assert loaded.train.input.mean == pytest.approx(0.286, abs=5e-4)
    held = loaded.validation.raw(np.arange(10_000)) / 255
    assert (5 * pixels.mean() + held.mean()) / 6 == pytest.approx(0.2860406, abs=1e-7)
    padded = loaded.padded(2)
    assert padded.shape == (1, 32, 32)
    assert padded.train.input.mean == pytest.approx(0.219, abs=5e-4)
    image = padded.test[0].input
    assert image[0, 0, 0] == pytest.approx(-padded.train.input.mean, rel=1e-6)
    assert torch.allclose(
        image[:, 2:-2, 2:-2] + padded.train.input.mean, torch.from_numpy(loaded.test.raw([0])[0] / 255).float()
    )


@needs_fashion
def test_the_paper_split_of_fashion_mnist_is_written_down():
    from apical.data.store import Store

    manifest = Store(data.prepare("fashion-mnist")).manifest
    assert manifest["splits"]["paper"]["sha256"] == fashion_mnist.SPLIT_SHA256
    assert data.verify("fashion-mnist") is not None


@needs_samples
@pytest.mark.parametrize(
    ("name", "counts", "shape"),
    [
        ("moroco", (4_147, 889, 887), (5_000,)),
        ("utkface-gender", (1_052, 225, 226), (3, 200, 200)),
        ("utkface-age", (1_052, 225, 226), (3, 200, 200)),
        ("crema-d", (210, 45, 46), (2, 257, 376)),
        ("tiny-imagenet", (1_800, 200, 500), (3, 64, 64)),
        ("imagenet", (54, 6, 10), (3, 224, 224)),
    ],
)
def test_real_counts_and_shapes(name, counts, shape):
    loaded = load(name)
    assert tuple(len(s) for s in loaded.splits.values()) == counts
    assert loaded.shape == shape
    assert loaded.partial.startswith(f"partial ({sum(counts):,} of ")
    batch = next(loaded.train.batches(4, shuffle=True, augment=True).epoch())
    assert batch.inputs.shape == (4, *shape)
    assert torch.isfinite(batch.inputs.double()).all()
    with pytest.raises(DataError, match="partial"):
        data.load(name, Path(REAL) / ARCHIVES[name])


@needs_samples
def test_labels_of_speech_stand_in_the_clips_names():
    loaded = load("crema-d")
    for part in loaded.splits.values():
        for clip, label in zip(part.ids, part.labels, strict=True):
            assert loaded.class_names[label] == crema_d.EMOTIONS[clip.split("_")[2]]


@needs_samples
def test_the_silent_clip_gives_zeros_and_not_nan():
    loaded = load("crema-d")
    part, position = next(
        (s, list(s.ids).index("1076_MTI_SAD_XX")) for s in loaded.splits.values() if "1076_MTI_SAD_XX" in s.ids
    )
    assert torch.equal(part[position].input, torch.zeros(2, 257, 376))


@needs_samples
def test_clips_are_what_the_wave_module_reads():
    import wave

    loaded = load("crema-d")
    with zipfile.ZipFile(Path(REAL) / ARCHIVES["crema-d"]) as archive:
        for position, clip in enumerate(loaded.test.ids[:20]):
            with wave.open(io.BytesIO(archive.read(f"CREMA-D/AudioWAV/{clip}.wav"))) as file:
                whole = np.frombuffer(file.readframes(file.getnframes()), "<i2")[:48_000]
            stored = loaded.test.raw([position])[0]
            assert np.array_equal(stored[: len(whole)], whole)
            assert not stored[len(whole) :].any()


@needs_samples
def test_the_actor_split_shares_no_actor():
    loaded = load("crema-d", split="actor")
    actors = [{i[:4] for i in part.ids} for part in loaded.splits.values()]
    assert sum(map(len, actors)) == len(set.union(*actors))


@needs_samples
def test_all_malformed_utkface_names_load():
    gender, age = load("utkface-gender"), load("utkface-age")
    ids = everything(gender, "ids").tolist()
    assert list(everything(age, "ids")) == ids
    for name, (years, sex) in MALFORMED.items():
        where = ids.index(name)
        assert everything(age, "labels")[where] == years
        assert everything(gender, "labels")[where] == sex


@needs_samples
def test_faces_are_what_pillow_reads():
    loaded = load("utkface-gender")
    with tarfile.open(Path(REAL) / ARCHIVES["utkface-gender"]) as archive:
        for position in range(5):
            name = f"UTKFace/{loaded.test.ids[position]}.chip.jpg"
            image = np.asarray(Image.open(archive.extractfile(name)).convert("RGB"))
            assert np.array_equal(loaded.test.raw([position])[0], image.transpose(2, 0, 1))


@needs_samples
def test_no_face_is_on_two_sides_of_the_split_without_duplicates():
    loaded = load("utkface-gender", split="no-duplicates")
    pictures = [{p.raw([i])[0].tobytes() for i in range(len(p))} for p in loaded.splits.values()]
    assert sum(map(len, pictures)) == len(set.union(*pictures))
    assert "exact copies" in loaded.notes[0]


@needs_samples
def test_tiny_imagenet_indices_are_lines_of_the_official_list():
    loaded = load("tiny-imagenet")
    assert {WNIDS[i] for i in loaded.train.labels} == set(WNIDS[:10])
    for part in (loaded.train, loaded.validation):
        assert all(WNIDS[label] == i.split("_")[0] for i, label in zip(part.ids, part.labels, strict=True))
    assert loaded.class_names[:2] == ("Egyptian cat", "reel")
    assert len(loaded.class_names) == 200
    assert loaded.test.labels[list(loaded.test.ids).index("val_26")] == WNIDS.index("n04540053")
    assert np.bincount(loaded.validation.labels).tolist() == [20] * 10


@needs_samples
def test_greyscale_jpegs_become_rgb():
    loaded = load("tiny-imagenet")
    found = 0
    with zipfile.ZipFile(Path(REAL) / ARCHIVES["tiny-imagenet"]) as archive:
        for position, name in enumerate(loaded.train.ids):
            image = Image.open(
                io.BytesIO(archive.read(f"tiny-imagenet-200/train/{name.split('_')[0]}/images/{name}.JPEG"))
            )
            if image.mode == "L":
                found += 1
                assert np.array_equal(loaded.train.raw([position])[0], np.stack([np.asarray(image)] * 3))
    assert found > 0


@needs_samples
def test_imagenet_indices_are_ranks_of_sorted_wnids():
    loaded = load("imagenet")
    assert loaded.test.ids[0] == "ILSVRC2012_val_00000001"
    assert loaded.test.labels[0] == 65
    assert loaded.class_names[65] == "sea snake"
    assert len(loaded.class_names) == 1_000
    names = dict(zip(loaded.train.ids, loaded.train.labels, strict=True))
    for sample, label in names.items():
        assert sample.split("_", 1)[1].replace("_", " ").lower() in loaded.class_names[label].lower()


@needs_samples
def test_every_tiny_imagenet_class_is_an_imagenet_class():
    with tarfile.open(Path(REAL) / ARCHIVES["imagenet"]) as archive:
        meta = archive.extractfile("ILSVRC2012/ILSVRC2012_devkit_t12/data/meta.mat").read()
    wnids, names = imagenet.classes(meta, origin="meta.mat")
    assert sorted(wnids) == [*range(1, 1_001)]
    assert len(names) == 1_860
    assert wnids[490] == "n01751748"
    assert names["n01751748"] == "sea snake"
    assert set(WNIDS) <= set(wnids.values())


@needs_samples
def test_genuine_rows_of_moroco_match():
    with zipfile.ZipFile(Path(REAL) / ARCHIVES["moroco"]) as archive:
        for part, first in (("train", "48482"), ("validation", "13304"), ("test", "29001")):
            samples = archive.read(f"genuine-rows/{part}_samples.txt")
            rows = moroco.parse_lines(samples, origin=part)
            categories = moroco.parse_lines(archive.read(f"genuine-rows/{part}_category_labels.txt"), origin=part)
            assert len(rows) == 5
            assert rows[0][0] == first
            assert [i for i, _ in rows] == [i for i, _ in categories]
            assert "\n".join(f"{i}\t{value}" for i, value in rows).encode() == samples.rstrip(b"\n")
            for _, value in rows:
                codes = text.encode(value)
                shown = text.normalise(value)[-5000:]
                assert list(codes[: len(shown)][::-1]) == [text.ALPHABET.find(c) + 1 for c in shown]
                assert text.encode(value.replace("ş", "ș").replace("ţ", "ț")).tobytes() == codes.tobytes()


@needs_samples
def test_texts_of_moroco_are_the_files_lines():
    loaded = load("moroco")
    with zipfile.ZipFile(Path(REAL) / ARCHIVES["moroco"]) as archive:
        base = "MOROCO/preprocessed/test/"
        lines = archive.read(f"{base}samples.txt").decode().split("\n")[:-1]
        dialects = archive.read(f"{base}dialect_labels.txt").decode().split()
    assert len(lines) == len(loaded.test)
    for position in range(0, len(lines), 50):
        number, value = lines[position].split("\t", 1)
        assert loaded.test.ids[position] == f"test-{number}"
        assert loaded.test.labels[position] == int(dialects[2 * position + 1]) - 1
        assert np.array_equal(loaded.test.raw([position])[0], text.encode(value))


@needs_samples
def test_every_utkface_name_is_read():
    with tarfile.open(Path(REAL) / ARCHIVES["utkface-gender"]) as archive:
        names = [Path(n).name for n in archive.getnames() if n.endswith(".jpg")]
    assert len(names) == 1_503
    assert all(1 <= age <= 116 and sex in (0, 1) for age, sex in map(utkface.parse_name, names))
