"""Client states on disk: whatever a crash leaves behind, the committed states are there, and a save costs little."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.errors import MachineError, UserError
from headway.runs.client_rows import ClientRows
from headway.trees import named_leaves
from headway.vectors import Vector

STAMP_BYTES = 16

States = dict[int, dict[str, Any]]


def initial(coordinates: int = 3) -> dict[str, Any]:
    """A state of several types: a vector, a counter, a flag."""
    control = Vector({"weight": torch.zeros(coordinates, dtype=torch.float64), "bias": torch.zeros(())})
    return {"slots": {"local.rule": {"control": control}}, "cursor": torch.tensor(0), "flag": torch.tensor(False)}


def state(number: int, coordinates: int = 3) -> dict[str, Any]:
    """A state that no other number has."""
    weight = torch.arange(coordinates, dtype=torch.float64) / 7 + number
    control = Vector({"weight": weight, "bias": torch.tensor(1.0 / (1 + number))})
    flag = torch.tensor(bool(number % 2))
    return {"slots": {"local.rule": {"control": control}}, "cursor": torch.tensor(number), "flag": flag}


def assert_equal(found: States, expected: States) -> None:
    assert found.keys() == expected.keys()
    for client, held in expected.items():
        mine, theirs = named_leaves(found[client]), named_leaves(held)
        assert mine.keys() == theirs.keys()
        for name, leaf in theirs.items():
            assert mine[name].dtype == leaf.dtype
            assert torch.equal(mine[name], leaf), f"client {client}: {name}"


def made(folder: Path, population: int, coordinates: int = 3) -> ClientRows:
    rows = ClientRows(folder / "clients.rows", initial(coordinates), population)
    rows.create()
    return rows


def loaded(rows: ClientRows, round: int) -> States:
    return dict(rows.load(round, rows.digest(round)))


class Crash(Exception):
    """The process would be dead here."""


@contextmanager
def pwrite_as(replacement: Callable[..., int]) -> Iterator[None]:
    real = os.pwrite
    os.pwrite = replacement
    try:
        yield
    finally:
        os.pwrite = real


@contextmanager
def crashing(writes: int, share: float) -> Iterator[None]:
    """The n-th write gets a share of its bytes to the file, then all is over.

    A row may break off anywhere. Stamps break off between two of them: they do not straddle pages or sectors.
    """
    real, left = os.pwrite, [writes]

    def write(handle: int, content: bytes, offset: int) -> int:
        if left[0] == 0:
            grain = 1 if offset else STAMP_BYTES
            real(handle, content[: int(share * len(content)) // grain * grain], offset)
            raise Crash
        left[0] -= 1
        return real(handle, content, offset)

    with pwrite_as(write):
        yield


@dataclass(frozen=True)
class Save:
    """One save: whom it touches, how many rounds after the checkpoint, and how it ends."""

    touched: frozenset[int]
    rounds: int
    crash: tuple[int, float] | None
    """How many writes come first, and which share of the next one is done; None: it is not killed in the save."""
    committed: bool
    """Whether the manifest was written after it."""
    crash_forgetting: float | None
    """A crash while what it left is forgotten, after this share of the stamps."""


def saves(population: int) -> st.SearchStrategy[Save]:
    shares = st.floats(0, 1)
    return st.builds(
        Save,
        touched=st.frozensets(st.integers(0, population - 1), min_size=1),
        rounds=st.sampled_from([1, 2, 3, 255, 256, 70_000]),
        crash=st.none() | st.tuples(st.integers(0, population), shares),
        committed=st.booleans(),
        crash_forgetting=st.none() | shares,
    )


@given(st.integers(1, 5).flatmap(lambda size: st.tuples(st.just(size), st.lists(saves(size), max_size=8))))
@settings(deadline=None, max_examples=150)
def test_what_was_committed_always_loads(plan: tuple[int, list[Save]]) -> None:
    """However saves end (done, done and never committed, broken off anywhere), the last committed states load."""
    population, steps = plan
    with tempfile.TemporaryDirectory() as folder:
        made(Path(folder), population)
        committed, expected, number = 0, States(), 0
        for step in steps:
            rows = ClientRows(Path(folder) / "clients.rows", initial(), population)  # a new life
            round = committed + step.rounds
            new = dict(expected)
            for client in step.touched:
                number += 1
                new[client] = state(number)
            crash = step.crash if step.crash is not None and step.crash[0] <= len(step.touched) else None
            if crash is None:
                rows.save(new.get, step.touched, committed, round)
                if step.committed:
                    committed, expected = round, new
            else:
                with crashing(*crash), pytest.raises(Crash):
                    rows.save(new.get, step.touched, committed, round)
            assert_equal(loaded(rows, committed), expected)
            if step.crash_forgetting is not None:
                with crashing(0, step.crash_forgetting), pytest.raises(Crash):
                    rows.forget_after(committed)
                assert_equal(loaded(rows, committed), expected)
            rows.forget_after(committed)
            assert_equal(loaded(rows, committed), expected)


@given(
    st.lists(st.frozensets(st.integers(0, 4), min_size=1), min_size=1, max_size=5), st.integers(0, 5), st.floats(0, 1)
)
@settings(deadline=None, max_examples=50)
def test_a_crash_leaves_no_trace(turns: list[frozenset[int]], writes: int, share: float) -> None:
    """A save that broke off and is done again ends with the same bytes as one that did not."""
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        calm, shaken = made(Path(first), 5), made(Path(second), 5)
        states: States = {}
        for committed, touched in enumerate(turns):
            states |= {client: state(10 * committed + client) for client in touched}
            calm.save(states.get, touched, committed, committed + 1)
            if writes <= len(touched):
                with crashing(writes, share), pytest.raises(Crash):
                    shaken.save(states.get, touched, committed, committed + 1)
                shaken.forget_after(committed)
            shaken.save(states.get, touched, committed, committed + 1)
        assert calm.path.read_bytes() == shaken.path.read_bytes()


@given(
    population=st.integers(4, 40),
    earlier=st.frozensets(st.integers(0, 3)),
    touched=st.frozensets(st.integers(0, 3), min_size=1),
    coordinates=st.integers(1, 50),
)
@settings(deadline=None, max_examples=50)
def test_a_save_writes_the_touched_rows_and_the_stamps(
    population: int, earlier: frozenset[int], touched: frozenset[int], coordinates: int
) -> None:
    """Each row of a touched client once and 32 bytes for each client: nothing for the rows of the others."""
    with tempfile.TemporaryDirectory() as folder:
        rows = made(Path(folder), population, coordinates)
        rows.save({client: state(client, coordinates) for client in range(4)}.get, earlier, 0, 1)
        written = []
        real = os.pwrite

        def write(handle: int, content: bytes, offset: int) -> int:
            written.append(len(content))
            return real(handle, content, offset)

        with pwrite_as(write):
            rows.save({client: state(client, coordinates) for client in range(4)}.get, touched, 1, 2)
        assert rows.row_bytes == 8 * coordinates + 4 + 8 + 1
        assert sum(written) == len(touched) * rows.row_bytes + population * 2 * STAMP_BYTES


def test_an_empty_file_takes_no_space(tmp_path: Path) -> None:
    """Clients that nobody has asked yet have a file of full length and hardly a block; one save adds little."""
    rows = made(tmp_path, population=20_000, coordinates=1000)
    assert rows.path.stat().st_size == rows.size == 20_000 * 2 * (STAMP_BYTES + rows.row_bytes)
    assert rows.path.stat().st_blocks * 512 < rows.size / 1000
    assert loaded(rows, 0) == loaded(rows, 5) == {}
    rows.save({7: state(7, 1000)}.get, [7], 0, 1)
    assert rows.path.stat().st_size == rows.size
    assert rows.path.stat().st_blocks * 512 < rows.size / 100
    assert_equal(loaded(rows, 1), {7: state(7, 1000)})


def test_only_rounds_up_to_the_checkpoint_count(tmp_path: Path) -> None:
    """Two rounds of each client are there; the checkpoint's round says which is meant."""
    rows = made(tmp_path, 3)
    rows.save({0: state(10), 1: state(11)}.get, [0, 1], 0, 3)
    rows.save({1: state(21), 2: state(22)}.get, [1, 2], 3, 6)
    assert loaded(rows, 0) == {}
    assert_equal(loaded(rows, 3), {0: state(10), 1: state(11)})
    assert_equal(loaded(rows, 6), {0: state(10), 1: state(21), 2: state(22)})
    rows.forget_after(3)
    assert_equal(loaded(rows, 6), {0: state(10), 1: state(11)})


def test_loaded_states_are_apart(tmp_path: Path) -> None:
    """A loaded state can be changed without changing another, the file or the initial one."""
    rows = made(tmp_path, 2)
    rows.save({0: state(1), 1: state(2)}.get, [0, 1], 0, 1)
    states = loaded(rows, 1)
    states[0]["cursor"] += 5
    states[0]["slots"]["local.rule"]["control"].leaves["weight"].zero_()
    assert_equal({1: states[1]}, {1: state(2)})
    assert_equal(loaded(rows, 1), {0: state(1), 1: state(2)})
    assert_equal({0: rows.initial_client_state}, {0: initial()})


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.bool]
)
@pytest.mark.parametrize("shape", [(), (4,), (3, 2), (0,)])
def test_every_type_and_shape_is_kept(dtype: torch.dtype, shape: tuple[int, ...], tmp_path: Path) -> None:
    """What a client keeps is read back in its own type and shape, bit by bit, transposed or not."""
    values = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
    kept = {"value": values.t() if values.dim() == 2 else values, "after": torch.tensor(3)}
    rows = ClientRows(tmp_path / "clients.rows", kept, 2)
    rows.create()
    rows.save({1: kept}.get, [1], 0, 1)
    assert_equal(loaded(rows, 1), {1: kept})


def test_rows_of_another_rank_have_the_bytes_of_ones_own(tmp_path: Path) -> None:
    """Handed over in a file that is removed, into the slots that the checkpoint does not use."""
    (tmp_path / "alone").mkdir()
    together, alone = made(tmp_path, 5), made(tmp_path / "alone", 5)
    for committed in range(3):
        states = {client: state(10 * committed + client) for client in (0, 1, 3)}
        alone.save(states.get, states, committed, committed + 1)
        apart = tmp_path / "rows.part"
        handed = together.hand_over(apart, states.get, [3, 1])
        assert [client for client, _ in handed] == [1, 3]
        assert apart.stat().st_size == 2 * together.row_bytes
        written = together.write(states.get, [0], committed)
        together.stamp([*written, *together.take_over(apart, handed, committed)], committed + 1)
        assert not apart.exists()
        assert together.path.read_bytes() == alone.path.read_bytes()


@pytest.mark.parametrize("seen", ["nothing", "the first row", "what was there before"])
def test_a_file_system_that_does_not_show_what_another_machine_wrote_is_seen(seen: str, tmp_path: Path) -> None:
    """As one over a network may, which shows a file as it was when it was last looked at."""
    rows, apart = made(tmp_path, 3), tmp_path / "rows.part"
    rows.hand_over(apart, {0: state(7), 1: state(8)}.get, [0, 1])
    stale = {"nothing": b"", "the first row": apart.read_bytes()[: rows.row_bytes]}.get(seen, apart.read_bytes())
    handed = rows.hand_over(apart, {0: state(7), 1: state(9)}.get, [0, 1])
    apart.write_bytes(stale)
    with pytest.raises(MachineError, match=r"the state of client \d in .*rows\.part is not what another rank wrote: "):
        rows.take_over(apart, handed, 0)
    assert loaded(rows, 5) == {}


def test_a_method_without_client_state_has_no_rows(tmp_path: Path) -> None:
    """There is a file only where a client keeps something."""
    assert not ClientRows(tmp_path / "clients.rows", {"slots": {}}, 10).used
    assert ClientRows(tmp_path / "clients.rows", initial(), 10).used


def test_the_layout_names_every_leaf(tmp_path: Path) -> None:
    """Path, type and shape of each leaf, in the order of a row's bytes."""
    assert ClientRows(tmp_path / "clients.rows", initial(), 10).layout() == [
        ("slots/local.rule/control/weight", "float64", [3]),
        ("slots/local.rule/control/bias", "float32", []),
        ("cursor", "int64", []),
        ("flag", "bool", []),
    ]


@pytest.mark.parametrize("at_most", [1, 7])
def test_a_short_write_or_read_is_carried_on(at_most: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system may do less than it was asked (a disk almost full, two gigabytes at once): the rest follows."""
    pwrite, pread = os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda handle, content, at: pwrite(handle, content[:at_most], at))
    monkeypatch.setattr(os, "pread", lambda handle, size, at: pread(handle, min(size, at_most), at))
    rows = made(tmp_path, 2)
    rows.save({1: state(1)}.get, [1], 0, 1)
    monkeypatch.setattr(os, "pwrite", pwrite)
    assert_equal(loaded(rows, 1), {1: state(1)})
    monkeypatch.setattr(os, "pread", pread)
    assert_equal(loaded(rows, 1), {1: state(1)})


def test_a_file_of_another_length_is_refused(tmp_path: Path) -> None:
    """Missing, cut short or too long: an error of one line that names the file."""
    rows = made(tmp_path, 2)
    rows.save({0: state(1)}.get, [0], 0, 1)
    content = rows.path.read_bytes()
    for damaged in (content[:-1], content + b"\x00", b"", None):
        rows.path.unlink()
        if damaged is not None:
            rows.path.write_bytes(damaged)
        with pytest.raises(UserError, match=r"damaged: .*clients\.rows") as refused:
            dict(rows.load(1, "any"))
        assert "\n" not in str(refused.value)
        rows.path.write_bytes(content)


def test_one_flipped_bit_of_a_row_is_refused(tmp_path: Path) -> None:
    """Every bit of the row in force counts; those of the other slot do not."""
    rows = made(tmp_path, 2)
    rows.save({1: state(1)}.get, [1], 0, 1)
    rows.save({1: state(2)}.get, [1], 1, 2)
    content = rows.path.read_bytes()
    newest = len(content) - rows.row_bytes
    for at in range(newest - rows.row_bytes, len(content)):
        for bit in range(8):
            rows.path.write_bytes(content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :])
            if at < newest:
                assert_equal(loaded(rows, 2), {1: state(2)})
            else:
                with pytest.raises(UserError, match=r"client 1 .* fails its checksum"):
                    loaded(rows, 2)
