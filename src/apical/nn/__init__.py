"""Modules: activations with fixed or learned parameters, pyramidal neurons, and Unit, which names them all.

The public names, loaded when first used: the descriptors of kinds and Unit do not need torch.
"""

from typing import TYPE_CHECKING

from apical import imports

if TYPE_CHECKING:
    from apical.nn.activations import ADA as ADA
    from apical.nn.activations import RBF as RBF
    from apical.nn.activations import Dendrite as Dendrite
    from apical.nn.activations import Elementwise as Elementwise
    from apical.nn.activations import LeakyADA as LeakyADA
    from apical.nn.activations import Swish as Swish
    from apical.nn.activations import no_weight_decay as no_weight_decay
    from apical.nn.evolution import evolve_ as evolve_
    from apical.nn.initialisation import calculate_gain as calculate_gain
    from apical.nn.initialisation import initialise_ as initialise_
    from apical.nn.initialisation import scale_to_data_ as scale_to_data_
    from apical.nn.kinds import Kind as Kind
    from apical.nn.kinds import Parameter as Parameter
    from apical.nn.kinds import register_unit as register_unit
    from apical.nn.layers import Layers as Layers
    from apical.nn.layers import Neuron as Neuron
    from apical.nn.pyramidal import PyramidalConv1d as PyramidalConv1d
    from apical.nn.pyramidal import PyramidalConv2d as PyramidalConv2d
    from apical.nn.pyramidal import PyramidalConv3d as PyramidalConv3d
    from apical.nn.pyramidal import PyramidalLinear as PyramidalLinear
    from apical.nn.unit import Unit as Unit

_HOME = {
    "ADA": "activations.ADA",
    "RBF": "activations.RBF",
    "Dendrite": "activations.Dendrite",
    "Elementwise": "activations.Elementwise",
    "Kind": "kinds.Kind",
    "Layers": "layers.Layers",
    "LeakyADA": "activations.LeakyADA",
    "Neuron": "layers.Neuron",
    "Parameter": "kinds.Parameter",
    "PyramidalConv1d": "pyramidal.PyramidalConv1d",
    "PyramidalConv2d": "pyramidal.PyramidalConv2d",
    "PyramidalConv3d": "pyramidal.PyramidalConv3d",
    "PyramidalLinear": "pyramidal.PyramidalLinear",
    "Swish": "activations.Swish",
    "Unit": "unit.Unit",
    "calculate_gain": "initialisation.calculate_gain",
    "evolve_": "evolution.evolve_",
    "initialise_": "initialisation.initialise_",
    "no_weight_decay": "activations.no_weight_decay",
    "register_unit": "kinds.register_unit",
    "scale_to_data_": "initialisation.scale_to_data_",
}

__all__ = [*_HOME]  # noqa: PLE0604
__getattr__ = imports.lazy(__name__, _HOME)
