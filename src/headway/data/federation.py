"""`Federation`: training samples, the rows of them that each client holds, test samples, and the clients they judge."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import overload

import numpy as np
import torch
from torch import Tensor

from headway.data import columns
from headway.data.columns import Columns, Tensors
from headway.data.drawn import is_drawn
from headway.errors import UserError
from headway.trees import leaves_of, moved, tree_map


@dataclass(frozen=True)
class Samples:
    """Samples x and targets y, row by row. Images stay uint8 in memory."""

    x: Columns
    y: Tensors

    def __len__(self) -> int:
        return len(leaves_of(self.y)[0])

    def to(self, device: torch.device) -> Samples:
        return Samples(columns.placed(self.x, device), moved(self.y, device))

    def read(self, rows: columns.Rows) -> tuple[Tensors, Tensors]:
        """(inputs, targets) of some rows."""
        return columns.read(self.x, rows), columns.read(self.y, rows)

    @property
    def inputs(self) -> Tensors:
        """The inputs as tensors; windows of a text are all made."""
        return columns.read(self.x, slice(None))

    @property
    def are_texts(self) -> bool:
        """Whether each sample is a row of whole numbers, and its target another of the same length."""
        x, y = columns.read(self.x, slice(1)), self.y
        if not isinstance(x, Tensor) or not isinstance(y, Tensor) or y.is_floating_point():
            return False
        return y.dim() > 1 and x.shape[1:] == y.shape[1:] and not x.is_floating_point() and x.dtype != torch.uint8

    @property
    def labels(self) -> Tensor:
        """The targets, where each sample has one tensor of them."""
        assert isinstance(self.y, Tensor), "several targets are not labels"
        return self.y

    def spread(self, count: int | None) -> Samples:
        """`count` of the samples, evenly spread over them; all where `count` is None or not below their number."""
        places = self.spread_rows(count)
        return self if places is None else self.rows(places)

    def spread_rows(self, count: int | None) -> Tensor | None:
        """The rows that `spread` takes; None where it takes all."""
        if count is None or count >= len(self):
            return None
        return torch.linspace(0, len(self) - 1, count, dtype=torch.float64).long()

    def rows(self, rows: Tensor | np.ndarray) -> Samples:
        """The samples of these rows, in this order."""
        places = torch.as_tensor(rows)
        return Samples(columns.chosen(self.x, places), columns.read(self.y, places))


@dataclass(frozen=True)
class ClientTests:
    """Test samples of clients: client i is judged on rows `rows[i]` of `samples`, which are none where it has none."""

    samples: Samples
    rows: Sequence[np.ndarray]

    @property
    def count(self) -> int:
        """How many clients have test samples."""
        return sum(len(own) > 0 for own in self.rows)

    def spread(self, count: int | None, samples: Samples | None = None) -> ClientTests:
        """Tests on `count` of all samples, evenly spread over them; `samples` are these where they exist already."""
        places = self.samples.spread_rows(count)
        if places is None:
            return self
        new = np.full(len(self.samples), -1)
        new[places.numpy()] = np.arange(len(places))
        kept = [new[own][new[own] >= 0] for own in self.rows]
        return ClientTests(self.samples.rows(places) if samples is None else samples, kept)


@dataclass(frozen=True)
class Census(Sequence[np.ndarray]):
    """Clients at other places: how many samples each has, and the rows of those whose samples are here."""

    sizes: np.ndarray
    """n_i, shape (N,); 0 where it is not known here."""
    total: int
    """Σ_N n_i."""
    own: Mapping[int, np.ndarray] = field(default_factory=dict)
    """The rows of clients whose samples are here."""

    def __len__(self) -> int:
        return len(self.sizes)

    @overload
    def __getitem__(self, client: int) -> np.ndarray: ...
    @overload
    def __getitem__(self, client: slice) -> Sequence[np.ndarray]: ...
    def __getitem__(self, client: int | slice) -> np.ndarray | Sequence[np.ndarray]:
        if isinstance(client, slice):
            return [self[one] for one in range(*client.indices(len(self)))]
        if not -len(self) <= client < len(self):
            raise IndexError(client)
        return self.own.get(client % len(self), np.zeros(0, np.int64))


@dataclass(frozen=True)
class Federation:
    """A data set split among clients: `clients[i]` are the rows of `train` that client i holds."""

    train: Samples
    test: Samples
    clients: Sequence[np.ndarray]
    classes: int
    """Number of classes of a sample, a token or a pixel; 0 where targets are numbers."""
    mean: float | tuple[float, ...] = 0.0
    """What is subtracted from x/255 of uint8 samples, for each channel."""
    std: float | tuple[float, ...] = 1.0
    client_tests: ClientTests | None = None
    """The test samples of each client, which may be those of `test`; None where no client has any."""
    class_names: tuple[str, ...] = ()
    """What the classes are called, where the data says it."""

    def __post_init__(self) -> None:
        if not len(self.clients):
            raise UserError("there are no clients")

    def judged_on(self, count: int | None) -> Federation:
        """This federation with at most `count` test samples, and at most as many that judge clients by themselves."""
        test, tests = self.test.spread(count), self.client_tests
        if tests is not None:
            tests = tests.spread(count, test if tests.samples is self.test else None)
        return replace(self, test=test, client_tests=tests)

    @property
    def outputs(self) -> int:
        """The size of a network's output for one sample: one number for each class, or those of a target."""
        shape = columns.shapes(self.train.y)
        return self.classes or math.prod(shape if isinstance(shape, tuple) else (1,))

    @property
    def sample_shape(self) -> tuple[int, ...] | dict[str, tuple[int, ...]]:
        """The shape of a sample; where it has several parts, their shapes by name or place."""
        return columns.shapes(self.train.x)

    @cached_property
    def is_labelled(self) -> bool:
        """Whether each sample has one class."""
        y = self.train.y
        return bool(self.classes) and isinstance(y, Tensor) and y.dim() == 1

    def inputs(self, x: Tensors, dtype: torch.dtype) -> Tensors:
        """Raw samples as a network takes them: uint8 becomes (x/255 − mean)/std, floats become `dtype`, tokens stay."""
        if not isinstance(x, Tensor):
            return tree_map(lambda part: self._input(part, dtype), x)  # type: ignore[no-any-return]
        return self._input(x, dtype)

    def _input(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        if x.dtype == torch.uint8:
            mean, std = (part.reshape(-1, *[1] * (x.dim() - 2)) for part in self._constants(dtype, x.device))
            return (x.to(dtype) / 255 - mean) / std
        return x.to(dtype) if x.is_floating_point() else x

    def _constants(self, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
        """Mean and deviation as tensors, copied to each device once: a training step must not wait for the CPU."""
        if (dtype, device) not in self._copies:
            mean, std = (torch.tensor(part, dtype=dtype, device=device) for part in (self.mean, self.std))
            self._copies[dtype, device] = mean, std
        return self._copies[dtype, device]

    @cached_property
    def _copies(self) -> dict[tuple[torch.dtype, torch.device], tuple[Tensor, Tensor]]:
        return {}

    @cached_property
    def sizes(self) -> np.ndarray:
        """n_i of all clients, shape (N,). A sequence that makes clients when they are read may bring it."""
        own = getattr(self.clients, "sizes", None)
        return np.array([len(rows) for rows in self.clients]) if own is None else np.asarray(own)

    @property
    def total_size(self) -> int:
        """Σ_i n_i."""
        return self.clients.total if isinstance(self.clients, Census) else int(self.sizes.sum())

    @cached_property
    def mean_size(self) -> float:
        """Σ_i n_i / N, the mean number of samples of a client."""
        return self.total_size / len(self.clients)

    @property
    def is_elsewhere(self) -> bool:
        """Whether no client's samples are here."""
        return isinstance(self.clients, Census) and not self.clients.own

    def class_counts(self, client: int) -> np.ndarray:
        """How many samples of each class a client has, shape (classes,); empty where a sample has not one class."""
        if not self.is_labelled:
            return np.zeros(0, np.int64)
        rows = self.clients[client]
        own = self.train.labels[torch.as_tensor(rows)].numpy() if self.is_drawn else self._labels[rows]
        return np.bincount(own, minlength=self.classes)

    @property
    def is_drawn(self) -> bool:
        """Whether training samples are made when they are read, because no memory holds all of them."""
        return is_drawn(self.train.x)

    @cached_property
    def _labels(self) -> np.ndarray:
        labels: np.ndarray = self.train.labels.numpy()
        return labels
