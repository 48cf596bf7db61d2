"""Marks † ‡ § of numbers whose runs are not as the item asks for, and the footnotes that explain them.

† the split or the cohorts were drawn otherwise, ‡ the run ended early, § another form of the method.
"""

from __future__ import annotations

from dataclasses import dataclass

from headway.papers.plan import Cell, Plan
from headway.papers.reproduce import Outcomes
from headway.papers.saved_runs import describe_draw

SIGNS = {"draw": "†", "ended_early": "‡", "form": "§"}
_WORDS = {"draw": "other split or cohorts", "ended_early": "ended early", "form": "other form"}


@dataclass(frozen=True)
class Marks:
    """How the runs of a cell differ from what the item asks for, in words; empty where they do not."""

    draw: str = ""
    """`dirichlet:0.3, split_seed 0, sampling fixed; the item has authors:0.3, sampling authors`."""
    ended_early: str = ""
    """`500 of 1000 rounds`."""
    form: str = ""
    """`fedavgm:momentum=0.4; the item has fedavgm:momentum=0.4,rate_ratio=true`."""

    @property
    def signs(self) -> str:
        """The marks as they stand behind a name, such as `†§`."""
        return "".join(sign for name, sign in SIGNS.items() if getattr(self, name))

    @property
    def kind(self) -> tuple[str, ...]:
        """Draw and form. Numbers are compared with each other only where these are the same."""
        return tuple(filter(None, (self.draw, self.form)))

    @property
    def lines(self) -> list[str]:
        """A footnote for each mark."""
        return [f"{sign} {_WORDS[name]}: {words}" for name, sign in SIGNS.items() if (words := getattr(self, name))]


def marks_of(cell: Cell, outcomes: Outcomes) -> Marks:
    """The marks of a cell's runs that were found and did not fail."""
    good = [outcomes[one] for one in cell.runs if one in outcomes and outcomes[one].failure is None]
    if not good:
        return Marks()
    first, wanted = good[0], cell.runs[0]
    draw = f"{first.draw}; the item has {describe_draw(wanted.scenario)}" if first.draw else ""
    form = f"{first.form}; the item has {wanted.method}" if first.form else ""
    done = min(outcome.rounds for outcome in good)
    whole = done >= wanted.scenario.rounds or wanted.scenario.stop_at_target
    return Marks(draw, "" if whole else f"{done} of {wanted.scenario.rounds} rounds", form)


def footnotes(plan: Plan, outcomes: Outcomes) -> list[str]:
    """What the marks of a table mean, one line for each kind of mark."""
    every = [marks_of(cell, outcomes) for cell in plan.cells]
    found = []
    for name, sign in SIGNS.items():
        words = dict.fromkeys(getattr(marks, name) for marks in every)
        found += [f"{sign} {_WORDS[name]}: {' | '.join(filter(None, words))}"] if any(words) else []
    return found
