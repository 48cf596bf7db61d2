"""status.json counts all of a run: rounds that a site missed, and answers of it that came too late."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from deployed import Deployment, Quiet
from headway.deploy.coordinator import deploy
from headway.deploy.replay import gap
from headway.deploy.transport import Answer, Ask, Faults, InProcess


def counts(deployment: Deployment) -> dict[str, tuple[int, int]]:
    """Of each site: in how many rounds it was lost, and to how many its answer was late."""
    status = json.loads((deployment.out / "status.json").read_text(encoding="utf-8"))
    return {site["name"]: (site["lost"], site["late"]) for site in status["sites"]}


def test_a_run_that_goes_on_counts_what_was_before(tmp_path: Path) -> None:
    faults = Faults(lost_asks=frozenset({("node-s1", 1)}), late_answers=frozenset({("node-s2", 2)}))
    deployment = Deployment(tmp_path, faults=faults)
    deployment.run()
    before = {"s0": (0, 0), "s1": (1, 0), "s2": (1, 1), "s3": (0, 0)}
    assert counts(deployment) == before
    (deployment.out / "status.json").unlink()
    with (deployment.out / "events.jsonl").open("a") as file:
        file.write('{"time": 1000000.0, "round": 4, "si')  # as a kill leaves it
    deployment.settings = {"rounds": 6}
    deployment.transport.faults = Faults(lost_answers=frozenset({("node-s1", 6)}))
    result = deployment.run(resume=True)
    assert result.records[4].get("absent") == [{"client": 1, "cause": "LOST: nothing came until the deadline"}]
    assert counts(deployment) == before | {"s1": (2, 0)}


def test_a_round_that_was_asked_again_and_then_counted_was_not_missed(tmp_path: Path) -> None:
    lost = {(node, 2) for node in ("node-s0", "node-s1", "node-s2")}
    deployment = Deployment(tmp_path, faults=Faults(lost_answers=frozenset(lost)))
    deployment.run(quorum=3)
    assert counts(deployment) == {f"s{site}": (0, 0) for site in range(4)}


def test_an_answer_that_comes_twice_is_not_late(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, faults=Faults(doubled_answers=frozenset({("node-s1", 2)})))
    deployment.run()
    assert counts(deployment) == {f"s{site}": (0, 0) for site in range(4)}
    events = [json.loads(line) for line in (deployment.out / "events.jsonl").read_text().splitlines()]
    assert [(one["site"], one["code"]) for one in events] == [("", "DOUBLED")]


@dataclass
class Slow:
    """Over it a site is there again after the first round, and who it is comes only while the model is judged."""

    inner: InProcess
    held: list[Answer] = field(default_factory=list)
    judging: bool = False

    def nodes(self) -> Sequence[str]:
        return self.inner.nodes()

    def send(self, asks: Sequence[Ask], seconds: float | None) -> None:
        kinds = {ask.record.kind for ask in asks}
        self.judging = kinds == {"score"}
        self.inner.send(asks, seconds)
        self.inner.away -= {"node-s3"} if "round" in kinds else set()

    def receive(self, seconds: float) -> Sequence[Answer]:
        found, self.held = [*self.held, *self.inner.receive(seconds)], []
        if not self.judging and "node-s3" not in self.inner.away:
            self.held = [one for one in found if one.record is not None and one.record.kind == "present"]
        return [one for one in found if one not in self.held]

    def traffic(self) -> int | None:
        return None


def test_a_site_that_says_who_it_is_while_the_model_is_judged_takes_part_again(tmp_path: Path) -> None:
    settings = {"global_loss": True, "rounds": 2}
    deployment = Deployment(tmp_path, settings=settings)
    deployment.run()
    deployment.settings = {**settings, "rounds": 6}
    deployment.transport.away = {"node-s3"}
    terms = replace(deployment.terms, wait=5.0, quorum=3)
    slow, quiet = Slow(deployment.transport), Quiet()
    result = deploy(deployment.server, slow, terms, resume=True, observer=quiet, clock=deployment.clock)
    clients = [list(record["clients"]) for record in result.records[2:]]
    assert clients == [[0, 1, 2], [0, 1, 2], [0, 1, 2, 3], [0, 1, 2, 3]]
    assert gap(deployment.out, deployment.replayed()) == 0.0
