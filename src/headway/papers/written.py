"""A reproduced item in a folder: its table in Markdown, LaTeX and CSV, and its pictures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headway.papers import local_models, table
from headway.papers.figures.draw import write_figures
from headway.papers.plan import Plan
from headway.papers.reproduce import Outcomes
from headway.runs.files import ensure_folder


@dataclass(frozen=True)
class Form:
    """A form of the table: its file, and how it is written."""

    file: str
    write: Callable[[Plan, Outcomes], str]


FORMS = {
    "markdown": Form("table.md", table.markdown),
    "latex": Form("table.tex", table.latex),
    "csv": Form("table.csv", table.comma_separated),
}


def write(plan: Plan, outcomes: Outcomes, folder: Path) -> list[Path]:
    """Write every form of the table, and the pictures; these pictures' files."""
    for form in FORMS.values():
        (ensure_folder(folder) / form.file).write_text(form.write(plan, outcomes), encoding="utf-8")
    if local_models.wants(plan):
        (folder / "local-models.md").write_text(local_models.markdown(plan, outcomes), encoding="utf-8")
    return write_figures(plan, outcomes, folder)
