"""summary.json: what a run came to, written at its end or after a failure."""

from __future__ import annotations

from typing import TypedDict

from headway.runs.costs import CostRecord
from headway.runs.environment import MadeOn
from headway.runs.manifest import AcceptedChange


class Summary(TypedDict, total=False):
    """The numbers of a run; those it did not measure are None. Files of earlier versions have fewer."""

    finished: bool
    failure: str
    """Why the run ended early; the file of such a run has nothing else but `finished`."""

    name: str
    """The method."""
    seed: int
    executor: str
    buffers: str
    rounds: int
    measured_on: str
    headline: str
    smoothed_accuracy: float | None
    last_accuracy: float | None
    best_accuracy: float | None
    accuracy: float | None
    accuracy_raw: float | None
    accuracy_top: float | None
    loss: float | None
    rmse: float | None
    r2: float | None
    client_accuracy_std: float | None
    client_accuracy_low: float | None
    target: float | None
    rounds_to_target: int | None
    rounds_to_target_raw: int | None
    bytes_to_target: int | None
    bytes_down: int
    bytes_up: int
    bytes_per_round: float
    steps: int
    padding: float | None
    seconds: float
    failed: int
    """How often clients failed and were skipped, where they may be."""

    accepted_changes: list[AcceptedChange]
    environment: MadeOn
    cost: CostRecord
    """What the method costs; a user's own method has none."""
    chain: str
    """The checksum of all rounds."""
    packed: str
    """The digest of the packed rounds, of a run that is kept for others."""
