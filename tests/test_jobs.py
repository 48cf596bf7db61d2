"""Several runs at the same time: their numbers are those of one job, and nothing is lost where something ends."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import multiprocessing
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import headway as hw
from command_line import called, one_line
from conftest import SMALL, own_problem, refused, round_lines, timeless
from headway.data.sources.files import Missing
from headway.engine.pool import CORES, cores
from headway.errors import (
    CallbackError,
    ClientError,
    Diverged,
    Interrupted,
    MachineError,
    OutOfMemory,
    SlotError,
    UserError,
    WorkerFailed,
)
from headway.papers.plan import plan
from headway.papers.preset import Column
from headway.papers.reproduce import reproduce
from headway.runs.files import read_json
from headway.runs.lanes import display, messages
from headway.runs.lanes.display import Course, LineOfLanes
from headway.runs.lanes.jobs import Jobs, Lane, continued, jobs_of
from headway.runs.lanes.made import with_cores
from headway.runs.progress import Bar
from headway.runs.shown import NotebookProgress
from headway.runs.study import resume_study
from test_papers import _preset as preset_of

SHORT = SMALL.changed(rounds=4, seeds=2, checkpoint_every=1, executor="auto")
NAMED = "--model linear --rounds 4 --clients 20 --steps 1 --device cpu --seeds 2 --checkpoint-every 1 --quiet"


@pytest.fixture(autouse=True)
def two_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two cores and no wish for threads, whatever this machine and its environment have."""
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1}, raising=False)


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
    assert not multiprocessing.active_children()


def shrunk(rate: float, name: str) -> hw.Method:
    return hw.Method(server=hw.average(rate), name=name)


def compared(out: Path, jobs: int | str | None, methods: Any = ("fedavg", "fedacg"), **settings: Any) -> hw.Study:
    return hw.compare(list(methods), SHORT.changed(**settings), out=out, jobs=jobs, **own_problem())


def numbers(folder: Path) -> dict[str, Any]:
    """Rounds and last models of all runs below a folder, by where they are."""
    found: dict[str, Any] = {}
    for file in sorted(folder.rglob("rounds.jsonl")):
        name = str(file.parent.relative_to(folder))
        last = sorted((file.parent / "checkpoint").glob("server-*"))[-1]
        found[name] = round_lines(file.parent), last.name, last.read_bytes()
    return found


# ── the same numbers ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_any_number_of_jobs_gives_the_same_bits(tmp_path: Path) -> None:
    """One job has two cores, and two have one each: the first trains clients in a pool."""
    for jobs in (1, 2):
        study = compared(tmp_path / str(jobs), jobs)
        assert [len(runs) for runs in study.runs.values()] == [2, 2]
    assert numbers(tmp_path / "1") == numbers(tmp_path / "2")
    assert len(numbers(tmp_path / "1")) == 4


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
def test_with_one_thread_they_are_the_numbers_without_jobs(executor: str, tmp_path: Path) -> None:
    alone = compared(tmp_path / "alone", None, executor=executor)
    study = compared(tmp_path / "lanes", 2, executor=executor)
    assert numbers(tmp_path / "lanes") == numbers(tmp_path / "alone")
    assert study.table().equals(alone.table()) or timeless_table(study) == timeless_table(alone)
    assert [run.executor for runs in study.runs.values() for run in runs] == [executor] * 4


def timeless_table(study: hw.Study) -> list[dict[str, Any]]:
    return [{name: value for name, value in timeless(row).items() if name != "folders"} for row in study.summary()]


def test_names_are_trained_by_new_processes_with_the_same_bits(tmp_path: Path) -> None:
    for out, jobs in (("alone", ""), ("lanes", "--jobs 2")):
        answer = called(tmp_path, f"compare fedavg fedacg {NAMED} {jobs} --out {out} --executor serial")
        assert (answer.returncode, answer.stderr) == (0, "")
    assert numbers(tmp_path / "lanes") == numbers(tmp_path / "alone")
    assert read_json(tmp_path / "lanes" / "jobs.json")["threads"] == 1


def test_nothing_is_kept_where_no_folder_is_given() -> None:
    settings: dict[str, Any] = {"client_test": 0.3, "executor": "serial", **own_problem()}
    alone = hw.compare(["fedacg"], SHORT, **settings)
    study = hw.compare(["fedacg"], SHORT, jobs=2, keep_best=True, **settings)
    assert study.folder is None
    for one, other in zip(study.runs["fedacg"], alone.runs["fedacg"], strict=True):
        assert one.folder is None
        assert as_written(one) == as_written(other)
        for left, right in zip(one.model.parameters(), other.model.parameters(), strict=True):
            assert torch.equal(left, right)
        assert one.clients.equals(other.clients)
        assert one.best_model is not None


def as_written(result: hw.Result) -> list[dict[str, Any]]:
    return json.loads(json.dumps(list(map(timeless, result.records))))  # type: ignore[no-any-return]


def test_an_own_method_goes_into_a_lane(tmp_path: Path) -> None:
    methods = ["fedavg", shrunk(0.5, "half")]
    compared(tmp_path / "lanes", 2, methods)
    compared(tmp_path / "alone", None, methods, executor="serial")
    compared(tmp_path / "serial", 2, methods, executor="serial")
    assert numbers(tmp_path / "serial") == numbers(tmp_path / "alone")
    assert set(numbers(tmp_path / "lanes")) == set(numbers(tmp_path / "alone"))


def test_a_grid_is_one_queue(tmp_path: Path) -> None:
    given: dict[str, Any] = {"vary": {"participation": [0.4, 0.8]}, **own_problem()}
    for jobs in (None, 2):
        grid = hw.compare_grid(
            ["fedavg", "fedacg"], SHORT.changed(executor="serial"), jobs=jobs, out=tmp_path / str(jobs), **given
        )
        assert [cell.failure for cell in grid.cells] == ["", ""]
    assert numbers(tmp_path / "2") == numbers(tmp_path / "None")
    assert len(numbers(tmp_path / "2")) == 8


def test_a_sweep_finds_the_same_with_jobs(tmp_path: Path) -> None:
    grid, problem = {"rate": [0.05, 0.1, 1e29, 0.2]}, own_problem()
    found = [
        hw.sweep(
            "fedacg", grid, SHORT.changed(executor="serial"), budget=24, jobs=jobs, out=tmp_path / str(jobs), **problem
        )
        for jobs in (None, 2)
    ]
    assert found[0].trials == found[1].trials
    assert [trial.status for trial in found[1].trials].count("diverged") == 1
    assert {len(one.stages) for one in found} == {2}


def test_methods_that_are_tuned_before_are_the_same(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"tune_budget": 16, "grid": {"rate": [0.05, 0.1]}, **own_problem()}
    one, two = (
        hw.compare(
            ["fedavg", "fedacg"], SHORT.changed(executor="serial"), jobs=jobs, out=tmp_path / str(jobs), **settings
        )
        for jobs in (None, 2)
    )
    assert one.tuned == two.tuned
    assert numbers(tmp_path / "2") == numbers(tmp_path / "None")


@pytest.mark.parametrize("name", ["serial", "pool", "serial:compiled", "pool:compiled", "batched", "batched:compiled"])
def test_clients_that_are_trained_alone_use_the_cores_of_their_lane(name: str) -> None:
    """Each names an executor whose bits are those of the other for one thread; with more nothing is changed."""
    kind, colon, form = name.partition(":")
    expected = {1: "serial", 8: "pool"}
    for share, alone in expected.items():
        assert with_cores(name, share) == (name if kind == "batched" else f"{alone}{colon}{form}")


# ── runs that fail, workers that are lost ────────────────────────────────────────────────────────────────────────────


def exploding(model: hw.Vector, uploads: Any) -> hw.Vector:
    return model * float("inf")


def broken(model: hw.Vector, uploads: Any) -> hw.Vector:
    raise ArithmeticError("no such number")


def test_a_run_that_diverges_does_not_end_the_others(tmp_path: Path) -> None:
    methods = [hw.Method(server=exploding, name="exploding"), "fedavg"]
    with pytest.warns(UserWarning, match="exploding, seed ., failed"):
        study = compared(tmp_path / "lanes", 2, methods, executor="serial")
    with pytest.warns(UserWarning, match="exploding, seed ., failed"):
        alone = compared(tmp_path / "alone", None, methods, executor="serial")
    assert study.failed == alone.failed
    assert len(study.failed) == 2
    assert list(study.runs) == ["fedavg"]


def test_an_error_of_the_users_code_is_raised_after_the_others_are_done(tmp_path: Path) -> None:
    methods = [hw.Method(server=broken, name="broken"), "fedavg"]
    with pytest.raises(SlotError, match="ArithmeticError: no such number"):
        compared(tmp_path / "lanes", 2, methods, executor="serial")
    done = read_json(tmp_path / "lanes" / "fedavg" / "seed-1" / "summary.json")
    assert done["finished"] is True


def test_a_papers_table_is_the_same_with_jobs(tmp_path: Path) -> None:
    """A run that fails does not stop the rest, nor does one whose data is missing."""
    (tmp_path / "data").mkdir()
    here = preset_of("fedavg:server_rate=1e38", "fedacg")
    absent = Column("cifar10/dir0.3/10x20%", here.columns[0].measures, settings=here.columns[0].settings)
    both = dataclasses.replace(here, columns=(absent, *here.columns))
    wanted = plan(both, rounds=3, data_dir=str(tmp_path / "data"))
    said: dict[str, str] = {}
    found = {}
    for jobs in (None, "2"):
        console = Console(file=io.StringIO(), width=200)
        with Bar(console, quiet=True) as bar:
            found[str(jobs)] = reproduce(wanted, tmp_path / str(jobs), bar, jobs=jobs_of(jobs))
        assert isinstance(console.file, io.StringIO)
        said[str(jobs)] = console.file.getvalue()
    for one, other in zip(found["None"].values(), found["2"].values(), strict=True):
        assert (one.failure, one.mistaken, one.rounds) == (other.failure, other.mistaken, other.rounds)
    assert [outcome.failure is None for outcome in found["2"].values()] == [False, False, False, True]
    assert said["2"].count("is missing") == said["None"].count("is missing") == 1
    assert numbers(tmp_path / "2") == numbers(tmp_path / "None")


@contextlib.contextmanager
def at_round(number: int, act: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Does something once, when this process hears that some run has got so far."""
    heard, done = display.PlainLines.round, []

    def round(self: Any, lane: int, answer: Any) -> None:
        heard(self, lane, answer)
        if answer["round"] == number and not done:
            done.append(lane)
            act()

    with monkeypatch.context() as patched:
        patched.setattr(display.PlainLines, "round", round)
        yield
    assert done


def slow(model: hw.Vector, uploads: Any) -> hw.Vector:
    time.sleep(0.02)
    return model + uploads.mean["delta"]


SLOW = [hw.Method(server=slow, name=name) for name in ("slow", "slower")]


SLOWLY: dict[str, Any] = {"deterministic": True, "rounds": 20}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The numbers of slow runs that nothing disturbed."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("slow")
    compared(folder / "whole", None, SLOW, **SLOWLY)
    torch.set_num_threads(before)
    return numbers(folder / "whole")


def kill_one() -> None:
    """The youngest of this process's workers; its run may be any."""
    os.kill(max(child.pid or 0 for child in multiprocessing.active_children()), signal.SIGKILL)


def test_the_run_of_a_killed_worker_goes_on_in_another(
    whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = "was killed by SIGKILL, as the system does where memory runs out; .*seed-. goes on from its last checkpoint"
    with at_round(3, kill_one, monkeypatch), pytest.warns(UserWarning, match=lost):
        study = compared(tmp_path / "lanes", 2, SLOW, **SLOWLY)
    assert [len(run.records) for runs in study.runs.values() for run in runs] == [20] * 4
    assert numbers(tmp_path / "lanes") == whole


def dying(model: hw.Vector, uploads: Any) -> hw.Vector:
    if multiprocessing.parent_process() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return model


def test_a_run_that_loses_every_worker_is_given_up(tmp_path: Path) -> None:
    methods = [hw.Method(server=dying, name="dying")]
    given_up = r"dying.seed-0: worker process \d+ was killed by SIGKILL.*, as 2 before it"
    with pytest.raises(MachineError, match=given_up), pytest.warns(UserWarning, match="goes on from its last"):
        compared(tmp_path / "lanes", 2, methods, executor="serial", seeds=1)


# ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("times", "number"), [(1, signal.SIGINT), (2, signal.SIGINT), (1, signal.SIGTERM)])
def test_a_signal_ends_all_runs_and_a_resume_gives_their_numbers(
    times: int, number: signal.Signals, whole: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask() -> None:
        for _ in range(times):
            os.kill(os.getpid(), number)

    with (
        at_round(2, ask, monkeypatch),
        pytest.raises(Interrupted) as ended,
        pytest.warns(UserWarning, match="stopping"),
    ):
        compared(tmp_path / "lanes", 2, SLOW, **SLOWLY)
    assert ended.value.number == number
    assert not multiprocessing.active_children()
    runs = [file.parent for file in (tmp_path / "lanes").rglob("rounds.jsonl")]
    assert 1 <= len(runs) <= 2  # none is begun after it
    assert not any((run / "summary.json").exists() for run in runs)
    for run in runs:
        if times == 1:  # the round in hand is saved; a run that was only beginning has none
            manifest = run / "checkpoint" / "manifest.json"
            assert (read_json(manifest)["round"] if manifest.exists() else 0) == len(round_lines(run))
        method = next(one for one in SLOW if one.name == run.parent.name)
        hw.resume(run, method=method, **own_problem())
    assert numbers(tmp_path / "lanes") == {name: whole[name] for name in numbers(tmp_path / "lanes")}


def test_the_command_says_how_to_go_on_and_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heard, count = display.BarOfLanes.round, iter(range(1000))

    def round(self: Any, lane: int, answer: Any) -> None:
        heard(self, lane, answer)
        if next(count) == 1:
            os.kill(os.getpid(), signal.SIGINT)

    command = f"compare fedavg fedacg {NAMED} --deterministic --executor serial"
    with monkeypatch.context() as patched:
        patched.setattr(display.BarOfLanes, "round", round)
        answer = called(tmp_path, f"{command} --rounds 400 --jobs 2 --out stopped")
    assert answer.returncode == 130
    assert answer.stderr.splitlines() == [
        "headway: stopping after this round (once more to stop at once)",
        "headway: stopped; go on with: headway resume stopped",
    ]
    cut = {name: len(found[0]) for name, found in numbers(tmp_path / "stopped").items()}
    assert len(cut) == 2
    assert all(0 < rounds < 400 for rounds in cut.values())


def test_a_folder_that_was_begun_with_jobs_goes_on_so(tmp_path: Path) -> None:
    """Its threads are those that it began with, also where no jobs are given again."""
    assert called(tmp_path, f"compare fedavg fedacg {NAMED} --seeds 1 --jobs 1 --out study").returncode == 0
    folder = tmp_path / "study"
    whole = numbers(folder)
    shutil.rmtree(folder / "fedacg")
    assert continued(folder, None) == Jobs(1)
    assert continued(folder, Jobs(8, ("cpu",), 4)) == Jobs(8, ("cpu",), 1)
    assert list(resume_study(folder).runs) == ["fedavg", "fedacg"]
    assert numbers(folder) == whole


# ── what is asked for ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("jobs", "devices", "words"),
    [
        (0, None, ["jobs is 0", "auto or a whole number from 1 to 1024"]),
        ("many", None, ["jobs is 'many'", "auto or a whole number"]),
        (True, None, ["jobs is True"]),
        (1.5, None, ["jobs is 1.5"]),
        (None, "cuda", ["devices is 'cuda'", "cuda:0-7"]),
        (None, "cuda:3-1", ["devices is 'cuda:3-1'"]),
        (None, "cpu,cpu", ["cpu twice"]),
        (None, "", ["devices is ''"]),
        (None, 3, ["devices is 3"]),
        (None, "cpu,cuda:0", ["one kind of device"]),
        (1, "cuda:0-1", ["jobs is 1, but there are 2 devices"]),
    ],
)
def test_a_mistake_is_one_line(jobs: Any, devices: Any, words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.runs.lanes.jobs.device_of", torch.device)
    refused(lambda: jobs_of(jobs, devices), *words)


def test_a_device_that_is_not_there_is_refused(tmp_path: Path) -> None:
    if torch.cuda.is_available():
        pytest.skip("there is one")
    said = one_line(called(tmp_path, f"compare fedavg {NAMED} --devices cuda:0-7"))
    assert "has no CUDA device that torch can use" in said


def test_what_cannot_be_told_to_a_worker_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = own_problem()
    refused(lambda: hw.compare(["fedavg"], SHORT, jobs=2, callbacks=[print], **problem), "callbacks is given and jobs")
    refused(lambda: hw.compare(["fedavg"], SHORT, jobs=2, observer=_Own(), **problem), "observer is", "jobs is given")
    refused(lambda: hw.compare(["fedavg"], SHORT, jobs=2, devices="cpu", **problem, device="cuda"), "give one of both")
    monkeypatch.setenv("OMP_NUM_THREADS", "4")
    assert jobs_of(2) == Jobs(2, (), 4)
    refused(lambda: hw.compare(["fedavg"], SHORT, jobs=2, **problem), "objects of your own (clients)", "4 threads")
    monkeypatch.setenv("WORLD_SIZE", "4")
    refused(lambda: jobs_of(2), "one of 4 ranks")


class _Own:
    def begins(self, experiment: Any, done: int, executor: str) -> None: ...
    def round(self, record: Any) -> None: ...
    def tell(self, message: str) -> None: ...


def test_one_run_has_no_jobs(tmp_path: Path) -> None:
    assert called(tmp_path, f"run fedavg {NAMED} --seeds 1 --out one").returncode == 0
    assert "one is one run, and jobs and devices are for several" in one_line(called(tmp_path, "resume one --jobs 2"))


def test_auto_is_a_job_for_each_core_or_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    auto = jobs_of("auto")
    assert auto is not None
    assert auto.lanes(9, "cpu") == [Lane(0, None), Lane(1, None)]
    assert len(auto.lanes(1, "cpu")) == 1
    monkeypatch.setattr(
        "headway.runs.lanes.jobs.device_of", lambda name: torch.device("cuda" if name == "auto" else name)
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 3)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "4,5,6")
    for jobs, device, runs, visible in (
        (auto, "auto", 9, ["4", "5", "6"]),
        (auto, "auto", 2, ["4", "5"]),
        (auto, "cuda:1", 9, ["5"]),
        (jobs_of(2), "auto", 9, [None, None]),
        (jobs_of(None, "cuda:1-2"), "auto", 9, ["5", "6"]),
        (jobs_of(3, ["cuda:0", "cuda:2"]), "auto", 9, ["4", "6", "4"]),
    ):
        assert jobs is not None
        assert [lane.visible for lane in jobs.lanes(runs, device)] == visible


def test_a_process_uses_no_more_cores_than_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    for share, expected in (("", 2), ("1", 1), ("2", 2), ("64", 2), ("x", 2)):
        monkeypatch.setenv(CORES, share)
        assert cores() == expected


# ── what is said ─────────────────────────────────────────────────────────────────────────────────────────────────────


FAULTS = [UserError, Missing, Diverged, ClientError, OutOfMemory, SlotError, CallbackError, MachineError]


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_is_raised_as_it_was_in_the_worker(kind: type[Exception]) -> None:
    again = messages.raised(messages.told(kind("round 3: what was said")))
    assert type(again) is kind
    assert str(again) == "round 3: what was said"


def test_other_faults_keep_what_they_say() -> None:
    disk = messages.raised(messages.told(OSError(28, "No space left on device", "/runs/x")))
    assert isinstance(disk, OSError)
    assert (disk.errno, disk.strerror, disk.filename) == (28, "No space left on device", "/runs/x")
    assert type(messages.raised(messages.told(MemoryError()))) is MachineError
    assert isinstance(messages.raised(messages.told(KeyError("x"))), WorkerFailed)


@given(st.data())
def test_all_rounds_are_counted_once(data: st.DataObject) -> None:
    """Whatever ends early, fails before it begins, or is lost and comes again."""
    rounds = data.draw(st.lists(st.integers(1, 20), min_size=1, max_size=6))
    course = Course(len(rounds), sum(rounds), clock=iter(range(10_000)).__next__)
    for number, length in enumerate(rounds):
        done = 0
        while True:
            end = data.draw(st.sampled_from(["whole", "early", "lost", "at once"]))
            if end != "at once":
                course.begins(0, length, done)
                for _ in range(length - done if end == "whole" else (length - done) // 2):
                    course.round(0)
                    done += 1
                assert course.left is None or course.left >= 0
            course.ends(0, length, waits=end == "lost")
            if end != "lost":
                break
        assert course.done == sum(rounds[: number + 1])
    assert course.words == f"{len(rounds)} of {len(rounds)} runs done"
    assert not course.left


def test_a_notebook_has_a_line_for_all_runs(tmp_path: Path) -> None:
    shown: list[str] = []

    class Place:
        def update(self, content: object) -> None:
            shown.append(repr(content))

    class Display:
        @staticmethod
        def display(content: object, display_id: bool) -> Place:
            return Place()

    course = Course(2, 8)
    line = display.display_of(NotebookProgress(Display), course)  # type: ignore[arg-type]
    assert isinstance(line, LineOfLanes)
    for lane in (0, 1):
        course.begins(lane, 4, 0)
        course.ends(lane, 4, waits=False)
    line.close()
    assert shown[-1] == "2 of 2 runs done · 8/8 rounds"
    assert 'max="8"' in line._repr_html_()
