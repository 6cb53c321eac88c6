"""Files from strangers: most of these attacks once ended in a traceback, a wait without end, or a file elsewhere.

Eleven were refused before there was one module for them, and stay so; two tests say what is not refused.

`tests/study/test_trust.py` is about the code that files name, `tests/data/test_fuzz.py` about damaged bytes.
"""

import ast
import gzip
import io
import json
import os
import re
import struct
import tarfile
import threading
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import apical
from apical import cli, data, files, limits, study
from apical.convert.record import read_document
from apical.data.archives import Budget, unpack
from apical.data.audio import decode_wav
from apical.data.images import decode_image
from apical.data.loading import parse_csv
from apical.data.sets.fashion_mnist import read_idx_bytes
from apical.data.store import MANIFEST, Store
from apical.errors import ApicalError, CheckpointError, ConversionError, DataError, InvalidArgumentError, StudyError
from apical.nn import Unit
from apical.study.config.toml import parse
from apical.study.directory import COMMANDS, Header
from apical.study.directory import Store as StudyStore
from apical.study.results import read_outputs
from apical.study.state import Facts, read_facts
from apical.train import Execution, TestResult, TrialResult, TrialSpec, checkpoint, predict, run
from apical.train.evaluation import read_samples
from apical.train.trial import locked

DEEP = 3_000


@pytest.fixture
def at_once():
    """Whoever opens a FIFO to read without O_NONBLOCK waits for ever: here a writer comes, and the test fails."""

    def check(path, call):
        opened = threading.Event()

        def write():
            descriptor = os.open(path, os.O_RDWR)  # never waits, and frees who does
            opened.set()
            os.write(descriptor, b"from a FIFO")
            os.close(descriptor)

        timer = threading.Timer(5, write)
        timer.start()
        try:
            return call()
        finally:
            timer.cancel()
            assert not opened.is_set(), f"it waited for {path}"

    return check


# --- special files ----------------------------------------------------------------------------------------------------

READERS = {
    "text": files.read_text,
    "json": lambda path: files.read_json(path) is None or None,
    "hash": files.sha256,
    "csv": data.load,
    "npz": data.load,
    "checkpoint": checkpoint.load,
    "outputs": read_outputs,
    "conversion": read_document,
    "idx": read_idx_bytes,
    "study file": lambda path: parse(files.read_text(path), origin="x"),
    "array": files.map_array,
    "archive": lambda path: unpack(path, path.parent / "out"),
    "sample": lambda path: read_samples(path, {"shape": [1], "kind": "Numbers"}),
}


@pytest.mark.parametrize("name", READERS)
def test_a_fifo_is_refused_at_once(name, tmp_path, at_once):
    path = tmp_path / {"csv": "x.csv", "npz": "x.npz", "sample": "x.npz"}.get(name, "x")
    os.mkfifo(path)
    if name == "json":
        assert at_once(path, lambda: files.read_json(path)) is None
        return
    with pytest.raises((ApicalError, OSError), match="FIFO"):
        at_once(path, lambda: READERS[name](path))


def test_a_fifo_among_images_is_refused_at_once(tmp_path, at_once, monkeypatch):
    monkeypatch.setenv("APICAL_HOME", str(tmp_path / "home"))
    for name in ("a", "b"):
        (tmp_path / "photos" / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(tmp_path / "photos" / name / "1.png")
    os.mkfifo(tmp_path / "photos" / "b" / "2.png")
    with pytest.raises(DataError, match="FIFO"):
        at_once(tmp_path / "photos" / "b" / "2.png", lambda: data.load(tmp_path / "photos"))


def test_a_device_is_no_file(tmp_path):
    with pytest.raises(OSError, match="device"):
        files.read_bytes("/dev/zero", limit=10)
    with pytest.raises(DataError, match="a folder"):
        files.read_file(tmp_path, limit=10)


# --- links ------------------------------------------------------------------------------------------------------------


def test_links_out_of_a_folder_of_images_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("APICAL_HOME", str(tmp_path / "home"))
    root, private = tmp_path / "photos", tmp_path / "private"
    private.mkdir()
    Image.new("L", (4, 4)).save(private / "1.png")
    for name in ("a", "b"):
        (root / name).mkdir(parents=True)
        Image.new("L", (4, 4)).save(root / name / "1.png")
    (root / "b" / "inside.png").symlink_to(root / "a" / "1.png")
    assert sum(map(len, data.load(root).splits.values())) == 3
    (root / "b" / "2.png").symlink_to(private / "1.png")
    with pytest.raises(DataError, match="leads out of"):
        data.load(root)
    (root / "b" / "2.png").unlink()
    (root / "c").symlink_to(private)
    with pytest.raises(DataError, match="leads out of"):
        data.load(root)
    (tmp_path / "list.csv").write_text("path,label\nphotos/a/1.png,a\nphotos/b/1.png,b\nlink/1.png,a\n")
    (tmp_path / "link").symlink_to("/usr/share")
    with pytest.raises(DataError):
        data.load(tmp_path / "list.csv")


@pytest.fixture
def stores(tmp_path, monkeypatch):
    """A study directory of a stranger, with one finished trial, and the user's home beside it."""
    monkeypatch.setenv("APICAL_HOME", str(tmp_path / "home"))
    part = study.Part(
        name="digits", title="digits", data="digits", model="mlp-1", dims={"hidden": 2}, training={"epochs": 1}
    )
    rows = (study.Row(key="digits/relu", part="digits", label="ReLU", unit="relu"),)
    made = study.Study(name="theirs", title="theirs", parts=(part,), rows=rows, trials=1)
    store = StudyStore.create(tmp_path / "theirs", Header(made.to_dict(), 1))
    spec = TrialSpec(data="digits", model="mlp-1", dims={"hidden": 2}, epochs=1, batch=2048)
    result = run(spec, Execution(threads=1), tmp_path / "trial")
    result.directory.rename(store.trial(spec.digest))
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("private")
    return store, spec.digest, secret


def test_merging_copies_no_trial_of_too_many_files(stores, tmp_path, monkeypatch):
    store, _digest, _ = stores
    monkeypatch.setattr(files, "ENTRIES", 2)
    assert study.merge(tmp_path / "mine", store.directory).damaged == 1
    assert not list((tmp_path / "mine" / "trials").glob("[!.]*"))


def test_merging_follows_no_link(stores, tmp_path):
    store, digest, secret = stores
    (store.trial(digest) / "notes.txt").symlink_to(secret / "key")
    assert study.merge(tmp_path / "mine", store.directory).damaged == 1
    (store.trial(digest) / "notes.txt").unlink()
    (store.trial(digest) / "tensorboard").symlink_to(secret)
    assert study.merge(tmp_path / "mine", store.directory).damaged == 1
    (store.trial(digest) / "tensorboard").unlink()
    os.mkfifo(store.trial(digest) / "pipe")
    assert study.merge(tmp_path / "mine", store.directory).damaged == 1
    (store.trial(digest) / "pipe").unlink()
    assert not [p for p in (tmp_path / "mine").rglob("*") if p.name in ("key", "notes.txt", "pipe", "tensorboard")]
    assert study.merge(tmp_path / "mine", store.directory).copied == 1


def test_a_trial_that_is_a_link_is_damaged(stores):
    store, digest, secret = stores
    store.trial(digest).rename(secret / digest)
    store.trial(digest).symlink_to(secret / digest)
    assert read_facts(store.trial(digest)).state == "damaged"


def test_the_files_of_a_trial_are_no_links(stores):
    store, digest, secret = stores
    folder = store.trial(digest)
    for name in ("result.json", "best.safetensors"):
        (folder / name).rename(secret / name)
        (folder / name).symlink_to(secret / name)
    with pytest.raises(CheckpointError, match="it is a symbolic link"):
        TrialResult.load(folder)
    with pytest.raises(CheckpointError, match="it is a symbolic link"):
        checkpoint.load(folder / "best.safetensors")


def test_nothing_is_written_through_links_of_a_study_directory(stores):
    store, _digest, secret = stores
    (store.directory / COMMANDS).symlink_to(secret / "key")
    with pytest.raises(StudyError, match="it is a symbolic link"):
        store.record_command()
    assert (secret / "key").read_text() == "private"
    lease = store.leases.acquire("0" * 64)
    (store.attempts / f"{'0' * 64}.old").symlink_to(secret)
    attempt = store.begin(lease)
    assert not attempt.is_symlink()
    assert [p.name for p in secret.iterdir()] == ["key"]
    store.leases.now()
    clock = next(store.claims.glob(".clock-*"))
    clock.unlink()
    clock.symlink_to(secret / "new")
    store.leases.now()
    assert not (secret / "new").exists()
    store.attempts.rename(secret / "attempts")
    store.attempts.symlink_to(secret / "attempts")
    with pytest.raises(StudyError, match="it is a symbolic link"):
        StudyStore.open(store.directory)


def test_locking_a_trial_empties_no_other_file(tmp_path):
    (tmp_path / "key").write_text("private")
    (tmp_path / "trial").mkdir()
    (tmp_path / "trial" / ".lock").symlink_to(tmp_path / "key")
    with locked(tmp_path / "trial"):
        pass
    assert (tmp_path / "key").read_text() == "private"


def test_weights_of_the_hub_lie_beside_their_index(tmp_path):
    from apical.hub import _parts

    index = tmp_path / "model.safetensors.index.json"
    for name in ("../secret.safetensors", "/etc/passwd", "a/../../b", "..", "a\\b", ""):
        index.write_text(json.dumps({"weight_map": {"weight": name}}))
        with pytest.raises(ConversionError, match="not beside it"):
            _parts(index)
    for text in ("", "[]", '{"weight_map": [1]}', "[" * DEEP, '{"weight_map": {"a": ["b"]}}'):
        index.write_text(text)
        with pytest.raises(ConversionError):
            _parts(index)
    index.write_text(json.dumps({"weight_map": {"a": "model-00001-of-00002.safetensors"}}))
    assert _parts(index) == ["model-00001-of-00002.safetensors"]


# --- JSON and TOML ----------------------------------------------------------------------------------------------------

HOSTILE = {
    "deep": "[" * DEEP + "]" * DEEP,
    "rather deep": '{"a":' * 70 + "1" + "}" * 70,
    "not finite": '{"a": 1e999}',
    "NaN": '{"a": NaN}',
    "Infinity": "[-Infinity]",
    "a large number": '{"a": 1' + "0" * 400 + "}",
    "a huge number": '{"a": 1' + "0" * 5_000 + "}",
    "twice": '{"a": 1, "b": {"c": 2, "c": 3}}',
    "many": "[" + "0," * files.ITEMS + "0,0]",
    "many tables": "[" + "{}," * files.ITEMS + "{}]",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_json_is_a_value_error(name):
    with pytest.raises(ValueError, match=r"it (is nested|holds|has)|Exceeds the limit"):
        files.parse_json(HOSTILE[name])


def test_harmless_json_is_what_it_says():
    values = {"a": [1, -2.5, 1e300, None, True, "x"], "b": {"c": {}}, "d": 2**63}
    assert files.parse_json(json.dumps(values)) == files.parse_json(json.dumps(values).encode()) == values


@pytest.mark.parametrize("text", [HOSTILE["a large number"], HOSTILE["deep"], '{"state": "done", "value": 1e999}'])
def test_what_a_number_would_break_reads_hostile_json(text, tmp_path, stores):
    store, digest, _ = stores
    (store.trial(digest) / "result.json").write_text(text)
    assert read_facts(store.trial(digest)).state == "damaged"
    with pytest.raises(CheckpointError):
        TrialResult.load(store.trial(digest))
    with pytest.raises(InvalidArgumentError):
        TrialSpec.from_json(text)
    (tmp_path / MANIFEST).write_text(text)
    with pytest.raises(DataError):
        Store(tmp_path)
    (tmp_path / "conversion.json").write_text(text)
    with pytest.raises(ConversionError):
        read_document(tmp_path / "conversion.json")


def test_facts_of_the_index_are_finite_numbers():
    for value in ("1" + "0" * 400, "1e999", "NaN"):
        with pytest.raises(ValueError, match="number"):
            Facts.from_json(f'{{"state": "done", "value": {value}, "seconds": 1}}')


@pytest.mark.parametrize(
    "text",
    [
        ".".join("a" * DEEP) + " = 1",
        ".".join("a" * 500_000) + " = 1",
        " . ".join(['"a"'] * 70) + " = 1",
        "a = " + "[" * DEEP + "]" * DEEP,
        "a = " + "[" * 70 + "]" * 70,
        "trials = 1" + "0" * 400,
        "trials = 1" + "0" * 5_000,
        "trials = inf",
    ],
)
def test_hostile_toml_is_one_sentence(text):
    with pytest.raises(StudyError, match="not TOML: "):
        parse(text, origin="mine.toml")
    with pytest.raises(InvalidArgumentError, match="not the TOML of a TrialSpec"):
        TrialSpec.from_toml(text)


def test_a_large_file_is_refused_before_it_is_read(tmp_path):
    for name in ("result.json", "study.toml", "conversion.json", MANIFEST, "x.csv", COMMANDS):
        with (tmp_path / name).open("wb") as file:
            file.truncate(1 << 40)  # a hole: it takes no space
    assert files.read_json(tmp_path / "result.json") is None
    with pytest.raises(StudyError, match=r"more than 4,194,304"):
        study.load(tmp_path / "study.toml")
    with pytest.raises(ConversionError, match=r"more than 67,108,864"):
        read_document(tmp_path / "conversion.json")
    with pytest.raises(DataError, match="is damaged"):
        Store(tmp_path)
    with pytest.raises(DataError, match=r"more than 268,435,456"):
        data.load(tmp_path / "x.csv")
    assert StudyStore(tmp_path, Header({}, 1)).commands() == ()


def test_a_csv_of_too_many_rows_is_refused(monkeypatch):
    monkeypatch.setattr(files, "ROWS", 3)
    with pytest.raises(DataError, match="more than 3 lines"):
        parse_csv(b"path,label\n" + b"a.png,x\n" * 5, origin="x")


# --- bombs ------------------------------------------------------------------------------------------------------------


def npz(**members: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(f"{name}.npy", content)
    return out.getvalue()


def npy(shape: object, descr: str = "<f4", content: bytes = b"") -> bytes:
    header = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape}}}".encode()
    header += b" " * (-(len(header) + 11) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + content


BOMBS = {
    "more than its limit": (npz(ids=npy((1 << 10,), content=bytes(1 << 12))), "more than 1,024 bytes.*outputs=10240"),
    "many small arrays": (npz(**{f"a{i}": npy((64,), content=bytes(256)) for i in range(9)}), "more than 1,024 bytes"),
    "very many": (npz(**{f"a{i}": npy((0,)) for i in range(1_001)}), "1,001 arrays, but at most 1,000 are allowed"),
    "a negative shape": (npz(ids=npy((-1, 4), content=bytes(64))), "is refused"),
    "objects": (npz(ids=npy((1,), "|O", b"\x80\x04N.")), "is refused"),
    "a promise": (npz(ids=npy((200,))), "truncated"),
}


@pytest.mark.parametrize("name", BOMBS)
def test_arrays_of_a_tested_trial_are_limited(name, tmp_path, monkeypatch):
    monkeypatch.setenv("APICAL_LIMITS", "outputs=1024")
    bomb, words = BOMBS[name]
    (tmp_path / "test.npz").write_bytes(bomb)
    with pytest.raises(StudyError, match=words):
        read_outputs(tmp_path / "test.npz")
    with pytest.raises(CheckpointError, match=words):
        TestResult.load(tmp_path)


def test_arrays_of_an_own_npz_are_limited(tmp_path, monkeypatch):
    np.savez_compressed(tmp_path / "x.npz", x=np.zeros((50, 4), np.float32), y=np.arange(50) % 2)
    monkeypatch.setenv("APICAL_LIMITS", "array=512")
    with pytest.raises(DataError, match=r"declares arrays of more than 512 bytes: .*--limits array=5120"):
        data.load(tmp_path / "x.npz")


@pytest.mark.parametrize("content", [npy((1 << 40,)), npy((-1,)), npy((1,), "|O", b"\x80\x04N."), npy((4, 4))])
def test_a_prepared_array_is_as_large_as_it_says_and_holds_no_objects(content, tmp_path):
    (tmp_path / "x.npy").write_bytes(content)
    with pytest.raises(ValueError, match="too small for its shape"):
        files.map_array(tmp_path / "x.npy")


def test_a_zip_archive_is_no_array_of_a_prepared_set(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.ones(3))
    (tmp_path / "inputs.npy").write_bytes((tmp_path / "x.npz").read_bytes())
    facts = {"format": 1, "partial": False, "rows": 1, "official": 1, "source": "x", "arrays": {}, "splits": {}}
    (tmp_path / MANIFEST).write_text(json.dumps(facts))
    with pytest.raises(DataError, match="is damaged"):
        Store(tmp_path).map("inputs")
    facts["arrays"] = {"../../secret": {"sha256": "", "bytes": 1}}
    (tmp_path / MANIFEST).write_text(json.dumps(facts))
    with pytest.raises(DataError):
        Store(tmp_path)


def test_a_matlab_file_is_decoded_only_if_it_is_the_known_one(monkeypatch):
    monkeypatch.setattr("scipy.io.loadmat", lambda *_args, **_how: pytest.fail("it was decoded"))
    with pytest.raises(DataError, match=r"meta\.mat is not the file that is expected"):
        files.read_mat(b"MATLAB 5.0 MAT-file", "synsets", sha256="0" * 64, origin="meta.mat")


def tar_of(header: tarfile.TarInfo, content: bytes) -> bytes:
    return header.tobuf() + content + bytes(-len(content) % 512)


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_tar_header_of_many_bytes_is_refused(kind, tmp_path):
    info = tarfile.TarInfo("x")
    info.type, info.size = kind, 64 << 20
    with gzip.open(tmp_path / "x.tar.gz", "wb", compresslevel=1) as file:
        file.write(info.tobuf())
        for _ in range(64):
            file.write(bytes(1 << 20))
        file.write(bytes(1024))
    with pytest.raises(DataError, match=r"67,108,864 bytes, more than 4,194,304"):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_tar_archive_cannot_make_us_skip_for_ever(tmp_path):
    info = tarfile.TarInfo("x")
    info.size = 1 << 40
    with gzip.open(tmp_path / "x.tar.gz", "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    with pytest.raises(DataError):
        unpack(tmp_path / "x.tar.gz", tmp_path / "out", budget=Budget(bytes=1 << 21, files=10))


def test_a_gzip_bomb_is_refused_with_its_limit(tmp_path, monkeypatch):
    monkeypatch.setattr("apical.data.sets.fashion_mnist.LIMIT", 1 << 20)
    (tmp_path / "x.gz").write_bytes(gzip.compress(bytes(2 << 20)))
    with pytest.raises(DataError, match="more than 1,048,576 bytes"):
        read_idx_bytes(tmp_path / "x.gz")


def png_header(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.new("L", (1, 1)).save(out, "PNG")
    chunk = b"IHDR" + struct.pack(">II", width, height) + b"\x08\0\0\0\0"
    return out.getvalue()[:12] + chunk + struct.pack(">I", zlib.crc32(chunk)) + out.getvalue()[33:]


def test_an_image_bomb_is_refused_with_its_limit():
    for width in (8_500, 11_000, 1_000_000):
        with pytest.raises(DataError, match=r"at most 80,000,000 are decoded: .*--limits pixels=800000000"):
            decode_image(png_header(width, 10_000), origin="x")


def test_a_raised_limit_counts_for_pillow_too(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)
    monkeypatch.setenv("APICAL_LIMITS", "pixels=100000000000")
    assert files.open_image(png_header(1_000_000, 10_000), origin="x", mode=None).size == (1_000_000, 10_000)


def test_an_image_that_is_a_program_is_not_run(monkeypatch):
    from PIL import EpsImagePlugin

    out = io.BytesIO()
    Image.new("RGB", (4, 4)).save(out, "EPS")
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_args, **_how: pytest.fail("Ghostscript was called"))
    with pytest.raises(DataError, match="damaged image"):
        decode_image(out.getvalue(), origin="x.png")


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "BMP", "GIF", "TIFF", "WEBP", "PPM"])
def test_whoever_patches_pillow_does_not_read_our_images(kind, monkeypatch):
    """As ultralytics does: its `PIL.Image.open` installs a package, or fails to, where a file is no image."""
    out = io.BytesIO()
    Image.new("RGB", (4, 3), (90, 90, 90)).save(out, kind)

    def install(*_args, **_how):
        raise ModuleNotFoundError("No module named 'pi_heif'")

    monkeypatch.setattr(Image, "open", install)
    monkeypatch.setattr(Image, "OPEN", dict.fromkeys(Image.OPEN, (install, None)))
    assert files.open_image(out.getvalue(), origin="x").size == (4, 3)
    for damaged in (b"", b"\1\2\3", out.getvalue()[:1], out.getvalue()[:7]):
        with pytest.raises(DataError, match="x is a damaged image"):
            files.open_image(damaged, origin="x")


def test_sound_is_decoded_as_far_as_it_is_needed():
    channels, frames = 1_000, 4_000
    body = bytes(2 * channels * frames)
    head = struct.pack("<HHIIHH", 1, channels, 16_000, 32_000 * channels, 2 * channels, 16)
    wav = b"RIFF" + struct.pack("<I", 36 + len(body)) + b"WAVEfmt " + struct.pack("<I", 16) + head
    with pytest.raises(DataError, match="channels"):
        decode_wav(wav + b"data" + struct.pack("<I", len(body)) + body, origin="x")


def test_limits_are_raised_by_one_option_or_variable(monkeypatch, capsys):
    assert limits.limit("pixels") == 80_000_000
    monkeypatch.setenv("APICAL_LIMITS", "pixels=5, files=7")
    assert (limits.limit("pixels"), limits.limit("files", 9), limits.limit("unpacked", 9)) == (5, 7, 9)
    for text in ("pixels", "pixels=", "pixels=-1", "pixel=5", "pixels=1e9", "pixels=" + "9" * 30):
        monkeypatch.setenv("APICAL_LIMITS", text)
        with pytest.raises(InvalidArgumentError, match="write name=number"):
            limits.limit("pixels")
        assert cli.run(["data", "show", "digits", "-o", "x.png", "--limits", text]) == 1


# --- checkpoints and results ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        b'{"a": 1e999}',
        b'{"a":' * 100 + b"1" + b"}" * 100,
        b'{"__metadata__": {"format": "apical checkpoint 1", "facts": "{}", "facts": "[]"}}',
        b'{"__metadata__": {"format": "apical checkpoint 1", "facts": "{\\"epoch\\": 1e999}"}}',
        b'{"w": {"dtype": "F32", "shape": [9223372036854775807, 4], "data_offsets": [0, 4]}, "__metadata__": '
        b'{"format": "apical checkpoint 1", "facts": "{}"}}',
    ],
)
def test_hostile_headers_of_weights_are_one_sentence(header, tmp_path):
    (tmp_path / "x.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(CheckpointError, match="not a checkpoint or is damaged"):
        checkpoint.load(tmp_path / "x.safetensors")


@pytest.mark.parametrize(
    ("size", "length", "words"),
    [
        (files.WEIGHTS_LIMIT + 1, 2, "must have 9 to 68,719,476,736"),
        (8, 0, "must have 9 to"),
        (1 << 30, files.HEADER_LIMIT + 1, "its header of 67,108,865 bytes does not fit"),
        (100, 93, "its header of 93 bytes does not fit a file of 100 bytes"),
        (100, (1 << 64) - 1, "its header of 18,446,744,073,709,551,615 bytes does not fit"),
    ],
)
def test_weights_and_their_header_have_limits(size, length, words, tmp_path):
    with (tmp_path / "x.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", length))
        file.truncate(size)  # a hole: it takes no space
    with pytest.raises(ValueError, match=words):
        files.read_weights(tmp_path / "x.safetensors")


CHANGES = {
    "another kind": {"kind": "Exec"},
    "no kind": {"kind": None},
    "a strange setting": {"settings": {"divisor": "x"}},
    "an unknown setting": {"settings": {"code": 1}},
    "nothing": {"settings": None},
    "division by zero": {"settings": {"divisor": 0}},
    "padding": {"settings": {"pad": 10**9}},
    "a huge shape": {"shape": [1, 10**6, 10**6]},
    "a negative shape": {"shape": [1, -8, 8]},
    "a flat shape": {"shape": [64]},
    "another shape": {"shape": [1, 9, 9]},
    "fewer classes": {"classes": ["a"]},
    "no classes": {"classes": [1, 2]},
    "huge dimensions": {"dims": {"hidden": 10**15, "inputs": 64, "outputs": 10}},
    "negative dimensions": {"dims": {"hidden": -1, "inputs": 64, "outputs": 10}},
    "dimensions of text": {"dims": {"hidden": "x", "inputs": 64, "outputs": 10}},
    "a strange range": {"range": "x"},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    spec = TrialSpec(data="digits", model="mlp-1", dims={"hidden": 2}, epochs=1, batch=2048)
    return run(spec, Execution(threads=1), tmp_path_factory.mktemp("trained") / "run").directory


@pytest.mark.parametrize("name", CHANGES)
def test_a_result_that_lies_about_its_input_is_one_sentence(name, trained, tmp_path):
    values = json.loads((trained / "result.json").read_text())
    values["input"] |= CHANGES[name]
    (tmp_path / "result.json").write_text(json.dumps(values))
    (tmp_path / "best.safetensors").write_bytes((trained / "best.safetensors").read_bytes())
    np.savez(tmp_path / "x.npz", x=np.zeros((2, 64)))
    Image.new("L", (8, 8)).save(tmp_path / "x.png")
    for sample in ("x.npz", "x.png"):
        with pytest.raises(ApicalError):
            predict(tmp_path, [tmp_path / sample])


def test_an_honest_result_is_used(trained, tmp_path):
    Image.new("L", (8, 8)).save(tmp_path / "x.png")
    assert len(predict(trained, [tmp_path / "x.png"])) == 1


# --- one place for all of them ----------------------------------------------------------------------------------------

SOURCE = Path(apical.__file__).parent
PARSERS = {
    "bz2", "cloudpickle", "dill", "gzip", "h5py", "joblib", "lzma", "marshal", "onnx", "pickle", "PIL", "pyarrow",
    "safetensors", "scipy.io", "shelve", "soundfile", "tarfile", "tomllib", "yaml", "zipfile",
}  # fmt: skip
"""Modules that decode bytes; nobody else imports them."""
CALLS = {
    "csv.reader", "csv.DictReader", "json.load", "json.loads", "np.fromfile", "np.genfromtxt", "np.load", "np.loadtxt",
    "np.memmap", "pd.read_csv", "torch.load", "torch.jit.load", "torch.hub.load", "torch.export.load", "os.open",
    "open", "io.open", "io.FileIO", "sqlite3.connect", "shutil.copytree", "shutil.copy", "shutil.copyfile",
    "shutil.unpack_archive",
}  # fmt: skip
METHODS = {"read_text", "read_bytes"}
ELSEWHERE = {
    ("cli/__init__.py", "os.open"): "the null device",
    ("cli/study.py", "read_text"): "the template of study files, which comes with apical",
    ("data/workers.py", "json.loads"): "the pipe from the parent process, and to it",
    ("env.py", "open"): "/proc",
    ("report/render/html.py", "read_text"): "the templates of the page, which come with apical",
    ("study/engines/node.py", "pickle"): "jobs of the driver, which started the node",
    ("study/engines/ray.py", "pickle"): "jobs of the driver are written",
    ("study/leases.py", "read_text"): "/proc",
    ("study/maintenance.py", "pyarrow"): "tables are written",
    ("study/state.py", "sqlite3.connect"): "the cache of this user",
    ("train/checkpoint.py", "safetensors"): "checkpoints are written",
}
"""What else opens or decodes, and why it is no file from elsewhere."""


def dotted(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else "?"


def opens(path: Path) -> set[str]:
    """What of PARSERS, CALLS and METHODS a module uses, `.open` for reading included."""
    used = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call):
            name = dotted(node.func)
            last = name.rpartition(".")[2]
            texts = [a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
            if last in ("optional", "import_module"):
                modules = texts
            if name in CALLS or ("." in name and last in METHODS and not name.startswith("files.")):
                used.add(name if name in CALLS else last)
            writes = re.search(r"['\"][wxa]b?['\"]", ast.unparse(node))
            others = (*CALLS, "webbrowser.open", "Store.open", "cls.open")
            if last == "open" and name not in others and not writes:
                used.add("open")
        used |= {parser for parser in PARSERS for m in modules if f"{m}.".startswith(f"{parser}.")}
    return used


def test_bytes_from_elsewhere_are_decoded_in_one_module():
    used = {(p.relative_to(SOURCE).as_posix(), name) for p in SOURCE.rglob("*.py") for name in opens(p)}
    used = {(path, name) for path, name in used if path != "files.py"}
    assert sorted(used - ELSEWHERE.keys()) == []
    assert sorted(ELSEWHERE.keys() - used) == [], "listed, and not there any more"


def test_the_table_of_readers_names_every_reader_and_its_limits():
    page = (Path(__file__).parents[1] / "docs" / "security.md").read_text(encoding="utf-8")
    for name in ("open_image", "decode_sound", "parse_npz", "map_array", "read_mat", "read_weights", "members",
                 "gunzip", "parse_json", "parse_toml", "parse_csv", "read_file", "copy_folder"):  # fmt: skip
        assert f"`{name}`" in page, name
        assert hasattr(files, name)
    for number in (*limits.RAISABLE.values(), files.DEPTH, files.ITEMS, files.ROWS, files.LIMIT, files.WEIGHTS_LIMIT):
        assert f"{number:,}" in page, number


def test_units_and_specs_are_no_programs():
    for text in ("ada(alpha=1e999)", "ada(alpha=nan)", "pyramidal(basal=" * 60, "ada(" * 2_000, "(" * 5_000):
        with pytest.raises(ApicalError):
            Unit.parse(text)
