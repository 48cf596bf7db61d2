"""Clients on a CUDA device without the host in between: begin, step and finish are captured once and replayed."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch

from headway.data.columns import Tensors
from headway.engine.aggregate import Group
from headway.engine.captured import CapturedCohort, CapturedEvaluation
from headway.engine.client_rounds import CohortRounds
from headway.engine.executor import CannotExecute, RoundInput
from headway.engine.experiment import Experiment
from headway.engine.kept_programs import kept_programs
from headway.engine.local_training import LocalTraining
from headway.engine.network import Buffers
from headway.engine.scoring import Scored, score
from headway.errors import ClientError, UserError, first_words
from headway.trees import leaves_of
from headway.vectors import Vector
from headway.waiting import part

CAPTURED_EVALUATIONS = 3
"""Shapes and types of samples for which an evaluation is captured: those of the test set, of the clients' own test
samples and of the training set."""
Form = tuple[tuple[torch.Size, torch.dtype], ...]
"""Shape and type of inputs, shape and type of targets."""


def _check_device(device: torch.device) -> None:
    if device.type != "cuda":
        raise CannotExecute("graphs are captured on a CUDA device only")


class Graphed:
    """Captured graphs, for clients on a stream each or for a stack of clients (see `captured.py`)."""

    def __init__(self, experiment: Experiment, *, layout: str, compiled: bool = False, coupled: bool = False) -> None:
        _check_device(experiment.device)
        if coupled:
            raise CannotExecute("its batches are filled to one shape, and filler rows change what this model computes")
        self.training = LocalTraining(experiment, functional=True, masked=layout == "stacked")
        self.name = f"graphed:{layout}{':compiled' if compiled else ''}"
        self.layout, self.compiled = layout, compiled
        self._cohort: CapturedCohort | None = None
        self._evaluations: dict[Form, CapturedEvaluation] = {}
        self._captures_evaluations = True

    def run(self, given: RoundInput, rounds: CohortRounds) -> Iterator[Group]:
        """Train clients of like length together, so that few wait for others.

        Every group is written into the same memory: what is wanted of one is read before the next.
        """
        order = sorted(range(len(rounds)), key=rounds.lengths.__getitem__)
        cohort = self._cohort = self._cohort or self._captured(given, rounds)
        for start in range(0, len(order), cohort.size):
            positions = tuple(order[start : start + cohort.size])
            try:
                group = cohort.train(given, rounds, positions)
            except RuntimeError as fault:
                clients = [rounds.turn.clients[position] for position in positions]
                raise ClientError.of(fault, round=given.round, clients=clients) from fault
            yield group

    def prefetch(self, round: int) -> None:
        """Make a coming round's batches while the device is busy; a round of one group is written for its copy."""
        planned = self.training.experiment.client_rounds
        if self._cohort is None:
            planned.prepare(round)
        elif (found := planned.stacked(round, self._cohort.size)) is not None:
            self._cohort.arrays.expect(*found)

    def _captured(self, given: RoundInput, rounds: CohortRounds) -> CapturedCohort:
        try:
            with self._prepared():
                return CapturedCohort(self.training, self.layout, self.compiled, given, rounds)
        except CannotExecute:
            raise
        except UserError as mistake:
            raise mistake.at(f"round {given.round}") from mistake
        except Exception as fault:
            raise CannotExecute(f"{type(fault).__name__}: {first_words(fault)}") from fault

    def score(self, w: Vector, buffers: Buffers, x: Tensors, y: Tensors) -> Scored:
        """`scoring.score`, replayed; samples of a shape or type for which it was not captured are scored without it."""
        given = (w, buffers, x, y)
        form = tuple((part.shape, part.dtype) for part in (*leaves_of(x), *leaves_of(y)))
        room = len(self._evaluations) < CAPTURED_EVALUATIONS and self._captures_evaluations
        experiment = self.training.experiment
        if form not in self._evaluations and room:
            try:
                with self._prepared():
                    self._evaluations[form] = CapturedEvaluation(experiment, self.layout, self.compiled, given)
            except Exception as fault:  # a pass that cannot be captured is made without
                self._captures_evaluations = False
                warnings.warn(f"the evaluation is not captured ({first_words(fault)})", stacklevel=2)
        evaluation = self._evaluations.get(form)
        return score(experiment, *given) if evaluation is None else evaluation.replay(given)

    @contextmanager
    def _prepared(self) -> Iterator[None]:
        """Around captures, which compile where that is asked for."""
        with part("compiling and capturing"), kept_programs() if self.compiled else nullcontext():
            yield

    def close(self) -> None:
        self._cohort = None
        self._evaluations.clear()


def executor(experiment: Experiment, forms: Sequence[str], coupled: bool) -> Graphed:
    """The executor that the table of `headway/executors.py` names."""
    layout = "stacked" if "stacked" in forms else "streams"
    return Graphed(experiment, layout=layout, compiled="compiled" in forms, coupled=coupled)
