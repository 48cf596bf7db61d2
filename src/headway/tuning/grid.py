"""Grids: which values of which arguments and settings are tried, and every combination of them as a candidate."""

from __future__ import annotations

import dataclasses
import itertools
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files
from typing import TypeGuard

from headway.elsewhere import pointer
from headway.errors import UserError, nearest, shown
from headway.methods.spelling import chosen as entry_of
from headway.methods.spelling import method as spelled
from headway.methods.spelling import owner, pieces, with_option
from headway.runs.files import slug
from headway.scenario import Scenario, field_type, settings_of

Value = bool | int | float | str | None
"""What an argument of a method or a setting of a scenario can be."""
Grid = dict[str, tuple[Value, ...]]
"""The values of each name, in the order they are tried."""
Values = Mapping[str, Sequence[Value]]
"""What a paper tried of each name."""
GridLike = str | Mapping[str, Sequence[object]] | Sequence[str]
"""`"papers"`, `{"lam": [0.8, 0.9]}`, or texts such as `["papers", "lam=0.8,0.9"]`."""

_SHARED = settings_of("identity", "watching", "execution") | {
    *("data", "partition", "split_seed", "clients", "rounds", "precision", "validation")
}
"""What every candidate has in common: else their scores could not be compared."""


@dataclass(frozen=True)
class Candidate:
    """One combination of values: a method as it is spelled, and settings of the scenario."""

    number: int
    values: Mapping[str, Value]
    method: str
    settings: Mapping[str, Value]

    @property
    def label(self) -> str:
        return " ".join(f"{name}={text(value)}" for name, value in self.values.items())

    @cached_property
    def folder(self) -> str:
        return f"{self.number:03d}-{slug(self.label)[:80]}"


def text(value: object) -> str:
    """A value as it is written after `name=` on the command line."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def tunable() -> list[str]:
    """The settings of a scenario that may be in a grid."""
    return [setting.name for setting in dataclasses.fields(Scenario) if setting.name not in _SHARED]


def grid(method: str, requested: GridLike) -> Grid:
    """The values to try of each name; those given for a name take the place of those in a paper's grid."""
    found: Grid = {}
    own: Grid = {}
    for one in listed(requested):
        if is_named(one):
            found |= {name: _values(method, name, values) for name, values in named(method, one.strip()).items()}
            continue
        for name, values in read_grid(one).items():
            if name in own:
                raise UserError(f"the grid of '{name}' is given twice; write all its values with commas")
            own[name] = _values(method, name, values)
    found |= own
    if not found:
        raise UserError("no grid given; write --grid lam=0.8,0.85,0.9 or --grid papers")
    return found


def listed(requested: object) -> list[str | Mapping[str, Sequence[object]]]:
    """Grids one by one, each a text or a mapping."""
    if isinstance(requested, str | Mapping):
        return [requested]
    given = requested if isinstance(requested, list | tuple) else [requested]
    found = [one for one in given if isinstance(one, str | Mapping)]
    if len(found) < len(given):
        raise UserError(
            f"grid is {shown(requested)}; write it as {{'lam': [0.8, 0.9]}} or 'lam=0.8,0.9', or name a paper's"
        )
    return found


def is_named(given: str | Mapping[str, Sequence[object]]) -> TypeGuard[str]:
    """Whether a grid is a paper's by its name."""
    return isinstance(given, str) and "=" not in given


def read_grid(given: str | Mapping[str, Sequence[object]]) -> Mapping[str, Sequence[object]]:
    """`lam=0.8,0.9` → lam: 0.8 and 0.9; a mapping as it is."""
    if isinstance(given, Mapping):
        return given
    name, _, values = given.partition("=")
    return {name.strip(): [value.strip() for value in values.split(",")]}


def named(method: str, name: str) -> Values:
    """A paper's grid for a method; `papers` is that of the first paper that has one."""
    papers = published()
    if name not in papers and name != "papers":
        known = ["papers", *papers]
        raise UserError(
            f"there is no grid '{name}'{nearest(name, known)} ({', '.join(known)}, or NAME=VALUE,VALUE such as "
            "lam=0.8,0.9)"
        )
    for paper in papers.values() if name == "papers" else [papers[name]]:
        found = paper.of(method)
        if found is not None:
            return found
    where = "no paper searched" if name == "papers" else f"the grids of {name} do not have"
    known = sorted({own for paper in papers.values() for own in paper.methods})
    raise UserError(f"{where} a grid for '{method}' (there are for {', '.join(known)}); write --grid NAME=VALUE,VALUE")


@dataclass(frozen=True)
class PaperGrids:
    """What a paper searched, and where it says so."""

    source: str
    note: str
    every: Values
    """What holds for all its methods."""
    methods: Mapping[str, Values]
    """What is each method's own."""

    def of(self, method: str) -> Values | None:
        """The grid of a method as it is spelled; None where the paper has none for it, or it is a combination."""
        entry = method.partition(":")[0].strip()
        return {**self.every, **self.methods[entry]} if entry in self.methods and len(pieces(method)) == 1 else None


def published() -> dict[str, PaperGrids]:
    """The grids of grids.toml, by paper."""
    content = tomllib.loads(files("headway.tuning").joinpath("grids.toml").read_text(encoding="utf-8"))
    return {
        paper: PaperGrids(tables.pop("source"), tables.pop("note"), tables.pop("every", {}), methods=tables)
        for paper, tables in content.items()
    }


def _values(method: str, name: str, values: object) -> tuple[Value, ...]:
    """The values in the type of the argument or setting, all different."""
    if isinstance(values, str) or not isinstance(values, Sequence):
        raise UserError(f"the grid of '{name}' is {shown(values)}; it must be a list of values")
    parse = _parser(method, name)
    parsed = tuple(parse(text(value)) for value in values)
    if not parsed:
        raise UserError(f"the grid of '{name}' has no values; write {name}=VALUE,VALUE")
    twice = next((value for value in parsed if parsed.count(value) > 1), None)
    if twice is not None:
        raise UserError(f"the grid of '{name}' has {text(twice)} twice")
    return parsed


def _parser(method: str, name: str) -> Callable[[str], Value]:
    """How a text becomes a value of a name; what the name may be is decided here."""
    found = owner(method, name)
    if found is not None:
        if found.given:
            raise UserError(f"'{name}' is in the grid and in '{method}'; leave it out of one of them")
        return found.parse
    if name in tunable():
        return lambda value: _setting(name, value)
    arguments = _arguments(method)
    if name in {setting.name for setting in dataclasses.fields(Scenario)}:
        raise UserError(
            f"'{name}' cannot be in a grid: all candidates share data, rounds, scores and execution "
            f"(in a grid: {', '.join([*arguments, *tunable()])})"
        )
    hint = pointer(name)
    raise UserError(
        f"'{name}' is neither an argument of {method} ({', '.join(arguments) or 'it has none'}) nor a setting of the "
        f"scenario{f'; {hint}' if hint else nearest(name, [*arguments, *tunable()])}"
    )


def _arguments(method: str) -> list[str]:
    """Every argument that the pieces of a method have."""
    return list(dict.fromkeys(name for piece in pieces(method) for name in entry_of(piece)[1]))


def _setting(name: str, value: str) -> Value:
    kind, _ = field_type(name)
    if kind is bool:
        if value not in ("true", "false"):
            raise UserError(f"{name} is '{value}'; allowed: true or false")
        return value == "true"
    try:
        parsed: Value = kind(value)
    except ValueError:
        raise UserError(f"{name} is '{value}'; it must be {'a whole number' if kind is int else 'a number'}") from None
    return parsed


def candidates(method: str, values: Grid, scenario: Scenario) -> list[Candidate]:
    """Every combination, the last name changing fastest; each is built once, so that a bad value is refused at once."""
    made = []
    for number, combination in enumerate(itertools.product(*values.values()), 1):
        chosen = dict(zip(values, combination, strict=True))
        name = method.strip()
        settings: dict[str, Value] = {}
        for key, value in chosen.items():
            if owner(method, key) is None:
                settings[key] = value
            else:
                name = with_option(name, key, text(value))
        spelled(name)
        scenario.with_settings(settings)
        made.append(Candidate(number, chosen, name, settings))
    return made
