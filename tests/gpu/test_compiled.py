"""The Triton kernels compiled ahead of time, as a launch on each GPU would compile them, and evaluated on the CPU.

What the compiler made is read for vector width, registers, spills and bytes; the PTX is evaluated for values, bounds
and how often every element is read and written. Not a substitute for a GPU: timing, caches and launch are not covered.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

triton = pytest.importorskip("triton", reason="needs Triton: run `make test-triton`")

from ptx import Memory, evaluate  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.runtime import driver  # noqa: E402

from apical.kernels import composite, eager  # noqa: E402
from apical.kernels import triton as kernels  # noqa: E402

if kernels.INTERPRETED:
    pytest.skip("compiles the kernels, so TRITON_INTERPRET must not be set", allow_module_level=True)

TARGETS = {
    "sm_75": GPUTarget("cuda", 75, 32),
    "sm_80": GPUTarget("cuda", 80, 32),
    "sm_90": GPUTarget("cuda", 90, 32),
    "sm_100": GPUTarget("cuda", 100, 32),
    "gfx90a": GPUTarget("hip", "gfx90a", 64),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}
NVIDIA = [name for name, target in TARGETS.items() if target.backend == "cuda"]
REGISTERS = {"cuda": 64, "hip": 96}  # a thread: half of the warps or waves that fit into a multiprocessor, at least
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 2**-8, torch.float16: 2**-10}


class Device:
    """What Triton asks of a driver before it compiles: which GPU is there."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get_current_device(self) -> int:
        return 1000 + list(TARGETS).index(self.name)  # no real one

    def get_current_stream(self, device: int = 0) -> int:
        return 0

    def get_current_target(self) -> GPUTarget:
        return TARGETS[self.name]


class Launch(NamedTuple):
    """A kernel as it would have been launched."""

    compiled: Any
    programs: int
    values: list[Any]


Launches = list[Launch]


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Launches]:
    """Calls to the kernels from here on are compiled for that GPU, and evaluated unless told otherwise."""

    def use(name: str, *, evaluated: bool = True) -> Launches:
        if torch.version.hip and TARGETS[name].backend == "cuda":
            pytest.skip("the Triton of torch's ROCm wheels may not compile for NVIDIA")
        launches: Launches = []

        def launch(kernel: Any, programs: int, *arguments: Any, **settings: Any) -> None:
            compiled = kernel.warmup(*arguments, **settings, num_warps=kernels.WARPS, grid=(programs,))
            kinds = compiled.src.signature
            values = [v for v, kind in zip(arguments, kinds.values(), strict=False) if kind != "constexpr"]
            launches.append(Launch(compiled, programs, values))
            if evaluated:
                run(launches[-1])

        monkeypatch.setattr(driver, "_active", Device(name))
        monkeypatch.setattr(kernels, "WARPS", 128 // TARGETS[name].warp_size)
        monkeypatch.setattr(kernels, "_launch", launch)
        return launches

    return use


def run(launch: Launch) -> None:
    """Evaluate all programs; every element of x, g, y and gx is read or written exactly as often as it must be."""
    memory = Memory()
    tensors = {id(v): v for v in launch.values if isinstance(v, Tensor)}
    addresses = {key: memory.add(flat(v)) for key, v in tensors.items()}
    values = [addresses.get(id(v), v) for v in launch.values]
    evaluate(launch.compiled.asm["ptx"], [*values, 0, 0], memory, range(launch.programs), launch.programs)
    names = [name for name, kind in launch.compiled.src.signature.items() if kind != "constexpr"]
    for key, reads, writes in zip(tensors, memory.reads, memory.writes, strict=True):
        roles = {name for name, v in zip(names, launch.values, strict=True) if id(v) == key}
        if "x" in roles or ("g" in roles and len(reads) > 4):
            assert (reads == 1).all(), f"{roles}: read {reads.min()} to {reads.max()} times"
        if roles & {"y", "gx"} or (roles == {"partial"}):
            assert (writes == 1).all(), f"{roles}: written {writes.min()} to {writes.max()} times"
            assert not reads.any() or "x" in roles
        else:
            assert not writes.any(), f"{roles} is written to"


def flat(tensor: Tensor) -> Tensor:
    """A dense tensor as it stands in memory; one element of a tensor that repeats it."""
    size = tensor.numel() if any(tensor.stride()) else 1
    return tensor.detach().as_strided((size,), (1,))


# ---- what a call is made of ----------------------------------------------------------------------------------------

SHAPES = {"columns": (64, 128), "runs": (8, 64, 8, 8), "odd columns": (7, 6, 5), "odd runs": (3, 6, 37)}
"""Channels along dimension 1, side by side in memory or in runs; sizes that vectors divide, and that they don't."""


def parameters(kind: str, channels: int) -> tuple[Any, Any]:
    count = {"number": 0, "one": 1, "each": channels}[kind]
    return (torch.linspace(0.3, 1.5, count), torch.linspace(0.5, -0.5, count)) if count else (0.7, 0.3)


def operation(name: str, leak: float = 0.0, groups: int = 1, dim: int = 1) -> Any:
    return eager.Ada(leak, dim=dim) if name == "ada" else eager.Pyramidal(leak, 0.0, dim, leak, groups)


def passes(
    name: str, kind: str, x: Tensor, leak: float = 0.0, groups: int = 1, g: Tensor | None = None
) -> list[Tensor]:
    """The output and the gradients by the kernels, which compute only where launches are evaluated."""
    call = operation(name, leak, groups)
    values = parameters(kind, x.shape[1] // (1 + (name == "pyramidal")))
    bound = call.bind(x, *values, kernels)
    y = call.forward(x, bound)
    g = torch.linspace(0.25, 1, y.numel()).view(y.shape).to(y.dtype) if g is None else g.expand(y.shape)
    return [y, *(v for v in call.backward(x, g, bound, (kind != "number",) * 2) if v is not None)]


def oracle(
    name: str, kind: str, x: Tensor, leak: float = 0.0, groups: int = 1, g: Tensor | None = None
) -> list[Tensor]:
    """The same by the composite in float64."""
    call = operation(name, leak, groups)
    values = parameters(kind, x.shape[1] // (1 + (name == "pyramidal")))
    leaves = [v.double().requires_grad_() if isinstance(v, Tensor) else v for v in (x, *values)]
    y = call.composite(*leaves)
    g = torch.linspace(0.25, 1, y.numel()).view(y.shape).to(x.dtype) if g is None else g.expand(y.shape)
    return [y.detach(), *torch.autograd.grad(y, [v for v in leaves if isinstance(v, Tensor)], g.double())]


def example(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 3).to(dtype)


# ---- read from what the compiler made ------------------------------------------------------------------------------

STATIC = [
    (name, kind, shape, dtype)
    for name in ("ada", "pyramidal")
    for kind, shape in (("number", "runs"), ("one", "runs"), ("each", "columns"), ("each", "runs"))
    for dtype in (torch.float32, torch.bfloat16)
] + [("ada", "number", "runs", torch.float16), ("pyramidal", "each", "columns", torch.float16)]
ACCESSES = {("ada", 0): 2, ("ada", 1): 3, ("pyramidal", 0): 3, ("pyramidal", 1): 5}
"""Elements that a pass must read and write for each output: x, y; x, g, gx; two x, y; two x, g, two gx."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(("name", "kind", "shape", "dtype"), STATIC)
def test_bytes_vectors_registers_and_spills(
    on: Callable[..., Launches], tmp_path: Path, target: str, name: str, kind: str, shape: str, dtype: torch.dtype
) -> None:
    launches = on(target, evaluated=False)
    passes(name, kind, torch.zeros(SHAPES[shape], dtype=dtype))
    assert len(launches) == 2
    moved = 0.0
    for index, launch in enumerate(launches):
        vectors, others = accesses(launch.compiled.asm)
        per_output = vectors * 16 * 128 / kernels.BLOCK
        assert per_output == ACCESSES[name, index] * dtype.itemsize
        assert kind != "number" or others == 0  # whatever is not a vector is a parameter or a partial sum
        registers, spilled = resources(launch.compiled.asm, tmp_path)
        assert spilled == 0
        assert registers <= REGISTERS[TARGETS[target].backend]
        moved += per_output
    assert moved == {"ada": 20, "pyramidal": 32}[name] * dtype.itemsize / 4


def accesses(asm: dict[str, Any]) -> tuple[int, int]:
    """Instructions that load or store 16 bytes a thread in device memory, and those that move another number."""
    if "ptx" in asm:
        widths = re.findall(r"\b(?:ld|st)\.global[\w.]*?(\.v\d)?\.(b\d+)", asm["ptx"])
        sizes = [int(vector[2:] or 1) * int(kind[1:]) // 8 for vector, kind in ((v or ".v1", k) for v, k in widths)]
    else:
        widths = re.findall(r"\b(?:buffer|global|flat)_(?:load|store)_(\w+)", asm["amdgcn"])
        sizes = [{"dwordx4": 16, "dwordx2": 8, "dword": 4}.get(width, 2) for width in widths]
    return sizes.count(16), len(sizes) - sizes.count(16)


def resources(asm: dict[str, Any], folder: Path) -> tuple[int, int]:
    """Registers of a thread, and bytes that it keeps in memory for want of them."""
    if "amdgcn" in asm:
        text = asm["amdgcn"]
        spilled = [int(v) for v in re.findall(r"\.(?:[sv]gpr_spill_count|private_segment_fixed_size):\s+(\d+)", text)]
        assert len(spilled) == 3
        return int(re.findall(r"\.vgpr_count:\s+(\d+)", text)[0]), sum(spilled)
    (folder / "kernel.cubin").write_bytes(asm["cubin"])
    tool = triton.knobs.nvidia.cuobjdump.path
    text = subprocess.run(
        [tool, "-res-usage", folder / "kernel.cubin"], capture_output=True, text=True, check=True
    ).stdout
    usage = {key: int(value) for key, value in re.findall(r"(REG|STACK|LOCAL):(\d+)", text)}
    return usage["REG"], usage["STACK"] + usage["LOCAL"]


# ---- evaluated -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", NVIDIA)
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("kind", ["number", "one", "each"])
@pytest.mark.parametrize("name", ["ada", "pyramidal"])
def test_ptx_gives_the_values_of_the_composite(
    on: Callable[..., Launches], target: str, dtype: torch.dtype, kind: str, name: str
) -> None:
    on(target)
    for shape in SHAPES.values() if target == "sm_80" else (SHAPES["columns"], SHAPES["odd runs"]):
        agree(name, kind, example(shape, dtype))


def agree(name: str, kind: str, x: Tensor, *rest: Any) -> None:
    ours, exact = passes(name, kind, x, *rest), oracle(name, kind, x, *rest)
    assert ours[0].dtype == ours[1].dtype == x.dtype
    for i, (a, b) in enumerate(zip(ours, exact, strict=True)):
        bound = TOLERANCE[x.dtype] if i < 2 else 1e-5  # the sums are in float32
        torch.testing.assert_close(a.double(), b, rtol=bound, atol=bound * float(b.abs().max()))


@pytest.mark.parametrize("leak", [0.0, 0.2])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("kind", ["number", "each"])
def test_groups_leaks_and_layouts(on: Callable[..., Launches], kind: str, groups: int, leak: float) -> None:
    on("sm_80")
    for shape in ((5, 16), (2, 8, 3, 40), (2, 8, 3, 5), (33, 8)):
        agree("pyramidal", kind, example(shape, torch.float32), leak, groups)
    last = example((2, 16, 5, 7), torch.float32).to(memory_format=torch.channels_last)
    y = passes("pyramidal", kind, last, leak, groups)[0]
    assert y.is_contiguous(memory_format=torch.channels_last)
    agree("pyramidal", kind, last, leak, groups)
    agree("ada", kind, last, leak)
    agree("ada", kind, example((6, 8, 10), torch.float32)[:, ::2, 1:], leak)  # gaps: one copy
    agree("ada", kind, example((4, 6, 8), torch.float32), leak, 1, torch.tensor(3.0))  # one upstream value for all


def test_special_values(on: Callable[..., Launches]) -> None:
    on("sm_80")
    edge = [0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e30, -1e30, 3e38, 1e-40, 88.0, 200.0]
    x = torch.tensor(edge).repeat(2, 3)
    for leak in (0.0, 0.01):
        call = eager.Ada(leak)
        bound = call.bind(x, 1.0, 0.5, kernels)
        y, gx = call.forward(x, bound)[0, : len(edge)], call.backward(x, torch.ones_like(x), bound, (False, False))[0]
        wide = torch.tensor(edge, dtype=torch.float64)
        torch.testing.assert_close(
            y.double(), composite.ada(wide, 1.0, 0.5, leak), rtol=1e-6, atol=1e-30, equal_nan=True
        )
        slope = torch.where(wide < 0, leak, torch.exp(0.5 - wide.clamp(0, 1e16)) * (1 - wide.clamp(0, 1e16)))
        torch.testing.assert_close(gx[0, : len(edge)].double(), slope, rtol=1e-6, atol=1e-30, equal_nan=True)


@pytest.mark.parametrize("shape", [(0, 4), (4, 0), (1, 1), (1, 2), (1025, 1)])
def test_empty_and_tiny_tensors(on: Callable[..., Launches], shape: tuple[int, int]) -> None:
    launches = on("sm_80")
    x = example(shape, torch.float32)
    for kind in ("number", "one"):
        ours, exact = passes("ada", kind, x), oracle("ada", kind, x)
        for a, b in zip(ours, exact, strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-5, atol=1e-6)
    assert (not launches) == (x.numel() == 0)


@pytest.mark.parametrize("name", ["ada", "pyramidal"])
def test_many_blocks_in_a_program(on: Callable[..., Launches], monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(kernels, "PROGRAMS", 3)
    launches = on("sm_80")
    for kind in ("one", "each"):
        for shape in ((150, 128), (70, 4, 150), (9, 2, 4000)):
            agree(name, kind, example(shape, torch.float32))
    assert max(launch.programs for launch in launches[1::2]) <= 4
    once, again = (passes(name, "each", example((150, 128), torch.float32)) for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(once, again, strict=True))


@pytest.mark.parametrize("name", ["ada", "pyramidal"])
@pytest.mark.parametrize("kind", ["number", "each"])
def test_places_beyond_32_bits(on: Callable[..., Launches], name: str, kind: str) -> None:
    """The last programs of tensors that no memory here holds: only what they touch is kept."""
    launches = on("sm_80", evaluated=False)
    rows, half = 2**20 + 1, 4096
    size = half * (1 + (name == "pyramidal"))
    x = torch.empty(rows, size, dtype=torch.bfloat16, device="meta")
    call, values = operation(name), parameters(kind, half)
    bound = call.bind(x, *values, kernels)
    y = call.forward(x, bound)
    assert x.numel() > 2**31
    call.backward(x, y, bound, (False, False))
    last = example((1, size), torch.bfloat16)
    forward, backward = launches
    expected = oracle(name, kind, last)
    g = torch.linspace(0.25, 1, half).view(1, half).to(last.dtype)
    results = [torch.zeros(1, half, dtype=last.dtype), torch.zeros_like(last)]
    windows = {
        "x": last,
        "g": g,
        "y": results[0],
        "gx": results[1],
        "partial": results[1],
        "alpha": values[0],
        "c": values[1],
    }
    for launch in (forward, backward):
        memory = Memory()
        names = [n for n, k in launch.compiled.src.signature.items() if k != "constexpr"]
        given = []
        for n, value in zip(names, launch.values, strict=True):
            window = windows.get(n)
            first = (rows - 1) * window.shape[1] if isinstance(window, Tensor) and window.dim() == 2 else 0
            given.append(memory.add(window, first) if isinstance(window, Tensor) else value)
        count = half // kernels.BLOCK
        programs = range(launch.programs - count, launch.programs)
        evaluate(launch.compiled.asm["ptx"], [*given, 0, 0], memory, programs, launch.programs)
    for ours, exact in zip(results, expected, strict=False):
        torch.testing.assert_close(ours.double(), exact, rtol=2**-8, atol=1e-4)


def test_the_evaluator_notices_what_it_should(on: Callable[..., Launches]) -> None:
    launches = on("sm_80", evaluated=False)
    x = torch.zeros(4096)
    kernels.ada_forward(x, kernels.bind(x, 1.0, 0.0, 0, 0.0, 0.0))
    text, numbers = launches[0].compiled.asm["ptx"], launches[0].values[2:]

    def run(size: int, offset: int = 0, twice: bool = False) -> Memory:
        memory = Memory()
        x, y = memory.add(torch.ones(size)), memory.add(torch.zeros(size))
        for _ in range(1 + twice):
            evaluate(text, [x + offset, y, *numbers, 0, 0], memory, range(4), 4)
        return memory

    assert (run(4096).writes[1] == 1).all()
    assert (run(4096, twice=True).writes[1] == 2).all()
    with pytest.raises(AssertionError, match="beyond tensor 0"):
        run(4092)
    with pytest.raises(AssertionError, match="not aligned"):
        run(4096, offset=4)
    with pytest.raises(AssertionError, match="unknown instruction"):
        evaluate(text.replace("ex2.approx", "sin.approx"), [0, 0, *numbers, 0, 0], Memory(), range(0), 4)
