"""Which settings may differ between two runs, and between a run and its resume: all from the roles of the settings."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from headway.scenario import Scenario, settings_of
from headway.schedules import schedule

EXECUTION = settings_of("execution")
"""Where and how a run is computed: up to rounding its numbers do not depend on these."""

ENDS = ("rounds", "target", "stop_at_target", "patience", "epsilon", "seeds")
"""When a run ends and what it is judged by."""

EDITABLE = EXECUTION - {"deterministic"} | {"on_failure"}
"""May be edited in a run's scenario.toml: a run may move to another machine, and skip clients that fail.

That its bits can be repeated was promised when it began.
"""

RESUMABLE = EDITABLE | set(ENDS)
"""May change between a run and its resume; not the rounds, where the rates follow from how many they are."""

COMPARABLE = settings_of("execution", "identity") | {"target"}
"""May differ between runs in one table, whose target is that of its first run."""

TUNED = settings_of("training") - {"rounds", "batches", "buffers", "augmentation", "precision"}
"""Settings of the training that are tuned for each method: these may differ between methods where a user allows it."""

REPRODUCIBLE = EXECUTION | {"precision"}
"""May differ between a paper's preset and a run of it: a preset leaves the precision to the device."""

SAME_WORK = (
    settings_of("identity", "watching") - {"validation"}
    | (EXECUTION - {"device", "executor", "deterministic"})
    | (TUNED - {"batch_size", "epochs", "steps"})
    | {"split_seed"}
)
"""Settings that make a local step neither slower nor faster: an executor that was measured with others is fast here."""


def without(scenario: Scenario, names: Collection[str]) -> dict[str, object]:
    """The settings of a scenario that are set, without those with these names."""
    return {name: value for name, value in scenario.as_dict().items() if name not in names}


def fixed(scenario: Scenario) -> dict[str, object]:
    """The settings of a run that are set and may not change until its end."""
    return without(scenario, RESUMABLE - {"rounds"} if schedule(scenario.schedule).follows_run else RESUMABLE)


def first_difference(written: Mapping[str, object], scenario: Scenario) -> tuple[str, object, object] | None:
    """The first setting on which numbers depend that is not what a checkpoint has: name, what it is, what it was.

    A setting that the checkpoint does not have came later: its default is what was done before.
    """
    now, plain = fixed(scenario), Scenario().as_dict()
    for name in sorted(now.keys() | written.keys()):
        was = written.get(name, plain.get(name))
        if now.get(name) != was:
            return name, now.get(name), was
    return None
