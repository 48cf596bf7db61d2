"""The messages between the server and a site, as frozen records, and how each is written as a `Record`.

server ─ census ─▶ site ─ present ─▶ server      who is there, with how many samples, and with which model
server ─ round ──▶ site ─ upload ──▶ server      one client's round
server ─ score ──▶ site ─ scored ──▶ server      how the model does on the samples of a site
                   site ─ refusal ─▶ server      instead of any answer: a code and a fixed sentence
"""

from __future__ import annotations

import dataclasses
import re
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import numpy as np

from headway.deploy.codes import Code, Refused
from headway.deploy.records import SCHEMA, Record, Scalar

Arrays = Mapping[str, np.ndarray]
RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+=-]{0,99}")
"""A run's name, which is that of a folder at the site."""
VERSION = re.compile(r"\d{1,9}\.[0-9a-f]{1,32}")
"""A version of a client's state: the round that made it, and the token of the ask."""
TEXT = 200
"""Characters of a refusal's sentence."""


@dataclass(frozen=True)
class CensusAsk:
    """Who are you, and do you have what this run needs?"""

    kind: ClassVar[str] = "census"
    run: str
    version: str
    """Of Headway."""
    method: str
    scenario: str
    """The settings on which a client's numbers depend, as JSON."""
    classes: int
    accept_data: str
    """The names of the sites whose changed data is accepted, separated by commas."""


@dataclass(frozen=True)
class Present:
    """A site as it is: its name, its samples and digests of what it would train with."""

    kind: ClassVar[str] = "present"
    name: str
    samples: int
    form: str
    """Types and shapes of a sample and its target."""
    fingerprint: str
    """A digest of all samples, with a salt that stays at the site."""
    asked: int
    """The last round of this run that the site was asked for; 0 for one that does not know it."""
    method: str
    model: str
    """Digests."""


@dataclass(frozen=True)
class RoundAsk:
    """One client's round: what it receives, and from which of its states it begins."""

    kind: ClassVar[str] = "round"
    run: str
    version: str
    method: str
    scenario: str
    classes: int
    round: int
    token: str
    """Of this ask: the state that comes of it is named by it."""
    client: int
    population: int
    total: int
    """Σ n_i."""
    counted: str
    """The version of the client's state to begin from: its last round that counted; empty for a newcomer."""
    keep: str
    """The versions that the server may still ask for, separated by commas."""
    seconds: float
    """After how many seconds local training ends with the steps that are done; 0 for no limit."""
    form: str
    """The digest of names, types and shapes of the message."""
    arrays: Arrays = field(repr=False)


@dataclass(frozen=True)
class UploadReply:
    """What a client sends back after its round."""

    kind: ClassVar[str] = "upload"
    run: str
    round: int
    token: str
    client: int
    samples: int
    """In its batches."""
    training_seconds: float
    form: str
    """The digest of names, types and shapes of the upload."""
    arrays: Arrays = field(repr=False)


@dataclass(frozen=True)
class ScoreAsk:
    """How does this model do on your samples?"""

    kind: ClassVar[str] = "score"
    run: str
    version: str
    method: str
    scenario: str
    classes: int
    round: int
    client: int
    population: int
    total: int
    counted: str
    """The version of the client's state, for statistics of its own; empty for a newcomer."""
    trains: bool
    """Whether the loss on the training samples is asked for."""
    form: str
    arrays: Arrays = field(repr=False)


@dataclass(frozen=True)
class Scored:
    """Sums over a site's samples."""

    kind: ClassVar[str] = "scored"
    run: str
    client: int
    sums: str
    """Sums by name, as JSON."""


@dataclass(frozen=True)
class Refusal:
    """Why there is no answer: a code, and a sentence that names no data and no path."""

    kind: ClassVar[str] = "refusal"
    code: str
    text: str


Message = TypeVar("Message", CensusAsk, Present, RoundAsk, UploadReply, ScoreAsk, Scored, Refusal)
AnyMessage = CensusAsk | Present | RoundAsk | UploadReply | ScoreAsk | Scored | Refusal


def as_record(message: AnyMessage) -> Record:
    """A message as it travels."""
    values = {part.name: getattr(message, part.name) for part in dataclasses.fields(message)}
    arrays = values.pop("arrays", {})
    return Record(message.kind, {"schema": SCHEMA, **values}, arrays)


def message_of(kind: type[Message], record: Record, code: Code = Code.BAD_MESSAGE) -> Message:
    """The message of a kind in a record, which has its values in their types and no others."""
    if record.kind != kind.kind:
        raise Refused(code, f"the message is '{record.kind[:40]}' where '{kind.kind}' was expected")
    schema = record.values.get("schema")
    if schema != SCHEMA:
        raise Refused(Code.OTHER_VERSION, f"messages are of schema {SCHEMA} here and of {str(schema)[:20]} there")
    hints = typing.get_type_hints(kind)
    names: list[str] = [part.name for part in dataclasses.fields(kind) if part.name != "arrays"]
    if record.values.keys() != {"schema", *names}:
        raise Refused(code, f"the message '{kind.kind}' has other values than it should")
    given: dict[str, Scalar | Arrays] = {}
    for name in names:
        given[name] = _checked(name, record.values[name], hints[name], code)
    if "arrays" in hints:
        given["arrays"] = record.arrays
    elif record.arrays:
        raise Refused(code, f"the message '{kind.kind}' has arrays, and takes none")
    return kind(**given)  # type: ignore[arg-type]


def _checked(name: str, value: Scalar, wanted: type, code: Code) -> Scalar:
    if type(value) is not wanted:
        raise Refused(code, f"the value '{name}' of a message is of type {type(value).__name__}, not {wanted.__name__}")
    if type(value) is int and not -1 <= value < 1 << 62:
        raise Refused(code, f"the value '{name}' of a message is out of range")
    return value


def refusal(code: Code, text: str) -> Record:
    """A refusal as it travels."""
    return as_record(Refusal(str(code), text[:TEXT]))


def versions_in(text: str) -> tuple[str, ...]:
    """The versions of a list that is separated by commas; anything else is refused."""
    found = tuple(filter(None, text.split(",")))
    if not all(VERSION.fullmatch(one) for one in found):
        raise Refused(Code.BAD_MESSAGE, "a version of a state is written ROUND.TOKEN")
    return found


def check_run(run: str) -> None:
    """Refuse a run whose name is no name of a folder."""
    if not RUN.fullmatch(run):
        raise Refused(Code.BAD_MESSAGE, "the name of the run is no name of a folder")
