from __future__ import annotations

from typing import Annotated

from headway.methods.arguments import Among, Weight, slot
from headway.methods.slots import Message
from headway.vectors import Vector


@slot
class lookbehind:
    """φ = θ − ρ u/‖u‖: the model moved back along the server's last update or momentum u, by a length of ρ.

    FedGloSS (Caldarola et al. 2025, Alg. 1), where u is the last mean update Δ: clients start where the loss is likely
    to be highest near θ, as in sharpness-aware minimisation. u has the sign of an update; where it is 0, φ = θ. With
    `of="momentum"` it mirrors `lookahead`. One model goes down.
    """

    rho: Weight
    of: Annotated[str, Among("update", "momentum")] = "update"

    @property
    def needs(self) -> tuple[str, ...]:
        return (f"server:{self.of}",)

    def message(self, model: Vector, server: Message) -> Message:
        u = server[self.of]
        return {"model": model + u * (-self.rho / u.norm().clamp(min=1e-12))}
