"""An item's table as texts: a sheet for each column of the item, with a row for each method, in any format."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headway.papers.measurements import heading, parse_measure
from headway.papers.plan import Plan
from headway.papers.preset import Column
from headway.papers.published import printed_ratio
from headway.papers.table.entries import Entry


@dataclass(frozen=True)
class Line:
    """A row of a sheet: a text for each sub-column."""

    texts: list[str]
    best: set[int]
    """The sub-columns in which this row is the best one, which is printed bold."""


@dataclass(frozen=True)
class Sheet:
    """The table of one column of the item."""

    title: str
    head: list[str]
    lines: list[Line]
    groups: list[list[int]]
    """The sub-columns of each measure, which are kept side by side."""


def _digits(entry: Entry) -> int:
    """How many digits are printed after the point: a mean of counts has one."""
    if parse_measure(entry.measure)[0].counts:
        return 0 if len(entry.seeds) == 1 else 1
    digits = {"global_loss": 4, "bits": 3, "received_bits": 3}
    return digits.get(entry.measure.partition("@")[0], 2)


def measured(entry: Entry) -> str:
    """`84.20 ± 0.31`; `failed`; `500+` where a target was not reached in 500 rounds."""
    if entry.state:
        return entry.state
    if entry.mean is None:
        return "–" if entry.lower_bound is None else f"{entry.lower_bound:.0f}+"
    digits = _digits(entry)
    spread = "" if entry.std is None else f" ± {entry.std:.{digits}f}"
    return f"{entry.mean:.{digits}f}{spread}"


def _gap(entry: Entry, scaled: bool) -> str:
    return "–" if entry.gap is None or scaled else f"{entry.gap:+.{_digits(entry)}f}"


def _verdict(entry: Entry, scaled: bool) -> str:
    return "–" if entry.verdict is None or scaled else entry.verdict.written(_digits(entry))


def size(count: float | None) -> str:
    """Bytes as MB, GB or TB."""
    if count is None:
        return "–"
    for unit, factor in (("TB", 1e12), ("GB", 1e9)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count / 1e6:.2f} MB"


def _ratio(entry: Entry, reference: Entry | None) -> str:
    """Rounds divided by the reference's rounds; – where their runs are of different kinds."""
    if reference is None or not reference.mean:
        return "–"
    if reference.marks.kind != entry.marks.kind:
        return "–"
    rounds, bound = (entry.mean, "") if entry.mean is not None else (entry.lower_bound, "> ")
    return "–" if rounds is None else f"{bound}{rounds / reference.mean:.2f}×"


def _paper_ratio(entry: Entry) -> str:
    printed = printed_ratio(entry.published) if entry.published else None
    return "–" if printed is None else f"{'> ' if printed.bound else ''}{printed.value:.2f}×"


Writer = Callable[[Entry], str]


def _sub_columns(plan: Plan, column: Column, name: str, group: Sequence[Entry]) -> dict[str, Writer]:
    """The headings of a measure's sub-columns, each with the function that writes an entry of the group there."""
    scaled = plan.scale != "full"
    reference = next((entry for entry in group if entry.row == plan.preset.reference), None)
    cell = next(cell for cell in plan.cells if cell.column.name == column.name)
    title = heading(name)
    read = plan.read_as(cell, name)
    parts: dict[str, Writer] = {title if read == name else f"{title} as {heading(read)}": measured}
    if any(key[1:] == (column.name, name) for key in plan.preset.numbers):
        parts |= {"paper": lambda entry: str(entry.published), "gap": lambda entry: _gap(entry, scaled)}
        parts["seeds explain"] = lambda entry: _verdict(entry, scaled)
    if parse_measure(name)[0].counts:
        parts["traffic"] = lambda entry: size(entry.bytes)
        if plan.preset.reference is not None:
            parts[f"× {plan.preset.reference}"] = lambda entry: _ratio(entry, reference)
            parts["paper ×"] = _paper_ratio
    return parts


def _best(group: Sequence[Entry], name: str) -> str | None:
    """The row with the best measured mean; None where no other row has a number.

    Only rows whose runs are as the item asks for compete, where there are any.
    """
    sign = 1 if parse_measure(name)[0].higher_is_better else -1
    group = [one for one in group if one.is_as_asked] or group
    known = [(sign * entry.mean, entry.row) for entry in group if entry.mean is not None]
    beaten = len(known) + sum(entry.lower_bound is not None for entry in group) - 1
    return max(known, key=lambda pair: pair[0])[1] if known and beaten else None


def sheets(plan: Plan, found: Sequence[Entry]) -> list[Sheet]:
    """A sheet for each column of the item: a row for each method, and the sub-columns of each measure."""
    return [_sheet(plan, column, [entry for entry in found if entry.column == column.name]) for column in plan.columns]


def _sheet(plan: Plan, column: Column, found: Sequence[Entry]) -> Sheet:
    """The sheet of one column of the item, with its entries."""
    head = ["method", "seeds"]
    lines = {
        entry.row: Line([f"{entry.row} {entry.marks.signs}".strip(), str(len(entry.seeds))], set()) for entry in found
    }
    groups: list[list[int]] = []
    for name in column.measures:
        group = [entry for entry in found if entry.measure == name]
        parts = _sub_columns(plan, column, name, group)
        winner = _best(group, name)
        if winner is not None:
            lines[winner].best.add(len(head))
        groups.append([*range(len(head) if groups else 1, len(head) + len(parts))])  # the seeds go with the first
        head += parts
        for entry in group:
            lines[entry.row].texts.extend(write(entry) for write in parts.values())
    return Sheet(column.name, head, list(lines.values()), groups)
