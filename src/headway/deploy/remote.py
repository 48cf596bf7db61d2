"""`Sites`: the clients of a run at other places. It asks the sites of a round, and waits for those that answer.

It stands in the place of an executor: what the sites sent is handed to the round as if it had been computed here, in
the order of the cohort. Who takes part is known when the waiting ends: those that are there count, all others are
lost. With fewer than the quorum the round is void: nothing has changed, and everybody is asked again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from headway.deploy import census
from headway.deploy.attempt import VERSIONS, Attempt, Sent, version_of
from headway.deploy.binding import blank_upload
from headway.deploy.census import Expected
from headway.deploy.codes import Code, Refused
from headway.deploy.deployable import begins_with_model
from headway.deploy.journal import LATE, Journal
from headway.deploy.judging import Judging, Sums
from headway.deploy.messages import Refusal, RoundAsk, as_record
from headway.deploy.records import Record, flat
from headway.deploy.roster import Reach
from headway.deploy.terms import Clock, Terms
from headway.deploy.transport import Answer, Ask, Transport
from headway.deploy.uploads import Arrived, Forms, arrived
from headway.engine import server
from headway.engine.aggregate import Group, trained_client
from headway.engine.client_rounds import CohortRounds
from headway.engine.evaluation import Scores, evaluate, wants_global_loss
from headway.engine.executor import Attended, RoundInput
from headway.engine.experiment import Experiment
from headway.engine.serial import group_of_one
from headway.engine.server import GlobalState
from headway.errors import Diverged, MachineError
from headway.executors import ELSEWHERE
from headway.records import RoundRecord
from headway.runs.roster import Roster
from headway.trees import nbytes

POLL = 0.2
"""Seconds between two looks at what has come."""
VOID_ROUNDS = 3
"""So many void rounds in a row stop the run."""


@dataclass(frozen=True)
class Parties:
    """Who takes part in a deployment, and how they are reached."""

    transport: Transport
    terms: Terms
    clock: Clock
    expected: Expected
    has_test: bool
    """Whether the server has a test set."""
    tell: Callable[[str], None]


class Sites:
    """The sites of a run, as its executor."""

    name = ELSEWHERE

    def __init__(
        self, experiment: Experiment, roster: Roster, reach: Reach, parties: Parties, journal: Journal
    ) -> None:
        self.experiment, self.roster, self.reach = experiment, roster, reach
        self.parties, self.journal = parties, journal
        self.forms = Forms.of(experiment, blank_upload(experiment))
        self.counted: dict[int, list[str]] = {}
        """The versions of each client's state that counted, the newest last."""
        self._sends_first = begins_with_model(experiment.method, experiment.network.parameters)
        self._uploads: dict[int, Arrived] = {}
        self._token = ""
        self._asks = 0
        self._start = parties.clock.token()
        self._meeting: dict[str, str] = {}
        """Nodes that are asked who they are, by the number of the ask."""
        self._unanswered: dict[str, tuple[int, int]] = {}
        """Client and round of every other ask that was not answered yet, by its number."""

    # ── what a run wants of its executor ─────────────────────────────────────────────────────────────────────────────

    def run(self, given: RoundInput, rounds: CohortRounds) -> Iterator[Group]:
        """What the sites sent, in the order of the cohort."""
        for position, client in enumerate(rounds.turn.clients):
            upload = self._uploads[client].upload
            fields = server.decode(self.experiment.method, upload, given.message["model"])
            yield group_of_one(position, trained_client(upload, fields, {}), rounds.samples([position]))

    def prefetch(self, round: int) -> None:
        pass

    def close(self) -> None:
        pass

    def attend(self, round: int, state: GlobalState) -> Attended:
        """Ask the sites of a round until enough of them have answered."""
        sent = Sent.of(self.experiment, server.broadcast(self.experiment, state, round))
        void = bytes_void = 0
        while True:
            began, traffic = self.parties.clock.now(), self.parties.transport.traffic()
            attempt = self._attempted(round, sent)
            if len(attempt.uploads) >= min(self.parties.terms.quorum, len(attempt.invited)):
                break
            void += 1
            bytes_void += sent.nbytes * len(attempt.sent) + sum(one.nbytes for one in attempt.uploads.values())
            self._void(attempt, void)
        self._uploads, self._token = attempt.uploads, attempt.token
        notes = attempt.notes(self.parties.clock.now() - began)
        if void:
            notes |= {"void": void, "bytes_void": bytes_void}
        after = self.parties.transport.traffic()
        if traffic is not None and after is not None:
            notes["bytes_wire"] = after - traffic
        return Attended(attempt.cohort(self.experiment), notes)

    def judge(self, round: int, state: GlobalState) -> Scores:
        """How the model does on the server's test set, or on the test samples of the sites; and on their training."""
        experiment = self.experiment
        has_test, trains = self.parties.has_test, wants_global_loss(experiment)
        here = evaluate(experiment, state, None, round) if has_test else Scores(None, {}, {}, None)
        if not trains and (has_test or experiment.scenario.client_test is None):
            return here
        judging = Judging.of(experiment, self.parties.expected, state, trains)
        found = judging.scores(self._judged(judging, round))
        if experiment.method.keeps_best and found.global_loss is None:
            raise MachineError(
                f"round {round}: not every site told the loss on its samples, by which {experiment.method.name} "
                "chooses its output; resume when all sites are back"
            )
        return replace(here, global_loss=found.global_loss) if has_test else found

    def _judged(self, judging: Judging, round: int) -> dict[int, Sums]:
        """What the sites answer about a model until the deadline."""
        terms, clock, transport = self.parties.terms, self.parties.clock, self.parties.transport
        here, pending, found = set(transport.nodes()), dict[str, int](), dict[int, Sums]()
        asks = []
        for client in range(len(self.roster.members)):
            node = self.reach.node_of.get(self._name(client))
            if node in here and node is not None:
                id = self._id(client, round)
                pending[id] = client
                counted = self._newest(client, round)
                asks.append(Ask(node, judging.ask(round, client, counted), id))
        end = None if terms.deadline is None else clock.now() + terms.deadline
        transport.send(asks, terms.deadline)
        while pending and (end is None or clock.now() < end):
            for answer in transport.receive(POLL):
                client_of = pending.pop(answer.id, None)
                if client_of is None:
                    self._stray(answer, round)
                    continue
                del self._unanswered[answer.id]
                try:
                    found[client_of] = judging.sums(answer.record, answer.fault, client_of)
                except Refused as refused:
                    self.journal.event(round, self._name(client_of), refused.code, refused.text)
        return found

    def _newest(self, client: int, round: int) -> str:
        """The version of a client's state after a round that is not saved yet."""
        if client in self._uploads:
            return f"{round}.{self._token}"
        versions = self.counted.get(client, [])
        return versions[-1] if versions else ""

    def ended(self, record: RoundRecord) -> None:
        """A round has ended and is saved: its uploads count from now on."""
        for client in record["clients"]:
            versions = [*self.counted.get(client, []), version_of(record)]
            self.counted[client] = versions[-VERSIONS:]
            self.journal.counts(self._name(client), record["round"])
        for one in record.get("absent", ()):
            self.journal.misses(self._name(one["client"]))
        self.journal.round, self.journal.void, self.journal.waiting = record["round"], 0, ()
        self.journal.write()

    # ── one attempt ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _attempted(self, round: int, sent: Sent) -> Attempt:
        """Ask everybody of a round once, and wait until the deadline, or until enough have answered."""
        terms, clock, scenario = self.parties.terms, self.parties.clock, self.experiment.scenario
        invited = self.experiment.sampling.draw(round)
        wanted = scenario.cohort if scenario.over_selection else len(invited)
        attempt = Attempt(round, clock.token(), invited, wanted)
        self.journal.round = round
        self._meet(round)
        here = set(self.parties.transport.nodes())
        asks = [
            self._asked(attempt, client, sent)
            for client in invited
            if self.reach.node_of.get(self._name(client)) in here
        ]
        attempt.absent = {client: self._away(client) for client in invited if client not in attempt.sent}
        end = None if terms.deadline is None else clock.now() + terms.deadline
        self.parties.transport.send(asks, terms.deadline)
        while attempt.pending and len(attempt.uploads) < wanted and (end is None or clock.now() < end):
            self._waits_for(attempt)
            for answer in self.parties.transport.receive(POLL if end is None else max(min(POLL, end - clock.now()), 0)):
                self._take(answer, attempt, sent)
        self._close(attempt)
        return attempt

    def _asked(self, attempt: Attempt, client: int, sent: Sent) -> Ask:
        """The message to one client; it is waited for from now on."""
        id = self._id(client, attempt.round)
        attempt.pending[id] = client
        attempt.sent.add(client)
        return Ask(self.reach.node_of[self._name(client)], self._round_ask(attempt, client, sent), id)

    def _round_ask(self, attempt: Attempt, client: int, sent: Sent) -> Record:
        common, experiment, versions = self.parties.expected.common, self.experiment, self.counted.get(client, [])
        arrays = dict(sent.arrays)
        if self._sends_first and not versions:
            arrays["first"] = flat(experiment.network.parameters)
            attempt.bytes_first += nbytes(experiment.network.parameters)
        return as_record(
            RoundAsk(
                run=common.run,
                version=common.version,
                method=common.method,
                scenario=common.scenario,
                classes=common.classes,
                round=attempt.round,
                token=attempt.token,
                client=client,
                population=experiment.population,
                total=experiment.federation.total_size,
                counted=versions[-1] if versions else "",
                keep=",".join(versions),
                seconds=float(self.parties.terms.seconds or 0.0),
                form=sent.form,
                arrays=arrays,
            )
        )

    def _take(self, answer: Answer, attempt: Attempt, sent: Sent) -> None:
        """What came: an upload that counts, a refusal, or what is too late or there twice."""
        enough = len(attempt.uploads) >= attempt.wanted  # then who comes is late, and stays among those waited for
        if enough or answer.id not in attempt.pending:
            self._stray(answer, attempt.round)
            return
        client, _ = self._unanswered.pop(answer.id)
        del attempt.pending[answer.id]
        name = self._name(client)
        try:
            attempt.uploads[client] = self._upload(answer, attempt, client)
            self.journal.seen(name)
        except Refused as refused:
            if answer.record is not None:
                self.journal.seen(name)
            self._refused(refused, client, attempt, sent)

    def _stray(self, answer: Answer, round: int) -> None:
        """What no ask of now waits for: a node that says who it is, or an answer that is too late or there twice."""
        if answer.id in self._meeting:
            self._met(answer, round)
            return
        client, of = self._unanswered.pop(answer.id, (None, round))
        if client is None:
            self.journal.event(round, "", Code.DOUBLED, "an answer that came before was dropped")
        elif answer.record is not None:  # else the carrier says only now what was lost
            self.journal.seen(self._name(client))
            self.journal.event(of, self._name(client), LATE, "an answer that is not waited for any more was dropped")

    def _upload(self, answer: Answer, attempt: Attempt, client: int) -> Arrived:
        """The upload in an answer, checked."""
        if answer.record is None:
            raise Refused(Code.LOST, answer.fault[:200] or "nothing came")
        if answer.record.kind == Refusal.kind:
            raise census.refused(answer.record)
        size = self.roster.members[client].samples
        found = arrived(answer.record, self.forms, self.experiment.scenario, size)
        expected = (self.parties.expected.common.run, attempt.round, attempt.token, client)
        if (found.reply.run, found.reply.round, found.reply.token, found.reply.client) != expected:
            raise Refused(Code.BAD_REPLY, "the upload is not of this ask")
        return found

    def _refused(self, refused: Refused, client: int, attempt: Attempt, sent: Sent) -> None:
        """A client does not take part in this attempt; what must not be passed over ends the run."""
        name, code = self._name(client), refused.code
        if code == Code.DIVERGED and self.experiment.scenario.on_failure == "stop":
            raise Diverged(
                f"round {attempt.round}, site '{name}': the loss or the update is not a finite number; "
                f"{self.experiment.advice}; --on-failure skip goes on without such sites"
            )
        if code == Code.STATE_LOST:
            self._lost_state(refused, client, attempt, sent)
            return
        attempt.absent[client] = f"{code}: {refused.text}"
        self.journal.event(attempt.round, name, code, refused.text)

    def _lost_state(self, refused: Refused, client: int, attempt: Attempt, sent: Sent) -> None:
        """Stop, or go on with the client as one that never took part."""
        name = self._name(client)
        self.journal.event(attempt.round, name, refused.code, refused.text)
        if self.parties.terms.lost_state == "stop" or client not in self.counted:
            self.journal.write()
            raise MachineError(
                f"round {attempt.round}, site '{name}': {refused.code}: {refused.text}; put the site's state folder "
                "back, or go on with it as a newcomer: --lost-state start-anew"
            )
        self.parties.tell(f"site '{name}' starts anew in round {attempt.round}: {refused.text}")
        del self.counted[client]
        self.parties.transport.send([self._asked(attempt, client, sent)], self.parties.terms.deadline)

    def _close(self, attempt: Attempt) -> None:
        """The waiting is over: who has not answered is lost, or late where enough others have answered."""
        if len(attempt.uploads) < attempt.wanted:
            for client in attempt.pending.values():
                attempt.absent[client] = f"{Code.LOST}: nothing came until the deadline"
                self.journal.event(attempt.round, self._name(client), Code.LOST, "nothing came until the deadline")

    def _void(self, attempt: Attempt, count: int) -> None:
        """Too few answered: say so, and stop where that has happened too often."""
        there, quorum = len(attempt.uploads), self.parties.terms.quorum
        self.journal.void = count
        self.journal.event(attempt.round, "", "VOID", f"{there} uploads, the quorum is {quorum}")
        self.journal.write()
        why = "; ".join(f"{self._name(client)}: {cause}" for client, cause in sorted(attempt.absent.items()))
        sentence = f"round {attempt.round} is void: {there} uploads, and the quorum is {quorum} ({why})"
        if count == VOID_ROUNDS:
            raise MachineError(f"{sentence}; that was {count} times in a row, resume when the sites are back")
        self.parties.tell(f"{sentence}; everybody is asked again")

    # ── who is where ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _meet(self, round: int) -> None:
        """Ask nodes that nobody knows who they are; sites that come back are among them."""
        nodes = self.parties.transport.nodes()
        self.reach.forget_away(nodes)
        self._meeting = {id: node for id, node in self._meeting.items() if node in set(nodes)}
        unknown = [node for node in self.reach.unknown(nodes) if node not in self._meeting.values()]
        asks = [
            Ask(node, census.ask(self.parties.expected.common, self.parties.terms.accept_data), self._number())
            for node in unknown
        ]
        self._meeting |= {ask.id: ask.node for ask in asks}
        if not asks:
            return
        self.parties.transport.send(asks, self.parties.terms.deadline)
        for answer in self.parties.transport.receive(POLL):
            self._stray(answer, round)

    def _met(self, answer: Answer, round: int) -> None:
        """A node says who it is: a site of this run that is back, or one that is refused."""
        node = self._meeting.pop(answer.id)
        try:
            found = census.present(answer.record, answer.fault, self.parties.expected)
            now = census.admitted(found, self.roster, (), start_anew=False)
            before = self.reach.node_of.get(found.name)
            if before is not None and before in self.parties.transport.nodes():
                raise Refused(Code.NAME_TAKEN, f"site '{found.name}' is connected already, as another node")
        except Refused as refused:
            if refused.code not in census.FOR_NOW:
                self.reach.refused[node] = f"{refused.code}: {refused.text}"
            self.journal.event(round, "", refused.code, refused.text)
            self.parties.tell(f"a site was refused: {refused.code}: {refused.text}")
            return
        assert now == self.roster
        self.reach.place(found.name, node)
        self.journal.seen(found.name, node)
        self.journal.event(round, found.name, "BACK", "the site can be reached again")

    def _away(self, client: int) -> str:
        """Why a client is not asked."""
        return f"{Code.UNREACHABLE}: site '{self._name(client)}' is not connected"

    def _waits_for(self, attempt: Attempt) -> None:
        waiting = tuple(self._name(client) for client in attempt.pending.values())
        if waiting != self.journal.waiting:
            self.journal.waiting = waiting
            self.journal.write()

    def _name(self, client: int) -> str:
        return self.roster.names[client]

    def _id(self, client: int, round: int) -> str:
        """The number of an ask that a client is to answer."""
        id = self._number()
        self._unanswered[id] = (client, round)
        return id

    def _number(self) -> str:
        self._asks += 1
        return f"{self._start}-{self._asks}"
