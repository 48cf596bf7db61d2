"""A client's half at its site: `answer` takes a message of the server and gives the site's own.

Nothing is held between two calls but what lies in the state folder: every round may be a new process. Whatever goes
wrong becomes a code; the text of an exception stays in the site's log.
"""

from __future__ import annotations

import errno
import json
import math
import re
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from headway.deploy.apps import SiteApp, SitePlace
from headway.deploy.binding import (
    VERSION,
    Common,
    OwnParts,
    blank_payloads,
    finite,
    method_digest,
    model_digest,
    own_rows,
    received,
    site_experiment,
    site_method,
    site_scenario,
)
from headway.deploy.codes import Code, Refused
from headway.deploy.data import DataCache, SiteData
from headway.deploy.messages import (
    CensusAsk,
    Present,
    RoundAsk,
    ScoreAsk,
    Scored,
    UploadReply,
    as_record,
    check_run,
    message_of,
    refusal,
    versions_in,
)
from headway.deploy.private import append_private, private_folder, write_private
from headway.deploy.records import Record, flat, form_digest, tree_of
from headway.deploy.states import StateFolder
from headway.engine.aggregate import next_state
from headway.engine.client_rounds import ClientRound, ClientState, Turn
from headway.engine.executor import RoundInput
from headway.engine.experiment import Experiment
from headway.engine.local_training import Upload
from headway.engine.network import Buffers
from headway.engine.scoring import score
from headway.engine.serial import ClientTrainer
from headway.errors import Diverged, NothingCounts, OutOfMemory
from headway.runs.files import read_checked, sealed_json
from headway.runs.roster import form_of
from headway.tasks.metrics import IGNORED, sums_of
from headway.trees import copied, leaves_of
from headway.vectors import Vector

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,59}")
"""A site's name."""


def answer(app: SiteApp, place: SitePlace, asked: Record) -> Record:
    """What a site answers to a message. It raises nothing: what goes wrong is a refusal."""
    try:
        if not NAME.fullmatch(place.name):
            raise Refused(Code.FAILED, "the site's name is not made of up to 60 letters, digits and . _ -")
        private_folder(place.state)
        site = _Site(app, place)
        answers = {CensusAsk.kind: site.census, RoundAsk.kind: site.round, ScoreAsk.kind: site.score}
        if asked.kind not in answers:
            raise Refused(Code.BAD_MESSAGE, f"a site does not know the message '{asked.kind[:40]}'")
        return answers[asked.kind](asked)
    except Exception as fault:
        _log(place, asked, fault)
        known = asked.kind != CensusAsk.kind or not NAME.fullmatch(place.name)
        return _coded(fault, "" if known else f" (site '{place.name}')")


def _coded(fault: Exception, who: str = "") -> Record:
    """A fault as what may travel of it; `who` says whose it is, to a server that does not know yet."""
    if isinstance(fault, Refused):
        return refusal(fault.code, f"{fault.text}{who}")
    if isinstance(fault, OSError) and fault.errno in (errno.ENOSPC, errno.EDQUOT):
        return refusal(Code.DISK_FULL, f"no space is left for the site's state{who}")
    if isinstance(fault, Diverged):
        return refusal(Code.DIVERGED, f"a loss or an update is not a finite number{who}")
    if isinstance(fault, NothingCounts):
        said = f"no target at the site counts: all of them are filler ({IGNORED}), so it has nothing to train on"
        return refusal(Code.OTHER_SAMPLES, f"{said}{who}")
    if isinstance(fault, OutOfMemory | MemoryError):
        return refusal(Code.OUT_OF_MEMORY, f"the site has too little memory for its round{who}")
    cause = fault.__cause__ if fault.__cause__ is not None else fault
    return refusal(Code.FAILED, f"{type(cause).__name__} at the site; its log has the text{who}")


def _log(place: SitePlace, asked: Record, fault: Exception) -> None:
    """Write what went wrong into the site's log; that this fails too is no further fault."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    text = "".join(traceback.format_exception(fault)).rstrip()
    try:
        append_private(place.state / "site.log", f"{now} {asked.kind[:40]!r}\n{text}")
    except OSError:
        return


@dataclass(frozen=True)
class Memory:
    """What a site remembers of a run beside its states, in `site.json`."""

    fingerprint: str
    """Of the data that the run began with."""
    asked: int = 0
    """The last round that the site was asked for."""

    @classmethod
    def read(cls, path: Path) -> Memory:
        found = read_checked(path)
        return cls(str(found.get("fingerprint")), int(found.get("asked", 0)))

    def write(self, path: Path) -> None:
        write_private(path, sealed_json({"fingerprint": self.fingerprint, "asked": self.asked}))


@dataclass(frozen=True)
class _Site:
    """A site during one answer."""

    app: SiteApp
    place: SitePlace

    # ── census ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def census(self, record: Record) -> Record:
        """Read the data, compare it with what this run began with, and say what is here."""
        ask = message_of(CensusAsk, record)
        check_run(ask.run)
        common = _common(ask)
        method = site_method(ask.method, self.app.method)
        task = "own" if self.app.task is not None else site_scenario(ask.scenario, 1).task
        data = DataCache(self.place.state).read(self.app.data, task, self.app.padding)
        self._check_classes(ask.classes, data)
        asked = self._settle_data(ask, data)
        count = len(own_rows(site_scenario(ask.scenario, 1), len(data.samples), 0)[0])
        experiment = site_experiment(common, method, self._parts, data.samples, 0, (1, count))
        found = Present(
            name=self.place.name,
            samples=int(experiment.federation.sizes[0]),
            form=form_of(data.samples),
            fingerprint=data.fingerprint,
            asked=asked,
            method=method_digest(method),
            model=model_digest(experiment),
        )
        return as_record(found)

    @property
    def _parts(self) -> OwnParts:
        return OwnParts(self.app.model, self.app.task, self.app.padding, self.app.device)

    def _check_classes(self, classes: int, data: SiteData) -> None:
        if self.app.classes is not None and self.app.classes != classes:
            raise Refused(
                Code.OTHER_SAMPLES, f"there are {self.app.classes} classes at the site and {classes} at the server"
            )
        labels = data.samples.y
        if not classes or not isinstance(labels, torch.Tensor) or labels.is_floating_point():
            return
        if int(labels.max()) >= classes:
            raise Refused(Code.OTHER_SAMPLES, f"a label at the site is not one of the {classes} classes")

    def _settle_data(self, ask: CensusAsk, data: SiteData) -> int:
        """Refuse data that this run did not begin with, unless it is accepted; the last round that was asked here."""
        path = private_folder(self.place.run(ask.run)) / "site.json"
        known = path.is_file()
        before = Memory.read(path) if known else Memory(data.fingerprint)
        if before.fingerprint != data.fingerprint and self.place.name not in ask.accept_data.split(","):
            raise Refused(Code.DATA_CHANGED, "the data is not what this run began with; accept it, or put it back")
        now = replace(before, fingerprint=data.fingerprint)
        if not known or now != before:
            now.write(path)
        return now.asked

    # ── round ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def round(self, record: Record) -> Record:
        """One round of the client: from the state that counted to an upload, with the next state in its file."""
        ask = message_of(RoundAsk, record)
        check_run(ask.run)
        if not 0 <= ask.client < ask.population:
            raise Refused(Code.BAD_MESSAGE, "the client's number is none of the population's")
        method = site_method(ask.method, self.app.method)
        data = self._data(ask)
        path = self.place.run(ask.run) / "site.json"
        memory = Memory.read(path)
        if ask.round > memory.asked:
            replace(memory, asked=ask.round).write(path)
        sizes = (ask.population, ask.total)
        experiment = site_experiment(_common(ask), method, self._parts, data.samples, ask.client, sizes)
        with experiment.arithmetic():
            return self._trained(ask, experiment)

    # ── score ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def score(self, record: Record) -> Record:
        """Sums over the site's test samples, and over those that it trains on where they are asked for."""
        ask = message_of(ScoreAsk, record)
        check_run(ask.run)
        if not 0 <= ask.client < ask.population:
            raise Refused(Code.BAD_MESSAGE, "the client's number is none of the population's")
        data = self._data(ask)
        method, sizes = site_method(ask.method, self.app.method), (ask.population, ask.total)
        experiment = site_experiment(_common(ask), method, self._parts, data.samples, ask.client, sizes)
        with experiment.arithmetic():
            theta, buffers, own = self._judged_model(ask, experiment)
            kept, held = own_rows(experiment.scenario, len(data.samples), ask.client)
            sums: dict[str, tuple[float, float]] = {}
            with experiment.network.own_statistics() if own else nullcontext():
                if len(held):
                    sums |= _sums(experiment, theta, buffers, held)
                if ask.trains:
                    sums["train"] = _sums(experiment, theta, buffers, kept)["loss"]
        return as_record(Scored(ask.run, ask.client, json.dumps(sums)))

    def _judged_model(self, ask: ScoreAsk, experiment: Experiment) -> tuple[Vector, Buffers, bool]:
        """The model to be judged, and whether with statistics of the site's own."""
        network = experiment.network
        travels = experiment.scenario.buffers != "keep-local" and bool(leaves_of(network.buffers))
        parts: dict[str, object] = {"model": network.parameters, **({"buffers": network.buffers} if travels else {})}
        if ask.form != form_digest(parts) or ask.arrays.keys() != parts.keys():
            raise Refused(Code.OTHER_MODEL, "the message has not the names, types and shapes of the site's model")
        theta = tree_of(ask.arrays["model"], network.parameters, "model")
        if travels:
            return theta, tree_of(ask.arrays["buffers"], network.buffers, "buffers"), False
        initial = experiment.initial_client_state
        if not ask.counted or "buffers" not in initial:
            return theta, network.buffers, False
        versions_in(ask.counted)
        return theta, StateFolder(self.place.run(ask.run)).load(ask.counted, initial)["buffers"], True

    def _data(self, ask: RoundAsk | ScoreAsk) -> SiteData:
        """The samples that this run began with, from the kept file, or read again where that is gone."""
        path = self.place.run(ask.run) / "site.json"
        if not path.is_file():
            raise Refused(Code.STATE_LOST, "the site does not know this run: its state folder is gone or another one")
        began = Memory.read(path).fingerprint
        cache = DataCache(self.place.state)
        kept = cache.kept(began)
        if kept is not None:
            return kept
        task = "own" if self.app.task is not None else site_scenario(ask.scenario, 1).task
        data = cache.read(self.app.data, task, self.app.padding)
        if data.fingerprint != began:
            raise Refused(Code.DATA_CHANGED, "the data is not what this run began with; accept it, or put it back")
        return data

    def _trained(self, ask: RoundAsk, experiment: Experiment) -> Record:
        """Train from the version that the server names, keep the next one, and answer."""
        given, initial = _received(ask, experiment)
        folder = StateFolder(self.place.run(ask.run))
        keep = versions_in(",".join(filter(None, (ask.keep, ask.counted))))
        version = versions_in(f"{ask.round}.{ask.token}")[0]
        before = folder.load(ask.counted, initial) if ask.counted and experiment.has_client_state else None
        if experiment.has_client_state:
            folder.begin(version, keep)
        client = _client_round(ask, experiment, before, initial)
        began = self.place.clock()
        upload, slots = ClientTrainer(experiment, compiled=False).upload(given, client, self._limit(ask, began))
        seconds = self.place.clock() - began
        if not finite({"loss": upload.loss, "payloads": upload.payloads}):
            raise Refused(Code.DIVERGED, "a loss or an update is not a finite number")
        steps = int(upload.facts.steps)
        if experiment.has_client_state:
            after = next_state(ask.method, client, slots, upload.facts.steps, upload.buffers)
            folder.save(version, copied(after))
        samples = int(client.arrays.counts[:steps].sum())
        return _reply(ask, experiment, upload, samples, seconds)

    def _limit(self, ask: RoundAsk, began: float) -> Callable[[int], bool]:
        """Whether local training has had its time."""
        if not ask.seconds:
            return lambda steps: False
        return lambda steps: self.place.clock() - began >= ask.seconds


SCORED_AT_ONCE = 1000
"""Samples of one pass in evaluation mode."""


def _sums(experiment: Experiment, theta: Vector, buffers: Buffers, rows: np.ndarray) -> dict[str, tuple[float, float]]:
    """Sums over some samples: of losses and counts, and of the rows of each metric that follows from sums."""
    found: dict[str, tuple[float, float]] = {}
    for start in range(0, len(rows), SCORED_AT_ONCE):
        samples = experiment.samples.read(torch.as_tensor(rows[start : start + SCORED_AT_ONCE]))
        scored = score(experiment, theta, buffers, *samples)
        losses, units = scored["loss"], scored.get("units")
        assert isinstance(losses, torch.Tensor)
        weights = units if isinstance(units, torch.Tensor) else torch.ones_like(losses)
        parts = {"loss": (float((losses * weights).sum()), float(weights.sum()))}
        for metric in experiment.task.metrics:
            pair = sums_of(metric, scored[f"metric/{metric.name}"])
            if pair is not None:
                parts[f"metric/{metric.name}"] = pair
        for name, (total, count) in parts.items():
            before = found.get(name, (0.0, 0.0))
            found[name] = before[0] + total, before[1] + count
    if not all(map(math.isfinite, (number for pair in found.values() for number in pair))):
        raise Refused(Code.DIVERGED, "the model's outputs are not finite on the site's samples")
    return found


def _common(ask: CensusAsk | RoundAsk | ScoreAsk) -> Common:
    """The words of a run; those of another version of Headway are refused."""
    if ask.version != VERSION:
        raise Refused(Code.OTHER_VERSION, f"headway is {VERSION} at the site and {ask.version[:40]} at the server")
    return Common(ask.run, ask.version, ask.method, ask.scenario, ask.classes)


def _received(ask: RoundAsk, experiment: Experiment) -> tuple[RoundInput, ClientState]:
    """What the client receives, and the state of one that never took part."""
    blank = blank_payloads(experiment)
    buffers = experiment.network.buffers
    travelling = buffers if experiment.scenario.buffers != "keep-local" else {}
    if ask.form != form_digest({"payloads": blank, "buffers": travelling}):
        raise Refused(Code.OTHER_MODEL, "the message has not the names, types and shapes of the site's model")
    wanted = {*(f"payload/{name}" for name in blank), *(["buffers"] if leaves_of(travelling) else [])}
    if ask.arrays.keys() - {"first"} != wanted:
        raise Refused(Code.BAD_MESSAGE, "the message has other fields than this method sends")
    payloads = {name: tree_of(ask.arrays[f"payload/{name}"], like, name) for name, like in blank.items()}
    if "buffers" in ask.arrays:
        buffers = tree_of(ask.arrays["buffers"], buffers, "buffers")
    initial = experiment.initial_client_state
    if "first" in ask.arrays:
        first = tree_of(ask.arrays["first"], experiment.network.parameters, "first")
        initial = {**initial, "slots": copied(experiment.method.client_state(first))}
    return RoundInput(ask.round, received(experiment, payloads), buffers), initial


def _client_round(
    ask: RoundAsk, experiment: Experiment, before: ClientState | None, initial: ClientState
) -> ClientRound:
    """The client's batches, rates and key, with its state: that of a version, or the first one."""
    turn = Turn(ask.round, (ask.client,), experiment.weights([ask.client])[0])
    made = experiment.client_rounds.client_round(turn, 0, before)
    if before is not None:
        return made
    return ClientRound(made.client, made.arrays, made.weight, initial, made.steps, made.words)


def upload_form(upload: Upload, travelling: bool) -> str:
    """The digest of an upload's names, types and shapes; `travelling`: with its buffers."""
    return form_digest(upload_parts(upload, travelling))


def upload_parts(upload: Upload, travelling: bool) -> dict[str, object]:
    """An upload's fields by the names that they have in a message."""
    numbers = {
        "loss": upload.loss,
        "steps": upload.facts.steps,
        "rate_sum": upload.facts.rate_sum,
        "clipped": upload.clipped,
        "measures": upload.measures,
    }
    payloads = {f"payload/{name}": payload for name, payload in upload.payloads.items()}
    buffers: dict[str, object] = {"buffers": upload.buffers} if travelling and leaves_of(upload.buffers) else {}
    return {**payloads, **buffers, "numbers": numbers}


def _reply(ask: RoundAsk, experiment: Experiment, upload: Upload, samples: int, seconds: float) -> Record:
    if experiment.method.guards:  # what is not clipped and has no noise stays here
        silent = {name: torch.zeros_like(value) for name, value in upload.measures.items()}
        nothing, seconds = torch.zeros_like(upload.loss), 0.0
        upload = replace(upload, loss=nothing, measures=silent, clipped=torch.zeros_like(upload.clipped))
    parts = upload_parts(upload, experiment.scenario.buffers != "keep-local")
    found = UploadReply(
        run=ask.run,
        round=ask.round,
        token=ask.token,
        client=ask.client,
        samples=samples,
        training_seconds=float(seconds),
        form=form_digest(parts),
        arrays={name: flat(part) for name, part in parts.items()},
    )
    return as_record(found)
