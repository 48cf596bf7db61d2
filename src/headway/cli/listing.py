"""`headway methods`: every method with what it is for and what it costs, as a table and as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypedDict

from rich import box
from rich.table import Table
from rich.text import Text

from headway.cli.remembered import remembered


class ListedMethod(TypedDict):
    """A method of the catalogue as plain data, with its costs in multiples of the model and of FedAvg's passes."""

    name: str
    equations: str
    purpose: str
    """What it is for, in a line."""
    arguments: Mapping[str, object]
    down: float
    up: float
    client_state: float
    server_memory: float
    passes: float


class ListedModifier(TypedDict):
    """What may stand after a `+`."""

    name: str
    equations: str


class Listing(TypedDict):
    """The catalogue."""

    methods: list[ListedMethod]
    modifiers: list[ListedModifier]


COSTS = ("down", "up", "client_state", "server_memory", "passes")


def listing() -> Listing:
    """The catalogue with its costs. Each method plays a round for it, so it is remembered."""
    return remembered("methods", _measured)


def _measured() -> Listing:
    from headway.cli import catalogue

    return catalogue.measured()


def table(content: Listing) -> Table:
    """A row for each method: its equations and what it is for, and what it costs."""
    found = Table(
        box=box.SIMPLE_HEAD,
        caption="traffic, state and memory in multiples of the model; passes in multiples of FedAvg's",
        caption_justify="left",
    )
    for name in ("method", "equations, and what it is for", *(key.replace("_", " ") for key in COSTS)):
        text = name.startswith(("method", "equations"))
        justify: Literal["left", "right"] = "left" if text else "right"
        found.add_column(name, no_wrap=name == "method", justify=justify, overflow="fold")
    for one in content["methods"]:
        prices = (one["down"], one["up"], one["client_state"], one["server_memory"], one["passes"])
        what = Text(one["equations"]).append(f"\n{one['purpose']}" if one["purpose"] else "", style="dim")
        found.add_row(one["name"], what, *(f"{price:.3g}" for price in prices))
    for modifier in content["modifiers"]:
        found.add_row(f"+{modifier['name']}", Text(modifier["equations"]))
    return found
