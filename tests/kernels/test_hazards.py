"""What surrounds a call must not change its numbers: threads, forks, layouts, sizes, how often it was called."""

import gc
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
import torch

import apical
from apical import functional as F
from apical.kernels.native import PARALLEL_FROM

CHANNELS = 24
SHAPE = (64, CHANNELS, 8, 8)
assert 64 * CHANNELS * 64 > 2 * PARALLEL_FROM


@pytest.fixture(autouse=True)
def _same_number_of_threads_after():
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def case(seed, shape=SHAPE, dtype=torch.float32):
    """An input, alpha and c for each channel, and an upstream gradient."""
    draw = torch.Generator().manual_seed(seed)
    x, g = (torch.randn(shape, generator=draw).to(dtype) for _ in range(2))
    alpha, c = (torch.rand(shape[1], generator=draw) + 0.5 for _ in range(2))
    return x, alpha, c, g


def pyramidal(z, alpha, c):
    return F.pyramidal(z, alpha=alpha, c=c)


def derivatives(function, x, alpha, c, g):
    """The output and the gradients of x, alpha and c."""
    inputs = [t.detach().requires_grad_() for t in (x, alpha, c)]
    y = function(*inputs)
    return (y.detach(), *torch.autograd.grad(y, inputs, g))


def equal(one, other):
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def at_once(*jobs):
    """Run each in a thread of its own, and raise what one raised."""
    raised = []

    def guarded(job):
        try:
            job()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=guarded, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


def test_backward_from_several_threads_while_the_number_of_threads_changes():
    cases = [case(seed) for seed in range(6)]
    alone = [derivatives(F.ada, *values) for values in cases]

    def work(k):
        for _ in range(10):
            assert equal(derivatives(F.ada, *cases[k]), alone[k])

    def change():
        for k in range(200):
            torch.set_num_threads(1 + k % 4)

    at_once(change, *(lambda k=k: work(k) for k in range(len(cases))))


@pytest.mark.usefixtures("all_cores")
def test_several_threads_share_a_module_and_each_has_its_own_gradient():
    module = apical.ADA(learnable=True, num_parameters=CHANNELS)
    x, _, _, g = case(0)
    (alone,) = torch.autograd.grad(module(x), [module.alpha], g)

    def work():
        for _ in range(10):
            (seen,) = torch.autograd.grad(module(x), [module.alpha], g)
            assert torch.equal(seen, alone)

    at_once(*[work] * 6)


def test_sums_of_the_gradient_of_alpha_do_not_depend_on_timing():
    """Fifty times each for ADA and the pyramidal sum, with any number of threads, while other threads compute."""
    x, alpha, c, g = case(1)
    half = {F.ada: (alpha, c, g), pyramidal: (alpha[: CHANNELS // 2], c[: CHANNELS // 2], g[:, : CHANNELS // 2])}
    alone = {function: derivatives(function, x, *rest) for function, rest in half.items()}
    done = threading.Event()

    def disturb():
        a = torch.randn(96, 96)
        while not done.is_set():
            a = torch.tanh(a @ a)
            F.ada(x, 0.5)

    def work():
        try:
            for k in range(50):
                torch.set_num_threads(1 + k % 5)
                for function, rest in half.items():
                    assert equal(derivatives(function, x, *rest), alone[function])
        finally:
            done.set()

    at_once(work, disturb, disturb)


GRADIENTS = {
    "expanded over the batch": lambda g: g[:1].expand_as(g),
    "expanded over channels": lambda g: g[:, :1].expand_as(g),
    "one value": lambda g: g.reshape(-1)[3].expand_as(g),
    "every second of a larger one": lambda g: g.repeat_interleave(2, -1)[..., ::2],
    "the middle of a larger one": lambda g: torch.cat([g, g, g])[len(g) : 2 * len(g)],
    "a slice of wider rows": lambda g: torch.cat([g, g], -1)[..., 3 : 3 + g.shape[-1]],
    "channels last": lambda g: g.contiguous(memory_format=torch.channels_last),
    "transposed": lambda g: g.transpose(0, -1).contiguous().transpose(0, -1),
    "flipped": lambda g: g.flip(-1),
    "permuted": lambda g: g.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2),
}


@pytest.mark.parametrize("function", [F.ada, pyramidal])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("kind", GRADIENTS)
def test_the_layout_of_the_upstream_gradient_does_not_matter(function, layout, dtype, kind):
    x, alpha, c, g = case(2, (6, 4, 5, 7), dtype)
    x = x.contiguous(memory_format=layout)
    if function is pyramidal:
        alpha, c, g = alpha[:2], c[:2], g[:, :2]
    strange = GRADIENTS[kind](g)
    plain = strange.clone(memory_format=torch.contiguous_format)
    assert equal(derivatives(function, x, alpha, c, strange), derivatives(function, x, alpha, c, plain))


def test_the_gradient_of_a_sum_of_a_slice_of_a_transposed_output():
    """Gradients as autograd makes them: zeros around a slice, stride 0 behind a sum."""
    x, alpha, c, _ = case(3, (6, 4, 5, 7))
    seen = []
    for function in (lambda x: F.ada(x, alpha, c), lambda x: F.ada(x.double(), alpha.double(), c.double()).float()):
        given = x.detach().requires_grad_()
        function(given).transpose(1, 3)[1:4, ::2].sum().backward()
        seen.append(given.grad)
    torch.testing.assert_close(*seen)


FORK = """
    import os, signal, torch
    from apical import functional as F
    torch.set_num_threads(2)
    x = torch.linspace(-3, 3, 200_000).requires_grad_()
    alpha = torch.tensor([0.7], requires_grad=True)
    expected = torch.autograd.grad(F.ada(x, alpha).sum(), (x, alpha))
    child = os.fork()
    if child == 0:
        signal.alarm(100)  # a child that hangs ends, and its parent says so
        torch.set_num_threads(1)
        seen = torch.autograd.grad(F.ada(x, alpha).sum(), (x, alpha))
        os._exit(0 if all(map(torch.equal, expected, seen)) else 3)
    _, status = os.waitpid(child, 0)
    again = torch.autograd.grad(F.ada(x, alpha).sum(), (x, alpha))
    print(os.waitstatus_to_exitcode(status), all(map(torch.equal, expected, again)))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_process_that_forks_after_use_and_its_child_go_on():
    """As with torch's own operators, whose threads a child does not have: it computes with one."""
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(FORK)], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("0 True\n", "")


def resident():
    """Bytes of memory that this process holds."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory of a process is read from /proc")
@pytest.mark.parametrize("kind", ["forward", "another alpha each time", "forward and backward"])
def test_a_million_calls_leave_nothing_behind(kind):
    """Under 8 bytes a call; a hundred calls, one behind the other, share the start of their backward pass."""
    x, alpha = torch.randn(4), torch.tensor([0.7], requires_grad=True)
    given = x.clone().requires_grad_()

    def backward(_):
        y = given
        for _ in range(100):
            y = F.ada(y, alpha)
        torch.autograd.grad(y, (given, alpha), torch.ones(4))

    calls = {
        "forward": (1, lambda k: F.ada(x, 0.7)),
        "another alpha each time": (1, lambda k: F.ada(x, 0.5 + 1e-7 * k)),
        "forward and backward": (100, backward),
    }
    each, call = calls[kind]
    for k in range(20_000 // each):
        call(-k)
    before = resident()
    for k in range(1_000_000 // each):
        call(k)
    assert resident() - before < 8_000_000


def available():
    """Bytes of memory that can be had, by the machine and by the container; 0 where nobody says."""
    meminfo, limit = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")
    lines = meminfo.read_text().splitlines() if meminfo.exists() else ["MemAvailable: 0 kB"]
    free = next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable"))
    allowed = limit.read_text().strip() if limit.exists() else "max"
    return free if allowed == "max" else min(free, int(allowed))


@pytest.mark.slow
@pytest.mark.skipif(available() < 20 << 30, reason="needs 20 GiB of memory")
def test_more_than_two_to_the_31_elements():
    """Counters of 32 bits would end at 2^31: values and gradients behind it, and the sum of all of them."""
    row = torch.linspace(-4, 8, 1 << 16).bfloat16()
    rows, rest = 1 << 15, 8
    x = torch.empty(rows * len(row) + rest, dtype=torch.bfloat16)
    x[: rows * len(row)].view(rows, len(row)).copy_(row)
    x[-rest:] = 1.0
    alpha = torch.tensor([0.7], requires_grad=True)
    given = x.requires_grad_()
    y = F.ada(given, alpha)

    def check(big, small, last):
        for k in range(0, rows, 2048):
            part = big[k * len(row) : (k + 2048) * len(row)].view(-1, len(row))
            assert bool((part == small).all())
        assert bool((big[-rest:] == last).all())

    with torch.no_grad():
        check(y, F.ada(row, alpha), F.ada(torch.ones(1).bfloat16(), alpha))
    short, one = row.clone().requires_grad_(), torch.ones(1).bfloat16().requires_grad_()
    small = torch.autograd.grad(F.ada(short, alpha).sum(), (short, alpha))
    last = torch.autograd.grad(F.ada(one, alpha).sum(), (one, alpha))
    ones = y.detach().fill_(1)  # backward needs the input alone, so the output's memory serves as the gradient's
    gx, galpha = torch.autograd.grad(y, (given, alpha), ones)
    check(gx, small[0], last[0])
    torch.testing.assert_close(galpha, rows * small[1] + rest * last[1], rtol=1e-4, atol=0)
