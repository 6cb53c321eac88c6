"""A study directory that an earlier version left behind: it opens, goes on, and says what that version said.

Commit 9ac2280 wrote fixtures/earlier/earlier.tar.xz; `make.py` there is the script, `study.toml` the study. It has rows
of MLP-1 and LeNet, stacked and alone, and of a user's network. 15 trials are finished, 10 of them tested; two stacks
and a single trial were interrupted, one of the stacks by kill -9; one trial failed; the others were not begun.
`expected/left` is what that version said of the directory, `expected/ended` what it said after it ran it to its end.

What is stored must be read exactly as it was. What is trained now has the same bits on the same CPU and torch, and
agrees up to rounding elsewhere. Stacked LeNets have other kernels since: theirs agrees up to rounding everywhere. Only
public names and the command line are used here.
"""

import csv
import json
import re
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apical import cli, study, train, trust

HERE = Path(__file__).parent / "fixtures" / "earlier"
LEFT, ENDED = HERE / "expected" / "left", HERE / "expected" / "ended"
STACKS = (("mlp/pynrelu", "mlp/pynada-learned"), 1), (("lenet/relu", "lenet/ada-fixed"), 0)
ALONE = ("mlp-clipped/relu", 1), ("own/relu", 0)
"""The interrupted trials, by row and seed, and the one that failed."""
CLOSE = 1e-5
"""Relative: what rounding may do to a number in three epochs; 2e-7 was seen, between AVX-512 and AVX2."""
CHECKSUMS = ("weights", "outputs")
"""Among the numbers of a trial; rounding changes them."""
NUMBER = re.compile(r"-?\d+\.?\d*(?:e[-+]?\d+)?")
REWRITTEN = "lenet"
"""The part whose rows, all stacked, other kernels train now."""


@pytest.fixture(scope="module", autouse=True)
def _surroundings(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Beside the user's network, and with a home where no index lies."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(HERE))
        patch.setenv("APICAL_HOME", str(tmp_path_factory.mktemp("home")))
        trust.grant("earlier_network")
        yield
    for name in ("earlier_network", "recording"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory as it was left: tests only read it."""
    return unpacked(tmp_path_factory.mktemp("left"))


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory after what failed was retried and the study was run to its end, by one worker."""
    directory = unpacked(tmp_path_factory.mktemp("ended"))
    assert cli.run(["study", "retry", str(directory)]) == 0
    assert cli.run(["study", "run", str(directory), "--workers", "1"]) == 0
    return directory


@pytest.fixture(scope="module")
def same_machine() -> bool:
    """True where results have the bits that were recorded."""
    import recording

    return bool(recording.machine() == json.loads((ENDED / "machine.json").read_text()))


def unpacked(folder: Path) -> Path:
    with tarfile.open(HERE / "earlier.tar.xz") as archive:
        archive.extractall(folder, filter="fully_trusted")  # times stay: they say that claims are dead
    return folder / "earlier"


def table(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def holds(
    now: list[dict[str, str]], recorded: list[dict[str, str]], *, but: tuple[str, ...] = (), rounded: bool = False
) -> None:
    """Every recorded column, but for some, has the recorded texts; columns may have been added.

    `rounded`: numbers within the texts agree up to rounding.
    """
    names = [name for name in recorded[0] if name not in but] if recorded else []
    ours, theirs = ([{name: row[name] for name in names} for row in rows] for rows in (now, recorded))
    if not rounded:
        assert ours == theirs
        return
    assert len(ours) == len(theirs)
    for row, before in zip(ours, theirs, strict=True):
        for name in names:
            texts = row[name], before[name]
            words, numbers = ([f(text) for text in texts] for f in (NUMBER.split, NUMBER.findall))
            assert words[0] == words[1], (name, *texts)
            assert [*map(float, numbers[0])] == pytest.approx([*map(float, numbers[1])], rel=CLOSE), (name, *texts)


DRAWN = ("best_low", "best_high")
"""Ends of bootstrap intervals: they are drawn otherwise since swapping the two models mirrors them."""
PAIR = ("a", "b", "metric", "trial_a", "trial_b")
"""Columns of a pair; what else is recorded of it is about the best trials, and is called best_ since."""
GONE = ("p_baseline", "p_baseline_holm", "p_rival", "p_rival_holm", "best_p_holm")
"""Tables have a decision over seeds instead of the p-values of best trials; those are among the pairs."""


def tables_hold(
    now: list[dict[str, str]], recorded: list[dict[str, str]], *, but: tuple[str, ...] = (), rounded: bool = False
) -> None:
    """As `holds`; drawn numbers move by at most two of the 60 test samples."""
    if recorded and "only_a" in recorded[0]:
        before, now = {(row["a"], row["b"]): row for row in recorded}, [row for row in now if row["best_n"]]
        assert {frozenset(pair) for pair in before} == {frozenset((row["a"], row["b"])) for row in now}
        recorded = [before[row["a"], row["b"]] for row in now]  # a pair stands there once since, in one direction
        recorded = [{n if n in PAIR else f"best_{n}": text for n, text in row.items()} for row in recorded]
    holds(now, recorded, but=(*but, *DRAWN, *GONE), rounded=rounded)
    for name in DRAWN:
        ends = [[float(row[name]) for row in rows if row.get(name)] for rows in (now, recorded)]
        assert ends[0] == pytest.approx(ends[1], abs=2 / 60 + 1e-9)


def trained_otherwise() -> set[str]:
    """The digests of trials that were not finished when the directory was left, and that other kernels train now."""
    finished = {row["digest"] for row in table(LEFT / "export.csv") if row["state"] == "done"}
    own = [row for row in table(ENDED / "export.csv") if row["part"] == REWRITTEN]
    assert len(own) == 8
    assert all(row["stacking"].startswith("stacked") for row in own)
    return {row["digest"] for row in own} - finished


def split(rows: list[dict[str, str]], name: str, values: set[str]) -> list[list[dict[str, str]]]:
    """The rows whose `name` is none of `values`, and those whose is."""
    return [[row for row in rows if (row[name] in values) == inside] for inside in (False, True)]


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# --- as it was left --------------------------------------------------------------------------------------------------


def test_the_study_and_all_digests_are_read_as_they_were_written(left):
    assert study.frozen(left) == study.load(str(HERE / "study.toml"))
    written = [*left.glob("trials/*/spec.json"), *left.glob("attempts/*/spec.json")]
    assert len(written) == 15 + 6
    for path in written:
        spec = train.TrialSpec.from_json(path.read_text())
        assert spec.digest == path.parent.name.partition(".")[0]
        assert spec.to_json() == path.read_text()


def test_finished_trials_are_read_as_they_were_written(left):
    for folder in left.glob("trials/*"):
        values = json.loads((folder / "result.json").read_text())
        result = train.TrialResult.load(folder)
        for name in ("state", "best_epoch", "validation", "history", "timings", "environment", "data", "input"):
            assert getattr(result, name) == values[name]
        assert result.spec.as_dict() == values["spec"]
        assert result.execution.as_dict() == values["execution"]


def test_status_knows_what_is_finished_failed_and_left(left, capsys):
    now = study.status(left)
    assert {k: n for k, n in now.states.items() if n} == json.loads((LEFT / "states.json").read_text())
    assert (now.trials, now.tested, now.tests, now.running) == (30, 10, 28, ())
    assert cli.run(["study", "status", str(left)]) == 0
    assert "the network broke off" in capsys.readouterr().out


def test_the_export_has_the_same_trials_with_the_same_numbers(left, tmp_path):
    assert cli.run(["study", "export", str(left), "-o", str(tmp_path / "export.csv")]) == 0
    holds(table(tmp_path / "export.csv"), table(LEFT / "export.csv"))


def test_the_tables_of_the_report_have_the_same_numbers(left, tmp_path):
    assert cli.run(["report", str(left), "-o", str(tmp_path)]) == 0
    for path in (LEFT / "tables").iterdir():
        begun = [row for row in table(path) if row.get("state") != "planned"]  # tables leave out the others since
        tables_hold(table(tmp_path / "tables" / path.name), begun)


# --- run to its end --------------------------------------------------------------------------------------------------


def test_it_is_run_to_its_end_and_nothing_finished_is_touched(left, ended):
    results = study.read(ended)
    assert results.finished
    assert {k: n for k, n in results.states.items() if n} == json.loads((ENDED / "states.json").read_text())
    assert not contents(ended / "attempts")
    assert not contents(ended / "failed")
    assert contents(left / "trials").items() <= contents(ended / "trials").items()


def test_the_ended_study_exports_the_same_trials(ended, same_machine, tmp_path):
    assert cli.run(["study", "export", str(ended), "-o", str(tmp_path / "export.csv")]) == 0
    now, recorded = table(tmp_path / "export.csv"), table(ENDED / "export.csv")
    tested = {row["digest"] for row in table(LEFT / "export.csv") if row["test accuracy"]}
    assert len(tested) == 10
    holds([row for row in now if row["digest"] in tested], [row for row in recorded if row["digest"] in tested])
    ours = ("seconds", "apical", "torch", "python")
    same, other = zip(*(split(rows, "digest", trained_otherwise()) for rows in (now, recorded)), strict=True)
    holds(*same, but=ours, rounded=not same_machine)
    holds(*other, but=ours, rounded=True)


def test_every_number_of_the_ended_study_is_the_same(ended, same_machine):
    import recording

    now, recorded = recording.numbers(ended), json.loads((ENDED / "numbers.json").read_text())
    assert now.keys() == recorded.keys()
    otherwise = trained_otherwise()
    for digest, before in recorded.items():
        if same_machine and digest not in otherwise:
            assert includes(now[digest], before), digest
        else:
            agrees(now[digest], before, digest)


def test_the_tables_of_the_ended_study_are_the_same(ended, same_machine, tmp_path):
    assert cli.run(["report", str(ended), "-o", str(tmp_path)]) == 0
    for path in (ENDED / "tables").iterdir():
        now, recorded = table(tmp_path / "tables" / path.name), table(path)
        tables_hold(now, recorded, but=("seconds",), rounded=not same_machine or REWRITTEN in path.read_text())


def test_what_was_interrupted_ends_as_if_it_had_never_been(left, ended, same_machine, tmp_path):
    """The first epochs are those of the checkpoints, bit for bit; the whole is that of an undisturbed run."""
    specs = {(row["row"], int(row["seed"])): row["digest"] for row in table(ENDED / "export.csv")}
    how = train.Execution(threads=1)
    recorded = json.loads((ENDED / "numbers.json").read_text())
    otherwise = trained_otherwise()
    groups = [[specs[row, seed] for row in rows] for rows, seed in STACKS] + [[specs[key]] for key in ALONE]
    assert {p.name.partition(".")[0] for p in left.glob("attempts/*")} == {d for group in groups for d in group}
    for group in groups:
        resumed = [train.TrialResult.load(ended / "trials" / digest) for digest in group]
        places = [tmp_path / digest for digest in group]
        alone = len(group) == 1
        fresh = [train.run(resumed[0].spec, how, places[0])] if alone else \
            train.run_many([r.spec for r in resumed], how, places)  # fmt: skip
        for one, other in zip(resumed, fresh, strict=True):
            assert includes(one.history[0], recorded[one.spec.digest]["history"][0])
            assert one.execution == other.execution
            if same_machine and one.spec.digest not in otherwise:
                assert one.history == other.history
                assert one.validation == other.validation
                assert weights(one) == weights(other)
            else:
                agrees(one.history, other.history, one.spec.digest)
                agrees(one.validation, other.validation, one.spec.digest)


def weights(result: train.TrialResult) -> str:
    import recording

    return str(recording.weights(result.directory))


def includes(now: Any, recorded: Any) -> bool:
    """True where all that was recorded is there and equal; tables may have more."""
    if isinstance(recorded, dict):
        return all(name in now and includes(now[name], value) for name, value in recorded.items())
    if isinstance(recorded, list):
        return len(now) == len(recorded) and all(map(includes, now, recorded))
    return bool(now == recorded)


def agrees(now: Any, recorded: Any, place: str) -> None:
    """All that was recorded is there, and its numbers agree up to rounding."""
    if isinstance(recorded, dict):
        for name in recorded.keys() - set(CHECKSUMS):
            agrees(now[name], recorded[name], f"{place} {name}")
    elif isinstance(recorded, list):
        assert len(now) == len(recorded), place
        for number, (one, other) in enumerate(zip(now, recorded, strict=True)):
            agrees(one, other, f"{place} {number}")
    elif isinstance(recorded, float):
        assert now == pytest.approx(recorded, rel=CLOSE, abs=1e-7), place
    else:
        assert now == recorded, place
