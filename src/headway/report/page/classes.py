"""The page's section on classes: how well each method knows each class, where rounds recorded it."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from headway.report.page.axes import Frame
from headway.report.page.parts import Sheet, broad, chart, look, name_cell
from headway.report.split_picture import class_labels
from headway.runs.result import Result
from headway.runs.study import Study

CHART = "classes"
"""The name of the picture and of its numbers."""
_WIDE, _LETTER = 900, 7.4
"""The width of the picture, and that of a letter below it with what stands around a name."""
_AT_MOST_BESIDE = 24
"""Up to this many classes each has a column of the table; of more the extremes are told."""


@dataclass(frozen=True)
class ClassAccuracies:
    """The accuracies on each class after the last evaluation, in percent; means over seeds."""

    labels: list[int]
    """The classes that have test samples."""
    names: list[str]
    """What they are called."""
    methods: dict[int, str]
    """The methods whose rounds recorded them, by their number on the page."""
    values: np.ndarray
    """Shape (methods, classes)."""


def accuracies(study: Study) -> ClassAccuracies | None:
    """What the last evaluation of each run says of the classes; None where no method has it."""
    found = {name: _mean(seeds) for name, seeds in study.runs.items()}
    known = {name: by_class for name, by_class in found.items() if by_class}
    if not known:
        return None
    labels = sorted(set.intersection(*(set(by_class) for by_class in known.values())))
    if not labels:
        return None
    table = next((one.split for seeds in study.runs.values() for one in seeds[:1] if one.split is not None), None)
    names = class_labels(() if table is None else table.class_names, max(labels) + 1)
    numbers = {number: name for number, name in enumerate(study.runs) if name in known}
    values = np.array([[100 * known[name][label] for label in labels] for name in numbers.values()])
    return ClassAccuracies(labels, [names[label] for label in labels], numbers, values)


def _mean(seeds: Sequence[Result]) -> dict[int, float]:
    """The mean over seeds of the classes that all of them have; empty where a seed recorded none."""
    last = [
        next((one["accuracy_by_class"] for one in reversed(seed.records) if "accuracy_by_class" in one), {})
        for seed in seeds
    ]
    shared = set.intersection(*(set(one) for one in last))
    return {int(label): float(np.mean([one[label] for one in last])) for label in shared}


def sheet(found: ClassAccuracies) -> Sheet:
    """The numbers of the picture: a line for each class, a column for each method."""
    lines = [
        [label, name, *(round(float(value), 6) for value in found.values[:, at])]
        for at, (label, name) in enumerate(zip(found.labels, found.names, strict=True))
    ]
    return {
        "head": ["class", "name", *(f"{name}, accuracy %" for name in found.methods.values())],
        "rows": lines,
        "keys": list(found.methods.items()),
    }


def section(study: Study, found: ClassAccuracies | None) -> str:
    """The whole section; '' where no run recorded accuracies of classes."""
    if found is None:
        return ""
    scenario = next(iter(study.runs.values()))[0].scenario
    samples = "test" if scenario.validation is None else "validation"
    several = ", means over seeds" if any(len(seeds) > 1 for seeds in study.runs.values()) else ""
    return (
        '<section aria-labelledby="h-classes">\n<h2 id="h-classes">Classes</h2>\n'
        f"{_picture(found)}{_table(found)}\n"
        f'<p class="small">Accuracy in % on the {samples} samples of each class after the last evaluation{several}; '
        "the deviation is over classes.</p>\n</section>\n\n"
    )


def _picture(found: ClassAccuracies) -> str:
    """A dot for each method and class, side by side within the class."""
    count, methods = len(found.labels), len(found.methods)
    frame = dataclasses.replace(Frame.around(found.values, percent=True, last=count), wide=_WIDE)
    room = max(map(len, found.names)) * _LETTER * count / _WIDE
    step = next(step for step in (1, 2, 5, 10, 20, 50, 100) if step >= room)
    marks = [(at + 0.5, found.names[at]) for at in range(0, count, step)]
    parts = frame.axes("accuracy, %", "class", marks)
    apart = 0.7 / methods  # of the room that a class has
    for row, number in enumerate(found.methods):
        first = 0.5 + (row - (methods - 1) / 2) * apart
        dots = "".join(
            f'<circle cx="{frame.x(at + first):.1f}" cy="{frame.y(value):.1f}" r="3"/>'
            for at, value in enumerate(found.values[row])
        )
        parts.append(f'<g class="dots {look(number)}">{dots}</g>')
    return chart(CHART, broad(frame.svg("accuracy of each method on each class", parts)))


def _table(found: ClassAccuracies) -> str:
    """A row for each method: its extremes and, where they are few, every class."""
    single = len(found.labels) <= _AT_MOST_BESIDE
    head = ["method", "worst class", "best class", "deviation", *(found.names if single else ())]
    heads = "".join(f'<th scope="col">{escape(text)}</th>' for text in head)
    lines = []
    for row, (number, name) in enumerate(found.methods.items()):
        values = found.values[row]
        ends = (f"{values[at]:.2f} ({found.names[at]})" for at in (int(values.argmin()), int(values.argmax())))
        each = (f"{value:.2f}" for value in (values if single else ()))
        cells = "".join(f"<td>{escape(text)}</td>" for text in (*ends, f"{values.std():.2f}", *each))
        lines.append(f"<tr>{name_cell(name, number)}{cells}</tr>")
    return (
        f'<div class="wide"><table class="sortable"><thead><tr>{heads}</tr></thead>\n'
        f"<tbody>{''.join(lines)}</tbody></table></div>"
    )
