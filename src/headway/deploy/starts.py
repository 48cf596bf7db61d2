"""What `headway deploy run` tells the server's app, and what the app tells it at its end: files of the operator.

Flower hands the configuration of a run to every site, so only a name goes through it. The rest lies in `STATE/starts`.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from headway import random
from headway.deploy import locks
from headway.deploy.private import append_private, private_folder, write_private
from headway.deploy.terms import Terms
from headway.errors import UserError, shown

STATE = "HEADWAY_DEPLOY_STATE"
"""The variable in the environment of the server's programs that has its state folder."""
KEPT = "start.json"
"""The file of a run's folder that has its last start."""
Setting = str | int | float | bool | None


@dataclass(frozen=True)
class Start:
    """One start of a run: where it is kept, under which terms, and what differs from app.py."""

    name: str
    project: str
    out: str
    terms: Terms
    resume: bool = False
    method: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    track: tuple[str, ...] = ()
    """Trackers that get the records of the run."""
    superlink: str = ""
    authority: str = ""
    run_id: int | None = None
    """Flower's number of the run, once it has one."""


@dataclass(frozen=True)
class Outcome:
    """How a start ended: an exit code of Headway's, and what there is to say."""

    code: int
    line: str = ""


@dataclass(frozen=True)
class Starts:
    """The starts of one server, in its state folder."""

    state: Path

    @property
    def folder(self) -> Path:
        return self.state / "starts"

    def write(self, start: Start) -> None:
        private_folder(self.folder)
        write_private(self.folder / f"{start.name}.json", json.dumps(dataclasses.asdict(start)).encode())

    def one_at_a_time(self) -> AbstractContextManager[None]:
        """A block in which no other command starts a run: the second of two finds the run of the first."""
        private_folder(self.folder)
        return locks.one_at_a_time(self.folder / "lock")

    def read(self, name: str) -> Start:
        """The start of a name; a name comes from outside, so it can be no path."""
        path = self.folder / f"{name}.json"
        if not re.fullmatch(r"[0-9a-f]{1,64}", name) or not path.is_file():
            raise UserError(f"there is no start {shown(name)} in {self.folder}; start runs with: headway deploy run")
        return _start_in(path)

    def forget(self, name: str) -> None:
        """Take back a start that the server never got."""
        (self.folder / f"{name}.json").unlink(missing_ok=True)

    def last_of(self, run: Path) -> Start:
        """The last start of a run folder that the server got; refuses a folder that has none."""
        if (found := self.latest(run)) is None:
            raise UserError(
                f"{run} was not started from {self.state}; give the state folder of its server: --state FOLDER, or "
                "where that is lost, resume it at this one: --new-server"
            )
        return found

    def latest(self, run: Path) -> Start | None:
        """The last start of a run folder that the server got."""
        found = sorted(self.folder.glob("*[0-9a-f].json"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in found:
            start = self.read(path.stem)
            if Path(start.out) == run.resolve() and start.run_id is not None:
                return start
        return None

    def told(self, name: str) -> Told:
        """What the app of a start says."""
        return Told(self.folder / f"{name}.told")

    def end(self, name: str, outcome: Outcome) -> None:
        write_private(self.folder / f"{name}.outcome", json.dumps(dataclasses.asdict(outcome)).encode())

    def outcome(self, name: str) -> Outcome | None:
        """How a start ended; None while it has not."""
        try:
            return Outcome(**json.loads((self.folder / f"{name}.outcome").read_text(encoding="utf-8")))
        except FileNotFoundError:
            return None


def keep_with(run: Path, start: Start) -> None:
    """Write the start into the run's folder: where the server's state folder is lost, the run can go on."""
    write_private(run / KEPT, json.dumps({**dataclasses.asdict(start), "run_id": None}).encode())


def kept_with(run: Path) -> Start:
    """The start that a run's folder keeps."""
    path = run / KEPT
    if not path.is_file():
        raise UserError(f"{run} has no {KEPT}; it is not the folder of a deployment that has begun")
    return dataclasses.replace(_start_in(path), out=str(run.resolve()))


def _start_in(path: Path) -> Start:
    content = json.loads(path.read_text(encoding="utf-8"))
    terms = content.pop("terms")
    terms["accept_data"] = tuple(terms["accept_data"])
    track = tuple(content.pop("track", ()))
    return Start(**content, terms=Terms(**terms), track=track)


@dataclass
class Told:
    """What the server's app says for people, in a file that the operator's command reads."""

    path: Path
    read: int = 0

    def add(self, line: str) -> None:
        append_private(self.path, line)

    def lines(self) -> list[str]:
        """What was not read yet."""
        if not self.path.is_file():
            return []
        whole = self.path.read_text(encoding="utf-8", errors="replace").splitlines()
        new, self.read = whole[self.read :], len(whole)
        return new


def new_name() -> str:
    """A name that nobody can guess."""
    return random.secret(8).hex()


def server_state() -> Path:
    """The state folder of the server whose program this is."""
    place = os.environ.get(STATE)
    if place is None:
        raise UserError("this server was not started by headway deploy serve, so it has no state folder")
    return Path(place)
