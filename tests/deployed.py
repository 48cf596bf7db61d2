"""Sites and a server in one process, on a clock of their own; and the simulation that a deployment is held to."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

import headway
from conftest import NETWORKS, unequal_clients
from headway.deploy.apps import ServerApp, SiteApp, SitePlace
from headway.deploy.coordinator import deploy
from headway.deploy.records import Record
from headway.deploy.site import answer
from headway.deploy.terms import Clock, Terms
from headway.deploy.transport import Faults, InProcess
from headway.methods.catalogue import METHODS
from headway.random import built
from headway.runs.result import Result

_EVERYBODY = ("fednag", "fedac", "scaffnew")
DEPLOYABLE = [name for name in METHODS if name not in ("csgd", "cnag", "snoo", *_EVERYBODY)]
SIZES = (13, 21, 8, 5)
SETTINGS: dict[str, object] = {"rounds": 4, "epochs": 2, "batch_size": 5, "rate": 0.1, "precision": "fp64"}
_TOKENS = itertools.count(1)


class HandClock(Clock):
    """Time that passes only where a test lets it pass."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def time(self) -> float:
        return 1_000_000 + self.at

    def token(self) -> str:
        return f"{next(_TOKENS):x}"

    def wait(self, seconds: float) -> None:
        self.at += seconds


class Ticking:
    """A site's clock, on which every look takes a second."""

    def __init__(self, pace: float) -> None:
        self.at, self.pace = 0.0, pace

    def __call__(self) -> float:
        self.at += self.pace
        return self.at


def network(name: str) -> Callable[[], nn.Module]:
    return lambda: built(NETWORKS[name], 7, "test")


@dataclass
class Deployment:
    """A server and four sites, whose data and folders lie in one place."""

    place: Path
    method: Any = "fedavg"
    net: str = "norm_free"
    settings: Mapping[str, object] = field(default_factory=dict)
    terms: Terms = Terms(sites=4, deadline=60.0)  # noqa: RUF009 — it is frozen
    faults: Faults = field(default_factory=Faults)
    paces: Mapping[int, float] = field(default_factory=dict)
    """Seconds that each look at its clock takes a site."""
    model: Callable[[], nn.Module] | None = None
    """Makes the network, where it is not the one that `net` names."""

    def __post_init__(self) -> None:
        self.data = unequal_clients(SIZES)
        self.clock = HandClock()
        self.apps = {f"s{i}": SiteApp(self.made, one) for i, one in enumerate(self.data["clients"])}
        self.seen: list[tuple[str, Record, Record]] = []
        """Every message to a site, and its answer."""
        self.transport = InProcess(
            {f"node-{name}": self._site(name) for name in self.apps}, self.faults, wait=self.clock.wait
        )

    @property
    def made(self) -> Callable[[], nn.Module]:
        return self.model or network(self.net)

    def _site(self, name: str) -> Callable[[Record], Record]:
        clock = Ticking(self.paces.get(int(name[1:]), 0.0))

        def site(asked: Record) -> Record:
            found = answer(self.apps[name], SitePlace(name, self.state(name), clock), asked)
            self.seen.append((name, asked, found))
            return found

        return site

    def state(self, name: str) -> Path:
        return self.place / "states" / name

    @property
    def out(self) -> Path:
        return self.place / "run"

    @property
    def server(self) -> ServerApp:
        settings = {**SETTINGS, **self.settings}
        return ServerApp(self.method, self.made, self.out, settings, test=self.data["test"])

    def run(self, *, resume: bool = False, **changes: Any) -> Result:
        """Deploy, perhaps with other terms."""
        quiet = Quiet()
        result = deploy(
            self.server, self.transport, replace(self.terms, **changes), resume=resume, observer=quiet, clock=self.clock
        )
        self.told = quiet.told
        return result

    def replayed(self, **changes: Any) -> Result:
        """The simulation of the same attendance."""
        settings = {"participation": 1.0, **SETTINGS, **self.settings, **changes}
        if "cohort_size" in settings:
            settings.pop("participation")
        settings.pop("over_selection", None)
        return headway.simulate(
            self.method,
            model=built(self.made, 0, "model"),
            clients=self.data["clients"],
            test=self.data["test"],
            attendance=self.out,
            executor="serial",
            device="cpu",
            observer=Quiet(),
            **settings,
        )


class Quiet:
    """An observer that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def begins(self, experiment: object, done: int, executor: str) -> None:
        pass

    def round(self, record: object) -> None:
        pass

    def tell(self, message: str) -> None:
        self.told.append(message)


ELSEWHERE_ALONE = {"absent", "void", "bytes_void", "bytes_first", "bytes_wire", "ask"}
"""Numbers that a simulation does not have."""


def assert_same(deployed: Result, simulated: Result) -> None:
    """Models and records agree to the last bit, but for times and for what only one of the two can know."""
    pairs = zip(deployed.model.state_dict().items(), simulated.model.state_dict().items(), strict=True)
    for (name, mine), (_, theirs) in pairs:
        assert torch.equal(mine, theirs), f"{name} differs by {(mine - theirs).abs().max():.1e}"
    for mine, theirs in zip(deployed.records, simulated.records, strict=True):
        assert _compared(mine) == _compared(theirs)


def _compared(record: Mapping[str, object]) -> dict[str, object]:
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in record.items()
        if "seconds" not in name and not name.startswith("client_") and name not in ELSEWHERE_ALONE
    } | {"client_steps": record.get("client_steps")}
