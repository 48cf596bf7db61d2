"""Scores of a test set that ranks make together: each scores some chunks of it, and all have all rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from headway.engine.ranks import Ranks
from headway.engine.scoring import Scored
from headway.engine.sum_form import fill, flattened
from headway.trees import leaves_of, refill, tree_map


def own_chunks(starts: Sequence[int], ranks: Ranks) -> Sequence[int]:
    """The chunks of a rank, by where they start; one alone is scored by everybody, which saves an exchange."""
    if len(starts) == 1:
        return starts
    count, rank = len(starts), ranks.rank
    return starts[rank * count // ranks.size : (rank + 1) * count // ranks.size]


def gathered(ranks: Ranks, own: Scored) -> Scored:
    """The rows of all ranks, one after another; `own` are this rank's on the host, perhaps none."""
    told = ranks.tell({"rows": [len(leaf) for leaf in leaves_of(own)]})
    found: list[Scored] = []
    for source, one in enumerate(told):
        lengths = cast(list[int], one["rows"])
        if not any(lengths):
            continue
        room = own if source == ranks.rank else _room(own, lengths)
        flat = flattened(room)
        for numbers in flat.values():
            ranks.spread(numbers, source)
        fill(room, flat)
        found.append(room)
    return tree_map(lambda *rows: torch.cat(rows), *found)  # type: ignore[no-any-return]


def _room(like: Scored, lengths: Sequence[int]) -> Scored:
    leaves: list[Tensor] = leaves_of(like)
    return refill(like, [leaf.new_empty((count, *leaf.shape[1:])) for leaf, count in zip(leaves, lengths, strict=True)])
