"""report.html: everything about a comparison in one file that needs no network and no other file."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from headway.measure.numbers import MethodNumbers
from headway.report.inside import section as inside
from headway.report.page import classes, clients, sections, split
from headway.report.page.classes import ClassAccuracies
from headway.report.page.curves import POINTS, curves, stride
from headway.report.page.parts import Sheet, framed, text_of, written
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
        words += " Thick lines are means over seeds, where every seed was evaluated; thin ones are single seeds."
    words += " Time is that of the machine that made the run, so it compares methods that ran on the same one."
    if stride(longest) > 1:
        words += f" At most {POINTS:,} points of a curve are drawn."
    return words


def _sheets(
    rows: Sequence[MethodNumbers], known: ClassAccuracies | None, found: split.Splits, looked_into: inside.Analyses
) -> dict[str, Sheet]:
    """The numbers of the pictures that the page has, by the pictures' names."""
    sheets = inside.sheets(looked_into)
    sheets |= {split.name_of(number): split.sheet(table) for number, (_, table) in enumerate(found)}
    if known is not None:
        sheets[classes.CHART] = classes.sheet(known)
    if (of_clients := clients.sheet(rows)) is not None:
        sheets[clients.CHART] = of_clients
    return sheets


def page(study: Study) -> str:
    """The whole page as text."""
    rows = study.summary()
    scenario = next(iter(study.runs.values()))[0].scenario
    known, found, looked_into = classes.accuracies(study), split.splits(study), inside.analyses(study)
    content = Template(text_of("page.html")).substitute(
        title=escape(_title(study)),
        caption=escape(caption(rows, scenario)),
        notes=sections.notes(study),
        comparison=sections.comparison(rows),
        legend_of_table=sections.legend_of_table(rows),
        differing=sections.differing(study),
        tuning=sections.tuning(study),
        about_curves=_about_curves(study),
        clients=clients.distribution(rows) + sites(study),
        classes=classes.section(study, known),
        split=split.section(found),
        inside=inside.section(looked_into),
        costs=sections.costs(study, rows),
        legend_of_costs=sections.LEGEND_OF_COSTS,
        scenario=sections.scenario(study),
        environment=sections.environment(study),
        commands=sections.commands(study),
    )
    data = {**curves(study, sections.states(study)), "sheets": _sheets(rows, known, found, looked_into)}
    return framed(_title(study), content, data, scripts=[text_of("page.js")])


def write_page(study: Study, path: Path) -> Path:
    return written(page(study), path)
