"""Several ranks give one process's numbers: its bits in deterministic mode, 1e-10 otherwise."""

from __future__ import annotations

import itertools
import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import headway as hw
from conftest import NETWORKS, SMALL, distance, experiment, made_by, unequal_clients
from headway.bench import over_ranks
from headway.cli.main import app
from headway.engine import fold, spread
from headway.engine.building import build
from headway.engine.ranks import Ranks, all_or_none
from headway.engine.shares import blocks, longest_first, waves
from headway.engine.simulation import begin, simulate, spread_over
from headway.engine.states import ClientStates
from headway.errors import ClientError, UserError
from headway.methods.spelling import method
from headway.random import built
from headway.runs import shared_folder
from headway.runs.driver import drive
from headway.runs.job import Job
from headway.runs.observer import Silent
from headway.runs.ranked import drive_together, go_on_together
from headway.runs.reserve import reserve
from headway.runs.resume import lengthen
from headway.scenario import Scenario
from headway.trees import leaves_of
from methods_under_test import EVERY
from ranks_at_work import kept_run, on_ranks, own_objects, returned

FEW = ("scaffold", "own median")
"""Methods of the ordinary suite: state on clients with messages of two fields, and a server that needs each upload."""
ALL = [pytest.param(name, marks=() if name in FEW else pytest.mark.soak) for name in EVERY]


def state_of(progress: Any) -> list[Any]:
    best = [] if progress.best is None else [progress.best.theta, progress.best.buffers]
    return [progress.model.theta, progress.model.buffers, progress.model.server, *best]


def told(record: Any) -> str:
    """A record without what depends on the clock."""
    return json.dumps({name: value for name, value in record.items() if "seconds" not in name}, sort_keys=True)


Ended = tuple[list[str], Any, dict[int, Any]]
"""Records, model and server state, and clients' states by client."""


def played(chosen: Any, ranks: Ranks | None = None, executor: str = "serial") -> Ended:
    """A run in memory, by itself or as one rank of several; of several, a rank has the states that it holds."""
    hand, store = made_by(executor, chosen), ClientStates()
    over = None if ranks is None else spread_over(ranks, chosen, store)
    progress, records = begin(chosen), []
    try:
        for record, progress in simulate(chosen, hand, store, progress, spread=over):  # noqa: B007, B020
            records.append(told(record))
    finally:
        hand.close()
    return records, state_of(progress), {client: store.get(client) for client in store.clients()}


def apart(chosen: Any, count: int, executor: str = "serial") -> tuple[list[dict[str, Any]], Ended]:
    """What each rank made of a run, beside what one process does."""
    alone = played(chosen)

    def work(ranks: Ranks) -> dict[str, Any]:
        records, state, held = played(chosen, ranks, executor)
        return {
            "same records": records == alone[0],
            "same bits": all(map(torch.equal, leaves_of(state), leaves_of(alone[1]))),
            "distance": distance(state, alone[1]),
            "of clients": max((distance(held[client], alone[2][client]) for client in held), default=0.0),
            "clients": sorted(held),
            "arrived": [json.loads(line)["clients"] for line in records]
            == [json.loads(line)["clients"] for line in alone[0]],
        }

    return list(returned(on_ranks(count, work))), alone


def arrived(records: list[str]) -> list[list[int]]:
    return [json.loads(line)["clients"] for line in records]


def check_equal(chosen: Any, count: int) -> None:
    found, (_, _, states) = apart(chosen, count)
    for one in found:
        assert one["same records"]
        assert one["same bits"]
        assert one["of clients"] == 0
    assert sorted(itertools.chain.from_iterable(one["clients"] for one in found)) == sorted(states)


@pytest.mark.parametrize("network", ["norm_free", pytest.param("batch_norm_dropout", marks=pytest.mark.soak)])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", ALL)
def test_deterministic_ranks_have_the_bits_of_one_process(name: str, count: int, network: str) -> None:
    """Model, server state, records, and each client's state, which one rank holds."""
    check_equal(experiment(EVERY[name], network, deterministic=True), count)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("name", ALL)
def test_ranks_agree_with_one_process(name: str, count: int) -> None:
    found, (_, _, states) = apart(experiment(EVERY[name], "batch_norm_dropout"), count)
    for one in found:
        assert one["arrived"]
        assert one["distance"] < 1e-10
        assert one["of clients"] < 1e-10
    assert sorted(itertools.chain.from_iterable(one["clients"] for one in found)) == sorted(states)


SETTINGS: dict[str, dict[str, Any]] = {
    "drawn twice": {"sampling": "replacement", "participation": 1.0},
    "cut short": {"dropout": 0.4, "stragglers": "partial"},
    "lost": {"dropout": 0.4},
    "invited beyond the cohort": {"over_selection": 0.5, "dropout": 0.3},
    "fewer clients than ranks": {"participation": 1 / 6},
    "one stream across rounds": {"batches": "continued", "steps": 5},
    "statistics of their own": {"buffers": "keep-local"},
    "everybody": {"participation": 1.0},
    "loss on all data": {"global_loss": True},
}


@pytest.mark.parametrize("kind", list(SETTINGS))
def test_every_kind_of_cohort_has_the_bits_of_one_process(kind: str) -> None:
    check_equal(experiment("scaffold", "batch_norm_dropout", deterministic=True, **SETTINGS[kind]), 3)


@pytest.mark.parametrize("cohort", [{}, {"sampling": "poisson", "participation": 0.2}], ids=["fixed", "poisson"])
def test_private_rounds_have_the_bits_of_one_process(cohort: dict[str, Any]) -> None:
    """Every rank draws the same noise, also in a round of nobody."""
    private = experiment("fedavg+dp:clip=1,noise=1", deterministic=True, weights="uniform", **cohort)
    check_equal(private, 2)


@pytest.mark.parametrize("executor", ["batched", "pool"])
def test_ranks_have_any_executor(executor: str) -> None:
    found, _ = apart(experiment("fedacg", "batch_norm_dropout", participation=1.0), 2, executor)
    assert max(one["distance"] for one in found) < 1e-10


# ── shares ───────────────────────────────────────────────────────────────────────────────────────────────────────────

LENGTHS = st.lists(st.integers(0, 50), min_size=0, max_size=30)


@given(LENGTHS, st.integers(1, 9))
def test_blocks_are_contiguous_and_nearly_even(lengths: list[int], size: int) -> None:
    """Each client has one rank, in the order of the cohort; a rank has at most its part and one client more."""
    ranks = blocks(lengths, size)
    assert len(ranks) == len(lengths)
    assert ranks == sorted(ranks)
    assert all(0 <= rank < size for rank in ranks)
    loads = [sum(length for length, rank in zip(lengths, ranks, strict=True) if rank == one) for one in range(size)]
    assert max(loads) <= sum(lengths) / size + max(lengths, default=0)


def least_makespan(lengths: list[int], size: int) -> int:
    """The least that the rank with most to do can have, by trying everything."""
    loads = {tuple([0] * size)}
    for length in lengths:
        loads = {
            tuple(sorted((*load[:one], load[one] + length, *load[one + 1 :]))) for load in loads for one in range(size)
        }
    return min(max(load) for load in loads)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=8), st.integers(1, 4), st.data())
def test_longest_first_takes_at_most_a_third_longer_than_is_possible(
    lengths: list[int], size: int, data: st.DataObject
) -> None:
    """With holders, too: a state is moved rather than that its rank gets more than a tenth too much."""
    holders = data.draw(st.none() | st.lists(st.integers(-1, size - 1), min_size=len(lengths), max_size=len(lengths)))
    ranks = longest_first(lengths, size, holders)
    assert len(ranks) == len(lengths)
    assert all(0 <= rank < size for rank in ranks)
    loads = [sum(length for length, rank in zip(lengths, ranks, strict=True) if rank == one) for one in range(size)]
    assert 3 * max(loads) <= 4 * least_makespan(lengths, size)


def test_states_stay_where_they_are_if_that_is_even() -> None:
    holders = [place % 3 for place in range(60)]
    assert longest_first([7] * 60, 3, holders) == holders


@given(st.lists(st.integers(), max_size=40), st.integers(1, 9))
def test_waves_have_every_place_once(places: list[int], most: int) -> None:
    found = waves(places, most)
    assert [place for wave in found for place in wave] == places
    assert max(map(len, found)) <= most


def test_a_wave_has_the_bits_of_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where uploads would fill the memory of a rank, the running sum goes round several times."""
    monkeypatch.setattr(spread, "HELD_AT_MOST", 1)
    monkeypatch.setattr(fold, "CHUNK", 7)
    check_equal(experiment("scaffold", "batch_norm_dropout", deterministic=True, participation=1.0), 2)


# ── faults ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Failing(nn.Module):
    """Fails over samples with a large number in them, which two of six clients have."""

    def __init__(self, beyond: float) -> None:
        super().__init__()
        self.inner, self.beyond = nn.Linear(6, 3), beyond

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training and float(x.max()) > self.beyond:
            raise KeyError("not today")
        return self.inner(x)  # type: ignore[no-any-return]


def failing(**settings: Any) -> Any:
    """An experiment in which some clients fail, and some do not."""
    module = built(lambda: Failing(2.0), 7, "test")
    changed = SMALL.changed(participation=1.0, deterministic=True, **settings)
    return build(changed, method("scaffold"), model=module, **unequal_clients())


def test_what_one_rank_raises_all_raise() -> None:
    with pytest.raises(ClientError) as alone:
        played(failing())

    def work(ranks: Ranks) -> object:
        with all_or_none(ranks):
            return played(failing(), ranks)

    for kind, text, _ in on_ranks(3, work):
        assert (kind, text) == ("ClientError", str(alone.value))


def test_clients_that_fail_are_skipped_on_all_ranks() -> None:
    chosen = failing(on_failure="skip")
    assert "not today" in played(chosen)[0][0]
    check_equal(chosen, 3)


def test_ranks_with_another_model_are_refused() -> None:
    def work(ranks: Ranks) -> object:
        module = built(NETWORKS["norm_free"], ranks.rank, "test")
        chosen = build(SMALL, method("fedavg"), model=module, **unequal_clients())
        return drive_together(chosen, None, Silent(), (), {}, ranks)

    for kind, text, _ in on_ranks(2, work):
        assert kind == "UserError"
        assert "rank 1 does not have what rank 0 has: the same numbers in the model" in text


def test_a_folder_that_is_not_shared_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_folder, "_PATIENCE", 0.0)

    def work(ranks: Ranks) -> object:
        os.chdir(tmp_path / str(ranks.rank))
        return drive_together(experiment("fedavg"), Path("run"), Silent(), (), {}, ranks)

    for rank in range(2):
        (tmp_path / str(rank)).mkdir()
    for kind, text, _ in on_ranks(2, work):
        assert kind == "UserError"
        assert "rank 1 does not see the folder" in text


def test_a_stack_is_refused_in_deterministic_mode_before_its_folder_is_made(tmp_path: Path) -> None:
    chosen = experiment("fedavg", deterministic=True, executor="batched")
    for kind, text, _ in on_ranks(2, lambda ranks: drive_together(chosen, tmp_path / "run", Silent(), (), {}, ranks)):
        assert kind == "UserError"
        assert "use serial or pool, or leave deterministic out" in text
    assert not (tmp_path / "run").exists()


def test_a_number_of_ranks_that_was_not_started_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="ranks is 2, but this process was started alone"):
        hw.simulate("fedavg", rounds=1, ranks=2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match="MASTER_ADDR is not in the environment"):
        hw.simulate("fedavg", rounds=1)
    with pytest.raises(UserError, match="ranks is 3, but 2 processes were started"):
        hw.simulate("fedavg", rounds=1, ranks=3)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["compare", "fedavg", "fedacg"], "headway compare trains several runs"),
        (["sweep", "fedacg", "--grid", "lam=0.8,0.9"], "headway sweep trains several runs"),
        (["run", "fedavg", "--seeds", "2"], "headway run with 2 seeds trains several runs"),
    ],
)
def test_commands_of_several_runs_are_refused_among_ranks(
    words: list[str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    with pytest.raises(UserError, match=expected):
        app(words, standalone_mode=False)


def test_numbers_of_ranks_of_a_benchmark_are_checked() -> None:
    assert over_ranks.counts(["4", "1", "4"]) == [1, 4]
    with pytest.raises(UserError, match="ranks is '0'; give numbers from 1 to 1024"):
        over_ranks.counts(["0"])
    with pytest.raises(UserError, match="engine 'flower' does not run on ranks"):
        over_ranks.engines_over_ranks(["flower"])


# ── folders ──────────────────────────────────────────────────────────────────────────────────────────────────────────

KEPT = ("server-0000006.safetensors", "clients.rows", "manifest.json")


def files(folder: Path) -> dict[str, bytes]:
    """The bytes of a checkpoint."""
    assert {file.name for file in (folder / "checkpoint").iterdir()} == set(KEPT)
    return {name: (folder / "checkpoint" / name).read_bytes() for name in KEPT}


def stopped_after(rounds: int, folder: Path) -> Callable[[Ranks], object]:
    """A rank that is killed −9 after so many rounds, in the middle of the next."""

    def work(ranks: Ranks) -> object:
        class Killed(Silent):
            def round(self, record: Any) -> None:
                if record["round"] == rounds:
                    os.kill(os.getpid(), signal.SIGKILL)

        drive_together(kept_run(), folder, Killed(), (), {}, ranks)
        return "done"

    return work


def test_a_run_goes_on_with_fewer_ranks_from_where_a_killed_one_left_it(tmp_path: Path) -> None:
    """3 → 2 → 1 ranks, each killed −9 after two rounds: the bytes of an uninterrupted run of one process."""
    drive(Job(kept_run(), reserve(tmp_path / "alone", kept_run().scenario), Silent()))
    folder = tmp_path / "several"
    for count, rounds in ((3, 2), (2, 4)):
        found = on_ranks(count, stopped_after(rounds, folder), killed=(0,))
        assert [kind for kind, *_ in found[1:]] == ["RanksLost"] * (count - 1)
        assert len((folder / "rounds.jsonl").read_bytes().splitlines()) == rounds
    hw.resume(folder, **own_objects())
    assert files(folder) == files(tmp_path / "alone")


def test_a_run_of_one_process_goes_on_with_three_ranks(tmp_path: Path) -> None:
    drive(Job(kept_run(), reserve(tmp_path / "alone", kept_run().scenario), Silent()))
    folder = tmp_path / "several"
    short = kept_run(rounds=3)
    drive(Job(short, reserve(folder, short.scenario), Silent()))
    lengthen(folder, 6)
    returned(on_ranks(3, lambda ranks: go_on_together(kept_run(), folder, Silent(), (), {}, ranks, False).summary))
    assert files(folder) == files(tmp_path / "alone")
    assert hw.load_run(folder, **own_objects()).summary["rounds"] == 6


def test_no_file_is_written_by_two_ranks(tmp_path: Path) -> None:
    """Two ranks that save at the same time, each into files of its own: no file system has to join their writes."""
    drive(Job(kept_run(), reserve(tmp_path / "alone", kept_run().scenario), Silent()))
    folder = tmp_path / "several"

    def work(ranks: Ranks) -> set[str]:
        written: set[str] = set()

        def heard(event: str, given: tuple[Any, ...]) -> None:
            if event == "open" and isinstance(given[0], str | os.PathLike):
                path, flags = Path(os.fspath(given[0])), int(given[2])
                if folder in path.parents and not path.is_dir() and flags & (os.O_WRONLY | os.O_RDWR):
                    written.add(path.relative_to(folder).as_posix())
            elif event == "os.rename" and folder in Path(given[1]).parents:
                written.add(Path(given[1]).relative_to(folder).as_posix())

        sys.addaudithook(heard)  # it ends with this process
        drive_together(kept_run(), folder, Silent(), (), {}, ranks)
        return written

    first, second = returned(on_ranks(2, work))
    assert {"checkpoint/clients.rows", "checkpoint/manifest.json", "rounds.jsonl"} <= first
    assert second == {f"checkpoint/rows-{round:07d}-of-rank-1.part" for round in range(1, 7)}
    assert not first & second
    assert files(folder) == files(tmp_path / "alone")


# ── memory ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def most_memory() -> int:
    """The most memory that this process ever had, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@pytest.mark.parametrize(("count", "deterministic"), [(1, False), (2, False), (2, True)])
def test_memory_does_not_grow_with_the_cohort(count: int, deterministic: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """20 clients and then 400, with a model of 0.8 MB: 320 MB over all ranks, if uploads were kept."""
    monkeypatch.setattr(spread, "HELD_AT_MOST", 1 << 22)
    draw = np.random.default_rng(0)
    clients = [(draw.normal(size=(2, 1000)).astype(np.float32), np.array([0, 1])) for _ in range(400)]
    module = built(lambda: nn.Linear(1000, 200), 7, "test")
    settings = {"rounds": 2, "eval_every": 2, "batch_size": 2, "epochs": 1, "device": "cpu", "precision": "fp32"}

    def work(ranks: Ranks) -> list[int]:
        found = []
        for cohort in (20, 400):
            scenario = Scenario(cohort_size=cohort, executor="serial", deterministic=deterministic, **settings)  # type: ignore[arg-type]
            chosen = build(scenario, method("fedavg"), model=module, clients=clients, test=clients[0])
            hand, store = made_by("serial", chosen), ClientStates()
            over = spread_over(ranks, chosen, store)
            records = [record for record, _ in simulate(chosen, hand, store, begin(chosen), spread=over)]
            assert [len(record["clients"]) for record in records] == [cohort] * 2
            found.append(most_memory())
        return found

    for few, many in returned(on_ranks(count, work)):
        assert many - few < 60e6


@pytest.mark.soak
def test_a_cohort_of_ten_thousand_takes_bounded_memory_on_two_ranks() -> None:
    """9,000 more uploads of 0.14 MB, which nobody keeps, half of them on each rank: less than a tenth of their size."""
    script = Path(__file__).resolve().parents[1] / "benchmarks" / "cohorts.py"
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr=127.0.0.1", "--nproc-per-node=2"]
    found = []
    for cohort in (1_000, 10_000):
        case = {"population": 10_000, "cohort": cohort, "executor": "serial", "rounds": 1, "ranks": 2}
        command = [sys.executable, *launcher, str(script), "--case", json.dumps(case)]
        words = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, capture_output=True, text=True, env=words, check=False)
        assert done.returncode == 0, done.stderr[-2000:]
        found.append(json.loads(done.stdout))
    few, many = found
    uploads = (many["uploads_bytes"] - few["uploads_bytes"]) / 2
    assert uploads > 600e6
    assert many["peak_memory_bytes"] - few["peak_memory_bytes"] < uploads / 10
