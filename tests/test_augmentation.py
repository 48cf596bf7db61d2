"""Augmented images are what rotating, padding, cropping and mirroring one by one would give, in every executor."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import scipy.ndimage
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.func import vmap

import headway as hw
from conftest import SMALL, key_tensor, played
from headway.data.augmentation import DEGREES, augmented
from headway.engine.building import build
from headway.engine.client_rounds import Turn
from headway.engine.executor import RoundInput
from headway.engine.experiment import Experiment
from headway.engine.serial import ClientTrainer
from headway.engine.server import broadcast, initial_state, received
from headway.errors import UserError
from headway.methods.spelling import method
from headway.models.networks import Staged
from headway.random import apart, built, uniform
from headway.trees import leaves_of


def images(count: int, shape: tuple[int, int, int], seed: int = 0) -> Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(1, 256, (count, *shape), np.uint8))


def draws(words: Tensor, count: int) -> np.ndarray:
    """(turn, down, right, mirror) of each image."""
    return uniform(apart(words, "augmentation"), (count, 4)).double().numpy()


def rotation(height: int, width: int, degrees: float) -> tuple[np.ndarray, np.ndarray]:
    """The real coordinates that each pixel of a rotated image is read at: centre (side − 1)/2, inverse map."""
    angle = math.radians(degrees)
    y, x = np.mgrid[:height, :width].astype(float)
    y, x = y - (height - 1) / 2, x - (width - 1) / 2
    return (
        math.cos(angle) * y + math.sin(angle) * x + (height - 1) / 2,
        math.cos(angle) * x - math.sin(angle) * y + (width - 1) / 2,
    )


def near_a_tie(shape: Sequence[int], degrees: float, margin: float) -> np.ndarray:
    """Pixels that are read within `margin` of the middle between two others."""
    rows, columns = (np.abs(part + 0.5 - np.round(part + 0.5)) < margin for part in rotation(*shape, degrees))
    return rows | columns


def rotated(image: np.ndarray, degrees: float) -> np.ndarray:
    """Nearest neighbour, pixel by pixel, 0 outside."""
    out = np.zeros_like(image)
    height, width = image.shape[1:]
    rows, columns = rotation(height, width, degrees)
    for r in range(height):
        for c in range(width):
            y, x = math.floor(rows[r, c] + 0.5), math.floor(columns[r, c] + 0.5)
            if 0 <= y < height and 0 <= x < width:
                out[:, r, c] = image[:, y, x]
    return out


def one_by_one(image: np.ndarray, draw: np.ndarray, degrees: float, share: float = 1.0) -> np.ndarray:
    """Rotate, pad with 4, crop, mirror: each step on the whole image; the crop is random for a share of the images."""
    height, width = image.shape[1:]
    turned = rotated(image, (2 * draw[0] - 1) * degrees)
    padded = np.pad(turned, ((0, 0), (4, 4), (4, 4)))
    top, left = (int(draw[1] * 9), int(draw[2] * 9)) if draw[0] < share else (4, 4)
    cropped = padded[:, top : top + height, left : left + width]
    return cropped[:, :, ::-1] if draw[3] < 0.5 else cropped


@pytest.mark.parametrize("kind", list(DEGREES))
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 10**6), shape=st.tuples(st.integers(1, 3), st.integers(1, 20), st.integers(1, 20)))
def test_one_gather_is_the_sequence_of_steps(kind: str, seed: int, shape: tuple[int, int, int]) -> None:
    """Pixel for pixel, for any size; where a coordinate is a tie to 1e-4, either neighbour will do."""
    x = images(3, shape, seed)
    got = augmented(x, key_tensor(seed), kind).numpy()
    for image, draw, seen in zip(x.numpy(), draws(key_tensor(seed), 3), got, strict=True):
        wanted = one_by_one(image, draw, DEGREES[kind], 0.5 if kind == "half-crop-flip" else 1.0)
        ties = near_a_tie(shape[1:], (2 * draw[0] - 1) * DEGREES[kind], 1e-4).sum() if DEGREES[kind] else 0
        assert (wanted != seen).any(0).sum() <= ties


@pytest.mark.parametrize("degrees", [-9.7, -3.3, 0.6, 5.1, 9.99])
def test_rotation_is_scipys_where_it_reads_inside(degrees: float) -> None:
    """scipy.ndimage.rotate(order=0) turns about the same centre. Up to half a pixel outside, it fills and we read."""
    image = images(1, (1, 28, 33))[0]
    theirs = scipy.ndimage.rotate(image[0].numpy(), degrees, order=0, reshape=False, cval=0)
    rows, columns = rotation(28, 33, degrees)
    inside = (rows >= 0) & (rows <= 27) & (columns >= 0) & (columns <= 32)
    assert inside.mean() > 0.8
    assert (theirs == rotated(image.numpy(), degrees)[0])[inside].all()


@pytest.mark.parametrize("degrees", [-9.7, -3.3, 0.6, 5.1, 9.99])
@pytest.mark.parametrize("shape", [(1, 32, 32), (1, 28, 33)])
def test_rotation_is_pillows(degrees: float, shape: tuple[int, int, int]) -> None:
    """The authors' pipeline turns Pillow images. Pillow's matrix has 16 binary places, so it sees other ties."""
    pillow = pytest.importorskip("PIL.Image")
    image = images(1, shape)[0].numpy()
    theirs = np.asarray(pillow.fromarray(image[0]).rotate(degrees))
    away = ~near_a_tie(shape[1:], degrees, 1e-3)
    assert away.mean() > 0.98
    assert (theirs == rotated(image, degrees)[0])[away].all()


def test_the_draws_have_their_distributions() -> None:
    """Angles fill ±10°, each of the 9 × 9 crops and both mirrors are equally likely (χ² at 5 deviations)."""
    count = 20_000
    turn, down, right, mirror = draws(key_tensor(1), count).T
    for values, cells in ((turn, 40), (down, 9), (right, 9), (mirror, 2)):
        found = np.bincount((values * cells).astype(int), minlength=cells)
        chi = ((found - count / cells) ** 2 / (count / cells)).sum()
        assert chi < cells - 1 + 5 * math.sqrt(2 * (cells - 1))
    crops = np.bincount((down * 9).astype(int) * 9 + (right * 9).astype(int), minlength=81)
    assert ((crops - count / 81) ** 2 / (count / 81)).sum() < 80 + 5 * math.sqrt(160)


def test_an_image_depends_on_its_key_and_its_place_in_the_batch() -> None:
    """So padding a batch, and stacking batches of clients, changes no image."""
    x, other = images(5, (3, 16, 16)), images(4, (3, 16, 16), seed=1)
    alone = augmented(x, key_tensor(0), "papers")
    assert torch.equal(augmented(torch.cat([x, other]), key_tensor(0), "papers")[:5], alone)
    assert not torch.equal(augmented(x, key_tensor(1), "papers"), alone)
    keys = torch.stack([key_tensor(seed) for seed in range(3)])
    both = torch.stack([x, x + 1, x + 2])
    stacked = vmap(lambda some, key: augmented(some, key, "papers"))(both, keys)
    for number in range(3):
        assert torch.equal(stacked[number], augmented(both[number], keys[number], "papers"))
    assert stacked.dtype == torch.uint8


# in a run


def pictures(shape: tuple[int, int, int] = (2, 9, 12)) -> dict[str, Any]:
    draw = np.random.default_rng(0)
    sizes = (3, 17, 8, 24, 5, 11)
    return {
        "clients": [(images(size, shape, size), draw.integers(0, 3, size)) for size in sizes],
        "test": (images(20, shape), draw.integers(0, 3, 20)),
    }


def seeing() -> nn.Module:
    return Staged(
        nn.Sequential(nn.Conv2d(2, 4, 3, stride=2), nn.BatchNorm2d(4), nn.ReLU()),
        nn.Sequential(nn.Flatten(), nn.Dropout(0.3), nn.Linear(80, 6), nn.ReLU()),
        nn.Linear(6, 3),
    )


def experiment(spelled: str, **settings: Any) -> Experiment:
    chosen = SMALL.changed(augmentation="papers", rounds=2, **settings)
    return build(chosen, method(spelled), model=built(seeing, 7, "test"), **pictures())


@pytest.mark.parametrize("name", ["fedacg", "moon", "fedntd", "fedmlb", "gradma-w", "mimelite"])
def test_every_executor_sees_the_same_images(name: str) -> None:
    """Float64 within 1e-10 over two rounds of unequal clients, methods with several passes included."""
    chosen = experiment(name)
    _, end = played(chosen, "serial")
    _, other = played(chosen, "batched")
    pairs = zip(leaves_of(end.model.theta), leaves_of(other.model.theta), strict=True)
    assert max(float((one - two).abs().max()) for one, two in pairs) < 1e-10


def test_worker_processes_see_the_same_images() -> None:
    chosen = experiment("fedacg")
    (_, end), (_, other) = played(chosen, "serial"), played(chosen, "pool")
    assert torch.equal(end.model.theta.flat(), other.model.theta.flat())


def test_a_batch_is_augmented_once_and_not_where_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every pass of a step reads one batch of views; full gradients and evaluation read the images as they are."""
    from headway.engine import evaluation, local_training

    calls: list[Tensor] = []

    def counted(x: Tensor, words: Tensor, kind: str) -> Tensor:
        calls.append(x)
        return augmented(x, words, kind)

    monkeypatch.setattr(local_training, "augmented", counted)
    for name in ("gradma-w", "mimelite"):  # three gradients a step; a full gradient at the end
        chosen = experiment(name)
        calls.clear()
        state = initial_state(chosen)
        sent = broadcast(chosen, state, 1)
        given = RoundInput(1, received(chosen.method, sent, state.theta), sent.buffers)
        (client,) = chosen.client_rounds.of(Turn(1, (1,), np.ones(1)), lambda _: None)
        ClientTrainer(chosen, compiled=False).upload(given, client)
        assert len(calls) == client.steps
        evaluation.evaluate(chosen, state)
        assert len(calls) == client.steps


def test_views_change_with_every_step_and_round(monkeypatch: pytest.MonkeyPatch) -> None:
    from headway.engine import local_training

    keys: list[tuple[int, ...]] = []

    def noted(x: Tensor, words: Tensor, kind: str) -> Tensor:
        keys.append(tuple(words.tolist()))
        return augmented(x, words, kind)

    monkeypatch.setattr(local_training, "augmented", noted)
    records, _ = played(experiment("fedavg"), "serial")
    assert len(set(keys)) == len(keys) == sum(record["steps"] for record in records)


def test_samples_that_are_no_images_are_refused() -> None:
    for x in (torch.zeros(4, 6), torch.zeros(4, 1, 3, 3), torch.zeros(4, 6, dtype=torch.uint8)):
        pair = (x, torch.zeros(4, dtype=torch.int64))
        with pytest.raises(UserError, match=r"augmentation is 'papers', which is for uint8 images .*none$"):
            hw.simulate("fedavg", SMALL, augmentation="papers", model=nn.Linear(6, 2), clients=[pair], test=pair)
