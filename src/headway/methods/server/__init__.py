"""What does the server do with the uploads? One file for each rule.

A base (`average`, `momentum`, `nesterov`, `adam`, `adagrad`, `yogi`, `ams`, `interpolation`, `drift_momentum`,
`update_memory`) moves the model by the mean update. The others are additions, for methods whose clients keep or upload
something more, or whose base is to be given another mean update; the base moves the model before they do. Where one
needs Σ_S p_i x_i, with p_i a client's weight among all N clients, it writes `uploads.share * uploads.mean["x"]`.
`private` stands between the clients and all others.
"""

from headway.methods.server.adagrad import adagrad
from headway.methods.server.adam import adam
from headway.methods.server.ams import ams
from headway.methods.server.average import average
from headway.methods.server.companion_mean import companion_mean
from headway.methods.server.control_mean import control_mean
from headway.methods.server.direction_mean import direction_mean
from headway.methods.server.drift_mean import drift_mean
from headway.methods.server.drift_momentum import drift_momentum
from headway.methods.server.dual_mean import dual_mean
from headway.methods.server.extrapolation import extrapolation
from headway.methods.server.gradient_momentum import gradient_momentum
from headway.methods.server.interpolation import interpolation
from headway.methods.server.last_update import last_update
from headway.methods.server.latest_update_mean import latest_update_mean
from headway.methods.server.momentum import momentum
from headway.methods.server.nesterov import nesterov
from headway.methods.server.normalised import normalised
from headway.methods.server.optimiser_mean import optimiser_mean
from headway.methods.server.past_motion import past_motion
from headway.methods.server.private import private
from headway.methods.server.reduced_variance_mean import reduced_variance_mean
from headway.methods.server.update_memory import update_memory
from headway.methods.server.velocity_mean import velocity_mean
from headway.methods.server.yogi import yogi

__all__ = [
    "adagrad",
    "adam",
    "ams",
    "average",
    "companion_mean",
    "control_mean",
    "direction_mean",
    "drift_mean",
    "drift_momentum",
    "dual_mean",
    "extrapolation",
    "gradient_momentum",
    "interpolation",
    "last_update",
    "latest_update_mean",
    "momentum",
    "nesterov",
    "normalised",
    "optimiser_mean",
    "past_motion",
    "private",
    "reduced_variance_mean",
    "update_memory",
    "velocity_mean",
    "yogi",
]

# Earlier names, deprecated; `renamed` reads what was stored under them.
latest_mean = latest_update_mean
remembering = update_memory
statistics_mean = gradient_momentum
