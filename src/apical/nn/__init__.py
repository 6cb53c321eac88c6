"""Modules: activations with fixed or learned parameters, pyramidal neurons, and Unit, which names them all."""

from apical.nn.activations import ADA, RBF, Dendrite, LeakyADA, Swish, no_weight_decay
from apical.nn.evolution import evolve_
from apical.nn.initialisation import initialise_
from apical.nn.kinds import register_unit
from apical.nn.layers import Layers, Neuron
from apical.nn.pyramidal import PyramidalConv1d, PyramidalConv2d, PyramidalConv3d, PyramidalLinear
from apical.nn.unit import Unit

__all__ = [
    "ADA",
    "RBF",
    "Dendrite",
    "Layers",
    "LeakyADA",
    "Neuron",
    "PyramidalConv1d",
    "PyramidalConv2d",
    "PyramidalConv3d",
    "PyramidalLinear",
    "Swish",
    "Unit",
    "evolve_",
    "initialise_",
    "no_weight_decay",
    "register_unit",
]
