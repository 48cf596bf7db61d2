"""The page's section on the split: which client has how many samples of which class."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from html import escape

import numpy as np

from headway.data.statistics import class_mixes
from headway.report.page.parts import Sheet, broad, chart
from headway.report.split_picture import class_labels
from headway.runs.result import Result
from headway.runs.splits import SplitTable
from headway.runs.study import Study
from headway.scenario import Scenario

Splits = list[tuple[str, SplitTable]]
"""The splits of a study, and whose they are: '' where all rows have the same."""

_DECIDES = ("data", "data_dir", "partition", "split_seed", "clients", "client_test", "validation")
"""Settings that decide who has which samples."""
_CLIENTS, _BUBBLES = 120, 6000
"""How many clients and bubbles are drawn at most: clients are then evenly spaced by id."""
_WIDE, _RIGHT, _TOP, _BOTTOM = 900, 14, 10, 42
_LEAST = 0.9
"""The least width of a bubble: one sample beside thousands is still to be seen."""


def splits(study: Study) -> Splits:
    """The different splits of a study's runs, as far as they are known."""
    rows: dict[tuple[object, ...], list[str]] = defaultdict(list)
    tables: dict[tuple[object, ...], SplitTable] = {}
    for name, seeds in study.runs.items():
        key = _decided(seeds[0].scenario)
        rows[key].append(name)
        table = _table_of(seeds)
        if table is not None and (key not in tables or len(table.sizes) > len(tables[key].sizes)):
            tables[key] = table  # a centralised method holds all samples in one place: the others' split is shown
    return [("" if len(rows) == 1 else ", ".join(rows[key]), table) for key, table in tables.items()]


def _decided(scenario: Scenario) -> tuple[object, ...]:
    return tuple(getattr(scenario, name) for name in _DECIDES)


def _table_of(seeds: Sequence[Result]) -> SplitTable | None:
    return next((table for one in seeds if (table := one.split) is not None), None)


def name_of(number: int) -> str:
    """The name of a split's picture and of its numbers."""
    return "split" if number == 0 else f"split-{number + 1}"


def sheet(table: SplitTable) -> Sheet:
    """The numbers of a split: a line for each client that the page knows, drawn or not."""
    names = class_labels(table.class_names, table.counts.shape[1])
    lines: list[list[object]] = [
        [int(client), *map(int, own)] for client, own in zip(table.clients, table.counts, strict=True)
    ]
    return {"head": ["client", *names], "rows": lines, "keys": []}


def section(found: Splits) -> str:
    """The whole section; '' where no split is known."""
    if not found:
        return ""
    blocks = "\n".join(_block(number, label, table) for number, (label, table) in enumerate(found))
    return f'<section aria-labelledby="h-split">\n<h2 id="h-split">Split</h2>\n{blocks}\n</section>\n\n'


def _block(number: int, label: str, table: SplitTable) -> str:
    head = f"<h3>{escape(label)}</h3>" if label else ""
    picture = chart(name_of(number), broad(_picture(table)))
    return f'{head}{picture}<p class="small">{escape(_in_words(table))}</p>'


def _in_words(table: SplitTable) -> str:
    """Sizes of all clients, and how their classes are mixed."""
    sizes = table.sizes
    least, middle, most = (f"{value:,.0f}" for value in (sizes.min(), np.median(sizes), sizes.max()))
    each = least if least == most else f"{least} to {most}"
    words = f"{len(sizes):,} clients hold {int(sizes.sum()):,} samples, {each} each"
    words += "" if least == most else f" (median {middle})"
    held = table.counts[table.counts.sum(1) > 0]
    if len(held):
        mixes = class_mixes(held)
        words += (
            f"; a client has {mixes.classes_present:.1f} of {held.shape[1]} classes, and its most frequent one makes "
            f"{100 * mixes.largest_share:.0f} % of its samples (means over clients)"
        )
    drawn = len(_drawn(table))
    some = f" {drawn} of {len(sizes):,} clients are drawn, evenly spaced." if drawn < len(sizes) else ""
    return f"{words}. The area of a bubble is the number of samples; the largest here is {_largest(table):,}.{some}"


def _drawn(table: SplitTable) -> np.ndarray:
    """The places of the clients that are drawn."""
    count, classes = table.counts.shape
    most = max(min(_CLIENTS, _BUBBLES // classes), 10)
    return np.unique(np.linspace(0, count - 1, min(count, most)).astype(int))


def _largest(table: SplitTable) -> int:
    return int(table.counts[_drawn(table)].max())


def _picture(table: SplitTable) -> str:
    """Clients from left to right, classes upwards, a bubble for each pair that has samples."""
    places = _drawn(table)
    counts, clients = table.counts[places], table.clients[places]
    names = class_labels(table.class_names, counts.shape[1])
    left = 26 + 6.4 * max(map(len, names))
    across = min((_WIDE - left - _RIGHT) / len(places), 26.0)
    up = max(min(across, 20.0), 8.0)
    high = up * counts.shape[1]
    parts = [*_marks(names, left, up, across, clients), *_bubbles(counts, left, high, across, up)]
    half = _TOP + high / 2
    parts.append(f'<text transform="rotate(-90 12 {half:.1f})" x="12" y="{half:.1f}">class</text>')
    parts.append(f'<text x="{left + across * len(places) / 2:.1f}" y="{_TOP + high + 36:.1f}">client</text>')
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDE} {_TOP + high + _BOTTOM:.0f}" role="img" '
        f'aria-label="samples of each class that clients hold">{"".join(parts)}</svg>\n'
    )


def _marks(names: Sequence[str], left: float, up: float, across: float, clients: np.ndarray) -> list[str]:
    """Names of classes at the left, ids of clients below, and faint lines to follow."""
    bottom, end = _TOP + up * len(names), left + across * len(clients)
    parts = []
    for at, name in enumerate(names):
        y = bottom - (at + 0.5) * up
        parts.append(f'<line class="rule" x1="{left:.1f}" x2="{end:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
        if at % (1 if up >= 13 else 2) == 0:
            parts.append(f'<text class="end" x="{left - 6:.1f}" y="{y + 4:.1f}">{escape(name)}</text>')
    step = next(step for step in (1, 2, 5, 10, 20, 50) if step * across >= 34)
    ids = (
        f'<text x="{left + (at + 0.5) * across:.1f}" y="{bottom + 17:.1f}">{clients[at]}</text>'
        for at in range(0, len(clients), step)
    )
    return [*parts, *ids]


def _bubbles(counts: np.ndarray, left: float, high: float, across: float, up: float) -> list[str]:
    """A path for each width: every bubble in it is a point of no length with round ends."""
    cell = min(across, up)
    common = float(np.quantile(counts[counts > 0], 0.95)) if counts.any() else 1.0
    widths: dict[float, list[str]] = defaultdict(list)
    for client, label in np.argwhere(counts):
        wide = min(cell * float(np.sqrt(counts[client, label] / common)), 1.9 * cell)
        x, y = left + (client + 0.5) * across, _TOP + high - (label + 0.5) * up
        widths[round(max(wide, _LEAST) * 4) / 4].append(f"M{x:.1f} {y:.1f}h.01")
    return [
        f'<path class="bubbles" stroke-width="{wide:g}" d="{"".join(points)}"/>'
        for wide, points in sorted(widths.items(), reverse=True)  # small ones in front
    ]
