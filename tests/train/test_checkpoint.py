import json
import pickle
import struct
from contextlib import suppress

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from apical.errors import CheckpointError
from apical.train.checkpoint import FORMAT, copy_into, load, read_facts, save


def stored(path, tensors=None, **facts):
    save(
        path,
        tensors or {"model:a": torch.arange(6.0).view(2, 3), "random:cpu": torch.zeros(3, dtype=torch.uint8)},
        facts,
    )
    return path


def raw(path, header, body=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)
    return path


META = {"__metadata__": {"format": FORMAT, "facts": "{}"}}


def test_tensors_of_every_kind_and_facts_come_back_bit_equal(tmp_path):
    shared = torch.randn(4, 4)
    tensors = {
        "m:half": torch.randn(3).half(), "m:brain": torch.randn(3).bfloat16(), "m:double": torch.randn(2).double(),
        "m:step": torch.tensor(7.0), "m:empty": torch.empty(0, 3), "m:bytes": torch.arange(5, dtype=torch.uint8),
        "m:a": shared, "m:view": shared[1:3].t(), "m:same": shared,
    }  # fmt: skip
    facts = {"loss": 0.1 + 0.2, "history": [{"x": 1e-300, "none": None}], "text": "ș \u2028"}
    found = load(stored(tmp_path / "c", tensors, **facts))
    assert found.facts == facts
    assert all(
        torch.equal(found.tensors[name], t) and found.tensors[name].dtype == t.dtype for name, t in tensors.items()
    )
    assert set(found.part("m")) == {name[2:] for name in tensors}


def overlapping():
    entry = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    return META | {"a": entry, "b": entry | {"data_offsets": [4, 12]}}


HOSTILE = {
    "a pickle": lambda p: p.write_bytes(pickle.dumps({"a": [1, 2, 3]}, protocol=4)),
    "empty": lambda p: p.write_bytes(b""),
    "eight bytes": lambda p: p.write_bytes(b"\x00" * 8),
    "a header longer than the file": lambda p: p.write_bytes(struct.pack("<Q", 2**40) + b"{}"),
    "a header of 2^64 bytes": lambda p: p.write_bytes(b"\xff" * 16),
    "a header that is no JSON": lambda p: raw(p, b"{" * 50),
    "a header that nests too deep": lambda p: raw(p, b"[" * 200_000),
    "a header that is a list": lambda p: raw(p, []),
    "no metadata": lambda p: raw(p, {}),
    "another format": lambda p: raw(p, {"__metadata__": {"format": "pt"}}),
    "facts that are a list": lambda p: raw(p, {"__metadata__": {"format": FORMAT, "facts": "[]"}}),
    "facts that are no JSON": lambda p: raw(p, {"__metadata__": {"format": FORMAT, "facts": "{"}}),
    "overlapping offsets": lambda p: raw(p, overlapping(), b"\0" * 12),
    "offsets past the end": lambda p: raw(
        p, META | {"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}, b"\0" * 8
    ),
    "a shape larger than its bytes": lambda p: raw(
        p, META | {"a": {"dtype": "F32", "shape": [2**62, 2**62], "data_offsets": [0, 8]}}, b"\0" * 8
    ),
    "an unknown type": lambda p: raw(
        p, META | {"a": {"dtype": "OBJ", "shape": [2], "data_offsets": [0, 8]}}, b"\0" * 8
    ),
    "bytes left over": lambda p: raw(p, META, b"\0" * 8),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_refused(tmp_path, kind):
    path = tmp_path / "last.safetensors"
    HOSTILE[kind](path)
    with pytest.raises(CheckpointError, match=r"last\.safetensors"):
        load(path)


def test_every_truncation_is_refused(tmp_path):
    whole = stored(tmp_path / "c", epoch=3).read_bytes()
    for length in range(0, len(whole), 7):
        (tmp_path / "cut").write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            load(tmp_path / "cut")


@settings(max_examples=200)
@given(st.data())
def test_damaged_bytes_never_give_more_than_a_checkpoint_error(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("fuzz")
    whole = bytearray(stored(folder / "c", epoch=3).read_bytes())
    for place in data.draw(st.lists(st.integers(0, len(whole) - 1), min_size=1, max_size=6)):
        whole[place] = data.draw(st.integers(0, 255))
    (folder / "c").write_bytes(whole)
    with suppress(CheckpointError):
        load(folder / "c")


def test_a_folder_or_a_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(CheckpointError, match="cannot read"):
        read_facts(tmp_path / "none")
    with pytest.raises(CheckpointError):
        load(tmp_path)


def test_facts_that_json_cannot_say_are_not_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        stored(tmp_path / "c", loss=float("nan"))
    assert list(tmp_path.iterdir()) == []


def test_tensors_must_fit_exactly():
    a = {"w": torch.zeros(2, 3)}
    for wrong in (
        {},
        {"w": torch.zeros(3, 2)},
        {"w": torch.zeros(2, 3).double()},
        {"w": torch.zeros(2, 3), "v": a["w"]},
    ):
        with pytest.raises(CheckpointError, match="does not fit"):
            copy_into(a, wrong, what="it")
    copy_into(a, {"w": torch.ones(2, 3)}, what="it")
    assert a["w"].sum() == 6


def test_nothing_in_the_package_unpickles_what_may_come_from_strangers():
    import ast
    from pathlib import Path

    import apical

    engines = Path(apical.__file__).parent / "study" / "engines"  # they talk to processes that they started, in memory
    for path in Path(apical.__file__).parent.rglob("*.py"):
        allowed = {"pickle"} if path.parent == engines else set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] + [getattr(node, "module", "") or ""]
                roots = {name.split(".")[0] for name in names}
                assert roots & {"pickle", "dill", "joblib", "shelve", "cloudpickle"} <= allowed, path
            if isinstance(node, ast.Call):
                assert ast.unparse(node.func) not in ("torch.load", "pickle.load", "pickle.Unpickler"), path
                assert not any(k.arg == "allow_pickle" and ast.unparse(k.value) != "False" for k in node.keywords), path
