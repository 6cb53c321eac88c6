"""The study directory: whole trials or none, one result for each, and one sentence where it cannot be used."""

import json
import os

import pytest

from apical import files
from apical.errors import StudyError
from apical.study.directory import ATTEMPT, CHECKPOINT, LOCK, RESULT, STUDY, Header, Store

DIGEST = "ab" * 32


@pytest.fixture
def store(tmp_path):
    return Store.create(tmp_path / "study", Header({"name": "s"}, 1))


def finish(attempt, text="{}"):
    (attempt / CHECKPOINT).write_text("checkpoint")
    (attempt / RESULT).write_text(text)


def test_a_finished_attempt_becomes_the_trial_by_one_rename_without_its_checkpoint(store):
    lease = store.leases.acquire(DIGEST)
    attempt = store.begin(lease)
    finish(attempt)
    assert store.finished() == {}
    assert store.publish(lease, attempt)
    assert list(store.finished()) == [DIGEST]
    assert sorted(p.name for p in store.trial(DIGEST).iterdir()) == [ATTEMPT, RESULT]
    assert list(store.attempts.iterdir()) == []


def test_who_takes_over_goes_on_with_the_checkpoint_and_who_lost_cannot_write_or_publish(store):
    first = store.leases.acquire(DIGEST)
    lost = store.begin(first)
    (lost / CHECKPOINT).write_text("epoch 7")
    (lost / LOCK).touch()
    os.utime(first.path, (0, 0))
    second = store.leases.acquire(DIGEST)
    attempt = store.begin(second)
    assert (attempt / CHECKPOINT).read_text() == "epoch 7"
    assert not (attempt / LOCK).exists()
    assert not lost.exists()
    assert not store.publish(first, lost)
    with pytest.raises(FileNotFoundError):
        (lost / RESULT).write_text("late")
    finish(attempt)
    assert store.publish(second, attempt)
    assert json.loads((store.trial(DIGEST) / ATTEMPT).read_text())["token"] == second.token


def test_who_published_between_claim_and_takeover_wins_and_the_other_finds_it_settled(store):
    first = store.leases.acquire(DIGEST)
    attempt = store.begin(first)
    finish(attempt, "first")
    assert first.held()
    real = first.path.parent / f"{DIGEST}.2.json"
    attempt.rename(store.trial(DIGEST))  # its own rename came just before
    files.create(real, {"token": "second"})
    assert store.settled(DIGEST)
    assert (store.trial(DIGEST) / RESULT).read_text() == "first"


def test_a_published_trial_is_never_replaced(store):
    for text in ("first", "second"):
        lease = store.leases.acquire(DIGEST)
        attempt = store.begin(lease)
        finish(attempt, text)
        published = store.publish(lease, attempt)
        lease.release()
    assert not published
    assert (store.trial(DIGEST) / RESULT).read_text() == "first"


def test_of_several_attempts_the_furthest_goes_on_and_the_others_go(store):
    for token, age in (("old", 100), ("new", 10)):
        folder = store.attempts / f"{DIGEST}.{token}"
        folder.mkdir()
        (folder / CHECKPOINT).write_text(token)
        os.utime(folder / CHECKPOINT, (10**9 - age, 10**9 - age))
    (store.attempts / f"{DIGEST}.empty").mkdir()
    attempt = store.begin(store.leases.acquire(DIGEST))
    assert (attempt / CHECKPOINT).read_text() == "new"
    assert list(store.attempts.iterdir()) == [attempt]


def test_a_failure_is_kept_with_its_reason_until_it_is_forgotten(store):
    store.fail(DIGEST, "no memory", "Traceback ...")
    assert store.failed() == {DIGEST}
    assert store.failure(DIGEST)["reason"] == "no memory"
    assert store.settled(DIGEST)
    store.forget_failure(DIGEST)
    assert store.failed() == set()


def test_whoever_comes_first_decides_the_header(tmp_path):
    Store.create(tmp_path, Header({"name": "first"}, 3))
    assert Store.create(tmp_path, Header({"name": "second"}, 1)).header.study == {"name": "first"}


def test_a_directory_of_a_newer_version_is_refused_with_the_command_that_helps(store):
    values = json.loads((store.directory / STUDY).read_text())
    (store.directory / STUDY).write_text(json.dumps(values | {"format": 2, "apical": "9.9"}))
    with pytest.raises(StudyError, match=r"apical 9\.9 in format 2.*pip install --upgrade apical"):
        Store.open(store.directory)


def test_a_folder_without_a_study_and_a_damaged_one_are_said(tmp_path, store):
    with pytest.raises(StudyError, match="is not a study directory"):
        Store.open(tmp_path / "nowhere")
    for text in ("", "[]", "{", '{"format": 1}', '{"format": 1, "study": {}, "tune_trials": 0}', "[" * 100_000):
        (store.directory / STUDY).write_text(text)
        with pytest.raises(StudyError, match="is damaged: move it away"):
            Store.open(store.directory)


def test_a_place_where_nothing_can_be_made_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(
        StudyError, match=r"cannot use the study directory .*: Not a directory; finished trials are safe"
    ):
        Store.create(tmp_path / "file" / "study", Header({}, 1))


def test_a_full_disk_leaves_no_half_file(tmp_path, monkeypatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StudyError, match=r"No space left on device.*free some space"):
        Store.create(tmp_path / "study", Header({}, 1))
    assert not [p for p in (tmp_path / "study").rglob("*") if p.is_file()]


def test_damaged_lines_of_the_log_are_left_out(store):
    store.record_command()
    with (store.directory / "commands.jsonl").open("ab") as file:
        file.write(b'\xff\xfe\n{"command": 3}\n[]\n{"command"\n')
    store.record_command()
    assert len(store.commands()) == 2
