"""Look for inputs that break a target, guided by coverage, with atheris (`pip install atheris`):

    python tests/fuzz/guided.py --seconds 600 [--target npz] [--corpus FOLDER]

New inputs are kept in FOLDER (out/fuzz by default). One that raises something else than our errors is written to
FOLDER/found/, once for each place in the source, and the run goes on; one that takes twenty seconds or four gigabytes
ends it. What was found belongs into tests/fuzz/corpus once it is mended.
"""

import argparse
import os
import sys
import traceback
from pathlib import Path

import atheris

sys.path.insert(0, str(Path(__file__).parent))
with atheris.instrument_imports(include=["apical", "tomllib", "targets"]):
    from targets import CORPUS, LIMITS, TARGETS, attempt

NAMES = sorted(TARGETS)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=600)
    parser.add_argument("--target", choices=NAMES)
    parser.add_argument("--corpus", type=Path, default=Path("out/fuzz"))
    options = parser.parse_args()
    names = [options.target] if options.target else NAMES
    os.environ["APICAL_LIMITS"] = LIMITS
    options.corpus.mkdir(parents=True, exist_ok=True)
    for name in names:  # the first byte chooses the target
        for path in (CORPUS / name).iterdir():
            (options.corpus / f"{name}-{path.name}").write_bytes(bytes([NAMES.index(name)]) + path.read_bytes())

    places: set[str] = set()
    (options.corpus / "found").mkdir(exist_ok=True)

    def one(data: bytes) -> None:
        if not data or (chosen := NAMES[data[0] % len(NAMES)]) not in names:
            return
        try:
            attempt(chosen, data[1:])
        except Exception as error:
            last = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{chosen}-{type(error).__name__}-{Path(last.filename).stem}-{last.lineno}"
            if place not in places:
                places.add(place)
                (options.corpus / "found" / place).write_bytes(data[1:])
                traceback.print_exc()

    flags = [f"-max_total_time={options.seconds}", "-timeout=20", "-rss_limit_mb=4000", "-max_len=4096"]
    flags += [f"-artifact_prefix={options.corpus}/", "-print_final_stats=1", "-reload=0"]
    atheris.Setup([sys.argv[0], *flags, str(options.corpus)], one)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
