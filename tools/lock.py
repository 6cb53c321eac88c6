"""The lock: every file that `make test` and `make demo` install, with its sha256.

    python tools/lock.py renew EXTRAS      write the lock anew, with the versions of constraints.txt (`make lock`)
    python tools/lock.py install EXTRAS    install what is locked, and apical itself, into this Python's environment

pip resolves, on the platform where this runs, and says which files it would take. torch has a lock for each of its two
builds: the small one, for CPUs, is to be taken wherever it is offered. If one lock allowed both, pip would prefer the
file whose hash its index tells, which a folder of wheels does not.
"""

import json
import platform
import re
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = "constraints.txt"
LOCK, CPU, CUDA = "lock.txt", "lock-torch-cpu.txt", "lock-torch-cuda.txt"
HEADER = "# Written by `make lock` from constraints.txt, for "
PYTHON = ".".join(platform.python_version_tuple()[:2])
HERE = f"{platform.system()} {platform.machine()}, {platform.python_implementation()} {PYTHON}"


def requirements(extras: str) -> list[str]:
    """What apical and its extras ask for, and what builds it."""
    about = tomllib.loads((ROOT / "pyproject.toml").read_text())
    optional = about["project"]["optional-dependencies"]
    asked = [*about["build-system"]["requires"], "wheel", *about["project"]["dependencies"]]
    return asked + [one for extra in extras.split(",") for one in optional[extra]]


def pip(*arguments: str, check: bool = True, stderr: int | None = None) -> subprocess.CompletedProcess[str]:
    """Let pip install; what it says goes to the terminal unless `stderr` takes it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
    return subprocess.run(command, text=True, cwd=ROOT, check=check, stderr=stderr)


def resolved(asked: list[str]) -> dict[str, str]:
    """The line of the lock for each package that pip would install."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        pip("--dry-run", "--ignore-installed", "--report", str(report), "-c", VERSIONS, *asked)
        chosen = json.loads(report.read_text())["install"]
    lines = {}
    for one in chosen:
        name = re.sub(r"[-_.]+", "-", one["metadata"]["name"]).lower()
        digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
        lines[name] = f"{name}=={one['metadata']['version']} --hash=sha256:{digest}"
    return lines


def write(name: str, what: str, lines: dict[str, str]) -> None:
    """Write a lock."""
    text = [f"{HEADER}{HERE}.", f"# {what}", *(lines[key] for key in sorted(lines))]
    (ROOT / name).write_text("\n".join(text) + "\n")
    print(f"{name}: {len(lines)} packages")


def renew(extras: str) -> None:
    """Write the three locks anew."""
    main = resolved(requirements(extras))
    torch = main.pop("torch")
    version = torch.split("==")[1].split(" ")[0]
    if "+cpu" not in version:
        sys.exit(
            f"pip was offered torch {version} only; give it the index or folder of the CPU build with --find-links"
        )
    other = resolved([f"torch==={version.split('+')[0]}"])  # === does not match a version with +cpu
    write(LOCK, "All packages but torch.", main)
    write(CPU, "torch's build for CPUs.", {"torch": torch})
    write(
        CUDA, "torch's build on the index, with what it alone needs.", {k: v for k, v in other.items() if k not in main}
    )


def install(extras: str) -> None:
    """Install what is locked for this platform; elsewhere the pinned versions, and say so."""
    if not (ROOT / LOCK).read_text().startswith(f"{HEADER}{HERE}.\n"):
        print(f"{LOCK} has no hashes for {HERE}: installing the versions of {VERSIONS}, without hashes")
        pip("-c", VERSIONS, "setuptools", "wheel")
        pip("-c", VERSIONS, "--no-build-isolation", "-e", f".[{extras}]")
        return
    hashed = ("--require-hashes", "--no-deps", "-r")
    pip(*hashed, LOCK)
    cpu = pip(*hashed, CPU, check=False, stderr=subprocess.PIPE)
    if cpu.returncode and "No matching distribution found" in cpu.stderr:
        print("torch's build for CPUs is not offered here: installing the one of the index, with CUDA")
        pip(*hashed, CUDA)
    elif cpu.returncode:
        sys.exit(cpu.stderr)
    pip("--no-deps", "--no-build-isolation", "-e", ".")


if __name__ == "__main__":
    try:
        {"renew": renew, "install": install}[sys.argv[1]](sys.argv[2])
    except subprocess.CalledProcessError as error:  # pip has said why
        sys.exit(error.returncode)
