"""How does a client step? A direction u in every local step w ← w − ηu, one file for each value.

A probe (`sam`, `asam`, `lesam`) chooses where the gradient is taken, corrections (`controlled`, `mixed`,
`gradient_memory`, …) change it, and one optimiser (`sgd`, `adam`, `adamw`, `muon`, `nesterov`) makes the step of what
they give. A tuple of values is a chain of them.
"""

from headway.methods.local.adam import adam, adamw
from headway.methods.local.asam import asam
from headway.methods.local.controlled import controlled
from headway.methods.local.delta_changes import delta_changes
from headway.methods.local.gradient_memory import gradient_memory
from headway.methods.local.lesam import lesam
from headway.methods.local.mixed import mixed
from headway.methods.local.muon import muon
from headway.methods.local.nesterov import nesterov
from headway.methods.local.sam import sam
from headway.methods.local.server_momentum_step import server_momentum_step
from headway.methods.local.sgd import sgd

__all__ = [
    "adam",
    "adamw",
    "asam",
    "controlled",
    "delta_changes",
    "gradient_memory",
    "lesam",
    "mixed",
    "muon",
    "nesterov",
    "sam",
    "server_momentum_step",
    "sgd",
]

# Earlier names, deprecated; `renamed` reads what was stored under them.
changes = delta_changes
remembering = gradient_memory
steered = server_momentum_step
