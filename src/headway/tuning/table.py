"""The table of a sweep, best first: for the terminal and in Markdown, from the same cells."""

from __future__ import annotations

from rich import box
from rich.table import Table
from rich.text import Text

from headway.data.participation import in_words
from headway.report.tables import plain
from headway.tuning.grid import text
from headway.tuning.results import Sweep, Trial


def scored(sweep: Sweep, trial: Trial) -> str:
    """A candidate's score as it is printed."""
    if trial.score is None:
        return "–"
    scale, digits = sweep.headline.scale, sweep.headline.digits
    mean = f"{trial.score * scale:.{digits}f}"
    return mean if trial.spread is None else f"{mean} ± {trial.spread * scale:.{digits}f}"


def heading(sweep: Sweep) -> str:
    return f"validation {sweep.headline.name}{sweep.headline.unit}"


def cells(sweep: Sweep) -> tuple[list[str], list[list[str]]]:
    """Headings, and one list of texts for each candidate, best first."""
    head = [*sweep.grid, heading(sweep), "rounds", "status"]
    body = [
        [*map(text, trial.candidate.values.values()), scored(sweep, trial), str(trial.rounds), trial.status]
        for trial in sweep.ranking
    ]
    return head, body


def problem(sweep: Sweep) -> str:
    """Data, split and who took part; where candidates differ in that, only how many clients there are."""
    if not sweep.ran:  # no run was begun, so nobody has counted
        return f"{sweep.scenario.data}, {sweep.scenario.partition}"
    first, who = sweep.ran[0], {in_words(scenario) for scenario in sweep.ran}
    words = who.pop() if len(who) == 1 else f"{first.clients} clients"
    return f"{first.data}, {first.partition}, {words}"


def caption(sweep: Sweep) -> str:
    scenario = sweep.scenario
    seeds = f"{scenario.seeds} seeds, ± over seeds" if scenario.seeds > 1 else f"seed {scenario.seed}"
    shared = ", ".join(f"{stage.candidates} × {stage.rounds}" for stage in sweep.stages)
    how = f"{sweep.stages[0].rounds} rounds each" if len(sweep.stages) == 1 else f"halving: {shared} rounds"
    kind = f"EMA({scenario.smoothing:g}) of the" if sweep.headline.smoothed else "last"
    measure = f"{kind} {sweep.headline.name}"
    return (
        f"{sweep.method} on {problem(sweep)}; {how}; {seeds}; {measure} on "
        f"{100 * (scenario.validation or 0):.3g} % of each client's training samples, held out; the test set is unused"
    )


def terminal(sweep: Sweep) -> Table:
    head, body = cells(sweep)
    table = Table(box=box.SIMPLE_HEAD, show_edge=False)
    for name in head:
        table.add_column(name, justify="left" if name == "status" else "right")
    for at, line in enumerate(body):
        style = "bold" if at == 0 and sweep.best is not None else ""
        table.add_row(*(Text(one, style=style) for one in line))
    return table


def markdown(sweep: Sweep, picture: str | None) -> str:
    head, body = cells(sweep)
    lines = [f"# Sweep of {sweep.method}", "", "| " + " | ".join(head) + " |", "|" + "---:|" * (len(head) - 1) + "---|"]
    for at, line in enumerate(body):
        best = at == 0 and sweep.best is not None
        lines.append("| " + " | ".join(f"**{one}**" if best else one for one in line) + " |")
    lines += ["", caption(sweep) + "."]
    failures = [plain(f"* {one.candidate.label}: {one.status}, {one.failure}") for one in sweep.trials if one.failure]
    lines += ["", *failures] if failures else []
    lines += ["", "The best, trained on all samples:", "", "```", sweep.command, "```"] if sweep.best else []
    lines += ["", f"![{heading(sweep)}]({picture})"] if picture else []
    return "\n".join(lines) + "\n"
