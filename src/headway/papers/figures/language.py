"""The figure of language models: bits a character over the tokens that were trained on, and over the bytes sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headway.papers.figures.cells import FigureData
from headway.papers.figures.layout import legend, seeds_note
from headway.papers.measurements import Records
from headway.papers.plan import Cell
from headway.papers.preset import Column
from headway.records import RoundRecord
from headway.report.figures import Place, curve, line, mean_line, tidy

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

BITS = "bits a character"
_MODEL, _RECEIVED = "bits_per_character", "received_bits_per_character"
"""Of θ, the server's model, and of φ, what clients receive."""


def tokens(figure: Figure, data: FigureData) -> list[str]:
    """For each column of the item two panels: over characters trained on, and below it over traffic."""
    columns = data.plan.columns
    figure.set_size_inches(max(4.2 * len(columns) + 1.8, 7), 7.4)
    pairs = figure.subplots(2, len(columns), squeeze=False, sharey="col")
    for (above, below), column in zip(pairs.T, columns, strict=True):
        above.set_title(column.label or column.name, fontsize=10)
        _draw_column(data, column, above, _characters(data, column), "characters trained on, millions")
        _draw_column(data, column, below, _megabytes, "traffic, MB")
    legend(figure)
    return ["whole lines: θ, the server's model", "dotted: φ, what clients receive next", *seeds_note(data)]


def _draw_column(data: FigureData, column: Column, axes: Axes, place: Place, label: str) -> None:
    for number, row in enumerate(data.plan.rows):
        seeds, style = data.seed_records(data.cell(row, column)), {"linewidth": 1.3, "color": line(number)["color"]}
        if _have(seeds, _MODEL):
            places, values = curve(seeds, _MODEL, place)
            mark = "o" if len(places) == 1 else ""
            mean_line(axes, places, values, label=data.row_label(row), marker=mark, **style)
            if _have(seeds, _RECEIVED) and _differ(seeds):
                mean_line(axes, *curve(seeds, _RECEIVED, place), linestyle=":", marker=mark and "s", **style)
    tidy(axes)
    axes.set_xlabel(label)
    axes.set_ylabel(BITS)


def _have(seeds: Sequence[Records], key: str) -> bool:
    return bool(seeds) and all(any(key in record for record in records) for records in seeds)


def _differ(seeds: Sequence[Records]) -> bool:
    """Whether φ is another model than θ."""
    one, other = (curve(seeds, key, lambda record: 0.0)[1] for key in (_MODEL, _RECEIVED))
    return one.shape != other.shape or bool((one != other).any())


def _characters(data: FigureData, column: Column) -> Place:
    """Places a round at the characters that all workers have trained on, in millions: each step takes whole blocks."""
    return characters(data.cell(data.plan.rows[0], column))


def characters(cell: Cell) -> Place:
    """The same for a cell; each worker does K steps a round, and the data's name says how long a block is."""
    scenario = cell.runs[0].scenario
    length = int(scenario.data.partition(":")[2] or 80)

    def place(record: RoundRecord) -> float:
        steps = record["steps"] * record["round"]
        return steps * scenario.batch_size * length / 1e6

    return place


def _megabytes(record: RoundRecord) -> float:
    return (record["bytes_down_total"] + record["bytes_up_total"]) / 1e6
