"""What apical runs on: versions, CPU, GPU, kernels. `python -m apical.env` needs nothing but the standard library."""

import os
import platform
import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Any

PACKAGES = ("apical", "torch", "triton", "numpy", "typer", "matplotlib", "onnx", "keras")


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


def machine(device: str = "cpu") -> str:
    """One line below a table of figures: the device, torch, and the path that serves there."""
    table = facts()
    kind = device.partition(":")[0]
    if kind == "cpu":
        return f"{table['processor']}, {table['threads']} threads, torch {table['torch']}, {table['backend']}"
    path = table["backend, cuda"] if kind == "cuda" else table["backend, others"]
    return f"{table['gpu'] if kind == 'cuda' else device}, torch {table['torch']}, {path}"


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
        paths = {
            "backend": str(backend()),
            "backend, cuda": str(backend("cuda")),
            "backend, others": "composite: plain torch, for other devices, compilers, exporters and transforms",
        }
    except ApicalError as error:
        paths = {"backend": str(error)}
    return {"threads": str(torch.get_num_threads()), "gpu": _gpu(torch), **paths}


def _gpu(torch: Any) -> str:
    """The devices that torch sees, and what its build is for."""
    if not torch.cuda.is_available():
        built = f"CUDA {torch.version.cuda}" if torch.version.cuda else f"ROCm {torch.version.hip}"
        return f"none: torch is built for {built if torch.version.cuda or torch.version.hip else 'the CPU alone'}"
    return ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))


def main() -> int:
    """Print the facts, one a line."""
    table = facts()
    width = max(map(len, table))
    for name, value in table.items():
        print(f"{name:<{width}}  {value}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
