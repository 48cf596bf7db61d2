"""Reads CIFAR's python layout without `pickle`, by an interpreter of the few instructions that its files consist of.

The files are pickles of protocol 2. A pickle is a program; here `pickletools` only spells its instructions, and those
that build numbers, texts, lists, dictionaries and arrays of bytes are carried out by hand. Any other instruction, and
any name but NumPy's array and type, is refused. Nothing of what a file names is ever looked up or called.
"""

from __future__ import annotations

import io
import math
import pickletools
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from headway.data.sources.files import Damaged, cause, read_bytes

_BY_CODE = {instruction.code: instruction for instruction in pickletools.opcodes}
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

    def fill(self, state: object) -> None:
        _, shape, kind, by_column, data = _row(state)
        if not isinstance(kind, _Bytes):
            raise _Refused("it holds an array of something else than bytes")
        # a tuple within the shape would be repeated by the product, and printed level by level
        if not isinstance(shape, tuple) or len(shape) > _DIMENSIONS or any(type(size) is not int for size in shape):
            raise _Refused("it holds an array whose shape is not a short row of whole numbers")
        raw = data if isinstance(data, bytes) else _text(data).encode("latin-1")
        if math.prod(shape) != len(raw):
            raise ValueError(f"an array of shape {shape} cannot have {len(raw)} bytes")
        self.content = np.frombuffer(bytearray(raw), np.uint8).reshape(shape, order="F" if by_column else "C")


def _row(value: object) -> Sequence[object]:
    if not isinstance(value, tuple | list):
        raise TypeError("a row of values is something else")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("a text is something else")
    return value


def _place(value: object) -> int:
    if not isinstance(value, int):
        raise TypeError("a place is not a number")
    return value


def _called(name: object, arguments: Sequence[object]) -> object:
    """What one of the three calls in CIFAR's files gives: an empty array, its type, or bytes."""
    known = name.name if isinstance(name, _Name) else "an object"
    if known in _ARRAY and isinstance(arguments[0], _Name) and arguments[0].name == "numpy ndarray":
        return _Array()
    if known == "numpy dtype" and arguments[0] == "u1":
        return _Bytes()
    if known == "_codecs encode" and arguments[1] == "latin1":
        return _text(arguments[0]).encode("latin-1")
    raise _Refused(f"it calls {known.replace(' ', '.')} in another way than CIFAR's files do")


class _Machine:
    """Carries out the instructions of a file, on a stack and a memory."""

    def __init__(self) -> None:
        self.stack: list[object] = []
        self.memo: dict[int, object] = {}

    def carry_out(self, instruction: str, argument: object) -> None:
        _ACTIONS[instruction](self, argument)

    def since_mark(self) -> list[object]:
        at = len(self.stack) - 1
        while self.stack[at] is not _MARK:
            at -= 1
        found = self.stack[at + 1 :]
        del self.stack[at:]
        return found

    def last(self, count: int) -> list[object]:
        found = self.stack[-count:]
        del self.stack[-count:]
        return found

    def push(self, value: object) -> None:
        self.stack.append(value)

    def remember(self, place: object) -> None:
        self.memo[_place(place)] = self.stack[-1]

    def extend(self, items: list[object]) -> None:
        """Add items to the list on top."""
        top = self.stack[-1]
        if not isinstance(top, list):
            raise TypeError("items are added to something else than a list")
        top.extend(items)

    def enter(self, items: list[object]) -> None:
        """Add keys and values, in turns, to the dictionary on top."""
        # a key is hashed: tuples nested deeply enough would overflow the stack of the process
        if not all(isinstance(key, str | bytes) for key in items[::2]):
            raise _Refused("it holds a key that is not text")
        top = self.stack[-1]
        if not isinstance(top, dict):
            raise TypeError("items are set in something else than a dictionary")
        top.update(zip(items[::2], items[1::2], strict=True))

    def call(self) -> None:
        name, arguments = self.last(2)
        self.push(_called(name, _row(arguments)))

    def build(self) -> None:
        (state,) = self.last(1)
        top = self.stack[-1]
        if isinstance(top, _Array):
            top.fill(state)
        elif not isinstance(top, _Bytes):  # single bytes have no byte order
            raise _Refused("it sets the state of something else than an array")


def _check_protocol(_: _Machine, number: object) -> None:
    if number != 2:
        raise _Refused(f"it is of protocol {number}; CIFAR's files are of protocol 2")


_Action = Callable[[_Machine, object], None]
_VALUES = ("BININT", "BININT1", "BININT2", "SHORT_BINSTRING", "BINSTRING", "BINUNICODE")
_ACTIONS: dict[str, _Action] = {
    "PROTO": _check_protocol,
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    **dict.fromkeys(_VALUES, _Machine.push),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "MARK": lambda machine, _: machine.push(_MARK),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.since_mark())),
    "TUPLE1": lambda machine, _: machine.push(tuple(machine.last(1))),
    "TUPLE2": lambda machine, _: machine.push(tuple(machine.last(2))),
    "TUPLE3": lambda machine, _: machine.push(tuple(machine.last(3))),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), _Machine.remember),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, place: machine.push(machine.memo[_place(place)])),
    "APPEND": lambda machine, _: machine.extend(machine.last(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.since_mark()),
    "SETITEM": lambda machine, _: machine.enter(machine.last(2)),
    "SETITEMS": lambda machine, _: machine.enter(machine.since_mark()),
    "GLOBAL": lambda machine, name: machine.push(_Name(_text(name))),
    "REDUCE": lambda machine, _: machine.call(),
    "BUILD": lambda machine, _: machine.build(),
}
"""What each instruction of a file does, with its argument. STOP ends the program; any other instruction is refused."""
_KNOWN = {*_ACTIONS, "STOP"}


def _instructions(raw: bytes) -> Iterator[tuple[str, object]]:
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


def read_pickled(path: Path) -> dict[str, object]:
    """The dictionary that a file of CIFAR's python layout holds: text keys; lists, texts and arrays of bytes."""
    machine = _Machine()
    raw = read_bytes(path)
    try:
        for instruction, argument in _instructions(raw):
            machine.carry_out(instruction, argument)
        (found,) = machine.stack
        if not isinstance(found, dict):
            raise TypeError("it holds something else than a dictionary")
        return {
            key.decode("latin-1") if isinstance(key, bytes) else key: _finished(value) for key, value in found.items()
        }
    except _Refused as fault:
        raise Damaged(f"{path} is refused: {fault}") from None
    except Exception as fault:  # a damaged file can raise anything, also for lack of memory or stack
        raise Damaged(f"{path} is truncated or not a file of CIFAR's python layout: {cause(fault)}") from None


def _finished(value: object) -> object:
    """A value as others see it."""
    return value.content if isinstance(value, _Array) else value
