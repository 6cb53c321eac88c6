"""Convert a ResNet-18 to pyramidal neurons; its outputs stay. Run: python examples/pyramidal_resnet.py [image size]"""

import sys

import torch

from apical import convert_, models

SIZE = int(sys.argv[1]) if len(sys.argv) > 1 else 64


def parameters(model: torch.nn.Module) -> str:
    """How many, in millions."""
    return f"{sum(p.numel() for p in model.parameters()) / 1e6:.1f} million parameters"


x = torch.randn(2, 3, SIZE, SIZE)
model = models.create("resnet-18", "relu", seed=0, stem=64, outputs=200).eval()  # or load trained weights here
before = model(x)
print("ReLU:", parameters(model))

report = convert_(model, "pynada(alpha=0.3)", keep_function=True)  # apical branches start at zero
print(report)
print("pyramidal:", parameters(model))
print(f"the output has changed by {(model(x) - before).abs().max():.1e}")

model.train()
model(x).square().mean().backward()
apical = [layer for layer in model.modules() if hasattr(layer, "apical_weight")]
arrived = all(p.grad is not None for p in model.parameters())
print(f"{len(apical)} pyramidal layers; every parameter has a gradient: {arrived}")

longer = models.create("resnet-18", "pynada(alpha=0.3)", seed=0, stem=64, outputs=200, skip="apical")
print("longer apical dendrites instead of skips:", parameters(longer))
