"""The measuring itself: what is counted, not how long it takes."""

import pytest

from apical import bench
from apical.errors import InvalidArgumentError


def test_every_candidate_runs_in_every_round() -> None:
    calls: list[str] = []
    times = bench.interleaved({name: lambda name=name: calls.append(name) for name in "abc"}, rounds=4, seconds=0.0)
    assert {name: len(values) for name, values in times.items()} == {"a": 4, "b": 4, "c": 4}
    warm_up = 6  # once to warm, once to learn how often to repeat
    assert "".join(calls[warm_up:]) == "abcbcacababc"


def test_ratio_is_the_median_of_the_rounds() -> None:
    times = {"ours": [1.0, 2.0, 3.0, 4.0, 100.0], "theirs": [1.0] * 5}
    middle, low, high = bench.ratio(times, "ours", "theirs")
    assert (middle, low, high) == (3.0, 1.0, 100.0)
    many = {"ours": [float(i) for i in range(1, 101)], "theirs": [1.0] * 100}
    middle, low, high = bench.ratio(many, "ours", "theirs")
    assert (middle, low, high) == (50.5, 41.0, 60.0)


def test_progress_is_reported() -> None:
    seen = []
    bench.compare(
        "case", {"a": lambda: None}, reference="a", rounds=3, seconds=0.0, progress=lambda *what: seen.append(what)
    )
    assert seen == [("case", 1, 3), ("case", 2, 3), ("case", 3, 3)]


def test_tables() -> None:
    timing = bench.Timing("64x100", "ADA", "SiLU", 1234.5, 1.05, 1.0, 1.1, 15)
    line = bench.as_text([timing]).splitlines()[1]
    assert line.split() == ["64x100", "ADA", "1,234.5", "µs", "1.05", "1.00", "..", "1.10", "SiLU"]
    assert bench.as_csv([timing]).splitlines()[1] == "64x100,ADA,SiLU,1234.5,1.05,1,1.1,15"


def test_too_few_rounds_have_no_interval() -> None:
    few, enough = (bench.Timing("64x100", "ADA", "SiLU", 1234.5, 1.05, 1.0, 1.1, rounds) for rounds in (5, 6))
    assert bench.as_text([few]).splitlines()[1].split() == ["64x100", "ADA", "1,234.5", "µs", "1.05", "SiLU"]
    assert bench.as_csv([few]).splitlines()[1] == "64x100,ADA,SiLU,1234.5,1.05,,,5"
    assert "1.00 .. 1.10" in bench.as_text([enough])


def test_no_rounds_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="rounds is 0"):
        bench.interleaved({"a": lambda: None}, rounds=0)


def test_the_clock_is_read_when_the_device_has_done_its_work() -> None:
    calls: list[str] = []
    bench.interleaved(
        {"a": lambda: calls.append("work")}, rounds=1, seconds=0.0, synchronise=lambda: calls.append("wait")
    )
    assert calls == ["work", *["wait", "work", "wait"] * 2]


def test_share_of_the_bandwidth_of_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"ADA": [4.0, 5.0, 6.0], "SiLU": [2.5] * 3, "copy": [1.0] * 3}
    monkeypatch.setattr("apical.bench.measure.interleaved", lambda *_, **__: times)
    timings = bench.compare("case", dict.fromkeys(times, list), reference="SiLU", copy="copy", least=2.5)
    assert [t.share for t in timings] == [0.5, 1.0, 1.0]
    assert bench.as_text(timings).splitlines()[1].split()[-1] == "50%"
    assert bench.as_csv(timings).splitlines()[0].endswith("rounds,share")


def test_another_device_adds_the_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench.activations, "SHAPES", ((4, 3),))
    timings = bench.activations.activations(rounds=1, device="meta")
    assert {t.candidate for t in timings} == {*bench.activations.candidates(3), "copy"}
    assert all(t.share and t.share > 0 for t in timings)


def test_a_device_that_is_not_there_is_one_sentence() -> None:
    with pytest.raises(
        InvalidArgumentError, match="device is 'nowhere', but torch sees no such device here: use one of"
    ):
        bench.activations.activations(device="nowhere")
