"""What apical runs on: versions, CPU, kernel. `python -m apical.env` needs nothing but the standard library."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version

PACKAGES = ("apical", "torch", "numpy", "typer", "matplotlib", "onnx", "keras")


def facts() -> dict[str, str]:
    """What a bug report or a table of figures should name, in the order to read it."""
    found = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": str(os.cpu_count()),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found | _kernel()


def _processor() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as lines:  # noqa: PTH123
            names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    except OSError:
        names = []
    return names[0] if names else platform.processor() or platform.machine()


def _kernel() -> dict[str, str]:
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        return {"backend": "none: torch is not installed (pip install torch)"}
    from apical.errors import ApicalError  # noqa: PLC0415
    from apical.kernels import backend  # noqa: PLC0415

    try:
        kernel = str(backend())
    except ApicalError as error:
        kernel = str(error)
    return {"threads": str(torch.get_num_threads()), "backend": kernel}


def main() -> int:
    """Print the facts, one a line."""
    table = facts()
    width = max(map(len, table))
    for name, value in table.items():
        print(f"{name:<{width}}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
