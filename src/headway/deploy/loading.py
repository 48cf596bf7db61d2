"""Reads the apps of a project in this process, for the check of a run against the simulator."""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote

from headway.deploy.apps import ServerApp, SiteApp
from headway.deploy.deployable import row_of
from headway.deploy.flower import LeadingServerApp, SiteClientApp
from headway.errors import UserError, in_words, shown
from headway.runs.given import checked_method


@dataclass(frozen=True)
class Apps:
    """Both halves of a project."""

    site: SiteApp
    server: ServerApp


def load(project: Path) -> Apps:
    """The apps that pyproject.toml names."""
    path = project / "pyproject.toml"
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
        named = content["tool"]["flwr"]["app"]["components"]
        names = [str(named[part]) for part in ("clientapp", "serverapp")]
    except FileNotFoundError:
        raise UserError(f"{path} is missing; headway deploy init {quote(str(project))} makes a project") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError) as fault:
        raise UserError(f"{path} must name clientapp and serverapp in [tool.flwr.app.components]: {fault}") from None
    with _on_path(project):
        client, server = (_read(name, path) for name in names)
    if not isinstance(client, SiteClientApp):
        raise UserError(f"clientapp of {path} is {shown(client)}; it must be made by hw.client_app(…)")
    if not isinstance(server, LeadingServerApp):
        raise UserError(f"serverapp of {path} is {shown(server)}; it must be made by hw.server_app(…)")
    return Apps(client.site, server.server)


def check_method(app: ServerApp, other: str | None) -> None:
    """Refuse a method that cannot be deployed, before anything is started."""
    row = row_of(checked_method(other or app.method))
    if not row.deployable:
        raise UserError(f"{row.name} cannot be deployed: {row.why}; headway deploy methods lists those that can")


def _read(name: str, path: Path) -> object:
    module, colon, attribute = name.partition(":")
    if not colon:
        raise UserError(f"{path} names the app {shown(name)}; it must be MODULE:NAME, such as app:client")
    try:
        return getattr(importlib.import_module(module), attribute)
    except UserError:
        raise
    except Exception as fault:
        raise UserError(f"{shown(name)} of {path} cannot be loaded: {in_words(fault)}") from None


@contextmanager
def _on_path(project: Path) -> Iterator[None]:
    """The project's modules can be imported inside, and are forgotten afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(project.resolve()))
    try:
        yield
    finally:
        sys.path.remove(str(project.resolve()))
        for name in set(sys.modules) - before:
            place = getattr(sys.modules[name], "__file__", None)
            if place is not None and Path(place).is_relative_to(project.resolve()):
                del sys.modules[name]
