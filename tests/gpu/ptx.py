"""PTX, evaluated on the CPU: all threads of all programs at once, one instruction after the other.

Registers hold bits, one number for each thread. A branch must be taken by all threads or by none, so a barrier does
nothing. Memory is a list of segments at addresses above 2^40, where a place cut to 32 bits points nowhere; it refuses
what is out of bounds or misaligned for its width, and counts how often every byte is read and written. An exponential
is wrong by as much as the manual allows, down for even threads and up for odd ones. Unknown instructions are errors.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import torch

Lanes = np.ndarray[Any, Any]

_FLOATS = {"f32": np.float32, "f64": np.float64, "f16": np.float16}
_EX2_ERROR = 2.0**-22


class Memory:
    """Segments of device memory, each with the tensor that stands in it."""

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.tensors: list[torch.Tensor] = []
        self.bytes: list[Lanes] = []
        self.reads: list[Lanes] = []
        self.writes: list[Lanes] = []

    def add(self, tensor: torch.Tensor, first: int = 0) -> int:
        """The address of `tensor`, of which element `first` and those behind it are kept."""
        start = (1 << 40) + (len(self.starts) << 36) + first * tensor.element_size()
        self.starts.append(start)
        self.tensors.append(tensor)
        self.bytes.append(tensor.detach().flatten().view(torch.uint8).numpy())  # shared: what is written shows
        self.reads.append(np.zeros(len(self.bytes[-1]), np.int64))
        self.writes.append(np.zeros(len(self.bytes[-1]), np.int64))
        return start - first * tensor.element_size()

    def _places(self, addresses: Lanes, width: int) -> Iterable[tuple[int, Lanes, Lanes]]:
        assert not (addresses % width).any(), f"an access of {width} bytes is not aligned"
        segments = np.searchsorted(np.array(self.starts), addresses, side="right") - 1
        for i in np.unique(segments):
            assert i >= 0, "an access below every tensor"
            lanes = np.flatnonzero(segments == i)
            offsets = addresses[lanes] - self.starts[i]
            assert (offsets + width <= len(self.bytes[i])).all(), f"an access beyond tensor {i}"
            yield i, lanes, offsets[:, None] + np.arange(width)

    def load(self, addresses: Lanes, width: int) -> Lanes:
        result = np.zeros((len(addresses), width), np.uint8)
        for i, lanes, places in self._places(addresses, width):
            result[lanes] = self.bytes[i][places]
            np.add.at(self.reads[i], places, 1)
        return result

    def store(self, addresses: Lanes, data: Lanes) -> None:
        for i, lanes, places in self._places(addresses, data.shape[1]):
            self.bytes[i][places] = data[lanes]
            np.add.at(self.writes[i], places, 1)


def evaluate(text: str, parameters: Sequence[float | int], memory: Memory, programs: range, of: int) -> None:
    """Run `programs` of a grid of `of` of the one kernel in `text`."""
    _Evaluation(text, parameters, memory, programs, of).run()


class _Evaluation:
    def __init__(self, text: str, parameters: Sequence[float | int], memory: Memory, programs: range, of: int) -> None:
        found = re.search(r"\.reqntid\s+(\d+)", text)
        assert found, "no .reqntid"
        self.threads = int(found[1])
        self.lanes = self.threads * len(programs)
        self.memory = memory
        self.shared = np.zeros((len(programs), 1 << 16), np.uint8)
        self.program = np.repeat(np.arange(len(programs)), self.threads)
        self.thread = np.tile(np.arange(self.threads), len(programs))
        self.registers: dict[str, Lanes] = {
            "%ctaid.x": np.repeat(np.array(programs), self.threads).astype(np.uint64),
            "%tid.x": self.thread.astype(np.uint64),
            "%nctaid.x": self._all(of),
            "global_smem": self._all(0),
        }
        kinds = re.findall(r"\.param \.(\w+)(?: \.ptr[\w. ]*)? (\w+_param_\d+)", text)
        assert len(kinds) == len(parameters), f"{len(kinds)} parameters in the PTX, {len(parameters)} values"
        self.parameters = {
            name: self._all(int(np.float32(v).view(np.uint32)) if kind == "f32" else int(v))
            for (kind, name), v in zip(kinds, parameters, strict=True)
        }
        self.code: list[tuple[str, str, list[str]]] = []
        self.labels: dict[str, int] = {}
        body = text[text.index(".reqntid") :]
        for line in re.sub(r"//.*", "", body[body.index("{") + 1 : body.index("\n}")]).splitlines():
            self._parse(line.strip())

    def _parse(self, line: str) -> None:
        label = re.fullmatch(r"(\$\w+):", line)
        if label:
            self.labels[label[1]] = len(self.code)
        elif line and not line.startswith("."):
            found = re.fullmatch(r"(?:@(!?%p\d+) )?([\w.:]+)\s*(.*?);", line)
            assert found, f"cannot read {line!r}"
            operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s{\[][^,]*", found[3])
            self.code.append((found[1] or "", found[2], [o.strip() for o in operands]))

    def run(self) -> None:
        at = 0
        with np.errstate(all="ignore"):
            while at < len(self.code):
                predicate, name, operands = self.code[at]
                at += 1
                active = np.ones(self.lanes, bool)
                if predicate:
                    active = self.registers[predicate.lstrip("!")].astype(bool) ^ predicate.startswith("!")
                if name in {"bra", "bra.uni"}:
                    assert active.all() or not active.any(), "threads part ways"
                    at = self.labels[operands[0]] if active.all() else at
                elif name == "ret":
                    assert active.all(), "some threads return"
                    return
                elif name not in {"bar.sync"}:
                    operation, *kinds = name.split(".")
                    method = getattr(self, f"_{operation}", None)
                    assert method is not None, f"unknown instruction {name}"
                    method(kinds, operands, active)

    # ---- registers and values ------------------------------------------------------------------------------------

    def _all(self, value: int) -> Lanes:
        return np.full(self.lanes, value & (2**64 - 1), np.uint64)

    def _bits(self, operand: str) -> Lanes:
        if operand in self.registers:
            return self.registers[operand]
        if re.fullmatch(r"0[fF][0-9A-Fa-f]{8}", operand):
            return self._all(int(operand[2:], 16))
        return self._all(int(operand.rstrip("U"), 0))

    def _value(self, operand: str, kind: str) -> Lanes:
        return _typed(self._bits(operand), kind)

    def _set(self, operand: str, bits: Lanes, active: Lanes) -> None:
        if operand != "_":
            old = self.registers.get(operand, self._all(0))
            self.registers[operand] = np.where(active, bits.astype(np.uint64), old)

    def _arithmetic(self, kinds: list[str], operands: list[str], active: Lanes, function: Any) -> None:
        kind = kinds[-1].removesuffix("x2")
        if kind != kinds[-1]:  # two numbers in one register
            width = np.uint64(kind[1:] if kind != "bf16" else 16)
            halves = ([_typed(self._bits(o) >> shift, kind) for o in operands[1:]] for shift in (np.uint64(0), width))
            low, high = (_packed(function(*half), kind) for half in halves)
            self._set(operands[0], low | (high << width), active)
        else:
            self._set(operands[0], _packed(function(*(self._value(o, kind) for o in operands[1:])), kind), active)

    # ---- instructions --------------------------------------------------------------------------------------------

    def _add(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        self._arithmetic(kinds, operands, active, lambda a, b: a + b)

    def _sub(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        self._arithmetic(kinds, operands, active, lambda a, b: a - b)

    def _neg(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        self._arithmetic(kinds, operands, active, lambda a: -a)

    def _and(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        self._set(operands[0], self._bits(operands[1]) & self._bits(operands[2]), active)

    def _or(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        self._set(operands[0], self._bits(operands[1]) | self._bits(operands[2]), active)

    def _xor(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        self._arithmetic(kinds, operands, active, lambda a, b: a ^ b)

    def _not(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        bits = self._bits(operands[1])
        self._set(operands[0], bits ^ self._all(1) if kinds == ["pred"] else _cut(~bits, kinds[-1]), active)

    def _mul(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        if kinds[0] == "wide":
            self._wide(kinds[-1], operands, active, lambda a, b: a * b)
        else:
            assert kinds[0] != "hi"
            self._arithmetic(kinds, operands, active, lambda a, b: a * b)

    def _mad(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        if kinds[0] == "wide":
            product = _widened(self._value(operands[1], kinds[1])) * _widened(self._value(operands[2], kinds[1]))
            total = product.astype(np.uint64) + self._bits(operands[3])
            self._set(operands[0], total, active)
        else:
            self._arithmetic(kinds, operands, active, lambda a, b, c: a * b + c)

    def _wide(self, kind: str, operands: list[str], active: Lanes, function: Any) -> None:
        a, b = (_widened(self._value(o, kind)) for o in operands[1:])
        self._set(operands[0], function(a, b).astype(np.uint64), active)

    def _div(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        self._arithmetic(kinds, operands, active, _quotient)

    def _rem(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        self._arithmetic(kinds, operands, active, lambda a, b: a - _quotient(a, b) * b)

    def _shl(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        self._set(operands[0], _cut(self._bits(operands[1]) << self._bits(operands[2]), kinds[-1]), active)

    def _shr(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        value = self._value(operands[1], kinds[-1])
        self._set(operands[0], _packed(value >> self._bits(operands[2]).astype(value.dtype), kinds[-1]), active)

    def _bfe(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        assert kinds == ["u32"]
        value, first, count = (self._bits(o) for o in operands[1:])
        self._set(operands[0], (value >> first) & ((np.uint64(1) << count) - np.uint64(1)), active)

    def _prmt(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        both = self._bits(operands[1]) | (self._bits(operands[2]) << np.uint64(32))
        selector, result = self._bits(operands[3]), self._all(0)
        assert not (selector & np.uint64(0x8888)).any()
        for i in range(4):
            byte = (selector >> np.uint64(4 * i)) & np.uint64(7)
            result |= ((both >> (byte * np.uint64(8))) & np.uint64(255)) << np.uint64(8 * i)
        self._set(operands[0], result, active)

    def _fma(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        self._arithmetic(
            kinds, operands, active, lambda a, b, c: a.astype(np.float64) * b.astype(np.float64) + c.astype(np.float64)
        )

    def _ex2(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        wrong = np.where(self.thread % 2, 1 + _EX2_ERROR, 1 - _EX2_ERROR)
        self._arithmetic(kinds, operands, active, lambda a: np.exp2(a.astype(np.float64)) * wrong)

    def _selp(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        chosen = np.where(self._bits(operands[3]) != 0, self._bits(operands[1]), self._bits(operands[2]))
        self._set(operands[0], _cut(chosen, kinds[-1]), active)

    def _setp(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        compare, kind = kinds[0], kinds[-1]
        targets = operands[0].split("|")
        for i, target in enumerate(targets):
            values = [self._bits(o) >> np.uint64(16 * i) for o in operands[1:]]
            a, b = (_typed(v, kind.removesuffix("x2")) for v in values)
            self._set(target, _COMPARISONS[compare](a, b), active)

    def _mov(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        target, source = operands
        if target.startswith("{"):
            parts = [p.strip() for p in target.strip("{} ").split(",")]
            width = int(kinds[-1][1:]) // len(parts)
            for i, part in enumerate(parts):
                self._set(part, (self._bits(source) >> np.uint64(width * i)) & np.uint64(2**width - 1), active)
        elif source.startswith("{"):
            parts = [p.strip() for p in source.strip("{} ").split(",")]
            width = int(kinds[-1][1:]) // len(parts)
            bits = self._all(0)
            for i, part in enumerate(parts):
                bits |= (self._bits(part) & np.uint64(2**width - 1)) << np.uint64(width * i)
            self._set(target, bits, active)
        else:
            bits = self._bits(source)
            self._set(target, (bits != 0) if kinds == ["pred"] else _cut(bits, kinds[-1]), active)

    def _cvt(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        to, source = kinds[-2], kinds[-1]
        if to.endswith("x2"):  # the first operand goes to the upper half
            high, low = (_packed(self._value(o, source), to[:-2]) for o in operands[1:])
            self._set(operands[0], (high << np.uint64(16)) | low, active)
        else:
            self._set(operands[0], _packed(self._value(operands[1], source), to), active)

    def _shfl(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        assert kinds == ["sync", "bfly", "b32"]
        assert active.all()
        partner = np.arange(self.lanes) ^ int(operands[2], 0)
        self._set(operands[0].split("|")[0], self._bits(operands[1])[partner], active)

    def _ld(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        place, count = operands[1].strip("[] "), self._count(kinds)
        if kinds[0] == "param":
            value = self.parameters[place]
            self._set(operands[0], _widened(_typed(value, kinds[-1])).astype(np.uint64), active)
            return
        size = int(kinds[-1][1:]) // 8
        lanes, addresses = np.flatnonzero(active), self._addresses(place)
        if kinds[0] == "global":
            data = self.memory.load(addresses[lanes], size * count)
        else:
            data = self.shared[self.program[lanes][:, None], addresses[lanes][:, None] + np.arange(size * count)]
        for i, target in enumerate(p.strip() for p in operands[0].strip("{} ").split(",")):
            bits = self._all(0)
            bits[lanes] = _joined(data[:, i * size : (i + 1) * size])
            self._set(target, bits, active)

    def _st(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        size = int(kinds[-1][1:]) // 8
        lanes, addresses = np.flatnonzero(active), self._addresses(operands[0].strip("[] "))
        parts = [self._bits(p.strip())[lanes] for p in operands[1].strip("{} ").split(",")]
        assert len(parts) == self._count(kinds)
        data = np.concatenate([_split(part, size) for part in parts], axis=1)
        if kinds[0] == "global":
            self.memory.store(addresses[lanes], data)
        else:
            self.shared[self.program[lanes][:, None], addresses[lanes][:, None] + np.arange(data.shape[1])] = data

    def _ldmatrix(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        assert active.all()
        for i, target in enumerate(p.strip() for p in operands[0].strip("{} ").split(",")):
            low, high = (self.shared[self.program[:, None], p] for p in self._matrix(kinds, operands[1], i))
            self._set(target, _joined(low) | (_joined(high) << np.uint64(16)), active)

    def _stmatrix(self, kinds: list[str], operands: list[str], active: Lanes) -> None:
        assert active.all()
        for i, source in enumerate(p.strip() for p in operands[1].strip("{} ").split(",")):
            for k, places in enumerate(self._matrix(kinds, operands[0], i)):
                self.shared[self.program[:, None], places] = _split(self._bits(source) >> np.uint64(16 * k), 2)

    def _matrix(self, kinds: list[str], operand: str, i: int) -> list[Lanes]:
        """Where the two 16-bit numbers of every thread stand in matrix i: 8 rows of 16 bytes, whose addresses eight
        threads of the warp give. Thread t has row t // 4, pair t % 4; transposed, column t // 4 of two rows.
        """
        assert kinds[2] == "m8n8"
        addresses, lane = self._addresses(operand.strip("[] ")), np.arange(self.lanes)
        first, t = lane // 32 * 32 + 8 * i, lane % 32
        if "trans" in kinds:
            places = [addresses[first + t % 4 * 2 + k] + t // 4 * 2 for k in (0, 1)]
        else:
            places = [addresses[first + t // 4] + t % 4 * 4 + 2 * k for k in (0, 1)]
        return [place[:, None] + np.arange(2) for place in places]

    def _count(self, kinds: list[str]) -> int:
        return next((int(k[1:]) for k in kinds if re.fullmatch(r"v\d", k)), 1)

    def _addresses(self, place: str) -> Lanes:
        base, _, offset = place.partition("+")
        return self._bits(base.strip()).astype(np.int64) + int(offset.strip() or "0", 0)


_COMPARISONS: dict[str, Any] = {
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "neu": lambda a, b: ~(a == b),
    "leu": lambda a, b: ~(a > b),
    "ltu": lambda a, b: ~(a >= b),
    "geu": lambda a, b: ~(a < b),
    "gtu": lambda a, b: ~(a <= b),
    "nan": lambda a, b: np.isnan(a) | np.isnan(b),
}


def _cut(bits: Lanes, kind: str) -> Lanes:
    """The bits that a register of this kind holds."""
    width = int(re.sub(r"\D", "", kind.removesuffix("x2")) or 64)
    return bits & np.uint64(2 ** (2 * width if kind.endswith("x2") else width) - 1)


def _typed(bits: Lanes, kind: str) -> Lanes:
    """Bits as numbers."""
    if kind == "bf16":
        return (_cut(bits, "b16") << np.uint64(16)).astype(np.uint32).view(np.float32)
    if kind == "pred":
        return bits
    width = int(kind[1:])
    raw = _cut(bits, kind).astype(f"u{width // 8}")
    if kind in _FLOATS:
        return raw.view(_FLOATS[kind])
    return raw.view(f"i{width // 8}") if kind[0] == "s" else raw


def _packed(value: Lanes, kind: str) -> Lanes:
    """Numbers as bits, rounded to nearest even."""
    if kind == "bf16":
        tensor = torch.from_numpy(value.astype(np.float32)).to(torch.bfloat16)
        return tensor.view(torch.int16).numpy().view(np.uint16).astype(np.uint64)
    width = int(kind[1:])
    if kind in _FLOATS:
        return value.astype(_FLOATS[kind]).view(f"u{width // 8}").astype(np.uint64)
    return _cut(_widened(value).astype(np.uint64), kind)


def _widened(value: Lanes) -> Lanes:
    return value.astype(np.int64 if value.dtype.kind == "i" else np.uint64)


def _quotient(a: Lanes, b: Lanes) -> Lanes:
    assert (b != 0).all(), "division by zero"
    quotient = a // b
    return quotient + ((a % b != 0) & ((a < 0) != (b < 0))).astype(a.dtype)  # towards zero


def _joined(data: Lanes) -> Lanes:
    weights = np.uint64(1) << (np.arange(data.shape[1], dtype=np.uint64) * np.uint64(8))
    return (data.astype(np.uint64) * weights).sum(1).astype(np.uint64)


def _split(bits: Lanes, size: int) -> Lanes:
    return ((bits[:, None] >> (np.arange(size, dtype=np.uint64) * np.uint64(8))) & np.uint64(255)).astype(np.uint8)
