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
from torch import nn

from headway.data import columns
from headway.data.columns import Column, Windows
from headway.data.federation import Federation, Samples
from headway.engine.experiment import Experiment
from headway.engine.task_choice import OWN
from headway.errors import UserError
from headway.runs.digest import content, digest
from headway.runs.given import catalogue_method
from headway.runs.manifest import AcceptedChange, Fingerprinted, Manifest, read_manifest
from headway.tasks.known import OwnLoss
from headway.tasks.metrics import METRICS, loss
from headway.tasks.named_metrics import OwnRows

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
    return found | _task(experiment)


TASK = ("the loss", "the metric '")
"""How the names of what `_task` finds begin: folders of before do not have them."""


def _task(experiment: Experiment) -> Fingerprints:
    """An own loss, and own metrics: of these a scenario has the names only."""
    task, found = experiment.task, Fingerprints()
    own = experiment.scenario.task == "own"
    if own:
        found["the loss"] = digest((task.name, *_told(task.loss), task.units, task.class_axis))
    named = (experiment.scenario.metrics or "").split(",")
    for metric in task.metrics:
        if f"{OWN}{metric.name}" in named or (own and metric not in (loss, *METRICS.values())):
            body = digest((*_told(metric.rows), metric.value, metric.higher_is_better))
            found[f"the metric '{metric.name}'"] = body
    return found


def _told(given: object) -> tuple[object, ...]:
    """A function, and of a module such as `nn.HuberLoss` what it computes with: its settings and its numbers."""
    inner = given.function if isinstance(given, OwnLoss | OwnRows) else given
    if not isinstance(inner, nn.Module):
        return (given,)
    parts = [vars(part) for part in inner.modules()]
    settings = [
        (name, one) for part in parts for name, one in part.items() if isinstance(one, bool | int | float | str)
    ]
    return given, settings, list(inner.state_dict().items())


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
    missing = not any(name.startswith(TASK) for name in before["now"])
    if missing and any(name.startswith(TASK) for name in now):
        tell(f"{folder} was made before losses and metrics were kept: that these are the same is not checked")
        before = {**before, "now": before["now"] | {name: one for name, one in now.items() if name.startswith(TASK)}}
    changed = differences(before["now"], now)
    if not changed or (changed == [SPLIT] and not accept):
        return before
    if not accept:
        raise _refused(changed, experiment.scenario.data, folder)
    tell(f"goes on from round {manifest['round']} with what has changed: {', '.join(changed)}")
    accepted: AcceptedChange = {"after round": manifest["round"], "changed": changed}
    return {"now": now, "accepted": [*before.get("accepted", []), accepted]}


def changed_since(manifest: Manifest, experiment: Experiment) -> list[str]:
    """What of data, own model, method, loss and metrics is not what a run was made with, in words."""
    kept = manifest.get("fingerprints")
    before = (kept or {}).get("now", {})
    now = fingerprints(experiment) if before else {}
    told = {name: one for name, one in now.items() if name in before or not name.startswith(TASK)}
    return [name for name in differences(before, told) if name != SPLIT]


def judged_by(folder: Path) -> Fingerprints:
    """The fingerprints of a run's data, own loss and own metrics, by its folder; none where it does not have them."""
    path = folder / "checkpoint" / "manifest.json"
    kept = read_manifest(path).get("fingerprints") if path.is_file() else None
    code = ("the model", "the method")
    return {name: one for name, one in (kept or {}).get("now", {}).items() if not name.startswith(code)}


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
