"""The census: which sites are there, and whether each has the method, the model and the data that this run needs."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from headway.deploy.binding import Common
from headway.deploy.codes import Code, Refused
from headway.deploy.messages import CensusAsk, Present, Refusal, as_record, message_of
from headway.deploy.records import Record
from headway.deploy.roster import Reach
from headway.deploy.site import NAME
from headway.errors import UserError
from headway.runs.roster import Member, Roster

FOR_NOW = (Code.UNREACHABLE, Code.NAME_TAKEN)
"""A node that is refused for these is asked again in the next round."""


@dataclass(frozen=True)
class Expected:
    """What every site must have."""

    common: Common
    method: str
    model: str
    """Digests."""
    form: str | None
    """Types and shapes of a sample and its target; None where the server has none to compare with."""


def ask(common: Common, accept_data: Sequence[str]) -> Record:
    """The message that asks a node who it is."""
    words = {field.name: getattr(common, field.name) for field in dataclasses.fields(common)}
    return as_record(CensusAsk(**words, accept_data=",".join(accept_data)))


def present(record: Record | None, fault: str, expected: Expected) -> Present:
    """What a node answered; a refusal of its own, and whatever does not fit the run, is refused with a sentence."""
    if record is None:
        raise Refused(Code.UNREACHABLE, fault or "no answer")
    if record.kind == Refusal.kind:
        raise refused(record)
    found = message_of(Present, record, Code.BAD_REPLY)
    if not NAME.fullmatch(found.name):
        raise Refused(Code.BAD_REPLY, "the site's name is not made of letters, digits and . _ -")
    if found.samples < 1:
        raise Refused(Code.OTHER_SAMPLES, f"site '{found.name}' has no samples")
    both = (
        (Code.OTHER_METHOD, "method", found.method, expected.method),
        (Code.OTHER_MODEL, "model", found.model, expected.model),
    )
    for code, what, mine, theirs in both:
        if mine != theirs:
            raise Refused(
                code, f"site '{found.name}' has another {what}: its digest is {mine[:12]}, the server's {theirs[:12]}"
            )
    if expected.form not in (None, found.form):
        raise Refused(
            Code.OTHER_SAMPLES,
            f"site '{found.name}' has samples of another form: {found.form[:200]}, the server's are "
            f"{str(expected.form)[:200]}",
        )
    return found


def refused(record: Record) -> Refused:
    """The refusal in a record; what is no code of ours is not believed."""
    found = message_of(Refusal, record, Code.BAD_REPLY)
    if found.code not in Code.__members__:
        return Refused(Code.BAD_REPLY, "the site refused with a code that there is not")
    return Refused(Code(found.code), "".join(letter if letter.isprintable() else "?" for letter in found.text[:200]))


def admitted(found: Present, roster: Roster, accept_data: Sequence[str], start_anew: bool) -> Roster:
    """The roster with a site that is there (again). One that is not what it was is refused."""
    before = next((member for member in roster.members if member.name == found.name), None)
    if before is None:
        raise Refused(
            Code.LATE_SITE,
            f"site '{found.name}' came after the census of this run, which began with {', '.join(roster.names)}; it "
            "can take part in the next run",
        )
    now = Member(found.name, found.samples, found.fingerprint)
    if now == before:
        return roster
    if found.name in accept_data:
        return roster.with_member(now)
    if found.asked:
        raise Refused(
            Code.DATA_CHANGED,
            f"the data of site '{found.name}' is not what this run began with; put it back, or accept it: "
            f"--accept-data {found.name}",
        )
    if not start_anew:
        raise Refused(
            Code.STATE_LOST,
            f"site '{found.name}' does not know this run any more: its state folder is gone or another one; put it "
            "back, or go on without it: --lost-state start-anew",
        )
    if found.samples != before.samples:
        raise Refused(
            Code.DATA_CHANGED,
            f"site '{found.name}' has {found.samples} samples and had {before.samples}; accept it: --accept-data "
            f"{found.name}",
        )
    return roster.with_member(now)


def complete(names: Sequence[str], wanted: int, refusals: Sequence[str], seconds: float) -> None:
    """Refuse to begin with fewer sites than were asked for."""
    if len(names) < wanted:
        there = ", ".join(names) if names else "none"
        why = f"; refused: {'; '.join(refusals)}" if refusals else f" after {seconds:g} seconds"
        raise UserError(f"{len(names)} of {wanted} sites are there ({there}){why}")


def check_name(found: Present, reach: Reach) -> None:
    """Refuse a second node that calls itself by the name of a site that is there."""
    if found.name in reach.node_of:
        raise Refused(Code.NAME_TAKEN, f"two sites are called '{found.name}'; give each a name of its own")
