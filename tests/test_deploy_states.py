"""Clients' states lie at the sites: both sides stay together whatever is lost, and whatever the server goes back to."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from deployed import Deployment, assert_same
from headway.deploy import private, states
from headway.deploy.codes import Code, Refused
from headway.deploy.states import StateFolder
from headway.deploy.transport import Faults
from headway.engine.client_rounds import ClientState
from headway.errors import MachineError, UserError
from headway.runs.roster import read
from headway.vectors import Vector

STATEFUL = ("scaffold", "gradma-w")


class Killed(BaseException):
    """A process that is killed: nothing of it goes on."""


@pytest.mark.parametrize("method", STATEFUL)
def test_a_server_that_was_killed_goes_on_from_its_checkpoint(tmp_path: Path, method: str) -> None:
    whole = Deployment(tmp_path / "whole", method)
    whole.run()
    killed = Deployment(tmp_path / "killed", method)
    number = 0
    send = killed.transport.send

    def sent(asks: Any, seconds: float | None) -> None:
        nonlocal number
        number += 1
        send(asks, seconds)  # the sites work on the third round, and nobody hears of it
        if number == 4:
            raise Killed

    killed.transport.send = sent  # type: ignore[method-assign]
    with pytest.raises(Killed):
        killed.run()
    assert_same(killed.run(resume=True), whole.replayed())


def test_a_server_that_is_restored_from_an_old_backup_goes_on_from_there(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "scaffold", settings={"rounds": 2})
    deployment.run()
    shutil.copytree(deployment.out, tmp_path / "backup")
    deployment.settings = {"rounds": 4}
    longer = deployment.run(resume=True)
    assert len(longer.records) == 4
    shutil.rmtree(deployment.out)
    shutil.copytree(tmp_path / "backup", deployment.out)
    deployment.transport.faults = Faults(lost_answers=frozenset({("node-s2", 7)}))  # other than the first time
    again = deployment.run(resume=True)
    assert [list(record["clients"]) for record in again.records[2:]] == [[0, 1, 3], [0, 1, 2, 3]]
    assert_same(again, deployment.replayed())


def test_a_server_that_goes_back_too_far_is_told_so(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "scaffold", settings={"rounds": 1})
    deployment.run()
    shutil.copytree(deployment.out, tmp_path / "backup")
    deployment.settings = {"rounds": 6}
    deployment.run(resume=True)
    shutil.rmtree(deployment.out)
    shutil.copytree(tmp_path / "backup", deployment.out)
    with pytest.raises(MachineError, match=r"round 2, site 's0': STATE_LOST: the state after round 1 is not there"):
        deployment.run(resume=True)


def test_a_site_whose_state_is_gone_stops_the_run_or_starts_anew(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "scaffold", settings={"rounds": 2})
    deployment.run()
    for path in deployment.state("s1").glob("runs/*/round-*"):
        path.unlink()
    deployment.settings = {"rounds": 3}
    with pytest.raises(MachineError, match=r"site 's1': STATE_LOST: .*--lost-state start-anew"):
        deployment.run(resume=True)
    result = deployment.run(resume=True, lost_state="start-anew")
    assert [list(record["clients"]) for record in result.records] == [[0, 1, 2, 3]] * 3
    assert any("'s1' starts anew in round 3" in line for line in deployment.told)


def test_a_site_whose_folder_is_gone_stops_the_run_or_starts_anew(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "scaffold", settings={"rounds": 2})
    deployment.run()
    shutil.rmtree(deployment.state("s1"))
    deployment.settings = {"rounds": 3}
    for _ in range(2):
        with pytest.raises(UserError, match=r"STATE_LOST: site 's1' does not know this run any more"):
            deployment.run(resume=True, quorum=4)
    result = deployment.run(resume=True, quorum=4, lost_state="start-anew")
    assert list(result.records[2]["clients"]) == [0, 1, 2, 3]
    assert read(deployment.out).accepted == ("s1",)
    deployment.settings = {"rounds": 4}
    assert len(deployment.run(resume=True, quorum=4).records) == 4


def test_what_a_site_keeps_is_for_its_owner_alone(tmp_path: Path) -> None:
    deployment = Deployment(tmp_path, "scaffold")
    deployment.run()
    for path in [deployment.state("s0"), *deployment.state("s0").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    kept = {path.name.split(".")[0] for path in deployment.state("s0").rglob("round-*.safetensors")}
    assert kept == {"round-1", "round-2", "round-3", "round-4"}


# ── the folder alone ─────────────────────────────────────────────────────────────────────────────────────────────────


def state(value: float) -> ClientState:
    return {"slots": {"local.x": {"c": Vector({"w": torch.full((3, 2), value)})}}, "cursor": torch.tensor(7)}


def test_a_version_is_what_was_saved_under_its_name(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "run")
    for version, value, keep in (("1.a", 1.0, ()), ("2.b", 2.0, ("1.a",)), ("3.c", 3.0, ("2.b",))):
        folder.begin(version, keep)
        folder.save(version, state(value))
    assert folder.versions() == {"2.b", "3.c"}
    found = folder.load("2.b", state(0.0))["slots"]["local.x"]["c"]
    assert isinstance(found, Vector)
    assert torch.equal(found.leaves["w"], torch.full((3, 2), 2.0))


def test_an_ask_is_worked_on_once(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "run")
    folder.begin("1.a", ())
    with pytest.raises(Refused, match="DOUBLED"):
        folder.begin("1.a", ())
    folder.begin("1.b", ())  # another ask of the same round


@pytest.mark.parametrize("damage", ["cut", "flipped", "gone", "other"])
def test_a_damaged_state_is_lost_and_never_believed(tmp_path: Path, damage: str) -> None:
    folder = StateFolder(tmp_path / "run")
    folder.begin("1.a", ())
    folder.save("1.a", state(1.0))
    path = tmp_path / "run" / "round-1.a.safetensors"
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    {
        "cut": lambda: path.write_bytes(path.read_bytes()[:-5]),
        "flipped": lambda: path.write_bytes(bytes(content)),
        "gone": path.unlink,
        "other": lambda: None,
    }[damage]()
    like: ClientState = {"slots": {}, "cursor": torch.tensor(0)} if damage == "other" else state(0.0)
    with pytest.raises(Refused, match="STATE_LOST"):
        folder.load("1.a", like)


STEPS: dict[str, Callable[..., Any]] = {"open": os.open, "fsync": os.fsync, "replace": os.replace}


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", STEPS)
def test_a_kill_at_any_write_leaves_the_old_versions_and_the_new_one_whole_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, after: bool
) -> None:
    folder = StateFolder(tmp_path / "run")
    folder.begin("1.a", ())
    folder.save("1.a", state(1.0))
    calls = 0
    for number in range(20):
        calls = 0

        def killing(*given: Any, **named: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == number + 1:  # noqa: B023 — it is used in this turn of the loop alone
                if after:
                    STEPS[step](*given, **named)
                raise Killed
            return STEPS[step](*given, **named)

        monkeypatch.setattr(os, step, killing)
        version = f"2.{number:x}"
        try:
            folder.begin(version, ("1.a",))
            folder.save(version, state(2.0))
            survived = True
        except Killed:
            survived = False
        monkeypatch.undo()
        assert "1.a" in folder.versions()
        folder.load("1.a", state(0.0))
        if version in folder.versions():
            folder.load(version, state(0.0))
        if survived:
            break
    assert survived
    assert number > 0 or step not in ("fsync", "replace")


def test_a_full_disk_is_said_by_its_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    deployment = Deployment(tmp_path, "scaffold")
    write = private.write_private

    def full(path: Path, content: bytes) -> None:
        if path.name.startswith("round-3") and "s2" in path.parts:
            raise OSError(28, "No space left on device")
        write(path, content)

    monkeypatch.setattr(states, "write_private", full)
    result = deployment.run()
    assert result.records[2]["clients"] == (0, 1, 3)
    assert result.records[2]["absent"] == [
        {"client": 2, "cause": f"{Code.DISK_FULL}: no space is left for the site's state"}
    ]
    assert_same(result, deployment.replayed())
