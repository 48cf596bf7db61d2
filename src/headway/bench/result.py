"""What a benchmark measured, as it is printed and written to a file."""

from __future__ import annotations

from typing import NotRequired, TypedDict

from headway.runs.environment import Environment


class EngineResult(TypedDict):
    """One engine on one workload."""

    name: str
    seconds_per_round: float
    """The median."""
    ratio_to_loop: float
    """How many times as fast as the plain loop it is."""
    seconds_quartiles: list[float]
    """The lower and the upper one."""
    flops_per_second: float
    share_of_ceiling: float
    peak_memory_bytes: int | None
    """None for other simulators, and where the system does not report it."""
    precision: str
    options: dict[str, str]


class Skipped(TypedDict):
    """An engine that could not take part."""

    name: str
    reason: str
    precision: NotRequired[str]
    """The precision of one of Headway's engines, which are measured in each."""


class Measured(TypedDict):
    """What every result has: what was measured, and where. A file is named after it."""

    workload: str
    environment: Environment


class WorkloadResult(Measured):
    """All engines on one workload."""

    work: str
    """The workload in words."""
    engines: list[EngineResult]
    """The plain loop first."""
    skipped: list[Skipped]
    warm_up_rounds: int
    timed_rounds: int
    rounds_in_a_row: int
    evaluation: str
    flops_per_round: int
    ceiling_flops_per_second: dict[str, float]
    """The most operations a second that the machine reaches, by precision."""
    commit: str
