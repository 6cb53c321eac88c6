"""Networks with ADA in the runtimes they are exported to: the formula made of clamps against the same made of `where`.

python benchmarks/runtimes.py [--rounds 15]

Measures in every runtime that is installed, on one thread: ONNX Runtime (`pip install onnxruntime onnxscript`),
OpenVINO (`pip install openvino`) and ExecuTorch with XNNPACK (`pip install executorch`).
"""

import argparse
import importlib.util
import io
from collections.abc import Callable, Iterator

import torch
from torch import Tensor, nn

from apical import ADA
from apical.bench import interleaved, ratio
from apical.kernels import composite

Exported = tuple[Callable[[], object], str]


def with_where(x: Tensor) -> Tensor:
    """max(0, x) held at the same bound, without a clamp."""
    flat = composite._FLAT[x.dtype]
    return torch.where(x < 0, torch.zeros_like(x), torch.where(x > flat, torch.full_like(x, flat), x))


def cases() -> dict[str, tuple[nn.Module, Tensor]]:
    torch.manual_seed(0)
    affine = [nn.Linear(256, 512), nn.Linear(512, 512), nn.Linear(512, 10)]
    convolutions = [nn.Conv2d(3, 32, 3), nn.Conv2d(32, 64, 3, stride=2), nn.Conv2d(64, 64, 3, stride=2)]
    return {
        "three affine layers, batch 64": (network(affine), torch.randn(64, 256)),
        "three convolutions at 32x32, batch 8": (network(convolutions), torch.randn(8, 3, 32, 32)),
        "ADA alone, 64x64x32x32": (ADA(alpha=0.5), torch.randn(64, 64, 32, 32)),
    }


def network(layers: list[nn.Module]) -> nn.Module:
    return nn.Sequential(*(part for layer in layers for part in (layer, ADA(alpha=0.5)))).eval()


def onnxruntime(model: nn.Module, x: Tensor) -> Exported:
    import onnxruntime as runtime  # noqa: PLC0415

    program = torch.onnx.export(model, (x,), dynamo=True, verbose=False)
    file = io.BytesIO()
    program.save(file)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(file.getvalue(), options, providers=["CPUExecutionProvider"])
    inputs = {session.get_inputs()[0].name: x.numpy()}
    return lambda: session.run(None, inputs), f"{len(program.model_proto.graph.node)} nodes"


def openvino(model: nn.Module, x: Tensor) -> Exported:
    import openvino as runtime  # noqa: PLC0415

    converted = runtime.convert_model(torch.export.export(model, (x,)))
    settings = {"INFERENCE_NUM_THREADS": 1, "INFERENCE_PRECISION_HINT": "f32"}
    request = runtime.Core().compile_model(converted, "CPU", settings).create_infer_request()
    array = x.numpy()
    return lambda: request.infer([array], share_inputs=True), f"{len(list(converted.get_ops()))} operations"


def executorch(model: nn.Module, x: Tensor) -> Exported:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner  # noqa: PLC0415
    from executorch.exir import to_edge_transform_and_lower  # noqa: PLC0415
    from executorch.runtime import Runtime  # noqa: PLC0415

    edge = to_edge_transform_and_lower(torch.export.export(model, (x,)), partitioner=[XnnpackPartitioner()])
    calls = [str(n.target) for n in edge.exported_program().graph.nodes if n.op == "call_function"]
    delegates = sum("call_delegate" in call for call in calls)
    outside = sum("call_delegate" not in call and "getitem" not in call for call in calls)
    program = Runtime.get().load_program(edge.to_executorch().buffer)
    method = program.load_method("forward")
    work: Callable[[], object] = lambda: (program, method.execute([x]))  # the program owns the method  # noqa: E731
    return work, f"{delegates} delegates, {outside} operations outside"


RUNTIMES = {"onnxruntime": onnxruntime, "openvino": openvino, "executorch": executorch}


def both(
    export: Callable[[nn.Module, Tensor], Exported], model: nn.Module, x: Tensor
) -> Iterator[tuple[str, Exported]]:
    clamps = composite._positive_part
    for name, positive_part in (("where", with_where), ("clamps", clamps)):
        composite._positive_part = positive_part
        try:
            yield name, export(model, x)
        finally:
            composite._positive_part = clamps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    torch.set_num_threads(1)
    print("| runtime | case | with `where` | with clamps | time, where / clamps |\n|---|---|---|---|---|")
    for name, export in RUNTIMES.items():
        if importlib.util.find_spec(name) is None:
            continue
        for case, (model, x) in cases().items():
            exported = dict(both(export, model, x))
            times = interleaved({key: work for key, (work, _) in exported.items()}, rounds=rounds)
            sizes = " | ".join(size for _, size in exported.values())
            figures = "{:.2f} ({:.2f} to {:.2f})".format(*ratio(times, "where", "clamps"))
            print(f"| {name} | {case} | {sizes} | {figures} |", flush=True)


if __name__ == "__main__":
    main()
