"""The settings of a scenario with their types, for editors and type checkers: what `**settings` may be.

`Scenario` says what each means and checks its value; a test compares the two.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict


class CommonSettings(TypedDict, total=False):
    """Settings of a scenario that have one type wherever they are given."""

    seed: int
    seeds: int
    data_dir: str | None
    partition: str
    split_seed: int
    participation: float | None
    cohort_size: int | None
    sampling: str
    weights: str
    client_test: float | None
    profile: str
    augmentation: str
    dropout: float
    stragglers: str
    over_selection: float
    on_failure: str
    buffers: str
    rounds: int
    epochs: int
    steps: int | None
    batch_size: int
    batches: str
    loss: str
    rate: float
    schedule: str
    rate_decay: float
    rate_decay_epoch: float
    weight_decay: float
    clip: float
    clipping: str
    target: float | None
    eval_every: int
    eval_samples: int | None
    validation: float | None
    global_loss: bool
    score_received: bool
    smoothing: float
    stop_at_target: bool
    patience: int | None
    keep_checkpoints: int | None
    keep_best: bool
    diagnose: str | None
    delta: float | None
    epsilon: float | None
    accountant: str | None
    device: str
    executor: str
    precision: str
    deterministic: bool
    client_state_mb: float | None
    checkpoint_every: int | None


class Settings(CommonSettings, total=False):
    """Settings beside a model, clients, a task and metrics, which are arguments and may be objects."""

    data: object
    attendance: str | Path | None


class ScenarioSettings(CommonSettings, total=False):
    """All settings of a scenario, which are plain values."""

    method: str | None
    data: str
    clients: int
    attendance: str | None
    model: str
    task: str
    metrics: str | None
