from __future__ import annotations

import dataclasses

import torch

from headway.methods.arguments import Rate, Weight, slot
from headway.methods.slots import Fields, State, Uploads, anonymous
from headway.random import Normals
from headway.vectors import Vector


@slot
class private:
    """x_i ← x_i · min(1, C/‖x_i‖) ; x̄ = Σ_S x_i/m + N(0, (zC/m)²): client-level privacy (McMahan et al. 2018).

    x_i is all of one client's upload as one vector: every field as the server decoded it, and what other server values
    derived from it, so that everything of a client that enters a mean is bounded. C is the `clip`, z the `noise`, m the
    number of clients that a round is planned for, whoever came: a sum over those who came, divided by their number,
    would depend on who came. x̄ has the shapes of x_i. Every other server value sees x̄ in place of the mean, m/N in
    place of the share, and nobody's names. A round in which nobody comes has x̄ = N(0, (zC/m)²).

    With z = 0 it clips only, which protects nobody.
    """

    clip: Rate
    noise: Weight

    adds = True

    def bound(self, fields: Fields) -> dict[str, Vector]:
        norm = torch.stack([field.norm(torch.float64) for field in fields.values()]).square().sum().sqrt()
        return {name: _scaled(field, self.clip / norm, norm <= self.clip) for name, field in fields.items()}

    def prepare(self, uploads: Uploads, state: State) -> tuple[Uploads, State]:
        assert uploads.wanted is not None, "an engine says how many clients a round is planned for"
        mean = {name: field * (len(uploads.clients) / uploads.wanted) for name, field in uploads.mean.items()}
        if self.noise:
            assert uploads.normals is not None, "an engine says where random numbers come from"
            deviation = self.noise * self.clip / uploads.wanted
            mean = {name: _noisy(mean[name], deviation, uploads.normals) for name in sorted(mean)}
        share = uploads.wanted / uploads.population
        return dataclasses.replace(anonymous(uploads), mean=mean, share=share), state

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        return model, state


def _scaled(field: Vector, factor: torch.Tensor, inside: torch.Tensor) -> Vector:
    """factor · field, or the field itself where it is inside; rounded so that no norm becomes larger than the clip."""

    def leaf(values: torch.Tensor) -> torch.Tensor:
        below = factor * (1 - 4 * torch.finfo(values.dtype).eps)
        return torch.where(inside, values, values * below.to(values.dtype))

    return field.map(leaf)


def _noisy(field: Vector, deviation: float, normals: Normals) -> Vector:
    """The field with noise on every coordinate, drawn in float64 leaf after leaf."""
    return field.map(lambda leaf: leaf + (deviation * normals(tuple(leaf.shape))).to(leaf.device, leaf.dtype))
