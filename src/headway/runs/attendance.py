"""Who took part in each round of a run, read from its folder, so that another run can play the same rounds."""

from __future__ import annotations

from pathlib import Path

from headway.data.cohort import Attendance, Cohort
from headway.errors import UserError
from headway.records import RoundRecord
from headway.runs.folder import read as read_folder
from headway.scenario import Scenario


def attendance_of(scenario: Scenario) -> Attendance | None:
    """The cohorts of the run that a scenario's `attendance` names; None where it names none."""
    if scenario.attendance is None:
        return None
    folder = Path(scenario.attendance)
    found = read_folder(folder, whole=True).rounds.records
    if not found:
        raise UserError(f"attendance is '{folder}', a run without a finished round")
    return Attendance(tuple(_cohort(record, folder) for record in found))


def _cohort(record: RoundRecord, folder: Path) -> Cohort:
    """The cohort that a round's record tells of."""
    if "clients" not in record:
        raise UserError(f"attendance is '{folder}', whose round {record['round']} does not say who took part")
    clients, steps = tuple(record["clients"]), record.get("client_steps")
    if steps is None and record.get("partial"):
        raise UserError(
            f"attendance is '{folder}', whose round {record['round']} does not say how many steps each client did: an "
            "earlier version made it"
        )
    return Cohort(
        clients=clients,
        truncated={} if steps is None else dict(enumerate(steps)),
        lost=record.get("lost", 0),
        late=record.get("late", 0),
    )
