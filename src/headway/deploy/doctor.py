"""Looks at a connection from a site's machine, or the operator's, and says in one line each what is right or wrong."""

from __future__ import annotations

import datetime
import email.utils
import http.client
import shutil
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from shlex import quote

from headway.deploy.commands import Address

CLOCK = 300.0
"""Seconds by which the clocks of a site and the server may differ: a site signs the time."""
CONTROL = ("POST", "/v1/control/list-runs")
FLEET = ("POST", "/v1/fleet/activate-node")
FREE_BYTES = 1 << 30
"""Bytes that a state folder should have left."""
SECONDS = 10.0


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at."""

    what: str
    good: bool
    said: str

    def __str__(self) -> str:
        return f"{'ok  ' if self.good else 'BAD '} {self.what:<9} {self.said}"


@dataclass(frozen=True)
class Answer:
    """What a server answered to one request."""

    status: int
    server: str
    clock: float | None
    """The server's clock minus ours, in seconds."""
    expires: float
    """Seconds since 1970 when its certificate ends."""


def examine(
    address: Address, authority: Path, key: Path | None, state: Path | None, *, at_site: bool
) -> Iterator[Finding]:
    """Everything that can be seen from here, in the order in which one thing needs another."""
    yield _versions()
    if key is not None:
        yield _key(key)
    if state is not None:
        yield _state(state)
    yield from _connection(address, authority, at_site)


def _versions() -> Finding:
    found = []
    for name in ("headway", "flwr", "torch"):
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            return Finding("versions", False, f"{name} is not installed; pip install 'headway[deploy]'")
    good = found[1].startswith("flwr 1.41.")
    return Finding(
        "versions", good, ", ".join(found) + ("" if good else "; flwr must be 1.41: pip install 'headway[deploy]'")
    )


def _key(key: Path) -> Finding:
    if not key.is_file():
        return Finding("key", False, f"{key} is missing; make it: headway deploy keys --site NAME")
    if key.stat().st_mode & 0o077:
        return Finding("key", False, f"{key} can be read by others: chmod 600 {quote(str(key))}")
    begins = key.read_bytes()[:40]
    if b"OPENSSH PRIVATE KEY" not in begins:
        return Finding("key", False, f"{key} is not a private key; --key takes NAME, the file beside NAME.pub")
    return Finding("key", True, f"{key} is a private key that only its owner can read")


def _state(state: Path) -> Finding:
    if not state.is_dir():
        return Finding("state", True, f"{state} is not there yet; join makes it")
    if state.stat().st_mode & 0o077:
        return Finding(
            "state",
            False,
            f"{state} can be entered by others; it will hold states of clients: chmod 700 {quote(str(state))}",
        )
    free = shutil.disk_usage(state).free
    said = f"{state} has {free / 1e9:.1f} GB free"
    return Finding("state", free > FREE_BYTES, said if free > FREE_BYTES else f"{said}; a full disk stops the site")


def _connection(address: Address, authority: Path, at_site: bool) -> Iterator[Finding]:
    """From the name to the two interfaces; the first thing that is wrong hides the rest."""
    if not authority.is_file():
        yield Finding("authority", False, f"{authority} is missing; the operator hands out ca.crt")
        return
    try:
        with socket.create_connection((address.host, address.port), timeout=SECONDS):
            yield Finding("address", True, f"{address} answers")
    except socket.gaierror:
        yield Finding("address", False, f"{address.host} is not a host name that this machine can resolve")
        return
    except OSError as fault:
        yield Finding("address", False, f"{address} does not answer: {fault.strerror or fault}; is the server running?")
        return
    try:
        control = _ask(address, authority, *CONTROL)
    except (ssl.SSLError, OSError, http.client.HTTPException) as fault:
        yield Finding("TLS", False, _why_no_tls(fault, address, authority))
        return
    yield _certificate(control)
    yield _clock(control)
    yield from _interfaces(address, authority, control, at_site)


def _ask(address: Address, authority: Path, method: str, path: str) -> Answer:
    context = ssl.create_default_context(cafile=str(authority))
    connection = http.client.HTTPSConnection(address.host, address.port, timeout=SECONDS, context=context)
    try:
        began = time.time()
        connection.request(method, path, body=b"", headers={"Content-Type": "application/octet-stream"})
        sock = connection.sock
        assert isinstance(sock, ssl.SSLSocket)
        ends = ssl.cert_time_to_seconds(str((sock.getpeercert() or {})["notAfter"]))
        answer = connection.getresponse()
        told, middle = answer.getheader("Date"), (began + time.time()) / 2
        clock = None if told is None else email.utils.parsedate_to_datetime(told).timestamp() - middle
        return Answer(answer.status, answer.getheader("Server", ""), clock, ends)
    finally:
        connection.close()


def _why_no_tls(fault: Exception, address: Address, authority: Path) -> str:
    if isinstance(fault, ssl.SSLCertVerificationError):
        if "expired" in fault.verify_message:
            return "the server's certificate has expired; the operator makes another: headway deploy keys --host NAME"
        if "mismatch" in fault.verify_message or "not valid for" in fault.verify_message:
            return (
                f"the server's certificate is not for {address.host}; the operator adds it: headway deploy keys --host"
            )
        return f"the server's certificate is not of the authority {authority} ({fault.verify_message})"
    if isinstance(fault, ssl.SSLError):
        return f"{address} does not speak TLS ({fault.reason})"
    return f"{address} ended the connection ({fault})"


def _certificate(answer: Answer) -> Finding:
    days = (answer.expires - time.time()) / 86400
    ends = datetime.datetime.fromtimestamp(answer.expires, datetime.UTC).date()
    said = f"the server's certificate is of the authority and lasts until {ends}"
    return Finding("TLS", days > 14, said if days > 14 else f"{said}; renew it: headway deploy keys --host NAME")


def _clock(answer: Answer) -> Finding:
    if answer.clock is None:
        return Finding("clock", True, "the server does not say what time it is")
    off = abs(answer.clock)
    if off > CLOCK - 30:
        return Finding(
            "clock", False, f"this clock and the server's differ by {off:.0f} s; at most {CLOCK:.0f} s are allowed"
        )
    return Finding("clock", True, f"this clock and the server's differ by {off:.0f} s")


def _interfaces(address: Address, authority: Path, control: Answer, at_site: bool) -> Iterator[Finding]:
    """The Fleet API must be reached, and from a site the Control API must not."""
    fleet = _ask(address, authority, *FLEET)
    found = fleet.status != 404
    yield Finding(
        "fleet", found, f"/v1/fleet/ answers {fleet.status}" + ("" if found else "; the proxy must forward it")
    )
    hidden = control.status == 404
    if hidden:
        yield Finding("control", True, "/v1/control/ is not reached: 404")
    elif at_site:
        said = f"/v1/control/ answers {control.status}, so anyone who can connect to it can run code at every site"
        yield Finding(
            "control", False, f"{said}; the operator must put a proxy before it: headway deploy serve --proxy"
        )
    else:
        yield Finding("control", True, f"/v1/control/ answers {control.status}; no site may reach this address")
