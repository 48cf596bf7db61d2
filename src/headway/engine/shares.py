"""Which rank trains whom in a round: pure functions, so that every rank knows it of all without a message."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

SLACK = 1.1
"""How much more than its part a rank may get before a client's state is moved to another."""


def blocks(lengths: Sequence[int], size: int) -> list[int]:
    """The rank of each client in contiguous blocks of about equal work, in the order of the cohort.

    The running sum goes from block to block, so that its additions are those of one process. A client is in the block
    in which the middle of its steps lies.
    """
    total, done = max(sum(lengths), 1), 0
    ranks = []
    for length in lengths:
        ranks.append(min((2 * done + length) * size // (2 * total), size - 1))
        done += length
    return ranks


def longest_first(lengths: Sequence[int], size: int, holders: Sequence[int] | None = None) -> list[int]:
    """The rank of each client: the longest first, each to the rank that has least to do.

    `holders` are the ranks that hold the clients' states, −1 where nobody does. A short client stays where its state
    is, unless that rank has more than its part by then. The most that a rank has to do is at most 4/3 of the least that
    is possible, as without states (Graham 1969).
    """
    ranks = [0] * len(lengths)
    loads = [0] * size
    least = max(sum(lengths) / size, max(lengths, default=0))
    queue = [(0, rank) for rank in range(size)]
    for place in sorted(range(len(lengths)), key=lambda at: (-lengths[at], at)):
        length, holder = lengths[place], -1 if holders is None else holders[place]
        near = holder >= 0 and 3 * length <= least and loads[holder] + length <= SLACK * least
        rank = holder if near else _least_loaded(queue, loads)
        if not near and holder >= 0 and loads[holder] == loads[rank]:
            rank = holder
        ranks[place] = rank
        loads[rank] += length
        heapq.heappush(queue, (loads[rank], rank))
    return ranks


def _least_loaded(queue: list[tuple[int, int]], loads: Sequence[int]) -> int:
    """The rank with least to do; entries from before its load grew are removed."""
    while queue[0][0] != loads[queue[0][1]]:
        heapq.heappop(queue)
    return queue[0][1]


def waves(places: Sequence[int], at_most: int) -> list[Sequence[int]]:
    """The places in pieces of at most this many, one at least."""
    return [places[start : start + at_most] for start in range(0, len(places), at_most)] or [places]
