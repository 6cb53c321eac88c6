"""The locks of tools/lock.py: complete, of the versions in constraints.txt, and what the environments are made of."""

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import venv
import zipfile
from hashlib import sha256
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
LINE = re.compile(r"(?P<name>[a-z0-9-]+)==(?P<version>\S+) --hash=sha256:[0-9a-f]{64}")

_spec = importlib.util.spec_from_file_location("apical_tools_lock", ROOT / "tools" / "lock.py")
assert _spec is not None
assert _spec.loader is not None
lock = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(lock)


def locked(name):
    lines = [line for line in (ROOT / name).read_text().splitlines() if not line.startswith("#")]
    matches = [LINE.fullmatch(line) for line in lines]
    assert all(matches), lines
    return {match["name"]: match["version"] for match in matches}


def commands(target):
    text = subprocess.run(
        ["make", "-n", "VENV=not-there", target], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return text.stdout.splitlines()


def extras():
    (line,) = [line for line in commands("demo") if "lock.py install" in line]
    return line.split()[-1]


def test_locked_versions_are_those_of_the_constraints():
    pinned = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line)
    pinned = {canonicalize_name(name): version for name, version in pinned.items()}
    assert locked("lock.txt").items() <= pinned.items()
    cpu, cuda = locked("lock-torch-cpu.txt"), locked("lock-torch-cuda.txt")
    assert cpu == {"torch": f"{pinned['torch']}+cpu"}
    assert cuda["torch"] == pinned["torch"]
    assert not cuda.keys() & locked("lock.txt").keys()


@pytest.mark.skipif(lock.HERE not in (ROOT / "lock.txt").read_text(), reason=f"the lock is not for {lock.HERE}")
def test_the_lock_has_all_that_the_environment_needs():
    """--no-deps asks nobody, so nothing may be missing; what the CUDA build of torch needs is in its own lock."""
    have = {"torch", *locked("lock.txt")}
    wanted, seen = [Requirement(text) for text in lock.requirements(extras())], set()
    while wanted:
        one = wanted.pop()
        name = canonicalize_name(one.name)
        assert name in have, one
        for extra in one.extras or {""}:
            if (name, extra) not in seen:
                seen.add((name, extra))
                asked = [Requirement(text) for text in importlib.metadata.requires(name) or ()]
                asked = [more for more in asked if not more.marker or more.marker.evaluate({"extra": extra})]
                wanted += [more for more in asked if name != "torch" or canonicalize_name(more.name) in have]


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_environment_is_made_from_the_lock_alone(target):
    installs = [line for line in commands(target) if "install" in line and "touch" not in line]
    assert installs == [f"not-there/bin/python tools/lock.py install {extras()}"]


# --- what `install` does, with packages of a few bytes ---------------------------------------------------------------

BACKEND = """
def build_editable(folder, config_settings=None, metadata_directory=None):
    import shutil
    return shutil.copy("p-1-py3-none-any.whl", folder).split("/")[-1]
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


def wheel(folder, name, version):
    """An empty package; the line of its lock."""
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        file.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        file.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        file.writestr(f"{info}/RECORD", "")
    return f"{name}=={version} --hash=sha256:{sha256(path.read_bytes()).hexdigest()}\n"


class Project:
    """A project with locks of its own, a folder of wheels, and an environment that sees no index."""

    def __init__(self, root, environment):
        self.root, self.wheels = root / "project", root / "wheels"
        self.python = environment / "bin" / "python"
        self.site = next(environment.glob("lib/python*/site-packages"))
        for name in ("small", "torch", "p"):
            for path in self.site.glob(f"{name}-*.dist-info"):
                shutil.rmtree(path)
        (self.root / "tools").mkdir(parents=True)
        self.wheels.mkdir()
        shutil.copy(ROOT / "tools" / "lock.py", self.root / "tools")
        (self.root / "pyproject.toml").write_text(PROJECT)
        (self.root / "backend.py").write_text(BACKEND)
        wheel(self.root, "p", "1")
        head = f"{lock.HEADER}{lock.HERE}.\n"
        (self.root / lock.LOCK).write_text(head + wheel(self.wheels, "small", "1"))
        (self.root / lock.CPU).write_text(head + wheel(self.wheels, "torch", "9+cpu"))
        (self.root / lock.CUDA).write_text(head + wheel(self.wheels, "torch", "9"))

    def install(self):
        command = [str(self.python), "tools/lock.py", "install", "test"]
        return subprocess.run(command, cwd=self.root, capture_output=True, text=True, check=False)

    def installed(self):
        names = [path.name.removesuffix(".dist-info") for path in self.site.glob("*.dist-info")]
        return {name for name in names if name.startswith(("small-", "torch-", "p-"))}


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    folder = tmp_path_factory.mktemp("env")
    venv.create(folder, with_pip=True)
    return folder


@pytest.fixture
def project(tmp_path, environment, monkeypatch):
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return Project(tmp_path, environment)


@pytest.mark.slow
def test_the_build_for_cpus_is_taken_where_it_is_offered(project):
    done = project.install()
    assert done.returncode == 0, done.stderr
    assert project.installed() == {"small-1", "torch-9+cpu", "p-1"}


@pytest.mark.slow
def test_the_build_of_the_index_is_taken_elsewhere(project):
    (project.wheels / "torch-9+cpu-py3-none-any.whl").unlink()
    done = project.install()
    assert done.returncode == 0, done.stderr
    assert "torch's build for CPUs is not offered here" in done.stdout
    assert project.installed() == {"small-1", "torch-9", "p-1"}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "left"), [("small-1", set()), ("torch-9+cpu", {"small-1"})])
def test_a_file_with_other_bytes_is_refused(project, name, left):
    with zipfile.ZipFile(project.wheels / f"{name}-py3-none-any.whl", "a") as file:
        file.writestr("small.py", "print('somebody else was here')")
    done = project.install()
    assert done.returncode != 0
    assert "DO NOT MATCH THE HASHES" in done.stderr
    assert project.installed() == left


@pytest.mark.slow
def test_another_platform_is_told_that_it_has_no_hashes(project):
    (project.root / lock.LOCK).write_text(f"{lock.HEADER}Plan9 mips, CPython 3.11.\n")
    (project.root / lock.VERSIONS).write_text("")
    assert f"lock.txt has no hashes for {lock.HERE}" in project.install().stdout
