"""Networks, the paper's and some others, each written once for every kind of neuron; users register their own."""

# Each module registers its networks; `list` names them in this order.
# isort: off
from apical.models import mlp, lenet, vgg, resnet, char_cnn, neuron, coordinates  # noqa: F401

# isort: on
from apical.models.registry import create, register, stacks, takes_unit, unit_for
from apical.models.registry import names as list  # noqa: A004
from apical.models.summary import LayerSummary, Summary, summary

Row = LayerSummary  # its former name

__all__ = [
    "LayerSummary",
    "Row",
    "Summary",
    "create",
    "list",
    "register",
    "stacks",
    "summary",
    "takes_unit",
    "unit_for",
]
