"""Reads CIFAR's python layout without `pickle`, by an interpreter of the few instructions that its files consist of.

The files are pickles of protocol 2. A pickle is a program; here `pickletools` only spells its instructions, and those
that build numbers, texts, lists, dictionaries and arrays of bytes are carried out by hand. Any other instruction, and
any name but NumPy's array and type, is refused. Nothing of what a file names is ever looked up or called.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from headway.data.sources.files import Damaged, cause, read_bytes

_CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_VALUES = {"BININT", "BININT1", "BININT2", "SHORT_BINSTRING", "BINSTRING", "BINUNICODE"}
_EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}
_OTHERS = {"PROTO", "STOP", "MARK", "TUPLE", "APPEND", "APPENDS", "SETITEM", "SETITEMS", "GLOBAL", "REDUCE", "BUILD"}
_MEMORY = {"BINPUT", "LONG_BINPUT", "BINGET", "LONG_BINGET"}
_BY_CODE = {instruction.code: instruction for instruction in pickletools.opcodes}
_KNOWN = {*_CONSTANTS, *_VALUES, *_EMPTY, *_TUPLES, *_OTHERS, *_MEMORY}
_ARRAY = {"numpy.core.multiarray _reconstruct", "numpy._core.multiarray _reconstruct"}
_DIMENSIONS = 8
"""The most dimensions of an array; CIFAR's have two."""
_MARK = object()


class _Refused(ValueError):
    pass


class _Name:
    """A name that the file mentions; it is never looked up."""

    def __init__(self, name: str) -> None:
        if name not in _ARRAY | {"numpy ndarray", "numpy dtype", "_codecs encode"}:
            raise _Refused(f"it names {'.'.join(name.split())}")
        self.name = name


class _Bytes:
    """NumPy's type u1."""


class _Array:
    """An array that the file has created and not yet filled."""

    content: np.ndarray

    def fill(self, state: Any) -> None:
        _, shape, kind, by_column, data = state
        if not isinstance(kind, _Bytes):
            raise _Refused("it holds an array of something else than bytes")
        # a tuple within the shape would be repeated by the product, and printed level by level
        if not isinstance(shape, tuple) or len(shape) > _DIMENSIONS or any(type(size) is not int for size in shape):
            raise _Refused("it holds an array whose shape is not a short row of whole numbers")
        raw = data if isinstance(data, bytes) else data.encode("latin-1")
        if math.prod(shape) != len(raw):
            raise ValueError(f"an array of shape {shape} cannot have {len(raw)} bytes")
        self.content = np.frombuffer(bytearray(raw), np.uint8).reshape(shape, order="F" if by_column else "C")


def _called(name: Any, arguments: Any) -> Any:
    known = name.name if isinstance(name, _Name) else "an object"
    if known in _ARRAY and isinstance(arguments[0], _Name) and arguments[0].name == "numpy ndarray":
        return _Array()
    if known == "numpy dtype" and arguments[0] == "u1":
        return _Bytes()
    if known == "_codecs encode" and arguments[1] == "latin1":
        return arguments[0].encode("latin-1")
    raise _Refused(f"it calls {known.replace(' ', '.')} in another way than CIFAR's files do")


class _Machine:
    """Carries out the instructions of a file, on a stack and a memory."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def since_mark(self) -> list[Any]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
        found = self.stack[at + 1 :]
        del self.stack[at:]
        return found

    def last(self, count: int) -> list[Any]:
        found = self.stack[-count:]
        del self.stack[-count:]
        return found

    def carry_out(self, instruction: str, argument: Any) -> None:
        match instruction:
            case "PROTO":
                if argument != 2:
                    raise _Refused(f"it is of protocol {argument}; CIFAR's files are of protocol 2")
            case "MARK":
                self.stack.append(_MARK)
            case "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = self.stack[-1]
            case "BINGET" | "LONG_BINGET":
                self.stack.append(self.memo[argument])
            case "TUPLE":
                self.stack.append(tuple(self.since_mark()))
            case "APPENDS" | "APPEND":
                items = self.since_mark() if instruction == "APPENDS" else self.last(1)
                self.stack[-1].extend(items)
            case "SETITEMS" | "SETITEM":
                items = self.since_mark() if instruction == "SETITEMS" else self.last(2)
                # a key is hashed: tuples nested deeply enough would overflow the stack of the process
                if not all(isinstance(key, str | bytes) for key in items[::2]):
                    raise _Refused("it holds a key that is not text")
                self.stack[-1].update(zip(items[::2], items[1::2], strict=True))
            case "GLOBAL":
                self.stack.append(_Name(argument))
            case "REDUCE":
                self.stack.append(_called(*self.last(2)))
            case "BUILD":
                (state,) = self.last(1)
                if isinstance(self.stack[-1], _Array):
                    self.stack[-1].fill(state)
                elif not isinstance(self.stack[-1], _Bytes):  # single bytes have no byte order
                    raise _Refused("it sets the state of something else than an array")
            case _ if instruction in _CONSTANTS:
                self.stack.append(_CONSTANTS[instruction])
            case _ if instruction in _VALUES:
                self.stack.append(argument)
            case _ if instruction in _EMPTY:
                self.stack.append(_EMPTY[instruction]())
            case _:
                self.stack.append(tuple(self.last(_TUPLES[instruction])))


def _instructions(raw: bytes) -> Iterator[tuple[str, Any]]:
    """Each instruction with its argument, up to STOP. One that is not known is refused before its argument is read."""
    file = io.BytesIO(raw)
    while True:
        code = file.read(1)
        if not code:
            raise ValueError("it ends too early")
        found = _BY_CODE.get(code.decode("latin-1"))
        if found is None or found.name not in _KNOWN:
            raise _Refused(f"it holds the instruction {found.name if found else repr(code)}")
        if found.name == "STOP":
            return
        if found.name == "GLOBAL":
            module, name = (file.readline().rstrip(b"\n").decode("latin-1") for _ in range(2))
            yield "GLOBAL", f"{module} {name}"
        else:
            yield found.name, found.arg.reader(file) if found.arg is not None else None


def read_pickled(path: Path) -> dict[str, Any]:
    """The dictionary that a file of CIFAR's python layout holds: text keys; lists, texts and arrays of bytes."""
    machine = _Machine()
    raw = read_bytes(path)
    try:
        for instruction, argument in _instructions(raw):
            machine.carry_out(instruction, argument)
        (found,) = machine.stack
        return {
            key.decode("latin-1") if isinstance(key, bytes) else key: value.content
            if isinstance(value, _Array)
            else value
            for key, value in found.items()
        }
    except _Refused as fault:
        raise Damaged(f"{path} is refused: {fault}") from None
    except Exception as fault:  # a damaged file can raise anything, also for lack of memory or stack
        raise Damaged(f"{path} is truncated or not a file of CIFAR's python layout: {cause(fault)}") from None
