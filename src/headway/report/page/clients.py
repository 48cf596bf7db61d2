"""The page's section on clients: the distribution over clients where it was measured, or that there is a proxy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from headway.measure.headline import common_headline
from headway.measure.numbers import MethodNumbers, number_of
from headway.measure.over_clients import QUANTILES
from headway.report.clients import about_clients, are_measured, how_many, with_deviation
from headway.report.page.parts import look, swatch

_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _BOTTOM = 760, 300, 58, 16, 12, 44
"""Sizes of the picture, and of the room around its curves."""
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
    first = f"<td>{swatch(number)}{escape(row['name'])}</td>"
    count = "–" if judged is None else how_many(judged)
    return f"<tr>{first}{''.join(f'<td>{escape(cell)}</td>' for cell in [count, *cells])}</tr>\n"


# ── the picture ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _picture(rows: Sequence[MethodNumbers]) -> str:
    """A curve for each method: the clients from the least to the largest number, and that number."""
    first = common_headline(rows)
    curves = {
        number: np.array(quantiles) * first.scale
        for number, row in enumerate(rows)
        if (quantiles := row.get("client_quantiles")) is not None
    }
    if not curves:
        return ""
    low, high = (float(end([each for curve in curves.values() for each in curve])) for end in (min, max))
    room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
    low, high = (max(low - room, 0), min(high + room, 100)) if first.percent else (low - room, high + room)
    parts = [*_across(), *_down(low, high)]
    for number, curve in curves.items():
        path = "L".join(
            f"{_x(100 * at / (QUANTILES - 1)):.1f} {_y(one, low, high):.1f}" for at, one in enumerate(curve)
        )
        parts.append(f'<path class="curve {look(number)}" d="M{path}"/>')
    label = f"{first.name}{', %' if first.percent else ''}"
    half = (_TOP + _HIGH - _BOTTOM) / 2
    parts.append(f'<text transform="rotate(-90 13 {half})" x="13" y="{half}">{escape(label)}</text>')
    parts.append(f'<text x="{(_LEFT + _WIDE - _RIGHT) / 2}" y="{_HIGH - 6}">clients in order, %</text>')
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDE} {_HIGH}" role="img" '
        f'aria-label="{escape(first.name)} of the clients in order, a curve for each method">{"".join(parts)}</svg>\n'
    )


def _x(percent: float) -> float:
    return _LEFT + percent / 100 * (_WIDE - _LEFT - _RIGHT)


def _y(value: float, low: float, high: float) -> float:
    return _TOP + (high - value) / (high - low) * (_HIGH - _TOP - _BOTTOM)


def _across() -> list[str]:
    """The base line and what stands below it."""
    bottom = _HIGH - _BOTTOM
    marks = (f'<text x="{_x(share):.1f}" y="{bottom + 17}">{share}</text>' for share in range(0, 101, 20))
    return [f'<line class="base" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{bottom}" y2="{bottom}"/>', *marks]


def _down(low: float, high: float) -> list[str]:
    """Grid lines at round numbers, with the numbers at the left."""
    parts = []
    for value in _round_numbers(low, high):
        y = _y(value, low, high)
        parts.append(f'<line class="rule" x1="{_LEFT}" x2="{_WIDE - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{value:.6g}</text>')
    return parts


def _round_numbers(low: float, high: float) -> list[float]:
    """About five multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(part * power for part in (1, 2, 5, 10) if part * power >= 0.999 * rough)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]
