from __future__ import annotations

from headway.methods.arguments import Momentum, slot
from headway.methods.slots import Message
from headway.vectors import Vector


@slot
class lookahead:
    """φ = θ + λm: the model moved along the server's momentum (FedACG, Kim et al. 2024, Alg. 1).

    FedAGM's θ − λV is the same with V = −m. Clients start where the momentum is heading and are anchored there. One
    model goes down: m stays on the server.
    """

    lam: Momentum

    needs = ("server:momentum",)

    def message(self, model: Vector, server: Message) -> Message:
        return {"model": model + self.lam * server["momentum"]}
