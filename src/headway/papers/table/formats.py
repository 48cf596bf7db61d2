"""An item's table for the terminal, as Markdown and as LaTeX."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from headway.papers.plan import Plan
from headway.papers.reproduce import Outcomes
from headway.papers.table.captions import below, title
from headway.papers.table.entries import entries
from headway.papers.table.sheets import Sheet, sheets
from headway.report.tables import NEEDS_BOOKTABS, tabular


def _parts(sheet: Sheet, width: int) -> list[list[int]]:
    """The sub-columns of each part of a sheet that is at most `width` characters wide.

    The sub-columns of a measure stay together, and every part begins with the method.
    """
    wide = [
        max(len(text) for text in (*_stacked(sheet.head[at]), *(line.texts[at] for line in sheet.lines))) + 3
        for at in range(len(sheet.head))
    ]
    parts: list[list[int]] = [[0]]
    for group in sheet.groups:
        taken = sum(wide[at] for at in (*parts[-1], *group))
        if len(parts[-1]) > 1 and taken + 2 > width:
            parts.append([0])
        parts[-1] += group
    return parts


def _stacked(head: str) -> list[str]:
    """A heading in lines of one word: `rounds to 81 %` takes three, as 81 and % stay together."""
    return head.replace(" %", "\u00a0%").split(" ")


def terminal(plan: Plan, outcomes: Outcomes, width: int) -> list[tuple[str, Table]]:
    """A heading and a table for each column of the item; several where its measures do not fit into `width`."""
    tables = []
    for sheet in sheets(plan, entries(plan, outcomes)):
        for part in _parts(sheet, width):
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
            for at in part:
                head = "\n".join(_stacked(sheet.head[at]))
                table.add_column(head, justify="left" if at == 0 else "right", no_wrap=True)
            for line in sheet.lines:
                table.add_row(*(Text(line.texts[at], style="bold" if at in line.best else "") for at in part))
            tables.append((sheet.title, table))
    return tables


def markdown(plan: Plan, outcomes: Outcomes) -> str:
    lines = [f"# {title(plan)}", ""]
    for sheet in sheets(plan, entries(plan, outcomes)):
        lines += [f"## {sheet.title}", "", "| " + " | ".join(sheet.head) + " |"]
        lines.append("|---|" + "---:|" * (len(sheet.head) - 1))
        for line in sheet.lines:
            texts = (f"**{text}**" if at in line.best else text for at, text in enumerate(line.texts))
            lines.append("| " + " | ".join(texts) + " |")
        lines.append("")
    return "\n".join([*lines, "\n\n".join(below(plan, outcomes))]) + "\n"


def latex(plan: Plan, outcomes: Outcomes) -> str:
    lines = [f"% {title(plan)}", NEEDS_BOOKTABS]
    for sheet in sheets(plan, entries(plan, outcomes)):
        bold = {(row, at) for row, line in enumerate(sheet.lines) for at in line.best}
        body = [line.texts for line in sheet.lines]
        made = tabular("l" + "r" * (len(sheet.head) - 1), sheet.head, body, bold)
        lines += [f"% {sheet.title}", *map(_with_commands, made)]
    return "\n".join([*lines, *(f"% {line}" for line in below(plan, outcomes))]) + "\n"


_COMMANDS = {"×": r"$\times$", "β": r"$\beta$", "λ": r"$\lambda$", "γ": r"$\gamma$", "τ": r"$\tau$", "ω": r"$\omega$"}
_COMMANDS |= {"†": r"$\dagger$", "‡": r"$\ddagger$", "§": r"\S{}"}


def _with_commands(line: str) -> str:
    """A line of a LaTeX table, whose signs are commands of mathematics."""
    made = line.replace("> ", "$>$ ")
    for character, command in _COMMANDS.items():
        made = made.replace(character, command)
    return made
