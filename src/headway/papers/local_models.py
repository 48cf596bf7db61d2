"""The local models of an item's runs: looked at where that is still to be done, and beside each other in a table."""

from __future__ import annotations

import operator
from collections.abc import Iterator

from headway.analysis.inside import Analysis
from headway.analysis.written import NAME, of_run, place_of
from headway.errors import UserError
from headway.papers.plan import Cell, Plan
from headway.papers.reproduce import Outcomes
from headway.report.inside.write import analyse
from headway.runs import kept
from headway.runs.observer import Observer

KIND = "local-models"
"""The kind of figure that shows them."""
_FALLS = {
    "mean distance of two": True,
    "mean distance from their mean": True,
    "mean loss of local models": True,
    "CKA of two, first layer": False,
    "CKA of two, last layer": False,
}
"""The numbers on which the paper says that FedACG is better, and whether the lower one is."""


def wants(plan: Plan) -> bool:
    """Whether an item's figure shows local models."""
    return KIND in plan.preset.figures


def analyse_runs(plan: Plan, outcomes: Outcomes, observer: Observer) -> None:
    """Look into each run that ended, after the last round that it kept; those that were looked into stay as they are.

    What cannot be looked into is told, and the table is made of the others.
    """
    for outcome in outcomes.values() if wants(plan) else ():
        folder = outcome.folder
        if folder is None or outcome.failure is not None:
            continue
        rounds = kept.rounds(folder)
        if not rounds or (place_of(folder, rounds[-1] + 1) / NAME).is_file():
            continue
        observer.tell(f"looking into the local models of {folder.name} of {folder.parent.name}")
        try:
            analyse(folder, round=rounds[-1])
        except UserError as fault:
            observer.tell(f"{folder}: {fault}")


def of_cell(cell: Cell, outcomes: Outcomes) -> Analysis | None:
    """What was found in the last round that was looked into, of the first seed that has any."""
    for one in cell.runs:
        folder = outcomes[one].folder if one in outcomes else None
        found = of_run(folder) if folder is not None else []
        if found:
            return found[-1]
    return None


def analyses(plan: Plan, outcomes: Outcomes) -> dict[str, Analysis]:
    """What was found of each row, by its name, and by its column's where there are several."""
    several = len(plan.columns) > 1
    found = {
        f"{cell.row.name}, {cell.column.name}" if several else cell.row.name: of_cell(cell, outcomes)
        for cell in plan.cells
    }
    return {name: one for name, one in found.items() if one is not None}


def markdown(plan: Plan, outcomes: Outcomes) -> str:
    """The numbers of all rows in a table, and whether the paper's sentence on them holds."""
    found = analyses(plan, outcomes)
    if not found:
        return "No run of this item kept a state to look into: make it with this command, without --from.\n"
    summaries = {name: one.summary() for name, one in found.items()}
    names = list(dict.fromkeys(name for numbers in summaries.values() for name in numbers))
    head = ["of local models", *(f"{name}, round {one.round}" for name, one in found.items())]
    rows = [[name, *_cells(name, summaries)] for name in names]
    lines = [f"| {' | '.join(cells)} |" for cells in (head, ["---", *["---:"] * len(found)], *rows)]
    scaled = ["SCALED DOWN: of small models after few rounds, so that the paper says nothing of them.", ""]
    return "\n".join([*lines, "", *(scaled if plan.scale == "tiny" else []), *verdict(summaries), ""])


def _cells(name: str, summaries: dict[str, dict[str, float]]) -> Iterator[str]:
    """One number of every row."""
    for numbers in summaries.values():
        yield f"{numbers[name]:.4g}" if name in numbers else "–"


def verdict(summaries: dict[str, dict[str, float]]) -> list[str]:
    """For each number on which the paper says that FedACG is better: whether it is, and beside whom it is not."""
    own = next((name for name in summaries if name.startswith("fedacg")), None)
    if own is None or len(summaries) < 2:
        return []
    lines = []
    for name, falls in _FALLS.items():
        values = {method: numbers[name] for method, numbers in summaries.items() if name in numbers}
        if own in values:
            lines.append(f"* {name}: {own}'s is {_beside(own, values, falls)}.")
    return lines


def _beside(own: str, values: dict[str, float], falls: bool) -> str:
    """Whether a method's number is the better one beside each other's, in words."""
    word, is_better = ("lower", operator.lt) if falls else ("higher", operator.gt)
    others = [method for method in values if method != own]
    beaten = [method for method in others if is_better(values[own], values[method])]
    rest = [method for method in others if method not in beaten]
    said = f"{word}, as the paper says, than that of {', '.join(beaten)}" if beaten else ""
    against = f"not {word} than that of {', '.join(rest)}, unlike in the paper" if rest else ""
    return "; ".join(filter(None, (said, against)))
