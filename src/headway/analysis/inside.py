"""`analyse`: all that is measured of a round's local models, as one record that a file holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np
import torch

from headway.analysis import accuracies, curvature, divergence, similarity
from headway.analysis.local_models import LocalModels, Model, differences, trained_again
from headway.analysis.surface import Loss, Plane, Surface, path, surface
from headway.analysis.surface import Path as Way
from headway.engine.experiment import Experiment
from headway.engine.scoring import score
from headway.errors import UserError, shown
from headway.methods.method import Method
from headway.runs import kept
from headway.runs.checkpoint import Checkpoint
from headway.runs.fingerprints import changed_since
from headway.runs.folder import read as read_folder
from headway.runs.given import given_again
from headway.runs.load import experiment_of, scenario_of_run

if TYPE_CHECKING:
    from headway.data.federation import Samples

CHUNK = 256
"""Samples in one pass of a loss."""
STEPS = 10
"""Places of each stretch of a way at which the loss is measured."""


@dataclass(frozen=True)
class Wanted:
    """How much is measured."""

    local_models: int = 5
    """Of how many clients the models are looked at: the first of the cohort."""
    samples: int = 512
    """Held-out samples, evenly spread over the test set."""
    grid: int = 21
    """Places on each side of the loss surface."""
    eigenvalues: int = 3
    """Largest eigenvalues of the Hessian at θ and at the mean local model; 0: none."""

    def __post_init__(self) -> None:
        for name, least, most in (
            ("local_models", 1, 100),
            ("samples", 2, 100_000),
            ("grid", 3, 201),
            ("eigenvalues", 0, 50),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise UserError(f"{name} is {shown(value)}; it must be a whole number from {least} to {most}")


@dataclass(frozen=True)
class Analysis:
    """What was found of the local models of one round. A model's name is `θ`, `φ`, `mean`, `θ next` or `client 17`."""

    method: str
    round: int
    clients: tuple[int, ...]
    cohort: int
    samples: int
    similarity: dict[str, np.ndarray]
    """CKA by layer, matrices over `compared`."""
    compared: tuple[str, ...]
    divergence: dict[str, np.ndarray]
    """‖θ_i − θ̄‖/‖θ̄‖ by parameter, over `clients`; θ̄ is their mean."""
    distances: np.ndarray
    """‖a − b‖ over `points`."""
    points: tuple[str, ...]
    losses: dict[str, float]
    """The loss of each of `points` on the held-out samples."""
    surface: Surface | None
    paths: dict[str, Way]
    """θ → φ → θ_i, by the client's name."""
    eigenvalues: dict[str, list[float]]
    by_class: np.ndarray | None
    """Accuracies on the held-out samples, shape (points, classes)."""
    by_client: np.ndarray | None
    """Accuracies on the clients' own samples, shape (points, clients)."""
    notes: list[str] = field(default_factory=list)
    """What could not be measured, and why."""

    @property
    def names(self) -> list[str]:
        """The names of the local models."""
        return [f"client {client}" for client in self.clients]

    def pairs(self, matrix: np.ndarray, names: Sequence[str]) -> np.ndarray:
        """The numbers of a matrix over `names` that are of two different local models."""
        own = [names.index(name) for name in self.names]
        within = matrix[np.ix_(own, own)]
        found: np.ndarray = within[~np.eye(len(own), dtype=bool)]
        return found

    def summary(self) -> dict[str, float]:
        """The numbers by which methods are compared; those that are not defined are left out."""
        losses = [self.losses[name] for name in self.names]
        centre = self.points.index("mean")
        own = [self.points.index(name) for name in self.names]
        found = {
            "loss of θ": self.losses["θ"],
            "loss of φ": self.losses["φ"],
            "mean loss of local models": float(np.mean(losses)),
            "loss of θ next": self.losses["θ next"],
            "mean distance from their mean": float(self.distances[own, centre].mean()),
        }
        if len(own) > 1:
            found["mean distance of two"] = float(self.pairs(self.distances, self.points).mean())
            for name, layer in (("first", 0), ("last", -1)):
                if self.similarity:
                    matrix = list(self.similarity.values())[layer]
                    found[f"CKA of two, {name} layer"] = float(self.pairs(matrix, self.compared).mean())
        for name, values in self.eigenvalues.items():
            if values:
                found[f"largest eigenvalue at {name}"] = values[0]
        return {name: value for name, value in found.items() if np.isfinite(value)}


def analyse_run(
    folder: Path, round: int | None = None, wanted: Wanted | None = None, method: Method | None = None, **own: object
) -> Analysis:
    """Look into the local models that went out from the server's model after a round that was kept, or the last such.

    `method` and `own` are a user's own objects, given again.
    """
    objects = given_again(scenario_of_run(folder), **own)
    rounds = kept.rounds(folder)
    if not rounds:
        raise UserError(
            f"{folder} kept no state before its last round; run it with --keep-checkpoints EVERY, such as "
            "--keep-checkpoints 20"
        )
    after = rounds[-1] if round is None else round
    if after not in rounds:
        told = ", ".join(map(str, rounds[:12])) + (", …" if len(rounds) > 12 else "")
        raise UserError(f"round is {after}, after which {folder} kept nothing; it kept: {told}")
    experiment = experiment_of(folder, method, objects)
    changed = changed_since(Checkpoint(folder / "checkpoint", experiment).read(), experiment)
    if changed:
        raise UserError(f"what is given is not what {folder} was run with: {', '.join(changed)} changed")
    models, outcome = trained_again(experiment, folder, after, (wanted or Wanted()).local_models)
    other = differences(outcome, read_folder(folder).rounds.records, after + 1)
    if other:
        raise UserError(
            f"round {after + 1} trained again is not the run's: {'; '.join(other)}; was {folder} made elsewhere, or by "
            "another version?"
        )
    return measured(experiment, models, wanted or Wanted())


def measured(experiment: Experiment, models: LocalModels, wanted: Wanted) -> Analysis:
    """Everything of a round's models."""
    samples = experiment.federation.test.spread(wanted.samples).to(experiment.device)
    named = _named(models)
    points, every = tuple(named), list(named.values())
    loss = loss_on(experiment, samples)
    notes: list[str] = []
    labelled = experiment.federation.is_labelled
    if not labelled:
        notes.append("the targets are not one class a sample, so there are no accuracies by class and by client")
    compared = tuple(name for name in points if name != "φ")
    with experiment.arithmetic():
        alike = similarity.similarity(experiment, [named[name] for name in compared], samples.read(slice(None))[0])
        if not alike:
            notes.append("no layer of this network has a weight of two or more axes, so nothing is compared by CKA")
        drawn = _surface(models, named, loss, wanted.grid, notes)
        paths = {name: path(models.server, models.received, named[name], loss, STEPS) for name in _clients(models)}
        losses = {name: loss(model) for name, model in named.items()}
    return Analysis(
        method=experiment.method.name,
        round=models.round,
        clients=models.clients,
        cohort=models.cohort,
        samples=len(samples),
        similarity=alike,
        compared=compared,
        divergence=divergence.by_layer(models.local, named["mean"].w),
        distances=divergence.distances([model.w for model in every]),
        points=points,
        losses=losses,
        surface=drawn,
        paths=paths,
        eigenvalues=_eigenvalues(experiment, named, samples, wanted.eigenvalues),
        by_class=accuracies.by_class(experiment, every, samples) if labelled else None,
        by_client=accuracies.by_client(experiment, every, models.clients, wanted.samples) if labelled else None,
        notes=notes,
    )


def _clients(models: LocalModels) -> list[str]:
    """The names of the local models."""
    return [f"client {client}" for client in models.clients]


def _named(models: LocalModels) -> dict[str, Model]:
    """All models of the round by their names, in the order in which they are shown."""
    found = {"θ": models.server, "φ": models.received, "mean": divergence.mean_of(models.local)}
    found["θ next"] = models.after
    return found | dict(zip(_clients(models), models.local, strict=True))


def loss_on(experiment: Experiment, samples: Samples) -> Loss:
    """The mean loss of a model on some samples, in evaluation mode."""

    def loss(model: Model) -> float:
        total, count = 0.0, 0.0
        with experiment.arithmetic():
            for start in range(0, len(samples), CHUNK):
                x, y = samples.read(slice(start, start + CHUNK))
                found = score(experiment, model.w, model.buffers, x, y)
                losses, units = cast(torch.Tensor, found["loss"]), found.get("units")
                weights = units if isinstance(units, torch.Tensor) else torch.ones_like(losses)
                total, count = total + float((losses * weights).sum()), count + float(weights.sum())
        return total / count

    return loss


def _surface(
    models: LocalModels, named: Mapping[str, Model], loss: Loss, grid: int, notes: list[str]
) -> Surface | None:
    """The loss on the plane through the first three local models, where there are three that span one."""
    if len(models.local) < 3:
        notes.append(f"a loss surface goes through three local models, and there are {len(models.local)}")
        return None
    plane = Plane.through(models.local[:3])
    if plane is None:
        notes.append("the first three local models lie on a line, so that there is no plane through them")
        return None
    shown = [name for name in named if not name.startswith("client")] + _clients(models)[:3]
    return surface(plane, {name: named[name] for name in shown}, loss, grid)


def _eigenvalues(
    experiment: Experiment, named: Mapping[str, Model], samples: Samples, count: int
) -> dict[str, list[float]]:
    """Of the Hessian at the server's model and at the mean of the local ones."""
    if not count:
        return {}
    return {
        name: curvature.largest_eigenvalues(experiment, named[name], samples, count) for name in ("θ", "mean", "θ next")
    }
