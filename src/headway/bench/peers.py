"""Other simulators, each in a process of its own that plays one round whenever it is told to.

pfl-research and Flower do the same work through their public interfaces, with the plain loop's variant, arithmetic and
data: the images lie on the device as bytes, and a client's step is the plain loop's. Only `flower-tutorial` reads and
steps as Flower's tutorial does.
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
from typing import Any

import torch

from headway.bench.loop import Variant, settle
from headway.malloc import KEEPING

CLOSING_SECONDS = 30
EXTRA = "pip install 'headway[bench]'"


@dataclass(frozen=True)
class Peer:
    """A simulator that may be installed."""

    title: str
    modules: tuple[str, ...]
    """All of them must be there."""
    layouts: bool = True
    """Whether it takes the plain loop's layout of images in memory."""

    @property
    def missing(self) -> str | None:
        """Why it cannot be measured, in one line."""
        absent = [module for module in self.modules if find_spec(module) is None]
        return f"{self.title} is not installed; {EXTRA} brings it" if absent else None


PEERS = {
    "pfl": Peer("pfl-research", ("pfl",)),
    "flower": Peer("Flower's simulation", ("flwr", "ray")),
    "flower-tutorial": Peer("Flower's simulation", ("flwr", "ray"), layouts=False),
}


class PeerFailed(RuntimeError):
    """The other simulator ended before it was asked to; the message is the last thing it said."""


@dataclass(frozen=True)
class Order:
    """What a peer's process is asked to do."""

    peer: str
    workload: str
    device: str
    variant: Variant

    def written(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @classmethod
    def read(cls, text: str) -> Order:
        fields = json.loads(text)
        return cls(**{**fields, "variant": Variant(**fields["variant"])})


class PeerEngine:
    """The near side: starts the process, lets it play, ends it."""

    def __init__(self, order: Order) -> None:
        self.name, self.precision = order.peer, order.variant.precision
        self.options: dict[str, Any] = dict(order.variant.options)
        self.said = tempfile.TemporaryFile(mode="w+", errors="replace")  # noqa: SIM115 — closed in `close`
        self.process = subprocess.Popen(
            [sys.executable, "-m", "headway.bench.peers", order.written()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.said,
            text=True,
            env={
                **{name: str(size) for name, size in KEEPING.items()},  # as in this process, if it has the command
                **os.environ,
                "RAY_DEDUP_LOGS": "0",
                "FLWR_TELEMETRY_ENABLED": "0",
                "PFL_PYTORCH_DEVICE": order.device,
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
        self.said.seek(0)
        lines = [line.strip() for line in self.said.read().splitlines() if line.strip()]
        return lines[-1] if lines else f"it ended with status {self.process.returncode}"

    def close(self) -> None:
        """Let it end by itself: it takes the processes it started along. Ctrl-C meanwhile kills it."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        with contextlib.suppress(OSError):  # it may be gone already
            self.process.stdin.close()
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(CLOSING_SECONDS)
        finally:
            self.process.kill()  # nothing happens where it has ended
            self.process.wait()
            self.process.stdout.close()
            self.said.close()


class Gate:
    """The far side: between two rounds, says that it is ready and waits for the word to go on."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what a simulator prints is no answer

    def wait(self) -> None:
        settle(self.device)
        self.answers.write("ready\n")
        self.answers.flush()
        if sys.stdin.readline() != "go\n":
            raise SystemExit(0)


def main() -> None:
    """A peer's process. A failure is its last line on standard error."""
    order = Order.read(sys.argv[1])
    gate = Gate(torch.device(order.device))
    try:
        if order.peer == "pfl":
            from headway.bench.peer_pfl import play
        else:
            from headway.bench.peer_flower import play
        with order.variant.arithmetic():
            play(order, gate)
    except Exception as fault:
        lines = str(fault).strip().splitlines() or [""]
        print(f"{type(fault).__name__}: {lines[0]}", file=sys.stderr, flush=True)
        sys.exit(1)


if __name__ == "__main__":
    main()
