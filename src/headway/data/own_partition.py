"""One dataset of a user's, shared among clients by a partition of the table."""

from __future__ import annotations

from torch import Tensor

from headway.data.own_samples import Padding, Reading, check_padding, samples_of
from headway.data.own_split import SplitFunction
from headway.data.partition import split as split_rows
from headway.errors import UserError, shown


def split(
    data: object, partition: str | SplitFunction, clients: int, *, seed: int = 0, padding: Padding = None
) -> list[tuple[object, object]]:
    """Share one dataset among clients: a pair (inputs, targets) for each, which `simulate(clients=…)` takes.

    >>> simulate("fedacg", clients=split(my_dataset, "dirichlet:0.3", 20), test=my_test_set)

    `data` is a dataset of (input, target), a pair of arrays or a DataLoader. The same arguments give the same clients.
    """
    check_padding(padding)
    if isinstance(clients, bool) or not isinstance(clients, int) or clients < 1:
        raise UserError(f"clients is {shown(clients)}; it must be a whole number, at least 1")
    if not isinstance(partition, str) and not callable(partition):
        raise UserError(f"partition is {shown(partition)}; it must be a name such as 'dirichlet:0.3', or a function")
    samples = samples_of(data, Reading("data", padding))
    if not isinstance(samples.y, Tensor):
        raise UserError("data has targets of several parts, of which no partition can be made; give clients=[…]")
    rows = split_rows(partition, samples.y.numpy(), clients, seed)
    own = [samples.rows(one) for one in rows]
    return [(one.inputs, one.y) for one in own]
