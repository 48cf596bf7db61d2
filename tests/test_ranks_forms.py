"""What clients upload may have whole numbers, and other measures from round to round: ranks agree on its form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch

from conftest import experiment, made_by
from headway.engine.ranks import Ranks
from headway.engine.simulation import begin, simulate, spread_over
from headway.engine.states import ClientStates
from headway.methods.method import Method
from headway.methods.slots import Client, End, Message, State, Step, Uploads
from headway.vectors import Vector
from ranks_at_work import on_ranks, returned


@dataclass(frozen=True)
class signs:
    """Uploads, beside Δ_i, where it is positive: 0 or 1, in whole numbers."""

    provides = ("upload:positive",)

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return gradient, memory

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        return {"positive": end.delta.map(lambda leaf: (leaf > 0).long())}, kept


@dataclass(frozen=True)
class majority:
    """θ ← θ + Δ̄ where more than half of the clients go up, and θ + Δ̄/2 elsewhere."""

    needs_each = True
    needs = ("upload:positive",)

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        assert uploads.each is not None
        votes = sum((fields["positive"].flat() for fields in uploads.each), start=torch.tensor(0))
        assert votes.dtype == torch.int64
        most = model.unflat(torch.where(2 * votes > len(uploads.each), 1.0, 0.5).to(uploads.mean["delta"].flat().dtype))
        return model + uploads.mean["delta"].zip(most, torch.mul), state


@dataclass(frozen=True)
class measured_once:
    """Measures ‖Δ_i‖ under one name in a client's first round, under another later."""

    def client_state(self, model: Vector) -> State:
        return {"rounds": model.zeros()}

    def begin(self, received: Message, kept: State, client: Client) -> State:
        return {"rounds": kept["rounds"]}

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        return gradient, memory

    def finish(self, end: End, memory: State, kept: State) -> tuple[dict[str, Vector], State]:
        return {}, {"rounds": kept["rounds"].map(lambda leaf: leaf + 1)}

    def measures(self, memory: State, end: End) -> dict[str, torch.Tensor]:
        first = not bool(memory["rounds"].flat().any())
        return {"first_length" if first else "later_length": end.delta.norm()}


OWN = {
    "whole numbers": Method(local=signs(), server=majority(), name="majority under test"),
    "other measures": Method(local=measured_once(), name="measured under test"),
}


@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("kind", list(OWN))
def test_ranks_agree_on_the_form_of_what_is_uploaded(kind: str, deterministic: bool) -> None:
    chosen = experiment(OWN[kind], participation=1.0, deterministic=deterministic)

    def played(ranks: Ranks | None) -> tuple[list[Any], list[Any]]:
        store, progress, names = ClientStates(), begin(chosen), []
        over = None if ranks is None else spread_over(ranks, chosen, store)
        for record, progress in simulate(chosen, made_by("serial", chosen), store, progress, spread=over):  # noqa: B007, B020
            names.append([name for name in record if "length" in name])
        return names, progress.model.theta.flat().tolist()

    alone, model = played(None)
    for names, numbers in returned(on_ranks(2, played)):
        assert names == alone
        assert numbers == model if deterministic else numbers == pytest.approx(model, abs=1e-10)
    if kind == "other measures":
        assert alone[0] == ["first_length"]
        assert alone[-1] == ["later_length"]
