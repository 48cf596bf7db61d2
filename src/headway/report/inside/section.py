"""The page's section on local models: a table of their numbers, and the pictures of each analysed run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path

from headway.analysis.inside import Analysis
from headway.analysis.written import of_run
from headway.report.inside.pictures import as_svg, pictures
from headway.report.inside.sheets import of_pictures
from headway.report.page.parts import Sheet, chart
from headway.runs.study import Study

_ABOUT = {
    "surface": "The loss on the plane through three local models, which lie on it; θ, φ (what the clients were sent), "
    "the mean of the local models and the next θ are projected, and the legend says from how far away.",
    "path": "The loss on the way θ → φ → local model.",
    "similarity": "How alike two models answer the same samples, layer by layer: 1 is the same up to a rotation.",
    "divergence": "How far each parameter lies from the mean of the local models.",
    "eigenvalues": "How sharply the loss bends where it bends most.",
    "classes": "Which classes each model knows: accuracies on held-out samples.",
    "clients": "Whose samples each model knows: accuracies on the training samples of the clients.",
}


Analyses = list[tuple[str, Analysis]]
"""The last analysis of each analysed run, and whose it is."""


def analyses(study: Study) -> Analyses:
    """What is known of the local models of a study's runs."""
    return [
        (f"{name}, seed {one.scenario.seed}", analysis)
        for name, seeds in study.runs.items()
        for one in seeds
        if one.folder is not None
        for analysis in of_run(Path(one.folder))[-1:]
    ]


def section(found: Analyses) -> str:
    """The whole section; nothing where no run was analysed."""
    if not found:
        return ""
    blocks = "\n".join(_block(label, one, number, len(found) == 1) for number, (label, one) in enumerate(found))
    return (
        '<section aria-labelledby="h-inside">\n<h2 id="h-inside">Local models</h2>\n'
        f"{_table(found)}\n{blocks}\n</section>\n"
    )


def sheets(found: Analyses) -> dict[str, Sheet]:
    """The numbers of the section's pictures, by the pictures' names."""
    return {
        _name(number, name): {"head": head, "rows": rows, "keys": []}
        for number, (_, one) in enumerate(found)
        for name, (head, rows) in of_pictures(one).items()
        if name in _ABOUT
    }


def _name(number: int, picture: str) -> str:
    return f"local-models-{number + 1}-{picture}"


def _table(found: Sequence[tuple[str, Analysis]]) -> str:
    """A row for each analysed run."""
    rows = [(label, one, one.summary()) for label, one in found]
    names = list(dict.fromkeys(name for _, _, numbers in rows for name in numbers))
    heads = "".join(f'<th scope="col" data-first="ascending">{escape(text)}</th>' for text in ("run", "round", *names))
    lines = []
    for label, one, numbers in rows:
        cells = [label, str(one.round), *(f"{numbers[name]:.4g}" if name in numbers else "–" for name in names)]
        lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    return (
        f'<div class="wide"><table class="sortable"><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{''.join(lines)}</tbody></table></div>\n"
        '<p class="small">θ is the server’s model before the round, φ what the clients were sent. Losses are on the '
        "same held-out samples; CKA is 1 where two layers answer alike.</p>"
    )


def _block(label: str, one: Analysis, number: int, open_: bool) -> str:
    words = (
        f"{label}, round {one.round}: {len(one.clients)} of {one.cohort} local models, {one.samples:,} held-out samples"
    )
    notes = "".join(f'<p class="small">{escape(note[0].upper() + note[1:])}.</p>' for note in one.notes)
    drawn = "\n".join(
        chart(_name(number, name), as_svg(figure, f"{number}-{name}"), escape(_ABOUT[name]))
        for name, figure in pictures(one).items()
    )
    state = " open" if open_ else ""
    return f"<details{state}><summary>{escape(words)}</summary>{notes}\n<div class='pictures'>{drawn}</div></details>"
