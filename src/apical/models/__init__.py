"""The paper's networks, each written once for every kind of neuron; users register their own beside them."""

from apical.models import char_cnn, lenet, mlp, resnet, vgg  # noqa: F401  (each registers its networks)
from apical.models.registry import create, register, takes_unit, unit_for
from apical.models.registry import names as list  # noqa: A004
from apical.models.summary import Row, Summary, summary

__all__ = ["Row", "Summary", "create", "list", "register", "summary", "takes_unit", "unit_for"]
