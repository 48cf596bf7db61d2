"""The comparison table: for the terminal, in Markdown and in LaTeX, from the same cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from headway.data.participation import in_words

Numbers = dict[str, Any]


def _spread(row: Numbers, key: str, scale: float, digits: int) -> str:
    if row[key] is None:
        return "–"
    text = f"{row[key] * scale:.{digits}f}"
    return text if row[f"{key}_std"] is None else f"{text} ± {row[f'{key}_std'] * scale:.{digits}f}"


def _to_target(row: Numbers, key: str, scale: float, digits: int, limit: float) -> str:
    """Mean over the seeds, or a lower bound "R+" where some seed ended without reaching the target."""
    values = row[f"{key}_each"]
    if row["target"] is None:
        return "–"
    if row[key] is not None:
        return _spread(row, key, scale, digits)
    if all(value is None for value in values):
        return f"{limit * scale:.{digits}f}+"
    least = sum(limit if value is None else value for value in values) / len(values)
    reached = sum(value is not None for value in values)
    return f"{least * scale:.{digits}f}+ ({reached}/{len(values)} reached)"


def _ended(row: Numbers) -> str:
    """How a run ended that did not come to its end."""
    return str(row.get("ended", ""))


def _label(row: Numbers) -> str:
    return f"{row['name']} ({_ended(row)})" if _ended(row) else str(row["name"])


def numeric(rows: Sequence[Numbers]) -> bool:
    """Whether the targets are numbers: there are losses and no accuracies."""
    return all(row["accuracy"] is None and row["rmse"] is not None for row in rows)


def _columns(rows: Sequence[Numbers]) -> dict[str, Callable[[Numbers], str]]:
    """Headings, most important first, and how each cell is written."""
    if numeric(rows):
        return {
            "method": _label,
            "loss": lambda row: _spread(row, "loss", 1, 4),
            "RMSE": lambda row: _spread(row, "rmse", 1, 4),
            "R²": lambda row: _spread(row, "r2", 1, 4),
            "MB a round": lambda row: f"{row['bytes_per_round'] / 1e6:.2f}",
            "seconds": lambda row: f"{row['seconds']:.1f}",
        }
    target = rows[0]["target"]
    mark = "target" if target is None else f"{target * 100:.1f} %"
    digits = 1 if rows[0]["seeds"] > 1 else 0
    return {
        "method": _label,
        "accuracy %": lambda row: _spread(row, "accuracy", 100, 2),
        f"rounds to {mark}": lambda row: _to_target(row, "rounds_to_target", 1, digits, row["rounds"]),
        f"MB to {mark}": lambda row: _to_target(row, "bytes_to_target", 1e-6, 1, row["bytes_down"] + row["bytes_up"]),
        "MB a round": lambda row: f"{row['bytes_per_round'] / 1e6:.2f}",
        "top %": lambda row: _spread(row, "accuracy_top", 100, 2),
        "client spread": lambda row: _spread(row, "client_accuracy_std", 100, 2),
        "seconds": lambda row: f"{row['seconds']:.1f}",
    }


def cells(rows: Sequence[Numbers]) -> tuple[list[str], list[list[str]]]:
    """Headings and one list of texts for each method."""
    columns = _columns(rows)
    return list(columns), [[write(row) for write in columns.values()] for row in rows]


def best(rows: Sequence[Numbers]) -> set[tuple[int, int]]:
    """(row, column) of the highest accuracy and of the fewest rounds to the target, or of the least loss.

    Of equal ones all; of runs that did not come to their end none.
    """
    found = set()
    keys = ((1, "loss", 1),) if numeric(rows) else ((1, "accuracy", -1), (2, "rounds_to_target", 1))
    for column, key, sign in keys:
        known = {number: sign * row[key] for number, row in enumerate(rows) if row[key] is not None and not _ended(row)}
        if len(rows) > 1 and known:
            least = min(known.values())
            found |= {(number, column) for number, value in known.items() if value == least}
    return found


def caption(rows: Sequence[Numbers], scenario: Any) -> str:
    most = max(row["rounds"] for row in rows)
    seeds = f"{rows[0]['seeds']} seed{'s' if rows[0]['seeds'] > 1 else ''}"
    measure = "loss is the mean squared error" if numeric(rows) else f"accuracy is EMA({scenario.smoothing:g})"
    if scenario.validation is not None:
        measure = f"validation {measure}, on {100 * scenario.validation:.3g} % of each client's samples, held out"
    spread = ", ± over seeds" if rows[0]["seeds"] > 1 else ""
    return (
        f"{scenario.data}, {scenario.partition}, {in_words(scenario)}, "
        f"{scenario.model}, {most} round{'s' if most != 1 else ''}, {seeds}; {measure}{spread}"
    )


def terminal(rows: Sequence[Numbers], scenario: Any, width: int) -> Table:
    """The table for a screen of `width` columns; where they do not fit, the last ones are left out."""
    head, body = cells(rows)
    bold = best(rows)
    table = Table(box=box.SIMPLE_HEAD, caption=caption(rows, scenario), caption_justify="left")
    widths = [max(len(line[column]) for line in [head, *body]) + 3 for column in range(len(head))]
    shown = [column for column in range(len(head)) if sum(widths[: column + 1]) < width or column < 3]
    for column in shown:
        table.add_column(head[column], justify="left" if column == 0 else "right", no_wrap=column > 0)
    for at, line in enumerate(body):
        texts = (Text(line[column], style="bold" if (at, column) in bold else "") for column in shown)
        table.add_row(*texts)
    return table


def markdown(rows: Sequence[Numbers], scenario: Any) -> str:
    head, body = cells(rows)
    body = [[plain(text) for text in line] for line in body]
    bold = best(rows)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" + "---:|" * (len(head) - 1)]
    for at, line in enumerate(body):
        texts = (f"**{text}**" if (at, column) in bold else text for column, text in enumerate(line))
        lines.append("| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |")
    return "\n".join(lines) + f"\n\n{plain(caption(rows, scenario))}\n"


def plain(text: str) -> str:
    """A text in one line that Markdown does not take for HTML: a name or a message may hold some."""
    return " ".join(text.splitlines()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def latex(rows: Sequence[Numbers], scenario: Any) -> str:
    head, body = cells(rows)
    bold = best(rows)
    lines = [r"\begin{tabular}{l" + "r" * (len(head) - 1) + "}", r"\hline"]
    lines += [" & ".join(map(tex, head)) + r" \\", r"\hline"]
    for at, line in enumerate(body):
        texts = (rf"\textbf{{{tex(text)}}}" if (at, column) in bold else tex(text) for column, text in enumerate(line))
        lines.append(" & ".join(texts) + r" \\")
    return "\n".join([*lines, r"\hline", r"\end{tabular}", f"% {caption(rows, scenario)}"]) + "\n"


_TEX = {character: f"\\{character}" for character in "%_&#${}"} | {
    "±": r"$\pm$",
    "–": "--",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}


def tex(text: str) -> str:
    return "".join(_TEX.get(character, character) for character in text)
