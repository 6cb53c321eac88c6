"""Pyramidal layers against two torch layers and the formula written plainly."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from apical import ADA, LeakyADA, PyramidalConv1d, PyramidalConv2d, PyramidalConv3d, PyramidalLinear
from apical import functional as F
from apical.errors import InvalidArgumentError

LAYERS = {
    "linear": (PyramidalLinear, nn.Linear, (6, 4), {}, (3, 6)),
    "linear without bias": (PyramidalLinear, nn.Linear, (6, 4), {"bias": False}, (2, 3, 6)),
    "conv1d": (PyramidalConv1d, nn.Conv1d, (6, 4, 3), {"stride": 2, "padding": 1}, (2, 6, 9)),
    "conv1d unbatched": (PyramidalConv1d, nn.Conv1d, (6, 4, 3), {"groups": 2}, (6, 9)),
    "conv2d": (PyramidalConv2d, nn.Conv2d, (6, 4, 3), {"padding": "same", "dilation": 2}, (2, 6, 7, 5)),
    "conv2d groups": (PyramidalConv2d, nn.Conv2d, (6, 9, (3, 1)), {"groups": 3, "bias": False}, (2, 6, 7, 5)),
    "conv2d depthwise": (PyramidalConv2d, nn.Conv2d, (6, 6, 3), {"groups": 6, "padding": 1}, (2, 6, 7, 5)),
    "conv2d reflect": (PyramidalConv2d, nn.Conv2d, (6, 4, 3), {"padding": 1, "padding_mode": "reflect"}, (2, 6, 7, 5)),
    "conv2d circular": (
        PyramidalConv2d, nn.Conv2d, (6, 4, 3), {"padding": (1, 2), "padding_mode": "circular"}, (2, 6, 7, 5)
    ),
    "conv2d replicate": (
        PyramidalConv2d, nn.Conv2d, (6, 4, 3), {"padding": 2, "padding_mode": "replicate", "groups": 2}, (2, 6, 7, 5)
    ),
    "conv3d": (PyramidalConv3d, nn.Conv3d, (4, 2, 2), {"groups": 2, "stride": (1, 2, 1)}, (2, 4, 3, 4, 5)),
}  # fmt: skip
ACTIVATIONS = {
    ("relu", "ada"): (torch.relu, F.ada),
    ("leaky_relu", "leaky_ada"): (partial(nn.functional.leaky_relu, negative_slope=0.01), F.leaky_ada),
    ("relu", "ada(alpha=0.3,c=1)"): (torch.relu, partial(F.ada, alpha=0.3, c=1.0)),
    ("relu", "relu"): (torch.relu, torch.relu),
    ("tanh", "rbf"): (torch.tanh, F.rbf),
    ("relu", "swish"): (torch.relu, nn.functional.silu),
}


def branches(layer: Any, standard: type[nn.Module], args: tuple[Any, ...], options: dict[str, Any]) -> list[nn.Module]:
    """Two torch layers with the weights of the two branches."""
    made = []
    for weight, bias in ((layer.basal_weight, layer.basal_bias), (layer.apical_weight, layer.apical_bias)):
        one = standard(*args, **options).to(layer.weight)
        with torch.no_grad():
            one.weight.copy_(weight.reshape(one.weight.shape))
            if bias is not None:
                one.bias.copy_(bias.reshape(-1))
        made.append(one)
    return made


def random_bias_(layer: nn.Module) -> None:
    with torch.no_grad():
        for name, p in layer.named_parameters():
            if name.endswith("bias"):
                p.normal_()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.parametrize("pair", ACTIVATIONS, ids="+".join)
def test_equals_two_torch_layers_forward_and_backward(name: str, pair: tuple[str, str]) -> None:
    torch.manual_seed(0)
    pyramidal, standard, args, options, shape = LAYERS[name]
    layer = pyramidal(*args, **options, dtype=torch.float64, basal=pair[0], apical=pair[1])
    random_bias_(layer)
    basal, apical = branches(layer, standard, args, options)
    f, g = ACTIVATIONS[pair]
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    y, plain = layer(x), f(basal(x)) + g(apical(x))
    torch.testing.assert_close(y, plain)
    weights = torch.randn_like(y)
    (ours,) = torch.autograd.grad((y * weights).sum(), x, retain_graph=True)
    (theirs,) = torch.autograd.grad((plain * weights).sum(), x, retain_graph=True)
    torch.testing.assert_close(ours, theirs)
    (y * weights).sum().backward()
    (plain * weights).sum().backward()
    both = layer.weight.grad.unflatten(0, (layer.groups, 2, -1))
    torch.testing.assert_close(both[:, 0].flatten(0, 1), basal.weight.grad)
    torch.testing.assert_close(both[:, 1].flatten(0, 1), apical.weight.grad)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_every_dtype(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    layer = PyramidalConv2d(3, 4, 3, dtype=dtype)
    x = torch.randn(2, 3, 6, 6, dtype=dtype)
    basal, apical = (one.double() for one in branches(layer, nn.Conv2d, (3, 4, 3), {}))
    exact = torch.relu(basal(x.double())) + F.ada(apical(x.double()))
    y = layer(x)
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), exact, atol=0.04 if dtype.itemsize == 2 else 1e-5, rtol=0.02)
    y.sum().backward()
    assert layer.weight.grad.isfinite().all()


def test_gradcheck_of_a_layer() -> None:
    torch.manual_seed(0)
    layer = PyramidalConv1d(2, 3, 2, dtype=torch.float64, basal="leaky_relu", apical="leaky_ada(alpha=learn)")
    x = torch.randn(2, 2, 4, dtype=torch.float64, requires_grad=True)
    names = [name for name, _ in layer.named_parameters()]
    values = [p.detach().requires_grad_() for p in layer.parameters()]

    def function(x: Tensor, *values: Tensor) -> Tensor:
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (x,))

    assert names == ["weight", "bias", "apical.alpha"]
    assert torch.autograd.gradcheck(function, (x, *values))
    assert torch.autograd.gradgradcheck(function, (x, *values))


@pytest.mark.parametrize("groups", [1, 3])
def test_weights_are_views_in_the_documented_order(groups: int) -> None:
    layer = PyramidalConv2d(6, 9, 3, groups=groups)
    with torch.no_grad():
        layer.basal_weight.fill_(1.0)
        layer.apical_weight.fill_(2.0)
        layer.basal_bias.fill_(3.0)
        layer.apical_bias.fill_(4.0)
    halves = layer.weight.unflatten(0, (groups, 2, -1))
    assert (halves[:, 0] == 1).all()
    assert (halves[:, 1] == 2).all()
    assert layer.bias.unflatten(0, (groups, 2, -1))[:, 0].eq(3).all()
    assert layer.bias.unflatten(0, (groups, 2, -1))[:, 1].eq(4).all()
    assert layer.basal_weight.shape == ((9, 6, 3, 3) if groups == 1 else (3, 3, 2, 3, 3))


def test_one_batch_norm_over_both_branches_equals_two() -> None:
    torch.manual_seed(0)
    layer = PyramidalConv2d(3, 4, 3, groups=1, norm=nn.BatchNorm2d, dtype=torch.float64)
    assert isinstance(layer.norm, nn.BatchNorm2d)
    assert layer.norm.num_features == 8
    basal, apical = branches(layer, nn.Conv2d, (3, 4, 3), {})
    norms = [nn.BatchNorm2d(4).double(), nn.BatchNorm2d(4).double()]
    for training in (True, False):
        layer.train(training)
        x = torch.randn(5, 3, 6, 6, dtype=torch.float64)
        plain = torch.relu(norms[0].train(training)(basal(x))) + F.ada(norms[1].train(training)(apical(x)))
        torch.testing.assert_close(layer(x), plain)


@pytest.mark.parametrize("norm", [partial(nn.GroupNorm, 2), nn.InstanceNorm2d])
def test_every_other_norm_is_built_once_per_branch(norm: Any) -> None:
    torch.manual_seed(0)
    layer = PyramidalConv2d(3, 4, 3, norm=norm)
    basal, apical = branches(layer, nn.Conv2d, (3, 4, 3), {})
    x = torch.randn(5, 3, 6, 6)
    plain = torch.relu(layer.norm.basal(basal(x))) + F.ada(layer.norm.apical(apical(x)))
    torch.testing.assert_close(layer(x), plain)


def test_layer_norm_in_a_linear_layer() -> None:
    layer = PyramidalLinear(6, 4, norm=nn.LayerNorm)
    x = torch.randn(3, 6)
    basal, apical = (nn.functional.layer_norm(z, (4,)) for z in nn.functional.linear(x, layer.weight).chunk(2, -1))
    torch.testing.assert_close(layer(x), torch.relu(basal) + F.ada(apical))


@pytest.mark.parametrize("norm", [None, nn.BatchNorm2d, partial(nn.GroupNorm, 2)])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("training", [True, False])
def test_a_residual_joins_the_basal_branch_before_its_activation(norm: Any, groups: int, training: bool) -> None:
    torch.manual_seed(0)
    layer = PyramidalConv2d(4, 4, 3, padding=1, norm=norm, groups=groups, dtype=torch.float64).train(training)
    basal, apical = branches(layer, nn.Conv2d, (4, 4, 3), {"padding": 1, "groups": groups})
    norms = [norm(4).double().train(training) for _ in range(2)] if norm else [nn.Identity(), nn.Identity()]
    x, identity = (torch.randn(2, 4, 5, 5, dtype=torch.float64, requires_grad=True) for _ in range(2))
    y = layer(x, residual=identity)
    plain = torch.relu(norms[0](basal(x)) + identity) + F.ada(norms[1](apical(x)))
    torch.testing.assert_close(y, plain)
    weights = torch.randn_like(y)
    for ours, theirs in zip(
        *(torch.autograd.grad((out * weights).sum(), (x, identity)) for out in (y, plain)), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


def test_second_derivatives_with_a_residual() -> None:
    torch.manual_seed(0)
    layer = PyramidalConv1d(2, 2, 1, dtype=torch.float64)
    x, residual = (torch.randn(1, 2, 2, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradgradcheck(lambda x, r: layer(x, residual=r), (x, residual))


def test_a_residual_may_broadcast_and_leaves_what_hooks_saw_alone() -> None:
    torch.manual_seed(0)
    layer, seen = PyramidalConv2d(4, 4, 1, norm=nn.BatchNorm2d), []
    layer.norm.register_forward_hook(lambda module, args, output: seen.append((output, output.clone())))
    x, vector = torch.randn(2, 4, 5, 5), torch.randn(4, 1, 1, requires_grad=True)
    layer(x, residual=vector).sum().backward()
    assert vector.grad.shape == vector.shape
    layer(x, residual=torch.randn_like(x))
    assert all(torch.equal(output, copy) for output, copy in seen)


def test_a_longer_apical_dendrite_has_its_own_input_weight_and_norm() -> None:
    torch.manual_seed(0)
    layer = PyramidalConv2d(
        8, 4, 3, padding=1, bias=False, norm=nn.BatchNorm2d, apical_in_channels=6, apical_stride=2
    ).eval()  # fmt: skip
    x, far = torch.randn(2, 8, 5, 5), torch.randn(2, 6, 9, 9)
    assert layer.basal_weight.shape == (4, 8, 3, 3)
    assert layer.apical_weight.shape == (4, 6, 1, 1)
    basal = layer.norm.basal(nn.functional.conv2d(x, layer.basal_weight, padding=1))
    apical = layer.norm.apical(nn.functional.conv2d(far, layer.apical_weight, stride=2))
    torch.testing.assert_close(layer(x, far), torch.relu(basal) + F.ada(apical))
    linear = PyramidalLinear(3, 2, apical_in_features=5)
    x, far = torch.randn(4, 3), torch.randn(4, 5)
    basal, apical = nn.functional.linear(x, linear.basal_weight), nn.functional.linear(far, linear.apical_weight)
    torch.testing.assert_close(linear(x, far), torch.relu(basal) + F.ada(apical))


@pytest.mark.parametrize("name", LAYERS)
def test_starts_with_xavier_weights_per_branch_and_zero_biases(name: str) -> None:
    pyramidal, standard, args, options, _ = LAYERS[name]
    one = standard(*args, **options)
    torch.manual_seed(1)
    expected = [nn.init.xavier_uniform_(torch.empty_like(one.weight)) for _ in range(2)]
    torch.manual_seed(1)
    layer = pyramidal(*args, **options)
    torch.manual_seed(1)
    layer.reset_parameters()
    assert torch.equal(layer.basal_weight.reshape(one.weight.shape), expected[0])
    assert torch.equal(layer.apical_weight.reshape(one.weight.shape), expected[1])
    assert layer.bias is None or not layer.bias.any()


@pytest.mark.parametrize("name", LAYERS)
def test_from_standard_keeps_the_trained_layer_in_the_basal_branch(name: str) -> None:
    torch.manual_seed(0)
    pyramidal, standard, args, options, shape = LAYERS[name]
    trained = standard(*args, **options).double().eval()
    layer = pyramidal.from_standard(trained)
    assert not layer.training
    with torch.no_grad():
        layer.apical_weight.zero_()
    x = torch.randn(shape, dtype=torch.float64)
    torch.testing.assert_close(layer(x), torch.relu(trained(x)))


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("norm", [nn.BatchNorm2d, partial(nn.GroupNorm, 2)])
def test_from_standard_takes_a_trained_norm_along(groups: int, norm: Any) -> None:
    torch.manual_seed(0)
    trained, after = nn.Conv2d(4, 6, 3, groups=groups), norm(6)
    for tensor in (*after.parameters(), *(b for b in after.buffers() if b.is_floating_point())):
        nn.init.uniform_(tensor, 0.5, 1.5)
    layer = PyramidalConv2d.from_standard(trained.eval(), norm=after.eval())
    x = torch.randn(3, 4, 6, 6)
    with torch.no_grad():
        layer.apical_weight.zero_()
        layer.apical_bias.zero_()
    torch.testing.assert_close(layer(x), torch.relu(after(trained(x))))
    fresh = layer.norm.apical.weight if hasattr(layer.norm, "apical") else layer.norm.weight.view(groups, 2, -1)[:, 1]
    assert (fresh == 1).all()


def test_saved_for_backward_is_the_input_and_one_pre_activation() -> None:
    saved: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    layer = PyramidalConv2d(8, 16, 3, padding=1)
    x = torch.randn(4, 8, 12, 12, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda t: t):
        y = layer(x)
    activations = sum(saved.values()) - layer.weight.untyped_storage().nbytes()
    assert activations <= x.nbytes + 2 * y.nbytes


@pytest.mark.parametrize("apical", ["ada", "leaky_ada(alpha=learn,scope=channel)", "swish"])
def test_compiles_as_one_graph(apical: str) -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    layer = PyramidalConv2d(3, 4, 3, groups=1, norm=nn.BatchNorm2d, apical=apical)
    x = torch.randn(2, 3, 6, 6)
    y = torch.compile(layer, fullgraph=True, backend="aot_eager")(x)
    torch.testing.assert_close(y, layer(x))
    y.sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


@pytest.mark.parametrize("apical", ["ada", "relu", "ada(alpha=learn)"])
@pytest.mark.parametrize("norm", [None, nn.BatchNorm2d])
def test_a_symbolic_trace_computes_the_same(apical: str, norm: Any) -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = PyramidalConv2d(4, 4, 1, apical=apical, norm=norm)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x), residual=x)

    block, x = Block().eval(), torch.randn(2, 4, 3, 3)
    if "learn" in apical:
        nn.init.constant_(block.layer.apical.alpha, -1.0)  # below the floor, which a trace must keep too
    torch.testing.assert_close(torch.fx.symbolic_trace(block)(x), block(x))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["linear", "conv1d", "conv2d groups"])
def test_inductor_gives_the_same_values_and_gradients(name: str) -> None:
    torch.manual_seed(0)
    torch.compiler.reset()
    pyramidal, _, args, options, shape = LAYERS[name]
    layer = pyramidal(*args, **options, apical="ada(alpha=learn)")
    x = torch.randn(shape)
    eager, compiled = layer(x), torch.compile(layer, fullgraph=True)(x)
    torch.testing.assert_close(compiled, eager, atol=1e-5, rtol=1e-5)
    for ours, theirs in zip(
        torch.autograd.grad(compiled.sum(), list(layer.parameters())),
        torch.autograd.grad(eager.sum(), list(layer.parameters())),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["linear", "conv1d", "conv2d groups", "conv3d"])
def test_exports(name: str) -> None:
    pyramidal, _, args, options, shape = LAYERS[name]
    layer = pyramidal(*args, **options, basal="leaky_relu", apical="leaky_ada(alpha=learn)").eval()
    x = torch.randn(shape)
    exported = torch.export.export(layer, (x,))
    torch.testing.assert_close(exported.module()(x), layer(x))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # inside torch's exporter
@pytest.mark.parametrize("name", ["linear", "conv2d groups"])
def test_onnx_runtime_gives_the_same_output(name: str) -> None:
    import io

    import onnxruntime

    pyramidal, _, args, options, shape = LAYERS[name]
    layer = pyramidal(*args, **options, apical="ada(alpha=0.3,c=1)").eval()
    x = torch.randn(shape)
    program = torch.onnx.export(layer, (x,), dynamo=True, verbose=False)
    buffer = io.BytesIO()
    program.save(buffer)
    session = onnxruntime.InferenceSession(buffer.getvalue(), providers=["CPUExecutionProvider"])
    (y,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    torch.testing.assert_close(torch.from_numpy(y), layer(x).detach(), atol=1e-5, rtol=1e-4)


def test_activation_modules_are_used_as_given_and_hold_their_alpha() -> None:
    ada = ADA(alpha=0.5, learnable=True)
    layer = PyramidalLinear(3, 2, apical=ada)
    assert layer.apical is ada
    assert "apical.alpha" in layer.state_dict()
    layer.apical = LeakyADA(alpha=2.0)
    x = torch.randn(4, 3)
    basal, apical = nn.functional.linear(x, layer.weight).chunk(2, -1)
    torch.testing.assert_close(layer(x), torch.relu(basal) + F.leaky_ada(apical, 2.0))


def test_hooks_on_the_branches_are_called() -> None:
    layer, seen = PyramidalLinear(3, 2), []
    layer.apical.register_forward_hook(lambda module, args, output: seen.append(args[0]))
    x = torch.randn(4, 3)
    layer(x)
    torch.testing.assert_close(seen[0], nn.functional.linear(x, layer.weight).chunk(2, -1)[1])


def test_meta_device_and_reset() -> None:
    layer = PyramidalConv2d(3, 4, 3, norm=nn.BatchNorm2d, device="meta", apical="ada(alpha=learn,scope=channel)")
    assert {p.device.type for p in layer.parameters()} == {"meta"}
    layer.to_empty(device="cpu")
    for module in layer.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    assert layer(torch.randn(2, 3, 6, 6)).isfinite().all()
    assert layer.apical.alpha.eq(1.0).all()


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda: PyramidalLinear(3, 2)(torch.ones(1, 3), torch.ones(1, 3)), "build it with apical_in_features="),
        (lambda: PyramidalConv2d(3, 2, 1)(torch.ones(3, 1, 1), torch.ones(3, 1, 1)), "with apical_in_channels="),
        (lambda: PyramidalLinear(3, 2, apical_in_features=4)(torch.ones(1, 3)), "call layer\\(x, apical_input\\)"),
        (lambda: PyramidalLinear(3, 2, apical="adda"), "did you mean 'ada'\\?"),
        (lambda: PyramidalLinear(3, 2, apical="pynada"), "name a standard kind"),
        (lambda: PyramidalLinear.from_standard(nn.Conv2d(1, 1, 1)), "needs a standard Linear, got Conv2d"),
        (lambda: PyramidalLinear.from_standard(PyramidalLinear(1, 1)), "got PyramidalLinear"),
        (
            lambda: PyramidalLinear(3, 2, apical=ADA(learnable=True, num_parameters=3, dim=-1))(torch.ones(1, 3)),
            "give one value, or 2 in one row",
        ),
    ],
)
def test_bad_input_is_one_sentence(call: Any, sentence: str) -> None:
    with pytest.raises(InvalidArgumentError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("norm", [nn.BatchNorm2d(4), "batch"])
def test_a_norm_that_is_no_factory_is_refused(norm: object) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must be a function of the number of channels that returns a norm"):
        PyramidalConv2d(3, 4, 3, norm=norm)
