"""Refuses data that holds NaN or infinity before a run begins, naming the client and the row."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from headway.data import columns
from headway.data.federation import Federation, Samples
from headway.errors import UserError


def check_finite(federation: Federation, dtype: torch.dtype) -> None:
    """Refuse inputs and targets that are not finite in the type that a run computes in: no rate helps against them.

    Whole numbers and bytes are always finite and are not read. Rows that no client holds are not trained on.
    """
    largest = torch.finfo(dtype).max
    kept = {} if federation.is_drawn else _floats(federation.train)  # what is made when it is read is finite
    for name, part in kept.items():
        if _within(part, largest):
            continue
        wrong = _rows_beyond(part, largest)
        for client, rows in enumerate(federation.clients):
            places = torch.isin(torch.as_tensor(rows), wrong).nonzero()
            if len(places):
                row = int(rows[int(places[0])])
                where = f"client {client}, row {int(places[0])}"
                raise UserError(_sentence(where, name, part[row], largest, dtype))
    for name, part in _floats(federation.test).items():
        if not _within(part, largest):
            row = int(_rows_beyond(part, largest)[0])
            raise UserError(_sentence(f"the test set, row {row}", name, part[row], largest, dtype))


def _floats(samples: Samples) -> dict[str, Tensor]:
    """The inputs and targets that are numbers with a fraction, as errors call them."""
    sides = {"input": columns.named(samples.x), "target": columns.named(samples.y)}
    return {
        f"{side} '{name}'" if name else side: part
        for side, parts in sides.items()
        for name, part in parts.items()
        if isinstance(part, Tensor) and part.is_floating_point()
    }


def _within(part: Tensor, largest: float) -> bool:
    """Whether every number is finite and at most `largest` in size; one pass over the memory, without a copy."""
    if not part.numel():
        return True
    low, high = (float(end) for end in torch.aminmax(part))  # NaN is handed through
    return -largest <= low and high <= largest


def _beyond(part: Tensor, largest: float) -> Tensor:
    """Which numbers are NaN, infinite or beyond `largest`; compared in float64, where `largest` itself is finite."""
    return ~(part.double().abs() <= largest)


def _rows_beyond(part: Tensor, largest: float) -> Tensor:
    return _beyond(part.reshape(len(part), -1), largest).any(1).nonzero()[:, 0]


def _sentence(where: str, name: str, row: Tensor, largest: float, dtype: torch.dtype) -> str:
    numbers = row.reshape(-1)
    number = float(numbers[_beyond(numbers, largest)][0])
    if math.isfinite(number):
        kind = str(dtype).removeprefix("torch.")
        return f"{where}: the {name} holds {number:g}, which is infinite in {kind}; scale it, or use --precision fp64"
    return (
        f"{where}: the {name} holds {number}; every input and target must be a finite number: leave such rows out, or "
        "put a number in their place"
    )
