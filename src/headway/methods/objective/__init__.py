"""What does a client minimise?"""

from headway.methods.objective.proximal import proximal
from headway.methods.objective.task import task

__all__ = ["proximal", "task"]
