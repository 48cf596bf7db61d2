"""Who the sites of a run are: `roster.json` in its folder, and where each can be reached now."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import cast

from headway.errors import DamagedRun
from headway.runs.files import read_checked, write_checked

NAME = "roster.json"


@dataclass(frozen=True)
class Member:
    """A site of a run; its number is its place in the roster."""

    name: str
    samples: int
    fingerprint: str
    """The digest of its data, with the salt of the site."""


@dataclass(frozen=True)
class Roster:
    """What is fixed when a run begins: its name and its sites, in the order of their numbers."""

    run: str
    form: str
    """Types and shapes of a sample and its target."""
    classes: int
    members: tuple[Member, ...]
    accepted: tuple[str, ...] = ()
    """Names of sites whose changed data, or lost state folder, was accepted."""

    @property
    def sizes(self) -> list[int]:
        return [member.samples for member in self.members]

    @property
    def names(self) -> list[str]:
        return [member.name for member in self.members]

    def with_member(self, member: Member) -> Roster:
        """The roster with what a site has now."""
        members = tuple(member if one.name == member.name else one for one in self.members)
        return replace(self, members=members, accepted=(*self.accepted, member.name))


def in_order(names: Sequence[str]) -> list[str]:
    """Names in the order of the clients' numbers: by letters, and by size of numbers (`site-2` before `site-10`)."""
    return sorted(names, key=lambda name: [(int(part), "") if part.isdigit() else (-1, part) for part in _PARTS(name)])


_PARTS = re.compile(r"\d+|\D+").findall


def write(folder: Path, roster: Roster) -> None:
    """Write the roster of a run."""
    sites = [{"name": one.name, "samples": one.samples, "fingerprint": one.fingerprint} for one in roster.members]
    about = {"run": roster.run, "form": roster.form, "classes": roster.classes, "accepted": list(roster.accepted)}
    write_checked(folder / NAME, {**about, "sites": sites})


def read(folder: Path) -> Roster:
    """The roster of a run, checked."""
    found = read_checked(folder / NAME)
    try:
        members = tuple(
            Member(str(one["name"]), int(one["samples"]), str(one["fingerprint"])) for one in found["sites"]
        )
        accepted = tuple(cast(Sequence[str], found["accepted"]))
        return Roster(str(found["run"]), str(found["form"]), int(found["classes"]), members, accepted)
    except (KeyError, TypeError, ValueError) as fault:
        raise DamagedRun(f"{folder / NAME} is damaged: {fault}") from None


@dataclass
class Reach:
    """Where each site can be reached now, and what nodes were refused."""

    node_of: dict[str, str] = field(default_factory=dict)
    """By name."""
    refused: dict[str, str] = field(default_factory=dict)
    """Code and sentence, by node."""

    def place(self, name: str, node: str) -> None:
        """A site is at a node from now on."""
        self.node_of[name] = node
        self.refused.pop(node, None)

    def unknown(self, nodes: Sequence[str]) -> list[str]:
        """Nodes that were never asked who they are."""
        known = {*self.node_of.values(), *self.refused}
        return [node for node in nodes if node not in known]

    def absent(self, names: Sequence[str], nodes: Sequence[str]) -> Mapping[str, str]:
        """Sites that cannot be reached, with why."""
        here = set(nodes)
        return {name: "UNREACHABLE" for name in names if self.node_of.get(name) not in here}
