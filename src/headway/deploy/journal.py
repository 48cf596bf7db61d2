"""What a deployment tells while it goes on: status.json, written anew at each change, and events.jsonl."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

from headway.deploy.terms import Clock
from headway.runs.files import write_json
from headway.runs.roster import STATUS

EVENTS = "events.jsonl"
LATE = "LATE"
"""The code of an answer that came when it was not waited for any more."""


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
    """In how many rounds of the run it was asked for, or to be asked, and did not count."""
    late: int
    """To how many rounds its answers came too late."""
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
    late: set[tuple[str, int]] = field(default_factory=set)
    """Sites, and rounds to which their answers came too late."""

    def begin(self, names: Sequence[str], rounds: int, counted: Mapping[str, int], lost: Mapping[str, int]) -> None:
        """The sites of the run are known, with the last round of each that counted, and in how many it was lost."""
        self.names, self.rounds, self.late = names, rounds, set(late_answers(self.folder))
        for index, name in enumerate(names):
            self.sites[name] = {
                "name": name,
                "index": index,
                "node": "",
                "last_seen": None,
                "counted": counted.get(name, 0),
                "lost": lost.get(name, 0),
                "late": self._late(name),
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

    def misses(self, name: str) -> None:
        """A round has ended in which a site did not count."""
        self.sites[name]["lost"] += 1

    def event(self, round: int, site: str, code: str, text: str = "") -> None:
        """Write down what happened, and to whom; an empty name stands for the run."""
        if site in self.sites:
            self.sites[site]["code"] = code
        if site in self.sites and code == LATE:
            self.late.add((site, round))
            self.sites[site]["late"] = self._late(site)
        line = {"time": round_off(self.clock.time()), "round": round, "site": site, "code": code, "text": text}
        with (self.folder / EVENTS).open("a", encoding="utf-8") as file:
            file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def _late(self, name: str) -> int:
        return sum(site == name for site, _ in self.late)

    def write(self) -> None:
        """Write the status as it is now."""
        about = {"round": self.round, "rounds": self.rounds, "void": self.void, "waiting_for": list(self.waiting)}
        sites = [self.sites[name] for name in self.names if name in self.sites]
        write_json(self.folder / STATUS, {**about, "updated": round_off(self.clock.time()), "sites": sites})


def late_answers(folder: Path) -> Iterator[tuple[str, int]]:
    """Sites, and rounds to which their answers came too late, as the events of a run's folder have them."""
    path = folder / EVENTS
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []:
        try:
            event = json.loads(line)
        except ValueError:
            continue  # a kill left half of it
        if isinstance(event, dict) and event.get("code") == LATE and event.get("site"):
            yield str(event["site"]), int(event["round"])


def round_off(seconds: float) -> float:
    """A time of day to the millisecond."""
    return round(seconds, 3)
