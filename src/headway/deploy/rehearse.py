"""A whole federation on one machine: server, sites, keys, faults; then the simulator, and the gap between the two."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from headway.deploy import commands, flower, keys, operate, project, units
from headway.deploy.commands import Address, Command
from headway.deploy.faults import Kill
from headway.deploy.keys import ServerFiles
from headway.deploy.loading import Apps, check_method, load
from headway.deploy.operate import Operator
from headway.deploy.processes import Child, Stage, free_ports, listens, wait_until
from headway.deploy.replay import gap, replay
from headway.deploy.starts import Outcome, Setting, Start, new_name
from headway.deploy.strangers import strangers
from headway.deploy.terms import Terms
from headway.engine.experiment import Experiment
from headway.errors import MachineError, UserError
from headway.records import RoundRecord
from headway.runs.given import checked_method
from headway.runs.roster import STATUS
from headway.runs.roster import read as read_roster

LIMITS = {"fp64": 1e-9}
LIMIT = 1e-5
"""How far a run may be from its simulation, where its precision has no limit of its own."""
STARTING = 120.0
"""Seconds that a part has until it answers."""
BACK = 65.0
"""Seconds after which a site that was killed is started again: the server takes it for connected until then."""
HOST = "localhost"
Tell = Callable[[str], None]


@dataclass(frozen=True)
class Plan:
    """What is to be played."""

    project: Path
    sites: int
    out: Path
    method: str | None = None
    settings: Mapping[str, Setting] = field(default_factory=dict)
    kills: tuple[Kill, ...] = ()
    stranger: bool = False
    proxy: bool = False
    keep: bool = False
    deadline: float = 180.0

    @property
    def terms(self) -> Terms:
        """Where nobody is killed, every site has to answer in every round."""
        return Terms(self.sites, wait=300.0, deadline=self.deadline, quorum=1 if self.kills else self.sites)


@dataclass(frozen=True)
class Rehearsed:
    """How it went."""

    gap: float
    limit: float
    folder: Path
    seconds: float
    refused: bool
    """Whether everybody was refused who had to be."""

    @property
    def good(self) -> bool:
        return self.gap <= self.limit and self.refused


def rehearse(plan: Plan, tell: Tell) -> Rehearsed:
    """Play it, end everything that was started, and compare with the simulator."""
    began = time.monotonic()
    apps = load(plan.project)
    data = project.rehearsal_data(plan.project / project.read_federation(plan.project).rehearsal, plan.sites)
    check_method(apps.server, plan.method)
    if checked_method(plan.method or apps.server.method).guards:
        raise UserError("the noise of +dp is secret in a deployment, so no simulation repeats it; rehearse without +dp")
    if plan.out.exists():
        raise UserError(f"{plan.out} is there already; give another folder: --out NEW")
    with Stage(plan.keep) as stage:
        scene = Scene.built(stage, plan, data, tell)
        refused = scene.check_strangers() if plan.stranger else True
        refused &= scene.check_proxy()
        scene.play()
        if not stage.end():
            raise MachineError("a program of the rehearsal could not be ended")
        tell("everything that was started has ended; the simulator plays the same attendance")
        found = _compared(plan, apps, data, stage.folder / "simulated", tell)
        if plan.keep:
            tell(f"keys, logs and states are kept in {stage.folder}")
    return Rehearsed(*found, plan.out, time.monotonic() - began, refused)


@dataclass(frozen=True)
class _Simulated:
    """Watches the simulation, whose rounds were all told already."""

    say: Tell

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        pass

    def round(self, record: RoundRecord) -> None:
        pass

    def tell(self, message: str) -> None:
        self.say(message)


def _compared(plan: Plan, apps: Apps, data: Mapping[str, Path], out: Path, tell: Tell) -> tuple[float, float]:
    """The gap between the run's model and the simulator's, and how large it may be."""
    server = flower.with_changes(apps.server, str(plan.out), plan.method, plan.settings)
    datasets = [flower.read(apps.site.data, str(data[name])) for name in read_roster(plan.out).names]
    if server.test is None and server.settings.get("client_test") is None:
        server = replace(server, test=datasets[0])  # the simulator wants one to judge by; it changes no model
    result = replay(server, datasets, plan.out, out=out, observer=_Simulated(tell))
    return gap(plan.out, result), LIMITS.get(result.scenario.precision, LIMIT)


@dataclass
class Scene:
    """The parts of a rehearsal, while they run."""

    stage: Stage
    plan: Plan
    tell: Tell
    files: ServerFiles
    link: Command
    site: dict[str, Command]
    operator: Operator
    door: Address
    """Where sites connect: the SuperLink, or the proxy before it."""
    back: dict[str, float] = field(default_factory=dict)
    """When a site that was killed is started again."""
    done: set[Kill] = field(default_factory=set)

    @classmethod
    def built(cls, stage: Stage, plan: Plan, data: Mapping[str, Path], tell: Tell) -> Scene:
        """Make certificates and keys, start the server and admit and start every site."""
        files = keys.make_server_files(stage.folder / "keys", [HOST, "127.0.0.1"])
        state = keys.secret_folder(stage.folder / "server")
        port, proxy_port, *own = free_ports(2 + len(data))
        address = Address("127.0.0.1", port)
        door = Address(HOST, proxy_port) if plan.proxy else address
        calm = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1")}
        link = commands.superlink(files, address, state)
        link = replace(link, environment={**link.environment, **calm})
        scene = cls(stage, plan, tell, files, link, {}, Operator(address, files.authority, state), door)
        scene.start_server(proxy_port)
        for (name, place), own_port in zip(data.items(), own, strict=True):
            secret, public = keys.make_site_keys(stage.folder / "sites" / name, name)
            scene.operator.admit(public, name)
            home = keys.secret_folder(stage.folder / "sites" / name / "state")
            site = commands.Site(name, secret, files.authority, door, home, place.resolve(), own_port)
            command = commands.supernode(site)
            scene.site[name] = replace(command, environment={**command.environment, **calm})
            stage.start(name, scene.site[name])
        tell(f"{len(data)} sites have their own keys and are admitted: {', '.join(data)}")
        return scene

    def start_server(self, proxy_port: int = 0) -> None:
        """Start the SuperLink, and the proxy where one is wanted and not yet there."""
        child = self.stage.start("link", self.link)
        self._answers(child, self.operator.superlink.port)
        if self.plan.proxy and proxy_port:
            self._start_proxy(proxy_port)
        where = f"through a proxy at {self.door}" if self.plan.proxy else f"at {self.door}"
        self.tell(f"server: {where}, TLS, sites known by their keys")

    def _start_proxy(self, port: int) -> None:
        folder = self.stage.folder / "proxy"
        folder.mkdir(mode=0o700)
        rule = units.proxy(self.files, Address("127.0.0.1", port), HOST, self.operator.superlink)
        path = folder / "nginx.conf"
        path.write_text(units.own_nginx(folder, rule), encoding="utf-8")
        command = Command((commands.nginx(), "-p", str(folder), "-c", str(path)))
        self._answers(self.stage.start("proxy", command), port)

    def _answers(self, child: Child, port: int) -> None:
        if not wait_until(lambda: listens(port), STARTING, [child]):
            raise MachineError(f"{child.name} did not answer within {STARTING:.0f} s: {child.last_words}")

    # ── checks ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def check_strangers(self) -> bool:
        """Whether everybody is refused who has no business here."""
        refused = True
        for stranger in strangers(self.stage, self.files, self.door):
            self.tell(str(stranger))
            refused &= stranger.refused
        return refused

    def check_proxy(self) -> bool:
        """Whether a site can reach what it needs through the proxy, and nothing else."""
        if not self.plan.proxy:
            return True
        from headway.deploy.doctor import examine

        findings = list(examine(self.door, self.files.authority, None, None, at_site=True))
        for finding in findings:
            self.tell(f"doctor: {finding}")
        return all(finding.good for finding in findings)

    # ── the run ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def play(self) -> None:
        """Run the method to its end, killing what is to be killed and going on."""
        plan, terms = self.plan, self.plan.terms
        start = Start(
            new_name(),
            str(plan.project.resolve()),
            str(plan.out.resolve()),
            terms,
            method=plan.method,
            settings=plan.settings,
        )
        self.tell("the run begins")
        outcome = self.operator.follow(self.operator.submit(start), self.tell, self.look)
        while outcome is None:
            self.tell("the run is resumed from its checkpoint")
            start = replace(start, name=new_name(), resume=True)
            outcome = self.operator.follow(self.operator.submit(start), self.tell, self.look)
        self.raise_failure(outcome)
        if missing := [str(kill) for kill in plan.kills if kill not in self.done]:
            raise MachineError(f"the run ended before {', '.join(missing)} could be killed")

    def raise_failure(self, outcome: Outcome) -> None:
        if outcome.code == 2:
            raise UserError(outcome.line)
        if outcome.code:
            raise MachineError(f"{outcome.line}; the logs say more: rehearse again with --keep")

    def look(self) -> bool:
        """Start sites again, and kill; True where the server's app was killed."""
        for name, moment in list(self.back.items()):
            if time.monotonic() > moment:
                del self.back[name]
                self.stage.start(name, self.site[name])
                self.tell(f"{name} is started again")
        if not (self.plan.out / STATUS).is_file():
            return False
        status = operate.read_status(self.plan.out)
        for kill in self.plan.kills:
            if kill not in self.done and kill.round == status["round"] and self.can(kill, status["waiting_for"]):
                self.done.add(kill)
                return self.carry_out(kill)
        return False

    def can(self, kill: Kill, waiting_for: list[str]) -> bool:
        """Whether the round waits for the site that is to be killed, or for anybody."""
        return bool(waiting_for) if not kill.site else list(self.site)[kill.site - 1] in waiting_for

    def carry_out(self, kill: Kill) -> bool:
        """Kill a part; True where the run has to be resumed."""
        if kill.part == "site":
            name = list(self.site)[kill.site - 1]
            self.stage.kill(name)
            self.back[name] = time.monotonic() + BACK
            self.tell(f"round {kill.round}: {name} was killed; it is started again after {BACK:.0f} s")
            return False
        if kill.part == "server":
            if not self.stage.kill_program("link", "flwr-serverapp"):
                raise MachineError("the server's app was not found, so it could not be killed")
            self.tell(f"round {kill.round}: the server's app was killed")
            return True
        self.stage.kill("link")
        self.tell(f"round {kill.round}: the SuperLink was killed, with the server's app")
        self.start_server()
        return True
