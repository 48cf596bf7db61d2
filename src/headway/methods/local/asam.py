from __future__ import annotations

import torch

from headway.methods.arguments import Weight, slot
from headway.methods.slots import State, Step
from headway.vectors import Vector


@slot
class asam:
    """u = w + ρ T²g(w)/‖Tg(w)‖, T = |w| + η_T by coordinate ; the step takes g(u): adaptive SAM (Kwon et al. 2021).

    FedASAM (Caldarola et al. 2022). The ascent is longer where weights are larger, so it does not depend on their
    scale; `eta`, η_T, keeps it from ending at zero. All else is as in `sam`.
    """

    rho: Weight = 0.5
    eta: Weight = 0.01

    def point_from(self, w: Vector, gradient: Vector, memory: State, step: Step) -> Vector:
        scale = w.map(lambda leaf: leaf.abs() + self.eta)
        scaled = scale.zip(gradient, torch.mul)
        return w.plus(self.rho / scaled.norm().clamp(min=1e-12), scale.zip(scaled, torch.mul))
