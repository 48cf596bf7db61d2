"""Options that several commands of headway deploy have."""

from __future__ import annotations

from pathlib import Path

import typer

VAR = Path("/var/lib/headway")
"""The state folder of a server or a site, where none is given."""

PROJECT = typer.Argument(help="folder with app.py, as headway deploy init makes it", show_default=False)
RUN = typer.Argument(help="folder of the run", show_default=False)
CA = typer.Option("--ca", help="certificate of the operator's authority", show_default=False)
SUPERLINK = typer.Option("--superlink", help="HOST:PORT at which the server is reached", show_default=False)
SERVER_STATE = typer.Option("--state", help="the server's state folder, as in headway deploy serve")
STATE = typer.Option("--state", help="folder that only this program may read", show_default=False)
