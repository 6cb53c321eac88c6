"""Converted Transformers models, loaded with their conversion.

A conversion travels in the model's configuration (`config.apical`), so `save_pretrained` writes it and `push_to_hub`
sends it along. `from_pretrained` builds the network, converts it as the configuration says, and loads the weights.
"""

import functools
import re
import warnings
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from apical import files
from apical.convert import load
from apical.convert.record import ATTRIBUTE, MARK, is_document, part_of
from apical.errors import ConversionError, InvalidArgumentError, MissingExtraError
from apical.models.registry import limited

__all__ = ["from_pretrained"]

_SINGLE = ("model.safetensors", "pytorch_model.bin")
_FINDING = ("revision", "subfolder", "token", "cache_dir", "local_files_only", "force_download", "proxies")
_INDEX = ("model.safetensors.index.json", "pytorch_model.bin.index.json")


def from_pretrained(cls: Any, path: str | Path, *, dtype: torch.dtype | str | None = None, **options: Any) -> Any:
    """The model that `save_pretrained` wrote to `path` (a folder, or a name on the hub), conversion included.

    `cls` is the class that plain `cls.from_pretrained(path)` would be called on, a model or `AutoModel...`. `dtype` is
    that of the weights unless you give another. `options` are a `config`, settings of the configuration, and what finds
    the files (`revision`, `subfolder`, `token`, `cache_dir`, ...); others are refused. A model without a conversion is
    loaded by its class alone, with all that it takes.
    """
    dtype = _dtype(options.pop("torch_dtype", dtype))  # Transformers' older name
    place = _Place(str(path), {name: options.pop(name) for name in _FINDING if name in options})
    config, rest = _config(cls, place, options)
    conversion = getattr(config, "apical", None)
    if conversion is None:
        if marks := [key for key in _keys(place) if key.endswith(MARK)]:
            raise ConversionError(_lost(path, marks))
        asked = {} if dtype is None else {"dtype": dtype}
        return cls.from_pretrained(path, config=config, **asked, **place.options, **rest)
    if not isinstance(conversion, dict) or not is_document(conversion):  # a text would be the path of a file
        raise ConversionError(
            f"the entry apical in the configuration of {path} (config.json) is no conversion that this version of "
            "apical reads: save the model again"
        )
    if rest:
        raise InvalidArgumentError(
            f"apical.hub.from_pretrained cannot pass {', '.join(rest)} on for {path}, which was converted: it takes "
            f"dtype, config, settings of the configuration, {', '.join(_FINDING)}; move or wrap the model afterwards"
        )
    del config.apical  # it comes back with the conversion
    build, state = getattr(cls, "from_config", cls), _weights(place)
    with limited(str(path), state.values()), torch.device("meta"):
        build(config)  # without memory: the configuration may ask for far more than the weights hold
    model = build(config)
    load(model, _for(model, conversion))
    floating = [value.dtype for value in state.values() if value.is_floating_point()]
    if dtype is not None or floating:
        model.to(dtype or floating[0])
    _load(model, state, path)
    return model.eval()


def warn_of_plain_loading() -> None:
    """From now on, Transformers' own `from_pretrained` warns where it leaves a conversion out."""
    base = _transformers("transformers.modeling_utils").PreTrainedModel
    plain = vars(base)["from_pretrained"].__func__
    if hasattr(plain, "warns_for_apical"):
        return

    @functools.wraps(plain)
    def loaded(cls: Any, path: Any, *args: Any, **options: Any) -> Any:
        result = plain(cls, path, *args, **options)
        model = result[0] if isinstance(result, tuple) else result
        if getattr(model.config, "apical", None) is not None and not hasattr(model, ATTRIBUTE):
            warnings.warn(
                f"the model in {path} was converted by apical, and {cls.__name__}.from_pretrained ignores the "
                f"conversion: load it with apical.hub.from_pretrained({cls.__name__}, {str(path)!r})",
                stacklevel=2,
            )
        return result

    loaded.warns_for_apical = True  # type: ignore[attr-defined]
    base.from_pretrained = classmethod(loaded)


class _Place(NamedTuple):
    """A folder, or a name on the hub, and how to find its files there."""

    path: str
    options: dict[str, Any]

    def file(self, name: str) -> str | None:
        missing = {
            f"_raise_exceptions_for_{what}": False for what in ("missing_entries", "gated_repo", "connection_errors")
        }
        cached = _transformers("transformers.utils").cached_file
        return cached(self.path, name, **missing, **self.options)  # type: ignore[no-any-return]


def _dtype(dtype: torch.dtype | str | None) -> torch.dtype | None:
    """None for that of the weights."""
    named = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype in (None, "auto"):
        return None
    if not isinstance(named, torch.dtype):
        raise InvalidArgumentError(f"dtype is {dtype!r}: give a torch.dtype, its name ('bfloat16') or 'auto'")
    return named


def _config(cls: Any, place: _Place, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The configuration, and the options that it does not know."""
    given = options.pop("config", None)
    if given is not None and not isinstance(given, (str, Path)):
        return given, options
    config_class = getattr(cls, "config_class", None) or _transformers("transformers").AutoConfig
    made, rest = config_class.from_pretrained(
        given or place.path, return_unused_kwargs=True, **place.options, **options
    )
    return made, {name: value for name, value in rest.items() if name not in place.options}


def _transformers(module: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError("apical.hub needs transformers: pip install transformers") from error


def _keys(place: _Place) -> list[str]:
    """The names of the tensors of a checkpoint; none where safetensors do not tell them."""
    with suppress(OSError, ValueError, AttributeError):
        if (file := place.file(_SINGLE[0])) is not None:
            return list(files.weights_header(Path(file), follow=True))
        if (index := place.file(_INDEX[0])) is not None:
            return list(files.parse_json(files.read_bytes(index, limit=files.LIMIT)).get("weight_map", {}))
    return []


def _weights(place: _Place) -> dict[str, Tensor]:
    """The tensors of a checkpoint, in one file or in several that an index lists."""
    for name in _SINGLE:
        if (file := place.file(name)) is not None:
            return _tensors(file)
    for name in _INDEX:
        if (file := place.file(name)) is not None:
            return {key: value for part in _parts(Path(file)) for key, value in _part(place, part).items()}
    raise ConversionError(f"{place.path} has no weights: expected one of {', '.join((*_SINGLE, *_INDEX))}")


def _parts(index: Path) -> list[str]:
    """The files that an index names, all beside it."""
    try:
        parts = sorted(set(files.parse_json(files.read_bytes(index, limit=files.LIMIT))["weight_map"].values()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise ConversionError(
            f"{index} is not an index of weights ({files.one_line(error)}): save them again"
        ) from error
    if strange := [name for name in parts if not re.fullmatch(r"[\w-][\w.-]*", str(name))]:
        raise ConversionError(f"{index} names the file {strange[0]!r}, which is not beside it: it is refused")
    return parts


def _part(place: _Place, name: str) -> dict[str, Tensor]:
    if (file := place.file(name)) is None:
        raise ConversionError(f"{place.path} has no {name}, which its index names: fetch or save it again")
    return _tensors(file)


def _tensors(file: str) -> dict[str, Tensor]:
    if not file.endswith(".safetensors"):
        raise ConversionError(
            f"{file} is a pickle, which apical does not open: save the model with safetensors, as save_pretrained does"
        )
    try:
        return files.read_weights(Path(file), follow=True)  # the cache of the hub is made of links
    except (OSError, ValueError) as error:
        raise ConversionError(f"{file} is not a safetensors file or is damaged ({files.one_line(error)})") from error


def _for(model: Any, conversion: dict[str, Any]) -> dict[str, Any]:
    """The conversion of a model with a head, for its base model alone; else as it is."""
    prefix = getattr(model, "base_model_prefix", "")
    if not prefix or hasattr(model, prefix):
        return conversion
    records = [_for_base(record, prefix, type(model).__name__) for record in conversion["conversions"]]
    return conversion | {"conversions": records}


def _for_base(record: dict[str, Any], prefix: str, kind: str) -> dict[str, Any]:
    own = part_of(record, prefix, kind) if record["root"] != kind else None
    return own if own is not None and own["activations"] else record


def _load(model: Any, state: dict[str, Tensor], path: str | Path) -> None:
    """Load the weights. The head may be another one, or gone, as with Transformers' own from_pretrained."""
    prefix, expected = f"{getattr(model, 'base_model_prefix', '')}.", model.state_dict()
    headed, saved_with_head = (any(key.startswith(prefix) for key in keys) for keys in (expected, state))
    if saved_with_head and not headed:
        state = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    elif headed and not saved_with_head:
        state = {prefix + key: value for key, value in state.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    model.tie_weights()
    values = model.state_dict(keep_vars=True)
    tied = {id(value) for key, value in values.items() if key not in missing}
    missing = [key for key in missing if id(values[key]) not in tied]
    marks = [key for key in missing if key.endswith(MARK)]
    new = [key for key in missing if headed and not key.startswith(prefix) and key not in marks]
    unused = [key for key in unexpected if headed and not key.startswith(prefix)]
    lost = [key for key in missing if key not in (*new, *marks)]
    excess = [key for key in unexpected if key not in unused]
    if marks and not (lost or excess) and not any(key.endswith(MARK) for key in state):
        raise ConversionError(
            f"{path} was saved by a network that had lost its conversion, as after plain from_pretrained: save it "
            "again from one that apical.hub.from_pretrained loaded"
        )
    if parts := [key for key in excess if key.endswith(MARK)]:
        raise ConversionError(_lost(path, parts))
    if lost or excess:
        faults = [f"{len(keys)} {what} (e.g. {', '.join(keys[:2])})" for keys, what in (
            (lost, "are missing"), (excess, "fit nothing")) if keys]  # fmt: skip
        raise ConversionError(
            f"the weights in {path} do not fit {type(model).__name__}: {' and '.join(faults)}; load it with the class "
            "that was saved"
        )
    if new:
        start = "which starts" if len(new) == 1 else "which start"
        warnings.warn(f"{path} does not hold {', '.join(new)}, {start} at random: train the model", stacklevel=3)


def _lost(path: str | Path, marks: list[str]) -> str:
    """What to say of a checkpoint with parts whose conversions stand nowhere."""
    parts = ", ".join(key.removesuffix(MARK).rstrip(".") or "the model" for key in marks)
    return (
        f"the model in {path} was converted in part ({parts}), and its configuration does not say how: convert the "
        "whole model (filter_fn picks its parts), or save report.save's file too, and load with apical.convert.load"
    )
