"""One time of asking the sites of a round: who was asked, what came, and what the round's record says of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from headway.data.batches import planned_steps
from headway.data.cohort import Cohort
from headway.deploy.records import flat, form_digest
from headway.deploy.uploads import Arrived
from headway.engine.experiment import Experiment
from headway.engine.server import ServerMessage
from headway.errors import UserError
from headway.records import FailedClient, RoundRecord
from headway.trees import leaves_of

VERSIONS = 3
"""How many versions of a client's state a site keeps: a server that is restored from a backup may go back so far."""


@dataclass(frozen=True)
class Sent:
    """A round's message as it travels: its arrays are the same for all clients, and made once."""

    form: str
    arrays: dict[str, np.ndarray]
    nbytes: int

    @classmethod
    def of(cls, experiment: Experiment, message: ServerMessage) -> Sent:
        travelling = {} if experiment.scenario.buffers == "keep-local" else message.buffers
        arrays = {f"payload/{name}": flat(payload) for name, payload in message.payloads.items()}
        if leaves_of(travelling):
            arrays["buffers"] = flat(travelling)
        return cls(form_digest({"payloads": message.payloads, "buffers": travelling}), arrays, message.nbytes)


@dataclass
class Attempt:
    """One time of asking the sites of a round."""

    round: int
    token: str
    invited: Sequence[int]
    wanted: int
    """How many uploads are enough."""
    pending: dict[str, int] = field(default_factory=dict)
    """Clients whose answers are waited for, by the number of the ask."""
    sent: set[int] = field(default_factory=set)
    """Clients to which a message went."""
    uploads: dict[int, Arrived] = field(default_factory=dict)
    absent: dict[int, str] = field(default_factory=dict)
    """Why a client did not come."""
    bytes_first: int = 0

    def cohort(self, experiment: Experiment) -> Cohort:
        """Those whose uploads count, in the order in which they were drawn."""
        clients = tuple(client for client in self.invited if client in self.uploads)
        steps = [int(self.uploads[client].upload.facts.steps) for client in clients]
        sizes, scenario = experiment.federation.sizes, experiment.scenario
        planned = [planned_steps(scenario, int(sizes[client])) for client in clients]
        late = len(self.pending) if len(self.uploads) >= self.wanted else 0
        return Cohort(
            clients=clients,
            truncated={at: count for at, count in enumerate(steps) if count < planned[at]},
            lost=len(self.sent) - len(clients) - late,
            late=late,
        )

    def notes(self, seconds: float) -> dict[str, object]:
        """What the round's record says beside what a simulation's does; `seconds` were waited."""
        arrived = [self.uploads[client] for client in self.invited if client in self.uploads]
        absent: list[FailedClient] = [
            {"client": client, "cause": cause} for client, cause in sorted(self.absent.items())
        ]
        notes: dict[str, object] = {
            "ask": self.token,
            "samples": sum(one.reply.samples for one in arrived),
            "seconds_waiting": seconds,
            "seconds_at_sites": max((one.reply.training_seconds for one in arrived), default=0.0),
        }
        if absent:
            notes["absent"] = absent
        if self.bytes_first:
            notes["bytes_first"] = self.bytes_first
        return notes


def version_of(record: RoundRecord) -> str:
    """The version of the clients' states that a round's uploads left at the sites."""
    token = record.get("ask")
    if not isinstance(token, str):
        raise UserError(f"round {record['round']} does not say which ask counted; this is no folder of a deployment")
    return f"{record['round']}.{token}"


def counted_in(records: Sequence[RoundRecord]) -> dict[int, list[str]]:
    """The versions of each client's state that counted in these rounds, the newest last."""
    found: dict[int, list[str]] = {}
    for record in records:
        for client in record["clients"]:
            found[client] = [*found.get(client, []), version_of(record)][-VERSIONS:]
    return found


def lost_in(records: Sequence[RoundRecord]) -> Counter[int]:
    """In how many of these rounds each client was wanted and did not count."""
    return Counter(one["client"] for record in records for one in record.get("absent", ()))
