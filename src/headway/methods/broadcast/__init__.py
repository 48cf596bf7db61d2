"""What do clients receive?"""

from headway.methods.broadcast.lookahead import lookahead
from headway.methods.broadcast.model import model
from headway.methods.broadcast.vector import vector

__all__ = ["lookahead", "model", "vector"]
