"""Splits that the user brings: a file with the rows of each client, or a function that chooses them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from headway.errors import UserError, shown

Rows = list[np.ndarray]
"""The rows of the training data that each client holds, int64."""
SplitFunction = Callable[[np.ndarray, int, int], Sequence[Sequence[int] | np.ndarray] | np.ndarray]
"""`f(labels, clients, seed)`: for each client an array of whole numbers, the rows it holds.

`labels` are the targets of all samples, read-only; `clients` is how many are wanted (0: as many as the function likes)
and `seed` is `split_seed`. Every client has at least one row, and no row has two owners; rows may be left out.
"""
OWN = "own"
"""What a scenario says in place of a name where an object was given."""

MOST_JSON = 1 << 28
"""The most bytes of a file with rows: twenty million rows, for which Python takes some gigabytes of memory."""


def from_function(function: SplitFunction, labels: np.ndarray, clients: int, seed: int) -> Rows:
    """The rows that the function gives to each client, checked and copied."""
    if not callable(function):
        raise UserError(
            f"partition is {shown(function)}; give a name such as 'dirichlet:0.3' or a function "
            "f(labels, clients, seed) that returns an array of rows for each client"
        )
    given = labels.view()
    given.flags.writeable = False
    try:
        found = function(given, clients, seed)
    except UserError:
        raise
    except Exception as fault:
        raise UserError(f"the partition function raised {type(fault).__name__}: {fault}") from fault
    if not _has_rows_of_clients(found):
        raise UserError(
            f"the partition function returned {shown(found)}; it must return an array of rows for each client"
        )
    if not len(found) or (clients and len(found) != clients):
        wanted = f"clients is {clients}" if clients else "there must be at least one"
        raise UserError(f"the partition function returned rows of {len(found)} clients, but {wanted}")
    rows = [_checked_rows(own, client, len(labels)) for client, own in enumerate(found)]
    _check_disjoint(rows)
    return rows


def _has_rows_of_clients(found: object) -> bool:
    """Whether a user's function returned something with an entry for each client."""
    if isinstance(found, np.ndarray):
        return found.ndim > 0
    return isinstance(found, Sequence) and not isinstance(found, str | bytes)


def _checked_rows(given: object, client: int, samples: int) -> np.ndarray:
    """One client's rows as int64, shape (n,), none of them in the caller's memory."""
    where = f"the partition function: client {client}"
    try:
        rows = np.asarray(given)
    except Exception as fault:
        raise UserError(f"{where} has {shown(given)} in place of an array of rows") from fault
    if not rows.size:
        raise UserError(f"{where} has no samples")
    if rows.ndim != 1 or rows.dtype.kind not in "iu":
        raise UserError(
            f"{where} has an array of type {rows.dtype} and shape {rows.shape}; rows are whole numbers, shape (n,)"
        )
    outside = (rows < 0) | (rows >= samples)
    if outside.any():
        raise UserError(f"{where} has row {rows[outside][0]}; rows go from 0 to {samples - 1}")
    return rows.astype(np.int64)


def _check_disjoint(shares: Rows) -> None:
    """Refuse a row that two clients have, or one client twice."""
    rows, owners = np.concatenate(shares), np.repeat(np.arange(len(shares)), [len(own) for own in shares])
    order = np.argsort(rows, kind="stable")
    again = np.flatnonzero(rows[order][1:] == rows[order][:-1])
    if len(again):
        row, first, second = rows[order[again[0]]], *owners[order[again[0] : again[0] + 2]]
        given = f"client {first} twice" if first == second else f"client {first} and to client {second}"
        raise UserError(f"the partition function gave row {row} to {given}; a row has one owner")


def from_file(labels: np.ndarray, clients: int, seed: int, path: str) -> Rows:
    """The lists of rows in a JSON file; rows that are in no list are left out, a row in two lists is refused."""
    content = _json(Path(path))
    lists = list(content.values()) if isinstance(content, dict) else content
    if not isinstance(lists, list) or not all(isinstance(own, list) for own in lists):
        raise UserError(f"the partition file '{path}' must hold one list of rows for each client")
    if not lists:
        raise UserError(f"the partition file '{path}' has no clients")
    if clients and len(lists) != clients:
        raise UserError(f"'{path}' has {len(lists)} clients, but clients is {clients}; use --clients {len(lists)}")
    seen: set[int] = set()
    for client, own in enumerate(lists):
        _check_listed(own, f"'{path}'", client, len(labels), seen)
    return [np.array(own, dtype=np.int64) for own in lists]


def _check_listed(rows: list[object], where: str, client: int, samples: int, seen: set[int]) -> None:
    """Refuse what a client's list may not hold; its rows are added to those that were `seen`."""
    if not rows:
        raise UserError(f"{where}: client {client} has no samples")
    for row in rows:
        if type(row) is not int or not 0 <= row < samples:
            raise UserError(f"{where}: client {client} has row {row!r:.40}; rows go from 0 to {samples - 1}")
        if row in seen:
            raise UserError(f"{where}: row {row} of client {client} was given before; a row has one owner")
        seen.add(row)


def _json(path: Path) -> object:
    """The content of a file with rows. A pipe is not opened, since that would wait for its writer."""
    if not path.exists():
        raise UserError(f"there is no partition file '{path}'")
    if not path.is_file():
        raise UserError(f"the partition file '{path}' is not a plain file")
    if (size := path.stat().st_size) > MOST_JSON:
        raise UserError(f"the partition file '{path}' has {size:,} bytes; it may have at most {MOST_JSON:,}")
    try:
        content: object = json.loads(path.read_text(encoding="utf-8"))
        return content
    except (OSError, ValueError, RecursionError) as fault:
        raise UserError(f"the partition file '{path}' cannot be read as JSON: {fault}") from None
