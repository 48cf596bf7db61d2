"""What every task keeps: the executors agree, serial is the plain loop, chunks change no metric, metrics are theirs."""

from __future__ import annotations

import math
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import pytest
import torch
from torch import Tensor

from conftest import distance, played
from headway.engine import evaluation
from headway.engine.evaluation import evaluate
from headway.engine.experiment import Experiment
from headway.engine.server import initial_state
from headway.errors import UserError
from headway.tasks.known import TASKS
from headway.tasks.named_metrics import metric_of
from task_problems import IGNORED, PROBLEMS, SIZES, Draw, answer, averaged_by_hand

needs_torchmetrics = pytest.mark.skipif(find_spec("torchmetrics") is None, reason="headway[metrics] is not there")
if find_spec("torchmetrics") is not None:
    import torchmetrics

HELD_TO_TORCHMETRICS = {
    "classification": (
        "torchmetrics:F1Score:task=multiclass:num_classes=3:average=macro,torchmetrics:AUROC:task=multiclass:num_classes=3",
        lambda logits, y: (
            torchmetrics.functional.f1_score(logits, y, task="multiclass", num_classes=3, average="macro"),
            torchmetrics.functional.auroc(logits.softmax(1), y, task="multiclass", num_classes=3),
        ),
    ),
    "regression": (
        "torchmetrics:R2Score:multioutput=variance_weighted,torchmetrics:MeanAbsoluteError",
        lambda numbers, y: (
            torchmetrics.functional.r2_score(numbers, y, multioutput="variance_weighted"),
            torchmetrics.functional.mean_absolute_error(numbers, y),
        ),
    ),
    "binary": (
        "torchmetrics:F1Score:task=binary,torchmetrics:AUROC:task=binary",
        lambda logits, y: (
            torchmetrics.functional.f1_score(logits[:, 0].sigmoid(), y.long(), task="binary"),
            torchmetrics.functional.auroc(logits[:, 0].sigmoid(), y.long(), task="binary"),
        ),
    ),
    "multilabel": (
        "torchmetrics:F1Score:task=multilabel:num_labels=4,torchmetrics:AUROC:task=multilabel:num_labels=4",
        lambda logits, y: (
            torchmetrics.functional.f1_score(logits.sigmoid(), y.long(), task="multilabel", num_labels=4),
            torchmetrics.functional.auroc(logits.sigmoid(), y.long(), task="multilabel", num_labels=4),
        ),
    ),
    "tokens": (
        "torchmetrics:F1Score:task=multiclass:num_classes=7:ignore_index=-100",
        lambda logits, y: (
            torchmetrics.functional.f1_score(
                logits.flatten(0, 1), y.flatten(), task="multiclass", num_classes=7, ignore_index=IGNORED
            ),
        ),
    ),
    "segmentation": (
        "torchmetrics:JaccardIndex:task=multiclass:num_classes=3:ignore_index=-100",
        lambda logits, y: (
            torchmetrics.functional.jaccard_index(logits, y, task="multiclass", num_classes=3, ignore_index=IGNORED),
        ),
    ),
}


def test_every_task_has_a_problem() -> None:
    assert {PROBLEMS[name].experiment().task.name for name in PROBLEMS} == {*TASKS, "own"}


@pytest.mark.parametrize("name", PROBLEMS)
def test_serial_is_a_plain_loop_and_the_other_executors_are_serial(name: str) -> None:
    """Short batches and labels that do not count included: a batch's loss is the mean over what counts in it."""
    problem = PROBLEMS[name]
    chosen = problem.experiment()
    records, end = played(chosen)
    for parameter, expected in averaged_by_hand(chosen, problem.loss).items():
        assert distance(end.model.theta.leaves[parameter], expected.detach()) < 1e-10, parameter
    metrics = [metric.name for metric in chosen.task.metrics]
    for executor in ("batched", "pool"):
        others, other = played(chosen, executor)
        assert distance(end.model.theta, other.model.theta) < 1e-10
        for mine, its in zip(records, others, strict=True):
            for key in ("loss", "train_loss", *metrics, f"{metrics[0]}_smoothed"):
                assert its[key] == pytest.approx(mine[key], abs=1e-10), (executor, key)


@pytest.mark.parametrize("spelled", ["fedacg", "scaffold"])
@pytest.mark.parametrize("name", ["tokens", "outputs by name", "as Hugging Face"])
def test_executors_agree_for_methods_that_send_more(name: str, spelled: str) -> None:
    chosen = PROBLEMS[name].experiment(spelled, participation=0.5)
    (_, end), (_, other) = played(chosen), played(chosen, "batched")
    assert distance(end.model.theta, other.model.theta) < 1e-10


def scored(chosen: Experiment) -> dict[str, float]:
    with chosen.arithmetic():
        return evaluate(chosen, initial_state(chosen)).numbers()


@needs_torchmetrics
@pytest.mark.parametrize("name", PROBLEMS)
def test_chunks_change_no_metric(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ratios too, such as the perplexity, R² and those of torchmetrics: none is a mean of the chunks' own."""
    asked = HELD_TO_TORCHMETRICS.get(name)
    chosen = PROBLEMS[name].experiment(**({"metrics": asked[0]} if asked else {}))
    whole = scored(chosen)
    assert len(whole) == 1 + len({metric.name for metric in chosen.task.metrics} - {"loss"})
    for most in (1, 5, 22):
        monkeypatch.setitem(evaluation.CHUNK, "cpu", most)
        assert scored(chosen) == pytest.approx(whole, rel=1e-12)


@needs_torchmetrics
@pytest.mark.parametrize("name", HELD_TO_TORCHMETRICS)
def test_metrics_of_torchmetrics_are_its_own(name: str) -> None:
    metrics, direct = HELD_TO_TORCHMETRICS[name]
    chosen = PROBLEMS[name].experiment(metrics=metrics)
    found = scored(chosen)
    names = [metric.name for metric in chosen.task.metrics][: len(metrics.split(","))]
    output, y = by_the_first_model(chosen)
    assert [found[one] for one in names] == pytest.approx([float(one) for one in direct(output, y)], rel=1e-6)


@needs_torchmetrics
def test_logits_between_0_and_1_are_not_taken_for_probabilities() -> None:
    """Of positive logits every label is 1; as probabilities 0.1 and 0.3 would be 0."""
    for task in ("binary", "multilabel:num_labels=2"):
        f1 = metric_of(f"torchmetrics:F1Score:task={task}", task.partition(":")[0])
        logits = torch.tensor([[0.1, 0.9], [0.3, 0.8]])
        assert f1.value((logits, torch.ones(2, 2))) == 1.0


@needs_torchmetrics
def test_what_torchmetrics_does_not_define_is_no_number() -> None:
    """It returns an AUROC of 0 where there is one class, and raises for R² of one sample."""
    auroc = metric_of("torchmetrics:AUROC:task=binary", "binary")
    logits = torch.tensor([0.1, 0.7, -0.2])
    assert math.isnan(auroc.value((logits, torch.ones(3))))
    assert auroc.value((logits, torch.tensor([0.0, 1.0, 0.0]))) == 1.0
    r2 = metric_of("torchmetrics:R2Score", "regression")
    assert math.isnan(r2.value((logits[:1], logits[:1])))


def test_clients_of_whose_tokens_none_counts_have_no_part_in_the_loss() -> None:
    def silent(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
        x, y = draw.whole(7, count, 5), draw.whole(7, count, 5)
        return x, y.fill_(IGNORED) if count == SIZES[1] else y

    chosen = replace(PROBLEMS["tokens"], samples=silent).experiment(global_loss=True)
    records, end = played(chosen)
    others = [own for own in chosen.federation.clients if len(own) != SIZES[1]]
    module, train = chosen.network.original.double(), chosen.federation.train
    losses = [
        PROBLEMS["tokens"].loss(module(x), y).detach() for x, y in (train.read(torch.as_tensor(own)) for own in others)
    ]
    sizes = torch.tensor([float(len(own)) for own in others])
    assert scored(chosen)["global_loss"] == pytest.approx(
        float(torch.stack(losses).double() @ (sizes / sizes.sum()).double())
    )
    assert all(math.isfinite(record["global_loss"]) for record in records)
    assert distance(end.model.theta, played(chosen, "batched")[1].model.theta) < 1e-10


@pytest.mark.parametrize(("sizes", "words"), [((23,), "test"), ((*SIZES, 23), "training")])
def test_samples_of_which_nothing_counts_are_refused(sizes: tuple[int, ...], words: str) -> None:
    def silent(draw: Draw, count: int) -> tuple[Tensor, Tensor]:
        return draw.whole(7, count, 5), draw.whole(7, count, 5).fill_(IGNORED if count in sizes else 0)

    with pytest.raises(UserError, match=f"no target of the {words} samples counts: all of them are -100"):
        replace(PROBLEMS["tokens"], samples=silent).experiment()


def by_the_first_model(chosen: Experiment) -> tuple[Any, Any]:
    """Answers of the model that a run begins with to the test set, and the targets."""
    x, y = chosen.test.read(slice(None))
    with torch.no_grad():
        output = answer(chosen.network.original.double(), chosen.federation.inputs(x, torch.float64))
    return output, chosen.targets(y)


def test_metrics_of_regression_by_hand() -> None:
    chosen = PROBLEMS["regression"].experiment()
    found, (numbers, y) = scored(chosen), by_the_first_model(chosen)
    error = numbers - y
    assert found["mae"] == pytest.approx(float(error.abs().mean()))
    assert found["loss"] == pytest.approx(float((error**2).mean()))
    assert found["rmse"] == pytest.approx(math.sqrt(float((error**2).mean())))
    assert found["r2"] == pytest.approx(1 - float((error**2).sum() / ((y - y.mean(0)) ** 2).sum()))


def test_metrics_of_tokens_by_hand() -> None:
    """Means over the tokens that count, not over samples: samples have from none to five of them."""
    chosen = PROBLEMS["tokens"].experiment(metrics="top3")
    found, (logits, y) = scored(chosen), by_the_first_model(chosen)
    counts = (y != IGNORED).sum(1)
    assert counts.min() == 0
    assert len(counts.unique()) > 2
    kept = y != IGNORED
    losses = -logits.log_softmax(-1)[kept].gather(1, y[kept].unsqueeze(1))
    assert found["loss"] == pytest.approx(float(losses.mean()))
    assert found["perplexity"] == pytest.approx(math.exp(float(losses.mean())))
    assert found["bits_per_character"] == pytest.approx(float(losses.mean()) / math.log(2))
    assert found["accuracy"] == pytest.approx(float((logits[kept].argmax(-1) == y[kept]).double().mean()))
    top = logits[kept].topk(3).indices == y[kept].unsqueeze(1)
    assert found["top3"] == pytest.approx(float(top.any(1).double().mean()))


def test_metrics_of_labels_by_hand() -> None:
    for name in ("binary", "multilabel"):
        chosen = PROBLEMS[name].experiment()
        found, (logits, y) = scored(chosen), by_the_first_model(chosen)
        right = (logits.reshape(y.shape) > 0) == (y > 0.5)
        assert found["accuracy"] == pytest.approx(float(right.double().mean()))
        if name == "multilabel":
            assert found["exact_match"] == pytest.approx(float(right.all(1).double().mean()))


def test_the_loss_on_all_clients_is_the_mean_over_their_tokens() -> None:
    """F(θ) = Σ p_i F_i(θ), F_i the mean over the tokens of client i; p_i its share of the samples."""
    chosen = PROBLEMS["tokens"].experiment(global_loss=True)
    federation, module = chosen.federation, chosen.network.original.double()

    def own(rows: Any) -> Tensor:
        x, y = federation.train.read(torch.as_tensor(rows))
        return PROBLEMS["tokens"].loss(module(x), y).detach()

    parts = [len(rows) / len(federation.train) * own(rows) for rows in federation.clients]
    assert scored(chosen)["global_loss"] == pytest.approx(float(sum(parts)))
