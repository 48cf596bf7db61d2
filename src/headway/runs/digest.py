"""A digest of own code and values: the same in another process, another one as soon as a body or a number changes.

A function is its source where there is one, else its bytecode with the version of Python; with it go its defaults, the
values that it closes over and the global names of its body. A class is its source and those of its bases. An object is
its class and its fields. What is imported from Python, PyTorch, NumPy, SciPy or Headway is named, not read. So are the
layers of transformers and peft, with their configuration.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import hashlib
import inspect
import sys
import textwrap
import types
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePath

import numpy as np
import torch
from torch import Tensor, nn

from headway.methods.renamed import ADDED_ARGUMENTS, first_name
from headway.vectors import Vector

_PRETRAINED = frozenset({"transformers", "peft", "torchmetrics"})
"""Libraries of models and metrics that say in a configuration how their layers are made."""
_LIBRARIES = frozenset({"headway", "torch", "numpy", "scipy", *_PRETRAINED, *sys.stdlib_module_names}) - {"__main__"}
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), range, enum.Enum)
_NAMED = (torch.dtype, torch.device, np.dtype, np.generic)
_Collection = Mapping[object, object] | tuple[object, ...] | list[object] | set[object] | frozenset[object]
_PYTHON = f"bytecode of Python {sys.version_info.major}.{sys.version_info.minor}"


def digest(value: object) -> str:
    """A sum over everything that a value says and does."""
    return _Digest().of(value)


def content(array: Tensor | np.ndarray) -> bytes:
    """The bytes of an array, of any type, in order."""
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(array).tobytes()
    flat = array.detach().cpu().contiguous().reshape(-1)
    return bytes(flat.view(torch.uint8).numpy().tobytes()) if flat.numel() else b""


class _Digest:
    """One sum, and what was added to it: a function, class or object that comes again is named by its number."""

    def __init__(self) -> None:
        self.sum = hashlib.sha256()
        self.seen: dict[int, tuple[int, object]] = {}
        self.within: set[int] = set()
        """The collections that are being added: one that holds itself ends there."""

    def of(self, value: object) -> str:
        self.add(value)
        return self.sum.hexdigest()

    def write(self, *words: str | bytes) -> None:
        for word in words:
            raw = word if isinstance(word, bytes) else word.encode("utf-8", "surrogatepass")
            self.sum.update(f"{len(raw)}:".encode() + raw)

    def add(self, value: object) -> None:
        if isinstance(value, _PLAIN):
            self.write(type(value).__name__, repr(value))
        elif isinstance(value, PurePath):
            self.write("path")  # where files lie changes no number
        elif isinstance(value, _NAMED):
            self.write(type(value).__name__, str(value))
        elif isinstance(value, Mapping | tuple | list | set | frozenset):
            self._add_collection(value)
        elif id(value) in self.seen:
            self.write("again", str(self.seen[id(value)][0]))
        else:
            self.seen[id(value)] = len(self.seen), value
            self._add_new(value)

    def _add_new(self, value: object) -> None:
        if isinstance(value, Tensor | np.ndarray):
            self.write("array", str(value.dtype), str(tuple(value.shape)), content(value))
        elif isinstance(value, functools.partial):
            self._add_all("partial", value.func, value.args, value.keywords)
        elif isinstance(value, types.MethodType):
            self._add_all("method", value.__func__, value.__self__)
        elif isinstance(value, staticmethod | classmethod):
            self._add_all(type(value).__name__, value.__func__)
        elif isinstance(value, property):
            self._add_all("property", value.fget)
        elif isinstance(value, types.FunctionType):
            self._add_function(value)
        elif isinstance(value, types.CodeType):
            self._add_code(value)
        elif isinstance(value, type):
            self._add_class(value)
        else:
            self._add_object(value)

    def _add_all(self, kind: str, *values: object) -> None:
        self.write(kind, str(len(values)))
        for value in values:
            self.add(value)

    def _add_collection(self, value: _Collection) -> None:
        if id(value) in self.within:
            self.write("itself")
            return
        self.within.add(id(value))
        if isinstance(value, Mapping):
            self._add_all("mapping", *(part for pair in value.items() for part in pair))
        elif isinstance(value, set | frozenset):
            self._add_all("set", *sorted(digest(part) for part in value))
        else:
            self._add_all(type(value).__name__, *value)
        self.within.discard(id(value))

    def _add_function(self, function: types.FunctionType) -> None:
        self.write("function", function.__qualname__)
        if _of_library(function):
            self.write(_package(function))
            return
        source = _source(function)
        self.write("source", source) if source else self.add(function.__code__)
        self._add_surroundings(function)

    def _add_surroundings(self, function: types.FunctionType) -> None:
        """What a body takes from outside: defaults, closed-over values, globals."""
        self._add_all("defaults", function.__defaults__, function.__kwdefaults__)
        for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
            self.write("closure", name)
            try:
                self.add(cell.cell_contents)
            except ValueError:  # a name that is bound later
                self.write("empty")
        for name, value in _globals_of(function):
            self.write("global", name)
            self.add(value)

    def _add_code(self, code: types.CodeType) -> None:
        self.write(_PYTHON, code.co_code, *code.co_names)
        self._add_all("constants", *code.co_consts)

    def _add_class(self, kind: type) -> None:
        self.write("class", first_name(kind) if _package(kind) == "headway" else kind.__qualname__)
        if _of_library(kind):
            self.write(_package(kind))
            return
        source = _source(kind)
        self.write("source", source or _PYTHON)
        for base in kind.__bases__:
            self.add(base)
        for name, part in sorted(vars(kind).items()):
            if source:
                self._add_surroundings_of_method(name, part)
            elif isinstance(_body(part), types.FunctionType) or not name.startswith("__"):
                self.write("attribute", name)
                self.add(part)

    def _add_surroundings_of_method(self, name: str, part: object) -> None:
        """What a method takes from outside: its body is in the source of the class, but for what `dataclass` makes."""
        body = _body(part)
        if isinstance(body, types.FunctionType) and not body.__code__.co_filename.startswith("<"):
            self.write("method", name)
            self._add_surroundings(body)

    def _add_object(self, value: object) -> None:
        """Its class and its fields; of an object of Python's or a library's the class only, but for ours."""
        if isinstance(value, types.ModuleType):
            self.write("module", value.__name__)
        elif isinstance(value, nn.Module):
            self._add_module(value)
        elif isinstance(value, Vector):
            self._add_all("vector", value.leaves)
        else:
            self.write("object", str(getattr(value, "__name__", "")))
            self.add(type(value))
            self._add_all("wrapped", getattr(value, "__wrapped__", None))
            if not _of_library(type(value)) or _package(type(value)) == "headway":
                self._add_all("fields", *(part for pair in _fields(value) for part in pair))

    def _add_module(self, module: nn.Module) -> None:
        """A network's layers and their settings; of its numbers the shapes, and the values of what is frozen."""
        for name, part in module.named_modules():
            self.write(
                "layer", name, part.extra_repr() if part.__class__.extra_repr is not nn.Module.extra_repr else ""
            )
            self.add(type(part))
            if not _of_library(type(part)):
                self._add_all("fields", *(one for pair in _settings(part) for one in pair))
            elif _package(type(part)) in _PRETRAINED:
                self._add_all("configured", *(one for pair in _configuration(part) for one in pair))
        for name, leaf in (*module.named_parameters(), *module.named_buffers()):
            self.write("leaf", name, str(leaf.dtype), str(tuple(leaf.shape)))
            if isinstance(leaf, nn.Parameter) and not leaf.requires_grad:
                self.write("frozen", content(leaf))


def _body(part: object) -> object:
    """The function behind a property, a class method or a static method; all else as it is."""
    return part.fget if isinstance(part, property) else getattr(part, "__func__", part)


def _package(value: object) -> str:
    """The package that a function or class is of; its modules may be arranged otherwise in another version."""
    return str(getattr(value, "__module__", None) or "").partition(".")[0]


def _of_library(value: object) -> bool:
    return _package(value) in _LIBRARIES


def _source(value: types.FunctionType | type) -> str | None:
    try:
        return textwrap.dedent(inspect.getsource(value)).rstrip()
    except (OSError, TypeError, IndentationError, SyntaxError):
        return None


def _names(code: types.CodeType) -> set[str]:
    """The names that a body, and the bodies in it, look up."""
    inner = [_names(one) for one in code.co_consts if isinstance(one, types.CodeType)]
    return set(code.co_names).union(*inner)


def _globals_of(function: types.FunctionType) -> Iterator[tuple[str, object]]:
    """Names and values of the globals of a body, and of what it takes from the user's own modules."""
    names = sorted(_names(function.__code__))
    for name in names:
        if name not in function.__globals__ or name.startswith("@"):  # a name that pytest puts there
            continue
        value = function.__globals__[name]
        yield name, value
        if isinstance(value, types.ModuleType) and value.__name__.partition(".")[0] not in _LIBRARIES:
            yield from ((f"{name}.{part}", getattr(value, part)) for part in names if hasattr(value, part))


def _fields(value: object) -> list[tuple[str, object]]:
    """The fields of an object, without what it only remembers (`cached_property`)."""
    if dataclasses.is_dataclass(value):
        added = ADDED_ARGUMENTS.get(type(value).__qualname__, {}) if _package(type(value)) == "headway" else {}
        fields = [field.name for field in dataclasses.fields(value)]
        names = [name for name in fields if name not in added or getattr(value, name) != added[name]]
    else:
        bases = [vars(kind) for kind in type(value).__mro__]
        remembered = {name for space in bases for name, part in space.items() if _remembers(part)}
        slots = {name for space in bases for name in _slots(space)}
        names = sorted((getattr(value, "__dict__", {}).keys() | slots) - remembered)
    return [(name, getattr(value, name, None)) for name in names]


def _slots(space: Mapping[str, object]) -> tuple[str, ...]:
    slots = space.get("__slots__", ())
    if isinstance(slots, str):
        return (slots,)
    return tuple(slots) if isinstance(slots, Iterable) else ()


def _remembers(part: object) -> bool:
    return isinstance(part, functools.cached_property)


def _settings(module: nn.Module) -> list[tuple[str, object]]:
    """What a user's layer keeps beside its numbers and layers: `self.scale = 2.0`, an activation, a mask."""
    own = {"training", *vars(nn.Module())}
    return [(name, value) for name, value in _fields(module) if name not in own]


_VOLATILE = frozenset(
    {
        *("transformers_version", "_name_or_path", "warnings_issued"),
        *("_update_count", "_update_called", "_computed", "_forward_cache", "_cache", "_is_synced", "_to_sync"),
    }
)
"""What a configured layer keeps that changes no number: versions, and what a torchmetrics metric has gone through."""


def _configuration(layer: nn.Module) -> Iterator[tuple[str, object]]:
    """The settings of a layer of transformers or peft: numbers, texts, tables of them, and its configuration."""
    for name, value in _settings(layer):
        to_dict = getattr(value, "to_dict", None)
        table = to_dict() if to_dict else value
        if isinstance(table, Mapping) and name not in _VOLATILE:
            yield name, {key: one for key, one in table.items() if _is_plain(one) and key not in _VOLATILE}
        elif _is_plain(value) and name not in _VOLATILE:
            yield name, value


def _is_plain(value: object) -> bool:
    """Whether a value is one of Python's own, or a collection of such."""
    if isinstance(value, Mapping):
        return all(map(_is_plain, value.values()))
    return isinstance(value, _PLAIN) or (isinstance(value, list | tuple | set) and all(map(_is_plain, value)))
