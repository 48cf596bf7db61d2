"""What the operator decides at each start of a deployment, and the clock that its waiting is measured by."""

from __future__ import annotations

import time
from dataclasses import dataclass

from headway.errors import UserError


@dataclass(frozen=True)
class Terms:
    """How long is waited, and for whom."""

    sites: int
    """How many sites the census waits for."""
    wait: float = 600.0
    """Seconds that it waits for them."""
    deadline: float | None = 1800.0
    """Seconds of a round; None: until everybody has answered."""
    quorum: int = 1
    """With fewer uploads a round is void."""
    seconds: float | None = None
    """After how many seconds a site ends its local training with the steps that are done."""
    lost_state: str = "stop"
    """A site whose state is gone: `stop` the run, or `start-anew` with it as a newcomer."""
    accept_data: tuple[str, ...] = ()
    """Sites whose changed data is accepted."""

    def __post_init__(self) -> None:
        for name in ("wait", "deadline", "seconds"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise UserError(f"{name} is {value:g}; it must be above 0 seconds")
        if self.sites < 1:
            raise UserError(f"sites is {self.sites}; it must be at least 1")
        if self.lost_state not in ("stop", "start-anew"):
            raise UserError(f"lost_state is '{self.lost_state}'; allowed: stop, start-anew")


class Clock:
    """Time as a deployment needs it; tests have one of their own."""

    def now(self) -> float:
        """Seconds that only go forwards."""
        return time.monotonic()

    def time(self) -> float:
        """Seconds since 1970, for people."""
        return time.time()

    def token(self) -> str:
        """A word that no other start of a server and no other ask has."""
        return f"{time.time_ns():x}"
