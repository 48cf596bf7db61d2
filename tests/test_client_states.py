"""What clients keep: in memory, past a limit in a file, and always their own, bit for bit, also across a resume."""

from __future__ import annotations

import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import headway as hw
from conftest import EXECUTORS, SMALL, experiment, norm_free, played, round_lines, timeless, unequal_clients
from headway.engine.simulation import begin, simulate
from headway.engine.states import ClientStates
from headway.random import built
from headway.runs.observer import Unwatched
from headway.trees import leaves_of, named_leaves, nbytes
from headway.vectors import Vector

KEEPING = ("scaffold", "moon", "gradma", "feddc", "mifa")
"""Methods whose clients keep one model, one feature network, last models, two vectors, last updates."""


def kept(number: int) -> dict[str, Any]:
    """A state with tensors of several types, one of them without axes; every value says whose it is."""
    return {
        "slots": {
            "local.rule": {
                "c": Vector(
                    {"w": torch.full((2, 3), number + 0.1, dtype=torch.float64), "b": torch.arange(2.0) - number}
                )
            },
            "objective.term": {"seen": torch.tensor(number % 2 == 0), "turns": torch.tensor(number)},
        },
        "cursor": torch.tensor(7 * number, dtype=torch.int64),
    }


ROW = nbytes(kept(0))


def same(left: Any, right: Any) -> bool:
    """The same names, types and bits."""
    mine, theirs = named_leaves(left), named_leaves(right)
    return mine.keys() == theirs.keys() and all(
        leaf.dtype == theirs[name].dtype and torch.equal(leaf, theirs[name]) for name, leaf in mine.items()
    )


def test_a_row_has_the_bytes_that_were_counted() -> None:
    assert ROW == 6 * 8 + 2 * 4 + 1 + 8 + 8


def test_without_a_limit_everything_stays_in_memory() -> None:
    store = ClientStates()
    for client in range(50):
        store.put(client, kept(client))
    assert list(store.states) == list(range(50))
    assert store.get(50) is None


def test_past_the_limit_the_states_used_longest_ago_leave_memory() -> None:
    """Room for three: what is read or written last stays; everybody is still there."""
    store = ClientStates(3 * ROW)
    for client in (4, 2, 7):
        store.put(client, kept(client))
    assert set(store.states) == {4, 2, 7}
    assert same(store.get(4), kept(4))
    store.put(0, kept(0))
    assert set(store.states) == {7, 4, 0}
    store.put(9, kept(9))
    assert set(store.states) == {4, 0, 9}
    assert list(store.clients()) == [0, 2, 4, 7, 9]
    for client in (0, 2, 4, 7, 9):
        assert same(store.get(client), kept(client))
    assert store.get(1) is None


def test_a_client_that_returns_finds_its_own_newest_state() -> None:
    """Written to the file twice, with others between: the second one is found, and neighbours are not disturbed."""
    store = ClientStates(ROW)
    for number in range(6):
        store.put(number, kept(number))
    assert set(store.states) == {5}
    store.put(2, kept(102))
    store.put(3, kept(103))
    assert set(store.states) == {3}
    expected = [kept(0), kept(1), kept(102), kept(103), kept(4), kept(5)]
    assert all(same(store.get(client), state) for client, state in enumerate(expected))


def test_the_file_is_in_the_folder_that_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And elsewhere where that cannot be written to: a run that is only looked at may lie on a disk of another."""
    places: list[Any] = []
    make = tempfile.TemporaryFile
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: places.append(dir) or make(dir=dir))
    for folder in (None, tmp_path, tmp_path / "not there"):
        store = ClientStates(ROW, folder)
        for client in range(3):
            store.put(client, kept(client))
        assert same(store.get(0), kept(0))
    assert places == [None, tmp_path, None]


def test_a_limit_below_one_state_keeps_one() -> None:
    """The state that was just put is always at hand."""
    store = ClientStates(0)
    for client in range(4):
        store.put(client, kept(client))
        assert set(store.states) == {client}
    assert all(same(store.get(client), kept(client)) for client in range(4))


def test_what_is_read_from_the_file_is_the_reader_s_own() -> None:
    """Changing it changes nothing in the store until it is put back."""
    store = ClientStates(ROW)
    for client in (0, 1):
        store.put(client, kept(client))
    state = store.get(0)
    assert state is not None
    for leaf in leaves_of(state):
        leaf.zero_()
    assert same(store.get(0), kept(0))


@given(
    st.lists(st.tuples(st.sampled_from(["put", "get", "clear"]), st.integers(0, 7)), max_size=40),
    st.one_of(st.none(), st.integers(0, 6 * ROW)),
)
@settings(deadline=None, max_examples=200)
def test_a_store_is_a_dictionary_whatever_its_limit(acts: list[tuple[str, int]], limit: int | None) -> None:
    """Against a plain dictionary: every state, who is there, who was touched, and memory within the limit."""
    store, plain, touched = ClientStates(limit), dict[int, int](), set[int]()
    for number, (act, client) in enumerate(acts):
        if act == "put":
            plain[client] = number
            touched.add(client)
            store.put(client, kept(number))
        elif act == "clear":
            touched.clear()
            store.touched.clear()
        else:
            state = store.get(client)
            assert (state is None) == (client not in plain)
            assert state is None or same(state, kept(plain[client]))
        assert store.touched == touched
        assert list(store.clients()) == sorted(plain)
        assert limit is None or nbytes(store.states) <= max(limit, ROW)
    assert all(same(store.get(client), kept(number)) for client, number in plain.items())


# In runs.


@pytest.mark.parametrize("name", KEEPING)
def test_a_run_with_states_in_a_file_gives_the_same_bits(name: str) -> None:
    """Records, server and every client's state are those of a run with all states in memory; the limit is kept."""
    chosen = experiment(name, rounds=10)
    everything = ClientStates()
    expected, end = played(chosen, store=everything)
    row = nbytes(chosen.initial_client_state)
    store = ClientStates(2 * row)
    hand, records = EXECUTORS["serial"](chosen), []
    for record, progress in simulate(chosen, hand, store, begin(chosen)):  # noqa: B007
        records.append(timeless(record))
        assert nbytes(store.states) <= 2 * row
        assert store.touched == {client for one in records for client in one["clients"]}
    assert len(store.states) < len(list(store.clients())) == 6, "some states must be in the file"
    assert records == [timeless(record) for record in expected]
    assert same(progress.model.theta, end.model.theta)
    assert same(progress.model.server, end.model.server)
    assert all(same(store.get(client), everything.get(client)) for client in store.clients())


class Stopping(Unwatched):
    """Asks the run to stop once a round is over, as Ctrl-C does."""

    def __init__(self, number: int) -> None:
        self.number = number

    def round(self, record: dict[str, Any]) -> None:
        if record["round"] == self.number:
            os.kill(os.getpid(), signal.SIGINT)

    def tell(self, message: str) -> None:
        assert "stopping after this round" in message


@pytest.mark.parametrize("name", ["scaffold", "moon", "gradma"])
def test_a_resume_with_states_in_a_file_gives_the_same_bits(name: str, tmp_path: Path) -> None:
    """Room for one state; stopped after round 5 and resumed: numbers and checkpoint of a run left alone in memory."""
    scenario = SMALL.changed(rounds=10, checkpoint_every=3, deterministic=True, executor="serial")
    given = {"model": built(norm_free, 7, "test"), **unequal_clients()}
    hw.simulate(name, scenario, out=tmp_path / "alone", **given)
    tiny = scenario.changed(client_state_mb=1e-6)
    hw.simulate(name, tiny, out=tmp_path / "limited", **given)
    with pytest.raises(KeyboardInterrupt):
        hw.simulate(name, tiny, out=tmp_path / "stopped", observer=Stopping(5), **given)
    assert len(round_lines(tmp_path / "stopped")) == 5
    hw.resume(tmp_path / "stopped", **given)
    expected = round_lines(tmp_path / "alone")
    assert len(expected) == 10
    for folder in (tmp_path / "limited", tmp_path / "stopped"):
        assert round_lines(folder) == expected
        server = "checkpoint/server-0000010.safetensors"
        assert (folder / server).read_bytes() == (tmp_path / "alone" / server).read_bytes()
    rows = "checkpoint/clients.rows"
    assert (tmp_path / "limited" / rows).read_bytes() == (tmp_path / "alone" / rows).read_bytes()
