"""Other simulators, each in its own process, which plays one round at a time on request.

pfl-research and Flower do the same work through their public interfaces, with the plain loop's variant, arithmetic and
data: images are kept on the device as bytes, and a client's step is the plain loop's. Only `flower-tutorial` reads data
and steps as Flower's tutorial does.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Protocol

import torch

from headway.bench.loop import Variant, wait_for
from headway.malloc import KEEPING

CLOSING_SECONDS = 30
EXTRA = "pip install 'headway[bench]'"


@dataclass(frozen=True)
class Peer:
    """A simulator that may be installed."""

    title: str
    modules: tuple[str, ...]
    """What must be installed for it."""
    layouts: bool = True
    """Whether it uses the plain loop's layout of images in memory."""

    @property
    def missing(self) -> str | None:
        """Why it cannot be measured, in one line; None where it can."""
        absent = [module for module in self.modules if find_spec(module) is None]
        return f"{self.title} is not installed; {EXTRA} brings it" if absent else None


PEERS = {
    "pfl": Peer("pfl-research", ("pfl",)),
    "flower": Peer("Flower's simulation", ("flwr", "ray")),
    "flower-tutorial": Peer("Flower's simulation", ("flwr", "ray"), layouts=False),
}


class PeerFailed(RuntimeError):
    """The other simulator ended too early; the message is the last line of its standard error."""


@dataclass(frozen=True)
class PeerJob:
    """The work of a simulator's process, sent to it as its argument."""

    peer: str
    workload: str
    device: str
    variant: Variant

    def written(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def read(cls, text: str) -> PeerJob:
        fields = json.loads(text)
        return cls(**{**fields, "variant": Variant(**fields["variant"])})


class PeerEngine:
    """A simulator's process as an engine: starts it, has it play rounds, and ends it."""

    def __init__(self, job: PeerJob) -> None:
        self.name, self.precision = job.peer, job.variant.precision
        self.options: dict[str, str] = dict(job.variant.options)
        self.errors = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115 — closed in `close`
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headway.bench.peers", job.written()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env={
                **{name: str(size) for name, size in KEEPING.items()},  # as `headway` starts itself
                **os.environ,
                "RAY_DEDUP_LOGS": "0",
                "FLWR_TELEMETRY_ENABLED": "0",
                "PFL_PYTORCH_DEVICE": job.device,
            },
        )
        try:
            self._ready()
        except BaseException:  # Ctrl-C, too
            self.close()
            raise

    def play(self) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except OSError:
            raise PeerFailed(self._last_words()) from None
        self._ready()

    def _ready(self) -> None:
        assert self.process.stdout is not None
        if self.process.stdout.readline() != "ready\n":
            raise PeerFailed(self._last_words())

    def _last_words(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(CLOSING_SECONDS)
        self.errors.seek(0)
        lines = [line.strip() for line in self.errors.read().splitlines() if line.strip()]
        return lines[-1] if lines else f"it ended with status {self.process.returncode}"

    def close(self) -> None:
        """Let the process end by itself, as it also ends those that it started; Ctrl-C meanwhile kills it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):  # it may be gone already
            self.process.stdin.close()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(CLOSING_SECONDS)
        finally:
            self.process.kill()  # does nothing where it has ended
            self.process.wait()
            self.process.stdout.close()
            self.errors.close()


class BetweenRounds(Protocol):
    """Whoever waits, or looks at the clock, between two rounds."""

    def wait(self) -> None: ...


class Gate:
    """Stops a simulator, in its own process, between two rounds: reports `ready`, and waits for `go`."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what a simulator prints must not be taken for an answer

    def wait(self) -> None:
        wait_for(self.device)
        self.answers.write("ready\n")
        self.answers.flush()
        if sys.stdin.readline() != "go\n":
            raise SystemExit(0)


def main() -> None:
    """The simulator's process; the last line on standard error says why it failed."""
    job = PeerJob.read(sys.argv[1])
    gate = Gate(torch.device(job.device))
    try:
        if job.peer == "pfl":
            from headway.bench.peer_pfl import play
        else:
            from headway.bench.peer_flower import play
        with job.variant.arithmetic():
            play(job, gate)
    except Exception as fault:
        lines = str(fault).strip().splitlines() or [""]
        print(f"{type(fault).__name__}: {lines[0]}", file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
