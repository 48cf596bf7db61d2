"""The comparison table: for the terminal, in Markdown and in LaTeX, from the same cells."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

from rich import box
from rich.table import Table
from rich.text import Text

from headway.data.participation import in_words
from headway.measure.headline import Headline, common_headline, headline, metrics_in
from headway.measure.numbers import MethodNumbers, number_of
from headway.report.clients import about_clients, client_columns, with_deviation
from headway.report.units import unit_of_column
from headway.scenario import Scenario


def _spread(row: MethodNumbers, key: str, scale: float, digits: int) -> str:
    return with_deviation(number_of(row, key), number_of(row, f"{key}_std"), scale, digits)


def _to_target(
    row: MethodNumbers, key: str, each: Sequence[float | None], scale: float, digits: int, limit: float
) -> str:
    """Mean over the seeds, or a lower bound "R+" where some seed ended without reaching the target.

    `each` has the number `key` of every seed, None where it did not reach the target.
    """
    if row["target"] is None:
        return "–"
    if number_of(row, key) is not None:
        return _spread(row, key, scale, digits)
    known = [value for value in each if value is not None]
    if not known:
        return f"{limit * scale:.{digits}f}+"
    least = sum(limit if value is None else value for value in each) / len(each)
    return f"{least * scale:.{digits}f}+ ({len(known)}/{len(each)} reached)"


def _ended(row: MethodNumbers) -> str:
    """How a run ended that did not come to its end."""
    return row.get("ended", "")


def _label(row: MethodNumbers) -> str:
    return f"{row['name']} ({_ended(row)})" if _ended(row) else row["name"]


@dataclass(frozen=True)
class Column:
    """A heading, how its cells are written, and which value is best: the key of the number and its sign."""

    heading: str
    write: Callable[[MethodNumbers], str]
    best: tuple[str, int] | None = None
    falls: bool = False
    """Whether it is a metric of which less is better."""


def lead(rows: Sequence[MethodNumbers]) -> Headline:
    """The number that the table leads with."""
    return common_headline(rows)


Compared = Literal["against_best", "rounds_against_best"]


def _against(row: MethodNumbers, key: Compared, scale: float, digits: int) -> str:
    """`−2.76 [−3.90, −1.62] distinguishable`: the difference to the best, its interval, and the verdict."""
    found = row.get(key)
    if found is None:
        return "–"
    parts = []
    if "difference" in found:
        parts.append(f"{found['difference'] * scale:+.{digits}f}")
    low, high = found.get("low"), found.get("high")
    if low is not None and high is not None:
        parts.append(f"[{low * scale:.{digits}f}, {high * scale:.{digits}f}]")
    fewer = f" ({found['pairs']} pairs)" if 0 < found["pairs"] < row["seeds"] else ""
    return " ".join([*parts, found["verdict"] + fewer]).replace("-", "−")


def number_and_word(text: str) -> tuple[str, str]:
    """What `_against` wrote in two parts, the second one with the space before it: for two lines."""
    found = re.match(r"([+−].*?)( [a-z].*)", text)
    return (found[1], found[2]) if found else (text, "")


def _metric(heading: str, key: str, read: Headline, leads: bool = False) -> Column:
    """A metric's number, written as its headline is."""
    best = (key, -1 if read.higher_is_better else 1) if leads else None
    return Column(heading, lambda row: _spread(row, key, read.scale, read.digits), best, not read.higher_is_better)


def _of_headline(rows: Sequence[MethodNumbers], first: Headline) -> list[Column]:
    """The headline metric in its forms, and what it took to reach the target."""
    target, other, kind = rows[0]["target"], first.other, "top" if first.metric == "accuracy" else f"best {first.name}"
    mark = "target" if target is None else first.target(target)
    digits = 1 if rows[0]["seeds"] > 1 else 0
    smooth = any(number_of(row, first.key) != number_of(row, other.key) for row in rows)
    return [
        _metric(first.words, first.key, first, leads=True),
        *([_metric(f"{other.words.partition(' ')[0]}{first.unit}", other.key, first)] if smooth else []),
        Column(AGAINST, lambda row: _against(row, "against_best", first.scale, first.digits)),
        Column(
            f"rounds to {mark}",
            lambda row: _to_target(row, "rounds_to_target", row["rounds_to_target_each"], 1, digits, row["rounds"]),
            ("rounds_to_target", 1),
        ),
        Column(ROUNDS_AGAINST, lambda row: _against(row, "rounds_against_best", 1, digits)),
        *_of_traffic(rows, mark),
        _metric(f"{kind}{first.unit}", f"best_{first.metric}", first),
    ]


def _of_traffic(rows: Sequence[MethodNumbers], mark: str) -> list[Column]:
    """What was sent to reach the target, and in a round."""
    whole = [row["bytes_down"] + row["bytes_up"] for row in rows]
    known = [number_of(row, "bytes_to_target") or total for row, total in zip(rows, whole, strict=True)]
    to_target = unit_of_column(known, 1)
    a_round = unit_of_column((row["bytes_per_round"] for row in rows), 2)
    return [
        Column(
            f"{to_target.name} to {mark}",
            lambda row: _to_target(
                row,
                "bytes_to_target",
                row["bytes_to_target_each"],
                1 / to_target.bytes,
                1,
                row["bytes_down"] + row["bytes_up"],
            ),
            ("bytes_to_target", 1),
        ),
        Column(f"{a_round.name} a round", lambda row: f"{row['bytes_per_round'] / a_round.bytes:.2f}"),
    ]


def _of_others(rows: Sequence[MethodNumbers]) -> list[Column]:
    """The last value of every other metric, and what is known over clients."""
    found = []
    for metric in metrics_in(rows[0])[1:]:
        one = headline(metric, smoothed=False)
        key = one.key if one.metric == "accuracy" else one.metric
        found.append(_metric(f"{one.name}{one.unit}", key, one))
    return [*found, *(Column(heading, write) for heading, write in client_columns(rows))]


AGAINST, ROUNDS_AGAINST = "against best", "rounds against best"
_KEYS: dict[str, Compared] = {AGAINST: "against_best", ROUNDS_AGAINST: "rounds_against_best"}


def columns(rows: Sequence[MethodNumbers]) -> list[Column]:
    """Most important first; differences only where there are several methods to compare."""
    found = [
        Column("method", _label),
        *_of_headline(rows, lead(rows)),
        *_of_others(rows),
        Column("seconds", lambda row: f"{row['seconds']:.1f}"),
    ]
    return [one for one in found if one.heading not in _KEYS or any(row.get(_KEYS[one.heading]) for row in rows)]


def cells(rows: Sequence[MethodNumbers]) -> tuple[list[str], list[list[str]]]:
    """Headings and one list of texts for each method."""
    found = columns(rows)
    return [one.heading for one in found], [[one.write(row) for one in found] for row in rows]


def best(rows: Sequence[MethodNumbers]) -> set[tuple[int, int]]:
    """(row, column) of the best headline, and of the fewest rounds and bytes to the target.

    Of equal ones all; of runs that did not come to their end none.
    """
    found = set()
    for column, one in enumerate(columns(rows)):
        if one.best is None or len(rows) < 2:
            continue
        key, sign = one.best
        values = {number: number_of(row, key) for number, row in enumerate(rows) if not _ended(row)}
        known = {number: sign * value for number, value in values.items() if value is not None}
        found |= {(number, column) for number, value in known.items() if value == min(known.values())}
    return found


def caption(rows: Sequence[MethodNumbers], scenario: Scenario) -> str:
    """What was run, and what the headline is."""
    most = max(row["rounds"] for row in rows)
    seeds = f"{rows[0]['seeds']} seed{'s' if rows[0]['seeds'] > 1 else ''}"
    ema = f"EMA({scenario.smoothing:g})"
    first = lead(rows)
    measure = f"{first.name} is {ema if first.smoothed else 'that of the last evaluation'}"
    if scenario.validation is not None:
        measure = f"validation {measure}, on {100 * scenario.validation:.3g} % of each client's samples, held out"
    if not first.smoothed and scenario.smoothing and rows[0]["target"] is not None:
        measure += f"; the target is one of {ema}, which is behind it in few rounds"
    spread = ", ± over seeds" if rows[0]["seeds"] > 1 else ""
    return (
        f"{scenario.data}, {scenario.partition}, {in_words(scenario)}, "
        f"{scenario.model}, {most} round{'s' if most != 1 else ''}, {seeds}; {measure}{spread}"
    )


def about_differences(rows: Sequence[MethodNumbers]) -> str:
    """What the columns against the best say, where there are any."""
    if not any(row.get(key) for row in rows for key in _KEYS.values()):
        return ""
    return (
        "against best: mean difference over seeds that both have, and its 95 % interval (paired t); "
        "distinguishable: p below 0.05 after Holm's rule for all methods"
    )


def _whole_caption(rows: Sequence[MethodNumbers], scenario: Scenario) -> str:
    return "; ".join(filter(None, (caption(rows, scenario), about_clients(rows), about_differences(rows))))


def _narrowed(head: list[str], body: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """Verdicts on a separate line, and headings broken to the width of what is below them."""
    lines = [
        ["\n".join(filter(None, (part.strip() for part in number_and_word(text)))) for text in line] for line in body
    ]
    heads = []
    for column, text in enumerate(head):
        wide = max((len(part) for line in lines for part in line[column].split("\n")), default=1)
        heads.append("\n".join(textwrap.wrap(text.replace(" %", "\u00a0%"), wide, break_long_words=False)))
    return heads, lines


def _widths(head: list[str], body: list[list[str]]) -> list[int]:
    return [max(len(part) for line in [head, *body] for part in line[at].split("\n")) + 3 for at in range(len(head))]


_LEAST, _NAME = 2, 24
"""How many columns there always are, and how wide the names of methods are where there is little room."""


def _fitting(widths: Sequence[int], width: int) -> list[int]:
    """Columns that have room, the first ones before the others."""
    taken, found = 0, []
    for column, wide in enumerate(widths):
        if column < _LEAST or taken + wide < width:
            found.append(column)
            taken += wide
    return found


def terminal(rows: Sequence[MethodNumbers], scenario: Scenario, width: int) -> Table:
    """The table for a screen of `width` columns; where they do not fit, cells get two lines and some are left out.

    The name of a method always stays: where there is little room, a long one gets several lines.
    """
    head, body = cells(rows)
    bold = best(rows)
    table = Table(box=box.SIMPLE_HEAD, caption=_whole_caption(rows, scenario), caption_justify="left")
    widths = _widths(head, body)
    if sum(widths) >= width:
        head, body = _narrowed(head, body)
        names, *others = _widths(head, body)
        widths = [min(names, min(_NAME, width // 2 - 1) + 3), *others]
    shown = _fitting(widths, width)
    for column in shown:
        table.add_column(
            head[column],
            justify="left" if column == 0 else "right",
            no_wrap=column > 0,
            overflow="fold",
            min_width=widths[0] - 3 if column == 0 else None,
        )
    for at, line in enumerate(body):
        texts = (Text(line[column], style="bold" if (at, column) in bold else "") for column in shown)
        table.add_row(*texts)
    return table


def markdown(rows: Sequence[MethodNumbers], scenario: Scenario) -> str:
    head, body = cells(rows)
    body = [[plain(text) for text in line] for line in body]
    bold = best(rows)
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" + "---:|" * (len(head) - 1)]
    for at, line in enumerate(body):
        texts = (f"**{text}**" if (at, column) in bold else text for column, text in enumerate(line))
        lines.append("| " + " | ".join(text.replace("|", "\\|") for text in texts) + " |")
    return "\n".join(lines) + f"\n\n{plain(_whole_caption(rows, scenario))}\n"


def plain(text: str) -> str:
    """A text in one line that Markdown does not take for HTML: a name or a message may hold some."""
    return " ".join(text.splitlines()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


NEEDS_BOOKTABS = r"% needs \usepackage{booktabs}"


def latex(rows: Sequence[MethodNumbers], scenario: Scenario) -> str:
    head, body = cells(rows)
    lines = tabular("l" + "r" * (len(head) - 1), head, body, best(rows))
    return "\n".join([NEEDS_BOOKTABS, *lines, f"% {_whole_caption(rows, scenario)}"]) + "\n"


def tabular(
    columns: str, head: Sequence[str], body: Sequence[Sequence[str]], bold: Collection[tuple[int, int]]
) -> list[str]:
    """The lines of a LaTeX table, with the rules of the package booktabs; `columns` are as LaTeX has them."""
    lines = [rf"\begin{{tabular}}{{{columns}}}", r"\toprule", " & ".join(map(tex, head)) + r" \\", r"\midrule"]
    for at, line in enumerate(body):
        texts = (rf"\textbf{{{tex(text)}}}" if (at, column) in bold else tex(text) for column, text in enumerate(line))
        lines.append(" & ".join(texts) + r" \\")
    return [*lines, r"\bottomrule", r"\end{tabular}"]


_TEX = {character: f"\\{character}" for character in "%_&#${}"} | {
    "±": r"$\pm$",
    "–": "--",
    "−": "$-$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "\\": r"\textbackslash{}",
}


def tex(text: str) -> str:
    """A text as LaTeX has it."""
    return "".join(_TEX.get(character, character) for character in text)
