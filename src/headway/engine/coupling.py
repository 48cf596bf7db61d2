"""Whether rows that only fill a batch change the numbers of its samples, found out by trying.

A layer that looks across the rows of a batch (a batch normalisation written by hand, `x - x.mean(0)`, a similarity
matrix) sees filler rows as it sees samples. So does a slot that does not read `batch.weight`. One local step is taken
on a few samples alone and again with other rows after them: outputs, gradients, buffers and the local rule's direction
must be the same. The point is moved at random first: at a layer of zeros, as in LoRA, nothing would be seen.

It is done in float64, so that the roundings of another batch size are far below any true change, and with numbers from
its own keys: torch's generators are left as they were.
"""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from headway import random
from headway.data import columns
from headway.engine.client_arrays import ClientArrays, DeviceArrays
from headway.engine.local_training import Carry, LocalTraining
from headway.engine.network import Buffers
from headway.errors import first_words
from headway.methods.slots import States
from headway.trees import leaves_of, moved, tree_map
from headway.vectors import Vector

if TYPE_CHECKING:
    from headway.engine.experiment import Experiment

SAMPLES = 3
"""How many samples are looked at; all other rows of the batch are filler."""
SCALES = (1.0, 0.01)
"""How far the point is moved; less where the first gives numbers that are not finite."""
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}
"""Relative to the largest number of a kind: what another order of sums may change."""
_PERIOD = 65521
_STEP, _ROUND = 1, 2
"""The probe's step and round: terms may be left out in the first ones."""


def found(experiment: Experiment, batch: int) -> str:
    """What filler rows change in batches of `batch` rows, in words; empty where they change nothing.

    What could not be looked into counts as changed.
    """
    reason = ""
    for dtype in dict.fromkeys((torch.float64, experiment.dtype)):
        probe = _Probe(experiment, dtype)
        try:
            for scale in SCALES:
                changed = probe.changed(scale, batch)
                if changed is not None:
                    return changed
            reason = "what filler rows change could not be seen: the numbers are not finite"
        except Exception as fault:  # a user's code runs on rows and points of ours: whatever it raises
            reason = f"what filler rows change could not be seen: {type(fault).__name__}, {first_words(fault)}"
    return reason


def in_evaluation(experiment: Experiment) -> bool:
    """Whether samples that are scored together change each other's outputs; also where it cannot be seen."""
    probe = _Probe(experiment, torch.float64)
    try:
        return probe.scored_jointly()
    except Exception:  # as above
        return True


Tree = TypeVar("Tree")
_Point = tuple[dict[str, Vector], Buffers, States, Vector]
"""(message, buffers, client state, w)."""


class _Probe:
    """One client's step at a random point, on rows that are drawn from all samples."""

    def __init__(self, experiment: Experiment, dtype: torch.dtype) -> None:
        scenario = dataclasses.replace(experiment.scenario, clip=0.0, weight_decay=0.0)
        self.experiment = dataclasses.replace(
            experiment, scenario=scenario, network=experiment.network.cast(dtype), dtype=dtype, autocast=None
        )
        self.device, self.dtype = experiment.device, dtype
        self.tolerance = TOLERANCE[dtype]
        self._noise = _Noise(self.device)

    def changed(self, scale: float, batch: int) -> str | None:
        """What filler changes; None where the numbers are not finite."""
        point, known = self._point(scale), min(SAMPLES, max(batch - 1, 1))
        rows = self._rows(max(batch, known + 1) + known)
        first, rest = rows[:known], rows[known:]
        # A largest number of the batch lies among the first samples or among others, so both are looked at in turn.
        for samples, filler in ((first, rest[known:]), (rest[:known], first)):
            alone, beside = (self._step(point, np.concatenate([samples, more]), known) for more in (rest[:0], filler))
            if not all(_finite(alone[what]) for what in ("the outputs", "the loss", "the gradient")):
                return None
            for what, tree in alone.items():
                if _differ(tree, beside[what], self.tolerance):
                    return f"filler rows change {what}"
        return ""

    def scored_jointly(self) -> bool:
        """Whether outputs in evaluation mode depend on the other rows, or are not finite."""
        _, buffers, _, w = self._point(SCALES[0])
        rows = torch.from_numpy(self._rows(2 * SAMPLES)).to(self.device)
        experiment, network = self.experiment, self.experiment.network
        x = experiment.federation.inputs(experiment.samples.read(rows)[0], self.dtype)
        beside = network.evaluate(w, buffers, x)
        halves = (columns.read(x, part) for part in (slice(SAMPLES), slice(SAMPLES, None)))
        answers = [network.evaluate(w, buffers, half) for half in halves]
        alone = tree_map(lambda *parts: torch.cat(parts), *answers)
        return not _finite(alone) or _differ(alone, beside, self.tolerance)

    def _rows(self, count: int) -> np.ndarray:
        there = len(self.experiment.samples)
        drawn = random.generator(0, "coupling/rows").choice(there, count, replace=count > there)
        return np.asarray(drawn)

    def _step(self, point: _Point, rows: np.ndarray, known: int) -> dict[str, object]:
        """What one step makes of the first `known` of these rows, by kind."""
        training, arrays, words = (
            LocalTraining(self.experiment),
            self._arrays(rows, known),
            random.key(0, "coupling/draws"),
        )
        with random.isolated(words, self.device):
            message, buffers, state, w = point
            carry: Carry = {**training.begin(message, buffers, state, arrays), "w": w}
            index, round = (torch.tensor(number, device=self.device) for number in (_STEP, _ROUND))
            step, gradient_at = training.placed_step(carry, message, arrays, index, round)
            gradient, value, after = gradient_at(w)
            direction, memory = self.experiment.method.chain.direction(w, gradient, carry["memory"], step)
            outputs = columns.read(step.forward(w).logits, slice(known))
        return {
            "the outputs": outputs,
            **{f"the buffer '{name}'": buffer for name, buffer in after.items()},
            "the loss": value,
            "the gradient": gradient,
            "the local rule's direction": direction,
            "the local rule's memory": memory,
        }

    def _arrays(self, rows: np.ndarray, known: int) -> DeviceArrays:
        federation, steps = self.experiment.federation, _STEP + 1
        sizes = federation.sizes
        arrays: DeviceArrays = ClientArrays(
            size=torch.tensor(int(sizes[0])),
            share=torch.tensor(float(sizes[0] / sizes.sum()), dtype=self.dtype),
            seen=torch.tensor(True),
            class_counts=torch.tensor(federation.class_counts(0)),
            rows=torch.from_numpy(rows).repeat(steps, 1),
            counts=torch.full((steps,), known),
            rates=torch.ones(steps, dtype=self.dtype),
            steps=torch.tensor(steps),
            key=torch.tensor(random.key(0, "coupling/key")),
            whole=torch.zeros(0, dtype=torch.int64),
        )
        return moved(arrays, self.device)

    def _point(self, scale: float) -> _Point:
        """All of it moved, buffers and states upwards (a variance stays one)."""
        method, network = self.experiment.method, self.experiment.network
        theta = network.parameters
        model = self._noise.moved(theta, scale, 1)
        server = method.server_state(theta, len(self.experiment.federation.clients))
        kept = self._noise.moved(method.client_state(theta), scale, 2, upwards=True)
        sent = self._noise.moved(dict(method.message(theta, server)), scale, 3, upwards=True)
        buffers = self._noise.moved(network.buffers, scale, 4, upwards=True)
        return {**sent, "model": model}, buffers, kept, self._noise.moved(model, scale, 5)


class _Noise:
    """Numbers that are added to every tensor of a tree: as large as its own, or as a first layer's if it is zeros."""

    def __init__(self, device: torch.device) -> None:
        words = torch.tensor(random.key(0, "coupling/noise"), device=device)
        self._table = 2 * random.uniform(words, (_PERIOD,)) - 1

    def moved(self, tree: Tree, scale: float, turn: int, upwards: bool = False) -> Tree:
        """What is not finite (a mask) or not floating-point (a counter) stays."""

        def move(leaf: Tensor) -> Tensor:
            if not leaf.is_floating_point() or not leaf.numel():
                return leaf
            finite = leaf.isfinite()
            size = torch.where(finite, leaf, 0).square().mean().sqrt()
            least = 1 / math.sqrt(leaf.numel() / leaf.shape[0]) if leaf.dim() > 1 else 0.1
            start, count = turn * 4099, leaf.numel()
            table = self._table if start + count <= _PERIOD else self._table.repeat(-(-(start + count) // _PERIOD))
            noise = table[start : start + count].reshape(leaf.shape).to(leaf.dtype)
            noise = noise.abs() if upwards else noise
            return torch.where(finite, leaf + scale * (size / 2).clamp(min=least) * noise, leaf)

        found: Tree = tree_map(move, tree)
        return found


def _finite(tree: object) -> bool:
    return all(bool(leaf.isfinite().all()) for leaf in leaves_of(tree) if leaf.is_floating_point())


def _differ(tree: object, other: object, tolerance: float) -> bool:
    """Whether numbers differ by more than a share of the largest; a mask's infinities must be the same."""
    pairs = [(one.double(), two.double()) for one, two in zip(leaves_of(tree), leaves_of(other), strict=True)]
    pairs = [(one, two) for one, two in pairs if one.numel()]
    largest = max((float(torch.where(one.isfinite(), one, 0.0).abs().max()) for one, _ in pairs), default=0.0)
    gaps = (float(torch.where(one == two, 0.0, one - two).abs().max()) for one, two in pairs)
    return any(not gap <= tolerance * largest for gap in gaps)
