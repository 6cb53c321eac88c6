"""A pyramidal LeNet as an ONNX file, run without torch. Run: python examples/onnx_export.py [file]"""

import logging
import sys
import warnings
from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch

from apical import models

file = Path(sys.argv[1] if len(sys.argv) > 1 else "lenet.onnx")
model = models.create("lenet", "pynada(alpha=0.7)", seed=0).eval()
x = torch.randn(4, 1, 32, 32)
batch = torch.export.Dim("batch")
logging.getLogger("torch.onnx").setLevel(logging.ERROR)  # torch warns that torchvision is missing, which is not needed
warnings.filterwarnings("ignore", message=".*LeafSpec", category=FutureWarning)  # torch about its own code
torch.onnx.export(model, (x,), file, dynamo=True, dynamic_shapes=({0: batch},), external_data=False, verbose=False)

graph = onnx.load(file).graph
print(f"{file.name}: {file.stat().st_size / 1e3:.0f} kB, plain ONNX operators, none of them custom:")
print("  " + ", ".join(f"{count} {name}" for name, count in Counter(node.op_type for node in graph.node).most_common()))

session = onnxruntime.InferenceSession(file)
for count in (4, 1, 9):  # any batch size
    inputs = torch.randn(count, 1, 32, 32)
    (outputs,) = session.run(None, {session.get_inputs()[0].name: inputs.numpy()})
    difference = np.abs(outputs - model(inputs).detach().numpy()).max()
    print(f"batch of {count}: onnxruntime and torch differ by {difference:.1e}")
