"""What makes each method another one is felt: with it, the second round ends at another model than without it.

A term that is lost in a program, because it is added as a plain number or has no gradient, leaves a method's name on
its parent's numbers.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from headway.methods.catalogue import METHODS
from iterations import gap, iterates

TERMS: dict[str, list[tuple[str, str]]] = {
    "fedacg": [("fedacg", "fedacg:beta=0"), ("fedacg", "fedprox+momentum:momentum=0.85"), ("fedacg", "fedprox")],
    "fedagm": [("fedagm", "fedagm:beta=0"), ("fedagm", "fedagm:lam=0"), ("fedagm:alpha=0.5", "fedagm")],
    "fednag": [("fednag", "fednag:gamma=0")],
    "gradma": [("gradma", "gradma-w"), ("gradma", "gradma-s")],
    "gradma-w": [("gradma-w", "fedavg")],
    "gradma-s": [("gradma-s", "fedavg"), ("gradma-s:momentum=0.5", "gradma-s:momentum=0")],
    "fedavg": [("fedavg:server_rate=0.5", "fedavg")],
    "fedprox": [("fedprox", "fedavg")],
    "moon": [("moon", "fedavg")],
    "fedmlb": [("fedmlb", "fedavg"), ("fedmlb", "fedmlb:distil=0"), ("fedmlb", "fedmlb:cross=0")],
    "fedntd": [("fedntd", "fedavg")],
    "fedlc": [("fedlc", "fedavg")],
    "feddecorr": [("feddecorr", "fedavg")],
    "fedcm": [("fedcm", "fedavg"), ("fedcm:alpha=0.5", "fedcm:alpha=0.6")],
    "scaffold": [("scaffold", "fedavg")],
    "feddyn": [("feddyn", "fedprox:mu=0.1"), ("feddyn", "feddyn:mu=0")],
    "feddc": [("feddc", "scaffold"), ("feddc", "feddyn:alpha=0.01")],
    "mimelite": [("mimelite", "mimelite:momentum=0")],
    "fedavgm": [("fedavgm", "fedavg")],
    "fedadam": [("fedadam", "fedadam:beta1=0"), ("fedadam", "fedadam:beta2=0.5")],
    "mifa": [("mifa", "fedavg")],
    "mifam": [("mifam", "mifa")],
    "fedpaq": [("fedpaq:bits=2", "fedavg")],
    "fedproxm": [("fedproxm", "fedprox"), ("fedproxm", "fedavgm")],
    "moonm": [("moonm", "moon"), ("moonm", "fedavgm")],
    "fedmlbm": [("fedmlbm", "fedmlb"), ("fedmlbm", "fedavgm")],
    "csgd": [("csgd", "fedavg")],
    "cnag": [("cnag", "csgd")],
    "fedmom": [("fedmom", "fedavg"), ("fedmom", "fedavgm:momentum=0.9")],
    "slowmo": [("slowmo", "slowmo:momentum=0"), ("slowmo", "slowmo:local_momentum=0")],
    "ghbm": [("ghbm:tau=1", "fedavg"), ("ghbm:tau=1", "ghbm:tau=2")],
    "local-ghbm": [("local-ghbm", "fedavg")],
    "fedadc": [("fedadc", "fedadc:local_momentum=0"), ("fedadc", "fedadc:momentum=0")],
    "domo": [("domo", "domo:fusion=0"), ("domo", "domo:momentum=0"), ("domo", "domo:local_momentum=0")],
    "fedac": [("fedac", "fedac:gamma=1,alpha=1,beta=1"), ("fedac", "fedac:beta=2"), ("fedac", "fedac:gamma=1")],
    "fedadagrad": [("fedadagrad", "fedadagrad:beta1=0.5"), ("fedadagrad", "fedadam:server_rate=0.1,beta1=0")],
    "fedyogi": [("fedyogi", "fedadam"), ("fedyogi", "fedyogi:beta2=0.5")],
    "fedams": [("fedams", "fedadam"), ("fedams", "fedams:beta2=0.5")],
    "fedexp": [("fedexp:eps=0", "fedavg")],
    "fednova": [("fednova", "fedavg")],
    "fedvarp": [("fedvarp", "fedavg"), ("fedvarp", "mifa")],
    "fedinit": [("fedinit", "fedavg")],
    "scaffnew": [("scaffnew", "fedavg")],
    "fedspeed": [("fedspeed", "fedspeed:rho=0"), ("fedspeed", "fedspeed:alpha=0"), ("fedspeed", "feddyn")],
    "fedsam": [("fedsam", "fedavg")],
    "fedasam": [("fedasam", "fedavg"), ("fedasam", "fedsam:rho=0.5")],
    "mofedsam": [("mofedsam", "fedcm"), ("mofedsam", "fedsam")],
    "fedgamma": [("fedgamma", "scaffold"), ("fedgamma", "fedsam:rho=0.01")],
    "fedlesam": [("fedlesam", "fedavg")],
    "fedgloss": [("fedgloss", "fedgloss:rho=0"), ("fedgloss", "fedgloss:local_rho=0"), ("fedgloss", "fedsam:rho=0.15")],
    "local-adamw": [("local-adamw", "fedavg"), ("local-adamw", "local-adamw:state=keep")],
    "local-muon": [("local-muon", "fedavg"), ("local-muon", "local-adamw")],
    "diloco": [("diloco", "diloco:momentum=0"), ("diloco", "diloco:server_rate=1"), ("diloco", "diloco:state=reset")],
    "snoo": [("snoo", "snoo:momentum=0"), ("snoo", "cnag")],
}
"""What a method is, and what it would be without one of its terms."""
CLIENTS = [[1, 3, 0], [3, 1, 4]]
"""Two clients come back in the second round, and one is new."""

SETTINGS: dict[str, tuple[tuple[str, Any], ...]] = {"fedexp": (("rate", 3.0), ("weights", "uniform"))}
"""Where a rule has a maximum in it, what makes it leave its other side so early."""


@cache
def second(spelled: str, settings: tuple[tuple[str, Any], ...]) -> torch.Tensor:
    """The model after the second round."""
    return iterates(spelled, cohorts=CLIENTS, rounds=2, **dict(settings))[1]


def test_every_method_has_terms() -> None:
    assert set(TERMS) == set(METHODS)
    assert all(one.partition(":")[0] == name for name, pairs in TERMS.items() for one, _ in pairs)


@pytest.mark.parametrize("name", TERMS)
def test_its_terms_change_the_second_round(name: str) -> None:
    settings = SETTINGS.get(name, ())
    for one, other in TERMS[name]:
        assert gap([second(one, settings)], [second(other, settings)]) > 1e-6, f"{one} ends where {other} does"
