"""A folder with everything that is reported of a study: a page, a picture, and tables in Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headway.errors import UserError, shown
from headway.report import figures, tables
from headway.report.clients import as_csv
from headway.report.page.write import write_page
from headway.runs.files import as_path, ensure_folder
from headway.runs.result import Result
from headway.runs.study import Study, study_of


@dataclass(frozen=True)
class Report:
    """The files of a report."""

    page: Path
    """report.html: everything about the comparison in one file."""
    picture: Path
    """compare.png: the curves over rounds and over megabytes."""
    markdown: Path
    """compare.md: the table."""
    latex: Path
    """compare.tex: the table."""
    clients: Path
    """clients.csv: a line of numbers over clients for each run, and whether they were measured or are a proxy."""


def write(of: Study | Result | Sequence[Result], folder: str | Path, by: Sequence[str] = ()) -> Report:
    """Write a page, a picture, tables and numbers over clients of a comparison, or of runs made one by one.

    >>> write(headway.compare(["fedavg", "fedacg"], rounds=30), "report").page
    >>> write([headway.simulate("fedavg"), headway.load_run("runs/mine")], "report").picture

    Runs that were made one by one may differ in the settings that `by` names, such as ("rate",): a row for each value.
    No round is trained and no data is read for it: all numbers are those that the runs recorded.
    """
    study = _as_study(of, by)
    place = ensure_folder(as_path("folder", folder))
    rows, scenario = study.summary(), next(iter(study.runs.values()))[0].scenario
    note = " ".join(study.note.splitlines())
    in_words, in_comment = (f"\n{tables.plain(note)}\n", f"% {note}\n") if note else ("", "")
    report = Report(
        page=place / "report.html",
        picture=place / "compare.png",
        markdown=place / "compare.md",
        latex=place / "compare.tex",
        clients=place / "clients.csv",
    )
    figures.compare_picture(study, report.picture)
    write_page(study, report.page)
    report.markdown.write_text(tables.markdown(rows, scenario) + in_words, encoding="utf-8")
    report.latex.write_text(tables.latex(rows, scenario) + in_comment, encoding="utf-8")
    report.clients.write_text(as_csv(study), encoding="utf-8")
    return report


def _as_study(of: Study | Result | Sequence[Result], by: Sequence[str]) -> Study:
    if isinstance(of, Study):
        if by:
            raise UserError(f"by is {shown(by)}; it is for runs that were made one by one, not for a comparison")
        return of
    return study_of([of] if isinstance(of, Result) else of, by=by)
