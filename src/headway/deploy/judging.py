"""How the model does on the sites' own samples: each sends sums over them, and nothing of a single one."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from headway.deploy import census
from headway.deploy.census import Expected
from headway.deploy.codes import Code, Refused
from headway.deploy.messages import Refusal, ScoreAsk, Scored, as_record, message_of
from headway.deploy.records import Record, flat, form_digest
from headway.engine.evaluation import Scores
from headway.engine.experiment import Experiment
from headway.engine.server import GlobalState, handed_over
from headway.measure.over_clients import measured
from headway.tasks.metrics import Metric
from headway.trees import leaves_of

Sums = Mapping[str, tuple[float, float]]
"""By name: of losses or of a metric's rows, and over how many. `train` is the loss on the training samples."""


@dataclass(frozen=True)
class Judging:
    """What the sites are asked about a model, and how their answers are read."""

    experiment: Experiment
    expected: Expected
    trains: bool
    """Whether the loss on the training samples is asked for."""

    form: str
    arrays: Mapping[str, np.ndarray]
    """The model as it travels."""

    @classmethod
    def of(cls, experiment: Experiment, expected: Expected, state: GlobalState, trains: bool) -> Judging:
        """The questions about a model."""
        parts: dict[str, object] = {"model": handed_over(experiment.method, state).theta}
        if experiment.scenario.buffers != "keep-local" and leaves_of(state.buffers):
            parts["buffers"] = state.buffers
        return cls(experiment, expected, trains, form_digest(parts), {name: flat(part) for name, part in parts.items()})

    def ask(self, round: int, client: int, counted: str) -> Record:
        """The message to a site."""
        common = self.expected.common
        return as_record(
            ScoreAsk(
                run=common.run,
                version=common.version,
                method=common.method,
                scenario=common.scenario,
                classes=common.classes,
                round=round,
                client=client,
                population=self.experiment.population,
                total=self.experiment.federation.total_size,
                counted=counted,
                trains=self.trains,
                form=self.form,
                arrays=self.arrays,
            )
        )

    def sums(self, record: Record | None, fault: str, client: int) -> Sums:
        """The sums in an answer, checked."""
        if record is None:
            raise Refused(Code.LOST, fault[:200] or "nothing came")
        if record.kind == Refusal.kind:
            raise census.refused(record)
        found = message_of(Scored, record, Code.BAD_REPLY)
        if (found.run, found.client) != (self.expected.common.run, client):
            raise Refused(Code.BAD_REPLY, "the scores are not of this ask")
        return sums_in(found.sums)

    def scores(self, each: Mapping[int, Sums]) -> Scores:
        """The scores over all samples of the sites that answered."""
        task = self.experiment.task
        metrics = {metric.name: _value(metric, _of(each, f"metric/{metric.name}")) for metric in task.metrics}
        headline = task.headline
        own = [_value(headline, _of({0: sums}, f"metric/{headline.name}")) for _, sums in sorted(each.items())]
        over = measured(headline.name, np.array(own), headline.higher_is_better) if own else {}
        loss = _of(each, "loss")
        return Scores(
            loss=None if loss is None else loss[0] / loss[1],
            metrics={name: value for name, value in metrics.items() if math.isfinite(value)},
            over_clients=over,
            global_loss=self._global_loss(each),
        )

    def _global_loss(self, each: Mapping[int, Sums]) -> float | None:
        """Σ_i p_i F_i, where every site has told its own."""
        means = [(client, sums["train"]) for client, sums in sorted(each.items()) if "train" in sums]
        if not self.trains or len(means) < self.experiment.population:
            return None
        weights = (self.experiment.weight(client) / self.experiment.weight_total for client, _ in means)
        return sum(weight * total / count for weight, (_, (total, count)) in zip(weights, means, strict=True))


def sums_in(text: str) -> Sums:
    """Sums by name, from JSON; anything else is refused."""
    try:
        found = json.loads(text)
        pairs = {str(name): (float(total), float(count)) for name, (total, count) in found.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, OverflowError):
        raise Refused(Code.BAD_REPLY, "the scores are no sums by name") from None
    if not all(math.isfinite(total) and math.isfinite(count) and count > 0 for total, count in pairs.values()):
        raise Refused(Code.BAD_REPLY, "the scores have numbers that are not finite")
    return pairs


def _of(each: Mapping[int, Sums], name: str) -> tuple[float, float] | None:
    """A sum over the sites that have one, in their order."""
    found = [sums[name] for _, sums in sorted(each.items()) if name in sums]
    return (sum(total for total, _ in found), sum(count for _, count in found)) if found else None


def _value(metric: Metric, sums: tuple[float, float] | None) -> float:
    """A metric by the sums of its rows; NaN where there are none."""
    return math.nan if sums is None else metric.value(torch.tensor([sums], dtype=torch.float64))
