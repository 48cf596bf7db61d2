"""Samples held out of the clients' training data, so that settings are not chosen on the test set."""

from __future__ import annotations

import dataclasses

import numpy as np

from headway.data.federation import Federation
from headway.errors import UserError
from headway.random import generator


def held_out(federation: Federation, share: float, seed: int) -> Federation:
    """A federation whose test set is a share of each client's samples; clients train on the others.

    Client i holds out min(⌊share · n_i + ½⌋, n_i − 1) of its n_i rows, drawn from (seed, i). The original test set is
    dropped.
    """
    kept, held = [], []
    for client, rows in enumerate(federation.clients):
        count = min(int(share * len(rows) + 0.5), len(rows) - 1)
        chosen = np.zeros(len(rows), bool)
        chosen[generator(seed, "validation", client).permutation(len(rows))[:count]] = True
        kept.append(rows[~chosen])
        held.append(rows[chosen])
    held_rows = np.concatenate(held)
    if not len(held_rows):
        raise UserError(
            f"validation is {share:g}, but every client has too few samples to hold one out; use a larger share"
        )
    return dataclasses.replace(federation, clients=kept, test=federation.train.rows(held_rows))
