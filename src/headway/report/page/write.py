"""report.html: everything about a comparison in one file that needs no network and no other file."""

from __future__ import annotations

from html import escape
from importlib import metadata
from pathlib import Path
from string import Template

from headway.report.inside.section import section
from headway.report.page import clients, sections
from headway.report.page.curves import POINTS, curves, stride
from headway.report.page.parts import embedded, text_of, written
from headway.report.page.sites import sites
from headway.report.tables import caption
from headway.runs.study import Study


def _title(study: Study) -> str:
    names = list(study.runs)
    data = study.runs[names[0]][0].scenario.data
    return f"{names[0]} on {data}" if len(names) == 1 else f"{len(names)} methods on {data}"


def _about_curves(study: Study) -> str:
    longest = max(len(one.records) for seeds in study.runs.values() for one in seeds)
    words = "A click on a method hides or shows it; the pointer or the arrow keys read the values."
    if any(len(seeds) > 1 for seeds in study.runs.values()):
        words += " Lines are means over seeds, where every seed was evaluated."
    if stride(longest) > 1:
        words += f" At most {POINTS:,} points of a curve are drawn."
    return words


def page(study: Study) -> str:
    """The whole page as text."""
    rows = study.summary()
    scenario = next(iter(study.runs.values()))[0].scenario
    return Template(text_of("page.html")).substitute(
        title=escape(_title(study)),
        caption=escape(caption(rows, scenario)),
        notes=sections.notes(study),
        comparison=sections.comparison(rows),
        legend_of_table=sections.legend_of_table(rows),
        about_curves=_about_curves(study),
        clients=clients.distribution(rows) + sites(study),
        inside=section(study),
        costs=sections.costs(study, rows),
        legend_of_costs=sections.LEGEND_OF_COSTS,
        scenario=sections.scenario(study),
        environment=sections.environment(study),
        commands=sections.commands(study),
        version=escape(metadata.version("headway")),
        data=embedded(curves(study, sections.states(study))),
        style=text_of("page.css"),
        script=f"{text_of('common.js')}\n{text_of('page.js')}",
    )


def write_page(study: Study, path: Path) -> Path:
    return written(page(study), path)
