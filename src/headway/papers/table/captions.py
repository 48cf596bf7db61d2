"""The title of an item's table and the lines below it."""

from __future__ import annotations

from headway.measure.headline import is_settled
from headway.papers.footnotes import footnotes
from headway.papers.measurements import parse_measure
from headway.papers.plan import TINY, Plan
from headway.papers.reproduce import Outcomes


def title(plan: Plan) -> str:
    mark = " — SCALED DOWN (tiny)" if plan.scale == "tiny" else ""
    return f"{plan.preset.item}: {plan.preset.title}{mark}"


def caption(plan: Plan, outcomes: Outcomes) -> str:
    """One line on where the numbers come from: runs, seeds, rounds, precision, and the paper."""
    good = {run: outcome for run, outcome in outcomes.items() if outcome.records and outcome.failure is None}
    done = list(good.values())
    rounds = sorted({outcome.records[-1]["round"] for outcome in done})
    seeds, had = (len({run.scenario.seed for run in some}) for some in (plan.runs, good))
    counted = any(parse_measure(name)[0].counts for column in plan.columns for name in column.measures)
    words = [
        f"{len(done)} of {len(plan.runs)} runs",
        f"{f'{had} of ' if had < seeds else ''}{seeds} seed{'s' if seeds > 1 else ''}",
        *([f"{' and '.join(map(str, rounds))} rounds"] if 0 < len(rounds) < 4 else []),
        *sorted({outcome.precision for outcome in done}),
        *_accuracy_notes(plan),
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


def _accuracy_notes(plan: Plan) -> list[str]:
    """What acc@R means, and a warning where R is so small that the smoothed curve lags behind the raw one."""
    read = [(plan.read_as(cell, name), cell.runs[0].scenario) for cell in plan.cells for name in cell.column.measures]
    at = [(parse_measure(name)[1], scenario) for name, scenario in read if name.startswith("accuracy@")]
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
    """The lines below a table: what its marks mean, then the caption."""
    return [*footnotes(plan, outcomes), caption(plan, outcomes)]
