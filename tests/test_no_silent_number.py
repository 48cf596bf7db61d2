"""What is learnt, judged and filled is what was asked for, or it is refused in one line."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import headway as hw
from conftest import SMALL
from headway.errors import UserError
from headway.runs.files import read_json, write_checked
from headway.runs.fingerprints import TASK
from headway.runs.load import load_run
from headway.runs.resume import lengthen
from headway.runs.study import load_study
from headway.tasks import METRICS
from task_problems import huber

Given = dict[str, Any]
QUICK = SMALL.changed(rounds=1, participation=1.0, executor="serial", rate=0.1, checkpoint_every=1)
DRAW = torch.Generator().manual_seed(0)
X = torch.randn(12, 6, generator=DRAW, dtype=torch.float64)
CLASSES = torch.arange(12) % 3
BITS = (CLASSES > 0).double()[:, None]
WORDS = torch.randint(5, (12, 4), generator=DRAW)


def linear(outputs: int) -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(6, outputs)


def classes(**given: Any) -> Given:
    return {"model": linear(3), "clients": [(X, CLASSES), (X + 1, CLASSES)], "test": (X, CLASSES), **given}


def bits(**given: Any) -> Given:
    return {"model": linear(1), "clients": [(X, BITS), (X + 1, BITS)], "test": (X, BITS), **given}


def texts(**given: Any) -> Given:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Linear(3, 5))
    return {"model": model, "clients": [(WORDS, WORDS)], "test": (WORDS, WORDS), "task": "tokens", **given}


def run(method: Any = "fedavg", **given: Any) -> hw.Result:
    settings = {name: given.pop(name) for name in list(given) if name in ("schedule", "rate_decay", "rounds")}
    return hw.simulate(method, QUICK.changed(**settings), **given)


# ── losses and metrics of one's own ──────────────────────────────────────────────────────────────────────────────────


def squared(output: Tensor, target: Tensor) -> Tensor:
    return ((output - target) ** 2).mean(1)


def logistic(output: Tensor, target: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output.reshape(target.shape), target, reduction="none").reshape(12, -1)[
        :, 0
    ]


def missed(output: Tensor, target: Tensor) -> Tensor:
    return (output.argmax(1) != target).double()


missed.higher_is_better = False  # type: ignore[attr-defined]


def test_metrics_of_numbers_are_what_their_names_say_whatever_the_loss_is() -> None:
    result = run(task=huber, metrics=["rmse", "r2", "mae"], **bits())
    with torch.no_grad():
        errors = result.model(X) - BITS
    record = result.records[-1]
    assert record["rmse"] == pytest.approx(float(errors.square().mean().sqrt()), rel=1e-12)
    assert record["r2"] == pytest.approx(1 - float(errors.square().mean() / BITS.var(unbiased=False)), rel=1e-12)
    assert record["mae"] == pytest.approx(float(errors.abs().mean()), rel=1e-12)  # type: ignore[typeddict-item]
    assert record["loss"] == pytest.approx(float(huber(errors + BITS, BITS).mean()), rel=1e-12)


def named(name: str, **attributes: Any) -> Callable[[Tensor, Tensor], Tensor]:
    def metric(output: Tensor, target: Tensor) -> Tensor:
        return missed(output, target)

    metric.__name__ = name
    vars(metric).update(attributes)
    return metric


def failing(output: Tensor, target: Tensor) -> Tensor:
    raise LookupError("not\ntoday")


def judged_by(rows: Any, value: Any) -> Given:
    return classes(metrics=[hw.Metric("mine", rows, value)])


REFUSED: dict[str, tuple[Callable[[], Given], str]] = {
    "the largest of one": (
        lambda: bits(task=lambda o, y: squared(o, y), metrics=["accuracy"]),
        "metric 'accuracy': the loss is your own and a sample has targets of shape",
    ),
    "classes beside rows": (
        lambda: bits(model=linear(3), task=lambda o, y: squared(o, y), metrics=["top2"]),
        "metric 'top2': the loss is your own and a sample has targets of shape",
    ),
    "numbers that would be broadcast": (
        lambda: bits(model=linear(3), task=lambda o, y: squared(o, y), metrics=["mae"]),
        r"outputs have shape \(2, 3\) and targets \(2, 1\)",
    ),
    "another library's direction": (
        lambda: classes(metrics=[named("error", lower_is_better=True)]),
        "has lower_is_better, which is not read; write higher_is_better",
    ),
    "a misspelt direction": (lambda: classes(metrics=[named("error", higher_is_beter=False)]), "higher_is_beter"),
    "a direction in words": (
        lambda: classes(metrics=[named("error", higher_is_better="no")]),
        "higher_is_better is 'no'; it must be True or False",
    ),
    "a metric that fails": (lambda: classes(metrics=[failing]), "metric 'failing' failed: LookupError: not today"),
    "a loss that fails": (lambda: classes(task=failing), "the loss of task 'own' failed: LookupError: not today"),
    "a value that is none": (lambda: judged_by(lambda one: one.losses, lambda rows: None), "'mine' came to None"),
    "a value of several": (
        lambda: judged_by(lambda one: one.losses, lambda rows: rows),
        "its value must be one number",
    ),
    "a value that fails": (lambda: judged_by(lambda one: one.losses, failing), "metric 'mine' failed: TypeError"),
    "rows that are none": (lambda: judged_by(lambda one: 3, float), "its rows for 2 samples are 3"),
    "rows of the batch": (lambda: judged_by(lambda one: one.losses.mean(), float), "one row a sample"),
    "a task whose loss is a mean": (
        lambda: classes(task=hw.Task("mine", F.cross_entropy, "mine", (METRICS["accuracy"],))),
        r"the loss of task 'mine' returned shape \(\) for 2 samples",
    ),
    "units of the batch": (
        lambda: classes(task=hw.Task("mine", missed, "mine", (METRICS["accuracy"],), units=lambda y: y.sum())),
        r"the units of task 'mine' returned shape \(\)",
    ),
    "a task without a loss": (lambda: classes(task=hw.Task("mine", 3, "x", (METRICS["mae"],))), "loss is 3"),  # type: ignore[arg-type]
    "tests by names of nobody": (
        lambda: classes(test={"a": (X, CLASSES)}),
        "test is a dictionary, but clients are not",
    ),
    "a dataset in place of an array": (
        lambda: classes(test=(torch.utils.data.TensorDataset(X), (X, CLASSES))),
        "where an array belongs there is a TensorDataset with items",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_it_is_refused_in_one_line(case: str) -> None:
    make, words = REFUSED[case]
    with pytest.raises(UserError, match=words) as refused:
        run(**make())
    assert str(refused.value).isprintable()


def test_metrics_of_one_s_own_may_be_numbers_of_any_kind() -> None:
    mean = hw.Metric("mean", lambda one: one.losses, lambda rows: rows.mean())  # type: ignore[arg-type, return-value, union-attr]
    undefined = hw.Metric("undefined", lambda one: one.losses, lambda rows: 1 / 0)
    record = run(**classes(metrics=[mean, undefined])).records[-1]
    assert record["mean"] == pytest.approx(record["loss"])  # type: ignore[typeddict-item]
    assert "undefined" not in record


def test_the_proxy_over_clients_is_of_headway_s_accuracy() -> None:
    record = run(**classes(metrics=[named("accuracy")])).records[-1]
    assert "client_accuracy_low" not in record
    assert "client_accuracy_low" in run(**classes()).records[-1]


# ── what a run goes on with, and is compared with ────────────────────────────────────────────────────────────────────


class Weighted(nn.Module):
    """A loss with a setting and a number of its own."""

    def __init__(self, weight: float) -> None:
        super().__init__()
        self.register_buffer("weight", torch.tensor([1.0, weight, 1.0], dtype=torch.float64))

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        return F.cross_entropy(output, target, weight=self.weight, reduction="none")


def huber_of(delta: float) -> nn.Module:
    class Mean(nn.HuberLoss):
        def forward(self, output: Tensor, target: Tensor) -> Tensor:
            return super().forward(output, target).mean(1)

    return Mean(reduction="none", delta=delta)


def near(limit: float) -> Callable[[Tensor, Tensor], Tensor]:
    def share(output: Tensor, target: Tensor) -> Tensor:
        return ((output - target).abs().amax(1) < limit).double()

    return share


OTHERS: dict[str, tuple[Callable[[], Given], Callable[[], Given], str]] = {
    "a loss": (lambda: bits(task=huber), lambda: bits(task=squared), "the loss"),
    "a closed-over number": (
        lambda: bits(task=huber, metrics=[near(0.1)]),
        lambda: bits(task=huber, metrics=[near(0.2)]),
        "the metric 'share'",
    ),
    "a setting of a module": (lambda: bits(task=huber_of(1.0)), lambda: bits(task=huber_of(0.1)), "the loss"),
    "numbers of a module": (lambda: classes(task=Weighted(1)), lambda: classes(task=Weighted(2)), "the loss"),
    "a metric with rows": (
        lambda: judged_by(lambda one: one.losses, torch.mean),
        lambda: judged_by(lambda one: one.losses, torch.sum),
        "the metric 'mine'",
    ),
}


@pytest.mark.parametrize("case", OTHERS)
def test_a_run_does_not_go_on_with_another_loss_or_metric(case: str, tmp_path: Path) -> None:
    begun, other, words = OTHERS[case]
    whole, folder = run(**begun(), rounds=2, out=tmp_path / "whole"), tmp_path / "run"
    run(**begun(), out=folder)
    lengthen(folder, 2)
    with pytest.raises(UserError, match=f"is not what {folder} was run with: {words} changed;"):
        hw.resume(folder, **other())
    assert hw.resume(folder, **begun()).records[-1]["loss"] == whole.records[-1]["loss"]


def test_folders_of_before_losses_were_kept_go_on_with_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(**bits(task=huber, metrics=[near(0.1)]), out=folder)
    lengthen(folder, 2)
    path = folder / "checkpoint" / "manifest.json"
    manifest = read_json(path)
    kept = {name: one for name, one in manifest["fingerprints"]["now"].items() if not name.startswith(TASK)}
    assert len(kept) == len(manifest["fingerprints"]["now"]) - 2
    write_checked(path, {**manifest, "fingerprints": {"now": kept}})
    with pytest.warns(UserWarning, match="was made before losses and metrics were kept"):
        hw.resume(folder, **bits(task=huber, metrics=[near(0.1)]))
    lengthen(folder, 3)
    with pytest.raises(UserError, match="the loss changed"):
        hw.resume(folder, **bits(task=squared, metrics=[near(0.1)]))


def test_runs_on_different_data_of_one_s_own_stand_in_no_table(tmp_path: Path) -> None:
    run(**classes(), out=tmp_path / "one")
    run("fedacg", **classes(), out=tmp_path / "same")
    run("fedacg", **classes(clients=[(X, CLASSES), (X + 2, CLASSES)]), out=tmp_path / "other")
    assert set(load_study([tmp_path / "one", tmp_path / "same"]).runs) == {"fedavg", "fedacg"}
    with pytest.raises(UserError, match=r"were run on different data \(the training samples\)"):
        load_study([tmp_path / "one", tmp_path / "other"])


def test_runs_with_another_loss_of_one_s_own_stand_in_no_table(tmp_path: Path) -> None:
    run(**bits(task=squared), out=tmp_path / "one")
    run("fedacg", **bits(task=squared), out=tmp_path / "same")
    run("fedacg", **bits(task=huber), out=tmp_path / "other")
    assert set(load_study([tmp_path / "one", tmp_path / "same"]).runs) == {"fedavg", "fedacg"}
    with pytest.raises(UserError, match=r"they were judged differently \(the loss\)"):
        load_study([tmp_path / "one", tmp_path / "other"])


# ── padding ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Reading(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(5, 3), nn.Linear(3, 3)

    def forward(self, target_ids: Tensor) -> Tensor:
        return self.head(self.embedding(target_ids).mean(-2))  # type: ignore[no-any-return]


def ragged(kind: torch.dtype = torch.int64) -> list[Any]:
    return [(torch.ones(length, dtype=kind), length % 3) for length in (2, 4, 3)]


def filled(padding: Any, items: Any, **given: Any) -> Given:
    model = nn.Sequential(nn.Embedding(5, 3), nn.Flatten(), nn.Linear(12, 3))
    return {"model": model, "clients": [items], "test": items, "padding": padding, **given}


PADDED: dict[str, tuple[Callable[[], Given], str]] = {
    "half a token": (lambda: filled(0.5, ragged()), "padding of the input is 0.5, which int64 does not have"),
    "more than a byte": (lambda: filled(300, ragged(torch.uint8)), "padding of the input is 300, which uint8"),
    "nothing": (lambda: filled(math.nan, ragged()), "padding is nan; it must be a finite number"),
    "a truth value": (lambda: filled(True, ragged()), "padding is True"),
    "a text": (lambda: filled({"input": "0"}, ragged()), "padding of 'input' is '0'"),
    "a part without a number": (lambda: filled({"inputs": 0}, ragged()), "padding has no number for 'input'"),
    "a part that is none": (
        lambda: filled({"inputs": 0}, ragged()[:1]),
        "'inputs', which is no part of a sample; did you mean 'input'",
    ),
    "numbers to be learnt": (
        lambda: filled(0, [(one[0].double(), one[0].double()) for one in ragged()]),
        "targets of several lengths that are numbers, and -100 would be learnt as one",
    ),
    "data with a name": (lambda: {"padding": 0, "model": "linear"}, "padding fills samples of your own"),
}


@pytest.mark.parametrize("case", PADDED)
def test_what_would_fill_samples_with_other_numbers_is_refused(case: str) -> None:
    make, words = PADDED[case]
    given = make()
    settings = QUICK.changed(model=given.pop("model")) if isinstance(given["model"], str) else QUICK
    with pytest.raises(UserError, match=words):
        hw.simulate("fedavg", settings, **given)


def test_every_part_is_filled_with_its_own_number() -> None:
    """A part whose name begins with `target` is an input; a target of several parts has one number everywhere."""
    items = [({"target_ids": torch.ones(length, dtype=torch.int64)}, length % 3) for length in (2, 4)]
    seen: list[Tensor] = []

    def look(run: hw.Run) -> None:
        seen.append(run.experiment.federation.train.inputs["target_ids"])  # type: ignore[call-overload, index]

    run(model=Reading(), clients=[items], test=items, padding=2, callbacks=look)
    assert seen[0].tolist() == [[1, 1, 2, 2], [1, 1, 1, 1]]

    def first(output: Tensor, target: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(output, target["a"][:, 0], reduction="none")

    targets: list[Any] = []
    clients = [[(X[0], {"a": torch.arange(2)}), (X[1], {"a": torch.arange(1)})], [(X[2], {"a": torch.arange(3)})]]
    for padding, fill in ((0, -100), ({"target": 2}, 2)):
        run(
            model=linear(3),
            clients=clients,
            test=clients[0],
            padding=padding,
            task=first,
            callbacks=lambda run: targets.append(run.experiment.federation.train.y["a"].tolist()),
        )
        assert targets.pop() == [[0, 1, fill], [0, fill, fill], [0, 1, 2]]


# ── rates ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("settings", "round"),
    [
        ({"schedule": "step:every=1e-320"}, 2),
        ({"schedule": "step:every=1,factor=1e-200"}, 3),
        ({"rate_decay": 1e-300}, 3),
        ({"schedule": "constant:warmup=3,start=1e-320", "rate": 1e-10}, 1),
    ],
)
def test_a_rate_that_is_rounded_to_nothing_is_refused(settings: Given, round: int) -> None:
    with pytest.raises(UserError, match="let it fall more slowly, or run fewer rounds"):
        hw.simulate("scaffold", QUICK.changed(**settings, rounds=3), **classes())


def test_a_rate_that_vanishes_late_ends_a_run_when_it_comes_there() -> None:
    """0.1 · 2^(1 − t) is less than half of the smallest float64, 2^(−1074), from t = 1073 on."""
    late = QUICK.changed(rounds=2000, rate_decay=0.5, eval_every=2000, epochs=1, batch_size=12)
    with pytest.raises(UserError, match=r"the rate of round 1073 is 0, which is 0 in float64"):
        hw.simulate("scaffold", late, model=linear(3), clients=[(X[:1], CLASSES[:1])], test=(X, CLASSES))


# ── callbacks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def spoil_the_test_set(run: hw.Run) -> None:
    run.experiment.test.x.zero_()  # type: ignore[union-attr, operator]


def spoil_the_model(run: hw.Run) -> None:
    for leaf in run._standing.progress.model.theta.leaves.values():
        leaf.add_(1)


@pytest.mark.parametrize("callback", [spoil_the_test_set, spoil_the_model])
def test_a_callback_that_changes_the_run_is_refused(callback: Any) -> None:
    given = classes()
    given["test"] = (X.clone(), CLASSES.clone())
    with pytest.raises(UserError, match=f"callback {callback.__name__}, on_round, round 1: it changed the run's data"):
        run(**given, callbacks=callback)


def test_the_reason_to_stop_is_a_line_for_any_terminal() -> None:
    result = run(**classes(), callbacks=lambda run: run.stop("\x1b[31m" + "so " * 1000))
    assert result.stopped is not None
    assert result.stopped.isprintable()
    assert len(result.stopped) < 1000


def test_samples_of_which_nothing_counts_are_no_test() -> None:
    def ask(run: hw.Run) -> None:
        run.evaluate((WORDS, torch.full_like(WORDS, -100)))

    with pytest.raises(UserError, match="no target of the data to evaluate counts"):
        run(**texts(callbacks=ask))


# ── numbers of NumPy, names of files ─────────────────────────────────────────────────────────────────────────────────


def test_numbers_of_numpy_are_numbers_in_slots_and_callbacks() -> None:
    assert hw.lookahead(np.float32(0.5)) == hw.lookahead(0.5)
    assert type(hw.local.adam(beta1=np.float64(0.5)).beta1) is float
    stopping = hw.EarlyStopping(
        "loss", patience=np.int64(3), min_delta=np.float32(0.5), higher_is_better=np.bool_(False)
    )  # type: ignore[arg-type]
    assert (stopping.patience, stopping.min_delta, stopping.higher_is_better) == (3, 0.5, False)
    for wrong in (True, 2.5, 0, np.bool_(True)):
        with pytest.raises(UserError, match="it must be a number of evaluations, at least 1"):
            hw.EarlyStopping(patience=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["n" * 300, "missing/" + "n" * 300, "/".join(["n" * 200] * 25)])
def test_a_name_that_no_file_can_have_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for call in (lambda: run(**classes(), out=name), lambda: load_run(name), lambda: load_study([Path(name)])):
        with pytest.raises(UserError, match="no file can have this name"):
            call()
    assert not list(tmp_path.iterdir())


def test_a_best_model_of_another_run_is_not_this_one_s(tmp_path: Path) -> None:
    """Both are the best of their first round, with the same accuracy."""
    for name, x in (("one", X), ("other", X + 1)):
        run(**classes(clients=[(x, CLASSES)], test=(X[:1], CLASSES[:1])), out=tmp_path / name, callbacks=hw.KeepBest())
    assert load_run(tmp_path / "one", **classes(clients=[(X, CLASSES)], test=(X[:1], CLASSES[:1]))).best_model
    shutil.rmtree(tmp_path / "one" / "best")
    shutil.copytree(tmp_path / "other" / "best", tmp_path / "one" / "best")
    given = classes(clients=[(X, CLASSES)], test=(X[:1], CLASSES[:1]))
    with pytest.raises(UserError, match="best is of another run"):
        _ = load_run(tmp_path / "one", **given).best_model
    lengthen(tmp_path / "one", 2)
    with pytest.raises(UserError, match="best is of another run"):
        hw.resume(tmp_path / "one", **given, callbacks=hw.KeepBest())


def test_no_table_of_clients_is_made_of_other_data(tmp_path: Path) -> None:
    run(**classes(test=[(X, CLASSES), None]), out=tmp_path / "run")
    assert len(load_run(tmp_path / "run", **classes(test=[(X, CLASSES), None])).clients) == 1
    other = load_run(tmp_path / "run", **classes(test=[(X + 1, CLASSES), None]))
    with pytest.raises(UserError, match="would be another run's: the test samples changed"):
        _ = other.clients


@pytest.mark.parametrize(("task", "name"), [("tokens", "tokens"), (missed, "one of your own")])
def test_squared_error_to_classes_is_not_left_out_in_silence(task: Any, name: str) -> None:
    given = texts() if task == "tokens" else classes(task=task)
    with pytest.raises(UserError, match=f"loss is 'squared', which is for .* the task is {name}"):
        hw.simulate("fedavg", QUICK.changed(loss="squared"), **given)
