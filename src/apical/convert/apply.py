"""The decisions carried out: neurons made in the order of the network, then graphs edited from the inside out."""

import operator
from typing import Any

from torch import nn
from torch.fx import Node

from apical.convert.branch import ApicalBranch, plain_norm, zero_apical_
from apical.convert.check import probe, same_function
from apical.convert.flow import Feed, Network, Site
from apical.convert.kinds import call_input
from apical.convert.plan import Decision, all_fused, later_users, overwrites
from apical.convert.rewrite import Surgery, inline
from apical.convert.trace import Traced
from apical.convert.transformer import is_transformer_layer, set_activation
from apical.nn.pyramidal import pyramidal_layer
from apical.nn.unit import Unit


class Application:
    """One conversion of one model; `made` holds what each decision put in."""

    def __init__(self, network: Network, sites: list[Site], unit: Unit, *, at_zero: bool) -> None:
        self.network, self.sites, self.unit, self.at_zero = network, sites, unit, at_zero
        self.surgery = Surgery(network.model)
        self.layers = unit.layers()
        self._probe = probe(unit.basal)
        self.made: dict[Decision, nn.Module] = {}
        self._basal: dict[Decision, nn.Module] = {}
        self._swapped: dict[int, nn.Module] = {}
        self._inlined: dict[Node, dict[Node, Any]] = {}
        self._edited: dict[int, Traced] = {}

    def run(self, decisions: list[Decision]) -> None:
        """Carry out every decision, then rewrite the modules whose graphs were edited; all of it or nothing."""
        try:
            self._run(decisions)
        except BaseException:
            self.surgery.undo()
            raise

    def _run(self, decisions: list[Decision]) -> None:
        for decision in decisions:
            if decision.form != "keep":
                self.made[decision] = self._make(decision)
        fused = {d.site for d in decisions if d.form == "fuse"}
        for decision in sorted(decisions, key=lambda d: -_depth(d.site.owner)):
            if decision.form == "swap":
                self._swap(decision)
            elif decision.form == "neuron":
                self.surgery.replace(decision.site.owner.module, self.made[decision])
            elif decision.form == "fuse":
                self._fuse(decision, fused)
            elif decision.form == "branch":
                self._branch(decision)
        for traced in self._edited.values():
            self.surgery.rewrite(traced)

    def _make(self, decision: Decision) -> nn.Module:
        """The new module: an activation, a pyramidal layer or an apical branch."""
        affine, norm, site = decision.affine, decision.norm, decision.site
        if decision.form == "swap":
            return self._activation(decision)
        assert affine is not None
        if decision.form == "branch":
            self._basal[decision], apical = self.layers.branches(**_width(affine))
            made: nn.Module = ApicalBranch.beside(affine, norm, apical)
        else:
            if norm is site.owner.module:
                norm = plain_norm(norm)
            made = self.layers.from_standard(affine, norm)
        if self.at_zero:
            zero_apical_(made)
        return _like(made, affine).train(affine.training)

    def _activation(self, decision: Decision) -> nn.Module:
        """The activation for a swap; a module that is called under several names stays one module."""
        old, affine = decision.site.module, decision.affine
        if old is not None and id(old) in self._swapped:
            return self._swapped[id(old)]
        new = self.layers.activation(**_width(affine)) if affine is not None else self.layers.activation()
        new = _like(new, affine or self.network.model)
        if old is not None:
            self._swapped[id(old)] = new
        return new

    def _swap(self, decision: Decision) -> None:
        site, new = decision.site, self.made[decision]
        if is_transformer_layer(site.owner.module):
            set_activation(self.surgery, site.owner.module, new)
            return
        if site.module is not None:
            rewires = overwrites(site)
            self.surgery.replace(site.module, new, only=site.slot)
            if not rewires:
                return
            name = site.target
        else:
            name = self.surgery.add(site.owner.module, site.target, new)
        for node in site.nodes.values():
            _call_instead(node, name, site.in_place)
        self._edited[id(site.owner.module)] = site.owner

    def _fuse(self, decision: Decision, fused: set[Site]) -> None:
        site, affine, norm = decision.site, decision.affine, decision.norm
        assert affine is not None
        self.surgery.replace(affine, self.made[decision])
        if norm is not None:
            self.surgery.replace(norm, nn.Identity())
        if norm is site.owner.module:
            return
        if is_transformer_layer(site.owner.module):
            set_activation(self.surgery, site.owner.module, nn.Identity())
            return
        if all_fused(self.network, self.sites, site, fused):
            self.surgery.replace(site.module, nn.Identity())  # type: ignore[arg-type]
            return
        for node in site.nodes.values():
            _drop(node)
        self._edited[id(site.owner.module)] = site.owner

    def _branch(self, decision: Decision) -> None:
        site, owner = decision.site, decision.site.owner
        stem = _stem(next(iter(decision.feeds.values())))
        apical = self.surgery.add(owner.module, f"{stem}_apical", self.made[decision])
        basal = None
        if not same_function(site, self._probe):
            basal = self.surgery.add(owner.module, f"{stem}_basal", self._basal[decision])
        for mode, feed in decision.feeds.items():
            affine = self._locate(mode, feed.affine.trail, feed.affine.node)
            activation = site.nodes[mode] if basal is None else _call_instead(site.nodes[mode], basal, site.in_place)
            _add_branch(affine, activation, apical, in_place=site.in_place and basal is None)
        self._edited[id(owner.module)] = owner

    def _locate(self, mode: bool, trail: tuple[tuple[Traced, Node], ...], node: Node) -> Node:
        """The node of a nested module in the graph where the trail begins; modules on the trail are inlined there."""
        if not trail:
            return node
        (owner, call), rest = trail[0], trail[1:]
        child = self.network.traced[id(self.network.resolve(owner, call))] if call not in self._inlined else None
        inner = self._locate(mode, rest, node)
        if child is not None:
            self._inlined[call] = inline(call.graph, call, child, mode)
        found: Node = self._inlined[call][inner]
        return found


def _add_branch(affine: Node, activation: Node, name: str, *, in_place: bool) -> None:
    """Add to `activation` what the module `name` makes of the input of `affine`."""
    graph = activation.graph
    with graph.inserting_after(affine):
        apical = graph.call_module(name, (call_input(affine),))
    with graph.inserting_after(activation):
        total = graph.call_function(operator.add, (activation, apical))
    activation.replace_all_uses_with(total, delete_user_cb=lambda user: user is not total)
    if in_place:
        for user in later_users(activation):
            user.replace_input_with(call_input(activation), total)


def _call_instead(node: Node, name: str, in_place: bool) -> Node:
    """Call the module `name` where `node` called an activation; who read an overwritten input reads the result."""
    graph, source = node.graph, call_input(node)
    readers = later_users(node) if in_place else []
    with graph.inserting_after(node):
        call = graph.call_module(name, (source,))
    for user in readers:
        user.replace_input_with(source, call)
    node.replace_all_uses_with(call)
    graph.erase_node(node)
    return call


def _drop(node: Node) -> None:
    node.replace_all_uses_with(call_input(node))
    node.graph.erase_node(node)


def _depth(traced: Traced) -> int:
    return traced.name.count(".") + bool(traced.name)


def _stem(feed: Feed) -> str:
    """The name of the affine layer as a name in the module where the walk began."""
    calls = [str(call.target) for _, call in feed.affine.trail]
    return ".".join([*calls, str(feed.affine.node.target)]).replace(".", "_")


def _width(affine: nn.Module) -> dict[str, int]:
    """The number of channels behind an affine layer, and their dimension counted from the right."""
    return {"channels": len(affine.weight), "dim": pyramidal_layer(affine).channel_dim}  # type: ignore[arg-type]


def _like(module: nn.Module, reference: nn.Module) -> nn.Module:
    """`module` with the device and dtype of `reference`."""
    for parameter in reference.parameters():
        if parameter.is_floating_point():
            return module.to(device=parameter.device, dtype=parameter.dtype)
    return module
