from __future__ import annotations

from headway.methods.arguments import Weight, slot
from headway.methods.slots import State, Step
from headway.vectors import Vector


@slot
class sam:
    """u = w + ρ g(w)/‖g(w)‖ ; the step takes g(u), on the same batch: sharpness-aware minimisation (Foret et al. 2021).

    FedSAM (Qu et al. 2022; Caldarola et al. 2022) in any method: MoFedSAM is FedCM with it, FedGAMMA SCAFFOLD. g is the
    gradient of the whole objective. g(w) is not clipped and g(u) is; weight decay is not a part of g(w). Loss and
    BatchNorm's statistics are those of the first pass, at w. Two passes a step; nothing is kept or sent.
    """

    rho: Weight = 0.05

    def point_from(self, w: Vector, gradient: Vector, memory: State, step: Step) -> Vector:
        return w.plus(self.rho / gradient.norm().clamp(min=1e-12), gradient)
