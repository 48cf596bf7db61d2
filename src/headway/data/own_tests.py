"""A user's own clients by number or by name, and own test data: one set for all, or one for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from headway.data import columns
from headway.data.federation import Samples
from headway.data.own_samples import Padding, Reading, is_pair, samples_of
from headway.errors import UserError, shown

OwnClients = Sequence[object] | Mapping[str, object]
"""One dataset for each client, in order or by name."""

ALL = "the test set"
"""What errors call the test set of all clients; that of one client begins with these words."""


@dataclass(frozen=True)
class NamedClients:
    """The datasets of clients, and what errors call each client."""

    datasets: list[object]
    names: list[str]
    keys: list[object] | None
    """Where they were given by name."""


def named_clients(clients: OwnClients) -> NamedClients:
    """A sequence of datasets, or a dictionary of them."""
    single = getattr(clients, "ndim", 1) == 0
    if single or not hasattr(clients, "__len__") or isinstance(clients, str):
        raise UserError(
            f"clients is of type {type(clients).__name__}; it must be a sequence of datasets, one for each client, "
            "or a dictionary of them"
        )
    if not len(clients):
        raise UserError("there are no clients")
    if isinstance(clients, Mapping):
        return NamedClients(list(clients.values()), [f"client {shown(key)}" for key in clients], list(clients))
    datasets = list(clients)
    return NamedClients(datasets, [f"client {number}" for number in range(len(datasets))], None)


@dataclass(frozen=True)
class GivenTests:
    """The test sets that there are, what errors call each, and whose it is: of all clients where `of` is None."""

    sets: list[Samples]
    names: list[str]
    of: list[int] | None

    def sizes(self, clients: int) -> list[int]:
        """How many test samples each client has."""
        own = dict(zip(self.of or [], map(len, self.sets), strict=False))
        return [own.get(client, 0) for client in range(clients)]


def given_tests(test: object, clients: NamedClients, first: Samples, padding: Padding) -> GivenTests:
    """The test sets in what a user gave; `first` are the samples of the first client, whose form tells which it is."""
    if test is None:
        return GivenTests([], [], None)
    if isinstance(test, Mapping) and clients.keys is None:
        raise UserError("test is a dictionary, but clients are not: give clients as a dictionary with the same names")
    each = _by_name(test, clients) if _named(test, clients) else _in_order(test, clients, first, padding)
    if each is None:
        return GivenTests([samples_of(test, Reading(ALL, padding))], [ALL], None)
    of = [client for client, one in enumerate(each) if one is not None]
    if not of:
        raise UserError("test has no test set: every client's is None; give test=None, and hold samples out")
    names = [f"{ALL} of {clients.names[client]}" for client in of]
    sets = [samples_of(each[client], Reading(name, padding)) for client, name in zip(of, names, strict=True)]
    return GivenTests(sets, names, of)


def _named(test: object, clients: NamedClients) -> bool:
    return clients.keys is not None and isinstance(test, Mapping)


def _by_name(test: object, clients: NamedClients) -> list[object]:
    """The test set of each client that has a name; None where its name is not there."""
    assert clients.keys is not None
    assert isinstance(test, Mapping)
    unknown = [key for key in test if key not in clients.keys]
    if unknown:
        raise UserError(f"test has a set for {shown(unknown[0])}, but there is no such client")
    return [test.get(key) for key in clients.keys]


def _in_order(test: object, clients: NamedClients, first: Samples, padding: Padding) -> list[object] | None:
    """The test set of each client where there is one for each, in order; None where it is one set for all."""
    if not isinstance(test, list | tuple) or not _is_for_each(test, first, padding):
        return None
    if clients.keys is not None:
        raise UserError("clients have names; give test as a dictionary with these names, or one test set for all")
    if len(test) != len(clients.datasets):
        raise UserError(
            f"test has {len(test)} test sets, but there are {len(clients.datasets)} clients; give one for each, None "
            "for a client without"
        )
    return list(test)


def _is_for_each(test: Sequence[object], first: Samples, padding: Padding) -> bool:
    """Whether each entry is None or a whole test set: a list of items (input, target) is one set for all."""
    if any(one is None for one in test):
        return True
    if is_pair(test) and not all(map(_is_dataset_of_items, test)):
        return False
    try:
        entry = samples_of(test[0], Reading("", padding)) if test else first
    except UserError:
        return False
    own, other = columns.parts(entry.inputs), columns.parts(first.inputs)
    return bool(test) and all(own[name].dim() == part.dim() for name, part in other.items() if name in own)


def _is_dataset_of_items(entry: object) -> bool:
    """Whether something that could be half of a pair (x, y) is a dataset: its items are pairs, not numbers."""
    if isinstance(entry, Tensor | np.ndarray) or not hasattr(entry, "__getitem__") or hasattr(entry, "__array__"):
        return False
    if not isinstance(entry, list | tuple):
        return not isinstance(entry, Mapping)
    item = entry[0] if entry else None
    if isinstance(item, Mapping):
        return True
    return isinstance(item, list | tuple) and len(item) == 2 and isinstance(item[0], Tensor | np.ndarray | Mapping)
