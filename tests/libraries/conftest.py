"""Other libraries have an environment of their own, `make test-libraries`: nothing here is collected elsewhere."""

from importlib.util import find_spec

import torch

if find_spec("monai") is None:
    collect_ignore_glob = ["test_*.py"]

# torchvision loads beside the CPU build of torch once these two operators exist, and as long as they do.
OPERATORS = torch.library.Library("torchvision", "FRAGMENT")
if find_spec("monai") is not None:
    for name in ("nms", "qnms"):
        OPERATORS.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
