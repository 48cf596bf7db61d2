"""Axes of a picture that is part of a page: it needs no script, and takes the page's colours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 12, 44
"""Room around what is drawn."""


@dataclass(frozen=True)
class Frame:
    """Where values lie in a picture: 0 to `last` from left to right, `low` to `high` upwards."""

    low: float
    high: float
    last: float = 100.0
    wide: int = 760
    tall: int = 300

    @staticmethod
    def around(values: np.ndarray, percent: bool, last: float = 100.0) -> Frame:
        """The frame of all these values and a little more; percentages stay between 0 and 100."""
        low, high = float(values.min()), float(values.max())
        room = 0.05 * (high - low) or 0.05 * abs(high) or 0.5
        low, high = (max(low - room, 0), min(high + room, 100)) if percent else (low - room, high + room)
        return Frame(low, high, last)

    def x(self, place: float) -> float:
        return _LEFT + place / self.last * (self.wide - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        return _TOP + (self.high - value) / (self.high - self.low) * (self.tall - _TOP - _BOTTOM)

    def axes(self, upwards: str, across: str, marks: Iterable[tuple[float, str]]) -> list[str]:
        """Grid lines at round numbers, the base line with its marks, and what the axes are."""
        bottom, end = self.tall - _BOTTOM, self.wide - _RIGHT
        parts = [f'<line class="base" x1="{_LEFT}" x2="{end}" y1="{bottom}" y2="{bottom}"/>']
        parts += [f'<text x="{self.x(place):.1f}" y="{bottom + 17}">{escape(text)}</text>' for place, text in marks]
        for value in round_numbers(self.low, self.high):
            y = self.y(value)
            parts.append(f'<line class="rule" x1="{_LEFT}" x2="{end}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="end" x="{_LEFT - 8}" y="{y + 4:.1f}">{value:.6g}</text>')
        half = (_TOP + bottom) / 2
        parts.append(f'<text transform="rotate(-90 13 {half})" x="13" y="{half}">{escape(upwards)}</text>')
        parts.append(f'<text x="{(_LEFT + end) / 2}" y="{self.tall - 6}">{escape(across)}</text>')
        return parts

    def svg(self, about: str, parts: Sequence[str]) -> str:
        """The picture as an element; `about` says what it shows."""
        return (
            f'<svg class="chart" viewBox="0 0 {self.wide} {self.tall}" role="img" '
            f'aria-label="{escape(about)}">{"".join(parts)}</svg>\n'
        )


def round_numbers(low: float, high: float) -> list[float]:
    """About five multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(part * power for part in (1, 2, 5, 10) if part * power >= 0.999 * rough)
    first = math.ceil(low / step - 1e-9)
    return [number * step for number in range(first, math.floor(high / step + 1e-9) + 1)]
