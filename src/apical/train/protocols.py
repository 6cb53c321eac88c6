"""How the paper trains each network on each data set; values that it leaves out are those of its authors' code."""

from typing import Any

_SMALL: dict[str, Any] = {"epochs": 30, "batch": 64, "learning_rate": 1e-3, "milestones": (15,)}
_PADDED = {"pad": 2}  # 28 x 28 pixels become 32 x 32
_TEXT: dict[str, Any] = {"epochs": 50, "batch": 128, "learning_rate": 5e-4, "loss": "binary"}
_CURVE: dict[str, Any] = {
    "epochs": 50,
    "passes": 100,  # 5,000 steps: the batch is the whole curve
    "batch": 1000,
    "learning_rate": 1e-2,
    "loss": "mse",
    "metric": "mse",
}

_LOGIC: dict[str, Any] = {
    "epochs": 20,
    "passes": 100,  # 2,000 steps: the batch is the four points
    "batch": 4,
    "learning_rate": 1e-2,
    "loss": "squared",
}

PROTOCOLS: dict[tuple[str, str], dict[str, Any]] = {
    ("fashion-mnist", "mlp-1"): _SMALL,
    ("fashion-mnist", "mlp-2"): _SMALL,
    ("fashion-mnist", "lenet"): _SMALL | _PADDED,
    ("fashion-mnist", "vgg-9"): _PADDED
    | {"epochs": 100, "batch": 64, "learning_rate": 1e-4, "milestones": (50,), "l2": 5e-4},
    ("moroco", "char-cnn"): _TEXT,
    ("moroco", "char-cnn-se"): _TEXT,
    ("utkface-gender", "resnet-50"): {"epochs": 15, "batch": 10, "learning_rate": 1e-4},
    ("utkface-age", "resnet-50"): {
        "epochs": 100,
        "batch": 10,
        "learning_rate": 1e-4,
        "loss": "l1",
        "metric": "mae",
    },
    ("crema-d", "resnet-18"): {"epochs": 70, "batch": 16, "learning_rate": 5e-4, "augment": True},
    ("tiny-imagenet", "resnet-18"): {"epochs": 120, "batch": 200, "learning_rate": 1e-3},
    ("imagenet", "resnet-50"): {"epochs": 300, "batch": 800, "learning_rate": 1e-4, "metric": "top-5"},
    ("sin", "mlp-approx"): _CURVE,
    ("sinc", "mlp-approx"): _CURVE,
    ("xor", "neuron"): _LOGIC,
    ("and", "neuron"): _LOGIC,
    ("or", "neuron"): _LOGIC,
}


def settings(data: str, model: str) -> dict[str, Any]:
    """The settings of the paper's protocol, or none where it has no such trial."""
    return dict(PROTOCOLS.get((data, model), {}))
