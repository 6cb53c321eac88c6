"""Seeded initial weights: each parameter from its own generator, keyed by (seed, logical name).

A parameter's logical name is its name in the model, with two exceptions. The basal branch of a pyramidal layer `x`
has the standard layer's name `x.weight`, the apical branch is `x.apical_weight`. And a module may rename its children
and parameters by an attribute `logical_names`, a dictionary from names to logical names ("" leaves a level out).
So networks that differ in their neurons alone start from the same weights wherever those have the same shape.
"""

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd

from apical.errors import InvalidArgumentError
from apical.nn.activations import Activation
from apical.nn.pyramidal import _Pyramidal, branch_views

_AFFINE = (nn.Linear, _ConvNd, nn.Bilinear, nn.Embedding, nn.EmbeddingBag)
BIASES = ("zero", "uniform")
_CONSTANT = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.PReLU, Activation)


def initialise_(model: nn.Module, *, seed: int, biases: str = "zero") -> list[str]:
    """Draw all weights anew: Xavier uniform with fans counted per branch, zero biases, norms and activations as new.

    With `biases="uniform"` biases are drawn as by torch: uniform between +-1/sqrt(fan in). Returns the names of the
    parameters it does not know how to draw (of modules that are not torch's or apical's) and leaves as they are.
    """
    if not isinstance(seed, int) or seed < 0:
        raise InvalidArgumentError(f"seed is {seed!r}, but must be an integer from 0 on")
    if biases not in BIASES:
        raise InvalidArgumentError(f"biases is {biases!r}, but must be one of {', '.join(BIASES)}")
    unknown: list[str] = []
    done: set[int] = set()
    with torch.no_grad():
        for name, logical, module in logical_modules(model):
            own = {key: p for key, p in module.named_parameters(recurse=False) if id(p) not in done}
            done |= {id(p) for p in own.values()}
            if isinstance(module, _CONSTANT):
                module.reset_parameters()
            elif isinstance(module, _AFFINE):
                _affine_(module, logical, seed, biases)
            else:
                unknown += [_join(name, key) for key in own]
    return unknown


def logical_modules(model: nn.Module, name: str = "", logical: str = "") -> Iterator[tuple[str, str, nn.Module]]:
    """Every module of `model` with its name and its logical name; a shared one comes once, under its first name."""
    seen: set[int] = set()

    def walk(module: nn.Module, name: str, logical: str) -> Iterator[tuple[str, str, nn.Module]]:
        if id(module) in seen:
            return
        seen.add(id(module))
        yield name, logical, module
        for key, child in module.named_children():
            yield from walk(child, _join(name, key), _join(logical, logical_name(module, key)))

    return walk(model, name, logical)


def logical_name(module: nn.Module, key: str) -> str:
    """The logical name, within `module`, of its child or parameter `key`."""
    names: Any = getattr(module, "logical_names", {})
    return str(names.get(key, key))


def drawn(shape: torch.Size, name: str, seed: int) -> Tensor:
    """The Xavier uniform weight of that shape and logical name, always the same for a seed: float32 on the CPU."""
    weight = torch.empty(shape, dtype=torch.float32, device="cpu")
    return nn.init.xavier_uniform_(weight, generator=_generator(name, seed))


def _generator(name: str, seed: int) -> torch.Generator:
    key = hashlib.sha256(f"{seed}:{name}".encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(key[:8], "little", signed=True))


def _affine_(module: nn.Module, logical: str, seed: int, biases: str) -> None:
    weight, bias = module._parameters.get("weight"), module._parameters.get("bias")
    if weight is not None:
        name = _join(logical, logical_name(module, "weight"))
        if isinstance(module, _Pyramidal) and module.apical_affine is None:
            apical = _join(logical, logical_name(module, "apical_weight"))
            shape = torch.Size((module.outputs, *weight.shape[1:]))
            for view, key in zip(branch_views(weight, module.groups), (name, apical), strict=True):
                view.copy_(drawn(shape, key, seed).view_as(view))
        else:
            weight.copy_(drawn(weight.shape, name, seed))
    if bias is not None and weight is not None and biases == "uniform":
        limit = weight[0].numel() ** -0.5
        key = _join(logical, logical_name(module, "bias"))
        bias.copy_(torch.empty(bias.shape).uniform_(-limit, limit, generator=_generator(key, seed)))
    elif bias is not None:
        bias.zero_()
    padding = getattr(module, "padding_idx", None)
    if weight is not None and padding is not None:
        weight[padding] = 0


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix and name else prefix or name
