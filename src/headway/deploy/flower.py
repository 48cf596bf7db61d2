"""Flower's side: the two apps, and messages over its grid. The only file that imports flwr.

A record travels as one ConfigRecord of its values and one ArrayRecord of its arrays, each of which is plain bytes.
"""

from __future__ import annotations

import dataclasses
import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from pathlib import Path
from typing import cast

import numpy as np

try:
    import flwr.clientapp
    import flwr.serverapp
    from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
    from flwr.cli.flower_config import read_superlink_connection
    from flwr.cli.utils import init_http_client_from_connection
    from flwr.common.constant import ErrorCode
    from flwr.proto.control_pb2 import ListRunsRequest
    from flwr.serverapp import Grid
    from flwr.supercore.control.control_http_client import ControlHttpClient
except ImportError as fault:
    from headway.errors import UserError

    raise UserError(f"deployment needs Flower 1.41: pip install 'headway[deploy]' ({fault})") from None

from headway.data.own_samples import Padding
from headway.deploy.apps import OwnModel, ServerApp, SiteApp, SitePlace
from headway.deploy.codes import Code, Refused
from headway.deploy.commands import CONNECTION
from headway.deploy.coordinator import deploy
from headway.deploy.messages import refusal
from headway.deploy.records import Record, Scalar
from headway.deploy.site import answer
from headway.deploy.starts import Outcome, Start, Starts, Told, keep_with, server_state
from headway.deploy.transport import Answer, Ask
from headway.engine.experiment import Experiment
from headway.errors import MachineError, UserError
from headway.methods.method import Method
from headway.records import RoundRecord
from headway.tasks.known import OwnTask

RECORD = "headway"
"""The name of both parts of a record in a message of Flower's, and of the one setting of its runs."""
KIND = "kind"
ERRORS = {
    ErrorCode.LOAD_CLIENT_APP_EXCEPTION: f"{Code.FAILED}: app.py cannot be loaded at the site; its log says why",
    ErrorCode.CLIENT_APP_RAISED_EXCEPTION: f"{Code.FAILED}: the app raised an exception; the site's log has it",
    ErrorCode.MESSAGE_UNAVAILABLE: f"{Code.LOST}: the message did not reach the site in time",
    ErrorCode.REPLY_MESSAGE_UNAVAILABLE: f"{Code.LOST}: the reply did not come in time",
    ErrorCode.NODE_UNAVAILABLE: f"{Code.UNREACHABLE}: the site is not connected",
    ErrorCode.CLIENT_APP_CRASHED: f"{Code.FAILED}: the app's process at the site has died",
}
"""What Flower's errors mean. Their own words may be a site's, so they are left out."""
POLL = 0.2
"""Seconds between two looks for replies."""
GRACE = 60.0
"""Seconds that Flower keeps a message longer than its answer is wanted."""


# ── records ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def content_of(record: Record) -> RecordDict:
    """A record as the content of a message of Flower's."""
    content = {f"{RECORD}.values": ConfigRecord({KIND: record.kind, **record.values})}
    if record.arrays:
        arrays = {
            name: Array("uint8", (array.size,), "headway.bytes", array.tobytes())
            for name, array in record.arrays.items()
        }
        content[f"{RECORD}.arrays"] = ArrayRecord(arrays)
    return RecordDict(content)


def record_of(content: RecordDict) -> Record:
    """The record in the content of a message; `Record` refuses what it cannot be."""
    values = dict(content.config_records.get(f"{RECORD}.values", {}))
    arrays = content.array_records.get(f"{RECORD}.arrays", {})
    kind = values.pop(KIND, "")
    plain = {name: np.frombuffer(array.data, np.uint8) for name, array in arrays.items()}
    return Record(cast(str, kind), cast(Mapping[str, Scalar], values), plain)


# ── a site ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class SiteClientApp(flwr.clientapp.ClientApp):  # type: ignore[misc]  # Flower is in an environment of its own
    """Flower's app of a site, and what it was made of."""

    def __init__(self, site: SiteApp) -> None:
        super().__init__()
        self.site = site
        for register in (self.train(), self.query(), self.evaluate()):
            register(partial(reply, site))


def client_app(
    model: OwnModel,
    data: object,
    *,
    classes: int | None = None,
    method: Method | None = None,
    task: OwnTask | None = None,
    padding: Padding = None,
    device: str = "cpu",
) -> SiteClientApp:
    """What trains at every site, as an app of Flower.

    `model` is a class or a function that makes the network, or a module. `data` is a function that reads the site's
    samples, of no argument or of the site's data folder; it returns a dataset or (x, y). `classes` is the number of
    classes of all sites together. `method` and `task` are needed only where they are not Headway's own.
    """
    site = SiteApp(model, data, classes=classes, method=method, task=task, padding=padding, device=device)
    return SiteClientApp(site)


def reply(site: SiteApp, message: Message, context: Context) -> Message:
    """Flower's call for one message: nothing is kept in this process, which ends with it."""
    return Message(content_of(answered(site, message.content, context.node_config)), reply_to=message)


def answered(site: SiteApp, content: RecordDict, node_config: Mapping[str, object]) -> Record:
    """The answer to what a message holds. Nothing is raised: Flower would send an exception's text to the server."""
    try:
        asked, place = record_of(content), place_of(node_config)
    except Refused as refused:
        return refusal(refused.code, refused.text)
    except UserError:
        return refusal(Code.FAILED, "the site was not started by headway deploy join, so it has no name")
    app = dataclasses.replace(site, data=partial(read, site.data, node_config.get("data")))
    return answer(app, place, asked)


def place_of(node_config: Mapping[str, object]) -> SitePlace:
    """The site's name and state folder, which its program was started with."""
    name, state = node_config.get("name"), node_config.get("state")
    if not isinstance(name, str) or not isinstance(state, str):
        raise UserError("this site was not started by headway deploy join, so it has no name and no state folder")
    return SitePlace(name, Path(state))


def read(data: object, folder: object) -> object:
    """The data of a site; where it is a function of one argument, of the site's data folder."""
    if isinstance(data, str | PathLike) or not inspect.isroutine(data):
        return data
    if not takes_folder(data):
        return data()
    if not isinstance(folder, str):
        raise UserError(
            "data() of app.py takes a folder, but the site has none: headway deploy join NAME --data FOLDER"
        )
    return data(Path(folder))


def takes_folder(data: Callable[..., object]) -> bool:
    """Whether a function that reads data takes the site's data folder."""
    wanted = [one for one in inspect.signature(data).parameters.values() if one.default is inspect.Parameter.empty]
    if len(wanted) > 1:
        raise UserError(f"data is a function of {len(wanted)} arguments; it takes none, or the site's data folder")
    return len(wanted) == 1


# ── the server ───────────────────────────────────────────────────────────────────────────────────────────────────────


class LeadingServerApp(flwr.serverapp.ServerApp):  # type: ignore[misc]
    """Flower's app of the server, and what it was made of."""

    def __init__(self, server: ServerApp) -> None:
        super().__init__()
        self.server = server
        self.main()(partial(lead, server))


def server_app(
    method: str | Method,
    model: OwnModel,
    *,
    out: str | Path = "runs/deployment",
    classes: int | None = None,
    sample: tuple[int, ...] | None = None,
    test: object = None,
    task: OwnTask | None = None,
    metrics: Sequence[object] = (),
    padding: Padding = None,
    **settings: object,
) -> LeadingServerApp:
    """What leads a run, as an app of Flower: the method, the same network, and any settings of a scenario.

    `out` is the run's folder at the server. `sample` is the shape of one sample, where there is no test set `test` that
    shows it. Every site takes part in every round unless `participation` says otherwise.
    """
    server = ServerApp(
        method=method,
        model=model,
        out=out,
        settings=settings,
        classes=classes,
        sample=sample,
        test=test,
        task=task,
        metrics=metrics,
        padding=padding,
    )
    return LeadingServerApp(server)


def with_changes(app: ServerApp, out: str, method: str | None, settings: Mapping[str, object]) -> ServerApp:
    """The server's app with another folder, another method where one is named, and some other settings."""
    return dataclasses.replace(app, out=out, method=method or app.method, settings={**app.settings, **settings})


def lead(app: ServerApp, grid: Grid, context: Context) -> None:
    """Flower's call for a run. How it ends is told to the command that started it."""
    starts = Starts(server_state())
    start = starts.read(str(context.run_config.get(RECORD, "")))
    outcome = Outcome(1, "the run was stopped")  # a signal ends the app with no exception of its own
    try:
        app = with_changes(app, start.out, start.method, start.settings)
        transport, speaker = GridTransport(grid, context.run_id), Speaker(starts.told(start.name), start)
        result = deploy(app, transport, start.terms, resume=start.resume, observer=speaker, track=start.track)
        outcome = Outcome(0, str(result.folder))
    except UserError as fault:
        outcome = Outcome(2, str(fault))
        raise
    except Exception as fault:
        outcome = Outcome(1, str(fault) if isinstance(fault, MachineError) else f"{type(fault).__name__}: {fault}")
        raise
    finally:
        starts.end(start.name, outcome)


@dataclass(frozen=True)
class Speaker:
    """Tells the operator's command what a run says; rounds are read from its folder."""

    told: Told
    start: Start

    def begins(self, experiment: Experiment, done: int, executor: str) -> None:
        keep_with(Path(self.start.out), self.start)
        self.told.add(f"task: {experiment.task_in_words}")

    def round(self, record: RoundRecord) -> None:
        pass

    def tell(self, message: str) -> None:
        self.told.add(message)


class GridTransport:
    """Carries messages between the server and the sites over Flower's grid."""

    def __init__(self, grid: Grid, run_id: int) -> None:
        self.grid, self.run_id = grid, run_id
        self._control: ControlHttpClient | None = None
        self._pending: dict[str, str] = {}
        self._failed: list[Answer] = []

    def nodes(self) -> Sequence[str]:
        """The sites that are connected now."""
        return [str(node) for node in self.grid.get_node_ids()]

    def send(self, asks: Sequence[Ask], seconds: float | None) -> None:
        """Send messages; Flower forgets them some time after their answers are wanted."""
        for ask in asks:
            lasts = None if seconds is None else seconds + GRACE
            kind = "train" if ask.record.kind == "round" else "query"
            message = Message(content_of(ask.record), int(ask.node), kind, ttl=lasts, group_id=ask.id)
            sent = [one for one in self.grid.push_messages([message]) if one]
            if sent:
                self._pending[sent[0]] = ask.id
            else:
                self._failed.append(Answer(ask.id, None, "UNREACHABLE: Flower did not take the message"))

    def receive(self, seconds: float) -> Sequence[Answer]:
        """What has come; it waits for `seconds` at most."""
        until = time.monotonic() + seconds
        while not (found := self._take()) and time.monotonic() < until:
            time.sleep(min(POLL, max(0.0, until - time.monotonic())))
        return found

    def _take(self) -> list[Answer]:
        found, self._failed = self._failed, []
        if self._pending:
            found += [self._answer(message) for message in self.grid.pull_messages(list(self._pending))]
        return found

    def _answer(self, message: Message) -> Answer:
        """What a message of Flower's says."""
        known = self._pending.pop(message.metadata.reply_to_message_id)
        if message.has_error():
            return Answer(
                known, None, ERRORS.get(message.error.code, f"{Code.FAILED}: Flower's error {message.error.code}")
            )
        try:
            return Answer(known, record_of(message.content))
        except Refused as refused:
            return Answer(known, None, f"{Code.BAD_REPLY}: {refused.text}")

    def traffic(self) -> int | None:
        """The bytes of this run by Flower's count, which leaves out what it need not send twice.

        The count stands beside a run's numbers: where it cannot be had, the run goes on without it.
        """
        try:
            if self._control is None:
                self._control = init_http_client_from_connection(read_superlink_connection(CONNECTION))
            run = self._control.ListRuns(ListRunsRequest(run_id=self.run_id)).run_dict[self.run_id]
        except Exception:
            return None
        return int(run.bytes_sent + run.bytes_recv)
