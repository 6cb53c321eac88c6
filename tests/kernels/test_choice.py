"""Which path serves which call, and that the paths agree."""

import os
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.flop_counter import FlopCounterMode

import apical
from apical.errors import BackendError
from apical.functional import ada
from apical.kernels import backend, choice, native

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
TOLERANCE = {
    torch.float32: {"rtol": 1e-5, "atol": 1e-7},
    torch.float64: {"rtol": 1e-12, "atol": 1e-15},
    torch.bfloat16: {"rtol": 2**-7, "atol": 1e-6},
    torch.float16: {"rtol": 2**-9, "atol": 1e-6},
}


def test_native_serves_plain_tensors_here() -> None:
    assert backend().name == "native"
    assert "OpenMP" in backend().reason
    assert choice.path(torch.ones(3)) == "native"
    assert choice.path(torch.nn.Parameter(torch.ones(3))) == "native"


class Subclass(torch.Tensor):
    """A tensor with nothing of its own."""


def test_each_reason_against_native() -> None:
    assert "Subclass" in choice.why_not_native(torch.ones(3).as_subclass(Subclass))
    assert "meta" in choice.why_not_native(torch.ones(3, device="meta"))
    assert "sparse" in choice.why_not_native(torch.eye(3).to_sparse())
    assert "complex64" in choice.why_not_native(torch.ones(3, dtype=torch.complex64))
    assert "memory" in choice.why_not_native(torch._neg_view(torch.ones(3)))
    assert "memory" in choice.why_not_native(torch._efficientzerotensor(3))


def test_every_observer_sees_the_composite() -> None:
    seen = {}
    with FakeTensorMode():
        seen["fake"] = choice.path(torch.ones(3))
    with FlopCounterMode(display=False):
        seen["flops"] = choice.path(torch.ones(3))
    with torch.device("meta"):
        seen["function mode"] = choice.path(torch.ones(3))
    with forward_ad.dual_level():
        seen["forward mode"] = choice.path(torch.ones(3))
    torch.func.vmap(lambda t: seen.setdefault("vmap", choice.path(t)) and t)(torch.ones(3))
    make_fx(lambda t: seen.setdefault("make_fx", choice.path(t)) and t)(torch.ones(3))
    assert set(seen.values()) == {"composite"}, seen
    assert choice.path(torch.ones(3)) == "native"


def test_forced_composite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APICAL_BACKEND", "composite")
    assert choice.path(torch.ones(3)) == "lean"
    assert "APICAL_BACKEND" in str(backend())


def test_forced_native_refuses_what_it_cannot_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APICAL_BACKEND", "native")
    assert ada(torch.ones(3)).shape == (3,)
    with pytest.raises(BackendError, match="Subclass, not a plain tensor; unset APICAL_BACKEND"):
        ada(torch.ones(3).as_subclass(Subclass))
    assert ada(torch.ones(3, device="meta")).device.type == "meta"
    torch.func.vmap(ada)(torch.ones(2, 3))


def test_unknown_backend_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("APICAL_BACKEND", "cuda")
    with pytest.raises(BackendError, match="APICAL_BACKEND is 'cuda', which is not a backend: set it to 'native'"):
        ada(torch.ones(3))
    with pytest.raises(BackendError, match="not a backend"):
        backend()


def test_without_the_library_plain_torch_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(native, "library", lambda: native.Library(False, "no C compiler was found"))
    assert backend() == choice.Backend("composite", "no C compiler was found")
    x = torch.randn(5, 3, requires_grad=True)
    assert choice.path(x) == "lean"
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: sizes.append(t.numel()) or t, lambda t: t):
        y = ada(x)
    assert sizes == [15]
    torch.autograd.grad(y.sum(), x)
    monkeypatch.setenv("APICAL_BACKEND", "native")
    with pytest.raises(BackendError, match="no C compiler was found"):
        ada(x)


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import nothing_of_that_name", "Triton does not import, so plain torch computes it (No module named"),
        (
            "raise RuntimeError('driver too old')",
            "Triton does not import, so plain torch computes it (RuntimeError: driver",
        ),
        ("def jit(function): return function", "Triton does not import, so plain torch computes it ("),
        (None, "Triton is not installed, so plain torch computes it"),
    ],
)
def test_without_a_triton_that_imports_everything_is_as_before(tmp_path: Path, code: str | None, reason: str) -> None:
    """In a process of its own: torch, too, remembers whether there is a Triton."""
    if code is not None:
        (tmp_path / "triton.py").write_text(code)
    script = (
        ("" if code else "import sys; sys.modules['triton'] = None\n")
        + "import torch, apical, os\n"
        + "from apical.kernels import backend, choice\n"
        + "x = torch.ones(3, requires_grad=True)\n"
        + "for wish in ('', 'triton'):\n"
        + "    os.environ['APICAL_BACKEND'] = wish\n"
        + "    apical.ADA()(x).sum().backward()\n"
        + "    assert choice.path(x) == 'native' and choice.path(x.to('meta')) == 'lean'\n"
        + "assert backend('mps').name == 'composite'\n"
        + "print(backend('cuda'))"
    )
    paths = os.pathsep.join([str(tmp_path), str(Path(apical.__file__).parents[1])])
    environment = os.environ | {"PYTHONPATH": paths}
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(f"composite: {reason}"), run.stdout


def test_a_gpu_tensor_takes_triton_where_it_imports(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no such tensor here, so one that says it is one; nothing is computed."""

    class Gpu:
        is_cpu, is_cuda, device, layout, dtype = False, True, torch.device("cuda:0"), torch.strided, torch.bfloat16

        def is_neg(self) -> bool:
            return False

        def data_ptr(self) -> int:
            return 4096

    monkeypatch.setattr(choice, "_PLAIN_TYPES", {Gpu})
    kernels = SimpleNamespace(INTERPRETED=False, DTYPES=(torch.bfloat16,))
    monkeypatch.setattr(choice, "triton", lambda: choice.Triton(kernels, "Triton"))
    assert choice.path(Gpu()) == "triton"
    monkeypatch.setattr(Gpu, "dtype", torch.float64)
    assert choice.path(Gpu()) == "lean"
    monkeypatch.setattr(Gpu, "dtype", torch.bfloat16)
    monkeypatch.setenv("APICAL_BACKEND", "composite")
    assert choice.path(Gpu()) == "lean"
    monkeypatch.setenv("APICAL_BACKEND", "native")
    assert choice.path(Gpu()) == "triton"
    monkeypatch.setenv("APICAL_BACKEND", "triton")
    monkeypatch.setattr(choice, "triton", lambda: choice.Triton(None, "Triton is not installed"))
    with pytest.raises(BackendError, match="APICAL_BACKEND=triton cannot run this call: Triton is not installed"):
        choice.path(Gpu())


def test_meta_tensors_and_subclasses_give_the_right_thing() -> None:
    assert ada(torch.ones(2, 3, device="meta", requires_grad=True)).shape == (2, 3)
    special = torch.ones(3).as_subclass(Subclass)
    assert isinstance(ada(special), Subclass)
    torch.testing.assert_close(torch.Tensor(ada(special)), ada(torch.ones(3)))
    torch.testing.assert_close(ada(torch._neg_view(torch.ones(3))), torch.zeros(3))
    with FakeTensorMode():
        fake = torch.randn(3, requires_grad=True)
        assert ada(fake).shape == (3,)
        torch.autograd.grad(ada(fake).sum(), fake)
    with FlopCounterMode(display=False):
        x = torch.ones(3, requires_grad=True)
        ada(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.zeros(3))


def test_observer_in_the_backward_pass_only() -> None:
    x = torch.full((3,), 0.5, requires_grad=True)
    y = ada(x)
    with FlopCounterMode(display=False):
        (observed,) = torch.autograd.grad(y, x, torch.ones(3), retain_graph=True)
    torch.testing.assert_close(observed, torch.autograd.grad(y, x, torch.ones(3))[0])


@st.composite
def strided(draw: st.DrawFn) -> torch.Tensor:
    """A tensor of any dtype, rank, size (zero included) and memory layout."""
    shape = draw(st.lists(st.integers(0, 5), min_size=0, max_size=4))
    dtype = draw(st.sampled_from(DTYPES))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**16)))
    order = draw(st.permutations(range(len(shape))))
    base = torch.randn([shape[i] * 2 for i in order], generator=generator, dtype=torch.float64) * 4
    x = base.permute([order.index(i) for i in range(len(shape))])
    x = x[tuple(slice(0, size) for size in shape)]  # gaps in memory
    if draw(st.booleans()):
        x = x.clone(memory_format=torch.preserve_format)  # dense, in the permuted order
    if shape and draw(st.booleans()):
        axis = draw(st.integers(0, len(shape) - 1))
        x = x.narrow(axis, 0, min(1, shape[axis])).expand(shape)
    return x.to(dtype)


@settings(max_examples=300, deadline=None)
@given(x=strided(), data=st.data())
def test_native_and_composite_agree(x: torch.Tensor, data: st.DataObject) -> None:
    dim = data.draw(st.integers(-x.dim(), x.dim() - 1)) if x.dim() else 1
    leak = data.draw(st.sampled_from([0.0, 0.01]))
    channels = x.shape[dim] if x.dim() else 1
    kinds = st.sampled_from(["number", "one", "per channel"] if channels else ["number", "one"])
    values = []
    for low, high in ((0.1, 3.0), (-2.0, 2.0)):
        kind = data.draw(kinds)
        size = channels if kind == "per channel" and x.dim() else 1
        tensor = torch.linspace(low, high, size, dtype=torch.float64).requires_grad_()
        values.append(low if kind == "number" else tensor)
    results = {}
    for name in ("native", "composite"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("APICAL_BACKEND", name)
            leaf = x.detach().requires_grad_()
            y = ada(leaf, *values, leak, dim=dim)
            targets = [leaf, *(v for v in values if isinstance(v, torch.Tensor))]
            results[name] = (y.detach(), *torch.autograd.grad(y, targets, torch.ones_like(y)))
    for ours, oracle in zip(results["native"], results["composite"], strict=True):
        assert ours.shape == oracle.shape
        bounds = TOLERANCE[x.dtype] if ours.dim() == x.dim() and ours.dtype == x.dtype else {"rtol": 1e-4, "atol": 1e-4}
        torch.testing.assert_close(ours, oracle, **bounds)


@pytest.mark.parametrize("dtype", DTYPES)
def test_channels_last_needs_no_copy(dtype: torch.dtype) -> None:
    x = torch.randn(2, 5, 3, 4).to(dtype).to(memory_format=torch.channels_last).requires_grad_()
    alpha = torch.linspace(0.2, 2.0, 5, requires_grad=True)
    y = ada(x, alpha)
    assert y.is_contiguous(memory_format=torch.channels_last)
    torch.testing.assert_close(y.detach(), ada(x.detach().contiguous(), alpha.detach()), **TOLERANCE[dtype])
    gx, _ = torch.autograd.grad(y, (x, alpha), torch.ones_like(y))
    assert gx.is_contiguous(memory_format=torch.channels_last)
    assert native.is_dense(x.detach())


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_results_do_not_depend_on_the_number_of_threads(threads: int) -> None:
    x = torch.randn(7, 33, 401, generator=torch.Generator().manual_seed(0), requires_grad=True)
    alpha = torch.linspace(0.2, 2.0, 33, requires_grad=True)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        wanted = torch.autograd.grad(ada(x, alpha), (x, alpha), torch.ones_like(x))
        torch.set_num_threads(threads)
        found = torch.autograd.grad(ada(x, alpha), (x, alpha), torch.ones_like(x))
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(wanted, found, strict=True))


@pytest.mark.usefixtures("all_cores")
def test_several_python_threads_at_once() -> None:
    x = torch.randn(100_000, requires_grad=True)
    wanted = torch.autograd.grad(ada(x).sum(), x)[0]
    results: list[torch.Tensor] = []

    def work() -> None:
        for _ in range(10):
            leaf = x.detach().clone().requires_grad_()
            results.append(torch.autograd.grad(ada(leaf).sum(), leaf)[0])

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(results) == 40
    assert all(torch.equal(r, wanted) for r in results)


class _Dataset(torch.utils.data.Dataset[torch.Tensor]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return ada(torch.full((50_000,), float(index)))


def test_in_data_loader_workers() -> None:
    batches = list(torch.utils.data.DataLoader(_Dataset(), batch_size=4, num_workers=2))
    wanted = torch.stack([ada(torch.full((50_000,), float(i))) for i in range(8)])
    torch.testing.assert_close(torch.cat(batches), wanted)


def test_shares_the_openmp_runtime_of_torch() -> None:
    code = (
        "import torch, apical; apical.functional.ada(torch.randn(100_000))\n"
        "names = {line.split()[-1] for line in open('/proc/self/maps') if 'omp' in line.rsplit('/', 1)[-1]}\n"
        "print(*(name for name in names if 'gomp' in name or 'libomp' in name or 'iomp' in name))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert len(found) == 1, found
    assert "torch" in found[0]


def test_inference_mode_and_autocast_keep_the_dtype() -> None:
    with torch.inference_mode():
        assert ada(torch.ones(3, dtype=torch.bfloat16)).dtype == torch.bfloat16
    alpha = torch.ones(1, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for dtype in DTYPES:
            assert apical.ADA()(torch.ones(3, dtype=dtype)).dtype == dtype
            x = torch.ones(3, dtype=dtype, requires_grad=True)
            gx, ga = torch.autograd.grad(ada(x, alpha).sum(), (x, alpha))
            assert (gx.dtype, ga.dtype) == (dtype, torch.float32)
