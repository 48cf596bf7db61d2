from __future__ import annotations

from typing import Annotated

from headway.methods.arguments import Among, Momentum, Rate, slot
from headway.methods.local import moments
from headway.methods.local.optimiser import Lifetime, Optimiser
from headway.methods.slots import State, Step
from headway.vectors import Vector


@slot
class adam(Optimiser):
    """m ← β₁m + (1−β₁)g ; v ← β₂v + (1−β₂)g² ; w ← w − η m̂/(√v̂ + ε): Adam (Kingma & Ba 2015, Alg. 1).

    As in `torch.optim.Adam`: m̂ = m/(1−β₁^t), v̂ = v/(1−β₂^t), t the steps in the life of the moments. All have the
    model's shapes. Weight decay λ is a part of g (`coupled`), or `decoupled` from it as in AdamW (`adamw`; Loshchilov &
    Hutter 2019): w ← w − ηλw beside the step.

    `state` is what becomes of m and v between rounds: `reset` to 0, `keep` with the client, or `average` over clients,
    which also needs `broadcast.vectors` and `server.optimiser_mean`. 1−β^t travels with them as `weight`, so that it is
    right for clients of unequal numbers of steps.
    """

    beta1: Momentum = 0.9
    beta2: Momentum = 0.999
    eps: Rate = 1e-8
    decay: Annotated[str, Among("coupled", "decoupled")] = "coupled"
    state: Lifetime = "reset"

    averaged = moments.NAMES
    _plain_wire = True

    @property
    def couples_decay(self) -> bool:
        return self.decay == "coupled"

    def optimiser_state(self, model: Vector) -> State:
        return {"first": model.zeros(), "second": model.zeros(), "weight": moments.zero_weight(model)}

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        weight = moments.advanced(memory["weight"], self.beta1, self.beta2)
        first, second, direction = {}, {}, {}
        for name, g in gradient.leaves.items():
            m, v = memory["first"].leaves[name], memory["second"].leaves[name]
            first[name], second[name] = moments.moments(g, m, v, self.beta1, self.beta2)
            direction[name] = moments.scaled(first[name], second[name], weight, self.eps)
        return Vector(direction), {"first": Vector(first), "second": Vector(second), "weight": weight}


def adamw(beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-8, state: str = "reset") -> adam:
    """Adam with decoupled weight decay (Loshchilov & Hutter 2019, Alg. 2), as `torch.optim.AdamW`."""
    return adam(beta1, beta2, eps, decay="decoupled", state=state)
