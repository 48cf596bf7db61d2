"""What a run's method costs, as it is recorded with the run: reports read it, and play no rounds."""

from __future__ import annotations

from functools import cache
from typing import TypedDict

from headway.engine.cost import Cost, cost
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.runs.given import catalogue_method


class CostRecord(TypedDict):
    """Traffic, state and memory in multiples of the model; passes in FedAvg's forward and backward passes."""

    down: float
    up: float
    client_state: float
    server_memory: float
    passes: float


def as_record(price: Cost) -> CostRecord:
    """A price as plain data."""
    return {
        "down": price.down,
        "up": price.up,
        "client_state": price.client_state,
        "server_memory": price.server_memory,
        "passes": price.passes,
    }


def cost_record(method: Method) -> CostRecord | None:
    """The cost of a method of the catalogue; None for a user's own, whose parts are called by its own run only."""
    return _of_name(method.name) if catalogue_method(method.name) == method else None


@cache
def _of_name(name: str) -> CostRecord:
    return as_record(cost(spelled(name)))


def is_cost(value: object) -> bool:
    """Whether a value that was read from a file is such a record."""
    names = CostRecord.__annotations__.keys()
    return isinstance(value, dict) and value.keys() == names and all(type(part) is float for part in value.values())
