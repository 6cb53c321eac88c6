"""Conversion: another activation, or pyramidal neurons, in any torch network."""

import inspect
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from apical.convert.apply import Application
from apical.convert.check import looks_trained, probe, same_function, starts_at_zero
from apical.convert.flow import Network
from apical.convert.kinds import ALL_KINDS, DEFAULT_KINDS, check_kinds
from apical.convert.measure import shares
from apical.convert.plan import Decision, decide
from apical.convert.report import ConversionReport, Row
from apical.convert.say import nothing_converted, nothing_found, rows
from apical.errors import ConversionError
from apical.nn.unit import Unit

__all__ = ["ALL_KINDS", "DEFAULT_KINDS", "ConversionReport", "Row", "convert_"]


def convert_(
    model: nn.Module,
    unit: str | Unit,
    *,
    filter_fn: Callable[[str, nn.Module], bool] | None = None,
    example_inputs: Any = None,
    keep_function: bool = False,
    kinds: Iterable[str] | None = None,
) -> ConversionReport:
    """Give `model`, in place, the neurons that `unit` names; returns what became of each activation.

    A standard unit takes the place of every activation of `kinds` (DEFAULT_KINDS: those of hidden layers), modules and
    functional calls alike. A pyramidal unit turns every activation that one affine layer feeds, through a norm and
    residual additions, into a pyramidal neuron. `filter_fn(name, module)` chooses among them. `example_inputs` (a
    tensor, a tuple or a dict) let the report show how many inputs of each activation are negative or saturated.
    `keep_function` starts apical branches at zero, so that the model computes what it did. Build the optimiser after
    the conversion (and after `undo`): the parameters are new.

    Examples:
        >>> report = convert_(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), "pynada(alpha=0.5)")
        >>> report.converted[0].after
        'PyramidalLinear'
    """
    unit = Unit.parse(unit)
    chosen = check_kinds(kinds)
    _check_arguments(model, filter_fn)
    network = Network(model)
    sites = network.sites(chosen)
    if not sites:
        raise ConversionError(nothing_found(network, unit, chosen))
    decisions = decide(network, sites, unit, filter_fn)
    if all(decision.form == "keep" for decision in decisions):
        raise ConversionError(nothing_converted(decisions, unit))
    if keep_function:
        _check_function_is_kept(decisions, unit)
    seen = shares(network, sites, example_inputs, _alpha(unit)) if example_inputs is not None else {}
    if not keep_function:
        _warn_if_trained(model, decisions, unit)
    application = Application(network, sites, unit, at_zero=keep_function)
    application.run(decisions)
    table = rows(network, decisions, application.made, seen, unit)
    return ConversionReport(application.surgery.model, str(unit), table, application.surgery.undo)


def _check_arguments(model: nn.Module, filter_fn: Any) -> None:
    if not isinstance(model, nn.Module):
        raise ConversionError(f"convert_ needs a torch module, got {type(model).__name__}: convert_(model, 'ada')")
    if isinstance(model, nn.parallel.DistributedDataParallel):
        raise ConversionError(
            "the model is wrapped in DistributedDataParallel, which would not see new parameters: "
            "convert_(model.module, ...) and wrap that anew"
        )
    if isinstance(model, torch.jit.ScriptModule) or hasattr(model, "_orig_mod"):
        raise ConversionError(
            f"the model is a {type(model).__name__}, compiled already: convert_ the model it was made from, "
            "then compile that"
        )
    if any(is_lazy(parameter) for parameter in (*model.parameters(), *model.buffers())):
        raise ConversionError(
            "the model has lazy layers whose shapes are not known yet: "
            "run it once on an input, then convert_(model, ...)"
        )
    if filter_fn is not None and not _takes_two(filter_fn):
        raise ConversionError(
            f"filter_fn is {filter_fn!r}, but must be a function of a name and a module: "
            "e.g. filter_fn=lambda name, module: name.startswith('layer1')"
        )


def _takes_two(function: Any) -> bool:
    if not callable(function):
        return False
    try:
        inspect.signature(function).bind("name", None)
    except TypeError:
        return False
    except ValueError:  # built-in functions may have no signature
        return True
    return True


def _check_function_is_kept(decisions: list[Decision], unit: Unit) -> None:
    basal = probe(unit.basal)
    for decision in decisions:
        if decision.form != "keep" and not same_function(decision.site, basal):
            raise ConversionError(
                f"keep_function=True cannot hold: {decision.site.label} is {decision.site.kind}, "
                f"but the basal activation of {str(unit)!r} is {str(unit.basal)!r}: leave keep_function out, or pass "
                f"filter_fn to convert only what is {str(unit.basal)!r}"
            )
    if unit.pyramidal and not starts_at_zero(probe(unit.apical)):
        raise ConversionError(
            f"keep_function=True cannot hold: {str(unit.apical)!r}, the apical activation of {str(unit)!r}, has to be "
            "0 at 0 with a derivative there, or the branch adds something or never learns: use 'pynada'"
        )


def _alpha(unit: Unit) -> float | None:
    return (unit.alpha_init or 1.0) if unit.alpha == "learn" else unit.alpha


def _warn_if_trained(model: nn.Module, decisions: list[Decision], unit: Unit) -> None:
    """One sentence where trained weights get another function: the unit's own, or a new branch beside the old one."""
    basal = probe(unit.basal)
    other = [d.site.kind for d in decisions if d.form != "keep" and not same_function(d.site, basal)]
    if (other or unit.pyramidal) and looks_trained(model):
        what = f"{str(unit.basal)!r} for its {other[0]}" if other else "a new apical branch"
        hint = "" if other else ", unless keep_function=True starts that branch at zero"
        warnings.warn(
            f"the model looks trained and gets {what}: it computes something else now and has to be trained on{hint}",
            stacklevel=3,
        )
