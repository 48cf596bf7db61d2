"""What a deployment tells while it goes on: status.json, written anew at each change, and events.jsonl."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from headway.deploy.terms import Clock
from headway.runs.files import write_json
from headway.runs.roster import STATUS

EVENTS = "events.jsonl"


class SiteStatus(TypedDict):
    """A site as the server sees it."""

    name: str
    index: int
    node: str
    last_seen: float | None
    """Seconds since 1970."""
    counted: int
    """The last round whose upload counted; 0 for none."""
    lost: int
    late: int
    """In how many rounds."""
    code: str
    """Of the last thing that went wrong; empty after an upload that counted."""


@dataclass
class Journal:
    """The two files of a run's folder."""

    folder: Path
    clock: Clock
    names: Sequence[str] = ()
    rounds: int = 0
    round: int = 0
    void: int = 0
    waiting: Sequence[str] = ()
    sites: dict[str, SiteStatus] = field(default_factory=dict)

    def begin(self, names: Sequence[str], rounds: int, counted: Mapping[str, int]) -> None:
        """The sites of the run are known."""
        self.names, self.rounds = names, rounds
        for index, name in enumerate(names):
            self.sites[name] = {
                "name": name,
                "index": index,
                "node": "",
                "last_seen": None,
                "counted": counted.get(name, 0),
                "lost": 0,
                "late": 0,
                "code": "",
            }

    def seen(self, name: str, node: str = "") -> None:
        """Something came from a site."""
        if name in self.sites:
            self.sites[name]["last_seen"] = self.clock.time()
            self.sites[name]["node"] = node or self.sites[name]["node"]

    def counts(self, name: str, round: int) -> None:
        """A site's upload of a round counted."""
        self.sites[name]["counted"], self.sites[name]["code"] = round, ""

    def event(self, round: int, site: str, code: str, text: str = "") -> None:
        """Write down what happened, and to whom; an empty name stands for the run."""
        if site in self.sites:
            self.sites[site]["code"] = code
            self.sites[site]["late"] += code == "LATE"
            self.sites[site]["lost"] += code not in ("LATE", "DOUBLED", "BACK")
        line = {"time": round_off(self.clock.time()), "round": round, "site": site, "code": code, "text": text}
        with (self.folder / EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def write(self) -> None:
        """Write the status as it is now."""
        about = {"round": self.round, "rounds": self.rounds, "void": self.void, "waiting_for": list(self.waiting)}
        sites = [self.sites[name] for name in self.names if name in self.sites]
        write_json(self.folder / STATUS, {**about, "updated": round_off(self.clock.time()), "sites": sites})


def round_off(seconds: float) -> float:
    """A time of day to the millisecond."""
    return round(seconds, 3)
