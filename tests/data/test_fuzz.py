"""Every parser against damaged and hostile bytes: a value, or a DataError of one line; never anything else."""

import gzip
import io
import random
import shutil
import tarfile
import tempfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from apical.data import corruptions
from apical.data.archives import Budget, unpack
from apical.data.audio import decode_wav
from apical.data.images import decode_image
from apical.data.loading import parse_csv
from apical.data.sets import crema_d, imagenet, moroco, tiny_imagenet, utkface
from apical.data.sets.fashion_mnist import parse_idx, read_idx_bytes
from apical.data.text import encode
from apical.errors import ApicalError, DataError
from apical.files import parse_npz


def in_file(parse, suffix):
    """A parser of paths as one of bytes, in a folder of its own."""

    def parse_bytes(data):
        with tempfile.TemporaryDirectory() as name:
            path = Path(name) / f"x{suffix}"
            path.write_bytes(data)
            return parse(path)

    return parse_bytes


def unpacked(path):
    target = path.with_name("out")
    try:
        unpack(path, target, budget=Budget(bytes=1 << 20, files=50))
    except DataError:
        assert not target.exists()
        raise
    inside = [p for p in target.rglob("*") if p.is_symlink() or not (p.is_file() or p.is_dir())]
    assert inside == []
    assert {p.name for p in path.parent.iterdir()} == {path.name, "out"}
    shutil.rmtree(target)


def image_bytes(kind):
    out = io.BytesIO()
    Image.fromarray(np.random.RandomState(0).randint(0, 256, (12, 9, 3)).astype(np.uint8)).save(out, kind)
    return out.getvalue()


def wav_bytes():
    import soundfile

    out = io.BytesIO()
    soundfile.write(out, np.arange(300, dtype=np.int16), 16_000, format="WAV")
    return out.getvalue()


def zip_bytes():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("a/b.txt", b"hello " * 20)
        file.writestr("c.txt", b"x")
    return out.getvalue()


def tar_bytes(mode):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as file:
        for name, content in (("a/b.txt", b"hello " * 20), ("c.txt", b"x")):
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return out.getvalue()


def npz_bytes():
    out = io.BytesIO()
    np.savez_compressed(out, x=np.ones((4, 2)), y=np.arange(4))
    return out.getvalue()


IDX = bytes([0, 0, 8, 2, 0, 0, 0, 3, 0, 0, 0, 4, *range(12)])
PARSERS = {
    "idx": ([IDX], parse_idx),
    "idx in gzip": ([gzip.compress(IDX), IDX], in_file(read_idx_bytes, ".gz")),
    "moroco": (["1\tUna ş .\n2\tdouă\u2028 .\n".encode()], lambda d: moroco.parse_lines(d, origin="x")),
    "wav": ([wav_bytes()], lambda d: decode_wav(d, origin="x")),
    "jpeg": ([image_bytes("JPEG")], lambda d: decode_image(d, origin="x")),
    "other images": (
        [image_bytes(k) for k in ("PNG", "GIF", "BMP", "TIFF", "WEBP")],
        lambda d: decode_image(d, origin="x"),
    ),
    "zip": ([zip_bytes()], in_file(unpacked, ".zip")),
    "tar": ([tar_bytes("w")], in_file(unpacked, ".tar")),
    "tar.gz": ([tar_bytes("w:gz"), tar_bytes("w:bz2"), tar_bytes("w:xz")], in_file(unpacked, ".tar.gz")),
    "npz": ([npz_bytes()], lambda d: parse_npz(io.BytesIO(d), origin="x")),
    "csv": ([b"path,label,split\na.png,x,train\n", b'path,target\n"b.png",1.5\n'], lambda d: parse_csv(d, origin="x")),
    "val_annotations": ([b"val_0.JPEG\tn02124075\t0\t0\t1\t1\n"], in_file(tiny_imagenet.annotations, ".txt")),
    "ground truth": ([b"490\n361\n171\n"], in_file(imagenet.truth, ".txt")),
}


SPOILERS = [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f\xff", b"\0", b"../", b"\n", b"\t", b"\x80"]


def damage(data, program):
    """Cut, overwrite, stretch or swap the bytes of a valid file, as the bytes of `program` say, three at a time."""
    data = bytearray(data)
    for kind, high, low in zip(program[::3], program[1::3], program[2::3], strict=False):
        place = (high << 8 | low) % (len(data) + 1)
        if kind < 30:
            del data[place:]
        elif kind < 120:
            data[place : place + len(SPOILERS[kind % 8])] = SPOILERS[kind % 8]
        elif kind < 160:
            data[place : place + 1] = bytes([low ^ high])
        elif kind < 190:
            data[place:place] = program
        elif kind < 220:
            del data[place : place + kind - 189]
        else:
            data[place:place] = data[: 10 * (kind - 219)]
    return bytes(data)


def complaint(parse, data):
    """What the parser says against the data; everything but a sentence of ours is a failure."""
    try:
        parse(data)
    except ApicalError as error:
        return str(error)
    return ""


def attack(name, cases):
    seeds, parse = PARSERS[name]

    @settings(max_examples=cases, database=None, suppress_health_check=list(HealthCheck))
    @given(st.sampled_from([*seeds, b""]), st.binary(max_size=15))
    def one(seed, program):
        assert "\n" not in complaint(parse, damage(seed, program) if seed else program)

    one()


@pytest.mark.parametrize("name", PARSERS)
def test_a_hundred_damaged_files_give_no_traceback(name):
    attack(name, 100)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARSERS)
def test_ten_thousand_damaged_files_give_no_traceback(name):
    """Drawn without hypothesis, whose own work on so many takes most of the time; the same ones every time."""
    seeds, parse = PARSERS[name]
    draws = random.Random(name)
    for _ in range(10_000):
        seed, program = draws.choice([*seeds, b""]), draws.randbytes(draws.randint(0, 15))
        data = damage(seed, program) if seed else program
        assert "\n" not in complaint(parse, data), (seed, program)


@pytest.mark.parametrize("name", PARSERS)
def test_the_undamaged_files_are_read(name):
    seeds, parse = PARSERS[name]
    for seed in seeds:
        parse(seed)


NAMES = {
    "crema-d": crema_d.parse_name,
    "utkface": utkface.parse_name,
    "corruption": corruptions.parse,
    "text": encode,
}


@pytest.mark.parametrize("parse", NAMES.values(), ids=NAMES)
def test_no_name_gives_a_traceback(parse):
    @settings(max_examples=300, database=None)
    @given(st.text() | st.from_regex(r"[a-z0-9_-]{1,12}[(_.][a-z0-9_=,.]{0,20}[).]?[a-z]*", fullmatch=True))
    def one(text):
        complaint(parse, text)

    one()
