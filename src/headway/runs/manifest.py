"""The manifest of a checkpoint: which round it is of, which files it has, and what the run began with."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, NotRequired, TypedDict, cast

import torch

from headway.errors import DamagedRun, UserError
from headway.executors import ELSEWHERE, EXECUTORS
from headway.runs.costs import CostRecord, is_cost
from headway.runs.files import CHECK, checksum, read_json

FORMAT = 2
"""The format of the manifest. Format 1 did not have `rounds`, `ends`, `split` and `threads`."""


AcceptedChange = TypedDict("AcceptedChange", {"after round": int, "changed": list[str]})
"""What had changed when a run was resumed with `accept_changes`."""


class Fingerprinted(TypedDict, total=False):
    """Fingerprints of data, own model and own method, by what they are of; and the changes that were accepted."""

    now: dict[str, str]
    accepted: list[AcceptedChange]


class Totals(TypedDict):
    """Sums over all rounds, and the least loss on all clients' data."""

    bytes_down: int
    bytes_up: int
    steps: int
    best_loss: float | None


class SmoothedRecord(TypedDict):
    """The state of the smoothed accuracy."""

    sum: float
    weight: float


class LeafForm(NamedTuple):
    """A tensor of a client's row; in JSON a list."""

    name: str
    dtype: str
    shape: list[int]


class Manifest(TypedDict):
    """What manifest.json holds, without its checksum. None stands for what earlier versions did not write."""

    format: int
    round: int
    scenario: dict[str, object]
    """The settings on which the numbers depend."""
    ends: dict[str, object] | None
    """The settings that say when the run ends."""
    fingerprints: Fingerprinted | None
    server: str
    """The file with the server's tensors, and its digest."""
    sha256: str
    rounds: str | None
    """The checksum of the numbers in rounds.jsonl up to this round."""
    split: str | None
    """The digest of split.npz; empty where there is none."""
    threads: int | None
    """How many threads torch had, where the bits are to be repeated."""
    executor: str
    totals: Totals
    smoothed: SmoothedRecord
    clients: list[LeafForm]
    """The tensors in a client's row."""
    stamps: str
    """The digest of the rows' stamps."""
    cost: NotRequired[CostRecord | None]
    stopped: NotRequired[str | None]
    """Why a callback stopped the run after this round."""


Check = Callable[[object], bool]


def _is_count(value: object) -> bool:
    return type(value) is int and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _has_parts(**parts: Check) -> Check:
    """Whether a value is an object with these parts and no others."""

    def fits(value: object) -> bool:
        if not isinstance(value, dict) or value.keys() != parts.keys():
            return False
        return all(part(value[name]) for name, part in parts.items())

    return fits


def _is_leaf(value: object) -> bool:
    """Name, type and shape of a tensor in a client's row."""
    if not isinstance(value, list) or len(value) != 3 or not isinstance(value[2], list):
        return False
    name, kind, shape = value
    return _is_text(name) and isinstance(getattr(torch, str(kind), None), torch.dtype) and all(map(_is_count, shape))


_CHECKS: dict[str, Check] = {
    "round": _is_count,
    "scenario": lambda value: isinstance(value, dict),
    "server": lambda value: isinstance(value, str) and re.fullmatch(r"server-\d+\.safetensors", value) is not None,
    "sha256": _is_text,
    "executor": lambda value: value in (*EXECUTORS, ELSEWHERE),
    "totals": _has_parts(
        bytes_down=_is_count,
        bytes_up=_is_count,
        steps=_is_count,
        best_loss=lambda value: value is None or _is_number(value),
    ),
    "smoothed": _has_parts(sum=_is_number, weight=_is_number),
    "clients": lambda value: isinstance(value, list) and all(map(_is_leaf, value)),
    "stamps": _is_text,
}
_CHECKS_OF_FORMAT_2: dict[str, Check] = {
    "rounds": _is_text,
    "ends": lambda value: isinstance(value, dict),
    "split": _is_text,
    "fingerprints": lambda value: not value or (isinstance(value, dict) and isinstance(value.get("now"), dict)),
    "threads": lambda value: value is None or (_is_count(value) and value != 0),
    "cost": lambda value: value is None or is_cost(value),
    "stopped": lambda value: value is None or _is_text(value),
}


def read_manifest(path: Path) -> Manifest:
    """A manifest, checked; None stands for what an earlier version did not write."""
    manifest = read_json(path)
    if manifest.get("format") not in (1, FORMAT):
        raise UserError(f"{path} is not a checkpoint manifest of format {FORMAT}")
    if manifest.pop(CHECK, None) != checksum(manifest):
        raise DamagedRun(f"the checkpoint is damaged: {path} fails its checksum")
    checks = _CHECKS | (_CHECKS_OF_FORMAT_2 if manifest["format"] == FORMAT else {})
    for name, fits in checks.items():
        if not fits(manifest.get(name)):
            raise DamagedRun(f"the checkpoint is damaged: {path} does not have its '{name}'")
    forms = [LeafForm(*form) for form in manifest["clients"]]
    return cast(Manifest, dict.fromkeys(_CHECKS_OF_FORMAT_2) | manifest | {"clients": forms})
