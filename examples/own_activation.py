"""Your own activation against ReLU and ADA. Run: python examples/own_activation.py [epochs] [trials]"""

import sys
import tempfile
from pathlib import Path

import torch
from torch import nn

import apical
from apical import study

EPOCHS, TRIALS = (*map(int, sys.argv[1:]), *(10, 3)[len(sys.argv) - 1 :])


class Bump(nn.Module):
    """x * exp(-x^2)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Elementwise."""
        return x * torch.exp(-x.square())


if "bump" not in apical.Unit.kinds():
    apical.register_unit("bump", activation=Bump)
    apical.register_unit("pynbump", basal="relu", apical="bump")

STUDY = f"""
title = "Is bump any good?"
trials = {TRIALS}
training = {{ epochs = {EPOCHS}, learning_rate = 3e-3 }}
imports = ["own_activation"]
[[parts]]
name = "digits"
title = "digits"
data = "digits"
model = "mlp-1"
dims = {{ hidden = 32 }}
""" + "".join(f'[[rows]]\nunit = "{unit}"\n' for unit in ("relu", "bump", "ada", "pynrelu", "pynbump", "pynada"))

if __name__ == "__main__":  # worker processes import this file to register the units
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "bump.toml"
        file.write_text(STUDY, encoding="utf-8")
        results = study.run(study.load(file, trust=True), Path(folder) / "results")
        for row in results.rows:
            tests = row.tests("accuracy")
            print(f"{row.row.label:8} test accuracy {100 * sum(tests) / len(tests):.2f} %, mean of {len(tests)} trials")
