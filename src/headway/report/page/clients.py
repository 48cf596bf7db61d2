"""The page's section on clients: the distribution over clients where it was measured, or that there is a proxy."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from headway.measure.headline import common_headline
from headway.measure.numbers import MethodNumbers, number_of
from headway.measure.over_clients import QUANTILES
from headway.report.clients import about_clients, are_measured, how_many, with_deviation
from headway.report.page.axes import Frame
from headway.report.page.parts import Sheet, chart, look, name_cell

CHART = "clients"
"""The name of the picture and of its numbers."""
_SHOWN = (("least", 0), ("25 %", 5), ("median", 10), ("75 %", 15), ("most", 20))
"""Columns of the table, and which of the quantiles they are."""


def distribution(rows: Sequence[MethodNumbers]) -> str:
    """Sorted curves and a table of the methods whose clients were measured, and a line on the others."""
    words = about_clients(rows)
    if not words:
        return '<p class="small">Nothing was measured over clients.</p>'
    told = f'<p class="small">{escape(words[0].upper() + words[1:])}.</p>'
    return (_picture(rows) + _numbers(rows) if are_measured(rows) else "") + told


def _numbers(rows: Sequence[MethodNumbers]) -> str:
    head = ["method", "clients", "mean", "deviation", "worst tenth", *(name for name, _ in _SHOWN)]
    heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    first = common_headline(rows)
    lines = "".join(
        _line(row, number, first.scale, first.digits)
        for number, row in enumerate(rows)
        if row.get("client_mean") is not None
    )
    return (
        f'<div class="wide"><table class="sortable"><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{lines}</tbody></table></div>"
    )


def _line(row: MethodNumbers, number: int, scale: float, digits: int) -> str:
    keys = ("client_mean", "client_std", "client_worst")
    cells = [with_deviation(number_of(row, key), number_of(row, f"{key}_std"), scale, digits) for key in keys]
    quantiles = row.get("client_quantiles")
    cells += ["–" if quantiles is None else f"{quantiles[at] * scale:.{digits}f}" for _, at in _SHOWN]
    judged = row.get("clients_judged")
    first = name_cell(row["name"], number)
    count = "–" if judged is None else how_many(judged)
    return f"<tr>{first}{''.join(f'<td>{escape(cell)}</td>' for cell in [count, *cells])}</tr>\n"


# ── the picture ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _curves(rows: Sequence[MethodNumbers]) -> dict[int, np.ndarray]:
    """The quantiles over clients of each method that has them, by its number, in the headline's unit."""
    scale = common_headline(rows).scale
    return {
        number: np.array(quantiles) * scale
        for number, row in enumerate(rows)
        if (quantiles := row.get("client_quantiles")) is not None
    }


def sheet(rows: Sequence[MethodNumbers]) -> Sheet | None:
    """The numbers of the picture: a line for each share of the clients, a column for each method."""
    found = _curves(rows)
    if not found:
        return None
    keys = [(number, rows[number]["name"]) for number in found]
    shares = [100 * at / (QUANTILES - 1) for at in range(QUANTILES)]
    lines: list[list[object]] = [
        [share, *(round(float(curve[at]), 6) for curve in found.values())] for at, share in enumerate(shares)
    ]
    return {"head": ["clients in order, %", *(name for _, name in keys)], "rows": lines, "keys": keys}


def _picture(rows: Sequence[MethodNumbers]) -> str:
    """A curve for each method: the clients from the least to the largest number, and that number."""
    first, found = common_headline(rows), _curves(rows)
    if not found:
        return ""
    every = np.concatenate(list(found.values()))
    frame = Frame.around(every, first.percent)
    label = f"{first.name}{', %' if first.percent else ''}"
    parts = frame.axes(label, "clients in order, %", [(share, str(share)) for share in range(0, 101, 20)])
    for number, curve in found.items():
        points = ((100 * at / (QUANTILES - 1), one) for at, one in enumerate(curve))
        path = "L".join(f"{frame.x(share):.1f} {frame.y(one):.1f}" for share, one in points)
        parts.append(f'<path class="curve {look(number)}" d="M{path}"/>')
    return chart(CHART, frame.svg(f"{first.name} of the clients in order, a curve for each method", parts))
