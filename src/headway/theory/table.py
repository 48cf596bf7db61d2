"""What bounds say, as tables for the terminal."""

from __future__ import annotations

from rich import box
from rich.table import Table

from headway.theory.result import Bounds


def _table(*heads: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for place, head in enumerate(heads):
        table.add_column(head, justify="left" if place == 0 else "right")
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4g}"


def tables(bounds: Bounds) -> list[Table]:
    """Step sizes beside practice, gaps beside bounds where they were measured, and constants with rates."""
    limits = _table("what is limited", "allowed", "this scenario", "")
    for limit in bounds.limits:
        limits.add_row(limit.name, _number(limit.allowed), _number(limit.practice), limit.words)
    found = [limits]
    if bounds.gaps:
        gaps = _table("τ", "FedNAG's gap", "f₁", "FedAvg's gap", "f₂", "f₁ − f₂, same constants", "η̄(T)")
        for row in bounds.gaps:
            cells = (row["gap"], row["bound"], row["fedavg_gap"], row["fedavg_bound"])
            gaps.add_row(str(row["tau"]), *map(_number, cells), f"{row['difference']:+.4g}", _number(row["threshold"]))
        found.append(gaps)
    numbers = _table("constant or rate", "")
    for name, value in {**bounds.constants, **bounds.rates}.items():
        numbers.add_row(name, _number(value))
    return [*found, numbers]
