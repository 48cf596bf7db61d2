"""The catalogue on the screen: a table of all methods, a page for one."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Literal

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headway.engine.cost import Cost, cost
from headway.methods.arguments import ranges
from headway.methods.catalogue import METHODS, MODIFIERS
from headway.methods.method import SLOTS, Method
from headway.methods.privacy import guarantee
from headway.methods.relatives import relatives
from headway.methods.spelling import chosen, defaults, method, pieces
from headway.runs.costs import CostRecord, as_record


class ListedMethod(CostRecord):
    """A method of the catalogue as plain data, with its costs."""

    name: str
    equations: str
    arguments: Mapping[str, object]


def listed() -> list[ListedMethod]:
    """Every method of the catalogue."""
    return [
        {
            "name": name,
            "equations": _equations(entry.build),
            "arguments": defaults(entry),
            **as_record(cost(entry.build())),
        }
        for name, entry in METHODS.items()
    ]


def _equations(build: Callable[..., Method]) -> str:
    return (inspect.getdoc(build) or "").splitlines()[0]


def table() -> Table:
    found = Table(
        box=box.SIMPLE_HEAD,
        caption="traffic, state and memory in multiples of the model; passes in multiples of FedAvg's",
        caption_justify="left",
    )
    for name in ("method", "equations", "down", "up", "client state", "server memory", "passes"):
        justify: Literal["left", "right"] = "left" if name in ("method", "equations") else "right"
        found.add_column(name, no_wrap=name == "method", justify=justify, overflow="fold")
    for name, entry in METHODS.items():
        found.add_row(name, Text(_equations(entry.build)), *cost_columns(cost(entry.build())).values())
    for name, modifier in MODIFIERS.items():
        found.add_row(f"+{name}", Text(_equations(modifier.build)))
    return found


def show(spelled: str, console: Console) -> None:
    alone = spelled.partition(":")[0] in MODIFIERS
    built = method(f"fedavg+{spelled}" if alone else spelled)
    for piece in pieces(spelled):
        entry, values = chosen(piece)
        console.print(entry.name, style="bold", highlight=False)
        console.print(inspect.getdoc(entry.build) or "", markup=False, highlight=False)
        allowed = ranges(entry.build)
        for argument, default in defaults(entry).items():
            limit = str(allowed[argument]).replace("value", argument) if argument in allowed else ""
            given = "" if values[argument] == default else f"  (default {default})"
            console.print(f"  {argument} = {values[argument]}{given}    {limit}", markup=False, highlight=False)
        console.print()
    console.print("slots", style="bold")
    for slot, value in slot_rows(built):
        console.print(f"  {slot:<10} {value}", markup=False, highlight=False)
    if found := relatives(spelled.partition(":")[0]) if "+" not in spelled else []:
        console.print("\nsame as (docs/same-as.md)", style="bold")
        for line in found:
            console.print(f"  {line}", markup=False, highlight=False)
    console.print("\nprivacy, with +dp", style="bold")
    console.print(f"  {guarantee(built)}", markup=False, highlight=False)
    console.print("\ncost, in multiples of the model", style="bold")
    console.print(
        "  " + "   ".join(f"{what} {much}" for what, much in cost_columns(cost(built)).items()), highlight=False
    )


def slot_rows(built: Method) -> list[tuple[str, str]]:
    """Each slot with its values as they are written in Python, the wire last."""
    rows = [(slot, " + ".join(repr(part) for part in getattr(built, slot))) for slot in SLOTS]
    return [*rows, ("wire", f"up {built.wire.up!r}, down {built.wire.down!r}")]


def cost_columns(price: Cost) -> dict[str, str]:
    """A price with three digits, under the headings of tables and pages."""
    return {name.replace("_", " "): f"{number:.3g}" for name, number in dataclasses.asdict(price).items()}
