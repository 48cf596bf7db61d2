"""`deploy`: a run whose clients are sites at other places. Its folder is that of any run.

    census ─▶ roster.json ─▶ round: ask, wait, aggregate, evaluate ─▶ checkpoint ─▶ round …

The rounds, the checkpoints, callbacks and trackers are those of a simulation; `remote.Sites` stands in the place of
the executor. The versions of the clients' states that counted are in the rounds' records, so the folder is all that a
server needs to go on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from pathlib import Path

from headway.deploy import census
from headway.deploy.apps import ServerApp
from headway.deploy.attempt import counted_in, lost_in
from headway.deploy.binding import Common, method_digest, model_digest, server_experiment
from headway.deploy.census import Expected
from headway.deploy.codes import Code, Refused
from headway.deploy.deployable import check
from headway.deploy.journal import Journal
from headway.deploy.messages import Present
from headway.deploy.remote import POLL, Parties, Sites
from headway.deploy.roster import Reach, in_order
from headway.deploy.terms import Clock, Terms
from headway.deploy.transport import Ask, Transport
from headway.engine.experiment import Experiment
from headway.errors import UserError
from headway.methods.method import Method
from headway.records import RoundRecord
from headway.runs import folder as folders
from headway.runs import roster
from headway.runs.callbacks.hooks import Callbacks, hooked
from headway.runs.callbacks.of_run import every_callback
from headway.runs.driver import drive
from headway.runs.files import as_path, slug
from headway.runs.given import checked_method
from headway.runs.job import Job
from headway.runs.load import loaded
from headway.runs.observer import Observer, as_observer
from headway.runs.reserve import check_free, reserve
from headway.runs.result import Result
from headway.runs.resume import lengthen
from headway.runs.roster import Member, Roster, form_of
from headway.runs.trackers.tracking import trackers
from headway.scenario import Scenario


def deploy(
    app: ServerApp,
    transport: Transport,
    terms: Terms,
    *,
    resume: bool = False,
    observer: Observer | None = None,
    callbacks: Callbacks = (),
    track: str | Sequence[str] = (),
    clock: Clock | None = None,
) -> Result:
    """Run a method over sites, from the census to the last round; `resume` goes on from its folder's checkpoint."""
    watching, called, seen_by = trackers(track, kept=True), hooked(callbacks), as_observer(observer)
    folder, before = _place(app, resume)
    method, sizes = checked_method(app.method), [1] * terms.sites if before is None else before.sizes
    scenario = _settings(app, method)
    check(method, scenario, len(sizes), terms.quorum)
    experiment = server_experiment(app, scenario, method, sizes)
    every_callback(experiment, called, watching)
    if before is not None:
        _check_not_shorter(folder, scenario)
        if folders.finished(folder) and folders.scenario(folder).rounds == scenario.rounds:
            return loaded(experiment, folder)
    time = clock or Clock()
    expected = _expected(_run(folder, before, time), experiment, app.test is not None)
    parties = Parties(transport, terms, time, expected, app.test is not None, seen_by.tell)
    found, reach = _census(parties, before)
    now = _roster(experiment, expected, found) if before is None else _admitted(before, found, reach, parties)
    if now.sizes != sizes or app.test is None:
        check(method, scenario, len(now.sizes), terms.quorum)
        experiment = server_experiment(app, scenario, method, now.sizes, now.form)
    _check_released(experiment, folder, found)
    _claim(folder, experiment.scenario, resume)
    roster.write(folder, now)
    parties = replace(parties, expected=replace(expected, form=now.form))
    sites = _sites(experiment, folder, now, reach, parties)
    changed = before is not None and now.accepted != before.accepted
    watched = _Watching(seen_by, sites)
    return drive(Job(experiment, folder, watched, called, watching, accept_changes=changed, remote=sites))


def _place(app: ServerApp, resume: bool) -> tuple[Path, Roster | None]:
    """The folder of a run, and the roster that it began with; None where no census was done."""
    folder = as_path("out", app.out)
    if not resume:
        check_free(folder)
        return folder, None
    if (folder / roster.NAME).is_file():
        return folder, roster.read(folder)
    if not (folder / "scenario.toml").is_file():
        raise UserError(f"{folder} is not the folder of a deployment; it has no {roster.NAME}")
    return folder, None


def _run(folder: Path, before: Roster | None, time: Clock) -> str:
    """The name by which sites know a run."""
    if before is not None:
        return before.run
    return f"{slug(folder.absolute().name)[:60].lstrip('.-_+=') or 'run'}-{time.token()}"


def _claim(folder: Path, scenario: Scenario, resume: bool) -> None:
    """Make the folder of a new run, or give one that goes on the rounds that it is to have."""
    if not resume:
        reserve(folder, scenario)
    elif scenario.rounds > folders.scenario(folder).rounds:
        lengthen(folder, scenario.rounds)


def _check_not_shorter(folder: Path, scenario: Scenario) -> None:
    """Refuse fewer rounds than a run has: it would be taken for finished, and never go on."""
    if (whole := folders.scenario(folder).rounds) > scenario.rounds:
        raise UserError(
            f"rounds is {scenario.rounds}, but {folder} is a run of {whole} rounds; it can be given more, not fewer: "
            "to end it early, stop it"
        )


def _settings(app: ServerApp, method: Method) -> Scenario:
    """The scenario of a deployment: every site in every round, unless settings say otherwise."""
    given = dict(app.settings)
    for name in ("data", "partition", "clients", "data_dir", "split_seed", "seeds"):
        if name in given:
            raise UserError(f"{name} is a setting of simulations; the sites bring their own data")
    if not given.keys() & {"participation", "cohort_size", "sampling"}:
        given["participation"] = 1.0
    if isinstance(app.model, str):
        given["model"] = app.model
    given = {"device": "cpu", "checkpoint_every": 1, **given, "method": method.name}
    scenario = Scenario().with_settings(given)
    return scenario.changed(precision="fp32") if scenario.precision == "auto" else scenario


def _expected(run: str, experiment: Experiment, has_samples: bool) -> Expected:
    """What every site must have."""
    common = Common.of(run, experiment.method, experiment.scenario, experiment.federation.classes)
    method, model = method_digest(experiment.method), model_digest(experiment)
    return Expected(common, method, model, form_of(experiment.federation.train) if has_samples else None)


@dataclass(frozen=True)
class _Watching:
    """The user's observer; the sites hear of each round that is saved."""

    observer: Observer
    sites: Sites

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        self.observer.begins(experiment, done, executor)

    def round(self, record: RoundRecord) -> None:
        self.sites.ended(record)
        self.observer.round(record)

    def tell(self, message: str) -> None:
        self.observer.tell(message)


def _sites(experiment: Experiment, folder: Path, now: Roster, reach: Reach, parties: Parties) -> Sites:
    """The sites of a run, with what counted up to its checkpoint."""
    journal = Journal(folder, parties.clock)
    sites = Sites(experiment, now, reach, parties, journal)
    done = folders.read(folder).rounds.records if folders.manifest(folder) is not None else []
    sites.counted = counted_in(done)
    rounds = {now.names[client]: int(each[-1].partition(".")[0]) for client, each in sites.counted.items()}
    lost = {now.names[client]: count for client, count in lost_in(done).items()}
    journal.begin(now.names, experiment.scenario.rounds, rounds, lost)
    journal.round = len(done)
    for name, node in reach.node_of.items():
        journal.seen(name, node)
    for why in reach.refused.values():
        code, _, text = why.partition(": ")
        journal.event(len(done) + 1, _named_in(text, now), code, text)
    journal.write()
    return sites


def _named_in(text: str, now: Roster) -> str:
    """The site of the run that a refusal names; empty for a stranger."""
    return next((name for name in now.names if f"site '{name}'" in text), "")


# ── census ───────────────────────────────────────────────────────────────────────────────────────────────────────────


AGAIN = 5.0
"""Seconds after which a node that could not be reached is asked again who it is."""


def _to_ask(nodes: Sequence[str], asked: Set[str], again: Mapping[str, float], now: float) -> list[str]:
    """Nodes that are not being asked, and were not asked a moment ago."""
    return [node for node in nodes if node not in asked and again.get(node, 0.0) <= now]


def _census(parties: Parties, before: Roster | None) -> tuple[dict[str, Present], Reach]:
    """Ask every node who it is, until all sites have answered or the waiting is over."""
    transport, terms, clock, expected = parties.transport, parties.terms, parties.clock, parties.expected
    wanted, end = terms.sites if before is None else len(before.members), clock.now() + terms.wait
    reach, found, pending, again, asked = Reach(), dict[str, Present](), dict[str, str](), dict[str, float](), 0
    start = clock.token()
    while True:
        asks = []
        for node in _to_ask(reach.unknown(transport.nodes()), set(pending.values()), again, clock.now()):
            asked += 1
            pending[f"{start}-census-{asked}"] = node
            asks.append(Ask(node, census.ask(expected.common, terms.accept_data), f"{start}-census-{asked}"))
        if asks:
            transport.send(asks, terms.wait)
        for answer in transport.receive(POLL):
            place = pending.pop(answer.id, None)
            if place is None:
                continue
            try:
                one = census.present(answer.record, answer.fault, expected)
                census.check_name(one, reach)
            except Refused as refused:
                if refused.code == Code.UNREACHABLE:
                    again[place] = clock.now() + AGAIN
                    continue
                reach.refused[place] = f"{refused.code}: {refused.text}"
                parties.tell(f"a site was refused: {reach.refused[place]}")
                continue
            found[one.name] = one
            reach.place(one.name, place)
            if len(found) < wanted:
                parties.tell(f"waits for {wanted} sites; {len(found)} there: {', '.join(in_order(list(found)))}")
        if (len(found) + len(reach.refused) >= wanted and not pending) or clock.now() >= end:
            break
    least = terms.sites if before is None else terms.quorum
    census.complete(list(found), least, list(reach.refused.values()), terms.wait)
    return found, reach


def _roster(experiment: Experiment, expected: Expected, found: Mapping[str, Present]) -> Roster:
    """The sites of a new run, in the order of their names."""
    forms = {found[name].form: name for name in reversed(in_order(list(found)))}
    if len(forms) > 1:
        (one, mine), (other, theirs) = list(forms.items())[:2]
        raise UserError(f"the samples of site '{mine}' are of the form {one}, those of site '{theirs}' {other}")
    members = [Member(name, found[name].samples, found[name].fingerprint) for name in in_order(list(found))]
    tensors = tuple(experiment.network.original.state_dict())
    return Roster(expected.common.run, next(iter(forms)), expected.common.classes, tuple(members), tensors)


def _check_released(experiment: Experiment, folder: Path, found: Mapping[str, Present]) -> None:
    """Refuse to make rounds of a private run again whose models the sites have: epsilon would not count them."""
    manifest = folders.manifest(folder) if experiment.method.guards else None
    done = 0 if manifest is None else manifest["round"]
    asked = max((one.asked for one in found.values()), default=0)
    if experiment.method.guards and asked > done + 1:
        raise UserError(
            f"{folder} is of round {done}, but sites were asked for round {asked}: the models of rounds {done + 1} to "
            f"{asked - 1} are known to them, and made again would cost privacy that epsilon does not count; put the "
            "newer folder back, or start a new run"
        )


def _admitted(before: Roster, found: Mapping[str, Present], reach: Reach, parties: Parties) -> Roster:
    """The roster of a run that goes on; sites that are not what they were are refused, and are not asked."""
    terms, now = parties.terms, before
    for name, one in found.items():
        try:
            now = census.admitted(one, now, terms.accept_data, terms.lost_state == "start-anew")
        except Refused as refused:
            node = reach.node_of.pop(name)
            who = "" if f"site '{name}'" in refused.text else f" (site '{name}')"
            reach.refused[node] = f"{refused.code}: {refused.text}{who}"
            parties.tell(f"a site was refused: {reach.refused[node]}")
    names = [name for name in before.names if name in reach.node_of]
    census.complete(names, terms.quorum, list(reach.refused.values()), terms.wait)
    return now
