"""The groups that the rows of a data set belong to: its users, or those of a further grouping that it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from headway.errors import UserError, nearest


@dataclass(frozen=True)
class Grouping:
    """A further way in which rows belong together, such as all speakers of a play."""

    users: np.ndarray
    """The group of each training row, as a place in `names`."""
    test_users: np.ndarray | None = None
    """The same for test rows, where the test set belongs to groups."""
    names: tuple[str, ...] = ()


def owners(partition: str, users: np.ndarray | None, groupings: Mapping[str, Grouping]) -> np.ndarray:
    """The owner of each training row under `natural`, which is by user, or under `natural:GROUPING`."""
    grouping = partition.partition(":")[2]
    if grouping in groupings:
        return groupings[grouping].users
    if users is None and not groupings:
        raise UserError(f"partition is '{partition}', but the samples of this data set do not belong to users")
    known = [*(["natural"] if users is not None else []), *(f"natural:{name}" for name in groupings)]
    if grouping or users is None:
        close = nearest(grouping, groupings)
        raise UserError(
            f"partition is '{partition}', but this data set does not have this grouping{close} "
            f"(known: {', '.join(known)})"
        )
    return users


def test_owners(partition: str, test_users: np.ndarray | None, groupings: Mapping[str, Grouping]) -> np.ndarray | None:
    """The owner of each test row, numbered as by `owners`; None where the test set belongs to nobody."""
    grouping = partition.partition(":")[2]
    return groupings[grouping].test_users if grouping in groupings else test_users
