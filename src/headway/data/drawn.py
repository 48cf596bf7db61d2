"""Samples that are made when they are read: populations whose data no memory holds.

A column of them is a tensor by its type and shape, so that everything that asks for these works. It can be read by rows
and moved to a device; an operation on all of it is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import torch
from torch import Tensor

from headway.errors import UserError

Make = Callable[[np.ndarray], np.ndarray]
"""The samples of some rows, shape (rows, …)."""


@dataclass(frozen=True)
class _Reader:
    """How a column's rows are read."""

    make: Make
    shape: tuple[int, ...]
    """Of one sample."""
    device: torch.device

    def __call__(self, rows: Tensor) -> Tensor:
        """The samples of rows of any shape, on the column's device."""
        found = torch.from_numpy(self.make(rows.reshape(-1).cpu().numpy())).to(self.device)
        return found.reshape(*rows.shape, *self.shape)


class _Read(torch.autograd.Function):
    """Rows of a column; under `torch.func.vmap` all clients' rows are read at once."""

    @staticmethod
    def forward(rows: Tensor, reader: _Reader) -> Tensor:
        return reader(rows)

    @staticmethod
    def setup_context(ctx: object, inputs: tuple[object, ...], output: object) -> None:
        """Nothing is kept: samples have no gradient."""

    @staticmethod
    def vmap(info: object, in_dims: tuple[int | None, ...], rows: Tensor, reader: _Reader) -> tuple[Tensor, int]:
        assert in_dims[0] is not None
        return reader(rows.movedim(in_dims[0], 0)), 0


class Drawn(Tensor):
    """A column of samples that are made when they are read."""

    reader: _Reader

    @staticmethod
    def of(make: Make, shape: Sequence[int], dtype: torch.dtype, device: torch.device | str = "cpu") -> Drawn:
        """The column whose rows `make` makes, as if it were a tensor of this shape and type."""
        place = torch.device(device)
        column: Drawn = Tensor._make_wrapper_subclass(Drawn, torch.Size(shape), dtype=dtype, device=place)
        column.reader = _Reader(make, tuple(shape[1:]), place)
        return column

    @classmethod
    def __torch_function__(
        cls,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.__getitem__:
            column, rows = args
            return _Read.apply(_as_rows(rows, len(column)), column.reader)  # type: ignore[no-untyped-call]
        if func is Tensor.to:
            return Drawn.of(args[0].reader.make, args[0].shape, args[0].dtype, args[1])
        if getattr(func, "__name__", "") in _ABOUT:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise _needs_all()

    @classmethod
    def __torch_dispatch__(cls, *_: object) -> Any:
        raise _needs_all()


def _needs_all() -> UserError:
    return UserError(
        "this data is made as it is read, because no memory holds all of it, and this needs all of it at once; use a "
        "smaller population"
    )


_ABOUT = ("__get__", "__len__", "dim", "size", "numel", "is_floating_point", "is_complex", "element_size", "__hash__")
"""What may be asked of a column without its numbers: shape, type, device and the like."""


def _as_rows(rows: Tensor | slice | int, count: int) -> Tensor:
    """The numbers of the rows that are read."""
    if isinstance(rows, slice):
        return torch.arange(*rows.indices(count))
    return torch.as_tensor(rows)


class Ranges(Sequence[np.ndarray]):
    """Clients that hold one range of rows after another; the rows of one are listed when they are asked for."""

    def __init__(self, sizes: np.ndarray) -> None:
        self.sizes = sizes
        """How many rows each has."""
        self.starts = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])
        """Where each begins, and where the last one ends."""

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, client: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, client: slice) -> Sequence[np.ndarray]: ...
    def __getitem__(self, client: int | slice) -> np.ndarray | Sequence[np.ndarray]:
        if isinstance(client, slice):
            return [self[one] for one in range(*client.indices(len(self)))]
        if not 0 <= client < len(self):
            raise IndexError(client)
        return np.arange(self.starts[client], self.starts[client + 1])

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[client] for client in range(len(self)))

    def first(self, count: int) -> Ranges:
        """The first clients alone."""
        return Ranges(self.sizes[:count])


def is_drawn(column: object) -> bool:
    """Whether a column's samples are made when they are read."""
    return isinstance(column, Drawn)
