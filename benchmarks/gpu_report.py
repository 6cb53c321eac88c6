"""Check and measure apical on a GPU, into one file to send: `make gpu-report`.

python benchmarks/gpu_report.py [-o out/gpu-report.txt] [--device cuda]

The file holds the environment, the tests that need a device, the seconds of the first call, and the benchmarks.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
FIRST_CALL = """
import time, torch
from apical.functional import ada, pyramidal
x = torch.randn(64, 64, 32, 32, device={device!r}, requires_grad=True)
for name, function in (("ADA", ada), ("pyramidal sum", pyramidal)):
    for call in ("first", "second"):
        torch.accelerator.synchronize()
        start = time.perf_counter()
        function(x).sum().backward()
        torch.accelerator.synchronize()
        print(f"{{name}}, {{call}} call, forward and backward: {{time.perf_counter() - start:.3f}} s")
"""


def parts(device: str) -> dict[str, list[str]]:
    """What is run, by its heading."""
    python = [sys.executable]
    first = [*python, "-c", FIRST_CALL.format(device=device)]
    return {
        "environment": [*python, "-m", "apical.env"],
        "torch": [*python, "-m", "torch.utils.collect_env"],
        "tests": [*python, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu"],
        "first call, nothing compiled yet": first,
        "first call of the next process": first,
        "activations": [*python, "-m", "apical", "bench", "activations", "--device", device],
        "activations, plain torch": [*python, "-m", "apical", "bench", "activations", "--device", device],
        "pyramidal layers": [*python, "benchmarks/pyramidal.py", "--device", device],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=Path("out/gpu-report.txt"))
    parser.add_argument("--device", default="cuda")
    arguments = parser.parse_args()
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        print("a report needs a CUDA or ROCm device, and torch sees none: `apical env` says what torch is built for")
        return 1
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    failures = []
    with tempfile.TemporaryDirectory() as cache, arguments.output.open("w", encoding="utf-8") as file:
        for heading, command in parts(arguments.device).items():
            environment = os.environ | {"TRITON_CACHE_DIR": cache if heading.startswith("first call") else ""}
            if heading.endswith("plain torch"):
                environment["APICAL_BACKEND"] = "composite"
            environment = {name: value for name, value in environment.items() if value}
            start = time.perf_counter()
            print(f"{heading} ...", flush=True)
            run = subprocess.run(
                command,
                cwd=ROOT,
                env=environment,
                text=True,
                check=False,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            seconds = time.perf_counter() - start
            file.write(f"==== {heading} (exit code {run.returncode}, {seconds:.1f} s)\n\n{run.stdout}\n")
            file.flush()
            failures += [heading] if run.returncode else []
    print(f"wrote {arguments.output}; " + (f"failed: {', '.join(failures)}" if failures else "everything passed"))
    return len(failures)


if __name__ == "__main__":
    sys.exit(main())
