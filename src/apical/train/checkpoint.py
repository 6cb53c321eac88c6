"""Checkpoints: one safetensors file, the tensors by name and everything else as JSON in its header.

One file and one rename, so that weights, optimiser, random state, position and best model always belong together.
Nothing is unpickled; a malformed file is refused.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from apical import files, imports
from apical.errors import CheckpointError

FORMAT: Final = "apical checkpoint 1"


@dataclass(frozen=True)
class Checkpoint:
    """Tensors by name, and what JSON can say."""

    tensors: dict[str, Tensor]
    facts: dict[str, Any]

    def part(self, prefix: str) -> dict[str, Tensor]:
        """The tensors whose names start with `prefix` and a colon, without it."""
        start = f"{prefix}:"
        return {name.removeprefix(start): t for name, t in self.tensors.items() if name.startswith(start)}


def save(path: Path, tensors: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
    """Write a checkpoint whole or not at all."""
    safetensors = imports.optional("safetensors.torch", extra="lab")
    text = json.dumps(facts, allow_nan=False)
    data = safetensors.save(_separate(tensors), metadata={"format": FORMAT, "facts": text})
    files.save(path, data)


def load(path: Path) -> Checkpoint:
    """Read a checkpoint on the CPU, or raise CheckpointError."""
    facts = read_facts(path)
    try:
        return Checkpoint(files.read_weights(path), facts)
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error


def read_facts(path: Path) -> dict[str, Any]:
    """The facts alone; every check of the header that does not need the tensors."""
    header = _header(path)
    meta = header.get("__metadata__")
    if not isinstance(meta, dict) or meta.get("format") != FORMAT or not isinstance(meta.get("facts"), str):
        raise CheckpointError(f"{path} is a safetensors file, but not a checkpoint of apical ({FORMAT!r} is not in it)")
    try:
        facts = files.parse_json(meta["facts"])
    except ValueError as error:
        raise damaged(path, error) from error
    if not isinstance(facts, dict):
        raise damaged(path, "its facts are not a JSON object")
    return facts


def _header(path: Path) -> dict[str, Any]:
    try:
        return files.weights_header(path)
    except OSError as error:
        raise CheckpointError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise damaged(path, error) from error


def damaged(path: Path, why: object) -> CheckpointError:
    """The sentence for a file that is not what it says."""
    return CheckpointError(
        f"{path} is not a checkpoint or is damaged ({' '.join(str(why).split())[:150]}): delete it to start again"
    )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn what comes of values that do not fit, be it torch that says so, into the sentence for a damaged file."""
    try:
        yield
    except CheckpointError:
        raise
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RuntimeError, OverflowError) as error:
        raise damaged(path, error if isinstance(error, ValueError) else f"{type(error).__name__}: {error}") from error


def copy_into(target: Mapping[str, Tensor], source: Mapping[str, Tensor], *, what: str) -> None:
    """Copy tensors by name, in place; names, shapes and dtypes must agree exactly."""
    check_fit(target, source, what=what)
    with torch.no_grad():
        for name, tensor in target.items():
            tensor.copy_(source[name])


def check_fit(target: Mapping[str, Tensor], source: Mapping[str, Tensor], *, what: str) -> None:
    """Refuse tensors whose names, shapes or dtypes do not agree with those of `target`."""
    missing, strange = sorted(target.keys() - source.keys()), sorted(source.keys() - target.keys())
    if missing or strange:
        raise CheckpointError(f"{what} does not fit: {missing[:3]} are missing and {strange[:3]} are unexpected")
    for name, tensor in target.items():
        given = source[name]
        if given.shape != tensor.shape or given.dtype != tensor.dtype:
            raise CheckpointError(
                f"{what} does not fit: {name} is {given.dtype} {tuple(given.shape)} and should be "
                f"{tensor.dtype} {tuple(tensor.shape)}"
            )


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous CPU tensors that share no memory, as the format wants them."""
    seen: set[int] = set()
    out = {}
    for name, tensor in tensors.items():
        flat = tensor.detach().to("cpu").contiguous()
        storage = flat.untyped_storage()
        if storage.data_ptr() in seen or storage.nbytes() != flat.numel() * flat.element_size():
            flat = flat.clone(memory_format=torch.contiguous_format)
        seen.add(flat.untyped_storage().data_ptr())
        out[name] = flat
    return out
