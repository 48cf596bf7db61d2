"""How does a client step? A direction u in every local step w ← w − ηu, one file for each value.

Corrections change the gradient (`controlled`, `mixed`, `gradient_memory`, …), one optimiser (`sgd`, `adam`, `adamw`,
`muon`, `nesterov`) makes the step of what they give. A tuple of values is a chain of them.
"""

from headway.methods.local.adam import adam, adamw
from headway.methods.local.controlled import controlled
from headway.methods.local.delta_changes import delta_changes
from headway.methods.local.gradient_memory import gradient_memory
from headway.methods.local.mixed import mixed
from headway.methods.local.muon import muon
from headway.methods.local.nesterov import nesterov
from headway.methods.local.server_momentum_step import server_momentum_step
from headway.methods.local.sgd import sgd

__all__ = [
    "adam",
    "adamw",
    "controlled",
    "delta_changes",
    "gradient_memory",
    "mixed",
    "muon",
    "nesterov",
    "server_momentum_step",
    "sgd",
]

# Earlier names, deprecated; `renamed` reads what was stored under them.
changes = delta_changes
remembering = gradient_memory
steered = server_momentum_step
