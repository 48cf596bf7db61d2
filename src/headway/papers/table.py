"""The table of a reproduced item: measured, published and their gap; for the terminal, Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from headway.measure.curves import Accuracies, accuracies
from headway.measure.headline import is_settled
from headway.papers.marks import Marks, footnotes, marks_of
from headway.papers.measures import Measured, heading, measured, named
from headway.papers.plan import TINY, Plan
from headway.papers.preset import Column
from headway.papers.published import Published, ratio
from headway.papers.reproduce import Outcomes
from headway.papers.verdict import Verdict, verdict
from headway.report.tables import tex


@dataclass(frozen=True)
class Entry:
    """One number of the table: its values over the seeds, and what the paper prints."""

    row: str
    column: str
    measure: str
    seeds: tuple[Measured, ...]
    """Of the runs there are."""
    published: Published | None
    state: str = ""
    """`failed` or `missing` where no number is there."""
    ends: tuple[Accuracies, ...] = ()
    """Best, last and smoothed accuracy of the same runs, as far as they went."""
    rounds: int = 0
    """That the longest of them has."""
    marks: Marks = field(default_factory=Marks)

    @property
    def values(self) -> list[float]:
        return [one.value for one in self.seeds if one.value is not None]

    @property
    def reached(self) -> bool:
        return bool(self.seeds) and len(self.values) == len(self.seeds)

    @property
    def mean(self) -> float | None:
        return statistics.fmean(self.values) if self.reached else None

    @property
    def std(self) -> float | None:
        return statistics.stdev(self.values) if self.reached and len(self.values) > 1 else None

    @property
    def least(self) -> float | None:
        """A lower bound of the mean, where some seed ended before the target."""
        known = [one.least if one.value is None else one.value for one in self.seeds]
        bounds = [value for value in known if value is not None]
        return statistics.fmean(bounds) if bounds and len(bounds) == len(known) and not self.reached else None

    @property
    def bytes(self) -> float | None:
        sent = [one.bytes for one in self.seeds if one.bytes is not None]
        return statistics.fmean(sent) if sent and len(sent) == len(self.seeds) else None

    @property
    def gap(self) -> float | None:
        """Measured − published; none where either is a bound."""
        if self.mean is None or self.published is None or self.published.value is None or self.published.bound:
            return None
        return self.mean - self.published.value

    @property
    def verdict(self) -> Verdict | None:
        """Whether seeds explain the gap; of runs at full scale."""
        return verdict(self.seeds, self.published)

    def end(self, which: str) -> float | None:
        """`best`, `last` or `smoothed` accuracy in %: the mean over seeds."""
        known = [value for one in self.ends if (value := getattr(one, which)) is not None]
        return 100 * statistics.fmean(known) if known and len(known) == len(self.ends) else None


def entries(plan: Plan, outcomes: Outcomes) -> list[Entry]:
    """Every number, column by column, row by row; the ratio to the reference after the rounds."""
    found = []
    for cell in plan.cells:
        there = [(one, outcomes[one]) for one in cell.runs if one in outcomes]
        good = [(one.scenario, outcome.records) for one, outcome in there if outcome.failure is None]
        state = "" if good else "failed" if there else "missing"
        ends = tuple(accuracies(records) for _, records in good)
        rounds = max((int(records[-1]["round"]) for _, records in good if records), default=0)
        marks = marks_of(cell, outcomes)
        for name in cell.column.measures:
            read = plan.read_as(cell, name)
            seeds = tuple(measured(read, records, scenario) for scenario, records in good)
            printed = plan.preset.numbers.get((cell.row.name, cell.column.name, name))
            place = (cell.row.name, cell.column.name, name)
            found.append(Entry(*place, seeds, printed, state, ends, rounds, marks))
    return found


@dataclass(frozen=True)
class Line:
    """A row of one column's table, as texts; `best` are the places that are bold."""

    texts: list[str]
    best: set[int]


@dataclass(frozen=True)
class Sheet:
    """One column of the item: a table of its own."""

    title: str
    head: list[str]
    lines: list[Line]
    groups: list[list[int]]
    """The places that each measure takes."""


def _digits(entry: Entry) -> int:
    """After the point: a mean of counts has one."""
    if named(entry.measure)[0].counts:
        return 0 if len(entry.seeds) == 1 else 1
    return 4 if entry.measure.startswith("global_loss") else 2


def _written(entry: Entry) -> str:
    if entry.state:
        return entry.state
    if entry.mean is None:
        return "–" if entry.least is None else f"{entry.least:.0f}+"
    digits = _digits(entry)
    spread = "" if entry.std is None else f" ± {entry.std:.{digits}f}"
    return f"{entry.mean:.{digits}f}{spread}"


def _gap(entry: Entry, scaled: bool) -> str:
    return "–" if entry.gap is None or scaled else f"{entry.gap:+.{_digits(entry)}f}"


def _explained(entry: Entry, scaled: bool) -> str:
    return "–" if entry.verdict is None or scaled else entry.verdict.written(_digits(entry))


def size(count: float | None) -> str:
    """Bytes as MB, GB or TB."""
    if count is None:
        return "–"
    for unit, factor in (("TB", 1e12), ("GB", 1e9)):
        if count >= factor:
            return f"{count / factor:.2f} {unit}"
    return f"{count / 1e6:.2f} MB"


def _ratio(entry: Entry, reference: Entry | None) -> str:
    """Rounds over the reference's rounds."""
    if reference is None or not reference.mean:
        return "–"
    if reference.marks.kind != entry.marks.kind:
        return "–"
    rounds, bound = (entry.mean, "") if entry.mean is not None else (entry.least, "> ")
    return "–" if rounds is None else f"{bound}{rounds / reference.mean:.2f}×"


def _printed_ratio(entry: Entry) -> str:
    printed = ratio(entry.published) if entry.published else None
    return "–" if printed is None else f"{'> ' if printed.bound else ''}{printed.value:.2f}×"


Writer = Callable[[Entry], str]


def _parts(plan: Plan, column: Column, name: str, reference: Entry | None) -> dict[str, Writer]:
    """The sub-columns of a measure, with how each is written."""
    scaled = plan.scale != "full"
    cell = next(cell for cell in plan.cells if cell.column.name == column.name)
    title = heading(name)
    read = plan.read_as(cell, name)
    parts: dict[str, Writer] = {title if read == name else f"{title} as {heading(read)}": _written}
    if any(key[1:] == (column.name, name) for key in plan.preset.numbers):
        parts |= {"paper": lambda entry: str(entry.published), "gap": lambda entry: _gap(entry, scaled)}
        parts["seeds explain"] = lambda entry: _explained(entry, scaled)
    if named(name)[0].counts:
        parts["traffic"] = lambda entry: size(entry.bytes)
        if plan.preset.reference is not None:
            parts[f"× {plan.preset.reference}"] = lambda entry: _ratio(entry, reference)
            parts["paper ×"] = _printed_ratio
    return parts


def _best(group: Sequence[Entry], name: str) -> str | None:
    """The row with the best measured number, where there is another to beat; of runs as the item asks for, if any."""
    sign = 1 if named(name)[0].higher_is_better else -1
    group = [one for one in group if not any(one.marks.kind) and not one.state] or group
    known = [(sign * entry.mean, entry.row) for entry in group if entry.mean is not None]
    beaten = len(known) + sum(entry.least is not None for entry in group) - 1
    return max(known, key=lambda pair: pair[0])[1] if known and beaten else None


def sheets(plan: Plan, found: Sequence[Entry]) -> list[Sheet]:
    """A table for each column of the item: a row for each method, and the sub-columns of each measure."""
    made = []
    for column in plan.columns:
        counts = {entry.row: len(entry.seeds) for entry in found if entry.column == column.name}
        signs = {entry.row: entry.marks.signs for entry in found if entry.column == column.name}
        head = ["method", "seeds"]
        texts = {row.name: [f"{row.name} {signs[row.name]}".strip(), str(counts[row.name])] for row in plan.rows}
        best: dict[str, set[int]] = {row.name: set() for row in plan.rows}
        groups: list[list[int]] = []
        for name in column.measures:
            group = [entry for entry in found if (entry.column, entry.measure) == (column.name, name)]
            reference = next((entry for entry in group if entry.row == plan.preset.reference), None)
            parts = _parts(plan, column, name, reference)
            winner = _best(group, name)
            if winner is not None:
                best[winner].add(len(head))
            groups.append([*range(len(head) if groups else 1, len(head) + len(parts))])  # the seeds go with the first
            head += parts
            for entry in group:
                texts[entry.row] += [write(entry) for write in parts.values()]
        made.append(Sheet(column.name, head, [Line(texts[row], best[row]) for row in texts], groups))
    return made


def title(plan: Plan) -> str:
    mark = " — SCALED DOWN (tiny)" if plan.scale == "tiny" else ""
    return f"{plan.preset.item}: {plan.preset.title}{mark}"


def caption(plan: Plan, outcomes: Outcomes) -> str:
    """What the numbers are of: runs, seeds, rounds, precision, and the source."""
    good = {run: outcome for run, outcome in outcomes.items() if outcome.records and outcome.failure is None}
    done = list(good.values())
    rounds = sorted({outcome.records[-1]["round"] for outcome in done})
    seeds, had = (len({run.scenario.seed for run in some}) for some in (plan.runs, good))
    counted = any(named(name)[0].counts for column in plan.columns for name in column.measures)
    words = [
        f"{len(done)} of {len(plan.runs)} runs",
        f"{f'{had} of ' if had < seeds else ''}{seeds} seed{'s' if seeds > 1 else ''}",
        *([f"{' and '.join(map(str, rounds))} rounds"] if 0 < len(rounds) < 4 else []),
        *sorted({outcome.precision for outcome in done}),
        *_about_accuracy(plan),
        "bold: best measured",
        *(["gap: measured − paper"] if plan.preset.numbers else []),
        *([SEEDS_EXPLAIN] if plan.scale == "full" and plan.preset.numbers else []),
        *(["traffic: bytes down and up until the target"] if counted else []),
        f"paper: {plan.preset.source}",
    ]
    return "; ".join([*([TINY] if plan.scale == "tiny" else []), *words])


SEEDS_EXPLAIN = (
    "seeds explain: a gap of at most ±T is within what differs from seed to seed (95 %), a larger one outside"
)


def _about_accuracy(plan: Plan) -> list[str]:
    """What acc@R is and, where R is small, how it stands to the raw curve."""
    read = [(plan.read_as(cell, name), cell.runs[0].scenario) for cell in plan.cells for name in cell.column.measures]
    at = [(named(name)[1], scenario) for name, scenario in read if name.startswith("accuracy@")]
    if not at:
        return []
    kept = {scenario.smoothing for _, scenario in at}
    kinds = " or ".join(sorted(f"EMA({keep:g})" if keep else "not smoothed" for keep in kept))
    smoothed = [(round, one.eval_every, one.smoothing) for round, one in at if one.smoothing]
    early = sorted({round for round, every, keep in smoothed if not is_settled(round / every, keep)})
    words = [f"acc@R: test accuracy in % at round R, {kinds}"]
    if early:
        rounds = ", ".join(f"{round:g}" for round in early)
        words.append(f"at R = {rounds} that is behind a rising curve: table.csv has the last and the best accuracy")
    return words


def below(plan: Plan, outcomes: Outcomes) -> list[str]:
    """The lines below a table: what its marks mean, and the caption."""
    return [*footnotes(plan, outcomes), caption(plan, outcomes)]


def _fitting(sheet: Sheet, width: int) -> list[list[int]]:
    """The places of sub-columns that go side by side: measures are kept whole, the method stands before each part."""
    wide = [
        max(len(text) for text in (*_stacked(sheet.head[at]), *(line.texts[at] for line in sheet.lines))) + 3
        for at in range(len(sheet.head))
    ]
    parts: list[list[int]] = [[0]]
    for group in sheet.groups:
        taken = sum(wide[at] for at in (*parts[-1], *group))
        if len(parts[-1]) > 1 and taken + 2 > width:
            parts.append([0])
        parts[-1] += group
    return parts


def _stacked(head: str) -> list[str]:
    """`rounds to 81 %` in three lines."""
    return head.replace(" %", "\u00a0%").split(" ")


def terminal(plan: Plan, outcomes: Outcomes, width: int) -> list[tuple[str, Table]]:
    """A heading and a table for each column of the item, or several where `width` has no room for all measures."""
    tables = []
    for sheet in sheets(plan, entries(plan, outcomes)):
        for part in _fitting(sheet, width):
            table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
            for at in part:
                head = "\n".join(_stacked(sheet.head[at]))
                table.add_column(head, justify="left" if at == 0 else "right", no_wrap=True)
            for line in sheet.lines:
                table.add_row(*(Text(line.texts[at], style="bold" if at in line.best else "") for at in part))
            tables.append((sheet.title, table))
    return tables


def markdown(plan: Plan, outcomes: Outcomes) -> str:
    lines = [f"# {title(plan)}", ""]
    for sheet in sheets(plan, entries(plan, outcomes)):
        lines += [f"## {sheet.title}", "", "| " + " | ".join(sheet.head) + " |"]
        lines.append("|---|" + "---:|" * (len(sheet.head) - 1))
        for line in sheet.lines:
            texts = (f"**{text}**" if at in line.best else text for at, text in enumerate(line.texts))
            lines.append("| " + " | ".join(texts) + " |")
        lines.append("")
    return "\n".join([*lines, "\n\n".join(below(plan, outcomes))]) + "\n"


def latex(plan: Plan, outcomes: Outcomes) -> str:
    lines = [f"% {title(plan)}"]
    for sheet in sheets(plan, entries(plan, outcomes)):
        lines += [f"% {sheet.title}", r"\begin{tabular}{l" + "r" * (len(sheet.head) - 1) + "}", r"\hline"]
        lines += [" & ".join(_cell(text) for text in sheet.head) + r" \\", r"\hline"]
        for line in sheet.lines:
            texts = (
                rf"\textbf{{{_cell(text)}}}" if at in line.best else _cell(text) for at, text in enumerate(line.texts)
            )
            lines.append(" & ".join(texts) + r" \\")
        lines += [r"\hline", r"\end{tabular}"]
    return "\n".join([*lines, *(f"% {line}" for line in below(plan, outcomes))]) + "\n"


_GREEK = {"×": r"$\times$", "β": r"$\beta$", "λ": r"$\lambda$", "γ": r"$\gamma$", "τ": r"$\tau$", "ω": r"$\omega$"}
_GREEK |= {"†": r"$\dagger$", "‡": r"$\ddagger$", "§": r"\S{}"}


def _cell(text: str) -> str:
    made = tex(text).replace("> ", "$>$ ")
    for character, command in _GREEK.items():
        made = made.replace(character, command)
    return made


def plain(plan: Plan, outcomes: Outcomes) -> list[dict[str, Any]]:
    """Every number as plain data, one to an entry; the accuracies of its runs in % as far as they went."""
    return [
        {
            "item": plan.preset.item,
            "scale": plan.scale,
            "column": entry.column,
            "row": entry.row,
            "measure": entry.measure,
            "seeds": len(entry.seeds),
            "measured": entry.mean,
            "std": entry.std,
            "more_than": entry.least,
            "bytes": entry.bytes,
            "published": entry.published.value if entry.published else None,
            "published_std": entry.published.std if entry.published else None,
            "published_is_bound": entry.published.bound if entry.published else None,
            "gap": entry.gap if plan.scale == "full" else None,
            "verdict": seeds.word if seeds else None,
            "tolerance": seeds.tolerance if seeds else None,
            "state": entry.state,
            "rounds": entry.rounds,
            **{f"{which}_accuracy": entry.end(which) for which in ("best", "last", "smoothed")},
            "draw": entry.marks.draw,
            "form": entry.marks.form,
            "ended_early": entry.marks.ended_early,
        }
        for entry in entries(plan, outcomes)
        for seeds in [entry.verdict if plan.scale == "full" else None]
    ]


def comma_separated(plan: Plan, outcomes: Outcomes) -> str:
    lines = plain(plan, outcomes)
    text = io.StringIO()
    writer = csv.DictWriter(text, list(lines[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(lines)
    return text.getvalue()
