"""What an operator does with a running server: admits sites, starts, follows and stops runs. By Flower's commands."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, TypedDict, cast

from headway.deploy.commands import CONNECTION, DATABASE, Address, connection, program, surroundings
from headway.deploy.journal import SiteStatus
from headway.deploy.keys import check_name
from headway.deploy.starts import Outcome, Start, Starts
from headway.errors import MachineError, UserError, shown
from headway.runs.files import write_json
from headway.runs.roster import STATUS

LOOK = 0.5
"""Seconds between two looks at a run's folder."""
SILENCE = 15.0
"""Seconds without news of a run, after which Flower is asked about it."""


FlowerRun = TypedDict("FlowerRun", {"status": str, "network-traffic": Mapping[str, int]}, total=False)
"""A run in the list of Flower's."""


@dataclass(frozen=True)
class Operator:
    """The server, as its operator's commands reach it."""

    superlink: Address
    authority: Path
    state: Path
    """The server's state folder."""

    def check(self) -> None:
        """Refuse a folder that is not a server's."""
        if not (self.state / DATABASE).is_file():
            raise UserError(
                f"{self.state} is not the state folder of a server; give that of headway deploy serve: --state FOLDER"
            )

    def flower(self, *words: str, seconds: float = 120) -> dict[str, object]:
        """What one of Flower's commands answers; what it refuses is a mistake of the user's in one line."""
        self.check()
        around = surroundings(self.state)
        connection(Path(around["FLWR_HOME"]), self.superlink, self.authority)
        command = [program("flwr"), *words, "--format", "json"]
        try:
            ended = subprocess.run(
                command,
                env={**os.environ, **around},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                encoding="utf-8",
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise MachineError(f"{self.superlink} did not answer within {seconds:.0f} s: flwr {words[0]}") from None
        try:
            found = json.loads(ended.stdout)
        except ValueError:
            found = {"success": False, "error-message": ended.stderr.strip() or ended.stdout.strip()}
        if not found.get("success"):
            said = " ".join(str(found.get("error-message", "")).split())[-400:]
            raise UserError(
                f"flwr {words[0]}: {said}" + ("" if "[code" in said else f"; is the server at {self.superlink}?")
            )
        return cast(dict[str, object], found)

    def admit(self, public: Path, name: str) -> str:
        """Let the site of a public key connect; returns its number at Flower's."""
        if not public.is_file():
            raise UserError(
                f"{public} is missing; a site sends its NAME.pub, which headway deploy keys --site NAME made"
            )
        text = public.read_bytes()
        if b"PRIVATE KEY" in text:
            raise UserError(f"{public} is a secret key: it should never have left its site; ask for a new NAME.pub")
        return str(self.flower("supernode", "register", str(public), CONNECTION, "--name", check_name(name))["node-id"])

    def submit(self, start: Start) -> Start:
        """Start a run of Flower's for a start that is written down."""
        starts = Starts(self.state)
        starts.write(start)
        setting = f'{CONNECTION}="{start.name}"'
        try:
            number = self.flower("run", start.project, CONNECTION, "--run-config", setting)["run-id"]
        except (UserError, MachineError):
            starts.forget(start.name)
            raise
        begun = dataclasses.replace(start, run_id=int(str(number)))
        starts.write(begun)
        return begun

    def runs(self, start: Start) -> bool:
        """Whether the run of a start has not ended."""
        return self.run_of(start).get("status", "").startswith(("running", "starting", "pending"))

    def run_of(self, start: Start) -> FlowerRun:
        """What Flower says of the run of a start."""
        found = cast(list[FlowerRun], self.flower("list", CONNECTION, "--run-id", str(start.run_id))["runs"])
        return found[0] if found else {}

    def stop(self, start: Start) -> None:
        """Stop a run; its folder stays, and can be resumed."""
        self.flower("stop", str(start.run_id), CONNECTION)

    def follow(
        self, start: Start, tell: Callable[[str], None], look: Callable[[], bool] = lambda: False
    ) -> Outcome | None:
        """Wait for the end of a start, and tell what happens.

        `look` is called again and again, and ends the waiting where it returns True; then there is no outcome.
        """
        starts, folder, heard = Starts(self.state), Path(start.out), time.monotonic()
        news, told = _news(folder), starts.told(start.name)
        rounds = NewRounds(folder, seen=None if start.resume else 0)

        def tell_news() -> None:
            for line in (*told.lines(), *rounds.lines()):
                tell(line)

        while (outcome := starts.outcome(start.name)) is None:
            tell_news()
            if look():
                return None
            time.sleep(LOOK)
            if (now := _news(folder)) != news:
                news, heard = now, time.monotonic()
            elif time.monotonic() - heard > SILENCE:
                heard = time.monotonic()
                if (status := self.run_of(start).get("status", "gone")).startswith(("finished", "gone")):
                    time.sleep(LOOK)
                    outcome = starts.outcome(start.name) or Outcome(1, f"the server's app has ended: {status}")
                    break
        tell_news()
        return outcome


def _news(folder: Path) -> tuple[int, ...]:
    """When the files of a run were last written."""
    found = []
    for name in (STATUS, "rounds.jsonl", "events.jsonl"):
        try:
            found.append((folder / name).stat().st_mtime_ns)
        except OSError:
            found.append(0)
    return tuple(found)


class Status(TypedDict):
    """Where a deployment stands, as status.json has it."""

    round: int
    rounds: int
    waiting_for: list[str]
    sites: list[SiteStatus]
    void: int
    updated: float
    stopped: NotRequired[bool]
    """Whether the operator stopped the run; a run that goes on writes the file anew."""


def read_status(run: Path) -> Status:
    """The status of a run folder; refuses one that is no deployment."""
    path = run / STATUS
    if not path.is_file():
        raise UserError(f"{shown(str(run))} has no status.json; it is not the folder of a deployment that has begun")
    return cast(Status, json.loads(path.read_text(encoding="utf-8")))


def mark_stopped(run: Path) -> None:
    """Write down that a run was stopped, for whoever watches it; nothing where it had not begun."""
    if (run / STATUS).is_file():
        write_json(run / STATUS, {**read_status(run), "waiting_for": [], "stopped": True})


@dataclass
class NewRounds:
    """The rounds of a run's folder that were not told yet; `seen` is None where those that are there now are known."""

    folder: Path
    seen: int | None = 0

    def __post_init__(self) -> None:
        if self.seen is None:
            self.seen = len(self._lines())

    def _lines(self) -> list[str]:
        path = self.folder / "rounds.jsonl"
        return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []

    def lines(self) -> list[str]:
        """One line for each new round."""
        lines = self._lines()
        new = lines[self.seen or 0 :]
        self.seen = len(lines)
        return [in_a_line(line) for line in new]


def in_a_line(record: str) -> str:
    """A line of rounds.jsonl for people."""
    found = cast(dict[str, object], json.loads(record))
    parts = [f"round {found.get('round')}"]
    clients = found.get("clients")
    if isinstance(clients, list):
        parts.append(f"{len(clients)} site{'s' if len(clients) != 1 else ''} counted")
    absent = found.get("absent")
    if isinstance(absent, list) and absent:
        parts.append("absent: " + ", ".join(f"{one.get('client')} ({one.get('cause')})" for one in absent))
    for name in ("accuracy", "loss", "train_loss"):
        if isinstance(value := found.get(name), float):
            parts.append(f"{name.replace('_', ' ')} {value:.4g}")
            break
    if isinstance(seconds := found.get("seconds_training"), float):
        parts.append(f"{seconds:.1f} s")
    return ", ".join(parts)
