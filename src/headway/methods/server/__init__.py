"""What does the server do with the uploads?"""

from headway.methods.server.average import average
from headway.methods.server.interpolation import interpolation
from headway.methods.server.momentum import momentum

__all__ = ["average", "interpolation", "momentum"]
