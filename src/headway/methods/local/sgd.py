from __future__ import annotations

from dataclasses import fields
from typing import Annotated

from headway.errors import UserError
from headway.methods.arguments import Among, Momentum, slot
from headway.methods.local.optimiser import Lifetime, Optimiser
from headway.methods.slots import State, Step
from headway.vectors import Vector


@slot
class sgd(Optimiser):
    """b ← μb + g ; w ← w − ηb, or w ← w − η(g + μb) with `nesterov`: SGD as `torch.optim.SGD` has it, b = 0 at first.

    μ = 0, the default, is w ← w − ηg: the clients of FedAvg (McMahan et al. 2017, Alg. 1). b has the model's shapes and
    the sign of a gradient. Weight decay λ is a part of g (`coupled`, as in PyTorch) or of the step only (`decoupled`).
    `state` is what becomes of b between rounds: `reset` to 0, `keep` with the client, or `average` over clients, which
    also needs `broadcast.vectors` and `server.optimiser_mean`.
    """

    momentum: Momentum = 0.0
    nesterov: bool = False
    decay: Annotated[str, Among("coupled", "decoupled")] = "coupled"
    state: Lifetime = "reset"

    averaged = ("buffer",)

    def _check(self) -> None:
        if not self.momentum and self._given():
            raise UserError("sgd: nesterov, decay and state are about a momentum; give one, such as momentum=0.9")

    def __repr__(self) -> str:
        """Only what was given: `sgd()` is plain SGD."""
        return f"sgd({', '.join(f'{name}={value!r}' for name, value in self._given().items())})"

    def _given(self) -> dict[str, object]:
        return {one.name: value for one in fields(self) if (value := getattr(self, one.name)) != one.default}

    @property
    def couples_decay(self) -> bool:
        return bool(self.momentum) and self.decay == "coupled"

    @property
    def provides(self) -> tuple[str, ...]:
        return super().provides if self.momentum else ("local:gradient_steps",)

    def optimiser_state(self, model: Vector) -> State:
        return {"buffer": model.zeros()} if self.momentum else {}

    def direction(self, w: Vector, gradient: Vector, memory: State, step: Step) -> tuple[Vector, State]:
        if not self.momentum:
            return gradient, memory
        buffer = gradient.plus(self.momentum, memory["buffer"])
        return gradient.plus(self.momentum, buffer) if self.nesterov else buffer, {"buffer": buffer}
