"""Columns: what a data set's samples consist of. One tensor, or several by place or by name, each a row a sample."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

Result = TypeVar("Result")


@dataclass(frozen=True)
class Windows:
    """Samples that overlap in one long text: row r is tokens[starts[r] : starts[r] + length].

    It is indexed by rows, like a tensor of shape (n, length), and makes only the rows that are read.
    """

    tokens: Tensor
    """Shape (characters,), uint8."""
    starts: Tensor
    """Shape (n,), int64."""
    length: int

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def shape(self) -> torch.Size:
        return torch.Size((len(self.starts), self.length))

    def __getitem__(self, rows: Rows) -> Tensor:
        """The tokens of some rows as int64: bytes would be normalised like images."""
        places = self.starts[rows].unsqueeze(-1) + torch.arange(self.length, device=self.starts.device)
        return self.tokens[places].long()

    def to(self, device: torch.device) -> Windows:
        return Windows(self.tokens.to(device), self.starts.to(device), self.length)


Rows = Tensor | slice | int
Column = Tensor | Windows
Columns = Column | tuple[Column, ...] | Mapping[str, Column]
"""A network takes a tuple as its arguments in order, and a dictionary as its keyword arguments."""
Tensors = Tensor | tuple[Tensor, ...] | Mapping[str, Tensor]
"""Rows of columns, as they were read."""


def named(columns: Columns) -> Mapping[str, Column]:
    """Each column under its name, or its place; a single one under an empty name."""
    if isinstance(columns, Mapping):
        return columns
    return {str(place): one for place, one in enumerate(columns)} if isinstance(columns, tuple) else {"": columns}


def parts(tensors: Tensors) -> dict[str, Tensor]:
    """Each tensor under its name, or its place; a single one under an empty name. The reverse of `of_form`."""
    if isinstance(tensors, Mapping):
        return dict(tensors)
    return {str(place): one for place, one in enumerate(tensors)} if isinstance(tensors, tuple) else {"": tensors}


def of_form(form: Tensors, parts: dict[str, Tensor]) -> Tensors:
    """Tensors by name in the form of others: a dictionary, a tuple or a single one."""
    if isinstance(form, Mapping):
        return parts
    return tuple(parts.values()) if isinstance(form, tuple) else parts[""]


def _each(columns: Columns, change: Callable[[Column], Column]) -> Columns:
    """Columns of the same form, each changed."""
    if isinstance(columns, Mapping):
        return {name: change(one) for name, one in columns.items()}
    return tuple(change(one) for one in columns) if isinstance(columns, tuple) else change(columns)


def read(columns: Columns, rows: Rows) -> Tensors:
    """These rows of every column."""
    if isinstance(columns, Mapping):
        return {name: one[rows] for name, one in columns.items()}
    return tuple(one[rows] for one in columns) if isinstance(columns, tuple) else columns[rows]


def chosen(columns: Columns, rows: Tensor) -> Columns:
    """Columns of these rows alone, in this order; windows stay windows."""

    def of(column: Column) -> Column:
        if isinstance(column, Windows):
            return Windows(column.tokens, column.starts[rows], column.length)
        return column[rows]

    return _each(columns, of)


def placed(columns: Columns, device: torch.device) -> Columns:
    """Columns on a device."""
    return _each(columns, lambda column: column.to(device))


def shapes(columns: Columns) -> tuple[int, ...] | dict[str, tuple[int, ...]]:
    """The shape of one sample, or of each of its parts by name."""
    found = {name: tuple(one.shape[1:]) for name, one in named(columns).items()}
    return found.get("", found)
