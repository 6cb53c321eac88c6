"""The words of a conversion: the rows of its report, and the sentences when there is nothing to convert."""

from collections import Counter

from torch import nn

from apical.convert.branch import ApicalBranch
from apical.convert.flow import Network, Site
from apical.convert.kinds import ALL_KINDS, is_ours
from apical.convert.measure import Share
from apical.convert.plan import Decision
from apical.convert.report import Row
from apical.convert.trace import Traced
from apical.nn.unit import Unit


def rows(
    network: Network, decisions: list[Decision], made: dict[Decision, nn.Module], seen: dict[Site, Share], unit: Unit
) -> list[Row]:
    """One row for each activation asked for, and one for each forward that could not be looked into."""
    known = [
        Row(d.site.label, _before(d), _after(d, made, unit), d.reason, str(seen.get(d.site, ""))) for d in decisions
    ]
    return known + [
        Row(traced.name or "(the model)", f"forward of {_class(traced)}", "not seen", untraced(traced))
        for traced in network.blind()
    ]


def _before(decision: Decision) -> str:
    site = decision.site
    own = f"{site.kind}()" if site.module is None else type(site.module).__name__
    if decision.form in ("swap", "keep"):
        return own
    layers = [type(layer).__name__ for layer in (decision.affine, decision.norm) if layer is not None]
    return " + ".join([*layers, *["sum"] * decision.additions, own])


def _after(decision: Decision, made: dict[Decision, nn.Module], unit: Unit) -> str:
    if decision.form == "keep":
        return "kept"
    if decision.form == "swap":
        return str(unit)
    new = made[decision]
    return "pyramidal neuron: apical branch added" if isinstance(new, ApicalBranch) else type(new).__name__


def untraced(traced: Traced) -> str:
    """Why a forward was not looked into, and what it seems to call."""
    calls = _names_in_code(traced.module)
    hint = f"; it seems to call {', '.join(calls)}" if calls else ""
    return f"could not be traced ({traced.error}){hint}"


def _names_in_code(module: nn.Module) -> list[str]:
    code = getattr(type(module).forward, "__code__", None)
    return [name for name in getattr(code, "co_names", ()) if name.rstrip("_") in ALL_KINDS]


def _class(traced: Traced) -> str:
    return type(traced.module).__name__


def nothing_found(network: Network, unit: Unit, kinds: tuple[str, ...]) -> str:
    """The sentence for a model without activations of the kinds asked for."""
    call = f"convert_(model, {str(unit)!r}"
    for traced in network.blind():
        if calls := _names_in_code(traced.module):
            return (
                f"nothing was converted: the forward of {_class(traced)} could not be traced ({traced.error}), so "
                f"its calls of {', '.join(calls)} were not seen: make them modules (self.act = torch.nn.ReLU() in "
                f"__init__, self.act(x) in forward), then {call})"
            )
    others = Counter(site.kind for site in network.sites(ALL_KINDS))
    if others:
        listed = ", ".join(f"{count} {kind}" for kind, count in others.items())
        wanted = ", ".join(repr(kind) for kind in others)
        return f"no activation of the kinds {', '.join(kinds)} was found, but {listed}: {call}, kinds=[{wanted}])"
    if any(is_ours(module) for module in network.model.modules()):
        return f"every activation of the model is apical's already: build it anew, or report.undo(), then {call})"
    blind = "".join(f"; {traced.name or 'the model'} {untraced(traced)}" for traced in network.blind())
    return (
        f"the model has no activation to convert ({len(list(network.model.modules()))} modules looked at{blind}): give "
        f"the network that has them, e.g. {call.replace('model', 'model.backbone')})"
    )


def nothing_converted(decisions: list[Decision], unit: Unit) -> str:
    """The sentence for a model whose activations all have to stay."""
    first = decisions[0]
    why = f"{first.site.label}: {first.reason}"
    if unit.pyramidal:
        return (
            f"{str(unit)!r} needs an affine layer before the activation, and none of the {len(decisions)} activations "
            f"has one ({why}): use a standard unit, e.g. convert_(model, {str(unit.apical)!r})"
        )
    return (
        f"none of the {len(decisions)} activations can be converted ({why}): make it a module (self.act = "
        f"torch.nn.ReLU() in __init__, self.act(x) in forward), then convert_(model, {str(unit)!r})"
    )
