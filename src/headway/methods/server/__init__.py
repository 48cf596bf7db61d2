"""What does the server do with the uploads?"""

from headway.methods.server.adam import adam
from headway.methods.server.average import average
from headway.methods.server.halves import (
    control_mean,
    direction_mean,
    drift_mean,
    dual_mean,
    latest_mean,
    statistics_mean,
    velocity_mean,
)
from headway.methods.server.interpolation import interpolation
from headway.methods.server.momentum import momentum
from headway.methods.server.remembering import remembering

__all__ = [
    "adam",
    "average",
    "control_mean",
    "direction_mean",
    "drift_mean",
    "dual_mean",
    "interpolation",
    "latest_mean",
    "momentum",
    "remembering",
    "statistics_mean",
    "velocity_mean",
]
