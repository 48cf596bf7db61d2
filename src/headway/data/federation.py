"""`Federation`: training samples, the rows of them that each client holds, and test samples."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, TypeGuard

import numpy as np
import torch
from torch import Tensor

from headway.errors import UserError

MOST_CLASSES = 1_000_000
"""The most classes: a network answers with one number for each, so larger labels are identifiers or numbers."""
SHOWN = 4
"""How many parts of a wrong item an error lists."""


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

    def __getitem__(self, rows: Tensor | np.ndarray | slice | int) -> Tensor:
        """The tokens of some rows as int64: bytes would be normalised like images."""
        places = self.starts[rows].unsqueeze(-1) + torch.arange(self.length, device=self.starts.device)
        return self.tokens[places].long()

    def to(self, device: torch.device) -> Windows:
        return Windows(self.tokens.to(device), self.starts.to(device), self.length)


@dataclass(frozen=True)
class Samples:
    """Samples x and targets y, row by row. Images stay uint8 in memory."""

    x: Tensor | Windows
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)

    def to(self, device: torch.device) -> Samples:
        return Samples(self.x.to(device), self.y.to(device))

    def spread(self, count: int | None) -> Samples:
        """`count` of the samples, evenly spread over them; all where `count` is None or not below their number."""
        if count is None or count >= len(self):
            return self
        return self.rows(torch.linspace(0, len(self) - 1, count, dtype=torch.float64).long())

    def rows(self, rows: Tensor | np.ndarray) -> Samples:
        """The samples of these rows, in this order."""
        places = torch.as_tensor(rows)
        x = self.x
        part = Windows(x.tokens, x.starts[places], x.length) if isinstance(x, Windows) else x[places]
        return Samples(part, self.y[places])


@dataclass(frozen=True)
class Federation:
    """A data set split among clients: `clients[i]` are the rows of `train` that client i holds."""

    train: Samples
    test: Samples
    clients: Sequence[np.ndarray]
    classes: int
    """Number of classes; 0 where targets are numbers."""
    mean: float | tuple[float, ...] = 0.0
    """For uint8 samples: subtracted from x/255, for each channel."""
    std: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        if not len(self.clients):
            raise UserError("there are no clients")

    @property
    def outputs(self) -> int:
        """The size of a network's output for one sample: one number for each class, or those of a target."""
        return self.classes or math.prod(self.train.y.shape[1:])

    @property
    def sample_shape(self) -> tuple[int, ...]:
        return tuple(self.train.x.shape[1:])

    def inputs(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """Raw samples as a network takes them: uint8 becomes (x/255 − mean)/std, floats become `dtype`, tokens stay."""
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

    @cached_property
    def mean_size(self) -> float:
        """Σ_i n_i / N, the mean number of samples of a client."""
        return float(self.sizes.mean())

    def class_counts(self, client: int) -> np.ndarray:
        """How many samples of each class a client has, shape (classes,); empty where targets are numbers."""
        if not self.classes:
            return np.zeros(0, np.int64)
        return np.bincount(self._labels[self.clients[client]], minlength=self.classes)

    @cached_property
    def _labels(self) -> np.ndarray:
        labels: np.ndarray = self.train.y.numpy()
        return labels


def _tensors(values: Sequence[object], what: str) -> list[Tensor]:
    try:
        tensors = [torch.as_tensor(value) for value in values]
    except (TypeError, ValueError, RuntimeError) as fault:
        cause = (str(fault).splitlines() or [type(fault).__name__])[0]
        raise UserError(f"{what} holds what is not a tensor of numbers: {cause}") from fault
    for tensor in tensors:
        if tensor.is_meta:
            raise UserError(f"{what} holds a tensor without data (its device is 'meta')")
        if tensor.layout is not torch.strided:
            raise UserError(f"{what} holds a sparse tensor; give dense ones: x.to_dense()")
    return tensors


def _type(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _kind(samples: Tensor) -> str:
    """How samples are read: bytes are normalised, whole numbers are tokens, other numbers are taken as they are."""
    if samples.dtype == torch.uint8:
        return "bytes"
    return "numbers" if samples.is_floating_point() else "complex" if samples.is_complex() else "tokens"


def _stacked(tensors: list[Tensor], what: str) -> Tensor:
    for number, tensor in enumerate(tensors):
        if tensor.shape != tensors[0].shape:
            raise UserError(
                f"{what}: item {number} has shape {tuple(tensor.shape)}, item 0 has {tuple(tensors[0].shape)}"
            )
    return torch.stack(tensors)


def _pair(source: object, what: str) -> tuple[Tensor, Tensor]:
    """(x, y) of a pair of arrays or of a map-style torch dataset."""
    if isinstance(source, tuple | list) and len(source) == 2 and not isinstance(source[0], tuple | Mapping):
        _check_one(source[0], what, "samples")
        x, y = _tensors(source, what)
    else:
        x, y = _joined_items(_items(source, what), what)
    if not x.dim() or not y.dim():
        raise UserError(f"{what} is a pair of single numbers; it must be (x, y) with one row for each sample")
    if len(x) != len(y):
        raise UserError(f"{what} has {len(x)} samples and {len(y)} targets")
    if not len(x):
        raise UserError(f"{what} is empty")
    if not y.is_floating_point():
        _check_labels(y, what)
    return x, y


def _check_labels(y: Tensor, what: str) -> None:
    """Refuse whole numbers that are not the numbers of classes."""
    if y.dim() != 1:
        raise UserError(f"{what} has labels of shape {tuple(y.shape)}; give one label a sample")
    if int(y.min()) < 0:
        raise UserError(f"{what}: label {int(y.min())} is out of range; labels are whole numbers from 0 on")
    if int(y.max()) >= MOST_CLASSES:
        raise UserError(
            f"{what}: label {int(y.max())} is out of range; labels go from 0 to at most {MOST_CLASSES - 1:,}, "
            "one for each class (give numbers that are to be learnt as floats)"
        )


Item = Sequence[object]
"""(input, target)."""


class Items(Protocol):
    """A map-style dataset, as torch has them."""

    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> object: ...


def _is_dataset(source: object) -> TypeGuard[Items]:
    indexed = hasattr(source, "__len__") and hasattr(source, "__getitem__")
    return indexed and not isinstance(source, Mapping | type)


def _check_tuple(source: tuple[object, ...], what: str) -> None:
    """Refuse a tuple that was meant as arrays of samples and targets, and not as a sequence of items."""
    if len(source) != 2:
        if all(isinstance(part, Tensor | np.ndarray) for part in source):
            raise UserError(f"{what} is {_in_words(source)}; it must be a pair (x, y) or a dataset of (input, target)")
    elif not isinstance(source[1], tuple | list):
        _check_one(source[0], what, "samples")


def _items(source: object, what: str) -> list[Item]:
    """The items of a map-style dataset."""
    if isinstance(source, tuple):
        _check_tuple(source, what)
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


def _item(sample: object, what: str) -> Item:
    """An item of a dataset, if it has an input and a target that can be stacked."""
    if not isinstance(sample, tuple | list) or len(sample) != 2:
        raise UserError(f"{what} is {_in_words(sample)}; an item must be (input, target)")
    for part, role in zip(sample, ("input", "target"), strict=True):
        _check_one(part, what, role)
    return sample


def _joined_items(samples: list[Item], what: str) -> tuple[Tensor, Tensor]:
    inputs, targets = (_tensors([sample[place] for sample in samples], what) for place in (0, 1))
    for number, one in enumerate(inputs):
        if (one.dtype == torch.uint8) != (inputs[0].dtype == torch.uint8):
            raise UserError(
                f"{what}: item {number} is of type {_type(one)}, item 0 of type {_type(inputs[0])}; give all alike"
            )
    return _stacked(inputs, what), _stacked(targets, what)


def _check_one(part: object, what: str, role: str) -> None:
    """Refuse an input or a target that consists of several: they would be stacked, or one of them would be dropped."""
    several = part if isinstance(part, tuple | list) else ()
    arrays = any(isinstance(one, Tensor | np.ndarray) and one.ndim for one in several)
    nested = any(isinstance(one, Mapping) for one in several)
    whole = role == "samples" and isinstance(part, list)  # a list of arrays is one array a sample
    if isinstance(part, Mapping) or nested or (arrays and not whole):
        raise UserError(
            f"{what} has {_in_words(part)} for {role}; several inputs or targets (a dict, a tuple of tensors) are not "
            "supported yet: join them into one tensor and let the model take it apart"
        )


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


def _targets(y: Tensor) -> Tensor:
    """Labels as int64, the only type that cross-entropy and counting by class take; numbers as they are."""
    return y if y.is_floating_point() else y.long()


def _both_scaled(*samples: Tensor) -> bool:
    """Whether some samples are bytes and the others numbers from 0 to 1, which are bytes divided by 255."""
    numbers = [x for x in samples if _kind(x) == "numbers"]
    return {_kind(x) for x in samples} == {"bytes", "numbers"} and all(x.min() >= 0 and x.max() <= 1 for x in numbers)


def _check_alike(what: str, pair: tuple[Tensor, Tensor], first: tuple[Tensor, Tensor], apart: bool = False) -> None:
    """Refuse samples and targets whose shape or kind is not client 0's: joining them would change their type silently.

    `apart`: they are not joined, so that bytes on one side and the same divided by 255 on the other are allowed.
    """
    for part, mine, its in zip(("samples", "targets"), pair, first, strict=True):
        if mine.shape[1:] != its.shape[1:]:
            raise UserError(
                f"{what} has {part} of shape {tuple(mine.shape[1:])}, client 0 of shape {tuple(its.shape[1:])}"
            )
    (x, y), (x_first, y_first) = pair, first
    if _kind(x) != _kind(x_first) and not (apart and _both_scaled(x, x_first)):
        raise UserError(
            f"{what} has samples of type {_type(x)}, client 0 of type {_type(x_first)}; give all alike"
            " (uint8 is divided by 255, other types are not)"
        )
    if y.is_floating_point() != y_first.is_floating_point():
        kinds = ["numbers" if one.is_floating_point() else "labels" for one in (y, y_first)]
        raise UserError(
            f"{what} has {kinds[0]} for targets ({_type(y)}), client 0 has {kinds[1]} ({_type(y_first)});"
            " give all alike"
        )


def _check_clients(clients: object) -> None:
    """Refuse what has no dataset for each client."""
    single = getattr(clients, "ndim", 1) == 0
    if single or not hasattr(clients, "__len__") or isinstance(clients, Mapping | str):
        raise UserError(
            f"clients is of type {type(clients).__name__}; it must be a sequence of datasets, one for each client"
        )
    if not len(clients):
        raise UserError("there are no clients")


def federate(clients: Sequence[object], test: object) -> Federation:
    """A federation of the user's own data: one dataset or pair (x, y) for each client, and a test set."""
    _check_clients(clients)
    pairs = [_pair(client, f"client {number}") for number, client in enumerate(clients)]
    x_test, y_test = _pair(test, "the test set")
    for number, pair in enumerate(pairs):
        _check_alike(f"client {number}", pair, pairs[0])
    _check_alike("the test set", (x_test, y_test), pairs[0], apart=True)
    bounds = np.cumsum([0, *(len(y) for _, y in pairs)])
    y, y_test = torch.cat([_targets(y) for _, y in pairs]), _targets(y_test)
    classes = 0 if y.is_floating_point() else int(max(y.max(), y_test.max())) + 1
    return Federation(
        train=Samples(torch.cat([x for x, _ in pairs]), y),
        test=Samples(x_test, y_test),
        clients=[np.arange(start, stop) for start, stop in itertools.pairwise(bounds)],
        classes=classes,
    )
