"""Regression and next characters run through the same loop, with their own metrics."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

import headway as hw
from conftest import SMALL, played
from headway.cli.main import app
from headway.data.columns import Windows
from headway.engine.building import build
from headway.errors import UserError
from headway.measure.summary import over_seeds
from headway.methods.spelling import method
from headway.models.networks import Staged
from headway.report import figures, tables
from headway.scenario import scenario
from headway.tasks.known import TASKS, squared_classification
from headway.tasks.named_metrics import metric_of
from headway.tasks.task import cross_entropy
from task_problems import PROBLEMS, Draw

SLOPE = np.array([2.0, -1.0, 0.5])


def numbers(outputs: int = 1, seed: int = 0) -> dict[str, Any]:
    """Clients of unequal size whose targets are a linear function of their samples, and a little noise."""
    draw = np.random.default_rng(seed)

    def samples(count: int) -> tuple[np.ndarray, np.ndarray]:
        x = draw.normal(size=(count, 3))
        y = x @ SLOPE + 1 + 0.1 * draw.normal(size=count)
        return x, y if outputs == 1 else np.stack([y + k for k in range(outputs)], 1)

    return {"clients": [samples(size) for size in (3, 17, 8, 24, 5, 11)], "test": samples(60)}


ALONE = SMALL.changed(executor="serial")
REGRESSION: dict[str, Any] = {"rounds": 30, "rate": 0.1, "weight_decay": 0.0}


@pytest.mark.parametrize("outputs", [1, 2])
def test_linear_regression_finds_the_line(outputs: int) -> None:
    """y = ⟨a, x⟩ + 1 + noise of variance 0.01: the loss comes near it, the weights near a."""
    result = hw.simulate("fedacg", ALONE, model=nn.Linear(3, outputs), **REGRESSION, **numbers(outputs))
    last = result.records[-1]
    assert 0.005 < last["loss"] < 0.03
    assert "accuracy" not in last
    assert "accuracy_smoothed" not in last
    assert "loss_smoothed" in last
    assert np.allclose(result.model.weight.detach()[0], SLOPE, atol=0.15)


def test_the_measures_are_what_their_names_say() -> None:
    chosen = build(SMALL, method("fedavg"), model=nn.Linear(3, 1), **numbers())
    records, end = played(chosen)
    x, y = (torch.as_tensor(part) for part in numbers()["test"])
    model = chosen.network.module(end.model.theta, end.model.buffers)
    residual = (model.double()(x)[:, 0] - y).detach()
    last = records[-1]
    assert last["loss"] == pytest.approx(float((residual**2).mean()), rel=1e-5)
    assert last["rmse"] == pytest.approx(math.sqrt(last["loss"]))
    assert last["r2"] == pytest.approx(1 - float((residual**2).sum() / ((y - y.mean()) ** 2).sum()), rel=1e-5)


@pytest.mark.parametrize("executor", ["batched", "pool"])
@pytest.mark.parametrize("settings", [{}, {"loss": "squared"}])
def test_executors_agree_on_squared_errors(executor: str, settings: dict[str, Any]) -> None:
    from conftest import unequal_clients

    data = unequal_clients() if settings else numbers()
    chosen = build(
        SMALL.changed(**settings), method("fedacg"), model=nn.Linear(*((6, 3) if settings else (3, 1))), **data
    )
    (_, end), (_, other) = played(chosen, "serial"), played(chosen, executor)
    assert float((end.model.theta - other.model.theta).norm()) < 1e-10


def test_tables_and_pictures_of_regression_show_the_loss(tmp_path: Path) -> None:
    runs = {
        name: [
            hw.simulate(name, ALONE, model=nn.Linear(3, 1), out=tmp_path / name / str(seed), seed=seed, **numbers())
            for seed in range(2)
        ]
        for name in ("fedavg", "fedacg")
    }
    study = hw.Study(runs, None)
    worst = [max(one.records[-1]["loss_smoothed"] for one in seeds) for seeds in runs.values()]
    assert study.target == max(worst), "of two methods the median is the worse one"
    rows = [over_seeds(name, [one.summary for one in seeds]) for name, seeds in runs.items()]
    heads, body = tables.cells(rows)
    assert heads[:2] == ["method", "last loss"]
    assert heads[-3:] == ["RMSE", "R²", "seconds"]
    text = tables.markdown(rows, SMALL)
    assert "accuracy" not in text
    assert "client spread" not in text
    least = min(range(2), key=lambda number: rows[number]["loss"])
    assert f"**{body[least][1]}**" in text
    assert figures.compare_picture(study, tmp_path / "compare.png").stat().st_size > 10_000


def test_a_target_of_regression_is_a_loss_to_fall_to() -> None:
    result = hw.simulate(
        "fedavg",
        ALONE,
        target=0.02,
        stop_at_target=True,
        model=nn.Linear(3, 1),
        **{**REGRESSION, "rounds": 90},
        **numbers(),
    )
    assert len(result.records) < 90
    assert result.records[-1]["loss_smoothed"] <= 0.02 < result.records[-2]["loss_smoothed"]


def test_a_target_beyond_an_accuracy_is_refused() -> None:
    with pytest.raises(UserError, match=r"target is 1\.5; it must be at most 1\.0"):
        hw.simulate("fedavg", SMALL, target=1.5)


def test_a_model_with_other_outputs_is_refused() -> None:
    """Two outputs and one number would be broadcast without a word."""
    with pytest.raises(UserError, match=r"shape \(2, 2\), but a target is 1 number$"):
        hw.simulate("fedavg", SMALL, model=nn.Linear(3, 2), **numbers())


def test_numbers_from_a_file_run_on_the_command_line(tmp_path: Path) -> None:
    """By name, with the linear model, two outputs: compare writes tables without accuracies."""
    pairs = numbers(2)
    x, y = (np.concatenate(parts) for parts in zip(*pairs["clients"], strict=True))
    np.savez(tmp_path / "mine.npz", x_train=x, y_train=y, x_test=pairs["test"][0], y_test=pairs["test"][1])
    arguments = ["compare", "fedavg", "fedacg", "--scenario", f"npz:{tmp_path}/mine.npz/iid/6x3", "--model", "linear"]
    arguments += ["--rounds", "3", "--executor", "serial", "--device", "cpu", "--out", str(tmp_path / "out"), "--quiet"]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "RMSE" in done.output
    assert "accuracy" not in done.output


# classes by squared error: FedNAG's linear regression


def test_squared_error_of_classes_is_to_one_hot() -> None:
    logits, y = torch.tensor([[0.5, 0.25, 0.0], [1.0, 1.0, 1.0]]), torch.tensor([0, 2])
    assert squared_classification.loss(logits, y).tolist() == pytest.approx([(0.25 + 0.0625) / 3, 2 / 3])
    assert torch.equal(cross_entropy(logits, y), nn.functional.cross_entropy(logits, y, reduction="none"))


def test_linear_regression_of_classes_has_a_loss_and_an_accuracy() -> None:
    """As in FedNAG's Figure 4(a): four workers, four steps, all of them in each round."""
    made = scenario("fashion/iid/4x100%", model="linear", loss="squared", steps=4, rate=0.01, rounds=25, batch_size=64)
    result = hw.simulate("fednag:gamma=0.9", made.changed(weight_decay=0.0, clip=0.0, device="cpu", executor="serial"))
    assert result.records[-1]["accuracy"] > 0.6
    assert result.records[-1]["loss"] < result.records[0]["loss"] < 1
    assert "rmse" not in result.records[-1]


# next characters


def test_next_characters_are_classes() -> None:
    """A text of one repeated word is predicted; the accuracy is the share of characters that are right."""
    from headway.models.leaf import _Last
    from headway.models.networks import Staged
    from headway.random import built

    tokens = torch.tensor([1, 2, 3, 4, 5] * 40, dtype=torch.uint8)
    windows = Windows(tokens, torch.arange(150), 8)
    rows = [torch.arange(start, 150, 3) for start in range(3)]
    clients = [(windows[own], tokens[own + 8].long()) for own in rows]
    model = built(
        lambda: Staged(nn.Embedding(6, 4), _Last(nn.LSTM(4, 8, batch_first=True)), nn.Linear(8, 6)), 0, "test"
    )
    result = hw.simulate(
        "fedacg", ALONE, model=model, clients=clients, test=clients[0], participation=1.0, rounds=8, rate=2.0
    )
    assert result.records[-1]["accuracy"] == 1.0


@pytest.mark.parametrize("spelled", ["fedlc", "fedlc:others=true", "fedntd", "fedmlb", "fedprox+fedntd"])
def test_objectives_over_classes_refuse_numbers(spelled: str) -> None:
    """They would compare probabilities that are none: a loss of −1e30, or nothing but FedAvg."""
    with pytest.raises(UserError, match="compares the probabilities of classes, but the targets of this data are num"):
        build(SMALL, method(spelled), model=Staged(nn.Linear(3, 4), nn.Linear(4, 1)), **numbers())


# named data: what whole numbers are, the task says


def npz(folder: Path, x: np.ndarray, y: np.ndarray) -> str:
    np.savez(folder / "own.npz", x_train=x, y_train=y, x_test=x[:9], y_test=y[:9])
    return f"npz:{folder}/own.npz"


TARGETS = {
    "binary": np.arange(24) % 2,
    "multilabel": np.arange(72).reshape(24, 3) % 2,
    "regression": np.arange(24) % 7,
    "tokens": np.where(np.arange(96).reshape(24, 4) % 5 == 4, -100, np.arange(96).reshape(24, 4) % 5),
    "segmentation": np.arange(24 * 9).reshape(24, 3, 3) % 2,
}


@pytest.mark.parametrize("task", TARGETS)
def test_labels_of_a_file_are_what_the_task_learns(task: str, tmp_path: Path) -> None:
    draw = np.random.default_rng(0)
    texts, images = draw.integers(0, 6, (24, 4)), draw.normal(size=(24, 1, 3, 3))
    x = texts if task == "tokens" else images if task == "segmentation" else draw.normal(size=(24, 5))
    models = {
        "tokens": nn.Sequential(nn.Embedding(6, 4), nn.Linear(4, 4)),
        "segmentation": nn.Conv2d(1, 2, 3, padding=1),
        "multilabel": nn.Linear(5, 3),
    }
    scenario = SMALL.changed(data=npz(tmp_path, x, TARGETS[task]), partition="iid", clients=4, task=task)
    chosen = build(scenario, method("fedavg"), model=models.get(task, nn.Linear(5, 1)))
    assert chosen.task.name == task
    assert chosen.federation.train.y.is_floating_point() == (task in ("binary", "multilabel", "regression"))
    assert chosen.federation.train.y.tolist() == TARGETS[task].tolist()
    records, _ = played(chosen)
    assert all(math.isfinite(record["loss"]) for record in records)


@pytest.mark.parametrize(
    ("targets", "task", "words"),
    [
        ("regression", "binary", "the training set has the target 2; the targets of task binary are 0 and 1"),
        (
            "multilabel",
            "auto",
            r"targets of shape \(3,\); say what is learnt: --task tokens, segm",
        ),
        ("multilabel", "classification", r"the task is classification, but a target of this data has shape \(3,\)"),
        ("binary", "multilabel", r"the task is multilabel, but a target of this data has shape \(\)"),
    ],
)
def test_labels_that_a_task_does_not_learn_are_refused(targets: str, task: str, words: str, tmp_path: Path) -> None:
    data = npz(tmp_path, np.zeros((24, 5)), TARGETS[targets])
    with pytest.raises(UserError, match=words):
        build(SMALL.changed(data=data, partition="iid", clients=4, task=task), method("fedavg"), model=nn.Linear(5, 3))


@pytest.mark.parametrize(("task", "shape"), [("binary", (24,)), ("multilabel", (24, 3))])
def test_numbers_of_a_file_are_not_taken_for_yes_and_no(task: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    """In any of its sets; 0.0 and 1.0 are."""
    draw = np.random.default_rng(0)
    x, sound = draw.normal(size=(24, 5)), draw.integers(0, 2, shape).astype(float)
    for rows, what in ((slice(20, 24), "training"), (slice(3), "test"), (slice(0), "")):
        y = sound.copy()
        y[rows] = 0.25
        np.savez(tmp_path / "own.npz", x_train=x[9:], y_train=y[9:], x_test=x[:9], y_test=y[:9])
        chosen = SMALL.changed(data=f"npz:{tmp_path}/own.npz", partition="iid", clients=4, task=task)
        model = nn.Linear(5, int(np.prod(shape[1:])))
        if not what:
            assert build(chosen, method("fedavg"), model=model).task.name == task
            return
        with pytest.raises(UserError, match=f"the {what} set has the target 0.25; the targets of task {task} are 0 an"):
            build(chosen, method("fedavg"), model=model)


def test_a_whole_task_of_ones_own_says_what_counts() -> None:
    """Its name is free; with units a batch's loss is the mean over these, as of tokens."""
    tokens, tokens_task = PROBLEMS["tokens"], TASKS["tokens"]
    own = hw.Task("next letters", tokens_task.loss, "cross-entropy a letter", (metric_of("accuracy", "tokens"),))
    own = dataclasses.replace(own, units=tokens_task.units, class_axis=-1)
    (_, one), (_, other) = (
        played(dataclasses.replace(tokens, given={"task": task}).experiment()) for task in ("tokens", own)
    )
    assert torch.equal(one.model.theta.flat(), other.model.theta.flat())


def test_a_callback_scores_data_by_a_task_of_ones_own() -> None:
    """With targets that do not count, whatever the task is called."""
    tokens = PROBLEMS["tokens"]
    given = dataclasses.replace(TASKS["tokens"], name="next letters", metrics=())
    x, y = tokens.samples(Draw(3), 9)  # type: ignore[misc]
    found: list[dict[str, float]] = []
    result = hw.simulate(
        "fedavg",
        ALONE.changed(rounds=1, participation=1.0),
        model=tokens.model(),
        clients=[tokens.samples(Draw(seed), 6) for seed in range(2)],
        test=(x, y),
        task=given,
        metrics="perplexity",
        callbacks=lambda run: found.append(run.evaluate((x, y))),
    )
    assert found == [{name: result.records[0][name] for name in ("loss", "perplexity")}]  # type: ignore[literal-required]
