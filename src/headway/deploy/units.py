"""What an operator's machine needs around Flower's programs: a systemd unit, and the rule of a reverse proxy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from headway.deploy.commands import Address, Command
from headway.deploy.keys import ServerFiles

UNIT = """\
[Unit]
Description={description}
Wants=network-online.target
After=network-online.target

[Service]
Type=exec
{environment}# What may be written must be there before this unit is confined to it.
ExecStartPre=+/bin/mkdir -p -m 0700 {writable}
ExecStart={command}
# A site that comes back within a minute is refused: the server still takes it for connected.
Restart=always
RestartSec=65
# A program of an app may outlive the one that started it.
KillMode=control-group
UMask=0077
NoNewPrivileges=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectSystem=strict
ProtectHome=read-only
ProtectKernelTunables=yes
ProtectControlGroups=yes
RestrictSUIDSGID=yes
ReadWritePaths={writable}

[Install]
WantedBy=multi-user.target
"""


def systemd(command: Command, description: str, writable: Sequence[Path], gpu: bool = False) -> str:
    """A systemd unit that runs a command, and starts it again whatever ends it."""
    unit = UNIT.format(
        description=description,
        environment="".join(f"Environment={_quoted(f'{k}={v}')}\n" for k, v in command.environment.items()),
        command=" ".join(map(_quoted, command.arguments)),
        writable=" ".join(_quoted(str(path)) for path in writable),
    )
    return unit.replace("PrivateDevices=yes\n", "") if gpu else unit


def _quoted(word: str) -> str:
    """A word as systemd reads it: specifiers and variables are not wanted."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"' if set(word) & set(" \t\"'\\;$%") else escaped


PROXY = """\
# nginx: sites reach the Fleet API and nothing else. The Control API on the same port asks for no credentials.
server {{
    listen {listen} ssl;
    server_name {name};
    ssl_certificate {certificate};
    ssl_certificate_key {key};
    ssl_protocols TLSv1.2 TLSv1.3;
    server_tokens off;
    access_log off;
    client_max_body_size {body};

    location /v1/fleet/ {{
        proxy_pass https://{superlink};
        proxy_http_version 1.1;
        proxy_request_buffering off;
        proxy_buffering off;
        proxy_read_timeout 300s;
        proxy_ssl_verify on;
        proxy_ssl_trusted_certificate {authority};
        proxy_ssl_name {name};
        proxy_ssl_server_name on;
    }}
    location / {{
        return 404;
    }}
}}
"""


def proxy(files: ServerFiles, listen: Address, name: str, superlink: Address, body: str = "64m") -> str:
    """The server block of nginx that forwards /v1/fleet/ alone from `listen` to the SuperLink."""
    return PROXY.format(
        listen=listen,
        name=name,
        certificate=files.certificate,
        key=files.key,
        authority=files.authority,
        superlink=superlink,
        body=body,
    )


NGINX = """\
daemon off;
worker_processes 1;
pid {folder}/nginx.pid;
error_log stderr warn;
events {{ worker_connections 256; }}
http {{
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{server}}}
"""


def own_nginx(folder: Path, server: str) -> str:
    """A whole configuration of nginx with this server block, which keeps its files in a folder."""
    return NGINX.format(folder=folder, server="".join(f"    {line}\n" for line in server.splitlines()))
