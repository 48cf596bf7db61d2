"""Callbacks: when they are called, what they are given, how they end a run, and that they change no number."""

from __future__ import annotations

import json
import math
import os
import re
import runpy
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import TensorDataset

import headway as hw
from conftest import SMALL, distance, own_problem, timeless, unequal_clients
from headway.errors import CallbackError, UserError
from headway.runs.folder import verify

QUICK = SMALL.changed(executor="serial", deterministic=True, checkpoint_every=2)
DATA = unequal_clients()


def simulate(method: Any = "fedacg", **given: Any) -> hw.Result:
    """A small run in memory, or in the folder `out`."""
    objects = {name: given.pop(name) for name in ("out", "callbacks", "track", "metrics") if name in given}
    return hw.simulate(method, QUICK.changed(**given), **objects, **own_problem())


def as_read(records: Any) -> list[dict[str, Any]]:
    """Records without what depends on the clock, as JSON has them."""
    return json.loads(json.dumps(list(map(timeless, records))))  # type: ignore[no-any-return]


@dataclass
class Diary:
    """Writes down every call; breaks down in one round."""

    broken: int | None = None
    lines: list[str] = field(default_factory=list)

    def on_start(self, run: hw.Run) -> None:
        self.lines.append(f"start {run.round} {len(run.records)} {run.status}")

    def on_round(self, run: hw.Run) -> None:
        assert run.round == run.record["round"] == len(run.records)
        if run.round == self.broken:
            raise ZeroDivisionError("nothing to divide by")
        self.lines.append(f"round {run.round}")

    def on_end(self, run: hw.Run) -> None:
        self.lines.append(f"end {run.status} {run.result is not None}")


# ── when they are called ─────────────────────────────────────────────────────────────────────────────────────────────


def test_hooks_are_called_in_order_and_a_function_after_every_round() -> None:
    calls: list[str] = []
    diary = Diary(lines=calls)
    result = simulate(callbacks=[diary, lambda run: calls.append(f"function {run.round}")], rounds=3)
    rounds = [line for number in (1, 2, 3) for line in (f"round {number}", f"function {number}")]
    assert calls == ["start 0 0 running", *rounds, "end finished True"]
    assert result.callbacks[0] is diary


def test_a_failing_callback_is_reported_with_its_round_and_a_resume_calls_it_again(tmp_path: Path) -> None:
    """The round in which it failed is played again, after the last checkpoint before it."""
    folder, diary = tmp_path / "run", Diary(broken=4)
    with pytest.raises(
        CallbackError, match=r"^callback Diary, on_round, round 4: ZeroDivisionError: nothing to"
    ) as told:
        simulate(callbacks=diary, out=folder, rounds=5)
    assert "\n" not in str(told.value)
    assert diary.lines[-2:] == ["round 3", "end failed False"]
    assert "callback Diary" in json.loads((folder / "summary.json").read_text())["failure"]
    again = Diary()
    resumed = hw.resume(folder, callbacks=[again], **own_problem())
    assert again.lines == ["start 2 2 running", "round 3", "round 4", "round 5", "end finished True"]
    assert as_read(resumed.records) == as_read(simulate(rounds=5).records)
    third = Diary()
    assert hw.resume(folder, callbacks=third, **own_problem()).stopped is None
    assert third.lines == [], "the run is finished"


@pytest.mark.parametrize("hook", ["on_start", "on_end"])
def test_a_failure_before_the_first_round_or_after_the_last_leaves_a_run_that_goes_on(
    hook: str, tmp_path: Path
) -> None:
    class Broken:
        pass

    def fails(run: hw.Run) -> None:
        raise UserError("not today")

    broken = Broken()
    setattr(broken, hook, fails)
    with pytest.raises(
        UserError, match=rf"^callback Broken, {hook}, round {0 if hook == 'on_start' else 4}: not today$"
    ):
        simulate(callbacks=broken, out=tmp_path / "run")
    assert as_read(hw.resume(tmp_path / "run", **own_problem()).records) == as_read(simulate().records)


def test_a_signal_ends_a_run_after_its_round_and_a_resume_goes_on(tmp_path: Path) -> None:
    diary = Diary()

    def interrupts(run: hw.Run) -> None:
        if run.round == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.warns(UserWarning, match="stopping after this round"), pytest.raises(KeyboardInterrupt):
        simulate(callbacks=[interrupts, diary], out=tmp_path / "run")
    assert diary.lines[-2:] == ["round 3", "end interrupted False"]
    again = Diary()
    result = hw.resume(tmp_path / "run", callbacks=again, **own_problem())
    assert again.lines == ["start 3 3 running", "round 4", "end finished True"]
    assert as_read(result.records) == as_read(simulate().records)


def test_only_what_was_started_is_ended() -> None:
    class Fails(Diary):
        def on_start(self, run: hw.Run) -> None:
            raise OSError("no room")

    first, broken, last = Diary(), Fails(), Diary()
    with pytest.raises(CallbackError, match="callback Fails, on_start, round 0: OSError: no room"):
        simulate(callbacks=[first, broken, last])
    assert first.lines == ["start 0 0 running", "end failed False"]
    assert broken.lines == last.lines == []


def test_one_that_may_fail_is_left_out(tmp_path: Path) -> None:
    diary = Diary(broken=2)
    diary.may_fail = True  # type: ignore[attr-defined]
    with pytest.warns(UserWarning, match="Diary failed and is left out, the training goes on: nothing to divide by"):
        assert len(simulate(callbacks=diary).records) == 4
    assert diary.lines == ["start 0 0 running", "round 1"]


# ── they change no number ────────────────────────────────────────────────────────────────────────────────────────────


class Meddler:
    """Does what it likes with everything it is given."""

    needs = ("updates",)

    def on_round(self, run: hw.Run) -> None:
        torch.manual_seed(run.round)
        torch.rand(3)
        run.evaluate(DATA["test"])
        with torch.no_grad():
            for leaf in run.model.parameters():
                leaf.mul_(0)
        with pytest.raises(UserError, match="the record of a round cannot be changed"):
            run.record["accuracy"] = 1.0
        with pytest.raises(AttributeError):
            run.record["clients"].append(7)  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ["fedavg", "scaffold", "gradma-s", "fedmlb+acg:lam=0.85"])
@pytest.mark.parametrize("executor", ["serial", "batched"])
def test_callbacks_change_no_bit(method: str, executor: str) -> None:
    plain = simulate(method, executor=executor)
    watched = simulate(method, executor=executor, callbacks=Meddler())
    assert as_read(watched.records) == as_read(plain.records)
    assert distance(watched.model.state_dict(), plain.model.state_dict()) == 0


def test_each_callback_has_a_model_of_its_own() -> None:
    found: list[float] = []

    def zeroes(run: hw.Run) -> None:
        assert run.model is run.model
        torch.nn.utils.vector_to_parameters(torch.zeros(53, dtype=torch.float64), run.model.parameters())

    def sizes(run: hw.Run) -> None:
        found.append(float(torch.nn.utils.parameters_to_vector(run.model.parameters()).detach().norm()))
        assert next(run.model.parameters()).dtype == torch.float64

    result = simulate(callbacks=[zeroes, sizes])
    assert min(found) > 0
    last = torch.nn.utils.parameters_to_vector(result.model.parameters())
    assert found[-1] == pytest.approx(float(last.detach().norm()), abs=0)


def test_a_record_is_taken_by_json_and_by_pandas_as_any_other() -> None:
    import copy

    import pandas

    records: list[Any] = []
    result = simulate(callbacks=lambda run: records.append(run.record))
    assert json.loads(json.dumps(records)) == json.loads(json.dumps(result.records))
    assert list(pandas.DataFrame(records)["accuracy"]) == [one["accuracy"] for one in result.records]
    copied = copy.deepcopy(records[0])
    copied["mine"] = 1
    assert "mine" not in records[0]


# ── evaluate ─────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("executor", ["serial", "batched", "pool"])
def test_data_of_ones_own_is_scored_as_the_test_set_is(executor: str) -> None:
    x, y = DATA["test"]
    forms: list[Any] = [(x, y), (torch.as_tensor(x), torch.as_tensor(y)), list(zip(x, y, strict=True))]
    forms.append(TensorDataset(torch.as_tensor(x), torch.as_tensor(y)))

    def check(run: hw.Run) -> None:
        recorded = {name: run.record[name] for name in ("loss", "accuracy")}  # type: ignore[literal-required]
        assert all(run.evaluate(form) == recorded for form in (*forms, run.experiment.federation.test))
        first = run.experiment.federation.test.rows(np.arange(3))
        assert run.evaluate(first) == run.evaluate((x[:3], y[:3]))

    simulate(executor=executor, callbacks=check, rounds=2)


def test_further_metrics_lead() -> None:
    x, y = DATA["test"]

    def margin(output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        best = output.topk(2, dim=1).values
        return best[:, 0] - best[:, 1]

    def check(run: hw.Run) -> None:
        found = run.evaluate((x, y), metrics=[margin, "top5"])
        with torch.no_grad():
            best = run.model(torch.as_tensor(x)).topk(2, dim=1).values
        assert list(found) == ["loss", "margin", "top5", "accuracy"]
        assert found["margin"] == pytest.approx(float((best[:, 0] - best[:, 1]).mean()), abs=1e-12)
        assert found["top5"] == 1.0
        assert run.evaluate((x, y), "top3,top2")["top3"] == 1.0

    simulate(callbacks=check, rounds=1)


WRONG_DATA: dict[str, tuple[Any, str]] = {
    "shape": ((DATA["test"][0][:, :4], DATA["test"][1]), r"has samples of shape \(4,\), client 0 of shape \(6,\)"),
    "labels": ((DATA["test"][0], DATA["test"][1] + 5), "has the label 7, but there are 3 classes"),
    "numbers": ((DATA["test"][0], DATA["test"][1] * 0.5), "takes classes"),
    "infinite": ((DATA["test"][0] * math.inf, DATA["test"][1]), "in the data to evaluate the inputs of 40 of 40"),
    "nothing": (3, "is neither a pair"),
}


@pytest.mark.parametrize("what", WRONG_DATA)
def test_data_that_cannot_be_scored_is_refused(what: str) -> None:
    given, words = WRONG_DATA[what]
    with pytest.raises(UserError, match=words):
        simulate(callbacks=lambda run: run.evaluate(given), rounds=1)


def test_numbers_in_place_of_bytes_are_refused_where_these_are_normalised() -> None:
    def check(run: hw.Run) -> None:
        test = run.experiment.federation.test
        assert isinstance(test.x, torch.Tensor)
        recorded = run.record["accuracy"]
        assert run.evaluate((test.x, test.labels))["accuracy"] == recorded
        with pytest.raises(UserError, match=r"uint8 is divided by 255"):
            run.evaluate((test.x / 255, test.labels))

    small = {"rounds": 1, "steps": 1, "model": "linear", "device": "cpu", "executor": "serial"}
    hw.simulate("fedavg", callbacks=check, **small)


# ── updates ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class seeing:
    """FedAvg's server, which keeps what each client sent in each round."""

    needs_each = True

    def __init__(self) -> None:
        self._seen: list[tuple[np.ndarray, Any]] = []

    def update(self, model: Any, uploads: Any, state: Any) -> tuple[Any, Any]:
        flat = [np.concatenate([leaf.flatten() for leaf in one["delta"].leaves.values()]) for one in uploads.each]
        self._seen.append((np.stack(flat), uploads))
        return model + uploads.mean["delta"], state


@pytest.mark.parametrize(
    "settings",
    [{}, {"sampling": "replacement", "cohort_size": 5}, {"dropout": 0.4, "stragglers": "partial"}],
    ids=["plain", "drawn twice", "dropouts"],
)
def test_updates_are_those_of_a_direct_computation(settings: dict[str, Any]) -> None:
    server = seeing()
    found: list[Any] = []

    class Drift:
        needs = ("updates",)

        def on_round(self, run: hw.Run) -> None:
            assert run.updates is not None
            assert run.updates.clients == run.record["clients"]
            found.append(run.updates)

    simulate(hw.Method(server=server, name="seeing"), callbacks=Drift(), **settings)
    for numbers, (deltas, uploads) in zip(found, server._seen, strict=True):
        mean = np.asarray(uploads.weights) @ deltas
        assert numbers.weights == tuple(uploads.weights)
        assert numbers.norms == pytest.approx([np.linalg.norm(one) for one in deltas], rel=1e-12)
        assert numbers.norm == pytest.approx(np.linalg.norm(mean), rel=1e-12)
        cosines = [one @ mean / np.linalg.norm(one) / np.linalg.norm(mean) for one in deltas]
        assert numbers.cosines == pytest.approx(cosines, rel=1e-11)
        pairs = [
            one @ other / np.linalg.norm(one) / np.linalg.norm(other)
            for at, one in enumerate(deltas)
            for other in deltas[:at]
        ]
        assert numbers.pairwise == pytest.approx(np.mean(pairs), rel=1e-11)


class Keeping:
    needs = ("updates",)

    def __init__(self) -> None:
        self.found: list[Any] = []

    def on_round(self, run: hw.Run) -> None:
        self.found.append(run.updates)


@pytest.mark.parametrize("method", ["fedacg", "scaffold", "fedacg+fedpaq:bits=8", "csgd"])
def test_executors_agree_on_updates(method: str) -> None:
    every = []
    for executor in ("serial", "batched", "pool"):
        keeping = Keeping()
        simulate(method, executor=executor, callbacks=keeping, rounds=3)
        every.append(keeping.found)
    for one, *others in zip(*every, strict=True):
        for other in others:
            assert other.clients == one.clients
            for name in ("norms", "cosines", "norm", "pairwise"):
                assert getattr(other, name) == pytest.approx(getattr(one, name), abs=1e-10, nan_ok=True)
        assert (len(one.clients) == 1) == math.isnan(one.pairwise)


def test_clients_that_failed_are_not_among_the_updates() -> None:
    keeping = Keeping()

    def breaks(w: Any, gradient: Any, step: Any) -> Any:
        return gradient * torch.where(gradient.norm() > 2.0, torch.inf, 1.0)

    method = hw.Method(local=breaks, name="breaks")
    with pytest.warns(UserWarning, match="failed and are skipped"):
        result = simulate(method, callbacks=keeping, on_failure="skip", clip=0.0, seed=1)
    assert sum(one["failed"] for one in result.records) > 0
    for record, found in zip(result.records, keeping.found, strict=True):
        assert (found is None and not record["clients"]) or found.clients == record["clients"]
        assert found is None or (sum(found.weights) == pytest.approx(1) and np.isfinite(found.norms).all())


def test_updates_are_measured_only_where_they_are_asked_for() -> None:
    with pytest.raises(UserError, match=r'say.*needs = \("updates",\)'):
        simulate(callbacks=lambda run: run.updates)
    with pytest.raises(UserError, match="they send something else in their place"):
        simulate(hw.Method(local=hw.local.delta_changes(), server=hw.server.latest_update_mean()), callbacks=Keeping())


# ── stop ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def stops(after: int, reason: str = "enough is enough") -> Callable[[hw.Run], None]:
    def stop(run: hw.Run) -> None:
        if run.round == after:
            run.stop(reason)

    return stop


def test_a_stopped_run_is_finished_and_says_why(tmp_path: Path) -> None:
    folder, whole = tmp_path / "run", simulate()
    diary = Diary()
    result = simulate(callbacks=[stops(3), stops(3, "me\ntoo"), diary], out=folder)
    assert result.stopped == "enough is enough; me too"
    assert diary.lines[-2:] == ["round 3", "end stopped True"], "all callbacks see the last round"
    assert as_read(result.records) == as_read(whole.records[:3])
    for kept in ("summary.json", "checkpoint/manifest.json"):
        assert json.loads((folder / kept).read_text())["stopped"] == result.stopped
    assert json.loads((folder / "summary.json").read_text())["finished"]
    for again in (hw.resume(folder, callbacks=Diary(), **own_problem()), hw.load_run(folder, **own_problem())):
        assert (again.stopped, len(again.records)) == (result.stopped, 3)
        assert again.summary["stopped"] == result.stopped
    assert verify(folder).finished


def test_a_kill_between_the_last_checkpoint_and_the_summary_does_not_lose_the_reason(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    simulate(callbacks=stops(3), out=folder)
    (folder / "summary.json").unlink()
    diary = Diary()
    result = hw.resume(folder, callbacks=diary, **own_problem())
    assert (result.stopped, len(result.records)) == ("enough is enough", 3)
    assert diary.lines == ["start 3 3 running", "end stopped True"]
    assert json.loads((folder / "summary.json").read_text())["stopped"] == result.stopped


def test_a_run_may_be_stopped_before_its_first_round(tmp_path: Path) -> None:
    class Never:
        def on_start(self, run: hw.Run) -> None:
            with pytest.raises(UserError, match="no round has ended yet"):
                print(run.record)
            run.stop("nothing to learn")

    result = simulate(callbacks=Never(), out=tmp_path / "run")
    assert (result.stopped, result.records, len(result.rounds)) == ("nothing to learn", [], 0)
    assert hw.resume(tmp_path / "run", **own_problem()).stopped == "nothing to learn"
    assert result.summary["rounds"] == 0


def test_a_reason_is_words_and_comes_before_the_end() -> None:
    with pytest.raises(UserError, match="the reason to stop is None; say it"):
        simulate(callbacks=lambda run: run.stop(None))  # type: ignore[arg-type]

    class Late:
        def on_end(self, run: hw.Run) -> None:
            run.stop("too late")

    with pytest.raises(UserError, match="the run has ended"):
        simulate(callbacks=Late())


# ── several runs ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_each_run_of_a_comparison_has_its_own_copy_and_a_function_is_shared(tmp_path: Path) -> None:
    diary, seen = Diary(), list[str]()
    study = hw.compare(
        ["fedavg", "fedacg"],
        QUICK.changed(rounds=2, seeds=2),
        callbacks=[diary, lambda run: seen.append(f"{run.method} {run.scenario.seed} {run.round}")],
        out=tmp_path / "both",
        **own_problem(),
    )
    assert diary.lines == [], "the one that was given is left as it was"
    every = [one.callbacks[0] for seeds in study.runs.values() for one in seeds]
    assert len({id(one) for one in every}) == 4
    assert all(one.lines == ["start 0 0 running", "round 1", "round 2", "end finished True"] for one in every)  # type: ignore[attr-defined]
    assert seen == [
        f"{method} {seed} {number}" for method in ("fedavg", "fedacg") for seed in (0, 1) for number in (1, 2)
    ]


def test_a_callback_that_fails_in_a_comparison_is_told_with_its_run(tmp_path: Path) -> None:
    def fails(run: hw.Run) -> None:
        if run.method == "fedacg" and run.scenario.seed == 1 and run.round == 3:
            raise OSError("no room")

    with pytest.raises(CallbackError, match=r"^fedacg, seed 1: callback fails, on_round, round 3: OSError: no room$"):
        hw.compare(
            ["fedavg", "fedacg"], QUICK.changed(seeds=2), callbacks=fails, out=tmp_path / "both", **own_problem()
        )
    kept = {file.parent.relative_to(tmp_path / "both").as_posix() for file in (tmp_path / "both").rglob("summary.json")}
    assert kept == {"fedavg/seed-0", "fedavg/seed-1", "fedacg/seed-0", "fedacg/seed-1"}
    again = hw.resume(tmp_path / "both/fedacg/seed-1", **own_problem())
    assert as_read(again.records) == as_read(simulate("fedacg", seed=1).records)


def test_what_cannot_be_copied_is_refused_before_a_folder_is_made(tmp_path: Path) -> None:
    diary = Diary()
    diary.lock = threading.Lock()  # type: ignore[attr-defined]
    with pytest.raises(
        UserError, match=r"Diary cannot be copied .*each run has its own; open what it holds in on_start"
    ):
        hw.compare(["fedavg"], QUICK, callbacks=diary, out=tmp_path / "study", **own_problem())
    assert not (tmp_path / "study").exists()


def test_a_stopped_run_stands_in_the_comparison_with_its_reason(tmp_path: Path) -> None:
    def early(run: hw.Run) -> None:
        if run.method == "fedavg" and run.round == 2:
            run.stop("slow")

    study = hw.compare(["fedavg", "fedacg"], QUICK, callbacks=early, out=tmp_path / "both", **own_problem())
    line = "seed 0, stopped after round 2: slow"
    assert study.note == f"fedavg, {line}"
    rows = study.summary()
    assert rows[0]["stopped"] == [line]
    assert "stopped" not in rows[1]
    assert rows[0]["ended"] == ""
    report = hw.report.write(study, tmp_path / "report")
    for file in (report.page, report.markdown, report.latex):
        assert "stopped after round 2: slow" in file.read_text(encoding="utf-8")


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────────


class Misspelt:
    def on_rounds(self, run: hw.Run) -> None: ...


class Lightning:
    def on_train_epoch_end(self, run: hw.Run) -> None: ...


class Camel:
    def on_start(self, run: hw.Run) -> None: ...
    def onRound(self, run: hw.Run) -> None: ...


class Two:
    def on_round(self, run: hw.Run, record: Any) -> None: ...


class Waiting:
    async def on_round(self, run: hw.Run) -> None: ...


class NoTuple:
    needs = "updates"

    def on_round(self, run: hw.Run) -> None: ...


class Update(NoTuple):
    needs = ("update",)  # type: ignore[assignment]


class Need:
    need = ("updates",)

    def on_round(self, run: hw.Run) -> None: ...


SAME = Diary()
REFUSED: dict[str, tuple[Any, str]] = {
    "misspelt": (Misspelt(), r"Misspelt has on_rounds, which is never called; did you mean 'on_round'\?"),
    "lightning": (Lightning(), r"Lightning has on_train_epoch_end, which is never called.*on_start\(run\), on_round"),
    "camel": (Camel(), r"Camel has onRound, which is never called; did you mean 'on_round'\?"),
    "class": (Diary, r"Diary is a class; give an instance: Diary\(\)"),
    "class with arguments": (hw.EarlyStopping, r"EarlyStopping is a class; give an instance: EarlyStopping\(\)"),
    "two arguments": (Two(), r"Two\.on_round cannot be called with the run alone"),
    "no argument": (lambda: None, r"<lambda> cannot be called with the run alone"),
    "async": (Waiting(), r"Waiting\.on_round is an async function"),
    "nothing": ([3], r"3 is neither a function nor has it a hook"),
    "name": ("tensorboard", r"'tensorboard' is neither a function"),
    "twice": ([SAME, SAME], r"is given twice"),
    "needs": (NoTuple(), r"write a tuple: needs = \(\"updates\",\)"),
    "unknown need": (Update(), r"Update needs 'update'; allowed: updates; did you mean 'updates'\?"),
    "need": (Need(), r"has need, which is not read; did you mean 'needs'\?"),
    "two best": ([hw.KeepBest(), hw.KeepBest("loss")], r"KeepBest is given twice"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_callback_is_refused(what: str, tmp_path: Path) -> None:
    given, words = REFUSED[what]
    with pytest.raises(UserError, match=words) as told:
        simulate(callbacks=given)
    assert "\n" not in str(told.value)


def test_nothing_is_made_where_a_callback_is_refused(tmp_path: Path) -> None:
    method = hw.Method(local=hw.local.delta_changes(), server=hw.server.latest_update_mean(), name="mine")
    for given in (Misspelt(), REFUSED["two best"][0], hw.EarlyStopping("acuracy"), Keeping()):
        with pytest.raises(UserError, match=r"on_rounds|twice|say it|they send something else"):
            simulate(method, callbacks=given, out=tmp_path / "run")
        with pytest.raises(UserError, match=r"on_rounds|twice|say it|they send something else"):
            hw.compare([method], QUICK, callbacks=given, out=tmp_path / "run", **own_problem())
        assert not (tmp_path / "run").exists()


# ── what the documentation prints ────────────────────────────────────────────────────────────────────────────────────

ROOT = Path(__file__).parents[1]


def test_python_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs/callbacks.md").read_text(encoding="utf-8")
    names: dict[str, Any] = {}
    small = {"model": "linear", "steps": 1, "device": "cpu", "executor": "serial", "eval_samples": 50}
    for name in ("simulate", "compare"):
        whole = getattr(hw, name)
        monkeypatch.setattr(
            hw, name, lambda *given, whole=whole, **more: whole(*given, **{**small, **more}), raising=False
        )
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert len(blocks) == 5
    for block in blocks:
        exec(compile(block, "callbacks.md", "exec"), names)


def test_the_example_logs_classes_and_drift(tmp_path: Path) -> None:
    small = {"model": "linear", "steps": 1, "rounds": 2, "clients": 10, "device": "cpu", "executor": "serial"}
    study = runpy.run_path(str(ROOT / "examples/callbacks.py"))["main"](tmp_path / "runs", **small)
    for (run,) in study.runs.values():
        test = run.callbacks[0].classes
        assert len(test) == 10
        for name, count in (("class_accuracy", 2), ("drift", 2)):
            lines = [json.loads(line) for line in (run.folder / f"{name}.jsonl").read_text().splitlines()]
            assert len(lines) == count
        shares = [len(samples) for samples in test]
        accuracies = [json.loads(line) for line in (run.folder / "class_accuracy.jsonl").read_text().splitlines()]
        for line, record in zip(accuracies, run.records, strict=True):
            assert np.average(line["accuracy"], weights=shares) == pytest.approx(record["accuracy"], abs=1e-6)
