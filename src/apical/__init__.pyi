from apical import bench as bench
from apical import data as data
from apical import errors as errors
from apical import functional as functional
from apical import keras as keras
from apical import kernels as kernels
from apical import models as models
from apical import nn as nn
from apical import report as report
from apical import stats as stats
from apical import study as study
from apical import train as train
from apical.convert import convert_ as convert_
from apical.libraries import register as register
from apical.nn import ADA as ADA
from apical.nn import RBF as RBF
from apical.nn import Dendrite as Dendrite
from apical.nn import LeakyADA as LeakyADA
from apical.nn import PyramidalConv1d as PyramidalConv1d
from apical.nn import PyramidalConv2d as PyramidalConv2d
from apical.nn import PyramidalConv3d as PyramidalConv3d
from apical.nn import PyramidalLinear as PyramidalLinear
from apical.nn import Swish as Swish
from apical.nn import Unit as Unit
from apical.nn import no_weight_decay as no_weight_decay
from apical.nn import register_unit as register_unit

__version__: str
