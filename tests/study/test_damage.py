"""Whatever lies in a study directory: results, or one sentence; never a traceback."""

import random
import shutil
from contextlib import suppress

import pytest

from apical import study
from apical.cli import screen
from apical.errors import ApicalError
from apical.study.maintenance import gather
from apical.study.model import STATES

pytestmark = pytest.mark.usefixtures("here")

GARBAGE = (b"", b"{", b"null", b"[]", b"{}", b"\x00" * 64, b'{"format": 1}', b"[" * 50_000, b'{"a": NaN}', b"\xff\xfe")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished study, with a failure, a live claim and a dead attempt in it."""
    return tmp_path_factory.mktemp("damage") / "whole"


def damage(folder, draws):
    """Change one to three files in some way."""
    said = []
    for _ in range(draws.randint(1, 3)):
        files = sorted(p for p in folder.rglob("*") if p.is_file())
        path = draws.choice(files)
        kind = draws.choice(["cut", "flip", "garbage", "gone", "folder", "folder gone", "other's"])
        said.append(f"{kind} {path.relative_to(folder)}")
        data = bytearray(path.read_bytes())
        if kind == "cut":
            path.write_bytes(data[: draws.randrange(len(data) + 1)])
        elif kind == "flip" and data:
            for _ in range(draws.randint(1, 20)):
                data[draws.randrange(len(data))] ^= 1 << draws.randrange(8)
            path.write_bytes(data)
        elif kind == "garbage":
            path.write_bytes(draws.choice(GARBAGE))
        elif kind == "other's":
            path.write_bytes(draws.choice(files).read_bytes())
        elif kind == "folder gone" and path.parent != folder:
            shutil.rmtree(path.parent)
        else:
            path.unlink()
            if kind == "folder":
                path.mkdir()
    return said


def look_at(folder):
    """Everything that reads a study directory."""
    results = study.read(folder)
    assert set(results.states) <= {*STATES}
    gather(results)
    screen.print_results(results)
    screen.print_status(folder)
    for trial in {t.digest for row in results.rows for s in row.settings for t in s.trials}:
        screen.print_trial(folder, trial)
    for row in results.rows:
        for trial in row.trials:
            if trial.test is not None:
                trial.outputs()


def attempt(*calls):
    for call in calls:
        with suppress(ApicalError):
            call()


@pytest.mark.parametrize("seed", range(40))
def test_a_damaged_study_directory_is_read_or_refused_in_a_sentence(tiny, whole, tmp_path, seed, capsys):
    if not whole.exists():
        study.run(tiny, whole, engine="here")
        (whole / "failed" / f"{'ab' * 32}.json").write_text('{"reason": "x"}')
        (whole / "attempts" / f"{'cd' * 32}.token").mkdir()
    folder = tmp_path / "s"
    shutil.copytree(whole, folder)
    said = damage(folder, random.Random(seed))
    print(said)
    attempt(lambda: look_at(folder), lambda: study.status(folder), lambda: study.merge(tmp_path / "m", folder))
    attempt(lambda: study.retry(folder))


@pytest.mark.parametrize("name", ["result.json", "best.safetensors", "scores.json"])
@pytest.mark.parametrize("garbage", GARBAGE[:2])
def test_a_damaged_trial_is_repaired_by_retry_and_run(tiny, whole, tmp_path, numbers, name, garbage):
    if not whole.exists():
        study.run(tiny, whole, engine="here")
    folder = tmp_path / "s"
    shutil.copytree(whole, folder)
    shutil.rmtree(folder / "failed")
    (folder / "failed").mkdir()
    victim = sorted(p for p in folder.rglob(name) if (p.parent / "test.npz").exists())[0]
    victim.write_bytes(garbage)
    if name == "best.safetensors":  # noticed where it is needed
        for test in ("test.npz", "test.opened", "scores.json"):
            (victim.parent / test).unlink()
        shutil.rmtree(folder / "claims")
        (folder / "claims").mkdir()
        assert study.run(tiny, folder, engine="here").states["failed"] == 1
    study.retry(folder)
    study.run(tiny, folder, engine="here")
    assert numbers(folder) == numbers(whole)
