"""Files that appear whole or not at all, on file systems that do what they should and on others."""

import errno
import os
from threading import Thread

import pytest

from apical import files
from apical.errors import CheckpointError


def fails(number):
    def call(*_args, **_how):
        raise OSError(number, os.strerror(number))

    return call


@pytest.mark.parametrize("durable", [True, False])
def test_a_file_is_written_over_the_old_one_and_nothing_else_is_left(tmp_path, durable):
    for content in (b"one", b"", memoryview(b"two" * 10**6)):
        files.write(tmp_path / "a", content, durable=durable)
        assert (tmp_path / "a").read_bytes() == bytes(content)
    assert files.names(tmp_path) == ["a"]


def test_an_exclusive_file_is_made_once(tmp_path):
    files.write(tmp_path / "a", b"first", exclusive=True)
    with pytest.raises(FileExistsError):
        files.write(tmp_path / "a", b"second", exclusive=True)
    assert not files.create(tmp_path / "a", {})
    assert (tmp_path / "a").read_bytes() == b"first"
    assert files.names(tmp_path) == ["a"]


def test_of_many_threads_one_makes_it(tmp_path):
    made = []
    threads = [Thread(target=lambda k=k: made.append(files.create(tmp_path / "a", {"by": k}))) for k in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [False] * 15 + [True]
    assert files.read_json(tmp_path / "a") is not None


def test_an_answer_lost_on_the_network_is_no_failure(tmp_path, monkeypatch):
    link = os.link

    def answered_late(source, target):
        link(source, target)
        raise FileExistsError

    monkeypatch.setattr(os, "link", answered_late)
    assert files.create(tmp_path / "a", {"x": 1})


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP])
def test_a_file_system_without_links(tmp_path, monkeypatch, number):
    monkeypatch.setattr(os, "link", fails(number))
    assert files.create(tmp_path / "a", {"x": 1})
    assert not files.create(tmp_path / "a", {"x": 2})
    assert files.read_json(tmp_path / "a") == {"x": 1}


@pytest.mark.parametrize("exclusive", [True, False])
def test_a_full_disk_leaves_the_old_file_and_says_so(tmp_path, monkeypatch, exclusive):
    target = tmp_path / "a"
    if not exclusive:
        target.write_bytes(b"old")
    monkeypatch.setattr(os, "fsync", fails(errno.ENOSPC))
    with pytest.raises(
        CheckpointError, match=r"cannot write .*No space left on device; what was there before"
    ) as caught:
        files.save(target, b"new", exclusive=exclusive)
    assert files.fatal(caught.value)
    assert files.names(tmp_path) == ([] if exclusive else ["a"])
    assert exclusive or target.read_bytes() == b"old"


def test_sweeping_takes_what_a_killed_process_left_and_nothing_else(tmp_path):
    for name in (".a.0123.tmp", "a", ".hidden"):
        (tmp_path / name).write_text("x")
    files.sweep(tmp_path)
    assert sorted(files.names(tmp_path)) == [".hidden", "a"]


@pytest.mark.parametrize("content", [b"", b"[1]", b"{", b"\xff", b"[" * 100_000, None])
def test_what_is_no_table_is_none(tmp_path, content):
    if content is not None:
        (tmp_path / "a").write_bytes(content)
    assert files.read_json(tmp_path / "a") is None
