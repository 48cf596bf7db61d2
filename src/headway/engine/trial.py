"""A few clients' rounds outside of a run: to time an executor, or to count what a method costs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from headway.engine import server
from headway.engine.client_rounds import CohortRounds, Turn
from headway.engine.executor import RoundInput
from headway.engine.experiment import Experiment


def round_input(experiment: Experiment, round: int = 1) -> RoundInput:
    """What clients of a round would receive if it began with the initial model."""
    state = server.initial_state(experiment)
    sent = server.broadcast(experiment, state, round)
    message = server.received(experiment.method, sent, experiment.network.parameters)
    return RoundInput(round, message, state.buffers)


def first_rounds(
    experiment: Experiment, clients: Sequence[int], steps_at_most: int | None = None, round: int = 1
) -> CohortRounds:
    """The rounds of clients that never took part and weigh the same, perhaps of fewer steps than the scenario's."""
    count = len(clients)
    truncated = {} if steps_at_most is None else dict.fromkeys(range(count), steps_at_most)
    turn = Turn(round, tuple(clients), np.full(count, 1 / max(count, 1)), truncated)
    return experiment.client_rounds.of(turn, lambda client: None)
