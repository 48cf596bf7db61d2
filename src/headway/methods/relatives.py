"""Methods of different names that are one iteration: a table that tests play and `headway show` reads.

A relation says which two methods, with which arguments, on which conditions, and what of each is the same: the server's
model θ, or φ, what clients receive. Its numbers stand for any others that agree in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Iterate = Literal["θ", "φ"]
"""What is compared: the server's model after a round, or what the next message has."""


@dataclass(frozen=True)
class Relation:
    """Two spelled methods that are one iteration."""

    one: str
    other: str
    iterates: tuple[Iterate, Iterate] = ("θ", "θ")
    """What of each is the same sequence."""
    where: str = ""
    """On which conditions; empty: on none."""
    settings: Mapping[str, object] = field(default_factory=dict)
    """Settings of the scenario that make the conditions true."""
    rate: float = 1.0
    """The other's local rate, in units of the one's."""

    def words(self, seen_from: str) -> str:
        """The relation as one of its methods sees it: what is the same as what of the other."""
        (one, other), (mine, theirs) = (self.one, self.other), self.iterates
        if one != seen_from:
            one, other, mine, theirs = other, one, theirs, mine
        same = "" if mine == theirs == "θ" else f": {mine} here is {theirs} there"
        return f"{one} is {other}{same}{f', where {self.where}' if self.where else ''}"


_EQUAL_STEPS = {"steps": 5, "rate_decay": 1.0, "weight_decay": 0.0}
_EVERYBODY = {"participation": 1.0}
_CONSTANT = "the rate is constant, clients do equally many steps and weight decay is 0"

RELATIONS: tuple[Relation, ...] = (
    # FedACG without its pull: Nesterov's momentum on the mean update
    Relation("fedacg:lam=0.7,beta=0", "fedmom:momentum=0.7", ("φ", "θ")),
    Relation("fedacg:lam=0.7,beta=0", "fedagm:lam=0.7,beta=0"),
    Relation("fedacg:lam=0.7,beta=0", "domo:momentum=0.7,fusion=0.7,local_momentum=0"),
    Relation("fedagm:lam=0.7,beta=0,server_rate=0.6", "fedmom:momentum=0.7,server_rate=0.6", ("φ", "θ")),
    Relation(
        "diloco:momentum=0.9,server_rate=0.7",
        "fedagm:lam=0.9,server_rate=0.7,beta=0+adamw:beta2=0.95,state=keep",
        ("θ", "φ"),
    ),
    Relation("snoo", "diloco", where="there is one client", settings={"clients": 1, **_EVERYBODY}),
    # FedCM
    Relation(
        "fedcm:alpha=0.3",
        "ghbm:beta=0.7,tau=1",
        where=f"the other's local rate is α times as large, {_CONSTANT}",
        settings=_EQUAL_STEPS,
        rate=0.3,
    ),
    Relation(
        "fedcm:alpha=0.3",
        "fedadc:momentum=0.7,local_momentum=0.7",
        where=f"the other's local rate is α times as large, {_CONSTANT}",
        settings=_EQUAL_STEPS,
        rate=0.3,
    ),
    # control variates and duals
    Relation(
        "scaffold",
        "scaffnew",
        where="all clients take part with equally many steps, at a constant rate without weight decay",
        settings={**_EQUAL_STEPS, **_EVERYBODY},
    ),
    Relation("feddyn:alpha=0.1", "fedgloss:rho=0,local_rho=0,alpha=0.1"),
    Relation(
        "feddyn:alpha=0.2",
        "fedspeed:alpha=0,mu=0.2",
        where="all clients take part and nothing is clipped",
        settings={**_EVERYBODY, "clip": 0.0},
    ),
    # heavy ball
    Relation("fedavgm:momentum=0.6", "domo:momentum=0.6,fusion=0,local_momentum=0"),
    Relation("fedavgm:momentum=0.6,rate_ratio=true", "slowmo:momentum=0.6,local_momentum=0"),
    Relation(
        "fedavgm:momentum=0.6",
        "fedadc:momentum=0.6,local_momentum=0",
        where="the rate is constant",
        settings={"rate_decay": 1.0},
    ),
    Relation(
        "fedavgm:momentum=0.6",
        "ghbm:beta=0.6,tau=1",
        where="clients do one step each at a constant rate without weight decay",
        settings={**_EQUAL_STEPS, "steps": 1},
    ),
    # FedAvg
    Relation("fedavg", "fedvarp", where="all clients take part", settings=_EVERYBODY),
    Relation("fedavg", "mifa", where="all clients take part", settings=_EVERYBODY),
    Relation("fedavg", "fednova", where="clients do equally many steps", settings={"steps": 5}),
    Relation("fedavg", "fedac:gamma=1,alpha=1,beta=1", where="weight decay is 0", settings={"weight_decay": 0.0}),
    # compositions
    Relation("fedsam", "fedavg+sam"),
    Relation("fedasam", "fedavg+asam"),
    Relation("mofedsam", "fedcm+sam"),
    Relation("fedgamma", "scaffold+sam:rho=0.01"),
    Relation("fedlesam", "fedavg+lesam"),
    Relation("fedinit", "fedavg+init"),
    Relation("fedexp", "fedavg+exp"),
    Relation("local-adamw", "fedavg+adamw"),
    Relation("local-muon", "fedavg+muon"),
    Relation("diloco", "fedmom:momentum=0.9,server_rate=0.7+adamw:beta2=0.95,state=keep"),
)


def relatives(name: str) -> list[str]:
    """The relations of a method of the catalogue, in words."""
    return [
        relation.words(spelled)
        for relation in RELATIONS
        for spelled in (relation.one, relation.other)
        if name == spelled.partition(":")[0] and "+" not in spelled
    ]
