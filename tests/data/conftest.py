"""Tiny data sets in the official layouts, and a home of their own for every test."""

import gzip
import io
import wave
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from apical import files
from apical.data.sets import imagenet
from apical.data.sets.tiny_imagenet_classes import WNIDS


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty APICAL_HOME."""
    folder = tmp_path / "home"
    monkeypatch.setenv("APICAL_HOME", str(folder))
    return folder


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.astype(np.uint8).tobytes()


def jpeg(size: tuple[int, int] = (64, 64), *, seed: int = 0, mode: str = "RGB") -> bytes:
    channels = () if mode == "L" else (3,)
    pixels = np.random.RandomState(seed).randint(0, 256, (*size, *channels)).astype(np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, "JPEG")
    return out.getvalue()


def wav(samples: np.ndarray, *, rate: int = 16_000, channels: int = 1) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(channels)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(samples.astype("<i2").tobytes())
    return out.getvalue()


@dataclass(frozen=True)
class Fabricate:
    """Makes data sets below `root`; every method gives the folder to name as --root."""

    root: Path
    monkeypatch: pytest.MonkeyPatch

    jpeg = staticmethod(jpeg)
    wav = staticmethod(wav)
    idx = staticmethod(idx)

    def fashion_mnist(self, train: int = 60, test: int = 10, *, zipped: bool = True) -> Path:
        folder = self.root / "fashion"
        folder.mkdir()
        draws = np.random.RandomState(1)
        for name, n in (("train", train), ("t10k", test)):
            arrays = {
                "images-idx3": draws.randint(0, 256, (n, 28, 28)),
                "labels-idx1": np.arange(n) % 10,
            }
            for kind, array in arrays.items():
                data = idx(array)
                path = folder / f"{name}-{kind}-ubyte{'.gz' if zipped else ''}"
                path.write_bytes(gzip.compress(data) if zipped else data)
        return folder

    def moroco(self, rows: tuple[int, int, int] = (12, 5, 5)) -> Path:
        for part, n in zip(("train", "validation", "test"), rows, strict=True):
            folder = self.root / "MOROCO" / "preprocessed" / part
            folder.mkdir(parents=True)
            samples = "".join(f"{100 + i}\tȘtirea\u2028 numărul {i} din ţară .\n" for i in range(n))
            (folder / "samples.txt").write_text(samples, encoding="utf-8", newline="")
            (folder / "dialect_labels.txt").write_text("".join(f"{100 + i}\t{1 + i % 2}\n" for i in range(n)))
            (folder / "category_labels.txt").write_text("".join(f"{100 + i}\t3\n" for i in range(n)))
        return self.root / "MOROCO"

    def crema_d(self, actors: int = 10) -> Path:
        folder = self.root / "CREMA-D" / "AudioWAV"
        folder.mkdir(parents=True)
        tone = 8000 * np.sin(np.arange(20_000) / 7)
        for actor in range(1001, 1001 + actors):
            for emotion in ("ANG", "DIS", "FEA", "HAP", "NEU", "SAD"):
                (folder / f"{actor}_DFA_{emotion}_XX.wav").write_bytes(wav(tone))
        (folder / "1040_ITH_SAD_X.wav").write_bytes(wav(np.zeros(60_000)))
        return folder.parent

    def utkface(self, images: int = 30) -> Path:
        folder = self.root / "UTKFace"
        folder.mkdir()
        for i in range(images):
            name = f"{1 + i}_{i % 2}_0_2017010{i:010d}.jpg.chip.jpg"
            (folder / name).write_bytes(jpeg((200, 200), seed=i % (images - 3)))  # the last three are copies
        (folder / "61_1_20170109142408075.jpg.chip.jpg").write_bytes(jpeg((200, 200), seed=99))
        return folder

    def tiny_imagenet(self, classes: int = 3, per_class: int = 20, val: int = 6) -> Path:
        folder = self.root / "tiny-imagenet-200"
        wnids = WNIDS[5 : 5 + classes]
        for c, wnid in enumerate(wnids):
            images = folder / "train" / wnid / "images"
            images.mkdir(parents=True)
            for i in range(per_class):
                mode = "L" if i == 0 else "RGB"
                (images / f"{wnid}_{i}.JPEG").write_bytes(jpeg(seed=1000 * c + i, mode=mode))
        (folder / "val" / "images").mkdir(parents=True)
        lines = []
        for i in range(val):
            (folder / "val" / "images" / f"val_{i}.JPEG").write_bytes(jpeg(seed=9000 + i))
            lines.append(f"val_{i}.JPEG\t{wnids[i % classes]}\t0\t0\t1\t1\n")
        (folder / "val" / "val_annotations.txt").write_text("".join(lines))
        (folder / "wnids.txt").write_text("\n".join(wnids))
        (folder / "words.txt").write_text("".join(f"{w}\tname of {w}, other\n" for w in wnids))
        return folder

    def imagenet(self, *, flat: bool = True) -> Path:
        from scipy.io import savemat

        folder = self.root / "ILSVRC2012"
        wnids = [f"n{20_000_000 + i:08d}" for i in range(1000)]
        ids = [(i * 7) % 1000 + 1 for i in range(1000)]  # an ID that is not the rank
        kit = folder / "ILSVRC2012_devkit_t12" / "data"
        kit.mkdir(parents=True)
        kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O")]
        synsets = np.array([(ids[i], wnids[i], f"word {i}, more") for i in range(1000)], kinds)
        savemat(kit / "meta.mat", {"synsets": synsets})
        self.monkeypatch.setattr(imagenet, "META_SHA256", files.sha256(kit / "meta.mat"))
        (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("\n".join(str(ids[i]) for i in (3, 5, 7)))
        for i in (3, 5, 900):
            (folder / "train" / wnids[i]).mkdir(parents=True)
            for k in range(12):
                data = jpeg((300 + k, 280), seed=i + k, mode="L" if k == 0 else "RGB")
                (folder / "train" / wnids[i] / f"{wnids[i]}_{k}.JPEG").write_bytes(data)
        for number, i in enumerate((3, 5, 7), start=1):
            val = folder / "val" if flat else folder / "val" / wnids[i]
            val.mkdir(parents=True, exist_ok=True)
            (val / f"ILSVRC2012_val_{number:08d}.JPEG").write_bytes(jpeg((240, 260), seed=number))
        return folder

    def voice(self, name: str = "Front_Right.wav") -> Path:
        """A falling tone, shorter than the clip."""
        folder = self.root / "alsa"
        folder.mkdir(exist_ok=True)
        tone = 12_000 * np.linspace(1, 0.2, 9_000) * np.sin(np.arange(9_000) * 0.03)
        (folder / name).write_bytes(wav(tone, rate=48_000))
        return folder

    def voice_other(self) -> Path:
        return self.voice("Side_Right.wav")

    def by_name(self, name: str) -> Path:
        """The fabricated data set of a registered name."""
        method = {"utkface-gender": "utkface", "utkface-age": "utkface"}.get(name, name.replace("-", "_"))
        return getattr(self, method)()  # type: ignore[no-any-return]


@pytest.fixture
def fabricate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Fabricate:
    folder = tmp_path / "raw files"
    folder.mkdir()
    return Fabricate(folder, monkeypatch)
