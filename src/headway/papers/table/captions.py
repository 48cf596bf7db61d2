"""The title of an item's table and the lines below it."""

from __future__ import annotations

from headway.measure.headline import is_settled
from headway.papers.footnotes import footnotes
from headway.papers.measurements import parse_measure
from headway.papers.plan import TINY, Plan
from headway.papers.reproduce import Outcomes
from headway.papers.table.statements import findings, orders
from headway.scenario import Scenario


def title(plan: Plan) -> str:
    mark = " — SCALED DOWN (tiny)" if plan.scale == "tiny" else ""
    return f"{plan.preset.item}: {plan.preset.title}{mark}"


def caption(plan: Plan, outcomes: Outcomes) -> str:
    """One line on where the numbers come from: runs, seeds, rounds, precision, and the paper."""
    good = {run: outcome for run, outcome in outcomes.items() if outcome.records and outcome.failure is None}
    words = [
        TINY if plan.scale == "tiny" else "",
        f"{len(good)} of {len(plan.runs)} runs",
        _seeds(plan, good),
        _rounds(good),
        *sorted({outcome.precision for outcome in good.values()}),
        *_accuracy_notes(plan),
        "bold: best measured",
        *_heading_notes(plan),
        f"paper: {plan.preset.source}",
    ]
    return "; ".join(filter(None, words))


def _seeds(plan: Plan, good: Outcomes) -> str:
    """`3 seeds`, or `2 of 3 seeds` where none of the good runs has some seed."""
    seeds, had = (len({run.scenario.seed for run in some}) for some in (plan.runs, good))
    return f"{f'{had} of ' if had < seeds else ''}{seeds} seed{'s' if seeds > 1 else ''}"


def _rounds(good: Outcomes) -> str:
    """After how many rounds the runs ended, where these are not too many numbers to be named."""
    rounds = sorted({outcome.records[-1]["round"] for outcome in good.values()})
    return f"{' and '.join(map(str, rounds))} rounds" if 0 < len(rounds) < 4 else ""


SEEDS_EXPLAIN = (
    "seeds explain: a gap of at most ±T is within what differs from seed to seed (95 %), a larger one outside"
)


def _heading_notes(plan: Plan) -> list[str]:
    """What the headings `gap`, `seeds explain` and `traffic` mean, as far as the table has them."""
    notes = ["gap: measured − paper"] if plan.preset.numbers else []
    if plan.scale == "full" and plan.preset.numbers:
        notes.append(SEEDS_EXPLAIN)
    if any(parse_measure(name)[0].counts for name in plan.measures):
        notes.append("traffic: bytes down and up until the target")
    return notes


def _accuracy_notes(plan: Plan) -> list[str]:
    """What acc@R means, and a warning where R is so small that the smoothed curve lags behind the raw one."""
    at = _accuracies_read(plan)
    if not at:
        return []
    kept = {scenario.smoothing for _, scenario in at}
    kinds = " or ".join(sorted(f"EMA({keep:g})" if keep else "not smoothed" for keep in kept))
    words = [f"acc@R: test accuracy in % at round R, {kinds}"]
    early = sorted({round for round, scenario in at if _lags(round, scenario)})
    if early:
        rounds = ", ".join(f"{round:g}" for round in early)
        words.append(f"at R = {rounds} that is behind a rising curve: table.csv has the last and the best accuracy")
    return words


def _accuracies_read(plan: Plan) -> list[tuple[float, Scenario]]:
    """(R, scenario) of every accuracy@R that is read from a run."""
    read = [(plan.read_as(cell, name), cell.runs[0].scenario) for cell in plan.cells for name in cell.column.measures]
    return [(parse_measure(name)[1], scenario) for name, scenario in read if name.startswith("accuracy@")]


def _lags(round: float, scenario: Scenario) -> bool:
    """Whether the smoothed accuracy at this round is still drawn down by the first ones."""
    return scenario.smoothing > 0 and not is_settled(round / scenario.eval_every, scenario.smoothing)


def below(plan: Plan, outcomes: Outcomes) -> list[str]:
    """The lines below a table: its order, what it says of statements, what its marks mean, then the caption."""
    found = [*orders(plan, outcomes), *(one.line for one in findings(plan, outcomes))]
    return [*found, *footnotes(plan, outcomes), caption(plan, outcomes)]
