"""Ask pip-audit whether a version in the locks has a known vulnerability (`make audit`).

Ends with 1 where one has, and with 2 where the data base could not be asked: pip-audit itself calls that "no known
vulnerabilities".
"""

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("lock.txt", "lock-torch-cuda.txt")  # torch's build for CPUs is the same version


def main() -> int:
    """Print what is known, and what is not."""
    files = [part for lock in LOCKS for part in ("-r", lock)]
    command = ["pip_audit", "--require-hashes", "--disable-pip", "--progress-spinner=off", "--format=json", *files]
    answer = subprocess.run([sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, check=False)
    try:
        packages = json.loads(answer.stdout)["dependencies"]
    except ValueError:
        last = (answer.stderr.strip() or "nothing").splitlines()[-1]
        print(f"pip-audit gave no answer, so nothing is known about any version. It said: {last}")
        return 2
    for package in packages:
        for fault in package.get("vulns", ()):
            fixed = ", ".join(fault["fix_versions"]) or "no version"
            print(f"{package['name']} {package['version']}: {fault['id']}, fixed in {fixed}")
    faulty = sum(bool(package.get("vulns")) for package in packages)
    unknown = [package["skip_reason"] for package in packages if "skip_reason" in package]
    asked = len(packages) - len(unknown)
    print(f"{asked} of {len(packages)} locked versions were looked up, {faulty} of them with a known vulnerability.")
    if unknown:
        reason = f"pip-audit: {unknown[0]}"
        print(f"The data base could not be asked about {len(unknown)}, so nothing is known of them. {reason}")
    return 1 if faulty else 2 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
