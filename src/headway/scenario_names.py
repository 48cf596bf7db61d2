"""Scenarios by name: `DATA/SPLIT/CLIENTSxTAKING`, and the settings that the papers train that data with.

cifar10/dir0.3/100x5%      100 clients, 5 % of them in each round, balanced Dirichlet split with α = 0.3
cifar10/authors0.3/100x5%  the same with the class mixes of the split of FedACG's authors
mnist/gradma0.01/100x10    100 clients, 10 of them; GradMA's split with ω = 0.01
synthetic:1,1/shards2/30x10, mnist/quantity0.5/50x10%, fashion/iid/60x6
femnist/natural/5%         every user of the data, 5 % of them; femnist/natural/10: every user, 10 of them
femnist/natural/200x10     the first 200 users
shakespeare-text/natural:play/10%  every play, 10 % of them

A name stands for settings, no more: they are written into the scenario, and any of them can be changed afterwards.
recipes.toml, beside this file, holds the papers' settings.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from headway.errors import UserError, nearest

Value = str | int | float
Settings = dict[str, Value]
"""Settings of a scenario by name."""

PROFILES = ("paper", "agm21", "acg24", "gradma-code", "fl-simulator")
"""The settings that a name can stand for: those of the papers' texts, of the programs of FedACG's authors of 2021 and
2024, of GradMA's program, or of FL-Simulator."""

TASK_NAMES = ("classification", "regression", "binary", "multilabel", "tokens", "segmentation")
"""The tasks that have a name; `headway.tasks` has their losses and metrics."""

EXAMPLES = (
    "fashion/dir0.3/60x10%, fashion/iid/60x6, cifar10/dir0.3/100x5%, mnist/gradma0.01/100x10 or femnist/natural/5%"
)

_NUMBER = r"\d+(?:\.\d+)?"
_SPLIT = re.compile(r"(?P<word>[a-z]+(?:-[a-z]+)*)(?P<argument>[\d:].*)?")
_ARGUMENTS = {
    "iid": "",
    "natural": r"(?::[\w-]+)?",
    **dict.fromkeys(("dir", "authors", "gradma", "quantity"), _NUMBER),
    "shards": r"\d+",
}
"""What must stand after the word of a split. Another word may have a number; the table of partitions judges it."""
_WHO = re.compile(rf"(?:(?P<clients>\d+)x)?(?P<taking>{_NUMBER})(?P<percent>%?)")


def settings(name: str, profile: str = "paper") -> Settings:
    """The settings that a name and a profile stand for; what they leave out has the scenario's default."""
    if profile not in PROFILES:
        raise UserError(f"profile is '{profile}'; allowed: {', '.join(PROFILES)}{nearest(profile, PROFILES)}")
    data, split, who = name.rsplit("/", 2) if name.count("/") >= 2 else ("", "", "")
    partition, taking = _partition(split), _WHO.fullmatch(who)
    natural = split.partition(":")[0] == "natural"
    if not data or partition is None or taking is None or (taking["clients"] is None and not natural):
        raise UserError(f"there is no scenario file '{name}', and it is not a name such as {EXAMPLES}")
    clients = int(taking["clients"] or 0)
    chosen: Settings = {"data": data, "partition": partition, "clients": clients, "profile": profile}
    return chosen | _participation(name, taking, clients) | _trained_as(data, split, clients, profile)


def followed(profile: str, changes: Mapping[str, object]) -> Mapping[str, object]:
    """Changes of settings, and those that a profile makes along with them.

    The program of 2024 has one decay, of rounds and of local epochs: a new rate_decay is rate_decay_epoch too.
    """
    if profile != "acg24" or "rate_decay" not in changes:
        return changes
    return {"rate_decay_epoch": changes["rate_decay"], **changes}


def _partition(split: str) -> str | None:
    """`dirichlet:0.3` for `dir0.3`; None for a word that does not name a split."""
    found = _SPLIT.fullmatch(split)
    if found is None:
        return None
    word, argument = found["word"], found["argument"] or ""
    if re.fullmatch(_ARGUMENTS.get(word, rf"(?:{_NUMBER})?"), argument) is None:
        return None
    name = "dirichlet" if word == "dir" else word
    return f"{name}:{argument.removeprefix(':')}" if argument else name


def _participation(name: str, taking: re.Match[str], clients: int) -> Settings:
    if taking["percent"]:
        return {"participation": float(taking["taking"]) / 100}
    number = float(taking["taking"])
    if not number.is_integer():
        raise UserError(f"'{name}': {number:g} clients cannot take part; write a whole number, or a share such as 5%")
    if taking["clients"] is not None and number > clients:
        raise UserError(f"'{name}': {number:g} of {clients} clients cannot take part")
    return {"cohort_size": int(number)}


_BATCHES_IN_EPOCH = 10
"""FedACG: the batches that a client has in each local epoch, whatever the number of clients."""


@dataclass(frozen=True)
class _Recipe:
    """One recipe of recipes.toml."""

    settings: Settings
    data: Mapping[str, Settings]
    """What is added for each data set, by its name."""

    def of(self, data: str) -> Settings:
        return {**self.settings, **self.data.get(data, {})}


@cache
def _recipes() -> Mapping[str, _Recipe]:
    """The recipes by name, from recipes.toml."""
    tables = tomllib.loads(files("headway").joinpath("recipes.toml").read_text(encoding="utf-8"))
    return {name: _Recipe(table.get("settings", {}), table.get("data", {})) for name, table in tables.items()}


def _trained_as(data: str, split: str, clients: int, profile: str) -> Settings:
    """How the papers train a data set under a split, or, with another profile than `paper`, how their programs do."""
    recipes, name = _recipes(), data.partition(":")[0]
    prefers_gradma = profile == "gradma-code" or split.startswith("gradma")
    if name in recipes["fedacg"].data and not prefers_gradma:
        chosen = recipes["fedacg"].of(name)
        samples = int(chosen.pop("samples"))
        if clients:
            chosen["batch_size"] = max(samples // (_BATCHES_IN_EPOCH * clients), 1)
    elif name in recipes["gradma"].data:
        chosen = recipes["gradma"].of(name)
        if profile == "gradma-code":
            chosen |= recipes[profile].of(name)
    else:
        chosen = recipes["others"].of(name)
    if profile in ("agm21", "acg24", "fl-simulator"):
        chosen |= recipes[profile].of(name)
    if profile == "acg24":
        chosen["rate_decay_epoch"] = chosen.get("rate_decay", 0.998)
    return chosen
