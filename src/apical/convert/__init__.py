"""Conversion: another activation, or pyramidal neurons, in any torch network."""

import inspect
import math
import warnings
from collections.abc import Callable, Iterable
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from apical.convert.application import Application, takes_slopes
from apical.convert.branch import started_at_zero
from apical.convert.flow import FlowGraph, Site
from apical.convert.kinds import (
    ALL_KINDS,
    DEFAULT_KINDS,
    FUNCTIONS,
    HeldFunction,
    Selection,
    is_ours,
)
from apical.convert.observation import Observation, multiply_adds, observe, parametrizations_at_rest
from apical.convert.plan import Decision, decide
from apical.convert.probe import (
    elementwise,
    looks_trained,
    maps_alone,
    probe,
    same_function,
    starts_at_zero,
    values_at,
    vanishes,
    where_different,
)
from apical.convert.record import (
    ATTRIBUTE,
    MARK,
    Recorded,
    as_recorded,
    check_same,
    document,
    is_of_transformers,
    local_units,
    part_of,
    pretrained_models,
    read_document,
    record_of,
    selection_of,
)
from apical.convert.report import Change, ConversionReport, Cost, nothing_converted, nothing_to_convert, rows
from apical.convert.rewrite import Surgery, put
from apical.convert.verification import MismatchError, Verification, at_fault
from apical.errors import ApicalError, ConversionError
from apical.nn.unit import Unit

Row = Change  # its former name
Held = tuple[nn.Module, str, nn.Module, Any]
"""A module, the name of its attribute, the module that stands there for a while, and the value."""

__all__ = ["ALL_KINDS", "DEFAULT_KINDS", "Change", "ConversionReport", "Cost", "Row", "convert_", "load"]


def convert_(
    model: nn.Module,
    unit: str | Unit | type[nn.Module] | nn.Module | Callable[..., Any],
    *,
    filter_fn: Callable[[str, nn.Module], bool] | None = None,
    example_inputs: Any = None,
    keep_function: bool = False,
    kinds: Iterable[str] | None = None,
    also: Iterable[type[nn.Module]] | None = None,
) -> ConversionReport:
    """Give `model`, in place, the neurons that `unit` names; returns what became of each activation.

    `unit` is a text (`"ada(alpha=0.5)"`, `"pyramidal(basal=gelu,apical=ada)"`), a Unit, or an activation: a class such
    as `nn.Mish`, an instance, a factory or a function.

    A standard unit takes the place of every activation of `kinds` (DEFAULT_KINDS: those of hidden layers), modules and
    functional calls alike; a module or function of your own that maps elementwise is one activation, whatever it
    computes inside, and goes by its name. A pyramidal unit turns every activation that one affine layer feeds, through
    a norm and residual additions, into a pyramidal neuron. `filter_fn(name, module)` chooses among them, `also` names
    classes that are activations by your word. `example_inputs` (a tensor, a tuple or a dict) let `convert_` observe one
    forward: which layer feeds an activation whose forward cannot be traced, how many inputs are negative or saturated,
    and how many multiplications the change costs. `keep_function` starts apical branches at zero, so that the model
    computes what it did. Build the optimizer after the conversion (and after `undo`): the parameters are new.

    Examples:
        >>> report = convert_(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), "pynada(alpha=0.5)")
        >>> report.converted[0].after
        'PyramidalLinear'
    """
    given, unit = unit, Unit.of(unit)
    if not isinstance(given, (str, Unit)) and not _may_be_unit(unit):
        raise ConversionError(
            f"the unit {given!r} is not elementwise, as an activation must be: give an elementwise one such as "
            "nn.Mish, or register it with apical.register_unit to use it anyway"
        )
    selection = Selection.of(kinds, also)
    _check_arguments(model, filter_fn)
    convert = partial(_convert, model, unit, selection, filter_fn, example_inputs, keep_function=keep_function)
    with torch.inference_mode(False), parametrizations_at_rest(model):  # what is made here is to be trained
        try:
            return convert({})
        except MismatchError as mismatch:
            owners, kept = [*mismatch.owners], mismatch.without
            faulty = at_fault(owners, lambda tried: _fails(convert, kept(tried)))
            if faulty == owners:
                raise
        return convert(kept([name for name in owners if name not in faulty]))


def _fails(convert: Callable[[dict[str, str]], ConversionReport], kept: dict[str, str]) -> bool:
    """Whether a conversion changes more than activations where these modules keep what they have; it is undone."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            convert(kept).undo()
        except MismatchError:
            return True
        except ConversionError:  # nothing is left to convert
            return False
    return False


def _may_be_unit(unit: Unit) -> bool:
    """Whether a unit maps each number by itself, and is not mere chance, as dropout is.

    A straight line is allowed: nn.Identity makes a linear network, which is a baseline.
    """
    activation = probe(unit.basal)
    evaluated = activation.eval()
    if not maps_alone(evaluated):
        return False
    return elementwise(evaluated) is not None or maps_alone(activation.train())


def _convert(
    model: nn.Module,
    unit: Unit,
    selection: Selection,
    filter_fn: Callable[[str, nn.Module], bool] | None,
    example_inputs: Any,
    kept: dict[str, str],
    *,
    keep_function: bool,
) -> ConversionReport:
    """One conversion, whole or not at all; `kept` are modules that keep their activations, by name, and why."""
    surgery = Surgery(model)
    try:
        network, decisions, observed, held = _decided(
            model, unit, selection, surgery, filter_fn, example_inputs, kept, keep_function=keep_function
        )
        return _carry_out(network, surgery, decisions, unit, observed, held, example_inputs, at_zero=keep_function)
    except BaseException:
        surgery.undo()
        raise


def _decided(
    model: nn.Module,
    unit: Unit,
    selection: Selection,
    surgery: Surgery,
    filter_fn: Callable[[str, nn.Module], bool] | None,
    example_inputs: Any,
    kept: dict[str, str],
    *,
    keep_function: bool,
) -> tuple[FlowGraph, list[Decision], Observation | None, list[Held]]:
    held = _hold_functions(model, surgery)
    network = FlowGraph(model, selection, _aliases(held))
    sites = network.sites()
    observed: Observation | None = None
    if example_inputs is not None:
        observed = observe(network, sites, example_inputs, _alpha(unit))
        sites = observed.awake(network.clear(sites, observed.cleared))
        sites = [*(observed.split(sites) if unit.pyramidal else sites), *observed.strays]
    for site in sites:
        site.fixed = site.fixed or kept.get(site.owner.name)
    selection.check(name for site in sites for name in (site.kind, *site.activation.names))
    decisions = decide(network, sites, unit, chosen_by=network.chosen, filter_fn=filter_fn, observed=observed)
    asked = [decision for decision in decisions if decision.asked]
    if not asked:
        listed = [*decisions, *_listed(network, observed)]
        raise ConversionError(nothing_to_convert(network, listed, unit, has_inputs=observed is not None))
    if all(decision.form == "keep" for decision in asked):
        raise ConversionError(nothing_converted(decisions, unit, has_inputs=observed is not None))
    if keep_function:
        _check_function_is_kept(asked, unit)
    else:
        _warn_if_trained(model, asked, unit)
    return network, decisions, observed, held


def _carry_out(
    network: FlowGraph,
    surgery: Surgery,
    decisions: list[Decision],
    unit: Unit,
    observed: Observation | Recorded | None,
    held: list[Held],
    example_inputs: Any = None,
    *,
    at_zero: bool = False,
) -> ConversionReport:
    """Do what was decided, and report it."""
    counting = observed.counting if observed is not None else ()
    record = record_of(network.model, network.selection, str(unit), decisions, counting)
    before, verification = _costs(network.model, example_inputs), Verification(network.model, example_inputs)
    application = Application(network, surgery, decisions, unit, at_zero=at_zero)
    application.run()
    _release_functions(held, surgery)
    varying = verification.check(application)
    records = _note(surgery, record)
    listed = [*decisions, *_listed(network, observed)]
    table = rows(listed, application.made, observed.inputs if isinstance(observed, Observation) else lambda _: "", unit)
    after = _costs(surgery.model, example_inputs)
    parameters, forwards = zip(before, after, strict=True)
    cost = Cost(parameters, forwards if example_inputs is not None else None)
    details = {traced.name or "(the model)": traced.words for traced in network.blind()} | network.unread
    doubtful = [*network.doubtful, *network.unread]
    return ConversionReport(
        surgery.model, str(unit), table, surgery.undo, details, cost, document(records), doubtful, varying
    )


def _listed(network: FlowGraph, observed: Observation | Recorded | None) -> list[Decision]:
    """Values that leave torch, operators that are not linear and unknown calls: as observed, or as the code tells.

    And activations that do not run as the model is set.
    """
    noted = [*network.leaving, *network.operators, *network.unknown]
    sites = [*(observed.others() if isinstance(observed, Observation) else noted), *network.dormant]
    return [Decision(site, "keep", str(site.fixed), asked=False) for site in sites]


def _note(surgery: Surgery, record: dict[str, Any]) -> list[dict[str, Any]]:
    """Keep the record with the model, and with the configurations that Transformers will save, of its parts too.

    What has no configuration of its own, such as a block, bears the mark alone: apical.hub asks where one is missing.
    """
    model, noted = surgery.model, set[int]()
    records = [*getattr(model, ATTRIBUTE, ()), record]
    surgery.set(model, ATTRIBUTE, records)
    marked = [model] if is_of_transformers(model) else []
    for name, part in pretrained_models(model):
        own = record if part is model else part_of(record, name, type(part).__name__)
        if own is not None and not own["activations"]:
            continue
        marked.append(part)
        if own is None or id(part.config) in noted:
            continue
        noted.add(id(part.config))
        if local := local_units([own]):
            warnings.warn(f"save_pretrained would save a model that cannot be loaded: {local}", stacklevel=5)
        if part is not model:
            surgery.set(part, ATTRIBUTE, [*getattr(part, ATTRIBUTE, ()), own])
        surgery.set(part.config, "apical", document(getattr(part, ATTRIBUTE)))
    for part in marked:
        if not hasattr(part, MARK):
            device = next((parameter.device for parameter in part.parameters()), None)
            surgery.buffer(part, MARK, torch.zeros(1, device=device))
    return records


def load(model: nn.Module, source: Any) -> ConversionReport:
    """Convert a fresh `model` as a saved conversion says: `source` is the file, or its contents as a dict.

    Call it before `load_state_dict`. A network in which an activation would become something else is refused.
    """
    _check_arguments(model, None)
    report, before = None, hasattr(model, ATTRIBUTE)
    for record in read_document(source):
        root = _root(model, record)
        surgery = Surgery(root)
        with torch.inference_mode(False), parametrizations_at_rest(root):
            try:
                report = _repeat(root, surgery, record)
            except BaseException as error:
                surgery.undo()
                if before and isinstance(error, ConversionError):
                    raise ConversionError(f"the model is converted already: give a fresh one ({error})") from error
                raise
    if report is None:
        raise ConversionError("the saved conversion is empty: give what report.save wrote")
    return report


def _root(model: nn.Module, record: dict[str, Any]) -> nn.Module:
    """The part of `model` that was converted: all of it, or the one part that has the class of that."""
    if type(model).__name__ == record["root"]:
        return model
    parts = [module for module in model.modules() if type(module).__name__ == record["root"]]
    return parts[0] if len(parts) == 1 else model


def _repeat(model: nn.Module, surgery: Surgery, record: dict[str, Any]) -> ConversionReport:
    unit, wanted = Unit.parse(record["unit"]), {entry["name"] for entry in record["activations"]}
    held = _hold_functions(model, surgery)
    network = FlowGraph(model, selection_of(model, record), _aliases(held))
    recorded = Recorded(network, record)
    sites = network.sites()
    told = [site for site in sites if site.suspected and site.name not in record["kept"]]  # by example inputs
    told += [site for site in sites if site.name in recorded.counting]
    sites = recorded.split(network.clear(sites, told))
    decisions = decide(network, sites, unit, chosen_by=lambda site: site.label in wanted, observed=recorded)
    check_same(record, decisions, network)
    as_recorded(record, decisions)
    return _carry_out(network, surgery, decisions, unit, recorded, held)


def _costs(model: nn.Module, example_inputs: Any) -> tuple[int, int]:
    parameters = sum(parameter.numel() for parameter in model.parameters())
    return parameters, 0 if example_inputs is None else multiply_adds(model, example_inputs)


def _hold_functions(model: nn.Module, surgery: Surgery) -> list[Held]:
    """Functions that modules keep as attributes (`self.act = F.gelu`), each a module for a while, with its value.

    An elementwise function is made a module; the forward of another module is that module.
    """
    held, registered = [], {id(module) for module in model.modules()}
    for module in list(model.modules()):
        if is_ours(module):
            continue
        for name, value in list(vars(module).items()):
            if isinstance(value, MethodType) and isinstance(value.__self__, nn.Module) and name != "forward":
                if (
                    value == value.__self__.forward
                    and value.__self__ is not module
                    and id(value.__self__) in registered
                ):
                    surgery.set(module, name, value.__self__)
                    held.append((module, name, value.__self__, value))
                continue
            if _is_plain_function(value) and name != "forward" and (_known(value) or elementwise(value) is not None):
                function = HeldFunction(value).train(module.training)
                surgery.set(module, name, function)
                held.append((module, name, function, value))
    return held


def _is_plain_function(value: Any) -> bool:
    kinds = (FunctionType, BuiltinFunctionType, MethodDescriptorType, partial, torch.jit.ScriptFunction)
    return isinstance(value, kinds) and not isinstance(getattr(value, "__self__", None), nn.Module)


def _known(value: Any) -> bool:
    return not isinstance(value, partial) and value in FUNCTIONS


def _release_functions(held: list[Held], surgery: Surgery) -> None:
    """Put back the functions that nothing took the place of."""
    for module, name, stand_in, value in held:
        new = surgery.now(stand_in)
        if new is not stand_in:
            put(module, name, new)
        elif getattr(module, name) is stand_in:
            surgery.restore(module, name, value)


def _aliases(held: list[Held]) -> list[tuple[nn.Module, str]]:
    """The attributes that hold the forward of another module, which has a name of its own."""
    return [(module, name) for module, name, _, value in held if isinstance(value, MethodType)]


_WRAPPERS = ("DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule")


def _check_arguments(model: nn.Module, filter_fn: Any) -> None:
    if not isinstance(model, nn.Module):
        raise ConversionError(f"convert_ needs a torch module, got {type(model).__name__}: convert_(model, 'ada')")
    for name, module in model.named_modules():
        wrapper = next((base.__name__ for base in type(module).__mro__ if base.__name__ in _WRAPPERS), None)
        if wrapper is not None:
            raise ConversionError(
                f"{name or 'the model'} is wrapped in {wrapper}, which would not see new parameters: convert the model "
                "first, e.g. convert_(model.module, ...), and wrap the result"
            )
        if isinstance(module, torch.jit.ScriptModule) or "_orig_mod" in module._modules:
            what = f"{name} is" if name else "the model is"
            raise ConversionError(
                f"{what} compiled already ({type(module).__name__}): convert the original model, then compile it"
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
        if decision.form != "keep" and not _is_kept(decision.site, unit.basal, basal):
            raise ConversionError(
                f"keep_function=True is impossible: {decision.site.label} is {_exactly(decision.site, basal)}, but the "
                f"basal activation of {str(unit)!r} is {str(unit.basal)!r}: {_working_call(decisions, decision, unit)}"
            )
    for decision in decisions if unit.pyramidal else ():
        part = started_at_zero(decision.affine, decision.norm) if decision.form != "keep" else None
        if part is not None and decision.affine is not None and not vanishes(part, decision.affine):
            raise ConversionError(
                f"keep_function=True is impossible: {decision.site.label} is fed by {type(part).__name__}, which does "
                "not give 0 with a weight and bias of 0, so that the new branch would change the output: leave "
                f"keep_function out, or pass a filter_fn that leaves {decision.site.name} out"
            )
    if unit.pyramidal and not starts_at_zero(unit.apical):
        raise ConversionError(
            f"keep_function=True is impossible: {str(unit.apical)!r}, the apical activation of {str(unit)!r}, must be "
            "0 at 0 with a nonzero derivative, or the new branch changes the output or never learns: use 'pynada'"
        )


def _is_kept(site: Site, unit: Unit, probed: nn.Module) -> bool:
    """Whether a unit computes what an activation does, or takes over the slopes that it has learned."""
    return same_function(site.function, probed) or takes_slopes(site, unit)


def _exactly(site: Site, other: nn.Module) -> str:
    """What an activation is, told from others of its kind, and from the probe of a unit."""
    source = _source_unit(site)
    if source is not None and not str(source).startswith("local_"):
        return str(source)
    why = "learned" if site.learned else "random" if site.kind == "rrelu" else f"written as {site.written}"
    apart = where_different(site.function, other)
    return f"{site.kind} ({why}{', ' * bool(apart)}{apart})"


def _working_call(decisions: list[Decision], decision: Decision, unit: Unit) -> str:
    """The call that keeps the function of an activation that the unit's basal one is not."""
    source = _source_unit(decision.site)
    if source is None:
        return f"leave keep_function out, or pass a filter_fn that leaves {decision.site.name} out"
    branch = unit.apical if unit.pyramidal else unit if starts_at_zero(unit) else Unit("ada")
    wanted, probed = str(Unit("pyramidal", basal=source, apical=branch)), probe(source)
    sites = [d.site for d in decisions if d.form != "keep"]
    same = [site for site in sites if _is_kept(site, source, probed)]
    if len(same) == len(sites):
        return f"convert_(model, {wanted!r}, keep_function=True)"
    chosen = f"kinds=[{decision.site.kind!r}]"
    if any(site.kind == decision.site.kind and site not in same for site in sites):
        names = ", ".join(repr(name) for name in dict.fromkeys(site.name for site in same))
        chosen = f"filter_fn=lambda name, module: name in [{names}]"
    return f"convert_(model, {wanted!r}, {chosen}, keep_function=True), and the others by calls of their own"


def _source_unit(site: Site) -> Unit | None:
    """A unit that computes what the activation at `site` does; None where none is known."""
    for scope in ("layer", "channel"):
        if takes_slopes(site, Unit("prelu", scope=scope)):
            return Unit("prelu", scope=scope)
    function = site.function
    if function is None:
        return None
    candidates: list[Any] = [site.kind, f"{site.kind}(approximate=tanh)", *_with_settings(function)]
    own = site.module.function if isinstance(site.module, HeldFunction) else site.module
    candidates += [own, None if own is None else type(own)]
    for candidate in candidates:
        try:
            unit = Unit.of(candidate)
            if not unit.pyramidal and same_function(function, probe(unit)):
                return unit
        except (ApicalError, TypeError):  # not every activation has a unit of its own
            continue
    return None


def _with_settings(function: Callable[[torch.Tensor], Any]) -> list[str]:
    """Units with the settings that a few values of a function tell, if it is of their kind."""
    values = values_at(function, (-1e6, -1.0, 0.0, 1.0, 1e6))
    if not values:
        return []
    lowest, below, zero, above, highest = values
    known: list[tuple[str, tuple[float, ...]]] = [
        ("leaky_relu(leak={:.10g})", (-below,)),
        ("elu(alpha={:.10g})", (-lowest,)),
        ("celu(alpha={:.10g})", (-lowest,)),
        ("hardtanh(min_val={:.10g},max_val={:.10g})", (lowest, highest)),
    ]
    if zero > 0:
        known.append(("softplus(beta={:.10g})", (math.log(2) / zero,)))
    if 0 < above < 1:
        known.append(("swish(beta={:.10g})", (math.log(above / (1 - above)),)))
    return [text.format(*(v + 0.0 for v in given)) for text, given in known if all(map(math.isfinite, given))]


def _alpha(unit: Unit) -> float | None:
    """The alpha of ADA, which says where inputs are saturated; None for other units."""
    ada = unit.apical if unit.pyramidal else unit
    if ada.kind not in ("ada", "leaky_ada"):
        return None
    return float(ada.alpha_init or 1.0) if ada.alpha == "learn" else float(ada.alpha)


def _warn_if_trained(model: nn.Module, decisions: list[Decision], unit: Unit) -> None:
    """One sentence where trained weights get another function: the unit's own, or a new branch beside the old one."""
    basal = probe(unit.basal)
    other = [d.site.kind for d in decisions if d.form != "keep" and not same_function(d.site.function, basal)]
    if (other or unit.pyramidal) and looks_trained(model):
        what = f"{str(unit.basal)!r} for its {other[0]}" if other else "a new apical branch"
        hint = "" if other else ", unless keep_function=True starts that branch at zero"
        warnings.warn(
            f"the model looks trained and gets {what}: its outputs change, and it needs further training{hint}",
            stacklevel=5,
        )
