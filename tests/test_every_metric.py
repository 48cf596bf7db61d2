"""What every metric of the table promises, for each task that it judges; a new one is found here by its name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from headway.errors import UserError
from headway.tasks import IGNORED, METRICS, TASKS, Judged, Metric, metric_of, task_of
from headway.trees import leaves_of, tree_map

SAMPLES, CLASSES = 41, 7
Case = tuple[Tensor, Tensor, Tensor]
"""Random answers, perfect answers, targets."""


def _of_classes(shape: tuple[int, ...], axis: int) -> Case:
    draw = torch.Generator().manual_seed(0)
    target = torch.randint(0, CLASSES, shape, generator=draw)
    perfect = 30.0 * torch.nn.functional.one_hot(target, CLASSES).double().movedim(-1, axis)
    guessed = torch.randn(perfect.shape, generator=draw, dtype=torch.float64)
    if target.dim() > 1:
        target[::3, 0] = IGNORED
    return guessed, perfect, target


def _of_labels(shape: tuple[int, ...]) -> Case:
    draw = torch.Generator().manual_seed(0)
    target = torch.randint(0, 2, shape, generator=draw).double()
    return torch.randn(shape, generator=draw, dtype=torch.float64), 30.0 * (2 * target - 1), target


def _of_numbers() -> Case:
    draw = torch.Generator().manual_seed(0)
    target = torch.randn((SAMPLES, 2), generator=draw, dtype=torch.float64)
    return torch.randn((SAMPLES, 2), generator=draw, dtype=torch.float64), target.clone(), target


CASES: dict[str, Callable[[], Case]] = {
    "classification": lambda: _of_classes((SAMPLES,), 1),
    "tokens": lambda: _of_classes((SAMPLES, 5), -1),
    "segmentation": lambda: _of_classes((SAMPLES, 3, 2), 1),
    "binary": lambda: _of_labels((SAMPLES,)),
    "multilabel": lambda: _of_labels((SAMPLES, 3)),
    "regression": _of_numbers,
}
PAIRS = [(name, task) for name, metric in METRICS.items() for task in metric.tasks or TASKS]


def judged(task: str, answer: Tensor, target: Tensor) -> Judged:
    return TASKS[task].judged(answer, target)


def valued(metric: Metric, task: str, answer: Tensor, target: Tensor) -> float:
    return metric.value(metric.rows(judged(task, answer, target)))


@pytest.mark.parametrize("name", METRICS)
def test_it_is_found_by_its_own_name_and_judges_tasks_that_there_are(name: str) -> None:
    assert METRICS[name].name == name
    assert set(METRICS[name].tasks) <= TASKS.keys()


@pytest.mark.parametrize("task", TASKS)
def test_every_task_has_a_case_here(task: str) -> None:
    assert task in CASES


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_samples_count_alike_in_any_order_and_any_batches(name: str, task: str) -> None:
    """One row a sample; so clients' own samples, and the whole set in batches of any size, have the right number."""
    metric, (answer, _, target) = METRICS[name], CASES[task]()
    rows = metric.rows(judged(task, answer, target))
    assert all(len(leaf) == SAMPLES for leaf in leaves_of(rows))
    whole = metric.value(rows)
    first, second = (metric.rows(judged(task, answer[part], target[part])) for part in (slice(7), slice(7, None)))
    assert metric.value(tree_map(lambda one, two: torch.cat([one, two]), first, second)) == pytest.approx(
        whole, rel=1e-12
    )
    order = torch.randperm(SAMPLES, generator=torch.Generator().manual_seed(1))
    assert metric.value(tree_map(lambda leaf: leaf[order], rows)) == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_perfect_answers_are_better_than_guesses(name: str, task: str) -> None:
    metric, (guessed, perfect, target) = METRICS[name], CASES[task]()
    poor, best = (valued(metric, task, answer, target) for answer in (guessed, perfect))
    assert (best > poor) == metric.higher_is_better
    assert best != poor
    if metric.percent:
        assert 0 <= poor < best == 1


@pytest.mark.parametrize(("name", "task"), PAIRS)
def test_it_does_not_take_the_values_of_another_loss_for_its_own(name: str, task: str) -> None:
    """Beside a loss of the user's own an R², an RMSE and a perplexity are what they are beside the task's."""
    metric, (answer, _, target) = METRICS[name], CASES[task]()
    given = TASKS[task]
    mine = replace(given, loss=lambda output, target: 3 * given.loss(output, target) + 1)
    expected = valued(metric, task, answer, target)
    assert metric.value(metric.rows(mine.judged(answer, target))) == pytest.approx(expected, rel=1e-12)


OUTPUTS, LABELS = torch.randn(4, 5, 5), torch.randint(5, (4, 5))
UNREADABLE = {
    "tokens, and nothing says where the classes are": (("accuracy", "top3", "perplexity"), OUTPUTS, LABELS),
    "one logit for two classes": (("accuracy", "top3", "bits_per_character"), OUTPUTS[:, 0, :1], LABELS[:, 0] % 2),
    "a mean and a deviation for one number": (("mae", "rmse", "r2"), OUTPUTS[:, 0, :2], OUTPUTS[:, 1, :1]),
    "classes as numbers": (("accuracy", "perplexity"), OUTPUTS[:, 0], OUTPUTS[:, 1, 0]),
    "another number of labels": (("exact_match",), OUTPUTS[:, 0], LABELS[:, :2] % 2),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_an_answer_that_it_cannot_read_beside_ones_own_loss_is_refused(what: str) -> None:
    """Each of these would be broadcast, or read along another axis, to a number that means nothing."""
    names, answer, target = UNREADABLE[what]
    task = task_of(lambda output, target: output.flatten(1).mean(1))
    for name in names:
        with pytest.raises(UserError, match=rf"^metric '{name}': (the loss is your own|it compares)") as told:
            metric_of(name, "own").rows_of(task.judged(answer, target))
        assert "\n" not in str(told.value)
