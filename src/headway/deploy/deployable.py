"""Which methods can be deployed: a table that is made from what their slots need."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from headway.errors import UserError
from headway.methods.catalogue import METHODS
from headway.methods.method import Method
from headway.methods.spelling import method as spelled
from headway.scenario import Scenario
from headway.trees import leaves_of
from headway.vectors import Vector


@dataclass(frozen=True)
class Row:
    """A line of the table."""

    name: str
    deployable: bool
    needs_everybody: bool
    """Whether every site must take part in every round."""
    keeps_state: bool
    """Whether a site keeps a state between its rounds."""
    first_model: bool
    """Whether that state begins with the server's first model, which is then sent to a newcomer."""
    sees_each: bool
    """Whether the server reads each site's upload, and not only their mean."""
    why: str
    """Why it cannot be deployed; empty for one that can."""


def row_of(method: Method) -> Row:
    """What a method needs of a deployment."""
    why = "it trains on everybody's data in one place" if method.pooled else ""
    return Row(
        name=method.name,
        deployable=not why,
        needs_everybody=method.suggests.get("participation") == 1.0 and not method.pooled,
        keeps_state=bool(leaves_of(method.client_state(_PROBE))),
        first_model=begins_with_model(method, _PROBE),
        sees_each=method.needs_each,
        why=why,
    )


_PROBE = Vector({"probe": torch.zeros(2, 2)})


def begins_with_model(method: Method, model: Vector) -> bool:
    """Whether the state of a client that never took part depends on the numbers of the first model."""
    one, other = (leaves_of(method.client_state(at)) for at in (model, model.map(lambda leaf: leaf + 1)))
    return not all(torch.equal(mine, theirs) for mine, theirs in zip(one, other, strict=True))


def table() -> list[Row]:
    """A row for each method of the catalogue."""
    return [row_of(spelled(name)) for name in METHODS]


_SIMULATED = {
    "validation": "sites hold no samples out for a validation",
    "dropout": "real sites drop out by themselves",
    "diagnose": "local models stay at the sites",
    "score_received": "sites and server judge the model that is handed over",
    "keep_checkpoints": "local models stay at the sites, and cannot be trained again elsewhere",
    "attendance": "who takes part is decided by the sites",
}
"""Settings of a simulation that a deployment refuses, and why."""


def check(method: Method, scenario: Scenario, sites: int, quorum: int) -> None:
    """Refuse a method or a setting that cannot be deployed, before anything runs."""
    row = row_of(method)
    if not row.deployable:
        raise UserError(f"{method.name} cannot be deployed: {row.why}; use another method, such as fedavg")
    everybody = scenario.sampling == "full" or scenario.participation == 1.0
    if row.needs_everybody and not (everybody and quorum == sites):
        raise UserError(
            f"{method.name} needs every site in every round, and the quorum is {quorum} of {sites}; "
            f"use --quorum {sites}, and no other participation than 1"
        )
    if method.guards and (method.keeps_best or scenario.client_test is not None):
        raise UserError(
            f"{method.name} is private, and what sites tell of their own samples beside their uploads has no noise: "
            "give the server a test set, and leave out client_test and methods that choose the best model"
        )
    for name, why in _SIMULATED.items():
        if getattr(scenario, name):
            raise UserError(f"{name} is {getattr(scenario, name)}, which is for simulations: {why}; leave it out")
    if scenario.sampling.partition(":")[0] in ("replacement", "own"):
        raise UserError(
            f"sampling is '{scenario.sampling}', by which a client may be drawn twice in a round; a deployment asks "
            "each site once: use another sampling"
        )
    check_quorum(quorum, sites)


def check_quorum(quorum: int, sites: int) -> None:
    """Refuse a quorum that no round can reach."""
    if not 1 <= quorum <= sites:
        raise UserError(f"quorum is {quorum}; it must be from 1 to the number of sites, {sites}")
