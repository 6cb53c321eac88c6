"""What looks at the operations themselves: compile, export, ONNX, traces."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import apical
from apical.functional import ada, dendrite, pyramidal, rbf, swish

MODULES = {
    "ADA": apical.ADA(alpha=0.5, c=1.0),
    "LeakyADA": apical.LeakyADA(alpha=0.5),
    "ADA learned": apical.ADA(alpha=0.5, learnable=True),
    "ADA per channel": apical.ADA(alpha=0.5, learnable=True, num_parameters=3),
    "RBF": apical.RBF(s=2.0),
    "Swish": apical.Swish(beta=1.5),
    "Dendrite": apical.Dendrite(),
}


def example() -> torch.Tensor:
    return torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(0)) * 3


@pytest.mark.parametrize("backend", ["aot_eager", pytest.param("inductor", marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", MODULES)
def test_compile_without_a_graph_break(name: str, backend: str) -> None:
    module = MODULES[name]
    torch._dynamo.reset()
    compiled = torch.compile(module, fullgraph=True, backend=backend)
    x, z = example().requires_grad_(), example().requires_grad_()
    parameters = list(module.parameters())
    ours, theirs = compiled(x), module(z)
    torch.testing.assert_close(ours, theirs)
    g = torch.randn_like(ours)
    for a, b in zip(
        torch.autograd.grad(ours, [x, *parameters], g), torch.autograd.grad(theirs, [z, *parameters], g), strict=True
    ):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_inductor_makes_one_kernel_of_each_pass() -> None:
    from torch._inductor.utils import run_and_get_code

    torch._dynamo.reset()
    compiled = torch.compile(apical.ADA(alpha=0.5, c=0.2), fullgraph=True)
    x = torch.randn(64, 1000, requires_grad=True)
    _, codes = run_and_get_code(lambda: compiled(x).backward(torch.ones(64, 1000)))
    assert [code.count("async_compile.cpp_pybinding(") for code in codes] == [1, 1]


def test_one_graph_and_no_break() -> None:
    def function(x: torch.Tensor, alpha: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        return ada(x, alpha, c, 0.01) + pyramidal(torch.cat([x, x], 1), alpha, c)

    torch._dynamo.reset()
    explanation = torch._dynamo.explain(function)(example(), torch.ones(3), torch.zeros(3))
    assert (explanation.graph_count, explanation.graph_break_count) == (1, 0)


@pytest.mark.parametrize("name", MODULES)
def test_export(name: str) -> None:
    module = MODULES[name]
    program = torch.export.export(module, (example(),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(program.module()(x), module(x))


@pytest.mark.parametrize("name", MODULES)
def test_onnx_without_custom_operators(name: str, tmp_path: Path) -> None:
    import onnx
    import onnxruntime

    module = MODULES[name].eval()
    path = tmp_path / "model.onnx"
    torch.onnx.export(module, (example(),), path, dynamo=True, verbose=False)
    model = onnx.load(path)
    assert {node.domain for node in model.graph.node} <= {"", "ai.onnx"}
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {session.get_inputs()[0].name: example().numpy()})
    np.testing.assert_allclose(found, module(example()).detach().numpy(), rtol=1e-5, atol=1e-6)


def layers(activation: Callable[[], torch.nn.Module]) -> torch.nn.Module:
    return torch.nn.Sequential(*(part for _ in range(3) for part in (torch.nn.Linear(4, 4), activation()))).eval()


@pytest.mark.parametrize(
    ("activation", "operations"),
    [
        (lambda: apical.ADA(alpha=0.5), "Clip Mul Sub Exp Mul"),
        (lambda: apical.ADA(alpha=0.5, learnable=True), "Clip Mul Sub Exp Mul"),
        (lambda: apical.LeakyADA(alpha=0.5), "Clip Mul Sub Exp Mul Mul Relu Sub"),
        (lambda: apical.RBF(s=2.0), "Clip Mul Neg Div Exp"),
    ],
)
def test_onnx_graph_of_three_layers_has_no_operation_to_spare(
    activation: Callable[[], torch.nn.Module], operations: str
) -> None:
    program = torch.onnx.export(layers(activation), (torch.randn(2, 4),), dynamo=True, verbose=False)
    nodes = [node.op_type for node in program.model_proto.graph.node]
    assert sorted(nodes) == sorted(["Gemm", *operations.split()] * 3)


@pytest.mark.parametrize("function", [lambda x: ada(x, 0.5), dendrite, lambda x: rbf(x, 2.0), lambda x: swish(x, 1.5)])
def test_traces_give_the_right_value(function: object) -> None:
    x = example()
    wanted = function(x)
    torch.testing.assert_close(make_fx(function)(x)(x), wanted)
    torch.testing.assert_close(make_fx(function, tracing_mode="symbolic")(x)(x), wanted)
    torch.testing.assert_close(torch.jit.trace(function, (x,))(x), wanted)


def test_fx_symbolic_trace_of_a_network() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 5), *MODULES.values())
    traced = torch.fx.symbolic_trace(model)
    x = torch.randn(2, 3, 4)
    torch.testing.assert_close(traced(x), model(x))
