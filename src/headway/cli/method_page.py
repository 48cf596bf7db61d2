"""A method's page in Markdown: what the code knows, with what `methods/notes/NAME.md` adds by hand."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from functools import cache

import numpy as np

from headway.cli.catalogue import cost_columns, slot_rows
from headway.engine.cost import cost
from headway.engine.experiment import Experiment
from headway.errors import UserError, nearest
from headway.methods.arguments import ranges
from headway.methods.catalogue import METHODS, Entry
from headway.methods.method_notes import NOTES, read_notes
from headway.methods.needs import replaces_delta
from headway.methods.spelling import defaults, method
from headway.records import RoundRecord
from headway.runs.start import simulate
from headway.scenario import Scenario

REQUIRED = ("Details that matter", "What the authors' program does differently", "Tested")
"""The headings without which a method's page is not finished."""


def page(name: str) -> str:
    """The page of one method of the catalogue, as it is kept in `docs/methods`."""
    if name not in METHODS:
        raise UserError(
            f"--markdown is for one method of the catalogue, without options; '{name}'{nearest(name, METHODS)}"
        )
    entry = METHODS[name]
    summary, notes = read_notes(name)
    equations, _, source = (inspect.getdoc(entry.build) or "").partition("\n")
    sections = {
        "Equations": _joined(f"```text\n{equations}\n```", notes.get("Symbols")),
        "Slots": _table(("slot", "value"), ((slot, f"`{value}`") for slot, value in slot_rows(method(name)))),
        "Arguments": _arguments(entry, _meanings(notes.get("Arguments", ""))),
        "Cost": _cost(name),
        "What is logged": _logged(name, _meanings(notes.get("What is logged", ""))),
        **{heading: notes.get(heading) for heading in NOTES[3:5]},
        "Tested": _joined(notes.get("Tested"), _tested(also="Tested" in notes)),
        "Run it": notes.get("Run it", f"```\nheadway run {name} --rounds 100\n```"),
        "Source": notes.get("Source", source.strip()),
    }
    written = [f"## {heading}\n\n{text}" for heading, text in sections.items() if text]
    return "\n\n".join([f"# {name}", *filter(None, [summary]), *written]) + "\n"


def lacking(name: str) -> list[str]:
    """What the notes of a method must still say before its page is finished."""
    summary, notes = read_notes(name)
    arguments, measured = (_meanings(notes.get(heading, "")) for heading in ("Arguments", "What is logged"))
    return [
        *([] if summary else ["a first line that says what the method is for"]),
        *(f"'* `{one}`: …' below '## Arguments'" for one in defaults(METHODS[name]) if one not in arguments),
        *(f"'* `{one}`: …' below '## What is logged'" for one in logged(name) if one not in measured),
        *(f"'## {heading}'" for heading in REQUIRED if not notes.get(heading)),
    ]


def logged(name: str) -> list[str]:
    """The names that a round of this method records and a round of FedAvg does not, read from a tiny run of each."""
    own, plain = (_recorded(each) for each in (name, "fedavg"))
    return [key for key in own if key not in plain]


@cache
def _recorded(name: str) -> list[str]:
    samples = (np.eye(8, dtype=np.float32), np.arange(8) % 2)
    shortest = Scenario(rounds=1, steps=2, batch_size=4, participation=1.0, executor="serial", device="cpu")
    run = simulate(name, shortest, model="mlp", clients=[samples] * 2, test=samples, observer=_Silent())
    return list(run.records[0])


class _Silent:
    """Watches a run and says nothing."""

    def begins(self, experiment: Experiment, done: int, executor: str) -> None: ...
    def round(self, record: RoundRecord) -> None: ...
    def tell(self, message: str) -> None: ...


def _meanings(text: str) -> dict[str, str]:
    """A list of `name`: meaning."""
    found = re.findall(r"^\* `([^`]+)`: (.+(?:\n  .+)*)", text, flags=re.MULTILINE)
    return {name: re.sub(r"\s+", " ", meaning) for name, meaning in found}


def _arguments(entry: Entry, meanings: dict[str, str]) -> str:
    arguments, allowed = defaults(entry), ranges(entry.build)
    for name in meanings:
        if name not in arguments:
            raise UserError(
                f"the notes of {entry.name} explain '{name}'; its arguments: {', '.join(arguments) or 'none'}"
            )
    rows = []
    for name, default in arguments.items():
        if isinstance(default, bool):
            value, limit = str(default).lower(), "true or false"
        else:
            value, limit = str(default), str(allowed[name]).replace("value", name) if name in allowed else "any"
        rows.append((f"`{name}`", value, limit, meanings.get(name, "")))
    return _table(("name", "default", "allowed", "meaning"), rows) if rows else "None."


@cache
def price(name: str) -> dict[str, str]:
    """What a method of the catalogue costs, under the headings of tables and pages."""
    return cost_columns(cost(method(name)))


def _cost(name: str) -> str:
    columns = price(name)
    return _joined(_table(columns, [columns.values()], right=True), "Units are on [the first page](README.md#costs).")


def _logged(name: str, meanings: dict[str, str]) -> str:
    """What a round records beside what it does for every method. Notes may name more, such as what an option adds."""
    rows = [(f"`{key}`", meanings.get(key, "")) for key in dict.fromkeys([*logged(name), *meanings])]
    every = "[what every round records](../runs.md#what-a-round-records)"
    beside = _joined(f"Beside {every}:", _table(("name", "meaning"), rows)) if rows else f"Only {every}."
    return _joined(beside, _momentum(name))


def _momentum(name: str) -> str:
    """Whether rounds of this method record the cosine of Δ with the server's momentum."""
    built = method(name)
    if replaces_delta(built.parts()):
        return (
            "Clients send something in place of their updates, so rounds have no `cosine_momentum`, nor the other "
            "[numbers of updates](../analysis.md#in-every-run)."
        )
    if any(hasattr(part, "heading") for _, part in built.parts("server")):
        return "`cosine_momentum` is the cosine of Δ with [the server's momentum](../analysis.md#in-every-run)."
    return "The server has no momentum, so rounds have no [`cosine_momentum`](../analysis.md#in-every-run)."


def _tested(also: bool) -> str:
    return f"It is {'also ' if also else ''}in [the tests of every method](README.md#tests)."


def _table(head: Iterable[str], rows: Iterable[Iterable[str]], right: bool = False) -> str:
    head = list(head)
    lines = [head, *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    written = [f"| {' | '.join(line)} |" for line in lines]
    written.insert(1, "|" + ("---:|" if right else "---|") * len(head))
    return "\n".join(written)


def _joined(*parts: str | None) -> str:
    return "\n\n".join(part for part in parts if part)
