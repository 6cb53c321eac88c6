"""Preparing: once, whole or not at all, by one of many processes, on disks that are full or cannot be written."""

import json
import os
import resource
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from apical import data
from apical.data import archives, preparation, recipe, registry
from apical.data.sets import fashion_mnist
from apical.data.store import MANIFEST, Store
from apical.errors import DataError, InvalidArgumentError, MissingDataError


def left_behind(home):
    """What a failed preparation leaves under prepared/, the lock apart."""
    folder = home / "prepared"
    return sorted(p.name for p in folder.iterdir() if not p.name.endswith(".lock")) if folder.exists() else []


def refused(home, name, root, match, **how):
    with pytest.raises(DataError, match=match) as caught:
        data.prepare(name, root, partial=True, **how)
    assert "\n" not in str(caught.value)
    assert left_behind(home) == []


def test_a_second_call_does_nothing(home, fabricate):
    root = fabricate.tiny_imagenet()
    first = data.prepare("tiny-imagenet", root, partial=True)
    stamps = {p: p.stat().st_mtime_ns for p in first.rglob("*")}
    shutil.rmtree(root)
    calls = []
    again = data.prepare("tiny-imagenet", root, partial=True, progress=lambda *c: calls.append(c))
    assert again == first
    assert {p: p.stat().st_mtime_ns for p in first.rglob("*")} == stamps
    assert calls == []


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_any_number_of_workers_writes_the_same_bytes(workers, home, fabricate):
    root = fabricate.tiny_imagenet(classes=3, per_class=120, val=6)
    folder = data.prepare("tiny-imagenet", root, partial=True, workers=workers)
    hashes = {n: a["sha256"] for n, a in Store(folder).manifest["arrays"].items()}
    assert hashes["inputs"] == expected_pixels(root)


def expected_pixels(root):
    import hashlib
    import io

    from PIL import Image

    paths = sorted(root.glob("train/*/images/*.JPEG"), key=lambda p: (p.parent.parent.name, p))
    paths += sorted(root.glob("val/images/*.JPEG"))
    pixels = np.stack([np.asarray(Image.open(p).convert("RGB")).transpose(2, 0, 1) for p in paths])
    out = io.BytesIO()
    np.save(out, pixels)
    return hashlib.sha256(out.getvalue()).hexdigest()


def test_archives_are_found_by_name_and_unpacked(home, fabricate):
    folder = fabricate.utkface()
    archive = home / "raw" / "utkface" / "UTKFace.tar.gz"
    archive.parent.mkdir(parents=True)
    with tarfile.open(archive, "w:gz") as file:
        file.add(folder, "UTKFace")
    prepared = data.prepare("utkface-gender", partial=True)
    assert not (prepared / "files").exists()
    assert len(data.load("utkface-age", partial=True).train) == len(data.load("utkface-gender", partial=True).train)


def test_faces_at_another_size_have_a_folder_and_the_same_splits(home, fabricate):
    from PIL import Image

    folder = fabricate.utkface()
    whole, small = (data.load("utkface-gender", folder, True, size=size) for size in (None, 16))
    assert (whole.shape, small.shape) == ((3, 200, 200), (3, 16, 16))
    assert small.description == "faces, 16 x 16 pixels in colour, male or female"
    assert list(small.test.ids) == list(whole.test.ids)
    assert small.train.input.mean == pytest.approx(whole.train.input.mean, abs=0.01)
    assert [s.state for s in data.statuses() if s.recipe.name == "utkface-age"] == [
        "partial (31 of 23,708)", "partial (31 of 23,708), 16 px",
    ]  # fmt: skip
    shrunk = fabricate.root / "shrunk"
    shrunk.mkdir()
    for path in folder.iterdir():
        with Image.open(path) as image:
            image.resize((16, 16)).save(shrunk / path.name)
    with pytest.raises(DataError, match="200 x 200 are expected"):
        data.load("utkface-gender", shrunk, True)
    assert data.load("utkface-gender", shrunk, True, size=16).shape == (3, 16, 16)
    for name, size, sentence in (("crema-d", 64, "has one size only"), ("utkface-age", 4, "8 to 1024 pixels")):
        with pytest.raises(InvalidArgumentError, match=sentence):
            data.load(name, size=size)


def test_imagenet_reads_its_three_official_archives(home, fabricate, tmp_path):
    folder = fabricate.imagenet()
    place = tmp_path / "official"
    place.mkdir()
    with tarfile.open(place / "ILSVRC2012_img_train.tar", "w") as outer:
        for wnid in sorted((folder / "train").iterdir()):
            inner = tmp_path / f"{wnid.name}.tar"
            with tarfile.open(inner, "w") as file:
                for image in wnid.iterdir():
                    file.add(image, image.name)
            outer.add(inner, inner.name)
    with tarfile.open(place / "ILSVRC2012_img_val.tar", "w") as file:
        for image in (folder / "val").iterdir():
            file.add(image, image.name)
    with tarfile.open(place / "ILSVRC2012_devkit_t12.tar.gz", "w:gz") as file:
        file.add(folder / "ILSVRC2012_devkit_t12", "ILSVRC2012_devkit_t12")
    loaded, plain = data.load("imagenet", place, partial=True), data.load("imagenet", folder, partial=True)
    for one, two in zip(loaded.splits.values(), plain.splits.values(), strict=True):
        assert list(one.ids) == list(two.ids)
        assert list(one.labels) == list(two.labels)
        assert (one.inputs([0]) == two.inputs([0])).all()


@pytest.mark.parametrize("flat", [True, False])
def test_imagenet_labels_come_from_the_devkit_wherever_images_lie(flat, home, fabricate):
    loaded = data.load("imagenet", fabricate.imagenet(flat=flat), partial=True)
    assert loaded.test.labels.tolist() == [3, 5, 7]
    assert set(loaded.train.labels) <= {3, 5, 900}
    assert loaded.class_names[900] == "word 900"


def test_two_processes_share_one_preparation(home, fabricate):
    root = fabricate.tiny_imagenet(per_class=100)
    code = f"""
from apical.data.store import publish
from apical.data import preparation as preparing
built = []
old = preparing.publish
preparing.publish = lambda *a, **k: built.append(old(*a, **k))
preparing.prepare("tiny-imagenet", {str(root)!r}, partial=True, workers=1)
print("built" if built == [True] else "waited")
"""
    processes = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    said = sorted(p.communicate()[0].strip() for p in processes)
    assert said == ["built", "waited", "waited"]
    data.verify("tiny-imagenet", root, partial=True)


def test_a_draft_of_a_dead_process_is_removed(home, fabricate):
    root = fabricate.moroco()
    stale = preparation.partial_folder(registry.get("moroco"), root)
    draft = stale.with_name(f".{stale.name}.draft-1")
    draft.mkdir(parents=True)
    (draft / "inputs.npy").write_bytes(b"half")
    data.prepare("moroco", root, partial=True)
    assert not draft.exists()


def test_a_full_disk_is_said_and_leaves_nothing(home, fabricate):
    root = fabricate.tiny_imagenet()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        refused(home, "tiny-imagenet", root, "cannot write prepared data .*File too large.* set APICAL_HOME")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    data.prepare("tiny-imagenet", root, partial=True)


@pytest.fixture
def unprivileged(tmp_path_factory):
    """A folder that everybody may enter, and nobody's rights while it is used (root may write anywhere)."""
    import tempfile

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        was = os.geteuid()
        yield folder, (lambda: os.seteuid(65534) if was == 0 else None)
        os.seteuid(was)
        for path in [folder, *folder.rglob("*")]:
            path.chmod(0o755)


def test_a_cache_that_cannot_be_written_is_said(unprivileged, fabricate, monkeypatch):
    folder, become_nobody = unprivileged
    root = shutil.copytree(fabricate.fashion_mnist(), folder / "raw files")
    monkeypatch.setenv("APICAL_HOME", str(folder / "home"))
    folder.chmod(0o555)
    become_nobody()
    with pytest.raises(DataError, match=r"cannot write prepared data .*Permission denied.* set APICAL_HOME"):
        data.prepare("fashion-mnist", root, partial=True)


def test_a_prepared_set_opens_from_a_cache_that_cannot_be_written(unprivileged, fabricate, monkeypatch):
    folder, become_nobody = unprivileged
    root = shutil.copytree(fabricate.fashion_mnist(), folder / "raw files")
    monkeypatch.setenv("APICAL_HOME", str(folder / "home"))
    data.load("fashion-mnist", root, partial=True)  # all that is imported on the way is imported with our own rights
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    become_nobody()
    assert len(data.load("fashion-mnist", root, partial=True).train) == 50


def test_fashion_mnist_with_other_bytes_is_refused(home, fabricate):
    root = fabricate.fashion_mnist()
    with pytest.raises(DataError, match="is not Fashion-MNIST's: its unpacked bytes have the sha256"):
        data.prepare("fashion-mnist", root)
    assert left_behind(home) == []


def test_moroco_with_other_bytes_is_refused(home, fabricate):
    root = fabricate.moroco((21_719, 5_921, 5_924))
    with pytest.raises(DataError, match="is not MOROCO's"):
        data.prepare("moroco", root)
    assert left_behind(home) == []


@pytest.mark.parametrize(
    ("name", "pattern", "change", "match"),
    [
        ("tiny-imagenet", "train/*/images/*_3.JPEG", lambda d: d[:200], "damaged image"),
        ("tiny-imagenet", "train/*/images/*_3.JPEG", lambda d: b"<html>", "web page"),
        ("tiny-imagenet", "train/*/images/*_3.JPEG", lambda d: b"", "damaged image"),
        ("tiny-imagenet", "wnids.txt", lambda d: b"n99999999", "not a class of Tiny ImageNet"),
        ("tiny-imagenet", "wnids.txt", lambda d: b"\xff\xfe", "not UTF-8"),
        ("tiny-imagenet", "val/val_annotations.txt", lambda d: d + b"../../x.JPEG\tn02124075\n", "line 7 of"),
        ("tiny-imagenet", "val/val_annotations.txt", lambda d: d + d, "occurs twice|damaged|twice"),
        ("tiny-imagenet", "val/val_annotations.txt", lambda d: d + b"val_9.JPEG\tn02124075\n", "cannot read .*val_9"),
        ("crema-d", "AudioWAV/1003_DFA_FEA_XX.wav", lambda d: d[:1000], "declares .* bytes of sound"),
        (
            "crema-d",
            "AudioWAV/1003_DFA_FEA_XX.wav",
            lambda d: b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n",
            "Git LFS pointer.*git lfs pull",
        ),
        ("utkface-gender", "3_*.jpg", lambda d: d[:5000], "damaged image"),
        ("moroco", "preprocessed/train/samples.txt", lambda d: d + b"no tab\n", "line 13 of"),
        ("moroco", "preprocessed/train/samples.txt", lambda d: d + d, "same ids in the same order"),
        ("moroco", "preprocessed/train/samples.txt", lambda d: b"\xff" + d, "not UTF-8"),
        ("moroco", "preprocessed/train/dialect_labels.txt", lambda d: d.replace(b"\t2", b"\t7"), "dialect '7'"),
        ("fashion-mnist", "train-images-idx3-ubyte.gz", lambda d: d[:-100], "damaged gzip"),
        ("fashion-mnist", "train-labels-idx1-ubyte.gz", lambda d: b"\0\0\x08\x01\0\0\0\x01\x01", "do not fit together"),
        ("imagenet", "*/data/meta.mat", lambda d: d[:3000], "is not the meta.mat of ImageNet's devkit .*take it"),
        ("imagenet", "*/data/ILSVRC2012_validation_ground_truth.txt", lambda d: b"1\n2000\n", "from 1 to 1000"),
        (
            "imagenet",
            "*/data/ILSVRC2012_validation_ground_truth.txt",
            lambda d: b"1",
            "is not the name of an ImageNet validation image",
        ),
    ],
)
def test_broken_files_are_one_sentence_and_leave_nothing(name, pattern, change, match, home, fabricate):
    root = fabricate.by_name(name)
    path = sorted(root.glob(pattern))[0]
    changed = change(path.read_bytes())
    path.write_bytes(changed)
    refused(home, name, root, match)


def test_a_broken_file_stops_all_decoding_processes(home, fabricate):
    root = fabricate.tiny_imagenet(per_class=300)
    sorted(root.glob("train/*/images/*"))[700].write_bytes(b"junk")
    refused(home, "tiny-imagenet", root, "damaged image", workers=2)


def test_the_same_sample_twice_is_refused(home, fabricate):
    root = fabricate.moroco()
    for name in ("samples.txt", "dialect_labels.txt"):
        path = root / "preprocessed/test" / name
        path.write_bytes(path.read_bytes() * 2)
    refused(home, "moroco", root, "'test-100' occurs twice")


def test_strange_names_are_refused(home, fabricate):
    folder = fabricate.crema_d()
    (folder / "AudioWAV/1001_DFA_JOY_XX.wav").write_bytes(b"")
    refused(home, "crema-d", folder, "is not the name of a CREMA-D clip")


def test_a_validation_image_in_the_wrong_folder_is_noticed(home, fabricate):
    root = fabricate.imagenet(flat=False)
    path = next(root.glob("val/*/ILSVRC2012_val_00000001.JPEG"))
    path.rename(root / "val" / "n20000005" / path.name)
    refused(home, "imagenet", root, "the devkit labels it n20000003")


def test_an_archive_of_something_else_is_refused(home, tmp_path):
    with zipfile.ZipFile(tmp_path / "moroco.zip", "w") as file:
        file.writestr("readme.txt", "nothing here")
    refused(home, "moroco", tmp_path / "moroco.zip", "does not hold moroco in its official layout")
    with pytest.raises(MissingDataError, match="there is no"):
        data.prepare("moroco", tmp_path / "nowhere")


def test_a_changed_array_is_found_by_verify(home, fabricate):
    folder = data.prepare("moroco", fabricate.moroco(), partial=True)
    assert data.verify("moroco", partial=True) == folder
    path = folder / "inputs.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="has changed since it was prepared"):
        data.verify("moroco", partial=True)
    path.write_bytes(content[:300])
    with pytest.raises(DataError, match="is damaged: remove"):
        data.load("moroco", partial=True).train[0]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"format": 1}', b"\xff"])
def test_a_damaged_manifest_is_one_sentence(content, home, fabricate):
    folder = data.prepare("moroco", fabricate.moroco(), partial=True)
    (folder / MANIFEST).write_bytes(content)
    with pytest.raises(DataError, match=r"remove .* and prepare"):
        data.load("moroco", partial=True)


def test_several_subsets_need_a_name(home, fabricate, tmp_path):
    root = fabricate.moroco()
    data.prepare("moroco", root, partial=True)
    other = shutil.copytree(root, tmp_path / "other")
    data.prepare("moroco", other, partial=True)
    with pytest.raises(DataError, match="several subsets of moroco are prepared"):
        data.load("moroco", partial=True)
    assert data.load("moroco", other, partial=True).partial == "partial (22 of 33,564)"


def test_what_is_not_prepared_cannot_be_verified(home):
    with pytest.raises(DataError, match="apical data prepare moroco --partial"):
        data.verify("moroco", partial=True)
    assert data.verify("xor") is None
    with pytest.raises(InvalidArgumentError, match="workers is 0"):
        data.prepare("moroco", workers=0)


def test_the_manifest_writes_the_splits_down(home, fabricate):
    store = Store(data.prepare("crema-d", fabricate.crema_d(), partial=True))
    for name in ("paper", "actor"):
        ids = store.array("ids")
        parts = [[ids[i].decode() for i in rows] for rows in store.parts(name)]
        from apical.data.split import split_hash

        assert store.manifest["splits"][name]["sha256"] == split_hash(parts)
    assert "1040_ITH_SAD_XX" in {i.decode() for i in store.array("ids")}
    assert json.loads((store.folder / MANIFEST).read_text())["source"].endswith("CREMA-D")


def test_another_version_s_folder_is_not_guessed_at(home, fabricate):
    folder = data.prepare("moroco", fabricate.moroco(), partial=True)
    path = folder / MANIFEST
    path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
    with pytest.raises(DataError, match=r"another version of apical: remove .* and prepare"):
        data.load("moroco", partial=True)


@pytest.mark.parametrize("module", ["apical.data.workers", "apical.data.preparation", "apical.cli.data"])
def test_preparing_and_listing_do_not_wait_for_torch(module):
    code = f"import {module}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_where_things_are(home, monkeypatch, tmp_path):
    assert data.home() == home
    monkeypatch.delenv("APICAL_HOME")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(sys, "platform", "linux")
    assert data.home() == tmp_path / "apical"
    monkeypatch.setattr(sys, "platform", "darwin")
    assert data.home().parts[-3:] == ("Library", "Caches", "apical")


def test_folders_of_packaging_are_looked_through(fabricate, tmp_path):
    deep = tmp_path / "a" / "b"
    deep.mkdir(parents=True)
    fabricate.moroco().rename(deep / "MOROCO")
    assert recipe.find_layout(registry.get("moroco"), tmp_path / "a") == deep / "MOROCO" / "preprocessed"
    assert fashion_mnist.find(tmp_path) is None
    assert archives.is_archive(tmp_path) is False
