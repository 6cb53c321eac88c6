"""Every input that once broke something, and changed copies of all that are kept: a value, or one of our errors."""

import importlib.util
import random
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("apical_fuzz_targets", Path(__file__).with_name("targets.py"))
assert _spec is not None
assert _spec.loader is not None
targets = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = targets
_spec.loader.exec_module(targets)

CHANGED = 300
"""Changed inputs for each target: a few seconds for the slowest."""
PIECES = [b"\xff\xff\xff\xff", b"\0\0\0\0", b"\x7f", b"\0", b"../", b"\n", b"1e999", b"NaN", b"null", b"[", b"{", b'"',
          b"-1", b"99999999999999999999", b"True", b"=", b"(", b")", b","]  # fmt: skip


@pytest.fixture(autouse=True)
def limits(monkeypatch, tmp_path):
    monkeypatch.setenv("APICAL_LIMITS", targets.LIMITS)
    monkeypatch.setenv("APICAL_HOME", str(tmp_path))


def kept(name):
    return [path.read_bytes() for path in sorted((targets.CORPUS / name).iterdir())]


@pytest.mark.parametrize("name", targets.TARGETS)
def test_the_corpus_gives_values_or_errors_of_ours(name):
    assert kept(name)
    for data in kept(name):
        targets.attempt(name, data)


@pytest.mark.slow
@pytest.mark.parametrize("name", targets.TARGETS)
def test_changed_inputs_give_values_or_errors_of_ours(name):
    draws, inputs = random.Random(name), kept(name)
    for _ in range(CHANGED // 10 if name == "index" else CHANGED):  # SQLite waits for the disk
        data = bytearray(draws.choice(inputs))
        for _ in range(draws.randint(1, 4)):
            place = draws.randrange(len(data) + 1)
            end = place + draws.choice((0, 1, 2, 4, 8, 64))
            other = draws.choice(inputs)
            cut = draws.randrange(len(other) + 1)
            data[place:end] = draws.choice((b"", draws.choice(PIECES), draws.randbytes(4), other[cut : cut + 32]))
        targets.attempt(name, bytes(data))
