"""Where a study lies and who else is there: moved, read-only, strangely named, or shared by eight drivers."""

import os

import pytest

from apical import study
from apical.cli import run as command
from apical.errors import StudyError
from apical.study import driver

pytestmark = pytest.mark.usefixtures("here")


def test_a_study_directory_that_is_moved_while_it_runs_goes_on_where_it_is(tiny, tmp_path, numbers):
    study.run(tiny, tmp_path / "whole", engine="here")
    moved = []

    def move(now):
        if now.settled and not moved:
            moved.append((tmp_path / "s").rename(tmp_path / "elsewhere"))

    with pytest.raises(StudyError, match=r"s is not a study directory: it has no study.json") as caught:
        study.run(tiny, tmp_path / "s", engine="here", progress=move)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "s").exists()
    before = {p.parent.name: p.read_bytes() for p in (tmp_path / "elsewhere").glob("trials/*/result.json")}
    assert before
    study.run(tiny, tmp_path / "elsewhere", engine="here")
    after = {p.parent.name: p.read_bytes() for p in (tmp_path / "elsewhere").glob("trials/*/result.json")}
    assert before.items() <= after.items()
    assert numbers(tmp_path / "elsewhere") == numbers(tmp_path / "whole")


def test_a_study_directory_that_can_only_be_read_is_read_and_not_run(tiny, tmp_path, capsys):
    """The owner of the machine may write whatever the modes say, so that the system calls refuse."""
    tiny = tiny.model_copy(update={"rows": tiny.rows[:1]})
    study.run(tiny, tmp_path / "s", engine="here")
    (victim,) = [p.parent for p in (tmp_path / "s").glob("trials/*/scores.json")][:1]
    (victim / "scores.json").unlink()

    def refuse(*_, **__):
        raise OSError(30, "Read-only file system")

    real, seen = os.open, sorted((tmp_path / "s").rglob("*"))

    def only_read(path, flags, *arguments, **how):
        return refuse() if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT) else real(path, flags, *arguments, **how)

    with pytest.MonkeyPatch.context() as disk:
        disk.setattr(os, "open", only_read)
        for name in ("replace", "rename", "link", "unlink", "mkdir", "rmdir", "utime"):
            disk.setattr(os, name, refuse)
        assert not study.read(tmp_path / "s").finished
        assert study.status(tmp_path / "s").tested == 1
        assert command(["study", "status", str(tmp_path / "s")]) == 0
        with pytest.raises(StudyError, match=r"cannot use .*: Read-only file system; finished trials are safe"):
            study.run(tiny, tmp_path / "s", engine="here")
    assert sorted((tmp_path / "s").rglob("*")) == seen
    assert study.run(tiny, tmp_path / "s", engine="here").finished


NAMES = [
    "with a space",
    "both ' and \"",
    "two\nlines\r\t",
    "größer 日本語 🧠",
    "-d",
    "%s {} $HOME * ?",
]


@pytest.mark.parametrize("name", NAMES)
def test_a_study_directory_may_have_any_name(tiny, tmp_path, numbers, name, capsys):
    small = tiny.model_copy(update={"trials": 1, "rows": tiny.rows[:1]})
    folder = tmp_path / name / name
    study.run(small, folder, engine="here")
    assert study.read(folder).finished
    assert study.status(folder).tested == 1
    study.export(folder, tmp_path / name / "all.csv")
    study.merge(tmp_path / name / "merged", folder)
    assert numbers(tmp_path / name / "merged") == numbers(folder)
    assert study.retry(folder) == ()
    assert command(["study", "status", "--", str(folder)]) == 0


EIGHT = """
    import os, sys, time
    from pathlib import Path
    from apical import study
    from apical.study import driver, worker
    from apical.study.engines.base import ENGINES, Done, EngineDescriptor
    from apical.train.trial import dataset_cache

    class Here:
        workers, room = 1, 1

        def __init__(self, context):
            self.context, self.jobs = context, []

        def submit(self, job):
            self.jobs, self.room = [job], 0

        def wait(self, seconds):
            jobs, self.jobs, self.room = self.jobs, [], 1
            if not jobs:
                time.sleep(seconds / 10)
            return [Done(job, tuple(worker.work(job, self.context))) for job in jobs]

        def close(self, *, stop):
            pass

    ENGINES["here"] = EngineDescriptor("here", lambda context, options: Here(context))
    driver.REFRESH = driver.REFRESH_FACTOR = 0.1
    begun, real = [], worker.run
    worker.run = lambda spec, *rest: begun.append(spec.digest) or real(spec, *rest)
    frozen = study.frozen(sys.argv[1])
    children = []
    for _ in range(8):
        child = os.fork()
        if child == 0:
            with dataset_cache():
                done = study.run(frozen, sys.argv[1], engine="here")
            Path(sys.argv[1], f"begun-{os.getpid()}").write_text("\\n".join(begun))
            os._exit(0 if done.finished else 1)
        children.append(child)
    print([os.waitpid(child, 0)[1] for child in children])
"""


def test_a_name_that_is_not_unicode_is_refused_before_anything_is_made(tiny, tmp_path):
    with pytest.raises(StudyError, match=r"is not a Unicode name.*choose another with -d"):
        study.run(tiny, tmp_path / "\udcff", engine="here")
    assert not (tmp_path / "\udcff").exists()


@pytest.mark.slow
def test_eight_drivers_share_a_study_and_train_each_trial_once(make_tiny, tmp_path, numbers, python):
    tiny = make_tiny(epochs=1, alphas=(0.2, 0.3, 0.5, 1.0))
    study.run(tiny, tmp_path / "whole", engine="here")
    driver.open_for(tiny, tmp_path / "s", None)
    assert python(EIGHT, tmp_path / "s").communicate() == (f"{[0] * 8}\n", "")
    begun = [line for path in (tmp_path / "s").glob("begun-*") for line in path.read_text().split()]
    assert sorted(begun) == sorted(p.name for p in (tmp_path / "s" / "trials").iterdir() if p.name[0] != ".")
    assert numbers(tmp_path / "s") == numbers(tmp_path / "whole")
    assert len((tmp_path / "s" / "commands.jsonl").read_text().splitlines()) == 8
