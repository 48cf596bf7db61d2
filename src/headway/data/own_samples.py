"""Samples of one of a user's own datasets: a pair of arrays (x, y), or a map-style dataset of (input, target).

An input or a target is a tensor, a tuple of tensors or a dictionary of tensors. Where samples are of different lengths,
`padding` says with what number the shorter ones are filled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Protocol, TypeGuard

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from headway.data import columns
from headway.data.columns import Tensors
from headway.data.federation import Samples
from headway.data.loaders import without_loader
from headway.errors import UserError, nearest, shown
from headway.tasks.task import IGNORED

SHOWN = 4
"""How many parts of a wrong item an error lists."""
TARGETS = ("labels", "label")
"""What the target is called in an item that is one dictionary, as the datasets of Hugging Face have it."""

Padding = float | Mapping[str, float] | None
"""What fills samples of different lengths: a number, or numbers by name, `target` among them."""


@dataclass(frozen=True)
class Reading:
    """How data is read: what it is called in errors, and with what shorter samples are filled."""

    what: str
    padding: Padding

    def fill(self, role: str, name: str) -> float | None:
        """The number that fills the part of this name of an input or a target; None where none was stated for it."""
        if self.padding is None:
            return None
        if role == "target":
            return self.padding.get("target", IGNORED) if isinstance(self.padding, Mapping) else IGNORED
        return self.padding.get(name or role) if isinstance(self.padding, Mapping) else self.padding

    def widened(self, tensor: Tensor, shape: Sequence[int], role: str, name: str) -> Tensor:
        """A tensor in a larger shape, filled at the end of each axis with the number of this part."""
        fill = self.fill(role, name)
        assert fill is not None, "no padding was stated"
        missing = [wide - now for wide, now in zip(shape, tensor.shape, strict=True)]
        if not any(missing):
            return tensor
        part = f"{role} '{name}'" if name else role
        if tensor.is_floating_point() and role == "target" and fill == IGNORED:
            raise UserError(
                f"{self.what} has targets of several lengths that are numbers, and {IGNORED} would be learnt as one; "
                "give all alike, or a number that may be learnt: padding={…, 'target': 0}"
            )
        if not _can_hold(tensor.dtype, fill):
            raise UserError(f"padding of the {part} is {fill:g}, which {type_of(tensor)} does not have")
        return F.pad(tensor, [one for gap in reversed(missing) for one in (0, gap)], value=fill)


def check_padding(padding: object) -> None:
    """Refuse what fills nothing: no number, or no table of numbers by name."""
    table = padding if isinstance(padding, Mapping) else {} if padding is None else {"": padding}
    for name, fill in table.items():
        if not isinstance(name, str):
            raise UserError(f"padding names {shown(name)}; it takes numbers by the names of a sample's parts")
        if isinstance(fill, bool) or not isinstance(fill, Real) or not math.isfinite(fill):
            of = f" of '{name}'" if name else ""
            raise UserError(f"padding{of} is {shown(fill)}; it must be a finite number, or numbers by name")


def check_padded(padding: Padding, first: Samples) -> None:
    """Refuse names of parts that a sample does not have: they would fill nothing."""
    known = [*(name or "input" for name in columns.named(first.x)), "target"]
    for name in padding if isinstance(padding, Mapping) else ():
        if name not in known:
            raise UserError(
                f"padding has '{name}', which is no part of a sample{nearest(name, known)} (parts: {', '.join(known)})"
            )


def _can_hold(dtype: torch.dtype, number: float) -> bool:
    """Whether a type has a number, so that filling with it writes no other one."""
    if dtype.is_floating_point or dtype.is_complex:
        return abs(number) <= torch.finfo(dtype).max
    if dtype == torch.bool:
        return number in (0, 1)
    return float(number).is_integer() and torch.iinfo(dtype).min <= number <= torch.iinfo(dtype).max


def samples_of(source: object, reading: Reading) -> Samples:
    """Samples of a pair of arrays, or of a map-style torch dataset."""
    source = without_loader(source, reading.what)
    if is_pair(source):
        x = _arrays(source[0], reading, "input")
        y = _arrays(source[1], reading, "target")
    else:
        items = _items(source, reading.what)
        x = _stacked_parts([item[0] for item in items], reading, "input")
        y = _stacked_parts([item[1] for item in items], reading, "target")
    parts = [*columns.parts(x).values(), *columns.parts(y).values()]
    if not all(part.dim() for part in parts):
        raise UserError(f"{reading.what} is a pair of single numbers; it must be (x, y) with one row for each sample")
    counts = [len(part) for part in parts]
    if len(set(counts)) > 1:
        raise UserError(f"{reading.what} has {counts[0]} samples and {counts[-1]} targets")
    if not counts[0]:
        raise UserError(f"{reading.what} is empty")
    return Samples(x, y)


def is_pair(source: object) -> TypeGuard[Sequence[object]]:
    """Whether something is (x, y), and not a sequence of two items (input, target)."""
    if not isinstance(source, tuple | list) or len(source) != 2:
        return False
    x, y = source
    if not isinstance(x, tuple | Mapping):
        return True
    return isinstance(y, Tensor | np.ndarray) or (isinstance(source, tuple) and isinstance(y, Mapping))


def _arrays(part: object, reading: Reading, role: str) -> Tensors:
    """One side of a pair: an array, a list with one row a sample, or several arrays by place or name."""
    if isinstance(part, Mapping):
        return {str(name): _array(one, reading, f"{role} '{name}'") for name, one in part.items()}
    if isinstance(part, tuple) and part and all(isinstance(one, Tensor | np.ndarray) and one.ndim for one in part):
        return tuple(_array(one, reading, f"{role} {place}") for place, one in enumerate(part))
    return _array(part, reading, role)


def _array(value: object, reading: Reading, name: str) -> Tensor:
    if isinstance(value, list) and value and isinstance(value[0], Tensor | np.ndarray):
        return _stacked([_tensor(one, reading.what) for one in value], reading, name)
    return _tensor(value, reading.what)


def _tensor(value: object, what: str) -> Tensor:
    if _is_dataset(value) and not isinstance(value, Tensor | list | tuple | str) and not hasattr(value, "__array__"):
        raise UserError(
            f"{what}: where an array belongs there is a {type(value).__name__} with items; give one dataset"
        )
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError) as fault:
        cause = (str(fault).splitlines() or [type(fault).__name__])[0]
        raise UserError(f"{what} holds what is not a tensor of numbers: {cause}") from fault
    if tensor.is_meta:
        raise UserError(f"{what} holds a tensor without data (its device is 'meta')")
    if tensor.layout is not torch.strided:
        raise UserError(f"{what} holds a sparse tensor; give dense ones: x.to_dense()")
    return tensor


def _items(source: object, what: str) -> list[tuple[object, object]]:
    """The items of a map-style dataset, each of them (input, target)."""
    if isinstance(source, tuple) and len(source) != 2 and all(isinstance(part, Tensor | np.ndarray) for part in source):
        raise UserError(f"{what} is {_in_words(source)}; it must be a pair (x, y) or a dataset of (input, target)")
    if not _is_dataset(source):
        raise UserError(f"{what} is neither a pair (x, y) nor a dataset with a length")
    samples: list[object] = []
    try:
        for index in range(len(source)):
            samples.append(source[index])  # noqa: PERF401 — so that a fault knows how far it came
    except Exception as fault:
        raise UserError(
            f"{what} cannot be read as a dataset: item {len(samples)}: {type(fault).__name__}: {fault}"
        ) from fault
    if not samples:
        raise UserError(f"{what} is empty")
    return [_item(sample, f"{what}: item {number}") for number, sample in enumerate(samples)]


class Items(Protocol):
    """A map-style dataset, as torch has them."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> object: ...


def _is_dataset(source: object) -> TypeGuard[Items]:
    indexed = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    return indexed and not isinstance(source, Mapping | type)


def _item(sample: object, what: str) -> tuple[object, object]:
    """(input, target) of an item: a pair, or a dictionary with `labels` beside the inputs."""
    if isinstance(sample, Mapping):
        target = next((name for name in TARGETS if name in sample), None)
        if target is not None and len(sample) > 1:
            return {name: part for name, part in sample.items() if name != target}, sample[target]
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise UserError(f"{what} is {_in_words(sample)}; an item must be (input, target)")
    return sample[0], sample[1]


def _stacked_parts(values: list[object], reading: Reading, role: str) -> Tensors:
    """Inputs or targets of all items as one tensor, or as several by place or name."""
    forms = [_parts(value) for value in values]
    if forms[0] is None:
        return _column(values, reading, role)
    found: dict[str, list[object]] = {name: [] for name in forms[0]}
    for number, form in enumerate(forms):
        if form is None or form.keys() != found.keys():
            raise UserError(
                f"{reading.what}: the {role} of item {number} is {_in_words(values[number])}, that of item 0 "
                f"{_in_words(values[0])}; give all alike"
            )
        for name, part in form.items():
            found[name].append(part)
    if isinstance(values[0], Mapping):
        return {name: _column(parts, reading, f"{role} '{name}'") for name, parts in found.items()}
    return tuple(_column(parts, reading, f"{role} {place}") for place, parts in found.items())


def _parts(value: object) -> dict[str, object] | None:
    """The parts of an input or a target that has several, by name or place; None of a single one.

    A vector that is written as a list of numbers is a single one.
    """
    if isinstance(value, Mapping):
        return {str(name): part for name, part in value.items()}
    if isinstance(value, tuple | list) and any(isinstance(one, Tensor | np.ndarray) and one.ndim for one in value):
        return {str(place): part for place, part in enumerate(value)}
    return None


def _column(values: list[object], reading: Reading, name: str) -> Tensor:
    tensors = [_tensor(value, reading.what) for value in values]
    for number, one in enumerate(tensors):
        if not name.startswith("target") and (one.dtype == torch.uint8) != (tensors[0].dtype == torch.uint8):
            raise UserError(
                f"{reading.what}: item {number} is of type {type_of(one)}, item 0 of type {type_of(tensors[0])}; "
                "give all alike"
            )
    return _stacked(tensors, reading, name)


def _stacked(tensors: list[Tensor], reading: Reading, name: str) -> Tensor:
    """One tensor of all samples; shorter ones are filled where a padding is stated."""
    odd = next((number for number, one in enumerate(tensors) if one.shape != tensors[0].shape), None)
    if odd is None:
        return torch.stack(tensors)
    role, own = _part(name)
    if reading.fill(role, own) is None or any(one.dim() != tensors[0].dim() for one in tensors):
        raise UserError(
            f"{reading.what}: item {odd} has shape {tuple(tensors[odd].shape)}, item 0 has {tuple(tensors[0].shape)}"
            + (
                f"; padding has no number for '{own or role}'"
                if isinstance(reading.padding, Mapping)
                else "; to fill shorter ones state with what: padding=0, or by name"
            )
        )
    longest = [max(one.shape[axis] for one in tensors) for axis in range(tensors[0].dim())]
    return torch.stack([reading.widened(one, longest, role, own) for one in tensors])


def _part(name: str) -> tuple[str, str]:
    """`input 'ids'` → (input, ids), `target` → (target, ""): whether a part is of the input, and its name there."""
    role, _, own = name.partition(" ")
    return role, own.strip("'")


def _in_words(item: object) -> str:
    """A value as errors describe it: `a tuple of 3 (Tensor of shape (2,), int, int)`."""
    kind = f"a {type(item).__name__}"
    if isinstance(item, Mapping):
        names = ", ".join(f"{name!r:.20}" for name in list(item)[:SHOWN])
        return f"{kind} of {len(item)} ({names}{', …' if len(item) > SHOWN else ''})"
    if isinstance(item, tuple | list):
        parts = ", ".join(_part_in_words(part) for part in item[:SHOWN])
        return f"{kind} of {len(item)} ({parts}{', …' if len(item) > SHOWN else ''})"
    return kind


def _part_in_words(part: object) -> str:
    shape = f" of shape {tuple(part.shape)}" if isinstance(part, Tensor | np.ndarray) else ""
    return f"{type(part).__name__}{shape}"


def type_of(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
