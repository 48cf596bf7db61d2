"""How does a client step? A direction u in every local step w ← w − ηu, one file for each rule."""

from headway.methods.local.controlled import controlled
from headway.methods.local.delta_changes import delta_changes
from headway.methods.local.gradient_memory import gradient_memory
from headway.methods.local.mixed import mixed
from headway.methods.local.nesterov import nesterov
from headway.methods.local.server_momentum_step import server_momentum_step
from headway.methods.local.sgd import sgd

__all__ = [
    "controlled",
    "delta_changes",
    "gradient_memory",
    "mixed",
    "nesterov",
    "server_momentum_step",
    "sgd",
]

# Earlier names, deprecated; `renamed` reads what was stored under them.
changes = delta_changes
remembering = gradient_memory
steered = server_momentum_step
