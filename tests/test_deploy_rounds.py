"""A deployment in one process gives the numbers of the simulation of the same attendance, to the last bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from deployed import DEPLOYABLE, Deployment, assert_same
from headway.deploy.terms import Terms
from headway.deploy.transport import Faults

NODES = [f"node-s{i}" for i in range(4)]
TERMS = Terms(sites=4, deadline=60.0)
TURNOUTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "lost": {"faults": Faults(lost_asks=frozenset({(NODES[1], 2)}), lost_answers=frozenset({(NODES[3], 2)}))},
    "late": {"faults": Faults(late_answers=frozenset({(NODES[0], 1), (NODES[2], 3)}))},
    "doubled": {"faults": Faults(doubled_asks=frozenset({(NODES[0], 2)}), doubled_answers=frozenset({(NODES[2], 1)}))},
    "partial": {"terms": Terms(sites=4, deadline=60.0, seconds=3.5), "paces": {1: 1.0, 3: 2.0}},
    "broken": {"faults": Faults(broken=frozenset({(NODES[1], 1), (NODES[1], 3)}))},
}
"""What happens to messages; ask 0 of a node is its census, ask t is round t."""
FIVE = ("fedacg+fedpaq", "scaffold", "feddyn", "gradma-w", "mifam")
NETS = ("norm_free", "batch_norm_dropout")


def held(place: Path, method: str, net: str, **given: Any) -> Deployment:
    deployment = Deployment(place, method, net, **given)
    deployed = deployment.run()
    assert_same(deployed, deployment.replayed())
    return deployment


@pytest.mark.parametrize(("method", "net"), [("fedpaq", "batch_norm_dropout"), ("scaffold", "norm_free")])
def test_a_deployment_is_its_simulation(tmp_path: Path, method: str, net: str) -> None:
    held(tmp_path, method, net)


@pytest.mark.soak
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("method", DEPLOYABLE)
def test_every_deployable_method_is_its_simulation(tmp_path: Path, method: str, net: str) -> None:
    held(tmp_path, method, net)


@pytest.mark.parametrize("turnout", TURNOUTS)
def test_whatever_happens_to_messages_the_simulation_of_the_same_attendance_is_the_same(
    tmp_path: Path, turnout: str
) -> None:
    deployment = held(tmp_path, "scaffold+fedpaq", "batch_norm_dropout", **TURNOUTS[turnout])
    lost = {"plain": 0, "lost": 2, "late": 2, "doubled": 0, "partial": 0, "broken": 2}[turnout]
    records = deployment.run(resume=True).records
    assert sum(record["lost"] for record in records) == lost
    assert any(record["partial"] for record in records) == (turnout == "partial")


@pytest.mark.soak
@pytest.mark.parametrize("net", NETS)
@pytest.mark.parametrize("turnout", TURNOUTS)
@pytest.mark.parametrize("method", FIVE)
def test_five_methods_in_every_turnout(tmp_path: Path, method: str, turnout: str, net: str) -> None:
    held(tmp_path, method, net, **TURNOUTS[turnout])


@pytest.mark.parametrize("buffers", ["keep-local", "average"])
def test_statistics_stay_at_a_site_or_travel(tmp_path: Path, buffers: str) -> None:
    deployment = held(tmp_path, "fedavg", "batch_norm_dropout", settings={"buffers": buffers}, **TURNOUTS["lost"])
    uploads = [reply for _, _, reply in deployment.seen if reply.kind == "upload"]
    assert all(("buffers" in reply.arrays) == (buffers == "average") for reply in uploads)


@pytest.mark.parametrize(
    "settings",
    [
        {"batches": "continued", "steps": 3},
        {"weights": "uniform", "schedule": "cosine:over=steps"},
        {"cohort_size": 2},
        {"sampling": "bernoulli", "participation": 0.5},
        {"precision": "fp32", "weight_decay": 0.1, "clip": 0.5},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_settings_mean_the_same_at_sites(tmp_path: Path, settings: dict[str, object]) -> None:
    held(
        tmp_path,
        "scaffold",
        "norm_free",
        settings=settings,
        **TURNOUTS["lost" if "cohort_size" in settings else "plain"],
    )


def test_of_more_than_are_wanted_the_first_to_answer_count(tmp_path: Path) -> None:
    deployment = held(tmp_path, "feddyn", "norm_free", settings={"cohort_size": 2, "over_selection": 0.5})
    records = deployment.run(resume=True).records
    assert [(len(record["clients"]), record["late"], record["lost"]) for record in records] == [(2, 1, 0)] * 4


def test_an_attendance_can_be_played_with_another_method(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "fedavg", **TURNOUTS["late"])
    clients = [record["clients"] for record in deployment.run().records]
    other = Deployment(tmp_path, "fedacg")
    assert [record["clients"] for record in other.replayed().records] == clients
    assert len(clients[0]) == 3
