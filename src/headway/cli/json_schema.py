"""The JSON Schema of what `--json` prints, made from the types that the program itself is checked with."""

from __future__ import annotations

import types
import typing
from typing import Any, NotRequired, Required, get_args, get_origin, is_typeddict

from headway.cli.outcome import Document

_KINDS = {int: "integer", float: "number", str: "string", bool: "boolean", type(None): "null"}


def schema() -> dict[str, object]:
    """The schema of `Document`."""
    definitions: dict[str, object] = {}
    whole = _object(Document, definitions)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What headway run, compare, resume and report print with --json",
        **whole,
        "$defs": definitions,
    }


def _object(kind: Any, definitions: dict[str, object]) -> dict[str, object]:
    """A typed dictionary. Rows and runs may have more numbers: a task's own metrics, under their names."""
    hints = typing.get_type_hints(kind, include_extras=True)
    names = sorted(hints)
    optional = {name for name, hint in hints.items() if get_origin(hint) is NotRequired}
    more: object = {"type": ["number", "null"]} if kind.__name__.endswith(("Numbers", "Entry")) else False
    return {
        "type": "object",
        "properties": {name: _value(hints[name], definitions) for name in names},
        "required": sorted(kind.__required_keys__ - optional),
        "additionalProperties": more,
    }


def _value(hint: Any, definitions: dict[str, object]) -> dict[str, object]:
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (NotRequired, Required):
        return _value(parts[0], definitions)
    if origin in (types.UnionType, typing.Union):
        return {"anyOf": [_value(part, definitions) for part in parts]}
    if origin is typing.Literal:
        return {"enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": _value(parts[0], definitions)}
    if is_typeddict(hint):
        if hint.__name__ not in definitions:
            definitions[hint.__name__] = {}  # known before its parts are
            definitions[hint.__name__] = _object(hint, definitions)
        return {"$ref": f"#/$defs/{hint.__name__}"}
    return {"type": _KINDS[hint]}
