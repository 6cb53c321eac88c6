from dataclasses import replace

import pytest
import torch
from torch import nn

from apical import models
from apical.nn import ADA, PyramidalLinear, Unit
from apical.train import Execution, run
from apical.train.dynamics import gradient_norms, learned_values, watching


def test_shares_of_a_layer_counted_by_hand():
    network = nn.Sequential(nn.Linear(3, 4), ADA(alpha=2.0, dim=-1), nn.Linear(4, 1))
    x = 4 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    with watching(network) as seen:
        network(x).sum().backward()
    z = network[0](x)
    assert seen["inactive"] == {"1": pytest.approx(float((z < 0).float().mean()))}
    assert seen["saturated"] == {"1": pytest.approx(float((2 * z > 5).float().mean()))}
    assert 0 < seen["saturated"]["1"] < 1
    norm = torch.cat([network[0].weight.grad.flatten(), network[0].bias.grad]).norm()
    assert seen["gradient"]["0"] == pytest.approx(float(norm))
    assert set(seen["gradient"]) == {"0", "2"}


def test_a_fused_pyramidal_layer_counts_both_branches():
    layer = PyramidalLinear(3, 4, apical="ada(alpha=2)")
    x = 4 * torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    with watching(layer) as seen:
        layer(x).sum().backward()
    basal = x @ layer.basal_weight.T + layer.basal_bias
    apical = x @ layer.apical_weight.T + layer.apical_bias
    assert seen["inactive"]["basal"] == pytest.approx(float((basal < 0).float().mean()))
    assert seen["inactive"]["apical"] == pytest.approx(float((apical < 0).float().mean()))
    assert seen["saturated"] == {"apical": pytest.approx(float((2 * apical > 5).float().mean()))}


@pytest.mark.parametrize("unit", ["relu", "ada(alpha=2)", "pynada(alpha=2)", "gelu"])
@pytest.mark.parametrize("training", [True, False])
def test_what_stands_behind_batch_norm_is_counted(unit, training):
    layer = Unit.parse(unit).layers().conv(2, 3, 4, 3, norm=nn.BatchNorm2d).train(training)
    x = 4 * torch.randn(8, 3, 6, 6, generator=torch.Generator().manual_seed(0))
    residual = torch.randn(8, 4, 4, 4, generator=torch.Generator().manual_seed(1))
    with watching(layer) as seen:
        layer(x, residual=residual).sum().backward()
    affine = layer.affine(x) if "pyn" not in unit else layer._affine(x)
    z = layer.norm(affine)
    basal, apical = (z, None) if "pyn" not in unit else z.chunk(2, 1)
    expected = {"activation" if apical is None else "basal": basal + residual}
    expected |= {} if apical is None else {"apical": apical}
    assert seen["inactive"] == {n: pytest.approx(float((u < 0).float().mean()), abs=2e-3) for n, u in expected.items()}
    ada = {} if unit in ("relu", "gelu") else {[*expected][-1]: [*expected.values()][-1]}
    assert seen["saturated"] == {n: pytest.approx(float((2 * u > 5).float().mean()), abs=2e-3) for n, u in ada.items()}


def test_a_shared_alpha_is_not_counted_twice():
    network = models.create("mlp-2", "ada(alpha=learn)", inputs=5, hidden=(7, 6), outputs=3, seed=0)
    with watching(network) as seen:
        network(torch.randn(20, 5)).sum().backward()
    assert len(seen["inactive"]) == 2
    assert all(0 < share < 1 for share in seen["inactive"].values())


CASES = [("mlp-2", {}), ("lenet", {}), ("resnet-18", {"stem": 64}), ("resnet-18", {"stem": 64, "skip": "apical"})]


@pytest.mark.parametrize(("name", "dims"), CASES, ids=["mlp-2", "lenet", "resnet", "resnet with apical skips"])
@pytest.mark.parametrize("unit", ["ada(alpha=learn)", "pynada(alpha=learn)", "pynswish"])
def test_watching_changes_no_number_and_leaves_nothing_behind(name, dims, unit):
    if dims.get("skip") == "apical" and not Unit.parse(unit).pyramidal:
        unit = "leaky_pynada"
    shape = {"mlp-2": (784,), "lenet": (1, 32, 32)}.get(name, (3, 64, 64))
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(0))
    outputs = []
    for watched in (False, True):
        network = models.create(name, unit, seed=0, **dims)
        attributes = {n: set(vars(m)) for n, m in network.named_modules()}
        if watched:
            with watching(network) as seen:
                out = network(x)
                out.square().sum().backward()
        else:
            out = network(x)
            out.square().sum().backward()
        assert {n: set(vars(m)) for n, m in network.named_modules()} == attributes
        outputs.append([out.detach(), *(p.grad for p in network.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*outputs, strict=True))
    assert seen["inactive"]
    assert all(0 <= share <= 1 for share in seen["inactive"].values())
    assert set(seen["gradient"]) == set(gradient_norms(network))


def test_learned_values_are_those_in_use():
    network = nn.Sequential(ADA(alpha=0.5, learnable=True), ADA(alpha=0.5))
    network[0].alpha.data.fill_(-1.0)
    assert learned_values(network) == {"0.alpha": pytest.approx(1e-4)}


def test_a_run_records_dynamics_and_learned_alpha_of_each_epoch_and_can_leave_them_out(spec, tmp_path):
    spec = replace(spec, unit="pynada(alpha=learn)")
    with_ = run(spec, Execution(threads=1), tmp_path / "with")
    without = run(spec, Execution(threads=1, dynamics=False), tmp_path / "without")
    for record in with_.history:
        assert set(record["dynamics"]) == {"inactive", "saturated", "gradient"}
        assert len(record["learned"]) == 1
    alphas = [next(iter(h["learned"].values())) for h in with_.history]
    assert alphas[0] != alphas[1]
    assert [{**h, "dynamics": {}} for h in with_.history] == without.history
