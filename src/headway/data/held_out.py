"""Samples that judge a run: those that a publisher's split has for each client, and those held out of training.

With `client_test` each client gets its own test set out of its samples; with `validation` scores are on samples
held out of each client's training, so that settings are not chosen on the test set.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from headway.data.federation import Census, ClientTests, Federation
from headway.data.grouping import Grouping, owners, test_owners
from headway.data.own_split import Rows
from headway.data.partition import repeats
from headway.errors import UserError
from headway.random import generator
from headway.scenario import Scenario


def judged(federation: Federation, scenario: Scenario) -> Federation:
    """The federation with the samples that judge it, by `client_test`, `validation` and `eval_samples`.

    Test samples of clients are held out first, so that the samples of a validation are never among them.
    """
    _check_repeats(scenario)
    if isinstance(federation.clients, Census):  # each client at its own place holds its samples out there
        return federation.judged_on(scenario.eval_samples)
    seed = scenario.split_seed
    if scenario.client_test is not None:
        federation = with_client_tests(federation, scenario.client_test, seed)
    if scenario.validation is not None:
        federation = held_out(federation, scenario.validation, seed)
    if not len(federation.test):
        raise UserError(
            "there is no test set; give test=…, or hold samples of the clients out: client_test=0.2, or validation=0.2"
        )
    return federation.judged_on(scenario.eval_samples)


def _check_repeats(scenario: Scenario) -> None:
    """Refuse to hold samples out of a split in which another client may have a copy of them to train on."""
    if not repeats(scenario.partition):
        return
    for setting in _PURPOSES:
        share = getattr(scenario, setting)
        if share is not None:
            raise UserError(
                f"{setting} is {share:g}, but with partition {scenario.partition} clients may train on copies of what "
                "is held out; leave it out, or use a partition without copies, such as dirichlet:0.3"
            )


def held_out(federation: Federation, share: float, seed: int) -> Federation:
    """A federation whose test set is a share of each client's samples; clients train on the others.

    Client i holds out min(⌊share · n_i + ½⌋, n_i − 1) of its n_i rows, drawn from (seed, i). The original test set is
    dropped. What a client held out also judges it by itself.
    """
    kept, held = _drawn(federation, share, seed, "validation")
    tests = _of_clients(federation, held)
    return dataclasses.replace(federation, clients=kept, test=tests.samples, client_tests=tests)


def with_client_tests(federation: Federation, share: float, seed: int) -> Federation:
    """A federation in which each client has its own test samples, as many and drawn as in `held_out`.

    The test set stays what it was; where there is none, it is that of all clients together.
    """
    if federation.client_tests is not None:
        raise UserError(
            f"client_test is {share:g}, but {federation.client_tests.count} of {len(federation.clients)} clients have "
            "their own test samples; leave it out"
        )
    kept, held = _drawn(federation, share, seed, "client_test")
    tests = _of_clients(federation, held)
    test = federation.test if len(federation.test) else tests.samples
    return dataclasses.replace(federation, clients=kept, test=test, client_tests=tests)


_PURPOSES = {"validation": "validation", "client_test": "client test"}
"""The purpose of the random numbers, by the setting that asks for them."""


def _drawn(federation: Federation, share: float, seed: int, setting: str) -> tuple[Rows, Rows]:
    """(rows that each client keeps, rows that it holds out)."""
    kept, held = [], []
    for client, rows in enumerate(federation.clients):
        left, taken = rows_held_out(rows, share, seed, client, setting)
        kept.append(left)
        held.append(taken)
    if not any(map(len, held)):
        raise UserError(
            f"{setting} is {share:g}, but every client has too few samples to hold one out; use a larger share"
        )
    return kept, held


def rows_held_out(
    rows: np.ndarray, share: float, seed: int, client: int, setting: str
) -> tuple[np.ndarray, np.ndarray]:
    """(rows that a client keeps, rows that it holds out)."""
    count = min(int(share * len(rows) + 0.5), len(rows) - 1)
    chosen = np.zeros(len(rows), bool)
    chosen[generator(seed, _PURPOSES[setting], client).permutation(len(rows))[:count]] = True
    return rows[~chosen], rows[chosen]


def _of_clients(federation: Federation, held: Rows) -> ClientTests:
    """Training samples that were held out, client after client."""
    return ClientTests(federation.train.rows(np.concatenate(held)), one_after_another(list(map(len, held))))


def one_after_another(sizes: Sequence[int]) -> Rows:
    """The rows of each client, where they lie one client after another."""
    bounds = np.cumsum([0, *sizes])
    return [np.arange(start, stop) for start, stop in itertools.pairwise(bounds)]


def tests_by_owner(
    partition: str,
    clients: Sequence[np.ndarray],
    users: np.ndarray | None,
    test_users: np.ndarray | None,
    groupings: Mapping[str, Grouping],
) -> Rows | None:
    """The test rows of each client of a natural split; None where no test sample is of a user that is a client."""
    found = test_owners(partition, test_users, groupings)
    if partition.partition(":")[0] != "natural" or found is None:
        return None
    own = owners(partition, users, groupings)
    order = np.argsort(found, kind="stable")
    first = [own[rows[0]] for rows in clients]
    starts, stops = (np.searchsorted(found[order], first, side=side) for side in ("left", "right"))
    rows = [order[start:stop] for start, stop in zip(starts, stops, strict=True)]
    return rows if any(map(len, rows)) else None
