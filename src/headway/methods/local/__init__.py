"""How does a client step?"""

from headway.methods.local.sgd import sgd

__all__ = ["sgd"]
