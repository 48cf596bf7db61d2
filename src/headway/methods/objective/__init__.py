"""What does a client minimise? The task loss, or a rule in its place, and additions (+); one file for each rule."""

from headway.methods.objective.branches import branches
from headway.methods.objective.calibrated import calibrated
from headway.methods.objective.contrast import contrast
from headway.methods.objective.decorrelation import decorrelation
from headway.methods.objective.drift import drift
from headway.methods.objective.dual import dual
from headway.methods.objective.not_true import not_true
from headway.methods.objective.proximal import proximal
from headway.methods.objective.task import task

__all__ = [
    "branches",
    "calibrated",
    "contrast",
    "decorrelation",
    "drift",
    "dual",
    "not_true",
    "proximal",
    "task",
]
