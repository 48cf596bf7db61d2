"""The command lines of Flower's programs, as this package starts them and as an operator may read and copy them."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headway.deploy.keys import ServerFiles
from headway.deploy.private import write_private
from headway.deploy.starts import STATE
from headway.errors import UserError, shown

SILENT = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
"""Flower's programs reach nobody but each other: both are on by default."""
CONNECTION = "headway"
"""The name of the server in Flower's settings."""
DATABASE = "superlink.db"
"""The file of a server's state folder that has its nodes and runs."""
QUICK = {"FLWR_SUPEREXEC_TASK_POLL_INTERVAL": "0.05"}
"""How often a new task is looked for, in seconds; one second by default."""


@dataclass(frozen=True)
class Command:
    """A program with its arguments, and what it needs in its environment beside the caller's."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """As a shell takes it."""
        settings = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        return " ".join([*settings, shlex.join(self.arguments)])


@dataclass(frozen=True)
class Address:
    """A host and a port."""

    host: str
    port: int

    @classmethod
    def read(cls, name: str, text: str) -> Address:
        """An address written HOST:PORT; `name` is the flag that has it."""
        host, colon, port = text.rpartition(":")
        if not colon or not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise UserError(f"{name} is {shown(text)}; it must be HOST:PORT, such as fl.example.org:443")
        return cls(host.strip("[]"), int(port))

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def check_free(name: str, address: Address) -> None:
    """Refuse an address that another program listens at; `name` is the flag that has it."""
    with socket.socket(socket.AF_INET6 if ":" in address.host else socket.AF_INET) as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the program itself does
        try:
            one.bind((address.host, address.port))
        except OSError as fault:
            raise UserError(
                f"{name} is {address}, where nothing can listen: {fault.strerror or fault}; end the other program, or "
                "give another"
            ) from None


def program(name: str) -> str:
    """One of Flower's programs: that of this Python's environment, before any other."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None:
        raise UserError(f"the program {name} is not installed; pip install 'headway[deploy]'")
    return found


def nginx() -> str:
    """The program nginx."""
    found = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if found is None:
        raise UserError("nginx is not installed; on Debian: apt-get install nginx-light")
    return found


def surroundings(state: Path) -> dict[str, str]:
    """The environment of Flower's programs, which find each other on the path and keep their files beside the state."""
    found = str(Path(program("flower-superexec")).parent)
    rest = [place for place in os.environ.get("PATH", os.defpath).split(os.pathsep) if place != found]
    return {**SILENT, **QUICK, "FLWR_HOME": str(state / "flower"), "PATH": os.pathsep.join([found, *rest])}


def superlink(files: ServerFiles, address: Address, state: Path, *, health: int | None = None) -> Command:
    """The server's program. It keeps its nodes and runs in a file of the folder `state`."""
    arguments = [
        program("flower-superlink"),
        *("--ssl-ca-certfile", str(files.authority)),
        *("--ssl-certfile", str(files.certificate)),
        *("--ssl-keyfile", str(files.key)),
        "--enable-supernode-auth",
        *("--host", address.host, "--port", str(address.port)),
        *("--database", str(state / DATABASE)),
        "--disable-runtime-dependency-installation",
    ]
    return Command(tuple(arguments), {**surroundings(state), STATE: str(state)})


@dataclass(frozen=True)
class Site:
    """What a site's program needs to know: all of it is on the site's machine."""

    name: str
    key: Path
    authority: Path
    superlink: Address
    state: Path
    data: Path | None = None
    port: int = 9094
    """The site's own programs talk to each other at this port of 127.0.0.1."""


def supernode(site: Site) -> Command:
    """A site's program. Its apps get the site's name, data folder and state folder as the node's configuration."""
    told = {"name": site.name, "state": str(site.state / "headway")}
    if site.data is not None:
        told["data"] = str(site.data)
    arguments = [
        program("flower-supernode"),
        *("--root-certificates", str(site.authority)),
        *("--superlink", str(site.superlink)),
        *("--auth-supernode-private-key", str(site.key)),
        *("--port", str(site.port)),
        *("--node-config", " ".join(f"{name}={_toml(value)}" for name, value in told.items())),
    ]
    return Command(tuple(arguments), surroundings(site.state))


def _toml(text: str) -> str:
    """A text as Flower's flags take it; one with a quotation mark cannot be written."""
    if '"' in text or "\\" in text or not text.isprintable():
        raise UserError(f"{shown(text)} has a letter that Flower's settings cannot hold; use another name")
    return f'"{text}"'


def connection(home: Path, address: Address, authority: Path) -> None:
    """Tell Flower's own commands under FLWR_HOME where the SuperLink is, by the name `headway`."""
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    text = (
        f"[superlink]\ndefault = {_toml(CONNECTION)}\n\n"
        f"[superlink.{CONNECTION}]\naddress = {_toml(str(address))}\nroot-certificates = {_toml(str(authority))}\n"
    )
    path = home / "config.toml"
    if not path.is_file() or path.read_bytes() != text.encode():
        write_private(path, text.encode())  # whole or not at all: another command may read it now
