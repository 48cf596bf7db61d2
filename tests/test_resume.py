"""A run that is killed and resumed ends as one that was left alone; what is damaged is refused and left as it was."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import headway
from conftest import EXECUTORS, round_lines, timeless
from headway.errors import Diverged, UserError
from headway.methods.slots import Step
from headway.runs.checkpoint import Checkpoint
from headway.runs.files import read_json
from headway.runs.folder import failure, finished
from headway.runs.observer import Unwatched
from headway.trees import named_leaves
from headway.vectors import Vector
from killed_runs import Case, Life, Moment, control, killed, lingering, lived, wait_for

STATELESS = Case("fedacg")
STATEFUL = Case(headway.Method(local=control(), name="composed"), settings={"batches": "continued"})
LOCAL_STATISTICS = Case("fedacg", "batch_norm_dropout", {"buffers": "keep-local"})
CHANNELS_LAST = Case(STATEFUL.method, "channels_last", {"precision": "fp32"})
CASES = {
    "fedacg": STATELESS,
    "control variates": STATEFUL,
    "local statistics": LOCAL_STATISTICS,
    "channels last": CHANNELS_LAST,
}

BEFORE_ANY_CHECKPOINT = (
    Moment("start: replace manifest.json", "before"),  # so the second life starts over
    Moment("resume: replace manifest.json", "after"),
)
WITH_ROWS = (
    *BEFORE_ANY_CHECKPOINT,
    Moment("round 2: append", "within"),
    Moment("round 3: pwrite row 2", "within"),
    Moment("round 3: fsync clients.rows", "before"),  # rows are written and not flushed
    Moment("round 3: pwrite stamps", "within"),
    Moment("round 3: replace server-0000003.safetensors", "after"),
    Moment("round 6: replace manifest.json", "before"),
    Moment("round 9: unlink server-0000006.safetensors", "before"),
    Moment("round 12: replace manifest.json", "after"),
)
WITHOUT_ROWS = (
    *BEFORE_ANY_CHECKPOINT,
    Moment("round 2: append", "within"),
    Moment("round 3: fsync server-0000003.safetensors.part", "before"),
    Moment("round 3: replace server-0000003.safetensors", "before"),
    Moment("round 3: replace server-0000003.safetensors", "after"),
    Moment("round 6: replace manifest.json", "before"),
    Moment("round 8: append", "before"),
    Moment("round 9: unlink server-0000006.safetensors", "before"),
    Moment("round 12: replace manifest.json", "after"),
)


def kept_files(folder: Path) -> dict[str, bytes]:
    """Every file below a folder and its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def assert_same_end(folder: Path, other: Path) -> None:
    """Equal numbers, equal checkpoint bytes, and no file more or less."""
    assert round_lines(folder) == round_lines(other)
    mine, theirs = kept_files(folder), kept_files(other)
    assert sorted(mine) == sorted(theirs)
    for name in mine.keys() - {"rounds.jsonl", "summary.json"}:
        assert mine[name] == theirs[name], f"{name} differs"
    assert timeless(read_json(folder / "summary.json")) == timeless(read_json(other / "summary.json"))


Folders = Callable[[str, str], Path]


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """The folder of a run that nobody disturbed, by case and executor; each is run once."""
    done: dict[tuple[str, str], Path] = {}

    def folder(case: str, executor: str) -> Path:
        if (case, executor) not in done:
            place = tmp_path_factory.mktemp("uninterrupted") / "run"
            lived(CASES[case].with_settings(executor=executor), place)
            done[case, executor] = place
        return done[case, executor]

    return folder


@pytest.fixture(scope="module")
def halfway(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of clients with state, killed within the line of round 8: its checkpoint is of round 6."""
    place = tmp_path_factory.mktemp("halfway") / "run"
    killed(STATEFUL.with_settings(executor="serial"), place, Moment("round 8: append", "within"))
    return place


# Killed and resumed.


ALWAYS = {
    ("fedacg", "pool"),
    ("control variates", "batched"),
    ("local statistics", "serial"),
    ("channels last", "serial"),
}
"""Each case and each executor at least once; ten lives take long, so `make soak` has the whole product."""
TEN_KILLS = [
    pytest.param(case, executor, marks=() if (case, executor) in ALWAYS else pytest.mark.soak)
    for case in CASES
    for executor in EXECUTORS
]


@pytest.mark.parametrize(("case", "executor"), TEN_KILLS)
def test_ten_kills_change_nothing(case: str, executor: str, uninterrupted: Folders, tmp_path: Path) -> None:
    """A run killed at ten moments, one life after another, ends with the numbers and bytes of an undisturbed one."""
    chosen = CASES[case].with_settings(executor=executor)
    moments = WITHOUT_ROWS if case == "fedacg" else WITH_ROWS
    assert len(set(moments)) == 10
    killed(chosen, tmp_path / "run", *moments)
    lived(chosen, tmp_path / "run")
    reference = uninterrupted(case, executor)
    assert (reference / "checkpoint" / "clients.rows").exists() == (case != "fedacg")
    assert read_json(reference / "checkpoint" / "manifest.json")["executor"] == executor
    assert_same_end(tmp_path / "run", reference)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.soak)])
def test_a_kill_at_any_call_changes_nothing(every: int, tmp_path: Path) -> None:
    """Whichever call that changes the disk a run dies before or within, resuming it ends as if nothing had happened."""
    case = STATEFUL.with_settings(executor="serial", rounds=2, checkpoint_every=1)
    trace = lived(case, tmp_path / "uninterrupted")
    claimed = trace[trace.index("start: replace scenario.toml") + 1 :]
    halves = [Moment(label, "within") for label in claimed if "pwrite" in label or "append" in label]
    moments = [Moment(label) for label in claimed] + halves
    assert len(moments) > 4 * every
    for number, moment in enumerate(moments[::every]):
        folder = tmp_path / str(number)
        killed(case, folder, moment)
        case.resume(folder)
        assert_same_end(folder, tmp_path / "uninterrupted")


def test_a_kill_while_resuming_changes_nothing(uninterrupted: Folders, tmp_path: Path) -> None:
    """A resume that is killed while it forgets what came after the checkpoint can itself be resumed."""
    case = STATEFUL.with_settings(executor="serial")
    moments = [Moment("resume: pwrite stamps", how) for how in ("before", "within", "after")]
    killed(case, tmp_path / "run", Moment("round 6: replace manifest.json", "before"), *moments)
    lived(case, tmp_path / "run")
    assert_same_end(tmp_path / "run", uninterrupted("control variates", "serial"))


def test_states_outside_memory_are_resumed_too(uninterrupted: Folders, tmp_path: Path) -> None:
    """With room for one client's state in memory, a killed and resumed run ends as one with all states in memory."""
    case, folder = STATEFUL.with_settings(executor="serial", client_state_mb=1e-6), tmp_path / "run"
    killed(case, folder, Moment("round 3: pwrite row 2", "within"), Moment("round 8: append", "before"))
    lived(case, folder)
    reference = uninterrupted("control variates", "serial")
    assert round_lines(folder) == round_lines(reference)
    assert kept_files(folder / "checkpoint") == kept_files(reference / "checkpoint")


@pytest.mark.parametrize("how", ["before", "after"])
def test_killed_before_its_first_checkpoint_a_run_starts_over(how: str, uninterrupted: Folders, tmp_path: Path) -> None:
    """Without a manifest there is nothing to go on from: loading says so, resuming starts at round 1."""
    case = STATEFUL.with_settings(executor="serial")
    killed(case, tmp_path / "run", Moment("start: replace server-0000000.safetensors", how))
    with pytest.raises(UserError, match="no checkpoint yet"):
        case.load(tmp_path / "run")
    lived(case, tmp_path / "run")
    assert_same_end(tmp_path / "run", uninterrupted("control variates", "serial"))


@pytest.mark.parametrize("how", ["before", "after"])
def test_killed_while_its_folder_is_claimed_a_run_starts_again(how: str, tmp_path: Path) -> None:
    """A run that died before or just after its scenario was there goes on with the same folder."""
    case = STATELESS.with_settings(executor="serial", rounds=1)
    killed(case, tmp_path / "run", Moment("start: replace scenario.toml", how))
    lived(case, tmp_path / "run")
    lived(case, tmp_path / "undisturbed")
    assert_same_end(tmp_path / "run", tmp_path / "undisturbed")


@pytest.mark.parametrize("names", [("film.part",), ("notes.txt", "notes.part"), ("scenario.toml.part", "film.part")])
def test_a_folder_of_other_files_is_left_alone(names: tuple[str, ...], tmp_path: Path) -> None:
    """Starting a run there is refused, and every file stays, whatever its name ends in."""
    for name in names:
        (tmp_path / name).write_text("not ours")
    before = kept_files(tmp_path)
    with pytest.raises(UserError, match="it holds other files"):
        STATELESS.with_settings(executor="serial", rounds=1).simulate(tmp_path)
    assert kept_files(tmp_path) == before


def test_a_run_that_is_there_is_left_alone(halfway: Path, tmp_path: Path) -> None:
    """Starting another run in its folder is refused, and no file of it goes, not even one that is being written."""
    folder = tmp_path / "run"
    shutil.copytree(halfway, folder)
    (folder / "summary.json.part").write_text("{")
    before = kept_files(folder)
    with pytest.raises(UserError, match="goes on with it"):
        STATELESS.with_settings(executor="serial", rounds=1).simulate(folder)
    assert kept_files(folder) == before


def test_resuming_cuts_what_lies_after_the_checkpoint(halfway: Path, tmp_path: Path) -> None:
    """Lines after the checkpoint, and half a line at the end, are gone before the first round is redone."""
    case, folder = STATEFUL.with_settings(executor="serial"), tmp_path / "run"
    shutil.copytree(halfway, folder)
    lines = (folder / "rounds.jsonl").read_bytes().splitlines(keepends=True)
    assert len(lines) == 8
    assert not lines[-1].endswith(b"\n")
    assert [record["round"] for record in case.load(folder).records] == [1, 2, 3, 4, 5, 6]
    killed(case, folder, Moment("round 7: append", "before"))
    assert (folder / "rounds.jsonl").read_bytes() == b"".join(lines[:6])


def test_resuming_a_finished_run_does_nothing(uninterrupted: Folders) -> None:
    """It says the same numbers, has the same model, and touches no file."""
    case, folder = STATEFUL.with_settings(executor="serial"), uninterrupted("control variates", "serial")

    def state() -> dict[str, tuple[int, bytes]]:
        return {name: ((folder / name).stat().st_mtime_ns, content) for name, content in kept_files(folder).items()}

    before = state()
    result = case.resume(folder)
    assert state() == before
    assert [timeless(record) for record in result.records] == round_lines(folder)
    assert json.loads(json.dumps(timeless(result.summary))).items() <= read_json(folder / "summary.json").items()
    model, loaded = result.model.state_dict(), case.load(folder).model.state_dict()
    assert all(torch.equal(model[name], loaded[name]) for name in model)


class Interrupting(Unwatched):
    """Asks the run to stop, as Ctrl-C does, once a round is over."""

    def __init__(self, round: int) -> None:
        self.number = round

    def round(self, record: dict[str, Any]) -> None:
        if record["round"] == self.number:
            os.kill(os.getpid(), signal.SIGINT)

    def tell(self, message: str) -> None:
        assert "stopping after this round" in message


def test_an_interrupted_run_keeps_its_last_round(uninterrupted: Folders, tmp_path: Path) -> None:
    """Ctrl-C saves the round it waited for; resumed, the run ends with the numbers and states of an undisturbed one."""
    case, folder = STATEFUL.with_settings(executor="serial"), tmp_path / "run"
    with pytest.raises(KeyboardInterrupt):
        headway.simulate(case.method, case.scenario, out=folder, observer=Interrupting(4), **case.given())
    assert read_json(folder / "checkpoint" / "manifest.json")["round"] == 4
    case.resume(folder)
    reference = uninterrupted("control variates", "serial")
    assert round_lines(folder) == round_lines(reference)
    server = "server-0000012.safetensors"
    assert (folder / "checkpoint" / server).read_bytes() == (reference / "checkpoint" / server).read_bytes()
    assert_equal_states(client_states(case, folder), client_states(case, reference))


# One writer.


def test_two_processes_never_write_one_run(uninterrupted: Folders, tmp_path: Path) -> None:
    """While one process writes a run, a second one is refused, and the first is not disturbed."""
    case, folder = STATEFUL.with_settings(executor="serial"), tmp_path / "run"
    first = Life(case, folder, Moment("round 5: append", "wait"))
    assert first.connection.recv() == "waiting"
    before = kept_files(folder)
    with pytest.raises(UserError, match="another process is writing") as refused:
        case.resume(folder)
    assert "\n" not in str(refused.value)
    assert kept_files(folder) == before
    first.connection.send("go on")
    assert first.ends() == 0
    assert_same_end(folder, uninterrupted("control variates", "serial"))


def test_workers_of_a_killed_run_do_not_hold_its_folder(tmp_path: Path) -> None:
    """A pool run is killed while its workers train: the run can be resumed at once, though they are not done yet."""
    slow = Case(headway.Method(local=lingering(tmp_path, round=2)), settings={"executor": "pool", "rounds": 3})
    (tmp_path / "free").mkdir()
    (tmp_path / "free" / "go").touch()
    free = headway.Method(local=lingering(tmp_path / "free", round=2))  # the same, and nothing holds it up
    life = Life(slow, tmp_path / "run")
    wait_for(tmp_path / "busy")
    life.process.kill()
    assert life.ends() == -signal.SIGKILL
    try:
        result = headway.resume(tmp_path / "run", method=free, **slow.given())
    finally:
        (tmp_path / "go").touch()
    assert [record["round"] for record in result.records] == [1, 2, 3]


# Damage.


def client_states(case: Case, folder: Path) -> dict[int, dict[str, Any]]:
    return Checkpoint(folder / "checkpoint", case.experiment()).load()[1].states


def assert_equal_states(states: dict[int, dict[str, Any]], others: dict[int, dict[str, Any]]) -> None:
    assert states.keys() == others.keys()
    for client, state in states.items():
        mine, theirs = named_leaves(state), named_leaves(others[client])
        assert mine.keys() == theirs.keys()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine), f"client {client} differs"


def edited(change: Callable[[dict[str, Any]], Any]) -> Callable[[bytes], bytes]:
    """Damage to a manifest that is still JSON."""

    def damage(content: bytes) -> bytes:
        manifest = json.loads(content)
        change(manifest)
        return json.dumps(manifest).encode()

    return damage


def half(content: bytes) -> bytes:
    return content[: len(content) // 2]


def flipped(content: bytes, at: int, bit: int = 0) -> bytes:
    return content[:at] + bytes([content[at] ^ 1 << bit]) + content[at + 1 :]


HEAD_BYTES = 6 * 2 * 16
"""6 clients have 2 stamps of 16 bytes each (8 for the round, then the checksum); the rows come after them."""


def slot_in_force(content: bytes) -> int:
    """Which of client 0's two slots is the newer one."""
    return int(int.from_bytes(content[16:24], "little") > int.from_bytes(content[0:8], "little"))


def flipped_in_row(content: bytes) -> bytes:
    row = (len(content) - HEAD_BYTES) // 12
    return flipped(content, HEAD_BYTES + slot_in_force(content) * row + row // 2)


def flipped_in_checksum(content: bytes) -> bytes:
    return flipped(content, 16 * slot_in_force(content) + 8)


MANIFEST_DAMAGE = {
    "empty": lambda content: b"",
    "cut": half,
    "no JSON": lambda content: b"\x00" * len(content),
    "no text": lambda content: b"\xff" + content[1:],
    "a list": lambda content: b"[]",
    "other format": edited(lambda manifest: manifest.update(format=3)),
    "no server": edited(lambda manifest: manifest.pop("server")),
    "no totals": edited(lambda manifest: manifest.pop("totals")),
    "server gone": edited(lambda manifest: manifest.update(server="server-0000005.safetensors")),
    "round no number": edited(lambda manifest: manifest.update(round="six")),
    "round not that of the rounds": edited(lambda manifest: manifest.update(round=9)),
    "total missing": edited(lambda manifest: manifest["totals"].pop("steps")),
    "total no number": edited(lambda manifest: manifest["totals"].update(steps=None)),
    "smoothed missing": edited(lambda manifest: manifest["smoothed"].clear()),
    "unknown executor": edited(lambda manifest: manifest.update(executor="cereal")),
    "other client states": edited(lambda manifest: manifest["clients"].pop()),
}
OTHER_DAMAGE: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "server cut": ("server-0000006.safetensors", half),
    "server empty": ("server-0000006.safetensors", lambda content: b""),
    "server flipped": ("server-0000006.safetensors", lambda content: flipped(content, len(content) - 1)),
    "rows cut": ("clients.rows", lambda content: content[:-1]),
    "rows empty": ("clients.rows", lambda content: b""),
    "rows too long": ("clients.rows", lambda content: content + b"\x00"),
    "row flipped": ("clients.rows", flipped_in_row),
    "checksum of a row flipped": ("clients.rows", flipped_in_checksum),
}
LINE_DAMAGE = {"missing": b"", "cut": b'{"round": 3, \n', "no record": b"3\n", "no text": b"\xff\n"}


def with_third_line(line: bytes) -> Callable[[bytes], bytes]:
    def damage(content: bytes) -> bytes:
        lines = content.splitlines(keepends=True)
        return b"".join([*lines[:2], line, *lines[3:]])

    return damage


DAMAGE = {
    **{f"manifest: {name}": ("checkpoint/manifest.json", damage) for name, damage in MANIFEST_DAMAGE.items()},
    **{name: (f"checkpoint/{file}", damage) for name, (file, damage) in OTHER_DAMAGE.items()},
    **{f"line {name}": ("rounds.jsonl", with_third_line(line)) for name, line in LINE_DAMAGE.items()},
}


@pytest.mark.parametrize("name", DAMAGE)
def test_a_damaged_run_is_refused_and_left_as_it_is(name: str, halfway: Path, tmp_path: Path) -> None:
    """Resuming from it is an error of one line, and no file of the run changes."""
    case, folder = STATEFUL.with_settings(executor="serial"), tmp_path / "run"
    shutil.copytree(halfway, folder)
    file, damage = DAMAGE[name]
    path = folder / file
    content = path.read_bytes()
    assert damage(content) != content
    path.write_bytes(damage(content))
    before = kept_files(folder)
    with pytest.raises(UserError) as refused:
        case.resume(folder)
    assert "\n" not in str(refused.value)
    assert kept_files(folder) == before


@pytest.mark.parametrize("file", ["manifest.json", "server-0000006.safetensors", "clients.rows"])
def test_a_missing_file_is_refused(file: str, halfway: Path, tmp_path: Path) -> None:
    """A checkpoint without one of its files does not load, except that without a manifest there is no checkpoint."""
    case, folder = STATEFUL.with_settings(executor="serial"), tmp_path / "run"
    shutil.copytree(halfway, folder)
    (folder / "checkpoint" / file).unlink()
    with pytest.raises(UserError):
        case.load(folder)


@pytest.mark.parametrize("file", ["manifest.json", "clients.rows"])
def test_one_flipped_bit_is_refused_or_harmless(file: str, halfway: Path, tmp_path: Path) -> None:
    """Whichever byte of the manifest or of the stamps has a flipped bit, what loads is what was saved, or nothing."""
    folder, experiment = tmp_path / "checkpoint", STATEFUL.with_settings(executor="serial").experiment()
    shutil.copytree(halfway / "checkpoint", folder)

    def loaded() -> tuple[Any, dict[int, dict[str, Any]]]:
        checkpoint = Checkpoint(folder, experiment)
        progress, store = checkpoint.load()
        totals = (progress.round, progress.steps, progress.bytes_up, progress.bytes_down, progress.smoothed)
        return (*totals, checkpoint.read()["executor"]), store.states

    totals, states = loaded()
    content = (folder / file).read_bytes()
    refused = 0
    for at in range(len(content) if file == "manifest.json" else HEAD_BYTES):
        (folder / file).write_bytes(flipped(content, at))
        try:
            others, other_states = loaded()
        except UserError:
            refused += 1
        else:
            assert others == totals, f"byte {at}"
            assert_equal_states(other_states, states)
    assert refused > 0


# Divergence.


def exploding(w: Vector, gradient: Vector, step: Step) -> Vector:
    """From round 5 on, a step to infinity."""
    return gradient * torch.where(step.round >= 5, torch.inf, 1.0)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_diverged_run_says_where(executor: str, tmp_path: Path) -> None:
    """An absurd rate ends the run with round and client named; the checkpoint before it loads."""
    settings = {"rate": 1e30, "clip": 0.0, "weight_decay": 0.0, "precision": "fp32", "executor": executor}
    case = Case("fedacg", "batch_norm_dropout", settings)
    with pytest.raises(Diverged, match=r"^round \d+, client \d+: .*not a finite number") as diverged:
        case.simulate(tmp_path / "run")
    assert "\n" not in str(diverged.value)
    failed = int(str(diverged.value).split(",")[0].removeprefix("round "))
    result = case.load(tmp_path / "run")
    assert [record["round"] for record in result.records] == list(range(1, failed))
    assert all(tensor.isfinite().all() for tensor in result.model.state_dict().values())


def test_a_run_that_diverges_late_keeps_every_good_round(tmp_path: Path) -> None:
    """The checkpoint is of the round before, whatever `checkpoint_every` says, and resuming fails in the same way."""
    case = Case(headway.Method(local=exploding), settings={"executor": "serial", "checkpoint_every": 100})
    with pytest.raises(Diverged, match=r"^round 5, client \d+: ") as diverged:
        case.simulate(tmp_path / "run")
    assert failure(tmp_path / "run") == str(diverged.value)
    assert not finished(tmp_path / "run")
    result = case.load(tmp_path / "run")
    assert [record["round"] for record in result.records] == [1, 2, 3, 4]
    short = case.with_settings(rounds=4).simulate(tmp_path / "short")
    model, expected = result.model.state_dict(), short.model.state_dict()
    assert all(torch.equal(model[name], expected[name]) for name in expected)
    with pytest.raises(Diverged) as again:
        case.resume(tmp_path / "run")
    assert str(again.value) == str(diverged.value)
