"""Those who must be refused: programs that try to connect without a right to, and what came of each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from headway.deploy import commands, keys
from headway.deploy.commands import Address, Command
from headway.deploy.keys import ServerFiles
from headway.deploy.processes import Child, Stage, free_ports, wait_until

SECONDS = 90.0
"""How long a stranger may try."""
CONNECTED = "SuperNode ID:"
"""What a SuperNode says once it is let in."""


@dataclass(frozen=True)
class Stranger:
    """Somebody who tried to connect."""

    who: str
    refused: bool
    said: str

    def __str__(self) -> str:
        return f"{'refused' if self.refused else 'LET IN '}  {self.who}: {self.said}"


def strangers(stage: Stage, files: ServerFiles, door: Address) -> Iterator[Stranger]:
    """Let four strangers try: with a key that is not admitted, with none, without TLS, and with another authority."""
    folder = keys.secret_folder(stage.folder / "strangers")
    secret, _ = keys.make_site_keys(folder, "stranger")
    other = keys.make_server_files(folder / "other", [door.host])
    ports = free_ports(4)
    site = commands.Site("stranger", secret, files.authority, door, folder)
    tries = {
        "a key that was not admitted": commands.supernode(replace(site, port=ports[0])),
        "no key": _without(commands.supernode(replace(site, port=ports[1])), "--auth-supernode-private-key", 2),
        "no TLS": _insecure(commands.supernode(replace(site, port=ports[2]))),
        "another authority": commands.supernode(replace(site, port=ports[3], authority=other.authority)),
    }
    children = {}
    for number, (who, command) in enumerate(tries.items()):
        short = Command((*command.arguments, "--max-wait-time", "20"), command.environment)
        children[who] = stage.start(f"stranger-{number}", short)
    for who, child in children.items():
        ended = wait_until(lambda child=child: child.process.poll() is not None, SECONDS)  # type: ignore[misc]
        yield _judged(who, child, ended)
        stage.kill(child.name)


def _without(command: Command, flag: str, count: int) -> Command:
    """The command without a flag and its values."""
    at = command.arguments.index(flag)
    return replace(command, arguments=command.arguments[:at] + command.arguments[at + count :])


def _insecure(command: Command) -> Command:
    """The command without TLS; Flower refuses by itself to show a key without it, so there is none."""
    bare = _without(_without(command, "--root-certificates", 2), "--auth-supernode-private-key", 2)
    return replace(bare, arguments=(*bare.arguments, "--insecure"))


def _judged(who: str, child: Child, ended: bool) -> Stranger:
    text = child.log.read_text(encoding="utf-8", errors="replace")
    if CONNECTED in text:
        return Stranger(who, False, "it is connected")
    if not ended:
        return Stranger(who, True, f"still trying after {SECONDS:.0f} s")
    return Stranger(who, child.process.returncode != 0, _reason(text, child.process.returncode))


def _reason(text: str, code: int) -> str:
    """Flower's exit code, and the line of a log after it that says why."""
    number = re.search(r"Exit Code: (\d+)", text)
    after = [line.strip() for line in text[number.end() if number else 0 :].splitlines() if line.strip()]
    said = next(
        (line for line in after if re.search(r"\[code: \d+\]|\[Errno|CERTIFICATE|disconnect|TLS", line)),
        after[0] if after else "",
    )
    return f"{number[1] if number else code} {said[:160]}"
