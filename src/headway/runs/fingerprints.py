"""What a run's numbers depend on beside its settings: data, own model, own method. Kept in its manifest, and compared.

Of data: sizes, types and shapes, all targets, and up to 10,000 samples that are evenly spread over each set. Of an own
model: layers, shapes and types, the source of own layers, and frozen numbers (what is learnt is in the checkpoint). Of
an own method: each of its parts (see `digest`). Models and methods of the catalogue are named in the scenario.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from headway.data import columns
from headway.data.columns import Column, Windows
from headway.data.federation import Federation, Samples
from headway.engine.experiment import Experiment
from headway.errors import UserError
from headway.runs.digest import content, digest
from headway.runs.given import catalogue_method
from headway.runs.manifest import AcceptedChange, Fingerprinted, Manifest

SAMPLES = 10_000
"""Samples of a set that are read: all of the usual sets' tests, and a second at most for images of 64 × 64."""
BYTES = 1 << 28
"""The most bytes that are read of one set of samples, so that a start never waits for seconds."""
DRAWN_SAMPLES = 100
"""The samples that are read of a set whose samples are made when they are read."""
SPLIT = "the split"
"""What an error calls the split of named data; `splits` has its rows, and names the file that has others."""
Fingerprints = dict[str, str]
"""Fingerprints by what they are of, in the words of an error."""


def fingerprints(experiment: Experiment) -> Fingerprints:
    """The fingerprints of all that a run's scenario only names."""
    found = _clients(experiment) | _data(experiment.split)
    if experiment.scenario.model == "own":
        found["the model"] = digest(experiment.network.original)
    if catalogue_method(experiment.method.name) != experiment.method:
        for name, part in experiment.method.parts():
            found[f"the method's part '{name}'"] = digest(part)
        found["the method's wire"] = digest(experiment.method.wire)
    return found


def _clients(experiment: Experiment) -> Fingerprints:
    """Fingerprints of which client holds what. Own data lies client after client, so that sizes say it."""
    if experiment.scenario.data == "own":
        sizes = {"the clients' numbers of samples": _sum(experiment.split.sizes.astype("<i8"))}
        tests = experiment.split.client_tests
        if tests is not None and experiment.scenario.validation is None:  # a validation is drawn from these samples
            own = np.array([len(rows) for rows in tests.rows], "<i8")
            sizes["the clients' numbers of test samples"] = _sum(own)
        return {"the number of clients": str(len(experiment.split.clients)), **sizes}
    if experiment.split.is_drawn:
        return {SPLIT: _sum(experiment.split.sizes.astype("<i8"))}
    return {SPLIT: _sum(*(np.asarray(rows).astype("<i8") for rows in experiment.split.clients))}


def _sum(*parts: torch.Tensor | np.ndarray) -> str:
    """A digest of arrays, and of where each ends."""
    found = hashlib.sha256()
    for part in parts:
        found.update(f"{len(part)}:".encode() + content(part))
    return found.hexdigest()


def _data(federation: Federation) -> Fingerprints:
    found = {}
    for name, pool in (("training", federation.train), ("test", federation.test)):
        found[f"the form of the {name} data"] = _form(pool)
        known = pool.spread(DRAWN_SAMPLES) if federation.is_drawn else pool
        found[f"the {name} samples"] = _sampled(known)
        found[f"the {name} targets"] = _sum(*columns.parts(known.y).values())
    return found


def _form(pool: Samples) -> str:
    """`6000 samples uint8 (1, 28, 28), targets int64 ()`."""
    inputs = [_part(name, one) for name, one in columns.named(pool.x).items()]
    targets = [_part(name, one) for name, one in columns.parts(pool.y).items()]
    return f"{len(pool)} samples {', '.join(inputs)}, targets {', '.join(targets)}"


def _part(name: str, column: Column) -> str:
    kind = "windows of a text" if isinstance(column, Windows) else str(column.dtype).removeprefix("torch.")
    return f"{name} {kind} {tuple(column.shape[1:])}".lstrip()


def _sampled(pool: Samples) -> str:
    each = sum(len(content(one)) for one in columns.parts(columns.read(pool.x, slice(1))).values())
    part = pool.spread(max(1, min(SAMPLES, BYTES // max(each, 1))))
    return _sum(*columns.parts(part.inputs).values())


def settle(
    manifest: Manifest | None,
    experiment: Experiment,
    folder: Path,
    accept: bool,
    tell: Callable[[str], None],
) -> Fingerprinted:
    """What a run's next manifest says of its fingerprints; an error where something is not what the run began with.

    `accept`: go on with what has changed, and record since which round.
    """
    now = fingerprints(experiment)
    if manifest is None:
        return {"now": now}
    before = manifest.get("fingerprints")
    if not before:
        tell(
            f"{folder} was made before fingerprints were kept: that data, model and method are the same is not checked"
        )
        return {"now": now}
    changed = differences(before["now"], now)
    if not changed or (changed == [SPLIT] and not accept):
        return before
    if not accept:
        raise _refused(changed, experiment.scenario.data, folder)
    tell(f"goes on from round {manifest['round']} with what has changed: {', '.join(changed)}")
    accepted: AcceptedChange = {"after round": manifest["round"], "changed": changed}
    return {"now": now, "accepted": [*before.get("accepted", []), accepted]}


def _refused(changed: list[str], data: str, folder: Path) -> UserError:
    """The error for a run whose data, model or method are not what it began with."""
    named = data != "own" and not any("model" in one or "method" in one for one in changed)
    subject = f"the data '{data}'" if named else "what is given"
    return UserError(
        f"{subject} is not what {folder} was run with: {', '.join(changed)} changed; start a new run, or go on with "
        "what has changed by accept_changes=True (--accept-changes)"
    )


def differences(before: Fingerprints, now: Fingerprints) -> list[str]:
    """What differs, in words; of numbers and forms both are named."""
    found = []
    for name in [*now, *(name for name in before if name not in now)]:
        if before.get(name) != now.get(name):
            readable = name.startswith(("the number of", "the form of"))
            found.append(f"{name} ({before.get(name)}, now {now.get(name)})" if readable else name)
    return found
