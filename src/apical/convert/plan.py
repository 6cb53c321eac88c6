"""What becomes of each activation of a model, decided before anything is changed."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from torch import nn

from apical.convert.branch import ApicalBranch
from apical.convert.flow import UNCALLED, Feed, FlowGraph, Site, output, own_attributes
from apical.convert.kinds import AFFINES, NORM_FUNCTIONS, TRANSFORMER_LAYERS, is_ours
from apical.convert.rewrite import why_not
from apical.convert.source import (
    Place,
    call_input_place,
    entries,
    has_source,
    is_picked,
    names_in,
    out_of_reach,
    why_no_source,
)
from apical.convert.trace import Traced, place_of
from apical.errors import ConversionError
from apical.nn.layers import Neuron
from apical.nn.unit import Unit

Filter = Callable[[str, nn.Module], bool]
FILTERED = "filter_fn leaves it out"
NOT_ASKED = "it is not among the kinds to convert"
STAYED = "it stayed when the conversion was saved"
PER_CHANNEL = "one value per channel needs the layer's"
OUTSIDE = "its forward does more than a graph shows"
BASAL = "it is the basal activation of a pyramidal neuron"
Form = Literal["swap", "neuron", "fuse", "branch", "wire", "keep"]


@dataclass(eq=False)
class Decision:
    """One activation and what becomes of it.

    swap: another activation takes its place. neuron: a standard neuron of apical becomes a pyramidal one. fuse: affine,
    norm and activation become one pyramidal layer. branch: an apical branch is added beside the path as it is, in the
    graph of the forward. wire: the same, without a change to the forward: the branch gets the input of the affine layer
    over a wire. keep: nothing, for `reason`; `asked` is False where the user left it out.
    """

    site: Site
    form: Form
    reason: str = ""
    feeds: dict[bool, Feed] = field(default_factory=dict)
    affine: nn.Module | None = None
    norm: nn.Module | None = None
    asked: bool = True
    observed: bool = False
    sums: int = 0

    @property
    def additions(self) -> int:
        return max((feed.additions for feed in self.feeds.values()), default=self.sums)


class Feeds(Protocol):
    """Where the layer that feeds an activation is known from, if not from a graph."""

    def feed(self, site: Site) -> tuple[nn.Module, nn.Module | None, int] | str:
        """The affine layer, the norm and the number of sums; or why there is none."""


def decide(
    network: FlowGraph,
    sites: list[Site],
    unit: Unit,
    *,
    chosen_by: Callable[[Site], bool],
    filter_fn: Filter | None = None,
    observed: Feeds | None = None,
) -> list[Decision]:
    """A decision for every site; what the kinds or the filter leave out is kept."""
    chosen = [site for site in sites if site.part_of is None and chosen_by(site)]
    wholes = {id(site.module): site.part_of for site in sites if site.module is not None and site.part_of is not None}
    for site in sites:
        site.written_alone = _is_written_alone(site, sites)
    for site in chosen:
        if site.module is not None and (whole := wholes.get(id(site.module))) is not None:
            site.fixed = f"its module is a part of {whole.name} too"
        elif site.fixed is None and site.is_mixed:
            site.fixed = out_of_reach("in place in one mode alone", site.kind)
    accepted = [site for site in chosen if _accepted(site, filter_fn)]
    if chosen and not accepted:
        names = ", ".join(dict.fromkeys(site.name for site in chosen[:5]))
        first = chosen[0].name.partition(".")[0]
        raise ConversionError(
            f"filter_fn accepts none of the activations ({names}{', ...' if len(chosen) > 5 else ''}): "
            f"it is called as filter_fn(name, module), e.g. convert_(model, {str(unit)!r}, "
            f"filter_fn=lambda name, module: name.startswith({first!r}))"
        )
    if unit.pyramidal:
        decided = _settled(network, chosen, [_pyramidal(network, chosen, site, observed) for site in accepted])
        decided = _alike(decided, set(chosen) - set(accepted))
        if unit.scope == "channel":
            decided = [_with_channels(decision) for decision in decided]
        last: dict[tuple[Traced, int], Site] = {}
        for site in (decision.site for decision in decided if id(decision.site.module) in decision.site.owner.unseen):
            known = last.setdefault((site.owner, id(site.module)), site)
            last[site.owner, id(site.module)] = max(known, site, key=lambda each: each.call)
        others = [replace(s, call=s.call + 1, nodes={}, starts={}, members=set()) for s in last.values()]
        decided += [Decision(site, "keep", "its forward calls it where no graph shows it") for site in others]
        sites = [*sites, *others]
    else:
        decided = [_standard(network, site, unit) for site in accepted]
    by_site = {decision.site: decision for decision in decided}
    left = set(chosen) - set(accepted)
    gone = {decision.site for decision in decided if decision.form != "keep"}
    listed = [site for site in sites if site.part_of not in gone]
    return [by_site.get(site) or _left_out(site, filtered=site in left) for site in listed]


def _left_out(site: Site, *, filtered: bool) -> Decision:
    if site.part_of is not None:
        return Decision(site, "keep", f"it is a part of {site.part_of.name}", asked=False)
    if filtered:
        return Decision(site, "keep", FILTERED, asked=False)
    wanted = (
        f"kinds=[{site.kind!r}] converts it, kinds=[*apical.convert.DEFAULT_KINDS, {site.kind!r}] it and the others"
    )
    reason = site.fixed or f"{NOT_ASKED}: {wanted}"
    return Decision(site, "keep", reason, asked=False)


def _settled(network: FlowGraph, sites: list[Site], decisions: list[Decision]) -> list[Decision]:
    """Keep what cannot be fused after all: an activation with other callers stays, so the forward has to change."""
    while True:
        fused = {decision.site for decision in decisions if decision.form == "fuse"}
        stay = [site for site in fused if not all_fused(network, sites, site, fused)]
        reasons = {site: reason for site in stay if (reason := why_not_rewritten(site))}
        if not reasons:
            return decisions
        decisions = [
            Decision(d.site, "keep", f"its module has other callers, and {reasons[d.site]}") if d.site in reasons else d
            for d in decisions
        ]


def _alike(decisions: list[Decision], left: set[Site]) -> list[Decision]:
    """Keep a call that runs several times, as in a loop, unless it follows its own layer each time: its code is one."""
    runs: dict[Any, list[Decision]] = {}
    for decision in decisions:
        runs.setdefault(_spot(decision.site), []).append(decision)
    mixed = {_spot(site) for site in left} | {_spot(d.site) for d in decisions if d.form != "wire"}
    kept: dict[Decision, Decision] = {}
    for spot, own in runs.items():
        if spot is not None and spot in mixed:
            reason = "its call in the source runs several times, and no affine layer feeds it in each of them"
        elif spot is not None and own[1:] and not _each_after_its_layer(own):
            reason = "its call in the source runs several times, and not each time right after its layer"
        else:
            continue
        kept |= {d: Decision(d.site, "keep", reason) for d in own if d.form == "wire"}
    return [kept.get(d, d) for d in decisions]


def _each_after_its_layer(decisions: list[Decision]) -> bool:
    """Whether between each run of a call and the layer that feeds it there runs no layer of another."""
    owner = decisions[0].site.owner
    for mode, graph in owner.graphs.items():
        layers = [d.feeds[mode].affine for d in decisions if mode in d.feeds]
        if len(layers) < len(decisions) or any(layer.above for layer in layers):
            return False
        places = {node: k for k, node in enumerate(graph.nodes)}
        ran = sorted((places[layer.trail[0][1] if layer.trail else layer.node], "layer") for layer in layers)
        activated = [(places[d.site.nodes[mode]], "activation") for d in decisions]
        if [what for _, what in sorted(ran + activated)] != ["layer", "activation"] * len(decisions):
            return False
    return True


def _spot(site: Site) -> tuple[Traced, Place] | None:
    """Where the source of a forward that keeps its code has the call of an activation."""
    return (site.owner, site.place) if site.owner.keeps_code and site.place is not None else None


def all_fused(network: FlowGraph, sites: list[Site], site: Site, fused: set[Site]) -> bool:
    """Whether every call of this activation module becomes part of a pyramidal layer, so that the module can go."""
    if site.module is None or is_feed_forward(site):
        return site.module is not None or not site.nodes
    calls = [other for other in sites if other.module is site.module]
    return id(site.module) not in network.open and all(call in fused for call in calls)


def is_feed_forward(site: Site) -> bool:
    """Whether this is the activation of a transformer layer that has torch's linear2(dropout(activation(linear1(x)))).

    Code of a subclass does not name it or its layers.
    """
    kind: Any = type(site.owner.module)
    if not issubclass(kind, TRANSFORMER_LAYERS) or site.module is None or site.target != "activation":
        return False
    torchs = kind._ff_block in {own._ff_block for own in TRANSFORMER_LAYERS}
    return torchs and (not entries(kind) or (has_source(kind) and names_in(kind).isdisjoint(_FEED_FORWARD)))


_FEED_FORWARD = ("activation", "linear1", "linear2")


def _accepted(site: Site, filter_fn: Filter | None) -> bool:
    if filter_fn is None:
        return True
    answer: Any = filter_fn(site.name, site.module if site.module is not None else site.owner.module)
    if not isinstance(answer, bool):
        raise ConversionError(
            f"filter_fn returned {answer!r} for {site.name!r}, but must return True or False: "
            "e.g. filter_fn=lambda name, module: name.startswith('layer1')"
        )
    return answer


def why_not_rewritten(site: Site) -> str | None:
    """Why the forward cannot call something else at this place; None where it can."""
    if not site.owner.keeps_code:
        return why_not(site.owner) if not site.owner.acts_outside else None if site.written_alone else OUTSIDE
    place = site.place
    if place is None:
        return "its call was not seen in the source"
    if site.expression is None and place.helper:
        return out_of_reach(f"in a function that is called there{place}", site.kind)
    if site.expression is None and call_input_place(type(site.owner.module), place) is None:
        return "its call is not written out in the source"
    return why_no_source(site.owner.module, place.method)


def _is_written_alone(site: Site, sites: list[Site]) -> bool:
    """Whether the source has an expression that is this activation and no other of the same forward."""
    written = site.expression
    if written is None or not site.nodes or written.place.helper or is_picked(type(site.owner.module), written.place):
        return False
    others = [s for s in sites if s.owner is site.owner and s.module is None and site not in (s, s.part_of)]
    places = [place for other in others for place in (other.place, other.expression and other.expression.place)]
    alone = written.place not in places and all(written.place.holds(place_of(node)) for node in site.nodes.values())
    return alone and why_no_source(site.owner.module, written.place.method) is None


def _standard(network: FlowGraph, site: Site, unit: Unit) -> Decision:
    if site.fixed is not None:
        return Decision(site, "keep", site.fixed)
    if is_basal(network, site):
        return Decision(site, "keep", BASAL)
    written_out = site.module is None and (bool(site.nodes) or site.expression is not None)
    reason = why_not_rewritten(site) if written_out else None
    if reason:
        return Decision(site, "keep", reason)
    decision = Decision(site, "swap")
    if unit.scope == "channel":
        return _with_width(network, decision)
    return decision


def _with_width(network: FlowGraph, decision: Decision) -> Decision:
    fed = _agreed(network, decision.site) if decision.site.nodes else str(decision.site.owner.error)
    if not isinstance(fed, str) and any(feed.moves for feed in fed[0].values()):
        fed = "values are rearranged before it"
    if isinstance(fed, str):
        return Decision(decision.site, "keep", f"{PER_CHANNEL} width, but {fed}")
    return Decision(decision.site, "swap", feeds=fed[0], affine=fed[1], norm=fed[2])


def _with_channels(decision: Decision) -> Decision:
    """One value per channel needs the channels where the layer has them."""
    if any(feed.moves for feed in decision.feeds.values()):
        reason = f"{PER_CHANNEL} channels, but values are rearranged before it"
        return Decision(decision.site, "keep", reason)
    return decision


def is_basal(network: FlowGraph, site: Site) -> bool:
    """Whether an apical branch is added to this activation already."""
    if id(site.module) in network.basal:
        return True
    for node in site.nodes.values():
        for user in node.users:
            for other in user.all_input_nodes:
                if other.op == "call_module" and isinstance(network.resolve(site.owner, other), ApicalBranch):
                    return True
    return False


def _agreed(network: FlowGraph, site: Site) -> tuple[dict[bool, Feed], nn.Module, nn.Module | None] | str:
    """The feed in each mode, its affine layer and its norm, which have to be the same in both; or why not."""
    feeds: dict[bool, Feed] = {}
    for mode in site.nodes:
        feed = network.feed(site, mode)
        if isinstance(feed, str):
            return feed
        feeds[mode] = feed
    layers = {id(network.resolve(f.affine.owner, f.affine.node)) for f in feeds.values()}
    norms = {id(_norm(network, f)) for f in feeds.values()}
    if len(layers) > 1 or len(norms) > 1:
        return "another layer feeds it in training than in evaluation"
    feed = next(iter(feeds.values()))
    return feeds, network.resolve(feed.affine.owner, feed.affine.node), _norm(network, feed)


def _norm(network: FlowGraph, feed: Feed) -> nn.Module | None:
    if feed.norm is None:
        return None
    if feed.norm.node.op == "call_module":
        return network.resolve(feed.norm.owner, feed.norm.node)
    return feed.norm.owner.module


def _pyramidal(network: FlowGraph, sites: list[Site], site: Site, observed: Feeds | None) -> Decision:
    if site.fixed is not None:
        return Decision(site, "keep", site.fixed)
    if is_basal(network, site):
        return Decision(site, "keep", BASAL)
    if is_feed_forward(site):
        first: Any = site.owner.module.linear1
        bound = _why_bound(network, first)
        return Decision(site, "fuse", affine=first) if bound is None else Decision(site, "keep", bound)
    if site.nodes and type(site.owner.module) is Neuron:
        affine, norm = site.owner.module.affine, site.owner.module.norm
        bound = _why_bound(network, affine, norm)
        return Decision(site, "keep", bound) if bound else Decision(site, "neuron", affine=affine, norm=norm)
    fed = _agreed(network, site) if site.nodes else str(site.owner.error or UNCALLED)
    if isinstance(fed, str):
        return _observed(network, sites, site, observed, fed)
    feeds, affine, norm = fed
    no_fusion = _why_not_fused(network, site, feeds, affine, norm)
    if no_fusion is None:
        return Decision(site, "fuse", "", feeds, affine, norm)
    no_branch = _why_no_branch(network, site, feeds, affine)
    if no_branch is None:
        return Decision(site, "branch", "", feeds, affine, norm)
    if any(feed.moves for feed in feeds.values()):
        return Decision(site, "keep", f"values are rearranged between its layer and it, and {no_branch}")
    no_wire = _why_no_wire(network, sites, site, affine, norm)
    if no_wire is None:
        return Decision(site, "wire", "", feeds, affine, norm)
    return Decision(site, "keep", no_wire if no_fusion == no_wire else f"{no_fusion}, and {no_wire}")


def _observed(network: FlowGraph, sites: list[Site], site: Site, observed: Feeds | None, reason: str) -> Decision:
    """The decision where the graphs do not tell: by the layer that fed the activation when the model ran."""
    if observed is None:
        told = site.nodes and ("the input of" not in reason or "the input of the model" in reason)
        hint = "" if told else "; example_inputs would show what feeds it"
        return Decision(site, "keep", reason + hint)
    seen = observed.feed(site)
    if isinstance(seen, str):
        return Decision(site, "keep", seen)
    affine, norm, sums = seen
    no_wire = _why_no_wire(network, sites, site, affine, norm)
    if no_wire is not None:
        return Decision(site, "keep", no_wire)
    return Decision(site, "wire", "", {}, affine, norm, observed=True, sums=sums)


def _why_no_wire(
    network: FlowGraph, sites: list[Site], site: Site, affine: nn.Module, norm: nn.Module | None
) -> str | None:
    """Why no wire can lead from the affine layer to this activation; None where one can."""
    if is_ours(affine):
        return f"its {type(affine).__name__} is a part of a neuron already"
    if norm is not None and norm is site.owner.module and site.module is None:
        return f"{type(norm).__name__} normalises and activates in one"
    if not takes_slot(network, sites, site):
        return why_not_rewritten(site)
    return None


def takes_slot(network: FlowGraph, sites: list[Site], site: Site) -> bool:
    """Whether the activation is a module of its own, called in this one place: another can stand there instead."""
    if (
        site.module is None
        or id(site.module) in site.owner.unseen
        or (not site.nodes and len(network.places(site)) > 1)
    ):
        return False
    return sum(other.module is site.module for other in sites) == 1 and network.slots(site.module) == 1


def _why_not_fused(
    network: FlowGraph, site: Site, feeds: dict[bool, Feed], affine: nn.Module, norm: nn.Module | None
) -> str | None:
    """Why affine, norm and activation cannot be one layer; None where they can."""
    owners = [site.owner, *(value.owner for feed in feeds.values() for value in feed.path)]
    if any(owner.keeps_code or owner.acts_outside for owner in owners):
        return "its forward has ways that no graph shows"
    if any(feed.additions for feed in feeds.values()):
        return "a sum stands before it"
    if any(feed.moves for feed in feeds.values()):
        return "values are rearranged before it"
    if any(feed.dropped for feed in feeds.values()):
        return "dropout stands before it"
    if (used := _why_used_elsewhere(network, site, feeds, affine, norm)) is not None:
        return used
    if site.module is not None and has_extras(site.module):
        return "a hook is attached to it"
    if type(affine) not in AFFINES or any(has_extras(part) for part in (affine, norm) if part is not None):
        return f"its {type(affine).__name__} is more than torch's own layer"
    if (bound := _why_bound(network, affine, norm)) is not None:
        return bound
    frozen = not all(p.requires_grad for part in (affine, norm) if part is not None for p in part.parameters())
    if frozen and id(affine) not in network.frozen_copies:
        return "its layers are frozen"
    if norm is not None and norm.training != affine.training:
        return "its norm is in another mode than its layer"
    if norm is site.owner.module:
        return _why_not_removed(network, site, feeds)
    return why_not_rewritten(site) if site.module is None else None


def _why_used_elsewhere(
    network: FlowGraph, site: Site, feeds: dict[bool, Feed], affine: nn.Module, norm: nn.Module | None
) -> str | None:
    """What else uses the layers, or a value between them and the activation; None where nothing does."""
    if not all(network.used_once(site, feed.path) for feed in feeds.values()):
        return "values before it are used elsewhere too"
    for part in (affine, *([norm] if norm is not None and norm is not site.owner.module else [])):
        if not network.called_once(part) or network.modes(part) != set(site.nodes):
            return "its layers are used elsewhere too"
        if (name := network.named_elsewhere(part)) is not None:
            return f"a method beside the forwards names {name}, and may change it"
    for holder in network.entered_by(feeds.values()):
        if not network.called_once(holder) or network.modes(holder) != set(site.nodes):
            return "the module that holds its layers is called elsewhere too"
    return None


def _why_bound(network: FlowGraph, *layers: nn.Module | None) -> str | None:
    """Why layers have to stay the very ones they are: their parameters are somebody else's too, or say more; or None.

    A layer made from them has parameters of its own.
    """
    for layer in layers:
        if layer is None:
            continue
        name, tensors = type(layer).__name__, [*layer.parameters(), *layer.buffers()]
        if any(network.holders[id(tensor)] > 1 for tensor in tensors):
            return f"its {name} shares a parameter with another"
        if any(tensor._backward_hooks or getattr(tensor, "_post_accumulate_grad_hooks", None) for tensor in tensors):
            return f"a hook is attached to a parameter of its {name}"
        own = [key for tensor in tensors for key in vars(tensor)] + own_attributes(layer)
        if own := [key for key in own if key not in _FOREIGN_MARKS]:
            return f"its {name} has an attribute of its own ({own[0]})"
    return None


_FOREIGN_MARKS = ("_is_hf_initialized",)
"""Attributes that Transformers sets on every layer and parameter, and that say nothing afterwards."""


def _why_not_removed(network: FlowGraph, site: Site, feeds: dict[bool, Feed]) -> str | None:
    """A norm whose class applies the activation too goes as a whole: nothing else may be in it."""
    graphs = {mode: site.owner.graphs[mode] for mode in site.nodes}
    if all(output(graph) is site.nodes[mode] for mode, graph in graphs.items()) and all(
        feed.norm is not None and feed.norm.node.target in NORM_FUNCTIONS for feed in feeds.values()
    ):
        return None
    return f"{type(site.owner.module).__name__} does more than normalise and activate"


def has_extras(module: nn.Module) -> bool:
    """Whether hooks or parametrisations are attached to a module."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or hasattr(module, "parametrizations")


def _why_no_branch(network: FlowGraph, site: Site, feeds: dict[bool, Feed], affine: nn.Module) -> str | None:
    """Why no apical branch can be added in the graph of the forward that calls the activation; None where one can."""
    if site.module is not None and has_extras(site.module):
        return "a hook is attached to it"
    if isinstance(site.owner.module, nn.Sequential) and id(site.owner.module) in network.open:
        return "its parts may be called one by one"
    owners = [site.owner, *(owner for feed in feeds.values() for owner in _inlined(feed))]
    if any(owner.keeps_code or owner.acts_outside for owner in owners):
        return "its forward keeps its code"
    if any(feed.affine.above for feed in feeds.values()):
        return "its affine layer lies outside the module that calls it"
    if any(len(feed.affine.node.args) + len(feed.affine.node.kwargs) != 1 for feed in feeds.values()):
        return "its affine layer takes more than one input"
    if is_ours(affine):
        return f"its {type(affine).__name__} is a part of a neuron already"
    if any(feed.moves and feed.norm is not None and feed.norm.node.op != "call_module" for feed in feeds.values()):
        return "its norm activates too"
    return why_not(site.owner)


def _inlined(feed: Feed) -> list[Traced]:
    """The forwards whose graphs a branch would put into the caller's."""
    return [feed.affine.owner, *(owner for owner, _ in feed.affine.trail)] if feed.affine.trail else []
