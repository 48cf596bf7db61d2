"""board.html: measured beside printed, in one file that needs no network."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from headway.papers.board.cells import Board, BoardCell, BoardItem
from headway.report.page.parts import framed, text_of

_HERE = Path(__file__).parent

_LEGEND = (
    "A click on a heading sorts. Gap: measured − printed. Within ±T: what differs from seed to seed explains the gap "
    "(95 %), outside: it does not; one seed cannot tell. R+: not reached in R rounds. † another draw of split or "
    "cohorts, ‡ ended before the item’s last round, § another form of the method: the item’s table says which."
)


def page(board: Board) -> str:
    """The whole page as HTML."""
    items, cells = board["items"], board["cells"]
    links = {(item["item"], item["scale"]): item["links"] for item in items}
    content = Template(text_of("board.html", _HERE)).substitute(
        lead=_lead(items),
        tiles=_tiles(items, cells),
        cells=_cells(cells, links),
        legend=_LEGEND,
        items=_items(items),
        made=_made(items),
    )
    style, script = text_of("board.css", _HERE), text_of("board.js", _HERE)
    return framed("Measured beside printed", content, {"cells": cells}, [style], [script])


def _lead(items: Sequence[BoardItem]) -> str:
    papers = {item["paper"] for item in items}
    return (
        f"The tables and figures of {len(papers)} texts on accelerated federated learning: what Headway measured, "
        "beside what they print."
    )


def _tiles(items: Sequence[BoardItem], cells: Sequence[BoardCell]) -> str:
    runnable = {item["item"] for item in items if item["trainings"]}
    begun = {item["item"] for item in items if item["runs"]}
    printed = sum({item["item"]: item["published"] for item in items}.values())
    beside = [cell for cell in cells if cell["published"] is not None]
    tiles = [
        _tile(f"{len(begun)} of {len(runnable)}", "items with runs"),
        _tile(f"{len(beside)} of {printed}", "printed numbers measured"),
        *_verdict_tiles(beside),
    ]
    return f'<ul class="tiles">{"".join(tiles)}</ul>'


def _verdict_tiles(cells: Sequence[BoardCell]) -> list[str]:
    """How many cells have each verdict, where any has it."""
    words = Counter(cell["verdict"] for cell in cells)
    return [_tile(str(words[word]), word) for word in ("within", "outside", "unknown", "one seed") if words[word]]


def _tile(number: str, name: str) -> str:
    return f"<li><strong>{number}</strong>{escape(name)}</li>"


def _scaled_mark(scale: str) -> str:
    """What stands behind the name of runs that are scaled down."""
    return "" if scale == "full" else ' <span class="mark">scaled down</span>'


# ── numbers ──────────────────────────────────────────────────────────────────────────────────────────────────────────

_HEADS = (
    ("method", "words"),
    ("what", "words"),
    ("measured", ""),
    ("printed", ""),
    ("gap", ""),
    ("seeds", ""),
    ("verdict", "words"),
    ("on", "words"),
    ("of", "words"),
)


def _cells(cells: Sequence[BoardCell], links: dict[tuple[str, str], dict[str, str]]) -> str:
    head = "".join(
        f'<th scope="col" data-kind="{kind}" data-first="{"ascending" if kind else "descending"}">{name}</th>'
        for name, kind in _HEADS
    )
    body = "\n".join(_line(cell, links[cell["item"], cell["scale"]]) for cell in cells)
    return (
        f'<div class="wide"><table class="sortable" id="numbers"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _line(cell: BoardCell, links: dict[str, str]) -> str:
    meaning = "; ".join(filter(None, (cell["draw"], cell["form"], cell["ended_early"])))
    mark = f'<span class="mark" title="{escape(meaning)}">{escape(cell["marks"])}</span>' if cell["marks"] else ""
    item = _link(links.get("table.md"), cell["item"])
    texts = [
        f"<td>{escape(cell['row'])}{mark}{_scaled_mark(cell['scale'])}</td>",
        f'<td class="words">{escape(cell["heading"])}</td>',
        f"<td>{escape(_measured(cell))}</td>",
        f"<td>{escape(_printed(cell))}</td>",
        f"<td>{'–' if cell['gap'] is None else format(cell['gap'], f'+.{_digits(cell)}f').replace('-', '−')}</td>",
        f"<td>{cell['seeds']}</td>",
        f'<td class="words">{_verdict(cell)}</td>',
        f'<td class="words">{escape(cell["column"])}</td>',
        f'<td class="words">{item}</td>',
    ]
    return f'<tr data-number="{cell["number"]}">{"".join(texts)}</tr>'


def _digits(cell: BoardCell) -> int:
    if cell["family"] == "rounds":
        return 0 if cell["seeds"] == 1 else 1
    return 2 if cell["family"] == "accuracy" else 4


def _measured(cell: BoardCell) -> str:
    if cell["measured"] is None:
        return f"{cell['more_than']:.0f}+"
    digits = _digits(cell)
    spread = "" if cell["std"] is None else f" ± {cell['std']:.{digits}f}"
    return f"{cell['measured']:.{digits}f}{spread}"


def _printed(cell: BoardCell) -> str:
    if cell["published"] is None:
        return "–"
    digits = 0 if cell["family"] == "rounds" else 2
    spread = "" if cell["published_std"] is None else f" ± {cell['published_std']:.{digits}f}"
    return f"{cell['published']:.{digits}f}{'+' if cell['published_is_bound'] else ''}{spread}"


def _verdict(cell: BoardCell) -> str:
    word, reach = cell["verdict"], cell["tolerance"]
    if not word:
        return "–"
    beside = "" if reach is None else f" ±{reach:.{_digits(cell)}f}"
    beside += " (two seeds)" if cell["seeds"] == 2 else ""
    return f'<span class="verdict {word.replace(" ", "-")}">{escape(word)}{beside}</span>'


def _link(address: str | None, text: str) -> str:
    return escape(text) if address is None else f'<a href="{escape(address)}">{escape(text)}</a>'


# ── items ────────────────────────────────────────────────────────────────────────────────────────────────────────────


_BEGUN, _WAITING = "begun", "not run yet"
_WITHOUT_RUNS = "without runs: a drawing, a split, or no analysis yet"


def _items(items: Sequence[BoardItem]) -> str:
    """A table of the items that have runs, and the others folded up."""
    groups: dict[str, list[BoardItem]] = {_BEGUN: [], _WAITING: [], _WITHOUT_RUNS: []}
    for item in items:
        groups[_group(item)].append(item)
    parts = [_item_table(groups.pop(_BEGUN))]
    parts += [
        f"<details><summary>{len(some)} {name}</summary>{_item_table(some)}</details>"
        for name, some in groups.items()
        if some
    ]
    return "\n".join(parts)


def _group(item: BoardItem) -> str:
    """How far an item is."""
    if item["runs"]:
        return _BEGUN
    return _WAITING if item["trainings"] else _WITHOUT_RUNS


def _item_table(items: Sequence[BoardItem]) -> str:
    names = (("item", "words"), ("title", "words"), ("trainings", ""), ("runs", ""), ("numbers", ""), ("see", "words"))
    head = "".join(f'<th scope="col" data-kind="{kind}" data-first="descending">{name}</th>' for name, kind in names)
    body = "\n".join(f"<tr>{''.join(_item(item))}</tr>" for item in items)
    return (
        f'<div class="wide"><table class="sortable items"><thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _item(item: BoardItem) -> list[str]:
    return [
        f"<td>{escape(item['item'])}{_scaled_mark(item['scale'])}</td>",
        f'<td class="words title">{escape(item["title"])}</td>',
        f"<td>{_part(item['trainings_run'], item['trainings'])}</td>",
        f"<td>{item['runs'] or '–'}</td>",
        f"<td>{_part(item['measured'], item['published'])}</td>",
        f'<td class="words links">{_item_links(item) or _shared_runs(item)}</td>',
    ]


def _part(some: int, whole: int) -> str:
    """`3 of 39`, where there is anything to count."""
    return f"{some} of {whole}" if whole else "–"


def _item_links(item: BoardItem) -> str:
    """Links to the table, the figures and the note of an item's claim, as far as it has them."""
    links = item["links"]
    figures = [(_picture(name), address) for name, address in links.items() if name.startswith("figure")]
    shown = [("table", links.get("table.md")), *figures, ("runs", links.get("reproduce.json"))]
    return "".join(_link(address, name) for name, address in shown if address)


def _shared_runs(item: BoardItem) -> str:
    """The items whose runs this item reads, where it has none itself."""
    shared = f"runs of {', '.join(item['shares'])}" if item["shares"] else "–"
    return f"<span class=soft>{escape(shared)}</span>"


def _picture(name: str) -> str:
    """The kind of a figure by its file name: `figure-heat.png` is a heat map, `figure.png` has curves."""
    kind = name.removeprefix("figure").removesuffix(".png").strip("-")
    return kind or "curves"


def _made(items: Sequence[BoardItem]) -> str:
    """Which command made which runs, folded up."""
    blocks = []
    for item in items:
        for made in item["made"]:
            where = ", ".join(
                filter(None, (f"commit {made['commit'][:10]}" if made["commit"] else "", made["hardware"]))
            )
            runs = "".join(f"<li>{escape(name)}</li>" for name in made["runs"])
            known = made["command"].startswith("headway ")
            command = f'<div class="command"><pre>{escape(made["command"])}</pre></div>' if known else ""
            lost = "" if known else "; the command was not recorded"
            blocks.append(
                f"<details><summary>{escape(item['item'])}: {len(made['runs'])} run{'s' * (len(made['runs']) > 1)}, "
                f"{escape(where)}{lost}</summary>{command}<ul>{runs}</ul></details>"
            )
    return "\n".join(blocks)
