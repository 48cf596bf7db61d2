"""What do clients receive?"""

from headway.methods.broadcast.lookahead import lookahead
from headway.methods.broadcast.lookbehind import lookbehind
from headway.methods.broadcast.model import model
from headway.methods.broadcast.vector import vector
from headway.methods.broadcast.vectors import vectors

__all__ = ["lookahead", "lookbehind", "model", "vector", "vectors"]
