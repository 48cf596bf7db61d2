"""How often a run is saved."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from headway.runs import driver, records
from headway.runs.checkpoint import Checkpoint, Pace
from headway.scenario import Scenario
from killed_runs import Case


class Clock:
    """Time that passes when told."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_saving_takes_a_twentieth_of_the_time() -> None:
    """Cheap saves come after every round; dear ones as often as that share allows, and one slow save is made up for."""
    clock = Clock()

    def saved(cost: float, rounds: int) -> list[int]:
        found = []
        for round in range(1, rounds + 1):
            clock.now += 1.0
            if pace.due(round):
                with pace.saving():
                    clock.now += cost
                found.append(round)
        return found

    pace = Pace(Scenario(), clock)
    assert saved(0.01, 50) == list(range(1, 51))
    pace = Pace(Scenario(), clock)
    dear = saved(1.0, 400)
    assert 18 <= len(dear) <= 22
    assert max(later - earlier for earlier, later in itertools.pairwise(dear)) <= 20


@pytest.mark.parametrize(("cost", "rounds"), [(0.01, [0, 1, 2, 3, 4, 5, 6]), (5.0, [0, 6])])
def test_a_run_saves_as_its_pace_says(
    cost: float, rounds: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, saved = Clock(), []
    save, append = Checkpoint.save, records.append

    def saving(self: Checkpoint, progress: Any, *more: Any, **waits: bool) -> None:
        saved.append(progress.round)
        clock.now += cost
        save(self, progress, *more, **waits)

    def appending(*given: Any) -> None:
        clock.now += 1.0
        append(*given)

    monkeypatch.setattr(Checkpoint, "save", saving)
    monkeypatch.setattr(records, "append", appending)
    monkeypatch.setattr(driver, "Pace", lambda scenario: Pace(scenario, clock))
    case = Case("fedacg").with_settings(rounds=6, checkpoint_every=None, deterministic=False, executor="serial")
    case.simulate(tmp_path / "run")
    assert sorted(set(saved)) == rounds


@pytest.mark.parametrize(("settings", "every"), [({"checkpoint_every": 4}, 4), ({"deterministic": True}, 10)])
def test_rounds_between_checkpoints_do_not_depend_on_the_clock(settings: dict[str, Any], every: int) -> None:
    clock = Clock()
    pace = Pace(Scenario(**settings), clock)
    with pace.saving():
        clock.now += 1e6
    assert [round for round in range(1, 41) if pace.due(round)] == list(range(every, 41, every))
