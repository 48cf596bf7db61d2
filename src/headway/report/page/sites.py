"""The page's table of sites, for runs whose clients were sites at other places: who came, who did not, and why."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from pathlib import Path

from headway.records import RoundRecord
from headway.runs import roster
from headway.runs.result import Result
from headway.runs.study import Study

_HEAD = ("site", "samples", "rounds that counted", "last one", "rounds missed", "why, the last time", "last seen")


def sites(study: Study) -> str:
    """A table for each run over sites; nothing where there is none."""
    runs = (one for seeds in study.runs.values() for one in seeds)
    tables = (
        _table(one, one.folder) for one in runs if one.folder is not None and (one.folder / roster.NAME).is_file()
    )
    return "\n".join(tables)


def _table(one: Result, folder: Path) -> str:
    found, seen = roster.read(folder), roster.last_seen(folder)
    heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in _HEAD)
    lines = []
    for number, member in enumerate(found.members):
        when = seen.get(member.name)
        time = "–" if when is None else datetime.fromtimestamp(when, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        cells = [member.name, f"{member.samples:,}", *_rounds(one.records, number), time]
        lines.append(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in cells)}</tr>")
    void = sum(int(record.get("void", 0)) for record in one.records)
    again = f"; {void} void rounds were asked again" if void else ""
    return (
        f'<p class="small">Sites of {escape(one.method)}, seed {one.scenario.seed}{again}.</p>\n'
        f'<div class="wide"><table class="sortable"><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )


def _rounds(records: Sequence[RoundRecord], client: int) -> list[str]:
    """In how many rounds a site counted, which was the last, in how many it was missed, and why the last time."""
    counted = [record["round"] for record in records if client in record["clients"]]
    missed = [one["cause"] for record in records for one in record.get("absent", []) if one["client"] == client]
    return [str(len(counted)), str(counted[-1]) if counted else "–", str(len(missed)), missed[-1] if missed else "–"]
