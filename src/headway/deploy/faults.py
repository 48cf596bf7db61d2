"""What a rehearsal may break: a site, the server's app or the SuperLink, in a round."""

from __future__ import annotations

import re
from dataclasses import dataclass

from headway.errors import UserError, shown


@dataclass(frozen=True, order=True)
class Kill:
    """A part that is killed while a round waits for the sites."""

    round: int
    part: str
    """`site`, `server` or `link`."""
    site: int = 0
    """Which site, counted from 1; 0 for other parts."""

    def __str__(self) -> str:
        return f"{self.part}:{self.site}@{self.round}" if self.site else f"{self.part}@{self.round}"


def kills(text: str, sites: int, rounds: int) -> tuple[Kill, ...]:
    """What is to be killed, of a text such as site:2@3,server@1,link@4, in the order of rounds."""
    found = [_kill(one.strip(), sites, rounds) for one in text.split(",") if one.strip()]
    if len({one.round for one in found}) < len(found):
        raise UserError(f"--kill is {shown(text)}; kill one part in a round, so that it is known what came of it")
    return tuple(sorted(found))


def _kill(text: str, sites: int, rounds: int) -> Kill:
    match = re.fullmatch(r"(?:site:(\d+)|(server|link))@(\d+)", text)
    if match is None:
        raise UserError(f"--kill has {shown(text)}; allowed: site:NUMBER@ROUND, server@ROUND, link@ROUND, with commas")
    site, round = int(match[1] or 0), int(match[3])
    if match[1] and not 1 <= site <= sites:
        raise UserError(f"--kill has {shown(text)}; there are sites 1 to {sites}")
    if not 1 <= round <= rounds:
        raise UserError(f"--kill has {shown(text)}; there are rounds 1 to {rounds}")
    return Kill(round, match[2] or "site", site)
