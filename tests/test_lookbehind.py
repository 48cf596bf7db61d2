"""`+lookbehind`, the mirror of `+acg`: clients start a fixed length behind the server's model, against its momentum."""

from __future__ import annotations

import pytest

from conftest import experiment, played
from headway.errors import UserError
from headway.methods import broadcast, server
from headway.methods.method import Method
from headway.methods.spelling import method
from iterations import gap, iterates

CLIENTS = [[1, 3, 0], [3, 1, 4]]
"""Two clients come back in the second round, and one is new."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("fedavg+lookbehind:rho=0,lam=0.7", "fedavgm:momentum=0.7"),
        ("fedavg+lookbehind:rho=0,lam=0", "fedavg"),
        ("fedavg+lookbehind:rho=0,lam=0.7+prox:beta=0.3", "fedproxm:mu=0.3,momentum=0.7"),
        ("fedprox:mu=0.3+lookbehind:rho=0.2,lam=0.7", "fedavg+lookbehind:rho=0.2,lam=0.7+prox:beta=0.3"),
    ],
)
def test_without_its_length_it_is_heavy_ball(one: str, other: str) -> None:
    assert gap(iterates(one), iterates(other)) <= 1e-12


def test_without_memory_it_starts_where_fedgloss_does() -> None:
    """With λ = 0 the momentum is the last mean update, which is what FedGloSS moves back along."""
    sent = Method(broadcast=broadcast.lookbehind(0.2), server=(server.average(), server.last_update()))
    for where in (False, True):
        assert gap(iterates("fedavg+lookbehind:rho=0.2,lam=0", sent=where), iterates(sent, sent=where)) <= 1e-12


def test_clients_start_at_the_same_length_behind_in_every_round() -> None:
    """‖φ − θ‖ = ρ, along −m, where a lookahead of the same momentum goes λ‖m‖ the other way."""
    _, end = played(experiment("fedavg+lookbehind:rho=0.2,lam=0.7"))
    momentum = next(state["momentum"] for state in end.model.server.values())
    behind = method("fedavg+lookbehind:rho=0.2,lam=0.7").message(end.model.theta, end.model.server)["model"]
    moved = behind - end.model.theta
    assert float(moved.norm()) == pytest.approx(0.2, rel=1e-12)
    assert float(moved.dot(momentum)) == pytest.approx(-0.2 * float(momentum.norm()), rel=1e-12)
    assert float(momentum.norm()) > 0.01


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("fedavg+lookbehind:rho=0.1", "fedavgm:momentum=0.85"),
        ("fedavg+lookbehind:rho=0.1", "fedavg+lookbehind:rho=0.2"),
        ("fedavg+lookbehind:rho=0.1,lam=0.85", "fedavg+lookbehind:rho=0.1,lam=0.5"),
        ("fedavg+lookbehind:rho=0.1", "fedavg+acg"),
        ("fedavg+lookbehind:rho=0.1", "fedavg+lookbehind:rho=0.1+prox:beta=0.3"),
        ("scaffold+acg", "scaffold"),
        ("scaffold+acg", "fedavg+acg"),
        ("feddyn+acg", "feddyn"),
        ("feddyn+acg", "fedavg+acg"),
        ("fedavg+acg+sam:rho=0.5", "fedavg+acg"),
        ("fedavg+acg+sam:rho=0.5", "fedavg+sam:rho=0.5"),
    ],
)
def test_each_part_of_a_composition_is_felt_in_the_second_round(one: str, other: str) -> None:
    first, second = (iterates(spelled, cohorts=CLIENTS, rounds=2)[1] for spelled in (one, other))
    assert gap([first], [second]) > 1e-6


@pytest.mark.parametrize("spelled", ["fedacg+lookbehind", "fedavg+acg+lookbehind", "fedgloss+lookbehind"])
def test_nobody_starts_ahead_and_behind(spelled: str) -> None:
    with pytest.raises(UserError, match="both set"):
        method(spelled)
