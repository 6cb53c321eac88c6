"""The network of a trial: built by its name, made to fit the data, drawn from the trial's seed."""

from collections.abc import Mapping
from math import prod
from typing import Any

from torch import nn

from apical import models
from apical.data import DataSet
from apical.models.registry import find
from apical.nn import initialise_
from apical.train.spec import TrialSpec


def build(spec: TrialSpec, dims: Mapping[str, Any]) -> nn.Module:
    """The network with its first weights; equal for equal specs, and paired with those of other units.

    Networks that take no unit, and all with `convert`, are built with ReLU and rewritten by `convert_`.
    """
    if not spec.convert and models.takes_unit(spec.model):
        return models.create(spec.model, spec.unit, seed=spec.seed, **dims)
    from apical.convert import convert_  # noqa: PLC0415  it loads torch.fx

    plain = models.create(spec.model, "relu" if models.takes_unit(spec.model) else None, seed=spec.seed, **dims)
    if spec.unit == "relu":
        return plain
    model = convert_(plain, models.unit_for(spec.model, spec.unit)).model
    initialise_(model, seed=spec.seed)
    return model


def dims_for(spec: TrialSpec, data: DataSet) -> dict[str, Any]:
    """The spec's dimensions, and what the data says about others that the network's factory has."""
    known: dict[str, Any] = {"inputs": prod(data.shape), "outputs": _outputs(data)}
    if len(data.shape) == 3:
        size = max(data.shape[1:])
        known |= {"in_channels": data.shape[0], "image_size": size, "stem": 64 if size <= 64 else 224}
    if data.vocabulary is not None:
        known |= {"length": data.shape[0], "vocabulary": data.vocabulary}
    return {key: value for key, value in known.items() if key in find(spec.model).parameters} | spec.dims


def _outputs(data: DataSet) -> int:
    if data.class_names is not None:
        return len(data.class_names)
    return prod(data.train.labels.shape[1:])
