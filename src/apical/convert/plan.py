"""What becomes of each activation of a model, decided before anything is changed."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import nn

from apical.convert.branch import ApicalBranch
from apical.convert.flow import Feed, Network, Site, output
from apical.convert.kinds import AFFINES, NORM_FUNCTIONS, call_input, is_ours
from apical.convert.rewrite import why_not
from apical.convert.transformer import is_transformer_layer
from apical.errors import ConversionError
from apical.nn.layers import Neuron
from apical.nn.unit import Unit

Filter = Callable[[str, nn.Module], bool]
Form = Literal["swap", "neuron", "fuse", "branch", "keep"]


@dataclass(eq=False)
class Decision:
    """One activation and what becomes of it.

    swap: another activation takes its place. neuron: a standard neuron of apical becomes a pyramidal one. fuse: affine,
    norm and activation become one pyramidal layer. branch: an apical branch is added beside the path as it is.
    keep: nothing, for `reason`.
    """

    site: Site
    form: Form
    reason: str = ""
    feeds: dict[bool, Feed] = field(default_factory=dict)
    affine: nn.Module | None = None
    norm: nn.Module | None = None

    @property
    def additions(self) -> int:
        return max((feed.additions for feed in self.feeds.values()), default=0)


def decide(network: Network, sites: list[Site], unit: Unit, filter_fn: Filter | None) -> list[Decision]:
    """A decision for each site that the filter accepts."""
    chosen = [site for site in sites if _accepted(site, filter_fn)]
    if sites and not chosen:
        names = ", ".join(dict.fromkeys(site.name for site in sites[:5]))
        first = sites[0].name.partition(".")[0]
        raise ConversionError(
            f"filter_fn accepts none of the {len(sites)} activations ({names}{', ...' if len(sites) > 5 else ''}): "
            f"it is asked filter_fn(name, module), e.g. convert_(model, {str(unit)!r}, "
            f"filter_fn=lambda name, module: name.startswith({first!r}))"
        )
    if unit.pyramidal:
        return _settled(network, sites, [_pyramidal(network, site) for site in chosen])
    return [_standard(network, site, unit) for site in chosen]


def _settled(network: Network, sites: list[Site], decisions: list[Decision]) -> list[Decision]:
    """Keep what cannot be fused after all: an activation with other callers stays, so the forward has to change."""
    while True:
        fused = {decision.site for decision in decisions if decision.form == "fuse"}
        stay = [site for site in fused if not all_fused(network, sites, site, fused)]
        reasons = {site: reason for site in stay if (reason := why_not(site.owner))}
        if not reasons:
            return decisions
        decisions = [
            Decision(d.site, "keep", f"its module has other callers, and {reasons[d.site]}") if d.site in reasons else d
            for d in decisions
        ]


def all_fused(network: Network, sites: list[Site], site: Site, fused: set[Site]) -> bool:
    """Whether every call of this activation module becomes part of a pyramidal layer, so that the module can go."""
    if site.module is None or is_transformer_layer(site.owner.module):
        return site.module is not None or not site.nodes
    calls = [other for other in sites if other.module is site.module and other.nodes]
    return id(site.module) not in network.open and all(call in fused for call in calls)


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


def _standard(network: Network, site: Site, unit: Unit) -> Decision:
    if is_basal(network, site):
        return Decision(site, "keep", "it is the basal activation of a pyramidal neuron")
    reason = why_not(site.owner) if (site.module is None and site.nodes) or overwrites(site) else None
    if reason:
        return Decision(site, "keep", reason)
    decision = Decision(site, "swap")
    if unit.scope == "channel":
        return _with_width(network, decision)
    return decision


def _with_width(network: Network, decision: Decision) -> Decision:
    found = _agreed(network, decision.site) if decision.site.nodes else str(decision.site.owner.error)
    if isinstance(found, str):
        return Decision(decision.site, "keep", f"one value per channel needs the layer's width, but {found}")
    return Decision(decision.site, "swap", feeds=found[0], affine=found[1], norm=found[2])


def overwrites(site: Site) -> bool:
    """Whether the call changes its input in place and something reads that afterwards, or nothing reads the result."""
    return site.in_place and any(later_users(node) or not node.users for node in site.nodes.values())


def later_users(node: Any) -> list[Any]:
    """Who else reads the input of `node` after it."""
    order = {other: place for place, other in enumerate(node.graph.nodes)}
    source = call_input(node)
    return [user for user in source.users if user is not node and order[user] > order[node]]


def is_basal(network: Network, site: Site) -> bool:
    """Whether an apical branch is added to this activation already."""
    for node in site.nodes.values():
        for user in node.users:
            for other in user.all_input_nodes:
                if other.op == "call_module" and isinstance(network.resolve(site.owner, other), ApicalBranch):
                    return True
    return False


def _agreed(network: Network, site: Site) -> tuple[dict[bool, Feed], nn.Module, nn.Module | None] | str:
    """The feed in each mode, its affine layer and its norm, which have to be the same in both; or why not."""
    feeds: dict[bool, Feed] = {}
    for mode in site.nodes:
        found = network.feed(site, mode)
        if isinstance(found, str):
            return found
        feeds[mode] = found
    layers = {id(network.resolve(f.affine.owner, f.affine.node)) for f in feeds.values()}
    norms = {id(_norm(network, f)) for f in feeds.values()}
    if len(layers) > 1 or len(norms) > 1:
        return "another layer feeds it in training than in evaluation"
    feed = next(iter(feeds.values()))
    return feeds, network.resolve(feed.affine.owner, feed.affine.node), _norm(network, feed)


def _norm(network: Network, feed: Feed) -> nn.Module | None:
    if feed.norm is None:
        return None
    if feed.norm.node.op == "call_module":
        return network.resolve(feed.norm.owner, feed.norm.node)
    return feed.norm.owner.module


def _pyramidal(network: Network, site: Site) -> Decision:
    if is_basal(network, site):
        return Decision(site, "keep", "it is the basal activation of a pyramidal neuron")
    if is_transformer_layer(site.owner.module):
        return Decision(site, "fuse", affine=site.owner.module.linear1)  # type: ignore[arg-type]
    if not site.nodes:
        return Decision(site, "keep", str(site.owner.error))
    if type(site.owner.module) is Neuron:
        return Decision(site, "neuron", affine=site.owner.module.affine, norm=site.owner.module.norm)
    found = _agreed(network, site)
    if isinstance(found, str):
        return Decision(site, "keep", found)
    feeds, affine, norm = found
    no_fusion = _why_not_fused(network, site, feeds, affine, norm)
    if no_fusion is None:
        return Decision(site, "fuse", "", feeds, affine, norm)
    no_branch = _why_no_branch(network, site, feeds, affine)
    if no_branch is None:
        return Decision(site, "branch", "", feeds, affine, norm)
    return Decision(site, "keep", f"{no_fusion}, and {no_branch}")


def _why_not_fused(
    network: Network, site: Site, feeds: dict[bool, Feed], affine: nn.Module, norm: nn.Module | None
) -> str | None:
    """Why affine, norm and activation cannot be one layer; None where they can."""
    if any(feed.additions for feed in feeds.values()):
        return "a sum stands before it"
    if not all(network.used_once(feed.path) for feed in feeds.values()):
        return "values before it are used elsewhere too"
    for part in (affine, *([norm] if norm is not None and norm is not site.owner.module else [])):
        if not network.called_once(part) or network.modes(part) != set(site.nodes):
            return "its layers are used elsewhere too"
    if type(affine) not in AFFINES or any(_extras(part) for part in (affine, norm) if part is not None):
        return f"its {type(affine).__name__} is more than torch's own layer"
    if not all(p.requires_grad for part in (affine, norm) if part is not None for p in part.parameters()):
        return "its layers are frozen"
    if norm is not None and norm.training != affine.training:
        return "its norm is in another mode than its layer"
    if norm is site.owner.module:
        return _why_not_removed(network, site, feeds)
    return why_not(site.owner) if site.module is None else None


def _why_not_removed(network: Network, site: Site, feeds: dict[bool, Feed]) -> str | None:
    """A norm whose class applies the activation too goes as a whole: nothing else may be in it."""
    graphs = {mode: site.owner.graphs[mode] for mode in site.nodes}
    if all(output(graph) is site.nodes[mode] for mode, graph in graphs.items()) and all(
        feed.norm is not None and feed.norm.node.target in NORM_FUNCTIONS for feed in feeds.values()
    ):
        return None
    return f"{type(site.owner.module).__name__} does more than normalise and activate"


def _extras(module: nn.Module) -> bool:
    """Whether hooks or parametrisations are attached to a module."""
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or hasattr(module, "parametrizations")


def _why_no_branch(network: Network, site: Site, feeds: dict[bool, Feed], affine: nn.Module) -> str | None:
    """Why no apical branch can be added in the module that calls the activation; None where one can."""
    if any(feed.affine.above for feed in feeds.values()):
        return "its affine layer lies outside the module that calls it"
    if any(len(feed.affine.node.args) + len(feed.affine.node.kwargs) != 1 for feed in feeds.values()):
        return "its affine layer takes more than one input"
    if is_ours(affine) or hasattr(affine, "parametrizations"):
        return f"its {type(affine).__name__} cannot be copied"
    return why_not(site.owner)
