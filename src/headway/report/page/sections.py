"""The parts of the page that are read without a script, as HTML. Every text goes through `escape`."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from html import escape

from headway.measure.numbers import MethodNumbers
from headway.records import value_of
from headway.report.clients import SPREAD
from headway.report.page import commands as again
from headway.report.page.parts import name_cell
from headway.report.tables import about_differences, best, cells, columns, number_and_word
from headway.report.units import UNITS, unit_of_column
from headway.runs.environment import MadeOn
from headway.runs.folder import failure, finished, summary
from headway.runs.given import catalogue_method
from headway.runs.result import Result
from headway.runs.study import Study
from headway.scenario import Scenario, explained, settings_of

_LESS_IS_MORE = ("rounds", *(unit.name for unit in UNITS), "seconds", SPREAD)
"""Columns whose best value is the least, beside metrics that fall; clicked once, they begin with it."""


def _table(
    head: Sequence[str],
    body: Sequence[Sequence[str]],
    bold: Collection[tuple[int, int]] = (),
    kind: str = "sortable",
    swatches: bool = True,
    falling: Collection[str] = (),
) -> str:
    def heading(text: str) -> str:
        falls = text == "method" or text in falling or text.startswith(_LESS_IS_MORE)
        first = "ascending" if falls else "descending"
        return f'<th scope="col" data-first="{first}">{escape(text)}</th>'

    def cell(text: str, row: int, column: int) -> str:
        if column == 0:
            return name_cell(text, row if swatches else None)
        return (
            f"<td><strong>{escape(text)}</strong></td>" if (row, column) in bold else f"<td>{_in_two_lines(text)}</td>"
        )

    lines = (
        "<tr>" + "".join(cell(text, row, column) for column, text in enumerate(line)) + "</tr>"
        for row, line in enumerate(body)
    )
    return (
        f'<div class="wide"><table class="{kind}"><thead><tr>{"".join(map(heading, head))}</tr></thead>\n'
        f"<tbody>\n{chr(10).join(lines)}\n</tbody></table></div>"
    )


def _in_two_lines(text: str) -> str:
    """A difference with its verdict below it."""
    number, word = number_and_word(text)
    kind = "word clear" if word.startswith(" distinguishable") else "word"
    return escape(number) + (f'<span class="{kind}">{escape(word)}</span>' if word else "")


def _facts(pairs: Sequence[tuple[str, str]]) -> str:
    lines = (f'<dt>{escape(name)}</dt><dd class="value">{escape(text)}</dd>' for name, text in pairs)
    return f'<dl class="facts">{"".join(lines)}</dl>'


# ── the comparison ───────────────────────────────────────────────────────────────────────────────────────────────────


def comparison(rows: Sequence[MethodNumbers]) -> str:
    """The table of compare.md, cell by cell."""
    head, body = cells(rows)
    falling = [one.heading for one in columns(rows) if one.falls]
    return _table(head, body, best(rows), falling=falling)


def legend_of_table(rows: Sequence[MethodNumbers]) -> str:
    words = ["Best in bold."] if len(rows) > 1 else []
    words.append("A click on a heading sorts.")
    if any(row["rounds_to_target"] is None for row in rows) and rows[0]["target"] is not None:
        words.append("R+: some seed did not reach the target in its R rounds.")
    if sentence := about_differences(rows):
        words.append(f"{sentence[0].upper()}{sentence[1:]}; the interval is of each difference by itself.")
    return " ".join([*words, "Bytes: what is sent down and up."])


def state(one: Result) -> str:
    """`""` for a run that came to its end, or where it stands."""
    if one.folder is None or finished(one.folder):
        return ""
    cause = failure(one.folder)
    where = f"unfinished, round {one.records[-1]['round']} of {one.scenario.rounds}"
    return where if cause is None else f"{where}; it failed: {cause}"


def states(study: Study) -> dict[str, str]:
    """The seeds of each method that did not come to their end, and where they stand."""
    found = {}
    for name, seeds in study.runs.items():
        words = [f"seed {one.scenario.seed} {text}" for one in seeds if (text := state(one))]
        if words:
            found[name] = "; ".join(words)
    return found


def notes(study: Study) -> str:
    """What must be known before a number is read: remarks as notes; runs that failed or did not end as warnings."""
    warned = [*study.failed, *(f"{name}: {text}" for name, text in states(study).items())]
    lines = [("note", study.remarks)] if study.remarks else []
    return "\n".join(
        f'<p class="{kind}">{escape(line)}</p>' for kind, line in [*lines, *(("warning", line) for line in warned)]
    )


# ── costs ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _own_costs(name: str, seeds: Sequence[Result]) -> list[str]:
    """Passes, client state and server memory as recorded; "–" for a user's own method, which is not measured."""
    recorded = next((one.cost for one in seeds if one.cost is not None), None)
    if recorded is None:
        return ["–" if catalogue_method(name) is None else "not recorded"] * 3
    return [f"{value:.3g}" for value in (recorded["passes"], recorded["client_state"], recorded["server_memory"])]


def costs(study: Study, rows: Sequence[MethodNumbers]) -> str:
    """Traffic, steps and seconds as recorded, means over seeds; passes, state and memory of the method itself."""
    each = [statistics.fmean(len(one.records) for one in seeds) for seeds in study.runs.values()]
    sent = [(row["bytes_down"], row["bytes_up"]) for row in rows]
    whole = unit_of_column((value for both in sent for value in both), 1)
    part = unit_of_column((value / rounds for both, rounds in zip(sent, each, strict=True) for value in both), 2)
    head = ["method", *(f"{part.name} {way} a round" for way in ("down", "up"))]
    head += [*(f"{whole.name} {way}" for way in ("down", "up")), "local steps"]
    head += ["seconds training", "seconds evaluating", "passes", "client state", "server memory"]
    body = []
    for row, seeds, rounds, both in zip(rows, study.runs.values(), each, sent, strict=True):
        spent = [
            statistics.fmean(sum(value_of(record, key) for record in one.records) for one in seeds)
            for key in ("seconds_training", "seconds_evaluation")
        ]
        traffic = [f"{value / rounds / part.bytes:.2f}" for value in both]
        measured = [*traffic, *(f"{value / whole.bytes:.1f}" for value in both), f"{row['steps']:,.0f}"]
        body.append([row["name"], *measured, *(f"{seconds:.1f}" for seconds in spent), *_own_costs(row["name"], seeds)])
    return _table(head, body)


LEGEND_OF_COSTS = (
    "Traffic is counted from the messages sent, and is of all clients together; steps of all clients, seconds of the "
    "whole run, means over seeds. Passes are forward and backward passes in multiples of FedAvg’s; client state and "
    "server memory are in multiples of the model."
)


# ── tuning ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def tuning(study: Study) -> str:
    """What was chosen for each method before it was compared, as a section; '' where nothing was tuned."""
    if not study.tuned:
        return ""
    head = ["method", "chosen", "candidates", "rounds", "score on held-out samples", "sweep"]
    body = [
        [one.asked, one.values, str(one.candidates), str(one.rounds), one.score, one.sweep or "not kept"]
        for one in study.tuned
    ]
    return (
        '<section aria-labelledby="h-tuning">\n<h2 id="h-tuning">Tuning</h2>\n'
        f"{_table(head, body, kind='sortable words', swatches=False)}\n"
        '<p class="small">Rounds of all candidates and seeds together, equal for all methods. The comparison trains on '
        "all samples with these values.</p>\n</section>\n"
    )


# ── the scenario ─────────────────────────────────────────────────────────────────────────────────────────────────────

_OF_A_RUN = settings_of("identity") | {"executor"}
"""Written in the environment, run by run."""


def _written(value: object) -> str:
    if value is None:
        return "–"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _differing(results: Sequence[Result]) -> list[str]:
    every = [setting.name for setting in dataclasses.fields(Scenario) if setting.name not in _OF_A_RUN]
    return [name for name in every if len({getattr(one.scenario, name) for one in results}) > 1]


def scenario(study: Study) -> str:
    """Every setting that all runs share, those that are not the default marked."""
    results = [one for seeds in study.runs.values() for one in seeds]
    differing, plain = _differing(results), Scenario()
    groups: dict[str, list[str]] = {}
    for setting in dataclasses.fields(Scenario):
        name = setting.name
        if name in _OF_A_RUN or name in differing:
            continue
        value = getattr(results[0].scenario, name)
        mark = "value" if value == getattr(plain, name) else "value changed"
        term = f'<dt title="{escape(explained(setting))}">{escape(name)}</dt>'
        line = f'{term}<dd class="{mark}">{escape(_written(value))}</dd>'
        groups.setdefault(setting.metadata["group"], []).append(line)
    lists = "".join(f"<div><h3>{escape(group)}</h3><dl>{''.join(lines)}</dl></div>" for group, lines in groups.items())
    others = f" {', '.join(differing)}: see the settings that differ." if differing else ""
    return (
        f'<div class="groups">{lists}</div>\n'
        '<p class="small">Coloured: not the default. A name explains itself under the pointer; –: not set.'
        f"{escape(others)}</p>"
    )


def differing(study: Study) -> str:
    """The settings in which the runs differ, as a section with a row for each method; '' where there is none.

    Where the seeds of a method differ, all their values stand in its row.
    """
    names = _differing([one for seeds in study.runs.values() for one in seeds])
    if not names:
        return ""
    body = []
    for method, seeds in study.runs.items():
        values = (dict.fromkeys(_written(getattr(one.scenario, name)) for one in seeds) for name in names)
        body.append([method, *(" / ".join(value) for value in values)])
    return (
        '<section aria-labelledby="h-differing">\n<h2 id="h-differing">Settings that differ</h2>\n'
        f"{_table(['method', *names], body, kind='words')}\n"
        '<p class="small">All other settings are the same, and stand under Scenario.</p>\n</section>\n\n'
    )


# ── the environment ──────────────────────────────────────────────────────────────────────────────────────────────────


_NOT_RECORDED: MadeOn = {"device": "", "hardware": "", "system": "", "versions": {}}


def _made_on(one: Result) -> MadeOn:
    """The environment in a finished run's summary.json; empty where it is not recorded."""
    found = summary(one.folder).get("environment") if one.folder is not None else None
    return _NOT_RECORDED if found is None else {**_NOT_RECORDED, **found}


def _versions(found: MadeOn) -> str:
    return ", ".join(f"{name} {text}" for name, text in found["versions"].items())


@dataclass(frozen=True)
class _Fact:
    """What all runs may share: its name, and how it is read off a run and the environment of the run."""

    name: str
    of: Callable[[Result, MadeOn], str]
    between: str = " / "
    """What stands between different values."""

    def text(self, runs: Sequence[tuple[Result, MadeOn]]) -> str:
        values = (self.of(one, made_on) or "not recorded" for one, made_on in runs)
        return self.between.join(dict.fromkeys(values))


_FACTS = (
    _Fact("hardware", lambda one, made_on: made_on["hardware"]),
    _Fact("system", lambda one, made_on: made_on["system"]),
    _Fact("versions", lambda one, made_on: _versions(made_on)),
    _Fact("device", lambda one, made_on: made_on["device"] or one.scenario.device),
    _Fact("executor", lambda one, made_on: one.executor),
    _Fact("precision", lambda one, made_on: one.scenario.precision),
    _Fact("deterministic", lambda one, made_on: _written(one.scenario.deterministic)),
    _Fact("seeds", lambda one, made_on: str(one.scenario.seed), between=", "),
    _Fact("split seed", lambda one, made_on: str(one.scenario.split_seed)),
)


def environment(study: Study) -> str:
    """What all runs share, each fact once, and a list of the runs."""
    results = [one for seeds in study.runs.values() for one in seeds]
    made = [(one, _made_on(one)) for one in results]
    body = [
        [
            one.method,
            str(one.scenario.seed),
            state(one) or f"{one.records[-1]['round']} rounds",
            one.executor,
            str(one.folder or "in memory"),
        ]
        for one in results
    ]
    runs = _table(["method", "seed", "state", "executor", "folder"], body, kind="words", swatches=False)
    facts = _facts([(fact.name, fact.text(made)) for fact in _FACTS])
    return f"{facts}<details><summary>{len(results)} runs</summary>{runs}</details>"


# ── the commands ─────────────────────────────────────────────────────────────────────────────────────────────────────


def _words(line: str) -> str:
    """A command that is broken between its words only."""
    return " ".join(f"<span>{escape(word)}</span>" for word in line.split(" "))


def commands(study: Study) -> str:
    none = again.reason_for_none(study)
    if none is not None:
        return f"<p>{escape(none)}.</p>"
    blocks = "\n".join(f'<div class="command"><pre>{_words(line)}</pre></div>' for line in again.commands(study))
    return (
        f"<p>These make the runs and this page again:</p>\n{blocks}\n"
        '<p class="small">The same executor, precision and versions give the same numbers up to rounding, and with '
        "<code>--deterministic</code> bit for bit on the same hardware. Where the data lies is not said: "
        "<code>--data-dir</code> or <code>$HEADWAY_DATA</code>.</p>"
    )
