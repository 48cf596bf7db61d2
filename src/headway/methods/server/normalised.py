from __future__ import annotations

import dataclasses

from headway.methods.arguments import slot
from headway.methods.slots import Facts, Fields, State, Uploads
from headway.vectors import Vector


@slot
class normalised:
    """Δ ← (Σω_i a_i)·Σω_i Δ_i/a_i, a_i = Σ_k η_k, in place of Σω_iΔ_i: FedNova (Wang et al. 2020, Eq. 6).

    A client that does twice as many steps moves the model no further than another. The paper's a_i is K_i for clients
    that step by SGD; where their rates fall within the round it is Σ_k η_k, of which the unit does not matter. Both
    come from the facts that travel with every update. The base moves the model by what is made here.
    """

    adds = True
    scales_delta = True
    needs = ("upload:delta", "local:gradient_steps")

    def derive(self, fields: Fields, facts: Facts) -> dict[str, Vector]:
        done = facts.rate_sum
        return {"normalised": fields["delta"] / done, "done": Vector({"done": done})}

    def prepare(self, uploads: Uploads, state: State) -> tuple[Uploads, State]:
        delta = uploads.mean["normalised"] * uploads.mean["done"].leaves["done"]
        return dataclasses.replace(uploads, mean={**uploads.mean, "delta": delta}), state

    def update(self, model: Vector, uploads: Uploads, state: State) -> tuple[Vector, State]:
        return model, state
