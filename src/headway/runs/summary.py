"""summary.json: what a run came to, written at its end or after a failure."""

from __future__ import annotations

from headway.measure.numbers import RunNumbers
from headway.runs.costs import CostRecord
from headway.runs.environment import MadeOn
from headway.runs.manifest import AcceptedChange


class Summary(RunNumbers, total=False):
    """The numbers of a run, and how it was made and came to its end."""

    finished: bool
    failure: str
    """Why the run ended early; the file of such a run has nothing else but `finished`."""

    stopped: str
    """Why a callback stopped the run, which is finished then; others do not have it."""

    name: str
    """The method."""
    seed: int
    executor: str
    buffers: str

    epsilon: float
    """Of a private run: ε of all its rounds, at `delta`."""
    delta: float

    accepted_changes: list[AcceptedChange]
    environment: MadeOn
    cost: CostRecord
    """What the method costs; a user's own method has none."""
    chain: str
    """The checksum of all rounds."""
    packed: str
    """The digest of the packed rounds, of a run that is kept for others."""
