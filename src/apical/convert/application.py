"""The decisions carried out: neurons made in the order of the network, then forwards changed from the inside out."""

import operator
from typing import Any

import torch
from torch import nn
from torch.fx import Node

from apical.convert.branch import (
    ApicalBranch,
    Begin,
    End,
    InPlace,
    InputAlone,
    NormTap,
    Tap,
    Wire,
    WiredNeuron,
    WiredNeurons,
    plain_norm,
    zero_apical_,
)
from apical.convert.flow import ALONE, Feed, FlowGraph, Site, output
from apical.convert.kinds import TRANSFORMER_LAYERS, HeldFunction, call_input, width
from apical.convert.plan import Decision, all_fused, has_extras, is_feed_forward, takes_slot
from apical.convert.probe import probe, same_function
from apical.convert.rewrite import Surgery, inline
from apical.convert.source import Edit, call_input_place, picking_settings
from apical.convert.trace import Traced
from apical.nn.kinds import LEARN
from apical.nn.unit import Unit


def takes_slopes(site: Site, unit: Unit) -> bool:
    """Whether a unit learns slopes as the activation does, at least as many of them: it can start at the same."""
    own = site.module
    if type(own) is not nn.PReLU or unit.kind != "prelu" or unit.settings["weight"] != LEARN:
        return False
    return unit.settings["scope"] == "channel" or (own.weight.numel() == 1 and unit.settings["scope"] == "layer")


class Application:
    """One conversion of one model; `made` holds what each decision put in."""

    def __init__(
        self, network: FlowGraph, surgery: Surgery, decisions: list[Decision], unit: Unit, *, at_zero: bool
    ) -> None:
        self.network, self.surgery, self.unit, self.at_zero = network, surgery, unit, at_zero
        self.decisions = [decision for decision in decisions if decision.form != "keep"]
        self.sites = [decision.site for decision in decisions if decision.asked]
        self._called = [decision.site for decision in decisions if decision.site.module is not None]
        self.originals = {decision: decision.site.original for decision in self.decisions}  # before graphs change
        changed = {decision.site for decision in self.decisions}
        self._read_again = {site for site in changed if network.is_read_again(site)}
        _keep_code(decisions)
        self.layers = unit.layers()
        self._probe = probe(unit.basal)
        self.made: dict[Decision, nn.Module] = {}
        self.basal: dict[Decision, nn.Module] = {}
        self._swapped: dict[int, nn.Module] = {}
        self._in_place: dict[nn.Module, InPlace] = {}
        self._alone: set[nn.Module] = set()
        self._inlined: dict[Node, dict[Node, Any]] = {}
        self._became: dict[Node, Node] = {}
        self._graphs: dict[int, Traced] = {}
        self._edits: dict[int, tuple[nn.Module, list[Edit]]] = {}
        self._begins: dict[nn.Module, tuple[Begin, End]] = {}
        self._held: dict[nn.Module, set[nn.Module]] = {}
        if any(decision.form == "wire" for decision in self.decisions):
            self._held = {module: {*module.modules()} for module in network.model.modules()}

    def run(self) -> None:
        """Carry out every decision, then rewrite the modules whose graphs or sources were edited."""
        for decision in self.decisions:
            self.made[decision] = self._make(decision)
        self._copy_again()
        fused = {d.site for d in self.decisions if d.form == "fuse"}
        for decision in sorted(self.decisions, key=lambda d: -_depth(d.site.owner)):
            if decision.form == "swap":
                self._swap(decision)
            elif decision.form == "neuron":
                self.surgery.replace(decision.site.owner.module, self.made[decision])
            elif decision.form == "fuse":
                self._fuse(decision, fused)
            elif decision.form == "branch":
                self._branch(decision)
            elif decision.form == "wire":
                self._wire(decision)
            if isinstance(decision.site.owner.module, TRANSFORMER_LAYERS):
                self._leave_fused_code(decision.site.owner.module)
        for traced in self._graphs.values():
            self.surgery.rewrite(traced)
        for module, edits in self._edits.values():
            self.surgery.edit(module, edits)

    def _copy_again(self) -> None:
        """Let a frozen copy of another part of the model be one still."""
        by_layer = {id(decision.affine): new for decision, new in self.made.items() if decision.affine is not None}
        for layer, source in self.network.frozen_copies.items():
            if layer in by_layer and id(source) in by_layer:
                own, values = by_layer[layer].requires_grad_(False), by_layer[id(source)].state_dict()
                own.load_state_dict({name: value for name, value in values.items() if name in own.state_dict()}, False)
        for owner in self.layers.owners if self.network.frozen_copies else ():
            owner.requires_grad_()  # what all layers share learns, whichever of them has it

    def _make(self, decision: Decision) -> nn.Module:
        """The new module: an activation, a pyramidal layer, an apical branch or a neuron with one."""
        affine, norm, site = decision.affine, decision.norm, decision.site
        if decision.form == "swap":
            new = self._activation(decision)
            self._keep_slopes(decision, new)
            return new
        assert affine is not None
        for other in self._sharing(decision):  # one call of one layer, which runs several times
            if other in self.made and (other.affine, other.norm) == (affine, norm):
                return self.made[other]
        if decision.form in ("branch", "wire"):
            channels, dim = width(affine)
            basal, apical = self.layers.branches(channels, dim=dim)
            if norm is site.owner.module:
                norm = plain_norm(norm)
            branch: nn.Module = ApicalBranch.beside(affine, norm, apical)
            made = branch
            if decision.form == "wire":
                old = None if isinstance(site.module, HeldFunction) else site.module
                keeps = old is not None and not has_extras(old)  # its hooks go to the neuron
                keeps = keeps and all(call == ALONE for call in site.further)
                kept = old if keeps and same_function(site.function, self._probe) else None
                made = WiredNeuron(kept or basal, branch, Wire())
            else:
                self.basal[decision] = basal
        else:
            if norm is site.owner.module:
                norm = plain_norm(norm)
            made = branch = self.layers.from_standard(affine, norm)
        if self.at_zero:
            zero_apical_(branch)
            self._keep_slopes(decision, self.basal.get(decision) or getattr(made, "basal", None))
        return _like(made, affine).train(affine.training)

    def _keep_slopes(self, decision: Decision, activation: Any) -> None:
        if self.at_zero and takes_slopes(decision.site, self.unit.basal):
            with torch.no_grad():
                activation.weight.copy_(decision.site.module.weight)  # type: ignore[union-attr]

    def _activation(self, decision: Decision) -> nn.Module:
        """The activation for a swap; a module that is called under several names stays one module."""
        old, affine = decision.site.module, decision.affine
        if old is not None and id(old) in self._swapped:
            return self._swapped[id(old)]
        if affine is not None:
            channels, dim = width(affine)
            new = self.layers.activation(channels, dim=dim)
        else:
            new = self.layers.activation()
        new = _like(new, affine or self.network.model)
        if old is not None:
            self._swapped[id(old)] = new
        return new

    def _swap(self, decision: Decision) -> None:
        site, new = decision.site, self.placed(decision)
        if site.module is not None:
            self._put(site, site.module, new)
        else:
            self._call(site, self.surgery.add(site.owner.module, site.target, new))

    def _put(self, site: Site, old: nn.Module, new: nn.Module) -> None:
        """Put a module where the activation is; one that is called with more than its input takes that alone."""
        others = {other.slot for other in self._called if other.module is old} - {site.slot}
        self.surgery.replace(old, new, but=others)
        if any(call != ALONE for call in site.further) and new not in self._alone:
            self._alone.add(new)
            self.surgery.tap(new, InputAlone())

    def placed(self, decision: Decision) -> nn.Module:
        """What takes the place of an activation: the new one, in place where somebody reads what the old one wrote."""
        site, new = decision.site, self.made[decision]
        calls = [other for other in self.sites if site.module is not None and other.module is site.module]
        if self._read_again.isdisjoint([site, *calls]):
            return new
        return self._in_place.setdefault(new, InPlace(new))

    def _call(self, site: Site, name: str) -> None:
        """Let the forward call the module `name` where it has the activation."""
        owner = site.owner
        if not owner.keeps_code:
            for mode in site.nodes:
                self._call_instead(site, mode, name)
            self._graphs[id(owner.module)] = owner
            return
        place = site.place
        assert place is not None
        source = site.expression.source if site.expression is not None else call_input_place(type(owner.module), place)
        assert source is not None
        settings = picking_settings(owner.module, place) if site.expression is not None else ()
        self._edits.setdefault(id(owner.module), (owner.module, []))[1].append(Edit(place, source, name, settings))

    def _leave_fused_code(self, layer: nn.Module) -> None:
        """Turn off the fused code of a transformer layer of torch's, which knows only ReLU and GELU."""
        if getattr(layer, "activation_relu_or_gelu", 0):
            self.surgery.set(layer, "activation_relu_or_gelu", 0)
        for encoder in self.surgery.model.modules():
            if isinstance(encoder, nn.TransformerEncoder) and any(layer is own for own in encoder.layers):
                self.surgery.set(encoder, "use_nested_tensor", False)

    def _fuse(self, decision: Decision, fused: set[Site]) -> None:
        site, affine, norm = decision.site, decision.affine, decision.norm
        assert affine is not None
        self.surgery.replace(affine, self.made[decision])
        if norm is not None:
            self.surgery.replace(norm, nn.Identity())
        if norm is site.owner.module:
            return
        if is_feed_forward(site):
            self.surgery.set(site.owner.module, "activation", nn.Identity())
        elif all_fused(self.network, self.sites, site, fused):
            assert site.module is not None
            self._put(site, site.module, nn.Identity())
        elif site.owner.keeps_code:
            self._call(site, self.surgery.add(site.owner.module, site.target.replace(".", "_"), nn.Identity()))
        else:
            for mode, node in site.nodes.items():
                self._replace(site, node, self._start(site, mode))
            self._graphs[id(site.owner.module)] = site.owner

    def _wire(self, decision: Decision) -> None:
        site, wired, neuron = decision.site, self.made[decision], self.placed(decision)
        assert isinstance(wired, WiredNeuron)
        assert decision.affine is not None
        others = self._sharing(decision)
        if decision is next(other for other in others if self.made[other] is wired):
            self._hook(decision.affine, Tap(wired.wire), with_kwargs=True)
            if decision.norm is not None and decision.norm is not site.owner.module:
                self._hook(decision.norm, NormTap(wired.wire), with_kwargs=True)
            self._enclose(wired.wire, decision.affine, site.owner.module)
        if takes_slot(self.network, self.sites, site):
            assert site.module is not None
            self._put(site, site.module, neuron)
        elif decision is others[0]:  # one call for all of them
            neurons = list(dict.fromkeys(self.made[other] for other in others))
            if neurons[1:]:
                again = not self._read_again.isdisjoint(other.site for other in others)
                neuron = InPlace(WiredNeurons(neurons)) if again else WiredNeurons(neurons)
            self._call(site, self.surgery.add(site.owner.module, f"{site.target.replace('.', '_')}_neuron", neuron))

    def _sharing(self, decision: Decision) -> list[Decision]:
        """The decisions about activations that one call in the source runs, as in a loop over layers."""
        site = decision.site
        if decision.form != "wire" or not site.owner.keeps_code or site.place is None:
            return [decision]
        return [
            d for d in self.decisions if d.form == "wire" and (d.site.owner, d.site.place) == (site.owner, site.place)
        ]

    def _enclose(self, wire: Wire, layer: nn.Module, owner: nn.Module) -> None:
        """Clear a wire before and after every forward that may hold both its ends, the outermost of them alone."""
        holders = [module for module, held in self._held.items() if {layer, owner} <= held]
        for level, module in enumerate(sorted(holders, key=lambda module: -len(self._held[module]))):
            if module not in self._begins:
                begin, end = self._begins[module] = Begin(), End()
                end.wires = begin.wires
                self.surgery._undo.append(module.register_forward_pre_hook(begin, prepend=True).remove)
                self._hook(module, end, always_call=True)
            self._begins[module][0].wires.append((wire, level))

    def _hook(self, module: nn.Module, hook: Any, **how: bool) -> None:
        """A forward hook, which goes with the rest when the conversion is undone."""
        self.surgery._undo.append(module.register_forward_hook(hook, **how).remove)

    def _branch(self, decision: Decision) -> None:
        site, owner = decision.site, decision.site.owner
        stem = _stem(next(iter(decision.feeds.values())))
        apical = self.surgery.add(owner.module, f"{stem}_apical", self.made[decision])
        basal, again = None, site in self._read_again
        if again or not same_function(site.function, self._probe):
            basal = self.surgery.add(owner.module, f"{stem}_basal", self.basal[decision])
        for mode, feed in decision.feeds.items():
            affine = self._locate(mode, feed.affine.trail, feed.affine.node)
            start = self._start(site, mode)
            activation = site.nodes[mode] if basal is None else self._call_instead(site, mode, basal, copied=again)
            moves = [self._locate(mode, each.trail, each.node) for each in feed.moves]
            norm = None if feed.norm is None else feed.norm.node
            normed = [each.node is norm for each in feed.moves]
            branch = _copied_way(affine, apical, moves, normed) if moves else _called(affine, apical)
            self._became[activation] = _add_branch(branch, activation, start if again else None)
        self._graphs[id(owner.module)] = owner

    def _locate(self, mode: bool, trail: tuple[tuple[Traced, Node], ...], node: Node) -> Node:
        """The node of a nested module in the graph where the trail begins; modules on the trail are inlined there."""
        if not trail:
            return node
        (owner, call), rest = trail[0], trail[1:]
        child = self.network.traced[id(self.network.resolve(owner, call))] if call not in self._inlined else None
        inner = self._locate(mode, rest, node)
        if child is not None:
            self._inlined[call] = inline(call.graph, call, child, mode)
            owner.settings |= {f"{call.target}.{path}" for path in child.settings}
            result = output(child.graphs[mode])
            assert result is not None
            self._became[call] = self._inlined[call][result]
        node_there: Node = self._inlined[call][inner]
        return node_there

    def _start(self, site: Site, mode: bool) -> Node:
        """The input of an activation, as it is now that others before it were changed."""
        start: Node = site.starts[mode]
        while start in self._became:
            start = self._became[start]
        return start

    def _call_instead(self, site: Site, mode: bool, name: str, *, copied: bool = False) -> Node:
        """Call the module `name` in the place of an activation, on its input or on a copy of that."""
        node, source = site.nodes[mode], self._start(site, mode)
        graph = node.graph
        with graph.inserting_before(node):
            call = graph.call_module(name, (graph.call_method("clone", (source,)) if copied else source,))
        self._replace(site, node, call)
        return call

    def _replace(self, site: Site, last: Node, other: Node) -> None:
        """Put a value in the place of an activation, and take the nodes out that only led there."""
        last.replace_all_uses_with(other)
        self._became[last] = other
        for node in reversed(list(last.graph.nodes)):
            if node in site.members and not node.users:
                last.graph.erase_node(node)


def _keep_code(decisions: list[Decision]) -> None:
    """Let forwards keep their code where other calls in it are all that changes: a graph holds less than code does."""
    for owner in {d.site.owner for d in decisions if d.form in ("swap", "wire") and d.site.module is None}:
        changed = [d for d in decisions if d.site.owner is owner and d.site.module is None and d.form != "keep"]
        edits = all(d.form in ("swap", "wire") and d.site.written_alone for d in changed)
        if not owner.keeps_code and edits and (owner.acts_outside or all(d.form == "swap" for d in changed)):
            owner.keeps_code = True
            for d in changed:
                d.site.place = d.site.expression.place if d.site.expression is not None else None


def _called(affine: Node, name: str) -> Node:
    """What the module `name` makes of the input of `affine`."""
    with affine.graph.inserting_after(affine):
        return affine.graph.call_module(name, (call_input(affine),))


def _copied_way(affine: Node, name: str, moves: list[Node], normed: list[bool]) -> Node:
    """The same, with what happens between the layer and the activation: each move again, the norm by its own."""
    graph, value = affine.graph, _called(affine, f"{name}.affine")
    for move, is_norm in zip(moves, normed, strict=True):
        source = call_input(move)
        with graph.inserting_after(move):
            if is_norm:
                value = graph.call_module(f"{name}.norm", (value,))
            else:
                value = graph.node_copy(move, {**{node: node for node in graph.nodes}, source: value}.__getitem__)
    with graph.inserting_after(value):
        return graph.call_module(f"{name}.activation", (value,))


def _add_branch(apical: Node, activation: Node, written: Node | None) -> Node:
    """Add the branch to `activation`, and write the sum over the value `written`, if one is given."""
    graph = activation.graph
    with graph.inserting_after(activation):
        total = graph.call_function(operator.add, (activation, apical))
    activation.replace_all_uses_with(total, delete_user_cb=lambda user: user is not total)
    if written is None:
        return total
    with graph.inserting_after(total):
        result = graph.call_method("copy_", (written, total))
    total.replace_all_uses_with(result, delete_user_cb=lambda user: user is not result)
    return result


def _depth(traced: Traced) -> int:
    return traced.name.count(".") + bool(traced.name)


def _stem(feed: Feed) -> str:
    """The name of the affine layer as a name in the module where the walk began."""
    calls = [str(call.target) for _, call in feed.affine.trail]
    return ".".join([*calls, str(feed.affine.node.target)]).replace(".", "_")


def _like(module: nn.Module, reference: nn.Module) -> nn.Module:
    """`module` with the device, dtype and memory format of `reference`."""
    for parameter in reference.parameters():
        if parameter.is_floating_point():
            module = module.to(device=parameter.device, dtype=parameter.dtype)
            layout = {4: torch.channels_last, 5: torch.channels_last_3d}.get(parameter.dim())
            last = layout is not None and parameter.is_contiguous(memory_format=layout)
            return module.to(memory_format=layout) if last and not parameter.is_contiguous() else module  # type: ignore[call-overload]
    return module
