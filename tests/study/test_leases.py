"""Leases: exclusive, alive while their holder is, and never mistaken for one another."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

from apical.study.leases import Heartbeat, Leases, Limits, started


@pytest.fixture
def leases(tmp_path):
    return Leases(tmp_path, Limits(beat=5.0, stale=20.0))


def age(lease, seconds):
    """As if nobody had touched the lease for so long."""
    now = lease.path.stat().st_mtime
    os.utime(lease.path, (now - seconds, now - seconds))


def pretend(lease, **changes):
    """As if another process had made the lease."""
    when = lease.path.stat().st_mtime
    lease.path.write_text(json.dumps(json.loads(lease.path.read_text()) | changes))
    os.utime(lease.path, (when, when))


def test_a_key_is_held_by_one(leases):
    lease = leases.acquire("k")
    assert lease.held()
    assert leases.acquire("k") is None
    assert leases.acquire("other") is not None
    assert set(leases.running(["k", "unclaimed"])) == {"k"}


def test_a_key_that_is_given_back_is_free_at_once(leases):
    first = leases.acquire("k")
    first.release()
    second = leases.acquire("k")
    assert second.number == first.number + 1
    assert (first.held(), second.held()) == (False, True)
    first.release()
    assert second.held(), "somebody gave back what was not his"
    assert leases.acquire("k") is None


def test_a_claim_is_stale_by_the_clock_of_the_file_server(leases, monkeypatch):
    lease = leases.acquire("k")
    pretend(lease, machine="another")
    age(lease, 19)
    assert leases.acquire("k") is None
    age(lease, 2)
    monkeypatch.setattr("time.time", lambda: 0.0)  # whatever this machine thinks that the time is
    assert leases.acquire("k") is not None


@pytest.mark.parametrize("jump", [-3600, 3600])
def test_after_a_jump_of_the_clock_a_living_holder_keeps_its_claim_and_a_dead_one_does_not(leases, jump):
    living, dead = leases.acquire("living"), leases.acquire("dead")
    for lease in (living, dead):
        pretend(lease, machine="another")
        age(lease, jump)
    assert living.beat()
    assert leases.acquire("living") is None
    assert leases.acquire("dead") is not None
    assert not dead.beat()


def test_the_claim_of_a_dead_process_of_this_machine_is_free_at_once(leases):
    lease = leases.acquire("k")
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    pretend(lease, pid=process.pid)
    assert leases.acquire("k") is not None


def test_a_process_that_got_a_dead_ones_number_does_not_keep_its_claim(leases):
    lease = leases.acquire("k")
    pretend(lease, started="long ago")
    assert leases.acquire("k") is not None


def test_a_zombie_is_dead():
    process = subprocess.Popen([sys.executable, "-c", ""])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert started(process.pid) is None
    process.wait()
    assert started(os.getpid()) is not None


def test_two_that_saw_the_same_dead_claim_cannot_both_take_it(leases, monkeypatch):
    first = leases.acquire("k")
    age(first, 100)
    other = Leases(leases.folder, leases.limits)
    monkeypatch.setattr(other, "_last", lambda key: 1)  # it looked a moment ago, and slept
    taken = leases.acquire("k")
    age(taken, 100)  # even where the one who was faster is dead by now
    assert other.acquire("k") is None
    assert leases.acquire("k").number == 3


def test_a_beat_keeps_a_claim_alive_and_notices_its_loss(leases):
    lease = leases.acquire("k")
    pretend(lease, machine="another")
    age(lease, 100)
    with Heartbeat([lease], 1000.0) as heartbeat:
        heartbeat.once()
        assert leases.acquire("k") is None
        age(lease, 100)
        taken = leases.acquire("k")
        heartbeat.once()
        assert heartbeat.lost == {"k"}
        assert taken.held()


def test_a_heart_stops_with_its_block(leases):
    lease = leases.acquire("k")
    with Heartbeat([lease], 0.001) as heartbeat:
        pass
    age(lease, 100)
    assert not heartbeat._thread.is_alive()
    assert leases.now() - lease.path.stat().st_mtime > 99


@pytest.mark.parametrize("content", [b"", b"\x00\xff", b"[]", b'{"pid": "x"}', b'{"pid": 1e400}'])
def test_a_damaged_claim_counts_by_its_age_alone(leases, content):
    lease = leases.acquire("k")
    lease.path.write_bytes(content)
    assert leases.acquire("k") is None
    age(lease, 100)
    assert leases.acquire("k") is not None


def test_strange_files_among_the_claims_are_left_alone(leases):
    for name in ("x", "a.json", "k.one.json", ".k.7.json", "k.2.json.tmp", "k.\u0664.json", ".1.json"):
        (leases.folder / name).touch()
    leases.acquire("k")
    assert leases.numbers()["k"] == 1


def test_without_hard_links_creation_is_exclusive_too(leases, monkeypatch):
    def refuse(*_):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    assert leases.acquire("k") is not None
    assert leases.acquire("k") is None


def test_a_lost_answer_of_the_file_server_is_found_out(leases, monkeypatch):
    real = os.link

    def link(source, target):
        real(source, target)
        raise FileExistsError(17, "File exists")

    monkeypatch.setattr(os, "link", link)
    assert leases.acquire("k") is not None


EIGHT = """
    import multiprocessing, sys
    from pathlib import Path
    from apical.study.directory import Header, Store

    def rounds(barrier, root, won):
        for k in range(100):
            barrier.wait()
            store = Store.create(root / str(k), Header({"name": "s"}, 1))
            assert store.header.study == {"name": "s"} and store.header.created
            lease = store.leases.acquire("key")
            with won.get_lock():
                won[k] += lease is not None
            store.record_command()
        barrier.wait()  # whoever leaves lets go of what he has

    if __name__ == "__main__":
        context = multiprocessing.get_context("fork")
        barrier, won = context.Barrier(8), context.Array("i", 100)
        args = (barrier, Path(sys.argv[1]), won)
        processes = [context.Process(target=rounds, args=args) for _ in range(8)]
        [p.start() for p in processes]
        [p.join() for p in processes]
        from apical.study.directory import Store
        logged = sum(len(Store.open(Path(sys.argv[1]) / str(k)).commands()) for k in range(100))
        print([p.exitcode for p in processes], set(won), logged, "torch" in sys.modules)
"""


def test_eight_processes_open_a_new_store_at_once_a_hundred_times(tmp_path):
    run = [sys.executable, "-c", textwrap.dedent(EIGHT), str(tmp_path)]
    found = subprocess.run(run, capture_output=True, text=True, check=True)
    assert found.stderr == ""
    assert found.stdout.strip() == f"{[0] * 8} {{1}} 800 False"
