"""What client-level differential privacy means for a method, read from its slots: kept, broken in part, or refused.

Every server value sees only the mean that `server.private` made: clipped and with noise. So whatever it does with it
is computed from what is private already. Two things are not of that kind: a server that must see each upload, or who
sent it, cannot have it; and one whose state is meant to be the mean of what all clients keep, which the clients change
by what they did and the server by what was clipped, keeps the guarantee and loses that relation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from headway.methods.method import Method
from headway.methods.needs import seen_beside_the_mean
from headway.methods.server.private import private

Verdict = Literal["kept", "kept, and a relation breaks", "refused"]


@dataclass(frozen=True)
class Guarantee:
    """Whether a method can be private, and why."""

    verdict: Verdict
    reason: str

    def __str__(self) -> str:
        return f"{self.verdict}: {self.reason}"


def guarantee(method: Method) -> Guarantee:
    """What `+dp` does to a method."""
    if method.pooled:
        return Guarantee("refused", "everybody's data is in one place, so there are no clients to protect")
    seen = seen_beside_the_mean(part for _, part in method.parts())
    if seen is not None:
        return Guarantee("refused", f"the server's {seen}")
    mirrors = mirroring(method)
    if mirrors:
        names = " and ".join(mirrors)
        return Guarantee(
            "kept, and a relation breaks",
            f"the server's {names} {are(mirrors)} no longer the mean of what clients keep",
        )
    trusting = trusting_the_mean(method)
    if trusting:
        return Guarantee(
            "kept, and a relation breaks",
            f"the clients' {' and '.join(trusting)} {takes(trusting)} the model for the mean of what they sent",
        )
    return Guarantee("kept", "the server sees only the mean of the uploads")


def are(names: list[str]) -> str:
    return "is" if len(names) == 1 else "are"


def takes(names: list[str]) -> str:
    return "takes" if len(names) == 1 else "take"


def trusting_the_mean(method: Method) -> list[str]:
    """The clients' values that take the model that they receive for the mean of what clients sent."""
    values: Iterable[tuple[str, object]] = method.parts("local")
    return [type(part).__name__ for _, part in values if getattr(part, "trusts_mean", False)]


def mirroring(method: Method) -> list[str]:
    """The server values whose state is meant to be the mean of what all clients keep."""
    values: Iterable[tuple[str, object]] = method.parts("server")
    return [type(part).__name__ for _, part in values if getattr(part, "mirrors_clients", False)]


def privacy_of(method: Method) -> private | None:
    """The method's clipping and noise; None where it has none."""
    return next((part for _, part in method.parts("server") if isinstance(part, private)), None)
