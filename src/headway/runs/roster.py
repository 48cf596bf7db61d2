"""roster.json: the sites of a deployed run. With it its folder can be read where none of its data is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import numpy as np
import torch
from torch import Tensor

from headway.data import columns
from headway.data.columns import Tensors
from headway.data.federation import Census, Federation, Samples
from headway.errors import DamagedRun
from headway.runs.files import read_checked, read_json, write_checked

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
    """Types and shapes of a sample and its target, as `form_of` writes them."""
    classes: int
    members: tuple[Member, ...]
    tensors: tuple[str, ...]
    """The names of the network's state dict, in its order."""
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

    @property
    def federation(self) -> Federation:
        """The sites as clients of which no sample is here; two blank samples show the form of theirs."""
        blank = blank_samples(self.form)
        sizes = np.asarray(self.sizes, np.int64)
        return Federation(blank, blank, Census(sizes, int(sizes.sum())), self.classes)


def write(folder: Path, roster: Roster) -> None:
    """Write the roster of a run."""
    sites = [{"name": one.name, "samples": one.samples, "fingerprint": one.fingerprint} for one in roster.members]
    about = {"run": roster.run, "form": roster.form, "classes": roster.classes, "accepted": list(roster.accepted)}
    write_checked(folder / NAME, {**about, "tensors": list(roster.tensors), "sites": sites})


def read(folder: Path) -> Roster:
    """The roster of a run, checked."""
    found = read_checked(folder / NAME)
    try:
        members = tuple(
            Member(str(one["name"]), int(one["samples"]), str(one["fingerprint"])) for one in found["sites"]
        )
        accepted, tensors = (tuple(cast(Sequence[str], found[name])) for name in ("accepted", "tensors"))
        return Roster(str(found["run"]), str(found["form"]), int(found["classes"]), members, tensors, accepted)
    except (KeyError, TypeError, ValueError) as fault:
        raise DamagedRun(f"{folder / NAME} is damaged: {fault}") from None


STATUS = "status.json"
"""What a server writes anew at each change, for people; no number of a run is read from it."""


def last_seen(folder: Path) -> dict[str, float]:
    """When the server heard of each site last, in seconds since 1970; nothing of a site that was never heard."""
    try:
        sites = read_json(folder / STATUS)["sites"]
        return {str(one["name"]): float(one["last_seen"]) for one in sites if one["last_seen"] is not None}
    except (DamagedRun, KeyError, TypeError, ValueError):
        return {}


def form_of(samples: Samples) -> str:
    """Types and shapes of a sample and its target, as the server and all sites must have them."""
    sides = (("x", samples.inputs), ("y", samples.y))
    return json.dumps([[side, _structure(tensors), _parts(tensors)] for side, tensors in sides])


def _structure(tensors: Tensors) -> str:
    return "one" if isinstance(tensors, Tensor) else "tuple" if isinstance(tensors, tuple) else "named"


def _parts(tensors: Tensors) -> list[list[object]]:
    return [[name, _kind(part), list(part.shape[1:])] for name, part in columns.parts(tensors).items()]


def _kind(part: Tensor) -> str:
    """How numbers are read: bytes are normalised, whole numbers are classes or tokens, others are taken as they are."""
    if part.dtype == torch.uint8:
        return "bytes"
    return "numbers" if part.is_floating_point() else "whole"


_TYPES = {"bytes": torch.uint8, "numbers": torch.float32, "whole": torch.int64}


def blank_samples(form: str) -> Samples:
    """Two samples of a form, all zeros."""
    sides: list[Tensors] = []
    for _, structure, parts in json.loads(form):
        made = {name: torch.zeros((2, *shape), dtype=_TYPES[kind]) for name, kind, shape in parts}
        sides.append(made[""] if structure == "one" else tuple(made.values()) if structure == "tuple" else made)
    return Samples(sides[0], sides[1])
