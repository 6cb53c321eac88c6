"""The user's own data: folders, CSV files, .npz files."""

import io
import os
import shutil

import numpy as np
import pytest
import torch
from PIL import Image

from apical import data
from apical.errors import DataError


def picture(path, colour, size=(10, 8), mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new(mode, size, colour).save(path)


@pytest.fixture
def zoo(tmp_path):
    for i in range(20):
        picture(tmp_path / "zoo" / "cat" / f"{i}.png", (i, 0, 0))
        picture(tmp_path / "zoo" / "ant" / f"{i}.png", (0, i, 0))
    return tmp_path / "zoo"


def test_a_folder_of_class_folders(home, zoo):
    loaded = data.load(zoo)
    assert loaded.class_names == ("ant", "cat")
    assert [len(s) for s in loaded.splits.values()] == [28, 6, 6]
    assert loaded.shape == (3, 8, 10)
    for part in loaded.splits.values():
        for position, name in enumerate(part.ids):
            kind, number = name.removesuffix(".png").split("/")
            assert loaded.class_names[part.labels[position]] == kind
            assert part.raw([position])[0, 1 if kind == "ant" else 0, 0, 0] == int(number)
    assert data.load(str(zoo)).identity == loaded.identity


def test_a_changed_folder_is_prepared_anew(home, zoo):
    before = data.load(zoo)
    picture(zoo / "bee" / "1.png", (1, 2, 3))
    after = data.load(zoo)
    assert after.class_names == ("ant", "bee", "cat")
    assert before.fingerprint != after.fingerprint


def test_parts_that_the_user_made_are_kept(home, tmp_path):
    for part, n in (("train", 20), ("test", 5)):
        for i in range(n):
            picture(tmp_path / "x" / part / "ab"[i % 2] / f"{i}.png", i, mode="L")
    loaded = data.load(tmp_path / "x")
    assert [len(s) for s in loaded.splits.values()] == [17, 3, 5]
    assert loaded.shape == (1, 8, 10)
    assert all(i.startswith("test/") for i in loaded.test.ids)
    assert all(i.startswith("train/") for i in [*loaded.train.ids, *loaded.validation.ids])


def test_images_of_several_sizes_need_a_size(home, zoo):
    picture(zoo / "cat" / "big.png", 0, size=(40, 40))
    with pytest.raises(DataError, match=r"differ in size .* size=64"):
        data.load(zoo)
    assert data.load(zoo, size=16).shape == (3, 16, 16)


def test_a_csv_of_paths_and_labels(home, zoo):
    table = "path,label,split\n" + "".join(
        f"{kind}/{i}.png,{kind},{'train' if i < 15 else 'validation' if i < 17 else 'test'}\n"
        for kind in ("cat", "ant")
        for i in range(20)
    )
    (zoo / "zoo.csv").write_text(table)
    loaded = data.load(zoo / "zoo.csv")
    assert [len(s) for s in loaded.splits.values()] == [30, 4, 6]
    assert set(loaded.test.ids) == {f"{k}/{i}.png" for k in ("cat", "ant") for i in (17, 18, 19)}


def test_a_csv_of_targets_is_regression(home, zoo):
    (zoo / "y.csv").write_text("path,target\n" + "".join(f"cat/{i}.png,{i / 2}\n" for i in range(20)))
    loaded = data.load(zoo / "y.csv")
    assert loaded.task == "regression"
    assert loaded.class_names is None
    assert {float(v) for s in loaded.splits.values() for v in s.labels} == {i / 2 for i in range(20)}


def test_own_sound(home, tmp_path, fabricate):
    for i in range(10):
        path = tmp_path / "sound" / "ab"[i % 2] / f"{i}.wav"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(fabricate.wav(np.full(1000, i)))
    assert data.load(tmp_path / "sound").shape == (2, 257, 376)
    picture(tmp_path / "sound" / "a" / "x.png", 0)
    with pytest.raises(DataError, match="mixes images and sound"):
        data.load(tmp_path / "sound")


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "needs a first line"),
        (b"a,b\n1,2\n", "needs a first line"),
        (b"path,label,target\nx.png,1,2\n", "needs a first line"),
        (b"path,label\n", "at least one row"),
        (b"path,label\nx.png\n", "2 fields in each"),
        (b"path,label\n../x.png,1\n", "not an image or .wav beside or below"),
        (b"path,label\n/etc/x.png,1\n", "not an image or .wav beside or below"),
        (b"path,label\nx.exe,1\n", "not an image or .wav beside or below"),
        (b"path,label\nnowhere.png,1\n", "cannot read .*nowhere.png"),
        (b"path,label,split\ncat/1.png,1,exam\n", "the split 'exam'"),
        (b"path,target\ncat/1.png,tall\n", "not a number"),
        (b"path,target\ncat/1.png,nan\n", "not finite"),
        (b"path,label\ncat/1.png,1\ncat/1.png,2\n", "'cat/1.png' occurs twice"),
        (b"\xff\xfe", "not a CSV file in UTF-8"),
        (b'path,label\n"x,1\n', "not a CSV file in UTF-8"),
    ],
)
def test_a_wrong_csv_is_one_sentence(content, match, home, zoo):
    (zoo / "zoo.csv").write_bytes(content)
    with pytest.raises(DataError, match=match) as caught:
        data.load(zoo / "zoo.csv")
    assert "\n" not in str(caught.value)


def test_an_npz_of_images(home, tmp_path):
    images = np.random.RandomState(0).randint(0, 256, (40, 6, 5)).astype(np.uint8)
    np.savez(tmp_path / "a.npz", x=images, y=np.arange(40) % 4)
    loaded = data.load(tmp_path / "a.npz")
    assert loaded.shape == (1, 6, 5)
    assert loaded.class_names == ("0", "1", "2", "3")
    row = int(loaded.test.ids[0].removeprefix("row-"))
    expected = torch.from_numpy(images[row : row + 1] / 255).float()
    assert torch.allclose(loaded.test[0].input + loaded.train.input.mean, expected)
    np.savez(tmp_path / "c.npz", x=images.reshape(40, 5, 2, 3), y=np.arange(40) % 4)
    assert data.load(tmp_path / "c.npz").shape == (3, 5, 2)


def test_an_npz_of_numbers_with_parts(home, tmp_path):
    arrays = {f"{k}_{p}": np.ones((n, 3) if k == "x" else (n,)) for p, n in (("train", 20), ("test", 4)) for k in "xy"}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    loaded = data.load(tmp_path / "a.npz")
    assert [len(s) for s in loaded.splits.values()] == [17, 3, 4]
    assert loaded.task == "regression"
    assert loaded.train[0].label == 1


class Evil:
    def __reduce__(self):
        return os.system, ("false",)


@pytest.mark.parametrize(
    ("arrays", "match"),
    [
        ({"a": np.ones(3)}, "needs arrays x and y"),
        ({"x": np.ones((3, 2)), "y": np.ones(2)}, "do not fit"),
        ({"x": np.ones(3), "y": np.ones(3)}, "do not fit"),
        ({"x": np.ones((3, 2)), "y": np.array(["a", "b", "c"])}, "numbers are needed"),
        ({"x": np.ones((3, 2)), "y": np.array([-1, 0, 1])}, "has the class -1: classes are numbered"),
        ({"x": np.ones((3, 2)), "y": np.array([1, 0, 10**12])}, "has the class 1000000000000"),
        ({"x": np.array([Evil()] * 3), "y": np.ones(3)}, "it is refused|damaged"),
    ],
)
def test_a_wrong_npz_is_one_sentence(arrays, match, home, tmp_path):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=match):
        data.load(tmp_path / "a.npz")


def test_an_npz_that_promises_too_much_is_refused(home, tmp_path):
    import zipfile

    out = io.BytesIO()
    np.lib.format.write_array_header_1_0(out, {"descr": "<f8", "fortran_order": False, "shape": (1 << 40,)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("x.npy", out.getvalue() + b"12345678")
    with pytest.raises(DataError, match=r"more than 17,179,869,184 bytes: .*--limits array="):
        data.load(tmp_path / "a.npz")


def test_three_images_are_a_data_set_without_validation(home, tmp_path):
    for i in range(3):
        picture(tmp_path / "few" / "a" / f"{i}.png", i)
    loaded = data.load(tmp_path / "few")
    assert [len(s) for s in loaded.splits.values()] == [2, 0, 1]
    assert list(loaded.validation.batches(4).epoch()) == []


def test_names_that_are_not_unicode_are_refused(home, tmp_path):
    picture(tmp_path / "odd" / "a" / "1.png", 0)
    name = os.fsencode(tmp_path / "odd" / "a") + b"/\xff.png"
    shutil.copy(tmp_path / "odd" / "a" / "1.png", os.fsdecode(name))
    with pytest.raises(DataError, match="not valid Unicode"):
        data.load(tmp_path / "odd")


def test_what_is_no_data_says_what_would_be(home, tmp_path):
    (tmp_path / "x.txt").write_text("hello")
    with pytest.raises(DataError, match="is not a folder of class folders"):
        data.load(tmp_path / "x.txt")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="lists no images"):
        data.load(tmp_path / "empty")
    with pytest.raises(DataError, match=r"cannot read|is not a folder"):
        data.load(tmp_path / "nowhere.npz")
