"""How is a vector written on the wire?"""

from headway.methods.wire.plain import plain
from headway.methods.wire.quantised import quantised
from headway.methods.wire.wire import Wire

__all__ = ["Wire", "plain", "quantised"]
