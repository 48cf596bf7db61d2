"""The catalogue: what all methods cost, and a page on the screen for one."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

from rich.console import Console

from headway.cli.completion import Names
from headway.cli.listing import ListedMethod, Listing
from headway.engine.cost import Cost, cost
from headway.methods.arguments import ranges
from headway.methods.catalogue import METHODS, MODIFIERS, Entry
from headway.methods.method import SLOTS, Method
from headway.methods.method_notes import purpose
from headway.methods.privacy import guarantee
from headway.methods.relatives import relatives
from headway.methods.spelling import chosen, defaults, method, pieces
from headway.runs.costs import as_record


def measured() -> Listing:
    """Every method and modifier of the catalogue; what a method costs is counted on a round of it."""
    methods: list[ListedMethod] = []
    for name, entry in METHODS.items():
        price = as_record(cost(entry.build()))
        methods.append(
            {
                "name": name,
                "equations": _equations(entry.build),
                "purpose": purpose(name),
                "arguments": defaults(entry),
                **price,
            }
        )
    return {
        "methods": methods,
        "modifiers": [{"name": name, "equations": _equations(one.build)} for name, one in MODIFIERS.items()],
    }


def _equations(build: Callable[..., Method]) -> str:
    return (inspect.getdoc(build) or "").splitlines()[0]


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


def _spelled(name: str, help: str, alone: bool, with_argument: bool) -> dict[str, str]:
    """A name as it can stand: alone, before a colon, or both."""
    return ({name: help} if alone else {}) | ({f"{name}:": help} if with_argument else {})


def names() -> Names:
    """All that has a name, for the completion of a shell."""
    from headway.data.participation import SAMPLINGS
    from headway.data.partition import PARTITIONS
    from headway.data.sources import SOURCES
    from headway.models.networks import NETWORKS

    data: dict[str, str] = {}
    for name, source in SOURCES.items():
        data |= _spelled(name, source.summary, source.optional or not source.argument, bool(source.argument))
    partitions: dict[str, str] = {}
    for name, rule in PARTITIONS.items():
        argument = rule.argument is not None
        partitions |= _spelled(name, rule.help, not argument or rule.by_user, argument or rule.by_user)
    return {
        "methods": {name: {"help": purpose(name), "options": _options(entry)} for name, entry in METHODS.items()},
        "modifiers": {
            name: {"help": _equations(entry.build), "options": _options(entry)} for name, entry in MODIFIERS.items()
        },
        "models": dict.fromkeys(NETWORKS, ""),
        "data": data,
        "partitions": partitions,
        "samplings": {
            name + (":" if entry.argument.startswith(":") else ""): entry.help for name, entry in SAMPLINGS.items()
        },
    }


def _options(entry: Entry) -> dict[str, str]:
    """The arguments of a method, each with its range and its default."""
    allowed = ranges(entry.build)
    return {
        name: "; ".join(
            filter(
                None, [str(allowed[name]).replace("value", name) if name in allowed else "", f"{default} by default"]
            )
        )
        for name, default in defaults(entry).items()
    }
