"""A fault of one rank ends all of them alike, is said once, and leaves the last good round behind."""

from __future__ import annotations

import errno
import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import headway as hw
from conftest import experiment
from headway.cli import ending
from headway.cli.loopback import Loopback, stay_on_this_machine
from headway.engine import evaluation, server, simulation
from headway.engine.ranks import Ranks, Told, speaker
from headway.errors import Interrupted, MachineError, RankFailed, RankSilent, shared
from headway.runs.callbacks.hooks import hooked
from headway.runs.checkpoint import Checkpoint
from headway.runs.client_rows import ClientRows
from headway.runs.driver import drive
from headway.runs.job import Job
from headway.runs.observer import Silent
from headway.runs.ranked import drive_together
from headway.runs.reserve import reserve
from ranks_at_work import checkpoint_of, kept_run, on_ranks, own_objects, returned

ROUNDS = 4


def committed(folder: Path) -> int:
    return int(json.loads((folder / "checkpoint" / "manifest.json").read_text())["round"])


# ── wherever it is raised ────────────────────────────────────────────────────────────────────────────────────────────


def breaks_at(call: int, fault: Callable[[], Exception], patch: pytest.MonkeyPatch, owner: object, name: str) -> None:
    """Have a function raise when it is called for this time; before, it does what it does."""
    calls, real = Counter[str](), getattr(owner, name)

    def broken(*given: Any, **named: Any) -> Any:
        calls["made"] += 1
        if calls["made"] == call:
            raise fault()
        return real(*given, **named)

    patch.setattr(owner, name, broken)


def full_disk() -> Exception:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "clients.rows")


PLACES: dict[str, tuple[object, str, Callable[[], Exception], int]] = {
    "rows of clients": (ClientRows, "write", full_disk, 3),
    "rows taken over": (ClientRows, "take_over", full_disk, 3),
    "rows handed over": (ClientRows, "hand_over", full_disk, 3),
    "the server's step": (server, "update", lambda: KeyError("not today"), 3),
    "scoring": (evaluation, "_scored", lambda: KeyError("not today"), 3),
    "after the scores": (simulation, "_numbers", lambda: KeyError("not today"), 3),
}
"""What breaks, how, and in which call of it: in round 3."""
ONE_ALONE = {"rows of clients": 0, "rows taken over": 0, "rows handed over": 1}
"""The rank that alone does some of this."""


@pytest.mark.parametrize(
    ("place", "rank"), [(place, rank) for place in PLACES for rank in (0, 1) if ONE_ALONE.get(place, rank) == rank]
)
def test_a_fault_of_one_rank_ends_all_and_the_run_goes_on_later(place: str, rank: int, tmp_path: Path) -> None:
    """Clients keep statistics of their own, so that ranks send each other states in evaluations, too."""
    chosen = {"buffers": "keep-local", "participation": 1.0, "client_test": 0.3}
    drive(
        Job(
            kept_run(rounds=ROUNDS, **chosen),
            reserve(tmp_path / "alone", kept_run(rounds=ROUNDS, **chosen).scenario),
            Silent(),
        )
    )
    owner, name, fault, call = PLACES[place]

    def work(ranks: Ranks) -> object:
        with pytest.MonkeyPatch.context() as patch:
            if ranks.rank == rank:
                breaks_at(call, fault, patch, owner, name)
            try:
                drive_together(kept_run(rounds=ROUNDS, **chosen), tmp_path / "several", Silent(), (), {}, ranks)
            except Exception as known:
                return type(known).__name__, speaker(ranks, known), str(known)
        return "it went well"

    found = on_ranks(2, work)
    assert found[rank][:2] == (type(fault()).__name__, rank), found
    assert found[1 - rank][:2] == ("RankFailed", rank), found
    assert f"rank {rank}: " in found[1 - rank][2]
    assert committed(tmp_path / "several") == 2
    hw.resume(tmp_path / "several", **own_objects())
    assert checkpoint_of(tmp_path / "several") == checkpoint_of(tmp_path / "alone")


def test_a_checkpoint_that_cannot_be_committed_ends_all(tmp_path: Path) -> None:
    """The other ranks are in the next round by then."""

    def work(ranks: Ranks) -> object:
        with pytest.MonkeyPatch.context() as patch:
            breaks_at(4, full_disk, patch, Checkpoint, "_commit")
            return drive_together(kept_run(rounds=ROUNDS), tmp_path / "several", Silent(), (), {}, ranks)

    assert [kind for kind, *_ in on_ranks(2, work)] == ["OSError", "RankFailed"]
    assert committed(tmp_path / "several") == 2


def test_a_callback_that_fails_or_stops_ends_all(tmp_path: Path) -> None:
    def fails(run: Any) -> None:
        if run.round == 2:
            raise KeyError("not today")

    def stops(run: Any) -> None:
        if run.round == 2:
            run.stop("enough")

    def work(callback: Callable[[Any], None]) -> Callable[[Ranks], object]:
        folder = tmp_path / callback.__name__
        return lambda ranks: drive_together(
            kept_run(rounds=ROUNDS), folder, Silent(), hooked(callback), {}, ranks
        ).summary["rounds"]

    failed = on_ranks(2, work(fails))
    assert [kind for kind, *_ in failed] == ["CallbackError"] * 2
    assert failed[0][1] == failed[1][1]
    assert returned(on_ranks(2, work(stops))) == [2, 2]
    assert committed(tmp_path / "stops") == 2


def test_ranks_that_compute_other_numbers_commit_none_of_them(tmp_path: Path) -> None:
    """The checkpoint is that of the round before, from which the run goes on."""
    drive(Job(kept_run(rounds=ROUNDS), reserve(tmp_path / "alone", kept_run(rounds=ROUNDS).scenario), Silent()))

    def work(ranks: Ranks) -> object:
        real, calls = server.update, Counter[str]()

        def other(*given: Any) -> Any:
            found, calls["made"] = real(*given), calls["made"] + 1
            if calls["made"] == 3 and ranks.rank == 1:
                for leaf in found.state.theta.leaves.values():
                    leaf.mul_(1 + 1e-6)
            return found

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(server, "update", other)
            return drive_together(kept_run(rounds=ROUNDS), tmp_path / "several", Silent(), (), {}, ranks)

    for kind, text, _ in on_ranks(2, work):
        assert kind == "RanksDiffer"
        assert text.startswith("round 3: rank 1 has another model than rank 0")
    assert committed(tmp_path / "several") == 2
    hw.resume(tmp_path / "several", **own_objects())
    assert checkpoint_of(tmp_path / "several") == checkpoint_of(tmp_path / "alone")


# ── said once ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("of_first", "of_second", "who"),
    [
        (lambda: shared(full_disk()), lambda: shared(RankFailed(0, "OSError")), 0),
        (lambda: shared(RankFailed(1, "OSError")), lambda: shared(full_disk()), 1),
        (lambda: shared(RankFailed(1, "MemoryError")), lambda: shared(MemoryError()), 1),
        (lambda: shared(MachineError("a worker died")), lambda: shared(MachineError("a worker died")), 0),
        (lambda: shared(hw.UserError("no such thing")), lambda: shared(hw.UserError("no such thing")), 0),
        (lambda: shared(Interrupted()), lambda: shared(Interrupted()), 0),
        (lambda: RankSilent("another rank has not answered"), lambda: RankSilent("another has not answered"), 0),
    ],
)
@pytest.mark.parametrize("resumable", [False, True])
def test_one_rank_says_what_it_was(
    of_first: Callable[[], BaseException],
    of_second: Callable[[], BaseException],
    who: int,
    resumable: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    said = []
    monkeypatch.setattr("sys.argv", ["headway"])
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank, raised in enumerate((of_first, of_second)):
        monkeypatch.setenv("RANK", str(rank))

        def command(raised: Callable[[], BaseException] = raised) -> object:
            if not resumable:
                raise raised()
            with ending.resumable(tmp_path):
                raise raised()

        assert ending.answered(command) > 0
        said.append(capsys.readouterr().err.count("headway: "))
    assert said == [1 - who, who]


# ── what ranks tell each other ───────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Counting:
    """Ranks that count the exchanges of one of them."""

    inner: Ranks
    made: Counter[str] = field(default_factory=Counter)

    @property
    def rank(self) -> int:
        return self.inner.rank

    @property
    def size(self) -> int:
        return self.inner.size

    def tell(self, content: Told, fault: BaseException | None = None) -> Sequence[Told]:
        self.made["tell"] += 1
        return self.inner.tell(content, fault)

    def add_up(self, flat: Tensor) -> None:
        self.made["add_up"] += 1
        self.inner.add_up(flat)

    def spread(self, flat: Tensor, source: int) -> None:
        self.made["spread"] += 1
        self.inner.spread(flat, source)

    def send(self, flat: Tensor, target: int) -> Callable[[], None]:
        self.made["send"] += 1
        return self.inner.send(flat, target)

    def receive(self, flat: Tensor, source: int) -> None:
        self.made["receive"] += 1
        self.inner.receive(flat, source)

    def outlive(self, rank: int) -> None:
        self.inner.outlive(rank)


def test_a_round_of_fedavg_that_is_scored_and_saved_makes_three_exchanges(tmp_path: Path) -> None:
    """Reports, the sum, and what comes next; between runs of three and of six rounds only rounds differ."""

    def work(ranks: Ranks) -> list[Counter[str]]:
        found = []
        for rounds in (3, 6):
            counting = Counting(ranks)
            chosen = experiment("fedavg", rounds=rounds, checkpoint_every=1, executor="serial")
            drive_together(chosen, tmp_path / str(rounds), Silent(), (), {}, counting)
            found.append(counting.made)
        return found

    for short, long in returned(on_ranks(2, work)):
        assert {kind: long[kind] - short[kind] for kind in long if long[kind] != short[kind]} == {
            "tell": 6,
            "add_up": 3,
        }


# ── ports ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def listening() -> dict[int, list[str]]:
    """The addresses on which this machine listens, as the kernel writes them, by port."""
    found: dict[int, list[str]] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        lines = Path(table).read_text().splitlines()[1:] if Path(table).is_file() else []
        for address, state in ((line.split()[1], line.split()[3]) for line in lines):
            if state == "0A":
                place, port = address.split(":")
                found.setdefault(int(port, 16), []).append(place)
    return found


@pytest.mark.skipif(not Path("/proc/net/tcp").is_file(), reason="ports are found by /proc")
def test_the_launcher_listens_on_the_loopback_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("GLOO_SOCKET_IFNAME")
    handler = Loopback("a run")
    first, again = handler.next_rendezvous(), handler.next_rendezvous()
    assert first.bootstrap_store_info is not None
    assert listening()[first.bootstrap_store_info.master_port] == ["0100007F"]  # 127.0.0.1, backwards
    first.store.set("a word", "of the first meeting")
    assert not again.store.check(["a word"])
    assert handler.get_backend() == stay_on_this_machine()
    assert os.environ["GLOO_SOCKET_IFNAME"] in {name for _, name in socket.if_nameindex()}
