"""How does a client step?"""

from headway.methods.local.changes import changes
from headway.methods.local.controlled import controlled
from headway.methods.local.mixed import mixed
from headway.methods.local.nesterov import nesterov
from headway.methods.local.remembering import remembering
from headway.methods.local.sgd import sgd
from headway.methods.local.steered import steered

__all__ = ["changes", "controlled", "mixed", "nesterov", "remembering", "sgd", "steered"]
