"""The page of a grid: small multiples, a heat map, and the table of each scenario."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from pathlib import Path
from string import Template

import numpy as np

from headway.data.participation import in_words
from headway.measure.headline import Headline
from headway.report.grid.cells import Drawn, curves, heat, lead, limits, methods, places, studies
from headway.report.page.parts import Sheet, chart, framed, legend, look, name_cell, text_of
from headway.report.page.parts import written as save_page
from headway.report.page.sections import comparison, legend_of_table, notes
from headway.report.tables import caption
from headway.runs.grid import Cell, Grid
from headway.runs.study import Study

_HERE = Path(__file__).parent
_WIDTH, _HEIGHT, _LEFT, _ABOVE, _BELOW = 460, 250, 44, 12, 26


def page(grid: Grid, links: Mapping[int, str]) -> str:
    """The whole page as text; `links` go to the pages of scenarios, by their number."""
    first, names = lead(grid), methods(grid)
    drawn = [curves(cell, first) for cell in grid.cells]
    scale = limits(drawn)
    title = f"{len(names)} methods in {len(grid.cells)} scenarios"
    panels = "\n".join(
        _panel(number, cell, names, one, scale, first.words)
        for number, (cell, one) in enumerate(zip(grid.cells, drawn, strict=True))
    )
    content = Template(text_of("grid.html", _HERE)).substitute(
        title=escape(title),
        caption=escape(_caption(grid)),
        failed="".join(f'<p class="warning">{escape(line)}</p>' for line in grid.failed),
        legend=legend(dict(enumerate(names))),
        across=places(grid)[1],
        panels=panels,
        measure=escape(first.words),
        heat=_heat(grid),
        scenarios="\n".join(_scenario(number, cell, links) for number, cell in enumerate(grid.cells)),
        legend_of_table=escape(legend_of_table(studies(grid)[0].summary())),
    )
    sheets = {_name(number): _sheet(names, one, first) for number, one in enumerate(drawn) if one}
    return framed(title, content, {"sheets": sheets}, styles=[text_of("grid.css", _HERE)])


def write_page(grid: Grid, path: Path, links: Mapping[int, str]) -> Path:
    return save_page(page(grid, links), path)


def _caption(grid: Grid) -> str:
    study: Study = studies(grid)[0]
    one = next(iter(study.runs.values()))[0].scenario
    fixed = {"data": one.data, "partition": one.partition, "model": one.model, "rounds": f"{one.rounds} rounds"}
    words = [text for name, text in fixed.items() if name not in grid.axes]
    if not grid.axes.keys() & {"participation", "cohort_size", "clients", "sampling"}:
        words.insert(1, in_words(one))
    axes = "; ".join(f"{name}: {', '.join(map(str, values))}" for name, values in grid.axes.items())
    return f"{', '.join(words)}. Varied: {axes}."


def _name(number: int) -> str:
    """The name of a scenario's panel, and of its numbers."""
    return f"curves-{number + 1:02d}"


def _sheet(names: list[str], drawn: Mapping[str, Drawn], first: Headline) -> Sheet:
    """The numbers of a panel: a line for each method and round."""
    rows: list[list[object]] = []
    for name, one in drawn.items():
        stds = [None] * len(one.mean) if one.std is None else [float(f"{value:.6g}") for value in one.std]
        for round, mean, std in zip(one.rounds, one.mean, stds, strict=True):
            rows.append([name, int(round), float(f"{mean:.6g}"), std])
    keys = [(names.index(name), name) for name in drawn]
    return {"head": ["method", "round", first.words, "deviation"], "rows": rows, "keys": keys}


def _panel(
    place: int,
    cell: Cell,
    names: list[str],
    drawn: Mapping[str, Drawn],
    scale: tuple[float, float, float],
    measure: str,
) -> str:
    """The curves of one scenario as SVG, whose colours are those of the page's light or dark style."""
    last, low, high = scale
    right, bottom = _WIDTH - 8, _HEIGHT - _BELOW

    def x(round: float) -> float:
        return _LEFT + (right - _LEFT) * round / last

    def y(value: float) -> float:
        return bottom - (bottom - _ABOVE) * (min(max(value, low), high) - low) / (high - low)

    def points(rounds: np.ndarray, values: np.ndarray) -> str:
        return " ".join(f"{x(one):.1f},{y(other):.1f}" for one, other in zip(rounds, values, strict=True))

    parts = []
    for value in _ticks(low, high):
        at = y(value)
        parts.append(f'<line class="rule" x1="{_LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        parts.append(f'<text class="end" x="{_LEFT - 6}" y="{at + 4:.1f}">{value:g}</text>')
    for value in _ticks(0, last):
        kind = ' class="end"' if x(value) > right - 12 else ""
        parts.append(f'<text{kind} x="{min(x(value), right + 6):.1f}" y="{_HEIGHT - 8}">{value:g}</text>')
    for name, one in drawn.items():
        number = names.index(name)
        if one.std is not None:
            edges = f"{points(one.rounds, one.mean + one.std)} {points(one.rounds[::-1], (one.mean - one.std)[::-1])}"
            parts.append(f'<polygon class="spread {look(number)}" points="{edges}"/>')
        line = points(one.rounds, one.mean)
        parts.append(f'<polyline class="curve {look(number)}" points="{line}"><title>{escape(name)}</title></polyline>')
    if not drawn:
        parts.append(f'<text x="{_WIDTH / 2:.0f}" y="{_HEIGHT / 2:.0f}">no run</text>')
    ends = "; ".join(f"{name} ends at {one.mean[-1]:.2f}" for name, one in drawn.items())
    svg = (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(cell.label)}: {escape(ends)}">{"".join(parts)}</svg>'
    )
    caption = "<br>".join(escape(f"{name}={value}") for name, value in cell.settings.items())
    return chart(_name(place), svg, caption, f"{measure} over communication rounds\n{cell.label}")


def _ticks(low: float, high: float) -> list[float]:
    """A few round numbers between two."""
    from matplotlib.ticker import MaxNLocator

    return [float(value) for value in MaxNLocator(5).tick_values(low, high) if low <= value <= high]


def _heat(grid: Grid) -> str:
    head = "".join(
        f'<th scope="col">{"<br>".join(escape(f"{name}={value}") for name, value in cell.settings.items())}</th>'
        for cell in grid.cells
    )
    body = []
    for number, (name, cells) in enumerate(zip(methods(grid), heat(grid), strict=True)):
        line = "".join(_shade(text, share) for text, share in cells)
        body.append(f"<tr>{name_cell(name, number)}{line}</tr>")
    return (
        f'<div class="wide"><table class="heat"><thead><tr><th scope="col">method</th>{head}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _shade(text: str, share: float | None) -> str:
    if share is None:
        return f"<td>{escape(text)}</td>"
    inner = f"<strong>{escape(text)}</strong>" if share == 1 else escape(text)
    return f'<td style="--share: {share:.3f}">{inner}</td>'


def _scenario(number: int, cell: Cell, links: Mapping[int, str]) -> str:
    if cell.study is None:
        return f'<h3>{escape(cell.label)}</h3><p class="warning">{escape(cell.failure)}</p>'
    rows, scenario = cell.study.summary(), next(iter(cell.study.runs.values()))[0].scenario
    link = f' <a href="{escape(links[number])}">its page</a>' if number in links else ""
    return (
        f"<h3>{escape(cell.label)}{link}</h3>{notes(cell.study)}{comparison(rows)}"
        f'<p class="small">{escape(caption(rows, scenario))}.</p>'
    )
