"""What a user does with apical on a device, against the same on the CPU: `make test-gpu`.

Every test runs on the CPU too, so that the tests themselves are tested where there is no GPU.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import apical
from apical.functional import ada, pyramidal
from apical.kernels import backend, choice

DTYPES = {torch.float64: 1e-10, torch.float32: 2e-5, torch.bfloat16: 2e-2, torch.float16: 4e-3}
NEEDS = "needs a CUDA or ROCm device that torch sees (torch.cuda.is_available()): run `make test-gpu` on such a machine"
HERE = pytest.mark.skipif(not torch.cuda.is_available(), reason=NEEDS)


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=HERE)])
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """The last one of its kind, which is another than the current one where there are several."""
    count = torch.cuda.device_count() if request.param == "cuda" else 0
    yield torch.device(request.param, count - 1) if count else torch.device(request.param)
    if count:
        torch.cuda.synchronize()  # a fault of this test is not to be blamed on the next one


def graded(function: object, *tensors: Tensor) -> list[Tensor]:
    """The output and the gradients of all tensors, on the CPU."""
    leaves = [t.detach().requires_grad_() for t in tensors]
    y = function(*leaves)
    g = torch.linspace(-1, 1, y.numel(), dtype=torch.float64).view(y.shape).to(y)
    return [t.detach().cpu() for t in (y, *torch.autograd.grad(y, leaves, g))]


def agree(function: object, *tensors: Tensor, device: torch.device, bound: float) -> None:
    """The function of the tensors on the device and, in float64, on the CPU."""
    ours = graded(function, *(t.to(device) for t in tensors))
    exact = graded(function, *(t.double() for t in tensors))
    for i, (a, b) in enumerate(zip(ours, exact, strict=True)):
        near = bound if i < 2 else max(bound, 2e-5)  # the parameters are in float32
        torch.testing.assert_close(a.double(), b, rtol=near, atol=near * max(1.0, float(b.abs().max())))


def example(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)


# ---- kernels and functional ----------------------------------------------------------------------------------------

SHAPES = [(64, 128), (7, 6, 5), (3, 6, 37), (8, 64, 16, 16), (2, 4, 70, 70), (1, 2), (4099, 2)]


@HERE
def test_triton_serves_here() -> None:
    assert backend("cuda").name == "triton", backend("cuda").reason
    x = torch.ones(3, device="cuda", requires_grad=True)
    assert choice.path(x) == "triton"
    ada(x).sum().backward()
    assert backend("cuda").name == "triton", backend("cuda").reason  # the launches did not fail


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", ["one", "each"])
@pytest.mark.parametrize("leak", [0.0, 0.1])
def test_ada(device: torch.device, dtype: torch.dtype, count: str, leak: float) -> None:
    for shape in SHAPES:
        n = shape[1] if count == "each" else 1
        x, alpha, c = example(*shape, dtype=dtype), torch.linspace(0.3, 1.5, n), torch.linspace(0.5, -0.5, n)
        agree(lambda x, a, c: ada(x, a, c, leak), x, alpha, c, device=device, bound=DTYPES[dtype])
        agree(lambda x: ada(x, 0.7, 0.2, leak), x, device=device, bound=DTYPES[dtype])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("groups", [1, 2])
def test_pyramidal(device: torch.device, dtype: torch.dtype, groups: int) -> None:
    for shape in ((64, 128), (3, 12, 37), (8, 64, 16, 16), (2, 4, 70, 70), (4099, 4)):
        for n in (1, shape[1] // 2):
            z, alpha, c = example(*shape, dtype=dtype), torch.linspace(0.3, 1.5, n), torch.linspace(0.5, -0.5, n)
            agree(
                lambda z, a, c: pyramidal(z, a, c, 0.1, basal_leak=0.2, groups=groups), z, alpha, c,
                device=device, bound=DTYPES[dtype],
            )  # fmt: skip


def test_layouts(device: torch.device) -> None:
    x = example(4, 8, 6, 10).to(device)
    alpha = torch.linspace(0.3, 1.5, 8, device=device)
    last = x.to(memory_format=torch.channels_last).requires_grad_()
    y = ada(last, alpha)
    assert y.is_contiguous(memory_format=torch.channels_last)
    (gx,) = torch.autograd.grad(y.sum(), last)
    assert gx.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y, ada(x, alpha))
    for view in (x[:, :, ::2], x.transpose(2, 3), x[..., 1:], x[:1].expand(4, 8, 6, 10), x[:0]):
        leaf = view.detach().requires_grad_()
        plain = view.detach().contiguous().requires_grad_()
        torch.testing.assert_close(ada(leaf, alpha), ada(plain, alpha))
        g = torch.ones_like(plain)
        torch.testing.assert_close(
            torch.autograd.grad(ada(leaf, alpha), leaf, g)[0], torch.autograd.grad(ada(plain, alpha), plain, g)[0]
        )


def test_special_values(device: torch.device) -> None:
    x = torch.tensor([0.0, -0.0, math.inf, -math.inf, math.nan, 1e30, -1e30, 200.0], device=device).requires_grad_()
    for leak in (0.0, 0.01):
        y = ada(x, 1.0, 1.0, leak)
        (gx,) = torch.autograd.grad(y.sum(), x)
        low = -math.inf if leak else 0.0
        torch.testing.assert_close(
            y.detach().cpu(), torch.tensor([0, 0, 0, low, math.nan, 0, -1e30 * leak, 0]), equal_nan=True
        )
        torch.testing.assert_close(
            gx.cpu(), torch.tensor([math.e, math.e, 0, leak, math.nan, 0, leak, 0]), equal_nan=True
        )


def test_results_repeat_bit_for_bit(device: torch.device) -> None:
    x, alpha = (
        example(64, 32, 40, 40).to(device).requires_grad_(),
        torch.rand(32, device=device).add(0.2).requires_grad_(),
    )
    once, again = (torch.autograd.grad(ada(x, alpha).square().sum(), (x, alpha)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


def test_derivatives_of_every_kind(device: torch.device) -> None:
    x = example(4, 3).double().to(device).requires_grad_()
    alpha = torch.tensor([0.4, 0.8, 1.2], dtype=torch.float64, device=device, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x, a: ada(x, a, 0.3, 0.01), (x, alpha))
    assert torch.autograd.gradgradcheck(lambda x, a: ada(x, a, 0.3, 0.01), (x, alpha))
    single = x.detach().float()
    leaf = single.clone().requires_grad_()
    (slope,) = torch.autograd.grad(ada(leaf, 0.5).sum(), leaf)
    pushed = torch.func.jvp(lambda t: ada(t, 0.5), (single,), (torch.ones_like(single),))[1]
    torch.testing.assert_close(pushed, slope)
    torch.testing.assert_close(torch.func.vmap(lambda row: ada(row, 0.5))(single), ada(single, 0.5))


def test_autocast_and_inference_mode(device: torch.device) -> None:
    alpha = torch.ones(1, device=device, requires_grad=True)
    with torch.autocast(device.type, dtype=torch.bfloat16):
        for dtype in DTYPES:
            x = torch.ones(3, dtype=dtype, device=device, requires_grad=True)
            gx, ga = torch.autograd.grad(ada(x, alpha).sum(), (x, alpha))
            assert (gx.dtype, ga.dtype) == (dtype, torch.float32)
    with torch.inference_mode():
        assert ada(torch.ones(3, dtype=torch.bfloat16, device=device)).dtype == torch.bfloat16


@pytest.mark.slow
def test_compiled_by_inductor(device: torch.device) -> None:
    module = apical.ADA(alpha=0.5, learnable=True, num_parameters=6).to(device)
    x = example(8, 6, 20).to(device)
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True)
    torch.testing.assert_close(compiled(x), module(x))
    ours, theirs = (torch.autograd.grad(f(x).sum(), module.alpha)[0] for f in (compiled, module))
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


@HERE
def test_other_streams_and_graphs() -> None:
    x = example(64, 128).cuda().requires_grad_()
    exact = torch.autograd.grad(ada(x).sum(), x)[0]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        aside = torch.autograd.grad(ada(x).sum(), x)[0]
    stream.synchronize()
    assert torch.equal(aside, exact)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = ada(x.detach())
    graph.replay()
    torch.testing.assert_close(y, ada(x.detach()))


@HERE
def test_beyond_2_to_the_31_elements() -> None:
    free = torch.cuda.mem_get_info()[0]
    if free < 14 * 2**30:
        pytest.skip(f"needs 14 GiB of free memory on the device, which has {free / 2**30:.1f}")
    x = torch.zeros(2**20 + 1, 2048, dtype=torch.bfloat16, device="cuda")
    x[-1] = 1.0
    y = ada(x)
    torch.testing.assert_close(y[-1].float(), torch.full((2048,), math.exp(-1), device="cuda"), rtol=2e-2, atol=0)
    assert not y[:-1].any()


# ---- modules and conversion ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["ada(alpha=learn)", "leaky_ada", "rbf", "swish", "pynada(alpha=learn)", "pynrelu"])
def test_networks(device: torch.device, unit: str) -> None:
    model = apical.models.create("lenet", unit)
    x = torch.randn(4, 1, 32, 32)
    exact = model(x)
    exact.square().sum().backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters()}
    model.zero_grad()
    model = model.to(device)
    y = model(x.to(device))
    y.square().sum().backward()
    torch.testing.assert_close(y.cpu(), exact, rtol=1e-3, atol=1e-4)
    for name, p in model.named_parameters():
        largest = float(gradients[name].abs().max())
        torch.testing.assert_close(p.grad.cpu(), gradients[name], rtol=1e-2, atol=1e-3 * largest + 1e-6)


def test_conversion_of_a_network_on_the_device(device: torch.device) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 5), nn.ReLU()
    )
    model = model.to(device).eval()
    x = torch.randn(2, 3, 8, 8, device=device)
    before = model(x)
    report = apical.convert_(model, "pynada", keep_function=True, example_inputs=(x,))
    assert {p.device for p in report.model.parameters()} == {x.device}
    torch.testing.assert_close(report.model(x), before, rtol=1e-4, atol=1e-5)


# ---- training ------------------------------------------------------------------------------------------------------

SPEC = {
    "data": "digits", "model": "mlp-1", "unit": "ada(alpha=0.3)", "dims": {"hidden": 16}, "epochs": 2, "batch": 128,
    "learning_rate": 0.01,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore::UserWarning:lightning_fabric.*", "ignore::UserWarning:torch.*")
@pytest.mark.parametrize("precision", ["32", "bf16-mixed", pytest.param("16-mixed", marks=HERE)])
def test_a_trial_trains_and_is_evaluated(device: torch.device, tmp_path: Path, precision: str) -> None:
    pytest.importorskip("lightning_fabric", reason="needs the laboratory: pip install 'apical[lab]'")
    from apical.train import Execution, TrialSpec, evaluate, run

    if precision == "16-mixed" and device.type == "cpu":
        pytest.skip("the CPU has no such mode")
    spec = TrialSpec(**SPEC, precision=precision, clip=1.0)
    where = Execution(device=device.type, threads=1)
    result = run(spec, where, tmp_path / "trial")
    assert result.history[-1]["loss"] < result.history[0]["loss"]
    assert evaluate(result).scores["accuracy"] > 0.5
    if precision == "32":
        plain = run(spec, Execution(device="cpu", threads=1), tmp_path / "plain")
        assert [h["loss"] for h in result.history] == pytest.approx([h["loss"] for h in plain.history], rel=1e-2)


@pytest.mark.filterwarnings("ignore::UserWarning:lightning_fabric.*", "ignore::UserWarning:torch.*")
def test_a_trial_goes_on_from_its_checkpoint(device: torch.device, tmp_path: Path) -> None:
    pytest.importorskip("lightning_fabric", reason="needs the laboratory: pip install 'apical[lab]'")
    from apical.train import Execution, TrialSpec, run

    spec, where = TrialSpec(**SPEC), Execution(device=device.type, threads=1)
    whole = run(spec, where, tmp_path / "whole")

    class Enough(Exception):
        pass

    def leave(event: object) -> None:
        raise Enough

    folder = tmp_path / "cut"
    with pytest.raises(Enough):
        run(spec, replace(where, checkpoint_every=0.0), folder, callbacks=(leave,))
    again = run(spec, where, folder)
    assert [h["loss"] for h in again.history] == pytest.approx([h["loss"] for h in whole.history], rel=1e-4)


def test_batches_come_to_the_device_in_the_layout_asked_for(device: torch.device) -> None:
    data = pytest.importorskip("apical.data", reason="needs the laboratory: pip install 'apical[lab]'").load("digits")
    from apical.train.session import Feed

    for place in (device, torch.device("meta")):
        for limit in (True, False):
            feed = Feed(data.train, 50, device=place, channels_last=True, seed=1)
            feed.in_memory = limit
            inputs, labels = next(iter(feed.epoch(0)))
            assert inputs.device == labels.device == torch.empty(0, device=place).device
            assert inputs.is_contiguous(memory_format=torch.channels_last)
