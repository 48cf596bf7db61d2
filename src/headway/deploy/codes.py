"""What can go wrong between the server and a site, by one word each: only these words and fixed sentences travel."""

from __future__ import annotations

from enum import StrEnum


class Code(StrEnum):
    """Why a site has no part in a round, or in a run."""

    BAD_MESSAGE = "BAD_MESSAGE"
    BAD_REPLY = "BAD_REPLY"
    DATA_CHANGED = "DATA_CHANGED"
    DATA_UNREADABLE = "DATA_UNREADABLE"
    DISK_FULL = "DISK_FULL"
    DIVERGED = "DIVERGED"
    DOUBLED = "DOUBLED"
    FAILED = "FAILED"
    LATE_SITE = "LATE_SITE"
    LOST = "LOST"
    NAME_TAKEN = "NAME_TAKEN"
    OTHER_METHOD = "OTHER_METHOD"
    OTHER_MODEL = "OTHER_MODEL"
    OTHER_SAMPLES = "OTHER_SAMPLES"
    OTHER_SCENARIO = "OTHER_SCENARIO"
    OTHER_VERSION = "OTHER_VERSION"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    STATE_LOST = "STATE_LOST"
    UNREACHABLE = "UNREACHABLE"


class Refused(Exception):
    """A site cannot do what it is asked: the code travels, with a sentence that names no data and no path."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(f"{code}: {text}")
        self.code, self.text = code, text
