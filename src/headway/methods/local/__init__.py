"""How does a client step? A direction u in every local step w ← w − ηu, one file for each value.

A start (`relaxed_start`) says where a client begins, a probe (`sam`, `asam`, `lesam`) chooses where the gradient is
taken, corrections (`controlled`, `mixed`, `gradient_memory`, `pushed`, …) change it, and one optimiser (`sgd`, `adam`,
`adamw`, `muon`, `nesterov`, `coupled`) makes the step of what they give. A tuple of values is a chain of them.
"""

from headway.methods.local.adam import adam, adamw
from headway.methods.local.asam import asam
from headway.methods.local.controlled import controlled
from headway.methods.local.coupled import coupled
from headway.methods.local.delta_changes import delta_changes
from headway.methods.local.gradient_memory import gradient_memory
from headway.methods.local.lesam import lesam
from headway.methods.local.mixed import mixed
from headway.methods.local.muon import muon
from headway.methods.local.nesterov import nesterov
from headway.methods.local.own_motion import own_motion
from headway.methods.local.perturbed_dual import perturbed_dual
from headway.methods.local.pulled import pulled
from headway.methods.local.pushed import pushed
from headway.methods.local.relaxed_start import relaxed_start
from headway.methods.local.sam import sam
from headway.methods.local.server_momentum_step import server_momentum_step
from headway.methods.local.sgd import sgd
from headway.methods.local.shifted import shifted

__all__ = [
    "adam",
    "adamw",
    "asam",
    "controlled",
    "coupled",
    "delta_changes",
    "gradient_memory",
    "lesam",
    "mixed",
    "muon",
    "nesterov",
    "own_motion",
    "perturbed_dual",
    "pulled",
    "pushed",
    "relaxed_start",
    "sam",
    "server_momentum_step",
    "sgd",
    "shifted",
]

# Earlier names, deprecated; `renamed` reads what was stored under them.
changes = delta_changes
remembering = gradient_memory
steered = server_momentum_step
