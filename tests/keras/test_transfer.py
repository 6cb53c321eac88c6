"""Weights between torch and Keras: the same outputs. Runs where torch is the backend of Keras."""

from typing import Any

import keras
import numpy as np
import pytest
import torch
from keras import ops
from torch import nn

import apical
from apical import errors
from apical import keras as ak

rng = np.random.default_rng(5)


def images(*shape: int) -> Any:
    return rng.normal(size=shape).astype("float32")


def torch_output(module: nn.Module, *arrays: Any) -> Any:
    """What a module with channels first gives for arrays with channels last."""
    with torch.no_grad():
        y = module(*(torch.from_numpy(np.moveaxis(a, -1, 1)) for a in arrays))
    return np.moveaxis(y.numpy(), 1, -1)


def assert_same(module: nn.Module, layer: Any, *arrays: Any) -> None:
    module.eval()
    assert ops.convert_to_numpy(layer(*arrays)) == pytest.approx(torch_output(module, *arrays), rel=1e-5, abs=1e-6)


MODULES = {
    "linear": (lambda: apical.PyramidalLinear(5, 3), [(2, 5)]),
    "linear, learned, no bias": (
        lambda: apical.PyramidalLinear(5, 3, bias=False, apical="leaky_ada(alpha=learn,alpha_init=0.3,leak=0.1)"),
        [(2, 5)],
    ),
    "linear, longer": (lambda: apical.PyramidalLinear(5, 3, apical_in_features=4, apical="rbf"), [(2, 5), (2, 4)]),
    "linear, batch norm": (lambda: apical.PyramidalLinear(5, 3, norm=nn.BatchNorm1d), [(4, 5)]),
    "conv1d, same": (lambda: apical.PyramidalConv1d(4, 6, 3, padding="same", basal="tanh"), [(2, 9, 4)]),
    "conv1d, dilated": (lambda: apical.PyramidalConv1d(4, 6, 3, dilation=2, padding=2), [(2, 9, 4)]),
    "conv2d, groups": (
        lambda: apical.PyramidalConv2d(4, 6, 3, groups=2, apical="ada(alpha=learn,scope=channel)"),
        [(2, 7, 8, 4)],
    ),
    "conv2d, groups, batch norm": (
        lambda: apical.PyramidalConv2d(4, 6, 3, groups=2, stride=2, norm=nn.BatchNorm2d, basal="leaky_relu"),
        [(2, 7, 8, 4)],
    ),
    "conv2d, longer": (
        lambda: apical.PyramidalConv2d(
            4, 6, 3, stride=2, apical_in_channels=5, apical_stride=2, norm=nn.BatchNorm2d, apical="swish"
        ),
        [(2, 7, 7, 4), (2, 5, 5, 5)],
    ),
}


@pytest.fixture(params=MODULES)
def case(request: pytest.FixtureRequest) -> tuple[nn.Module, list[Any]]:
    torch.manual_seed(3)
    make, shapes = MODULES[request.param]
    module = make()
    with torch.no_grad():  # no value at which a mistake could hide
        for tensor in (*module.parameters(), *(b for b in module.buffers() if b.is_floating_point())):
            tensor.uniform_(0.1, 1.2)
            tensor.mul_(1 if tensor.dim() == 1 else torch.randn(tensor.shape).sign())
    return module, [images(*shape) for shape in shapes]


def test_a_module_and_its_keras_layer_give_the_same(case: Any) -> None:
    module, arrays = case
    assert_same(module, ak.to_keras(module), *arrays)


def test_there_and_back_is_the_same_module(case: Any) -> None:
    module, arrays = case
    again = ak.from_keras(ak.to_keras(module))
    assert type(again) is type(module)
    for name, tensor in module.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            assert torch.equal(again.state_dict()[name], tensor), name
    module.eval(), again.eval()
    assert np.array_equal(torch_output(again, *arrays), torch_output(module, *arrays))


@pytest.mark.parametrize(
    "layer",
    [
        lambda: ak.PyramidalDense(3, apical="ada(alpha=0.3,c=1)"),
        lambda: ak.PyramidalConv1D(4, 3, padding="same", apical=ak.Swish(beta=2.0)),
        lambda: ak.PyramidalConv1D(4, 3, groups=2, norm=keras.layers.BatchNormalization),
    ],
)
def test_a_keras_layer_and_its_module_give_the_same(layer: Any) -> None:
    made, x = layer(), images(2, 8, 6)
    made(x, training=True)
    if isinstance(made, ak.PyramidalDense):
        module = ak.from_keras(made)
        with torch.no_grad():
            assert ops.convert_to_numpy(made(x)) == pytest.approx(
                module(torch.from_numpy(x)).numpy(), rel=1e-5, abs=1e-6
            )
    else:
        assert_same(ak.from_keras(made), made, x)


@pytest.mark.parametrize(
    "module",
    [
        apical.ADA(alpha=0.3, c=1.0),
        apical.ADA(alpha=0.7, learnable=True),
        apical.LeakyADA(leak=0.2, learnable=True, num_parameters=3, dim=1),
        apical.RBF(s=2.0),
        apical.Swish(beta=0.5),
        nn.LeakyReLU(0.3),
        nn.Tanh(),
        nn.ReLU(),
    ],
)
def test_activations_cross_both_ways(module: nn.Module) -> None:
    x = images(4, 3) * 3
    assert_same(module, ak.to_keras(module), x)
    assert_same(ak.from_keras(ak.to_keras(module)), ak.to_keras(module), x)


def test_what_does_not_cross_is_refused() -> None:
    with pytest.raises(errors.ConversionError, match="cannot transfer an RBF that learns s"):
        ak.to_keras(apical.RBF(learnable=True))
    with pytest.raises(errors.ConversionError, match="to_keras does not know GELU"):
        ak.to_keras(nn.GELU())
    with pytest.raises(errors.ConversionError, match="from_keras does not know gelu"):
        ak.from_keras(keras.layers.Activation("gelu"))
    with pytest.raises(errors.ConversionError, match="Keras cannot pad by \\(1, 1\\)"):
        ak.to_keras(apical.PyramidalConv2d(2, 2, 3, stride=2, padding=1))
    with pytest.raises(errors.ConversionError, match="only batch norm is transferred"):
        ak.to_keras(apical.PyramidalLinear(2, 2, norm=nn.LayerNorm))
    layer = ak.PyramidalConv2D(2, 3, strides=2, padding="same")
    layer.build((None, 6, 6, 2))
    with pytest.raises(errors.ConversionError, match="torch cannot pad 'same' at strides \\(2, 2\\)"):
        ak.from_keras(layer)
    with pytest.raises(errors.ConversionError, match="has no weights yet"):
        ak.from_keras(ak.PyramidalDense(2))
