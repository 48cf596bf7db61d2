"""The folder that an engineer writes: app.py, network.py and two files of settings; made new, and read again."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from shlex import quote

import numpy as np
from safetensors.numpy import save

from headway.errors import UserError, shown
from headway.random import generator

FILES = ("app.py", "network.py", "pyproject.toml", "federation.toml")
SITES = 5
"""How many sites' data a new project has to rehearse with."""
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class Federation:
    """How a federation is run: the file federation.toml of its project."""

    sites: int = 2
    deadline: float = 1800.0
    """Seconds that a round waits for replies."""
    quorum: int = 1
    superlink: str = "127.0.0.1:9092"
    authority: str = "keys/ca.crt"
    rehearsal: str = "rehearsal"


def duration(name: str, text: str) -> float:
    """Seconds, of a text such as 30m; `name` is the setting that has it."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd])", text.strip())
    if found is None or float(found[1]) <= 0:
        raise UserError(f"{name} is {shown(text)}; it must be a number with s, m, h or d, such as 30m")
    return float(found[1]) * _SECONDS[found[2]]


def init(folder: Path) -> list[Path]:
    """Write a new project, with made-up data of five sites that it can be rehearsed with."""
    if folder.exists() and any(folder.iterdir()):
        raise UserError(f"{folder} is not empty; headway deploy init writes a new folder")
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9-]+", "-", folder.resolve().name.lower()).strip("-") or "federation"
    templates = resources.files("headway.deploy").joinpath("template")
    written = []
    for file in FILES:
        text = templates.joinpath(f"{file}.txt").read_text(encoding="utf-8")
        written.append(folder / file)
        written[-1].write_text(text.replace("NAME", name), encoding="utf-8")
    for site in range(1, SITES + 1):
        written.append(folder / "rehearsal" / f"site-{site}" / "cohort.safetensors")
        written[-1].parent.mkdir(parents=True)
        written[-1].write_bytes(_made_up(site))
    return written


def _made_up(site: int) -> bytes:
    """Images of a bright spot in one of three places, on a background of noise; each site has its own mix of places."""
    draw = generator(0, "made-up cohort", site)
    count = int(draw.integers(40, 90))
    y = draw.choice(3, count, p=draw.dirichlet(np.ones(3)))
    x = draw.integers(0, 120, (count, 1, 16, 16))
    for image, place in zip(x, y, strict=True):
        top, left = ((2, 2), (2, 9), (9, 5))[place] + draw.integers(-1, 2, 2)
        image[0, top : top + 5, left : left + 5] += 90
    return save({"x": x.astype(np.uint8), "y": y.astype(np.int64)})


def read_federation(project: Path) -> Federation:
    """The settings of a project; refuses a folder that is none."""
    if not (project / "app.py").is_file():
        raise UserError(f"{project} has no app.py; headway deploy init {quote(str(project))} makes a project")
    path = project / "federation.toml"
    if not path.is_file():
        return Federation()
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as fault:
        raise UserError(f"{path} is not TOML: {fault}") from None
    rehearsal = content.pop("rehearsal", {})
    if not isinstance(rehearsal, dict):
        raise UserError(f"rehearsal in {path} is {shown(rehearsal)}; it must be a table: [rehearsal]")
    _check(path, content, {"sites": int, "deadline": str, "quorum": int, "superlink": str, "authority": str})
    _check(path, rehearsal, {"data": str})
    if "deadline" in content:
        content["deadline"] = duration(f"deadline in {path}", content["deadline"])
    if "data" in rehearsal:
        content["rehearsal"] = rehearsal["data"]
    return Federation(**content)


def _check(path: Path, content: Mapping[str, object], kinds: Mapping[str, type]) -> None:
    """Refuse settings of an unknown name or of another type."""
    for name, value in content.items():
        if name not in kinds:
            raise UserError(f"{path} has the setting {shown(name)}; allowed: {', '.join(kinds)}")
        if type(value) is not kinds[name]:
            wanted = {int: "a whole number", str: "a text"}[kinds[name]]
            raise UserError(f"{name} in {path} is {shown(value)}; it must be {wanted}")


def rehearsal_data(folder: Path, sites: int) -> dict[str, Path]:
    """The data folders of the first `sites` sites, by name."""
    found = sorted(place for place in folder.iterdir() if place.is_dir()) if folder.is_dir() else []
    if len(found) < sites:
        raise UserError(
            f"{folder} has data of {len(found)} sites, but {sites} are to be played; it must have one folder of "
            "data for each site: add some, or use --sites"
        )
    return {place.name: place for place in found[:sites]}
