"""Without torch's private names everything computes the same, bit for bit, by torch's public ways."""

import json
import os
import subprocess
import sys

import pytest
import torch

from apical import torch_private

PROGRAM = """
import json, sys
from dataclasses import replace
from pathlib import Path
import torch
from apical import torch_private
from apical.nn import ADA
from apical.train import Execution, TrialSpec, run, run_many
folder, how = Path(sys.argv[1]), Execution(threads=1)
public = [torch_private.fused_adam.__name__, torch_private.run_backward.__name__]
spec = TrialSpec(data="digits", model="mlp-1", dims={"hidden": 16}, epochs=2, batch=128, l2=0.1, unit="relu")
specs = [replace(spec, unit=u, optimiser=o) for o in ("adam", "adamw") for u in ("relu", "tanh")]
results = [run(specs[0], how, folder / "a"), run(specs[2], how, folder / "b")]
results += run_many(specs, how, [folder / str(i) for i in range(4)])
x = torch.linspace(-3, 3, 7, requires_grad=True)
ADA(alpha=0.3)(x).sum().backward()
losses = [[entry["loss"] for entry in r.history] for r in results]
print(json.dumps({"public": public, "losses": losses, "slopes": x.grad.tolist()}))
"""


def test_the_public_ways_give_the_same_bits(forked, tmp_path):
    def outcome(name, **ways):
        done = forked("-c", PROGRAM, tmp_path / name, cwd=tmp_path, APICAL_BACKEND="composite", **ways)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    private, public = outcome("private"), outcome("public", APICAL_TORCH="public")
    assert public.pop("public") == ["step", "_backward"]
    assert private.pop("public") == ["_fused_adam_", "run_backward"]
    assert private == public


LEAN = """
import sys
from pathlib import Path
from apical.train import Execution, TrialSpec, evaluate, run

def interrupt(event):
    if (event.kind, event.epoch) == ("epoch", 1):
        raise KeyboardInterrupt

for name in ("adam", "adamw", "sgd"):
    spec = TrialSpec(data="digits", model="mlp-1", dims={"hidden": 8}, epochs=2, batch=512, optimiser=name)
    try:
        run(spec, Execution(threads=1), name, [interrupt])
    except KeyboardInterrupt:
        assert Path(name, "last.safetensors").exists()
    evaluate(run(spec, Execution(threads=1), name))
print([name for name in ("torch._dynamo", "sklearn") if name in sys.modules])
"""


def test_a_trial_imports_neither_torchs_compiler_nor_scikit_learn(tmp_path):
    """Each takes as long as torch itself."""
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", LEAN]
    done = subprocess.run(command, cwd=tmp_path, env=one_thread, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


def test_a_torch_that_lacks_a_name_takes_the_public_way():
    assert torch_private._private("_C._no_such_name", max) is max
    assert torch_private._private("optim.Adam", max) is torch.optim.Adam


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_public_step_is_the_kernels_own(name):
    kernel, functional = getattr(torch, f"_fused_{name}_"), getattr(torch_private, name)
    settings = {"lr": 0.1, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8}
    ends = []
    for step in (kernel, torch_private._step(functional)):
        lists = [[t.clone()] for t in torch.randn(4, 5, generator=torch.Generator().manual_seed(0)).abs()]
        step(*lists, [], [torch.tensor(3.0)], amsgrad=False, maximize=False, **settings)
        ends.append(torch.stack([own for (own,) in lists]))
    assert torch.equal(*ends)
